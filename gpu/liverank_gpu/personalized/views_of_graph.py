"""Views that walk one graph: ranks of all its vertices for teleport distributions of their own.

A view is a watched query (liverank_gpu.personalized.watched) that publishes all of y instead of its
largest entries. Other seeds are another right-hand side: r changes at the vertices whose part of it
is another, and the view is solved from where it is. So the residual is always that of the graph and
the seeds as they are, and so is the bound that it proves, solved or not.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.reading import EdgeReader
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.personalized.iterate import Seeds
from liverank_gpu.personalized.query import Query
from liverank_gpu.personalized.resolve import Moment, ResolvedQuery, ResolvedView
from liverank_gpu.personalized.watched import Entry, Registration, Start, Watched, to_solve
from liverank_gpu.types import LARGEST_ERROR


class ViewSteps(NamedTuple):
    """How the walks of a view come to a vertex.

    steps    along the edges that they follow: see EdgeReader.steps_to
    damping  α
    restart  the probability that a walk which restarts does so at this vertex
    """

    steps: tuple[NDArray[np.int64], NDArray[np.float64]]
    damping: float
    restart: float


@dataclass(slots=True)
class View(Entry):
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


class ViewsOfGraph(Watched):
    """The views that walk one graph, by name."""

    _entries: dict[str, View]  # type: ignore[assignment]  # only these are kept

    def _entry(self, asked: ResolvedQuery) -> Entry:
        return View(asked, None, None)

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
        if entry is None or entry.query is None or asked.within is not None:
            return False
        if not asked.goes_on_from(entry.asked):
            return False
        entry.asked, entry.lost_seeds = asked, False
        return True

    def start(self, name: str, asked: ResolvedView) -> Start | None:
        """The ranks of a view that others of its name may go on from, if it has some."""
        entry = self._entries.get(name)
        if entry is None or entry.ranks is None or not asked.goes_on_from(entry.asked):
            return None
        return entry.ranks.to_numpy(), entry.ranks.base

    def seeds(self, name: str) -> Seeds | None:
        """See Views.seeds."""
        entry = self._entries.get(name)
        return None if entry is None or entry.lost else entry.asked.seeds

    def lost_seeds(self, name: str) -> bool:
        """Whether seeds were removed since the view was given them. Raises KeyError."""
        return self._entries[name].lost_seeds

    def _remove(self, entry: Entry, update: GraphUpdate) -> None:
        before = entry.asked
        super()._remove(entry, update)
        assert isinstance(entry, View)
        entry.lost_seeds |= entry.lost is not None or entry.asked is not before

    def steps_to(self, name: str, vertex: int, limit: int) -> ViewSteps:
        """See Engine.view_steps_to, of a view that has ranks."""
        entry = self._entries[name]
        assert entry.query is not None
        graph: Any = self._context.graph  # or a ReversedGraph, whose steps can be read too
        steps = EdgeReader(graph).steps_to(vertex, limit)
        seeds = entry.query.iterate.seeds
        restart = float(seeds.weights[seeds.vertices == vertex].sum())
        return ViewSteps(steps, entry.asked.options.damping, restart)

    def ranks(self, name: str, *, solve: bool = True) -> Ranks:
        """The ranks, with their bound for the graph as it is now.

        solve  whether it is solved first, if its `refresh` says so

        Raises KeyError; OutOfMemory if it could not be brought up to date; UnknownVertex if its
        seeds were removed.
        """
        ranks = self.bring(name, "read" if solve else None)
        if ranks is None:
            raise self._missing(name)
        return ranks

    def refresh(self) -> None:
        """Brings all views up to date."""
        for name, entry in self._entries.items():
            began = perf_counter()
            self.bring(name, "batch")
            entry.seconds = perf_counter() - began

    @property
    def seconds(self) -> dict[str, float]:
        """The time that each took in the last refresh."""
        return {name: entry.seconds for name, entry in self._entries.items()}

    def bring(self, name: str, at: Moment) -> Ranks | None:
        """Solves a view if its `refresh` says so, and renews its bound. Returns its ranks, if it
        has some. Raises KeyError.
        """
        entry = self._entries[name]
        self._bring(name, entry, at)
        return entry.ranks

    def _bring(self, name: str, entry: View, at: Moment) -> None:  # noqa: ARG002
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

    def _has_to_solve(self, entry: View, at: Moment) -> bool:
        assert isinstance(entry.asked, ResolvedView)
        # clocks of processes differ, and all decide alike
        waited = self._context.vertices.highest(perf_counter() - entry.met)
        return entry.asked.has_to_be_solved(entry.bound, at, waited)

    def _follow_seeds(self, entry: View) -> None:
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

    def _publish(self, entry: View) -> None:
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
        assert isinstance(entry, View)
        graph = self._context.graph
        entry.ranks, entry.ids = query.ranks(), (graph.ids.limit, graph.free)
        self._pack(query)
        entry.query = query

    def _solve(self, entry: Entry) -> None:
        """To a part of its target as a watched query, but where that would not save the next solve:
        what came since the last one is more than the rest.
        """
        assert isinstance(entry, View)
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
