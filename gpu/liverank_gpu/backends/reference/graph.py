"""Batches, loading and packing, and vertices with the same in-list, in NumPy: how the arrays of a
graph change. Lists get the order that every other backend leaves.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.reference.rows import all_rows, as_ieee, entries_of, weights_at
from liverank_gpu.operations import graph as op
from liverank_gpu.operations.csr import ALIGNMENT, Csr, GraphView, Rows, SlackCsr, runs
from liverank_gpu.operations.device import Array

NO_KEY = np.iinfo(np.int64).max
"""What is no operation."""


def _packed(rows: Array, neighbours: Array, operation: Array | int) -> NDArray[np.int64]:
    """``row << 32 | neighbour << 1 | operation``."""
    keys: NDArray[np.int64] = rows.astype(np.int64) << 32 | neighbours.astype(np.int64) << 1
    return keys | operation


def _ends(keys: Array) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Rows and neighbours."""
    return keys >> 32, keys >> 1 & op.NEIGHBOUR


def _packed_slots(lengths: Array) -> Array:
    return (lengths + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def _roomy_slots(lengths: Array) -> Array:
    """Of rows that outgrew their capacity: a quarter more than they need."""
    return _packed_slots(lengths + lengths // 4)


@as_ieee
class ReferenceGraph(op.GraphByDirection):
    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        """int32 if both are, else int64."""
        dtype = np.result_type(sources, targets, np.int32)
        dtype = dtype if dtype in (np.int32, np.int64) else np.dtype(np.int64)
        return np.asarray(sources, dtype), np.asarray(targets, dtype)

    @runs
    def sorted_keys(self, do: op.PackKeys) -> op.SortedKeys:
        """Packs positions; a key with an id out of 0 … vertices[operation] - 1 is NO_KEY."""
        keys = [np.empty(0, np.int64)]
        for operation, *ids in do.columns:
            ends = np.array(ids, np.int64)
            known = ((ends >= 0) & (ends < do.vertices[operation])).all(axis=0)
            renamed = known & (ends < len(do.positions))
            ends[renamed] = do.positions[ends[renamed]]
            keys.append(np.where(known, _packed(ends[0], ends[1], operation), NO_KEY))
        return self.sort(np.concatenate(keys), do.weights)

    def sort(self, keys: Array, weights: Array | None = None) -> op.SortedKeys:
        """A stable sort."""
        if weights is None:
            return op.SortedKeys(np.sort(keys))
        order = np.argsort(keys, kind="stable")
        return op.SortedKeys(keys[order], weights[order], order)

    def resolve(
        self,
        csr: SlackCsr,
        batch: op.SortedKeys,
        rules: op.UpdateRules,
        plan: op.BatchPlan,
        inserts_absent: bool = False,  # noqa: ARG002
    ) -> None:
        """The edges that a batch names, with what each was and is. Deletions come first among the
        operations on an edge, so it is deleted if its first operation is a deletion, and inserted
        if its last one is an insertion.
        """
        loop, fixed_loops, directed, adds = rules
        keys = batch.keys[batch.keys != NO_KEY]
        plan.opposite[: len(batch.keys)] = NO_KEY
        first = np.flatnonzero(np.diff(keys >> 1, prepend=-1))  # the first operation on each edge
        last = np.append(first[1:], len(keys))[: len(first)] - 1
        rows, neighbours = _ends(keys[first])
        row_vertex, row_edge, edge_row = np.unique(rows, return_index=True, return_inverse=True)
        slots = _slots_of(csr.csr, row_vertex, rows, neighbours)
        is_loop = rows == neighbours
        known = rows < len(loop)
        before = np.zeros(len(first))
        before[is_loop & known] = loop[rows[is_loop & known]]
        found = slots >= 0
        before[found] = weights_at(csr.csr, csr.csr.row_starts[rows[found]] + slots[found])
        present = before > 0
        deleted = keys[first] & 1 != op.INSERT
        inserted = keys[last] & 1 == op.INSERT
        after = np.where(deleted, 0.0, before)
        if batch.weights is None:
            after[inserted] = 1.0
        else:
            after = _weights_after(keys, batch.weights, first, last, after, adds)
        ignored = is_loop & fixed_loops
        removed, added = (~ignored & (after != before) & (weight > 0) for weight in (before, after))
        counted = ~ignored & (directed | (rows <= neighbours))
        exceeded = np.flatnonzero(np.isinf(after) & ~ignored)
        _count(
            plan,
            EDGES=len(first),
            ROWS=len(row_vertex),
            DELETED=np.count_nonzero(counted & present & deleted),
            INSERTED=np.count_nonzero(counted & inserted & (deleted | ~present)),
            REWEIGHTED=np.count_nonzero(
                counted & inserted & present & ~deleted & (after != before)
            ),
            REMOVED=np.count_nonzero(removed),
            ADDED=np.count_nonzero(added),
            EXCEEDED=op.LAST_PLACE - (last[exceeded[0]] + 1) if len(exceeded) else 0,
        )
        numbers = np.arange(len(row_vertex) + 1)
        change = np.where(removed & added, op.LOOP_REWEIGHTED, added.astype(int) - removed)
        for array, values in (
            (plan.row_vertex, row_vertex),
            (plan.row_edge, np.append(row_edge, len(first))),
            (plan.row_loop, np.zeros(len(row_vertex))),
            (plan.row_removed, np.searchsorted(edge_row[removed], numbers)),
            (plan.row_added, np.searchsorted(edge_row[added], numbers)),
            (plan.removed_row, edge_row[removed]),
            (plan.removed_neighbour, neighbours[removed]),
            (plan.removed_slot, slots[removed]),
            (plan.added_row, edge_row[added]),
            (plan.added_neighbour, neighbours[added]),
            (plan.weights.removed, before[removed]),
            (plan.weights.added, after[added]),
        ):
            if array is not None:
                array[: len(values)] = values
        plan.row_loop[edge_row[is_loop]] = change[is_loop]
        # an edge with another weight is one insertion into the transpose, which replaces it
        changed = np.flatnonzero((removed | added) & ~is_loop)
        plan.opposite[changed] = _packed(neighbours[changed], rows[changed], added[changed])
        if batch.weights is not None:
            plan.weights.opposite[changed] = after[changed]

    def plan_rows(self, csr: SlackCsr, plan: op.BatchPlan) -> None:
        """length' = length + added - removed; a row with more entries than its capacity moves."""
        vertices, removed, added = _row_changes(plan)
        known = vertices < len(csr.csr.row_lengths)
        before, capacity = np.zeros((2, len(vertices)), np.int64)
        before[known] = csr.csr.row_lengths[vertices[known]]
        capacity[known] = csr.capacities[vertices[known]]
        after = before + added - removed
        moves = after > capacity
        needed = np.where(moves, _roomy_slots(after), 0)
        changed = np.flatnonzero((removed > 0) | (added > 0) | (plan.row_loop[: len(after)] != 0))
        plan.new_length[: len(after)] = after
        plan.new_start[: len(after)] = np.where(moves, np.cumsum(needed) - needed, -1)
        plan.changed_row[: len(changed)] = changed
        _count(
            plan,
            CHANGED=len(changed),
            NEEDED=needed.sum(),
            MOST=_roomy_slots(after)[added > removed].sum(),
            GROWTH=(_packed_slots(after) - _packed_slots(before)).sum(),
            EMPTIED=np.maximum(removed - added, 0).sum(),
            MISBINNED=np.abs(after - before).sum(),
            LONGEST=after.max(initial=0),
        )

    def count_connected(self, lists: op.Directions, workspace: op.PlanWorkspace) -> None:
        """A vertex has an edge if one of its lists has an entry."""
        plans = workspace.plans
        named = np.union1d(*(_row_changes(plan)[0] for plan in plans))
        before, after = np.zeros((2, len(named)), np.int64)
        for csr, plan in zip(lists, plans, strict=True):
            vertices, removed, added = _row_changes(plan)
            known = named < len(csr.csr.row_lengths)
            before[known] += csr.csr.row_lengths[named[known]]
            after[np.searchsorted(named, vertices)] += added - removed
        after += before
        _count(plans[0], CONNECTED=np.count_nonzero(after) - np.count_nonzero(before))

    def write(self, do: op.ApplyBatch, direction: int) -> None:
        """Row by row: its entries are taken, changed, and written to where the row is then."""
        csr, plan = do.lists[direction], do.workspace.plans[direction]
        lists = csr.csr
        for row in plan.changed_row[: do.counts[direction].changed].tolist():
            vertex, start = int(plan.row_vertex[row]), int(plan.new_start[row])
            begin = int(lists.row_starts[vertex])
            removed = slice(*plan.row_removed[row : row + 2].tolist())
            added = slice(*plan.row_added[row : row + 2].tolist())
            gone = plan.removed_slot[removed][plan.removed_neighbour[removed] != vertex]
            is_new = plan.added_neighbour[added] != vertex
            old_end = begin + int(lists.row_lengths[vertex])
            end = int(plan.new_length[row])
            if start >= 0:
                lists.row_starts[vertex] = csr.end + start
                csr.capacities[vertex] = _roomy_slots(end)
            lists.row_lengths[vertex] = end
            first = int(lists.row_starts[vertex])
            for slots, new in (
                (lists.column_indices, plan.added_neighbour),
                (lists.weights, plan.weights.added),
            ):
                if slots is not None:
                    entries = _changed_row(slots[begin:old_end], gone, new[added][is_new], end)
                    slots[first : first + end] = entries
        if direction == 0:
            self._report(do)

    def _report(self, do: op.ApplyBatch) -> None:
        """Of the out-lists: the changed edges, loops, and d = length + ℓ or its strength."""
        lists, plan, counts = do.lists[0].csr, do.workspace.plans[0], do.counts[0]
        loop, degree, changes = do.loop, do.degree, do.changes
        for kind, count in (("removed", counts.removed), ("added", counts.added)):
            sources = plan.row_vertex[getattr(plan, f"{kind}_row")[:count]]
            targets = getattr(plan, f"{kind}_neighbour")[:count]
            weights = getattr(plan.weights, kind)
            getattr(changes, f"{kind}_sources")[:] = sources
            getattr(changes, f"{kind}_targets")[:] = targets
            if weights is not None:
                getattr(changes, f"{kind}_weights")[:] = weights[:count]
            loops = sources == targets
            added = (weights[:count][loops] if weights is not None else 1) if kind == "added" else 0
            loop[sources[loops]] = added
        vertices = plan.row_vertex[plan.changed_row[: counts.changed]]
        changes.sources[:] = vertices
        changes.old_degree[:] = degree[vertices]
        if lists.weights is None:
            degree[vertices] = lists.row_lengths[vertices] + loop[vertices]
        else:
            _sum_weights(lists, vertices, loop, degree)


def _count(plan: op.BatchPlan, **counted: Any) -> None:
    for name, count in counted.items():
        plan.counters[op.COUNTERS.index(name)] = count


def _slots_of(csr: Csr, named: Array, rows: Array, neighbours: Array) -> NDArray[np.int64]:
    """The slot of each edge in its row, -1 if it is absent. named: the distinct rows."""
    named = named[named < len(csr.row_lengths)]
    places, slots = entries_of(csr, named)
    present = _packed(named[places], csr.column_indices[slots], 0)
    order = np.argsort(present)
    wanted = _packed(rows, neighbours, 0)
    at = np.searchsorted(present, wanted, sorter=order)
    at[at == len(order)] = 0
    found = np.full(len(wanted), -1)
    if len(order):
        at = order[at]
        same = present[at] == wanted
        found[same] = (slots - csr.row_starts[named[places]])[at[same]]
    return found


def _weights_after(
    keys: Array, weights: Array, first: Array, last: Array, before: Array, adds: bool
) -> NDArray[np.float64]:
    """float64[edges]: the last insertion's weight, or the sum of all and of what there was, rounded
    once to float32, which may be infinite.
    """
    inserted = keys[last] & 1 == op.INSERT
    if not adds:
        replaced: NDArray[np.float64] = np.where(inserted, weights[last], before)
        return replaced
    edges = np.repeat(np.arange(len(first)), last + 1 - first)
    inserts = keys & 1 == op.INSERT
    total: NDArray[np.float64] = before.copy()
    np.add.at(total, edges[inserts], weights[: len(keys)][inserts].astype(np.float64))
    return total.astype(np.float32).astype(np.float64)


def _row_changes(plan: op.BatchPlan) -> tuple[Array, Array, Array]:
    """The named rows, and how many entries each loses and gets, loops not counted."""
    rows = int(plan.counters[op.COUNTERS.index("ROWS")])
    loop = plan.row_loop[:rows]
    removed = np.diff(plan.row_removed[: rows + 1]) - ((loop < 0) | (loop == op.LOOP_REWEIGHTED))
    added = np.diff(plan.row_added[: rows + 1]) - (loop > 0)
    return plan.row_vertex[:rows], removed, added


def _changed_row(entries: Array, gone: Array, new: Array, end: int) -> Array:
    """The entries of a row: additions take the slots of removed ones, then those behind the end; or
    entries behind the new end take the slots that are left.
    """
    kept, reused = np.ones(len(entries), bool), min(len(gone), len(new))
    entries = np.concatenate([entries, new[reused:]])
    entries[gone[:reused]] = new[:reused]
    holes = gone[reused:]
    kept[holes] = False
    free = holes[holes < end]
    if len(holes):
        entries[free] = entries[end:][kept[end:]]
    return entries[:end]


@as_ieee
class ReferenceRebuild(op.RebuildOperations):
    def __init__(self, graph: ReferenceGraph) -> None:
        self._graph = graph

    def deduplicate(
        self, batch: op.SortedKeys, loop: Array, adds: bool = False, kept: int = 0
    ) -> op.Deduplicated:
        """One of equal keys, whose weight is that of the last, or the sum of all: a loop's with the
        loop that there is, a float64 sum rounded once to float32.
        """
        keys = batch.keys[batch.keys != NO_KEY]
        first = np.flatnonzero(np.diff(keys, prepend=-1))
        rows, neighbours = _ends(keys[first])
        loops = rows == neighbours
        edges, reweighted, exceeded = keys[first][~loops], 0, -1
        if batch.weights is None:
            loop[rows[loops]] = 1
        else:
            order: Array = batch.order
            last = np.append(first[1:], len(keys))[: len(first)] - 1
            before = np.where(loops, loop[rows].astype(np.float64), 0.0)
            weights = _weights_after(keys, batch.weights, first, last, before, adds)
            changed = (order[first] < kept) & (weights != batch.weights[first]) & ~loops
            reweighted = int(np.count_nonzero(changed))
            if (infinite := np.isinf(weights)).any():
                exceeded = int(order[last[np.argmax(infinite)]])
            loop[rows[loops]] = weights[loops]
            batch.weights[: len(edges)] = weights[~loops]
        batch.keys[: len(edges)] = edges
        return op.Deduplicated(len(edges), int(np.count_nonzero(loops)), reweighted, exceeded)

    def merge(self, first: op.SortedKeys, second: op.SortedKeys) -> op.SortedKeys:
        """A stable sort of both."""
        order = np.argsort(np.concatenate([first.keys, second.keys]), kind="stable")
        return op.SortedKeys(
            *(
                None if one is None else np.concatenate([one, other])[order]
                for one, other in zip(first, second, strict=True)
            )
        )

    def count_rows(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        """Runs of equal rows."""
        rows, begins, counts = np.unique(keys[:edges] >> 32, return_index=True, return_counts=True)
        first[rows - low], length[rows - low] = begins, counts
        return int(_packed_slots(length.astype(np.int64)).sum()), int(length.max(initial=0))

    def count_neighbours(self, keys: Array, edges: int, counts: Array) -> None:
        """One key after the other."""
        np.add.at(counts, _ends(keys[:edges])[1], 1)

    @runs
    def _fill_rows(self, do: op.FillRows) -> None:
        """Key i of a row goes to slot start + i - first."""
        rows, neighbours = _ends(do.batch.keys[: do.edges])
        at = (do.row_starts - do.first)[rows - do.low] + np.arange(do.edges)
        do.slots.column_indices[at] = neighbours
        if do.slots.weights is not None:
            do.slots.weights[at] = do.batch.weights[: do.edges]  # type: ignore[index]

    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        """Capacities are lengths, rounded up; starts are sums of capacities."""
        capacity[:] = _packed_slots(length)
        start[:] = begin + np.cumsum(capacity, dtype=np.int64) - capacity

    def copy_rows(self, csr: Csr, new_start: Array, new_end: int, slots: op.Slots) -> None:  # noqa: ARG002
        """Entry by entry."""
        places, old = entries_of(csr)
        new = new_start[places] + old - csr.row_starts[places]
        slots.column_indices[new] = csr.column_indices[old]
        if slots.weights is not None:
            slots.weights[new] = csr.weights[old]  # type: ignore[index]

    def entries(self, csr: Csr) -> op.Entries:
        """See rows.entries_of."""
        places, slots = entries_of(csr)
        weights = None if csr.weights is None else csr.weights[slots]
        return op.Entries(places.astype(np.int32), csr.column_indices[slots], weights)

    def sum_weights(self, csr: Csr, vertices: Array | None, loop: Array, strength: Array) -> None:
        """W(u) = Σ w(u,v) + ℓ, in float64."""
        chosen = np.arange(len(csr.row_lengths)) if vertices is None else vertices
        _sum_weights(csr, chosen, loop, strength)

    def scale_rows(
        self, outgoing: Csr, incoming: Csr, factors: Array, loop: Array, strength: Array
    ) -> None:
        """w(u,v) ← f(u)·w(u,v) in both directions, ℓ and W alike."""
        for u, factor in enumerate(factors):
            begin, end = (lists.row_starts[u] for lists in (outgoing, incoming))
            outgoing.weights[begin : begin + outgoing.row_lengths[u]] *= factor  # type: ignore[index]
            row = slice(end, end + incoming.row_lengths[u])
            incoming.weights[row] *= factors[incoming.column_indices[row]]  # type: ignore[index]
        loop *= factors
        strength *= factors

    def strength_depth(self, longest_row: int) -> int:
        """The entries one after the other, the loop, the step above the loop, and one more."""
        return longest_row + 3

    def partition(self, length: Array, order: Array, degree_bins: Array) -> NDArray[np.int64]:  # noqa: ARG002
        """One group."""
        order[:] = np.arange(len(length))
        return all_rows(order).groups

    def needs_partition(self, rows: Rows, misbinned: int, slots: int) -> bool:  # noqa: ARG002
        """Never: there is one group."""
        return False


def _sum_weights(csr: Csr, vertices: Array, loop: Array, strength: Array) -> None:
    places, slots = entries_of(csr, vertices)
    own = loop[vertices].astype(np.float64)
    total = own + np.bincount(places, weights_at(csr, slots), len(vertices))
    # a loop so heavy that it swallowed the other weights: GraphView.degree is above it
    swallowed = (csr.row_lengths[vertices] > 0) & (total == own)
    strength[vertices] = np.where(swallowed, np.nextafter(own, np.inf), total)


@as_ieee
class ReferenceLists(op.ListOperations):
    """See ListOperations. A list is a sorted tuple of Python's numbers, and hashed as that."""

    def fingerprints(self, graph: GraphView, positions: Array, longest: int) -> op.Fingerprints:
        """Lists in the place of arrays."""
        found = op.Fingerprints(
            positions.astype(np.int64), *np.zeros((4, len(positions)), np.int64)
        )
        for place, v in enumerate(positions.tolist()):
            length = int(graph.incoming.row_lengths[v])
            if 1 <= length <= longest and (own := _list_of(graph, v))[0] != op.NO_PART:
                sources = graph.incoming.column_indices[_row(graph.incoming, v)].astype(np.int64)
                out_edges = graph.outgoing.row_lengths[sources].tolist()
                fewest = min(zip(out_edges, sources.tolist(), strict=True))
                found.lengths[place], found.hashes[place] = length, hash(own)
                found.out_edges[place], found.sources[place] = fewest
        return found

    def with_same_list(
        self, graph: GraphView, lists: op.Fingerprints
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Whoever has the same list is an out-neighbour of each of its sources."""
        numbers, vertices = [], []
        for number, (position, source) in enumerate(
            zip(lists.positions.tolist(), lists.sources.tolist(), strict=True)
        ):
            wanted = _list_of(graph, position)
            for v in graph.outgoing.column_indices[_row(graph.outgoing, source)].tolist():
                if v != position and _list_of(graph, v) == wanted:
                    numbers.append(number)
                    vertices.append(v)
        return np.array(numbers, np.int64), np.array(vertices, np.int64)


def _row(csr: Csr, v: int) -> slice:
    return slice(csr.row_starts[v], csr.row_starts[v] + csr.row_lengths[v])


def _list_of(graph: GraphView, v: int) -> tuple[object, ...]:
    """What the loop returns, and the sorted in-list."""
    csr, row = graph.incoming, _row(graph.incoming, v)
    sources = csr.column_indices[row].tolist()
    weights = [1.0] * len(sources) if csr.weights is None else csr.weights[row].tolist()
    part = int(op.returned_parts(graph.loop[[v]], graph.degree[[v]])[0])
    return part, *sorted(zip(sources, weights, strict=True))
