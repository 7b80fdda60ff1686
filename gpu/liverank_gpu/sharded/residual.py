"""The residual of all shards under local changes, and push in bulk-synchronous rounds.

Out-lists name vertices by column (liverank_gpu.sharded.columns). So what a shard adds to r goes
first to a vector over columns, where additions to one vertex meet, and then, as pairs (row,
amount), to the owner of each by an all-to-all. The kernels are those of an undivided graph.

Each addition to the vector over columns is rounded, and so is the addition at the owner: both count
for the certificate. All shards take each decision from numbers that they have gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import fsum
from operator import add
from typing import NamedTuple

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView, Table
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import (
    LEVELS,
    CountCandidates,
    Perturb,
    Push,
    PushEnd,
    PushResult,
    PushVertices,
    RecomputeRows,
    Residual,
    ResidualDelta,
    Scatter,
    SelectCandidates,
    TakeCandidates,
)
from liverank_gpu.sharded.columns import Columns, Numbering
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.operations import shard_costs

_LEVEL_DIVISOR = 8.0
"""Of the thresholds between which a round chooses, each is this part of the one before."""

_SWEEP_REDUCTION = 0.8
"""What part of ‖r‖₁ a dense sweep removes soon after a batch."""

_BELOW_ALL = -1.0
"""A floor that lists every entry which is added to."""

_CANDIDATE_PART, _LEAST_CANDIDATES = 8, 1024
"""See liverank_gpu.pagerank.iterate. With more columns than that, the vector is searched for
them.
"""


_NOTHING = ResidualDelta()


class _Candidates(NamedTuple):
    """How large own candidates are.

    thresholds  descending, none below the floor
    numbers     of those above each threshold, then of their out-edges
    kept        above the floor
    """

    thresholds: list[float]
    numbers: list[int]
    kept: int


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


class ShardedResidual:
    """The operations on the residual. Vectors are over own vertices; what is returned is of all
    shards. `sources` of Scatter and of changes may be empty on some.
    """

    def __init__(self, local: Backend, communicator: Communicator, columns: Columns) -> None:
        """local  with the costs of one device"""
        self._costs = shard_costs(local.costs, communicator.size)
        self._local, self._communicator, self._columns = local, communicator, columns
        self._outbox: Outbox | None = None
        self._sending = False

    @property
    def table(self) -> Table:
        """What runs each operation."""
        return {
            RecomputeRows: _recompute_rows,
            Perturb: self._perturb,
            Scatter: self._scatter,
            Push: self._push,
            SelectCandidates: self._select_candidates,
        }

    def _perturb(self, do: Perturb) -> ResidualDelta | None:
        """Also None if memory is short on one shard."""
        limit = do.edge_limit // self._communicator.size + 1
        sent: ResidualDelta | None = _NOTHING
        try:
            sums = self._sums_to_send()
            if len(do.changes.sources):
                sent = self._local.run(replace(do, residual=sums, edge_limit=limit))
        except MemoryError:
            sent = None
        (undone,) = self._communicator.sums([sent is None])
        if undone or sent is None:
            return None
        return self._delivered(do.graph, do.residual, sent)

    def _scatter(self, do: Scatter) -> ResidualDelta:
        sent = self._local.run(replace(do, residual=self._sums_to_send()))
        return self._delivered(do.graph, do.residual, sent)

    def _push(self, do: Push) -> PushResult:
        """A short list takes as long as one whose edges cost as much as the exchanges of a round,
        so θ falls until the list is that long. Unless all entries are listed, the push ends as at
        the floor when a round gains less for its cost than a sweep.
        """
        graph, residual, limits = do.graph, do.residual, do.limits
        local, costs, total = self._local, self._costs, _NOTHING
        nothing = (local.xp.empty(0, np.int32), local.xp.empty(0))
        sweep_cost = graph.edges + costs.sweep_overhead
        threshold, rounds, vertices, entries = limits.threshold, 0, 0, 0
        candidates: _Candidates | None = None
        totals: list[float] = []
        end: PushEnd
        while True:
            residual_l1 = limits.residual_l1 + total.residual_l1
            remaining = residual_l1 + abs(limits.residual_sum + total.residual_sum)
            if remaining <= limits.goal * (limits.mass + total.mass):
                end = "goal"
                break
            spent = total.additions + rounds * costs.round_overhead / costs.pushed_edge
            if residual.floor == np.inf or spent > limits.edges:
                end = "work"
                break
            if candidates is None:
                candidates = self._candidates(graph, residual, threshold, limits.edge_weight)
                totals = self._communicator.sums(candidates.numbers)
            level = self._level(totals)
            threshold = candidates.thresholds[level]
            own = (limits.edge_weight, candidates.numbers[level], candidates.kept)
            queue = local.run(TakeCandidates(graph, residual, threshold, *own))
            candidates = None
            if totals[level] == 0:
                if threshold <= max(residual.floor, 0.0):
                    end = "floor"
                    break
                continue
            if totals[LEVELS + level] > limits.round_edges:
                end = "work"
                break
            if rounds == limits.rounds:
                end = "rounds"
                break
            rounds += 1
            entries += int(totals[level])
            contributions, pushed = local.run(
                PushVertices(graph, do.values, do.damping, residual, queue)
            )
            sums = self._sums_to_send()
            sent = local.run(Scatter(graph, sums, queue, contributions, *nothing))
            applied, (l1, change, mass, moved, first) = self._exchange(graph, residual, pushed)
            left = ResidualDelta(l1, change, mass, moved, 0.0, len(queue))
            # what is next is counted now, so that one gather is for both
            candidates = self._candidates(graph, residual, threshold, limits.edge_weight)
            numbers = [first, *candidates.numbers]
            delta, (newly_pushed, *totals) = self._gathered(residual, sent, applied, left, numbers)
            total = _sum(total, delta)
            vertices += int(newly_pushed)
            cost = costs.round_overhead + delta.additions * costs.pushed_edge
            gain = -delta.residual_l1 * sweep_cost
            if residual.floor >= 0.0 and gain <= _SWEEP_REDUCTION * residual_l1 * cost:
                end = "floor"
                break
        return PushResult(end, threshold, rounds, vertices, entries, total)

    def _select_candidates(self, do: SelectCandidates) -> None:
        residual = do.residual
        # the lengths of the lists, from which floors follow, differ from shard to shard
        floor = float(self._communicator.gather([do.floor]).max())
        self._local.run(SelectCandidates(residual, floor))
        floor = float(self._communicator.gather([residual.floor]).max())
        self._agree_on_candidates(residual, floor)

    # ---- a round ----

    def _candidates(
        self, graph: GraphView, residual: Residual, threshold: float, edge_weight: float
    ) -> _Candidates:
        """Own candidates at θ and at lower thresholds, to which θ may fall."""
        thresholds = [
            max(threshold / _LEVEL_DIVISOR**level, residual.floor) for level in range(LEVELS)
        ]
        counted = self._local.run(CountCandidates(graph, residual, thresholds, edge_weight))
        *numbers, kept = counted
        return _Candidates(thresholds, numbers, kept)

    def _level(self, totals: list[float]) -> int:
        """Which threshold a round takes: the first with a vertex above it, and lower ones while the
        list stays short.

        totals  see _Candidates.numbers, of all shards
        """
        counts, edges = totals[:LEVELS], totals[LEVELS:]
        chosen = next((level for level in range(LEVELS) if counts[level]), LEVELS - 1)
        short = self._costs.round_overhead / self._costs.pushed_edge
        while chosen + 1 < LEVELS and edges[chosen + 1] <= short:
            chosen += 1
        return chosen

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

    def _delivered(
        self, graph: GraphView, residual: Residual, sent: ResidualDelta
    ) -> ResidualDelta:
        """Adds the sums to r at the owners of their columns. Returns what changed on all shards.

        sent  what adding them up did here
        """
        applied, _ = self._exchange(graph, residual, self._local.xp.empty(0))
        delta, _ = self._gathered(residual, sent, applied)
        return delta

    def _exchange(
        self, graph: GraphView, residual: Residual, numbers: Array
    ) -> tuple[ResidualDelta, list[float]]:
        """Sends the sums to the owners of their columns, and adds those that arrive to r. Returns
        what this did here, and numbers on the host that are float64[…] on the device.
        """
        assert self._outbox is not None
        xp = self._local.xp
        columns, amounts = self._outbox.take()
        self._sending = False
        ends = self._columns.ends(columns).astype(np.float64)
        host = self._local.device.to_host(xp.concatenate([ends, numbers])).tolist()
        parts = self._columns.by_owner([int(end) for end in host[: len(ends)]])
        rows, bits = self._columns.rows_of(columns), amounts.view(np.int64)
        received = self._communicator.all_to_all(
            [xp.concatenate([rows[part], bits[part]]) for part in parts]
        )
        pairs = [each.reshape(2, len(each) // 2) for each in received]
        targets = xp.concatenate([rows for rows, _ in pairs]).astype(np.int32)
        added = xp.concatenate([bits for _, bits in pairs]).view(np.float64)
        none, no_contributions = xp.empty(0, np.int32), xp.empty(0)
        applied = self._local.run(Scatter(graph, residual, none, no_contributions, targets, added))
        return applied, host[len(ends) :]

    def _gathered(
        self,
        residual: Residual,
        sent: ResidualDelta,
        applied: ResidualDelta,
        pushed: ResidualDelta = _NOTHING,
        numbers: Sequence[float] = (),
    ) -> tuple[ResidualDelta, list[float]]:
        """What changed on all shards, and the sums of other numbers over them.

        sent     what adding up did here
        applied  what adding the sums that arrived did
        pushed   what taking them from own vertices changed before
        """
        # the sums that arrive are no larger, and no more, than what was added to them
        own = ResidualDelta(
            residual_l1=pushed.residual_l1 + applied.residual_l1,
            residual_sum=pushed.residual_sum + applied.residual_sum,
            mass=pushed.mass,
            moved=pushed.moved + sent.moved,
            magnitude=sent.magnitude + applied.magnitude,
            additions=pushed.additions + sent.additions,
        )
        table = self._communicator.gather([*own, *numbers, residual.floor]).T
        self._agree_on_candidates(residual, float(table[-1].max()))
        sums = [fsum(column) for column in table[:-1]]
        l1, total, mass, moved, magnitude, additions = sums[:6]
        return ResidualDelta(l1, total, mass, moved, magnitude, int(additions)), sums[6:]

    def _agree_on_candidates(self, residual: Residual, highest_floor: float) -> None:
        """If one shard has more candidates than its list holds, none has candidates."""
        if highest_floor == np.inf:
            residual.listed, residual.floor = 0, np.inf


def _recompute_rows(_: RecomputeRows) -> ResidualDelta:
    raise NotImplementedError("rows in shards are computed all together")


def _sum(first: ResidualDelta, second: ResidualDelta) -> ResidualDelta:
    return ResidualDelta(*map(add, first, second))
