"""The dynamic graph: out-lists, in-lists, loops and degrees, changed by batches on the device.

A loop is a flag of its vertex, not an entry of a list. So ``d(v)`` counts exactly one loop where
the flag is set, and the closed form (Sahu, equation 2) is right by construction; kernels never meet
a loop in a row.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gpu.backends.base import Array, Backend, Rows
from gpu.types import Dangling, EdgeBatch


@dataclass(frozen=True, slots=True)
class Adjacency:
    """Neighbour lists of one direction; row v is ``pool[start[v] : start[v] + length[v]]``,
    ascending.

    keys    int64[m]: row · 2³² + neighbour, ascending: what batches are resolved against
    pool    int32[m]: the neighbours
    start   int64[n]
    length  int32[n]
    rows    all rows, grouped for the backend's kernels
    longest the length of the longest row
    """

    keys: Array
    pool: Array
    start: Array
    length: Array
    rows: Rows
    longest: int

    @classmethod
    def of(cls, keys: Array, vertices: int, backend: Backend) -> Adjacency:
        """The lists of these ascending, distinct keys."""
        xp = backend.xp
        length = xp.bincount(keys >> 32, minlength=vertices).astype(np.int32)
        start = xp.zeros(vertices, np.int64)
        start[1:] = xp.cumsum(length[:-1], dtype=np.int64)
        longest = int(length.max()) if vertices else 0
        pool = (keys & 0xFFFFFFFF).astype(np.int32)
        return cls(keys, pool, start, length, backend.all_rows(length), longest)

    def edited(self, removed: Array, added: Array, vertices: int, backend: Backend) -> Adjacency:
        """The lists without the keys `removed` and with the keys `added`: both ascending, removed
        all present, added all absent once removed is gone."""
        xp = backend.xp
        kept = self.keys
        if len(removed):
            mask = xp.ones(len(kept), bool)
            mask[xp.searchsorted(kept, removed)] = False
            kept = kept[mask]
        keys = xp.sort(xp.concatenate([kept, added]), kind="stable") if len(added) else kept
        return Adjacency.of(keys, vertices, backend)

    def contains(self, keys: Array, backend: Backend) -> Array:
        """bool[len(keys)]: which of the keys are edges."""
        xp = backend.xp
        if len(self.keys) == 0:
            return xp.zeros(len(keys), bool)
        place = xp.minimum(xp.searchsorted(self.keys, keys), len(self.keys) - 1)
        return self.keys[place] == keys

    @property
    def nbytes(self) -> int:
        arrays = (self.keys, self.pool, self.start, self.length, self.rows.order)
        return sum(int(array.nbytes) for array in arrays)


@dataclass(frozen=True, slots=True)
class Applied:
    """What one batch did, for the receipt, for the strategies and for the residual.

    sources                          int64[s], ascending: vertices whose out-list or loop changed
    old_degree                       int32[s]: their degree before the batch; of a vertex that is
                                     new, that of its isolated state
    removed_sources, removed_targets int64[…]: the edges deleted, a loop as (u, u)
    added_sources, added_targets     int64[…]: the edges inserted, likewise. An edge deleted and
                                     inserted by one batch may stand in both
    The counts are those of gpu.types.Change.
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


