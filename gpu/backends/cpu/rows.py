"""Rows on ``cpu``: their chunks, and what kernels compute for a row or its vertex."""

from __future__ import annotations

import numpy as np
from numba import types
from numpy.typing import NDArray

from gpu.jit.compile import by_type, helper, inlined, unsigned
from gpu.operations.csr import Csr, Rows
from gpu.operations.device import Array

CHUNK_WORK = 1 << 15
"""Rows plus edges of a chunk, a group of Rows on this backend."""

CHUNKS = 1
"""Chunks that a core takes at a time."""

STRIPE = 1 << 12
"""Vertices that a core takes at a time in passes over all of them."""

BLOCK = 1024
"""Terms added to one partial sum before it joins the row's: limits the rounding in long rows."""

_SHORT = 8
"""Rows of up to as many entries have one partial sum: more cost more than they save."""

_FLOAT32_NOISE = 2.0**-21
"""Four units in the last place of a float32 are at most this, relative to it."""

_LARGEST = np.finfo(np.float32).max

NO_VALUES = np.zeros(0)


def chunk_rows(order: NDArray[np.int32], row_lengths: NDArray[np.int32]) -> Rows:
    """Groups rows into chunks of about CHUNK_WORK.

    order        int32[k], row ids, ascending
    row_lengths  int32[k], of these rows
    """
    if len(order) == 0:
        return Rows(order, np.zeros(2, np.int64))
    work = np.cumsum(row_lengths, dtype=np.int64) + np.arange(1, len(order) + 1)
    chunks = max(1, -(-int(work[-1]) // CHUNK_WORK))
    limits = np.arange(1, chunks) * CHUNK_WORK
    groups = np.concatenate([[0], np.searchsorted(work, limits), [len(order)]])
    return Rows(order, np.unique(groups).astype(np.int64))


def plain(csr: Csr) -> tuple[Array, ...]:
    """The arrays of a Csr, for kernels that run for a few µs: Numba takes 1.5 µs longer to
    recognise a named tuple than a plain one.
    """
    return tuple(csr)


def smallest_change(values: Array) -> float:
    """A value changed if it moved by more than this, relative to it. A float32 may move by
    a few units in the last place for ever, by rounding alone.
    """
    return _FLOAT32_NOISE if values.dtype == np.float32 else 0.0


@helper
def first_from(numbers, count, least):  # type: ignore[no-untyped-def]
    """The index of the first of `count` ascending numbers that is ≥ least; `count` if none is."""
    low = np.int64(0)
    high = np.int64(count)
    while low < high:
        middle = (low + high) // 2
        if numbers[middle] < least:
            low = middle + 1
        else:
            high = middle
    return low


@helper
def change_of(old, new, smallest):  # type: ignore[no-untyped-def]
    """|new - old|, or 0 if that does not count as a change; smallest: see `smallest_change`."""
    change = abs(new - old)
    return change if change > smallest * new else 0.0


@by_type
def diagonal_of(degree, loop, damping):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """1 - αℓ/d: the diagonal entry of I - αP̄ᵀ. Degree and loop: see GraphView."""
    if isinstance(degree, types.Float):

        def weighted(degree, loop, damping):  # type: ignore[no-untyped-def]
            return 1.0 - damping * (np.float64(loop) / degree) if loop else 1.0

        return weighted

    def unweighted(degree, loop, damping):  # type: ignore[no-untyped-def]
        return 1.0 - damping / degree if loop else 1.0

    return unweighted


@helper
def is_isolated(degree, loop, in_length):  # type: ignore[no-untyped-def]
    """Whether a vertex has no edge but its own loop."""
    return degree == loop and in_length == 0


@by_type
def bounded(contribution, degree):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """A quantized contribution. That of a tiny strength may exceed float32: then it is the largest
    there is, and the rest of the residual stays.
    """
    if isinstance(degree, types.Float):

        def weighted(contribution, degree):  # type: ignore[no-untyped-def]  # noqa: ARG001
            return min(max(contribution, -_LARGEST), _LARGEST)

        return weighted
    return lambda contribution, degree: contribution  # noqa: ARG005


@by_type
def exact_contribution(contribution, degree):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """A contribution that follows from a step which y has taken. Float32 holds it to 2⁻²⁴ if the
    degree is one of an unweighted graph; a strength may be of any size.
    """
    if isinstance(degree, types.Float):
        return lambda contribution, degree: contribution  # noqa: ARG005
    return lambda contribution, degree: np.float32(contribution)  # noqa: ARG005


@by_type
def edge_amount(amount, weights, slot):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """What goes along the edge in a slot if an edge of weight 1 gets `amount`."""
    if isinstance(weights, types.NoneType):
        return lambda amount, weights, slot: amount  # noqa: ARG005
    return lambda amount, weights, slot: amount * np.float64(weights[unsigned(slot)])


@by_type
def row_weight(lengths, weights, starts, v):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """The number of entries of row v, or the sum of their weights."""
    if isinstance(weights, types.NoneType):
        return lambda lengths, weights, starts, v: lengths[v]  # noqa: ARG005

    def weighted(lengths, weights, starts, v):  # type: ignore[no-untyped-def]
        total = 0.0
        for slot in range(starts[v], starts[v] + lengths[v]):
            total += np.float64(weights[unsigned(slot)])
        return total

    return weighted


@inlined
def row_sum(csr, v, contributions):  # type: ignore[no-untyped-def]
    """Σ contributions over the entries of row v, each times the weight of its edge."""
    begin = csr.row_starts[v]
    end = begin + csr.row_lengths[v]
    column_indices = csr.column_indices
    weights = csr.weights
    total = 0.0
    if end - begin <= _SHORT:
        for slot in range(unsigned(begin), unsigned(end)):
            total += edge_amount(contributions[unsigned(column_indices[slot])], weights, slot)
        return total
    while begin < end:
        stop = min(begin + BLOCK, end)
        # four partial sums: an addition must wait for the one whose result it needs
        first = 0.0
        second = 0.0
        third = 0.0
        fourth = 0.0
        while begin + 4 <= stop:
            first += edge_amount(
                contributions[unsigned(column_indices[unsigned(begin)])], weights, begin
            )
            second += edge_amount(
                contributions[unsigned(column_indices[unsigned(begin + 1)])], weights, begin + 1
            )
            third += edge_amount(
                contributions[unsigned(column_indices[unsigned(begin + 2)])], weights, begin + 2
            )
            fourth += edge_amount(
                contributions[unsigned(column_indices[unsigned(begin + 3)])], weights, begin + 3
            )
            begin += 4
        while begin < stop:
            first += edge_amount(
                contributions[unsigned(column_indices[unsigned(begin)])], weights, begin
            )
            begin += 1
        total += (first + second) + (third + fourth)
    return total


@inlined
def divided_sum(csr, v, values, degree):  # type: ignore[no-untyped-def]
    """Σ values/degree over the entries of row v, each times the weight of its edge."""
    begin = csr.row_starts[v]
    end = begin + csr.row_lengths[v]
    column_indices = csr.column_indices
    weights = csr.weights
    total = 0.0
    while begin < end:
        stop = min(begin + BLOCK, end)
        block = 0.0
        for slot in range(begin, stop):
            u = unsigned(column_indices[unsigned(slot)])
            block += edge_amount(np.float64(values[u]) / degree[u], weights, slot)
        total += block
        begin = stop
    return total


@inlined
def residual_at(  # type: ignore[no-untyped-def]
    v, incoming, loop, degree, values, contributions, rhs_scale, damping
):
    """β + α·Σ contributions - (1 - αℓ/d)·y[v], and 1 - αℓ/d. Without contributions (an empty
    array) y/d is divided for each edge.
    """
    if len(contributions) > 0:
        incoming_mass = row_sum(incoming, v, contributions)
    else:
        incoming_mass = divided_sum(incoming, v, values, degree)
    diagonal = diagonal_of(degree[v], loop[v], damping)
    return rhs_scale + damping * incoming_mass - diagonal * np.float64(values[v]), diagonal
