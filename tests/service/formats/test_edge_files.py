"""Files → edges: small files of each format and compression."""

# ruff: noqa: E501 - tables of cases have a case a line

import bz2
import gzip
import lzma
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from liverank_service.formats.edge_files import read_edge_list
from liverank_service.formats.edge_list import EdgeListError, WantedColumns
from tests.service.formats.edges_of_files import Read, pairs, refusal


@pytest.mark.parametrize(
    "content",
    [
        "1 2\n3 4\n",
        "1\t2\n3\t4",
        "# from to\n% more\n\n1 2\n# between\n3 4\n\n# after",
        "  1   2 \r\n3\t 4\r\n",
        "1,2\n3,4\n",
        "1;2\n3;4\n",
        '"1","2"\n3,4\n',
        "from,to\n1,2\n3,4\n",
        "FromNodeId ToNodeId\n1 2\n3 4\n",
        "1 2 0.5\n3 4 0.25\n",
    ],
)
def test_text_in_every_style_has_the_same_edges(content: str, read: Read) -> None:
    edges = read(content)
    assert pairs(edges) == [(1, 2), (3, 4)]
    assert edges.sources.type == edges.targets.type == pa.int64()
    assert (edges.times, edges.operations, edges.vertices) == (None, None, None)


def test_keys_are_strings_as_soon_as_one_is_no_integer(read: Read) -> None:
    assert pairs(read("007 2\n7 x\n")) == [("007", "2"), ("7", "x")]
    assert pairs(read("x,y\na,1\nb,2\n")) == [("x", "y"), ("a", "1"), ("b", "2")]
    assert pairs(read("source,target\na,b\n")) == [("a", "b")]
    assert pairs(read("New York\tRome\nNA\tnull\n")) == [("New York", "Rome"), ("NA", "null")]
    assert pairs(read("0x10 1\n")) == [("0x10", "1")]
    assert pairs(read("9223372036854775808 1\n")) == [("9223372036854775808", "1")]


@pytest.mark.parametrize(
    "content",
    [
        "source,target\n1,2\n3,4\n",
        '"source","target"\n1,2\n3,4\n',
        "1 2\n3 4\n",
        "# a comment\n1 2\n3 4\n",
        "%%MatrixMarket matrix coordinate pattern general\n4 4 2\n1 2\n3 4\n",
        '{"source": 1, "target": 2}\n{"source": 3, "target": 4}\n',
    ],
)
def test_a_byte_order_mark_is_no_text(content: str, read: Read) -> None:
    edges = read(content.encode("utf-8-sig"))
    assert pairs(edges) == [(1, 2), (3, 4)]
    assert edges.sources.type == pa.int64()


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-16-be", "utf-32-le", "utf-32-be"])
def test_text_in_other_encodings_is_refused(encoding: str, read: Read) -> None:
    mark = "" if encoding == "utf-16" else "\ufeff"
    message = "the text is UTF-16 or UTF-32, expected UTF-8: iconv -f UTF-16 -t UTF-8 converts it"
    for text in ("source,target\na,b\n", ""):
        content = f"{mark}{text}".encode(encoding)
        assert refusal(read, content, "a.csv") == f"a.csv: {message}"


def test_a_header_determines_the_columns(read: Read) -> None:
    edges = read("id,time,target,source\n9,1.5,2,1\n8,0.5,4,3\n", "edges.csv")
    assert pairs(edges) == [(1, 2), (3, 4)]
    assert edges.times is not None
    assert edges.times.tolist() == [1.5, 0.5]


@pytest.mark.parametrize("rows", ["target,source\nb,a\nd,c\n", "id,dst,src\n1,b,a\n2,d,c\n"])
def test_a_header_determines_the_columns_of_string_keys_in_any_order(read: Read, rows: str) -> None:
    assert pairs(read(rows, "edges.csv")) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.csv", "id,citing,cited,w\n0,a,b,1.5\n1,c,d,2.5\n"),
        ("a.ndjson", '{"id": 0, "citing": "a", "cited": "b", "w": 1.5}\n'
         '{"id": 1, "citing": "c", "cited": "d", "w": 2.5}\n'),
    ],
)  # fmt: skip
def test_columns_of_keys_may_be_named(read: Read, name: str, content: str) -> None:
    edges = read(content, name, weight="w", source="CITING", target="cited")
    assert pairs(edges) == [("a", "b"), ("c", "d")]
    assert edges.weights is not None
    assert edges.weights.tolist() == [1.5, 2.5]
    assert edges.unread == ("id",)
    assert pairs(read(content, name, source=3, target=2)) == [("b", "a"), ("d", "c")]


