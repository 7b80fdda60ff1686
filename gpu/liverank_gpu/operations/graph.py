"""Contracts: the lists of a graph as batches change them, as loads build them, and compared."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import (
    Csr,
    GraphView,
    Operation,
    PagedLists,
    Rows,
    SlackCsr,
    runs,
)
from liverank_gpu.operations.device import Array
from liverank_gpu.types import Change

# ---- what a batch of insertions and deletions does to a graph ----

DELETE, INSERT = 0, 1
"""Operations, the lowest bit of a key (see GraphOperations)."""

NEIGHBOUR = 0x7FFFFFFF
"""Which bits of a key, without its lowest one, are the neighbour."""

SCAN_TILE = 1024
"""Items of one block in a prefix sum on ``cuda``."""

SCANS = 6
"""Prefix sums of one direction: edges and rows, work, changes, changed rows, moves, holes."""


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
    connected          of the out-lists: how many more vertices have an edge other than a loop
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
    connected: int


COUNTERS = tuple(name.upper() for name in Counts._fields)
"""What a batch counts in one direction, by position in an int64 array: see Counts."""


_REMOVED = COUNTERS.index("REMOVED")

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
    """Device arrays of one batch in one direction, between PlanBatch and ApplyBatch.

    Each has room for the operations of the batch and one more. Elements beyond what the counters
    say are undefined.

    blocks      int64[…], int32[…], int8[…], float32[…] (None without weights): the arrays below,
                but for counters and scans, are equal parts of that of their dtype, in this order
    counters    int64[len(COUNTERS)]: see Counts
    scans       uint64[SCANS, …] for prefix sums, zero before the first

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
                     and keys that are no operation; of UpdateBatch the sorted keys
    weights          see PlanWeights
    """

    blocks: tuple[Array, Array, Array, Array | None]
    counters: Array
    scans: Array
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


class EdgeChanges(NamedTuple):
    """Which rows and edges a batch changed, all as positions on the device.

    sources          int32[s], ascending: vertices whose out-list or loop changed
    old_degree       int32[s], their out-degrees before the batch; weighted: float64[s], strengths
    removed_sources, removed_targets  int32[…], edges that are gone, loops included
    added_sources, added_targets      int32[…], edges that are new, loops included
    removed_weights, added_weights    float32[…], their weights; None for an unweighted graph

    An edge deleted and inserted in one batch counts as both in Change but is in no list. An
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


class ChangedLists(NamedTuple):
    """What a batch changed in lists.

    sources          int32[s], ascending: vertices whose out-list or loop changed
    removed_targets  integer[…]: targets of the edges that are gone
    changes          every change; None where both directions were rebuilt, so that `sources` and
                     `removed_targets` are supersets and the single changes are not known
    """

    sources: Array
    removed_targets: Array
    changes: EdgeChanges | None

    @classmethod
    def of(cls, changes: EdgeChanges) -> ChangedLists:
        """Those of every change."""
        return cls(changes.sources, changes.removed_targets, changes)

    @property
    def edges(self) -> int:
        """Edges that are gone or new."""
        changes = self.changes
        return 0 if changes is None else len(changes.removed_targets) + len(changes.added_targets)


class ChangeBlock:
    """ChangedLists in one block, of whose parts there are arrays when they are asked for: they take
    longer to make than a small batch has.

    edges  that are gone or new
    """

    def __init__(self, block: Array, room: int, counts: Counts, weighted: bool) -> None:
        """block: int32[words · room] or one more, the arrays of EdgeChanges, each with this room,
        old degrees first
        """
        self._block, self._room, self._counts = block, room, counts
        self._weighted = weighted
        self.edges = counts.removed + counts.added

    @staticmethod
    def words(weighted: bool) -> int:
        """Of a block, for each operation."""
        return 9 if weighted else 6

    @cached_property
    def changes(self) -> EdgeChanges:
        """See ChangedLists."""
        counts, room, weighted = self._counts, self._room, self._weighted
        wide = self.words(weighted) - 5 - 2 * weighted
        parts = self._block[wide * room : self.words(weighted) * room].reshape(-1, room)
        old_degree = self._block[: wide * room].view(np.float64 if weighted else np.int32)
        sizes = (counts.changed, *2 * [counts.removed], *2 * [counts.added])
        sources, *edges = (part[:size] for part, size in zip(parts, sizes, strict=False))
        changes = EdgeChanges(sources, old_degree[: counts.changed], *edges)
        if not weighted:
            return changes
        removed, added = parts[5:].view(np.float32)
        return changes._replace(
            removed_weights=removed[: counts.removed], added_weights=added[: counts.added]
        )

    @property
    def sources(self) -> Array:
        """See ChangedLists."""
        return self.changes.sources

    @property
    def removed_targets(self) -> Array:
        """See ChangedLists."""
        return self.changes.removed_targets


