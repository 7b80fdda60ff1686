"""The residual of all shards under local changes, and push in bulk-synchronous rounds.

Out-lists name vertices by column (gpu.sharded.numbering). So what a shard adds to r goes first to a
vector over columns, where additions to one vertex meet, and then, as pairs (row, amount), to the
owner of each by an all-to-all. The kernels are those of an undivided graph.

Each addition to the vector over columns is rounded, and so is the addition at the owner: both count
for the certificate. All shards take each decision from numbers that they have gathered.
"""

from __future__ import annotations

from dataclasses import astuple
from math import fsum
from typing import NamedTuple

import numpy as np

from gpu.operations.backend import Backend
from gpu.operations.csr import GraphView
from gpu.operations.device import Array
from gpu.operations.residual import (
    LISTED,
    SOLVE_SHIFT,
    SOLVES,
    PushEnd,
    PushLimits,
    PushResult,
    Residual,
    ResidualDelta,
    ResidualOperations,
)
from gpu.operations.update import EdgeChanges
from gpu.sharded.columns import Columns
from gpu.sharded.communicator import Communicator
from gpu.sharded.numbering import Numbering
from gpu.sharded.sweeps import sweep_costs

_ROUND_EXCHANGES = 4
"""Collective operations of a round: its list, lengths, pairs, and what it did."""

_ROUND_SWEEPS = 16
"""The sweeps of one device whose launches take as long as those of a round: on two H200."""

_LEVELS, _LEVEL_DIVISOR = 4, 8.0
"""Thresholds between which a round chooses, each this part of the one before."""

_SWEEP_REDUCTION = 0.8
"""What part of ‖r‖₁ a dense sweep removes soon after a batch."""

_BELOW_ALL = -1.0
"""A floor that lists every entry which is added to."""

_CANDIDATE_PART, _LEAST_CANDIDATES = 8, 1024
"""See gpu.pagerank.workspace. With more columns than that, the vector is searched for them."""


_NOTHING = ResidualDelta()


class _WorkList(NamedTuple):
    """The vertices of a round.

    queue      int32[…], own ones
    threshold  θ: every candidate above it is in the list
    vertices, edges  of all shards
    """

    queue: Array
    threshold: float
    vertices: int
    edges: int


class Outbox:
    """Sums to send, by column.

    sums  r of a Residual that lists every column with a sum; zero elsewhere
    """

    def __init__(self, local: Backend, numbering: Numbering) -> None:
        allocate, columns = local.device.allocate, numbering.columns
        capacity = columns // _CANDIDATE_PART + _LEAST_CANDIDATES
        purpose = "residual to send"
        sums, marks = allocate(purpose, columns, np.float64), allocate(purpose, columns, np.int32)
        candidates = allocate(purpose, capacity, np.int32)
        self.numbering = numbering
        self.sums = Residual(sums, marks, candidates, 0, _BELOW_ALL, 0)
        self._xp = local.xp
        self.clear()

    def clear(self) -> None:
        """A pass over all columns."""
        self.sums.values.fill(0.0)
        self.sums.marks.fill(0)
        self.sums.listed, self.sums.floor = 0, _BELOW_ALL

    def take(self) -> tuple[Array, Array]:
        """Columns, int32[k], ascending, and their sums, float64[k]; all are zero then."""
        xp, sums = self._xp, self.sums
        listed = sums.candidates[: sums.listed]
        if sums.floor == np.inf:  # more than the list holds
            listed = xp.flatnonzero(sums.values).astype(np.int32)
        columns = xp.sort(listed)
        amounts = sums.values[columns]
        sums.values[columns], sums.marks[columns] = 0.0, 0
        sums.listed, sums.floor = 0, _BELOW_ALL
        return columns, amounts


