"""Batches as the journal stores them.

The columns of EDGE_COLUMNS are always there, others only if the batch has them: `remove`,
`replace`, `weights`, `times`, `delete_weights`, `delete_times` and, as JSON, `on_conflict`, `sets`,
`expiry` (true) and `range`.

    a payload that begins with ``{`` is JSON: `keys` (``string`` or ``integer``), and the others as
    members, of which absent columns are empty; else it is an Arrow IPC stream of one row, a list in
    each column, with the JSON of the others in the metadata of its schema
    keys      string, or integers: uint32 if all of a column fit, else int64
    numbers   weights float32, times float64, those of deletions with nulls: see
              liverank_service.formats.columns
    sets      {name: {"add": [key, …], "remove": [key, …], "whole": null, "replace" or "drop"}}
    range     [source, partition, from or null, to]
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, get_args

import numpy as np
import orjson
import pyarrow as pa

from liverank.choices import narrowed
from liverank_gpu import OnConflict
from liverank_service.errors import FormatError
from liverank_service.formats.arrow import arrow_table
from liverank_service.formats.columns import (
    EDGE_COLUMNS,
    KEY_COLUMNS,
    EdgeColumns,
    set_documents,
    stored_range,
    stored_sets,
)
from liverank_service.formats.tables import combined
from liverank_service.formats.values import (
    key_column,
    listed,
    parse_json,
    spread,
    times_of,
    weights_of,
)
from liverank_service.vertex_keys import ARROW_TYPES, kind_of

_OF_DELETIONS = ("delete_weights", "delete_times")
_NUMBERS = ("weights", "times", *_OF_DELETIONS)
_FURTHER = ("remove", "replace", *_NUMBERS)
_OTHERS = ("on_conflict", "sets", "expiry", "range")

_SMALL_BATCH = 64
"""Maximum number of keys of a batch that is stored as JSON."""

_END_OF_STREAM = bytes.fromhex("ffffffff 00000000")
"""Of Arrow: a message of no bytes."""


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
    if columns.expiry:
        others["expiry"] = True
    if columns.range is not None:
        others["range"] = columns.range.document()
    is_small = sum(map(len, arrays.values())) <= _SMALL_BATCH
    arrays = {
        name: array
        for name, array in arrays.items()
        if len(array) or (name in EDGE_COLUMNS and not is_small)
    }
    for name in _NUMBERS:
        if (column := getattr(columns, name)) is not None:
            arrays[name] = column
    if is_small:
        lists = {name: array.to_pylist() for name, array in arrays.items()}
        return orjson.dumps({"keys": kind_of(columns.vertices), **lists, **others})
    rows = []
    for column in map(narrowed, arrays.values()):
        ends = pa.py_buffer(np.array([0, len(column)], np.int32))
        rows.append(pa.Array.from_buffers(pa.list_(column.type), 1, [None, ends], 0, 0, [column]))
    metadata = {name: orjson.dumps(value) for name, value in others.items()}
    row = pa.record_batch(rows, names=list(arrays)).replace_schema_metadata(metadata or None)
    return b"".join((row.schema.serialize(), row.serialize(), _END_OF_STREAM))


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
    for name, column in keys.items():
        if column.type == pa.uint32():
            keys[name] = column.cast(pa.int64())
    flat = {
        name: pa.chunked_array([combined(table[name]).flatten()])
        for name in further
        if name not in KEY_COLUMNS
    }
    others = {
        name.decode(): parse_json(value, "payload", None)
        for name, value in (table.schema.metadata or {}).items()
    }
    return _with_others(
        EdgeColumns(**keys),
        {name: _numbers_of(name, column) for name, column in flat.items()},
        others,
    )


def _decode_small(payload: bytes) -> EdgeColumns:
    document = parse_json(payload, "payload", None)
    kind = document.pop("keys", None)
    columns = {name: document.pop(name, []) for name in KEY_COLUMNS}
    numbers = {name: document.pop(name) for name in _NUMBERS if name in document}
    others = {name: document.pop(name) for name in _OTHERS if name in document}
    lists = [*columns.values(), *numbers.values()]
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
        {name: _numbers_of(name, values) for name, values in numbers.items()},
        others,
    )


def _numbers_of(name: str, values: list[Any] | pa.ChunkedArray) -> pa.Array:
    """A column of weights or times, of deletions with nulls. Raises FormatError."""
    read: Callable[..., pa.Array] = weights_of
    if name.endswith("times"):
        read = partial(times_of, rule=None)
    if name not in _OF_DELETIONS:
        return read(values, f"payload.{name}")
    if isinstance(values, list):
        given = np.array([value is not None for value in values], np.bool_)
        some = [value for value in values if value is not None]
    else:
        given, some = values.is_valid().to_numpy(), values.drop_null()
    return spread(read(some, f"payload.{name}"), given)


def _with_others(
    columns: EdgeColumns,
    numbers: dict[str, pa.Array],
    others: dict[str, Any],
) -> EdgeColumns:
    """Raises FormatError, also for another number of weights or times than of edges."""
    for name, column in numbers.items():
        expected = len(columns.delete_sources if name in _OF_DELETIONS else columns.insert_sources)
        if len(column) != expected:
            raise FormatError("payload", None, f"expected {expected} {name}, got {len(column)}")
    if set(others) - set(_OTHERS):
        raise FormatError(
            "payload", None, f"expected {listed(_OTHERS)}, got {listed(list(others))}"
        )
    on_conflict = others.get("on_conflict", "replace")
    if on_conflict not in get_args(OnConflict):
        message = f"expected on_conflict replace or add, got {on_conflict!r}"
        raise FormatError("payload", None, message)
    expiry = others.get("expiry", False)
    if not isinstance(expiry, bool):
        raise FormatError("payload", None, f"expected expiry true or false, got {expiry!r}")
    try:
        sets = stored_sets(others.get("sets", {}), kind_of(columns.vertices))
    except FormatError as error:
        raise FormatError("payload", None, str(error)) from error
    return replace(
        columns,
        **numbers,
        on_conflict=on_conflict,
        sets=sets,
        expiry=expiry,
        range=stored_range(others["range"]) if "range" in others else None,
    )
