"""Solves from nothing, one strongly connected component after the other.

The equations of a component contain y of earlier components and its own, where the vertices are
ordered so that no edge leads back to an earlier component. So a vertex on no cycle is solved by one
step, and only components of several vertices need sweeps, over their own edges alone: PRPACK
(Gleich et al.) does the same. No error is carried from sweep to sweep through the whole graph.
Afterwards r is computed from y as after any solve, and proves the error.

This is worth its price where sweeps are slow and most edges are on no cycle: in package registries
and much of the web. What it costs is counted, so that the same graph is always solved in the same
way. Where the structure does not suit, finding that out is lost; so a sample of edges comes first
(most edges of roads, grids and friendships have an opposite one), and after a vain attempt the next
one is made when the graph has twice the edges.
"""

from __future__ import annotations

from math import log

import numpy as np

from gpu.operations.components import Components
from gpu.operations.sweeps import SweepResult
from gpu.pagerank.global_iterate import GlobalIterate
from gpu.pagerank.goals import Goal
from gpu.trace import TraceStep

_OBSERVED_SWEEPS = 3
"""Sweeps after which the remaining ones are predicted."""

_SLOW = 0.5
"""Sweeps that leave less of the bound are fast."""

_RECIPROCAL = 0.3
"""The part of edges with an opposite one above which most of a graph is one component."""

_SEQUENTIAL_COST = 3.0
"""What an edge costs that one core reads alone, in edges of a sweep by all cores."""

_FINDING_COST = 2.0
"""What an edge costs when components are found, in edges that are read to solve one of them."""

_COMPONENT_SWEEPS = 0.5
"""Sweeps inside a component, in sweeps over all that would remain: Gauss-Seidel takes half."""

_COMPONENT_EDGE = 1.5
"""What an edge costs inside a component, in edges of a sweep: float64 is read, not float32."""

_REMAINING_PART = 0.7
"""The part of the predicted sweeps that is counted: acceleration saves a third of most."""

_LEAST_SWEEPS = 24.0
"""Fewer remaining sweeps are not worth the attempt."""


class ComponentTrial:
    """Solves by components, at most once a solve, when sweeps turn out to be slow."""

    def __init__(self, iterate: GlobalIterate, goal: Goal) -> None:
        self._iterate, self._goal = iterate, goal
        self._excesses: list[float] = []
        graph = iterate.graph
        self._possible = (
            graph.backend.components is not None
            and iterate.dtype is np.float64
            and graph.directed
            and graph.arcs >= 2 * iterate.cyclic
        )

    def after_sweep(self, result: SweepResult, most_sweeps: int) -> int:
        """Solves by components if that is predicted to cost less than to continue. Returns the
        number of sweeps that this took, the residual included; 0 if nothing was done.
        """
        self._excesses.append(self._goal.excess(result))
        if not self._possible or len(self._excesses) < _OBSERVED_SWEEPS or most_sweeps < 2:
            return 0
        self._possible = False
        iterate, graph = self._iterate, self._iterate.graph
        remaining = self._remaining_sweeps()
        if remaining < _LEAST_SWEEPS or not graph.backend.components:
            return 0
        operations = graph.backend.components
        if operations.reciprocity(graph.view) > _RECIPROCAL:
            iterate.cyclic = graph.arcs
            return 0
        try:
            components = operations.find(graph.view)
            if not self._pays(components, remaining):
                iterate.cyclic = graph.arcs
                return 0
            return self._solve(components, most_sweeps - 1) + 1
        except MemoryError:
            return 0

    def _remaining_sweeps(self) -> float:
        """How many more sweeps are expected; 0 if they are fast."""
        left = self._excesses[-1] / self._excesses[-2]
        if left <= _SLOW:
            return 0.0
        left = min(left, self._iterate.options.damping)
        return _REMAINING_PART * log(max(self._excesses[-1], 1.0)) / -log(left)

    def _pays(self, components: Components, remaining: float) -> bool:
        graph = self._iterate.graph
        sequential = (1.0 + _FINDING_COST) * (graph.arcs + 4.0 * graph.vertices)
        sweeps = _COMPONENT_SWEEPS * remaining * _COMPONENT_EDGE * components.cyclic_edges
        cost = _SEQUENTIAL_COST * sequential + sweeps + 2.0 * self._iterate.sweep_cost
        return cost <= remaining * self._iterate.sweep_cost

    def _solve(self, components: Components, most_sweeps: int) -> int:
        iterate, graph = self._iterate, self._iterate.graph
        contributions = iterate.scratch("contributions", length=graph.columns)
        assert graph.backend.components is not None
        solved = graph.backend.components.solve(
            graph.view,
            components,
            iterate.values,
            contributions,
            iterate.rhs_scale,
            iterate.options.damping,
            *self._goal.component_limits,
            most_sweeps,
        )
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
        return solved.sweeps


def warm_up(iterate: GlobalIterate) -> None:
    """Compiles what a solve by components runs."""
    graph, operations = iterate.graph, iterate.graph.backend.components
    if operations is None or iterate.dtype is np.float32 or not graph.directed:
        return
    operations.reciprocity(graph.view)
    found = operations.find(graph.view)
    contributions = iterate.scratch("contributions", length=graph.columns)
    damping = iterate.options.damping
    common = graph.view, found, iterate.values, contributions, iterate.rhs_scale, damping
    operations.solve(*common, residual_goal=0.0, largest_step=0.0, most_sweeps=3)
    iterate.recompute_residual()
