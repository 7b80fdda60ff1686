"""Batches in JSON: edges as rows, which are pairs or have a weight and a time; as objects; or by
column.

An object with a duplicate member, of which parsers silently keep the last, is refused:
``{"insert": [["a", "b"]], "insert": [["c", "d"]]}`` would lose an edge. RFC 8259 (section 4) leaves
the meaning of such an object open; RFC 7493 (section 2.3) forbids it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from liverank.choices import KeyKind
from liverank_gpu import kernels
from liverank_service.errors import FormatError
from liverank_service.formats.columns import EDGE_COLUMNS, Attributes, EdgeColumns, decode_sets
from liverank_service.formats.values import (
    EMPTY,
    ENDS,
    EXPECTED_KEY,
    at_rows,
    check_keys,
    described,
    is_key,
    key_column,
    listed,
    parse_json,
    refuse_others,
    spread,
    times_of,
    weights_of,
    weights_or_1,
)
from liverank_service.vertex_keys import ARROW_TYPES

_AS_FIRST = ", as in the first edge"
_SHAPES = {
    2: "a pair [source, target]",
    3: f"[source, target, weight]{_AS_FIRST}",
    4: f"[source, target, weight, time]{_AS_FIRST}",
}

_MEMBERS = ("insert", "delete", "vertices", "remove", "sets", "replace")

LARGE_BODY = 1 << 16
"""From this size on, the interpreter lock is released while a body is parsed."""


def decode_json(
    body: bytes,
    kind: KeyKind,
    attributes: Attributes,
    members: tuple[str, ...] = _MEMBERS,
    required: tuple[str, ...] = (),
) -> EdgeColumns:
    """members: those that the body may have, or must have. Raises FormatError."""
    columns = _pairs(body, kind, members, required)
    if columns is not None:
        return columns
    document = parse_json(body, "body", None)
    if not isinstance(document, dict):
        raise FormatError("body", None, f"expected a JSON object, got {described(document)}")
    for name in document:
        if name not in members:
            raise FormatError(name, None, f"unknown member; expected {listed(members)}")
    for name in required:
        if name not in document:
            raise FormatError(name, None, "expected an array of keys, got nothing")
    vertices, remove = (_listed_keys(document, name, kind) for name in ("vertices", "remove"))
    inserted = _edges(document.get("insert", []), kind, "insert", attributes)
    deleted = _edges(document.get("delete", []), kind, "delete", attributes.of_deletions)
    given, lists = document.get("sets", {}), document.get("replace", {})
    replaced, listed_edges = replacements(lists, kind, attributes)
    for field, edges in (("insert", inserted), ("delete", deleted)):
        refuse_others(edges.sources, replaced, field)
    inserted = joined(inserted, listed_edges)
    columns = EdgeColumns(
        *inserted[:2],
        *deleted[:2],
        vertices,
        inserted.weights,
        sets=decode_sets(given, kind),
        times=inserted.times,
        remove=remove,
        replace=replaced,
        delete_weights=deleted.weights,
        delete_times=deleted.times,
    )
    objects = [document, *(edges for edges in document.values() if isinstance(edges, dict))]
    objects += given.values()
    for name in ("insert", "delete"):
        if isinstance(rows := document.get(name), list) and rows and isinstance(rows[0], dict):
            objects += rows
    if may_have_more_members(body, sum(map(len, objects))):
        name = duplicate_member(body)
        if name is not None:
            raise FormatError(name, None, "duplicate member")
    return columns


_COLUMNS = (*EDGE_COLUMNS, "remove")
_OF_PAIRS = ("insert", "delete", "vertices", "remove")
"""The columns, and the members, that the kernels read, in their order."""


def _pairs(
    body: bytes, kind: KeyKind, members: tuple[str, ...], required: tuple[str, ...]
) -> EdgeColumns | None:
    """The batch, if it is of pairs and lists of keys, in one pass to count and one to write, and
    valid; None if orjson has to decide.
    """
    if len(body) >= 1 << 31:  # the limit of a column
        return None
    is_small, width = len(body) < LARGE_BODY, 8 if kind == "integer" else 0
    counts, sizes = np.empty((2, len(_COLUMNS)), np.int64)
    count = kernels.count_few_pairs if is_small else kernels.count_pairs
    seen = count(body, width, counts, sizes)
    given = {name for place, name in enumerate(_OF_PAIRS) if seen >> place & 1}
    if seen < 0 or not set(required) <= given <= set(members):
        return None
    rows, lengths = counts.tolist(), sizes.tolist()
    offsets = np.empty(0 if width else sum(rows) + len(rows), np.int32)
    texts = np.empty(sum(lengths), np.uint8)
    write = kernels.write_few_pairs if is_small else kernels.write_pairs
    write(body, width, counts, sizes, offsets, texts)
    columns, first, text = dict.fromkeys((*_COLUMNS, "replace"), EMPTY[kind]), 0, 0
    for name, size, length in zip(_COLUMNS, rows, lengths, strict=True):
        if size:
            ends = [] if width else [pa.py_buffer(offsets[first : first + size + 1])]
            buffers = [None, *ends, pa.py_buffer(texts[text : text + length])]
            columns[name] = pa.Array.from_buffers(ARROW_TYPES[kind], size, buffers, 0)
        first, text = first + size + 1, text + length
    return EdgeColumns(**columns)


def _listed_keys(document: dict[str, object], name: str, kind: KeyKind) -> pa.Array:
    keys = document.get(name, [])
    if not isinstance(keys, list):
        raise FormatError(name, None, f"expected an array of keys, got {described(keys)}")
    return key_column(keys, kind, name)


class Edges(NamedTuple):
    sources: pa.Array
    targets: pa.Array
    weights: pa.Array | None = None
    times: pa.Array | None = None


def joined(first: Edges, second: Edges) -> Edges:
    """The edges of both. Raises FormatError if only some of them have times."""
    if not len(first.sources) or not len(second.sources):
        return first if len(first.sources) else second
    if (first.times is None) != (second.times is None):
        raise FormatError("replace", None, "give every edge to insert or replace a time, or none")
    weights = None
    if first.weights is not None or second.weights is not None:
        given = (weights_or_1(edges.weights, len(edges.sources)) for edges in (first, second))
        weights = pa.concat_arrays(given)
    times = None if first.times is None else pa.concat_arrays([first.times, second.times])
    sources, targets = (pa.concat_arrays(ends) for ends in zip(first[:2], second[:2], strict=True))
    return Edges(sources, targets, weights, times)


_TARGETS = {
    1: "a key",
    2: f"[target, weight]{_AS_FIRST}",
    3: f"[target, weight, time]{_AS_FIRST}",
}


def replacements(lists: object, kind: KeyKind, attributes: Attributes) -> tuple[pa.Array, Edges]:
    """The vertices whose lists are replaced, and the edges of the new lists: of an object of
    vertices and arrays of targets, [target, weight] or [target, weight, time]. Raises FormatError.
    """
    if not isinstance(lists, dict):
        expected = "an object of vertices and arrays of targets"
        raise FormatError("replace", None, f"expected {expected}, got {described(lists)}")
    names = [_key_of(name, kind) for name in lists]
    replaced = key_column(names, kind, "replace")
    for name, targets in lists.items():
        if not isinstance(targets, list):
            message = f"expected an array of targets, got {described(targets)}"
            raise FormatError(f"replace.{name}", None, message)
    rows = list(chain.from_iterable(lists.values()))
    if not rows:
        return replaced, Edges(EMPTY[kind], EMPTY[kind])
    size = len(rows[0]) if isinstance(rows[0], list) and len(rows[0]) in (2, 3) else 1
    places = [(name, at) for name, targets in lists.items() for at in range(len(targets))]
    for (name, at), row in zip(places, rows, strict=True):
        if (len(row) if isinstance(row, list) else 1) != size or row == []:
            if isinstance(row, list) and len(row) in (2, 3):
                attributes.check("weight" if len(row) == 2 else "time", f"replace.{name}", at)
            message = f"expected {_TARGETS[size]}, got {described(row)}"
            raise FormatError(f"replace.{name}", at, message)
    if size > 1:
        name, at = places[0]
        attributes.check("weight" if size == 2 else "time", f"replace.{name}", at)
    try:
        found = _edges(
            [
                [source, *(target if size > 1 else (target,))]
                for source, targets in zip(names, lists.values(), strict=True)
                for target in targets
            ],
            kind,
            "replace",
            attributes if size > 1 else None,
        )
    except FormatError as error:  # of a row, counted over all lists
        if error.index is None:
            raise
        name, at = places[error.index]
        raise FormatError(f"replace.{name}", at, error.message) from None
    return replaced, found


def _key_of(name: str, kind: KeyKind) -> str | int:
    """The key that a name of a member is; names are strings. Raises FormatError."""
    if kind == "string":
        return name
    try:
        if str(key := int(name)) == name and is_key(key, kind):
            return key
    except ValueError:
        pass
    message = f"expected {EXPECTED_KEY[kind]}, got {described(name)}"
    raise FormatError(f"replace.{name}", None, message)


def _edges(edges: object, kind: KeyKind, field: str, attributes: Attributes | None) -> Edges:
    """An array of edges, or an object of columns. attributes: None if they have none."""
    if isinstance(edges, dict):
        return _edges_by_column(edges, kind, field, attributes)
    if not isinstance(edges, list):
        expected = "an array of pairs [source, target] or an object of source and target"
        raise FormatError(field, None, f"expected {expected}, got {described(edges)}")
    if not edges:
        return Edges(EMPTY[kind], EMPTY[kind])
    if isinstance(edges[0], dict):
        return _edges_by_object(edges, kind, field, attributes)
    size = 2
    if (last := _last_attribute(edges[0])) is not None and attributes is not None:
        attributes.check(last, field, 0)
        size = len(edges[0])
    if set(map(type, edges)) - {list} or set(map(len, edges)) - {size}:
        _check_shape(edges, size, field, attributes)
    values = list(chain.from_iterable(edges))
    keys = values if size == 2 else list(chain.from_iterable(edge[:2] for edge in edges))
    check_keys(keys, kind, lambda position: (field, position // 2, f"{ENDS[position % 2]}: "))
    both = pa.array(keys[::2] + keys[1::2], ARROW_TYPES[kind])
    rows = Edges(both[: len(edges)], both[len(edges) :])
    if size == 2 or attributes is None:
        return rows
    weights, given = None, values[2::size]
    if attributes.deletions:
        fields = {"weight": (field, "weight: "), "time": (field, "time: ")}
        times = values[3::4] if size == 4 else None
        return rows._replace(**_taken(given, times, fields, attributes))
    if size == 3 or any(weight is not None for weight in given):
        attributes.check("weight", field, 0)
        weights = weights_of(given, field, "weight: ")
    times = times_of(values[3::4], field, attributes.times, "time: ") if size == 4 else None
    return rows._replace(weights=weights, times=times)


def _taken(
    weights: list[Any] | None,
    times: list[Any] | None,
    fields: dict[str, tuple[str, str]],
    attributes: Attributes,
) -> dict[str, pa.Array]:
    """What deletions take away, null for those of a whole edge, and the times of these weights.

    fields  of each of the two, in messages, and the prefix of these
    Raises FormatError.
    """
    given = np.array([weight is not None for weight in weights or ()], np.bool_)
    for index, time in enumerate(times or ()):
        if time is not None and not (weights and given[index]):
            name, prefix = fields["time"]
            expected = "expected null, because only deletions with a weight have one"
            raise FormatError(name, index, f"{prefix}{expected}, got {described(time)}")
    rows, taken = np.flatnonzero(given), {}
    readers: dict[str, Callable[..., pa.Array]] = {
        "weight": weights_of,
        "time": partial(times_of, rule=attributes.times),
    }
    for name, values in (("weight", weights), ("time", times)):
        if values is None or all(value is None for value in values):
            continue
        field, prefix = fields[name]
        read = partial(readers[name], [values[row] for row in rows], field, prefix=prefix)
        taken[f"{name}s"] = spread(at_rows(rows, read), given)
    return taken


def _last_attribute(edge: object) -> str | None:
    """What a row has at its end: a weight, a time or neither."""
    if not isinstance(edge, list):
        return None
    if len(edge) == 4 and not isinstance(edge[3], str):  # a row with a third key is no edge
        return "time"
    return "weight" if len(edge) == 3 else None


def _check_shape(edges: list[object], size: int, field: str, attributes: Attributes | None) -> None:
    """Raises FormatError for the first edge that does not have `size` items."""
    expected = _SHAPES[size]
    for index, edge in enumerate(edges):
        if isinstance(edge, list) and len(edge) == size:
            continue
        if (last := _last_attribute(edge)) is not None and attributes is not None:
            attributes.check(last, field, index)
            expected = expected.removesuffix(_AS_FIRST) + _AS_FIRST
        got = described(edge)
        if isinstance(edge, list):
            got = f"{len(edge)} item{'s' if len(edge) != 1 else ''}"
        raise FormatError(field, index, f"expected {expected}, got {got}")


def _edges_by_object(
    edges: list[Any], kind: KeyKind, field: str, attributes: Attributes | None
) -> Edges:
    """All with the members of the first; a weight or time that is null in all is as if left out.
    Errors name the edge, then the member.
    """
    names = edges[0].keys()
    for end in ENDS:
        if end not in names:
            message = f"{end}: expected {EXPECTED_KEY[kind]}, got nothing"
            raise FormatError(field, 0, message)
    for index, edge in enumerate(edges):
        if not isinstance(edge, dict) or edge.keys() != names:
            got = described(edge)
            if isinstance(edge, dict):
                got += f" of {listed(list(edge))}"
            message = f"expected an object of {listed(list(names))}{_AS_FIRST}, got {got}"
            raise FormatError(field, index, message)
    columns: dict[str, Any] = {name: [edge[name] for edge in edges] for name in names}
    for name in {"weight", "time"} & names:
        if all(value is None for value in columns[name]):
            del columns[name]
    try:
        return _edges_by_column(columns, kind, field, attributes)
    except FormatError as error:
        name = error.field.removeprefix(f"{field}.")
        raise FormatError(field, error.index or 0, f"{name}: {error.message}") from None


def _edges_by_column(
    edges: dict[str, object], kind: KeyKind, field: str, attributes: Attributes | None
) -> Edges:
    known = ENDS if attributes is None else (*ENDS, *attributes.names)
    for name in edges:
        if attributes is not None:
            attributes.check(name, f"{field}.{name}")
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
    weights = times = None
    if attributes is not None and attributes.deletions:
        given, ages = (
            _numbers(edges, name, field, len(sources)) if name in edges else None
            for name in ("weight", "time")
        )
        fields = {name: (f"{field}.{name}", "") for name in ("weight", "time")}
        return Edges(sources, targets, **_taken(given, ages, fields, attributes))
    if "weight" in edges:
        weights = weights_of(_numbers(edges, "weight", field, len(sources)), f"{field}.weight")
    if "time" in edges and attributes is not None:
        given = _numbers(edges, "time", field, len(sources))
        times = times_of(given, f"{field}.time", attributes.times)
    return Edges(sources, targets, weights, times)


def _numbers(edges: dict[str, object], name: str, field: str, count: int) -> list[Any]:
    """The member, an array of as many items as edges. Raises FormatError."""
    field, numbers = f"{field}.{name}", edges[name]
    if not isinstance(numbers, list):
        raise FormatError(field, None, f"expected an array of numbers, got {described(numbers)}")
    if len(numbers) != count:
        message = f"expected {count} {name}s, as many as keys in source, got {len(numbers)}"
        raise FormatError(field, None, message)
    return numbers


# In valid JSON a quote inside a string has a backslash before it, and only the name of a member has
# a colon after it. (A name that ends in a backslash is missed; no known member does.)
_END_OF_NAME = re.compile(rb'(?<!\\)"\s*:')

_PIECE_BYTES = 1 << 20


class _Duplicate(Exception):
    pass


def duplicate_member(document: bytes) -> str | None:
    """The first duplicate name in any object of a valid JSON document, or None.

    Makes an object for every pair: not for large documents.
    """
    try:
        json.loads(document, object_pairs_hook=_refuse_duplicates)
    except _Duplicate as found:
        return str(found)
    return None


def has_members(document: bytes, count: int) -> bool:
    """Whether a valid JSON document, of which `count` members were parsed, has no others, and so no
    duplicate. In a few passes over its bytes; False if it would take more to tell.
    """
    codes = np.frombuffer(document, np.uint8)
    after_quotes = codes[1:][codes[:-1] == ord('"')]
    if (after_quotes <= ord(" ")).any():
        return False  # there may be space between the name of a member and its colon
    return int(np.count_nonzero(after_quotes == ord(":"))) == count


def values_in(document: bytes, enough: int) -> int:
    """About how many members and items the objects and lists of a JSON document have, valid or not:
    its commas. Those in texts count too unless there are more than `enough`. Needs no memory.
    """
    count = document.count(b",")
    if count <= enough:
        return count
    plain = document.replace(b"\\\\", b"").replace(b'\\"', b"")  # each quote begins or ends a text
    count, in_text = 0, np.uint8(0)
    for first in range(0, len(plain), _PIECE_BYTES):
        codes = np.frombuffer(plain, np.uint8)[first : first + _PIECE_BYTES]
        quotes = (codes == ord('"')).view(np.uint8)
        in_texts = np.bitwise_xor.accumulate(quotes) ^ in_text
        count += int(np.count_nonzero((codes == ord(",")) & (in_texts == 0)))
        in_text = in_texts[-1]
    return count


def may_have_more_members(document: bytes, count: int) -> bool:
    """Whether a valid JSON document, of which `count` members were parsed, may have others."""
    # most have no other colons, and counting bytes is a hundred times as fast
    if document.count(b":") <= count:
        return False
    return sum(1 for _ in _END_OF_NAME.finditer(document)) > count


def _refuse_duplicates(pairs: list[tuple[str, Any]]) -> None:
    seen = set()
    for name, _ in pairs:
        if name in seen:
            raise _Duplicate(name)
        seen.add(name)
