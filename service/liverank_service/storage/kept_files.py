"""The files of what a graph keeps beside its batches: analyses, watched queries and views. Each is
replaced atomically (written to a temporary file, fsynced, renamed).

GRAPH/analyses.json  {"format": 1, "analyses": {id: {"program", "parameters", "fresh", "created",
                     "mode", "limits": {"supersteps", "seconds", "memory"}, "save_every"}}}

"mode" is missing where it is "synchronous", "limits" where there are none, and "save_every" where
it was not said. It holds what was requested, without answers: after a restart an analysis is
interrupted, unless it goes on (liverank_service.storage.saved_runs) or is kept fresh.

GRAPH/watched.json  {"format": 2, "watched": {name: {"seeds": [[key, weight], …], "k", "method",
                    "target_error", "unknown", "damping", "among", "zeros"}}}

"zeros" is missing where it is false. In format 1, the three before it are missing too. It holds
queries without results: after a restart each is solved again.

GRAPH/views.json  {"format": 1, "views": {name: {"teleport": "uniform" | {"set": NAME} |
                  {"weights": [[key, weight], …]}, "damping", "target_error", "refresh",
                  "unknown", "direction", "within": NAME | [key, …]}}}

"direction" is missing where it is "forward", and "within" where it is null. It holds views without
ranks: a checkpoint has those of some (liverank_service.pipeline.checkpointer), and after a restart
the others are solved again. A graph without views has no such file.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, model_validator

from liverank.choices import KeyKind, Mode, Refresh, Unknown, ViewDirection
from liverank.options import MAX_K
from liverank_gpu import METHODS
from liverank_service.errors import FileDamaged
from liverank_service.formats.seeds import SeedColumns
from liverank_service.queries.analyses import NO_LIMITS, Analysis, RunLimits
from liverank_service.queries.model import WatchedQuery
from liverank_service.queries.rank_views import Teleport, ViewRequest
from liverank_service.storage.files import read_validated, replace_file

ANALYSES_FILE = "analyses.json"
_ANALYSES_FORMAT = 1


class _StoredAnalysis(BaseModel):
    """An analysis in the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    program: str
    parameters: dict[str, int | float | str]
    fresh: bool
    created: float
    mode: Mode = "synchronous"
    limits: RunLimits = NO_LIMITS
    save_every: Annotated[int, Field(ge=0)] | None = None


class _StoredAnalyses(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    analyses: dict[str, _StoredAnalysis]


def read_analyses(path: Path) -> list[Analysis]:
    """The analyses in the file, in the order in which they were requested; none if it is missing.

    Raises FileDamaged, which names the first wrong field, and StorageFailed if the file cannot be
    read or has another format.
    """
    stored = read_validated(_StoredAnalyses, (_ANALYSES_FORMAT,), path, "a file of analyses")
    if stored is None:
        return []
    return [
        Analysis(
            identity,
            one.program,
            one.parameters,
            one.fresh,
            one.created,
            "queued" if one.fresh else "interrupted",
            mode=one.mode,
            limits=one.limits,
            save_every=one.save_every,
        )
        for identity, one in stored.analyses.items()
    ]


def write_analyses(path: Path, analyses: Iterable[Analysis]) -> None:
    """Replaces the file. Raises StorageFailed; it is then unchanged."""
    stored = {
        each.id: {
            "program": each.program,
            "parameters": dict(each.parameters),
            "fresh": each.fresh,
            "created": each.created,
            # releases that did not have them know no such members
            **({"mode": each.mode} if each.mode != "synchronous" else {}),
            **({"limits": each.limits.model_dump()} if each.limits != NO_LIMITS else {}),
            **({"save_every": each.save_every} if each.save_every is not None else {}),
        }
        for each in analyses
    }
    replace_file(path, json.dumps({"format": _ANALYSES_FORMAT, "analyses": stored}).encode())


WATCHED_FILE = "watched.json"
_WATCHED_FORMAT = 2
_WATCHED_FORMATS = (1, _WATCHED_FORMAT)


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
    stored = read_validated(_StoredQueries, _WATCHED_FORMATS, path, "a file of watched queries")
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
    replace_file(path, json.dumps({"format": _WATCHED_FORMAT, "watched": watched}).encode())


VIEWS_FILE = "views.json"
_VIEWS_FORMAT = 1


class _StoredTeleport(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)

    set: str | None = None
    weights: StoredSeeds | None = None

    @model_validator(mode="after")
    def _one(self) -> _StoredTeleport:
        if (self.set is None) == (self.weights is None):
            raise ValueError("has neither a set nor weights, or both")
        return self


class _StoredView(BaseModel):
    """A view in the file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    teleport: Literal["uniform"] | _StoredTeleport
    damping: Annotated[float, Field(gt=0.0, lt=1.0)] | None
    target_error: Annotated[float, Field(gt=0.0, le=2.0)] | None
    refresh: Refresh | Annotated[float, Field(gt=0.0, allow_inf_nan=False)]
    unknown: Unknown
    direction: ViewDirection = "forward"
    within: str | Annotated[list[StoredKey], Field(min_length=1)] | None = None

    @property
    def weights(self) -> list[tuple[StoredKey, float]]:
        teleport = self.teleport
        return [] if isinstance(teleport, str) else teleport.weights or []

    @property
    def request(self) -> ViewRequest:
        teleport = Teleport()
        if self.weights:
            teleport = Teleport(weights=seeds_of(self.weights))
        elif not isinstance(self.teleport, str):
            teleport = Teleport(set=self.teleport.set)
        return ViewRequest(teleport=teleport, **self.model_dump(exclude={"teleport"}))


class _StoredViews(BaseModel):
    """The file."""

    model_config = ConfigDict(extra="forbid", strict=True)

    format: int
    views: dict[str, _StoredView]


def read_views(path: Path, kind: KeyKind | None = None) -> dict[str, ViewRequest]:
    """The views in the file, by name; none if it is missing.

    kind  of the graph's keys; None: either

    Raises FileDamaged, which names the first wrong field, and StorageFailed if the file cannot be
    read or has another format.
    """
    stored = read_validated(_StoredViews, (_VIEWS_FORMAT,), path, "a file of views")
    if stored is None:
        return {}
    for name, one in stored.views.items():
        keys = [(f"[{index}][0]", key) for index, (key, _) in enumerate(one.weights)]
        check_kind(path, kind, f"views.{name}.teleport.weights", keys)
        within = one.within if isinstance(one.within, list) else []
        listed = [(f"[{index}]", key) for index, key in enumerate(within)]
        check_kind(path, kind, f"views.{name}.within", listed)
    return {name: one.request for name, one in stored.views.items()}


def write_views(path: Path, requests: Mapping[str, ViewRequest], kind: KeyKind) -> None:
    """Replaces the file. kind: of the graph's keys. Raises StorageFailed; it is then unchanged."""
    views = {
        name: {
            "teleport": _stored(request.teleport, kind),
            **request.model_dump(exclude={"teleport"} | _left_out(request)),
        }
        for name, request in requests.items()
    }
    replace_file(path, json.dumps({"format": _VIEWS_FORMAT, "views": views}).encode())


def _left_out(request: ViewRequest) -> set[str]:
    left_out = {"direction"} if request.direction == "forward" else set()
    return left_out | ({"within"} if request.within is None else set())


def _stored(teleport: Teleport, kind: KeyKind) -> Any:
    if teleport.weights is None:
        return teleport.kind if teleport.set is None else {"set": teleport.set}
    return {"weights": stored_seeds(teleport.weights, kind, "teleport.weights")}
