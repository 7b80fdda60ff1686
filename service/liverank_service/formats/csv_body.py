"""Batches in CSV: a header, then an edge, or a vertex to remove, per row."""

from __future__ import annotations

import csv
import io
import re
from codecs import BOM_UTF8
from collections.abc import Iterator
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from liverank_service.errors import FormatError
from liverank_service.formats.arrow_readers import read_table
from liverank_service.formats.columns import Attributes, EdgeColumns
from liverank_service.formats.tables import batch_of, check_names
from liverank_service.formats.values import (
    ENDS,
    EXPECTED_KEY,
    EXPECTED_TEXTS,
    EXPECTED_TIME,
    EXPECTED_WEIGHT,
    decode_text,
    described,
    is_key,
    parsed_times,
)
from liverank_service.vertex_keys import ARROW_TYPES, KeyKind

_LONGEST_HEADER = 4096
"""Bytes; the names of all columns are far shorter."""

_INTEGER = re.compile(r"-?[0-9]{1,19}")


def decode_csv(body: bytes, kind: KeyKind, attributes: Attributes) -> EdgeColumns:
    """Raises FormatError."""
    _check_header(body, attributes)
    types = dict.fromkeys(ENDS, ARROW_TYPES[kind])
    types |= dict.fromkeys(("operation", *_READERS), pa.string())
    if kind == "integer" and (b"0x" in body or b"0X" in body):  # the reader parses 0xff as 255
        _find_error(body, kind, attributes)
    read = partial(
        pyarrow.csv.read_csv,
        parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
        convert_options=pyarrow.csv.ConvertOptions(
            # a row that removes a vertex has an empty target, as one that empties its list
            column_types=types,
            null_values=[""] if b"remove" in body or b"replace" in body else [],
            strings_can_be_null=False,
        ),
    )
    try:
        table = read_table(read, body)
    except pa.ArrowInvalid as error:
        _find_error(body, kind, attributes)
        raise FormatError("body", None, f"not CSV: {error}") from error
    for name in attributes.names:
        if table.column_names.count(name) == 1:
            place = table.column_names.index(name)
            table = table.set_column(place, name, _READERS[name](table[name]))
    return batch_of(table, kind, attributes)


def _numbers(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The weights as numbers; empty cells are null. Raises FormatError."""
    return _parsed(column, "weight", EXPECTED_WEIGHT, pa.float64())


def _times(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The times as numbers or timestamps; empty cells are null. Raises FormatError."""
    found = parsed_times(_texts(column))
    if found is not None:
        return found
    return _parsed(column, "time", f"{EXPECTED_TIME}, {EXPECTED_TEXTS}", pa.float64())


_READERS = {"weight": _numbers, "time": _times}


def _texts(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.if_else(pc.equal(column, ""), pa.scalar(None, pa.string()), column)


def _parsed(
    column: pa.ChunkedArray, name: str, expected: str, kind: pa.DataType
) -> pa.ChunkedArray:
    texts = _texts(column)
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        for index, text in enumerate(texts.to_pylist()):
            try:
                pa.scalar(text).cast(kind)
            except pa.ArrowInvalid:
                message = f"expected {expected}, got {described(text)}"
                raise FormatError(name, index, message) from None
        raise


def _check_header(body: bytes, attributes: Attributes) -> None:
    """Raises FormatError for names that are wrong, before the reader makes a column of each: one
    takes it thousands of times the bytes of its name.
    """
    begin = body[:_LONGEST_HEADER]
    if not begin.strip(b"\r\n"):
        begin = body.lstrip(b"\r\n")[:_LONGEST_HEADER]
    text = begin.removeprefix(BOM_UTF8).decode(errors="replace")
    if (header := next(_rows(text), None)) is not None:
        check_names(header, attributes)


def _rows(text: str) -> Iterator[list[str]]:
    """Those that are not blank. Raises FormatError."""
    try:
        yield from (row for row in csv.reader(io.StringIO(text, newline="")) if row)
    except csv.Error as error:  # such as a cell of more than 128 KiB
        raise FormatError("body", None, f"not CSV: {error}") from error


def _find_error(body: bytes, kind: KeyKind, attributes: Attributes) -> None:
    """Raises FormatError for a missing header, or for the first row with a wrong number of columns
    or without a key; returns if there is none.
    """
    text = decode_text(body.removeprefix(BOM_UTF8), "body")  # as Arrow's reader
    rows = _rows(text)
    header = next(rows, None)
    if header is None:
        raise FormatError("body", None, "expected a header source,target[,operation], got nothing")
    check_names(header, attributes)
    for index, row in enumerate(rows):
        if len(row) != len(header):
            message = f"expected {len(header)} columns, as in the header, got {len(row)}"
            raise FormatError("body", index, message)
        operation = row[header.index("operation")] if "operation" in header else "insert"
        removes = operation == "remove" or (
            operation == "replace" and not row[header.index("target")]
        )
        for name in ENDS[:1] if removes else ENDS:
            text = row[header.index(name)]
            number = text.strip(" \t")  # which Arrow ignores
            integral = kind == "integer" and _INTEGER.fullmatch(number) is not None
            if not is_key(int(number) if integral else text, kind):
                message = f"expected {EXPECTED_KEY[kind]}, got {described(text)}"
                raise FormatError(name, index, message)
