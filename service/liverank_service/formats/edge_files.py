"""Files → edges: the formats that public graphs are published in, compressed or not.

    text             one edge per line, columns separated by blanks, tabs, commas or semicolons;
                     lines that begin with # or % are comments; a header is recognised by its words,
                     or by a column that the caller names
    events           lines `snapshot +|- source target`: edges inserted and deleted
    Matrix Market    coordinate; symmetric matrices have both directions
    Parquet, Arrow   (file or stream) columns named source and target, otherwise the first two
    NDJSON           an object a line, with the same columns as members
    *.gr.bin         little-endian int32 pairs, source and target
    *.links.bin      little-endian int32: -(i + 1) starts source i, each j + 1 after it is a target

The first bytes determine the compression (gzip, zstd, bzip2, xz, lz4) and the format; only the two
binary formats, which have no magic number, are recognised by name. Rows are read unchanged: one row
for an undirected edge, as in road networks, is one direction.

Keys are 64-bit integers if all values of both columns are integers, strings otherwise; a column of
floating-point numbers is refused. A text file has times

- in the last column that a header names t, time or timestamp;
- without a header, in the last of three or more columns, if all its values are 10⁸ or more (Unix
  times since 1973), or if they are not negative and increase without ever decreasing.

Times are numbers, in any unit, or in all rows timestamps, which become Unix seconds: ISO 8601 in
text and NDJSON, UTC if they have no zone.

Weights are read from the column that the caller names; in a Matrix Market file it is `values`. The
caller may name those of the keys too.
Other columns are not read.

Files that do not fit in memory are read a piece at a time: text edge lists, Parquet, Arrow and
.gr.bin files, all but Parquet compressed or not. Keys are 64-bit integers if all of them are: so a
text file is read as integers, and again as strings if it turns out to have others. Times are not
read. Text is refused at a piece in which all keys of a column are numbers and not all of them
integers.
"""

from __future__ import annotations

import io
import lzma
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from liverank_service.formats.edge_list import (
    ACCEPTED,
    EdgeList,
    EdgeListError,
    Places,
    WantedColumns,
    file_times,
    has_empty,
)
from liverank_service.formats.edge_text import (
    TextLayout,
    check_keys,
    first_row,
    is_json,
    layout_of,
    read_json_rows,
    read_matrix_market,
    read_text,
    weights_of_rows,
    without_mark,
)
from liverank_service.formats.values import EXPECTED_WEIGHT, is_weight
from liverank_service.vertex_keys import arrow_numbers

_CODECS = {
    b"\x1f\x8b": "gzip",
    b"\x28\xb5\x2f\xfd": "zstd",
    b"BZh": "bz2",
    b"\x04\x22\x4d\x18": "lz4",
}
_XZ = b"\xfd7zXZ\x00"

STDIN = Path("-")

AS_RECOGNISED = WantedColumns()


def read_edge_list(path: Path, wanted: WantedColumns = AS_RECOGNISED) -> EdgeList:
    """The edges of a file, which is held in memory uncompressed while it is read, but for Parquet
    with integer keys.

    path    ``-`` is stdin
    wanted  its time overrides the rules above, for text, Parquet and Arrow

    Raises EdgeListError for a file that is missing, damaged, empty or in another format.
    """
    name = path.name.lower()
    is_named = ".gr.bin" in name or ".links.bin" in name
    if not is_named and (edges := _integers_of_parquet(path, wanted)) is not None:
        return edges
    content = _whole(path)
    if not is_named:
        content = without_mark(path, content)
    if not content or content.isspace():
        raise EdgeListError(path, None, f"the file is empty; {ACCEPTED}")
    if ".gr.bin" in name:
        wanted.refuse(path, "a .gr.bin file")
        return _read_pairs(path, content)
    if is_named:
        wanted.refuse(path, "a .links.bin file")
        return _read_links(path, content)
    if content.startswith(b"%%MatrixMarket"):
        return read_matrix_market(path, content, wanted)
    if content.startswith((b"PAR1", b"ARROW1", b"\xff\xff\xff\xff")):
        return _edges_of_table(path, _read_table(path, content), wanted)
    if b"\0" in content[:65536]:
        raise EdgeListError(path, None, f"unknown binary format; {ACCEPTED}")
    _refuse_text(path)
    if is_json(path, content):
        return _edges_of_table(path, read_json_rows(path, content, wanted), wanted)
    return read_text(path, content, wanted)


