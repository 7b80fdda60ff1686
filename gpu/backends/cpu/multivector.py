"""Several personalized vectors at once on ``cpu``."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from gpu.backends.cpu.rows import BLOCK, CHUNKS, bounded, diagonal_of, edge_amount
from gpu.backends.cpu.sweeps import NO_DEFLATION, sum_depth
from gpu.jit.compile import by_type, helper, kernel, unsigned
from gpu.operations.csr import GraphView, Rows
from gpu.operations.device import Array
from gpu.operations.multivector import MultivectorOperations
from gpu.operations.sweeps import DeflationVector

_MOST_COLUMNS = 32
"""Vectors that share a pass over the graph, at most."""

_NARROW = 4
"""A matrix of this many columns, the fewest, is summed in registers. With more columns the sums are
in memory.
"""

_SUMS = 3


@helper
def _add_narrow(column_indices, weights, begin, end, contributions, incoming_mass):  # type: ignore[no-untyped-def]
    one, two, three = unsigned(1), unsigned(2), unsigned(3)
    first = 0.0
    second = 0.0
    third = 0.0
    fourth = 0.0
    for slot in range(unsigned(begin), unsigned(end)):
        u = unsigned(column_indices[slot])
        first += edge_amount(contributions[u, unsigned(0)], weights, slot)
        second += edge_amount(contributions[u, one], weights, slot)
        third += edge_amount(contributions[u, two], weights, slot)
        fourth += edge_amount(contributions[u, three], weights, slot)
    incoming_mass[0] += first
    incoming_mass[1] += second
    incoming_mass[2] += third
    incoming_mass[3] += fourth


@helper
def _add_wide(  # type: ignore[no-untyped-def]
    column_indices, weights, begin, end, contributions, block, incoming_mass
):
    columns = len(block)
    for column in range(columns):
        block[column] = 0.0
    for slot in range(unsigned(begin), unsigned(end)):
        u = unsigned(column_indices[slot])
        for column in range(columns):
            block[column] += edge_amount(contributions[u, column], weights, slot)
    for column in range(columns):
        incoming_mass[column] += block[column]


@by_type
def _sent_weight(degree, loop, out_length):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The sum of the weights of a vertex's out-edges, its loop excluded."""
    if isinstance(degree, types.Float):
        return lambda degree, loop, out_length: degree - np.float64(loop)  # noqa: ARG005
    return lambda degree, loop, out_length: out_length  # noqa: ARG005


@kernel(CHUNKS)
def _sweep_many(  # type: ignore[no-untyped-def]
    first,
    last,
    groups,
    order,
    incoming,
    out_lengths,
    loop,
    degree,
    contributions,
    seeded,
    damping,
    deflation,
    coefficients,
    values,
    remainder,
    new_contributions,
    sums,
):
    """sums: float64[groups, _SUMS + 2, columns]; the last two rows are scratch."""
    row_starts, row_lengths, column_indices, weights = incoming
    columns = values.shape[1]
    deflated = len(deflation.values) > 0
    value = 0.0
    image = 0.0
    for group in range(first, last):
        group_sums = sums[group]
        incoming_mass, block = group_sums[_SUMS], group_sums[_SUMS + 1]
        for place in range(groups[group], groups[group + 1]):
            v = unsigned(order[unsigned(place)])
            if row_lengths[v] == 0 and seeded[v] == 0:
                continue
            for column in range(columns):
                incoming_mass[column] = 0.0
            begin = row_starts[v]
            end = begin + row_lengths[v]
            while begin < end:
                stop = min(begin + BLOCK, end)
                if columns == _NARROW:
                    _add_narrow(column_indices, weights, begin, stop, contributions, incoming_mass)
                else:
                    _add_wide(
                        column_indices, weights, begin, stop, contributions, block, incoming_mass
                    )
                begin = stop
            d = degree[v]
            if deflated:
                value = deflation.values[v]
                image = deflation.rhs_scale - deflation.residual[v]
            if d == 0:
                for column in range(columns):
                    residual = damping * incoming_mass[column] + remainder[v, column]
                    step = residual - coefficients[column] * image + coefficients[column] * value
                    values[v, column] += step
                    remainder[v, column] = 0.0
                    group_sums[2, column] += step
                continue
            diagonal = diagonal_of(d, loop[v], damping)
            out_weight = damping * _sent_weight(d, loop[v], out_lengths[v])
            # a division takes as long as several edges; what it rounds off remains in the residual
            scale = 1.0 / (diagonal * d)
            for column in range(columns):
                residual = (
                    damping * incoming_mass[column]
                    + remainder[v, column]
                    - coefficients[column] * image
                )
                contribution = bounded(np.float32(residual * scale), d)
                new_contributions[v, column] = contribution
                pushed = np.float64(contribution) * d
                rest = residual - diagonal * pushed
                step = pushed + coefficients[column] * value
                values[v, column] += step
                remainder[v, column] = rest
                sent = out_weight * np.float64(contribution)
                group_sums[0, column] += abs(sent) + abs(rest)
                group_sums[1, column] += sent + rest
                group_sums[2, column] += step


class CpuMultivector(MultivectorOperations):
    """See MultivectorOperations."""

    contribution_dtype = np.float32
    min_columns = 4

    def column_count(self, wanted: int) -> int:
        return min(max(wanted, _NARROW), _MOST_COLUMNS)

    def sweep_many(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        remainder: Array,
        contributions: Array,
        new_contributions: Array,
        seeded: Array,
        damping: float,
        deflation: DeflationVector | None,
        coefficients: NDArray[np.float64],
    ) -> NDArray[np.float64]:
        columns = values.shape[1]
        padded = np.zeros(columns)
        if deflation is not None:
            padded[: len(coefficients)] = coefficients
        sums = np.zeros((len(rows.groups) - 1, _SUMS + 2, columns))
        _sweep_many(
            len(rows.groups) - 1,
            rows.groups,
            rows.order,
            graph.incoming,
            graph.outgoing.row_lengths,
            graph.loop,
            graph.degree,
            contributions,
            seeded,
            damping,
            deflation or NO_DEFLATION,
            padded,
            values,
            remainder,
            new_contributions,
            sums,
        )
        total: NDArray[np.float64] = sums[:, :_SUMS].sum(axis=0)
        return total

    def column_depth(self, graph: GraphView) -> int:
        return sum_depth(graph.longest_row)

    def add_compensated(
        self, remainder: Array, places: Array, amounts: Array, carry: Array
    ) -> None:
        exact = remainder[places].astype(np.float64) + amounts + carry
        stored = exact.astype(np.float32)
        remainder[places] = stored
        carry[:] = exact - stored
