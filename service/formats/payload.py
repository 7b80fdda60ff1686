"""Batches as the journal stores them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import orjson
import pyarrow as pa

from gpu import OnConflict
from service.errors import FormatError
from service.formats.arrow import arrow_table
from service.formats.columns import KEY_COLUMNS, EdgeColumns
from service.formats.tables import combined
from service.formats.values import key_column, parse_json
from service.formats.weights import weight_column, weights_of
from service.vertex_keys import ARROW_TYPES

_SMALL_BATCH = 64
"""Maximum number of keys of a batch that is stored as JSON."""


def encode_batch(columns: EdgeColumns) -> bytes:
    """An Arrow IPC stream of one row, with a list per column; for a small batch, JSON of the
    columns that are not empty, which is faster to encode and shorter. `weights` and `on_conflict`
    (in Arrow: of the schema's metadata) are there only if the batch has them.
    """
    arrays = columns.keys
    conflict = {} if columns.on_conflict == "replace" else {"on_conflict": columns.on_conflict}
    if sum(map(len, arrays.values())) <= _SMALL_BATCH:
        kind = "string" if pa.types.is_string(columns.vertices.type) else "integer"
        full = {name: column.to_pylist() for name, column in arrays.items() if len(column)}
        if columns.weights is not None:
            full["weights"] = columns.weights.to_pylist()
        return orjson.dumps({"keys": kind, **full, **conflict})
    if columns.weights is not None:
        arrays["weights"] = columns.weights
    lists = [
        pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
        for column in arrays.values()
    ]
    row = pa.record_batch(lists, names=list(arrays)).replace_schema_metadata(conflict or None)
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
    names = table.column_names
    if names[:5] != list(KEY_COLUMNS) or names[5:] not in ([], ["weights"]) or table.num_rows != 1:
        expected = f"one row of {', '.join(KEY_COLUMNS)} and, optionally, weights"
        raise FormatError("payload", None, f"expected {expected}")
    keys = (combined(column).flatten() for column in table.columns[:5])
    weights = None
    if names[5:]:
        flat = pa.chunked_array([combined(table["weights"]).flatten()])
        weights = weight_column(flat, "payload.weights")
    given = (table.schema.metadata or {}).get(b"on_conflict", b"replace").decode()
    return _with_weights(EdgeColumns(*keys), weights, given)


def _decode_small(payload: bytes) -> EdgeColumns:
    document = parse_json(payload, "payload", None)
    kind = document.pop("keys", None)
    columns = [document.pop(name, []) for name in KEY_COLUMNS]
    weights, conflict = document.pop("weights", None), document.pop("on_conflict", "replace")
    lists = columns if weights is None else [*columns, weights]
    if (
        not isinstance(kind, str)
        or kind not in ARROW_TYPES
        or document
        or not all(isinstance(column, list) for column in lists)
    ):
        raise FormatError("payload", None, f"expected keys and {', '.join(KEY_COLUMNS)}")
    return _with_weights(
        EdgeColumns(*(key_column(column, kind, "payload") for column in columns)),
        None if weights is None else weights_of(weights, "payload.weights"),
        conflict,
    )


def _with_weights(columns: EdgeColumns, weights: pa.Array | None, on_conflict: Any) -> EdgeColumns:
    """Raises FormatError for another number of weights than of insertions."""
    expected = len(columns.insert_sources)
    if weights is not None and len(weights) != expected:
        raise FormatError("payload", None, f"expected {expected} weights, got {len(weights)}")
    if on_conflict not in get_args(OnConflict):
        message = f"expected on_conflict replace or add, got {on_conflict!r}"
        raise FormatError("payload", None, message)
    return replace(columns, weights=weights, on_conflict=on_conflict)
