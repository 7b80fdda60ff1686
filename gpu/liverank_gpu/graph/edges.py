"""The edges of a graph as columns."""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.rebuild import Entries


def edges_on_device(backend: Backend, outgoing: Csr, loop: Array | None, directed: bool) -> Entries:
    """Positions of sources and targets, and weights: sources ascend, then the loops. Of an
    undirected edge, only the arc whose source has the lower position.

    loop  see GraphView; None to leave the loops out
    """
    xp, entries = backend.xp, backend.rebuild.entries(outgoing)
    if not directed:
        chosen = entries.rows < entries.neighbours
        entries = Entries(*(None if column is None else column[chosen] for column in entries))
    if loop is None:
        return entries
    loops = xp.flatnonzero(loop).astype(np.int32)
    rows, neighbours = (xp.concatenate([column, loops]) for column in entries[:2])
    weights = entries.weights
    if weights is not None:
        weights = xp.concatenate([weights, loop[loops]])
    return Entries(rows, neighbours, weights)
