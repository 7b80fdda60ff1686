"""Files → edges: small files of each format and compression, and real files if present."""

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

from service.formats.edge_files import read_edge_list
from service.formats.edge_list import EdgeList, EdgeListError, WantedColumns

DATA = Path(__file__).parents[4] / "shared" / "data"


@pytest.fixture
def read(tmp_path: Path) -> Callable[..., EdgeList]:
    def read(
        content: str | bytes,
        name: str = "edges.txt",
        time: str | int | None = None,
        weight: str | int | None = None,
    ) -> EdgeList:
        path = tmp_path / name
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return read_edge_list(path, WantedColumns(time, weight))

    return read


Read = Callable[..., EdgeList]


def pairs(edges: EdgeList) -> list[tuple[object, object]]:
    return list(zip(edges.sources.to_pylist(), edges.targets.to_pylist(), strict=True))


def refusal(
    read: Read,
    content: str | bytes,
    name: str = "edges.txt",
    time: object = None,
    weight: object = None,
) -> str:
    """The message without the directory, which differs in every run."""
    with pytest.raises(EdgeListError) as caught:
        read(content, name, time, weight)
    error = caught.value
    line = "" if error.line is None else f", line {error.line}"
    assert str(error) == f"{error.path}{line}: {error.message}"
    return str(error).removeprefix(f"{error.path.parent}/")


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


def test_a_header_determines_the_columns(read: Read) -> None:
    edges = read("id,time,target,source\n9,1.5,2,1\n8,0.5,4,3\n", "edges.csv")
    assert pairs(edges) == [(1, 2), (3, 4)]
    assert edges.times is not None
    assert edges.times.tolist() == [1.5, 0.5]


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
    message = "edges.txt: there is no column 'when' for the time; the file has no header"
    assert refusal(read, "1 2 3\n", time="when") == message


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


def test_rows_by_time_keep_the_order_of_equal_times(read: Read) -> None:
    edges = read("0 + 1 9\n2 - 2 9\n1 + 3 9\n2 + 4 9\n1 - 5 9\n").by_time()
    assert edges.sources.to_pylist() == [1, 3, 5, 2, 4]
    assert edges.times is not None
    assert edges.times.tolist() == [0.0, 1.0, 1.0, 2.0, 2.0]
    assert edges.operations is not None
    assert edges.operations.tolist() == [True, True, False, False, True]
    with pytest.raises(ValueError, match=r"^the edges have no times$"):
        read("1 2\n").by_time()


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
        ("a.txt", "# only\n", "a.txt: the file has comments but no edges; "),
        ("a.txt", "# only", "a.txt: the file has comments but no edges; "),
        ("a.csv", "source,target\n", "a.csv: the file has a header but no edges; "),
        ("a.txt", "# one\n\nword\n", "a.txt, line 3: expected a source and a target, got one column: 'word'; "),
        ("a.txt", "# c\n1 2\n# c\n3 4\n5\n", "a.txt, line 5: expected 2 columns, as in the first row, got 1: '5'"),
        ("a.txt", "1 2\n3 4 5\n", "a.txt, line 2: expected 2 columns, as in the first row, got 3: '3 4 5'"),
        ("a.csv", "from,to,t\n1,2,3\n1,2\n", "a.csv, line 3: expected 3 columns, as in the first row, got 2: '1,2'"),
        ("a.csv", "from,to,t\n1,2,3\n1,2,soon\n", "a.csv, line 3: expected a number, the time, in column 3, got 'soon'"),
        ("a.csv", "from,to,t\n1,2,nan\n", "a.csv, line 2: expected a number, the time, in column 3, got 'nan'"),
        ("a.csv", "from,to\n1,2\n,2\n", "a.csv, line 3: expected a key in column 1, got ''"),
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


def test_a_missing_file_and_a_folder_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EdgeListError, match=r"/absent.txt: the file does not exist$"):
        read_edge_list(tmp_path / "absent.txt")
    with pytest.raises(EdgeListError, match=r": cannot be read: .*Is a directory"):
        read_edge_list(tmp_path)


def test_a_table_without_keys_or_times_is_refused(tmp_path: Path) -> None:
    def message(**columns: pa.Array) -> str:
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / "a")
        with pytest.raises(EdgeListError) as caught:
            read_edge_list(tmp_path / "a")
        return caught.value.message

    one, word = pa.array([1]), pa.array(["a"])
    assert message(source=one) == "expected at least two columns and one row, got 1 and 1"
    assert message(source=word, target=pa.array([""])) == "column 'target' has a row without a key"
    none = pa.array([None], pa.int64())
    assert message(source=none, target=one) == "column 'source' has a row without a key"
    nested = message(source=one, target=pa.array([[1]]))
    assert nested.startswith("column 'target' does not hold keys: ")
    times = message(source=one, target=one, time=word)
    assert times == "expected times, finite numbers or timestamps, in column 'time'"


