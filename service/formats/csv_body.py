"""Batches in CSV: a header, then an edge per row."""

from __future__ import annotations

import csv
import io
import re

import pyarrow as pa
import pyarrow.csv

from service.errors import FormatError
from service.formats.columns import EdgeColumns
from service.formats.tables import batch_of, check_names
from service.formats.values import ENDS, EXPECTED_KEY, decode_text, described, is_key
from service.vertex_keys import ARROW_TYPES, KeyKind

_INTEGER = re.compile(r"-?[0-9]{1,19}")


def decode_csv(body: bytes, kind: KeyKind) -> EdgeColumns:
    """Raises FormatError."""
    types = dict.fromkeys(ENDS, ARROW_TYPES[kind]) | {"operation": pa.string()}
    if kind == "integer" and (b"0x" in body or b"0X" in body):  # the reader parses 0xff as 255
        _find_error(body, kind)
    try:
        table = pyarrow.csv.read_csv(
            pa.BufferReader(body),
            parse_options=pyarrow.csv.ParseOptions(newlines_in_values=True),
            convert_options=pyarrow.csv.ConvertOptions(
                column_types=types, null_values=[], strings_can_be_null=False
            ),
        )
    except pa.ArrowInvalid as error:
        _find_error(body, kind)
        raise FormatError("body", None, f"not CSV: {error}") from error
    return batch_of(table, kind)


def _find_error(body: bytes, kind: KeyKind) -> None:
    """Raises FormatError for a missing header, or for the first row with a wrong number of columns
    or without a key; returns if there is none.
    """
    reader = csv.reader(io.StringIO(decode_text(body, "body"), newline=""))
    rows = (row for row in reader if row)
    header = next(rows, None)
    if header is None:
        raise FormatError("body", None, "expected a header source,target[,operation], got nothing")
    check_names(header)
    for index, row in enumerate(rows):
        if len(row) != len(header):
            message = f"expected {len(header)} columns, as in the header, got {len(row)}"
            raise FormatError("body", index, message)
        for name in ENDS:
            text = row[header.index(name)]
            number = text.strip(" \t")  # which Arrow ignores
            integral = kind == "integer" and _INTEGER.fullmatch(number) is not None
            if not is_key(int(number) if integral else text, kind):
                message = f"expected {EXPECTED_KEY[kind]}, got {described(text)}"
                raise FormatError(name, index, message)
