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

import numpy as np
from numpy.typing import NDArray

from gpu.errors import OutOfMemory
from gpu.graph.arcs import Arcs, weight_exceeded
from gpu.graph.edges import edges_on_device
from gpu.graph.packed_csr import (
    LOADED_AT_ONCE,
    VERTEX_BYTES,
    PackedCsr,
    slot_bytes,
    slots_with_spare,
)
from gpu.graph.permutation import VertexPermutation, permutation_bytes
from gpu.graph.rebuild import rebuild, rebuild_bytes
from gpu.graph.workspace import Workspace, allocate_changes, workspace_bytes
from gpu.operations.backend import Backend
from gpu.operations.csr import GraphView, Rows, loop_dtype, strength_dtype
from gpu.operations.rebuild import Entries
from gpu.operations.update import EdgeCounts, GraphUpdate, UpdateCounts
from gpu.types import Dangling, EdgeBatch, VertexOrder

_REBUILD_PART, _LEAST_REBUILD = 4, 1 << 20
"""A batch of more operations than _LEAST_REBUILD and than one in _REBUILD_PART edges rebuilds the
graph. On a GPU that takes two to four times as long as looking the batch up, but no more memory
than a load; the scratch of a look-up would be several times the graph.
"""

_KEPT_WORKSPACE = 1 << 17
"""The scratch of batches of up to this many operations is kept."""