class Graph:
    """A directed graph without parallel edges, and its transpose, on one backend's device.

    vertices  n; ids are 0 … n-1 and are never taken back
    edges     number of edges; a user's loop counts, the loops of the ``self-loop`` policy do not
    loop      uint8[n], 1 where the vertex has a loop
    degree    int32[n], out-degree with the loop counted once
    outgoing  out-lists, incoming  in-lists; both without loops
    """

    def __init__(self, backend: Backend, dangling: Dangling) -> None:
        xp = backend.xp
        self.backend = backend
        self.dangling = dangling
        self.vertices = 0
        self.edges = 0
        self.loop = xp.zeros(0, np.uint8)
        self.degree = xp.zeros(0, np.int32)
        self.outgoing = Adjacency.of(xp.zeros(0, np.int64), 0, backend)
        self.incoming = self.outgoing

    def apply(self, batch: EdgeBatch) -> Applied:
        """Deletes, then inserts, in both directions. The graph is unchanged if anything raises.

        Here the lists are merged whole, on the device: O(m) a batch.
        """
        backend, xp = self.backend, self.backend.xp
        highest = max(
            (int(ids.max()) for ids in (batch.insert_sources, batch.insert_targets) if len(ids)),
            default=-1,
        )
        vertices = max(self.vertices, batch.vertices, highest + 1)

        known = np.ones(len(batch.delete_sources), bool)
        for ids in (batch.delete_sources, batch.delete_targets):
            known &= (ids >= 0) & (ids < self.vertices)
        delete_keys, delete_loops = self._columns(
            batch.delete_sources[known], batch.delete_targets[known]
        )
        insert_keys, insert_loops = self._columns(batch.insert_sources, batch.insert_targets)

        removed = delete_keys[self.outgoing.contains(delete_keys, backend)]
        present = self.outgoing.contains(insert_keys, backend)
        if len(removed):
            place = xp.minimum(xp.searchsorted(removed, insert_keys), len(removed) - 1)
            present &= removed[place] != insert_keys
        added = insert_keys[~present]

        loop = xp.zeros(vertices, np.uint8)
        loop[: self.vertices] = self.loop
        if self.dangling == "self-loop":
            loop[self.vertices :] = 1
            removed_loops = added_loops = delete_loops[:0]
        else:
            removed_loops = delete_loops[loop[delete_loops] == 1]
            loop[removed_loops] = 0
            added_loops = insert_loops[loop[insert_loops] == 0]
            loop[added_loops] = 1

        outgoing, incoming = self.outgoing, self.incoming
        if len(removed) or len(added) or vertices > self.vertices:
            outgoing = outgoing.edited(removed, added, vertices, backend)
            incoming = incoming.edited(_transposed(removed), _transposed(added), vertices, backend)
        inserted = len(added) + len(added_loops)
        deleted = len(removed) + len(removed_loops)
        sources = xp.unique(
            xp.concatenate([removed >> 32, added >> 32, removed_loops, added_loops])
        )
        old_degree = xp.zeros(vertices, np.int32)
        old_degree[: self.vertices] = self.degree
        if self.dangling == "self-loop":
            old_degree[self.vertices :] = 1
        applied = Applied(
            inserted=inserted,
            already_present=len(batch.insert_sources) - inserted,
            deleted=deleted,
            not_found=len(batch.delete_sources) - deleted,
            new_vertices=vertices - self.vertices,
            sources=sources,
            old_degree=old_degree[sources],
            removed_sources=xp.concatenate([removed >> 32, removed_loops]),
            removed_targets=xp.concatenate([removed & 0xFFFFFFFF, removed_loops]),
            added_sources=xp.concatenate([added >> 32, added_loops]),
            added_targets=xp.concatenate([added & 0xFFFFFFFF, added_loops]),
        )
        degree = outgoing.length + loop

        self.outgoing, self.incoming, self.loop, self.degree = outgoing, incoming, loop, degree
        self.vertices = vertices
        self.edges += inserted - deleted
        return applied

    def _columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        """Distinct edge keys without loops, and distinct vertices of loops, on the device,
        ascending.
        """
        backend, xp = self.backend, self.backend.xp
        sources, targets = backend.to_device(sources), backend.to_device(targets)
        loops = sources == targets
        keys = (sources[~loops] << 32) | targets[~loops]
        return xp.unique(keys), xp.unique(sources[loops])

    def edge_list(self) -> tuple[Array, Array]:
        """(sources, targets), int64[edges] each, on the host: for audits. The policy's loops are
        left out.
        """
        backend, xp = self.backend, self.backend.xp
        keys = backend.to_host(self.outgoing.keys)
        loops = np.empty(0, np.int64)
        if self.dangling == "uniform":
            loops = backend.to_host(xp.flatnonzero(self.loop)).astype(np.int64)
        return (
            np.concatenate([keys >> 32, loops]),
            np.concatenate([keys & 0xFFFFFFFF, loops]),
        )

    def memory(self) -> dict[str, int]:
        """Bytes held on the device, by purpose."""
        return {
            "out-lists": self.outgoing.nbytes,
            "in-lists": self.incoming.nbytes,
            "degrees": int(self.loop.nbytes + self.degree.nbytes),
        }


def _transposed(keys: Array) -> Array:
    """The same edges with row and neighbour exchanged, ascending."""
    swapped = ((keys & 0xFFFFFFFF) << 32) | (keys >> 32)
    swapped.sort()
    return swapped
