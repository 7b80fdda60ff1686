"""Rebuilding both directions of a graph: for its first edges, and for batches that are a good part
of it.

Looking a batch up in the rows that it names takes 230 bytes of scratch an operation and more. For a
batch that is a good part of the graph it takes less memory to sort the remaining edges together
with the insertions, once in each direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.graph.packed_csr import PackedCsr
from gpu.graph.permutation import VertexPermutation, choose_permutation
from gpu.operations.backend import Backend
from gpu.operations.device import Array
from gpu.operations.update import DELETE, INSERT, GraphUpdate, UpdateCounts
from gpu.types import EdgeBatch, VertexOrder

CHUNK = 1 << 24
"""Edges looked up at once."""


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A graph after a batch, in new arrays.

    permutation         chosen by this batch, or the one before
    outgoing, incoming  both directions, packed
    loop, degree        uint8[n] and int32[n]
    edges               number of edges, users' loops included
    update              what the batch did
    """

    permutation: VertexPermutation
    outgoing: PackedCsr
    incoming: PackedCsr
    loop: Array
    degree: Array
    edges: int
    update: GraphUpdate


def rebuild(
    backend: Backend,
    batch: EdgeBatch,
    outgoing: PackedCsr,
    loop: Array,
    permutation: VertexPermutation,
    order: VertexOrder | None,
    fixed_loops: bool,
    has_edges: bool,
    vertices: int,
) -> Rebuilt:
    """Applies a batch by sorting what it leaves of the edges and what it adds.

    outgoing, loop  the graph before; unchanged
    order           how to choose a permutation if the batch has insertions; None to keep it
    fixed_loops     whether loops can be neither inserted nor deleted
    has_edges       whether the graph has edges
    vertices        of the graph after the batch
    """
    known_vertices = outgoing.vertices
    allocate, xp = backend.device.allocate, backend.xp
    sources, targets = backend.graph.columns(batch.insert_sources, batch.insert_targets)
    if order and len(sources):
        permutation = choose_permutation(backend, order, sources, targets, vertices)
    positions = permutation.positions
    new_loop = allocate("vertices", vertices, np.uint8)
    new_loop[:known_vertices] = loop
    new_loop[known_vertices:] = 0
    touched = allocate("scratch for a load", vertices, np.uint8)
    touched.fill(0)
    for begin in range(0, len(sources), CHUNK):
        touched[permutation.positions_of(sources[begin : begin + CHUNK])] = 1

    columns = [(DELETE, batch.delete_sources, batch.delete_targets)]
    keys = backend.graph.sorted_keys(columns, (known_vertices, 0), positions)
    keys |= INSERT
    deletions = _Deletions.of(backend, keys, known_vertices)
    deleted_sources, deleted_targets = deletions.endpoints(xp)
    touched[deleted_sources] = 1
    kept = deleted = 0
    if has_edges:
        entries = backend.graph.entries(outgoing.csr)
        kept_sources, kept_targets, deleted = deletions.apply(
            xp, entries, None if fixed_loops else new_loop
        )
        kept = len(kept_sources)
        sources, targets = (
            _joined(backend, rest, added, permutation)
            for rest, added in ((kept_sources, sources), (kept_targets, targets))
        )
        positions = positions[:0]
        del entries, kept_sources, kept_targets
    del keys, deletions

    kept_loops = int(new_loop.sum(dtype=np.int64))
    new_outgoing, new_incoming = PackedCsr(backend, vertices), PackedCsr(backend, vertices)
    edges, _ = new_outgoing.load(sources, targets, new_loop, positions)
    new_incoming.load(targets, sources, new_loop, positions)
    del sources, targets
    if fixed_loops:
        new_loop.fill(1)
        loops = inserted_loops = 0
    else:
        loops = int(new_loop.sum(dtype=np.int64))
        inserted_loops = loops - kept_loops
    degree = allocate("vertices", vertices, np.int32)
    xp.add(new_outgoing.csr.row_lengths, new_loop, out=degree)
    inserted = edges - kept + inserted_loops
    counts = UpdateCounts(
        inserted,
        len(batch.insert_sources) - inserted,
        deleted,
        len(batch.delete_sources) - deleted,
        vertices - known_vertices,
    )
    update = GraphUpdate(counts, xp.flatnonzero(touched).astype(np.int32), deleted_targets, None)
    return Rebuilt(permutation, new_outgoing, new_incoming, new_loop, degree, edges + loops, update)


