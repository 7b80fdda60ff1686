"""The loops behind every strategy: push and dense sweeps for `residual`, sweeps for those that
touch every vertex, rounds of pulls for those that follow a frontier.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu.backends.base import Array, Frontier, Limits
from gpu.state import State
from gpu.strategies import Strategy, next_to
from gpu.sweeps import sweep_to_rest, sweep_to_target

_COLD = 0.5
"""An error bound above it says that the old ranks are no better than none."""

_FIRST_THRESHOLD = 1e3
"""θ at the start of a sparse phase, in units of the θ at which the target is met for certain."""

_EDGE_WEIGHT = 0.02
"""What an out-edge adds to the work of pushing a vertex, in that of a vertex without any."""

_FLOOR = 16.0
"""The floor of the first candidates in the same unit: no more than one vertex in 16 can be above it
when the target is met."""

_LOWER = 8.0
"""What the floor is divided by when nothing above it is left."""

_SWEPT = 0.8
"""What part of ‖r‖₁ a dense sweep takes away soon after a batch."""

_SPARSE_SWEEPS = 2.0
"""The most that a sparse phase may spend before a dense one takes over, in sweeps."""

_ROUND_SWEEPS = 0.7
"""The most that one work-list may cost, in sweeps."""

_FEW = 16
"""Fewer vertices than one in so many are worked on as a list, more as flags over all."""


@dataclass(frozen=True, slots=True)
class Solved:
    """What a solve did; its ranks and their residual are in the state. See gpu.types.Result."""

    iterations: int
    touched_vertices: int
    converged: bool


def solve(state: State, strategy: Strategy, affected: Array | None) -> Solved:
    """Brings ``state.values`` up to date with the graph, which has at least one vertex.

    affected  int32[k], the initially affected vertices, whose flags are set in the state's
              ``affected`` flags; None where the strategy does not start from any
    """
    if strategy.affected == "residual":
        return _solve_residual(state)
    if affected is None:
        return _solve_all(state, strategy)
    return _solve_affected(state, strategy, affected)


def _solve_residual(state: State) -> Solved:
    """Pushes until the bound meets the target: sparse while that is cheap, then dense."""
    options = state.options
    if state.stale:
        state.certify()
    else:
        state.refresh()
    state.residual.solve += 1
    rounds = vertices = 0
    if state.error_bound > _COLD:
        # pushing one vertex after the other would give closed classes a part in the residual
        state.start_anew()
    else:
        rounds, vertices = _push(state)
    swept = sweep_to_target(state, options.max_iterations - rounds)
    if swept.sweeps:
        vertices = state.graph.vertices
    return Solved(rounds + swept.sweeps, vertices, swept.converged)


def _push(state: State) -> tuple[int, int]:
    """The sparse phase. Returns its rounds and the number of vertices pushed."""
    graph, options, residual = state.graph, state.options, state.residual
    backend = graph.backend
    goal = options.target_error * (1.0 - options.damping) - state.uncertainty
    unit = options.target_error * (1.0 - options.damping) * state.total / graph.vertices
    threshold = _FIRST_THRESHOLD * unit
    budget = _SPARSE_SWEEPS * state.sweep_work
    rounds = vertices = 0
    while goal > 0.0 and state.l1 + abs(state.sum) > goal * state.total:
        if residual.floor == np.inf:
            # no more can be above ‖r‖₁ / room than there is room for
            backend.collect(residual, max(_FLOOR * unit, state.l1 / len(residual.candidates)))
            budget -= graph.vertices
        pushed = backend.push(
            graph,
            state.values,
            options.damping,
            residual,
            Limits(
                l1=state.l1,
                sum=state.sum,
                total=state.total,
                goal=goal,
                threshold=threshold,
                edge_weight=_EDGE_WEIGHT,
                round_edges=int(_ROUND_SWEEPS * state.sweep_work / backend.push_cost),
                edges=int(budget / backend.push_cost),
                rounds=options.max_iterations - rounds,
            ),
        )
        state.moved(pushed.change)
        rounds += pushed.rounds
        vertices += pushed.vertices
        threshold = pushed.threshold
        work = pushed.change.edges * backend.push_cost
        budget -= work
        if pushed.ended != "floor" or budget <= graph.vertices:
            break
        lower = residual.floor / _LOWER
        # at a lower floor the same work gains that much less: is it still more than a sweep's?
        gain, swept_gain = -pushed.change.l1 / _LOWER, _SWEPT * state.l1
        if lower < unit / _LOWER or gain * state.sweep_work < swept_gain * work:
            break
        budget -= graph.vertices
        backend.collect(residual, lower)
        if residual.floor == np.inf:
            break
    return rounds, vertices


def _solve_all(state: State, strategy: Strategy) -> Solved:
    """Sweeps over every vertex; the residual that they leave is the certificate."""
    if strategy.start == "uniform":
        state.start_anew()
    elif state.stale:
        state.certify()
    swept = sweep_to_rest(state, state.options.max_iterations)
    return Solved(swept.sweeps, state.graph.vertices, swept.converged)


def _solve_affected(state: State, strategy: Strategy, affected: Array) -> Solved:
    """Rounds over the affected vertices at a fixed β, since moving it would move every vertex; then
    the residual follows what has changed.
    """
    graph, options, backend = state.graph, state.options, state.graph.backend
    xp, values = backend.xp, state.values
    new_values = state.spare("new values")
    frontier = Frontier(
        state.spare("affected", np.int32),
        state.spare("spreading", np.uint8),
        options.prune_tolerance if strategy.prunes else -1.0,
        options.frontier_tolerance if strategy.expands else np.inf,
    )
    journal = _Journal(state)
    journal.add(affected)
    rows = backend.rows_of(affected, graph.incoming)
    contributions = None
    iterations, converged = 0, rows.count == 0
    while not converged and iterations < options.max_iterations:
        iterations += 1
        if contributions is None and rows.count * _FEW > graph.vertices:
            contributions = state.contributions()
        stepped = backend.step(
            graph, rows, values, contributions, state.base, options.damping, new_values, frontier
        )
        converged = stepped.largest_change <= options.tolerance * state.total
        if strategy.expands and not converged:
            spreading, staying = stepped.spreading, stepped.staying
            joining = next_to(graph, spreading, frontier.affected, frontier.spreading)
            journal.add(joining)
            count = len(staying) + len(joining)
            if count * _FEW > graph.vertices:
                rows = backend.compact(frontier.affected, graph.incoming)
            else:
                rows = backend.rows_of(xp.concatenate([staying, joining]), graph.incoming)
            converged = count == 0
    frontier.affected[rows.order] = 0
    return Solved(iterations, journal.close(), converged)


class _Journal:
    """The vertices that a solve touches and their values before it, so that r can follow."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._lists: list[Array] = []
        self._seen = state.spare("touched", np.uint8)
        self._before = state.spare("values before")

    def add(self, vertices: Array) -> None:
        new = vertices[self._seen[vertices] == 0]
        self._seen[new] = 1
        self._before[new] = self._state.values[new]
        self._lists.append(new)

    def close(self) -> int:
        """Brings r up to date; returns how many vertices were touched."""
        state, graph = self._state, self._state.graph
        touched = graph.backend.xp.concatenate(self._lists)
        self._seen[touched] = 0
        after = state.values[touched].astype(np.float64)
        state.follow(touched, after - self._before[touched])
        return len(touched)
