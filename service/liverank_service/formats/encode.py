"""Tables → streams of bytes: CSV, NDJSON, Arrow and Parquet, compressed or not. Columns → lists in
JSON, as responses have them.

Only one record batch and its encoding are in memory at a time. Arrow makes the text of all rows at
once, with no object for any of them and without the interpreter lock.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self, TypeAlias

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import pyarrow.parquet
from numpy.typing import NDArray

from liverank_service.formats import ARROW_STREAM, CSV, NDJSON, PARQUET

_GZIP_LEVEL = 1
"""Higher levels take three to ten times as long for a tenth less bytes."""

_ESCAPED = r'["\\\x00-\x1f]'
"""What JSON escapes in a text."""

Column: TypeAlias = "pa.Array | NDArray[Any]"

_FEW_ROWS = 1_000

_PIECE_ROWS = 1 << 14
"""Rows of a list in JSON whose text is made at a time: as strings of Arrow, which hold 2 GiB."""


def encoded(
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    media_type: str,
    coding: str | None = None,
) -> Iterator[bytes]:
    """The table in pieces of bytes, one or more a batch.

    media_type  one of EXPORTED
    coding      ``gzip``, ``zstd``, or None
    """
    collected = _Gzipped() if coding == "gzip" else _Collected()
    stream = pa.PythonFile(collected, "w")
    if coding == "zstd":
        stream = pa.CompressedOutputStream(stream, coding)
    with stream, _WRITERS[media_type](stream, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)
            if piece := collected.take():
                yield piece
    if piece := collected.take():
        yield piece


def json_lines(batch: pa.RecordBatch) -> bytes:
    """An object a row, each on a line of its own. Columns of strings and numbers."""
    parts: list[Any] = []
    for name, column in zip(batch.schema.names, batch.columns, strict=True):
        values = (
            _json_texts(column) if pa.types.is_string(column.type) else column.cast(pa.string())
        )
        if column.null_count:
            values = values.fill_null("null")
        parts += ["," if parts else "{", orjson.dumps(name).decode() + ":", values]
    return _concatenated(*parts, "}\n")


def json_objects(columns: Mapping[str, Column]) -> Any:
    """A list of objects, one a row, to be a member of a document for orjson.

    columns  of strings, or of numbers, of which those that are not finite become null
    """
    if (rows := _few_rows(*columns.values())) is not None:
        if len(columns) == 2:  # three times as fast
            first, second = columns
            return [{first: one, second: other} for one, other in rows]
        return [dict(zip(columns, row, strict=True)) for row in rows]
    names = [orjson.dumps(name).decode() + ":" for name in columns]
    return _json_list(list(columns.values()), names, "{", "}")


def json_tuples(*columns: Column) -> Any:
    """A list of lists, one a row, as `json_objects`."""
    if (rows := _few_rows(*columns)) is not None:
        return list(rows)
    return _json_list(columns, [""] * len(columns), "[", "]")


def json_values(column: Column) -> Any:
    """A list of values, as `json_objects`."""
    if (rows := _few_rows(column)) is not None:
        return [value for (value,) in rows]
    return _json_list([column], [""], "", "")


def _few_rows(*columns: Column) -> Iterable[tuple[Any, ...]] | None:
    """The rows as Python objects if they are so few that orjson is faster."""
    if len(columns[0]) > _FEW_ROWS:
        return None
    values = (c.to_pylist() if isinstance(c, pa.Array) else c.tolist() for c in columns)
    return zip(*values, strict=True)


def _json_list(
    columns: Sequence[Column], names: Sequence[str], begin: str, end: str
) -> orjson.Fragment:
    """Rows in pieces: names and values between `begin` and `end`."""
    pieces = []
    for first in range(0, len(columns[0]), _PIECE_ROWS):
        parts: list[Any] = []
        for name, column in zip(names, columns, strict=True):
            parts += ["," + name if parts else begin + name]
            parts += [_json_texts(column[first : first + _PIECE_ROWS])]
        pieces.append(_concatenated(*parts, end + ","))
    pieces[-1] = pieces[-1][:-1]
    return orjson.Fragment(b"".join([b"[", *pieces, b"]"]))


def _json_texts(column: Column) -> pa.Array:
    """The values as JSON, in strings, as orjson writes them."""
    if not isinstance(column, pa.Array) or not pa.types.is_string(column.type):
        numbers = column.to_numpy() if isinstance(column, pa.Array) else column
        listed = orjson.dumps(np.ascontiguousarray(numbers), option=orjson.OPT_SERIALIZE_NUMPY)
        return pc.split_pattern(pa.scalar(listed[1:-1].decode()), ",").values
    quoted = pc.binary_join_element_wise('"', column, '"', "")
    escaped = pc.match_substring_regex(column, _ESCAPED)
    if pc.any(escaped).as_py():
        texts = [orjson.dumps(text).decode() for text in column.filter(escaped).to_pylist()]
        quoted = pc.replace_with_mask(quoted, escaped, pa.array(texts, pa.string()))
    return quoted


def _concatenated(*parts: Any) -> bytes:
    """The texts of all rows. parts: strings, and columns of strings"""
    rows = pc.binary_join_element_wise(*parts, "")
    if not len(rows):
        return b""
    _, offsets, data = rows.buffers()
    ends = memoryview(offsets).cast("i")
    first, last = ends[rows.offset], ends[rows.offset + len(rows)]
    return bytes(memoryview(data)[first:last])


class _Collected:
    """A file that keeps what is written until it is taken."""

    closed = False

    def __init__(self) -> None:
        self._pieces: list[bytes] = []

    def write(self, data: Any) -> int:
        self._pieces.append(bytes(data))
        return len(data)

    def take(self) -> bytes:
        pieces, self._pieces = self._pieces, []
        return b"".join(pieces)

    def flush(self) -> None:
        """Nothing is buffered elsewhere."""

    def close(self) -> None:
        """What is collected can still be taken."""


class _Gzipped(_Collected):
    """The same for compressed pieces. (Arrow's gzip stream has the highest level only.)"""

    def __init__(self) -> None:
        super().__init__()
        self._compressor = zlib.compressobj(_GZIP_LEVEL, wbits=16 + zlib.MAX_WBITS)

    def write(self, data: Any) -> int:
        super().write(self._compressor.compress(data))
        return len(data)

    def close(self) -> None:
        super().write(self._compressor.flush())


class _JsonLines:
    """The interface of Arrow's writers."""

    def __init__(self, stream: Any, _: pa.Schema) -> None:
        self._stream = stream

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """The stream stays open."""

    def write_batch(self, batch: pa.RecordBatch) -> None:
        self._stream.write(json_lines(batch))


def _csv_writer(stream: Any, schema: pa.Schema) -> Any:
    has_texts = any(pa.types.is_string(kind) for kind in schema.types)
    quoting: Literal["needed", "none"] = "needed" if has_texts else "none"
    options = pyarrow.csv.WriteOptions(quoting_style=quoting)
    return pyarrow.csv.CSVWriter(stream, schema, write_options=options)


def _parquet_writer(stream: Any, schema: pa.Schema) -> Any:
    return pyarrow.parquet.ParquetWriter(stream, schema, compression="zstd")


_WRITERS: dict[str, Callable[[Any, pa.Schema], Any]] = {
    CSV: _csv_writer,
    NDJSON: _JsonLines,
    ARROW_STREAM: pa.ipc.new_stream,
    PARQUET: _parquet_writer,
}