@dataclass(frozen=True, slots=True)
class GraphUpdate:
    """What one batch did to a graph.

    counts           for the receipt; its seconds are not known yet
    lists            what changed in lists; sources, removed_targets, changes  see ChangedLists
    touches          whether the list or the loop of a vertex may have changed
    removed          int64[r] on the host: ids of the vertices that were removed, ascending
    returned         int64[…] on the host, ascending: ids that were free, or removed by this batch,
                     and are those of new vertices now
    followed         the Residual that has followed already, and what Perturb returned; or None
    """

    counts: Change
    lists: ChangedLists | ChangeBlock
    touches: bool
    removed: NDArray[np.int64]
    returned: NDArray[np.int64]
    followed: tuple[Any, Any] | None = None

    @property
    def sources(self) -> Array:
        return self.lists.sources

    @property
    def removed_targets(self) -> Array:
        return self.lists.removed_targets

    @property
    def changes(self) -> EdgeChanges | None:
        return self.lists.changes

    @property
    def rebuilt(self) -> bool:
        return isinstance(self.lists, ChangedLists) and self.lists.changes is None


# ---- changing a graph in compressed sparse rows by batches ----


class SortedKeys(NamedTuple):
    """Keys in ascending order, equal ones in the order in which they were given.

    keys     int64[k]
    weights  float32[k], those of the operations; None for an unweighted graph
    order    integer[k], their places before the sort; None for an unweighted graph
    """

    keys: Array
    weights: Array | None = None
    order: Array | None = None


Directions = tuple[SlackCsr, SlackCsr]
"""The out-lists and the in-lists."""

BothCounts = tuple[Counts, Counts]
"""Those of both directions."""


class UpdateRules(NamedTuple):
    """What decides what operations on edges do.

    loop         see GraphView
    fixed_loops  whether loops can be neither inserted nor deleted
    directed     see liverank_gpu.types.Options; decides what counts (see Counts.inserted)
    adds         whether weights are added to those present, or replace them
    """

    loop: Array
    fixed_loops: bool
    directed: bool
    adds: bool


class Room(NamedTuple):
    """How far both directions may grow before they are packed.

    slots  that are free at their ends
    slack  the most that Counts.needed may exceed twice Counts.growth: else half would be wasted
    """

    slots: tuple[int, int]
    slack: tuple[int, int]


class Follows(NamedTuple):
    """What is to follow a batch as it is applied: see liverank_gpu.operations.residual.Perturb.

    residual  Residual of these values
    """

    values: Array
    residual: Any
    damping: float
    edge_limit: int


class SentBatch(NamedTuple):
    """A batch as UpdateBatch takes it.

    columns, vertices  as PackKeys takes them
    weights  float32[…] of the insertions, on the host or the device; None without weights
    removed  int64[r] on the host, ascending: ids of vertices whose edges are deleted, all of them
    """

    columns: list[tuple[int, Array, Array]]
    weights: Array | None
    vertices: tuple[int, int]
    removed: NDArray[np.int64]


class Updated(NamedTuple):
    """What UpdateBatch did.

    lists          what it changed; None if the lists have no room: then the batch is planned
    removed_edges  edges of vertices that it removed
    followed       the residual that has followed, and what Perturb returns; None if none has
    """

    counts: BothCounts
    lists: ChangeBlock | None
    removed_edges: int
    followed: tuple[Any, Any] | None = None