class ShardedResidual(ResidualOperations):
    """See ResidualOperations. Vectors are over own vertices; what is returned is of all shards.
    `sources` of `spread` and of changes may be empty on some.
    """

    def __init__(self, local: Backend, communicator: Communicator, columns: Columns) -> None:
        """local  with the costs of one device"""
        costs = local.costs
        each = _ROUND_EXCHANGES * costs.exchange + _ROUND_SWEEPS * costs.sweep_overhead
        self.round_cost = each * communicator.size
        self._sweep_overhead = sweep_costs(costs, communicator).sweep_overhead
        self._local, self._communicator, self._columns = local, communicator, columns
        self._outbox: Outbox | None = None
        self._sending = False

    def recompute_rows(
        self,
        graph: GraphView,
        first: int,
        last: int,
        values: Array,
        rhs_scale: float,
        damping: float,
        residual: Residual,
    ) -> ResidualDelta:
        """Raises NotImplementedError: values of other shards are not here."""
        raise NotImplementedError("rows in shards are computed all together")

    def perturb(
        self,
        graph: GraphView,
        changes: EdgeChanges,
        values: Array,
        damping: float,
        residual: Residual,
        edge_limit: int,
    ) -> ResidualDelta | None:
        """Also None if memory is short on one shard."""
        limit = edge_limit // self._communicator.size + 1
        sent: ResidualDelta | None = _NOTHING
        try:
            sums = self._sums_to_send()
            if len(changes.sources):
                sent = self._local.residual.perturb(graph, changes, values, damping, sums, limit)
        except MemoryError:
            sent = None
        (undone,) = self._communicator.sums([sent is None])
        if undone or sent is None:
            return None
        delta, _ = self._deliver(graph, residual, sent)
        return delta

    def spread(
        self,
        graph: GraphView,
        residual: Residual,
        sources: Array,
        contributions: Array,
        targets: Array,
        amounts: Array,
    ) -> ResidualDelta:
        sums = self._sums_to_send()
        sent = self._local.residual.spread(graph, sums, sources, contributions, targets, amounts)
        delta, _ = self._deliver(graph, residual, sent)
        return delta

    def push(
        self,
        graph: GraphView,
        values: Array,
        damping: float,
        residual: Residual,
        limits: PushLimits,
    ) -> PushResult:
        """See ResidualOperations. A short list takes as long as one whose edges cost as much as the
        exchanges of a round, so θ falls until the list is that long. Unless all entries are
        listed, the push ends as at the floor when a round gains less for its cost than a sweep.
        """
        costs, total = self._local.costs, _NOTHING
        sweep_cost = graph.edges + self._sweep_overhead
        threshold, rounds, vertices = limits.threshold, 0, 0
        end: PushEnd
        while True:
            residual_l1 = limits.residual_l1 + total.residual_l1
            remaining = residual_l1 + abs(limits.residual_sum + total.residual_sum)
            if remaining <= limits.goal * (limits.mass + total.mass):
                end = "goal"
                break
            spent = total.additions + rounds * self.round_cost / costs.pushed_edge
            if residual.floor == np.inf or spent > limits.edges:
                end = "work"
                break
            work = self._work_list(graph, residual, threshold, limits.edge_weight)
            threshold = work.threshold
            if work.vertices == 0:
                if threshold <= max(residual.floor, 0.0):
                    end = "floor"
                    break
                continue
            if work.edges > limits.round_edges:
                end = "work"
                break
            if rounds == limits.rounds:
                end = "rounds"
                break
            rounds += 1
            delta, newly_pushed = self._push_list(graph, work.queue, values, damping, residual)
            total = _sum(total, delta)
            vertices += newly_pushed
            cost = self.round_cost + delta.additions * costs.pushed_edge
            gain = -delta.residual_l1 * sweep_cost
            if residual.floor >= 0.0 and gain <= _SWEEP_REDUCTION * residual_l1 * cost:
                end = "floor"
                break
        return PushResult(end, threshold, rounds, vertices, total)

    def select_candidates(self, residual: Residual, floor: float) -> None:
        # the lengths of the lists, from which floors follow, differ from shard to shard
        floor = float(self._communicator.gather([floor]).max())
        self._local.residual.select_candidates(residual, floor)
        floor = float(self._communicator.gather([residual.floor]).max())
        self._agree_on_candidates(residual, floor)

    # ---- a round ----

    def _work_list(
        self, graph: GraphView, residual: Residual, threshold: float, edge_weight: float
    ) -> _WorkList:
        """The candidates above θ, which falls while the list stays short."""
        xp, floor = self._local.xp, residual.floor
        listed = residual.candidates[: residual.listed]
        sizes = xp.abs(residual.values[listed]).astype(np.float64)
        large = sizes > floor
        kept, dropped, sizes = listed[large], listed[~large], sizes[large]
        residual.marks[dropped] &= ~LISTED
        residual.candidates[: len(kept)] = kept
        residual.listed = len(kept)
        lengths = graph.outgoing.row_lengths[kept]
        scaled = sizes / (1.0 + edge_weight * lengths)
        levels = [max(threshold / _LEVEL_DIVISOR**level, floor) for level in range(_LEVELS)]
        above = scaled > xp.asarray(levels)[:, None]
        numbers = [each.sum(axis=1, dtype=np.int64) for each in (above, above * lengths)]
        own = self._local.device.to_host(xp.concatenate(numbers)).tolist()
        totals = self._communicator.sums(own)
        counts, edges = totals[:_LEVELS], totals[_LEVELS:]
        chosen = next((level for level in range(_LEVELS) if counts[level]), _LEVELS - 1)
        short = self.round_cost / self._local.costs.pushed_edge
        while chosen + 1 < _LEVELS and edges[chosen + 1] <= short:
            chosen += 1
        queue = kept[above[chosen]]
        return _WorkList(queue, levels[chosen], int(counts[chosen]), int(edges[chosen]))

    def _push_list(
        self,
        graph: GraphView,
        queue: Array,
        values: Array,
        damping: float,
        residual: Residual,
    ) -> tuple[ResidualDelta, int]:
        """Moves r of the vertices of the list to y, and adds it to r along their out-lists. Also
        returns how many were pushed for the first time in this solve.
        """
        xp, total, sums = self._local.xp, self._local.device.sum, self._sums_to_send()
        degree, loop = graph.degree[queue], graph.loop[queue]
        transition = damping / xp.where(degree > 0, degree, 1)
        diagonal = 1.0 - xp.where(degree > 0, loop * transition, 0.0)
        old, before = values[queue], residual.values[queue].astype(np.float64)
        new = (old + before / diagonal).astype(values.dtype)
        step = new.astype(np.float64) - old
        rest = (before - diagonal * step).astype(values.dtype)
        values[queue], residual.values[queue] = new, rest
        marks, solve = residual.marks[queue], residual.solve % SOLVES
        residual.marks[queue] = marks & LISTED | solve << SOLVE_SHIFT
        moved = xp.abs(before)
        numbers = [
            total(xp.abs(rest) - moved),
            total(rest - before),
            total(step),
            total(moved),
            total(marks >> SOLVE_SHIFT != solve).astype(np.float64),
        ]
        l1, change, mass, size, first = self._local.device.to_host(xp.stack(numbers)).tolist()
        sources = queue[degree > 0]
        contributions = (transition * step)[degree > 0]
        none, no_amounts = xp.empty(0, np.int32), xp.empty(0)
        spread = self._local.residual.spread
        sent = spread(graph, sums, sources, contributions, none, no_amounts)
        pushed = ResidualDelta(l1, change, mass, size, 0.0, len(queue))
        delta, newly_pushed = self._deliver(graph, residual, sent, pushed, first)
        return delta, int(newly_pushed)

    # ---- what shards send each other ----

    def _sums_to_send(self) -> Residual:
        """The sums of this operation; zero."""
        outbox, numbering = self._outbox, self._columns.numbering
        if outbox is None or outbox.numbering != numbering:
            outbox = self._outbox = Outbox(self._local, numbering)
        elif self._sending:
            outbox.clear()  # an operation ended early
        self._sending = True
        return outbox.sums

    def _deliver(
        self,
        graph: GraphView,
        residual: Residual,
        sent: ResidualDelta,
        pushed: ResidualDelta = _NOTHING,
        first: float = 0.0,
    ) -> tuple[ResidualDelta, float]:
        """Adds the sums to r at the owners of their columns. Returns what changed on all shards.

        sent    what adding them up did here
        pushed  what taking them from own vertices changed before
        first   a number to add up over the shards
        """
        assert self._outbox is not None
        xp = self._local.xp
        columns, amounts = self._outbox.take()
        self._sending = False
        rows, bits = self._columns.rows_of(columns), amounts.view(np.int64)
        parts = self._columns.by_owner(columns)
        received = self._communicator.all_to_all(
            [xp.concatenate([rows[part], bits[part]]) for part in parts]
        )
        pairs = [each.reshape(2, len(each) // 2) for each in received]
        targets = xp.concatenate([rows for rows, _ in pairs]).astype(np.int32)
        added = xp.concatenate([bits for _, bits in pairs]).view(np.float64)
        none, no_contributions = xp.empty(0, np.int32), xp.empty(0)
        applied = self._local.residual.spread(
            graph, residual, none, no_contributions, targets, added
        )
        # the sums that arrive are no larger, and no more, than what was added to them
        own = ResidualDelta(
            residual_l1=pushed.residual_l1 + applied.residual_l1,
            residual_sum=pushed.residual_sum + applied.residual_sum,
            mass=pushed.mass,
            moved=pushed.moved + sent.moved,
            magnitude=sent.magnitude + applied.magnitude,
            additions=pushed.additions + sent.additions,
        )
        *sums, floors = self._communicator.gather([*astuple(own), first, residual.floor]).T
        self._agree_on_candidates(residual, float(floors.max()))
        l1, total, mass, moved, magnitude, additions, first = (fsum(column) for column in sums)
        return ResidualDelta(l1, total, mass, moved, magnitude, int(additions)), first

    def _agree_on_candidates(self, residual: Residual, highest_floor: float) -> None:
        """If one shard has more candidates than its list holds, none has candidates."""
        if highest_floor == np.inf:
            residual.listed, residual.floor = 0, np.inf


def _sum(first: ResidualDelta, second: ResidualDelta) -> ResidualDelta:
    return ResidualDelta(*(a + b for a, b in zip(astuple(first), astuple(second), strict=True)))