def test_a_row_that_has_the_names_is_a_header(read: Read) -> None:
    """All else in the file is words, so nothing else tells."""
    content = "kind,citing,cited\npaper,a,b\n"
    assert pairs(read(content, source="citing", target="cited")) == [("a", "b")]
    assert pairs(read(content)) == [("kind", "citing"), ("paper", "a")]


def test_words_above_numbers_behind_the_keys_are_a_header(read: Read) -> None:
    assert pairs(read("citing,cited,stars\na,b,1\n")) == [("a", "b")]
    for first in ("nan", "NA", "", "?"):  # a value that is missing
        assert pairs(read(f"a,b,{first}\nc,d,1\n", "a.csv")) == [("a", "b"), ("c", "d")]


def test_columns_of_keys_that_cannot_be_read_are_named(read: Read) -> None:
    content = "id,citing,cited\n0,a,b\n"
    header = "the file has the columns id, citing, cited"

    def message(source: object, target: object, text: str = content, name: str = "a.csv") -> str:
        return refusal(read, text, name, source=source, target=target)

    missing = "a.csv: there is no column 'sited' for the target"
    assert message("citing", "sited") == f"{missing}; {header}"
    number = "a.csv: there is no column 4 for the target; the file has 3"
    assert message(2, 4) == number
    assert message("cited", None) == (
        "a.csv: the source is column 'cited', but no column is given for the target"
    )
    assert message(None, 3) == (
        "a.csv: the target is column 3, but no column is given for the source"
    )
    twice = "a.csv: column 3 is given for both the source and the target"
    assert message("cited", 3) == twice
    for name, text, what in (
        ("a.txt", "0 + 1 2\n0 + 2 3\n", "a list of events"),
        ("a.mtx", BANNER + "2 2 1\n1 1\n", "a Matrix Market file"),
        ("a.gr.bin", "01234567", "a .gr.bin file"),
        ("a.links.bin", "01234567", "a .links.bin file"),
    ):
        expected = f"{name}: there is no column 'x' for the source in {what}"
        assert message("x", "y", text, name) == expected


def test_rows_of_a_slice_are_not_copied(read: Read) -> None:
    edges = read("0 1 9\n2 2 8\n1 3 7\n2 4 6\n", time=3)
    part, same = edges.rows(slice(1, 3)), edges.rows(np.array([1, 2]))
    assert part.sources.to_pylist() == same.sources.to_pylist() == [2, 1]
    assert part.targets.to_pylist() == same.targets.to_pylist() == [2, 3]
    assert part.times is not None
    assert same.times is not None
    assert part.times.tolist() == same.times.tolist() == [8.0, 7.0]
    for column, whole in ((part.sources, edges.sources), (part.targets, edges.targets)):
        assert column.buffers()[1].address == whole.buffers()[1].address


def test_a_symmetric_matrix_has_both_directions_and_isolated_vertices(
    read: Read,
) -> None:
    banner = "%%MatrixMarket matrix coordinate"
    general = read(f"{banner} real general\n% comment\n 4 4 2\n1 2  0.5\n 3 1 -1\n", "a.mtx")
    assert pairs(general) == [(1, 2), (3, 1)]
    assert general.vertices is not None
    assert general.vertices.to_pylist() == [1, 2, 3, 4]
    symmetric = read(f"{banner} pattern symmetric\n3 3 2\n2 1\n3 3\n", "a.mtx")
    assert pairs(symmetric) == [(2, 1), (3, 3), (1, 2)]
    empty = read(f"{banner} integer general\n2 2 0\n", "a.mtx")
    assert pairs(empty) == []
    assert empty.vertices is not None
    assert empty.vertices.to_pylist() == [1, 2]


