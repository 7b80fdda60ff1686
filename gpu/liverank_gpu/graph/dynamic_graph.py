"""The dynamic graph: out-lists, in-lists, loops and degrees, changed by batches on the device.
Edges may have weights; strengths, their sums, then take the place of degrees.

A batch is sorted, looked up in the rows that it names, and planned, in both directions. Then its
counts are read back, memory is allocated, and only then is anything written. So the cost follows
the batch and the rows that it names, and a failure leaves the graph unchanged.

A loop is a flag of its vertex, not an entry of a list. So ``d(v)`` counts exactly one loop if the
flag is set, and the closed form (Sahu, equation 2) is right by construction; kernels never meet a
loop in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import OutOfMemory
from liverank_gpu.graph.batch import Arcs, Removal, edges_on_device
from liverank_gpu.graph.decay import AnyDecay, require_times
from liverank_gpu.graph.in_pages import InPages
from liverank_gpu.graph.packed_csr import (
    LOADED_AT_ONCE,
    VERTEX_BYTES,
    KeptWorkspace,
    PackedCsr,
    Workspace,
    allocate_changes,
    find,
    rows_of,
    slot_bytes,
    slots_with_spare,
    workspace_bytes,
)
from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.graph.rebuild import rebuild, rebuild_bytes, restore_directions
from liverank_gpu.graph.vertices import NO_IDS, VertexIds, VertexPermutation, permutation_bytes
from liverank_gpu.operations import graph as op
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.operations.csr import GraphView, loop_dtype, strength_dtype
from liverank_gpu.operations.device import Array, DeviceOperations
from liverank_gpu.types import Change, Dangling, EdgeBatch, VertexOrder

_REBUILD_PART = 4
"""A batch of more operations than Sizes.rebuild and than one in _REBUILD_PART edges rebuilds the
graph. On a GPU that takes two to four times as long as looking the batch up, but no more memory
than a load; the scratch of a look-up would be several times the graph.
"""


class _Applied(NamedTuple):
    """What a batch did to edges, its removed vertices' included, and what GraphUpdate says; and the
    edges of removed vertices, where these were found as it was applied.
    """

    edges: op.EdgeCounts
    lists: op.ChangedLists | op.ChangeBlock
    touches: bool
    followed: tuple[Any, Any] | None = None
    removed_edges: int = 0


def is_large_part(operations: int, arcs: int, sizes: Sizes) -> bool:
    """Whether so many arcs to insert and to delete rebuild a graph that has `arcs`."""
    return operations > max(sizes.rebuild, arcs // _REBUILD_PART)


def batch_purpose(operations: int, vertices: int) -> str:
    """What memory is needed for, in words."""
    return f"a batch of {operations:,} edges and a graph of {vertices:,} vertices"


@contextmanager
def naming_memory(
    device: DeviceOperations,
    bytes_needed: Callable[[int, int], int],
    operations: int,
    vertices: int,
) -> Iterator[None]:
    """Raises OutOfMemory, with the figures of a batch, for any other MemoryError.

    bytes_needed  DynamicGraph.bytes_needed, which takes `operations` and `vertices`
    """
    try:
        yield
    except OutOfMemory:
        raise
    except MemoryError as error:
        purpose, needed = batch_purpose(operations, vertices), bytes_needed(operations, vertices)
        raise OutOfMemory(purpose, needed, device.memory_available()) from error


class DynamicGraph(RankedGraph):
    """A graph without parallel edges, and its transpose, on one backend's device. An undirected one
    stores each edge as two arcs, so that all but the counts is as in a directed one. Batches and
    edge lists are in ids; everything else, updates included, in positions.

    ids          which ids are vertices
    vertices     length of all arrays over vertices, VertexIds.limit; free ids have no edges
    columns      length of contributions, to which the in-lists refer: `vertices`
    edges        number of edges; users' loops count, those of the ``self-loop`` policy do not
    arcs         the same of a directed graph; of an undirected one, edges other than loops twice
    fixed_loops  whether every vertex has a loop that batches cannot change
    directed, weighted  see liverank_gpu.types.Options; decay  the exponents of rows, or None
    loop, degree see liverank_gpu.operations.csr.GraphView
    divided      whether other processes have parts of it, which all call what runs over them
    outgoing     out-lists, incoming  in-lists; both without loops; in_pages  pages of the latter
    permutation  ids and positions; chosen as `vertex_order` says when the first edges arrive
    """

    divided = False
    outgoing: PackedCsr
    incoming: PackedCsr

    def __init__(
        self,
        backend: Backend,
        dangling: Dangling,
        vertex_order: VertexOrder = "auto",
        weighted: bool = False,
        directed: bool = True,
        decay: AnyDecay | None = None,
    ) -> None:
        self.backend = backend
        self.dangling, self.fixed_loops = dangling, dangling == "self-loop"
        self.weighted, self.directed = weighted, directed
        self.decay = decay
        self.permutation = VertexPermutation(backend)
        self._order_to_choose: VertexOrder | None = vertex_order
        self.ids = VertexIds()
        self.vertices = self.columns = self.edges = self.arcs = 0
        self.outgoing = PackedCsr(backend, weighted=weighted)
        self.incoming = PackedCsr(backend, weighted=weighted)
        self._loop = backend.device.allocate("vertices", 0, loop_dtype(weighted))
        self._degree = backend.device.allocate("vertices", 0, strength_dtype(weighted))
        self.loop, self.degree = self._loop, self._degree
        self._workspaces = KeptWorkspace(backend, weighted)
        # what decays has its rows scaled, which pages would not follow
        self.in_pages = InPages(replace(backend, pages=None) if self.decay else backend)
        self._connected: int | None = None
        self._free: Array | None = None

    def sweep_view(self, largest_sum: float, of_query: bool = False) -> GraphView:
        """The view for a sweep in float64: see RankedGraph."""
        return self.in_pages.view(self.view, largest_sum, of_query)

    @property
    def connected(self) -> int:  # type: ignore[override]  # counted when asked for
        """Vertices with an edge other than their own loop: counted once, then batches change it."""
        if self._connected is None:
            lengths = self.incoming.csr.row_lengths | self.outgoing.csr.row_lengths
            self._connected = int(self.total(lengths != 0))
        return self._connected

    @property
    def local(self) -> Backend:
        """The backend, for graphs that are here alone."""
        return self.backend

    def own_rows_at(self, positions: Array) -> tuple[Array, Array]:
        """Of positions, integer[…] on the device, those that are here: their rows, int32[k], and
        which they are, integer[k].
        """
        xp = self.backend.xp
        return positions.astype(np.int32), xp.arange(len(positions), dtype=np.int32)

    def positions_at(self, columns: Array) -> Array:
        """integer[k]: the positions of neighbours in lists."""
        return columns

    def over_columns(self, values: Array) -> Array:
        """An array over vertices as one over columns."""
        return values

    def united(self, values: Array) -> Array:
        """Of the whole graph, of what is here."""
        return values

    @property
    def free(self) -> Array:
        """int32[…] on the device: the positions of free ids; the same array until they change."""
        if self._free is None:
            self._free = self.permutation.positions_of(self.ids.free()).astype(np.int32)
        return self._free

    def apply(
        self,
        batch: EdgeBatch,
        rebuilds: bool = False,
        reserve: Callable[[int], None] = lambda _: None,
        follows: Callable[[], op.Follows | None] = lambda: None,
    ) -> op.GraphUpdate:
        """Removes, deletes, then inserts, in both directions. An error leaves the graph unchanged.

        The batch's columns are NumPy arrays or arrays of the backend. Without weights, those of a
        weighted graph are 1.

        rebuilds  whether both directions are rebuilt however small the batch is
        reserve   makes room for so many vertices in other arrays over them
        follows   what may follow the batch as it is applied

        Raises OutOfMemory, before anything is touched if an estimate can tell; InvalidValue for
        weights and times that the graph does not take, and for a sum of weights that exceeds
        float32.
        """
        require_times(batch, self.decay is not None)
        vertices = max(self.vertices, batch.vertices)
        reserve(vertices)
        sizes = (batch.operations, vertices)
        with naming_memory(self.backend.device, self.bytes_needed, *sizes):
            return self._apply(batch, vertices, rebuilds, follows)

    def _apply(
        self,
        batch: EdgeBatch,
        vertices: int,
        rebuilds: bool,
        follows: Callable[[], op.Follows | None],
        unlinks: bool = True,
    ) -> op.GraphUpdate:
        """unlinks  whether the edges of removed vertices may be found as the batch is applied"""
        removed, unlinked = self.ids.vertices_among(batch.remove), NO_IDS
        if unlinks and not rebuilds and self._finds_edges_of(removed, batch):
            unlinked = removed
        removal = None if len(unlinked) else self._removal(removed)
        arcs = Arcs.of(self.backend, batch, removal, self.directed, self.weighted)
        removed_edges = removal.edges if removal else 0
        self.ids.reserve(vertices if removal else 0)
        expired = too_old = 0
        self.scale_rows()
        if self.decay and arcs.insertions:
            arcs, expired, too_old = self.decay.apply(self, arcs, removed, vertices)
        operations = batch.operations + removed_edges + expired
        most = operations + (self.backend.graph.at_once if len(unlinked) else 0)
        needed = self.bytes_needed(most, vertices)
        self.in_pages.require(batch_purpose(most, vertices), needed)
        self._reserve(vertices)
        returned = self.ids.returning(self.backend, batch, removed)
        rebuilds = rebuilds or self.is_rebuilt_by(operations)
        if rebuilds:
            applied = self._rebuild(batch, arcs, vertices)
        else:
            updated = self._update(batch, arcs, vertices, unlinked, follows)
            if updated is None:
                return self._apply(batch, vertices, rebuilds, follows, unlinks=False)
            applied, removed_edges = updated, removed_edges + updated.removed_edges
        gone = removed_edges + expired
        inserted, deleted, reweighted = applied.edges
        self.edges += inserted - deleted
        if self.decay and arcs.insertions:
            self.decay.commit()
        new_vertices = vertices - self.ids.limit + len(returned)
        if self.ids.change(removed, returned, vertices):
            self._free = None
        counts = Change(
            inserted,
            len(batch.insert_sources) - inserted - reweighted,
            deleted - gone,
            len(batch.delete_sources) - deleted + gone,
            new_vertices,
            0.0,
            reweighted,
            len(removed),
            removed_edges,
            expired + too_old,
            len(batch.remove) - len(removed),
        )
        return op.GraphUpdate(
            counts,
            applied.lists,
            applied.touches,
            removed,
            returned,
            followed=applied.followed,
        )

    def _removal(self, vertices: NDArray[np.int64]) -> Removal | None:
        """What goes with these vertices, ids in ascending order; None without any. In shards each
        names the arcs in the out-lists of those that are here, and the arcs in their in-lists whose
        source stays.
        """
        if len(vertices) == 0:
            return None
        backend, xp = self.backend, self.backend.xp
        removed = xp.sort(self.permutation.positions_of(vertices))
        rows, _ = self.own_rows_at(removed)
        lists = (self.outgoing.csr, self.incoming.csr)
        leaving, arriving = (rows_of(backend, csr, rows) for csr in lists)
        # an arc between two of them is in both lists
        origins = self.positions_at(arriving.neighbours)
        stays = ~find(xp, removed, origins)[1]
        loops = rows[:0] if self.fixed_loops else rows[self.loop[rows] != 0]
        sources = xp.concatenate([leaving.rows, arriving.neighbours[stays], loops])
        targets = xp.concatenate([leaving.neighbours, arriving.rows[stays], loops])
        to_ids, positions_at = self.permutation.to_ids, self.positions_at
        arcs = self.count(len(sources) if self.directed else len(sources) + len(loops))
        edges = arcs if self.directed else arcs // 2
        return Removal(
            vertices, (to_ids(positions_at(sources)), to_ids(positions_at(targets))), edges
        )

    def trim(self) -> None:
        """Frees scratch memory of large batches, which was kept for batches that follow."""
        self._workspaces.trim()

    def scale_rows(self) -> None:
        """See Decay.scale; to be called when all have followed the last update."""
        if self.decay:
            self.decay.scale(self)

    def is_rebuilt_by(self, operations: int) -> bool:
        """Whether a batch of this many operations rebuilds both directions."""
        if self.edges == 0:
            return operations > 0
        return is_large_part(self._arcs_of(operations), self.arcs, self.backend.sizes)

    def _arcs_of(self, edges: int) -> int:
        """The most arcs that so many edges are."""
        return edges if self.directed else 2 * edges

    def bytes_needed(self, operations: int, vertices: int) -> int:
        """Upper bound on the memory that a batch takes beside what is held, its peak included.

        operations  number of insertions and deletions
        vertices    of the graph after the batch
        """
        needed = self.decay.bytes_needed(self, vertices) if self.decay else 0
        vertex_bytes: int = 2 * VERTEX_BYTES + self._loop.itemsize + self._degree.itemsize
        needed += vertex_bytes * max(0, vertices - len(self._loop)) * 5 // 4
        arcs, weighted = self._arcs_of(operations), self.weighted
        bytes_of_slot = slot_bytes(weighted)
        if self.is_rebuilt_by(operations):
            # both directions and one that is cut to size; keys and the sort's copy of them
            at_once, edges = self.backend.sizes.entries, self.arcs + arcs
            slots = 3 * bytes_of_slot * slots_with_spare(edges + 3 * min(edges, vertices))
            # a weighted sort moves keys, weights and their places
            each = 40 if weighted else 16
            lists = slots + each * min(edges, 2 * LOADED_AT_ONCE)
            lists += (vertex_bytes + 1) * vertices
            rest = rebuild_bytes(self.arcs, arcs, weighted, at_once) if self.arcs else 0
            chooses_order = self._order_to_choose is not None
            order = permutation_bytes(arcs, vertices, at_once) if chooses_order else 0
            return needed + 8 * arcs + rest + max(lists + 8 * vertices, order)
        moved = 0
        for direction in (self.outgoing, self.incoming):
            # at worst each insertion moves a row of the average length of those it can meet
            most = direction.end + 8 * arcs
            if most > len(direction.csr.column_indices):
                slots = slots_with_spare(direction.packed + 8 * arcs)
                moved = max(moved, bytes_of_slot * slots)
        # columns, keys in both directions and the sort's copies of them
        each = 104 if weighted else 56
        workspace = max(0, workspace_bytes(arcs, weighted) - self._workspaces.nbytes)
        return needed + moved + workspace + each * arcs

    def _reserve(self, vertices: int) -> None:
        """Makes room for `vertices` in every array; the graph does not have them yet."""
        self.outgoing.reserve(vertices)
        self.incoming.reserve(vertices)
        known = len(self._loop)
        if vertices > known:
            room = max(vertices, known + known // 4)
            # a new vertex has the policy's loop and nothing else
            self._loop, self._degree = [
                self.backend.device.grown("vertices", array, room, int(self.fixed_loops))
                for array in (self._loop, self._degree)
            ]
            self._extend(self.vertices)

    def _extend(self, vertices: int) -> None:
        self.vertices = self.columns = vertices
        self.loop, self.degree = self._loop[:vertices], self._degree[:vertices]

    def _finds_edges_of(self, removed: NDArray[np.int64], batch: EdgeBatch) -> bool:
        """Whether `_update` may find the edges of these vertices, unless they are too many."""
        operations = self._arcs_of(batch.operations)
        few = 0 < len(removed) <= self.backend.graph.at_once - operations
        if few:
            self.ids.reserve(max(self.vertices, batch.vertices))
        return few and not self.is_rebuilt_by(operations)

    def _update(
        self,
        batch: EdgeBatch,
        arcs: Arcs,
        vertices: int,
        unlinked: NDArray[np.int64],
        follows: Callable[[], op.Follows | None],
    ) -> _Applied | None:
        """unlinked  removed vertices, whose edges are to be found: None if these are too many"""
        at_once = self.backend.graph.at_once
        workspace, updated = self._workspaces.take(at_once if len(unlinked) else len(arcs)), None
        # new vertices have no ranks yet
        following = follows() if at_once and vertices == self.vertices else None
        if at_once:
            updated = self._update_at_once(arcs, vertices, unlinked, workspace, following)
        if updated is None and len(unlinked):
            return None
        lists: op.ChangedLists | op.ChangeBlock | None = updated.lists if updated else None
        counts = updated.counts if updated else self._planned(batch, arcs, vertices, workspace)
        if lists is None:
            counts = self._packed(workspace, counts)
            changes = allocate_changes(self.backend, counts[0], self.weighted)
            # from here on nothing can fail
            self._write(workspace, counts, changes, vertices)
            lists = op.ChangedLists(changes.sources, changes.removed_targets, changes)
        else:
            if vertices > self.vertices:
                self._extend_lists(vertices)
            self.outgoing.record(counts[0])
            self.incoming.record(counts[1])
        out_counts = counts[0]
        self.arcs += out_counts.added - out_counts.removed
        if self._connected is not None:
            self._connected += out_counts.connected
        self.in_pages.follow_later(lists, vertices)
        edges = op.EdgeCounts(out_counts.inserted, out_counts.deleted, out_counts.reweighted)
        touches = out_counts.changed > 0
        if updated is None:
            return _Applied(edges, lists, touches)
        return _Applied(edges, lists, touches, updated.followed, updated.removed_edges)

    def _update_at_once(
        self,
        arcs: Arcs,
        vertices: int,
        unlinked: NDArray[np.int64],
        workspace: Workspace,
        follows: op.Follows | None,
    ) -> op.Updated | None:
        """See UpdateBatch."""
        loop = self.loop if vertices == self.vertices else self._loop[:vertices]
        update = op.UpdateBatch(
            (self.outgoing.extended(vertices), self.incoming.extended(vertices)),
            op.SentBatch(arcs.columns, arcs.weights, (self.vertices, vertices), unlinked),
            (self.permutation.positions, self.permutation.ids),
            op.UpdateRules(loop, self.fixed_loops, self.directed, arcs.adds),
            workspace,
            op.Room(*zip(self.outgoing.room, self.incoming.room, strict=True)),
            self._degree,
            follows,
        )
        return self.backend.run(update)

    def _planned(
        self, batch: EdgeBatch, arcs: Arcs, vertices: int, workspace: Workspace
    ) -> op.BothCounts:
        """What a batch changes; nothing is written. Raises InvalidValue."""
        known, positions = (self.vertices, vertices), self.permutation.positions
        weights = arcs.operation_weights(self.backend)
        keys = self.backend.run(op.PackKeys(arcs.columns, known, positions, weights))
        rules = op.UpdateRules(self.loop, self.fixed_loops, self.directed, arcs.adds)
        counts = self.backend.run(op.PlanBatch(self._slack, (keys, None), rules, workspace))
        # sums are known now
        if counts[0].exceeded:
            assert keys.order is not None
            place = int(keys.order[op.LAST_PLACE - counts[0].exceeded - 1])
            raise arcs.weight_exceeded(self.backend, batch, place - arcs.deletions)
        return counts

    @property
    def _slack(self) -> op.Directions:
        """Both directions with their room to grow."""
        return self.outgoing.slack, self.incoming.slack

    def _packed(self, workspace: Workspace, counts: op.BothCounts) -> op.BothCounts:
        """The counts of a planned batch, when directions that have no room for it are packed, and
        planned again.
        """
        out = self.outgoing.must_pack(counts[0])
        into = self.incoming.must_pack(counts[1])
        if not (out or into):
            return counts
        if out:
            self.outgoing.pack(counts[0])
        if into:
            self.incoming.pack(counts[1])
        return self.backend.graph.plan_again(self._slack, (out, into), workspace)

    def _write(
        self, workspace: Workspace, counts: op.BothCounts, changes: op.EdgeChanges, vertices: int
    ) -> None:
        """Writes a planned batch, which cannot fail."""
        if vertices > self.vertices:
            self._extend_lists(vertices)
        if counts[0].changed or counts[1].changed:
            lists = (self.loop, self.degree, changes)
            self.backend.run(op.ApplyBatch(self._slack, workspace, counts, *lists))
        self.outgoing.record(counts[0])
        self.incoming.record(counts[1])

    def _extend_lists(self, vertices: int) -> None:
        self.outgoing.extend(vertices)
        self.incoming.extend(vertices)
        self._extend(vertices)

    def _rebuild(self, batch: EdgeBatch, arcs: Arcs, vertices: int) -> _Applied:
        self.in_pages.drop()
        self.trim()
        rebuilt = rebuild(
            self.backend,
            arcs,
            self.outgoing,
            self.loop,
            self.permutation,
            # chosen once: a graph that lost all its edges has ranks in the order that it had
            self._order_to_choose,
            self.fixed_loops,
            self.directed,
            vertices,
        )
        if rebuilt.exceeded >= 0:
            raise arcs.weight_exceeded(self.backend, batch, rebuilt.exceeded)
        self.outgoing, self.incoming = rebuilt.outgoing, rebuilt.incoming
        self._loop, self._degree = rebuilt.loop, rebuilt.degree
        if len(batch.insert_sources):
            self.permutation, self._order_to_choose = rebuilt.permutation, None
        self._extend(vertices)
        self.arcs, self._free, self._connected = rebuilt.arcs, None, None
        lists = op.ChangedLists(rebuilt.sources, rebuilt.removed_targets, None)
        return _Applied(rebuilt.counts, lists, len(rebuilt.sources) > 0)

    def take_order(self, ids: NDArray[np.int32]) -> None:
        """Takes VertexPermutation.ids, instead of choosing an order."""
        self.permutation = VertexPermutation(self.backend, self.backend.device.to_device(ids))
        self._order_to_choose = None

    def restore(
        self,
        ids: NDArray[np.int32],
        lengths: NDArray[np.int32],
        neighbours: NDArray[np.int32],
        loop: NDArray[np.uint8] | NDArray[np.float32],
        edges: int,
        weights: NDArray[np.float32] | None = None,
        free: NDArray[np.int32] | None = None,
    ) -> None:
        """Takes what a liverank_gpu.snapshot.Snapshot has of a graph. The graph was empty."""
        backend, vertices = self.backend, len(lengths)
        if edges or len(ids):
            self.take_order(ids)
        self._loop = backend.device.to_device(loop)
        directions = restore_directions(backend, lengths, neighbours, weights, self._loop)
        self.outgoing, self.incoming, self._degree = directions
        self._extend(vertices)
        self._connected = None
        self.ids, self._free = VertexIds(vertices, NO_IDS if free is None else free), None
        loops = 0 if self.fixed_loops else int(backend.device.sum(self.loop != 0))
        self.edges, self.arcs = edges, int(lengths.sum(dtype=np.int64)) + loops

    def edges_on_device(self) -> op.Entries:
        """See liverank_gpu.graph.batch; without the loops of the ``self-loop`` policy."""
        loops = None if self.fixed_loops else self.loop
        return edges_on_device(self.backend, self.outgoing.csr, loops, self.directed)

    def edge_weights(self) -> NDArray[np.float32]:
        """float32[edges] on the host, in the order of `edge_list`; all 1 if unweighted."""
        if not self.weighted:
            return np.ones(self.edges, np.float32)
        return np.asarray(self.backend.device.to_host(self.edges_on_device().weights))

    def edge_list(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(sources, targets), ids, int64[edges] each, on the host, in an arbitrary order: for
        audits. Of an undirected edge, the source is the lower id. Loops of the ``self-loop`` policy
        are left out.
        """
        sources, targets = map(self.permutation.ids_of, self.edges_on_device()[:2])
        if self.directed:
            return sources, targets
        return np.minimum(sources, targets), np.maximum(sources, targets)

    def memory(self) -> dict[str, int]:
        """Bytes held on the device, by purpose. ``slack``: free slots in rows, gaps between them,
        and free slots at the end. ``pages``: in-lists in pages, if there are any.
        """
        out_lists, out_slack, out_vertices = self.outgoing.memory()
        in_lists, in_slack, in_vertices = self.incoming.memory()
        held = {
            "out-lists": out_lists,
            "in-lists": in_lists,
            "slack": out_slack + in_slack,
            "vertices": out_vertices + in_vertices + self._loop.nbytes + self._degree.nbytes,
            "vertex order": self.permutation.nbytes,
            "scratch": self._workspaces.nbytes,
        }
        return held | self.in_pages.memory()


