"""Sweeps, the residual, pushes, several vectors at once and components, in NumPy: the iterations by
which y = αP̄ᵀy + β·1 is solved.

A = I - αP̄ᵀ has the diagonal 1 - αℓ/d, and r = β·1 - A·y is the residual. Contributions are what a
vertex sends along an edge of weight 1; row_sums(c) is their sum over the in-neighbours, the loop
not among them, so that A·δ = (1 - αℓ/d)·δ - α·row_sums(δ/d).
"""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.residual import HostRounds
from liverank_gpu.backends.reference.rows import (
    ALL,
    as_ieee,
    contributions_of,
    diagonal_of,
    entries_of,
    is_isolated,
    quantized,
    row_sums,
    weights_at,
)
from liverank_gpu.operations import sweeps as op
from liverank_gpu.operations.analysis import (
    ComponentOperations,
    Components,
    ComponentsSolved,
    SolveComponents,
)
from liverank_gpu.operations.csr import Csr, GraphView, runs
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import (
    LISTED,
    SOLVE_SHIFT,
    SOLVES,
    Perturb,
    Push,
    PushEnd,
    PushResult,
    RecomputeRows,
    Residual,
    ResidualDelta,
    Scatter,
    SelectCandidates,
)


def _contribution(
    graph: GraphView, residual: Array, damping: float, at: Array | slice = ALL
) -> NDArray[np.float32]:
    """r / (1 - αℓ/d) / d in float32; 0 where d = 0 and where a vertex is isolated."""
    scale = diagonal_of(graph, damping, at) * graph.degree[at]
    sends = (scale > 0) & ~is_isolated(graph, at)
    amounts = np.divide(residual, scale, out=np.zeros(len(scale)), where=sends)
    return quantized(graph, amounts)


def _step(graph: GraphView, contributions: Array, residual: Array, at: Array) -> Array:
    """δ, the step that contributions stand for: c·d, and all of r where nothing is sent."""
    degree = graph.degree[at]
    return np.where(degree > 0, contributions[at].astype(np.float64) * degree, residual[at])


def _result(
    graph: GraphView, residual: Array, contributions: Array, step: Array, damping: float, at: Array
) -> op.SweepResult:
    """Σr after the next sweep: α·c·(d - ℓ) is sent, and r - (1 - αℓ/d)·c·d stays."""
    degree = graph.degree[at]
    following = residual - (1.0 - damping) * contributions.astype(np.float64) * degree
    following[(degree == 0) | is_isolated(graph, at)] = 0.0
    return op.SweepResult(
        float(np.abs(residual).sum()),
        float(residual.sum()),
        float(step.sum()),
        float(following.sum()),
        float(np.abs(step).max(initial=0.0)),
    )


class ReferenceSweeps(op.SweepOperations):
    contribution_dtype = np.float32
    takes_momentum = True

    def sum_depth(self, longest_row: int) -> int:
        """Rows are added up one entry after the other."""
        return longest_row


@runs
def _compute_contributions(do: op.ComputeContributions) -> None:
    """c = y/d."""
    graph = do.graph
    do.contributions[: graph.vertices] = contributions_of(do.values, graph.degree)


@runs
def _compute_residual(do: op.ComputeResidual) -> op.ResidualSums:
    """r = β + α·row_sums(c) - (1 - αℓ/d)·y."""
    graph = do.graph
    v = do.rows.order
    sums = row_sums(graph.incoming, v, do.contributions)
    r = do.rhs_scale + do.damping * sums - diagonal_of(graph, do.damping, v) * do.values[v]
    do.residual[v] = r
    return op.ResidualSums(float(np.abs(r).sum()), float(r.sum()))


@runs
def _quantize_contributions(do: op.QuantizeContributions) -> op.SweepResult:
    """r -= shift; isolated vertices: y += r / (1 - αℓ/d)."""
    graph = do.graph
    v, alone = np.arange(graph.vertices), is_isolated(graph)
    diagonal, old = diagonal_of(graph, do.damping), do.values.copy()
    do.residual -= do.shift
    do.values[alone] += do.residual[alone] / diagonal[alone]
    step = do.values - old
    do.residual[alone] -= (diagonal * step)[alone]
    do.contributions[: graph.vertices] = sent = _contribution(graph, do.residual, do.damping)
    found = _result(graph, do.residual, sent, step, do.damping, v)
    return found._replace(largest_step=0.0)


