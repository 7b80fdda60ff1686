"""The iterations of the published strategies, of global and of personalized ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import GraphView, Operation, Rows, Run
from liverank_gpu.operations.device import Array
from liverank_gpu.types import TRACED_STEPS

# ---- the iterations of the published strategies (Sahu, algorithms 2, 3 and 5) ----
#
# Synchronous pull with float64 contributions. Sums have a fixed shape, so the same input gives the
# same bits.

UNAFFECTED, AFFECTED, PRUNED = range(3)
"""States of a vertex. A pruned one was affected, and can be again."""


class Marks(NamedTuple):
    """The affected set: δV and δN of the paper.

    states     uint8[n]: UNAFFECTED, AFFECTED or PRUNED
    expanding  uint8[n], 1 where the out-neighbours are to become affected
    """

    states: Array
    expanding: Array


@dataclass(frozen=True, slots=True)
class Rule:
    """How `IterateRanks` computes ranks and when it stops.

    closed_form         a loop is solved for (equation 2) instead of iterated (equation 1)
    dangling_mass       Σy if β is ((1-α)·Σy + α·Σy over dangling vertices) / n in each iteration,
                        which keeps Σy; 0 if β is fixed. Only if every vertex is recomputed
    tolerance           stop after an iteration with max |y' - y| at most this
    frontier_tolerance  τ_f; infinite if the affected set does not grow
    prune_tolerance     τ_p; negative if it does not shrink
    max_iterations      the most iterations
    most_edges          end, not converged, once the affected vertices have more in-edges than
                        this, or are too many for a list where the backend keeps one; None: never.
                        The first iteration may run before the test
    """

    damping: float
    closed_form: bool
    dangling_mass: float
    tolerance: float
    frontier_tolerance: float
    prune_tolerance: float
    max_iterations: int
    most_edges: int | None = None


class IterationTrace(NamedTuple):
    """What each of k iterations did.

    recomputed       int64[k], affected vertices
    edges            int64[k], in-edges read, without loops
    pruned           int64[k], vertices that left the affected set
    largest_change   float64[k], the largest relative change
    """

    recomputed: NDArray[np.int64]
    edges: NDArray[np.int64]
    pruned: NDArray[np.int64]
    largest_change: NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class PublishedResult:
    """What `IterateRanks` did.

    converged  whether the last iteration met the tolerance
    rhs_scale  β of the last iteration
    trace      of the iterations, the first TRACED_STEPS at most; None if it was not asked for
    """

    iterations: int
    converged: bool
    rhs_scale: float
    trace: IterationTrace | None


@dataclass(slots=True, eq=False)
class IterateRanks(Operation[PublishedResult]):
    """Iterations until the rule ends them. Each computes, for every affected vertex,

        y' = β + α·c                                 or, in closed form,
        y' = (β + α·(c - ℓ·y/d)) / (1 - αℓ/d),       c = Σ y[u]/d(u), the loop included,

    from the y of the iteration before. With δ = |y' - y| / max(y', y), a vertex with δ ≤ τ_p is
    pruned, and where δ > τ_f the out-neighbours become affected after the iteration, unless it was
    the last. (Algorithm 3.)

    rows, out_rows  all in-lists and out-lists; out_rows None if the affected set does not grow
    values          float64[n], y, updated
    contributions   float64[DynamicGraph.columns], scratch
    marks           None if every vertex is recomputed; vertices that the last iteration made
                    expanding stay so
    listed_edges, listed_vertices  an affected set of more in-edges, or vertices, is not kept as a
                    list, where a backend keeps lists
    """

    in_rows = True

    graph: GraphView
    rows: Rows
    out_rows: Rows | None
    values: Array
    contributions: Array
    rhs_scale: float
    marks: Marks | None
    rule: Rule
    traced: bool
    listed_edges: int
    listed_vertices: int


class SentRanks(NamedTuple):
    """How many vertices there are, and Σy over the dangling ones."""

    vertices: int
    dangling: float


@dataclass(slots=True, eq=False)
class SendRanks(Operation[SentRanks]):
    """What each vertex sends along an edge before the first iteration: see ComputeContributions."""

    writes = "contributions"

    graph: GraphView
    values: Array
    contributions: Array


class RankChanges(NamedTuple):
    """What an iteration did: see Rule and IterationTrace.

    largest   max |y' - y|
    dangling  Σy' over dangling vertices, if every vertex is recomputed
    """

    largest: float
    largest_relative: float
    recomputed: int
    edges: int
    pruned: int
    dangling: float


@dataclass(slots=True, eq=False)
class UpdateRanks(Operation[RankChanges]):
    """An iteration: see IterateRanks. Contributions are those of y, and of y' afterwards."""

    writes = "contributions"
    in_rows = True
    maxima = frozenset({"largest", "largest_relative"})

    graph: GraphView
    rows: Rows
    values: Array
    contributions: Array
    rhs_scale: float
    marks: Marks | None
    rule: Rule


