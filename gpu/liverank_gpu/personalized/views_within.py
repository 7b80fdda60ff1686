"""Views within a set: ranks by walks on the subgraph that it induces, kept fresh.

The subgraph is a graph of its own, made of the out-lists of the set (graph.reading), which no batch
changes, and the view is one of that graph. So it follows other seeds as any view does; but a batch
that changes an edge inside the set, or its vertices, leaves nothing proven: the subgraph is made
again, and the view solved on it from the ranks that it has, whatever its `refresh`. Any other batch
leaves its ranks and their bound as they are.

Of a graph in shards the first one has the subgraph, and tells the others the ranks of their own
vertices.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue, UnknownVertex
from liverank_gpu.graph.dynamic_graph import DynamicGraph, ReversedGraph
from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.graph.reading import induced_subgraph
from liverank_gpu.graph.vertices import NO_IDS
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.pagerank.places import GraphVertices
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.personalized.iterate import WorkspacePool
from liverank_gpu.personalized.query import QueryContext, no_deflation
from liverank_gpu.personalized.resolve import Moment, ResolvedQuery, ResolvedView
from liverank_gpu.personalized.views_of_graph import View, ViewsOfGraph, ViewSteps
from liverank_gpu.personalized.watched import Registration, Start


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
            raise self._lost
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
            self._lost = error
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
    """Whether a batch may have changed edges inside the set, whose vertices are still there."""
    graph, changes = context.graph, update.changes
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
    return context.vertices.highest(touched) > 0.0


@dataclass(slots=True)
class _ViewWithin(View):
    """A view within a set.

    subgraph  None after it ran out of memory
    inner     the view as one of the subgraph, in the first process
    told      the ranks of `inner` that were published
    stale     whether the subgraph is another since it was made
    """

    subgraph: Subgraph | None = None
    inner: ViewsOfGraph | None = None
    told: Ranks | None = None
    stale: bool = False

    def forget(self) -> None:
        self.subgraph = self.inner = self.told = None

    def take(self, registration: RegistrationWithin) -> None:
        """Has what a first solve came to, and its subgraph."""
        self.subgraph, self.stale = registration.subgraph, False
        if registration.inner is not None:
            self.inner = ViewsOfGraph(registration.inner.context)
            self.inner.keep(registration.inner)


class ViewsWithin(ViewsOfGraph):
    """The views of one graph within sets, by name."""

    _entries: dict[str, _ViewWithin]  # type: ignore[assignment]  # only these are kept

    def subgraph(self, name: str, asked: ResolvedView) -> Subgraph | None:
        """That of a view of this name, if the one that is asked for walks it too."""
        entry = self._entries.get(name)
        if entry is None or entry.stale or not _walks_as(entry.asked, asked):
            return None
        return entry.subgraph

    def keep(self, registration: Registration) -> None:
        assert isinstance(registration, RegistrationWithin)
        entry = _ViewWithin(registration.asked, None, None)
        entry.take(registration)
        self._tell(registration.name, entry, None)
        self._entries[registration.name] = entry

    def change(self, name: str, asked: ResolvedView) -> bool:
        entry = self._entries[name]
        if entry.lost or not (_walks_as(entry.asked, asked) and asked.goes_on_from(entry.asked)):
            return False
        assert isinstance(entry.asked, ResolvedView)
        asked = replace(asked, within=entry.asked.within)
        follows = entry.stale or entry.inner is None or entry.inner.change(name, asked.induced())
        if self._context.vertices.sums([not follows]) != [0.0]:
            return False
        entry.asked, entry.lost_seeds = asked, False
        return True

    def perturb(self, update: GraphUpdate) -> None:
        super().perturb(update)
        for entry in self._entries.values():
            asked = entry.asked
            assert isinstance(asked, ResolvedView)
            if entry.lost:
                entry.forget()
            elif entry.subgraph is not None and not entry.stale:
                is_other = asked.within is not entry.subgraph.within
                entry.stale = is_other or _touches(self._context, asked, update)

    def _bring(self, name: str, entry: View, at: Moment) -> None:
        assert isinstance(entry, _ViewWithin)
        if entry.lost:
            entry.ranks = None
            return
        try:
            if entry.stale or entry.subgraph is None:
                self._make(name, entry)
            self._tell(name, entry, at)
        except MemoryError as error:
            entry.forget()
            entry.ranks = None
            self._give_up(entry, error)

    def _make(self, name: str, entry: _ViewWithin) -> None:
        asked, start = entry.asked, None
        assert isinstance(asked, ResolvedView)
        if entry.inner is not None and entry.subgraph is not None:
            found, within = entry.inner.start(name, asked), entry.subgraph.within
            if found is not None:
                start = np.zeros(within[-1] + 1), found[1]
                start[0][within] = found[0]
        entry.forget()  # which makes room for the next one
        registration = RegistrationWithin(self._context, name, asked, start)
        try:
            while not registration.done:
                registration.step()
            entry.take(registration)
        finally:
            registration.close()

    def _tell(self, name: str, entry: _ViewWithin, at: Moment) -> None:
        """Brings the view of the subgraph up to date, and publishes its ranks as those of all
        vertices.
        """
        assert entry.subgraph is not None
        graph, vertices, within = self._context.graph, self._context.vertices, entry.subgraph.within
        ranks = None if entry.inner is None else entry.inner.bring(name, at)
        told, bound = True, 0.0
        if ranks is not None:
            told, bound = ranks.is_copy_of(entry.told), ranks.error_bound
        found, others, bound = vertices.sums([ranks is not None, not told, bound])
        limit, free = entry.ids
        if not found:
            entry.ranks = None
        elif others or entry.ranks is None or limit != graph.ids.limit or free is not graph.free:
            y, mass, rhs_scale = (np.empty(0), 0.0, 0.0) if ranks is None else ranks.copied()
            y = vertices.first(np.append(y, [mass, rhs_scale]))
            values, (mass, rhs_scale) = vertices.spread(within, y[:-2]), y[-2:].tolist()
            ranked = (graph.backend, graph.permutation, values, mass, bound, graph.free)
            entry.ranks = Ranks(*ranked, None, rhs_scale)
            entry.told, entry.ids = ranks, (graph.ids.limit, graph.free)
        elif bound != entry.ranks.error_bound:
            entry.ranks = entry.ranks.bounded(bound)

    def steps_to(self, name: str, vertex: int, limit: int) -> ViewSteps:
        """None lead to a vertex that is not in the set. Only the first process knows."""
        entry = self._entries[name]
        assert entry.subgraph is not None
        assert entry.inner is not None
        within = entry.subgraph.within
        place = int(np.searchsorted(within, vertex))
        if place == len(within) or within[place] != vertex:
            return ViewSteps((NO_IDS, np.empty(0)), entry.asked.options.damping, 0.0)
        try:
            found = entry.inner.steps_to(name, place, limit)
        except InvalidValue as error:
            raise InvalidValue(error.field, vertex, error.requirement) from None
        sources, steps = found.steps
        return found._replace(steps=(within[sources], steps))

    @property
    def nbytes(self) -> int:
        """Bytes of published ranks on the device, of the subgraphs, and of what is solved there."""
        held = super().nbytes
        for entry in self._entries.values():
            if entry.inner is not None and entry.subgraph and entry.subgraph.context is not None:
                context = entry.subgraph.context
                held += entry.inner.nbytes + context.pool.nbytes + _bytes_of(context.graph)
        return held


def _walks_as(known: ResolvedQuery, asked: ResolvedView) -> bool:
    """Whether a view walks the subgraph of a known one."""
    assert isinstance(known, ResolvedView)
    if known.within is None or asked.within is None or known.reversed != asked.reversed:
        return False
    return np.array_equal(known.within, asked.within)


def _bytes_of(graph: RankedGraph) -> int:
    if isinstance(graph, ReversedGraph):
        return graph.nbytes + _bytes_of(graph.graph)
    assert isinstance(graph, DynamicGraph)
    return sum(graph.memory().values())