# file, vertices in edges, rows, distinct edges, has times: the counts of the data's README
REAL_FILES = [
    ("CollegeMsg/CollegeMsg.txt.gz", 1_899, 59_835, 20_296, True),
    ("cnr-2000/cnr-2000.txt.zst", 325_557, 3_216_152, 3_216_152, False),
    ("dblp-2010/dblp-2010.txt.zst", 300_647, 1_615_400, 1_615_400, False),
    ("ego-twitter-gstest/twitter_e.csv.zst", 81_306, 1_768_135, 1_768_135, False),
    ("higgs-twitter/higgs-mention_network.edgelist.gz", 116_408, 150_818, 150_818, False),
    ("higgs-twitter/higgs-reply_network.edgelist.gz", 38_918, 32_523, 32_523, False),
    ("higgs-twitter/higgs-retweet_network.edgelist.gz", 256_491, 328_132, 328_132, False),
    ("lagraph-small/karate.mtx", 34, 156, 156, False),
    ("lagraph-small/ldbc-directed-example.mtx", 10, 17, 17, False),
    ("lagraph-small/ldbc-undirected-example.mtx", 9, 24, 24, False),
    ("networkrepository-ia/fb-forum.txt.zst", 899, 33_720, None, True),
    ("networkrepository-ia/fb-messages.txt.zst", 1_899, 61_734, None, True),
    ("networkrepository-ia/ia-enron-employees.txt.zst", 151, 50_572, None, True),
    ("osm-roads/delhi-roads.gr.bin.zst", 231_161, None, 279_174, False),
    ("osm-roads/moscow-roads.gr.bin.zst", 411_992, 451_135, 451_027, False),
    ("p2p-Gnutella31/p2p-Gnutella31.e.zst", 62_586, 147_892, 147_892, False),
    ("pkg-deps/covid-lit.2020-03-13.links.bin.zst", 463_997, None, 660_442, False),
    ("pkg-deps/npm.2016-08-26.links.bin.zst", 228_028, None, 807_758, False),
    ("soc-sign-bitcoin/soc-sign-bitcoinalpha.csv.zst", 3_783, 24_186, 24_186, True),
    ("soc-sign-bitcoin/soc-sign-bitcoinotc.csv.zst", 5_881, 35_592, 35_592, True),
    ("sx-askubuntu-a2q/sx-askubuntu-a2q.txt.gz", 137_517, 280_102, 262_106, True),
    ("sx-mathoverflow/sx-mathoverflow.txt.gz", 24_818, 506_550, 239_978, True),
    ("tgn-ml/ml_enron.txt.zst", 184, 125_235, 3_125, True),
    ("tgn-ml/ml_wikipedia.txt.zst", 9_227, 157_474, 18_257, True),
    ("wiki-Vote/wiki-Vote.txt.zst", 7_115, 103_689, 103_689, False),
]


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the real graphs are not at {DATA}")
@pytest.mark.parametrize(("name", "vertices", "rows", "distinct", "timed"), REAL_FILES)
def test_a_real_file_has_the_published_counts(
    name: str, vertices: int, rows: int | None, distinct: int | None, timed: bool
) -> None:
    edges = read_edge_list(DATA / name)
    sources, targets = edges.sources.to_numpy(), edges.targets.to_numpy()
    assert len(np.unique(np.concatenate([sources, targets]))) == vertices
    assert rows is None or len(edges) == rows
    assert distinct is None or len(np.unique(sources << 32 | targets)) == distinct
    assert (edges.times is not None) == timed


@pytest.mark.skipif(not DATA.is_dir(), reason=f"the real graphs are not at {DATA}")
@pytest.mark.parametrize(
    ("name", "inserted", "deleted", "first", "last"),
    [
        ("npm.events.txt.zst", 501_411, 27_504, 344_042, 473_907),
        ("rubygems.events.txt.zst", None, None, 134_186, 149_562),
    ],
)
def test_a_real_stream_of_events_leads_from_the_first_graph_to_the_last(
    name: str, inserted: int | None, deleted: int | None, first: int, last: int
) -> None:
    edges = read_edge_list(DATA / "pkg-deps" / name)
    assert edges.operations is not None
    assert edges.times is not None
    changes = np.where(edges.operations, 1, -1)
    assert inserted is None or (changes == 1).sum() == inserted
    assert deleted is None or (changes == -1).sum() == deleted
    assert changes[edges.times == 0].sum() == first
    assert changes.sum() == last


# Weights


def table_bytes(columns: dict[str, pa.Array]) -> bytes:
    sink = pa.BufferOutputStream()
    pyarrow.parquet.write_table(pa.table(columns), sink)
    content: bytes = sink.getvalue().to_pybytes()
    return content


TABLE = {"source": pa.array(["a", "b"]), "target": pa.array(["b", "c"])}


