"""The file of a graph's watched queries.

GRAPH/watched.json  {"format": 1, "watched": {name: {"seeds": [[key, weight], …], "k", "method",
                    "target_error"}}}

It holds queries without results: after a restart each is solved again. It is replaced atomically
(written to a temporary file, fsynced, renamed).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from service.errors import StorageFailed
from service.queries.model import WatchedQuery
from service.storage.files import replace_file, storage_errors
from service.vertex_keys import KeyKind, key_from_text

FILE = "watched.json"
FORMAT = 1


def read_watched(path: Path) -> dict[str, WatchedQuery]:
    """The watched queries in the file, by name; none if it is missing. Raises StorageFailed."""
    if not path.exists():
        return {}
    try:
        with storage_errors(path):
            document = json.loads(path.read_text("utf-8"))
        if document["format"] != FORMAT:
            raise StorageFailed(path, f"has format {document['format']}, expected {FORMAT}")
        return {name: _query_of(stored) for name, stored in document["watched"].items()}
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise StorageFailed(path, f"is not a file of watched queries: {error!r}") from error


def _query_of(stored: dict[str, Any]) -> WatchedQuery:
    seeds: dict[str, float] = {}
    for key, weight in stored["seeds"]:
        seeds[str(key)] = seeds.get(str(key), 0.0) + float(weight)
    return WatchedQuery(
        seeds=seeds,
        k=stored["k"],
        method=stored["method"],
        target_error=stored["target_error"],
    )


def write_watched(path: Path, queries: Mapping[str, WatchedQuery], kind: KeyKind) -> None:
    """Replaces the file. kind: of the graph's keys. Raises StorageFailed; it is then unchanged."""
    watched = {
        name: {
            "seeds": [[key_from_text(seed, kind), weight] for seed, weight in query.seeds.items()],
            "k": query.k,
            "method": query.method,
            "target_error": query.target_error,
        }
        for name, query in queries.items()
    }
    replace_file(path, json.dumps({"format": FORMAT, "watched": watched}).encode())
