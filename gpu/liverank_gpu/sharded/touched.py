"""What batches touched since the last solve, on one shard."""

from __future__ import annotations

from liverank_gpu.graph.vertex_ids import NO_IDS
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.update import GraphUpdate
from liverank_gpu.pagerank.frontier import TouchedVertices
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.numbering import Numbering


class ShardTouched:
    """The own sources that changed, and the targets of edges that are gone, which others may own.
    Columns are renumbered, so each batch's are kept with their numbering.
    """

    def __init__(self, backend: Backend, communicator: Communicator) -> None:
        self._backend, self._communicator = backend, communicator
        self._sources: list[Array] = []
        self._targets: list[tuple[Numbering, Array]] = []

    def add(self, update: GraphUpdate, numbering: Numbering) -> None:
        """Records a batch, which all shards have taken: this allocates nothing, so it cannot fail.

        numbering  of the columns that the update names
        """
        self._sources.append(update.sources)
        self._targets.append((numbering, update.removed_targets))

    def clear(self) -> None:
        """Forgets all batches."""
        self._sources, self._targets = [], []

    def exchanged(self, numbering: Numbering) -> TouchedVertices:
        """As rows of their owners. All shards call it together."""
        xp = self._backend.xp
        touched = TouchedVertices()
        of_each = [numbered.positions_at(columns, xp) for numbered, columns in self._targets]
        positions = xp.unique(xp.concatenate([xp.asarray(NO_IDS), *of_each]))
        owners, rows = numbering.owners(positions), numbering.rows_of(positions)
        sent = [rows[owners == rank] for rank in range(numbering.size)]
        touched.removed_targets = [xp.concatenate(self._communicator.all_to_all(sent))]
        touched.sources = [xp.zeros(0, "int32"), *self._sources]
        return touched
