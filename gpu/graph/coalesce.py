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

from gpu.graph.permutation import VertexPermutation
from gpu.operations.device import Array
from gpu.operations.update import EdgeChanges, UpdateCounts
from gpu.types import EdgeBatch

_SHIFT = np.int64(32)


def can_coalesce(batch: EdgeBatch) -> bool:
    """Whether the joined batch, on the host, names each edge once, and no vertex by itself."""
    if len(batch.remove) or len(batch.add):
        return False
    named = np.concatenate(
        [
            _packed(batch.insert_sources, batch.insert_targets),
            _packed(batch.delete_sources, batch.delete_targets),
        ]
    )
    return len(np.unique(named)) == len(named)


def split_counts(
    permutation: VertexPermutation,
    batch: EdgeBatch,
    changes: EdgeChanges,
    parts: Sequence[tuple[int, int]],
    limit: int,
    returned: NDArray[np.int64],
) -> list[UpdateCounts]:
    """What each part of a joined batch did.

    parts     numbers of insertions and deletions of each part, in order
    limit     of the ids before the batch
    returned  free ids that the batch names, ascending
    """
    inserted = _changed(
        permutation,
        (batch.insert_sources, batch.insert_targets),
        (changes.added_sources, changes.added_targets),
        [insertions for insertions, _ in parts],
    )
    reweighted = [0] * len(parts)
    if changes.added_weights is not None:
        # no edge is named twice, so one that was inserted and is gone too has another weight
        reweighted = _changed(
            permutation,
            (batch.insert_sources, batch.insert_targets),
            (changes.removed_sources, changes.removed_targets),
            [insertions for insertions, _ in parts],
        )
    deleted = _changed(
        permutation,
        (batch.delete_sources, batch.delete_targets),
        (changes.removed_sources, changes.removed_targets),
        [deletions for _, deletions in parts],
    )
    # how many vertices there are more, before each insertion and after the last
    highest = np.maximum(batch.insert_sources, batch.insert_targets)
    grown = np.maximum.accumulate(np.concatenate([[limit], highest + 1]))
    if len(returned):
        named, first = np.unique(
            np.stack([batch.insert_sources, batch.insert_targets], axis=1), return_index=True
        )
        grown[1:] += np.cumsum(
            np.bincount(first[np.isin(named, returned)] // 2, minlength=len(highest))
        )
    ends = np.cumsum([0, *(insertions for insertions, _ in parts)])
    known = grown[ends].tolist()
    return [
        UpdateCounts(
            added - changed,
            insertions - added,
            removed,
            deletions - removed,
            after - before,
            changed,
        )
        for (insertions, deletions), added, changed, removed, (before, after) in zip(
            parts, inserted, reweighted, deleted, pairwise(known), strict=True
        )
    ]


def _changed(
    permutation: VertexPermutation,
    named: tuple[NDArray[np.int64], NDArray[np.int64]],
    changed: tuple[Array, Array],
    sizes: list[int],
) -> list[int]:
    """How many of the edges that each part names are among those that changed."""
    hits = np.isin(_packed(*named), _packed(*map(permutation.ids_of, changed)))
    before = np.concatenate([[0], np.cumsum(hits)])
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return [int(before[last] - before[first]) for first, last in pairwise(ends.tolist())]


def _packed(
    sources: NDArray[np.integer[Any]], targets: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    return (sources.astype(np.int64) << _SHIFT) | (targets.astype(np.int64) & 0xFFFFFFFF)
