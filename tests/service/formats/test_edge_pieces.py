"""Files that are read by pieces have the edges that they have as a whole."""

from __future__ import annotations

import bz2
import gzip
import lzma
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from liverank_service.formats import edge_files
from liverank_service.formats.edge_files import STDIN, NotIntegers, read_edge_list, read_edge_pieces
from liverank_service.formats.edge_list import EdgeListError, WantedColumns

ROWS = 500
GENERATOR = np.random.default_rng(1)
NUMBERS = GENERATOR.integers(-50, 10**10, (ROWS, 2))


@pytest.fixture(autouse=True)
def _small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(edge_files, "PIECE_BYTES", 100)
    monkeypatch.setattr(edge_files, "PIECE_ROWS", 30)


def lines(separator: str, more: str = "") -> str:
    return "".join(f"{u}{separator}{v}{more}\n" for u, v in NUMBERS.tolist())


def words(separator: str) -> str:
    return "".join(f"a{u}{separator}'{v} é\n" for u, v in NUMBERS.tolist())


def table() -> pa.Table:
    columns = {"w": pa.array(np.ones(ROWS)), "dst": pa.array(NUMBERS[:, 1])}
    return pa.table({**columns, "src": pa.array(NUMBERS[:, 0].astype(str))})


def write_stream(path: Path, columns: pa.Table) -> None:
    with pa.ipc.new_stream(path, columns.schema) as writer:
        writer.write_table(columns, max_chunksize=70)


def write_arrow(path: Path, columns: pa.Table) -> None:
    with pa.ipc.new_file(path, columns.schema) as writer:
        writer.write_table(columns, max_chunksize=70)


def integers() -> pa.Table:
    return pa.table({"source": NUMBERS[:, 0], "target": NUMBERS[:, 1]})


WRITERS: dict[str, Callable[[Path], Any]] = {
    "blanks.txt": lambda path: path.write_text("# a comment\n\n% two\n" + lines("  ")),
    "comments.txt": lambda path: path.write_text(
        lines("\t").replace("\n", "\n# said in between\n", 3)
    ),
    "no_end.txt": lambda path: path.write_text(lines("\t").rstrip("\n")),
    "header.csv": lambda path: path.write_text("t,to,from\n" + lines(",", ",8")),
    "three.csv": lambda path: path.write_text(lines(";", ";x")),
    "crlf.csv": lambda path: path.write_bytes(lines(",").replace("\n", "\r\n").encode()),
    "words.csv": lambda path: path.write_text(words(",")),
    "zeros.txt": lambda path: path.write_text(lines(" ") + "007 a\n7 8\n"),
    "gzip.txt.gz": lambda path: path.write_bytes(gzip.compress(lines(" ").encode())),
    "bz2.txt": lambda path: path.write_bytes(bz2.compress(lines(" ").encode())),
    "xz.txt": lambda path: path.write_bytes(lzma.compress(lines(" ").encode())),
    "pairs.gr.bin": lambda path: NUMBERS.astype("<i4").tofile(path),
    "pairs.gr.bin.gz": lambda path: path.write_bytes(
        gzip.compress(NUMBERS.astype("<i4").tobytes())
    ),
    "integers.parquet": lambda path: pa.parquet.write_table(integers(), path, row_group_size=90),
    "mixed.parquet": lambda path: pa.parquet.write_table(table(), path),
    "file.arrow": lambda path: write_arrow(path, integers()),
    "stream.arrow": lambda path: write_stream(path, table()),
}


def read(path: Path) -> tuple[pa.Array, pa.Array, tuple[str, ...], int]:
    """Sources, targets, columns that are not read, and the number of pieces."""
    try:
        pieces = list(read_edge_pieces(path, integers=True))
    except NotIntegers:
        pieces = list(read_edge_pieces(path, integers=False))
    sources = pa.concat_arrays([piece.sources for piece in pieces])
    targets = pa.concat_arrays([piece.targets for piece in pieces])
    return sources, targets, pieces[0].unread, len(pieces)


@pytest.mark.parametrize("name", WRITERS)
def test_pieces_are_the_file(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path)
    whole = read_edge_list(path)
    sources, targets, unread, pieces = read(path)
    assert sources.equals(whole.sources)
    assert targets.equals(whole.targets)
    assert pieces > 5
    named = {name for name in unread if name != "t"}
    assert named == set(whole.unread)


