"""Records: what a batch of insertions and deletions does to a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array

DELETE, INSERT = 0, 1
"""Operations, the lowest bit of a key (see GraphOperations)."""

NEIGHBOUR = 0x7FFFFFFF
"""Which bits of a key, without its lowest one, are the neighbour."""

SCAN_TILE = 1024
"""Items of one block in a prefix sum on ``cuda``."""

SCANS = 6
"""Prefix sums of one direction: edges and rows, work, changes, changed rows, moves, holes."""

COUNTERS = (
    "EDGES",
    "ROWS",
    "INSERTED",
    "DELETED",
    "REMOVED",
    "ADDED",
    "CHANGED",
    "NEEDED",
    "MOST",
    "GROWTH",
    "EMPTIED",
    "MISBINNED",
    "OVERFLOWED",
    "LONGEST",
    "HOLES",
    "REWEIGHTED",
    "EXCEEDED",
)
"""What a batch counts in one direction, by position in an int64 array: see Counts."""


LAST_PLACE = 1 << 62
"""Counted down from, so that the largest count is that of the first place."""


class Counts(NamedTuple):
    """The counters of a BatchPlan on the host.

    edges, rows        distinct edges and rows that the batch names
    inserted, deleted  as liverank_gpu.types.Change defines them; of an undirected graph only arcs
                       to a vertex at the same or a higher position count, one of each edge
    removed, added     net changes: an edge deleted and inserted in one batch is neither
    changed            rows whose list or loop changes
    needed             slots at the end of the column indices for rows that outgrow their capacity
    most               the same if every row that grows were moved
    growth             slots by which the rows grow when packed without slack
    emptied            slots freed by rows that shrink
    misbinned          rows that leave the tolerance of their degree bin, less those that return
                       (``cuda``); entries inserted or deleted (``cpu``)
    overflowed         rows far longer than their degree bin allows
    longest            length of the longest named row after the batch
    holes              entries moved into freed slots
    reweighted         as liverank_gpu.types.Change defines it, counted as `inserted` is
    exceeded           0, or LAST_PLACE less the place behind the sorted keys of the first edge
                       whose sum of weights exceeds float32
    """

    edges: int
    rows: int
    inserted: int
    deleted: int
    removed: int
    added: int
    changed: int
    needed: int
    most: int
    growth: int
    emptied: int
    misbinned: int
    overflowed: int
    longest: int
    holes: int
    reweighted: int
    exceeded: int


LOOP_REWEIGHTED = 2
"""BatchPlan.row_loop of a vertex whose loop was removed and added with another weight."""


class PlanWeights(NamedTuple):
    """The part of a BatchPlan that holds weights, float32 arrays. An edge whose weight changes is
    both among the removed and the added ones.

    removed, added  of the edges in these lists: weights before and after the batch
    opposite        of BatchPlan.opposite
    filler          of the entries that are moved into freed slots
    """

    removed: Array
    added: Array
    opposite: Array
    filler: Array


NO_WEIGHTS = PlanWeights(None, None, None, None)
"""For unweighted graphs."""


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Device arrays of one batch in one direction, between `resolve_update` and `apply_update`.

    Each has room for the operations of the batch and one more. Elements beyond what the counters
    say are undefined.

    blocks      int64[…], int32[…], int8[…], float32[…] (None without weights): the arrays below,
                but for counters and scans, are equal parts of that of their dtype, in this order
    counters    int64[len(COUNTERS)]: see Counts
    scans       SCANS arrays uint64[…] for prefix sums, zero before the first

    edge_*      one entry for each distinct edge that the batch names, ascending by row, neighbour
    edge_operation   int32[edges+1], its first key
    edge_neighbour   int32[edges]
    edge_row         int32[edges], index of its row below
    edge_slot        int32[edges], its slot in the row, -1 if absent
    row_*       one entry for each named row, ascending
    row_edge         int32[rows+1], its first edge
    row_vertex       int32[rows]
    row_loop         int8[rows], 1 if its loop is added, -1 if removed, LOOP_REWEIGHTED, else 0
    row_work         int64[rows+1], units of work before it
    row_removed, row_added  int32[rows+1], its first removed and its first added edge
    removed_*, added_*      the net changes, loops included, in the same order
    new_length       int32[rows]
    new_start        int64[rows], slot relative to the old end, -1 for a row that is not moved
    move_work        int64[rows+1], units of work before it
    changed_row      int32[changed], indices of the rows that change, ascending
    opposite         int64[operations], keys of the net changes (without loops) for the transpose,
                     and keys that are no operation
    weights          see PlanWeights
    """

    blocks: tuple[Array, Array, Array, Array | None]
    counters: Array
    scans: list[Array]
    row_work: Array
    move_work: Array
    new_start: Array
    opposite: Array
    edge_operation: Array
    edge_neighbour: Array
    edge_row: Array
    edge_slot: Array
    row_edge: Array
    row_vertex: Array
    row_removed: Array
    row_added: Array
    removed_row: Array
    removed_neighbour: Array
    removed_slot: Array
    added_row: Array
    added_neighbour: Array
    new_length: Array
    changed_row: Array
    row_loop: Array
    weights: PlanWeights = NO_WEIGHTS


class EdgeCounts(NamedTuple):
    """What a batch did to edges; an undirected edge counts once."""

    inserted: int
    deleted: int
    reweighted: int


class UpdateCounts(NamedTuple):
    """What a batch did: see liverank_gpu.types.Change."""

    inserted: int
    already_present: int
    deleted: int
    not_found: int
    new_vertices: int
    reweighted: int = 0
    removed: int = 0
    removed_edges: int = 0
    expired: int = 0


class EdgeChanges(NamedTuple):
    """Which rows and edges a batch changed, all as positions on the device.

    sources          int32[s], ascending: vertices whose out-list or loop changed
    old_degree       int32[s], their out-degrees before the batch; weighted: float64[s], strengths
    removed_sources, removed_targets  int32[…], edges that are gone, loops included
    added_sources, added_targets      int32[…], edges that are new, loops included
    removed_weights, added_weights    float32[…], their weights; None for an unweighted graph

    An edge deleted and inserted in one batch counts as both in UpdateCounts but is in no list. An
    edge with another weight is in both lists.
    """

    sources: Array
    old_degree: Array
    removed_sources: Array
    removed_targets: Array
    added_sources: Array
    added_targets: Array
    removed_weights: Array | None = None
    added_weights: Array | None = None


@dataclass(frozen=True, slots=True)
class GraphUpdate:
    """What one batch did to a graph.

    counts           for the receipt
    sources          int32[s], ascending: vertices whose out-list or loop changed
    removed_targets  integer[…]: targets of the edges that are gone
    changes          every change; None where both directions were rebuilt, so that `sources` and
                     `removed_targets` are supersets and the single changes are not known
    removed          int64[r] on the host: ids of the vertices that were removed, ascending
    returned         int64[…] on the host, ascending: ids that were free, or removed by this batch,
                     and are those of new vertices now
    """

    counts: UpdateCounts
    sources: Array
    removed_targets: Array
    changes: EdgeChanges | None
    removed: NDArray[np.int64]
    returned: NDArray[np.int64]

    @property
    def touches(self) -> bool:
        """Whether the list or the loop of a vertex changed."""
        return len(self.sources) > 0

    @property
    def rebuilt(self) -> bool:
        return self.changes is None
