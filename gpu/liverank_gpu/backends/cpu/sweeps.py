"""Dense sweeps over the transpose on ``cpu``."""

from __future__ import annotations

from typing import Any

import numpy as np

from liverank_gpu.backends.cpu.rows import BLOCK, NO_MARKS, NO_VALUES, STRIPE
from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.sweeps import (
    DeflationVector,
    OrthominState,
    OrthominStep,
    SweepOperations,
    SweepResult,
)

NO_DEFLATION = DeflationVector(NO_VALUES, NO_VALUES, 0.0)

_SUMS = 5
"""Inner products of a step of Orthomin(1), and sums for a start from in-degrees."""


class CpuSweeps(SweepOperations):
    """See SweepOperations."""

    contribution_dtype = np.float32
    takes_momentum = True

    def compute_contributions(self, graph: GraphView, values: Array, contributions: Array) -> None:
        dangling = np.empty(-(-graph.vertices // STRIPE))
        kernels.send(values, graph.degree, NO_MARKS, contributions, dangling)

    def compute_residual(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        contributions: Array,
        rhs_scale: float,
        damping: float,
        residual: Array,
    ) -> tuple[float, float]:
        residual_l1, residual_sum = kernels.compute_residual(
            rows.groups,
            rows.order,
            graph.incoming,
            graph.loop,
            graph.degree,
            values,
            contributions,
            rhs_scale,
            damping,
            residual,
        )
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
        vectors = (values, residual, contributions)
        return SweepResult(
            *kernels.quantize_contributions(*_in_degrees(graph), damping, shift, *vectors)
        )

    def sum_in_degrees(self, graph: GraphView, damping: float) -> Array:
        sums = np.zeros((-(-graph.vertices // STRIPE), _SUMS))
        kernels.sum_in_degrees(*_in_degrees(graph), damping, sums)
        return np.add.reduce(sums)

    def start_from_in_degrees(
        self,
        graph: GraphView,
        in_degrees: Array,
        values: Array,
        residual: Array,
        contributions: Array,
        damping: float,
        rhs_scale: float,
    ) -> SweepResult:
        constant, linear, edges, *_ = in_degrees.tolist()
        mean = rhs_scale * constant / (edges - linear) if edges > 0.0 else 0.0
        sent, vectors = (damping, rhs_scale, mean), (values, residual, contributions)
        return SweepResult(*kernels.start_from_in_degrees(*_in_degrees(graph), *sent, *vectors))

    def sweep(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        residual: Array,
        contributions: Array,
        new_contributions: Array,
        damping: float,
        shift: float,
        deflation: DeflationVector | None = None,
        coefficient: float = 0.0,
    ) -> SweepResult:
        vectors = (values, residual, contributions, new_contributions)
        return _sweep(graph, rows, *vectors, damping, shift, deflation, coefficient)

    def momentum_sweep(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        residual: Array,
        contributions: Array,
        new_contributions: Array,
        damping: float,
        shift: float,
        fresh: float,
        kept: float,
    ) -> SweepResult:
        vectors = (values, residual, contributions, new_contributions)
        return _sweep(graph, rows, *vectors, damping, shift, None, 0.0, fresh, kept)

    def orthomin_products(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        residual: Array,
        contributions: Array,
        state: OrthominState,
        damping: float,
        mean: float,
        floor: float,
        has_previous: bool,
    ) -> Array:
        products = np.zeros((len(rows.groups) - 1, _SUMS))
        kernels.orthomin_image(
            rows.groups,
            rows.order,
            graph.incoming,
            graph.loop,
            graph.degree,
            contributions,
            damping,
            mean,
            values,
            residual,
            floor,
            has_previous,
            state.weights,
            state.last_image,
            state.image,
            products,
        )
        return products.sum(axis=0)

    def orthomin_update(
        self,
        graph: GraphView,
        values: Array,
        residual: Array,
        contributions: Array,
        state: OrthominState,
        damping: float,
        mean: float,
        products: Array,
        has_previous: bool,
    ) -> tuple[OrthominStep, SweepResult]:
        step = OrthominStep.of(products.tolist(), has_previous)
        sums = kernels.orthomin_step(
            graph.incoming.row_lengths,
            graph.loop,
            graph.degree,
            damping,
            mean,
            step.alpha,
            step.beta,
            has_previous,
            state.image,
            state.direction,
            state.last_image,
            values,
            residual,
            contributions,
        )
        return step, SweepResult(*sums)

    def subtract_at(self, residual: Array, places: Array, weights: Array, amount: float) -> None:
        kernels.subtract_at(residual, places, weights, amount)

    def sum_depth(self, longest_row: int) -> int:
        return sum_depth(longest_row)


def sum_depth(longest_row: int) -> int:
    """See SweepOperations.sum_depth."""
    return min(longest_row, BLOCK) + longest_row // BLOCK


def _sweep(
    graph: GraphView,
    rows: Rows,
    values: Array,
    residual: Array,
    contributions: Array,
    new_contributions: Array,
    damping: float,
    shift: float,
    deflation: DeflationVector | None,
    coefficient: float,
    fresh: float = 1.0,
    kept: float = 0.0,
) -> SweepResult:
    sums = kernels.sweep(
        rows.groups,
        rows.order,
        graph.incoming,
        graph.loop,
        graph.degree,
        contributions,
        damping,
        shift,
        deflation or NO_DEFLATION,
        coefficient,
        fresh,
        kept,
        values,
        residual,
        new_contributions,
    )
    return SweepResult(*sums)


def _in_degrees(graph: GraphView) -> tuple[Any, ...]:
    """What kernels without a pass over the edges read of a graph."""
    return graph.incoming.row_lengths, graph.loop, graph.degree