def test_a_number_among_strings_is_a_string(tmp_path: Path) -> None:
    path = tmp_path / "late.txt"
    path.write_text("1 2\n" * 200 + "x 3\n")
    with pytest.raises(NotIntegers):
        list(read_edge_pieces(path, integers=True))
    assert read(path)[0].to_pylist() == ["1"] * 200 + ["x"]


@pytest.mark.parametrize("content", ["source,target\n1,2\n3,4\n", "1 2\n3 4\n", "# a\n1 2\n3 4"])
def test_a_byte_order_mark_is_no_text(tmp_path: Path, content: str) -> None:
    path = tmp_path / "edges.csv"
    path.write_text(content, "utf-8-sig")
    sources, targets, _, _ = read(path)
    assert (sources.to_pylist(), targets.to_pylist()) == ([1, 3], [2, 4])
    path.write_text(content, "utf-16")
    with pytest.raises(EdgeListError, match="the text is UTF-16 or UTF-32, expected UTF-8"):
        read(path)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("ragged.txt", "1 2\n" * 99 + "1 2 3\n", r"line 100: expected 2 columns, .* got 3"),
        ("empty.csv", "a,b\n" * 70 + "a,\n", r"line 71: expected a key in column 2, got ''"),
        (
            "ranks.csv",
            "vertex,rank\n" + "a,0.5\n" * 70,
            r"line 2: expected a key, a string or an integer, .* got '0\.5'",
        ),
        ("one.txt", "# c\n1\n", r"line 2: expected a source and a target, got one column"),
        ("none.txt", "", "the file is empty"),
        ("comments.txt", "# only\n", "comments but no edges"),
        ("events.txt", "1 + 1 2\n2 - 1 2\n", "a list of events is not read by pieces"),
        ("edges.ndjson", '{"source": 1, "target": 2}\n', "expected a text edge list, Parquet, "),
        ("m.mtx", "%%MatrixMarket matrix coordinate pattern general\n", "for a memory budget"),
        ("marked.mtx", "\ufeff%%MatrixMarket matrix coordinate pattern general\n", "memory budget"),
        ("x.links.bin", "0000", "for a memory budget"),
        ("odd.gr.bin", "01234567012", "expected pairs of int32, got 3 bytes behind the last"),
        ("zero.dat", "ab\0\0cdef\n", "unknown binary format"),
        ("bad.parquet", "PAR1 and no more", "cannot be read"),
        ("bad.arrow", "ARROW1 and no more", "cannot be read"),
    ],
)
def test_errors_name_the_file_and_the_line(
    tmp_path: Path, name: str, content: str, message: str
) -> None:
    path = tmp_path / name
    path.write_bytes(content.encode())
    with pytest.raises(EdgeListError, match=message) as raised:
        read(path)
    assert str(raised.value).startswith(str(path))


def test_columns_without_keys_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "null.parquet"
    pa.parquet.write_table(pa.table({"source": [1, None], "target": [1, 2]}), path)
    with pytest.raises(EdgeListError, match="column 'source' has a row without a key"):
        read(path)
    pa.parquet.write_table(pa.table({"source": [1, 2], "target": [0.5, 1.0]}), path)
    with pytest.raises(
        EdgeListError, match=r"column 'target' does not hold keys: expected .*, got double"
    ):
        read(path)
    pa.parquet.write_table(pa.table({"source": [1]}), path)
    with pytest.raises(EdgeListError, match="expected at least two columns, got 1"):
        read(path)
    pa.parquet.write_table(integers()[:0], path)
    with pytest.raises(EdgeListError, match="expected at least one row"):
        read(path)


@pytest.mark.parametrize("name", ["a.parquet", "a.arrow"])
def test_tables_that_need_their_end_first_are_not_compressed(tmp_path: Path, name: str) -> None:
    WRITERS["file.arrow" if "arrow" in name else "integers.parquet"](tmp_path / name)
    packed = tmp_path / f"{name}.gz"
    packed.write_bytes(gzip.compress((tmp_path / name).read_bytes()))
    with pytest.raises(EdgeListError, match=r"compressed (Parquet|Arrow) file is not read by"):
        read(packed)


