"""The views of one graph: those that walk along its edges, against them, and within sets.

A reversed view is a view of the graph with its directions in each other's place
(liverank_gpu.graph.dynamic_graph.ReversedGraph), which follows the batches as the reversed graph
sees them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from weakref import ref

from liverank_gpu.graph.dynamic_graph import ReversedGraph
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.personalized.iterate import Seeds
from liverank_gpu.personalized.query import QueryContext, no_deflation
from liverank_gpu.personalized.resolve import Moment, ResolvedView
from liverank_gpu.personalized.views_of_graph import ViewsOfGraph, ViewSteps
from liverank_gpu.personalized.views_within import RegistrationWithin, ViewsWithin
from liverank_gpu.personalized.watched import Registration, Start


class Views:
    """The views of one graph, by name: those that walk along its edges, those that walk against
    them, and those within sets.
    """

    def __init__(self, context: QueryContext) -> None:
        self._context = context
        self._forward = ViewsOfGraph(context)
        self._reversed: ViewsOfGraph | None = None
        self._within = ViewsWithin(context)
        # known as long as it has a view, or the first solve of one
        self._reversed_context: Callable[[], QueryContext | None] | None = None

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
            self._reversed_context = ref(context)
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
        return None if self._reversed_context is None else self._reversed_context()

    def register(self, name: str, asked: ResolvedView, start: Start | None) -> Registration:
        """Begins a view. start: see Engine.put_view. Raises OutOfMemory."""
        if asked.within is None:
            return Registration(self.context(asked), name, asked, start)
        subgraph = self._within.subgraph(name, asked)
        if subgraph is not None:
            asked = replace(asked, within=subgraph.within)
        return RegistrationWithin(self._context, name, asked, start, subgraph)

    def start(self, name: str, asked: ResolvedView) -> Start | None:
        """See ViewsOfGraph.start."""
        return self._of(name).start(name, asked)

    def _of(self, name: str) -> ViewsOfGraph:
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
            self._reversed = self._reversed or ViewsOfGraph(registration.context)
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
        """See ViewsOfGraph.change. A view of another direction cannot follow."""
        return self._of(name).change(name, asked)

    def seeds(self, name: str) -> Seeds | None:
        """Those that a view is to have, if there is one of this name."""
        return self._of(name).seeds(name)

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
        """See ViewsOfGraph.bring."""
        return self._of(name).bring(name, at)

    def ranks(self, name: str, *, solve: bool = True) -> Ranks:
        """See ViewsOfGraph.ranks."""
        return self._of(name).ranks(name, solve=solve)

    @property
    def nbytes(self) -> int:
        """Bytes that iterates, published ranks and a reversed graph hold on the device."""
        graph = self.reversed_graph
        held = self._forward.nbytes + self._within.nbytes
        held += self._reversed.nbytes if self._reversed else 0
        return held + (0 if graph is None else graph.nbytes)
