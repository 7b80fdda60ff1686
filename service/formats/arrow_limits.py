"""The decoded size of an Arrow IPC stream, determined before it is decoded.

Two things make a short stream large: compressed buffers (each begins with its decompressed length,
which the reader allocates), and columns that refer to the same bytes many times (dictionaries,
string views), which are decoded to plain keys.

Layout: https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format, Message.fbs.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_UNCOMPRESSED = -1
"""In place of a length: this buffer is not compressed."""

# Fields of the tables in Message.fbs, by position.
_MESSAGE_HEADER = 2
_DICTIONARY_DATA = 1
_BATCH_BUFFERS = 2
_BATCH_COMPRESSION = 3


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


def decoded_bytes(table: pa.Table) -> int:
    """Bytes of the table's columns as plain strings and 64-bit integers."""
    return sum(_chunk_bytes(chunk) for column in table.columns for chunk in column.chunks)


def _chunk_bytes(chunk: pa.Array) -> int:
    if pa.types.is_dictionary(chunk.type):
        if _is_text(chunk.dictionary.type):
            lengths = pa.array(_text_lengths(chunk.dictionary))
            return int(pc.sum(lengths.take(chunk.indices)).as_py() or 0)
    elif _is_text(chunk.type):
        return int(_text_lengths(chunk).sum())
    return 8 * len(chunk)


def _is_text(arrow_type: pa.DataType) -> bool:
    return arrow_type in (pa.string(), pa.large_string(), pa.string_view())


def _text_lengths(texts: pa.Array) -> NDArray[np.int64]:
    """int64[len(texts)]: bytes of each text; for a null, any number that is not negative."""
    if texts.type == pa.string_view():  # pyarrow has no function for it
        views = np.frombuffer(texts.buffers()[1], np.int32)[::4]
        return views[texts.offset : texts.offset + len(texts)].astype(np.int64)
    lengths: NDArray[np.int64] = pc.fill_null(
        pc.binary_length(texts).cast(pa.int64()), 0
    ).to_numpy()
    return lengths
