"""The snapshot (liverank_gpu.snapshot) of a graph in shards, and a graph in shards from a snapshot.

The snapshot is as one device would write it, so that any number of shards, or none, can open it:
the lists of all shards, merged by position. Every shard keeps a copy of its lists, which the caller
fetches and merges in pieces of PIECE_SLOTS slots: its own memory need not hold all edges. Shards do
not write files, which may be on another host, and parts by shard would have to be merged when
another number of shards opens them. Arrays over vertices are not in pieces: they are about as large
as the ranks, which the caller has too.

    capture = ShardedCapture(workers, …)      every shard copies its lists, after an `update`
    capture.piece("neighbours", 0)            slots of all shards; batches may have followed
    capture.release()                         the shards free their copies
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.vertex_ids import NO_IDS, VertexIds
from liverank_gpu.sharded.list_layout import ListLayout
from liverank_gpu.sharded.shard import ShardRows
from liverank_gpu.sharded.workers import Workers
from liverank_gpu.types import Change

PIECE_SLOTS = 1 << 21
"""8 MiB of neighbours. Merging them takes about ten times as much memory of the caller."""


class ShardedCapture:
    """The state of one moment, which later batches do not change. Not thread-safe: for the owner
    of the engine, until the next capture replaces the copies.

    arrays, numbers  see liverank_gpu.snapshot.Snapshot; without the arrays that are in pieces
    lists            the names of those: ``neighbours``, and ``weights`` if the graph has them
    pieces           the number of pieces of each of them, at least 1
    """

    def __init__(
        self,
        workers: Workers,
        order: NDArray[np.int64],
        ids: VertexIds,
        edges: int,
        error_bound: float,
        weighted: bool,
    ) -> None:
        """order  VertexPermutation.ids. Raises OutOfMemory, ShardLost."""
        self._workers = workers
        parts: list[ShardRows] = self._workers.everywhere("capture")
        lengths = by_position([part.lengths for part in parts])
        self.arrays: dict[str, NDArray[Any]] = {
            "ids": order.astype(np.int32),
            "length": lengths,
            "loop": by_position([part.loop for part in parts]),
            "values": by_position([part.values for part in parts]),
            **parts[0].decay,
        }
        if ids.free_count:
            self.arrays["free"] = ids.free().astype(np.int32)
        self.numbers = {
            "edges": edges,
            "base": parts[0].rhs_scale,
            "total": parts[0].mass,
            "error_bound": error_bound,
        }
        self.lists = ("neighbours", "weights") if weighted else ("neighbours",)
        self._layout = ListLayout(lengths, workers.size)
        self.pieces = max(1, -(-self._layout.slots // PIECE_SLOTS))

    def piece(self, name: str, index: int) -> NDArray[Any]:
        """One piece of ``neighbours``, int32[…], or of ``weights``, float32[…]; its index is below
        `pieces`. Raises ShardLost.
        """
        first = index * PIECE_SLOTS
        end = min(first + PIECE_SLOTS, self._layout.slots)
        places = [self._layout.places(each, first, end) for each in range(self._workers.size)]
        parts = self._workers.call("entries", [(name, each.first, each.end) for each in places])
        piece = np.zeros(end - first, np.float32 if name == "weights" else np.int32)
        for (_, _, slots), part in zip(places, parts, strict=True):
            piece[slots] = part
        return piece

    def release(self) -> None:
        """Frees the copies. Raises ShardLost."""
        self._workers.everywhere("release")


def restore_shards(
    workers: Workers, arrays: Mapping[str, NDArray[Any]], numbers: Mapping[str, float]
) -> Change:
    """Brings empty shards to the state of a snapshot. Returns the counts of inserting its edges.

    arrays, numbers  see liverank_gpu.snapshot.Snapshot; of mapped arrays, the lists are read in
                     pieces
    Raises InvalidValue, OutOfMemory, ShardLost.
    """
    lengths, size = arrays["length"], workers.size
    layout, shards = ListLayout(lengths, size), range(size)
    order = arrays["ids"] if numbers["edges"] or len(arrays["ids"]) else None
    workers.call(
        "begin_restore", [(order, lengths[k::size], arrays["loop"][k::size]) for k in shards]
    )
    lists = [arrays[name] for name in ("neighbours", "weights") if name in arrays]
    for first in range(0, layout.slots, PIECE_SLOTS):
        end = min(first + PIECE_SLOTS, layout.slots)
        places = [layout.places(k, first, end).slots for k in shards]
        workers.call("receive", [tuple(each[first:end][own] for each in lists) for own in places])
    free, values = arrays.get("free", NO_IDS), arrays["values"]
    decay = (arrays["exponents"], arrays["newest"]) if "exponents" in arrays else None
    state = (free, len(lengths), numbers["base"], numbers["total"], decay)
    change: Change = workers.call("restore", [(values[k::size], *state) for k in shards])[0]
    return change


def by_position(columns: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """One array over positions from those over the rows of each shard, by rank."""
    whole = np.empty(sum(map(len, columns)), columns[0].dtype)
    for rank, column in enumerate(columns):
        whole[rank :: len(columns)] = column
    return whole