@runs
def _sum_in_degrees(do: op.SumInDegrees) -> Array:
    """What values (β + α·c·i) / (1 - αℓ/d) send to other vertices, (1 - ℓ/d) / (1 - αℓ/d) of
    each, for β = 1 and for c = 1; and Σi.
    """
    graph = do.graph
    loop_share = contributions_of(graph.loop.astype(np.float64), graph.degree)
    sent = (1.0 - loop_share) / (1.0 - do.damping * loop_share) * (graph.degree > 0)
    in_degrees = graph.incoming.row_lengths
    return np.array([sent.sum(), do.damping * (sent * in_degrees).sum(), in_degrees.sum()])


@runs
def _start_from_in_degrees(do: op.StartFromInDegrees) -> op.SweepResult:
    """c is what values send along an edge in the mean: c·Σi = β·constant + c·linear."""
    graph = do.graph
    constant, linear, edges = do.in_degrees[:3].tolist()
    mean = do.rhs_scale * constant / (edges - linear) if edges > 0.0 else 0.0
    alone, degree = is_isolated(graph), graph.degree
    do.values[:] = np.where(alone, do.rhs_scale / diagonal_of(graph, do.damping), 0.0)
    do.residual[:] = np.where(alone, 0.0, do.rhs_scale)
    guess = do.rhs_scale + do.damping * mean * graph.incoming.row_lengths
    do.contributions[: graph.vertices] = sent = _contribution(graph, guess, do.damping)
    v = np.arange(len(degree))
    found = _result(graph, do.residual, sent, do.values, do.damping, v)
    return found._replace(largest_step=0.0)


@runs
def _orthomin_products(do: op.OrthominProducts) -> Array:
    """q̂ = A·δ - mean, 0 where a vertex is isolated (Saad, section 6.9, with weights W)."""
    graph = do.graph
    v, diagonal = do.rows.order, diagonal_of(graph, do.damping, do.rows.order)
    sums = row_sums(graph.incoming, v, do.contributions)
    image = diagonal * _step(graph, do.contributions, do.residual, v) - do.damping * sums - do.mean
    joined = ~is_isolated(graph, v)
    do.state.image[v] = image = np.where(joined, image, 0.0)
    if do.floor > 0.0:
        weights = 1.0 / (diagonal * np.maximum(do.values[v], do.floor))
        do.state.weights[v[joined]] = weights[joined]
    # without a previous step its arrays are uninitialised
    last = do.state.last_image[v] if do.has_previous else np.zeros(len(v))
    weighted = np.where(joined, do.state.weights[v], 0.0) * np.array([image, last])
    products = [(0, image), (0, do.residual[v]), (0, last), (1, last), (1, do.residual[v])]
    return np.array([(weighted[one] * other).sum() for one, other in products])


@runs
def _orthomin_update(do: op.OrthominUpdate) -> tuple[op.OrthominStep, op.SweepResult]:
    """p = δ - β·p', q = q̂ - β·q', y += α·p, r -= α·q. What rounding of y leaves stays in r."""
    graph = do.graph
    step, v = op.OrthominStep.of(do.products.tolist(), do.has_previous), np.arange(graph.vertices)
    diagonal = diagonal_of(graph, do.damping)
    p = _step(graph, do.contributions, do.residual, v)
    p = np.where(is_isolated(graph), do.mean / diagonal, p)
    q = do.state.image.copy()
    if do.has_previous:
        p -= step.beta * do.state.direction
        q -= step.beta * do.state.last_image
    do.state.direction[:], do.state.last_image[:] = p, q
    old = do.values.copy()
    do.values += step.alpha * p
    moved = do.values - old
    do.residual += diagonal * (step.alpha * p - moved) - step.alpha * q
    do.contributions[: len(v)] = _contribution(graph, do.residual, do.damping)
    return step, _result(graph, do.residual, do.contributions[v], moved, do.damping, v)


@runs
def _subtract_at(do: op.SubtractAt) -> None:
    """As it is said."""
    do.residual[do.places] -= do.amount * do.weights


