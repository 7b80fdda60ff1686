"""Where the edges of a batch go: each operation on (u,v) to the owners of u and of v.

A key (liverank_gpu.operations.graph) has the row and the column of an operation. On its way it has
their positions instead, which mean the same on all shards.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from liverank_gpu.graph.arcs import Arcs
from liverank_gpu.graph.permutation import VertexPermutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import SortedKeys
from liverank_gpu.operations.update import INSERT, NEIGHBOUR
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.numbering import Numbering

CHUNK = 1 << 21
"""Operations whose keys are made, or numbered, at once."""


def chunks(operations: int, at_once: int = 0) -> Iterator[slice]:
    """So many operations, CHUNK at a time, or `at_once` if that is more."""
    step = max(CHUNK, at_once)
    for begin in range(0, operations, step):
        yield slice(begin, begin + step)


@dataclass(frozen=True, slots=True)
class Router:
    """Sends the operations of this shard's slice, and receives those on own lists."""

    backend: Backend
    communicator: Communicator
    numbering: Numbering
    permutation: VertexPermutation

    def route(self, arcs: Arcs, id_limit: int) -> tuple[SortedKeys, SortedKeys]:
        """The operations on own out-lists and on own in-lists, from all slices.

        id_limit  of the graph before the batch
        """
        xp, operations = self.backend.xp, self.backend.xp.zeros(len(arcs), np.int64)
        operations[arcs.deletions :] = INSERT
        sources, targets = (
            xp.concatenate([xp.asarray(columns[end], np.int64) for _, *columns in arcs.columns])
            for end in range(2)
        )
        # a deletion that names an id which the graph does not have finds nothing
        lowest, highest = xp.minimum(sources, targets), xp.maximum(sources, targets)
        known = (lowest >= 0) & (highest < id_limit) | (operations == INSERT)
        sources, targets = (
            self.permutation.positions_of(xp.where(known, ids, 0)) for ids in (sources, targets)
        )
        weights = arcs.operation_weights(self.backend)
        outgoing = self._sent(sources, targets, operations, weights, known)
        # of a loop, the flag is with the out-list
        known &= sources != targets
        return outgoing, self._sent(targets, sources, operations, weights, known)

    def _sent(
        self, rows: Array, neighbours: Array, operations: Array, weights: Array | None, kept: Array
    ) -> SortedKeys:
        """Sends operations to the owners of the rows. Returns those on own rows."""
        xp, numbering = self.backend.xp, self.numbering
        owners, keys = numbering.owners(rows), rows << 32 | neighbours << 1 | operations
        places = [xp.flatnonzero(kept & (owners == rank)) for rank in range(numbering.size)]
        parts = [keys[chosen] for chosen in places]
        of_keys = None if weights is None else [weights[chosen] for chosen in places]
        return self.backend.graph.sort(*self.exchanged(parts, of_keys))

    def exchanged(
        self, keys: list[Array], weights: list[Array] | None = None
    ) -> tuple[Array, Array | None]:
        """Sends keys[k] to shard k, which owns their rows. Returns those on own rows, with rows and
        columns in place of positions, and their weights: by rank, and as they were sent.

        keys     int64[…] of each shard; spent
        weights  float32[…], of the keys
        """
        xp, numbering, all_to_all = self.backend.xp, self.numbering, self.communicator.all_to_all
        received = xp.concatenate(all_to_all(keys))
        keys.clear()
        for chunk in chunks(len(received)):
            some = received[chunk]
            columns = numbering.columns_of(some >> 1 & NEIGHBOUR, xp)
            received[chunk] = numbering.rows_of(some >> 32) << 32 | columns << 1 | some & INSERT
        return received, None if weights is None else xp.concatenate(all_to_all(weights))
