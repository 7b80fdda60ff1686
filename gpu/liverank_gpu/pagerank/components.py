"""Solves one strongly connected component after the other.

The equations of a component contain y of earlier components and its own, where the vertices are
ordered so that no edge leads back to an earlier component. So a vertex on no cycle is solved by one
step, and only components of several vertices need sweeps, over their own edges alone: PRPACK
(Gleich et al.) does the same. No error is carried from sweep to sweep through the whole graph.
Afterwards r is computed from y as after any solve, and proves the error.

This is worth its price where most edges are on no cycle, in package registries and citations: a
solve from nothing begins with it. Elsewhere it takes over once sweeps have turned out so slow that
those that remain would cost more, as between the pages of web sites. What it costs is counted, so
that the same graph is always solved in the same way. A search that finds too many cyclic edges is
lost time; so a sample of edges comes first (most edges of roads, grids and friendships have an
opposite one), and after such a search the next one follows when the graph has twice the edges.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import log

from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.operations.analysis import Components, SolveComponents
from liverank_gpu.operations.sweeps import GAIN_SWEEPS, SweepResult
from liverank_gpu.pagerank.global_iterate import GlobalIterate, Goal
from liverank_gpu.types import TraceStep

_REDUCTION = 0.5
"""What sweeps leave of the bound at best where a guess from in-degrees was no use."""

_RECIPROCAL = 0.4
"""The part of edges with an opposite one above which most of a graph is one component."""

_LEAST_EDGES = 1 << 14
"""Sweeps over fewer edges are not given up: all of them take less than a millisecond."""

_ACYCLIC = 0.5
"""The largest part of edges that may be on cycles before components are looked for, if no sweep has
shown that sweeps are slow.
"""

_LEAST_SWEEPS = 3
"""Sweeps, after the first one, whose gain tells how many remain."""

_SEQUENTIAL_COST = 3.0
"""What an edge costs that one core reads alone, in edges of a sweep by all cores."""

_VERTEX_COST = 4.0
"""What a vertex costs beside its edges when components are found and solved."""

_COMPONENT_SWEEPS = 0.4
"""Sweeps inside a component, in sweeps over all that would remain: Gauss-Seidel takes half, and the
smaller components less.
"""

_COMPONENT_EDGE = 1.2
"""What an edge costs inside a component, in edges of a sweep: float64 is read, not float32."""


class ComponentSolver:
    """Solves by components where that is predicted to cost less than sweeps."""

    def __init__(self, iterate: GlobalIterate, goal: Goal) -> None:
        self._iterate, self._goal = iterate, goal
        self._graph = graph = iterate.graph
        suits = iterate.options.directed and graph.arcs >= 2 * iterate.cyclic
        self._operations = graph.backend.components if suits else None

    def solve(self, most_sweeps: int) -> int:
        """Solves from equal ranks. Returns the number of sweeps that this took, the residual
        included; 0 if nothing was done.
        """
        iterate = self._iterate
        if self._operations is None or self._most_cyclic_edges > _ACYCLIC * self._graph.arcs:
            return 0
        remaining = log(max(self._goal.first_excess, 1.0)) / -log(_REDUCTION)
        components = self._found(remaining) if most_sweeps > 1 else None
        if components is None:
            return 0
        iterate.rhs_scale = 1.0 - iterate.options.damping
        iterate.values[:] = 1.0
        return self._solve(components, most_sweeps)

    def take_over(self, bounds: Sequence[float], result: SweepResult, most_sweeps: int) -> int:
        """Solves from y as it is, if sweeps are so slow that this is predicted to cost less than
        those that remain. Returns as `solve`.

        bounds  after the sweeps of this solve, of which the last one left `result`
        """
        if self._operations is None or self._graph.arcs < _LEAST_EDGES or most_sweeps < 2:
            return 0
        swept = min(len(bounds) - 1, GAIN_SWEEPS)
        if swept < _LEAST_SWEEPS:
            return 0
        # no kind of sweeps is slower for long
        least = -log(self._iterate.options.damping)
        gain = max(log(bounds[-1 - swept] / bounds[-1]) / swept, least)
        components = self._found(log(max(self._goal.excess(result), 1.0)) / gain)
        return 0 if components is None else self._solve(components, most_sweeps)

    def _found(self, remaining: float) -> Components | None:
        """The components, if a solve by them costs less than this many sweeps."""
        operations, graph = self._operations, self._graph
        if (
            operations is None
            or not self._pays(0.0, remaining)
            or not self._pays(self._most_cyclic_edges, remaining)
        ):
            return None
        try:
            if operations.reciprocity(graph.whole) <= _RECIPROCAL:
                components = operations.find(graph.whole)
                if self._pays(components.cyclic_edges, remaining):
                    return components
            self._iterate.cyclic = graph.arcs
        except MemoryError:
            pass
        self._operations = None
        return None

    @cached_property
    def _most_cyclic_edges(self) -> float:
        return _most_cyclic_edges(self._graph)

    def _pays(self, cyclic_edges: float, remaining: float) -> bool:
        graph, sweep = self._graph, self._iterate.sweep_cost
        # two passes on one core: to find the components, and to solve them
        sequential = 2.0 * _SEQUENTIAL_COST * (graph.arcs + _VERTEX_COST * graph.vertices)
        swept = _COMPONENT_SWEEPS * remaining * _COMPONENT_EDGE * cyclic_edges
        return sequential + swept + 2.0 * sweep <= remaining * sweep

    def _solve(self, components: Components, most_sweeps: int) -> int:
        iterate, graph = self._iterate, self._graph
        # once a solve
        self._operations = None
        contributions = iterate.scratch("contributions", length=graph.columns)
        try:
            solve = SolveComponents(
                graph.whole,
                components,
                iterate.values,
                contributions,
                iterate.rhs_scale,
                iterate.options.damping,
                *self._goal.component_limits,
                most_sweeps - 1,
            )
            solved = graph.backend.run(solve)
        except MemoryError:
            return 0
        iterate.recompute_residual()
        if iterate.trace is not None:
            step = TraceStep(
                "components",
                solved.sweeps + 1,
                graph.ids.count,
                solved.edges + graph.arcs,
                error_bound=iterate.error_bound,
            )
            iterate.trace.append(step)
        return solved.sweeps + 1


def _most_cyclic_edges(graph: RankedGraph) -> float:
    """At most as many edges are on cycles: edges from or to a vertex that has no others are not.
    Those that are both count twice, so there are about as many, or more.
    """
    incoming, outgoing = graph.incoming.csr.row_lengths, graph.outgoing.csr.row_lengths
    acyclic = graph.total(outgoing[incoming == 0]) + graph.total(incoming[outgoing == 0])
    return max(0.0, graph.arcs - acyclic)
