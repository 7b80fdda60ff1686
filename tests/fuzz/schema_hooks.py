"""Hooks for schemathesis: existing data for its requests, and short timeouts."""

from __future__ import annotations

import zlib
from typing import Any

import schemathesis

GRAPHS = ("texts", "numbers")
"""Graphs that tests.fuzz.schema fills; nothing drops them."""

VERTICES = ("0", "1", "2")
"""Vertices of both graphs."""

WATCHED = "watched"

LONGEST_WAIT = 0.05
"""Timeout in seconds: far-future versions are requested."""


def _is_chosen(value: object) -> bool:
    """Whether a value is replaced by an existing one: half of them, the same ones in every run."""
    return zlib.crc32(repr(value).encode()) % 2 == 0


def map_path_parameters(context: Any, path_parameters: dict[str, Any]) -> dict[str, Any]:
    if path_parameters and context.operation.label != "DELETE /graphs/{graph}":
        there = {"vertex": VERTICES, "version": ("1", "2"), "name": (WATCHED,), "graph": GRAPHS}
        for name, values in there.items():
            given = path_parameters.get(name)
            if given is not None and _is_chosen(given):
                path_parameters[name] = values[zlib.crc32(str(given).encode()) % len(values)]
    return path_parameters


def map_query(_context: Any, query: dict[str, Any]) -> dict[str, Any]:
    if query and not query.keys().isdisjoint(("min_version", "min_position", "timeout")):
        given = query.get("timeout", 1.0)
        if isinstance(given, int | float) and LONGEST_WAIT < given <= 300:
            query["timeout"] = LONGEST_WAIT
    return query


def map_body(context: Any, body: Any) -> Any:
    if isinstance(body, dict) and _is_chosen(body):
        for query in (body, *_objects(body.get("queries"))):
            if isinstance(seeds := query.get("seeds"), dict) and len(seeds) <= len(VERTICES):
                query["seeds"] = dict(zip(VERTICES, seeds.values(), strict=False))
        if context.operation.label.endswith(("/batches", "/ranks")):
            return {name: _as_texts(value) for name, value in body.items()}
    return body


def _objects(values: Any) -> list[dict[str, Any]]:
    return (
        [value for value in values if isinstance(value, dict)] if isinstance(values, list) else []
    )


def _as_texts(keys: Any) -> Any:
    """Keys of one kind, that of the graph, which the schema cannot express."""
    if isinstance(keys, list):
        return [_as_texts(key) for key in keys]
    # a longer integer is an invalid key in any graph, and must remain one
    return f"k{keys}" if type(keys) is int and -(2**63) <= keys < 2**63 else keys


for mapping in (map_path_parameters, map_query, map_body):
    schemathesis.hook(mapping)
