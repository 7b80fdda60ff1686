"""Sweeps over the transpose on the ``cpu`` backend: parallel Numba kernels.

Work is cut into chunks of about equal rows and edges; a chunk sums in a fixed order and the chunks'
sums are added in a fixed order, so that results do not depend on the number of threads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from gpu.backends.base import (
    Array,
    Descent,
    Frontier,
    Known,
    Relaxed,
    Rows,
    Step,
    Stepped,
)
from gpu.backends.cpu_graph import CpuGraphOperations
from gpu.backends.parallel import helper, inlined, kernel, unsigned

if TYPE_CHECKING:
    from gpu.graph import Graph

_BLOCK = 1024
"""Terms added one after the other before their sum joins the row's: keeps rounding in long rows
small.
"""

_SHORT = 8
"""Rows of so few entries are summed one after the other: more than one sum costs more there."""

GROUP = 1
"""Groups of Rows that a core takes at a time."""

STRIPE = 1 << 12
"""Vertices that a core takes at a time in passes over all."""

_LAST_DIGITS = 2.0**-21
"""What four steps of a float32 are at most, relative to it. A change by no more counts as none:
rounding alone can make changes of that size go on for ever.
"""

_NO_VALUES = np.zeros(0)

NOTHING_KNOWN = Known(_NO_VALUES, _NO_VALUES, 0.0)


@inlined
def _row_sum(pool, begin, end, contributions):  # type: ignore[no-untyped-def]
    total = 0.0
    if end - begin <= _SHORT:
        for slot in range(unsigned(begin), unsigned(end)):
            total += contributions[unsigned(pool[slot])]
        return total
    while begin < end:
        stop = min(begin + _BLOCK, end)
        # four sums, since an addition that needs the one before it has to wait for it
        first = 0.0
        second = 0.0
        third = 0.0
        fourth = 0.0
        while begin + 4 <= stop:
            first += contributions[unsigned(pool[unsigned(begin)])]
            second += contributions[unsigned(pool[unsigned(begin + 1)])]
            third += contributions[unsigned(pool[unsigned(begin + 2)])]
            fourth += contributions[unsigned(pool[unsigned(begin + 3)])]
            begin += 4
        while begin < stop:
            first += contributions[unsigned(pool[unsigned(begin)])]
            begin += 1
        total += (first + second) + (third + fourth)
    return total


@inlined
def _divided_sum(pool, begin, end, values, degree):  # type: ignore[no-untyped-def]
    total = 0.0
    while begin < end:
        stop = min(begin + _BLOCK, end)
        block = 0.0
        for slot in range(begin, stop):
            u = unsigned(pool[unsigned(slot)])
            block += np.float64(values[u]) / degree[u]
        total += block
        begin = stop
    return total


@inlined
def _residual(  # type: ignore[no-untyped-def]
    v, start, length, pool, loop, degree, values, contributions, base, damping
):
    """r of one vertex, and 1 - αℓ/d."""
    if len(contributions) > 0:
        arriving = _row_sum(pool, start[v], start[v] + length[v], contributions)
    else:
        arriving = _divided_sum(pool, start[v], start[v] + length[v], values, degree)
    leaving = _leaving(degree[v], loop[v], damping)
    return base + damping * arriving - leaving * np.float64(values[v]), leaving


@kernel(GROUP)
def _find_residual(  # type: ignore[no-untyped-def]
    first_group,
    last_group,
    groups,
    order,
    start,
    length,
    pool,
    loop,
    degree,
    values,
    contributions,
    base,
    damping,
    residuals,
    sums,
):
    for group in range(first_group, last_group):
        residual_l1 = 0.0
        residual_sum = 0.0
        first = groups[group]
        while first < groups[group + 1]:
            last = min(first + _BLOCK, groups[group + 1])
            block_l1 = 0.0
            block_sum = 0.0
            for place in range(first, last):
                v = unsigned(order[unsigned(place)])
                residual, _ = _residual(
                    v, start, length, pool, loop, degree, values, contributions, base, damping
                )
                residuals[v] = residual
                block_l1 += abs(residual)
                block_sum += residual
            residual_l1 += block_l1
            residual_sum += block_sum
            first = last
        sums[group, 0] = residual_l1
        sums[group, 1] = residual_sum


@kernel(GROUP)
def _step(  # type: ignore[no-untyped-def]
    first_group,
    last_group,
    groups,
    order,
    start,
    length,
    pool,
    loop,
    degree,
    values,
    contributions,
    base,
    damping,
    new_values,
    affected,
    spreading,
    prune_tolerance,
    frontier_tolerance,
    last_digits,
    largest,
):
    for group in range(first_group, last_group):
        largest_change = 0.0
        for place in range(groups[group], groups[group + 1]):
            v = unsigned(order[unsigned(place)])
            residual, leaving = _residual(
                v, start, length, pool, loop, degree, values, contributions, base, damping
            )
            old = np.float64(values[v])
            new_values[v] = old + residual / leaving
            new = np.float64(new_values[v])
            change = _change(old, new, last_digits)
            largest_change = max(largest_change, change)
            relative = change / max(new, old)
            if relative <= prune_tolerance:
                affected[v] = 0
            if relative > frontier_tolerance:
                spreading[v] = 1
        largest[group] = largest_change


@helper
def _leaving(d, loop, damping):  # type: ignore[no-untyped-def]
    return 1.0 - damping / d if loop else 1.0


@helper
def _change(old, new, last_digits):  # type: ignore[no-untyped-def]
    step = abs(new - old)
    return step if step > last_digits * new else 0.0


@helper
def _share(value, residual, d, leaving, single):  # type: ignore[no-untyped-def]
    """What a vertex sends along each edge: for a y in float32, of what that can take."""
    if d == 0:
        return np.float32(0.0)
    if single:
        return np.float32((np.float64(np.float32(value + residual / leaving)) - value) / d)
    # what it is rounded to matters, not what it is rounded from
    return np.float32(residual) / np.float32(leaving * d)


@helper
def _stepped(value, residual, share, d, leaving, single):  # type: ignore[no-untyped-def]
    """y after the step: by what the share stands for exactly; without out-edges by all there is."""
    if single:
        return np.float64(np.float32(value + residual / leaving))
    return value + (np.float64(share) * d if d > 0 else residual)


@helper
def _sent_and_left(residual, share, d, damping):  # type: ignore[no-untyped-def]
    """What is in the residual of all vertices after a sweep because of this one, but for what y
    rounds away: α·share·(d - ℓ) is sent, r - (1 - αℓ/d)·share·d stays.
    """
    return residual - (1.0 - damping) * (np.float64(share) * d) if d > 0 else 0.0


@helper
def _alone(d, loop, entries):  # type: ignore[no-untyped-def]
    """Whether a vertex has no edge but its own loop."""
    return d == loop and entries == 0


@helper
def _followed(value, residual, leaving, single):  # type: ignore[no-untyped-def]
    """y of a vertex without edges once it has taken all of a residual, and what it could not."""
    new = value + residual / leaving
    if single:
        new = np.float64(np.float32(new))
    return new, residual - leaving * (new - value)


@kernel(GROUP)
def _relax(  # type: ignore[no-untyped-def]
    first_group,
    last_group,
    groups,
    order,
    start,
    length,
    pool,
    loop,
    degree,
    shares,
    damping,
    shift,
    known,
    known_residual,
    known_base,
    amount,
    last_digits,
    values,
    r,
    new_shares,
    sums,
):
    single = values.itemsize == 4
    leaning = len(known) > 0
    for group in range(first_group, last_group):
        l1 = 0.0
        total = 0.0
        taken_sum = 0.0
        arriving_sum = 0.0
        largest = 0.0
        for place in range(groups[group], groups[group + 1]):
            v = unsigned(order[unsigned(place)])
            arriving = _row_sum(pool, start[v], start[v] + length[v], shares)
            d = degree[v]
            leaving = _leaving(d, loop[v], damping)
            old = np.float64(values[v])
            before = np.float64(r[v])
            if _alone(d, loop[v], length[v]):
                new, left = _followed(old, before - shift, leaving, single)
                values[v] = new
                r[v] = left
                new_shares[v] = 0.0
                l1 += abs(np.float64(r[v]))
                total += np.float64(r[v])
                taken_sum += new - old
                largest = max(largest, _change(old, new, last_digits))
                continue
            new = _stepped(old, before, shares[v], d, leaving, single)
            left = damping * arriving + (before - leaving * (new - old)) - shift
            if leaning:
                new += amount * known[v]
                left -= amount * (known_base - known_residual[v])
            taken = new - old
            values[v] = new
            r[v] = left
            residual = np.float64(r[v])
            share = _share(new, residual, d, leaving, single)
            new_shares[v] = share
            l1 += abs(residual)
            total += residual
            taken_sum += taken
            arriving_sum += _sent_and_left(residual, share, d, damping)
            largest = max(largest, _change(old, new, last_digits))
        sums[group, 0] = l1
        sums[group, 1] = total
        sums[group, 2] = taken_sum
        sums[group, 3] = arriving_sum
        sums[group, 4] = largest


@kernel(STRIPE)
def _round_shares(  # type: ignore[no-untyped-def]
    first, last, r, values, loop, degree, length, damping, shift, shares, sums
):
    single = values.itemsize == 4
    l1 = 0.0
    total = 0.0
    taken_sum = 0.0
    arriving_sum = 0.0
    for vertex in range(first, last):
        v = unsigned(vertex)
        d = degree[v]
        leaving = _leaving(d, loop[v], damping)
        value = np.float64(values[v])
        if _alone(d, loop[v], length[v]):
            new, left = _followed(value, np.float64(r[v]) - shift, leaving, single)
            values[v] = new
            r[v] = left
            shares[v] = 0.0
            l1 += abs(np.float64(r[v]))
            total += np.float64(r[v])
            taken_sum += new - value
            continue
        r[v] = r[v] - shift
        residual = np.float64(r[v])
        share = _share(value, residual, d, leaving, single)
        shares[v] = share
        l1 += abs(residual)
        total += residual
        arriving_sum += _sent_and_left(residual, share, d, damping)
    stripe = first // STRIPE
    sums[stripe, 0] = l1
    sums[stripe, 1] = total
    sums[stripe, 2] = taken_sum
    sums[stripe, 3] = arriving_sum


@kernel(GROUP)
def _image(  # type: ignore[no-untyped-def]
    first_group,
    last_group,
    groups,
    order,
    start,
    length,
    pool,
    loop,
    degree,
    shares,
    damping,
    mean,
    values,
    r,
    floor,
    weights,
    followed,
    last_image,
    image,
    sums,
):
    for group in range(first_group, last_group):
        new_new = 0.0
        new_r = 0.0
        new_last = 0.0
        last_last = 0.0
        last_r = 0.0
        for place in range(groups[group], groups[group + 1]):
            v = unsigned(order[unsigned(place)])
            arriving = _row_sum(pool, start[v], start[v] + length[v], shares)
            d = degree[v]
            leaving = _leaving(d, loop[v], damping)
            if _alone(d, loop[v], length[v]):
                image[v] = 0.0
                continue
            step = _stepped(0.0, r[v], shares[v], d, leaving, False)
            here = leaving * step - damping * arriving - mean
            image[v] = here
            if floor > 0.0:
                weights[v] = 1.0 / (leaving * max(values[v], floor))
            weighted = weights[v] * here
            new_new += weighted * here
            new_r += weighted * r[v]
            if followed:
                weighted_last = weights[v] * last_image[v]
                new_last += weighted * last_image[v]
                last_last += weighted_last * last_image[v]
                last_r += weighted_last * r[v]
        sums[group, 0] = new_new
        sums[group, 1] = new_r
        sums[group, 2] = new_last
        sums[group, 3] = last_last
        sums[group, 4] = last_r


@kernel(STRIPE)
def _descend(  # type: ignore[no-untyped-def]
    first,
    last,
    image,
    loop,
    degree,
    length,
    damping,
    mean,
    size,
    mixed,
    followed,
    direction,
    last_image,
    values,
    r,
    shares,
    sums,
):
    l1 = 0.0
    total = 0.0
    taken_sum = 0.0
    arriving_sum = 0.0
    largest = 0.0
    for vertex in range(first, last):
        v = unsigned(vertex)
        d = degree[v]
        leaving = _leaving(d, loop[v], damping)
        alone = _alone(d, loop[v], length[v])
        p = mean / leaving if alone else _stepped(0.0, r[v], shares[v], d, leaving, False)
        q = image[v]
        if followed:
            p -= mixed * direction[v]
            q -= mixed * last_image[v]
        old = values[v]
        new = old + size * p
        taken = new - old
        residual = r[v] - size * q + leaving * (size * p - taken)
        direction[v] = p
        last_image[v] = q
        values[v] = new
        r[v] = residual
        shares[v] = 0.0
        l1 += abs(residual)
        total += residual
        taken_sum += taken
        if not alone:
            share = _share(new, residual, d, leaving, False)
            shares[v] = share
            arriving_sum += _sent_and_left(residual, share, d, damping)
        largest = max(largest, abs(taken))
    stripe = first // STRIPE
    sums[stripe, 0] = l1
    sums[stripe, 1] = total
    sums[stripe, 2] = taken_sum
    sums[stripe, 3] = arriving_sum
    sums[stripe, 4] = largest


class CpuSweepOperations(CpuGraphOperations):
    """Operations that read in-lists; see Backend."""

    share_dtypes: ClassVar[dict[str, type[np.generic]]] = {
        "float64": np.float32,
        "float32": np.float32,
    }

    def find_residual(
        self,
        graph: Graph,
        values: Array,
        contributions: Array | None,
        base: float,
        damping: float,
        residual: Array,
    ) -> tuple[float, float]:
        incoming = graph.incoming
        rows = incoming.rows
        sums = np.zeros((len(rows.groups) - 1, 2))
        _find_residual(
            len(rows.groups) - 1,
            rows.groups,
            rows.order,
            incoming.start,
            incoming.length,
            incoming.pool,
            graph.loop,
            graph.degree,
            values,
            _NO_VALUES if contributions is None else contributions,
            base,
            damping,
            residual,
            sums,
        )
        residual_l1, residual_sum = sums.sum(axis=0).tolist()
        return residual_l1, residual_sum

    def step(
        self,
        graph: Graph,
        rows: Rows,
        values: Array,
        contributions: Array | None,
        base: float,
        damping: float,
        new_values: Array,
        frontier: Frontier,
    ) -> Stepped:
        incoming, order = graph.incoming, rows.order
        largest = np.zeros(len(rows.groups) - 1)
        _step(
            len(rows.groups) - 1,
            rows.groups,
            order,
            incoming.start,
            incoming.length,
            incoming.pool,
            graph.loop,
            graph.degree,
            values,
            _NO_VALUES if contributions is None else contributions,
            base,
            damping,
            new_values,
            frontier.affected,
            frontier.spreading,
            frontier.prune_tolerance,
            frontier.frontier_tolerance,
            _last_digits(values),
            largest,
        )
        values[order] = new_values[order]
        if contributions is not None:
            degree = graph.degree[order]
            contributions[order] = np.where(degree > 0, values[order] / np.maximum(degree, 1), 0.0)
        spreading, staying = order[:0], order
        if np.isfinite(frontier.frontier_tolerance):
            spreading = order[frontier.spreading[order] != 0]
            frontier.spreading[spreading] = 0
            staying = order[frontier.affected[order] != 0]
        return Stepped(float(largest.max(initial=0.0)), spreading, staying)

    def round_shares(
        self,
        graph: Graph,
        values: Array,
        residual: Array,
        shares: Array,
        damping: float,
        shift: float,
    ) -> Relaxed:
        sums = np.zeros((-(-graph.vertices // STRIPE), 5))
        _round_shares(
            graph.vertices,
            residual,
            values,
            graph.loop,
            graph.degree,
            graph.incoming.length,
            damping,
            shift,
            shares,
            sums,
        )
        return _relaxed(sums)

    def relax(
        self,
        graph: Graph,
        values: Array,
        residual: Array,
        shares: Array,
        new_shares: Array,
        damping: float,
        shift: float,
        known: Known | None = None,
        amount: float = 0.0,
    ) -> Relaxed:
        known = known or NOTHING_KNOWN
        incoming = graph.incoming
        rows = incoming.rows
        sums = np.zeros((len(rows.groups) - 1, 5))
        _relax(
            len(rows.groups) - 1,
            rows.groups,
            rows.order,
            incoming.start,
            incoming.length,
            incoming.pool,
            graph.loop,
            graph.degree,
            shares,
            damping,
            shift,
            known.values,
            known.residual,
            known.base,
            amount,
            _last_digits(values),
            values,
            residual,
            new_shares,
            sums,
        )
        return _relaxed(sums)

    def accelerate(
        self,
        graph: Graph,
        values: Array,
        residual: Array,
        shares: Array,
        descent: Descent,
        damping: float,
        mean: float,
        floor: float,
        followed: bool,
    ) -> tuple[Step, Relaxed]:
        incoming = graph.incoming
        rows = incoming.rows
        products = np.zeros((len(rows.groups) - 1, 5))
        _image(
            len(rows.groups) - 1,
            rows.groups,
            rows.order,
            incoming.start,
            incoming.length,
            incoming.pool,
            graph.loop,
            graph.degree,
            shares,
            damping,
            mean,
            values,
            residual,
            floor,
            descent.weights,
            followed,
            descent.last_image,
            descent.image,
            products,
        )
        step = Step.of(products.sum(axis=0).tolist(), followed)
        sums = np.zeros((-(-graph.vertices // STRIPE), 5))
        _descend(
            graph.vertices,
            descent.image,
            graph.loop,
            graph.degree,
            incoming.length,
            damping,
            mean,
            step.size,
            step.mixed,
            followed,
            descent.direction,
            descent.last_image,
            values,
            residual,
            shares,
            sums,
        )
        return step, _relaxed(sums)

    def sum_depth(self, longest_row: int) -> int:
        return min(longest_row, _BLOCK) + longest_row // _BLOCK


def _relaxed(sums: Array) -> Relaxed:
    l1, residual_sum, total, arriving, _ = sums.sum(axis=0).tolist()
    return Relaxed(l1, residual_sum, total, arriving, float(sums[:, 4].max(initial=0.0)))


def _last_digits(values: Array) -> float:
    return _LAST_DIGITS if values.dtype == np.float32 else 0.0
