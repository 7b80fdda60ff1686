"""What batches touched since the last solve, on one shard."""

from __future__ import annotations

from gpu.graph.vertex_ids import NO_IDS
from gpu.operations.backend import Backend
from gpu.operations.device import Array
from gpu.operations.update import GraphUpdate
from gpu.pagerank.frontier import TouchedVertices
from gpu.sharded.communicator import Communicator
from gpu.sharded.numbering import Numbering


class ShardTouched:
    """The own sources that changed, and the targets of edges that are gone, which others may own:
    by position, since columns are renumbered.
    """

    def __init__(self, backend: Backend, communicator: Communicator) -> None:
        self._backend, self._communicator = backend, communicator
        self._sources: list[Array] = []
        self._targets: list[Array] = []

    def add(self, update: GraphUpdate, numbering: Numbering) -> None:
        """Records a batch."""
        xp = self._backend.xp
        positions = numbering.positions_at(update.removed_targets, xp)
        self._sources.append(update.sources)
        self._targets.append(xp.unique(positions))

    def clear(self) -> None:
        """Forgets all batches."""
        self._sources, self._targets = [], []

    def exchanged(self, numbering: Numbering) -> TouchedVertices:
        """As rows of their owners. All shards call it together."""
        xp = self._backend.xp
        touched = TouchedVertices()
        positions = xp.unique(xp.concatenate([xp.asarray(NO_IDS), *self._targets]))
        owners, rows = numbering.owners(positions), numbering.rows_of(positions)
        sent = [rows[owners == rank] for rank in range(numbering.size)]
        touched.removed_targets = [xp.concatenate(self._communicator.all_to_all(sent))]
        none = xp.zeros(0, "int32")
        touched.sources = [xp.concatenate([none, *self._sources])]
        return touched