def rebuild_bytes(edges: int, operations: int) -> int:
    """Upper bound on the memory held beside the graph when the new lists are built: the deletions,
    the graph's entries, and these joined with the insertions.
    """
    return 16 * operations + 8 * edges + 8 * (edges + operations) + 64 * min(edges, CHUNK)


def _joined(backend: Backend, kept: Array, added: Array, permutation: VertexPermutation) -> Array:
    """Positions followed by the positions of ids."""
    both = backend.device.allocate("keys of a load", len(kept) + len(added), np.int32)
    both[: len(kept)] = kept
    for begin in range(0, len(added), CHUNK):
        chunk = added[begin : begin + CHUNK]
        first = len(kept) + begin
        both[first : first + len(chunk)] = permutation.positions_of(chunk)
    return both


@dataclass(frozen=True, slots=True)
class _Deletions:
    """Distinct edges between known vertices that a batch deletes, present or not.

    keys   int64[…], ascending, without loops, as of insertions
    loops  uint8[n], 1 where the loop of a vertex is deleted
    """

    keys: Array
    loops: Array

    @classmethod
    def of(cls, backend: Backend, keys: Array, vertices: int) -> _Deletions:
        """keys  int64[…], ascending, with loops and repeats; overwritten."""
        loops = backend.device.allocate("vertices", vertices, np.uint8)
        loops.fill(0)
        count, _ = backend.graph.deduplicate(keys, loops) if len(keys) else (0, 0)
        return cls(keys[:count], loops)

    def apply(
        self, xp: Any, entries: tuple[Array, Array], loop: Array | None
    ) -> tuple[Array, Array, int]:
        """Sources and targets of the entries that remain, int32[…], and how many edges and loops
        were deleted. Overwrites the entries.

        loop  uint8[…] of the graph, cleared where a loop is deleted; None if loops are fixed
        """
        sources, targets = entries
        total, kept = len(sources), 0
        for begin in range(0, total, CHUNK):
            rows, neighbours = (column[begin : begin + CHUNK] for column in (sources, targets))
            remains = self._lacks(xp, rows, neighbours)
            count = int(remains.sum())
            sources[kept : kept + count] = rows[remains]
            targets[kept : kept + count] = neighbours[remains]
            kept += count
        deleted = total - kept
        if loop is not None:
            known = loop[: len(self.loops)]
            deleted += int((known & self.loops).sum(dtype=np.int64))
            known[self.loops == 1] = 0
        return sources[:kept], targets[:kept], deleted

    def _lacks(self, xp: Any, rows: Array, neighbours: Array) -> Array:
        """bool[…]: whether each edge is not deleted."""
        if len(self.keys) == 0:
            return xp.ones(len(rows), bool)
        wanted = rows.astype(np.int64) << 32 | neighbours.astype(np.int64) << 1 | INSERT
        found = xp.searchsorted(self.keys, wanted)
        return self.keys[xp.minimum(found, len(self.keys) - 1)] != wanted

    def endpoints(self, xp: Any) -> tuple[Array, Array]:
        """(sources, targets), int64[…] each, of all deletions, loops included."""
        loops = xp.flatnonzero(self.loops)
        return (
            xp.concatenate([self.keys >> 32, loops]),
            xp.concatenate([self.keys >> 1 & 0x7FFFFFFF, loops]),
        )
