"""The dynamic graph: out-lists, in-lists, loops and degrees, changed by batches on the device.

A batch is sorted, looked up in the rows it names, and planned, in both directions; then its counts
come to the host, memory is allocated, and only then is anything written. So the cost follows the
batch and the rows it names, and whatever fails leaves the graph as it was.

A loop is a flag of its vertex, not an entry of a list. So ``d(v)`` counts exactly one loop where
the flag is set, and the closed form (Sahu, equation 2) is right by construction; kernels never meet
a loop in a row.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from gpu.adjacency import LOADED_AT_ONCE, VERTEX_BYTES, Adjacency, pool_slots
from gpu.backends.base import Array, Backend
from gpu.edit import Counts, Workspace, scratch_bytes
from gpu.errors import OutOfMemory
from gpu.types import Dangling, EdgeBatch

_KEPT_WORKSPACE = 1 << 17
"""The scratch of batches of up to so many operations is kept for the next one."""

_SMALL = 1 << 24
"""Bytes below which no estimate is made: the allocator itself says no."""

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
    """As Applied, of a batch into a graph without edges.

    The added edges are all the edges of the graph. They are read off it when asked for, which must
    be before the next batch: most who load do not ask, and they take 8 bytes an edge.
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
    graph: Graph = field(repr=False)

    @cached_property
    def _added(self) -> tuple[Array, Array]:
        return self.graph.edges_on_device()

    @property
    def added_sources(self) -> Array:
        return self._added[0]

    @property
    def added_targets(self) -> Array:
        return self._added[1]


