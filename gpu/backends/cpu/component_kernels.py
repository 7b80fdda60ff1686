"""Numba kernels that solve strongly connected components in topological order.

Inside a component: Gauss-Seidel sweeps, accelerated by Anderson's method with a window of 2 (Walker
and Ni, "Anderson Acceleration for Fixed-Point Iterations", 2011). The vertices of a large component
are divided into chunks. A chunk uses its own new values and the last values of the others, so
chunks can be swept at once, and results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numba import types

from gpu.backends.cpu.rows import diagonal_of, edge_amount, row_sum
from gpu.jit.compile import by_type, helper, on_all_cores, sequential, unsigned

MOST_CHUNKS = 16
"""Chunks of a component: more could use more cores, but would take more sweeps."""

CHUNK_EDGES = 1 << 14
"""In-edges of a chunk, at least."""

STEP_L1, MASS, LARGEST_STEP, NEW_NEW, NEW_LAST, LAST_LAST, NEW_STEP, LAST_STEP = range(8)
"""Sums of a sweep over a chunk: Σ|Δy|, Σy and max |Δy|; and with f the steps, d₁ = f - f' and
d₂ = f' - f'', the products of d₁ and d₂ with each other and with f.
"""

SUMS = 8


class Local(NamedTuple):
    """One component as a graph of its own, with room for the largest.

    bounds         int64[MOST_CHUNKS + 1], where chunks begin
    starts, lengths  int64[k], int32[k], rows of `indices`
    indices        int32[e], places in `contributions`
    weights        float32[e], or None
    rhs            float64[k], β + α·Σ contributions from outside
    diagonal, inverse  float64[k], 1 - αℓ/d, and 1/d or 0
    values         float64[k], y
    contributions  float64[2k], y/d as it is, and behind that as it was before the sweep
    steps, targets  float64[3, k], Δy and y of the last three sweeps, before they are accelerated
    sums           float64[MOST_CHUNKS, SUMS]
    """

    bounds: Any
    starts: Any
    lengths: Any
    indices: Any
    weights: Any
    rhs: Any
    diagonal: Any
    inverse: Any
    values: Any
    contributions: Any
    steps: Any
    targets: Any
    sums: Any


@by_type
def _copy_weight(to, at, weights, slot):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """to[at] = weights[slot], if edges have weights."""
    if isinstance(weights, types.NoneType):
        return lambda to, at, weights, slot: None  # noqa: ARG005

    def weighted(to, at, weights, slot):  # type: ignore[no-untyped-def]
        to[unsigned(at)] = weights[unsigned(slot)]

    return weighted


@sequential
def _extract(  # type: ignore[no-untyped-def]
    first_chunk,
    last_chunk,
    begin,
    size,
    order,
    places,
    incoming,
    loop,
    degree,
    values,
    contributions,
    rhs_scale,
    damping,
    local,
):
    """Makes chunks of the component order[begin : begin + size] part of a graph of their own."""
    row_starts, row_lengths, column_indices, weights = incoming
    for chunk in range(first_chunk, last_chunk):
        low = local.bounds[chunk]
        high = local.bounds[chunk + 1]
        for i in range(low, high):
            v = unsigned(order[begin + i])
            outside = 0.0
            to = local.starts[i]
            for slot in range(row_starts[v], row_starts[v] + row_lengths[v]):
                u = unsigned(column_indices[unsigned(slot)])
                place = places[u] - begin
                if place < 0 or place >= size:
                    outside += edge_amount(contributions[u], weights, slot)
                    continue
                local.indices[to] = place if low <= place < high else place + size
                _copy_weight(local.weights, to, weights, slot)
                to += 1
            d = degree[v]
            inverse = 1.0 / d if d > 0 else 0.0
            local.lengths[i] = to - local.starts[i]
            local.rhs[i] = rhs_scale + damping * outside
            local.diagonal[i] = diagonal_of(d, loop[v], damping)
            local.inverse[i] = inverse
            local.values[i] = values[v]
            local.contributions[i] = local.contributions[size + i] = values[v] * inverse


@sequential
def _sweep(first_chunk, last_chunk, sweep, history, damping, local):  # type: ignore[no-untyped-def]
    """One Gauss-Seidel sweep over some chunks.

    history  how many of the sweeps before count
    """
    now, last, before = sweep % 3, (sweep + 2) % 3, (sweep + 1) % 3
    indices, weights, contributions = local.indices, local.weights, local.contributions
    for chunk in range(first_chunk, last_chunk):
        step_l1 = 0.0
        mass = 0.0
        largest = 0.0
        new_new = 0.0
        new_last = 0.0
        last_last = 0.0
        new_step = 0.0
        last_step = 0.0
        for i in range(local.bounds[chunk], local.bounds[chunk + 1]):
            slot = local.starts[i]
            end = slot + local.lengths[i]
            first_sum = 0.0
            second_sum = 0.0
            while slot + 2 <= end:
                first_sum += edge_amount(
                    contributions[unsigned(indices[unsigned(slot)])], weights, slot
                )
                second_sum += edge_amount(
                    contributions[unsigned(indices[unsigned(slot + 1)])], weights, slot + 1
                )
                slot += 2
            if slot < end:
                first_sum += edge_amount(
                    contributions[unsigned(indices[unsigned(slot)])], weights, slot
                )
            value = (local.rhs[i] + damping * (first_sum + second_sum)) / local.diagonal[i]
            step = value - local.values[i]
            local.values[i] = value
            local.contributions[i] = value * local.inverse[i]
            local.steps[now, i] = step
            step_l1 += abs(step)
            mass += value
            largest = max(largest, abs(step))
            if history > 0:
                new = step - local.steps[last, i]
                weighted = new / value
                new_new += weighted * new
                new_step += weighted * step
                if history > 1:
                    old = local.steps[last, i] - local.steps[before, i]
                    new_last += weighted * old
                    last_last += old * old / value
                    last_step += old * step / value
        sums = local.sums[chunk]
        sums[STEP_L1] = step_l1
        sums[MASS] = mass
        sums[LARGEST_STEP] = largest
        sums[NEW_NEW] = new_new
        sums[NEW_LAST] = new_last
        sums[LAST_LAST] = last_last
        sums[NEW_STEP] = new_step
        sums[LAST_STEP] = last_step


@sequential
def _mix(  # type: ignore[no-untyped-def]
    first_chunk, last_chunk, size, sweep, history, new_part, old_part, least, local
):
    """y ← T(y) - a·(T(y) - T(y')) - b·(T(y') - T(y'')), with T(y) what the last sweep left."""
    now, last, before = sweep % 3, (sweep + 2) % 3, (sweep + 1) % 3
    for i in range(local.bounds[first_chunk], local.bounds[last_chunk]):
        value = local.values[i]
        local.targets[now, i] = value
        if history > 0:
            mixed = value - new_part * (value - local.targets[last, i])
            if history > 1:
                mixed -= old_part * (local.targets[last, i] - local.targets[before, i])
            value = max(mixed, least)
            local.values[i] = value
            local.contributions[i] = value * local.inverse[i]
        local.contributions[size + i] = local.contributions[i]


@sequential
def _store(first_chunk, last_chunk, begin, order, values, contributions, local):  # type: ignore[no-untyped-def]
    """Copies y and contributions of some chunks back."""
    for i in range(local.bounds[first_chunk], local.bounds[last_chunk]):
        v = unsigned(order[begin + i])
        values[v] = local.values[i]
        contributions[v] = local.contributions[i]


_extract_on_all_cores = on_all_cores(_extract)
_sweep_on_all_cores = on_all_cores(_sweep)
_mix_on_all_cores = on_all_cores(_mix)
_store_on_all_cores = on_all_cores(_store)


@helper
def _divide(begin, size, order, in_lengths, local):  # type: ignore[no-untyped-def]
    """Divides a component into chunks of about equal numbers of in-edges, of which it may use as
    many slots. Returns how many chunks there are.
    """
    slots = 0
    for i in range(size):
        local.starts[i] = slots
        slots += in_lengths[order[begin + i]]
    chunks = min(max(slots // CHUNK_EDGES, 1), MOST_CHUNKS)
    chunk = 0
    for i in range(size):
        while chunk < chunks and local.starts[i] * chunks >= chunk * slots:
            local.bounds[chunk] = i
            chunk += 1
    while chunk <= chunks:
        local.bounds[chunk] = size
        chunk += 1
    return chunks


@helper
def _mixture(sums, history):  # type: ignore[no-untyped-def]
    """The parts of the last two differences that minimise the weighted step."""
    new_new = sums[NEW_NEW]
    if history == 0 or not new_new > 0.0:
        return 0.0, 0.0
    new_last, last_last = sums[NEW_LAST], sums[LAST_LAST]
    new_step, last_step = sums[NEW_STEP], sums[LAST_STEP]
    determinant = new_new * last_last - new_last * new_last
    if history > 1 and determinant > 1e-12 * new_new * last_last:
        new_part = (new_step * last_last - last_step * new_last) / determinant
        return new_part, (new_new * last_step - new_last * new_step) / determinant
    return new_step / new_new, 0.0


@helper
def _iterate(size, chunks, rhs_scale, damping, residual_goal, largest_step, most, local):  # type: ignore[no-untyped-def]
    """Sweeps over an extracted component until it is solved. Returns the number of sweeps."""
    history = 0
    last = np.inf
    sums = local.sums[0]
    for sweep in range(most):
        if chunks == 1:
            _sweep(0, 1, sweep, history, damping, local)
        else:
            _sweep_on_all_cores(chunks, 1, sweep, history, damping, local)
            for chunk in range(1, chunks):
                largest = max(sums[LARGEST_STEP], local.sums[chunk, LARGEST_STEP])
                sums += local.sums[chunk]
                sums[LARGEST_STEP] = largest
        step = sums[STEP_L1]
        if damping * step <= residual_goal * sums[MASS] or sums[LARGEST_STEP] <= largest_step:
            return sweep + 1
        # a sweep that gains less than it must follows a mixture that did not help
        plain = step > damping * last
        last = step
        if plain:
            history = 0
        new_part, old_part = _mixture(sums, history)
        if chunks == 1:
            _mix(0, 1, size, sweep, history, new_part, old_part, rhs_scale, local)
        else:
            _mix_on_all_cores(chunks, 1, size, sweep, history, new_part, old_part, rhs_scale, local)
        if not plain:
            history = min(history + 1, 2)
    return most


@sequential
def solve_components(  # type: ignore[no-untyped-def]
    order,
    first,
    places,
    incoming,
    loop,
    degree,
    rhs_scale,
    damping,
    residual_goal,
    largest_step,
    most_sweeps,
    values,
    contributions,
    local,
):
    """See ComponentOperations.solve. A caller must hold `one_parallel_kernel`.

    places  int32[n], the place of each vertex in `order`
    Returns the most sweeps over a component, and the edges read.
    """
    in_lengths = incoming.row_lengths
    most = 0
    edges = 0
    for component in range(len(first) - 1):
        begin = first[component]
        size = first[component + 1] - begin
        if size == 1:
            v = unsigned(order[begin])
            d = degree[v]
            mass = rhs_scale + damping * row_sum(incoming, v, contributions)
            value = mass / diagonal_of(d, loop[v], damping)
            values[v] = value
            contributions[v] = value / d if d > 0 else 0.0
            edges += in_lengths[v]
            continue
        chunks = _divide(begin, size, order, in_lengths, local)
        if chunks == 1:
            _extract(
                0, 1, begin, size, order, places, incoming, loop, degree, values, contributions,
                rhs_scale, damping, local,
            )  # fmt: skip
        else:
            _extract_on_all_cores(
                chunks, 1, begin, size, order, places, incoming, loop, degree, values,
                contributions, rhs_scale, damping, local,
            )  # fmt: skip
        inner = 0
        for i in range(size):
            inner += local.lengths[i]
            edges += in_lengths[order[begin + i]]
        sweeps = _iterate(
            size, chunks, rhs_scale, damping, residual_goal, largest_step, most_sweeps, local
        )
        most = max(most, sweeps)
        edges += sweeps * inner
        if chunks == 1:
            _store(0, 1, begin, order, values, contributions, local)
        else:
            _store_on_all_cores(chunks, 1, begin, order, values, contributions, local)
    return most, edges
