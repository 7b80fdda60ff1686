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

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from liverank.choices import KeyKind, Mode, Refresh, Unknown, ViewDirection
from liverank.options import MAX_K
from liverank_gpu import METHODS
from liverank_service.errors import FileDamaged
from liverank_service.formats.seeds import SeedColumns
from liverank_service.queries.analyses import LARGEST_COUNT, NO_LIMITS, Analysis, RunLimits
from liverank_service.queries.model import WatchedQuery
from liverank_service.queries.rank_views import Teleport, ViewRequest
from liverank_service.storage.files import RowsFile, Stored

ANALYSES_FILE = "analyses.json"


def _countable(stored: Any) -> Any:
    """A limit, or each of several, of which no count is too large: earlier releases took any."""
    if isinstance(stored, dict):
        return {name: _countable(value) for name, value in stored.items()}
    return min(stored, LARGEST_COUNT) if isinstance(stored, int) else stored


class _StoredAnalysis(Stored):
    """An analysis in the file."""

    program: str
    parameters: dict[str, int | float | str]
    fresh: bool
    created: float
    mode: Mode = "synchronous"
    limits: Annotated[RunLimits, BeforeValidator(_countable)] = NO_LIMITS
    save_every: Annotated[int, BeforeValidator(_countable), Field(ge=0)] | None = None


_ANALYSES = RowsFile("a file of analyses", "analyses", dict[str, _StoredAnalysis], 1)


def read_analyses(path: Path) -> list[Analysis]:
    """The analyses in the file, in the order in which they were requested; none if it is missing.
    Raises as RowsFile.read.
    """
    stored = _ANALYSES.read(path) or {}
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
        for identity, one in stored.items()
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
    _ANALYSES.write(path, stored)


WATCHED_FILE = "watched.json"

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


class _StoredQuery(Stored):
    """A query in the file."""

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


_WATCHED = RowsFile("a file of watched queries", "watched", dict[str, _StoredQuery], 1, 2)


def read_watched(path: Path, kind: KeyKind | None = None) -> dict[str, WatchedQuery]:
    """The watched queries in the file, by name; none if it is missing.

    kind  of the graph's keys; None: either

    Raises as RowsFile.read.
    """
    stored = _WATCHED.read(path) or {}
    for name, one in stored.items():
        keys = [(f"seeds[{index}][0]", key) for index, (key, _) in enumerate(one.seeds)]
        if isinstance(one.among, list):
            keys += [(f"among[{index}]", key) for index, key in enumerate(one.among)]
        check_kind(path, kind, f"watched.{name}.", keys)
    return {name: one.query for name, one in stored.items()}


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
    _WATCHED.write(path, watched)


VIEWS_FILE = "views.json"


class _StoredTeleport(Stored):
    set: str | None = None
    weights: StoredSeeds | None = None

    @model_validator(mode="after")
    def _one(self) -> _StoredTeleport:
        if (self.set is None) == (self.weights is None):
            raise ValueError("has neither a set nor weights, or both")
        return self


class _StoredView(Stored):
    """A view in the file."""

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


_VIEWS = RowsFile("a file of views", "views", dict[str, _StoredView], 1)


def read_views(path: Path, kind: KeyKind | None = None) -> dict[str, ViewRequest]:
    """The views in the file, by name; none if it is missing.

    kind  of the graph's keys; None: either

    Raises as RowsFile.read.
    """
    stored = _VIEWS.read(path) or {}
    for name, one in stored.items():
        keys = [(f"[{index}][0]", key) for index, (key, _) in enumerate(one.weights)]
        check_kind(path, kind, f"views.{name}.teleport.weights", keys)
        within = one.within if isinstance(one.within, list) else []
        listed = [(f"[{index}]", key) for index, key in enumerate(within)]
        check_kind(path, kind, f"views.{name}.within", listed)
    return {name: one.request for name, one in stored.items()}


def write_views(path: Path, requests: Mapping[str, ViewRequest], kind: KeyKind) -> None:
    """Replaces the file. kind: of the graph's keys. Raises StorageFailed; it is then unchanged."""
    views = {
        name: {
            "teleport": _stored(request.teleport, kind),
            **request.model_dump(exclude={"teleport"} | _left_out(request)),
        }
        for name, request in requests.items()
    }
    _VIEWS.write(path, views)


def _left_out(request: ViewRequest) -> set[str]:
    left_out = {"direction"} if request.direction == "forward" else set()
    return left_out | ({"within"} if request.within is None else set())


def _stored(teleport: Teleport, kind: KeyKind) -> Any:
    if teleport.weights is None:
        return teleport.kind if teleport.set is None else {"set": teleport.set}
    return {"weights": stored_seeds(teleport.weights, kind, "teleport.weights")}


READERS: dict[str, Callable[[Path], object]] = {
    WATCHED_FILE: read_watched,
    VIEWS_FILE: read_views,
    ANALYSES_FILE: read_analyses,
}
"""By the names of the files."""
