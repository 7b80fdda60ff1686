"""The one loop behind every strategy, and the certificate of every result.

The engine solves ``y = αP̄ᵀy + β·1`` for any β > 0; the ranks are y / Σy. Neither a dangling vertex
nor a new one couples all others then: both only change the scale, which drops out.

The certificate. With the β that makes the residual ``r = β·1 + αP̄ᵀy - y`` sum to zero,

    β° = (α·D(y) + (1-α)·Σy) / n,       D(y) = Σ of y over dangling vertices,

r/Σy is the residual of the Google matrix, which contracts vectors of sum zero by α in L1; so the L1
error of the ranks is at most ‖r‖₁ / ((1-α)·Σy). Sweeping at β° is also the classic normalised power
iteration ("mass balance"): it takes the slowest error, the scale of y, out of the iteration. Never
scale y by n/Σy instead: that converges to wrong ranks where vertices dangle.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu.backends.base import Array, Frontier, Mass, Sweep
from gpu.graph import Graph
from gpu.strategies import Strategy
from gpu.types import Options

_STALLED_SWEEPS = 8
"""Sweeps without progress after which a bound is taken to have met the limit of rounding."""


class State:
    """The unnormalised ranks of a graph, kept from solve to solve.

    values  float64[n], y
    base    β: what a new vertex starts from
    """

    def __init__(self, graph: Graph, options: Options) -> None:
        self.graph = graph
        self.options = options
        self.values: Array = graph.backend.xp.zeros(0)
        self.base = 1.0 - options.damping
        self._spare: tuple[Array, ...] = ()

    def grown(self) -> Array:
        """float64[n of the graph]: y with its new vertices at the value of an isolated one.

        That is their exact value until an edge touches them, and no other vertex moves.
        """
        xp = self.graph.backend.xp
        values = xp.empty(self.graph.vertices)
        known = len(self.values)
        values[:known] = self.values
        loops = self.graph.dangling == "self-loop"
        values[known:] = self.base / (1.0 - self.options.damping) if loops else self.base
        return values

    def spare(self) -> tuple[Array, Array, Array]:
        """Three float64[n] to compute in: contributions, new values, new contributions."""
        xp, vertices = self.graph.backend.xp, self.graph.vertices
        if not self._spare or len(self._spare[0]) != vertices:
            self._spare = tuple(xp.empty(vertices) for _ in range(3))
        first, second, third = self._spare
        return first, second, third

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes) + sum(int(array.nbytes) for array in self._spare)


@dataclass(frozen=True, slots=True)
class Solved:
    """What a solve leaves behind, beside the state's new values. See gpu.types.Result."""

    iterations: int
    touched_vertices: int
    error_bound: float
    converged: bool
    mass: Mass


def solve(state: State, strategy: Strategy, affected: Array | None) -> Solved:
    """Brings ``state.values`` up to date with the graph, which has at least one vertex.

    affected  uint8[n], the initially affected vertices; None where the strategy recomputes all
    """
    if affected is None:
        return _solve_all(state, strategy)
    return _solve_affected(state, strategy, affected)


def _solve_all(state: State, strategy: Strategy) -> Solved:
    """Balanced sweeps over every vertex.

    Each sweep yields the next vector and the certificate of the one it started from. So the sweep
    that finds the stop rule met is the last one's certificate: its own vector is not taken.
    """
    graph, options, backend = state.graph, state.options, state.graph.backend
    if strategy.start == "uniform":
        state.values = backend.xp.ones(graph.vertices)
    values = state.values
    contributions, new_values, new_contributions = state.spare()
    _contribute(graph, values, contributions)
    mass = _mass(graph, values)
    best, stalled = np.inf, 0
    for iteration in range(1, options.max_iterations + 1):
        base = balanced_base(graph, mass, options.damping)
        sweep = backend.pull(
            graph,
            graph.incoming.rows,
            values,
            contributions,
            base,
            options.damping,
            new_values,
            new_contributions,
        )
        bound = error_bound(graph, sweep, mass, options.damping)
        if strategy.stop == "error_bound":
            converged = bound <= options.target_error
        else:
            converged = sweep.largest_change <= options.tolerance * mass.total
        progress = bound < best * (1.0 + options.damping) / 2.0
        best, stalled = (bound, 0) if progress else (best, stalled + 1)
        if converged or stalled == _STALLED_SWEEPS or iteration == options.max_iterations:
            break
        values, new_values = new_values, values
        contributions, new_contributions = new_contributions, contributions
        mass = sweep.mass
    state.values, state.base = values, base
    state._spare = (contributions, new_values, new_contributions)
    return Solved(iteration, graph.vertices, min(2.0, bound), converged, mass)


