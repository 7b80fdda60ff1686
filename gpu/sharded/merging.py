"""Own lists of one direction, while a large batch is merged into a copy of them."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from gpu.graph.packed_csr import PackedCsr
from gpu.graph.rebuild import insertion_keys, lacks
from gpu.operations.backend import Backend
from gpu.operations.csr import Csr
from gpu.operations.device import Array
from gpu.operations.graph import SortedKeys
from gpu.operations.rebuild import Deduplicated
from gpu.sharded.planned import Direction
from gpu.sharded.routing import NEIGHBOUR, chunks

Rows = tuple[int, int]
"""First row and end of rows."""


class Merge:
    """Takes ranges of own rows, ascending. The lists themselves are not written.

    entries  of the lists before the batch
    """

    def __init__(self, backend: Backend, lists: PackedCsr, fixed_loops: bool) -> None:
        self._backend, self._csr, self._fixed_loops = backend, lists.csr, fixed_loops
        self.entries = int(backend.device.sum(lists.csr.row_lengths)) if lists.packed else 0
        self._kept = 0
        self._inserted_loops = self._deleted_loops = self._reweighted_loops = 0

    def keys(
        self, rows: Rows, loop: Array, deleted: Array, inserted: Array, weights: Array | None
    ) -> Iterator[tuple[int, int, SortedKeys]]:
        """What PackedCsr.load_keys takes of a range: the entries that are not deleted, and the
        insertions; once, or nothing if there are no rows.

        loop      of all own rows; deleted loops are cleared. Those of the range are inserted when
                  this goes on
        deleted   int64[…], keys of deletions as if of insertions, ascending; may have repeats
        inserted  int64[…], keys in the order of the batch; spent
        weights   float32[…], theirs

        `kept` of RebuildOperations.deduplicate is 0: the place of an entry that was kept is -1, and
        that of an insertion its key, so that what exceeds float32 is an edge.
        """
        xp, total = self._backend.xp, self._backend.device.sum
        first, end = rows
        if first == end:
            return
        if not self._fixed_loops:
            of_loops = deleted[is_loop(deleted)] >> 32
            present = int(total(loop[first:end] != 0))
            loop[of_loops] = 0
        before = loop[first:end].copy()
        if not self._fixed_loops:
            self._deleted_loops += present - int(total(before != 0))
        merged, of_keys, kept = self._merged(rows, deleted, inserted, weights)
        del deleted, inserted, weights
        keys = self._backend.graph.sort(merged, of_keys)
        if keys.order is not None:
            keys = keys._replace(order=xp.where(keys.order < kept, np.int64(-1), keys.keys))
        self._kept += kept
        yield first, end, keys
        if not self._fixed_loops:
            after = loop[first:end]
            self._inserted_loops += int(total((before == 0) & (after != 0)))
            self._reweighted_loops += int(total((before != 0) & (after != before)))

    def _merged(
        self, rows: Rows, deleted: Array, inserted: Array, weights: Array | None
    ) -> tuple[Array, Array | None, int]:
        """Keys of the entries that stay, then the insertions; their weights; and how many stay."""
        backend, chosen = self._backend, slice(*rows)
        if self.entries == 0:
            return inserted, weights, 0
        starts, lengths, *slots = self._csr
        entries = backend.rebuild.entries(Csr(starts[chosen], lengths[chosen], *slots))
        most, kept = len(entries.rows) + len(inserted), 0
        keys = backend.device.allocate("keys of a load", most, np.int64)
        both = None
        if weights is not None:
            both = backend.device.allocate("keys of a load", most, np.float32)
        for chunk in chunks(len(entries.rows)):
            some = insertion_keys(entries.rows[chunk] + rows[0], entries.neighbours[chunk])
            stays = lacks(backend.xp, deleted, some)
            some = some[stays]
            place = slice(kept, kept + len(some))
            keys[place] = some
            if both is not None and entries.weights is not None:
                both[place] = entries.weights[chunk][stays]
            kept = place.stop
        end = kept + len(inserted)
        keys[kept:end] = inserted
        if both is not None:
            both[kept:end] = weights
            both = both[:end]
        return keys[:end], both, kept

    def direction(self, loaded: Deduplicated, longest: int) -> Direction:
        """What the batch did to the lists, when all ranges are loaded."""
        inserted = loaded.edges - self._kept + self._inserted_loops
        deleted = self.entries - self._kept + self._deleted_loops
        reweighted = loaded.reweighted + self._reweighted_loops
        exceeds = int(loaded.exceeded >= 0)
        return Direction(inserted, deleted, reweighted, inserted - deleted, longest, exceeds)


def is_loop(keys: Array) -> Array:
    """bool[k]"""
    return keys >> 32 == keys >> 1 & NEIGHBOUR
