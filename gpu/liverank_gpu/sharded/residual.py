"""What all shards do along out-lists: the residual under local changes, push in bulk-synchronous
rounds, and sets of vertices with the published iterations that follow them.

Out-lists name vertices by column (liverank_gpu.sharded.columns). So what a shard adds to r goes
first to a vector over columns, where additions to one vertex meet, and then, as pairs (row,
amount), to the owner of each. A round is a launch that pushes and writes messages, an exchange of
these, a launch that adds what arrived and counts what may come next, and one gather of all numbers,
for which the host waits. A message has room for about twice as many pairs as are expected; what
finds none goes with another exchange.

Each addition to the vector over columns is rounded, and so is the addition at the owner: both count
for the certificate. All shards take each decision from numbers that they have gathered.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from math import fsum
from operator import add
from typing import Any, NamedTuple

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView, Run, runs
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.published import (
    AFFECTED,
    DetectListed,
    ExpandAffected,
    IterateRanks,
    PublishedResult,
    PushInOnePass,
    PushListed,
    TakeListed,
    WorkList,
    iterate_ranks,
)
from liverank_gpu.operations.residual import (
    LEVELS,
    LISTED,
    MESSAGE_HEADER,
    AddReceived,
    ExpandBackward,
    ExpandForward,
    Outbox,
    Perturb,
    Push,
    PushEnd,
    PushLimits,
    PushResult,
    PushRound,
    RecomputeRows,
    Residual,
    ResidualDelta,
    RoundNumbers,
    Scatter,
    SelectCandidates,
    SendSums,
)
from liverank_gpu.sharded.columns import Columns, Numbering
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.operations import shard_costs

_LEVEL_DIVISOR = 8.0
"""Of the thresholds between which a round chooses, each is this part of the one before."""

_SWEEP_REDUCTION = 0.8
"""What part of ‖r‖₁ a dense sweep removes soon after a batch."""

_MARGIN = 1.03
"""What a sweep may leave, of what the ones before it left: on two GPUs it varied by 2 %."""

_NEAR, _ROUNDS = 0.1, 8.0
"""So near above the size that saves a sweep, a push goes on while this many rounds like the last
one would do: on two GPUs a sweep of R-MAT 26 takes as long as seven.
"""

_BELOW_ALL = -1.0
"""A floor that lists every entry which is added to."""


_MOST_PAIRS, _LEAST_PAIRS, _PAIRS_OF_BATCH = 1 << 21, 1 << 10, 1 << 19
"""The most pairs of a message in a round of a push: 32 MiB, which take 150 µs at 224 GB/s, less
than another exchange; the least; and those of a message after a batch. A shard of few vertices has
room for fewer: as many as in a candidate list.
"""

_NOTHING = ResidualDelta()
_NO_THRESHOLDS = (np.inf,) * LEVELS


class _Round(NamedTuple):
    """What all shards told after an exchange.

    numbers  RoundNumbers, summed over the shards
    counts   candidates above each threshold, then their out-edges: of all shards
    own      the same of this one
    kept     its candidates above the floor
    """

    numbers: RoundNumbers
    counts: list[float]
    own: list[int]
    kept: int

    @property
    def delta(self) -> ResidualDelta:
        residual_l1, residual_sum, mass, moved, magnitude, additions, *_ = self.numbers
        return ResidualDelta(residual_l1, residual_sum, mass, moved, magnitude, int(additions))


def _outbox_of(local: Backend, numbering: Numbering) -> Outbox:
    """Raises MemoryError."""
    allocate, columns, purpose = local.device.allocate, numbering.columns, "residual to send"
    part, least = local.sizes.listed_part, local.sizes.least_listed
    capacity = columns // part + least
    most = min(_MOST_PAIRS, numbering.room // part + _LEAST_PAIRS)
    words = MESSAGE_HEADER + 2 * most
    sums, marks = allocate(purpose, columns, np.float64), allocate(purpose, columns, np.int32)
    listed, rest = (allocate(purpose, capacity, np.int32) for _ in range(2))
    sent, received = (
        allocate(purpose, numbering.size * words, np.int64).reshape(numbering.size, words)
        for _ in range(2)
    )
    received.fill(0)  # rows that are there, also after an exchange that was aborted
    residual = Residual(sums, marks, listed, 0, _BELOW_ALL, 0)
    outbox = Outbox(residual, rest, sent, received, most, numbering.rank, max(1, numbering.room))
    _clear(outbox)
    return outbox


def _clear(outbox: Outbox) -> None:
    """A pass over all columns."""
    outbox.sums.values.fill(0.0)
    outbox.sums.marks.fill(0)
    _relist(outbox, 0)


def _relist(outbox: Outbox, listed: int) -> None:
    """So many columns have sums; those in `rest`, if there is one."""
    sums = outbox.sums
    if listed:
        sums.candidates, outbox.rest = outbox.rest, sums.candidates
    fits = listed <= len(sums.candidates)
    sums.listed, sums.floor = (listed, _BELOW_ALL) if fits else (0, np.inf)


class ShardedResidual:
    """The operations on the residual. Vectors are over own vertices; what is returned is of all
    shards. `sources` of Scatter and of changes may be empty on some.
    """

    def __init__(self, local: Backend, communicator: Communicator, columns: Columns) -> None:
        """local  with the costs of one device"""
        self._costs = shard_costs(local.costs, communicator.size)
        self._local, self._communicator, self._columns = local, communicator, columns
        self._outbox: Outbox | None = None
        self._of: Numbering | None = None  # the outbox
        self._sending = False

    @runs
    def _perturb(self, do: Perturb) -> ResidualDelta | None:
        """Also None if memory is short on one shard."""
        limit = do.edge_limit // self._communicator.size + 1
        outbox, sent = self._empty_outbox(), _NOTHING
        if outbox is None:
            return None
        undone, self._sending = False, True
        try:
            if len(do.changes.sources):
                perturb = replace(do, residual=outbox.sums, edge_limit=limit)
                sent_here = self._local.run(perturb)
                undone, sent = sent_here is None, sent_here or _NOTHING
        except MemoryError:
            undone = True
        found = self._delivered(do.graph, do.residual, outbox, sent, undone)
        return None if found.numbers.undone else found.delta

    @runs
    def _scatter(self, do: Scatter) -> ResidualDelta:
        outbox = self._empty_outbox()
        if outbox is None:
            raise MemoryError
        self._sending = True
        sent = self._local.run(replace(do, residual=outbox.sums))
        return self._delivered(do.graph, do.residual, outbox, sent).delta

    @runs
    def _push(self, do: Push) -> PushResult:
        """A short list takes as long as one whose edges cost as much as the exchanges of a round,
        so θ falls until the list is that long. It ends where sweeps gain more: see Push. Where it
        is not known what they leave, and not all entries are listed, it ends as at the floor when
        a round gains less for its cost than a sweep.
        """
        graph, residual, limits = do.graph, do.residual, do.limits
        local, costs, total = self._local, self._costs, _NOTHING
        sweep_cost = graph.edges + costs.sweep_overhead
        threshold, rounds, vertices, entries = limits.threshold, 0, 0, 0
        below_zero, outbox = False, self._empty_outbox()
        candidates: _Round | None = None
        end: PushEnd
        while True:
            residual_l1, remaining = limits.residual_l1 + total.residual_l1, _size(limits, total)
            if remaining <= limits.goal * (limits.mass + total.mass):
                end = "goal"
                break
            spent = total.additions + rounds * costs.round_overhead / costs.pushed_edge
            if outbox is None or residual.floor == np.inf or spent > limits.edges:
                end = "work"
                break
            thresholds = self._thresholds(threshold, residual)
            if candidates is None:
                weight = limits.edge_weight
                candidates = self._told(graph, residual, outbox, None, thresholds, weight)
            totals = candidates.counts
            level = self._level(totals)
            threshold = thresholds[level]
            if totals[level] == 0:
                if threshold <= max(residual.floor, 0.0):
                    end = "floor"
                    break
                candidates = None
                continue
            edges = totals[LEVELS + level]
            if edges > limits.round_edges:
                end = "work"
                break
            if rounds == limits.rounds:
                end = "rounds"
                break
            rounds += 1
            entries += int(totals[level])
            self._make_room(outbox, int(edges))
            self._sending = True
            sent = local.run(
                PushRound(
                    graph,
                    do.values,
                    do.damping,
                    residual,
                    threshold,
                    limits.edge_weight,
                    candidates.own[level],
                    candidates.own[LEVELS + level],
                    candidates.kept,
                    outbox,
                )
            )
            # what is next is counted too, so that one gather is for both
            thresholds = self._thresholds(threshold, residual)
            candidates = self._told(graph, residual, outbox, sent, thresholds, limits.edge_weight)
            delta = candidates.delta
            total = _sum(total, delta)
            vertices += int(candidates.numbers.vertices)
            below_zero |= candidates.numbers.below_zero > 0.0
            if do.left > 0.0:
                size = _size(limits, total)
                spent = max(delta.additions, self._short)
                goal = limits.goal * (limits.mass + total.mass)
                above, gain = size - _size_to_reach(size, goal, _MARGIN * do.left), remaining - size
                is_near = above <= min(_NEAR * size, _ROUNDS * gain)
                if above * spent > gain * do.sweep_edges and not is_near:
                    end = "goal" if size <= goal else "work"
                    break
                continue
            cost = costs.round_overhead + delta.additions * costs.pushed_edge
            gain = -delta.residual_l1 * sweep_cost
            if residual.floor >= 0.0 and gain <= _SWEEP_REDUCTION * residual_l1 * cost:
                end = "floor"
                break
        return PushResult(end, threshold, rounds, vertices, entries, total, below_zero)

    @runs
    def _recompute_rows(self, do: RecomputeRows) -> ResidualDelta:
        raise NotImplementedError("rows in shards are computed all together")

    @runs
    def _select_candidates(self, do: SelectCandidates) -> None:
        """The lengths of the lists, from which floors follow, differ from shard to shard: the
        highest holds for all.
        """
        residual = do.residual
        self._local.run(SelectCandidates(residual, do.floor))
        self._agree_on_floor(residual, float(self._communicator.gather([residual.floor]).max()))

    # ---- a round ----

    def _thresholds(self, threshold: float, residual: Residual) -> list[float]:
        """θ, and lower ones to which it may fall."""
        return [max(threshold / _LEVEL_DIVISOR**level, residual.floor) for level in range(LEVELS)]

    def _level(self, totals: list[float]) -> int:
        """Which threshold a round takes: the first with a vertex above it, and lower ones while the
        list stays short.

        totals  see _Round.counts
        """
        counts, edges = totals[:LEVELS], totals[LEVELS:]
        chosen = next((level for level in range(LEVELS) if counts[level]), LEVELS - 1)
        while chosen + 1 < LEVELS and edges[chosen + 1] <= self._short:
            chosen += 1
        return chosen

    @property
    def _short(self) -> float:
        """Edges that cost as much as the exchanges of a round."""
        return self._costs.round_overhead / self._costs.pushed_edge

    # ---- what shards send each other ----

    def _make_room(self, outbox: Outbox, edges: int | None = None) -> None:
        """Has messages room for more than the pairs that are expected, as vertices and edges are
        dealt out about evenly.

        edges  along which all shards push; None: not known
        """
        expected = 0 if edges is None else edges // self._communicator.size**2
        wanted = _PAIRS_OF_BATCH if edges is None else _LEAST_PAIRS + 5 * expected // 4
        outbox.capacity = min((outbox.sent.shape[1] - MESSAGE_HEADER) // 2, wanted)

    def _empty_outbox(self) -> Outbox | None:
        """None if memory is short on one shard."""
        outbox, numbering = self._outbox, self._columns.numbering
        if outbox is None or self._of != numbering:
            self._outbox = outbox = None
            with suppress(MemoryError):
                outbox = _outbox_of(self._local, numbering)
            (missing,) = self._communicator.sums([outbox is None])
            if missing:
                return None
            self._outbox, self._of = outbox, numbering
            # a shard that fails from here on must not end this call on others before they have it
            self._communicator.gather([0.0])
        elif self._sending:
            _clear(outbox)  # an operation ended early
        self._sending = False
        return outbox

    def _delivered(
        self,
        graph: GraphView,
        residual: Residual,
        outbox: Outbox,
        done: ResidualDelta,
        undone: bool = False,
    ) -> _Round:
        """Adds sums to r at the owners of their columns.

        done  what adding them up did here
        """
        self._make_room(outbox)
        sent = self._local.run(SendSums(outbox, done))
        return self._told(graph, residual, outbox, sent, _NO_THRESHOLDS, 0.0, undone)

    def _told(
        self,
        graph: GraphView,
        residual: Residual,
        outbox: Outbox,
        sent: Any,
        thresholds: Sequence[float],
        edge_weight: float,
        undone: bool = False,
    ) -> _Round:
        """Exchanges messages, if there are any, until none is left; adds what arrives to r. Returns
        what all shards tell then.

        sent  see AddReceived
        """
        deltas: list[float] | None = None
        fields, changes = len(RoundNumbers._fields), RoundNumbers._fields.index("left")
        while True:
            if sent is not None:
                words = slice(MESSAGE_HEADER + 2 * outbox.capacity)
                self._communicator.swap(outbox.sent[:, words], outbox.received[:, words])
            receive = AddReceived(graph, residual, outbox, sent, thresholds, edge_weight, undone)
            table = self._communicator.gather(self._local.run(receive))
            own = table[self._communicator.rank]
            sums = [fsum(column) for column in table.T]
            known = RoundNumbers(*own[:fields].tolist())
            residual.listed = int(known.listed)
            residual.floor = known.floor
            floor = float(table[:, RoundNumbers._fields.index("floor")].max())
            self._agree_on_floor(residual, floor)
            before = deltas or [0.0] * changes
            deltas = [*map(add, before, sums[:changes])]
            _relist(outbox, int(known.left))
            if sums[changes] == 0.0:
                break
            sent = self._local.run(SendSums(outbox, _NOTHING))
        self._sending = False
        numbers = RoundNumbers(*deltas, *sums[changes:fields])
        return _Round(numbers, sums[fields:], own[fields:].astype(int).tolist(), int(known.kept))

    def _agree_on_floor(self, residual: Residual, highest: float) -> None:
        """If one shard has more candidates than its list holds, none has candidates."""
        residual.floor = highest
        if highest == np.inf:
            residual.listed = 0


def _size(limits: PushLimits, total: ResidualDelta) -> float:
    """‖r‖₁ + |Σr| after what a push has changed so far."""
    residual_l1 = limits.residual_l1 + total.residual_l1
    return residual_l1 + abs(limits.residual_sum + total.residual_sum)


def _size_to_reach(size: float, goal: float, left: float) -> float:
    """The largest ‖r‖₁ + |Σr| below `size` from which a whole number of sweeps leads to the goal.

    left  what one leaves of it
    """
    while 0.0 < goal < left * size:
        goal /= left
    return goal


def _sum(first: ResidualDelta, second: ResidualDelta) -> ResidualDelta:
    return ResidualDelta(*map(add, first, second))


# ---- sets of vertices, and published iterations ----
#
# A pull reads the contributions of all shards, which are gathered first. What a push adds along
# out-lists goes to the owners of the targets: what a shard sends to one vertex arrives as a sum,
# which is one addition there. A one-pass push tests each of these additions.


class ShardedSets:
    """What becomes of vertices along out-lists. Vertices, flags, marks and vectors are over own
    vertices; all shards run these together, also where one has no vertices.
    """

    def __init__(
        self, local: Backend, communicator: Communicator, columns: Columns, run: Run
    ) -> None:
        """run  the operations of all shards"""
        self._local, self._communicator = local, communicator
        self._columns, self._run = columns, run
        self._flags = local.xp.zeros(0, np.int32)

    # ---- how sets grow along the edges of all shards ----

    @runs
    def _expand_forward(self, do: ExpandForward) -> Array:
        found = self._targets(do.graph, do.vertices)
        fresh = found[do.flags[found] == 0]
        do.flags[fresh] = 1
        return fresh

    def _targets(self, graph: GraphView, vertices: Array) -> Array:
        """int32[…], distinct: the own vertices that any of these is followed by, on all shards."""
        # after an error in between they are not all 0, and other ones follow
        flags, self._flags = self._flags, self._local.xp.zeros(0, np.int32)
        count = self._columns.numbering.columns
        if len(flags) != count:
            flags = self._local.xp.zeros(count, np.int32)
        columns = self._local.run(ExpandForward(graph, vertices, flags))
        flags[columns] = 0
        self._flags = flags
        return self._columns.sent(columns)

    @runs
    def _expand_backward(self, do: ExpandBackward) -> Array:
        return self._local.run(replace(do, frontier=self._columns.gathered(do.frontier)))

    @runs
    def _expand_affected(self, do: ExpandAffected) -> None:
        states, expanding = do.marks
        vertices = self._local.xp.flatnonzero(expanding).astype(np.int32)
        expanding[vertices] = 0
        states[self._targets(do.graph, vertices)] = AFFECTED

    @runs
    def _iterate_ranks(self, do: IterateRanks) -> PublishedResult:
        return iterate_ranks(self._run, self._total, do)

    def _total(self, values: Array) -> float:
        (total,) = self._communicator.sums([float(self._local.device.sum(values))])
        return total

    # ---- the iterations of published personalized PageRank ----

    @runs
    def _detect(self, do: DetectListed) -> WorkList:
        return self._local.run(do)

    @runs
    def _push_in_one_pass(self, do: PushInOnePass) -> WorkList:
        state = do.state
        self._take(do)
        # a loop may have left enough, with no addition after it
        left = do.listed[state.residual[do.listed] > do.threshold]
        state.next_queue[: len(left)] = left
        state.queued[left] = LISTED
        lists = Residual(state.residual, state.queued, state.next_queue, len(left), do.threshold, 0)
        self._add(do, lists)
        state.queue, state.next_queue = state.next_queue, state.queue
        listed = state.queue[: lists.listed]
        state.queued[listed] = 0
        edges = self._local.device.sum(do.graph.outgoing.row_lengths[listed])
        return WorkList(lists.listed, int(edges))

    @runs
    def _push(self, do: PushListed) -> None:
        state = do.state
        self._take(do)
        self._add(do, Residual(state.residual, state.queued, state.next_queue, 0, np.inf, 0))

    def _take(self, do: TakeListed) -> None:
        """What a push takes is not sent: only a pull reads contributions of others."""
        self._local.run(TakeListed(do.graph, do.state, do.work_list, do.damping))

    def _add(self, do: TakeListed, residual: Residual) -> None:
        """Adds what the vertices of the list send to r."""
        none = (self._local.xp.empty(0, np.int32), self._local.xp.empty(0))
        sources = do.listed
        self._run(Scatter(do.graph, residual, sources, do.contributions[sources], *none))
