"""The operations of sweeps, window by window: SweepOperations whose in-lists are streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from liverank_gpu.operations.csr import Csr, GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.sweeps import DeflationVector, SweepOperations, SweepResult
from liverank_gpu.out_of_core.window_stream import WindowStream
from liverank_gpu.pagerank.partial_sweeps import PartialSweeps


class WindowedSweeps(PartialSweeps):
    """See SweepOperations. The sums of the windows are added up, so results depend on the order of
    windows, which alternates, by rounding alone.
    """

    def __init__(self, sweeps: SweepOperations, stream: WindowStream) -> None:
        """sweeps  the operations of the backend, which each window is given to"""
        super().__init__(sweeps)
        self._stream = stream

    def _windows(self, graph: GraphView) -> Iterator[tuple[GraphView, Rows]]:
        """The graph with the in-lists of one window after the other, and their rows."""
        starts, lengths = graph.incoming.row_starts, graph.incoming.row_lengths
        for window, slots in self._stream:
            yield graph._replace(incoming=Csr(starts, lengths, *slots)), window.rows

    def compute_contributions(self, graph: GraphView, values: Array, contributions: Array) -> None:
        self._local.compute_contributions(graph, values, contributions)

    def compute_residual(
        self,
        graph: GraphView,
        rows: Rows,  # noqa: ARG002
        values: Array,
        contributions: Array,
        rhs_scale: float,
        damping: float,
        residual: Array,
    ) -> tuple[float, float]:
        residual_l1 = residual_sum = 0.0
        for view, of_window in self._windows(graph):
            l1, total = self._local.compute_residual(
                view, of_window, values, contributions, rhs_scale, damping, residual
            )
            residual_l1, residual_sum = residual_l1 + l1, residual_sum + total
        return residual_l1, residual_sum

    def quantize_contributions(
        self,
        graph: GraphView,
        values: Array,
        residual: Array,
        contributions: Array,
        damping: float,
        shift: float,
    ) -> SweepResult:
        return self._local.quantize_contributions(
            graph, values, residual, contributions, damping, shift
        )

    def sweep(
        self,
        graph: GraphView,
        rows: Rows,  # noqa: ARG002
        values: Array,
        residual: Array,
        contributions: Array,
        new_contributions: Array,
        damping: float,
        shift: float,
        deflation: DeflationVector | None = None,
        coefficient: float = 0.0,
    ) -> SweepResult:
        arrays = (values, residual, contributions, new_contributions)
        scalars = (damping, shift, deflation, coefficient)
        results = [
            self._local.sweep(view, of_window, *arrays, *scalars)
            for view, of_window in self._windows(graph)
        ]

        def total(part: Callable[[SweepResult], float]) -> float:
            return sum(map(part, results))

        return SweepResult(
            total(lambda result: result.residual_l1),
            total(lambda result: result.residual_sum),
            total(lambda result: result.mass),
            total(lambda result: result.next_residual_sum),
            max(result.largest_step for result in results),
        )
