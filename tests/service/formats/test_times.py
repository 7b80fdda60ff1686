"""Times in request bodies and in the journal's payloads, in every format."""

# ruff: noqa: E501 - tables of cases have a case a line

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta, timezone
from typing import Any, get_args

import orjson
import pyarrow as pa
import pyarrow.parquet
import pytest

from liverank.choices import Clock
from liverank_service.errors import FormatError
from liverank_service.formats import PARQUET
from liverank_service.formats.columns import Attributes, EdgeColumns
from liverank_service.formats.decode import decode_batch
from liverank_service.formats.payload import decode_payload, encode_batch
from liverank_service.formats.values import TimeRule
from liverank_service.graph_options import GraphOptions
from tests.service.formats.test_decode import ARROW, NDJSON, arrow_stream, lists

JSON = "application/json"
CSV = "text/csv"

NOW = 1_700_000_000.0
WALL, EVENT = (
    GraphOptions(clock=clock, window=1.0).attributes(NOW).times for clock in get_args(Clock)
)

ROWS = [("a", "b", 1.5), ("b", "c", NOW), ("a", "c", -3.0)]
SOURCES, TARGETS, TIMES = (list(column) for column in zip(*ROWS, strict=True))


def parquet(**columns: pa.Array) -> bytes:
    sink = io.BytesIO()
    pyarrow.parquet.write_table(pa.table(columns), sink)
    return sink.getvalue()


WITH_DELETION: dict[str, pa.Array] = {
    "source": pa.array(["a", "b", "x", "a"]),
    "target": pa.array(["b", "c", "y", "c"]),
    "time": pa.array([1.5, NOW, None, -3.0]),
    "operation": pa.array(["insert", "insert", "delete", "insert"]),
}
BODIES = {
    "rows": (JSON, orjson.dumps({"insert": [(s, t, None, time) for s, t, time in ROWS], "delete": [["x", "y"]]})),
    "columns": (JSON, orjson.dumps({"insert": {"source": SOURCES, "target": TARGETS, "time": TIMES}, "delete": {"source": ["x"], "target": ["y"]}})),
    "objects": (JSON, orjson.dumps({"insert": [{"source": s, "target": t, "weight": None, "time": time} for s, t, time in ROWS], "delete": [{"source": "x", "target": "y"}]})),
    "ndjson": (NDJSON, b"\n".join([*(orjson.dumps({"source": s, "target": t, "time": time}) for s, t, time in ROWS), b'{"source":"x","target":"y","operation":"delete"}'])),
    "csv": (CSV, b"time,source,target,operation\n1.5,a,b,insert\n1.7e9,b,c,insert\n,x,y,delete\n-3,a,c,insert\n"),
    "arrow": (ARROW, arrow_stream(**WITH_DELETION)),
    "parquet": (PARQUET, parquet(**WITH_DELETION)),
}  # fmt: skip


def decoded(
    content_type: str, body: bytes, rule: TimeRule | None = WALL, weighted: bool = False
) -> EdgeColumns:
    return decode_batch(content_type, body, "string", attributes=Attributes(weighted, rule))


def refusal(
    content_type: str, body: bytes, rule: TimeRule | None = WALL, weighted: bool = False
) -> str:
    with pytest.raises(FormatError) as caught:
        decoded(content_type, body, rule, weighted)
    return str(caught.value)


def times(columns: EdgeColumns) -> list[float]:
    assert columns.times is not None
    assert columns.times.type == pa.float64()
    found: list[float] = columns.times.to_pylist()
    return found


@pytest.mark.parametrize("rule", [WALL, EVENT])
@pytest.mark.parametrize("form", BODIES)
def test_every_format_carries_times(form: str, rule: TimeRule) -> None:
    columns = decoded(*BODIES[form], rule)
    assert lists(columns)[:4] == [SOURCES, TARGETS, ["x"], ["y"]]
    assert times(columns) == TIMES
    assert columns.weights is None


@pytest.mark.parametrize("form", BODIES)
def test_times_for_a_graph_without_say_what_to_do(form: str) -> None:
    message = "the edges of the graph have no times: send them without, or create a graph with the option half_life or window"
    assert refusal(*BODIES[form], None).endswith(message)
    assert refusal(*BODIES[form], None, weighted=True).endswith(message)


PLAIN = [
    (JSON, b'{"insert": [["a","b"]]}'),
    (JSON, b'{"insert": [["a","b"]], "delete": [["c","d"]]}'),
    (JSON, b'{"insert": {"source": ["a"], "target": ["b"]}}'),
    (NDJSON, b'{"source":"a","target":"b"}'),
    (CSV, b"source,target\na,b\n"),
    (ARROW, arrow_stream(source=pa.array(["a"]), target=pa.array(["b"]))),
    (PARQUET, parquet(source=pa.array(["a"]), target=pa.array(["b"]))),
    (JSON, orjson.dumps({"insert": [["a", "b"]], "vertices": ["long" * 20_000]})),
]


