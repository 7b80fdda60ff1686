"""Several small batches applied as one, and their counts separated again.

Most of the cost of a small batch does not depend on its size. Batches that together name each edge
once can be applied as one: no batch sees what another does to an edge.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.batch import arranged
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.types import VERTEX_LIMIT, Change, EdgeBatch

_SHIFT = np.int64(32)


class CoalescedBatch:
    """Several small batches as one. All that needs memory of the device is done before the batch is
    applied, so that `counts` cannot fail once it stands.

    batch  the joined batch, as the graph takes it
    """

    def __init__(
        self, graph: DynamicGraph, batch: EdgeBatch, parts: Sequence[tuple[int, int]]
    ) -> None:
        """parts: numbers of insertions and deletions of each part, in order."""
        self.batch = batch
        self._parts = parts
        self._limit = graph.ids.limit
        self._to_host = graph.backend.device.to_host
        self._inserted, self._deleted = (
            _packed(*(_positions(graph, column) for column in columns))
            for columns in (
                (batch.insert_sources, batch.insert_targets),
                (batch.delete_sources, batch.delete_targets),
            )
        )

    @classmethod
    def of(
        cls, graph: DynamicGraph, batch: EdgeBatch, parts: Sequence[tuple[int, int]]
    ) -> CoalescedBatch | None:
        """The joined batch; None if its parts must be applied one by one, for which less memory is
        enough.
        """
        # which edges expire depends on the order of the parts
        if graph.decay or graph.is_rebuilt_by(batch.operations):
            return None
        try:
            if not graph.directed:
                batch = arranged(batch)
            return cls(graph, batch, parts) if _names_edges_once(batch) else None
        except MemoryError:
            return None

    def counts(self, update: GraphUpdate) -> list[Change]:
        """What each part did, from what the joined batch did."""
        changes = update.changes
        assert changes is not None
        added, removed = (
            _packed(*map(self._to_host, columns))
            for columns in (
                (changes.added_sources, changes.added_targets),
                (changes.removed_sources, changes.removed_targets),
            )
        )
        inserts, deletes = ([part[at] for part in self._parts] for at in range(2))
        inserted = _hits(self._inserted, added, inserts)
        reweighted = [0] * len(inserts)
        if changes.added_weights is not None:
            # no edge is named twice, so one that was inserted and is gone too has another weight
            reweighted = _hits(self._inserted, removed, inserts)
        deleted = _hits(self._deleted, removed, deletes)
        known = self._known_after(update.returned, inserts)
        return [
            Change(
                added - changed,
                insertions - added,
                removed,
                deletions - removed,
                after - before,
                0.0,
                changed,
            )
            for (insertions, deletions), added, changed, removed, (before, after) in zip(
                self._parts, inserted, reweighted, deleted, pairwise(known), strict=True
            )
        ]

    def _known_after(self, returned: NDArray[np.int64], insertions: list[int]) -> list[int]:
        """How many vertices there are more, before the first part and after each.

        returned  free ids that the batch names, ascending
        """
        sources, targets = self.batch.insert_sources, self.batch.insert_targets
        highest = np.maximum(sources, targets)
        grown = np.maximum.accumulate(np.concatenate([[self._limit], highest + 1]))
        if len(returned):
            named, first = np.unique(np.stack([sources, targets], axis=1), return_index=True)
            grown[1:] += np.cumsum(
                np.bincount(first[np.isin(named, returned)] // 2, minlength=len(highest))
            )
        known: list[int] = grown[np.cumsum([0, *insertions])].tolist()
        return known


def _names_edges_once(batch: EdgeBatch) -> bool:
    """Whether the joined batch, on the host, names each edge once, and no vertex by itself."""
    if (
        len(batch.remove)
        or len(batch.add)
        or len(batch.replace)
        or batch.delete_weights is not None
    ):
        return False
    named = np.concatenate(
        [
            _packed(batch.insert_sources, batch.insert_targets),
            _packed(batch.delete_sources, batch.delete_targets),
        ]
    )
    return len(np.unique(named)) == len(named)


def _positions(graph: DynamicGraph, ids: NDArray[np.int64]) -> NDArray[np.int64]:
    """The positions of ids on the host; -1 for one that no vertex can have."""
    positions = graph.backend.device.to_host(graph.permutation.positions_of(np.maximum(ids, 0)))
    return np.where((ids < 0) | (ids >= VERTEX_LIMIT), -1, positions)


def _hits(named: NDArray[np.int64], changed: NDArray[np.int64], sizes: list[int]) -> list[int]:
    """How many of the edges that each part names are among those that changed."""
    before = np.concatenate([[0], np.cumsum(np.isin(named, changed))])
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return [int(before[last] - before[first]) for first, last in pairwise(ends.tolist())]


def _packed(
    sources: NDArray[np.integer[Any]], targets: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    return (sources.astype(np.int64) << _SHIFT) | (targets.astype(np.int64) & 0xFFFFFFFF)
