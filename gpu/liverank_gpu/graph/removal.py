"""The vertices that a batch removes, and the edges that go with them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.permutation import VertexPermutation
from liverank_gpu.graph.rows import rows_of
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array


@dataclass(frozen=True, slots=True)
class Removal:
    """What `EdgeBatch.remove` means for a graph.

    vertices  int64[r] on the host, distinct ids of vertices, ascending
    arcs      ids of sources and targets, int32[k] each on the device: every arc from or to these
              vertices, once
    edges     number of edges that these are
    """

    vertices: NDArray[np.int64]
    arcs: tuple[Array, Array]
    edges: int

    @classmethod
    def of(
        cls,
        backend: Backend,
        vertices: NDArray[np.int64],
        permutation: VertexPermutation,
        outgoing: Csr,
        incoming: Csr,
        loop: Array | None,
        directed: bool,
    ) -> Removal:
        """loop  see GraphView; None if loops cannot be deleted"""
        xp = backend.xp
        rows = xp.sort(permutation.positions_of(vertices)).astype(np.int32)
        leaving, arriving = (rows_of(backend, csr, rows) for csr in (outgoing, incoming))
        # an arc between two of them is in both lists
        nearest = xp.minimum(xp.searchsorted(rows, arriving.neighbours), max(0, len(rows) - 1))
        others = rows[nearest] != arriving.neighbours
        loops = rows[:0] if loop is None else rows[loop[rows] != 0]
        sources = xp.concatenate([leaving.rows, arriving.neighbours[others], loops])
        targets = xp.concatenate([leaving.neighbours, arriving.rows[others], loops])
        arcs = len(sources) - len(loops)
        return cls(
            vertices,
            (permutation.to_ids(sources), permutation.to_ids(targets)),
            (arcs if directed else arcs // 2) + len(loops),
        )
