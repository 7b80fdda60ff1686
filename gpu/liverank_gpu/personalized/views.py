"""Views: ranks of all vertices for teleport distributions of their own, kept fresh.

A view is a watched query (liverank_gpu.personalized.watched) that publishes all of y instead of its
largest entries. Other seeds are another right-hand side: r changes at the vertices whose part of it
is another, and the view is solved from where it is. So the residual is always that of the graph and
the seeds as they are, and so is the bound that it proves, solved or not.

A reversed view is a view of the graph with its directions in each other's place
(liverank_gpu.graph.dynamic_graph.ReversedGraph), which follows the batches as the reversed graph
sees them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any
from weakref import ref

import numpy as np

from liverank_gpu.errors import OutOfMemory, UnknownVertex
from liverank_gpu.graph.dynamic_graph import ReversedGraph
from liverank_gpu.graph.reading import EdgeReader
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.personalized.query import Query, QueryContext, no_deflation
from liverank_gpu.personalized.resolve import Moment, ResolvedQuery, ResolvedView
from liverank_gpu.personalized.views_within import (
    RefreshedViews,
    RegistrationWithin,
    ViewSteps,
    ViewsWithin,
)
from liverank_gpu.personalized.watched import Entry, Registration, Watched, to_solve
from liverank_gpu.types import LARGEST_ERROR


@dataclass(slots=True)
class _View(Entry):
    """A view, as Entry.

    ranks  of y as it is; None before they are published
    ids    their limit, and the rows of free ones, when they were
    met    when its bound was last seen to meet its target, by `perf_counter`
    solved its bound after the last solve
    seconds of the last refresh
    lost_seeds  whether vertices were removed that were seeds
    """

    ranks: Ranks | None = None
    ids: tuple[int, Array | None] = (0, None)
    met: float = -np.inf
    solved: float = 0.0
    seconds: float = 0.0
    lost_seeds: bool = False

    @property
    def bound(self) -> float:
        """On the error of y; infinite if there is none."""
        return np.inf if self.query is None else self.query.iterate.error_bound


class _ViewsOfGraph(RefreshedViews, Watched):
    """The views that walk one graph, by name."""

    _entries: dict[str, _View]  # type: ignore[assignment]  # only these are kept

    def _entry(self, asked: ResolvedQuery) -> Entry:
        return _View(asked, None, None)

    def keep(self, registration: Registration) -> None:
        super().keep(registration)
        entry = self._entries[registration.name]
        entry.solved = entry.bound

    def change(self, name: str, asked: ResolvedView) -> bool:
        """Gives a view other seeds, another target or another way to be refreshed, which the next
        refresh follows. Whether it can: there is one, of the same damping and direction, and it has
        not lost its seeds.
        """
        entry = self._entries.get(name)
        if entry is None or entry.query is None or entry.asked.options != asked.options:
            return False
        assert isinstance(entry.asked, ResolvedView)
        if entry.asked.reversed != asked.reversed or asked.within is not None:
            return False
        entry.asked, entry.lost_seeds = asked, False
        return True

    def lost_seeds(self, name: str) -> bool:
        """Whether seeds were removed since the view was given them. Raises KeyError."""
        return self._entries[name].lost_seeds

    def _remove(self, entry: Entry, update: GraphUpdate) -> None:
        before = entry.asked
        super()._remove(entry, update)
        assert isinstance(entry, _View)
        entry.lost_seeds |= entry.lost is not None or entry.asked is not before

    def steps_to(self, name: str, vertex: int, limit: int) -> ViewSteps:
        """See Engine.view_steps_to."""
        entry = self._entries[name]
        if entry.query is None or entry.ranks is None:
            raise self._missing(name)
        entry.ranks.of(np.array([vertex]))
        graph: Any = self._context.graph  # or a ReversedGraph, whose steps can be read too
        steps = EdgeReader(graph).steps_to(vertex, limit)
        seeds = entry.query.iterate.seeds
        restart = float(seeds.weights[seeds.vertices == vertex].sum())
        return ViewSteps(steps, entry.asked.options.damping, restart)

    def _missing(self, name: str) -> UnknownVertex | OutOfMemory:
        return Watched._missing(self, name)

    def _bring(self, entry: _View, at: Moment) -> None:
        """Follows the seeds; solves the view if it has to; publishes its ranks and its bound."""
        if entry.lost:
            entry.ranks = None
            return
        try:
            self._follow_seeds(entry)
            if entry.bound > entry.asked.target_error and self._has_to_solve(entry, at):
                self._solve(entry)
                entry.met = perf_counter()
            self._publish(entry)
        except MemoryError as error:
            entry.ranks = None
            self._give_up(entry, error)
        if entry.bound <= entry.asked.target_error:
            entry.met = perf_counter()

    def _has_to_solve(self, entry: _View, at: Moment) -> bool:
        assert isinstance(entry.asked, ResolvedView)
        # clocks of processes differ, and all decide alike
        waited = self._context.vertices.highest(perf_counter() - entry.met)
        return entry.asked.has_to_be_solved(entry.bound, at, waited)

    def _follow_seeds(self, entry: _View) -> None:
        """Makes the residual that of the seeds as they are, and of the vertices."""
        asked, query = entry.asked, entry.query
        assert isinstance(asked, ResolvedView)
        entry.asked = asked = asked.with_vertices(self._context.graph.ids)
        if query is None:
            return
        solved = to_solve(asked)
        as_before = query.query.target_error == solved.target_error
        if query.iterate.seeds is asked.seeds and as_before:
            return
        self._unpack(query)
        query.change(solved)
        self._pack(query)

    def _publish(self, entry: _View) -> None:
        """Ranks of the vertices that there are now, with the bound that is proven now."""
        graph, query = self._context.graph, entry.query
        assert query is not None
        limit, free = entry.ids
        if entry.ranks is None or limit != graph.ids.limit or free is not graph.free:
            self._unpack(query)
            self._store(entry, query)
            return
        bound = min(LARGEST_ERROR, entry.bound)
        if bound != entry.ranks.error_bound:
            entry.ranks = entry.ranks.bounded(bound)

    def _store(self, entry: Entry, query: Query) -> None:
        assert isinstance(entry, _View)
        graph = self._context.graph
        entry.ranks, entry.ids = query.ranks(), (graph.ids.limit, graph.free)
        self._pack(query)
        entry.query = query

    def _solve(self, entry: Entry) -> None:
        """To a part of its target as a watched query, but where that would not save the next solve:
        what came since the last one is more than the rest.
        """
        assert isinstance(entry, _View)
        query, asked = entry.query, entry.asked
        half = to_solve(asked)
        if query is not None and entry.bound - entry.solved > asked.target_error:
            query.query = replace(half, target_error=asked.target_error)
        super()._solve(entry)
        assert entry.query is not None
        entry.query.query = half
        entry.solved = entry.bound

    def _run(self, query: Query) -> None:
        query.renew()
        if query.iterate.dense:
            query.push_dense()
        while not query.done:
            query.step()

    @property
    def nbytes(self) -> int:
        """Bytes that iterates and published ranks hold on the device."""
        ranks = [entry.ranks for entry in self._entries.values() if entry.ranks is not None]
        return super().nbytes + sum(each.nbytes for each in ranks)


class Views:
    """The views of one graph, by name: those that walk along its edges, those that walk against
    them, and those within sets.

    reversed_context  where those against them are solved, while there are any; None before the
                      first: `reserve` and `turn` then have nothing to do
    """

    def __init__(self, context: QueryContext) -> None:
        self._context = context
        self._forward = _ViewsOfGraph(context)
        self._reversed: _ViewsOfGraph | None = None
        self._within = ViewsWithin(context)
        # known as long as it has a view, or the first solve of one
        self.reversed_context: Callable[[], QueryContext | None] | None = None

    def context(self, asked: ResolvedView) -> QueryContext:
        """Where the view is solved. Raises OutOfMemory."""
        if not asked.reversed or asked.within is not None:
            return self._context
        context = self._backwards()
        if context is None:
            before = self._context
            # the global ranks are no direction there
            vertices = before.vertices.reversed()
            context = QueryContext(before.pool, before.options, no_deflation, vertices)
            self.reversed_context = ref(context)
        return context

    @property
    def reversed_graph(self) -> ReversedGraph | None:
        """What those against the edges walk, if there are any."""
        context = self._backwards()
        if context is None:
            return None
        assert isinstance(context.graph, ReversedGraph)
        return context.graph

    def _backwards(self) -> QueryContext | None:
        """Where reversed views are solved, if there are any."""
        return None if self.reversed_context is None else self.reversed_context()

    def _of(self, name: str) -> _ViewsOfGraph | ViewsWithin:
        """Those that have a view of this name, if any have."""
        if name in self._within.names:
            return self._within
        found = self._reversed
        return found if found is not None and name in found.names else self._forward

    @property
    def names(self) -> list[str]:
        reversed_ones = self._reversed.names if self._reversed else ()
        return [*self._forward.names, *reversed_ones, *self._within.names]

    def keep(self, registration: Registration) -> None:
        """Keeps a solved view, in place of another of the same name."""
        name, asked = registration.name, registration.asked
        assert isinstance(asked, ResolvedView)
        if isinstance(registration, RegistrationWithin):
            self._within.keep(registration)
            self._forward.remove(name)
            self._remove_reversed(name)
            return
        self._within.remove(name)
        if asked.reversed:
            self._reversed = self._reversed or _ViewsOfGraph(registration.context)
            self._reversed.keep(registration)
            self._forward.remove(name)
        else:
            self._forward.keep(registration)
            self._remove_reversed(name)

    def steps_to(self, name: str, vertex: int, limit: int) -> ViewSteps:
        """See Engine.view_steps_to. limit: of the edges along which they come"""
        return self._of(name).steps_to(name, vertex, limit)

    def remove(self, name: str) -> None:
        """Forgets a view, if there is one of this name."""
        self._forward.remove(name)
        self._within.remove(name)
        self._remove_reversed(name)

    def _remove_reversed(self, name: str) -> None:
        if self._reversed is not None:
            self._reversed.remove(name)
            self._reversed = self._reversed if len(self._reversed) else None

    def change(self, name: str, asked: ResolvedView) -> bool:
        """See _ViewsOfGraph.change. A view of another direction cannot follow."""
        return self._of(name).change(name, asked)

    def lost_seeds(self, name: str) -> bool:
        """Whether seeds were removed since the view was given them. Raises KeyError."""
        return self._of(name).lost_seeds(name)

    def reserve(self, vertices: int) -> None:
        """Makes room for the reversed graph after a batch. Raises OutOfMemory."""
        graph = self.reversed_graph
        if graph is not None:
            graph.reserve(vertices)

    def turn(self, update: GraphUpdate) -> None:
        """Has the reversed graph follow a batch, before anything that walks it."""
        context = self._backwards()
        if context is not None:
            assert isinstance(context.graph, ReversedGraph)
            context.turned = context.graph.follow(update)

    def perturb(self, update: GraphUpdate) -> None:
        """Makes every residual that of the graph after a batch, when all else has followed it."""
        self._forward.perturb(update)
        self._within.perturb(update)
        context = self._backwards()
        if context is None:
            return
        assert context.turned is not None
        if self._reversed is not None:
            self._reversed.perturb(context.turned)
        context.turned = None

    def refresh(self) -> dict[str, float]:
        """Solves the views whose `refresh` says so, and renews the bounds of all. Returns what each
        took, in seconds.
        """
        seconds = dict[str, float]()
        for views in (self._forward, self._reversed, self._within):
            if views is not None:
                views.refresh()
                seconds |= views.seconds
        return seconds

    def bring(self, name: str, at: Moment) -> Ranks | None:
        """See RefreshedViews.bring."""
        return self._of(name).bring(name, at)

    def ranks(self, name: str, *, solve: bool = True) -> Ranks:
        """See RefreshedViews.ranks."""
        return self._of(name).ranks(name, solve=solve)

    @property
    def nbytes(self) -> int:
        """Bytes that iterates, published ranks and a reversed graph hold on the device."""
        graph = self.reversed_graph
        held = self._forward.nbytes + self._within.nbytes
        held += self._reversed.nbytes if self._reversed else 0
        return held + (0 if graph is None else graph.nbytes)