@dataclass(slots=True, eq=False)
class ExpandAffected(Operation[None]):
    """The out-neighbours of expanding vertices become affected, loops included; then no vertex is
    expanding. (Algorithm 5.)

    out_rows  all out-lists
    """

    graph: GraphView
    out_rows: Rows
    marks: Marks


def iterate_ranks(run: Run, total: Callable[[Array], float], do: IterateRanks) -> PublishedResult:
    """Runs `IterateRanks` an iteration at a time.

    total  the sum of an integer array over the vertices of all shards
    """
    graph, rule, marks = do.graph, do.rule, do.marks
    vertices, dangling = run(SendRanks(graph, do.values, do.contributions))
    rhs_scale, iterations, converged = do.rhs_scale, 0, False
    trace: list[RankChanges] = []
    while not converged and iterations < rule.max_iterations:
        iterations += 1
        if rule.dangling_mass > 0.0:
            mass = (1.0 - rule.damping) * rule.dangling_mass + rule.damping * dangling
            rhs_scale = mass / vertices
        changes = run(
            UpdateRanks(graph, do.rows, do.values, do.contributions, rhs_scale, marks, rule)
        )
        dangling, converged = changes.dangling, changes.largest <= rule.tolerance
        if do.traced and len(trace) < TRACED_STEPS:
            trace.append(changes)
        last = converged or iterations == rule.max_iterations
        if marks is not None and do.out_rows is not None and not last:
            run(ExpandAffected(graph, do.out_rows, marks))
            if rule.most_edges is not None:
                affected = marks.states == AFFECTED
                if total(graph.incoming.row_lengths[affected]) > rule.most_edges:
                    break
    found = IterationTrace(
        np.array([each.recomputed for each in trace], np.int64),
        np.array([each.edges for each in trace], np.int64),
        np.array([each.pruned for each in trace], np.int64),
        np.array([each.largest_relative for each in trace], np.float64),
    )
    return PublishedResult(iterations, converged, rhs_scale, found if do.traced else None)


# ---- the iterations of published personalized PageRank (Wang et al., sections 2 to 4) ----
#
# Synchronous iterations. Additions of a push come in any order on ``cuda``, so results can differ
# in the last bits from run to run.

Mode = Literal["push", "pushopt", "pull"]
MODES: tuple[Mode, ...] = get_args(Mode)
"""How an iteration propagates, by the names of the paper: one-pass push, lightweight push, pull."""


class WorkList(NamedTuple):
    """The vertices with r > θ: how many there are, and how many out-edges they have, without
    loops.
    """

    vertices: int
    edges: int


@dataclass(slots=True)
class ForwardState:
    """y (the paper's scores), r and the work-list.

    values         float64[n], y
    residual       float64[n], r
    contributions  float64[n], scratch: what each vertex of the list sends along an edge
    queue          int32[n], the work-list in any order; entries behind it are undefined
    next_queue     int32[n], scratch
    queued         int32[n], all 0 between operations: locks of the one-pass push
    """

    values: Array
    residual: Array
    contributions: Array
    queue: Array
    next_queue: Array
    queued: Array


@dataclass(slots=True, eq=False)
class DetectListed(Operation[WorkList]):
    """Tests each vertex once and lists those with r > θ: a pass over n. The result is the list,
    whose vertices are in state.queue.
    """

    graph: GraphView
    state: ForwardState
    threshold: float


@dataclass(slots=True, eq=False)
class TakeListed(Operation[Any]):
    """Every u of the list takes x = r[u]: y[u] += x, r[u] = αℓx/d(u), and sends α·x/d(u)."""

    writes = "contributions"

    graph: GraphView
    state: ForwardState
    work_list: WorkList
    damping: float

    @property
    def listed(self) -> Array:
        """The vertices of the list."""
        return self.state.queue[: self.work_list.vertices]

    @property
    def contributions(self) -> Array:
        """Those of the state."""
        return self.state.contributions


@dataclass(slots=True, eq=False)
class PushListed(TakeListed):
    """`TakeListed`, and the additions over out-lists, without locks."""


@dataclass(slots=True, eq=False)
class PushInOnePass(PushListed):
    """`TakeListed`, and the additions over out-lists, each followed by the test. A vertex is locked
    when it is listed, so that others do not list it too. The result is the next list.
    """

    threshold: float


@dataclass(slots=True, eq=False)
class PullListed(Operation[None]):
    """Each v adds up the contributions of all its in-neighbours, which are 0 for those not on the
    list, and adds the sum to r[v] without locks.

    rows  all in-lists
    """

    in_rows = True

    graph: GraphView
    rows: Rows
    state: ForwardState
