"""The file of a graph's watched queries.

GRAPH/watched.json  {"format": 2, "watched": {name: {"seeds": [[key, weight], …], "k", "method",
                    "target_error", "unknown", "damping", "among", "zeros"}}}

"zeros" is missing where it is false. In format 1, the three before it are missing too.

It holds queries without results: after a restart each is solved again. It is replaced atomically
(written to a temporary file, fsynced, renamed).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from liverank.choices import Unknown
from liverank.options import MAX_K
from liverank_gpu import METHODS
from liverank_service.errors import FileDamaged
from liverank_service.formats.seeds import SeedColumns
from liverank_service.queries.model import WatchedQuery
from liverank_service.storage.files import replace_file
from liverank_service.storage.json_file import read_validated
from liverank_service.vertex_keys import KeyKind

FILE = "watched.json"
FORMAT = 2
_FORMATS = (1, FORMAT)


StoredKey = Annotated[str, Field(min_length=1)] | Annotated[int, Field(ge=-(2**63), lt=2**63)]


def _not_all_zero(seeds: list[tuple[str | int, float]]) -> list[tuple[str | int, float]]:
    if not any(weight for _, weight in seeds):
        raise ValueError("all weights are 0")
    return seeds


StoredSeeds = Annotated[
    list[tuple[StoredKey, Annotated[float, Field(ge=0.0, allow_inf_nan=False)]]],
    Field(min_length=1),
    AfterValidator(_not_all_zero),
]


class _StoredQuery(BaseModel):
    """A query in the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    seeds: StoredSeeds
    k: int = Field(ge=1, le=MAX_K)
    method: Literal[METHODS]  # type: ignore[valid-type]
    target_error: Annotated[float, Field(gt=0.0, le=2.0)] | None

    unknown: Unknown = "error"
    damping: Annotated[float, Field(gt=0.0, lt=1.0)] | None = None
    among: str | Annotated[list[StoredKey], Field(min_length=1)] | None = None
    zeros: bool = False

    @property
    def query(self) -> WatchedQuery:
        return WatchedQuery(seeds=seeds_of(self.seeds), **self.model_dump(exclude={"seeds"}))


class _StoredQueries(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    watched: dict[str, _StoredQuery]


def read_watched(path: Path, kind: KeyKind | None = None) -> dict[str, WatchedQuery]:
    """The watched queries in the file, by name; none if it is missing.

    kind  of the graph's keys; None: either

    Raises FileDamaged, which names the first wrong field, and StorageFailed if the file cannot be
    read or has another format.
    """
    stored = read_validated(_StoredQueries, _FORMATS, path, "a file of watched queries")
    if stored is None:
        return {}
    for name, one in stored.watched.items():
        keys = [(f"seeds[{index}][0]", key) for index, (key, _) in enumerate(one.seeds)]
        if isinstance(one.among, list):
            keys += [(f"among[{index}]", key) for index, key in enumerate(one.among)]
        check_kind(path, kind, f"watched.{name}.", keys)
    return {name: one.query for name, one in stored.watched.items()}


def check_kind(
    path: Path, kind: KeyKind | None, query: str, keys: Iterable[tuple[str, StoredKey]]
) -> None:
    """Raises FileDamaged if a key of a query is not of the kind of the graph's keys.

    query  its place in the file; keys: each with its place in the query
    """
    for place, key in keys:
        if kind is not None and isinstance(key, int) != (kind == "integer"):
            raise FileDamaged(path, f"{query}{place}: {key!r} is not a {kind} key")


def seeds_of(stored: Iterable[tuple[StoredKey, float]]) -> SeedColumns:
    """Seeds as in the file; the weights of repeats add up."""
    seeds: dict[str, float] = {}
    for key, weight in stored:
        seeds[str(key)] = seeds.get(str(key), 0.0) + weight
    return SeedColumns.of(seeds)


def stored_seeds(seeds: SeedColumns, kind: KeyKind, field: str) -> list[tuple[StoredKey, float]]:
    """Seeds for the file. field: that they are of, for errors"""
    keys = seeds.checked(kind, field).keys.to_pylist()
    return list(zip(keys, seeds.weights.tolist(), strict=True))


def write_watched(path: Path, queries: Mapping[str, WatchedQuery], kind: KeyKind) -> None:
    """Replaces the file. kind: of the graph's keys. Raises StorageFailed; it is then unchanged."""
    watched = {
        name: {
            "seeds": stored_seeds(query.seeds, kind, "seeds"),
            **query.model_dump(exclude={"seeds", "zeros"}),
            # releases that did not have it know no such member
            **({"zeros": True} if query.zeros else {}),
        }
        for name, query in queries.items()
    }
    replace_file(path, json.dumps({"format": FORMAT, "watched": watched}).encode())
