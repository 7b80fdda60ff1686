"""What a solve did, on request."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class TraceStep:
    """One step of a solve; None where a member does not apply.

    kind            ``iteration`` over affected vertices, ``sweep`` over all (also one that only
                    computes the residual, when rounding limits the bound), ``push``: rounds of
                    work-lists, traced together, or ``components``: a solve of one strongly
                    connected component after the other, and the residual afterwards
    rounds          1, the rounds of a push, or of components: the most sweeps over any, and 1
    vertices        recomputed; of a push, those that the solve pushes for the first time
    edges           edges read; an undirected one in each direction
    joined, pruned  vertices that became affected after it, and that it pruned
    largest_change  the largest relative change of a rank (published form); of a personalized
                    query the largest change of an entry of y
    threshold       θ at the end of a push
    error_bound     after it (dense sweeps, pushes and components)
    end             why a push ended, as liverank_gpu.operations.residual.PushResult says
    deflation       the direction of a personalized sweep: ``seeds`` or ``ranks``; None without
    mode            of a published personalized query: ``push``, ``pushopt`` or ``pull``. There each
                    step is an iteration, and `vertices` is the length of its work-list
    cost_difference Ψ before it, of such a query: pushing costs less where it is negative
    """

    kind: Literal["iteration", "sweep", "push", "components"]
    rounds: int
    vertices: int
    edges: int
    joined: int | None = None
    pruned: int | None = None
    largest_change: float | None = None
    threshold: float | None = None
    error_bound: float | None = None
    end: Literal["goal", "floor", "work", "rounds"] | None = None
    deflation: Literal["seeds", "ranks"] | None = None
    mode: Literal["push", "pushopt", "pull"] | None = None
    cost_difference: float | None = None


TRACED_STEPS = 1000
"""The most steps of a trace."""


@dataclass(frozen=True, slots=True)
class Trace:
    """What a solve did, step by step.

    affected        initially affected vertices; all of them for a strategy that starts from all,
                    the seeds of a personalized query
    pushes, sweeps  rounds of work-lists, and iterations and sweeps: together the iterations
    steps           the first TRACED_STEPS
    """

    affected: int
    pushes: int
    sweeps: int
    steps: tuple[TraceStep, ...]

    @classmethod
    def of(cls, affected: int, iterations: int, steps: list[TraceStep]) -> Trace:
        """steps: all that were pushes, and at least the first TRACED_STEPS of the others."""
        pushes = sum(step.rounds for step in steps if step.kind == "push")
        return cls(affected, pushes, iterations - pushes, tuple(steps[:TRACED_STEPS]))
