"""Numba kernels of dense sweeps: the residual, a sweep, and a step of Orthomin(1).

Each kernel leaves one row of `sums` for every chunk or stripe. Of a sweep these are ‖r‖₁, Σr, ΣΔy,
Σr after the next sweep, and max |Δy| (see gpu.operations.sweeps.SweepResult).
"""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu.rows import (
    BLOCK,
    CHUNKS,
    STRIPE,
    bounded,
    change_of,
    diagonal_of,
    exact_contribution,
    is_isolated,
    residual_at,
    row_sum,
)
from gpu.jit.compile import helper, kernel, sequential, unsigned

SUMS = 5
"""Sums of a sweep; as many inner products of a step of Orthomin(1)."""

RESIDUAL_L1, RESIDUAL_SUM, MASS, NEXT_RESIDUAL_SUM, LARGEST_STEP = range(SUMS)

_VECTORISED = 256
"""Vertices of a block that is summed after it was changed, while it is in the fastest cache."""


@helper
def contribution_of(value, residual, degree, diagonal, single):  # type: ignore[no-untyped-def]
    """What a vertex sends along each edge, quantized. A y in float32 moves by what it can
    represent, and the contribution follows from that.
    """
    if degree == 0:
        return np.float32(0.0)
    if single:
        step = np.float64(np.float32(value + residual / diagonal)) - value
        return exact_contribution(step / degree, degree)
    # only the rounded value counts, so what is rounded need not be exact
    return bounded(np.float32(residual) / np.float32(diagonal * degree), degree)


@helper
def _next_value(value, residual, contribution, degree, diagonal, single):  # type: ignore[no-untyped-def]
    """y after the step that the contribution stands for. A dangling vertex takes all of r."""
    if single:
        return np.float64(np.float32(value + residual / diagonal))
    return value + (np.float64(contribution) * degree if degree > 0 else residual)


@helper
def next_residual_of(residual, contribution, degree, damping):  # type: ignore[no-untyped-def]
    """What Σr will contain because of this vertex after a sweep, apart from the rounding of y:
    α·contribution·(d - ℓ) is sent, r - (1 - αℓ/d)·contribution·d stays.
    """
    if degree == 0:
        return 0.0
    return residual - (1.0 - damping) * (np.float64(contribution) * degree)


@helper
def _isolated_step(value, residual, diagonal, single):  # type: ignore[no-untyped-def]
    """y and r of an isolated vertex once y has taken all of r that it can represent."""
    new = value + residual / diagonal
    if single:
        new = np.float64(np.float32(new))
    return new, residual - diagonal * (new - value)


@kernel(CHUNKS)
def compute_residual(  # type: ignore[no-untyped-def]
    first_group,
    last_group,
    groups,
    order,
    incoming,
    loop,
    degree,
    values,
    contributions,
    rhs_scale,
    damping,
    residuals,
    sums,
):
    for group in range(first_group, last_group):
        residual_l1 = 0.0
        residual_sum = 0.0
        first = groups[group]
        while first < groups[group + 1]:
            last = min(first + BLOCK, groups[group + 1])
            block_l1 = 0.0
            block_sum = 0.0
            for place in range(first, last):
                v = unsigned(order[unsigned(place)])
                residual, _ = residual_at(
                    v, incoming, loop, degree, values, contributions, rhs_scale, damping
                )
                residuals[v] = residual
                block_l1 += abs(residual)
                block_sum += residual
            residual_l1 += block_l1
            residual_sum += block_sum
            first = last
        sums[group, RESIDUAL_L1] = residual_l1
        sums[group, RESIDUAL_SUM] = residual_sum