def test_missing_files_and_stdin_are_refused(tmp_path: Path) -> None:
    with pytest.raises(EdgeListError, match="the file does not exist"):
        read(tmp_path / "none.txt")
    with pytest.raises(EdgeListError, match="a memory budget needs a file"):
        read(STDIN)
    damaged = tmp_path / "cut.xz"
    damaged.write_bytes(lzma.compress(lines(" ").encode())[:-50])
    with pytest.raises(EdgeListError, match="cannot be read"):
        read(damaged)


WEIGHTS = np.exp2(np.random.default_rng(2).uniform(-30, 30, ROWS))


def weighted() -> pa.Table:
    return pa.table({"source": NUMBERS[:, 0], "w": WEIGHTS, "target": NUMBERS[:, 1]})


WEIGHTED: dict[str, Callable[[Path], Any]] = {
    "named.csv": lambda path: path.write_text(
        "source,target,w\n"
        + "".join(f"{u},{v},{w}\n" for (u, v), w in zip(NUMBERS, WEIGHTS, strict=True))
    ),
    "words.csv": lambda path: path.write_text(
        "source,w,target\n"
        + "".join(f"{u},{w},v{v}\n" for (u, v), w in zip(NUMBERS, WEIGHTS, strict=True))
    ),
    "table.parquet": lambda path: pa.parquet.write_table(weighted(), path, row_group_size=90),
    "file.arrow": lambda path: write_arrow(path, weighted()),
    "stream.arrow": lambda path: write_stream(path, weighted()),
}


@pytest.mark.parametrize("name", WEIGHTED)
def test_pieces_have_the_weights_of_the_file(tmp_path: Path, name: str) -> None:
    path, wanted = tmp_path / name, WantedColumns(weight="W")
    WEIGHTED[name](path)
    pieces = list(read_edge_pieces(path, integers=name != "words.csv", wanted=wanted))
    found = [piece.weights for piece in pieces if piece.weights is not None]
    assert len(found) == len(pieces) > 5
    assert np.concatenate(found).tolist() == WEIGHTS.tolist()
    assert pieces[0].unread == ()
    whole = read_edge_list(path, wanted)
    assert pa.concat_arrays([piece.sources for piece in pieces]).equals(whole.sources)
    assert pa.concat_arrays([piece.targets for piece in pieces]).equals(whole.targets)


@pytest.mark.parametrize("name", WEIGHTED)
def test_pieces_have_the_keys_of_the_columns_that_are_named(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WEIGHTED[name](path)
    wanted = WantedColumns(source="target", target="source")
    pieces = list(read_edge_pieces(path, name != "words.csv", wanted))
    whole = read_edge_list(path)
    assert pa.concat_arrays([piece.sources for piece in pieces]).equals(whole.targets)
    assert pa.concat_arrays([piece.targets for piece in pieces]).equals(whole.sources)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("zero.csv", "a,b,w\n" + "1,2,1\n" * 70 + "1,2,0\n", "line 72: expected a weight, .* '0'"),
        ("text.csv", "a,b,w\n" + "1,2,1\n" * 70 + "1,2,x\n", "line 72: expected a weight, .* 'x'"),
        ("none.csv", "a,b\n" + "1,2\n" * 70, "there is no column 'w' for the weight"),
        ("pairs.gr.bin", "01234567", "there is no column 'w' for the weight in a .gr.bin file"),
    ],
)
def test_wrong_weights_are_named(tmp_path: Path, name: str, content: str, message: str) -> None:
    path = tmp_path / name
    path.write_text(content)
    with pytest.raises(EdgeListError, match=message):
        list(read_edge_pieces(path, True, WantedColumns(weight="w")))


def test_a_wrong_weight_of_a_table_is_named_by_its_row(tmp_path: Path) -> None:
    path, weights = tmp_path / "w.parquet", np.append(np.ones(70), np.nan)
    ends = np.zeros(71, np.int64)
    pa.parquet.write_table(pa.table({"source": ends, "target": ends, "w": weights}), path)
    with pytest.raises(EdgeListError, match="row 71: expected a weight"):
        list(read_edge_pieces(path, True, WantedColumns(weight="w")))
