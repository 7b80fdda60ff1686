"""R-MAT: skewed degrees and short paths, like links between people or pages."""

from __future__ import annotations

import numpy as np

from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate.edges import Edges
from liverank_gpu.native import kernels
from liverank_gpu.random_numbers import (
    EDGE_SEQUENCE,
    LABEL_SEQUENCE,
    random_numbers,
    sequence_start,
)

RMAT_PROBABILITIES = (0.57, 0.19, 0.19, 0.05)
"""Of an edge lying in the upper left, upper right, lower left, lower right quarter of the
matrix.
"""


def rmat(scale: int, edges_per_vertex: int = 16, *, seed: int = 0, shuffle: bool = True) -> Edges:
    """A graph of 2^scale vertices with a skewed degree distribution, like links between people or
    pages.

    Returns sources and targets, int64[edges_per_vertex · 2^scale], in 0 … 2^scale - 1. Repeated
    edges and self-loops occur, as the model has it. `shuffle` relabels the vertices, so that an id
    says nothing of its degree. The same arguments give the same edges in the same order on any
    number of threads.

    Chakrabarti, Zhan and Faloutsos, "R-MAT: a recursive model for graph mining" (SDM 2004), with
    the quarter probabilities of the Graph500 specification (section 3.3).
    Raises InvalidValue for a scale out of 1 … 30 or fewer than one edge a vertex.
    """
    if not 1 <= scale <= 30:
        raise InvalidValue("scale", scale, "an integer from 1 to 30")
    if edges_per_vertex < 1:
        raise InvalidValue("edges_per_vertex", edges_per_vertex, "an integer of at least 1")
    vertices = 2**scale
    sources = np.empty(vertices * edges_per_vertex, np.int64)
    targets = np.empty_like(sources)
    thresholds = (np.cumsum(RMAT_PROBABILITIES[:3]) * 2.0**64).astype(np.uint64)
    start = sequence_start(seed, EDGE_SEQUENCE)
    kernels.draw_rmat(start, scale, thresholds, sources, targets)
    if shuffle:
        labels = np.argsort(random_numbers(seed, LABEL_SEQUENCE, vertices), kind="stable")
        sources, targets = labels[sources], labels[targets]
    return sources, targets