@kernel(STRIPE)
def quantize_contributions(  # type: ignore[no-untyped-def]
    first, last, in_lengths, loop, degree, damping, shift, values, r, contributions, sums
):
    single = values.itemsize == 4
    residual_l1 = 0.0
    residual_sum = 0.0
    mass = 0.0
    next_residual_sum = 0.0
    for vertex in range(first, last):
        v = unsigned(vertex)
        d = degree[v]
        diagonal = diagonal_of(d, loop[v], damping)
        value = np.float64(values[v])
        if is_isolated(d, loop[v], in_lengths[v]):
            new, rest = _isolated_step(value, np.float64(r[v]) - shift, diagonal, single)
            values[v] = new
            r[v] = rest
            contributions[v] = 0.0
            residual_l1 += abs(np.float64(r[v]))
            residual_sum += np.float64(r[v])
            mass += new - value
            continue
        r[v] = r[v] - shift
        residual = np.float64(r[v])
        contribution = contribution_of(value, residual, d, diagonal, single)
        contributions[v] = contribution
        residual_l1 += abs(residual)
        residual_sum += residual
        next_residual_sum += next_residual_of(residual, contribution, d, damping)
    stripe = first // STRIPE
    sums[stripe, RESIDUAL_L1] = residual_l1
    sums[stripe, RESIDUAL_SUM] = residual_sum
    sums[stripe, MASS] = mass
    sums[stripe, NEXT_RESIDUAL_SUM] = next_residual_sum


@kernel(CHUNKS)
def sweep(  # type: ignore[no-untyped-def]
    first_group,
    last_group,
    groups,
    order,
    incoming,
    loop,
    degree,
    contributions,
    damping,
    shift,
    deflation,
    coefficient,
    smallest,
    fresh,
    kept,
    values,
    r,
    new_contributions,
    sums,
):
    in_lengths = incoming.row_lengths
    single = values.itemsize == 4
    deflated = len(deflation.values) > 0
    for group in range(first_group, last_group):
        residual_l1 = 0.0
        residual_sum = 0.0
        mass = 0.0
        next_residual_sum = 0.0
        largest = 0.0
        for place in range(groups[group], groups[group + 1]):
            v = unsigned(order[unsigned(place)])
            incoming_mass = row_sum(incoming, v, contributions)
            d = degree[v]
            diagonal = diagonal_of(d, loop[v], damping)
            old = np.float64(values[v])
            before = np.float64(r[v])
            if is_isolated(d, loop[v], in_lengths[v]):
                new, rest = _isolated_step(old, before - shift, diagonal, single)
                values[v] = new
                r[v] = rest
                new_contributions[v] = 0.0
                residual_l1 += abs(np.float64(r[v]))
                residual_sum += np.float64(r[v])
                mass += new - old
                largest = max(largest, change_of(old, new, smallest))
                continue
            new = _next_value(old, before, contributions[v], d, diagonal, single)
            rest = damping * incoming_mass + (before - diagonal * (new - old)) - shift
            if deflated:
                new += coefficient * deflation.values[v]
                rest -= coefficient * (deflation.rhs_scale - deflation.residual[v])
            step = new - old
            values[v] = new
            r[v] = rest
            residual = np.float64(r[v])
            contribution = contribution_of(new, residual, d, diagonal, single)
            if kept != 0.0:
                contribution = bounded(fresh * contribution + kept * contributions[v], d)
            new_contributions[v] = contribution
            residual_l1 += abs(residual)
            residual_sum += residual
            mass += step
            next_residual_sum += next_residual_of(residual, contribution, d, damping)
            largest = max(largest, change_of(old, new, smallest))
        sums[group, RESIDUAL_L1] = residual_l1
        sums[group, RESIDUAL_SUM] = residual_sum
        sums[group, MASS] = mass
        sums[group, NEXT_RESIDUAL_SUM] = next_residual_sum
        sums[group, LARGEST_STEP] = largest


@sequential
def subtract_at(residual, places, weights, amount):  # type: ignore[no-untyped-def]
    for index in range(len(places)):
        residual[unsigned(places[index])] -= amount * weights[index]


