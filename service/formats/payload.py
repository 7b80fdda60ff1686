"""Batches as the journal stores them.

The columns of EDGE_COLUMNS are always there, others only if the batch has them: `remove`, `weights`
and, as JSON, `on_conflict` and `sets`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import orjson
import pyarrow as pa

from gpu import OnConflict
from service.errors import FormatError
from service.formats.arrow import arrow_table
from service.formats.columns import EDGE_COLUMNS, KEY_COLUMNS, EdgeColumns
from service.formats.sets import set_documents, stored_sets
from service.formats.tables import combined
from service.formats.values import key_column, listed, parse_json
from service.formats.weights import weight_column, weights_of
from service.vertex_keys import ARROW_TYPES, KeyKind

_FURTHER = ("remove", "weights")
_OTHERS = ("on_conflict", "sets")

_SMALL_BATCH = 64
"""Maximum number of keys of a batch that is stored as JSON."""


def encode_batch(columns: EdgeColumns) -> bytes:
    """An Arrow IPC stream of one row, with a list per column, and JSON in the schema's metadata. A
    batch of few edges and vertices is JSON alone, of the columns that are not empty, which is
    faster to encode and shorter.
    """
    arrays = columns.keys
    others: dict[str, Any] = {}
    if columns.on_conflict != "replace":
        others["on_conflict"] = columns.on_conflict
    if columns.sets:
        others["sets"] = set_documents(columns.sets)
    is_small = sum(map(len, arrays.values())) <= _SMALL_BATCH
    arrays = {
        name: array
        for name, array in arrays.items()
        if len(array) or (name in EDGE_COLUMNS and not is_small)
    }
    if columns.weights is not None:
        arrays["weights"] = columns.weights
    if is_small:
        kind = "string" if pa.types.is_string(columns.vertices.type) else "integer"
        lists = {name: array.to_pylist() for name, array in arrays.items()}
        return orjson.dumps({"keys": kind, **lists, **others})
    rows = [
        pa.ListArray.from_arrays(pa.array([0, len(column)], pa.int32()), column)
        for column in arrays.values()
    ]
    metadata = {name: orjson.dumps(value) for name, value in others.items()}
    row = pa.record_batch(rows, names=list(arrays)).replace_schema_metadata(metadata or None)
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
    names, count = table.column_names, len(EDGE_COLUMNS)
    further = names[count:]
    if (
        names[:count] != list(EDGE_COLUMNS)
        or set(further) - set(_FURTHER)
        or len(further) > len(set(further))
        or table.num_rows != 1
    ):
        expected = f"one row of {listed(EDGE_COLUMNS)} and, optionally, {listed(_FURTHER)}"
        raise FormatError("payload", None, f"expected {expected}")
    keys = {name: combined(table[name]).flatten() for name in names if name in KEY_COLUMNS}
    weights = None
    if "weights" in further:
        flat = pa.chunked_array([combined(table["weights"]).flatten()])
        weights = weight_column(flat, "payload.weights")
    others = {
        name.decode(): parse_json(value, "payload", None)
        for name, value in (table.schema.metadata or {}).items()
    }
    return _with_others(EdgeColumns(**keys), weights, others)


def _decode_small(payload: bytes) -> EdgeColumns:
    document = parse_json(payload, "payload", None)
    kind = document.pop("keys", None)
    columns = {name: document.pop(name, []) for name in KEY_COLUMNS}
    weights = document.pop("weights", None)
    others = {name: document.pop(name) for name in _OTHERS if name in document}
    lists = [*columns.values(), *([] if weights is None else [weights])]
    if (
        not isinstance(kind, str)
        or kind not in ARROW_TYPES
        or document
        or not all(isinstance(column, list) for column in lists)
    ):
        raise FormatError("payload", None, f"expected keys and {listed(KEY_COLUMNS)}")
    keys = {name: key_column(column, kind, "payload") for name, column in columns.items()}
    return _with_others(
        EdgeColumns(**keys),
        None if weights is None else weights_of(weights, "payload.weights"),
        others,
    )


def _with_others(
    columns: EdgeColumns, weights: pa.Array | None, others: dict[str, Any]
) -> EdgeColumns:
    """Raises FormatError, also for another number of weights than of insertions."""
    expected = len(columns.insert_sources)
    if weights is not None and len(weights) != expected:
        raise FormatError("payload", None, f"expected {expected} weights, got {len(weights)}")
    if set(others) - set(_OTHERS):
        raise FormatError(
            "payload", None, f"expected {listed(_OTHERS)}, got {listed(list(others))}"
        )
    on_conflict = others.get("on_conflict", "replace")
    if on_conflict not in get_args(OnConflict):
        message = f"expected on_conflict replace or add, got {on_conflict!r}"
        raise FormatError("payload", None, message)
    kind: KeyKind = "string" if pa.types.is_string(columns.vertices.type) else "integer"
    try:
        sets = stored_sets(others.get("sets", {}), kind)
    except FormatError as error:
        raise FormatError("payload", None, str(error)) from error
    return replace(columns, weights=weights, on_conflict=on_conflict, sets=sets)
