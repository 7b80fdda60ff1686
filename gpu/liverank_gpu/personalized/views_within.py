"""Views within a set: ranks by walks on the subgraph that it induces, kept fresh.

The subgraph is a graph of its own, made of the out-lists of the set (graph.reading), which no batch
changes. So a batch that changes an edge inside the set, or its vertices, leaves nothing proven: the
subgraph is made again, and the view solved on it from the ranks that it has, whatever its
`refresh`. Any other batch leaves its ranks and their bound as they are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import OutOfMemory, UnknownVertex
from liverank_gpu.graph.dynamic_graph import DynamicGraph, ReversedGraph
from liverank_gpu.graph.reading import EdgeReader, induced_subgraph
from liverank_gpu.graph.vertices import NO_IDS
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.pagerank.places import GraphVertices
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.personalized.iterate import Seeds, WorkspacePool
from liverank_gpu.personalized.query import Query, QueryContext, no_deflation
from liverank_gpu.personalized.resolve import Moment, ResolvedView
from liverank_gpu.personalized.watched import Registration, out_of_memory
from liverank_gpu.types import LARGEST_ERROR, Ranking


class ViewSteps(NamedTuple):
    """How the walks of a view come to a vertex.

    steps    along the edges that they follow: see EdgeReader.steps_to
    damping  α
    restart  the probability that a walk which restarts does so at this vertex
    """

    steps: tuple[NDArray[np.int64], NDArray[np.float64]]
    damping: float
    restart: float


@dataclass(frozen=True, slots=True)
class Solved:
    """The ranks on a subgraph.

    graph   the subgraph, whose vertex i is within[i]
    within  int64[k], ascending
    seeds   by the ids of the subgraph
    ranks   float64[k], sum 1; base, error_bound  see liverank_gpu.pagerank.ranks.Ranks
    """

    graph: DynamicGraph | ReversedGraph
    within: NDArray[np.int64]
    seeds: Seeds
    ranks: Ranking
    base: float
    error_bound: float

    def at(self, ids: NDArray[np.int64]) -> Ranking:
        """float64[len(ids)]: the ranks of these ids, 0 for those that are not in the set."""
        places = np.minimum(np.searchsorted(self.within, ids), len(self.within) - 1)
        return np.where(self.within[places] == ids, self.ranks[places], 0.0)


class SolveWithin:
    """Makes the subgraph and solves a view on it: `step` until `done`. The graph must not change
    while it `reads`.

    start  ranks float64[k] of the vertices within, and their base, to begin at; None: at nothing
    """

    def __init__(
        self, context: QueryContext, asked: ResolvedView, start: tuple[Ranking, float] | None
    ) -> None:
        assert isinstance(context.graph, DynamicGraph)
        assert asked.within is not None
        self._asked, self._options, self._start = asked, context.options, start
        self._within = asked.within
        self._building = induced_subgraph(context.graph, asked.within)
        self._query: Query | None = None

    @property
    def reads(self) -> bool:
        return self._query is None

    @property
    def done(self) -> bool:
        return self._query is not None and self._query.done

    def step(self) -> None:
        """Raises OutOfMemory."""
        if self._query is not None:
            self._query.step()
            return
        subgraph = next(self._building)
        if subgraph is None:
            return
        vertices = GraphVertices(ReversedGraph(subgraph)) if self._asked.reversed else None
        pool = WorkspacePool(subgraph)
        context = QueryContext(pool, self._options, no_deflation, vertices)
        query = Query(context, self._asked.induced())
        if self._start is not None:
            ranks, base = self._start
            if base > 0.0 and np.isfinite(ranks).all() and ranks.any():
                rows = context.vertices.rows_of(np.arange(len(ranks)))[0]
                query.start_from(_at_rows(subgraph, len(ranks), rows, ranks), base)
        self._query = query

    def solved(self) -> Solved:
        assert self._query is not None
        ranks, graph = self._query.ranks(), self._query.iterate.graph
        assert isinstance(graph, DynamicGraph | ReversedGraph)
        seeds = self._query.iterate.seeds
        of = (ranks.to_numpy(), ranks.base, ranks.error_bound)
        return Solved(graph, self._within, seeds, *of)


def _at_rows(graph: DynamicGraph, count: int, rows: Array, ranks: Ranking) -> Array:
    """float64[count]: ranks at rows, and 0 elsewhere."""
    device = graph.backend.device
    values = device.allocate("the ranks of a view", count, np.float64)
    values.fill(0.0)
    values[rows] = device.to_device(ranks)
    return values


def touches_inside(graph: Any, update: GraphUpdate, within: NDArray[np.int64]) -> bool:
    """Whether a batch may have changed edges between these vertices, which are still there."""
    changes = update.changes
    if changes is None:
        return True
    xp = graph.backend.xp
    rows = xp.sort(graph.permutation.positions_of(within)).astype(np.int32)

    def inside(ends: Array) -> Array:
        return rows[xp.minimum(xp.searchsorted(rows, ends), len(rows) - 1)] == ends

    pairs = (
        (changes.removed_sources, changes.removed_targets),
        (changes.added_sources, changes.added_targets),
    )
    return any(bool((inside(sources) & inside(targets)).any()) for sources, targets in pairs)


class RegistrationWithin(Registration):
    """The first solve of a view within a set. A batch that changes what it reads has it begin
    again.
    """

    _solve: SolveWithin | None = None

    @property
    def done(self) -> bool:
        return self._solve is not None and self._solve.done

    def step(self) -> None:
        if self._lost:
            raise self._lost
        if self._solve is None:
            assert isinstance(self.asked, ResolvedView)
            assert self.asked.within is not None
            start = None
            if self._start is not None:
                ranks, base = self._start
                known = np.append(ranks, 0.0)
                start = known[np.minimum(self.asked.within, len(ranks))], base
            self._solve = SolveWithin(self.context, self.asked, start)
        self._solve.step()

    def perturb(self, update: GraphUpdate) -> None:
        self.updates += 1
        before = self.asked
        try:
            self.asked = self._after(update)
        except UnknownVertex as error:
            self._lost = error
            self.close()
            return
        within = self.asked.within
        assert within is not None
        if self._solve is not None and (
            self._solve.reads
            or self.asked is not before
            or touches_inside(self.context.graph, update, within)
        ):
            self.restarts += 1
            self.close()

    def solved(self) -> Solved:
        assert self._solve is not None
        return self._solve.solved()

    def close(self) -> None:
        self._solve = None


@dataclass(slots=True)
class _Entry:
    """A view within a set.

    solved  None after it ran out of memory
    ranks   of all vertices; None before they are published, and if there are none
    of      what they are of: the solve, the number of rows and the free ids
    stale   whether the subgraph or the seeds are others since the solve
    lost    why there are no ranks any more, if its vertices or its seeds were removed
    """

    asked: ResolvedView
    solved: Solved | None
    ranks: Ranks | None = None
    of: tuple[Solved, int, Any] | None = None
    stale: bool = False
    lost: UnknownVertex | None = None
    lost_seeds: bool = False
    met: float = -np.inf
    seconds: float = 0.0

    @property
    def bound(self) -> float:
        unproven = self.stale or self.solved is None
        return LARGEST_ERROR if unproven or self.solved is None else self.solved.error_bound


class RefreshedViews(ABC):
    """Views by name, brought up to date when their `refresh` says so."""

    _entries: dict[str, Any]

    @abstractmethod
    def _bring(self, entry: Any, at: Moment) -> None:
        """Solves a view if it has to be; publishes its ranks and its bound."""

    @abstractmethod
    def _missing(self, name: str) -> UnknownVertex | OutOfMemory:
        """Why a view has no ranks."""

    def bring(self, name: str, at: Moment) -> Ranks | None:
        """Solves a view if its `refresh` says so, and renews its bound. Returns its ranks, if it
        has some. Raises KeyError.
        """
        entry = self._entries[name]
        self._bring(entry, at)
        ranks: Ranks | None = entry.ranks
        return ranks

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
        for entry in self._entries.values():
            began = perf_counter()
            self._bring(entry, "batch")
            entry.seconds = perf_counter() - began

    @property
    def seconds(self) -> dict[str, float]:
        """The time that each took in the last refresh."""
        return {name: entry.seconds for name, entry in self._entries.items()}


class ViewsWithin(RefreshedViews):
    """The views of one graph within sets, by name; its methods are those of the others
    (liverank_gpu.personalized.views).
    """

    def __init__(self, context: QueryContext) -> None:
        self._context = context
        self._entries: dict[str, _Entry] = {}

    @property
    def names(self) -> list[str]:
        return list(self._entries)

    def keep(self, registration: RegistrationWithin) -> None:
        """Keeps a solved view, in place of another of the same name."""
        assert isinstance(registration.asked, ResolvedView)
        entry = _Entry(registration.asked, registration.solved())
        self._publish(entry)
        self._entries[registration.name] = entry

    def remove(self, name: str) -> None:
        self._entries.pop(name, None)

    def change(self, name: str, asked: ResolvedView) -> bool:
        entry = self._entries[name]
        known = (entry.asked.options, entry.asked.reversed)
        if asked.within is None or entry.solved is None or known != (asked.options, asked.reversed):
            return False
        assert entry.asked.within is not None
        entry.stale |= not (
            np.array_equal(entry.asked.within, asked.within)
            and np.array_equal(entry.asked.seeds.vertices, asked.seeds.vertices)
            and np.array_equal(entry.asked.seeds.weights, asked.seeds.weights)
        )
        entry.asked, entry.lost_seeds = asked, False
        return True

    def lost_seeds(self, name: str) -> bool:
        return self._entries[name].lost_seeds

    def perturb(self, update: GraphUpdate) -> None:
        for entry in self._entries.values():
            before = entry.asked
            try:
                entry.asked = before.after(update.removed)
            except UnknownVertex as error:
                entry.solved = entry.ranks = entry.of = None
                entry.lost, entry.lost_seeds = error, True
                continue
            within = entry.asked.within
            assert within is not None
            changed = entry.asked is not before
            entry.lost_seeds |= changed
            entry.stale |= changed or touches_inside(self._context.graph, update, within)

    def _missing(self, name: str) -> UnknownVertex | OutOfMemory:
        entry = self._entries[name]
        return entry.lost or out_of_memory(self._context, name, entry.asked)

    def _bring(self, entry: _Entry, at: Moment) -> None:
        if entry.lost:
            return
        try:
            if entry.bound > entry.asked.target_error and entry.asked.has_to_be_solved(
                entry.bound, at, perf_counter() - entry.met
            ):
                self._solve(entry)
                entry.met = perf_counter()
            self._publish(entry)
        except MemoryError:
            entry.solved = entry.ranks = entry.of = None
        if entry.bound <= entry.asked.target_error:
            entry.met = perf_counter()

    def _solve(self, entry: _Entry) -> None:
        before, within = entry.solved, entry.asked.within
        assert within is not None
        entry.solved = entry.of = None  # its subgraph makes room for the next one
        start = None if before is None else (before.at(within), before.base)
        del before
        solve = SolveWithin(self._context, entry.asked, start)
        while not solve.done:
            solve.step()
        entry.solved, entry.stale = solve.solved(), False

    def _publish(self, entry: _Entry) -> None:
        graph, solved = self._context.graph, entry.solved
        assert isinstance(graph, DynamicGraph)
        assert solved is not None
        if entry.of is not None:
            of, vertices, free = entry.of
            if of is solved and vertices == graph.vertices and free is graph.free:
                return
        rows = self._context.vertices.rows_of(solved.within)[0]
        values = _at_rows(graph, graph.vertices, rows, solved.ranks)
        ranked = (graph.backend, graph.permutation, values, 1.0, solved.error_bound, graph.free)
        entry.ranks = Ranks(*ranked, None, solved.base)
        entry.of = solved, graph.vertices, graph.free

    def steps_to(self, name: str, vertex: int, limit: int) -> ViewSteps:
        """As Engine.view_steps_to; none lead to a vertex that is not in the set."""
        entry, damping = self._entries[name], self._entries[name].asked.options.damping
        solved = entry.solved
        if solved is None or entry.ranks is None:
            raise self._missing(name)
        entry.ranks.of(np.array([vertex]))
        place = int(np.searchsorted(solved.within, vertex))
        if place == len(solved.within) or solved.within[place] != vertex:
            return ViewSteps((NO_IDS, np.empty(0)), damping, 0.0)
        graph: Any = solved.graph
        sources, steps = EdgeReader(graph).steps_to(place, limit)
        restart = float(solved.seeds.weights_at(np.array([place]))[0])
        return ViewSteps((solved.within[sources], steps), damping, restart)

    @property
    def nbytes(self) -> int:
        """Bytes of published ranks on the device, and of the subgraphs."""
        entries = self._entries.values()
        ranks = sum(entry.ranks.nbytes for entry in entries if entry.ranks is not None)
        graphs = [entry.solved.graph for entry in entries if entry.solved is not None]
        return ranks + sum(_bytes_of(graph) for graph in graphs)


def _bytes_of(graph: DynamicGraph | ReversedGraph) -> int:
    if isinstance(graph, ReversedGraph):
        return graph.nbytes + _bytes_of(graph.graph)
    return sum(graph.memory().values())
