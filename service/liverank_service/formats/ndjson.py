"""Batches in NDJSON: an edge, or a vertex to remove, per line."""

from __future__ import annotations

import io
import re

import pyarrow as pa
import pyarrow.compute as pc

from liverank_service.errors import FormatError
from liverank_service.formats.attributes import Attributes
from liverank_service.formats.columns import EdgeColumns
from liverank_service.formats.tables import batch_of, json_table
from liverank_service.formats.times import EXPECTED_TIME
from liverank_service.formats.values import (
    COLUMNS,
    ENDS,
    EXPECTED_KEY,
    EXPECTED_NOTHING,
    EXPECTED_OPERATION,
    OPERATIONS,
    described,
    is_key,
    listed,
    parse_json,
)
from liverank_service.formats.weights import EXPECTED_WEIGHT
from liverank_service.vertex_keys import ARROW_TYPES, KeyKind

_EXPECTED = {"weight": EXPECTED_WEIGHT, "time": EXPECTED_TIME}

_BLANK_LINE = re.compile(rb"\n\s*\n")


def decode_ndjson(body: bytes, kind: KeyKind, attributes: Attributes) -> EdgeColumns:
    """Raises FormatError."""
    members = [(name, ARROW_TYPES[kind]) for name in ENDS] + [("operation", pa.string())]
    schema = pa.schema([*members, *((name, pa.float64()) for name in attributes.names)])
    if not body.strip():
        return batch_of(schema.empty_table(), kind, attributes)
    if b"null" in body:  # pyarrow's reader crashes at a null that is not a member of an object
        _find_error(body, kind, attributes)
    try:
        table = json_table(body, schema, newlines_in_values=False)
    except (pa.ArrowException, UnicodeDecodeError) as error:
        _find_error(body, kind, attributes)
        raise FormatError("body", None, f"not NDJSON: {error}") from error
    if table.num_rows != _count_lines(body):  # the reader accepts several objects per line
        _find_error(body, kind, attributes)
        raise FormatError("body", None, "not NDJSON: expected one JSON object per line")
    operation = pc.fill_null(table["operation"], "insert")
    for name in attributes.names:
        if table[name].null_count == len(table):
            table = table.drop_columns(name)
    return batch_of(table.set_column(2, "operation", operation), kind, attributes)


def _count_lines(body: bytes) -> int:
    """The number of lines that are not blank."""
    lines = body.strip()
    if _BLANK_LINE.search(lines):
        return sum(1 for line in lines.split(b"\n") if line.strip())
    return lines.count(b"\n") + 1


def _find_error(body: bytes, kind: KeyKind, attributes: Attributes) -> None:
    """Raises FormatError for the first line that is not an edge; returns if there is none."""
    known = (*COLUMNS, *attributes.names)
    lines = ((n, line) for n, line in enumerate(io.BytesIO(body), 1) if line.strip())
    for index, (number, line) in enumerate(lines):
        row = parse_json(line.removesuffix(b"\n"), "body", index, number)
        if not isinstance(row, dict):
            raise FormatError("body", index, f"expected a JSON object, got {described(row)}")
        for name in row:
            attributes.check(name, name, index)
            if name not in known:
                raise FormatError(name, index, f"unknown member; expected {listed(known)}")
        operation = row.get("operation", "insert")
        removes = operation == "remove"
        for name in ENDS[:1] if removes else ENDS:
            if not is_key(row.get(name), kind):
                got = described(row[name]) if name in row else "nothing"
                raise FormatError(name, index, f"expected {EXPECTED_KEY[kind]}, got {got}")
        if removes and row.get("target") is not None:
            got = described(row["target"])
            raise FormatError("target", index, f"expected {EXPECTED_NOTHING}, got {got}")
        if operation not in (*OPERATIONS, None):
            message = f"expected {EXPECTED_OPERATION}, got {described(operation)}"
            raise FormatError("operation", index, message)
        for name, expected in _EXPECTED.items():
            value = row.get(name)
            if value is not None and type(value) not in (int, float):
                raise FormatError(name, index, f"expected {expected}, got {described(value)}")