class DynamicGraph:
    """A graph without parallel edges, and its transpose, on one backend's device. An undirected one
    stores each edge as two arcs, so that all but the counts is as in a directed one.

    Batches and edge lists are in ids; everything else, updates included, in positions.

    vertices     n; ids are 0 … n-1
    edges        number of edges; users' loops count, those of the ``self-loop`` policy do not
    arcs         the same of a directed graph; of an undirected one, edges other than loops twice
    directed, weighted  see gpu.types.Options
    loop, degree see gpu.operations.csr.GraphView
    outgoing     out-lists, incoming  in-lists; both without loops
    permutation  ids and positions; chosen as `vertex_order` says when the first edges arrive
    """

    def __init__(
        self,
        backend: Backend,
        dangling: Dangling,
        vertex_order: VertexOrder = "auto",
        weighted: bool = False,
        directed: bool = True,
    ) -> None:
        self.backend = backend
        self.dangling = dangling
        self.weighted = weighted
        self.directed = directed
        self.permutation = VertexPermutation(backend)
        self._order_to_choose: VertexOrder | None = vertex_order
        self.vertices = 0
        self.edges = self.arcs = 0
        self.outgoing = PackedCsr(backend, weighted=weighted)
        self.incoming = PackedCsr(backend, weighted=weighted)
        self._loop = backend.device.allocate("vertices", 0, loop_dtype(weighted))
        self._degree = backend.device.allocate("vertices", 0, strength_dtype(weighted))
        self.loop, self.degree = self._loop, self._degree
        self._workspace: Workspace | None = None
        self._connected: int | None = None

    @property
    def view(self) -> GraphView:
        """The graph as kernels read it, until the next batch."""
        return GraphView(
            self.vertices,
            self.arcs,
            self.outgoing.csr,
            self.incoming.csr,
            self.loop,
            self.degree,
            self.incoming.longest,
        )

    def in_rows(self) -> Rows:
        """All in-lists, grouped for the kernels of sweeps."""
        return self.incoming.partition()

    @property
    def connected(self) -> int:
        """Vertices with an edge other than their own loop. After a batch a pass over n."""
        if self._connected is None:
            lengths = self.incoming.csr.row_lengths | self.outgoing.csr.row_lengths
            self._connected = int(self.backend.xp.count_nonzero(lengths))
        return self._connected

    @property
    def fixed_loops(self) -> bool:
        """Whether every vertex has a loop that batches cannot change."""
        return self.dangling == "self-loop"

    def apply(self, batch: EdgeBatch) -> GraphUpdate:
        """Deletes, then inserts, in both directions. An error leaves the graph unchanged.

        The batch's columns are NumPy arrays or arrays of the backend. Without weights, those of a
        weighted graph are 1.
        Raises OutOfMemory, before anything is touched if an estimate can tell; InvalidValue for
        weights that the graph does not take, and for a sum of weights that exceeds float32.
        """
        arcs = Arcs.of(self.backend, batch, self.directed, self.weighted)
        vertices = max(self.vertices, batch.vertices)
        needed = self.bytes_needed(batch.operations, vertices)
        purpose = batch_purpose(batch.operations, vertices)
        self.backend.device.require(purpose, needed)
        try:
            self._reserve(vertices)
            if self.is_rebuilt_by(batch.operations):
                return self._rebuild(batch, arcs, vertices)
            return self._update(batch, arcs, vertices)
        except OutOfMemory:
            raise
        except MemoryError as error:
            available = self.backend.device.memory_available()
            raise OutOfMemory(purpose, needed, available) from error

    def is_rebuilt_by(self, operations: int) -> bool:
        """Whether a batch of this many operations rebuilds both directions."""
        if self.edges == 0:
            return operations > 0
        return self._arcs_of(operations) > max(_LEAST_REBUILD, self.arcs // _REBUILD_PART)

    def _arcs_of(self, edges: int) -> int:
        """The most arcs that so many edges are."""
        return edges if self.directed else 2 * edges

    def bytes_needed(self, operations: int, vertices: int) -> int:
        """Upper bound on the memory that a batch takes beside what is held, its peak included.

        operations  number of insertions and deletions
        vertices    of the graph after the batch
        """
        rebuilt, operations = self.is_rebuilt_by(operations), self._arcs_of(operations)
        bytes_of_slot = slot_bytes(self.weighted)
        grown = 2 * VERTEX_BYTES + self._vertex_bytes
        grown = grown * max(0, vertices - len(self._loop)) * 5 // 4
        if rebuilt:
            # both directions and one that is cut to size; keys and the sort's copy of them
            edges = self.arcs + operations
            slots = 3 * bytes_of_slot * slots_with_spare(edges + 3 * min(edges, vertices))
            # a weighted sort moves keys, weights and their places
            each = 40 if self.weighted else 16
            lists = slots + each * min(edges, 2 * LOADED_AT_ONCE)
            lists += (2 * VERTEX_BYTES + self._vertex_bytes + 1) * vertices
            rest = rebuild_bytes(self.arcs, operations, self.weighted) if self.arcs else 0
            order = permutation_bytes(operations, vertices) if self._order_to_choose else 0
            return 8 * operations + grown + rest + max(lists + 8 * vertices, order)
        moved = 0
        for direction in (self.outgoing, self.incoming):
            # at worst each insertion moves a row of the average length of those it can meet
            most = direction.end + 8 * operations
            if most > len(direction.csr.column_indices):
                slots = slots_with_spare(direction.packed + 8 * operations)
                moved = max(moved, bytes_of_slot * slots)
        # columns, keys in both directions and the sort's copies of them
        each = 104 if self.weighted else 56
        return grown + moved + workspace_bytes(operations, self.weighted) + each * operations

    @property
    def _vertex_bytes(self) -> int:
        """Bytes of `loop` and `degree` for one vertex."""
        return self._loop.itemsize + self._degree.itemsize  # type: ignore[no-any-return]

    def _reserve(self, vertices: int) -> None:
        """Makes room for `vertices` in every array; the graph does not have them yet."""
        self.outgoing.reserve(vertices)
        self.incoming.reserve(vertices)
        known = len(self._loop)
        if vertices > known:
            room = max(vertices, known + known // 4)
            loop, degree = (
                self.backend.device.allocate("vertices", room, array.dtype.type)
                for array in (self._loop, self._degree)
            )
            # a new vertex has the policy's loop and nothing else
            isolated = 1 if self.fixed_loops else 0
            for array, values in ((loop, self._loop), (degree, self._degree)):
                array[:known] = values
                array[known:] = isolated
            self._loop, self._degree = loop, degree
            self._extend(self.vertices)

    def _extend(self, vertices: int) -> None:
        self.vertices, self._connected = vertices, None
        self.loop, self.degree = self._loop[:vertices], self._degree[:vertices]

    def _update(self, batch: EdgeBatch, arcs: Arcs, vertices: int) -> GraphUpdate:
        graph, operations = self.backend.graph, len(arcs)
        workspace = self._workspace_for(operations)
        workspace.clear()
        outgoing, incoming = workspace.outgoing, workspace.incoming
        keys = graph.sorted_keys(
            arcs.columns,
            (self.vertices, vertices),
            self.permutation.positions,
            arcs.operation_weights(self.backend),
        )
        loops, directed = (self.loop, self.fixed_loops), self.directed
        graph.resolve_update(self.outgoing.slack, *loops, keys, arcs.adds, directed, outgoing)
        opposite_weights = outgoing.weights.opposite[:operations] if self.weighted else None
        opposite = graph.sort(outgoing.opposite[:operations], opposite_weights)
        # sums are known now
        graph.resolve_update(self.incoming.slack, *loops, opposite, False, directed, incoming)
        graph.plan_rows(self.outgoing.slack, operations, outgoing)
        graph.plan_rows(self.incoming.slack, operations, incoming)
        out_counts, in_counts = workspace.counts()
        if out_counts.exceeded:
            assert keys.order is not None
            place = int(keys.order[out_counts.exceeded - 1])
            raise weight_exceeded(self.backend, batch, place - len(arcs.delete[0]))

        packed = False
        for direction, plan, counts in (
            (self.outgoing, outgoing, out_counts),
            (self.incoming, incoming, in_counts),
        ):
            if direction.must_pack(counts):
                direction.pack(counts)
                workspace.clear_row_plan(plan)
                graph.plan_rows(direction.slack, operations, plan)
                packed = True
        if packed:
            out_counts, in_counts = workspace.counts()
        changes = allocate_changes(self.backend, out_counts, self.weighted)

        # from here on nothing can fail
        self._connected, known = None, self.vertices
        if vertices > known:
            self.outgoing.extend(vertices)
            self.incoming.extend(vertices)
            self._extend(vertices)
        if out_counts.changed:
            self.outgoing.apply(outgoing, out_counts, self.loop, self.degree, changes)
        if in_counts.changed:
            self.incoming.apply(incoming, in_counts, self.loop, self.degree, None)
        self.arcs += out_counts.added - out_counts.removed
        edges = EdgeCounts(out_counts.inserted, out_counts.deleted, out_counts.reweighted)
        counted = self._count(batch, edges, vertices - known)
        return GraphUpdate(counted, changes.sources, changes.removed_targets, changes)

    def _count(self, batch: EdgeBatch, counts: EdgeCounts, new_vertices: int) -> UpdateCounts:
        """Counts the edges, and what the receipt says."""
        inserted, deleted, reweighted = counts
        self.edges += inserted - deleted
        return UpdateCounts(
            inserted,
            len(batch.insert_sources) - inserted - reweighted,
            deleted,
            len(batch.delete_sources) - deleted,
            new_vertices,
            reweighted,
        )

    def _workspace_for(self, operations: int) -> Workspace:
        if self._workspace and self._workspace.capacity >= operations:
            return self._workspace
        self._workspace = None
        if operations > _KEPT_WORKSPACE:
            return Workspace(operations, self.backend, self.weighted)
        capacity = 1 << max(10, (operations - 1).bit_length())
        self._workspace = Workspace(capacity, self.backend, self.weighted)
        return self._workspace

    def rebuild(self, batch: EdgeBatch) -> GraphUpdate:
        """`apply` by rebuilding both directions, for a batch without new vertices."""
        arcs = Arcs.of(self.backend, batch, self.directed, self.weighted)
        return self._rebuild(batch, arcs, self.vertices)

    def _rebuild(self, batch: EdgeBatch, arcs: Arcs, vertices: int) -> GraphUpdate:
        known = self.vertices
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
            raise weight_exceeded(self.backend, batch, rebuilt.exceeded)
        self.outgoing, self.incoming = rebuilt.outgoing, rebuilt.incoming
        self._loop, self._degree = rebuilt.loop, rebuilt.degree
        if len(batch.insert_sources):
            self.permutation, self._order_to_choose = rebuilt.permutation, None
        self._extend(vertices)
        self.arcs = rebuilt.arcs
        counted = self._count(batch, rebuilt.counts, vertices - known)
        return GraphUpdate(counted, rebuilt.sources, rebuilt.removed_targets, None)

    def restore(
        self,
        ids: NDArray[np.int32],
        lengths: NDArray[np.int32],
        neighbours: NDArray[np.int32],
        loop: NDArray[np.uint8] | NDArray[np.float32],
        edges: int,
        weights: NDArray[np.float32] | None = None,
    ) -> None:
        """Takes the permutation, out-lists and loops of a gpu.snapshot.Snapshot and derives the
        in-lists. The graph was empty.
        """
        backend, vertices = self.backend, len(lengths)
        self.permutation = VertexPermutation(backend, backend.device.to_device(ids))
        if edges or len(ids):
            self._order_to_choose = None
        outgoing, incoming = (PackedCsr(backend, vertices, self.weighted) for _ in range(2))
        outgoing.restore(lengths, neighbours, weights)
        entries = backend.rebuild.entries(outgoing.csr)
        no_loops = backend.device.allocate("vertices", vertices, loop_dtype(self.weighted))
        no_loops.fill(0)
        # these columns are positions already
        identity = backend.device.allocate("vertex order", 0, np.int32)
        transposed = Entries(entries.neighbours, entries.rows, entries.weights)
        incoming.load(transposed, no_loops, identity)
        self.outgoing, self.incoming = outgoing, incoming
        self._loop = backend.device.to_device(loop)
        self._degree = backend.device.allocate("vertices", vertices, strength_dtype(self.weighted))
        if self.weighted:
            backend.rebuild.sum_weights(outgoing.csr, None, self._loop, self._degree)
        else:
            backend.xp.add(outgoing.csr.row_lengths, self._loop, out=self._degree)
        self._extend(vertices)
        loops = 0 if self.fixed_loops else int(backend.xp.count_nonzero(self.loop))
        self.edges, self.arcs = edges, len(entries.rows) + loops

    def edges_on_device(self) -> Entries:
        """See gpu.graph.edges; without the loops of the ``self-loop`` policy."""
        loop = None if self.fixed_loops else self.loop
        return edges_on_device(self.backend, self.outgoing.csr, loop, self.directed)

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
        and free slots at the end.
        """
        out_lists, out_slack, out_vertices = self.outgoing.memory()
        in_lists, in_slack, in_vertices = self.incoming.memory()
        return {
            "out-lists": out_lists,
            "in-lists": in_lists,
            "slack": out_slack + in_slack,
            "vertices": out_vertices + in_vertices + self._vertex_bytes * len(self._loop),
            "vertex order": self.permutation.nbytes,
            "scratch": self._workspace.nbytes if self._workspace else 0,
        }


def batch_purpose(operations: int, vertices: int) -> str:
    """What memory is needed for, in words."""
    return f"a batch of {operations:,} edges and a graph of {vertices:,} vertices"
