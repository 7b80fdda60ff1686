"""The graph of one shard."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.batch import (
    Arcs,
    weight_exceeded,
)
from liverank_gpu.graph.batch import (
    Columns as EdgeColumns,
)
from liverank_gpu.graph.decay import (
    Decay,
    both_arcs,
    edge_keys,
    expired_among,
    factors_at,
    highest_of,
    require_times,
)
from liverank_gpu.graph.dynamic_graph import (
    DynamicGraph,
    ReversedGraph,
    batch_purpose,
    is_large_part,
    naming_memory,
)
from liverank_gpu.graph.in_pages import InPages
from liverank_gpu.graph.packed_csr import allocate_changes
from liverank_gpu.graph.vertices import (
    NO_IDS,
    VertexPermutation,
    by_descending_degree,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import (
    INSERT,
    NEIGHBOUR,
    BatchPlan,
    ChangedLists,
    Counts,
    EdgeChanges,
    Entries,
    Follows,
    GraphUpdate,
    PlanBatch,
    PlanSent,
    SentBatch,
    SortedKeys,
    UpdateRules,
)
from liverank_gpu.operations.sweeps import PartialSweeps
from liverank_gpu.pagerank.frontier import TouchedVertices
from liverank_gpu.sharded.columns import (
    Columns,
    Numbering,
    ReplicatedBatch,
    Router,
    slices,
)
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.loading import (
    Direction,
    LargeBatch,
    Load,
    Update,
    exceeded_key,
    load_bytes,
)
from liverank_gpu.sharded.operations import ShardedMultivector, ShardRun, shard_costs
from liverank_gpu.sharded.programs import ShardPrograms
from liverank_gpu.sharded.residual import ShardedResidual, ShardedSets
from liverank_gpu.types import Change, EdgeBatch, Options

# Which insertion of a batch makes a sum of weights exceed float32, if the batch is in slices.


def exceeded_weight(
    backend: Backend,
    communicator: Communicator,
    numbering: Numbering,
    permutation: VertexPermutation,
    keys: Array,
    arcs: Arcs,
    batch: EdgeBatch,
    first: int,
) -> InvalidValue:
    """The error, the same on all shards, which call it together. It names the last insertion of the
    first edge that exceeds.

    permutation  that of the batch
    keys         int64[1 or 0], of the first such edge in own out-lists
    arcs, batch  of the slice of this shard; first: place of its first insertion in the batch
    """
    xp, device = backend.xp, backend.device
    columns = (keys >> 1 & NEIGHBOUR).astype(np.int32)
    own = numbering.positions_of(keys >> 32) << 32 | numbering.positions_at(columns, xp)
    edge = int(device.to_host(communicator.united(own, xp)).min())
    source, target = permutation.ids_of(np.array([edge >> 32, edge & 0xFFFFFFFF])).tolist()
    sources, targets = arcs.insert
    found = device.to_host(xp.flatnonzero(xp.asarray((sources == source) & (targets == target))))
    place, weight = -1, 0.0
    if len(found):
        own_place = arcs.place_in_batch(backend, batch, int(found[-1]))
        place = first + own_place
        weight = 1.0 if batch.weights is None else float(batch.weights[own_place])
    table = communicator.gather([place, weight])
    last = table[int(table[:, 0].argmax())]
    return weight_exceeded(int(last[0]), float(last[1]))


# ---- in-lists in pages in shards: liverank_gpu.graph.in_pages, on all shards or on none ----
#
# A contribution is rounded to the unit of the sums where it is used: by its own vertex, which is
# in one shard, and by those that receive it, in all. So shards do not sweep by pages while another
# one sweeps by rows. The pages of a shard have its own rows as targets, and columns as sources.
#
# Whether all have pages, or are to build them, is agreed before anything else of a call, together
# with other numbers: also those that each shard built by itself after a load. Only a build before a
# sweep takes an exchange of its own. Sweeps by rows, however many, have no pages built here: only
# loads and batches do.


class ShardInPages(InPages):
    """The pages of one shard. All shards call `agree` after each batch or load before they sweep,
    and `view` together.
    """

    def __init__(self, local: Backend, communicator: Communicator, columns: Columns) -> None:
        super().__init__(local)
        self._communicator, self._columns = communicator, columns
        self._agreed = self._all_built = False

    def offer(self, graph: GraphView) -> tuple[bool, bool]:
        """Whether this shard has pages, and whether it has or would build them."""
        return self.kept, self.kept or self._may_build(graph, self._solves)

    def agree(self, kept: float, offered: float) -> None:
        """How many shards have pages, and how many have or would build them. Those that not all can
        have are dropped.
        """
        size = self._communicator.size
        self._agreed, self._all_built = offered == size, kept == size
        if self.kept and not self._agreed:
            self.drop()

    def view(
        self,
        graph: GraphView,
        largest_sum: float,
        of_query: bool = False,  # noqa: ARG002
    ) -> GraphView:
        """See InPages; the largest sum of all shards. Either all have pages, or none; a query
        builds those that the next solve would have built.
        """
        if not self._agreed:
            return graph
        if not self._all_built:
            if not self.kept:
                self._build(graph, self._solves)
            (built,) = self._communicator.sums([self.kept])
            self._agreed = self._all_built = built == self._communicator.size
            if not self._agreed:
                self.lists, self._solves.refused = None, graph.edges
        self._solves.wanted = False
        return self._paged(graph, largest_sum)

    def changes(self, plan: BatchPlan, counts: Counts) -> EdgeChanges:
        """What a plan of the in-lists changes, for `follow`; nothing if there are no pages. Raises
        MemoryError.
        """
        removed, added = (counts.removed, counts.added) if self.kept else (0, 0)
        rows = plan.row_vertex
        return EdgeChanges(
            sources=rows[:0],
            old_degree=rows[:0],
            removed_sources=plan.removed_neighbour[:removed],
            removed_targets=rows[plan.removed_row[:removed]],
            added_sources=plan.added_neighbour[:added],
            added_targets=rows[plan.added_row[:added]],
        )

    def _is_large(self, graph: GraphView) -> bool:
        # what arrives in a shard along edges with weights is rounded by itself: not accounted for
        own = graph._replace(edges=graph.edges // self._communicator.size)
        return not graph.weighted and super()._is_large(own)

    def _rows_swept_with(self, neighbours: Array) -> Array:
        return self._columns.rows_of(neighbours)


# ---- weights that decay, on a graph in shards: liverank_gpu.graph.decay, whose exponents every
# shard has ----
#
# What a slice of a batch says of each row that it names, two numbers, is sent to all shards. So all
# decide alike about rows, while each looks at no other insertions than those of its slice, and at
# no other lists than its own.


class ShardDecay(Decay["ShardGraph"]):
    """See Decay. All shards call its methods together, each with its slice of the batch."""

    def __init__(self, options: Options, backend: Backend, communicator: Communicator) -> None:
        super().__init__(options)
        self._device, self._xp = backend.device, backend.xp
        self._communicator = communicator

    def _on_any(self, condition: bool) -> bool:
        return self._communicator.sums([condition])[0] > 0.0

    def _highest(
        self, ids: NDArray[np.int64], highest: NDArray[np.int64]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return highest_of(self._united(ids), self._united(highest))

    def _are_empty(self, graph: ShardGraph, rows: NDArray[np.int64]) -> NDArray[np.bool_]:
        own, places = self._own(graph, rows[rows < graph.ids.limit])
        occupied = self._device.to_host(graph.degree[own]) > 0.0
        return ~np.isin(rows, self._united(rows[rows < graph.ids.limit][places[occupied]]))

    def _factors_of(
        self, graph: ShardGraph, ids: NDArray[np.int64], shifts: NDArray[np.int64], vertices: int
    ) -> Array:
        # own rows are the first columns
        assert graph.numbering.for_positions(vertices) == graph.numbering
        positions = graph.permutation.positions_of(ids)
        columns = graph.numbering.columns_of(positions, self._xp)
        return factors_at(graph.backend, columns, shifts, graph.numbering.columns)

    def _expired_arcs(
        self,
        graph: ShardGraph,
        ids: NDArray[np.int64],
        shifts: NDArray[np.int64],
        removed: NDArray[np.int64],
    ) -> tuple[EdgeColumns, int]:
        """Those in own lists; of an undirected graph, those of the edges that this shard counts."""
        if len(ids) == 0:
            return (NO_IDS, NO_IDS), 0
        rows, places = self._own(graph, ids)

        def ids_of(columns: Array) -> NDArray[np.int64]:
            return graph.permutation.ids_of(graph.numbering.positions_at(columns, self._xp))

        arcs = expired_among(graph, rows, shifts[places], removed, ids_of)
        edges = len(arcs[0])
        if not graph.directed:
            # an edge may have expired in the rows of two shards
            keys = edge_keys(*arcs)
            size = self._communicator.size
            parts = [
                self._device.to_device(keys[(keys >> 32) % size == rank]) for rank in range(size)
            ]
            received = self._communicator.all_to_all(parts)
            keys = np.unique(self._device.to_host(self._xp.concatenate(received)))
            arcs, edges = both_arcs(keys), len(keys)
        return arcs, int(self._communicator.sums([edges])[0])

    def bytes_needed(self, graph: ShardGraph, vertices: int) -> int:
        return super().bytes_needed(graph, vertices) + 4 * graph.numbering.columns

    def _own(self, graph: ShardGraph, ids: NDArray[np.int64]) -> tuple[Array, NDArray[np.int64]]:
        """See ShardGraph.own_rows; which they are, on the host."""
        rows, places = graph.own_rows(ids)
        return rows, self._device.to_host(places)

    def _united(self, own: NDArray[np.int64]) -> NDArray[np.int64]:
        """The numbers of all shards, by rank."""
        sent = self._device.to_device(own)
        return self._device.to_host(self._communicator.united(sent, self._xp))


# The part of a dynamic graph that one shard holds: the in-lists and out-lists of own vertices.
#
# Every shard takes a slice of a batch. The operations on (u,v) go to the owner of u for its
# out-list and to that of v for its in-list, in the order of the slices, so that the two decide
# alike. Each shard then plans its part; the counts are gathered, and only then is anything written,
# so that all shards change or none.

_RENUMBERED_SLOTS = 1 << 24
"""Slots that are renumbered at a time, which takes as much scratch memory."""


class ShardGraph(DynamicGraph):
    """One shard of a graph. `backend` sweeps over all shards (liverank_gpu.sharded.operations),
    `vertices` and arrays are those of own vertices, and `ids`, `edges`, `arcs`, `connected` and the
    lengths of the longest lists are those of the whole graph.

    numbering  who owns a vertex, and where its contribution is
    """

    divided = True

    def __init__(self, local: Backend, communicator: Communicator, options: Options) -> None:
        order, weighted, directed = options.vertex_order, options.weighted, options.directed
        local = replace(local, components=None)
        super().__init__(local, options.dangling, order, weighted, directed)
        self.numbering = Numbering(communicator.rank, communicator.size)
        self._columns = columns = Columns(local, communicator)
        self.in_pages: ShardInPages = ShardInPages(local, communicator, columns)
        run = ShardRun(local, communicator, columns)
        run.add(ShardedResidual(local, communicator, columns))
        run.add(ShardedSets(local, communicator, columns, run))
        run.add(ShardPrograms(local, communicator, run))
        self.backend = replace(
            local,
            costs=shard_costs(local.costs, communicator.size),
            run=run,
            sweeps=PartialSweeps(local.sweeps),
            multivector=ShardedMultivector(local, communicator),
        )
        self._communicator, self._local = communicator, local
        if options.decays:
            self.decay = ShardDecay(options, self.backend, communicator)

    def size(self, values: Array) -> float:
        (size,) = self._communicator.sums([super().size(values)])
        return size

    def total(self, values: Array) -> float:
        (total,) = self._communicator.sums([super().total(values)])
        return total

    def count(self, found: int) -> int:
        (count,) = self._communicator.sums([found])
        return int(count)

    @property
    def local(self) -> Backend:
        return self._local

    def positions_at(self, columns: Array) -> Array:
        return self.numbering.positions_at(columns, self.backend.xp)

    def over_columns(self, values: Array) -> Array:
        return self._columns.gathered(values, self.columns)

    def united(self, values: Array) -> Array:
        return self._communicator.united(values, self.backend.xp)

    def apply(
        self,
        batch: EdgeBatch,
        rebuilds: bool = False,  # noqa: ARG002
        reserve: Callable[[int], None] = lambda _: None,
        follows: Callable[[], Follows | None] = lambda: None,  # noqa: ARG002
        stored: bool = False,
    ) -> GraphUpdate:
        """Removes, deletes, then inserts; to be called on all shards, each with a slice of the
        batch, or all with one ReplicatedBatch. The counts are those of all slices; changes are
        those of own out-lists, with targets as columns. An error on any shard leaves the whole
        graph unchanged, if the others are told.

        reserve  makes room for this many rows in other arrays over own vertices
        stored   whether weights that decay are given as they are stored, without times
        Raises InvalidValue, OutOfMemory.
        """
        require_times(batch, self.decay is not None and not stored)
        rows = self.numbering.rows(max(self.ids.limit, batch.vertices))
        with naming_memory(self.backend.device, self.bytes_needed, batch.operations, rows):
            return self._applied(batch, reserve, stored)

    def _applied(
        self, batch: EdgeBatch, reserve: Callable[[int], None], stored: bool
    ) -> GraphUpdate:
        self.scale_rows()
        batch, replicated = self._as_given(batch)
        sent = (len(batch.insert_sources), len(batch.delete_sources), len(batch.remove))
        own = [batch.vertices, *sent]
        table = np.array([own]) if replicated else self._communicator.gather(own)
        limit = max(self.ids.limit, int(table[:, 0].max()))
        insertions, deletions, to_remove = (int(column.sum()) for column in table.T[1:])
        removed = self.ids.vertices_among(self._united(batch.remove)) if to_remove else NO_IDS
        removal = self._removal(removed)
        gone = removal.edges if removal else 0
        arcs = Arcs.of(self.backend, batch, removal, self.directed, self.weighted)
        self.ids.reserve(limit if to_remove else 0)
        returned = self.ids.returning(self.backend, batch, removed)
        if not replicated and (self.ids.free_count or len(removed)):
            returned = self._united(returned)
        self._renumber(self.numbering.for_positions(limit))
        expired, too_old = 0, 0.0
        if self.decay and insertions and not stored:
            arcs, expired, own_too_old = self.decay.apply(self, arcs, removed, limit)
            (too_old,) = self._communicator.sums([own_too_old])
        is_large = self._is_loaded_by(insertions + deletions + gone + expired)
        # of a large batch they go to the device once, also of the first, which decides the order
        columns = [self.backend.graph.columns(*arcs.insert)] if is_large else []
        permutation = self.permutation
        if insertions and self._order_to_choose:
            permutation = self._chosen_permutation(columns[0], limit, insertions)
        rows = self.numbering.rows(limit)
        router = Router(self.backend, self._communicator, self.numbering, permutation)
        prepared: Load | Update
        if is_large:
            held = ((self.outgoing, self.incoming), self.loop, self.fixed_loops)
            # without edges there is nothing to delete
            limits = (self.ids.limit if self.arcs else 0, limit)
            large = LargeBatch(router, arcs, columns, *held, limits)
            needed = large.bytes_needed(self._vertex_bytes)
            self.in_pages.require(batch_purpose(large.operations, rows), needed)
            reserve(rows)
            self.trim()
            prepared = large.load(needed)
        else:
            keys = None if replicated else router.route(arcs, self.ids.limit)
            operations = len(arcs) if keys is None else max(len(each.keys) for each in keys)
            needed = self._bytes_to_look_up(operations, rows)
            self.in_pages.require(batch_purpose(operations, rows), needed)
            self._reserve(rows)
            reserve(rows)
            prepared = self._plan(router, arcs, limit, keys)
        out, into = self._agreed(prepared.directions)
        if out.exceeded or into.exceeded:
            before = 0 if replicated else int(table[: self.numbering.rank, 1].sum())
            places = (self.backend, self._communicator, self.numbering, permutation)
            raise exceeded_weight(*places, prepared.exceeded, arcs, batch, before)

        # from here on nothing can fail, on any shard
        if isinstance(prepared, Load):
            self._take(prepared, rows)
        else:
            if self._connected is not None:
                self._connected += out.connected
            self._write(prepared.workspace, prepared.counts, prepared.changes, rows)
            self.in_pages.follow(prepared.in_changes, rows)
        self.outgoing.longest, self.incoming.longest = out.longest, into.longest
        if insertions:
            self.permutation, self._order_to_choose = permutation, None
            if self.decay and not stored:
                self.decay.commit()
        # an undirected edge is two arcs, and one if it is a loop, which only out-lists count
        inserted, deleted, reweighted = (
            all_out if self.directed else all_out - all_in // 2
            for all_out, all_in in zip(out[:3], into[:3], strict=True)
        )
        new_vertices = limit - self.ids.limit + len(returned)
        if self.ids.change(removed, returned, limit):
            self._free = None
        self.edges += inserted - deleted
        self.arcs += out.growth
        counts = Change(
            inserted,
            insertions - inserted - reweighted,
            deleted - gone - expired,
            deletions - deleted + gone + expired,
            new_vertices,
            0.0,
            reweighted,
            len(removed),
            gone,
            expired + int(too_old),
            to_remove - len(removed),
        )
        touched, changes = prepared.touched, prepared.changes
        # it may have changed lists of other shards
        lists = ChangedLists(*touched, changes)
        return GraphUpdate(counts, lists, True, removed, returned)

    def _as_given(self, batch: EdgeBatch) -> tuple[EdgeBatch, bool]:
        """The batch, and whether it is a whole one that needs no exchange; or else the slice of
        this shard.
        """
        if not isinstance(batch, ReplicatedBatch):
            return batch, False
        edges = len(batch.insert_sources) + len(batch.delete_sources)
        if not (len(batch.remove) or self.decay or self._is_loaded_by(edges)):
            return batch, True
        return slices(batch, self.numbering.size)[self.numbering.rank], False

    @property
    def is_counted(self) -> bool:
        """Whether this shard knows `connected`, which all count together."""
        return self._connected is not None

    def agree_on_count(self, counted: float) -> None:
        """Has all count again unless all know it. counted: how many do."""
        if counted < self.numbering.size:
            self._connected = None

    @property
    def free(self) -> Array:
        """int32[…] on the device: own rows of free ids; the same array until free ids change."""
        if self._free is None:
            self._free, _ = self.own_rows(self.ids.free())
        return self._free

    def own_rows(self, ids: NDArray[np.int64]) -> tuple[Array, Array]:
        """Of the ids, those of own vertices: their rows, int32[k], and which they are, int64[k]."""
        return self.own_rows_at(self.permutation.positions_of(ids))

    def own_rows_at(self, positions: Array) -> tuple[Array, Array]:
        own = self.backend.xp.flatnonzero(self.numbering.owners(positions) == self.numbering.rank)
        return self.numbering.rows_of(positions[own]).astype(np.int32), own

    def _united(self, ids: NDArray[np.int64]) -> NDArray[np.int64]:
        """int64[…] on the host: the distinct ids of all shards, ascending."""
        device = self.backend.device
        every = self._communicator.united(device.to_device(ids), self.backend.xp)
        return np.unique(device.to_host(every))

    def _extend(self, vertices: int) -> None:
        super()._extend(vertices)
        self.columns = self.numbering.columns

    # ---- how vertices are numbered ----

    def _chosen_permutation(
        self, columns: tuple[Array, Array], limit: int, edges: int
    ) -> VertexPermutation:
        """As `vertex_order` says; ``auto`` orders every large graph by degree, since the vertices
        of a shard are not adjacent in any order.
        """
        backend, order = self.backend, self._order_to_choose
        small = min(limit, edges) < backend.sizes.least_permuted
        if order == "given" or (order == "auto" and small):
            return VertexPermutation(backend)
        degree = self._degrees_in(columns, limit, edges)
        return VertexPermutation(backend, by_descending_degree(backend.xp, degree))

    def _degrees_in(self, columns: tuple[Array, Array], limit: int, edges: int) -> Array:
        """integer[limit]: how often the columns of all slices name each id. Every shard adds up a
        part of them, so that none holds the counts of all.
        """
        xp, device, size = self.backend.xp, self.backend.device, self.numbering.size
        # an edge names a vertex four times at most: a loop without direction, as two arcs
        dtype, part = np.int32 if edges < 1 << 29 else np.int64, -(-limit // size)
        counts = device.allocate("vertex order", size * part, dtype)
        counts.fill(0)
        at_once = max(self.backend.sizes.chunk, limit)
        for column in columns:
            for begin in range(0, len(column), at_once):
                counts += xp.bincount(column[begin : begin + at_once], minlength=size * part)
        parts = [counts[rank * part : (rank + 1) * part] for rank in range(size)]
        own = sum(self._communicator.all_to_all(parts))
        self._communicator.all_gather(own, counts)
        return counts[:limit]

    def _renumber(self, numbering: Numbering) -> None:
        """Takes a numbering with other room: a pass over all lists, seldom."""
        earlier = self.numbering
        if numbering == earlier:
            return
        xp, lists = self.backend.xp, (self.outgoing.csr, self.incoming.csr)
        slots = max(len(csr.column_indices) for csr in lists)
        scratch = self.backend.device.allocate(
            "renumbering", min(slots, _RENUMBERED_SLOTS), np.int32
        )
        # when all have the memory nothing can fail: all take the numbering, or none
        self._communicator.gather([0.0])
        self.in_pages.drop()
        for csr in lists:
            for first in range(0, len(csr.column_indices), _RENUMBERED_SLOTS):
                columns = csr.column_indices[first : first + _RENUMBERED_SLOTS]
                earlier.renumber(columns, numbering, scratch[: len(columns)], xp)
        self.numbering = self._columns.numbering = numbering
        self.columns = numbering.columns
        # before one of them can fail, and end the call on those that have not taken it yet
        self._communicator.gather([0.0])

    def is_rebuilt_by(self, operations: int) -> bool:  # noqa: ARG002
        return False  # what is looked up; see _is_loaded_by

    def _is_loaded_by(self, edges: int) -> bool:
        """Whether all shards take new lists for a batch that names so many edges in all slices."""
        arcs = super()._arcs_of(edges)
        return self.arcs == 0 or is_large_part(arcs, self.arcs, self.backend.sizes)

    def bytes_needed(self, operations: int, vertices: int) -> int:
        """See DynamicGraph, of the edges of a slice if the slices of all shards have as many."""
        arcs = super()._arcs_of(operations)
        if not self._is_loaded_by(operations * self.numbering.size):
            return self._bytes_to_look_up(arcs, vertices)
        extra = self.decay.bytes_needed(self, vertices) if self.decay else 0
        entries = arcs + max(self.outgoing.packed, self.incoming.packed)
        needed = load_bytes(
            self.backend.sizes, entries, vertices, self._vertex_bytes, self.weighted
        )
        return extra + needed

    def _bytes_to_look_up(self, operations: int, vertices: int) -> int:
        return super().bytes_needed(operations, vertices)

    @property
    def _vertex_bytes(self) -> int:
        """Of loop and degree."""
        return int(self._loop.itemsize + self._degree.itemsize)

    def _arcs_of(self, edges: int) -> int:
        return edges  # what is routed here are arcs

    def _agreed(self, directions: tuple[Direction, Direction]) -> tuple[Direction, Direction]:
        """Both directions over all shards. Nothing has been written yet on any of them."""
        width = len(Direction._fields)
        table = self._communicator.gather([*directions[0], *directions[1]]).astype(np.int64)
        out, into = (
            Direction(*(int(column.sum()) for column in half.T))._replace(
                longest=int(half[:, Direction._fields.index("longest")].max())
            )
            for half in (table[:, :width], table[:, width:])
        )
        return out, into

    def _take(self, load: Load, rows: int) -> None:
        self.in_pages.drop()
        self._connected = None
        self.outgoing, self.incoming = load.outgoing, load.incoming
        self._loop, self._degree, self._free = load.loop, load.degree, None
        self._extend(rows)

    # ---- later batches ----

    def _plan(
        self,
        router: Router,
        arcs: Arcs,
        limit: int,
        keys: tuple[SortedKeys, SortedKeys] | None,
    ) -> Update:
        """What a batch changes, and room for it. Writes nothing that changes the graph.

        limit  of the ids after the batch
        keys   on own lists; None for those of arcs that all shards have
        """
        run, lists = self.backend.run, (self.outgoing, self.incoming)
        rules, planned = UpdateRules(self.loop, self.fixed_loops, True, arcs.adds), None
        if keys is None and self.backend.graph.at_once:
            workspace, permutation = self._workspaces.take(len(arcs)), self.permutation
            sent = PlanSent(
                self._slack,
                SentBatch(arcs.columns, arcs.weights, (self.ids.limit, limit), NO_IDS),
                (permutation.positions, permutation.ids),
                rules,
                workspace,
                (self.numbering.size, self.numbering.rank, self.numbering.room),
            )
            planned = run(sent)
        if planned is None:
            keys = keys or router.route(arcs, self.ids.limit, True)
            workspace = self._workspaces.take(max(len(each.keys) for each in keys))
            planned = run(PlanBatch(self._slack, keys, rules, workspace)), keys[0].keys
        counts, out_keys = planned
        both = self._packed(workspace, counts)
        out, into = (
            Direction(
                counts.inserted,
                counts.deleted,
                counts.reweighted,
                counts.added - counts.removed,
                max(direction.longest, counts.longest),
                int(counts.exceeded > 0),
                counts.connected,
            )
            for direction, counts in zip(lists, both, strict=True)
        )
        changes = allocate_changes(self.backend, both[0], self.weighted)
        in_changes = self.in_pages.changes(workspace.plans[1], both[1])
        exceeded = exceeded_key(both[0], out_keys)
        return Update(workspace, both, changes, in_changes, (out, into), exceeded)


class ReversedShard(ReversedGraph):
    """See ReversedGraph: what one shard has of it. Of the edges that a batch changed, the owners of
    their targets are told. All shards call `follow` together; an error ends the call.
    """

    graph: ShardGraph

    def __init__(self, graph: ShardGraph, communicator: Communicator) -> None:
        """Raises OutOfMemory."""
        super().__init__(graph)
        self._communicator = communicator

    @property
    def numbering(self) -> Numbering:
        return self.graph.numbering

    def own_rows(self, ids: NDArray[np.int64]) -> tuple[Array, Array]:
        """See ShardGraph.own_rows."""
        return self.graph.own_rows(ids)

    def own_rows_at(self, positions: Array) -> tuple[Array, Array]:
        """See ShardGraph.own_rows_at."""
        return self.graph.own_rows_at(positions)

    def follow(self, update: GraphUpdate) -> GraphUpdate:
        if update.changes is not None:
            return self._turned(update, update.changes)
        return super().follow(update)

    def _turned_edges(self, changes: EdgeChanges) -> tuple[Entries, Entries]:
        xp, numbering = self.backend.xp, self.numbering
        sources = xp.concatenate([changes.removed_sources, changes.added_sources])
        targets = xp.concatenate([changes.removed_targets, changes.added_targets])
        weights = None
        if changes.removed_weights is not None:
            weights = xp.concatenate([changes.removed_weights, changes.added_weights])
        rows, neighbours = numbering.positions_at(targets, xp), numbering.positions_of(sources)
        keys = rows << 32 | neighbours << 1
        keys[len(changes.removed_sources) :] |= INSERT
        router = Router(self.backend, self._communicator, numbering, self.permutation)
        keys, weights = router.sent(keys, weights)
        inserts = (keys & INSERT) != 0
        edges = [(keys >> 32).astype(np.int32), (keys >> 1 & NEIGHBOUR).astype(np.int32)]
        edges += [] if weights is None else [weights]
        return Entries(*(each[~inserts] for each in edges)), Entries(
            *(each[inserts] for each in edges)
        )


# ---- what batches touched since the last solve, on one shard ----


class ShardTouched(TouchedVertices):
    """See TouchedVertices: the own sources that changed, and own targets of edges that are gone,
    which others may have named. Columns are renumbered, so each batch's are kept with their
    numbering.
    """

    def __init__(self, graph: ShardGraph, communicator: Communicator) -> None:
        super().__init__()
        self._graph, self._communicator = graph, communicator
        self._numberings: list[Numbering] = []

    @property
    def sources(self) -> list[Array]:
        """At least one list, also where no batch has touched anything here."""
        return [self._graph.backend.xp.zeros(0, "int32"), *super().sources]

    @property
    def removed_targets(self) -> list[Array]:
        """Exchanged: all shards read it together."""
        xp, numbering = self._graph.backend.xp, self._graph.numbering
        batches = zip(self._numberings, super().removed_targets, strict=True)
        of_each = [numbered.positions_at(columns, xp) for numbered, columns in batches]
        positions = xp.unique(xp.concatenate([xp.asarray(NO_IDS), *of_each]))
        owners, rows = numbering.owners(positions), numbering.rows_of(positions)
        sent = [rows[owners == rank] for rank in range(numbering.size)]
        return [xp.concatenate(self._communicator.all_to_all(sent))]

    def add(self, update: GraphUpdate) -> None:
        """Records a batch, which all shards have taken: this allocates nothing, so it cannot
        fail.
        """
        super().add(update)
        self._numberings.append(self._graph.numbering)

    def clear(self) -> None:
        super().clear()
        self._numberings = []