def _solve_affected(state: State, strategy: Strategy, affected: Array) -> Solved:
    """Rounds over the affected vertices at a fixed β, then one sweep over all for the certificate.

    β stays, because moving it would move every vertex. The certificate's sweep is not counted in
    `iterations`.
    """
    graph, options, backend = state.graph, state.options, state.graph.backend
    xp = backend.xp
    values = state.values
    contributions, new_values, new_contributions = state.spare()
    _contribute(graph, values, contributions)
    mass = _mass(graph, values)
    touched = affected.copy()
    frontier = Frontier(
        affected,
        xp.zeros(graph.vertices, np.uint8),
        options.prune_tolerance if strategy.prunes else -1.0,
        options.frontier_tolerance if strategy.expands else np.inf,
    )
    rows = backend.compact(affected, graph.incoming)
    iterations, converged = 0, rows.count == 0
    while not converged and iterations < options.max_iterations:
        iterations += 1
        sweep = backend.pull(
            graph,
            rows,
            values,
            contributions,
            state.base,
            options.damping,
            new_values,
            new_contributions,
            frontier,
        )
        values[rows.order] = new_values[rows.order]
        contributions[rows.order] = new_contributions[rows.order]
        converged = sweep.largest_change <= options.tolerance * mass.total
        if strategy.expands and not converged:
            spreading = backend.compact(frontier.spreading, graph.outgoing)
            backend.expand(graph, spreading, affected)
            frontier.spreading[spreading.order] = 0
            rows = backend.compact(affected, graph.incoming)
            touched[rows.order] = 1
            converged = rows.count == 0
    mass, bound = certify(state)
    touched_vertices = int(touched.sum(dtype=np.int64))
    return Solved(iterations, touched_vertices, min(2.0, bound), converged, mass)


def certify(state: State) -> tuple[Mass, float]:
    """The mass and the error bound of ``state.values`` as they are: one sweep over all, whose
    vector is dropped.
    """
    graph, damping = state.graph, state.options.damping
    contributions, new_values, new_contributions = state.spare()
    _contribute(graph, state.values, contributions)
    mass = _mass(graph, state.values)
    sweep = graph.backend.pull(
        graph,
        graph.incoming.rows,
        state.values,
        contributions,
        balanced_base(graph, mass, damping),
        damping,
        new_values,
        new_contributions,
    )
    return mass, error_bound(graph, sweep, mass, damping)


def balanced_base(graph: Graph, mass: Mass, damping: float) -> float:
    """β°: the teleport term at which the residual of a vector with these sums sums to zero."""
    return (damping * mass.dangling + (1.0 - damping) * mass.total) / graph.vertices


def error_bound(graph: Graph, sweep: Sweep, mass: Mass, damping: float) -> float:
    """Upper bound on the L1 error of the ranks that the sweep started from, whose sums are `mass`.

    It is not cut at 2, the largest distance there is, so that progress shows above it too.

    Σr is zero at β° up to rounding; what is left of it is added, since ‖r - mean(r)‖₁ ≤ ‖r‖₁ +
    |Σr|. The last term bounds the rounding of the residual itself: 6(L+4)·2⁻⁵³/(1-α), L the depth
    of the longest row sum.
    """
    depth = graph.backend.sum_depth(graph.incoming.longest)
    rounding = 6.0 * (depth + 4.0) * 2.0**-53
    seen = (sweep.residual_l1 + abs(sweep.residual_sum)) / mass.total
    return (seen + rounding) / (1.0 - damping)


def _contribute(graph: Graph, values: Array, contributions: Array) -> None:
    """contributions[v] = y[v]/d(v), and 0 where v dangles."""
    xp = graph.backend.xp
    xp.divide(values, xp.maximum(graph.degree, 1), out=contributions)
    contributions[graph.degree == 0] = 0.0


def _mass(graph: Graph, values: Array) -> Mass:
    dangling = values[graph.degree == 0].sum()
    return Mass(float(values.sum()), float(dangling))
