"""Files → edges, a piece at a time: for files that do not fit in memory.

Text edge lists, Parquet, Arrow and .gr.bin files, as liverank_service.formats.edge_files reads
them, all but Parquet compressed or not. Keys are 64-bit integers if all of them are: so a text file
is read as integers, and again as strings if it turns out to have others. Times are not read. Text
is refused at a piece in which all keys of a column are numbers and not all of them integers.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from numpy.typing import NDArray

from liverank_service.formats.edge_files import (
    AS_RECOGNISED,
    STDIN,
    key_column,
    reading,
    uncompressed,
    weights_of_table,
)
from liverank_service.formats.edge_json import is_json
from liverank_service.formats.edge_list import (
    ACCEPTED,
    EdgeListError,
    WantedColumns,
    end_columns,
    unread_columns,
)
from liverank_service.formats.edge_text import (
    TextLayout,
    check_keys,
    first_row,
    layout_of,
    weights_of_rows,
    without_mark,
)

PIECE_BYTES = 1 << 22
"""Of text that is parsed at once."""

PIECE_ROWS = 1 << 17
"""Of a Parquet file, and pairs of a .gr.bin file."""

_HEAD_BYTES = 16
"""Of a file: more than a byte order mark and the name of a format."""

_PIECEWISE = "expected a text edge list, Parquet, Arrow or .gr.bin file for a memory budget"


class NotIntegers(Exception):
    """A key that was to be read as an integer is none: the file has string keys."""


class EdgePiece(NamedTuple):
    """Edges of a file, in its order.

    sources, targets  both pa.int64() or both pa.string(), without nulls
    unread            names of the file's columns that are not in it
    weights           float64[rows], as liverank_gpu.EdgeBatch takes them; None if the edges have
                      none
    """

    sources: pa.Array
    targets: pa.Array
    unread: tuple[str, ...] = ()
    weights: NDArray[np.float64] | None = None


def read_edge_pieces(
    path: Path, integers: bool, wanted: WantedColumns = AS_RECOGNISED
) -> Iterator[EdgePiece]:
    """The edges of a file, one piece after the other, each with at least one row.

    integers  whether keys are to be read as integers
    wanted    the column of weights

    Raises NotIntegers; EdgeListError for stdin, for formats that are not read by pieces, and what
    `read_edge_list` raises it for.
    """
    if path == STDIN:
        raise EdgeListError(path, None, "stdin is not read by pieces: a memory budget needs a file")
    with reading(path), ExitStack() as opened:
        file = opened.enter_context(path.open("rb"))
        source = opened.enter_context(uncompressed(file))
        head = source.read(_HEAD_BYTES)
        if not head:
            raise EdgeListError(path, None, f"the file is empty; {ACCEPTED}")
        if ".gr.bin" in path.name.lower():
            wanted.refuse_weight(path, "a .gr.bin file")
            yield from _pairs(path, source, head)
            return
        if ".links.bin" in path.name.lower():
            raise EdgeListError(path, None, _PIECEWISE)
        head = without_mark(path, head)
        if head.startswith(b"%%Matrix"):
            raise EdgeListError(path, None, _PIECEWISE)
        if head.startswith(b"PAR1"):
            if source is not file:
                raise EdgeListError(path, None, "a compressed Parquet file is not read by pieces")
            yield from _parquet(path, integers, wanted)
        elif head.startswith((b"ARROW1", b"\xff\xff\xff\xff")):
            is_file = head.startswith(b"ARROW1")
            if is_file and source is not file:
                raise EdgeListError(path, None, "a compressed Arrow file is not read by pieces")
            file.seek(0)
            yield from _arrow(path, uncompressed(file), is_file, integers, wanted)
        else:
            yield from _text(path, source, head, integers, wanted)


def _pairs(path: Path, source: Any, head: bytes) -> Iterator[EdgePiece]:
    rest = head
    while content := rest + source.read(8 * PIECE_ROWS):
        whole = len(content) // 8 * 8
        if whole == 0:
            message = f"expected pairs of int32, got {len(content)} bytes behind the last pair"
            raise EdgeListError(path, None, message)
        content, rest = content[:whole], content[whole:]
        pairs = np.frombuffer(content, "<i4").reshape(-1, 2).astype(np.int64)
        yield EdgePiece(pa.array(pairs[:, 0]), pa.array(pairs[:, 1]))


def _parquet(path: Path, integers: bool, wanted: WantedColumns) -> Iterator[EdgePiece]:
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            batches = file.iter_batches(PIECE_ROWS)
            yield from _tables(path, file.schema_arrow, batches, integers, wanted)
    except (pa.ArrowException, ValueError) as error:
        if isinstance(error, EdgeListError):
            raise
        raise EdgeListError(path, None, f"cannot be read: {error}; {ACCEPTED}") from error


def _arrow(
    path: Path, source: Any, is_file: bool, integers: bool, wanted: WantedColumns
) -> Iterator[EdgePiece]:
    try:
        if is_file:
            with pa.ipc.open_file(source) as file:
                batches = (file.get_batch(number) for number in range(file.num_record_batches))
                yield from _tables(path, file.schema, batches, integers, wanted)
        else:
            with pa.ipc.open_stream(source) as stream:
                yield from _tables(path, stream.schema, stream, integers, wanted)
    except (pa.ArrowException, ValueError) as error:
        if isinstance(error, EdgeListError):
            raise
        raise EdgeListError(path, None, f"cannot be read: {error}; {ACCEPTED}") from error


def _tables(
    path: Path, schema: pa.Schema, batches: Any, integers: bool, wanted: WantedColumns
) -> Iterator[EdgePiece]:
    names = schema.names
    if len(names) < 2:
        raise EdgeListError(path, None, f"expected at least two columns, got {len(names)}")
    header = [name.lower() for name in names]
    ends = end_columns(header)
    _, weight = wanted.places(path, header, len(names))
    if integers and not all(pa.types.is_integer(schema.types[number]) for number in ends):
        raise NotIntegers
    unread, rows = unread_columns(names, *ends, weight), 0
    for batch in batches:
        batch.validate(full=True)
        for first in range(0, len(batch), PIECE_ROWS):
            part = batch.slice(first, PIECE_ROWS)
            sources, targets = (
                key_column(path, names[at], part.column(at), integers) for at in ends
            )
            weights = None
            if weight is not None:
                column = pa.chunked_array([part.column(weight)])
                weights = weights_of_table(path, column, names[weight], rows)
            yield EdgePiece(sources, targets, unread, weights)
            rows += len(part)
    if rows == 0:
        raise EdgeListError(path, None, "expected at least one row, got none")


def _text(
    path: Path, source: Any, head: bytes, integers: bool, wanted: WantedColumns
) -> Iterator[EdgePiece]:
    content, ended = head, False
    while not ended and not _has_two_rows(content):
        if b"\0" in content:
            raise EdgeListError(path, None, f"unknown binary format; {ACCEPTED}")
        more = source.read(PIECE_BYTES)
        content, ended = content + more, not more
    if is_json(path, content):
        raise EdgeListError(path, None, _PIECEWISE)
    layout = layout_of(path, content)
    if layout.events:
        message = "a list of events is not read by pieces: it may delete edges"
        raise EdgeListError(path, None, message)
    _, weight = wanted.places(path, layout.header, layout.rows.columns)
    line, start = 1, layout.rows.start
    while True:
        end = len(content) if ended else content.rfind(b"\n") + 1
        yield from _piece(layout, content[:end], start, line, integers, weight)
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
    layout: TextLayout, content: bytes, start: int, line: int, integers: bool, weight: int | None
) -> Iterator[EdgePiece]:
    """The edges of a piece of text; none if it has comments alone. weight: its column."""
    if first_row(content, start) == len(content) or not content[start:].strip():
        return
    rows = replace(layout.rows, content=content, start=start, line=line)
    ends = end_columns(layout.header)
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
    yield EdgePiece(sources, targets, unread_columns(layout.names, *ends, weight), weights)