class PlanWorkspace(Protocol):
    """Where a batch is planned: see liverank_gpu.graph.packed_csr.Workspace.

    zeroed    int64[…], the counters and scans of both plans
    plans     of the out-lists and of the in-lists
    planned   what a backend keeps from PlanBatch to ApplyBatch
    """

    zeroed: Array
    plans: tuple[BatchPlan, BatchPlan]
    planned: Any

    def clear(self) -> None:
        """Before the plans of a batch."""

    def clear_row_plan(self, plan: BatchPlan) -> None:
        """Before rows that were packed are planned again."""

    def counts(self) -> BothCounts:
        """The counters of both plans. Waits for the device."""


class GraphOperations(ABC):
    """Operations on the arrays of a graph. A key packs an operation on an edge into 63 bits:
    ``row << 32 | neighbour << 1 | operation``, with DELETE = 0 and INSERT = 1. Sorted keys group
    the operations on an edge, deletions first, and the edges of a row by neighbour. The largest
    int64 is no operation.

    at_once  operations, those on edges of removed vertices with them, that UpdateBatch and PlanSent
             take at most; 0: there are none
    """

    at_once: ClassVar[int] = 0

    @abstractmethod
    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        """Two columns of ids as the kernels take them: int32 or int64, both the same."""

    @abstractmethod
    def sorted_keys(self, do: PackKeys) -> SortedKeys:
        """See PackKeys."""

    @abstractmethod
    def sort(self, keys: Array, weights: Array | None = None) -> SortedKeys:
        """The int64[…] in ascending order, in place or in another array; the argument is spent."""

    @abstractmethod
    def plan_again(
        self, lists: Directions, packed: tuple[bool, bool], workspace: PlanWorkspace
    ) -> BothCounts:
        """Where the rows will be in the directions that were packed since. Returns all counts."""


@dataclass(slots=True, eq=False)
class PackKeys(Operation[SortedKeys]):
    """The keys of all rows of the columns, one after the other, sorted.

    columns    (operation, sources, targets), integer arrays of the host or the device
    vertices   for each operation, how many ids are known; a key with another id is no operation
    positions  int32[m], a permutation: position of each id below m; other ids are positions
    weights    float32[rows] on the device; None for an unweighted graph
    """

    local = True

    columns: list[tuple[int, Array, Array]]
    vertices: tuple[int, int]
    positions: Array
    weights: Array | None = None


@dataclass(slots=True, eq=False)
class PlanBatch(Operation[BothCounts]):
    """Finds what sorted keys change in both directions, and where the rows will be: fills the plans
    of a workspace. Writes nothing of the graph, and waits for the device.

    Every named row is read once, and its entries are looked up among the named edges. Changes have
    the order of the keys.

    keys   of the out-lists and of the in-lists; None: these follow from the others, and have no
           loops
    """

    local = True

    lists: Directions
    keys: tuple[SortedKeys, SortedKeys | None]
    rules: UpdateRules
    workspace: PlanWorkspace


@dataclass(slots=True, eq=False)
class PlanSent(Operation[tuple[BothCounts, Array] | None]):
    """PackKeys and PlanBatch at once, of the operations on the lists of one shard; only where
    batches are taken `at_once`. Returns what PlanBatch does, and the sorted keys of the out-lists,
    which have others behind them. None, and nothing is done, for batches that are not taken so.

    shard  size, rank and room of its liverank_gpu.sharded.columns.Numbering
    others see UpdateBatch; no vertices are removed
    """

    local = True

    lists: Directions
    sent: SentBatch
    permutation: tuple[Array, Array]
    rules: UpdateRules
    workspace: PlanWorkspace
    shard: tuple[int, int, int]


@dataclass(slots=True, eq=False)
class UpdateBatch(Operation[Updated | None]):
    """PackKeys, PlanBatch and ApplyBatch at once, if there is room; then a residual follows. Only
    where batches are taken `at_once`.

    lists        with empty rows for the vertices that are new; rules.loop and degree are as long
    permutation  `positions` as PackKeys takes it, and the ids at these
    workspace    for `at_once` operations, if vertices are removed
    degree       as ApplyBatch takes it
    follows      None if nothing is to

    Returns None, and does nothing, for batches that are not taken so, for vertices with more edges
    than that, and where a sum of weights exceeds float32.
    """

    local = True

    lists: Directions
    sent: SentBatch
    permutation: tuple[Array, Array]
    rules: UpdateRules
    workspace: PlanWorkspace
    room: Room
    degree: Array
    follows: Follows | None