class Graph:
    """A directed graph without parallel edges, and its transpose, on one backend's device.

    vertices  n; ids are 0 … n-1 and are never taken back
    edges     number of edges; a user's loop counts, the loops of the ``self-loop`` policy do not
    loop      uint8[n], 1 where the vertex has a loop
    degree    int32[n], out-degree with the loop counted once
    outgoing  out-lists, incoming  in-lists; both without loops
    """

    def __init__(self, backend: Backend, dangling: Dangling) -> None:
        self.backend = backend
        self.dangling = dangling
        self.vertices = 0
        self.edges = 0
        self.outgoing = Adjacency(backend)
        self.incoming = Adjacency(backend)
        self._loop = backend.allocate("vertices", 0, np.uint8)
        self._degree = backend.allocate("vertices", 0, np.int32)
        self.loop, self.degree = self._loop, self._degree
        self._workspace: Workspace | None = None

    def apply(self, batch: EdgeBatch) -> Applied | Loaded:
        """Deletes, then inserts, in both directions. The graph is unchanged if anything raises.

        The batch's columns are NumPy arrays or arrays of the backend.
        Raises OutOfMemory, before anything is touched where an estimate can tell.
        """
        operations = len(batch.insert_sources) + len(batch.delete_sources)
        highest = max(
            (int(ids.max()) for ids in (batch.insert_sources, batch.insert_targets) if len(ids)),
            default=-1,
        )
        vertices = max(self.vertices, batch.vertices, highest + 1)
        loads = self.edges == 0 and len(batch.insert_sources) > 0
        needed = self.bytes_needed(operations, vertices)
        if needed > _SMALL and needed > (available := self.backend.memory_available()):
            raise OutOfMemory(_purpose(operations, vertices), needed, available)
        try:
            self._reserve(vertices)
            if loads:
                return self._load(batch, vertices)
            return self._change(batch, operations, vertices)
        except OutOfMemory:
            raise
        except MemoryError as error:
            available = self.backend.memory_available()
            raise OutOfMemory(_purpose(operations, vertices), needed, available) from error

    def bytes_needed(self, operations: int, vertices: int) -> int:
        """An upper bound on the memory that a batch of so many operations takes beside what is
        held, if the graph has so many vertices after it. A batch's peak may pass, what it leaves
        stays.
        """
        grown = (2 * VERTEX_BYTES + 5) * max(0, vertices - len(self._loop)) * 5 // 4
        if self.edges == 0:
            # two pools and one that is cut to size; the columns as they come to the device; keys
            # and the sort's copy of them
            pools = 3 * 4 * pool_slots(operations + 3 * min(operations, vertices))
            return pools + 8 * operations + 16 * min(operations, 2 * LOADED_AT_ONCE) + 2 * grown
        moved = 0
        for adjacency in (self.outgoing, self.incoming):
            # each insertion can at worst move a row of the average length of those it can meet
            most = adjacency.end + 8 * operations
            if most > len(adjacency.pool):
                moved = max(moved, 4 * pool_slots(adjacency.packed + 8 * operations))
        return grown + moved + scratch_bytes(operations) + 24 * operations

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
        self.vertices = vertices
        self.loop, self.degree = self._loop[:vertices], self._degree[:vertices]

    def _change(self, batch: EdgeBatch, operations: int, vertices: int) -> Applied:
        backend = self.backend
        space = self._space(operations)
        space.clear()
        outgoing, incoming = space.outgoing, space.incoming
        fixed_loops = self.dangling == "self-loop"
        keys = backend.sorted_keys(_columns(batch), (self.vertices, vertices))
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

    def _load(self, batch: EdgeBatch, vertices: int) -> Loaded:
        """The first edges: sorted once in each direction and packed tight."""
        backend, xp = self.backend, self.backend.xp
        sources, targets = backend.columns(batch.insert_sources, batch.insert_targets)
        loop = backend.allocate("vertices", vertices, np.uint8)
        loop.fill(0)
        outgoing, incoming = Adjacency(backend, vertices), Adjacency(backend, vertices)
        edges, loops = outgoing.load(sources, targets, loop)
        incoming.load(targets, sources, loop)
        del sources, targets

        new_vertices = vertices - self.vertices
        if self.dangling == "self-loop":
            loop.fill(1)
            loops = 0
            had = outgoing.length > 0
        else:
            had = (outgoing.length > 0) | (loop > 0)
        degree = backend.allocate("vertices", vertices, np.int32)
        xp.add(outgoing.length, loop, out=degree)
        touched = xp.flatnonzero(had).astype(np.int32)
        old_degree = xp.full(len(touched), int(self.dangling == "self-loop"), np.int32)
        nothing = backend.allocate("what a batch changed", 0, np.int32)
        inserted = edges + loops

        self.outgoing, self.incoming = outgoing, incoming
        self._loop, self._degree = loop, degree
        self._show(vertices)
        self.edges = inserted
        return Loaded(
            inserted,
            len(batch.insert_sources) - inserted,
            0,
            len(batch.delete_sources),
            new_vertices,
            touched,
            old_degree,
            nothing,
            nothing,
            self,
        )

    def restore(
        self,
        length: NDArray[np.int32],
        neighbours: NDArray[np.int32],
        loop: NDArray[np.uint8],
        edges: int,
    ) -> None:
        """Takes the out-lists and loops of a gpu.snapshot.Snapshot; the in-lists are made from
        them. The graph was empty.
        """
        backend, vertices = self.backend, len(length)
        outgoing, incoming = Adjacency(backend, vertices), Adjacency(backend, vertices)
        outgoing.restore(length, neighbours)
        sources, targets = backend.entries(outgoing)
        no_loops = backend.allocate("vertices", vertices, np.uint8)
        no_loops.fill(0)
        incoming.load(targets, sources, no_loops)
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
        """(sources, targets), int64[edges] each, on the host: for audits. Sources ascend, then the
        loops; the policy's loops are left out.
        """
        sources, targets = (self.backend.to_host(ids) for ids in self.edges_on_device())
        return sources.astype(np.int64), targets.astype(np.int64)

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
            "scratch": self._workspace.nbytes if self._workspace else 0,
        }


def _columns(batch: EdgeBatch) -> list[tuple[int, Array, Array]]:
    return [
        (DELETE, batch.delete_sources, batch.delete_targets),
        (INSERT, batch.insert_sources, batch.insert_targets),
    ]


def _purpose(operations: int, vertices: int) -> str:
    return f"a batch of {operations:,} edges and a graph of {vertices:,} vertices"
