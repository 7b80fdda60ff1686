"""Batches as the journal stores them."""

from __future__ import annotations

from dataclasses import fields

import orjson
import pyarrow as pa

from service.errors import FormatError
from service.formats.arrow import arrow_table
from service.formats.columns import EdgeColumns
from service.formats.tables import combined
from service.formats.values import key_column, parse_json
from service.vertex_keys import ARROW_TYPES

_NAMES = [field.name for field in fields(EdgeColumns)]

_SMALL_BATCH = 64
"""Maximum number of keys of a batch that is stored as JSON."""


def encode_batch(columns: EdgeColumns) -> bytes:
    """An Arrow IPC stream of one row, with a list per column; for a small batch, JSON of the
    columns that are not empty, which is faster to encode and shorter.
    """
    arrays = {name: getattr(columns, name) for name in _NAMES}
    if sum(map(len, arrays.values())) <= _SMALL_BATCH:
        kind = "string" if pa.types.is_string(columns.vertices.type) else "integer"
        full = {name: column.to_pylist() for name, column in arrays.items() if len(column)}
        return orjson.dumps({"keys": kind, **full})
    lists = [
        pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
        for column in arrays.values()
    ]
    row = pa.record_batch(lists, names=_NAMES)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, row.schema) as writer:
        writer.write_batch(row)
    payload: bytes = sink.getvalue().to_pybytes()
    return payload


def decode_payload(payload: bytes) -> EdgeColumns:
    """The encoded batch. Raises FormatError for other bytes."""
    if payload.startswith(b"{"):
        return _decode_small(payload)
    table = arrow_table(payload, "payload")
    if table.column_names != _NAMES or table.num_rows != 1:
        raise FormatError("payload", None, f"expected one row of {', '.join(_NAMES)}")
    return EdgeColumns(*(combined(column).flatten() for column in table.columns))


def _decode_small(payload: bytes) -> EdgeColumns:
    document = parse_json(payload, "payload", None)
    kind = document.pop("keys", None)
    columns = [document.pop(name, []) for name in _NAMES]
    if (
        not isinstance(kind, str)
        or kind not in ARROW_TYPES
        or document
        or not all(isinstance(column, list) for column in columns)
    ):
        raise FormatError("payload", None, f"expected keys and {', '.join(_NAMES)}")
    return EdgeColumns(*(key_column(column, kind, "payload") for column in columns))
