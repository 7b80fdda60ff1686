"""The loops behind every strategy: push and relax for `residual`, pull for the published ones.

Mass balance. β° = (α·D(y) + (1-α)·Σy) / n, with D(y) = Σ of y over dangling vertices, is the β at
which the residual sums to zero; sweeping there is the classic normalised power iteration. It takes
one slow error out of the iteration, that of the scale of y. Never scale y by n/Σy instead: that
converges to wrong ranks where vertices dangle.

Where the graph has closed classes (sets of vertices that no edge leaves) each keeps an error that
falls by α a sweep and no faster, unless the residual has no part in it. From y = 1, β = 1-α it has
none; a shift of β by μ gives it one, -μ, which a sweep turns into -α·μ. So what all shifts together
have done is one number, `owed`, and adding it to β and to every r undoes it: that is how `_Balance`
leaves balanced sweeps where they do not pay.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu.backends.base import Array, Frontier, Limits, Mass
from gpu.graph import Graph
from gpu.state import State
from gpu.strategies import Strategy

_STALLED_SWEEPS = 8
"""Sweeps without progress after which a bound is taken to have met the limit of rounding."""

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

_SPARSE_SWEEPS = 2.0
"""The most that a sparse phase may spend before a dense one takes over, in sweeps."""

_ROUND_SWEEPS = 0.7
"""The most that one work-list may cost, in sweeps."""

_DRIFTED = 0.1
"""The part of a bound that may be drift before the residual is computed anew from y, in a sweep."""

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
        state.values[:] = 1.0
        state.base = 1.0 - options.damping
        state.certify()
    else:
        rounds, vertices = _push(state)
    sweeps = _relax(state, options.max_iterations - rounds)
    if sweeps:
        vertices = state.graph.vertices
    return Solved(rounds + sweeps, vertices, state.error_bound <= options.target_error)


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
        budget -= pushed.change.edges * backend.push_cost
        if pushed.ended != "floor" or budget <= graph.vertices:
            break
        lower = residual.floor / _LOWER
        if lower < unit / _LOWER:
            break
        budget -= graph.vertices
        backend.collect(residual, lower)
        if residual.floor == np.inf:
            break
    return rounds, vertices


class _Balance:
    """Whether dense sweeps are balanced: as long as that is not seen to be slower.

    owed  what shifts of β have done to the closed classes
    """

    def __init__(self, damping: float) -> None:
        self.on = True
        self.owed = 0.0
        self._damping = damping
        self._slow = 0.95 * damping
        self._seen: list[float] = []
        self._other = 0.0
        self._patience = 4

    def change(self, bound: float, shift: float) -> bool:
        """Takes note of a sweep. Whether to go on in the other way: this one was slow for long
        enough, and the other one is not known to be as slow.
        """
        self.owed = self._damping * self.owed + shift
        self._seen.append(bound)
        if len(self._seen) <= self._patience:
            return False
        ratio = (self._seen[-1] / self._seen[-4]) ** (1.0 / 3.0)
        if ratio < self._slow or (self._other and ratio < 0.995 * self._other):
            self._seen = self._seen[-4:]
            self._patience = max(self._patience, 8)
            return False
        if self._other:
            self._patience *= 2
        self._other = ratio
        self._seen = []
        self.on = not self.on
        return True


def _relax(state: State, most_sweeps: int) -> int:
    """The dense phase. Returns its sweeps."""
    graph, options = state.graph, state.options
    target = options.target_error
    if state.error_bound <= target or most_sweeps == 0:
        return 0
    contributions = state.spare("rounded contributions", np.float32)
    balance = _Balance(options.damping)
    balance.owed = state.shift(state.sum / graph.vertices)
    best, stalled, sweeps = np.inf, 0, 0
    while True:
        relaxed = graph.backend.relax(
            graph,
            state.values,
            state.residual.values,
            contributions,
            options.damping,
            balance.on,
        )
        sweeps += 1
        state.total += relaxed.total
        state.base -= relaxed.shift
        state.swept(relaxed.l1, relaxed.sum)
        bound = state.error_bound if balance.on else state.centred_bound()
        if bound > target and state.drift > _DRIFTED * bound and sweeps < most_sweeps:
            sweeps += 1
            state.certify()
            bound = state.error_bound if balance.on else state.centred_bound()
        progress = bound < best * (1.0 + options.damping) / 2.0
        best, stalled = (bound, 0) if progress else (best, stalled + 1)
        if bound <= target or stalled == _STALLED_SWEEPS or sweeps == most_sweeps:
            break
        if balance.change(bound, relaxed.shift):
            shift = state.sum / graph.vertices if balance.on else -balance.owed
            balance.owed += state.shift(shift)
            best, stalled = np.inf, 0
    if not balance.on:
        state.shift(state.sum / graph.vertices)
    state.drop_candidates()
    return sweeps


def _solve_all(state: State, strategy: Strategy) -> Solved:
    """Balanced sweeps over every vertex.

    Each sweep yields the next vector and the residual of the one it started from. So the sweep that
    finds the stop rule met is the last one's certificate: its own vector is not taken.
    """
    graph, options, backend = state.graph, state.options, state.graph.backend
    values, new_values = state.spare("values"), state.spare("new values")
    new_contributions = state.new_contributions()
    if strategy.start == "uniform":
        state.values[:] = 1.0
    values[:] = state.values
    contributions = state.contributions()
    dangling = values[graph.degree == 0]
    mass = Mass(*(float(part.sum(dtype=np.float64)) for part in (values, dangling)))
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
            state.residual.values,
        )
        state.computed(mass, base, sweep.residual_l1, sweep.residual_sum)
        converged = sweep.largest_change <= options.tolerance * mass.total
        bound = state.error_bound
        progress = bound < best * (1.0 + options.damping) / 2.0
        best, stalled = (bound, 0) if progress else (best, stalled + 1)
        if converged or stalled == _STALLED_SWEEPS or iteration == options.max_iterations:
            break
        values, new_values = new_values, values
        contributions, new_contributions = new_contributions, contributions
        mass = sweep.mass
    state.values[:] = values
    return Solved(iteration, graph.vertices, converged)


def _solve_affected(state: State, strategy: Strategy, affected: Array) -> Solved:
    """Rounds over the affected vertices at a fixed β, since moving it would move every vertex; then
    the residual follows what has changed.
    """
    graph, options, backend = state.graph, state.options, state.graph.backend
    xp, values = backend.xp, state.values
    new_values, new_contributions = state.spare("new values"), state.new_contributions()
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
        sweep = backend.pull(
            graph,
            rows,
            values,
            contributions,
            state.base,
            options.damping,
            new_values,
            new_contributions,
            None,
            frontier,
        )
        values[rows.order] = new_values[rows.order]
        if contributions is not None and new_contributions is not None:
            contributions[rows.order] = new_contributions[rows.order]
        converged = sweep.largest_change <= options.tolerance * state.total
        if strategy.expands and not converged:
            spreading = rows.order[frontier.spreading[rows.order] != 0]
            frontier.spreading[spreading] = 0
            staying = rows.order[frontier.affected[rows.order] != 0]
            joining = backend.expand(graph, spreading, frontier.affected)
            journal.add(joining)
            count = len(staying) + len(joining)
            if count * _FEW > graph.vertices:
                rows = backend.compact(frontier.affected, graph.incoming)
            else:
                rows = backend.rows_of(xp.concatenate([staying, joining]), graph.incoming)
            converged = count == 0
    frontier.affected[rows.order] = 0
    frontier.spreading[rows.order] = 0
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


def balanced_base(graph: Graph, mass: Mass, damping: float) -> float:
    """β°: the teleport term at which the residual of a vector with these sums sums to zero."""
    return (damping * mass.dangling + (1.0 - damping) * mass.total) / graph.vertices