@pytest.mark.parametrize(
    ("content", "name", "weight", "unread"),
    [
        ("source,target,Cost,note\na,b,2,x\nb,c,0.5,y\n", "e.csv", "cost", ("note",)),
        ("source,target,cost\na,b,2\nb,c,0.5\n", "e.csv", 3, ()),
        ("from\tto\tcost\na\tb\t2\nb\tc\t5e-1\n", "e.tsv", "cost", ()),
        ("a b 2\nb c 0.5\n", "e.txt", 3, ()),
        ("a b 0.5 2\nb c 9 0.5\n", "e.txt", 4, ("column 3",)),
        (table_bytes({**TABLE, "cost": pa.array([2.0, 0.5])}), "e.parquet", "cost", ()),
        (table_bytes({**TABLE, "cost": pa.array([2.0, 0.5], pa.float32())}), "e.parquet", 3, ()),
    ],
)
def test_weights_are_in_the_column_that_is_named(
    read: Read, content: str | bytes, name: str, weight: str | int, unread: tuple[str, ...]
) -> None:
    edges = read(content, name, weight=weight)
    assert pairs(edges) == [("a", "b"), ("b", "c")]
    assert edges.weights is not None
    assert edges.weights.tolist() == [2.0, 0.5]
    assert edges.unread == unread
    without = read(content, name)
    assert without.weights is None
    assert len(without.unread) + (without.times is not None) == len(unread) + 1


def test_times_beside_weights_are_recognised(read: Read) -> None:
    edges = read("1 2 0.5 100000001\n2 3 0.25 100000000\n", weight=3)
    assert edges.times is not None
    assert edges.weights is not None
    ordered = edges.by_time()
    assert ordered.weights is not None
    assert (pairs(ordered), ordered.weights.tolist()) == ([(2, 3), (1, 2)], [0.25, 0.5])


def test_a_matrix_has_weights_in_its_values(read: Read) -> None:
    general = "%%MatrixMarket matrix coordinate real general\n3 3 2\n1 2 2.5\n2 3 4\n"
    edges = read(general, "m.mtx", weight="values")
    assert edges.weights is not None
    assert (pairs(edges), edges.weights.tolist()) == ([(1, 2), (2, 3)], [2.5, 4.0])
    assert (edges.unread, read(general, "m.mtx").unread) == ((), ("values",))
    symmetric = read(
        "%%MatrixMarket matrix coordinate integer symmetric\n3 3 2\n1 1 5\n3 1 7\n",
        "m.mtx",
        weight=3,
    )
    assert symmetric.weights is not None
    assert pairs(symmetric) == [(1, 1), (3, 1), (1, 3)]
    assert symmetric.weights.tolist() == [5, 7, 7]


EXPECTED = (
    "expected a weight, a finite number above 0, from 1.1754944e-38 to 3.4028235e+38 (the normal "
    "range of float32), in column"
)


@pytest.mark.parametrize(
    ("content", "name", "weight", "message"),
    [
        ("source,target,w\na,b,1\na,c,0\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got '0'"),
        ("source,target,w\na,b,1\na,c,-2\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got '-2'"),
        ("source,target,w\na,b,1\na,c,nan\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got 'nan'"),
        ("source,target,w\na,b,1\na,c,1e39\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got '1e39'"),
        ("source,target,w\na,b,1\na,c,high\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got 'high'"),
        ("source,target,w\na,b,1\na,c,\n", "e.csv", "w", f"e.csv, line 3: {EXPECTED} 3, got ''"),
        ("source,target\na,b\n", "e.csv", "w", "e.csv: there is no column 'w' for the weight; the file has the columns source, target"),
        ("a b\n", "e.txt", 3, "e.txt: there is no column 3 for the weight; the file has 2"),
        ("a b 1\n", "e.txt", "w", "e.txt: there is no column 'w' for the weight; the file has no header"),
        ("0 + a b\n", "e.txt", 3, "e.txt: there is no column 3 for the weight in a list of events"),
        (b"\1\0\0\0\2\0\0\0", "e.gr.bin", "w", "e.gr.bin: there is no column 'w' for the weight in a .gr.bin file"),
        ("%%MatrixMarket matrix coordinate pattern general\n3 3 1\n1 2\n", "m.mtx", "values", "m.mtx: there is no column 'values' for the weight; the file has the columns row, column"),
        ("%%MatrixMarket matrix coordinate real general\n3 3 1\n1 2 0\n", "m.mtx", "values", f"m.mtx, line 3: {EXPECTED} 3, got '0'"),
        (table_bytes({**TABLE, "w": pa.array(["1", "2"])}), "e.parquet", "w", "e.parquet: expected weights, a column of numbers, in column 'w', got string"),
        (table_bytes({**TABLE, "w": pa.array([1.0, None])}), "e.parquet", "w", f"e.parquet: row 2: {EXPECTED} 'w', got None"),
        (table_bytes({**TABLE, "w": pa.array([0, 1])}), "e.parquet", "w", f"e.parquet: row 1: {EXPECTED} 'w', got 0"),
    ],
)  # fmt: skip
def test_wrong_weights_are_named_with_line_and_value(
    read: Read, content: str | bytes, name: str, weight: str | int, message: str
) -> None:
    assert refusal(read, content, name, weight=weight) == message