@pytest.mark.parametrize(("content_type", "body"), PLAIN)
def test_edges_without_a_time_have_that_of_their_arrival(content_type: str, body: bytes) -> None:
    assert times(decoded(content_type, body)) == [NOW]
    assert decoded(content_type, body, None).times is None


@pytest.mark.parametrize(("content_type", "body"), PLAIN)
def test_by_the_event_clock_each_insertion_needs_a_time(content_type: str, body: bytes) -> None:
    message = "time: the graph has the clock event: give every insertion a time, a finite number, in Unix seconds"
    assert refusal(content_type, body, EVENT) == message


def test_deletions_alone_need_no_time() -> None:
    assert decoded(JSON, b'{"delete": [["a","b"]]}', EVENT).times is None
    assert decoded(CSV, b"source,target,operation\na,b,delete\n", EVENT).times is None
    assert decoded(JSON, b'{"vertices": ["a"]}', EVENT).times is None


@pytest.mark.parametrize("kind", [pa.int8(), pa.uint64(), pa.float16(), pa.float32(), pa.float64()])
def test_arrow_times_of_any_number_type(kind: pa.DataType) -> None:
    column = pa.array([1, 2], pa.int64()).cast(kind)
    body = arrow_stream(source=pa.array(["a", "b"]), target=pa.array(["b", "c"]), time=column)
    assert times(decoded(ARROW, body)) == [1.0, 2.0]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin", "+09:00"])
@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
@pytest.mark.parametrize("content_type", [ARROW, PARQUET])
def test_timestamps_of_any_unit_and_zone(content_type: str, unit: str, zone: str | None) -> None:
    seconds = [1_600_000_000, -5]
    per_second = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    column = pa.array([each * per_second for each in seconds], pa.timestamp(unit, zone))
    columns = {"source": pa.array(["a", "b"]), "target": pa.array(["b", "c"]), "time": column}
    body = arrow_stream(**columns) if content_type == ARROW else parquet(**columns)
    assert times(decoded(content_type, body)) == seconds


def test_a_part_of_a_second_is_kept() -> None:
    column = pa.array([1_500_000_001, 10**18 + 250_000_000], pa.timestamp("ns"))
    body = arrow_stream(source=pa.array(["a", "b"]), target=pa.array(["b", "c"]), time=column)
    assert times(decoded(ARROW, body)) == [1.500000001, 10**9 + 0.25]


@pytest.mark.parametrize(
    ("texts", "expected"),
    [
        (["2023-11-14T22:13:20Z", "2023-11-14T23:13:20+01:00"], [NOW, NOW]),
        (["2023-11-14 22:13:20", "2023-11-14T22:13:20.25"], [NOW, NOW + 0.25]),
        (["1.7e9", "0"], [NOW, 0.0]),
    ],
)
def test_csv_has_numbers_or_timestamps(texts: list[str], expected: list[float]) -> None:
    rows = "".join(f"a,b{number},{text}\n" for number, text in enumerate(texts))
    assert times(decoded(CSV, f"source,target,time\n{rows}".encode())) == expected


EXPECTED = "expected a finite number, in Unix seconds"


