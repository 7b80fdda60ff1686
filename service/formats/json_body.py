"""Batches in JSON: edges as pairs or, with weights, triples; or by column."""

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
from service.formats.weights import check_unweighted, weights_of
from service.vertex_keys import ARROW_TYPES, KeyKind

_MEMBERS = ("insert", "delete", "vertices")

LARGE_BODY = 1 << 16
"""Bodies of at least this size are parsed by Arrow, which makes no object per key and releases the
interpreter lock; orjson is faster below.
"""


def decode_json(body: bytes, kind: KeyKind, weighted: bool) -> EdgeColumns:
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
    sources, targets, weights = _edges(document.get("insert", []), kind, "insert", True, weighted)
    deleted = _edges(document.get("delete", []), kind, "delete", False, weighted)
    columns = EdgeColumns(
        sources, targets, *deleted[:2], key_column(vertices, kind, "vertices"), weights
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


_Edges = tuple[pa.Array, pa.Array, pa.Array | None]


def _edges(edges: object, kind: KeyKind, field: str, inserted: bool, weighted: bool) -> _Edges:
    """Sources, targets and weights of an array of edges, or of an object of columns."""
    if isinstance(edges, dict):
        return _edges_by_column(edges, kind, field, inserted, weighted)
    if not isinstance(edges, list):
        expected = "an array of pairs [source, target] or an object of source and target"
        raise FormatError(field, None, f"expected {expected}, got {described(edges)}")
    if not edges:
        return EMPTY[kind], EMPTY[kind], None
    size = 2
    if isinstance(edges[0], list) and len(edges[0]) == 3 and inserted:
        check_unweighted(0, field, weighted)
        size = 3
    if set(map(type, edges)) - {list} or set(map(len, edges)) - {size}:
        _check_shape(edges, size, field, inserted, weighted)
    values = list(chain.from_iterable(edges))
    weights = weights_of(values[2::3], field, "weight: ") if size == 3 else None
    keys = list(chain.from_iterable(edge[:2] for edge in edges)) if size == 3 else values
    check_keys(keys, kind, lambda position: (field, position // 2, f"{ENDS[position % 2]}: "))
    both = pa.array(keys[::2] + keys[1::2], ARROW_TYPES[kind])
    return both[: len(edges)], both[len(edges) :], weights


def _check_shape(
    edges: list[object], size: int, field: str, inserted: bool, weighted: bool
) -> None:
    """Raises FormatError for the first edge that does not have `size` items."""
    expected = "a pair [source, target]"
    if size == 3:
        expected = "[source, target, weight], as in the first edge"
    for index, edge in enumerate(edges):
        if isinstance(edge, list) and len(edge) == size:
            continue
        if isinstance(edge, list) and len(edge) == 3 and inserted:
            check_unweighted(index, field, weighted)
            expected = "a pair [source, target], as in the first edge"
        got = f"{len(edge)} items" if isinstance(edge, list) else described(edge)
        raise FormatError(field, index, f"expected {expected}, got {got}")


def _edges_by_column(
    edges: dict[str, object], kind: KeyKind, field: str, inserted: bool, weighted: bool
) -> _Edges:
    known = (*ENDS, "weight") if inserted and weighted else ENDS
    for name in edges:
        if name == "weight" and inserted:
            check_unweighted(None, f"{field}.weight", weighted)
        if name not in known:
            raise FormatError(f"{field}.{name}", None, f"unknown member; expected {listed(known)}")
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
    return sources, targets, _weights_by_column(edges, field, len(sources))


def _weights_by_column(edges: dict[str, object], field: str, count: int) -> pa.Array | None:
    if "weight" not in edges:
        return None
    field, weights = f"{field}.weight", edges["weight"]
    if not isinstance(weights, list):
        raise FormatError(field, None, f"expected an array of numbers, got {described(weights)}")
    if len(weights) != count:
        message = f"expected {count} weights, as many as keys in source, got {len(weights)}"
        raise FormatError(field, None, message)
    return weights_of(weights, field)
