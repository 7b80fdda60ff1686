"""The views of one graph: ranks of all vertices for teleport distributions of their own, which
follow every batch. They are kept as watched queries are (liverank_service.queries.watched).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Annotated, Any

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

from liverank.choices import Unknown, ViewKind
from liverank.options import ViewOptions
from liverank_gpu import Engine, Ranks, ViewQuery
from liverank_gpu import UnknownVertex as UnknownId
from liverank_service.errors import ServiceError, UnknownSet, UnknownVertex, UnknownView
from liverank_service.formats.seeds import SeedColumns
from liverank_service.queries.model import (
    Chosen,
    QueryByIds,
    Vertices,
    check_inside,
    chosen_ids,
    seeds_by_ids,
)
from liverank_service.queries.watched import KeptQueries
from liverank_service.tables import member_of

Start = tuple[NDArray[np.float64], float]
"""Ranks of a view by id and their base, to start from: see Engine.put_view."""


class Teleport(BaseModel):
    """Where the walks of a view restart."""

    model_config = ConfigDict(extra="forbid", strict=True)

    set: str | None = Field(
        default=None, description="name of a set: its vertices alike, as batches change it"
    )
    weights: SeedColumns | None = Field(
        default=None,
        description="weight of each vertex, scaled to sum 1; a weight of 0 is ignored",
        json_schema_extra={
            "minProperties": 1,
            "propertyNames": {"minLength": 1},
            "additionalProperties": {"type": "number", "minimum": 0},
        },
    )

    @property
    def kind(self) -> ViewKind:
        if self.weights is not None:
            return "weights"
        return "uniform" if self.set is None else "set"


_EXPECTED = 'expected "uniform", {"set": NAME} or {"weights": {KEY: WEIGHT, …}}'


def _teleport(value: object) -> object:
    if value == "uniform":
        return Teleport()
    is_one = isinstance(value, dict) and list(value) in (["set"], ["weights"])
    if not (is_one or isinstance(value, Teleport)):
        raise PydanticCustomError("teleport", _EXPECTED)
    return value


_member = partial(member_of, ViewOptions)


class ViewRequest(BaseModel):
    """A view: ranks of all vertices for a teleport distribution of its own."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"teleport": {"weights": {"ada": 2.0, "alan": 1.0}}}]},
    )

    teleport: Annotated[Teleport, BeforeValidator(_teleport)] = _member("teleport")
    damping: float | None = _member("damping")
    direction: str = _member("direction")
    target_error: float | None = _member("target_error")
    refresh: str | float = _member("refresh")
    unknown: Unknown = _member("unknown")
    within: Chosen | None = _member("within")

    @property
    def listed_keys(self) -> int:
        """Keys that it lists."""
        return len(self.teleport.weights or ()) + len(self.keys_within)

    @property
    def keys_within(self) -> list[str | int]:
        """Of the vertices that its walks stay within, if it lists them."""
        return self.within if isinstance(self.within, list) else []

    @property
    def nbytes(self) -> int:
        """Bytes of the weights, and about those of the keys of `within`."""
        weights = 0 if self.teleport.weights is None else self.teleport.weights.nbytes
        return weights + 16 * len(self.keys_within)

    def names_others(self, vertices: Vertices, known: ViewQuery) -> bool:
        """Whether a set that it names, or keys of `within`, are other vertices than when it was
        looked up. A set that stayed as it was is the same array.
        """
        try:
            within = chosen_ids(self.within, vertices, self.unknown, "within")
            if self.teleport.set is None:
                seeds = known.seeds
            else:
                seeds = vertices.members(self.teleport.set, "teleport.set")
        except (UnknownVertex, UnknownSet):
            return True
        if within is None or known.within is None:
            return seeds is not known.seeds
        if within is not known.within and not np.array_equal(within, known.within):
            return True
        if seeds is None or known.seeds is None:
            return False
        return seeds is not known.seeds and not np.array_equal(
            np.intersect1d(seeds, within, assume_unique=True), known.seeds
        )

    def by_ids(
        self,
        vertices: Vertices,
        prefix: str = "",  # noqa: ARG002
        seeds_field: str = "seeds",  # noqa: ARG002
    ) -> QueryByIds:
        """The view by ids; it has no ranks where no vertex has a weight.

        Raises UnknownVertex, UnknownSet, InvalidValue and FormatError.
        """
        teleport, weights, ignored = self.teleport, None, list[Any]()
        within = chosen_ids(self.within, vertices, self.unknown, "within")
        if teleport.weights is not None:
            found = seeds_by_ids(teleport.weights, vertices, self.unknown, "teleport.weights")
            seeds, weights, ignored = found
            has_ranks = bool(weights.any())
            if within is not None:
                check_inside(seeds, weights, within, vertices, "teleport.weights")
                given = weights > 0.0
                seeds, weights = seeds[given], weights[given]
        elif teleport.set is None:
            seeds, has_ranks = None, vertices.limit > 0
        else:
            seeds = vertices.members(teleport.set, "teleport.set")
            if within is not None:
                seeds = np.intersect1d(seeds, within, assume_unique=True)
            has_ranks = len(seeds) > 0
        refresh: Any = self.refresh  # the engine checks it
        direction: Any = self.direction  # and this
        view = ViewQuery(
            seeds, weights, self.target_error, self.damping, refresh, direction, within
        )
        has_ranks = has_ranks and (within is None or len(within) > 0)
        return QueryByIds(view, has_ranks, ignored)


