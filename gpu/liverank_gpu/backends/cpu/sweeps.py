"""Dense sweeps on ``cpu``, of one vector and of several."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.native import kernels
from liverank_gpu.operations import sweeps as op
from liverank_gpu.operations.csr import GraphView, Rows, runs
from liverank_gpu.operations.device import Array

# Rows on ``cpu``: their chunks, and what kernels in gpu/liverank_gpu/native share with their
# callers.

CHUNK_WORK = 1 << 15
"""Rows plus edges of a chunk, a group of Rows on this backend."""

STRIPE = 1 << 12
"""Vertices that a core takes at a time in passes over all of them, as in rows.h."""

BLOCK = 1024
"""Terms added to one partial sum before it joins the row's, as in rows.h."""

NO_VALUES, NO_MARKS = np.zeros(0), np.zeros(0, np.uint8)


def chunk_rows(order: NDArray[np.int32], row_lengths: NDArray[np.int32]) -> Rows:
    """Groups rows into chunks of about CHUNK_WORK.

    order        int32[k], row ids, ascending
    row_lengths  int32[k], of these rows
    """
    if len(order) == 0:
        return Rows(order, np.zeros(2, np.int64))
    if int(row_lengths.sum(dtype=np.int64)) + len(order) <= CHUNK_WORK:
        return Rows(order, np.array([0, len(order)]))
    work = np.cumsum(row_lengths, dtype=np.int64) + np.arange(1, len(order) + 1)
    chunks = -(-int(work[-1]) // CHUNK_WORK)
    limits = np.arange(1, chunks) * CHUNK_WORK
    groups = np.concatenate([[0], np.searchsorted(work, limits), [len(order)]])
    return Rows(order, np.unique(groups).astype(np.int64))


# ---- dense sweeps over the transpose on ``cpu`` ----

NO_DEFLATION = op.DeflationVector(NO_VALUES, NO_VALUES, 0.0)

_SUMS = 5
"""Sums over the in-degrees, and inner products of a step of Orthomin(1)."""


class CpuSweeps(op.SweepOperations):
    contribution_dtype = np.float32
    takes_momentum = True

    def sum_depth(self, longest_row: int) -> int:
        return sum_depth(longest_row)


def in_lists(graph: GraphView, rows: Rows) -> tuple[Any, ...]:
    """What kernels that sum over in-lists read of a graph."""
    return rows.groups, rows.order, graph.incoming, graph.loop, graph.degree


def sum_depth(longest_row: int) -> int:
    """See SweepOperations.sum_depth."""
    return min(longest_row, BLOCK) + longest_row // BLOCK


@runs
def _compute_contributions(do: op.ComputeContributions) -> None:
    dangling = np.empty(-(-do.graph.vertices // STRIPE))
    kernels.send(do.values, do.graph.degree, NO_MARKS, do.contributions, dangling)


@runs
def _compute_residual(do: op.ComputeResidual) -> op.ResidualSums:
    sums = kernels.compute_residual(
        *in_lists(do.graph, do.rows),
        do.values,
        do.contributions,
        do.rhs_scale,
        do.damping,
        do.residual,
    )
    return op.ResidualSums(*sums)


@runs
def _quantize_contributions(do: op.QuantizeContributions) -> op.SweepResult:
    vectors = (do.values, do.residual, do.contributions)
    sums = kernels.quantize_contributions(*_vertices(do.graph), do.damping, do.shift, *vectors)
    return op.SweepResult(*sums)


@runs
def _sum_in_degrees(do: op.SumInDegrees) -> Array:
    sums = np.zeros((-(-do.graph.vertices // STRIPE), _SUMS))
    kernels.sum_in_degrees(*_vertices(do.graph), do.damping, sums)
    return np.add.reduce(sums)


@runs
def _start_from_in_degrees(do: op.StartFromInDegrees) -> op.SweepResult:
    constant, linear, edges, *_ = do.in_degrees.tolist()
    mean = do.rhs_scale * constant / (edges - linear) if edges > 0.0 else 0.0
    sent, vectors = (do.damping, do.rhs_scale, mean), (do.values, do.residual, do.contributions)
    return op.SweepResult(*kernels.start_from_in_degrees(*_vertices(do.graph), *sent, *vectors))


@runs
def _sweep(do: op.Sweep) -> op.SweepResult:
    sums = kernels.sweep(
        *in_lists(do.graph, do.rows),
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
    return op.SweepResult(*sums)


@runs
def _orthomin_products(do: op.OrthominProducts) -> Array:
    state, products = do.state, np.zeros((len(do.rows.groups) - 1, _SUMS))
    kernels.orthomin_image(
        *in_lists(do.graph, do.rows),
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


@runs
def _orthomin_update(do: op.OrthominUpdate) -> tuple[op.OrthominStep, op.SweepResult]:
    step = op.OrthominStep.of(do.products.tolist(), do.has_previous)
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
    return step, op.SweepResult(*sums)


@runs
def _subtract_at(do: op.SubtractAt) -> None:
    kernels.subtract_at(do.residual, do.places, do.weights, do.amount)


def _vertices(graph: GraphView) -> tuple[Array, Array, Array]:
    """What kernels that read no lists read of a graph."""
    return graph.incoming.row_lengths, graph.loop, graph.degree


# ---- several personalized vectors at once on ``cpu`` ----

_MOST_COLUMNS = 32
"""Vectors that share a pass over the graph, at most."""

_FEWEST_COLUMNS = 4

_COLUMN_SUMS = 3


class CpuMultivector(op.MultivectorOperations):
    contribution_dtype = np.float32
    min_columns = _FEWEST_COLUMNS

    def column_count(self, wanted: int) -> int:
        return min(max(wanted, _FEWEST_COLUMNS), _MOST_COLUMNS)

    def column_depth(self, graph: GraphView) -> int:
        return sum_depth(graph.longest_row)


@runs
def _sweep_many(do: op.SweepMany) -> NDArray[np.float64]:
    graph, rows, columns = do.graph, do.rows, do.values.shape[1]
    padded = np.zeros(columns)
    if do.deflation is not None:
        padded[: len(do.coefficients)] = do.coefficients
    sums = np.zeros((len(rows.groups) - 1, _COLUMN_SUMS, columns))
    kernels.sweep_many(
        rows.groups,
        rows.order,
        graph.incoming,
        graph.outgoing.row_lengths,
        graph.loop,
        graph.degree,
        do.contributions,
        do.seeded,
        do.damping,
        do.deflation or NO_DEFLATION,
        padded,
        do.values,
        do.remainder,
        do.new_contributions,
        sums,
    )
    total: NDArray[np.float64] = sums.sum(axis=0)
    return total


@runs
def _add_compensated(do: op.AddCompensated) -> None:
    exact = do.remainder[do.places].astype(np.float64) + do.amounts + do.carry
    stored = exact.astype(np.float32)
    do.remainder[do.places] = stored
    do.carry[:] = exact - stored