@pytest.mark.parametrize(
    ("content_type", "body", "message"),
    [
        (JSON, b'{"insert": [["a","b",null,1],["b","c",null,"x"]]}', f'insert[1]: time: {EXPECTED}, got the string "x"'),
        (JSON, b'{"insert": [["a","b",null,1],["b","c",null,null]]}', f"insert[1]: time: {EXPECTED}, got null"),
        (JSON, b'{"insert": [["a","b",null,true]]}', f"insert[0]: time: {EXPECTED}, got true"),
        (JSON, b'{"insert": [["a","b",null,1],["b","c"]]}', "insert[1]: expected [source, target, weight, time], as in the first edge, got 2 items"),
        (JSON, b'{"insert": [["a","b"],["b","c",null,1]]}', "insert[1]: expected a pair [source, target], as in the first edge, got 4 items"),
        (JSON, b'{"insert": [["a","b",2,1]]}', "insert[0]: the graph is unweighted"),
        (JSON, b'{"insert": {"source":["a","b"],"target":["b","c"],"time":[1,"x"]}}', f'insert.time[1]: {EXPECTED}, got the string "x"'),
        (JSON, b'{"insert": {"source":["a","b"],"target":["b","c"],"time":[1]}}', "insert.time: expected 2 times, as many as keys in source, got 1"),
        (JSON, b'{"insert": {"source":["a"],"target":["b"],"time":3}}', "insert.time: expected an array of numbers, got the number 3"),
        (JSON, b'{"insert": [{"source":"a","target":"b","time":1},{"source":"a","target":"b","time":"x"}]}', f'insert[1]: time: {EXPECTED}, got the string "x"'),
        (JSON, b'{"delete": {"source":["a"],"target":["b"],"time":[3]}}', "delete.time: unknown member; expected source and target"),
        (JSON, b'{"delete": [["a","b",null,1]]}', "delete[0]: expected a pair [source, target], got 4 items"),
        (NDJSON, b'{"source":"a","target":"b","time":1}\n{"source":"a","target":"b","time":"x"}', f'time[1]: {EXPECTED}, got the string "x"'),
        (NDJSON, b'{"source":"a","target":"b","time":1}\n{"source":"a","target":"b"}', f"time[1]: {EXPECTED}, got null; give every insertion a time, or none"),
        (NDJSON, b'{"source":"a","target":"b","time":1}\n{"source":"a","target":"b","time":2,"operation":"delete"}', "time[1]: expected null, because only insertions have one, got the number 2.0"),
        (CSV, b"source,target,time\na,b,1\na,b,later\n", f'time[1]: {EXPECTED}, or ISO 8601 timestamps in all rows, got the string "later"'),
        (CSV, b"source,target,time\na,b,1\na,b,2023-11-14T22:13:20Z\n", f'time[1]: {EXPECTED}, or ISO 8601 timestamps in all rows, got the string "2023-11-14T22:13:20Z"'),
        (CSV, b"source,target,time\na,b,1\na,b,nan\n", f"time[1]: {EXPECTED}, got the number nan"),
        (CSV, b"source,target,time\na,b,1\na,b,\n", f"time[1]: {EXPECTED}, got null; give every insertion a time, or none"),
        (ARROW, arrow_stream(source=pa.array(["a", "b"]), target=pa.array(["b", "c"]), time=pa.array([1.0, float("inf")])), f"time[1]: {EXPECTED}, got the number inf"),
        (ARROW, arrow_stream(source=pa.array(["a"]), target=pa.array(["b"]), time=pa.array(["now"])), "time: expected a column of numbers or timestamps, got string"),
        (ARROW, arrow_stream(source=pa.array(["a"]), target=pa.array(["b"]), time=pa.array([None], pa.timestamp("s")),), f"time[0]: {EXPECTED}, got null"),
        (ARROW, arrow_stream(source=pa.array(["d", "a", "b"]), target=pa.array(["d", "b", "c"]), time=pa.array([None, 1.0, float("nan")]), operation=pa.array(["delete", "insert", "insert"])), f"time[2]: {EXPECTED}, got the number nan"),
    ],
)  # fmt: skip
def test_what_is_no_time_is_named_with_its_value(
    content_type: str, body: bytes, message: str
) -> None:
    assert refusal(content_type, body).startswith(message)


AHEAD = "expected a time at most 60 s (max_time_ahead) ahead of the server's clock, which is at 1700000000.000, got the number"


@pytest.mark.parametrize(
    ("form", "field"),
    [("rows", "insert[1]: time: "), ("columns", "insert.time[1]: "), ("ndjson", "time[1]: "), ("csv", "time[1]: "), ("arrow", "time[1]: "), ("timestamps", "time[1]: ")],
)  # fmt: skip
def test_a_time_ahead_of_the_wall_clock_is_refused(form: str, field: str) -> None:
    ends = {"source": ["a", "b"], "target": ["b", "c"]}

    def body(late: float) -> tuple[str, bytes]:
        arrays: dict[str, Any] = {name: pa.array(column) for name, column in ends.items()}
        if form == "rows":
            rows = [["a", "b", None, NOW], ["b", "c", None, late]]
            return JSON, orjson.dumps({"insert": rows})
        if form == "columns":
            return JSON, orjson.dumps({"insert": {**ends, "time": [NOW, late]}})
        if form == "ndjson":
            lines = [{"source": "a", "target": "b", "time": NOW}, {"source": "b", "target": "c", "time": late}]  # fmt: skip
            return NDJSON, b"\n".join(map(orjson.dumps, lines))
        if form == "csv":
            return CSV, f"source,target,time\na,b,{NOW}\nb,c,{late}\n".encode()
        if form == "arrow":
            return ARROW, arrow_stream(**arrays, time=pa.array([NOW, late]))
        stamps = [datetime.fromtimestamp(each, UTC) for each in (NOW, late)]
        return ARROW, arrow_stream(**arrays, time=pa.array(stamps, pa.timestamp("us", "UTC")))

    assert times(decoded(*body(NOW + 60.0))) == [NOW, NOW + 60.0]
    assert refusal(*body(NOW + 61.0)).startswith(f"{field}{AHEAD} {NOW + 61.0}")
    assert times(decoded(*body(NOW + 61.0), EVENT)) == [NOW, NOW + 61.0]


