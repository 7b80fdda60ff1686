"""A query with its defaults filled in, checked against the graph."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, Self, get_args

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.columns import ids_of
from liverank_gpu.errors import InvalidValue, UnknownVertex
from liverank_gpu.graph.vertices import NO_IDS, VertexIds
from liverank_gpu.pagerank.places import ProvenPlaces, SettledTarget
from liverank_gpu.personalized.iterate import Seeds
from liverank_gpu.types import (
    LARGEST_ERROR,
    REMOVED,
    Form,
    Options,
    Personalized,
    PersonalizedQuery,
    Ranking,
    Refresh,
    ViewDirection,
    ViewQuery,
)

Method = Literal["hybrid", "push", "pull"]
METHODS: tuple[Method, ...] = get_args(Method)
"""See liverank_gpu.personalized.query."""

PublishedMethod = Literal["hybrid", "push", "pushopt", "pull"]
PUBLISHED_METHODS: tuple[PublishedMethod, ...] = get_args(PublishedMethod)
"""See liverank_gpu.personalized.published."""

Target = Literal["error", SettledTarget]
TARGETS: tuple[Target, ...] = get_args(Target)
"""When a query ends: its error bound is at most ``target_error``; or what the others ask is proven
of its first k places, at the latest then.
"""

Kind = Literal["watched query", "view"]
"""What a query is that is kept."""

_MOST_NAMED = 10
"""The most seeds outside of `within` that an error names."""


@dataclass(frozen=True, slots=True)
class ResolvedQuery:
    """A personalized query whose seeds are known to the graph; see
    liverank_gpu.types.PersonalizedQuery.

    options  the graph's, with the damping of the query
    among    int64[a], distinct, ascending; None for all vertices
    within   int64[w], distinct, ascending, seeds and `among` among them; None for all vertices
    """

    seeds: Seeds
    k: int
    method: str
    target_error: float
    target: Target
    options: Options
    among: NDArray[np.int64] | None
    form: Form = "accelerated"
    trace: bool = False
    zeros: bool = False
    within: NDArray[np.int64] | None = None

    kind: ClassVar[Kind] = "watched query"
    """What it is, if it is kept."""

    @classmethod
    def of(
        cls,
        ids: VertexIds,
        options: Options,
        query: PersonalizedQuery,
        known: Seeds | None = None,
    ) -> Self:
        """known: seeds of now, for which the same ids may have been given. Raises InvalidValue for
        what cannot be asked of a graph with these vertices, UnknownVertex.
        """
        options, target_error = cls.checked_options(options, query)
        target: Target = query.target  # type: ignore[assignment]  # checked
        vertices = ids_of("seeds", query.seeds)
        known = known if known is not None and known.were_given(vertices) else None
        if known is None:  # of which all are vertices still: see `after`
            _require_vertices("seeds", vertices, ids)
        seeds = Seeds.of(ids.limit, vertices, query.weights, known)
        among = None if query.among is None else checked_set("among", ids, query.among)
        within = None if query.within is None else checked_set("within", ids, query.within)
        if within is not None:
            outside = np.setdiff1d(seeds.vertices, within, assume_unique=True)
            if len(outside):
                raise InvalidValue("seeds", outside[:_MOST_NAMED].tolist(), "in `within`")
            among = among if among is None else np.intersect1d(among, within, assume_unique=True)
        fields = (query.k, query.method, target_error, target, options, among)
        return cls(seeds, *fields, query.form, query.trace, query.zeros, within)

    @staticmethod
    def checked_options(options: Options, query: PersonalizedQuery) -> tuple[Options, float]:
        """The graph's options with the damping of the query, and its target error. Raises
        InvalidValue for anything in the query but its vertices.
        """
        if not isinstance(query.k, int | np.integer) or query.k < 1:
            raise InvalidValue("k", query.k, "an integer, at least 1")
        if query.form not in get_args(Form):
            raise InvalidValue("form", query.form, "'accelerated' or 'published'")
        published = query.form == "published"
        methods = PUBLISHED_METHODS if published else METHODS
        if query.method not in methods:
            requirement = f"one of {', '.join(methods)} in the {query.form} form"
            raise InvalidValue("method", query.method, requirement)
        target_error = options.target_error if query.target_error is None else query.target_error
        if not 0.0 < target_error <= 2.0:
            raise InvalidValue("target_error", target_error, "a number above 0 and at most 2")
        if query.target not in TARGETS:
            raise InvalidValue("target", query.target, "one of " + ", ".join(TARGETS))
        if published and query.target != "error":
            raise InvalidValue("target", query.target, "'error' in the published form")
        if query.damping is not None:
            options = replace(options, damping=query.damping)
        return options, target_error

    def after(self, removed: NDArray[np.int64]) -> ResolvedQuery:
        """The query once these vertices (ascending) are removed: they are among no others. Raises
        UnknownVertex if one of them is a seed.
        """
        if len(removed) == 0:
            return self
        lost = self.seeds.vertices[np.isin(self.seeds.vertices, removed)]
        if len(lost):
            raise UnknownVertex("seeds", int(lost[0]), REMOVED)
        among, within = (
            None if some is None else some[~np.isin(some, removed)]
            for some in (self.among, self.within)
        )
        return self if among is within is None else replace(self, among=among, within=within)

    def induced(self) -> Self:
        """The query of the subgraph that `within` induces, of which vertex i is within[i]."""
        assert self.within is not None
        places = np.searchsorted(self.within, self.seeds.vertices)
        among = None if self.among is None else np.searchsorted(self.within, self.among)
        seeds = Seeds(places, self.seeds.weights)
        return replace(self, seeds=seeds, among=among, within=None)

    def places(self, ranks: Ranking) -> int:
        """How many of these places, best first, are answered: those of rank 0 unless `zeros`."""
        return len(ranks) if self.zeros else int(np.count_nonzero(ranks > 0.0))

    def is_proven(self, proven: ProvenPlaces, ranks: Ranking) -> bool:
        """Whether the target of the places is met. ranks: float64[k], descending. Unless `zeros`,
        all have to be above 0: a rank of 0 may be that of a vertex that was not reached yet.
        """
        meets = self.target != "error" and proven.meet(self.target)
        return meets and self.places(ranks) == len(ranks)

    def shown(self, answer: Personalized) -> Personalized:
        """The answer with these places alone, and whether it is what was asked for."""
        proven = ProvenPlaces(answer.settled, answer.settled_set, answer.groups, answer.ties)
        if self.form == "published":
            converged = answer.iterations < self.options.max_iterations
        else:
            met = self.is_proven(proven, answer.ranks)
            converged = met or answer.error_bound <= self.target_error
        if answer.converged != converged:
            answer = replace(answer, converged=converged)
        count = self.places(answer.ranks)
        if count == len(answer.ranks):
            return answer
        return replace(
            answer,
            vertices=answer.vertices[:count],
            ranks=answer.ranks[:count],
            **proven.first(count)._asdict(),
        )

    def count(self, ids: VertexIds) -> int:
        """How many vertices it is about."""
        return ids.count if self.among is None else len(self.among)

    def bytes_of_answer(self, vertices: int) -> int:  # noqa: ARG002
        """Bytes that the answer takes on the device, in a graph of so many vertices."""
        return 0


Moment = Literal["batch", "read"] | None
"""At which a view is brought up to date; None: it is read without being solved."""


@dataclass(frozen=True, slots=True)
class ResolvedView(ResolvedQuery):
    """A view: see liverank_gpu.types.ViewQuery. It has no places, and loses seeds that are removed.

    uniform   whether its seeds are all vertices
    reversed  whether it walks against the edges; never where they have no direction
    """

    refresh: Refresh = "batch"
    uniform: bool = False
    reversed: bool = False

    kind: ClassVar[Kind] = "view"

    @staticmethod
    def check(options: Options, view: ViewQuery) -> bool:
        """Whether it walks against the edges. Raises InvalidValue for anything in the view but its
        seeds.
        """
        query = PersonalizedQuery(NO_IDS, target_error=view.target_error, damping=view.damping)
        ResolvedQuery.checked_options(options, query)
        _checked_refresh(view.refresh)
        return _is_reversed(options, view.direction)

    @classmethod
    def of_view(
        cls, ids: VertexIds, options: Options, view: ViewQuery, known: Seeds | None = None
    ) -> ResolvedView:
        """known: see ResolvedQuery.of. Raises InvalidValue, UnknownVertex."""
        uniform = view.seeds is None
        if view.seeds is not None:
            seeds = view.seeds
        elif view.weights is None:
            seeds = all_of(ids) if view.within is None else view.within
        else:
            given = f"{len(view.weights)} weights"
            raise InvalidValue("weights", given, "left out where all vertices are seeds")
        method = "pull" if uniform else "hybrid"
        asked = (seeds, view.weights, 1, method, view.target_error)
        query = PersonalizedQuery(*asked, damping=view.damping, within=view.within)
        found = cls.of(ids, options, query, known)
        refresh, backwards = _checked_refresh(view.refresh), _is_reversed(options, view.direction)
        return replace(found, refresh=refresh, uniform=uniform, reversed=backwards)

    def unresolved(self) -> ViewQuery:
        """What resolves to the same view, also on a graph with more vertices."""
        seeds, weights = (None, None) if self.uniform else (self.seeds.vertices, self.seeds.weights)
        direction: ViewDirection = "reversed" if self.reversed else "forward"
        asked = (seeds, weights, self.target_error, self.options.damping)
        return ViewQuery(*asked, refresh=self.refresh, direction=direction, within=self.within)

    def after(self, removed: NDArray[np.int64]) -> ResolvedView:
        """The view once these vertices (ascending) are removed. Raises UnknownVertex if no seed is
        left.
        """
        if len(removed) == 0 or (self.uniform and self.within is None):
            return self
        left, within = self.seeds.without(removed), self.within
        if left is None:
            raise UnknownVertex("seeds", int(self.seeds.vertices[0]), REMOVED)
        gone = None if within is None else np.isin(within, removed)
        if gone is not None and gone.any():
            assert within is not None
            return replace(self, seeds=left, within=within[~gone])
        return self if left is self.seeds else replace(self, seeds=left)

    def goes_on_from(self, known: ResolvedQuery) -> bool:
        """Whether it begins at the ranks of a known view: of the same damping and direction."""
        assert isinstance(known, ResolvedView)
        return self.options == known.options and self.reversed == known.reversed

    def has_to_be_solved(self, bound: float, at: Moment, waited: float) -> bool:
        """Whether its `refresh` says so, if its bound has passed its target.

        waited  seconds since it last met it
        """
        if bound >= LARGEST_ERROR:
            return True  # nothing is proven
        if isinstance(self.refresh, float):
            return at is not None and waited >= self.refresh
        return at == "read" or at == self.refresh

    def with_vertices(self, ids: VertexIds) -> ResolvedView:
        """The view of a graph that has these vertices now."""
        seeds = self.seeds.vertices
        if not self.uniform or ids.count == 0:
            return self
        if len(seeds) == ids.count and not ids.is_free(seeds).any():
            return self
        return replace(self, seeds=Seeds.of(ids.limit, all_of(ids)))

    def bytes_of_answer(self, vertices: int) -> int:
        return 8 * vertices


def all_of(ids: VertexIds) -> NDArray[np.int64]:
    """int64[count], ascending: all vertices."""
    each = np.arange(ids.limit)
    return each[~ids.is_free(each)] if ids.free_count else each


def _is_reversed(options: Options, direction: Any) -> bool:
    """Whether a view of this direction walks against the edges. Raises InvalidValue."""
    if direction not in get_args(ViewDirection):
        raise InvalidValue("direction", direction, "'forward' or 'reversed'")
    if direction == "reversed" and options.decays:
        raise InvalidValue("direction", direction, "'forward' where weights decay")
    return direction == "reversed" and options.directed


def _checked_refresh(refresh: Any) -> Refresh:
    if refresh in ("batch", "read"):
        return refresh  # type: ignore[no-any-return]  # one of these words
    is_number = isinstance(refresh, int | float) and not isinstance(refresh, bool)
    if not (is_number and 0.0 < refresh < np.inf):
        raise InvalidValue("refresh", refresh, "'batch', 'read' or a number of seconds above 0")
    return float(refresh)


AnyQuery = PersonalizedQuery | ResolvedQuery
"""A query, or what `resolve` made of it for the graph as it is now."""


def resolve(ids: VertexIds, options: Options, queries: Sequence[AnyQuery]) -> list[ResolvedQuery]:
    """Raises InvalidValue, naming ``queries[3].k``."""
    resolved = []
    for index, query in enumerate(queries):
        if isinstance(query, ResolvedQuery):
            resolved.append(query)
            continue
        try:
            resolved.append(ResolvedQuery.of(ids, options, query))
        except InvalidValue as error:
            if len(queries) == 1:
                raise
            field = f"queries[{index}].{error.field}"
            raise type(error)(field, error.value, error.requirement) from None
    return resolved


def checked_set(field: str, ids: VertexIds, some: NDArray[np.integer[Any]]) -> NDArray[np.int64]:
    """int64[…], distinct, ascending. Raises InvalidValue, UnknownVertex, which name the field."""
    vertices: NDArray[np.int64] = ids_of(field, some)
    if len(vertices) == 0:
        raise InvalidValue(field, [], "at least one vertex")
    _require_vertices(field, vertices, ids)
    # a named set is ascending already
    return vertices if (vertices[1:] > vertices[:-1]).all() else np.unique(vertices)


def _require_vertices(field: str, vertices: NDArray[np.int64], ids: VertexIds) -> None:
    outside = np.flatnonzero((vertices < 0) | (vertices >= ids.limit))
    if len(outside):
        place = int(outside[0])
        raise UnknownVertex(f"{field}[{place}]", int(vertices[place]), f"an id below {ids.limit}")
    removed = np.flatnonzero(ids.is_free(vertices))
    if len(removed):
        place = int(removed[0])
        raise UnknownVertex(f"{field}[{place}]", int(vertices[place]), REMOVED)