# ---- a graph whose edges are walked backwards ----

_REVERSED = "the degrees of a reversed graph"


class ReversedGraph(RankedGraph):
    """A graph for walks against the direction of its edges, as the iterates of queries read it (see
    RankedGraph): the lists are those of the graph, in each other's
    place. Beside them it takes the in-degrees, or the strengths of in-lists: 4 or 8 bytes a vertex,
    which every batch brings up to date where it changed an in-list.

    graph  a directed one. Its weights do not decay: those of an in-list would have the scales of
           their sources
    """

    def __init__(self, graph: DynamicGraph) -> None:
        """Raises OutOfMemory."""
        self.graph, self.backend = graph, graph.backend
        self.weighted, self.fixed_loops = graph.weighted, graph.fixed_loops
        self._degree = self.backend.device.allocate(_REVERSED, 0, strength_dtype(self.weighted))
        self.reserve(graph.vertices)
        self._count_all()

    def reserve(self, vertices: int) -> None:
        """Makes room for `vertices`, by a quarter more if it must grow. Raises OutOfMemory."""
        known = len(self._degree)
        if vertices > known:
            room = max(vertices, known + known // 4)
            # a new vertex has the policy's loop and nothing else
            value = int(self.fixed_loops)
            self._degree = self.backend.device.grown(_REVERSED, self._degree, room, value)

    def _count_all(self) -> None:
        csr, loop = self.graph.incoming.csr, self.graph.loop
        if self.weighted:
            self.backend.rebuild.sum_weights(csr, None, loop, self.degree)
        else:
            self.backend.xp.add(csr.row_lengths, loop, out=self.degree)

    def follow(self, update: op.GraphUpdate) -> op.GraphUpdate:
        """Follows a batch that the graph has followed, for which room has been reserved. Returns
        what it did to the reversed graph.
        """
        if update.changes is not None:
            try:
                return self._turned(update, update.changes)
            except MemoryError:
                lists = op.ChangedLists(update.sources, update.removed_targets, None)
                update = replace(update, lists=lists)
        self._count_all()
        return update

    def _turned(self, update: op.GraphUpdate, changes: op.EdgeChanges) -> op.GraphUpdate:
        graph, xp = self.graph, self.backend.xp
        removed, added = self._turned_edges(changes)
        sources = xp.unique(xp.concatenate([removed.rows, added.rows])).astype(np.int32)
        before = self._degree[sources]
        csr = graph.incoming.csr
        if self.weighted:
            self.backend.rebuild.sum_weights(csr, sources, graph.loop, self.degree)
        else:
            self._degree[sources] = csr.row_lengths[sources] + graph.loop[sources]
        # kernels look added edges up
        order = xp.argsort(added.rows.astype(np.int64) << 32 | added.neighbours)
        turned = op.EdgeChanges(
            sources,
            before,
            removed.rows,
            removed.neighbours,
            added.rows[order],
            added.neighbours[order],
            removed.weights,
            None if added.weights is None else added.weights[order],
        )
        return replace(update, lists=op.ChangedLists.of(turned), followed=None)

    def _turned_edges(self, changes: op.EdgeChanges) -> tuple[op.Entries, op.Entries]:
        """The edges that are gone and those that are new, each in the row of its target."""
        return (
            op.Entries(changes.removed_targets, changes.removed_sources, changes.removed_weights),
            op.Entries(changes.added_targets, changes.added_sources, changes.added_weights),
        )

    def __getattr__(self, name: str) -> Any:
        """What graphs have, with the directions in each other's place."""
        if name not in RankedGraph.__annotations__:
            raise AttributeError(name)
        if name == "degree":
            return self._degree[: self.graph.vertices]
        return getattr(self.graph, {"outgoing": "incoming", "incoming": "outgoing"}.get(name, name))

    def size(self, values: Array) -> float:
        """See DynamicGraph.size."""
        return self.graph.size(values)

    def total(self, values: Array) -> float:
        return self.graph.total(values)

    def count(self, found: int) -> int:
        return self.graph.count(found)

    @property
    def nbytes(self) -> int:
        """Bytes that it holds beside the graph."""
        return int(self._degree.nbytes)
