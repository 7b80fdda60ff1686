"""Which insertion of a batch makes a sum of weights exceed float32, if the batch is in slices."""

from __future__ import annotations

import numpy as np

from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.arcs import Arcs, weight_exceeded
from liverank_gpu.graph.permutation import VertexPermutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.update import NEIGHBOUR
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.numbering import Numbering
from liverank_gpu.types import EdgeBatch


def exceeded_weight(
    backend: Backend,
    communicator: Communicator,
    numbering: Numbering,
    permutation: VertexPermutation,
    keys: Array,
    arcs: Arcs,
    batch: EdgeBatch,
    first: int,
) -> InvalidValue:
    """The error, the same on all shards, which call it together. It names the last insertion of the
    first edge that exceeds.

    permutation  that of the batch
    keys         int64[1 or 0], of the first such edge in own out-lists
    arcs, batch  of the slice of this shard; first: place of its first insertion in the batch
    """
    xp, device = backend.xp, backend.device
    columns = (keys >> 1 & NEIGHBOUR).astype(np.int32)
    own = numbering.positions_of(keys >> 32) << 32 | numbering.positions_at(columns, xp)
    edge = int(device.to_host(communicator.united(own, xp)).min())
    source, target = permutation.ids_of(np.array([edge >> 32, edge & 0xFFFFFFFF])).tolist()
    sources, targets = arcs.insert
    found = device.to_host(xp.flatnonzero(xp.asarray((sources == source) & (targets == target))))
    place, weight = -1, 0.0
    if len(found):
        own_place = arcs.place_in_batch(backend, batch, int(found[-1]))
        place = first + own_place
        weight = 1.0 if batch.weights is None else float(batch.weights[own_place])
    table = communicator.gather([place, weight])
    last = table[int(table[:, 0].argmax())]
    return weight_exceeded(int(last[0]), float(last[1]))