@dataclass(frozen=True, slots=True)
class RankView:
    """A view as of one version.

    ranks    None if there are none: `error` says why, or no vertex has a weight
    ignored  keys of its weights that are no vertices
    within   of the keys that it is within, how many are vertices
    number   another one whenever the ranks or their bound are others
    met      when it was last seen to meet its target, by `perf_counter`
    """

    request: ViewRequest
    ranks: Ranks | None
    error: Exception | None = None
    ignored: list[Any] = field(default_factory=list)
    within: int = 0
    number: int = 0
    met: float = 0.0

    @property
    def error_bound(self) -> float | None:
        return None if self.ranks is None else self.ranks.error_bound

    def is_due(self, target_error: float) -> bool:
        """Whether it is to be solved before it is read.

        target_error  of the graph
        """
        refresh, target = self.request.refresh, self.request.target_error or target_error
        if self.ranks is None or self.ranks.error_bound <= target or refresh == "batch":
            return False
        return refresh == "read" or perf_counter() - self.met >= float(refresh)


class RankViews(KeptQueries[ViewRequest, RankView]):
    """The views of one graph.

    seconds  what each took in the last refresh
    """

    seconds: Mapping[str, float] = {}
    _published = 0

    def __init__(
        self,
        engine: Engine,
        vertices: Callable[[], Vertices],
        queries: Mapping[str, ViewRequest],
        starts: Mapping[str, Start],
    ) -> None:
        """Solves every view. vertices: as they are now; starts: see Engine.put_view"""
        self._starts = starts
        super().__init__(engine, vertices, queries)
        self._starts = {}

    def _unknown(self, name: str) -> ServiceError:
        return UnknownView(self._vertices().graph, name, list(self.queries))

    def _put(self, name: str, query: Any) -> None:
        self._engine.put_view(name, query, self._starts.get(name))

    def _forget(self, name: str) -> None:
        self._engine.remove_view(name)

    def _refresh(self) -> None:
        self.seconds = self._engine.refresh_views()

    def bring(self, name: str) -> None:
        """Solves a view if a read has to. Raises UnknownView."""
        if name not in self.queries:
            raise self._unknown(name)
        self._follow(name)
        if name in self._engine.views:
            with suppress(UnknownId, MemoryError):  # which its result has
                self._engine.view(name)
        self.results = {**self.results, name: self._result(name)}

    def _goes_on(self, name: str, found: QueryByIds, vertices: Vertices) -> bool:
        return (
            not self.queries[name].names_others(vertices, found.query)
            and name in self._engine.views
            and not self._engine.view_lost_seeds(name)
        )

    def _result(self, name: str) -> RankView:
        query, found, before = self.queries[name], self._found[name], self.results.get(name)
        if isinstance(found, Exception):
            return RankView(query, None, found)
        within = 0 if found.query.within is None else len(found.query.within)
        if not found.has_ranks:
            return RankView(query, None, ignored=found.ignored, within=within)
        try:
            ranks = self._engine.view(name, solve=False)
        except UnknownId:
            ranks = None
        except MemoryError as error:
            return RankView(query, None, copy(error), within=within)
        if ranks is None:  # here, since an error would have the one above
            self._solve(name)
            return self._result(name)
        if before and before.ranks is ranks and before.request is query:
            return before
        self._published += 1
        now, target = perf_counter(), query.target_error or self._engine.options.target_error
        met = now if ranks.error_bound <= target or before is None else before.met
        return RankView(query, ranks, None, found.ignored, within, self._published, met)