@dataclass(slots=True, eq=False)
class ApplyBatch(Operation[None]):
    """Applies the plans to both directions. Allocates nothing.

    Rows that outgrow their capacity move behind ``csr.end``. Additions take the slots of removed
    entries in order, then those behind the row's end. Where more is removed than added, the entries
    behind the new end fill the remaining slots in order.

    loop, degree  see GraphView: updated
    changes       receives what changed in the out-lists
    """

    local = True

    lists: Directions
    workspace: PlanWorkspace
    counts: BothCounts
    loop: Array
    degree: Array
    changes: EdgeChanges


class GraphByDirection(GraphOperations):
    """Those of backends that plan and write one direction after the other, each on all cores. The
    in-lists are looked up for what changes in the out-lists alone.
    """

    @runs
    def _plan(self, do: PlanBatch) -> BothCounts:
        lists, (out_keys, in_keys), rules, workspace = do.lists, do.keys, do.rules, do.workspace
        outgoing, incoming = plans = workspace.plans
        operations = len(out_keys.keys)
        workspace.clear()
        self.resolve(lists[0], out_keys, rules, outgoing)
        inserts_absent = False
        if in_keys is None:
            weights = outgoing.weights.opposite
            weights = None if weights is None else weights[:operations]
            in_keys = self.sort(outgoing.opposite[:operations], weights)
            rules = rules._replace(adds=False)  # sums are known now
            # an edge with another weight is among those removed, too
            inserts_absent = weights is None or int(outgoing.counters[_REMOVED]) == 0
        self.resolve(lists[1], in_keys, rules, incoming, inserts_absent)
        for csr, plan in zip(lists, plans, strict=True):
            self.plan_rows(csr, plan)
        self.count_connected(lists, workspace)
        return workspace.counts()

    def plan_again(
        self, lists: Directions, packed: tuple[bool, bool], workspace: PlanWorkspace
    ) -> BothCounts:
        for csr, again, plan in zip(lists, packed, workspace.plans, strict=True):
            if again:
                workspace.clear_row_plan(plan)
                self.plan_rows(csr, plan)
        return workspace.counts()

    @runs
    def _apply(self, do: ApplyBatch) -> None:
        for direction, counts in enumerate(do.counts):
            if counts.changed:
                self.write(do, direction)

    @abstractmethod
    def resolve(
        self,
        csr: SlackCsr,
        batch: SortedKeys,
        rules: UpdateRules,
        plan: BatchPlan,
        inserts_absent: bool = False,
    ) -> None:
        """Finds what sorted keys change in one direction: fills `plan` except for new rows.

        inserts_absent  whether all insertions are of edges that are absent
        """

    @abstractmethod
    def plan_rows(self, csr: SlackCsr, plan: BatchPlan) -> None:
        """The new length of each named row and the new start of each that outgrows its capacity:
        fills the rest of `plan`.
        """

    @abstractmethod
    def count_connected(self, lists: Directions, workspace: PlanWorkspace) -> None:
        """Fills Counts.connected."""

    @abstractmethod
    def write(self, do: ApplyBatch, direction: int) -> None:
        """Applies a plan to one direction: 0, that of the out-lists, whose changes are reported, or
        1.
        """


# ---- loading, packing, listing and grouping all rows of a graph ----


class Slots(NamedTuple):
    """The entries of a Csr, by slot: its column indices and its weights, if it has any."""

    column_indices: Array
    weights: Array | None = None


class Entries(NamedTuple):
    """Edges as columns on the device.

    rows, neighbours  int32[entries]
    weights           float32[entries]; None for an unweighted graph
    """

    rows: Array
    neighbours: Array
    weights: Array | None = None


class Deduplicated(NamedTuple):
    """What `deduplicate` left and found.

    edges       keys left
    loops       distinct loops
    reweighted  kept edges whose weight changed, loops not counted
    exceeded    place of the last insertion of the first edge, by row and neighbour, whose sum of
                weights exceeds float32; -1 if there is none
    """

    edges: int
    loops: int
    reweighted: int = 0
    exceeded: int = -1