def _refuse_text(path: Path) -> None:
    """Raises EdgeListError for a file that is named like a binary one, such as an error page that
    was saved in its place.
    """
    if path.suffix.lower() in (".parquet", ".arrow"):
        message = f"expected a {path.suffix[1:].capitalize()} file, as it is named, got text"
        raise EdgeListError(path, None, message)


def _opened(path: Path) -> BinaryIO:
    return path.open("rb") if path != STDIN else io.BytesIO(sys.stdin.buffer.read())


def _uncompressed(file: BinaryIO) -> Any:
    """What reads the content of a file, which is at its start."""
    head = file.read(6)
    file.seek(0)
    if head.startswith(_XZ):
        return lzma.open(file)
    for magic, codec in _CODECS.items():
        if head.startswith(magic):
            return pa.CompressedInputStream(file, codec)
    return file


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    """Raises EdgeListError for a file that is missing or damaged."""
    try:
        yield
    except FileNotFoundError as error:
        raise EdgeListError(path, None, "the file does not exist") from error
    except (OSError, lzma.LZMAError, EOFError) as error:
        raise EdgeListError(path, None, f"cannot be read: {error}") from error


def _whole(path: Path) -> bytes:
    with _reading(path), _opened(path) as file:
        content: bytes = _uncompressed(file).read()
    return content


def _read_table(path: Path, content: bytes) -> pa.Table:
    buffer = pa.py_buffer(content)
    try:
        if content.startswith(b"PAR1"):
            table = pyarrow.parquet.read_table(pa.BufferReader(buffer))
        elif content.startswith(b"ARROW1"):
            table = pa.ipc.open_file(buffer).read_all()
        else:
            table = pa.ipc.open_stream(buffer).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise EdgeListError(path, None, f"cannot be read: {error}; {ACCEPTED}") from error
    return table


def _edges_of_table(path: Path, table: pa.Table, wanted: WantedColumns) -> EdgeList:
    names = table.column_names
    if len(names) < 2 or not table.num_rows:
        got = f"{len(names)} and {table.num_rows}"
        raise EdgeListError(path, None, f"expected at least two columns and one row, got {got}")
    places = _places_in(path, table.schema, wanted)
    return _edges_of(path, table, places, _are_integers(table.schema, places))


def _places_in(path: Path, schema: pa.Schema, wanted: WantedColumns) -> Places:
    return wanted.places(path, [name.lower() for name in schema.names], len(schema.names))


def _are_integers(schema: pa.Schema, places: Places) -> bool:
    return all(pa.types.is_integer(schema.types[number]) for number in places[:2])


def _edges_of(
    path: Path, table: pa.Table, places: Places, integers: bool, first: int = 0
) -> EdgeList:
    """The edges of a table, or of a part of one that begins at row `first`. Raises EdgeListError.

    integers  whether keys are integers
    """
    names = table.column_names
    sources, targets = (
        _keys(path, names[number], table.column(number).combine_chunks(), integers)
        for number in places[:2]
    )
    times = weights = None
    if places.time is not None:
        times = file_times(table.column(places.time).combine_chunks())
        if times is None:
            expected = "expected times, finite numbers or timestamps, in column"
            raise EdgeListError(path, None, f"{expected} {names[places.time]!r}")
    if places.weight is not None:
        weights = _weights(path, names[places.weight], table.column(places.weight), first)
    return EdgeList(sources, targets, times, unread=places.unread(names), weights=weights)


