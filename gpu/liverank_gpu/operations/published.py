"""Contracts: the iterations of the published strategies, of global and of personalized ranks."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array

# ---- the iterations of the published strategies (Sahu, algorithms 2, 3 and 5) ----

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
    """How `iterate` computes ranks and when it stops.

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
    """What `iterate` did.

    converged  whether the last iteration met the tolerance
    rhs_scale  β of the last iteration
    trace      of the iterations, the first TRACED_STEPS at most; None if it was not asked for
    """

    iterations: int
    converged: bool
    rhs_scale: float
    trace: IterationTrace | None


class PublishedOperations(ABC):
    """Synchronous pull with float64 contributions. Sums have a fixed shape, so the same input gives
    the same bits.

    """

    @abstractmethod
    def expand(self, graph: GraphView, out_rows: Rows, marks: Marks) -> None:
        """The out-neighbours of expanding vertices become affected, loops included; then no vertex
        is expanding. (Algorithm 5, expandAffected.)

        out_rows  all out-lists
        """

    @abstractmethod
    def iterate(
        self,
        graph: GraphView,
        in_rows: Rows,
        out_rows: Rows | None,
        values: Array,
        contributions: Array,
        rhs_scale: float,
        marks: Marks | None,
        rule: Rule,
        traced: bool,
    ) -> PublishedResult:
        """Iterations until the rule ends them. Each computes, for every affected vertex,

            y' = β + α·c                                 or, in closed form,
            y' = (β + α·(c - ℓ·y/d)) / (1 - αℓ/d),       c = Σ y[u]/d(u), the loop included,

        from the y of the iteration before. With δ = |y' - y| / max(y', y), a vertex with δ ≤ τ_p is
        pruned, and where δ > τ_f the out-neighbours become affected after the iteration, unless it
        was the last. (Algorithm 3.)

        in_rows, out_rows  all lists; out_rows None if the affected set does not grow
        values             float64[n], y, updated
        contributions      float64[DynamicGraph.columns], scratch
        marks              None if every vertex is recomputed; vertices that the last iteration
                           made expanding stay so
        """


# ---- the iterations of published personalized PageRank (Wang et al., sections 2 to 4) ----

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


class ForwardPushOperations(ABC):
    """Synchronous iterations. Additions of a push come in any order on ``cuda``, so results can
    differ in the last bits from run to run.

    pushed_edge  time of an edge of a lightweight push, in edges of a pull
    """

    pushed_edge: float

    def iterate(
        self,
        graph: GraphView,
        in_rows: Rows,
        state: ForwardState,
        work_list: WorkList,
        mode: Mode,
        damping: float,
        threshold: float,
    ) -> WorkList:
        """One iteration. Every u of the list takes x = r[u], before anything is sent:

            y[u] += x,  r[u] = αℓx/d(u),  r[v] += α·x/d(u) for each out-neighbour v,

        times the weight of the edge if there are weights; then the next list has every v with
        r[v] > θ. A mode decides how: `push_in_one_pass`, or `push` or `pull`, and then `detect`.

        in_rows  all in-lists
        Returns the next list, whose vertices are in state.queue.
        """
        if mode == "push":
            return self.push_in_one_pass(graph, state, work_list, damping, threshold)
        if mode == "pull":
            state.contributions.fill(0.0)
            self.take(graph, state, work_list, damping)
            self.pull(graph, in_rows, state)
        else:
            self.push(graph, state, work_list, damping)
        return self.detect(graph, state, threshold)

    @abstractmethod
    def detect(self, graph: GraphView, state: ForwardState, threshold: float) -> WorkList:
        """Tests each vertex once and lists those with r > θ: a pass over n."""

    @abstractmethod
    def take(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        """Moves the residual of the list to y, and computes what each of its vertices sends."""

    @abstractmethod
    def push_in_one_pass(
        self,
        graph: GraphView,
        state: ForwardState,
        work_list: WorkList,
        damping: float,
        threshold: float,
    ) -> WorkList:
        """An iteration by mode ``push``, over out-lists. Each addition is followed by the test, and
        the vertex is locked when it is listed, so that others do not list it too.
        """

    @abstractmethod
    def push(
        self, graph: GraphView, state: ForwardState, work_list: WorkList, damping: float
    ) -> None:
        """`take`, and the additions of mode ``pushopt``, over out-lists, without locks."""

    @abstractmethod
    def pull(self, graph: GraphView, in_rows: Rows, state: ForwardState) -> None:
        """The additions of mode ``pull``: each v adds up the contributions of all its
        in-neighbours, which are 0 for those not on the list, and adds the sum to r[v] without
        locks.
        """