def test_tables_of_parquet_and_arrow_are_read(tmp_path: Path) -> None:
    table = pa.table(
        {
            "time": pa.array([2_000_000, 1_500_000], pa.timestamp("us")),
            "source": pa.array(["a", "b"]).dictionary_encode(),
            "target": pa.array(["c", "d"], pa.large_string()),
        }
    )
    pyarrow.parquet.write_table(table, tmp_path / "parquet")
    with pa.ipc.new_file(tmp_path / "file", table.schema) as writer:
        writer.write_table(table)
    with pa.ipc.new_stream(tmp_path / "stream", table.schema) as writer:
        writer.write_table(table)
    for name in ("parquet", "file", "stream"):
        edges = read_edge_list(tmp_path / name)
        assert pairs(edges) == [("a", "c"), ("b", "d")]
        assert edges.times is not None
        assert edges.times.tolist() == [2.0, 1.5]
    integers = pa.table({"x": pa.array([1], pa.uint8()), "y": pa.array([2], pa.int64())})
    pyarrow.parquet.write_table(integers, tmp_path / "integers")
    assert pairs(read_edge_list(tmp_path / "integers")) == [(1, 2)]


def test_integers_of_parquet_take_no_memory_but_their_columns(tmp_path: Path) -> None:
    rows = 700_000
    ends = np.random.default_rng(1).integers(0, 1 << 31, (2, rows))
    weights = np.arange(1, rows + 1, dtype=np.float32)
    table = pa.table({"target": ends[1].astype(np.uint32), "w": weights, "source": ends[0]})
    pyarrow.parquet.write_table(table, tmp_path / "a", row_group_size=250_000)
    edges = read_edge_list(tmp_path / "a", WantedColumns(weight="w"))
    assert (np.stack([edges.sources, edges.targets]) == ends).all()
    assert edges.weights is not None
    assert (edges.weights == weights).all()
    assert edges.unread == ()
    before = pa.total_allocated_bytes()
    without = read_edge_list(tmp_path / "a")
    assert without.unread == ("w",)
    assert pa.total_allocated_bytes() - before < 1 << 20


def test_objects_of_json_are_read_a_line_each(read: Read) -> None:
    lines = (
        '{"target": "b", "source": "a", "weight": 2, "note": null}\n\n{"source":"c","target":"a"}'
    )
    edges = read(lines, "edges.ndjson")
    assert pairs(edges) == [("a", "b"), ("c", "a")]
    assert edges.unread == ("weight", "note")
    edges = read(b' {"from": 9007199254740993, "to": 2, "time": 5, "w": 0.5}\r\n', weight="w")
    assert pairs(edges) == [(9007199254740993, 2)]
    assert edges.times is not None
    assert edges.times.tolist() == [5.0]
    assert edges.weights is not None
    assert edges.weights.tolist() == [0.5]


def test_text_may_have_braces_and_brackets(read: Read) -> None:
    assert pairs(read("{a} [b]\n[a] {b}\n")) == [("{a}", "[b]"), ("[a]", "{b}")]


def test_binary_links_and_pairs_are_read(read: Read) -> None:
    links = np.array([-1, 2, 3, -3, -2, 1], "<i4").tobytes()
    assert pairs(read(links, "a.links.bin")) == [(0, 1), (0, 2), (1, 0)]
    roads = np.array([5, 7, 7, 9], "<i4").tobytes()
    assert pairs(read(roads, "a.gr.bin")) == [(5, 7), (7, 9)]


def compressed(codec: str, content: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, codec) as stream:
        stream.write(content)
    result: bytes = sink.getvalue().to_pybytes()
    return result


COMPRESSIONS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zstd": lambda content: compressed("zstd", content),
    "lz4": lambda content: compressed("lz4", content),
}


