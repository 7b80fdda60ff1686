"""The order in which vertices whose edges are in a file are ranked
(liverank_gpu.graph.permutation).

A pass reads one number of a vertex for each of its out-edges, so the vertices with most of them are
adjacent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends import host_backend
from liverank_gpu.graph import permutation
from liverank_gpu.graph.permutation import (
    VertexPermutation,
    by_descending_degree,
    cache_lines_of_chunks,
)
from liverank_gpu.types import VertexOrder

Ends = tuple[NDArray[np.int64], NDArray[np.int64]]

_SAMPLED_PART = 16
"""A window of the sample is this part of the vertices at most, so that it takes less memory than
their values.
"""


def chosen_order(
    order: VertexOrder,
    out_degree: NDArray[np.int32],
    in_degree: NDArray[np.int64],
    pieces: Callable[[], Iterator[Ends]],
) -> NDArray[np.int32]:
    """int32[n], the id at each position; int32[0] for the order as given.

    out_degree, in_degree  of each id, repeats of edges included
    pieces                 sources and targets of all edges, in any order; it may be called twice
    """
    as_given = np.empty(0, np.int32)
    edges = int(in_degree.sum())
    small = min(len(in_degree), edges) < permutation.LEAST_PERMUTED
    if order == "given" or (order == "auto" and small):
        return as_given
    by_degree: NDArray[np.int32] = by_descending_degree(np, out_degree)
    if order == "degree":
        return by_degree
    backend, longest = host_backend(), max(1, len(in_degree) // _SAMPLED_PART)
    before, after = (
        cache_lines_of_chunks(
            backend, VertexPermutation(backend, ids), pieces(), edges, in_degree, longest
        )
        for ids in (None, by_degree)
    )
    return by_degree if after < permutation.GAIN * before else as_given
