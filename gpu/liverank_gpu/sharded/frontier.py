"""Sets of own vertices, and how they grow along the edges of all shards."""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.frontier import FrontierOperations
from liverank_gpu.sharded.columns import Columns


class ShardedFrontier(FrontierOperations):
    """See FrontierOperations. Vertices and flags are own ones, and so is what is returned; all
    shards call these together, also where one has no vertices.
    """

    def __init__(self, local: Backend, columns: Columns) -> None:
        self._local, self._columns = local, columns
        self._flags = local.xp.zeros(0, np.int32)

    def rows_of(self, vertices: Array, row_lengths: Array) -> Rows:
        return self._local.frontier.rows_of(vertices, row_lengths)

    def expand_forward(self, graph: GraphView, vertices: Array, flags: Array) -> Array:
        found = self.targets(graph, vertices)
        fresh = found[flags[found] == 0]
        flags[fresh] = 1
        return fresh

    def targets(self, graph: GraphView, vertices: Array) -> Array:
        """int32[…], distinct: the own vertices that any of these is followed by, on all shards."""
        # after an error in between they are not all 0, and other ones follow
        flags, self._flags = self._flags, self._local.xp.zeros(0, np.int32)
        count = self._columns.numbering.columns
        if len(flags) != count:
            flags = self._local.xp.zeros(count, np.int32)
        columns = self._local.frontier.expand_forward(graph, vertices, flags)
        flags[columns] = 0
        self._flags = flags
        return self._columns.sent(columns)

    def expand_backward(self, graph: GraphView, rows: Rows, frontier: Array, flags: Array) -> Array:
        everywhere = self._columns.gathered(frontier)
        return self._local.frontier.expand_backward(graph, rows, everywhere, flags)
