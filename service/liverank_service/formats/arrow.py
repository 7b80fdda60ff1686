"""Arrow streams and Parquet files as tables of plain columns, within a limit that is checked before
bytes are made; Arrow's readers of text, which parse with threads.

Three things make a short body large: compressed buffers (each begins with its decompressed length,
which the reader allocates), columns that refer to the same bytes many times (dictionaries, string
views), and types whose values take no bytes (null). The sizes of the pages of a Parquet file are
read from their headers, since those in its footer may be wrong.

Layouts: https://arrow.apache.org/docs/format/Columnar.html#ipc-streaming-format, Message.fbs;
https://github.com/apache/parquet-format (parquet.thrift), in Thrift's compact protocol.
"""

from __future__ import annotations

import struct
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
import pyarrow.parquet
from numpy.typing import NDArray

from liverank_service.errors import DecodedTooLarge, FormatError


def stream_table(body: bytes, limit: int, check: Callable[[pa.Schema], None]) -> pa.Table:
    """The table in a stream, of plain columns.

    check  raises FormatError for columns that are not read; nothing was decoded before
    Raises FormatError, and DecodedTooLarge for more than `limit` bytes, before it makes them.
    """
    try:
        reader = pa.ipc.open_stream(pa.py_buffer(body))
        check(reader.schema)
        if (size := decompressed_bytes(body)) > limit:
            raise DecodedTooLarge(size, limit)
        return plain_table(reader, reader.schema, limit)
    except FormatError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError("body", None, f"expected an Arrow IPC stream: {error}") from error


def arrow_table(body: bytes, field: str) -> pa.Table:
    """The table in a stream, fully validated: a crafted offset must not reach a kernel.

    Raises FormatError.
    """
    try:
        table = pa.ipc.open_stream(pa.py_buffer(body)).read_all()
        table.validate(full=True)
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError(field, None, f"expected an Arrow IPC stream: {error}") from error
    return table


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


def parquet_table(body: bytes, limit: int, check: Callable[[pa.Schema], None]) -> pa.Table:
    """The table in a file, of plain columns.

    check  raises FormatError for columns that are not read; nothing was decoded before
    Raises FormatError, and DecodedTooLarge once more than `limit` bytes are decoded.

    Pages are measured before any is decompressed. Texts are read as dictionaries, so that a value
    that is repeated many times takes its memory once until its size is known; the other columns
    have a fixed width, and so a piece of them is small.
    """
    try:
        file = pyarrow.parquet.ParquetFile(pa.BufferReader(body), pre_buffer=False)
        schema = file.schema_arrow
        check(schema)
        size = 0
        for page in page_bytes(body, file.metadata):
            size += page
            if size > limit:
                raise DecodedTooLarge(size, limit)
        if texts := [field.name for field in schema if holds_strings(field.type)]:
            file = pyarrow.parquet.ParquetFile(
                pa.BufferReader(body),
                metadata=file.metadata,
                read_dictionary=texts,
                pre_buffer=False,
            )
        batches = file.iter_batches(batch_size=PIECE_ROWS, use_threads=False)
        return plain_table(batches, file.schema_arrow, limit)
    except FormatError:
        raise
    except (pa.ArrowException, OSError, ValueError) as error:
        raise FormatError("body", None, f"expected a Parquet file: {error}") from error


_LEAST_PAGE_BYTES = 1024
"""What a page counts at least: reading it costs as much as reading these bytes."""

_DICTIONARY_VALUE_BYTES = 16
"""What the reader allocates for a value of a dictionary, beside its bytes."""

_DELTA_BYTE_ARRAY = 7
"""The encoding in which a value may repeat the one before: a page can decode to any size."""

_DEEPEST = 16

# Fields of the structs in parquet.thrift.
_UNCOMPRESSED_SIZE, _COMPRESSED_SIZE = 2, 3
_DATA_PAGE, _DICTIONARY_PAGE, _DATA_PAGE_V2 = 5, 7, 8
_COUNT = 1
_ENCODINGS = ((_DATA_PAGE, 2), (_DICTIONARY_PAGE, 2), (_DATA_PAGE_V2, 4))


def page_bytes(file: bytes, metadata: pyarrow.parquet.FileMetaData) -> Iterator[int]:
    """Bytes that the reader makes of each page of each column.

    Raises FormatError for an encoding that is not read, ValueError for a damaged header.
    """
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for number in range(row_group.num_columns):
            column = row_group.column(number)
            if column.num_values <= 0:  # then the reader reads no page
                continue
            begin, first = column.data_page_offset, column.dictionary_page_offset
            if first and 0 < first < begin:  # as the reader decides
                begin = first
            end = begin + column.total_compressed_size
            if not 0 <= begin <= end <= len(file):
                raise ValueError(f"column {column.path_in_schema} is outside of the file")
            yield from _pages(file, begin, end, column.path_in_schema)