@pytest.mark.parametrize("compress", COMPRESSIONS.values(), ids=COMPRESSIONS)
def test_compression_is_detected_from_the_bytes_and_a_truncated_file_is_refused(
    compress: Callable[[bytes], bytes], read: Read
) -> None:
    content = "".join(f"{i * 7919 % 10007} {i}\n" for i in range(5_000)).encode()
    whole = compress(content)
    edges = read(whole, "edges")
    assert len(edges) == 5_000
    assert edges.sources[4_999].as_py() == 4_999 * 7919 % 10007
    assert pairs(read(whole + compress(b"1 2\n"), "edges"))[-1] == (1, 2)  # files put together
    assert refusal(read, whole[: len(whole) // 2], "edges").startswith("edges: cannot be read: ")


BANNER = "%%MatrixMarket matrix coordinate pattern general\n"


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("a.txt", "", "a.txt: the file is empty; expected a text edge list, "),
        ("a.txt", " \n\n", "a.txt: the file is empty; "),
        ("a.txt", "\ufeff", "a.txt: the file is empty; "),
        ("a.txt", "# only\n", "a.txt: the file has comments but no edges; "),
        ("a.txt", "# only", "a.txt: the file has comments but no edges; "),
        ("a.csv", "source,target\n", "a.csv: the file has a header but no edges; "),
        ("a.txt", "# one\n\nword\n", "a.txt, line 3: expected a source and a target, got one column: 'word'; "),
        ("a.txt", "# c\n1 2\n# c\n3 4\n5\n", "a.txt, line 5: expected 2 columns, as in the first row, got 1: '5'"),
        ("a.txt", "1 2\n3 4 5\n", "a.txt, line 2: expected 2 columns, as in the first row, got 3: '3 4 5'"),
        ("a.csv", "from,to,t\n1,2,3\n1,2\n", "a.csv, line 3: expected 3 columns, as in the first row, got 2: '1,2'"),
        ("a.csv", "from,to,t\n1,2,3\n1,2,soon\n", "a.csv, line 3: expected a time, a finite number or ISO 8601 timestamps in all rows, in column 3, got 'soon'"),
        ("a.csv", "from,to,t\n1,2,nan\n", "a.csv, line 2: expected a time, a finite number or ISO 8601 timestamps in all rows, in column 3, got 'nan'"),
        ("a.csv", "from,to\n1,2\n,2\n", "a.csv, line 3: expected a key in column 1, got ''"),
        ("a.csv", "vertex,rank\na,1\nb,0.25\n", "a.csv, line 3: expected a key, a string or an integer, in column 2, got '0.25'"),
        ("a.csv", "from,to\n1.5,2\n2,3\n", "a.csv, line 2: expected a key, a string or an integer, in column 1, got '1.5'"),
        ("a.txt", "1 2e-05\n3 -.5\n", "a.txt, line 1: expected a key, a string or an integer, in column 2, got '2e-05'"),
        ("a.ndjson", '{"vertex": "a", "rank": 1}\n{"vertex": "b", "rank": 0.25}\n', "a.ndjson: column 'rank' does not hold keys: expected a column of strings or integers below 2**63, got double"),
        ("a.parquet", "not found\n", "a.parquet: expected a Parquet file, as it is named, got text"),
        ("a.txt", b"1 2\n\xff 4\n", "a.txt, line 2: not UTF-8: "),
        ("a.txt", b"\x7fELF\0\0\1", "a.txt: unknown binary format; "),
        ("a.txt", "0 + 1 2\n1 * 1 2\n", "a.txt, line 2: expected + or - in column 2, got '*'"),
        ("a.txt", "0 + 1 2\nx + 1 2\n", "a.txt, line 2: expected a number, the snapshot, in column 1, got 'x'"),
        ("a.mtx", "%%MatrixMarket matrix array real general\n2 2\n", "a.mtx, line 1: expected a matrix `coordinate pattern|real|integer general|symmetric`, got 'array real general'"),
        ("a.mtx", BANNER + "% c\n2 3 1\n1 1\n", "a.mtx, line 3: expected the size of a square matrix, `rows columns entries`, got '2 3 1'"),
        ("a.mtx", BANNER + "2 2 2\n1 1\n% c\n1 3\n", "a.mtx, line 5: expected an index from 1 to 2 in column 2, got '3'"),
        ("a.mtx", BANNER + "2 2 2\n1 1\nx 2\n", "a.mtx, line 4: expected an index from 1 to 2 in column 1, got 'x'"),
        ("a.mtx", BANNER + "2 2 2\n1 1\n", "a.mtx: expected 2 entries, got 1"),
        ("a.mtx", BANNER + "2 2 1\n1 1 5\n", "a.mtx, line 3: expected 2 columns, as in the first row, got 3: '1 1 5'"),
        ("a.gr.bin", b"\1\0\0\0", "a.gr.bin: expected pairs of int32, got 4 bytes"),
        ("a.links.bin", b"\1\0\0", "a.links.bin: expected int32 values, got 3 bytes"),
        ("a.links.bin", b"\1\0\0\0", "a.links.bin: expected values other than 0, starting with a negative one"),
        ("a.links.bin", struct.pack("<4i", -1, 2, 0, 3), "a.links.bin: expected values other than 0, starting with a negative one"),
        ("a.json", '[["a", "b"]]', "a.json: a JSON array is not read, but an object a line (NDJSON) is; "),
        ("a.json", '[\n {"source": "a", "target": "b"}\n]', "a.json: a JSON array is not read, "),
        ("a.json", '{"insert": [["a", "b"]]}', "a.json: expected at least two columns and one row, got 1 and 1"),
        ("a.ndjson", '{"source": 1, "target": 2}\nnull\n', "a.ndjson, line 2: expected a JSON object, got 'null'"),
        ("a.ndjson", '{"source": 1, "target": 2}\n\n{"source": 1,\n', "a.ndjson, line 3: expected a JSON object, got '{\"source\": 1,'"),
        ("a.ndjson", b'{"source": "a", "target": "\xff"}\n', "a.ndjson, line 1: expected a JSON object, got "),
        ("a.ndjson", '{"source": 1, "target": 2}\n{"source": 1}\n', "a.ndjson: column 'target' has a row without a key"),
        ("a.ndjson", '{"source": 1, "target": 2}\n{"source": "a", "target": 2}\n', "a.ndjson: cannot be read: "),
        ("a.ndjson", '{"source": [1], "target": 2}\n', "a.ndjson: column 'source' does not hold keys: "),
        ("a.parquet", b"PAR1 junk", "a.parquet: cannot be read: "),
        ("a.arrow", b"ARROW1 junk", "a.arrow: cannot be read: "),
    ],
)  # fmt: skip
def test_a_file_that_is_wrong_is_refused_by_line(
    name: str, content: str | bytes, message: str, read: Read
) -> None:
    assert refusal(read, content, name).startswith(message)