def _keys(path: Path, name: str, column: pa.Array, integers: bool) -> pa.Array:
    """Raises EdgeListError: also for floating-point numbers, which JSON has for integers of more
    than 64 bits.
    """
    if pa.types.is_floating(column.type) or pa.types.is_boolean(column.type):
        expected = "expected a column of strings or integers below 2**63"
        message = f"column {name!r} does not hold keys: {expected}, got {column.type}"
        raise EdgeListError(path, None, message)
    try:
        keys = column.cast(pa.int64() if integers else pa.string())
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
        message = f"column {name!r} does not hold keys: {error}"
        raise EdgeListError(path, None, message) from error
    if column.null_count or has_empty(keys):
        raise EdgeListError(path, None, f"column {name!r} has a row without a key")
    return keys


def _weights(path: Path, name: str, column: pa.ChunkedArray, first: int) -> NDArray[np.float64]:
    """first: number of the first row. Raises EdgeListError."""
    is_number = any(
        test(column.type)
        for test in (pa.types.is_integer, pa.types.is_floating, pa.types.is_decimal)
    )
    if not is_number:
        message = f"expected weights, a column of numbers, in column {name!r}, got {column.type}"
        raise EdgeListError(path, None, message)
    weights: NDArray[np.float64] = column.cast(pa.float64(), safe=False).to_numpy()  # null: NaN
    wrong = np.flatnonzero(~is_weight(weights))
    if len(wrong):
        row = int(wrong[0])
        message = (
            f"expected a weight, {EXPECTED_WEIGHT}, in column {name!r}, got {column[row].as_py()!r}"
        )
        raise EdgeListError(path, None, f"row {first + row + 1}: {message}")
    return weights


def _read_pairs(path: Path, content: bytes) -> EdgeList:
    if len(content) % 8:
        raise EdgeListError(path, None, f"expected pairs of int32, got {len(content)} bytes")
    return _edges_of_pairs(content)


def _edges_of_pairs(content: bytes) -> EdgeList:
    pairs = np.frombuffer(content, "<i4").reshape(-1, 2).astype(np.int64)
    return EdgeList(pa.array(pairs[:, 0]), pa.array(pairs[:, 1]))


def _read_links(path: Path, content: bytes) -> EdgeList:
    if len(content) % 4:
        raise EdgeListError(path, None, f"expected int32 values, got {len(content)} bytes")
    values = np.frombuffer(content, "<i4").astype(np.int64)
    opens = np.flatnonzero(values < 0)
    if values[0] > 0 or not values.all():
        message = "expected values other than 0, starting with a negative one"
        raise EdgeListError(path, None, message)
    targets_each = np.diff(np.append(opens, len(values))) - 1
    sources = np.repeat(-values[opens] - 1, targets_each)
    return EdgeList(pa.array(sources), pa.array(values[values > 0] - 1))


PIECE_BYTES = 1 << 22
"""Of text that is parsed at once."""

PIECE_ROWS = 1 << 17
"""Of a Parquet file, and pairs of a .gr.bin file."""

_HEAD_BYTES = 16
"""Of a file: more than a byte order mark and the name of a format."""

_PIECEWISE = "expected a text edge list, Parquet, Arrow or .gr.bin file for a memory budget"


class NotIntegers(Exception):
    """A key that was to be read as an integer is none: the file has string keys."""


