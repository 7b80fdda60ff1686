"""What a batch leaves of a graph's edges: for batches so large that all is laid out anew.

Looking a batch up in the rows that it names takes about 200 bytes of scratch an operation. Where a
batch is a good part of the graph it takes less memory to sort what is left of the graph and what is
added together, as a load does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.backends.base import Array, Backend

CHUNK = 1 << 24
"""Edges looked up at once."""


@dataclass(frozen=True, slots=True)
class Rest:
    """The edges of a graph but for some, without loops.

    sources, targets  int32[…]
    deleted           how many edges and loops are not among them that were in the graph
    """

    sources: Array
    targets: Array
    deleted: int


@dataclass(frozen=True, slots=True)
class Deletions:
    """Distinct edges between the vertices of a graph that a batch deletes, whether present or not.

    keys   int64[…], ascending, without loops: see Backend.sorted_keys for insertions
    loops  uint8[n], 1 where the loop of a vertex is deleted
    """

    keys: Array
    loops: Array

    @classmethod
    def of(cls, backend: Backend, keys: Array, vertices: int) -> Deletions:
        """keys  int64[…], ascending, with loops and repeats; overwritten."""
        loops = backend.allocate("vertices", vertices, np.uint8)
        loops.fill(0)
        count, _ = backend.distinct(keys, loops) if len(keys) else (0, 0)
        return cls(keys[:count], loops)

    def rest(self, backend: Backend, entries: tuple[Array, Array], loop: Array | None) -> Rest:
        """What is left of the entries of the out-lists (Backend.entries), which are overwritten.

        loop  uint8[…] of the graph, cleared where a loop is deleted; None where loops cannot be
        """
        xp, (sources, targets) = backend.xp, entries
        total, kept = len(sources), 0
        for begin in range(0, total, CHUNK):
            rows, neighbours = (ids[begin : begin + CHUNK] for ids in (sources, targets))
            stays = self._lacks(xp, rows, neighbours)
            count = int(stays.sum())
            sources[kept : kept + count] = rows[stays]
            targets[kept : kept + count] = neighbours[stays]
            kept += count
        deleted = total - kept
        if loop is not None:
            known = loop[: len(self.loops)]
            deleted += int((known & self.loops).sum(dtype=np.int64))
            known[self.loops == 1] = 0
        return Rest(sources[:kept], targets[:kept], deleted)

    def _lacks(self, xp: Any, rows: Array, neighbours: Array) -> Array:
        """bool[…]: whether each edge is not deleted."""
        if len(self.keys) == 0:
            return xp.ones(len(rows), bool)
        wanted = rows.astype(np.int64) << 32 | neighbours.astype(np.int64) << 1 | 1
        found = xp.searchsorted(self.keys, wanted)
        return self.keys[xp.minimum(found, len(self.keys) - 1)] != wanted

    def ends(self, xp: Any) -> tuple[Array, Array]:
        """(sources, targets), int64[…] each, of all deletions, loops among them."""
        loops = xp.flatnonzero(self.loops)
        return (
            xp.concatenate([self.keys >> 32, loops]),
            xp.concatenate([self.keys >> 1 & 0x7FFFFFFF, loops]),
        )


def bytes_to_merge(edges: int, operations: int) -> int:
    """An upper bound on the memory that is held beside the graph when the new lists are laid out:
    the deletions, the graph's entries, and these with the insertions.
    """
    return 16 * operations + 8 * edges + 8 * (edges + operations) + 64 * min(edges, CHUNK)
