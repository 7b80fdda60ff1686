"""Batches that do together what they do one after the other, told apart again for their receipts.

Most of what a small batch costs does not depend on its size. Batches that name each edge once, all
together, can be applied as one: what one of them does to an edge no other one sees.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.backends.base import Array
from gpu.graph import Applied
from gpu.order import Numbering
from gpu.types import EdgeBatch

_SHIFT = np.int64(32)


def independent(batch: EdgeBatch) -> bool:
    """Whether the batch, whose columns are on the host, names each edge once."""
    named = np.concatenate(
        [
            _packed(batch.insert_sources, batch.insert_targets),
            _packed(batch.delete_sources, batch.delete_targets),
        ]
    )
    return len(np.unique(named)) == len(named)


def parted(
    numbering: Numbering,
    batch: EdgeBatch,
    applied: Applied,
    parts: Sequence[tuple[int, int]],
    vertices: int,
) -> list[tuple[int, int, int, int, int]]:
    """What each part of an independent batch did, as the counts of gpu.types.Change in order.

    numbering  of the graph: batches name ids, and what they did is told in positions
    parts      the numbers of insertions and of deletions of each part, in order
    vertices   of the graph before the batch
    """
    inserted = _done(
        numbering,
        (batch.insert_sources, batch.insert_targets),
        (applied.added_sources, applied.added_targets),
        [insertions for insertions, _ in parts],
    )
    deleted = _done(
        numbering,
        (batch.delete_sources, batch.delete_targets),
        (applied.removed_sources, applied.removed_targets),
        [deletions for _, deletions in parts],
    )
    # the number of vertices before each insertion, and after the last
    highest = np.maximum(batch.insert_sources, batch.insert_targets)
    grown = np.maximum.accumulate(np.concatenate([[vertices], highest + 1]))
    ends = np.cumsum([0, *(insertions for insertions, _ in parts)])
    known = grown[ends].tolist()
    return [
        (added, insertions - added, removed, deletions - removed, after - before)
        for (insertions, deletions), added, removed, (before, after) in zip(
            parts, inserted, deleted, pairwise(known), strict=True
        )
    ]


def _done(
    numbering: Numbering,
    named: tuple[NDArray[np.int64], NDArray[np.int64]],
    changed: tuple[Array, Array],
    sizes: list[int],
) -> list[int]:
    """How many of the edges that each part names are among those that changed."""
    hits = np.isin(_packed(*named), _packed(*map(numbering.ids_of, changed)))
    before = np.concatenate([[0], np.cumsum(hits)])
    ends = np.concatenate([[0], np.cumsum(sizes)])
    return [int(before[last] - before[first]) for first, last in pairwise(ends.tolist())]


def _packed(
    sources: NDArray[np.integer[Any]], targets: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    return (sources.astype(np.int64) << _SHIFT) | (targets.astype(np.int64) & 0xFFFFFFFF)