def read_edge_pieces(
    path: Path, integers: bool, wanted: WantedColumns = AS_RECOGNISED
) -> Iterator[EdgeList]:
    """The edges of a file, one piece after the other, each with at least one row.

    integers  whether keys are to be read as integers
    wanted    the column of weights

    Raises NotIntegers; EdgeListError for stdin, for formats that are not read by pieces, and what
    `read_edge_list` raises it for.
    """
    if path == STDIN:
        raise EdgeListError(path, None, "stdin is not read by pieces: a memory budget needs a file")
    with _reading(path), ExitStack() as opened:
        file = opened.enter_context(path.open("rb"))
        source = opened.enter_context(_uncompressed(file))
        head = source.read(_HEAD_BYTES)
        if not head:
            raise EdgeListError(path, None, f"the file is empty; {ACCEPTED}")
        if ".gr.bin" in path.name.lower():
            wanted.refuse(path, "a .gr.bin file")
            yield from _pairs(path, source, head)
            return
        if ".links.bin" in path.name.lower():
            raise EdgeListError(path, None, _PIECEWISE)
        head = without_mark(path, head)
        if head.startswith(b"%%Matrix"):
            raise EdgeListError(path, None, _PIECEWISE)
        is_parquet, is_file = head.startswith(b"PAR1"), head.startswith(b"ARROW1")
        if (is_parquet or is_file) and source is not file:
            kind = "Parquet" if is_parquet else "Arrow"
            raise EdgeListError(path, None, f"a compressed {kind} file is not read by pieces")
        if is_parquet:
            yield from _parquet(path, integers, wanted)
        elif head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
            file.seek(0)
            yield from _arrow(path, _uncompressed(file), is_file, integers, wanted)
        else:
            _refuse_text(path)
            yield from _text(path, source, head, integers, wanted)


def _pairs(path: Path, source: Any, head: bytes) -> Iterator[EdgeList]:
    rest = head
    while content := rest + source.read(8 * PIECE_ROWS):
        whole = len(content) // 8 * 8
        if whole == 0:
            message = f"expected pairs of int32, got {len(content)} bytes behind the last pair"
            raise EdgeListError(path, None, message)
        content, rest = content[:whole], content[whole:]
        yield _edges_of_pairs(content)


@contextmanager
def _decoding(path: Path) -> Iterator[None]:
    """Raises EdgeListError for what is damaged."""
    try:
        yield
    except EdgeListError:
        raise
    except (pa.ArrowException, ValueError) as error:
        raise EdgeListError(path, None, f"cannot be read: {error}; {ACCEPTED}") from error


def _parquet_file(path: Path, metadata: Any = None) -> pyarrow.parquet.ParquetFile:
    # with a buffer, pieces that were read stay in memory, compressed
    return pyarrow.parquet.ParquetFile(path, metadata=metadata, pre_buffer=False)


def _parquet(path: Path, integers: bool, wanted: WantedColumns) -> Iterator[EdgeList]:
    with _decoding(path), _parquet_file(path) as file:
        batches = file.iter_batches(PIECE_ROWS)
        yield from _tables(path, file.schema_arrow, batches, integers, wanted)


def _integers_of_parquet(path: Path, wanted: WantedColumns) -> EdgeList | None:
    """The edges of a Parquet file with integer keys and without times, by pieces into columns of
    their size, its row groups at the same time: reading all of it first takes three times the
    memory. None for any other file, also for one that is refused.
    """
    try:
        if path == STDIN or not path.is_file():
            return None
        with _parquet_file(path) as file:
            schema, metadata = file.schema_arrow, file.metadata
        places = _places_in(path, schema, wanted)
        rows = metadata.num_rows
        has_both = len(schema) > 1 and rows > 0 and len({*schema.names}) == len(schema)
        if not has_both or places.time is not None or not _are_integers(schema, places):
            return None
        columns = [np.empty(rows, np.int64), np.empty(rows, np.int64)]
        weights = None if places.weight is None else np.empty(rows)

        def read(group: int, first: int) -> int:
            with _parquet_file(path, metadata) as file:
                batches = file.iter_batches(PIECE_ROWS, row_groups=[group])
                for piece in _tables(path, schema, batches, True, wanted):
                    here = slice(first, first + len(piece))
                    for column, keys in zip(columns, (piece.sources, piece.targets), strict=True):
                        column[here] = keys
                    if weights is not None:
                        weights[here] = piece.weights
                    first = here.stop
            return first

        lengths = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
        groups = np.flatnonzero(lengths).tolist()
        ends = np.cumsum(lengths)
        with ThreadPoolExecutor(pa.cpu_count(), "liverank-parquet") as threads:
            read_to = [*threads.map(read, groups, (ends - lengths)[groups].tolist())]
    except (pa.ArrowException, OSError, ValueError, MemoryError):
        return None
    sources, targets = map(arrow_numbers, columns)
    unread = places.unread(schema.names)
    if read_to != ends[groups].tolist():
        return None
    return EdgeList(sources, targets, unread=unread, weights=weights)