@runs
def _sweep(do: op.Sweep) -> op.SweepResult:
    """y += δ, r = α·row_sums(c) + (r - (1 - αℓ/d)·δ) - shift: Jacobi's step (Saad, "Iterative
    methods", section 4.1) on the residual. With deflation also y += a·z, r -= a·A·z.
    """
    graph = do.graph
    v, alone = do.rows.order, is_isolated(graph, do.rows.order)
    diagonal, old, before = diagonal_of(graph, do.damping, v), do.values[v], do.residual[v]
    sums = row_sums(graph.incoming, v, do.contributions)
    new = old + _step(graph, do.contributions, do.residual, v)
    rest = do.damping * sums + (before - diagonal * (new - old)) - do.shift
    if do.deflation is not None:
        new += do.coefficient * do.deflation.values[v]
        rest -= do.coefficient * (do.deflation.rhs_scale - do.deflation.residual[v])
    new[alone] = (old + (before - do.shift) / diagonal)[alone]
    rest[alone] = (before - do.shift - diagonal * (new - old))[alone]
    sent = _contribution(graph, rest, do.damping, v)
    if do.kept != 0.0:
        last = do.contributions[v].astype(np.float64)
        sent = quantized(graph, do.fresh * sent.astype(np.float64) + do.kept * last)
        sent[alone] = 0.0
    do.values[v], do.residual[v], do.new_contributions[v] = new, rest, sent
    return _result(graph, rest, sent, new - old, do.damping, v)


class _Taken(NamedTuple):
    """What vertices whose r moved to y leave, float64[k] each.

    contributions  α·Δy/d, to be added along their out-lists
    delta          changes of |r|, r and y, and |r| before
    fresh          bool[k]: pushed for the first time in this solve
    """

    contributions: Array
    delta: tuple[Array, Array, Array, Array]
    fresh: Array


def _take(graph: GraphView, values: Array, damping: float, residual: Residual, u: Array) -> _Taken:
    """y += r / (1 - αℓ/d), and r keeps what rounding of y left."""
    diagonal, old, before = diagonal_of(graph, damping, u), values[u], residual.values[u]
    values[u] = old + before / diagonal
    step = values[u] - old
    rest = before - diagonal * step
    residual.values[u] = rest
    marks, solve = residual.marks[u], residual.solve % SOLVES
    residual.marks[u] = marks & LISTED | solve << SOLVE_SHIFT
    delta = (np.abs(rest) - np.abs(before), rest - before, step, np.abs(before))
    return _Taken(
        damping * contributions_of(step, graph.degree[u]), delta, marks >> SOLVE_SHIFT != solve
    )


def _add(residual: Residual, targets: Array, amounts: Array) -> ResidualDelta:
    """r[targets[i]] += amounts[i], one after the other."""
    reached, of_each = np.unique(targets, return_inverse=True)
    old = residual.values[reached]
    np.add.at(residual.values, targets, amounts)
    new = residual.values[reached]
    # what r[v] is after each addition: sums of the amounts so far, by target
    order = np.argsort(of_each, kind="stable")
    sums = np.cumsum(amounts[order])
    first = np.searchsorted(of_each[order], np.arange(len(reached)))
    before = old - (sums[first] - amounts[order][first])
    return ResidualDelta(
        residual_l1=float((np.abs(new) - np.abs(old)).sum()),
        residual_sum=float(amounts.sum()),
        moved=float(np.abs(amounts).sum()),
        magnitude=float(np.abs(before[of_each[order]] + sums).sum()),
        additions=len(targets),
    )


def _list(residual: Residual, vertices: Array) -> None:
    """Lists those above the floor. If they exceed the array, there are no candidates."""
    large = np.unique(vertices[np.abs(residual.values[vertices]) > residual.floor])
    fresh = large[residual.marks[large] & LISTED == 0]
    listed = residual.listed + len(fresh)
    if listed > len(residual.candidates):
        residual.marks &= ~LISTED
        residual.listed, residual.floor = 0, np.inf
        return
    residual.candidates[residual.listed : listed] = fresh
    residual.marks[fresh] |= LISTED
    residual.listed = listed


def _along(csr: Csr, sources: Array, amounts: Array) -> tuple[Array, Array]:
    """Targets and amounts, times the weights, of the entries of some rows."""
    places, slots = entries_of(csr, sources)
    return csr.column_indices[slots], amounts[places] * weights_at(csr, slots)


@runs
def _recompute_rows(do: RecomputeRows) -> ResidualDelta:
    """r = β + α·row_sums(y/d) - (1 - αℓ/d)·y."""
    graph, values, damping, residual = do.graph, do.values, do.damping, do.residual
    v = np.arange(do.first, do.last)
    old = residual.values[v]
    sums = row_sums(graph.incoming, v, contributions_of(values, graph.degree))
    new = do.rhs_scale + damping * sums - diagonal_of(graph, damping, v) * values[v]
    residual.values[v] = new
    _list(residual, v)
    size = np.abs(new)
    changed = float((size - np.abs(old)).sum()), float((new - old).sum())
    return ResidualDelta(*changed, magnitude=float(size.sum()))


