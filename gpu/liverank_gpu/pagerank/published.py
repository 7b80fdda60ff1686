"""The published form of the strategies (Sahu, algorithms 1 and 2): power iteration.

Every vertex, or every affected one, is recomputed in each iteration from the ranks of the one
before, at a fixed β: no correction of the mean, no acceleration, float64 contributions. Iteration
ends when no rank moved by more than the tolerance (L∞). Only dynamic-frontier-prune solves for
loops (equation 2). The paper has no dangling vertices: under ``uniform``, strategies over all
vertices add their rank to β in each iteration (the classic power iteration), and those over an
affected set keep the β of the solve before, since another one would change every vertex.

The residual is not used, and computed afterwards for the certificate.
"""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.published import IterationTrace, Marks, Rule
from liverank_gpu.pagerank import gate
from liverank_gpu.pagerank.frontier import (
    TouchedVertices,
    iterate_published,
    mark_states,
    steps_of,
)
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.strategies import Solved, Strategy
from liverank_gpu.types import Trace


class PublishedSolver:
    """One solve: `mark`, then `solve`, then `certify`, each timed as a stage of its own."""

    def __init__(self, iterate: GlobalIterate, strategy: Strategy) -> None:
        self._iterate, self._strategy = iterate, strategy
        self._traced = iterate.trace is not None
        self._marks: Marks | None = None
        self._affected = iterate.graph.ids.limit
        self._steps: IterationTrace | None = None

    def mark(self, touched: TouchedVertices) -> None:
        """Marks the initially affected vertices (algorithm 5)."""
        if self._strategy.affected == "all":
            return
        self._marks = marks = mark_states(self._iterate, self._strategy, touched)
        if self._traced:
            self._affected = self._marked(marks)

    def solve(self) -> Solved:
        """Iterates until the stop rule is met."""
        iterate, graph, strategy = self._iterate, self._iterate.graph, self._strategy
        options, marks = iterate.options, self._marks
        # y is about to change and r does not follow
        iterate.invalidate()
        iterate.passed = False
        mass = float(iterate.certificate.mass)
        if strategy.start == "uniform":
            iterate.values.fill(1.0)
            iterate.rhs_scale, mass = 1.0 - options.damping, float(graph.ids.limit)
        classic = marks is None and not graph.fixed_loops
        rule = Rule(
            damping=options.damping,
            closed_form=strategy.prunes,
            dangling_mass=mass if classic else 0.0,
            tolerance=options.tolerance * mass,
            frontier_tolerance=options.frontier_tolerance if strategy.expands else np.inf,
            prune_tolerance=options.prune_tolerance if strategy.prunes else -1.0,
            max_iterations=options.max_iterations,
        )
        result = iterate_published(iterate, strategy, marks, rule)
        iterate.rhs_scale, self._steps, iterate.solved = result.rhs_scale, result.trace, True
        touched = graph.ids.limit if marks is None else self._marked(marks)
        return Solved(result.iterations, touched, result.converged)

    def _marked(self, marks: Marks) -> int:
        """Vertices that are affected, or were."""
        return int(self._iterate.graph.total(marks.states != 0))

    def certify(self, solved: Solved) -> tuple[Solved, float]:
        """Computes the residual, and returns the bound that it proves, without changing y or β if
        the ranks can be published: see gate.passed.
        """
        self._iterate.recompute_residual()
        return gate.passed(self._iterate, solved, self._iterate.mean_corrected_bound(np.inf))

    def trace(self, solved: Solved) -> Trace | None:
        """What was done, if that is traced."""
        if self._steps is None:
            return None
        return Trace.of(self._affected, solved.iterations, steps_of(self._steps))
