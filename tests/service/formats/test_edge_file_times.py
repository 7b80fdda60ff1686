"""Times in files of edges."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from tests.service.formats.edges_of_files import Read, pairs, refusal


@pytest.mark.parametrize(
    ("content", "times"),
    [
        ("1 2 1082040961\n3 4 1082040960\n", [1082040961.0, 1082040960.0]),  # Unix, unsorted
        ("1 2 7 926389620\n3 4 1 926389621\n", [926389620.0, 926389621.0]),  # weight, Unix
        ("1 2 0\n3 4 0\n5 6 36\n", [0.0, 0.0, 36.0]),  # from 0, sorted
        ("1 2 1\n3 4 1\n", None),  # constant: weights
        ("1 2 3\n3 4 1\n", None),  # falling: weights
        ("1 2 -1\n3 4 1\n", None),  # negative: signs
        ("1 2 RT\n3 4 MT\n", None),
        ("a b 1082040961\nc d 1082040962\n", [1082040961.0, 1082040962.0]),
        ("src,dst,w,t\n1,2,5,3\n3,4,5,1\n", [3.0, 1.0]),  # named: any values
    ],
)
def test_the_time_column_is_found_by_the_documented_rule(
    content: str, times: list[float] | None, read: Read
) -> None:
    found = read(content).times
    assert (None if found is None else found.tolist()) == times


def test_the_time_column_can_be_given(read: Read) -> None:
    by_number = read("1 2 5 0\n3 4 3 0\n", time=3)
    by_name = read("src,dst,When\n1,2,5\n3,4,3\n", "edges.csv", "when")
    for edges in (by_number, by_name):
        assert edges.times is not None
        assert edges.times.tolist() == [5.0, 3.0]
    message = "edges.txt: there is no column 4 for the time; the file has 3"
    assert refusal(read, "1 2 3\n", time=4) == message
    message = (
        "edges.txt: there is no column 'when' for the time; the file has no header: give the "
        "number of the column, from 1 to 3"
    )
    assert refusal(read, "1 2 3\n", time="when") == message


def test_rows_by_time_keep_the_order_of_equal_times(read: Read) -> None:
    edges = read("0 + 1 9\n2 - 2 9\n1 + 3 9\n2 + 4 9\n1 - 5 9\n").by_time()
    assert edges.sources.to_pylist() == [1, 3, 5, 2, 4]
    assert edges.times is not None
    assert edges.times.tolist() == [0.0, 1.0, 1.0, 2.0, 2.0]
    assert edges.operations is not None
    assert edges.operations.tolist() == [True, True, False, False, True]
    with pytest.raises(ValueError, match=r"^the edges have no times$"):
        read("1 2\n").by_time()


def test_times_beside_weights_are_recognised(read: Read) -> None:
    edges = read("1 2 0.5 100000001\n2 3 0.25 100000000\n", weight=3)
    assert edges.times is not None
    assert edges.weights is not None
    ordered = edges.by_time()
    assert ordered.weights is not None
    assert (pairs(ordered), ordered.weights.tolist()) == ([(2, 3), (1, 2)], [0.25, 0.5])


SECONDS = 1_700_000_000.25


def rows_of(*times: str) -> dict[str, bytes]:
    """A file of each text format with these times."""
    commas = "".join(f"a,b,{time}\n" for time in times).encode()
    objects = "".join(f'{{"source":"a","target":"b","time":"{time}"}}\n' for time in times)
    return {
        "edges.csv": b"source,target,time\n" + commas,
        "edges.txt": commas,
        "edges.tsv": commas.replace(b",", b"\t"),
        "edges.ndjson": objects.encode(),
    }


@pytest.mark.parametrize("name", rows_of())
@pytest.mark.parametrize(
    ("times", "expected"),
    [
        (("2023-11-14T22:13:20.25Z", "2023-11-14T23:13:21+01:00"), (SECONDS, SECONDS + 0.75)),
        (("2023-11-14T22:13:20.25", "2023-11-14T22:13:21"), (SECONDS, SECONDS + 0.75)),
        (("2023-11-14 22:13:20.250", "2023-11-15"), (SECONDS, 1_700_006_400.0)),
        (("2023-11-14T22:13:20Z", "2023-11-14T22:13:21Z"), (SECONDS - 0.25, SECONDS + 0.75)),
        (("2023-11-14T22:13:20.000000250",) * 2, (1_700_000_000.00000025,) * 2),
    ],
)
def test_timestamps_are_unix_seconds(
    name: str, times: tuple[str, str], expected: tuple[float, float], read: Read
) -> None:
    found = read(rows_of(*times)[name], name).times
    assert found is not None
    assert found.tolist() == list(expected)


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("zone", [None, "Europe/Berlin"])
def test_timestamps_of_a_table_have_any_unit(
    unit: str, zone: str | None, read: Read, tmp_path: Path
) -> None:
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    stamps = pa.array([per_second * 1_700_000_000 + 1], pa.timestamp(unit, zone))
    columns = {"source": pa.array(["a"]), "target": pa.array(["b"]), "time": stamps}
    pyarrow.parquet.write_table(pa.table(columns), tmp_path / "written")
    found = read((tmp_path / "written").read_bytes()).times
    assert found is not None
    assert found.tolist() == [1_700_000_000 + 1 / per_second]


@pytest.mark.parametrize(
    ("times", "line", "got"),
    [
        (("2023-11-14T22:13:20Z", "soon"), 3, "'soon'"),
        (("2023-11-14T22:13:20Z", "1700000000"), 3, "'1700000000'"),
        (("1700000000", "2023-11-14T22:13:20Z"), 3, "'2023-11-14T22:13:20Z'"),
        (("soon", "2023-11-14T22:13:20Z"), 2, "'soon'"),
        (("1", ""), 3, "''"),
    ],
)
def test_what_is_no_time_is_named(times: tuple[str, str], line: int, got: str, read: Read) -> None:
    files = rows_of(*times)
    expected = "expected a time, a finite number or ISO 8601 timestamps in all rows, in column 3"
    message = f"e.csv, line {line}: {expected}, got {got}"
    assert refusal(read, files["edges.csv"], "e.csv") == message
    message = "e.ndjson: expected times, finite numbers or timestamps, in column 'time'"
    assert refusal(read, files["edges.ndjson"], "e.ndjson") == message


@pytest.mark.parametrize(
    "times",
    [
        ("2023-11-14T22:13:20Z", "2023-11-14T22:13:21"),
        ("2023-11-14", "2023-11-14T22:13:20Z"),
    ],
)
def test_a_time_with_a_zone_among_others_without_is_named(
    times: tuple[str, str], read: Read
) -> None:
    expected = "expected a time, a finite number or ISO 8601 timestamps in all rows, in column 3"
    message = f"e.csv, line 3: {expected}, got {times[1]!r}"
    assert refusal(read, rows_of(*times)["edges.csv"], "e.csv") == message


def test_timestamps_are_no_weights(read: Read) -> None:
    content = rows_of("2023-11-14")["edges.csv"]
    assert "got '2023-11-14'" in refusal(read, content, "e.csv", weight="time")