@runs
def _perturb(do: Perturb) -> ResidualDelta | None:
    """With x = α·y[u]: an edge that is gone takes x·w/W_old, a new one adds x·w/W_new, and one
    that was and is there adds x·w·(1/W_new - 1/W_old) = x/W_old·w·(W_old - W_new)/W_new. Loops
    are edges here.
    """
    graph, changes = do.graph, do.changes
    u, csr = changes.sources, graph.outgoing
    looped = u[graph.loop[u] != 0]
    edges = int(csr.row_lengths[u].sum(dtype=np.int64)) + len(looped)
    if edges + len(changes.removed_targets) + len(changes.added_targets) > do.edge_limit:
        return None
    before, after = changes.old_degree.astype(np.float64), graph.degree[u].astype(np.float64)
    flow = do.damping * do.values[u]
    old, new = contributions_of(flow, before), contributions_of(flow, after)
    kept = old * contributions_of(before - after, after)
    places, slots = entries_of(csr, u)
    sources = np.concatenate([u[places], looped])
    targets = np.concatenate([csr.column_indices[slots], looped])
    weights = np.concatenate([weights_at(csr, slots), graph.loop[looped]])
    stayed = ~np.isin(
        _pairs(sources, targets), _pairs(changes.added_sources, changes.added_targets)
    )
    at = np.searchsorted(u, sources[stayed])
    parts = [(targets[stayed], kept[at] * weights[stayed])]
    for sign, part, ends, to, of_edges in (
        (-1.0, old, changes.removed_sources, changes.removed_targets, changes.removed_weights),
        (1.0, new, changes.added_sources, changes.added_targets, changes.added_weights),
    ):
        sent = sign * part[np.searchsorted(u, ends)]
        parts.append((to, sent if of_edges is None else sent * of_edges))
    nothing = np.empty(0, np.int32), np.empty(0)
    joined = (np.concatenate(each) for each in zip(*parts, strict=True))
    return _scatter(Scatter(graph, do.residual, *nothing, *joined))


@runs
def _scatter(do: Scatter) -> ResidualDelta:
    """Addition by addition, then the list."""
    residual = do.residual
    reached, sent = _along(do.graph.outgoing, do.sources, do.contributions)
    reached, sent = np.concatenate([reached, do.targets]), np.concatenate([sent, do.amounts])
    delta = _add(residual, reached, sent)
    _list(residual, reached)
    return delta


@runs
def _push(do: Push) -> PushResult:
    """The local push (Andersen, Chung and Lang, FOCS 2006), in rounds and with signs."""
    graph, values, damping = do.graph, do.values, do.damping
    residual, limits = do.residual, do.limits
    lengths, edge_weight = graph.outgoing.row_lengths, limits.edge_weight
    total, threshold = ResidualDelta(), limits.threshold
    queue, selected = np.empty(0, np.int32), False
    rounds = vertices = entries = 0
    end: PushEnd | None = None
    while end is None:
        size = limits.residual_l1 + total.residual_l1
        size += abs(limits.residual_sum + total.residual_sum)
        if size <= limits.goal * (limits.mass + total.mass):
            end = "goal"
        elif residual.floor == np.inf or total.additions > limits.edges:
            end = "work"
        elif len(queue) == 0:
            if selected:
                threshold = max(0.5 * threshold, residual.floor)
            selected = True
            queue, largest = _selected(graph, values, damping, residual, threshold, edge_weight)
            if len(queue) == 0:
                if residual.listed == 0 or threshold <= max(residual.floor, 0.0):
                    end = "floor"
                # nothing is above θ: it falls to where the next halving finds something
                threshold = threshold if end else min(threshold, 1.999 * largest)
        elif lengths[queue].sum(dtype=np.int64) > limits.round_edges:
            end = "work"
        elif rounds == limits.rounds:
            end = "rounds"
        else:
            rounds, entries = rounds + 1, entries + len(queue)
            above = threshold * (1.0 + edge_weight * lengths[queue])
            queue = queue[np.abs(residual.values[queue]) > above]
            taken = _take(graph, values, damping, residual, queue)
            vertices += int(np.count_nonzero(taken.fresh))
            targets, amounts = _along(graph.outgoing, queue, taken.contributions)
            added = _add(residual, targets, amounts)
            _list(residual, targets)
            total = _sum_of(total, added, taken)
            queue = np.unique(targets)
            above = threshold * (1.0 + edge_weight * lengths[queue])
            queue = queue[np.abs(residual.values[queue]) > np.maximum(above, residual.floor)]
    return PushResult(end, threshold, rounds, vertices, entries, total)


