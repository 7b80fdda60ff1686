"""Own lists of one direction, while a large batch is merged into a copy of them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from liverank_gpu.graph.packed_csr import PackedCsr
from liverank_gpu.graph.rebuild import insertion_keys, lacks
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import SortedKeys
from liverank_gpu.operations.rebuild import Deduplicated
from liverank_gpu.operations.update import NEIGHBOUR
from liverank_gpu.sharded.planned import Direction
from liverank_gpu.sharded.routing import chunks

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
        first, end = rows
        if first == end:
            return
        of_range, total = loop[first:end], self._backend.device.sum
        if not self._fixed_loops:
            present = int(total(of_range != 0))
            loop[deleted[is_loop(deleted)] >> 32] = 0
            self._deleted_loops += present - int(total(of_range != 0))
        before = of_range.copy()
        keys = self._backend.graph.sort(inserted, weights)
        if weights is not None:
            keys = keys._replace(order=keys.keys.copy())
        del inserted, weights
        if self.entries:
            kept = self._kept_keys(rows, deleted, keys.weights is not None)
            self._kept += len(kept.keys)
            keys = self._backend.rebuild.merge(kept, keys)
            del kept
        yield first, end, keys
        if not self._fixed_loops:
            self._inserted_loops += int(total((before == 0) & (of_range != 0)))
            self._reweighted_loops += int(total((before != 0) & (of_range != before)))

    def _kept_keys(self, rows: Rows, deleted: Array, weighted: bool) -> SortedKeys:
        """Those of the entries of these rows that are not deleted, in the order of the slots."""
        backend, chosen = self._backend, slice(*rows)
        starts, lengths, *slots = self._csr
        entries = backend.rebuild.entries(Csr(starts[chosen], lengths[chosen], *slots))
        keys = backend.device.allocate("keys of a load", len(entries.rows), np.int64)
        for chunk in chunks(len(keys)):
            some = entries.rows[chunk] + rows[0]
            keys[chunk] = insertion_keys(some, entries.neighbours[chunk])
        weights = entries.weights
        del entries
        if len(deleted):
            stays = _not_among(backend.xp, deleted, keys)
            keys, weights = keys[stays], weights if weights is None else weights[stays]
        if not weighted:
            return SortedKeys(keys)
        return SortedKeys(keys, weights, backend.xp.full(len(keys), -1, np.int64))

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


def _not_among(xp: Any, deleted: Array, keys: Array) -> Array:
    """bool[k]: whether each of the keys, without repeats, is none of the deleted ones, which
    ascend.
    """
    if len(keys) <= len(deleted) or bool((keys[1:] < keys[:-1]).any()):
        return lacks(xp, deleted, keys)
    # fewer are to be looked up, if keys ascend too
    stays, found = xp.ones(len(keys), bool), xp.searchsorted(keys, deleted)
    found = xp.minimum(found, len(keys) - 1)
    stays[found[keys[found] == deleted]] = False
    return stays


def warm_up_merge(backend: Backend, weighted: bool) -> None:
    """Compiles what only a batch that is a large part of a graph needs."""
    keys = backend.xp.zeros(1, np.int64)
    weights = backend.xp.ones(1, np.float32) if weighted else None
    sorted_keys = SortedKeys(keys, weights, keys if weighted else None)
    backend.rebuild.merge(sorted_keys, sorted_keys)
