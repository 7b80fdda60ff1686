"""The vertices that a batch removes from a graph in shards, and the edges that go with them."""

from __future__ import annotations

import numpy as np

from liverank_gpu.graph.rows import rows_of
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.sharded.numbering import Numbering


def removed_arcs(
    backend: Backend,
    numbering: Numbering,
    removed: Array,
    outgoing: Csr,
    incoming: Csr,
    loop: Array | None,
) -> tuple[Array, Array, int]:
    """Positions of sources and targets, int64[k] each, of arcs from or to removed vertices, and how
    many are loops: arcs in the out-lists of own removed vertices, and arcs in their in-lists whose
    source stays. So one shard names each arc.

    removed  integer[r], positions of the removed vertices of all shards
    loop     see GraphView; None if loops cannot be deleted
    """
    xp = backend.xp
    own = removed[numbering.owners(removed) == numbering.rank]
    if len(own) == 0:
        nothing = xp.empty(0, np.int64)
        return nothing, nothing, 0
    rows = xp.sort(numbering.rows_of(own)).astype(np.int32)
    leaving, arriving = (rows_of(backend, csr, rows) for csr in (outgoing, incoming))
    origins = numbering.positions_at(arriving.neighbours, xp)
    stays = ~xp.isin(origins, removed)
    loops = rows[:0] if loop is None else rows[loop[rows] != 0]
    of_loops = numbering.positions_of(loops)
    sources = [numbering.positions_of(leaving.rows), origins[stays], of_loops]
    ends = numbering.positions_at(leaving.neighbours, xp)
    targets = [ends, numbering.positions_of(arriving.rows[stays]), of_loops]
    return xp.concatenate(sources), xp.concatenate(targets), len(loops)