@runs
def _select_candidates(do: SelectCandidates) -> None:
    """v with |r[v]| > floor."""
    residual = do.residual
    residual.marks &= ~LISTED
    residual.listed, residual.floor = 0, do.floor
    _list(residual, np.arange(len(residual.values)))


def _pairs(sources: Array, targets: Array) -> Array:
    return sources.astype(np.int64) << 32 | targets


def _sum_of(total: ResidualDelta, added: ResidualDelta, taken: _Taken) -> ResidualDelta:
    """What a push changed, after one more round."""
    size, sum_, mass, moved = (float(each.sum()) for each in taken.delta)
    return ResidualDelta(
        total.residual_l1 + added.residual_l1 + size,
        total.residual_sum + added.residual_sum + sum_,
        total.mass + mass,
        total.moved + added.moved + moved,
        total.magnitude + added.magnitude,
        total.additions + added.additions,
    )


def _keep_large(residual: Residual) -> Array:
    """Those above the floor stay candidates, and are returned."""
    listed = residual.candidates[: residual.listed].copy()
    large = np.abs(residual.values[listed]) > residual.floor
    residual.marks[listed[~large]] &= ~LISTED
    residual.listed = int(np.count_nonzero(large))
    residual.candidates[: residual.listed] = listed[large]
    return listed[large]


def _selected(
    graph: GraphView,
    values: Array,
    damping: float,
    residual: Residual,
    threshold: float,
    edge_weight: float,
) -> tuple[Array, float]:
    """The candidates above θ whose r is not too small to change y, and the largest θ that one of
    those below exceeds.
    """
    listed = _keep_large(residual)
    scaled = _scaled(graph, residual, listed, edge_weight)
    moved = values[listed] + residual.values[listed] / diagonal_of(graph, damping, listed)
    above = scaled > threshold
    return listed[above & (moved != values[listed])], float(scaled[~above].max(initial=0.0))


def _scaled(graph: GraphView, residual: Residual, listed: Array, edge_weight: float) -> Array:
    """|r| / (1 + edge_weight·l), the θ that each exceeds no more."""
    lengths = graph.outgoing.row_lengths[listed]
    return np.abs(residual.values[listed]) / (1.0 + edge_weight * lengths)


ROUNDS = HostRounds(_scatter)


@as_ieee
class ReferenceMultivector(op.MultivectorOperations):
    contribution_dtype = np.float32
    min_columns = 4

    def column_count(self, wanted: int) -> int:
        """As many as are wanted, up to 32."""
        return min(max(wanted, self.min_columns), 32)

    def column_depth(self, graph: GraphView) -> int:
        """Rows are added up one entry after the other."""
        return graph.longest_row


@runs
def _sweep_many(do: op.SweepMany) -> NDArray[np.float64]:
    """r = remainder + α·row_sums(c) - a·A·z, y += c'·d + a·z with c' = r / ((1 - αℓ/d)·d),
    column by column. The residual that is left is α·c' along the out-edges, and what rounding
    left.
    """
    graph = do.graph
    v = do.rows.order
    v = v[(graph.incoming.row_lengths[v] > 0) | (do.seeded[v] != 0)]
    degree, diagonal = graph.degree[v].astype(np.float64), diagonal_of(graph, do.damping, v)
    sent_weight = degree - graph.loop[v]
    found = np.zeros((3, do.values.shape[1]))
    for column in range(do.values.shape[1]):
        amount = do.coefficients[column] if do.deflation and column < len(do.coefficients) else 0.0
        sums = row_sums(graph.incoming, v, do.contributions[:, column])
        r = do.damping * sums + do.remainder[v, column]
        step = np.zeros(len(v))
        if do.deflation is not None:
            r -= amount * (do.deflation.rhs_scale - do.deflation.residual[v])
            step += amount * do.deflation.values[v]
        sent = quantized(graph, contributions_of(r, diagonal * degree))
        pushed = np.where(degree > 0, sent.astype(np.float64) * degree, r)
        left = np.where(degree > 0, r - diagonal * pushed, 0.0)
        do.values[v, column] += pushed + step
        do.remainder[v, column], do.new_contributions[v, column] = left, sent
        sent_on = do.damping * sent_weight * sent
        found[:, column] = (
            (np.abs(sent_on) + np.abs(left)).sum(),
            (sent_on + left).sum(),
            (pushed + step).sum(),
        )
    return found


