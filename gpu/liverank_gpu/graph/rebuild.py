"""Rebuilding both directions of a graph: for its first edges, for batches that are a good part of
it, and from a snapshot.

Looking a batch up in the rows that it names takes 230 bytes of scratch an operation and more. For a
batch that is a good part of the graph it takes less memory to sort the remaining edges together
with the insertions, once in each direction.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.batch import Arcs
from liverank_gpu.graph.packed_csr import PackedCsr, find
from liverank_gpu.graph.vertices import VertexPermutation, choose_permutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import loop_dtype, strength_dtype
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import (
    INSERT,
    NEIGHBOUR,
    EdgeCounts,
    Entries,
    PackKeys,
    SortedKeys,
)
from liverank_gpu.types import VertexOrder


@dataclass(frozen=True, slots=True)
class Rebuilt:
    """A graph after a batch, in new arrays.

    permutation         chosen by this batch, or the one before
    outgoing, incoming  both directions, packed
    loop, degree        see liverank_gpu.operations.csr.GraphView
    arcs                number of arcs, users' loops included
    counts              what the batch did
    sources, removed_targets  supersets of those of liverank_gpu.operations.graph.GraphUpdate
    exceeded            place of an insertion that makes a sum of weights exceed float32, or -1; if
                        there is one, the graph cannot be used
    """

    permutation: VertexPermutation
    outgoing: PackedCsr
    incoming: PackedCsr
    loop: Array
    degree: Array
    arcs: int
    counts: EdgeCounts
    sources: Array
    removed_targets: Array
    exceeded: int


def rebuild(
    backend: Backend,
    batch: Arcs,
    outgoing: PackedCsr,
    loop: Array,
    permutation: VertexPermutation,
    order: VertexOrder | None,
    fixed_loops: bool,
    directed: bool,
    vertices: int,
) -> Rebuilt:
    """Applies a batch by sorting what it leaves of the edges and what it adds.

    batch           has weights if the graph is weighted
    outgoing, loop  the graph before; unchanged
    order           how to choose a permutation if the batch has insertions; None to keep it
    fixed_loops     whether loops can be neither inserted nor deleted
    directed        whether an arc is an edge, or half of one
    vertices        of the graph after the batch
    """
    known_vertices = outgoing.vertices
    allocate, xp, at_once = backend.device.allocate, backend.xp, backend.sizes.entries
    weighted, adds = batch.weights is not None, batch.adds
    sources, targets = backend.graph.columns(*batch.insert)
    weights = None if batch.weights is None else xp.asarray(batch.weights)
    if order and len(sources):
        permutation = choose_permutation(backend, order, sources, targets, vertices)
    positions = permutation.positions
    new_loop = allocate("vertices", vertices, loop_dtype(weighted))
    new_loop[:known_vertices] = loop
    new_loop[known_vertices:] = 0
    touched = allocate("scratch for a load", vertices, np.uint8, zeroed=True)
    for begin in range(0, len(sources), at_once):
        touched[permutation.positions_of(sources[begin : begin + at_once])] = 1

    keys = backend.run(PackKeys(batch.delete_columns, (known_vertices, 0), positions)).keys
    keys |= INSERT
    deletions = _Deletions.of(backend, keys, known_vertices)
    deleted_sources, deleted_targets = deletions.endpoints(xp)
    touched[deleted_sources] = 1
    kept = deleted = deleted_loops = 0
    if outgoing.packed or (not fixed_loops and bool(backend.device.sum(loop != 0))):
        rest, deleted, deleted_loops = deletions.apply(
            backend, backend.rebuild.entries(outgoing.csr), None if fixed_loops else new_loop
        )
        kept = len(rest.rows)
        sources, targets = (
            _joined(backend, column, added, permutation)
            for column, added in ((rest.rows, sources), (rest.neighbours, targets))
        )
        if weights is not None:
            weights = xp.concatenate([rest.weights, weights])
        positions = positions[:0]
        del rest
    del keys, deletions

    kept_loops = int(backend.device.sum(new_loop != 0))
    loop_before = new_loop.copy() if weighted else None
    new_outgoing, new_incoming = (PackedCsr(backend, vertices, weighted) for _ in range(2))
    loaded = new_outgoing.load(Entries(sources, targets, weights), new_loop, positions, adds, kept)
    # loops have been set: their weights must not be added twice
    ignored = new_loop.copy() if adds else new_loop
    new_incoming.load(Entries(targets, sources, weights), ignored, positions, adds, kept)
    del sources, targets, weights
    reweighted_loops = 0
    if fixed_loops:
        new_loop.fill(1)
        loops = inserted_loops = 0
    else:
        loops = int(backend.device.sum(new_loop != 0))
        inserted_loops = loops - kept_loops
        if loop_before is not None:
            reweighted = (loop_before > 0) & (new_loop != loop_before)
            reweighted_loops = int(backend.device.sum(reweighted))
    arcs_of_edge = 1 if directed else 2
    return Rebuilt(
        permutation,
        new_outgoing,
        new_incoming,
        new_loop,
        degrees_of(backend, new_outgoing, new_loop, weighted),
        loaded.edges + loops,
        EdgeCounts(
            (loaded.edges - kept) // arcs_of_edge + inserted_loops,
            deleted // arcs_of_edge + deleted_loops,
            loaded.reweighted // arcs_of_edge + reweighted_loops,
        ),
        xp.flatnonzero(touched).astype(np.int32),
        deleted_targets,
        loaded.exceeded - kept if loaded.exceeded >= kept else -1,
    )


def restore_directions(
    backend: Backend,
    lengths: NDArray[np.int32],
    neighbours: NDArray[np.int32],
    weights: NDArray[np.float32] | None,
    loop: Array,
) -> tuple[PackedCsr, PackedCsr, Array]:
    """The out-lists of a liverank_gpu.snapshot.Snapshot, the in-lists, and the degrees or
    strengths.

    loop  of the graph, on the device
    """
    vertices, weighted = len(lengths), weights is not None
    outgoing, incoming = (PackedCsr(backend, vertices, weighted) for _ in range(2))
    outgoing.restore(lengths, neighbours, weights)
    entries = backend.rebuild.entries(outgoing.csr)
    no_loops = backend.device.allocate("vertices", vertices, loop_dtype(weighted), zeroed=True)
    # these columns are positions already
    identity = backend.device.allocate("vertex order", 0, np.int32)
    transposed = Entries(entries.neighbours, entries.rows, entries.weights)
    incoming.load(transposed, no_loops, identity)
    return outgoing, incoming, degrees_of(backend, outgoing, loop, weighted)


def degrees_of(backend: Backend, outgoing: PackedCsr, loop: Array, weighted: bool) -> Array:
    """GraphView.degree, in a new array."""
    degree = backend.device.allocate("vertices", outgoing.vertices, strength_dtype(weighted))
    if weighted:
        backend.rebuild.sum_weights(outgoing.csr, None, loop, degree)
    else:
        backend.xp.add(outgoing.csr.row_lengths, loop, out=degree)
    return degree


def insertion_keys(rows: Array, neighbours: Array) -> Array:
    """int64[k]: keys of insertions."""
    return rows.astype(np.int64) << 32 | neighbours.astype(np.int64) << 1 | INSERT


def rebuild_bytes(edges: int, operations: int, weighted: bool, at_once: int) -> int:
    """Upper bound on the memory held beside the graph when the new lists are built: the deletions,
    the graph's entries, and these joined with the insertions.

    at_once  Sizes.entries
    """
    each = 12 if weighted else 8
    return 16 * operations + each * (2 * edges + operations) + 64 * min(edges, at_once)


def _joined(backend: Backend, kept: Array, added: Array, permutation: VertexPermutation) -> Array:
    """Positions followed by the positions of ids."""
    both = backend.device.allocate("keys of a load", len(kept) + len(added), np.int32)
    both[: len(kept)] = kept
    at_once = backend.sizes.entries
    for begin in range(0, len(added), at_once):
        chunk = added[begin : begin + at_once]
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
        loops = backend.device.allocate("vertices", vertices, np.uint8, zeroed=True)
        if len(keys):
            keys = keys[: backend.rebuild.deduplicate(SortedKeys(keys), loops).edges]
        return cls(keys, loops)

    def apply(
        self, backend: Backend, entries: Entries, loop: Array | None
    ) -> tuple[Entries, int, int]:
        """The entries that remain, how many were deleted, and how many loops were. Overwrites the
        entries.

        loop  of the graph, cleared where a loop is deleted; None if loops are fixed
        """
        sources, targets, weights = entries
        total, kept, at_once = len(sources), 0, backend.sizes.entries
        for begin in range(0, total, at_once):
            rows, neighbours = (column[begin : begin + at_once] for column in (sources, targets))
            remains = self._lacks(backend.xp, rows, neighbours)
            remaining_rows = rows[remains]
            count = len(remaining_rows)
            sources[kept : kept + count] = remaining_rows
            targets[kept : kept + count] = neighbours[remains]
            if weights is not None:
                weights[kept : kept + count] = weights[begin : begin + at_once][remains]
            kept += count
        deleted_loops = 0
        if loop is not None:
            known = loop[: len(self.loops)]
            deleted_loops = int(backend.device.sum((known != 0) & (self.loops != 0)))
            known[self.loops == 1] = 0
        remaining = Entries(
            sources[:kept], targets[:kept], None if weights is None else weights[:kept]
        )
        return remaining, total - kept, deleted_loops

    def _lacks(self, xp: Any, rows: Array, neighbours: Array) -> Array:
        """bool[…]: whether each edge is not deleted."""
        return ~find(xp, self.keys, insertion_keys(rows, neighbours))[1]

    def endpoints(self, xp: Any) -> tuple[Array, Array]:
        """(sources, targets), int64[…] each, of all deletions, loops included."""
        loops = xp.flatnonzero(self.loops)
        return (
            xp.concatenate([self.keys >> 32, loops]),
            xp.concatenate([self.keys >> 1 & NEIGHBOUR, loops]),
        )
