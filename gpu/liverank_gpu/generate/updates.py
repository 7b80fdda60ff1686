"""Random updates of a graph: edges come and go, vertices stay."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate.edges import Edges
from liverank_gpu.types import EdgeBatch

INSERTED_SHARE = 0.8
"""The share of insertions in a batch of `update_stream`; the others are deletions."""


def update_stream(
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    vertices: int,
    *,
    size: int,
    batches: int,
    seed: int = 0,
    arrivals: Edges | None = None,
) -> Iterator[EdgeBatch]:
    """Batches of `size` edges that change the graph of these edges: 80 % insertions, 20 %
    deletions.

    Insertions are pairs of vertices with equal probability (some may be present already) or, where
    `arrivals` are given, those edges in their order; deletions are distinct edges that exist when
    the batch arrives, each with equal probability. No vertex is added or removed. Each batch is
    meant to be applied before the next; one batch of the stream is the random update of Sahu,
    "Efficient GPU implementation of static and incrementally expanding DF-P PageRank", section
    5.1.4. The stream ends early where `arrivals` do.

    sources, targets   int64[m] in 0 … vertices - 1, the graph before the first batch; repeats count
                       once
    Raises InvalidValue for a size below 1 or no vertices.
    """
    if size < 1:
        raise InvalidValue("size", size, "an integer of at least 1")
    if vertices < 1:
        raise InvalidValue("vertices", vertices, "an integer of at least 1")
    generator = np.random.Generator(np.random.Philox(seed))
    insertions = round(size * INSERTED_SHARE)
    # One 64-bit number an edge: sorted, searched and joined as a set; below 2⁶² since ids are below
    # 2³¹.
    present = np.unique(sources * vertices + targets)
    for batch in range(batches):
        if arrivals is None:
            insert_sources = generator.integers(vertices, size=insertions)
            insert_targets = generator.integers(vertices, size=insertions)
        else:
            window = slice(batch * insertions, (batch + 1) * insertions)
            insert_sources, insert_targets = arrivals[0][window], arrivals[1][window]
            if len(insert_sources) < insertions:
                return
        deletions = min(size - insertions, len(present))
        deleted = generator.choice(present, deletions, replace=False)
        yield EdgeBatch(insert_sources, insert_targets, deleted // vertices, deleted % vertices)
        present = np.union1d(
            np.setdiff1d(present, deleted, assume_unique=True),
            insert_sources * vertices + insert_targets,
        )
