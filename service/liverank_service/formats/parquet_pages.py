"""The sizes of the pages of a Parquet file, from their headers: those in its footer may be wrong.

Layout: https://github.com/apache/parquet-format (parquet.thrift), in Thrift's compact protocol.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow.parquet

from liverank_service.errors import FormatError

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
