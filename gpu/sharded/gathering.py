"""A whole graph from the rows of its shards, in the form of gpu.snapshot.Snapshot, and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.operations.csr import ALIGNMENT
from gpu.sharded.numbering import Numbering
from gpu.sharded.shard import ShardRows
from gpu.types import EdgeBatch, Options, Ranking


def gathered(parts: Sequence[ShardRows], ids: NDArray[np.int32]) -> dict[str, NDArray[Any]]:
    """The arrays of a Snapshot.

    parts  of all shards, by rank
    ids    VertexPermutation.ids
    """
    owned = [
        Numbering(rank, len(parts)).positions_of(np.arange(len(part.lengths)))
        for rank, part in enumerate(parts)
    ]

    def by_position(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
        whole = np.empty(sum(map(len, columns)), columns[0].dtype)
        for positions, column in zip(owned, columns, strict=True):
            whole[positions] = column
        return whole

    length = by_position([part.lengths for part in parts])
    starts, slots = _packed_starts(length)
    neighbours = np.zeros(slots, np.int32)
    weighted = parts[0].weights is not None
    weights = np.zeros(slots if weighted else 0, np.float32)
    for positions, part in zip(owned, parts, strict=True):
        places = _slots(starts[positions], part.lengths)
        neighbours[places] = part.neighbours
        if part.weights is not None:
            weights[places] = part.weights
    arrays = {
        "ids": ids,
        "length": length,
        "neighbours": neighbours,
        "loop": by_position([part.loop for part in parts]),
        "values": by_position([part.values for part in parts]),
    }
    return {**arrays, "weights": weights} if weighted else arrays


def edges_of(arrays: Mapping[str, NDArray[Any]], options: Options) -> EdgeBatch:
    """A batch that inserts all edges and vertices of a Snapshot into an empty graph."""
    lengths, loop, weights = arrays["length"], arrays["loop"], arrays.get("weights")
    starts, _ = _packed_starts(lengths)
    slots = _slots(starts, lengths)
    sources = np.repeat(np.arange(len(lengths)), lengths)
    targets = arrays["neighbours"][slots].astype(np.int64)
    if not options.directed:
        once = sources < targets  # both ends list the edge
        sources, targets, slots = sources[once], targets[once], slots[once]
    # those of the policy come by themselves
    loops = np.flatnonzero(loop) if options.dangling != "self-loop" else np.empty(0, np.int64)
    if weights is not None:
        weights = np.concatenate([weights[slots], loop[loops]])
    ids = _ids_by_position(arrays)
    return EdgeBatch(
        ids[np.concatenate([sources, loops])],
        ids[np.concatenate([targets, loops])],
        vertices=len(lengths),
        weights=weights,
    )


def values_by_id(arrays: Mapping[str, NDArray[Any]]) -> Ranking:
    """float64[n]: y of a Snapshot by id."""
    values = np.empty(len(arrays["values"]))
    values[_ids_by_position(arrays)] = arrays["values"]
    return values


def _ids_by_position(arrays: Mapping[str, NDArray[Any]]) -> NDArray[np.int64]:
    ids = np.arange(len(arrays["length"]))
    ids[: len(arrays["ids"])] = arrays["ids"]
    return ids


def _packed_starts(lengths: NDArray[np.int32]) -> tuple[NDArray[np.int64], int]:
    """The first slot of each row, and the number of all slots."""
    ends = np.cumsum(-(-lengths.astype(np.int64) // ALIGNMENT) * ALIGNMENT)
    return np.concatenate([[0], ends[:-1]]).astype(np.int64), int(ends[-1]) if len(ends) else 0


def _slots(starts: NDArray[np.int64], lengths: NDArray[np.int32]) -> NDArray[np.int64]:
    """The slots of the entries of rows, row after row."""
    counts = lengths.astype(np.int64)
    skipped = starts - (np.cumsum(counts) - counts)
    slots: NDArray[np.int64] = np.arange(int(counts.sum())) + np.repeat(skipped, counts)
    return slots