def _pages(file: bytes, begin: int, end: int, name: str) -> Iterator[int]:
    while begin < end:
        header = _Header(file, begin)
        page = header.struct()
        for kind, place in _ENCODINGS:
            if _number(page.get(kind), place) == _DELTA_BYTE_ARRAY:
                accepted = "PLAIN, dictionary or DELTA_LENGTH_BYTE_ARRAY"
                message = f"expected the encoding {accepted}, got DELTA_BYTE_ARRAY"
                raise FormatError(name, None, message)
        sizes = _number(page, _COMPRESSED_SIZE), _number(page, _UNCOMPRESSED_SIZE)
        if min(sizes) < 0:
            raise ValueError(f"a page of column {name} has no size")
        values = _number(page.get(_DICTIONARY_PAGE), _COUNT)
        yield max(*sizes, _LEAST_PAGE_BYTES) + _DICTIONARY_VALUE_BYTES * max(values, 0)
        begin = header.position + sizes[0]


def _number(fields: object, number: int) -> int:
    """An integer of a struct, or -1."""
    found = fields.get(number) if isinstance(fields, dict) else None
    return found if isinstance(found, int) else -1


class _Header:
    """A struct in Thrift's compact protocol, from a position on."""

    def __init__(self, content: bytes, position: int) -> None:
        self._content = content
        self.position = position

    def struct(self, depth: int = 0) -> dict[int, Any]:
        """Its integers and structs by number; other fields are skipped. Raises ValueError."""
        fields: dict[int, Any] = {}
        number = 0
        while head := self._byte():
            number = number + (head >> 4) if head >> 4 else self._integer()
            fields[number] = self._value(head & 15, depth)
        return fields

    def _value(self, kind: int, depth: int, in_list: bool = False) -> Any:
        if depth > _DEEPEST:
            raise ValueError("the header of a page is nested too deeply")
        if kind in (1, 2):  # a boolean, which in a list has a byte
            self.position += in_list
        elif kind == 3:
            self.position += 1
        elif kind in (4, 5, 6):
            return self._integer()
        elif kind == 7:
            self.position += 8
        elif kind == 8:
            length = self._natural()
            self.position += length
        elif kind in (9, 10):
            head = self._byte()
            for _ in range(head >> 4 if head >> 4 < 15 else self._natural()):
                self._value(head & 15, depth + 1, in_list=True)
        elif kind == 12:
            return self.struct(depth + 1)
        else:  # there is no map in the header of a page
            raise ValueError(f"the header of a page has a field of type {kind}")
        return None

    def _byte(self) -> int:
        if not 0 <= self.position < len(self._content):
            raise ValueError("the header of a page is truncated")
        self.position += 1
        return self._content[self.position - 1]

    def _natural(self) -> int:
        value = shift = 0
        while shift < 64:
            byte = self._byte()
            value |= (byte & 127) << shift
            if byte < 128:
                return value
            shift += 7
        raise ValueError("the header of a page has an integer of more than 64 bits")

    def _integer(self) -> int:
        value = self._natural()
        return (value >> 1) ^ -(value & 1)


LONGEST_WAIT = 10.0
"""Seconds."""

_MAX_BLOCK = 2**31 - 1


def read_table(read: Callable[[pa.BufferReader], pa.Table], content: bytes) -> pa.Table:
    """What a reader makes of the content. Raises what it raises, once its threads have given the
    content back: one that does so while the interpreter ends would abort the process.
    """
    view, given_back = memoryview(content), threading.Event()
    weakref.finalize(view, given_back.set)
    source = pa.BufferReader(pa.py_buffer(view))
    del view
    try:
        return read(source)
    except Exception as error:
        error.__traceback__ = None  # its frames hold the source
        del source
        given_back.wait(LONGEST_WAIT)
        raise  # not by a name of this frame: frame and error would hold each other, and the content


def json_table(
    content: bytes,
    schema: pa.Schema,
    *,
    others: Literal["error", "infer"] = "error",
) -> pa.Table:
    """JSON objects as a table. Raises pa.ArrowException, UnicodeDecodeError.

    schema  of columns whose types are known
    others  what becomes of members that are not in it: they are an error, or columns of the types
            that their values have
    """
    # one block, since a value must not be longer than a block, and a column has the type of its
    # values in the first
    read = partial(
        pyarrow.json.read_json,
        read_options=pyarrow.json.ReadOptions(block_size=min(len(content) + 1, _MAX_BLOCK)),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=schema,
            unexpected_field_behavior=others,
        ),
    )
    table = read_table(read, content)
    table.validate(full=True)  # strings are UTF-8
    return table
