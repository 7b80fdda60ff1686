"""Dense sweeps over the transpose on ``cpu``."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.cpu.rows import BLOCK, NO_MARKS, NO_VALUES, STRIPE
from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.operation import Table
from liverank_gpu.operations.sweeps import (
    ComputeContributions,
    ComputeResidual,
    DeflationVector,
    OrthominProducts,
    OrthominStep,
    OrthominUpdate,
    QuantizeContributions,
    ResidualSums,
    StartFromInDegrees,
    SubtractAt,
    SumInDegrees,
    Sweep,
    SweepOperations,
    SweepResult,
)

NO_DEFLATION = DeflationVector(NO_VALUES, NO_VALUES, 0.0)

_SUMS = 5
"""Sums over the in-degrees, and inner products of a step of Orthomin(1)."""


class CpuSweeps(SweepOperations):
    """See SweepOperations."""

    contribution_dtype = np.float32
    takes_momentum = True

    def sum_depth(self, longest_row: int) -> int:
        return sum_depth(longest_row)


def sum_depth(longest_row: int) -> int:
    """See SweepOperations.sum_depth."""
    return min(longest_row, BLOCK) + longest_row // BLOCK


def _compute_contributions(do: ComputeContributions) -> None:
    dangling = np.empty(-(-do.graph.vertices // STRIPE))
    kernels.send(do.values, do.graph.degree, NO_MARKS, do.contributions, dangling)


def _compute_residual(do: ComputeResidual) -> ResidualSums:
    graph, rows = do.graph, do.rows
    sums = kernels.compute_residual(
        rows.groups,
        rows.order,
        graph.incoming,
        graph.loop,
        graph.degree,
        do.values,
        do.contributions,
        do.rhs_scale,
        do.damping,
        do.residual,
    )
    return ResidualSums(*sums)


def _quantize_contributions(do: QuantizeContributions) -> SweepResult:
    vectors = (do.values, do.residual, do.contributions)
    sums = kernels.quantize_contributions(*_vertices(do.graph), do.damping, do.shift, *vectors)
    return SweepResult(*sums)


def _sum_in_degrees(do: SumInDegrees) -> Array:
    sums = np.zeros((-(-do.graph.vertices // STRIPE), _SUMS))
    kernels.sum_in_degrees(*_vertices(do.graph), do.damping, sums)
    return np.add.reduce(sums)


def _start_from_in_degrees(do: StartFromInDegrees) -> SweepResult:
    constant, linear, edges, *_ = do.in_degrees.tolist()
    mean = do.rhs_scale * constant / (edges - linear) if edges > 0.0 else 0.0
    sent, vectors = (do.damping, do.rhs_scale, mean), (do.values, do.residual, do.contributions)
    return SweepResult(*kernels.start_from_in_degrees(*_vertices(do.graph), *sent, *vectors))


def _sweep(do: Sweep) -> SweepResult:
    graph, rows = do.graph, do.rows
    sums = kernels.sweep(
        rows.groups,
        rows.order,
        graph.incoming,
        graph.loop,
        graph.degree,
        do.contributions,
        do.damping,
        do.shift,
        do.deflation or NO_DEFLATION,
        do.coefficient,
        do.fresh,
        do.kept,
        do.values,
        do.residual,
        do.new_contributions,
    )
    return SweepResult(*sums)


def _orthomin_products(do: OrthominProducts) -> Array:
    graph, rows, state = do.graph, do.rows, do.state
    products = np.zeros((len(rows.groups) - 1, _SUMS))
    kernels.orthomin_image(
        rows.groups,
        rows.order,
        graph.incoming,
        graph.loop,
        graph.degree,
        do.contributions,
        do.damping,
        do.mean,
        do.values,
        do.residual,
        do.floor,
        do.has_previous,
        state.weights,
        state.last_image,
        state.image,
        products,
    )
    return products.sum(axis=0)


def _orthomin_update(do: OrthominUpdate) -> tuple[OrthominStep, SweepResult]:
    step = OrthominStep.of(do.products.tolist(), do.has_previous)
    sums = kernels.orthomin_step(
        *_vertices(do.graph),
        do.damping,
        do.mean,
        step.alpha,
        step.beta,
        do.has_previous,
        do.state.image,
        do.state.direction,
        do.state.last_image,
        do.values,
        do.residual,
        do.contributions,
    )
    return step, SweepResult(*sums)


def _subtract_at(do: SubtractAt) -> None:
    kernels.subtract_at(do.residual, do.places, do.weights, do.amount)


SWEEPS: Table = {
    ComputeContributions: _compute_contributions,
    ComputeResidual: _compute_residual,
    QuantizeContributions: _quantize_contributions,
    SumInDegrees: _sum_in_degrees,
    StartFromInDegrees: _start_from_in_degrees,
    Sweep: _sweep,
    OrthominProducts: _orthomin_products,
    OrthominUpdate: _orthomin_update,
    SubtractAt: _subtract_at,
}


def _vertices(graph: GraphView) -> tuple[Array, Array, Array]:
    """What kernels that read no lists read of a graph."""
    return graph.incoming.row_lengths, graph.loop, graph.degree
