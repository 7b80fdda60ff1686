"""The sparse phase of the residual strategy: push while that is cheaper than sweeping."""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.residual import PushResult, SelectCandidates
from liverank_gpu.pagerank.iterate import Iterate, candidate_room
from liverank_gpu.types import TraceStep

_FIRST_THRESHOLD = 1e3
"""θ at the start, in units of the θ at which the target is certainly met."""

_FIRST_FLOOR = 16.0
"""The floor of the first candidates in the same unit: at most one vertex in 16 can be above it when
the target is met.
"""

_FLOOR_DIVISOR = 8.0
"""What the floor is divided by when nothing above it is left."""

_LEFT_BY_SWEEPS = 0.2
"""What a dense sweep leaves of ‖r‖₁ soon after a batch, where it is not known."""

_SPARSE_SWEEPS = 2.0
"""The most that the sparse phase may spend before sweeps take over, in sweeps."""

_ROUND_SWEEPS = 0.7
"""The most that one work-list may cost, in sweeps."""


def push_to_target(iterate: Iterate, target_error: float) -> tuple[int, int]:
    """Pushes until the error bound is at most `target_error` or sweeping is cheaper.

    Returns the rounds of work-lists and the number of distinct vertices pushed.
    """
    graph, options, residual = iterate.graph, iterate.options, iterate.workspace.residual
    certificate, costs = iterate.certificate, graph.backend.costs
    goal = certificate.residual_goal(target_error)
    unit = _unit(iterate, target_error)
    threshold, sweep_cost = _FIRST_THRESHOLD * unit, iterate.sweep_cost
    budget = _SPARSE_SWEEPS * sweep_cost
    round_edges = int(_ROUND_SWEEPS * sweep_cost / costs.pushed_edge)
    rounds = vertices = 0
    while goal > 0.0 and _remaining(iterate) > goal * certificate.mass:
        if residual.floor == np.inf:
            select_candidates(iterate, target_error)
            budget -= graph.ids.limit
        pushed = iterate.push(
            goal,
            threshold,
            round_edges,
            int(budget / costs.pushed_edge),
            options.max_iterations - rounds,
        )
        if iterate.trace is not None:
            iterate.trace.append(push_step(pushed, iterate.error_bound))
        rounds += pushed.rounds
        vertices += pushed.vertices
        threshold = pushed.threshold
        cost = costs.of_push(pushed)
        budget -= cost
        if pushed.end != "floor" or budget <= graph.ids.limit:
            break
        lower = residual.floor / _FLOOR_DIVISOR
        # at a lower floor the same work gains that much less: is it still more than a sweep's gain?
        gain = -pushed.delta.residual_l1 / _FLOOR_DIVISOR
        sweep_gain = (1.0 - (iterate.left_by_sweeps or _LEFT_BY_SWEEPS)) * certificate.residual_l1
        if lower < unit / _FLOOR_DIVISOR or gain * sweep_cost < sweep_gain * cost:
            break
        budget -= graph.ids.limit
        graph.backend.run(SelectCandidates(residual, lower))
        if residual.floor == np.inf:
            break
    return rounds, vertices


def push_step(pushed: PushResult, error_bound: float) -> TraceStep:
    """A call of a push as a step of a trace."""
    counts, theta = (pushed.rounds, pushed.vertices, pushed.delta.additions), pushed.threshold
    return TraceStep("push", *counts, threshold=theta, error_bound=error_bound, end=pushed.end)


def select_candidates(iterate: Iterate, target_error: float) -> None:
    """Lists what pushes may begin with: a pass over the vertices."""
    residual, backend = iterate.workspace.residual, iterate.graph.backend
    # at most `room` entries can be above ‖r‖₁ / room; lists of shards share that room
    room = max(len(residual.candidates), candidate_room(iterate.graph.ids.count, backend.sizes))
    floor = iterate.certificate.residual_l1 / room
    floor = max(_FIRST_FLOOR * _unit(iterate, target_error), floor)
    backend.run(SelectCandidates(residual, floor))


def _unit(iterate: Iterate, target_error: float) -> float:
    """θ at which the target is certainly met."""
    scale = target_error * (1.0 - iterate.options.damping)
    return float(scale * iterate.certificate.mass / iterate.graph.ids.count)


def _remaining(iterate: Iterate) -> float:
    certificate = iterate.certificate
    return float(certificate.residual_l1 + abs(certificate.residual_sum))