@dataclass(slots=True, eq=False)
class FillRows(Operation[None]):
    """Writes the neighbours of ascending keys, and their weights, into their rows, ascending.

    low, first  as in `count_rows`
    row_starts  int64[rows of the range]
    """

    batch: SortedKeys
    edges: int
    low: int
    first: Array
    row_starts: Array
    slots: Slots


class RebuildOperations(ABC):
    """Operations on whole rows. Keys: see liverank_gpu.operations.graph.GraphOperations."""

    _graph: GraphOperations

    def row_ranges(
        self,
        rows: Array,
        vertices: int,
        limit: int,  # noqa: ARG002
        positions: Array,  # noqa: ARG002
    ) -> list[tuple[int, int, int]]:
        """Splits the rows of a column of ids into ranges, so that a load sorts one at a time: into
        one where keys are sorted in place, as that would save little memory.

        rows       integer[edges] of the host or the device, ids in 0 … vertices-1
        positions  see PackKeys
        Returns (first row, end of rows, number of ids in the range), at most `limit` ids in each
        unless a row and its near neighbours have more, or there is one range.
        """
        return [(0, vertices, len(rows))]

    def keys_of_range(
        self,
        rows: Array,
        neighbours: Array,
        weights: Array | None,
        chosen: tuple[int, int, int],
        positions: Array,
    ) -> SortedKeys:
        """The keys of the insertions into one of `row_ranges`.

        weights  float32[edges] on the device; None for an unweighted graph
        """
        columns = [(INSERT, rows, neighbours)]
        return self._graph.sorted_keys(PackKeys(columns, (0, chosen[1]), positions, weights))

    @abstractmethod
    def deduplicate(
        self, batch: SortedKeys, loop: Array, adds: bool = False, kept: int = 0
    ) -> Deduplicated:
        """Drops repeats and loops from sorted insertions, in place.

        loop  see GraphView: set for each loop
        adds  whether the weights of repeats are added; else the last one stands
        kept  insertions with a lower place are edges that the graph has already
        """

    @abstractmethod
    def merge(self, first: SortedKeys, second: SortedKeys) -> SortedKeys:
        """The keys of both, ascending, equal ones of `first` before those of `second`, in new
        arrays, with their weights and what stands in `order`. The arguments are spent.

        first  in any order, without repeats; that of ascending ones takes the least time
        """

    @abstractmethod
    def count_rows(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        """Counts the keys of each row of `edges` ascending, distinct ones.

        low     the first row of the range
        first   int64[rows of the range], receives the index of the first key of each row that has
                one
        length  int32[rows of the range], zero before, receives the number of keys
        Returns the slots of the rows when packed without slack, and the length of the longest row.
        """

    @abstractmethod
    def count_neighbours(self, keys: Array, edges: int, counts: Array) -> None:
        """Adds to counts, int32[n], how many of `edges` distinct keys name each neighbour: the
        lengths of the lists of the other direction.
        """

    @abstractmethod
    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        """Places rows of these lengths one after the other from slot `begin`, without slack.

        start, capacity  int64[n] and int32[n], written; a capacity is the length rounded up to
                         ALIGNMENT
        """

    @abstractmethod
    def copy_rows(self, csr: Csr, new_start: Array, new_end: int, slots: Slots) -> None:
        """Copies all rows to where `pack_rows` placed them, up to slot `new_end`."""

    @abstractmethod
    def entries(self, csr: Csr) -> Entries:
        """Every entry, rows ascending."""

    @abstractmethod
    def sum_weights(self, csr: Csr, vertices: Array | None, loop: Array, strength: Array) -> None:
        """The strengths of a weighted graph, summed from its out-lists in the order of their slots.
        What rounding takes of a sum, relative to it, is at most `strength_depth` · 2⁻⁵³.

        vertices        int32[k], distinct; None for all
        loop, strength  see GraphView; strength is written at these vertices
        """

    @abstractmethod
    def scale_rows(
        self, outgoing: Csr, incoming: Csr, factors: Array, loop: Array, strength: Array
    ) -> None:
        """Multiplies the rows of a weighted graph, in both directions, by powers of two, and with
        them their loops and strengths. Allocates nothing.

        factors  float32[n], by row of the out-lists; no product leaves the normal numbers, so that
                 all are exact
        """

    @abstractmethod
    def strength_depth(self, longest_row: int) -> int:
        """The most additions that a weight goes through in `sum_weights`, and one more."""

    @abstractmethod
    def partition(self, length: Array, order: Array, degree_bins: Array) -> NDArray[np.int64]:
        """Groups all rows of these lengths (int32[n]) for the kernels.

        order        int32[n], receives Rows.order
        degree_bins  uint8[n], receives the bin of each row, on backends that have bins
        Returns Rows.groups. New vertices may be appended to the last group.
        """

    @abstractmethod
    def needs_partition(self, rows: Rows, misbinned: int, slots: int) -> bool:
        """Whether rows changed so much since the last `partition` that sweeps would be slower.

        misbinned  sum of Counts.misbinned since then
        slots      slots of all rows when packed without slack
        """


# ---- vertices with the same in-list ----

NO_PART = -1
"""What a weighted loop beside other out-edges returns, which is not compared: see
`returned_parts`.
"""


class Fingerprints(NamedTuple):
    """The in-lists of some vertices, each int64[k] on the host.

    positions  the vertices
    lengths    of the lists; 0 where a list is not compared, and has no hash and no source
    hashes     equal where the lists and what loops return are the same; others differ but by chance
    sources    of each list the one with the fewest out-edges, of several the lowest position
    out_edges  how many out-edges that has
    """

    positions: NDArray[np.int64]
    lengths: NDArray[np.int64]
    hashes: NDArray[np.int64]
    sources: NDArray[np.int64]
    out_edges: NDArray[np.int64]

    def at(self, places: NDArray[np.int64] | NDArray[np.bool_]) -> Fingerprints:
        """Those at some places, or where it is true."""
        return Fingerprints(*(column[places] for column in self))


class ListOperations(ABC):
    """In-lists are the same if they have the same sources and weights, in whatever order, and their
    vertices get the same part of their rank back by a loop, which is no entry.
    """

    @abstractmethod
    def fingerprints(self, graph: GraphView, positions: Array, longest: int) -> Fingerprints:
        """Of the in-lists of vertices, integer[k] positions on the device. A list is compared if it
        has 1 … `longest` entries and its vertex gets a part back that can be compared.

        Traffic: 8 bytes an entry, half of them read at random; 12 with weights.
        """

    @abstractmethod
    def with_same_list(
        self, graph: GraphView, lists: Fingerprints
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All other vertices whose in-list is the same as one of some lists, of k ≥ 1 that are
        compared. Entries are compared; hashes are not looked at.

        Returns numbers of lists, 0 … k-1, and positions, int64[…] each on the host: a pair for each
        vertex, in any order.

        Traffic: a list and its vertex's length at random for each out-edge of its source, at most
        Σ lengths · out_edges entries.
        """


def returned_parts(loop: Array, degree: Array) -> Array:
    """int64[k], equal numbers where loops return the same part of a rank: 0 where there are none, 1
    where they return all. NO_PART where a weighted loop does, beside other out-edges: sums of
    weights are rounded.

    loop, degree  those of GraphView at some vertices
    """
    beside = degree.astype(np.int64) if degree.dtype.kind == "i" else NO_PART
    return (loop != 0) * ((degree == loop) + (degree != loop) * beside)


# ---- in-lists in pages, for sweeps that read less at random ----


class PageOperations(Protocol):
    """Operations on PagedLists."""

    def bytes_needed(self, vertices: int, edges: int, weighted: bool = False) -> int:
        """Upper bound on the memory that `build` takes, its peak included; without what a tile of
        more edges than are sorted at once takes.
        """

    def build(self, incoming: Csr) -> PagedLists:
        """The in-lists of a graph in pages, with room for more. Neighbours may be more
        than rows: columns of a shard. A range of tiles is sorted at a time. Raises OutOfMemory,
        MemoryError.
        """

    def follow(self, lists: PagedLists, *changes: EdgeChanges) -> bool:
        """Changes the pages as batches, one after the other, changed the graph, which has no more
        vertices than there is room for. Returns False if a page found no room, and raises
        MemoryError: then they cannot be used any more.
        """
