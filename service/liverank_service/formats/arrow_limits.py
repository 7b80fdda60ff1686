"""Arrow bodies as tables of plain columns, within a limit that is checked before bytes are made.

Three things make a short body large: compressed buffers (each begins with its decompressed length,
which the reader allocates), columns that refer to the same bytes many times (dictionaries, string
views), and types whose values take no bytes (null).

Layout: https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format, Message.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from liverank_service.errors import DecodedTooLarge

PIECE_ROWS = 1 << 20
"""Decoded at a time. What a dictionary takes counts once a piece, so pieces are not short."""

_UNCOMPRESSED = -1
"""In place of a length: this buffer is not compressed."""

# Fields of the tables in Message.fbs, by position.
_MESSAGE_HEADER = 2
_DICTIONARY_DATA = 1
_BATCH_BUFFERS = 2
_BATCH_COMPRESSION = 3

_NUMBER_BYTES = 8
_OFFSET_BYTES = 4


def decompressed_bytes(stream: bytes) -> int:
    """Bytes of all buffers of the stream when decompressed, as stated in the stream.

    Raises pa.ArrowException or ValueError for anything but a stream.
    """
    total = 0
    for message in pa.ipc.MessageReader.open_stream(pa.py_buffer(stream)):
        if message.body is None or message.type not in ("record batch", "dictionary"):
            continue
        try:
            total += sum(_buffer_lengths(message, memoryview(message.body)))
        except struct.error as error:
            raise ValueError(f"truncated {message.type}: {error}") from error
    return total


def _buffer_lengths(message: pa.ipc.Message, body: memoryview) -> Iterator[int]:
    metadata = memoryview(message.metadata)
    table = _follow(metadata, 0)
    batch = _member(metadata, table, _MESSAGE_HEADER)
    if batch and message.type == "dictionary":
        batch = _member(metadata, batch, _DICTIONARY_DATA)
    if not batch or not _member(metadata, batch, _BATCH_COMPRESSION):
        yield len(body)
        return
    buffers = _member(metadata, batch, _BATCH_BUFFERS)
    count = struct.unpack_from("<I", metadata, buffers)[0] if buffers else 0
    for index in range(count):
        offset, length = struct.unpack_from("<qq", metadata, buffers + 4 + 16 * index)
        if length <= 0:
            continue
        (decompressed,) = struct.unpack_from("<q", body, offset)
        yield length if decompressed == _UNCOMPRESSED else max(decompressed, 0)


def _follow(flatbuffer: memoryview, place: int) -> int:
    """The position that the offset at `place` refers to."""
    target: int = place + struct.unpack_from("<I", flatbuffer, place)[0]
    return target


def _member(flatbuffer: memoryview, table: int, position: int) -> int:
    """The position of a field of a table, 0 if it is absent."""
    vtable = table - struct.unpack_from("<i", flatbuffer, table)[0]
    (size,) = struct.unpack_from("<H", flatbuffer, vtable)
    if 4 + 2 * position >= size:
        return 0
    (offset,) = struct.unpack_from("<H", flatbuffer, vtable + 4 + 2 * position)
    return _follow(flatbuffer, table + offset) if offset else 0


def plain_table(batches: Iterable[pa.RecordBatch], schema: pa.Schema, limit: int) -> pa.Table:
    """The batches as a table whose texts are pa.string(), fully validated: a crafted offset must
    not reach a kernel. Its other columns have types of at most 64 bits.

    Raises pa.ArrowException, and DecodedTooLarge for more than `limit` bytes, before it makes them.
    """
    columns = [_Column(field.type) for field in schema]
    plain = pa.schema(zip(schema.names, (column.plain_type for column in columns), strict=True))
    pieces, size = [], 0
    for batch in batches:
        batch.validate()  # enough to measure it
        for first in range(0, batch.num_rows, PIECE_ROWS):
            piece = batch.slice(first, PIECE_ROWS)
            arrays = []
            for column, array in zip(columns, piece.columns, strict=True):
                size += column.measure(array)
                if size > limit:
                    raise DecodedTooLarge(size, limit)
                arrays.append(column.decode(array))
            pieces.append(pa.RecordBatch.from_arrays(arrays, schema=plain))
    return pa.Table.from_batches(pieces, plain)


class _Column:
    """A column, decoded piece by piece."""

    def __init__(self, arrow_type: pa.DataType) -> None:
        self.plain_type = pa.string() if holds_strings(arrow_type) else arrow_type
        self._known: object = None
        self._texts = self._lengths = pa.nulls(0)

    def measure(self, array: pa.Array) -> int:
        """Bytes of the piece when it is decoded, and of its dictionary unless that is known."""
        if not holds_strings(array.type):
            return _NUMBER_BYTES * len(array)
        size = _OFFSET_BYTES * len(array)
        if not pa.types.is_dictionary(array.type):
            return size + int(_text_lengths(array).sum())
        size += self._take_dictionary(array.dictionary)
        return size + int(pc.sum(self._lengths.take(array.indices)).as_py() or 0)

    def decode(self, array: pa.Array) -> pa.Array:
        """A piece that was measured."""
        if pa.types.is_dictionary(array.type):
            array.indices.validate(full=True)
            return self._texts.take(array.indices)
        array.validate(full=True)
        return array.cast(self.plain_type)

    def _take_dictionary(self, dictionary: pa.Array) -> int:
        """Returns the bytes of the dictionary, or 0 if it is that of the last piece."""
        buffers = [buffer and (buffer.address, buffer.size) for buffer in dictionary.buffers()]
        if (identity := (buffers, dictionary.offset, len(dictionary))) == self._known:
            return 0
        self._known = identity
        self._source = dictionary  # its addresses must not be those of another
        lengths = _text_lengths(dictionary)
        dictionary.validate(full=True)
        self._texts, self._lengths = dictionary.cast(pa.string()), pa.array(lengths)
        return int(lengths.sum()) + _OFFSET_BYTES * len(dictionary)


def holds_strings(arrow_type: pa.DataType) -> bool:
    """Whether it is a type of texts, or of a dictionary of them."""
    if pa.types.is_dictionary(arrow_type):
        arrow_type = arrow_type.value_type
    return arrow_type in (pa.string(), pa.large_string(), pa.string_view())


def _text_lengths(texts: pa.Array) -> NDArray[np.int64]:
    """int64[len(texts)]: bytes of each text; for a null, any number that is not negative. Of an
    array that is not fully validated a length may be wrong, but not that of all views.
    """
    if not len(texts):
        return np.zeros(0, np.int64)
    if texts.type == pa.string_view():  # pyarrow has no function for it
        views = np.frombuffer(texts.buffers()[1], np.int32)[::4]
        return np.maximum(views[texts.offset : texts.offset + len(texts)].astype(np.int64), 0)
    lengths: NDArray[np.int64] = pc.fill_null(
        pc.binary_length(texts).cast(pa.int64()), 0
    ).to_numpy()
    return lengths
