"""The dynamic graph: out-lists, in-lists, loops and degrees, changed by batches on the device.

A batch is sorted, looked up in the rows it names, and planned, in both directions; then its counts
come to the host, memory is allocated, and only then is anything written. So the cost follows the
batch and the rows it names, and whatever fails leaves the graph as it was.

A loop is a flag of its vertex, not an entry of a list. So ``d(v)`` counts exactly one loop where
the flag is set, and the closed form (Sahu, equation 2) is right by construction; kernels never meet
a loop in a row.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from gpu.adjacency import LOADED_AT_ONCE, VERTEX_BYTES, Adjacency, pool_slots
from gpu.backends.base import Array, Backend
from gpu.edit import Counts, Workspace, scratch_bytes
from gpu.errors import OutOfMemory
from gpu.merge import CHUNK, Deletions, bytes_to_merge
from gpu.order import Numbering, bytes_to_choose, lines_read, numbering_of
from gpu.types import Dangling, EdgeBatch, VertexOrder

_MERGED_SHARE, _LEAST_MERGED = 4, 1 << 20
"""A batch of more operations than one in so many edges, and than so many, is sorted together with
the graph. On a GPU that takes two to four times as long as looking it up, but no more memory than a
load, where the scratch would be several times what the graph holds."""

_KEPT_WORKSPACE = 1 << 17
"""The scratch of batches of up to so many operations is kept for the next one."""

DELETE, INSERT = 0, 1
"""Operations, the lowest bit of a key: see gpu/kernels/resolve.cu."""


@dataclass(frozen=True)
class Applied:
    """What one batch did, for the receipt, for the strategies and for the residual.

    sources          int32[s], ascending: vertices whose out-list or loop changed
    old_degree       int32[s], their degrees before the batch, loops counted
    removed_sources, removed_targets  int32[…], the edges that are gone, loops included
    added_sources, added_targets      int32[…], the edges that are new, loops included
    The counts are those of gpu.types.Change. An edge deleted and inserted again in one batch counts
    as both but stands in no list: nothing changed.
    """

    inserted: int
    already_present: int
    deleted: int
    not_found: int
    new_vertices: int
    sources: Array
    old_degree: Array
    removed_sources: Array
    removed_targets: Array
    added_sources: Array
    added_targets: Array


@dataclass(frozen=True)
class Loaded:
    """What a batch did for which both directions were laid out anew: the first edges of a graph, or
    a good part of its edges. The counts are those of Applied.

    sources          int32[s], ascending: at least the vertices whose out-list or loop changed
    removed_targets  integer[…]: at least the targets of the edges that are gone
    """

    inserted: int
    already_present: int
    deleted: int
    not_found: int
    new_vertices: int
    sources: Array
    removed_targets: Array


class Graph:
    """A directed graph without parallel edges, and its transpose, on one backend's device.

    Batches and edge lists are in ids; everything else, and what `apply` reports, in positions.

    vertices  n; ids are 0 … n-1 and are never taken back
    edges     number of edges; a user's loop counts, the loops of the ``self-loop`` policy do not
    loop      uint8[n], 1 where the vertex has a loop
    degree    int32[n], out-degree with the loop counted once
    outgoing  out-lists, incoming  in-lists; both without loops
    numbering  ids and positions; chosen as `vertex_order` says when the first edges come
    """

    def __init__(
        self, backend: Backend, dangling: Dangling, vertex_order: VertexOrder = "auto"
    ) -> None:
        self.backend = backend
        self.dangling = dangling
        self.numbering = Numbering(backend)
        self._order_to_choose: VertexOrder | None = vertex_order
        self.vertices = 0
        self.edges = 0
        self.outgoing = Adjacency(backend)
        self.incoming = Adjacency(backend)
        self._loop = backend.allocate("vertices", 0, np.uint8)
        self._degree = backend.allocate("vertices", 0, np.int32)
        self.loop, self.degree = self._loop, self._degree
        self._workspace: Workspace | None = None
        self._connected: int | None = None

    @property
    def connected(self) -> int:
        """Vertices with an edge that is not their own loop; after a batch a pass over n."""
        if self._connected is None:
            lengths = self.incoming.length | self.outgoing.length
            self._connected = int(self.backend.xp.count_nonzero(lengths))
        return self._connected

    def apply(self, batch: EdgeBatch) -> Applied | Loaded:
        """Deletes, then inserts, in both directions. The graph is unchanged if anything raises.

        The batch's columns are NumPy arrays or arrays of the backend.
        Raises OutOfMemory, before anything is touched where an estimate can tell.
        """
        operations = batch.operations
        vertices = max(self.vertices, batch.vertices)
        needed = self.bytes_needed(operations, vertices)
        self.backend.require(purpose_of(operations, vertices), needed)
        try:
            self._reserve(vertices)
            if self.is_laid_out_by(batch.operations):
                return self._lay_out(batch, vertices)
            return self._change(batch, operations, vertices)
        except OutOfMemory:
            raise
        except MemoryError as error:
            available = self.backend.memory_available()
            raise OutOfMemory(purpose_of(operations, vertices), needed, available) from error

    def is_laid_out_by(self, operations: int) -> bool:
        """Whether a batch of so many edges is sorted together with those of the graph: then `apply`
        tells what it did as Loaded.
        """
        if self.edges == 0:
            return operations > 0
        return operations > max(_LEAST_MERGED, self.edges // _MERGED_SHARE)

    def bytes_needed(self, operations: int, vertices: int) -> int:
        """An upper bound on the memory that a batch of so many operations takes beside what is
        held, if the graph has so many vertices after it. A batch's peak may pass, what it leaves
        stays.
        """
        grown = (2 * VERTEX_BYTES + 5) * max(0, vertices - len(self._loop)) * 5 // 4
        if self.is_laid_out_by(operations):
            # two pools and one that is cut to size; keys and the sort's copy of them
            edges = self.edges + operations
            pools = 3 * 4 * pool_slots(edges + 3 * min(edges, vertices))
            lists = pools + 16 * min(edges, 2 * LOADED_AT_ONCE) + (2 * VERTEX_BYTES + 6) * vertices
            merge = bytes_to_merge(self.edges, operations) if self.edges else 0
            order = bytes_to_choose(operations, vertices) if self._order_to_choose else 0
            return 8 * operations + grown + merge + max(lists + 8 * vertices, order)
        moved = 0
        for adjacency in (self.outgoing, self.incoming):
            # each insertion can at worst move a row of the average length of those it can meet
            most = adjacency.end + 8 * operations
            if most > len(adjacency.pool):
                moved = max(moved, 4 * pool_slots(adjacency.packed + 8 * operations))
        # columns, keys in both directions and the sort's copies of them
        return grown + moved + scratch_bytes(operations) + 56 * operations

    def _reserve(self, vertices: int) -> None:
        """Makes room for so many vertices in every array; the graph does not have them yet."""
        self.outgoing.reserve(vertices)
        self.incoming.reserve(vertices)
        known = len(self._loop)
        if vertices > known:
            room = max(vertices, known + known // 4)
            loop = self.backend.allocate("vertices", room, np.uint8)
            degree = self.backend.allocate("vertices", room, np.int32)
            # a vertex that is new has the policy's loop and nothing else
            isolated = 1 if self.dangling == "self-loop" else 0
            for array, values in ((loop, self._loop), (degree, self._degree)):
                array[:known] = values
                array[known:] = isolated
            self._loop, self._degree = loop, degree
            self._show(self.vertices)

    def _show(self, vertices: int) -> None:
        self.vertices, self._connected = vertices, None
        self.loop, self.degree = self._loop[:vertices], self._degree[:vertices]

    def _change(self, batch: EdgeBatch, operations: int, vertices: int) -> Applied:
        backend = self.backend
        space = self._space(operations)
        space.clear()
        outgoing, incoming = space.outgoing, space.incoming
        fixed_loops = self.dangling == "self-loop"
        positions = self.numbering.positions
        keys = backend.sorted_keys(_columns(batch), (self.vertices, vertices), positions)
        backend.resolve(self.outgoing, self.loop, fixed_loops, keys, outgoing)
        opposite = backend.sort(outgoing.opposite[:operations])
        backend.resolve(self.incoming, self.loop, fixed_loops, opposite, incoming)
        backend.plan(self.outgoing, operations, outgoing)
        backend.plan(self.incoming, operations, incoming)
        out, back = space.counts()

        packed = False
        for adjacency, edit, counts in (
            (self.outgoing, outgoing, out),
            (self.incoming, incoming, back),
        ):
            if adjacency.must_be_packed(counts):
                adjacency.pack(counts)
                edit.forget_plan()
                backend.plan(adjacency, operations, edit)
                packed = True
        if packed:
            out, back = space.counts()
        report = self._report(out)

        # from here on nothing can fail
        self._connected = None
        new_vertices = vertices - self.vertices
        if new_vertices:
            self.outgoing.show(vertices)
            self.incoming.show(vertices)
            self._show(vertices)
        if out.changed:
            self.outgoing.change(outgoing, out, self.loop, self.degree, report)
        if back.changed:
            self.incoming.change(incoming, back, self.loop, self.degree, ())
        self.edges += out.inserted - out.deleted
        return Applied(
            out.inserted,
            len(batch.insert_sources) - out.inserted,
            out.deleted,
            len(batch.delete_sources) - out.deleted,
            new_vertices,
            *report,
        )

    def _space(self, operations: int) -> Workspace:
        if self._workspace and self._workspace.capacity >= operations:
            return self._workspace
        self._workspace = None
        if operations > _KEPT_WORKSPACE:
            return Workspace(operations, self.backend)
        self._workspace = Workspace(1 << max(10, (operations - 1).bit_length()), self.backend)
        return self._workspace

    def _report(self, counts: Counts) -> tuple[Array, ...]:
        """sources, old_degree, removed_sources, removed_targets, added_sources, added_targets."""
        sizes = [counts.changed] * 2 + [counts.removed] * 2 + [counts.added] * 2
        block = self.backend.allocate("what a batch changed", sum(sizes), np.int32)
        ends = accumulate(sizes)
        return tuple(block[end - size : end] for size, end in zip(sizes, ends, strict=True))

    def _lay_out(self, batch: EdgeBatch, vertices: int) -> Loaded:
        """Sorts what the batch leaves of the edges and what it adds, once in each direction, and
        packs it tight.
        """
        backend, xp = self.backend, self.backend.xp
        fixed_loops = self.dangling == "self-loop"
        sources, targets = backend.columns(batch.insert_sources, batch.insert_targets)
        numbering = self.numbering
        # chosen once: a graph that lost all its edges has ranks in the order that it had
        if self._order_to_choose and len(sources):
            numbering = numbering_of(backend, self._order_to_choose, sources, targets, vertices)
        positions = numbering.positions
        loop = backend.allocate("vertices", vertices, np.uint8)
        loop[: self.vertices] = self.loop
        loop[self.vertices :] = 0
        touched = backend.allocate("scratch for a load", vertices, np.uint8)
        touched.fill(0)
        for begin in range(0, len(sources), CHUNK):
            touched[numbering.positions_of(sources[begin : begin + CHUNK])] = 1

        keys = backend.sorted_keys(_columns(batch)[:1], (self.vertices, 0), positions)
        keys |= INSERT
        deletions = Deletions.of(backend, keys, self.vertices)
        gone_sources, gone_targets = deletions.ends(xp)
        touched[gone_sources] = 1
        kept = deleted = 0
        if self.edges:
            entries = backend.entries(self.outgoing)
            rest = deletions.rest(backend, entries, None if fixed_loops else loop)
            kept, deleted = len(rest.sources), rest.deleted
            sources, targets = (
                self._joined(left, added, numbering)
                for left, added in ((rest.sources, sources), (rest.targets, targets))
            )
            positions = positions[:0]
            del entries, rest
        del keys, deletions

        kept_loops = int(loop.sum(dtype=np.int64))
        outgoing, incoming = Adjacency(backend, vertices), Adjacency(backend, vertices)
        edges, _ = outgoing.load(sources, targets, loop, positions)
        incoming.load(targets, sources, loop, positions)
        del sources, targets
        if fixed_loops:
            loop.fill(1)
            loops = new_loops = 0
        else:
            loops = int(loop.sum(dtype=np.int64))
            new_loops = loops - kept_loops
        degree = backend.allocate("vertices", vertices, np.int32)
        xp.add(outgoing.length, loop, out=degree)
        inserted = edges - kept + new_loops
        changed = xp.flatnonzero(touched).astype(np.int32)

        new_vertices = vertices - self.vertices
        self.outgoing, self.incoming = outgoing, incoming
        self._loop, self._degree = loop, degree
        if len(batch.insert_sources):
            self.numbering, self._order_to_choose = numbering, None
        self._show(vertices)
        self.edges = edges + loops
        return Loaded(
            inserted,
            len(batch.insert_sources) - inserted,
            deleted,
            len(batch.delete_sources) - deleted,
            new_vertices,
            changed,
            gone_targets,
        )

    def _joined(self, kept: Array, added: Array, numbering: Numbering) -> Array:
        """Positions, and behind them those of ids."""
        both = self.backend.allocate("keys of a load", len(kept) + len(added), np.int32)
        both[: len(kept)] = kept
        for begin in range(0, len(added), CHUNK):
            chunk = added[begin : begin + CHUNK]
            first = len(kept) + begin
            both[first : first + len(chunk)] = numbering.positions_of(chunk)
        return both

    @classmethod
    def warm_up(cls, backend: Backend, dangling: Dangling) -> None:
        """Compiles the kernels of all graphs."""
        # small batches and large ones run different kernels: they load a graph, move its rows,
        # leave holes, pack it, and lay it out anew; with an order of its own and without
        orders: tuple[VertexOrder, ...] = ("given", "degree")
        for order in orders:
            for count, rows in ((900, 200), (20_000, 6_000)):
                graph, targets = cls(backend, dangling, order), np.arange(count)
                sources = targets % rows
                graph.apply(EdgeBatch(sources, targets))
                graph.apply(EdgeBatch(sources, targets + 1))
                hole = slice(rows, 2 * rows)
                graph.apply(EdgeBatch(delete_sources=sources[hole], delete_targets=targets[hole]))
                graph.apply(EdgeBatch(delete_sources=sources, delete_targets=targets + 1))
                graph._lay_out(EdgeBatch(targets, sources, sources, targets), graph.vertices)
                graph.edge_list()
                columns = backend.columns(sources, targets)
                lines_read(backend, graph.numbering, *columns, graph.degree)

    def restore(
        self,
        ids: NDArray[np.int32],
        length: NDArray[np.int32],
        neighbours: NDArray[np.int32],
        loop: NDArray[np.uint8],
        edges: int,
    ) -> None:
        """Takes the order, out-lists and loops of a gpu.snapshot.Snapshot; the in-lists are made
        from them. The graph was empty.
        """
        backend, vertices = self.backend, len(length)
        self.numbering = Numbering(backend, backend.to_device(ids))
        if edges or len(ids):
            self._order_to_choose = None
        outgoing, incoming = Adjacency(backend, vertices), Adjacency(backend, vertices)
        outgoing.restore(length, neighbours)
        sources, targets = backend.entries(outgoing)
        no_loops = backend.allocate("vertices", vertices, np.uint8)
        no_loops.fill(0)
        # these columns are positions already
        incoming.load(targets, sources, no_loops, backend.allocate("vertex order", 0, np.int32))
        self.outgoing, self.incoming = outgoing, incoming
        self._loop = backend.to_device(loop)
        self._degree = backend.allocate("vertices", vertices, np.int32)
        backend.xp.add(outgoing.length, self._loop, out=self._degree)
        self._show(vertices)
        self.edges = edges

    def edges_on_device(self) -> tuple[Array, Array]:
        """(sources, targets), int32[edges] each, on the device: sources ascend, then the loops.
        The policy's loops are left out.
        """
        backend, xp = self.backend, self.backend.xp
        sources, targets = backend.entries(self.outgoing)
        if self.dangling == "self-loop":
            return sources, targets
        loops = xp.flatnonzero(self.loop).astype(np.int32)
        return xp.concatenate([sources, loops]), xp.concatenate([targets, loops])

    def edge_list(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(sources, targets), ids, int64[edges] each, on the host, in no order that means anything:
        for audits. The policy's loops are left out.
        """
        sources, targets = self.edges_on_device()
        return self.numbering.ids_of(sources), self.numbering.ids_of(targets)

    def memory(self) -> dict[str, int]:
        """Bytes held on the device, by purpose. ``slack``: room in rows, gaps between them, and
        what the pools have to spare.
        """
        out_lists, out_slack, out_vertices = self.outgoing.memory()
        in_lists, in_slack, in_vertices = self.incoming.memory()
        return {
            "out-lists": out_lists,
            "in-lists": in_lists,
            "slack": out_slack + in_slack,
            "vertices": out_vertices + in_vertices + 5 * len(self._loop),
            "vertex order": self.numbering.nbytes,
            "scratch": self._workspace.nbytes if self._workspace else 0,
        }


def _columns(batch: EdgeBatch) -> list[tuple[int, Array, Array]]:
    return [
        (DELETE, batch.delete_sources, batch.delete_targets),
        (INSERT, batch.insert_sources, batch.insert_targets),
    ]


def purpose_of(operations: int, vertices: int) -> str:
    """What memory is needed for, in words."""
    return f"a batch of {operations:,} edges and a graph of {vertices:,} vertices"
