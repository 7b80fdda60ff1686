"""Contract: the iterations of published personalized PageRank (Wang et al., sections 2 to 4)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array

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