def _arrow(
    path: Path, source: Any, is_file: bool, integers: bool, wanted: WantedColumns
) -> Iterator[EdgeList]:
    with _decoding(path), (pa.ipc.open_file if is_file else pa.ipc.open_stream)(source) as file:
        batches = map(file.get_batch, range(file.num_record_batches)) if is_file else file
        yield from _tables(path, file.schema, batches, integers, wanted)


def _tables(
    path: Path, schema: pa.Schema, batches: Any, integers: bool, wanted: WantedColumns
) -> Iterator[EdgeList]:
    if len(schema) < 2:
        raise EdgeListError(path, None, f"expected at least two columns, got {len(schema)}")
    places = _places_in(path, schema, wanted)._replace(time=None)
    if integers and not _are_integers(schema, places):
        raise NotIntegers
    rows = 0
    for batch in batches:
        batch.validate(full=True)
        for first in range(0, len(batch), PIECE_ROWS):
            part = pa.Table.from_batches([batch.slice(first, PIECE_ROWS)])
            yield _edges_of(path, part, places, integers, rows)
            rows += len(part)
    if rows == 0:
        raise EdgeListError(path, None, "expected at least one row, got none")


def _text(
    path: Path, source: Any, head: bytes, integers: bool, wanted: WantedColumns
) -> Iterator[EdgeList]:
    content, ended = head, False
    while not ended and not _has_two_rows(content):
        if b"\0" in content:
            raise EdgeListError(path, None, f"unknown binary format; {ACCEPTED}")
        more = source.read(PIECE_BYTES)
        content, ended = content + more, not more
    if is_json(path, content):
        raise EdgeListError(path, None, _PIECEWISE)
    layout = layout_of(path, content, wanted)
    if layout.events:
        message = "a list of events is not read by pieces: it may delete edges"
        raise EdgeListError(path, None, message)
    places = wanted.places(path, layout.header, layout.rows.columns)._replace(time=None)
    line, start = 1, layout.rows.start
    while True:
        end = len(content) if ended else content.rfind(b"\n") + 1
        yield from _piece(layout, content[:end], start, line, integers, places)
        if ended:
            return
        line, start = line + content.count(b"\n", 0, end), 0
        more = source.read(PIECE_BYTES)
        content, ended = content[end:] + more, not more


def _has_two_rows(content: bytes) -> bool:
    """Whether the content has two whole rows, which determine the layout."""
    position = content.find(b"\n", first_row(content, 0)) + 1
    return position > 0 and content.find(b"\n", first_row(content, position)) >= 0


def _piece(
    layout: TextLayout, content: bytes, start: int, line: int, integers: bool, places: Places
) -> Iterator[EdgeList]:
    """The edges of a piece of text; none if it has comments alone."""
    if first_row(content, start) == len(content) or not content[start:].strip():
        return
    rows = replace(layout.rows, content=content, start=start, line=line)
    ends, weight = places[:2], places.weight
    key = pa.int64() if integers else pa.string()
    types = dict.fromkeys(ends, key) | ({} if weight is None else {weight: pa.float64()})
    columns = dict(zip(types, rows.read(types), strict=True))
    sources, targets = (columns[end] for end in ends)
    if integers and not sources.type == targets.type == key:
        raise NotIntegers
    if not integers:
        for number, keys in zip(ends, (sources, targets), strict=True):
            check_keys(rows, number, keys)
    weights = None if weight is None else weights_of_rows(rows, weight, columns[weight])
    yield EdgeList(sources, targets, unread=places.unread(layout.names), weights=weights)