@kernel(CHUNKS)
def orthomin_image(  # type: ignore[no-untyped-def]
    first_group,
    last_group,
    groups,
    order,
    incoming,
    loop,
    degree,
    contributions,
    damping,
    mean,
    values,
    r,
    floor,
    has_previous,
    weights,
    last_image,
    image,
    products,
):
    """q̂ = A·δ - mean, and the inner products in the order of OrthominStep.of."""
    in_lengths = incoming.row_lengths
    for group in range(first_group, last_group):
        new_new = 0.0
        new_r = 0.0
        new_last = 0.0
        last_last = 0.0
        last_r = 0.0
        for place in range(groups[group], groups[group + 1]):
            v = unsigned(order[unsigned(place)])
            incoming_mass = row_sum(incoming, v, contributions)
            d = degree[v]
            diagonal = diagonal_of(d, loop[v], damping)
            if is_isolated(d, loop[v], in_lengths[v]):
                image[v] = 0.0
                continue
            step = _next_value(0.0, r[v], contributions[v], d, diagonal, False)
            here = diagonal * step - damping * incoming_mass - mean
            image[v] = here
            if floor > 0.0:
                weights[v] = 1.0 / (diagonal * max(values[v], floor))
            weighted = weights[v] * here
            new_new += weighted * here
            new_r += weighted * r[v]
            if has_previous:
                weighted_last = weights[v] * last_image[v]
                new_last += weighted * last_image[v]
                last_last += weighted_last * last_image[v]
                last_r += weighted_last * r[v]
        products[group, 0] = new_new
        products[group, 1] = new_r
        products[group, 2] = new_last
        products[group, 3] = last_last
        products[group, 4] = last_r


@kernel(STRIPE)
def orthomin_step(  # type: ignore[no-untyped-def]
    first,
    last,
    in_lengths,
    loop,
    degree,
    damping,
    mean,
    alpha,
    beta,
    has_previous,
    image,
    direction,
    last_image,
    values,
    r,
    contributions,
    sums,
):
    """p = δ - β·p', q = q̂ - β·q', y += α·p, r -= α·q, and the contributions of the new r; Δy in
    place of q̂. A block is changed first and summed then: in one loop with the sums, which have to
    keep their order, nothing would be vectorised.
    """
    residual_l1 = 0.0
    residual_sum = 0.0
    mass = 0.0
    next_residual_sum = 0.0
    largest = 0.0
    while first < last:
        end = min(first + _VECTORISED, last)
        for vertex in range(first, end):
            v = unsigned(vertex)
            d = degree[v]
            diagonal = diagonal_of(d, loop[v], damping)
            isolated = is_isolated(d, loop[v], in_lengths[v])
            sent = _next_value(0.0, r[v], contributions[v], d, diagonal, False)
            # without a previous step both arrays are uninitialised, and may hold NaN
            kept = beta * direction[v] if has_previous else 0.0
            kept_image = beta * last_image[v] if has_previous else 0.0
            p = (mean / diagonal if isolated else sent) - kept
            q = image[v] - kept_image
            old = values[v]
            new = old + alpha * p
            step = new - old
            residual = r[v] - alpha * q + diagonal * (alpha * p - step)
            direction[v] = p
            last_image[v] = q
            values[v] = new
            r[v] = residual
            image[v] = step
            contribution = contribution_of(new, residual, d, diagonal, False)
            contributions[v] = np.float32(0.0) if isolated else contribution
        for vertex in range(first, end):
            v = unsigned(vertex)
            d = degree[v]
            residual_l1 += abs(r[v])
            residual_sum += r[v]
            mass += image[v]
            largest = max(largest, abs(image[v]))
            following = next_residual_of(r[v], contributions[v], d, damping)
            next_residual_sum += 0.0 if is_isolated(d, loop[v], in_lengths[v]) else following
        first = end
    stripe = (last - 1) // STRIPE
    sums[stripe, RESIDUAL_L1] = residual_l1
    sums[stripe, RESIDUAL_SUM] = residual_sum
    sums[stripe, MASS] = mass
    sums[stripe, NEXT_RESIDUAL_SUM] = next_residual_sum
    sums[stripe, LARGEST_STEP] = largest