def test_weights_and_times_go_together() -> None:
    rows = orjson.dumps({"insert": [["a", "b", 2.5, 7], ["b", "c", 0.5, 8]]})
    columns = decoded(JSON, rows, weighted=True)
    assert columns.weights is not None
    assert (columns.weights.to_pylist(), times(columns)) == ([2.5, 0.5], [7.0, 8.0])
    triples = decoded(JSON, b'{"insert": [["a","b",2.5]]}', weighted=True)
    assert triples.weights is not None
    assert (triples.weights.to_pylist(), times(triples)) == ([2.5], [NOW])
    mixed = b'{"insert": [["a","b",2.5,7],["b","c",null,8]]}'
    assert refusal(JSON, mixed, weighted=True).startswith("insert[1]: weight: expected a finite")


def keyed(count: int, **others: Any) -> EdgeColumns:
    keys = pa.array([f"k{number}" for number in range(count)])
    nothing = keys.slice(0, 0)
    return EdgeColumns(keys, keys, nothing, nothing, nothing, **others)


@pytest.mark.parametrize("count", [2, 200])
def test_the_journal_keeps_times_exactly(count: int) -> None:
    given = pa.array([0.1 + number * 1e8 for number in range(count)])
    found = decode_payload(encode_batch(keyed(count, times=given)))
    assert found.times is not None
    assert found.times.equals(given)
    assert (found.expiry, found.weights) == (False, None)
    assert decode_payload(encode_batch(keyed(count))).times is None


@pytest.mark.parametrize("count", [2, 200])
def test_the_journal_keeps_what_is_an_expiry(count: int) -> None:
    keys = pa.array([f"k{number}" for number in range(count)])
    nothing = keys.slice(0, 0)
    batch = EdgeColumns(nothing, nothing, keys, keys, nothing, expiry=True)
    found = decode_payload(encode_batch(batch))
    assert found.expiry
    assert found.delete_sources.equals(keys)


@pytest.mark.parametrize(
    ("payload", "message"),
    [
        (b'{"keys":"string","insert_sources":["a"],"insert_targets":["b"],"times":[1,2]}', "expected 1 times, got 2"),
        (b'{"keys":"string","insert_sources":["a"],"insert_targets":["b"],"times":["x"]}', EXPECTED),
        (b'{"keys":"string","insert_sources":["a"],"insert_targets":["b"],"times":3}', "expected keys and"),
        (b'{"keys":"string","expiry":1}', "expected expiry true or false, got 1"),
    ],
)  # fmt: skip
def test_a_payload_with_wrong_times_is_refused(payload: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode_payload(payload)


def test_a_zone_counts() -> None:
    zone = timezone(timedelta(hours=9))
    local = datetime(2023, 11, 15, 7, 13, 20, tzinfo=zone)
    column = pa.array([local], pa.timestamp("us", "+09:00"))
    body = arrow_stream(source=pa.array(["a"]), target=pa.array(["b"]), time=column)
    assert times(decoded(ARROW, body)) == [NOW]


@pytest.mark.parametrize(("given", "most"), [(None, 86_400.0), (1.5, 1.5)])
def test_a_time_far_ahead_of_the_event_clock_is_refused(given: float | None, most: float) -> None:
    rule = GraphOptions(clock="event", window=1.0, max_time_ahead=given).attributes(NOW).times

    def body(time: float) -> bytes:
        return orjson.dumps({"insert": [["a", "b", None, time]]})

    assert times(decoded(JSON, body(NOW + most), rule)) == [NOW + most]
    milliseconds = NOW * 1000
    assert refusal(JSON, body(milliseconds), rule) == (
        f"insert[0]: time: expected a time at most {most:g} s (max_time_ahead) ahead of the "
        f"server's clock, which is at 1700000000.000, got the number {milliseconds}"
    )


def test_times_are_within_so_many_half_lives_of_0() -> None:
    rule = GraphOptions(clock="event", half_life=1e-3).attributes(NOW).times
    far = 1e-3 * 2**40
    body = orjson.dumps({"insert": [["a", "b", 1, far], ["b", "c", 1, -far]]})
    assert times(decoded(JSON, body, rule, weighted=True)) == [far, -far]
    body = orjson.dumps({"insert": [["a", "b", 1, 0], ["b", "c", 1, -far - 1]]})
    message = "insert[1]: time: expected a time within 2⁴⁰ half-lives of 0, 1099511627.776 s, got the number -1099"
    assert refusal(JSON, body, rule, weighted=True).startswith(message)
    message = "time: expected a time within 2⁴⁰ half-lives of 0, 1099511627.776 s; it is 1700000000.000 now"
    rule = GraphOptions(half_life=1e-3).attributes(NOW).times
    assert refusal(*PLAIN[0], rule, weighted=True) == message