@runs
def _add_compensated(do: op.AddCompensated) -> None:
    """Kahan's sum, with the compensation outside."""
    exact = do.remainder[do.places].astype(np.float64) + do.amounts + do.carry
    do.remainder[do.places] = exact
    do.carry[:] = exact - do.remainder[do.places]


@as_ieee
class ReferenceComponents(ComponentOperations):
    def reciprocity(self, graph: GraphView) -> float:
        """One edge of each of up to 1024 vertices."""
        samples = min(1024, graph.vertices)
        seen = found = 0
        for sample in range(samples):
            v = sample * graph.vertices // samples
            targets = _entries(graph.outgoing, v)
            if len(targets):
                seen += 1
                found += v in _entries(graph.outgoing, targets[sample % len(targets)])
        return found / max(seen, 1)

    def find(self, graph: GraphView) -> Components:
        """Tarjan, "Depth-first search and linear graph algorithms" (1972), without recursion: it
        finds the last component of the order first.
        """
        closed = graph.vertices + 1  # above all indices, which begin at 1
        index, lowest = [0] * graph.vertices, [closed] * graph.vertices
        waiting, found = list[int](), list[list[int]]()
        numbers = iter(range(1, closed))
        for root in np.arange(graph.vertices).tolist():
            path = [] if index[root] else [(root, iter(_entries(graph.outgoing, root).tolist()))]
            while path:
                v, targets = path[-1]
                if index[v] == 0:
                    index[v] = lowest[v] = next(numbers)
                    waiting.append(v)
                for w in targets:
                    if index[w] == 0:
                        path.append((w, iter(_entries(graph.outgoing, w).tolist())))
                        break
                    lowest[v] = min(lowest[v], index[w])
                else:
                    path.pop()
                    if path:
                        lowest[path[-1][0]] = min(lowest[path[-1][0]], lowest[v])
                    if lowest[v] == index[v]:
                        component = [waiting.pop()]
                        while component[-1] != v:
                            component.append(waiting.pop())
                        found.append(sorted(component))
                        for w in component:
                            index[w] = closed
        found.reverse()
        sizes = np.array([len(each) for each in found], np.int64)
        cyclic = [each for each in found if len(each) > 1]
        edges = [int(graph.incoming.row_lengths[each].sum(dtype=np.int64)) for each in cyclic]
        return Components(
            np.array([v for each in found for v in each], np.int32),
            np.concatenate([[0], np.cumsum(sizes)]),
            sum(edges),
            max(edges, default=0),
            max(map(len, cyclic), default=0),
        )


@runs
def _solve_components(do: SolveComponents) -> ComponentsSolved:
    """Jacobi steps y = (β + α·row_sums(y/d)) / (1 - αℓ/d) over one component after the other. A
    step Δy leaves ‖r‖₁ ≤ α·Σ|Δy| (Saad, section 4.1).
    """
    graph, values, contributions = do.graph, do.values, do.contributions
    contributions[:] = contributions_of(values, graph.degree)
    sweeps = edges = 0
    for begin, end in pairwise(do.components.first):
        v = do.components.order[begin:end]
        diagonal = diagonal_of(graph, do.damping, v)
        for sweep in range(1, do.most_sweeps + 1):
            sums = row_sums(graph.incoming, v, contributions)
            new = (do.rhs_scale + do.damping * sums) / diagonal
            steps = np.abs(new - values[v])
            values[v], contributions[v] = new, contributions_of(new, graph.degree[v])
            edges += int(graph.incoming.row_lengths[v].sum(dtype=np.int64))
            if len(v) == 1:
                break
            sweeps = max(sweeps, sweep)
            left = do.damping * steps.sum()
            if left <= do.residual_goal * new.sum() or steps.max() <= do.largest_step:
                break
    return ComponentsSolved(sweeps, edges)


def _entries(csr: Csr, v: int) -> Array:
    start = csr.row_starts[v]
    return csr.column_indices[start : start + csr.row_lengths[v]]
