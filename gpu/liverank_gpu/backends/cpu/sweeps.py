"""Dense sweeps over the transpose on ``cpu``."""

from __future__ import annotations

from typing import Any

import numpy as np

from liverank_gpu.backends.cpu.rows import BLOCK, NO_VALUES, STRIPE
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

_SUMS, _LARGEST_STEP = 5, 4
"""Sums of a sweep, as many inner products of a step of Orthomin(1), and the place of max |Δy|."""


class CpuSweeps(SweepOperations):
    """See SweepOperations."""

    contribution_dtype = np.float32
    takes_momentum = True

    def compute_contributions(self, graph: GraphView, values: Array, contributions: Array) -> None:
        dangling = graph.degree == 0
        np.divide(values, np.where(dangling, 1, graph.degree), out=contributions)
        contributions[dangling] = 0.0

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
        sums = np.zeros((len(rows.groups) - 1, 2))
        kernels.compute_residual(
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
            sums,
        )
        residual_l1, residual_sum = sums.sum(axis=0).tolist()
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
        sums = _stripe_sums(graph)
        kernels.quantize_contributions(
            graph.incoming.row_lengths,
            graph.loop,
            graph.degree,
            damping,
            shift,
            values,
            residual,
            contributions,
            sums,
        )
        return _result(sums)

    def sum_in_degrees(self, graph: GraphView, damping: float) -> Array:
        sums = _stripe_sums(graph)
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
        sums = _stripe_sums(graph)
        kernels.start_from_in_degrees(
            *_in_degrees(graph), damping, rhs_scale, mean, values, residual, contributions, sums
        )
        return _result(sums)

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
        step, sums = OrthominStep.of(products.tolist(), has_previous), _stripe_sums(graph)
        kernels.orthomin_step(
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
            sums,
        )
        return step, _result(sums)

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
    sums = np.zeros((len(rows.groups) - 1, _SUMS))
    kernels.sweep(
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
        sums,
    )
    return _result(sums)


def _in_degrees(graph: GraphView) -> tuple[Any, ...]:
    """What kernels of the start read of a graph."""
    return graph.incoming.row_lengths, graph.loop, graph.degree


def _stripe_sums(graph: GraphView) -> Array:
    return np.zeros((-(-graph.vertices // STRIPE), _SUMS))


def _result(sums: Array) -> SweepResult:
    # as methods of the array, these take three times as long: as long as a small graph's sweep
    residual_l1, residual_sum, mass, next_residual_sum, _ = np.add.reduce(sums).tolist()
    largest_step = float(np.maximum.reduce(sums[:, _LARGEST_STEP], initial=0.0))
    return SweepResult(residual_l1, residual_sum, mass, next_residual_sum, largest_step)
