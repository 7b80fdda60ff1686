"""Views: ranks of all vertices of one graph for teleport distributions of their own.

A view is a watched query (liverank_gpu.personalized.watched) that publishes all of y instead of its
largest entries. Other seeds are another right-hand side: r changes at the vertices whose part of it
is another, and the view is solved from where it is. So the residual is always that of the graph and
the seeds as they are, and so is the bound that it proves, solved or not.

A reversed view is a view of the graph with its directions in each other's place
(liverank_gpu.graph.dynamic_graph.ReversedGraph), which follows the batches as the reversed graph
sees them.

A view within a set ranks it by walks on the subgraph that it induces. That is a graph of its own,
made of the out-lists of the set (graph.reading), which no batch changes, and the view is one of
that graph. So it follows other seeds as any view does; but a batch that changes an edge inside the
set, or its vertices, leaves nothing proven: the subgraph is made again, and the view solved on it
from the ranks that it has, whatever its `refresh`. Any other batch leaves its ranks and their bound
as they are. Of a graph in shards the first one has the subgraph, and tells the others the ranks of
their own vertices.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from time import perf_counter
from typing import Any, NamedTuple
from weakref import ref

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue, UnknownVertex, without_frames
from liverank_gpu.graph.dynamic_graph import DynamicGraph, ReversedGraph
from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.graph.reading import EdgeReader, induced_subgraph
from liverank_gpu.graph.vertices import NO_IDS
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.pagerank.places import GraphVertices
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.personalized.iterate import WorkspacePool
from liverank_gpu.personalized.query import Query, QueryContext, no_deflation
from liverank_gpu.personalized.resolve import Moment, ResolvedView
from liverank_gpu.personalized.watched import Entry, Kept, Registration, Start, to_solve
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


@dataclass(eq=False)
class View(Entry):
    """A view, as Entry.

    ranks  of y as it is; None before they are published
    ids    their limit, and the rows of free ones, when they were
    met    when its bound was last seen to meet its target, by `perf_counter`
    solved its bound after the last solve
    lost_seeds  whether vertices were removed that were seeds
    """

    asked: ResolvedView
    ranks: Ranks | None = None
    ids: tuple[int, Array | None] = (0, None)
    met: float = -np.inf
    solved: float = 0.0
    lost_seeds: bool = False

    def take(self, registration: Registration) -> None:
        super().take(registration)
        self.solved = self.bound

    def change(self, asked: ResolvedView) -> bool:
        """See Views.change."""
        if self.query is None or asked.within is not None or not asked.goes_on_from(self.asked):
            return False
        self.asked, self.lost_seeds = asked, False
        return True

    def start(self, asked: ResolvedView) -> Start | None:
        """Its ranks, if it has some and another of its name may go on from them."""
        if self.ranks is None or not asked.goes_on_from(self.asked):
            return None
        return self.ranks.to_numpy(), self.ranks.base

    def _remove(self, removed: NDArray[np.int64]) -> None:
        before = self.asked
        super()._remove(removed)
        self.lost_seeds |= self.lost is not None or self.asked is not before

    def steps_to(self, vertex: int, limit: int) -> ViewSteps:
        """See Engine.view_steps_to. limit: of the edges along which they come"""
        assert self.query is not None
        graph: Any = self.context.graph  # or a ReversedGraph, whose steps can be read too
        steps = EdgeReader(graph).steps_to(vertex, limit)
        seeds = self.query.iterate.seeds
        restart = float(seeds.weights[seeds.vertices == vertex].sum())
        return ViewSteps(steps, self.asked.options.damping, restart)

    def bring(self, at: Moment) -> Ranks | None:
        """Solves it if its `refresh` says so, and renews its bound. Returns its ranks, if it has
        some.
        """
        if self.lost:
            self.ranks = None
            return None
        try:
            self._bring(at)
        except MemoryError as error:
            self.ranks = None
            self._give_up(error)
        if self.bound <= self.asked.target_error:
            self.met = perf_counter()
        return self.ranks

    def ranked(self, *, solve: bool = True) -> Ranks:
        """See Engine.view."""
        ranks = self.bring("read" if solve else None)
        if ranks is None:
            raise self.why_missing
        return ranks

    def _bring(self, at: Moment) -> None:
        """Follows the seeds; solves the view if it has to; publishes its ranks and its bound."""
        self._follow_seeds()
        if self.bound > self.asked.target_error and self._has_to_solve(at):
            self._solve()
            self.met = perf_counter()
        # ranks of the vertices that there are now, with the bound that is proven now
        query = self.query
        assert query is not None
        if self._publishes_others:
            self._unpack(query)
            self._store(query)
        else:
            self._publish_bound(min(LARGEST_ERROR, self.bound))

    def _has_to_solve(self, at: Moment) -> bool:
        # clocks of processes differ, and all decide alike
        waited = self.context.vertices.highest(perf_counter() - self.met)
        return self.asked.has_to_be_solved(self.bound, at, waited)

    def _follow_seeds(self) -> None:
        """Makes the residual that of the seeds as they are, and of the vertices."""
        self.asked, query = self.asked.with_vertices(self.context.graph.ids), self.query
        if query is None:
            return
        solved = to_solve(self.asked)
        as_before = query.query.target_error == solved.target_error
        if query.iterate.seeds is self.asked.seeds and as_before:
            return
        self._unpack(query)
        query.change(solved)
        self._pack(query)

    @property
    def _publishes_others(self) -> bool:
        """Whether there are no ranks, or those of other vertices."""
        graph, (limit, free) = self.context.graph, self.ids
        return self.ranks is None or limit != graph.ids.limit or free is not graph.free

    def _publish(self, ranks: Ranks) -> None:
        self.ranks, self.ids = ranks, (self.context.graph.ids.limit, self.context.graph.free)

    def _publish_bound(self, bound: float) -> None:
        assert self.ranks is not None
        if bound != self.ranks.error_bound:
            self.ranks = self.ranks.bounded(bound)

    def _store(self, query: Query) -> None:
        self._publish(query.ranks())
        super()._store(query)

    def _solve(self) -> None:
        """To a part of its target as a watched query, but where that would not save the next solve:
        what came since the last one is more than the rest.
        """
        query, asked = self.query, self.asked
        half = to_solve(asked)
        if query is not None and self.bound - self.solved > asked.target_error:
            query.query = replace(half, target_error=asked.target_error)
        super()._solve()
        assert self.query is not None
        self.query.query = half
        self.solved = self.bound

    def _run(self, query: Query) -> None:
        query.renew()
        if query.iterate.dense:
            query.push_dense()
        while not query.done:
            query.step()

    @property
    def nbytes(self) -> int:
        return super().nbytes + (0 if self.ranks is None else self.ranks.nbytes)


class Subgraph(NamedTuple):
    """Of the vertices within[i], int64[k], ascending; i is their id there.

    context  of its queries; None in all processes but the first
    """

    within: NDArray[np.int64]
    context: QueryContext | None


class RegistrationWithin(Registration):
    """The first solve of a view within a set, on a subgraph that the first steps make, unless it is
    there. A batch that changes what it reads has it begin again.

    inner  that of the view of the subgraph, in the first process
    """

    asked: ResolvedView

    def __init__(
        self,
        context: QueryContext,
        name: str,
        asked: ResolvedView,
        start: Start | None,
        subgraph: Subgraph | None = None,
    ) -> None:
        super().__init__(context, name, asked, start)
        self.subgraph = subgraph
        self.inner: Registration | None = None
        self._making: Iterator[DynamicGraph | None] | None = None
        self._done = False

    @property
    def done(self) -> bool:
        return self._done

    def step(self) -> None:
        if self._lost:
            raise copy(self._lost)
        if self.subgraph is None:
            self._make()
            return
        context = self.subgraph.context
        if context is not None:
            asked = self.asked.induced()
            self.inner = self.inner or Registration(context, self.name, asked, self._inside())
            if not self.inner.done:
                self.inner.step()
        running = self.inner is not None and not self.inner.done
        self._done = self.context.vertices.sums([running]) == [0.0]

    def _make(self) -> None:
        graph, within = self.context.graph, self.asked.within
        assert isinstance(graph, DynamicGraph)
        assert within is not None
        self._making = self._making or induced_subgraph(graph, within)
        made, context = next(self._making), None
        if made is None:
            return
        if self.context.vertices.leads:
            walked = ReversedGraph(made) if self.asked.reversed else made
            pool, vertices = WorkspacePool(made), GraphVertices(walked)
            context = QueryContext(pool, self.context.options, no_deflation, vertices)
        self.subgraph, self._making = Subgraph(within, context), None

    def _inside(self) -> Start | None:
        """Where it begins, by the ids of the subgraph."""
        within = self.asked.within
        if self._start is None or within is None:
            return None
        ranks, base = self._start
        return np.append(ranks, 0.0)[np.minimum(within, len(ranks))], base

    def perturb(self, update: GraphUpdate) -> None:
        self.updates += 1
        before, making = self.asked, self._making is not None
        try:
            asked = self._after(update)
        except UnknownVertex as error:
            self._lost = without_frames(error)
            self.close()
            return
        assert isinstance(asked, ResolvedView)
        self.asked, begun = asked, making or self.subgraph is not None
        if begun and (making or asked is not before or _touches(self.context, asked, update)):
            self.restarts += 1
            self.close()

    def close(self) -> None:
        if self.inner is not None:
            self.inner.close()
        self.subgraph = self.inner = self._making = None
        self._done = False


def _touches(context: QueryContext, asked: ResolvedView, update: GraphUpdate) -> bool:
    """Whether a batch may have changed edges inside the set, whose vertices are still there: also
    where there is no memory to look, as the batch stands.
    """
    try:
        touched = _touches_here(context.graph, asked, update)
    except MemoryError:
        touched = True
    return context.vertices.highest(touched) > 0.0


def _touches_here(graph: RankedGraph, asked: ResolvedView, update: GraphUpdate) -> bool:
    """The same of the rows that are here. Raises MemoryError."""
    changes = update.changes
    assert isinstance(graph, DynamicGraph)
    touched = changes is None
    if changes is not None:
        xp, positions = graph.backend.xp, graph.permutation.positions_of(asked.within)
        rows, _ = graph.own_rows_at(positions)
        for sources, targets in (
            (changes.removed_sources, changes.removed_targets),
            (changes.added_sources, changes.added_targets),
        ):
            inside = targets[xp.isin(sources, rows)]
            touched |= bool(xp.isin(graph.positions_at(inside), positions).any())
    return touched


@dataclass(eq=False)
class ViewWithin(View):
    """A view within a set.

    subgraph  None after it ran out of memory
    inner     the view as one of the subgraph, in the first process
    told      the ranks of `inner` that were published
    stale     whether the subgraph is another since it was made
    """

    subgraph: Subgraph | None = None
    inner: View | None = None
    told: Ranks | None = None
    stale: bool = False

    def forget(self) -> None:
        self.subgraph = self.inner = self.told = None

    def take(self, registration: Registration) -> None:
        self._walk(registration)
        self._tell(None)

    def _walk(self, registration: Registration) -> None:
        """Has what a first solve came to, and its subgraph."""
        assert isinstance(registration, RegistrationWithin)
        self.subgraph, self.stale = registration.subgraph, False
        if registration.inner is not None:
            self.inner = View.of(registration.inner)

    def change(self, asked: ResolvedView) -> bool:
        if self.lost or not (self.walks_as(asked) and asked.goes_on_from(self.asked)):
            return False
        asked = replace(asked, within=self.asked.within)
        follows = self.stale or self.inner is None or self.inner.change(asked.induced())
        if self.context.vertices.sums([not follows]) != [0.0]:
            return False
        self.asked, self.lost_seeds = asked, False
        return True

    def walks_as(self, asked: ResolvedView) -> bool:
        """Whether another view walks its subgraph."""
        within = self.asked.within
        if within is None or asked.within is None or self.asked.reversed != asked.reversed:
            return False
        return np.array_equal(within, asked.within)

    def perturb(self, update: GraphUpdate) -> None:
        super().perturb(update)
        if self.subgraph is not None and not self.stale:
            is_other = self.asked.within is not self.subgraph.within
            self.stale = is_other or _touches(self.context, self.asked, update)

    def _bring(self, at: Moment) -> None:
        if self.stale or self.subgraph is None:
            self._make()
        self._tell(at)

    def _make(self) -> None:
        start = None
        if self.inner is not None and self.subgraph is not None:
            found, within = self.inner.start(self.asked), self.subgraph.within
            if found is not None:
                start = np.zeros(within[-1] + 1), found[1]
                start[0][within] = found[0]
        self.forget()  # which makes room for the next one
        registration = RegistrationWithin(self.context, self.name, self.asked, start)
        try:
            while not registration.done:
                registration.step()
            self._walk(registration)
        finally:
            registration.close()

    def _tell(self, at: Moment) -> None:
        """Brings the view of the subgraph up to date, and publishes its ranks as those of all
        vertices.
        """
        assert self.subgraph is not None
        graph, vertices, within = self.context.graph, self.context.vertices, self.subgraph.within
        ranks = None if self.inner is None else self.inner.bring(at)
        told, bound = True, 0.0
        if ranks is not None:
            told, bound = ranks.is_copy_of(self.told), ranks.error_bound
        found, others, bound = vertices.sums([ranks is not None, not told, bound])
        if not found:
            self.ranks = None
        elif others or self._publishes_others:
            y, mass, rhs_scale = (np.empty(0), 0.0, 0.0) if ranks is None else ranks.copied()
            y = vertices.first(np.append(y, [mass, rhs_scale]))
            values, (mass, rhs_scale) = vertices.spread(within, y[:-2]), y[-2:].tolist()
            ranked = (graph.backend, graph.permutation, values, mass, bound, graph.free)
            self._publish(Ranks(*ranked, None, rhs_scale))
            self.told = ranks
        else:
            self._publish_bound(bound)

    def steps_to(self, vertex: int, limit: int) -> ViewSteps:
        """None lead to a vertex that is not in the set. Only the first process knows."""
        assert self.subgraph is not None
        assert self.inner is not None
        within = self.subgraph.within
        place = int(np.searchsorted(within, vertex))
        if place == len(within) or within[place] != vertex:
            return ViewSteps((NO_IDS, np.empty(0)), self.asked.options.damping, 0.0)
        try:
            found = self.inner.steps_to(place, limit)
        except InvalidValue as error:
            raise InvalidValue(error.field, vertex, error.requirement) from None
        sources, steps = found.steps
        return found._replace(steps=(within[sources], steps))

    @property
    def nbytes(self) -> int:
        """Of published ranks, of the subgraph, and of what is solved there."""
        held = super().nbytes
        if self.inner is not None:
            context = self.inner.context
            held += self.inner.nbytes + context.pool.nbytes + _bytes_of(context.graph)
        return held


def _bytes_of(graph: RankedGraph) -> int:
    if isinstance(graph, ReversedGraph):
        return graph.nbytes + _bytes_of(graph.graph)
    assert isinstance(graph, DynamicGraph)
    return sum(graph.memory().values())


class Views(Kept[View]):
    """The views of one graph, by name: those that walk along its edges, those that walk against
    them, and those within sets.
    """

    def __init__(self, context: QueryContext) -> None:
        super().__init__()
        self._context = context
        # known as long as it has a view, or the first solve of one; NoneType() is None
        self._reversed_context: Callable[[], QueryContext | None] = type(None)

    def context(self, asked: ResolvedView) -> QueryContext:
        """Where the view is solved. Raises OutOfMemory."""
        if not asked.reversed or asked.within is not None:
            return self._context
        context = self._reversed_context()
        if context is None:
            before = self._context
            # the global ranks are no direction there
            vertices = before.vertices.reversed()
            context = QueryContext(before.pool, before.options, no_deflation, vertices)
            self._reversed_context = ref(context)
        return context

    @property
    def reversed_graph(self) -> ReversedGraph | None:
        """What those against the edges walk, if there are any."""
        context = self._reversed_context()
        if context is None:
            return None
        assert isinstance(context.graph, ReversedGraph)
        return context.graph

    def register(self, name: str, asked: ResolvedView, start: Start | None) -> Registration:
        """Begins a view. start: see Engine.put_view. Raises OutOfMemory."""
        if asked.within is None:
            return Registration(self.context(asked), name, asked, start)
        known, subgraph = self.get(name), None
        if isinstance(known, ViewWithin) and not known.stale and known.walks_as(asked):
            subgraph = known.subgraph
        if subgraph is not None:
            asked = replace(asked, within=subgraph.within)
        return RegistrationWithin(self._context, name, asked, start, subgraph)

    def keep(self, registration: Registration) -> None:
        """Keeps a solved view, in place of another of the same name."""
        kind = ViewWithin if isinstance(registration, RegistrationWithin) else View
        self[registration.name] = kind.of(registration)

    def change(self, name: str, asked: ResolvedView) -> bool:
        """Gives a view other seeds, another target or another way to be refreshed, which the next
        refresh follows. Whether it can: there is one, of the same damping, direction and set, and
        it has not lost its seeds.
        """
        known = self.get(name)
        return known is not None and known.change(asked)

    def reserve(self, vertices: int) -> None:
        """Makes room for the reversed graph after a batch. Raises OutOfMemory."""
        graph = self.reversed_graph
        if graph is not None:
            graph.reserve(vertices)

    def turn(self, update: GraphUpdate) -> None:
        """Has the reversed graph follow a batch, before anything that walks it."""
        context = self._reversed_context()
        graph = None if context is None else self.reversed_graph
        if context is not None and graph is not None:
            context.turned = graph.follow(update)

    def perturb(self, update: GraphUpdate) -> None:
        """Makes every residual that of the graph after a batch, when all else has followed it."""
        super().perturb(update)
        context = self._reversed_context()
        if context is not None:
            context.turned = None

    def refresh(self) -> dict[str, float]:
        """Solves the views whose `refresh` says so, and renews the bounds of all. Returns what each
        took, in seconds.
        """
        seconds = dict[str, float]()
        for name, entry in self.items():
            began = perf_counter()
            entry.bring("batch")
            seconds[name] = perf_counter() - began
        return seconds

    @property
    def nbytes(self) -> int:
        """Bytes that iterates, published ranks and a reversed graph hold on the device."""
        graph = self.reversed_graph
        return super().nbytes + (0 if graph is None else graph.nbytes)