def test_keys_may_look_like_numbers_if_one_does_not(read: Read) -> None:
    assert pairs(read(b"1.5 2\nv2.0 0.5\n2 x\n", "a.txt")) == [
        ("1.5", "2"),
        ("v2.0", "0.5"),
        ("2", "x"),
    ]
    large = str(2**64)
    assert pairs(read(f"{large} 1\n".encode(), "a.txt")) == [(large, "1")]


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EdgeListError, match=r"/absent.txt: the file does not exist$"):
        read_edge_list(tmp_path / "absent.txt")
    with pytest.raises(EdgeListError, match=r": cannot be read: .*Is a directory"):
        read_edge_list(tmp_path)


def test_a_table_without_keys_or_times_is_refused(tmp_path: Path) -> None:
    def message(names: str = "", **columns: pa.Array) -> str:
        table = pa.table(columns)
        table = table.rename_columns(names.split()) if names else table
        pyarrow.parquet.write_table(table, tmp_path / "a")
        with pytest.raises(EdgeListError) as caught:
            read_edge_list(tmp_path / "a")
        return caught.value.message

    one, word = pa.array([1]), pa.array(["a"])
    assert message(source=one) == "expected at least two columns and one row, got 1 and 1"
    assert message(source=word, target=pa.array([""])) == "column 'target' has a row without a key"
    twice = message("source target target", source=one, target=one, other=one)
    assert twice.startswith("cannot be read: Multiple matches for FieldRef.Name(target)")
    floats = message(source=one, target=pa.array([1.0], pa.float32()))
    expected = "expected a column of strings or integers below 2**63, got float"
    assert floats == f"column 'target' does not hold keys: {expected}"
    none = pa.array([None], pa.int64())
    assert message(source=none, target=one) == "column 'source' has a row without a key"
    nested = message(source=one, target=pa.array([[1]]))
    assert nested.startswith("column 'target' does not hold keys: ")
    times = message(source=one, target=one, time=word)
    assert times == "expected times, finite numbers or timestamps, in column 'time'"
