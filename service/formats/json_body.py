"""Batches in JSON: edges as pairs, or by column."""

from __future__ import annotations

from itertools import chain

import pyarrow as pa
import pyarrow.compute as pc

from service.errors import FormatError
from service.formats.columns import EdgeColumns
from service.formats.duplicate_members import count_members, duplicate_member
from service.formats.tables import combined, first_invalid, json_table
from service.formats.values import (
    EMPTY,
    ENDS,
    OPERATIONS,
    check_keys,
    described,
    key_column,
    listed,
    parse_json,
)
from service.vertex_keys import ARROW_TYPES, KeyKind

_MEMBERS = ("insert", "delete", "vertices")

LARGE_BODY = 1 << 16
"""Bodies of at least this size are parsed by Arrow, which makes no object per key and releases the
interpreter lock; orjson is faster below.
"""


def decode_json(body: bytes, kind: KeyKind) -> EdgeColumns:
    """Raises FormatError."""
    if len(body) >= LARGE_BODY:
        columns = _large_pairs(body, kind)
        if columns is not None:
            return columns
    document = parse_json(body, "body", None)
    if not isinstance(document, dict):
        raise FormatError("body", None, f"expected a JSON object, got {described(document)}")
    for name in document:
        if name not in _MEMBERS:
            raise FormatError(name, None, f"unknown member; expected {listed(_MEMBERS)}")
    vertices = document.get("vertices", [])
    if not isinstance(vertices, list):
        raise FormatError("vertices", None, f"expected an array of keys, got {described(vertices)}")
    columns = EdgeColumns(
        *_edges(document.get("insert", []), kind, "insert"),
        *_edges(document.get("delete", []), kind, "delete"),
        key_column(vertices, kind, "vertices"),
    )
    objects = [document, *(edges for edges in document.values() if isinstance(edges, dict))]
    if count_members(body) > sum(map(len, objects)):
        name = duplicate_member(body)
        if name is not None:
            raise FormatError(name, None, "duplicate member")
    return columns


def _large_pairs(body: bytes, kind: KeyKind) -> EdgeColumns | None:
    """The batch, if it consists of pairs and is valid; None if orjson has to decide."""
    if not body.startswith(b"{") or b"null" in body:  # Arrow reads null as an absent member
        return None
    keys = pa.list_(ARROW_TYPES[kind])
    schema = pa.schema([("insert", pa.list_(keys)), ("delete", pa.list_(keys)), ("vertices", keys)])
    try:
        table = json_table(body, schema, newlines_in_values=True)
    except (pa.ArrowException, UnicodeDecodeError):
        return None
    if table.num_rows != 1:
        return None
    edges = [combined(table[name]).flatten() for name in OPERATIONS]
    if any(pc.any(pc.not_equal(pc.list_value_length(pairs), 2)).as_py() for pairs in edges):
        return None
    insert, delete = (pairs.flatten() for pairs in edges)
    vertices = combined(table["vertices"]).flatten()
    if any(first_invalid(column, kind) is not None for column in (insert, delete, vertices)):
        return None
    return EdgeColumns(*_every_second(insert), *_every_second(delete), vertices)


def _every_second(keys: pa.Array) -> tuple[pa.Array, pa.Array]:
    sources = pa.array([True, False] * (len(keys) // 2), pa.bool_())
    return keys.filter(sources), keys.filter(pc.invert(sources))


def _edges(edges: object, kind: KeyKind, field: str) -> tuple[pa.Array, pa.Array]:
    """Sources and targets from an array of pairs, or from an object of two arrays of keys."""
    if isinstance(edges, dict):
        return _edges_by_column(edges, kind, field)
    if not isinstance(edges, list):
        expected = "an array of pairs [source, target] or an object of source and target"
        raise FormatError(field, None, f"expected {expected}, got {described(edges)}")
    if set(map(type, edges)) - {list} or set(map(len, edges)) - {2}:
        for index, pair in enumerate(edges):
            if not isinstance(pair, list) or len(pair) != 2:
                got = f"{len(pair)} items" if isinstance(pair, list) else described(pair)
                raise FormatError(field, index, f"expected a pair [source, target], got {got}")
    if not edges:
        return EMPTY[kind], EMPTY[kind]
    keys = list(chain.from_iterable(edges))
    check_keys(keys, kind, lambda position: (field, position // 2, f"{ENDS[position % 2]}: "))
    both = pa.array(keys[::2] + keys[1::2], ARROW_TYPES[kind])
    return both[: len(edges)], both[len(edges) :]


def _edges_by_column(
    edges: dict[str, object], kind: KeyKind, field: str
) -> tuple[pa.Array, pa.Array]:
    for name in edges:
        if name not in ENDS:
            raise FormatError(f"{field}.{name}", None, f"unknown member; expected {listed(ENDS)}")
    columns = []
    for name in ENDS:
        keys = edges.get(name)
        if not isinstance(keys, list):
            got = described(keys) if name in edges else "nothing"
            raise FormatError(f"{field}.{name}", None, f"expected an array of keys, got {got}")
        columns.append(key_column(keys, kind, f"{field}.{name}"))
    sources, targets = columns
    if len(sources) != len(targets):
        message = f"expected {len(sources)} keys, as in source, got {len(targets)}"
        raise FormatError(f"{field}.target", None, message)
    return sources, targets
