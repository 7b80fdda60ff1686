"""Chain-like graphs, as k-mer graphs of genomes are: long paths and few branches."""

from __future__ import annotations

import numpy as np

from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate.edges import Columns, check_count, check_probability, chosen
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.random_numbers import (
    BRANCH_SEQUENCE,
    BRANCH_TARGET_SEQUENCE,
    CHAIN_END_SEQUENCE,
    SHUFFLE_SEQUENCE,
    sequence_start,
    threshold,
)
from liverank_gpu.types import BackendName


def chains(
    vertices: int,
    *,
    length: float = 30.0,
    branching: float = 0.5,
    shuffle: bool = True,
    seed: int = 0,
    backend: BackendName | Backend = "cpu",
) -> Columns:
    """Paths of geometrically distributed length, whose ends may branch off other vertices. Every
    edge has its reverse.

    A vertex ends its path with probability 1/length, else it is joined to the next one. An end is
    joined to a uniformly chosen vertex with probability `branching`, unless that is itself or its
    predecessor. So most degrees are 2 and paths are long. `shuffle` relabels the vertices, so that
    neighbours on a path are not neighbours in memory. Returns sources and targets, int32[m], where
    `backend` computes: first the edges of paths and branches, then their reverses. No edge is
    repeated.

    length     mean number of vertices of a path, at least 1
    branching  from 0 to 1
    Raises InvalidValue and BackendUnavailable.
    """
    check_count("vertices", vertices)
    if not length >= 1.0:
        raise InvalidValue("length", length, "a number of at least 1")
    check_probability("branching", branching)
    device = chosen(backend)
    xp, eleven = device.xp, np.uint64(11)

    def numbers(sequence: int) -> Array:
        return device.generate.random_numbers(sequence_start(seed, sequence), 0, vertices)

    ends = numbers(CHAIN_END_SEQUENCE) >> eleven < threshold(1.0 / length)
    ends[-1:] = True
    branches = ends & (numbers(BRANCH_SEQUENCE) >> eleven < threshold(branching))
    inner, branching_off = xp.flatnonzero(~ends), xp.flatnonzero(branches)
    # 31 bits of a number times less than 2³¹ vertices: no product is too large
    drawn = numbers(BRANCH_TARGET_SEQUENCE)[branching_off] >> np.uint64(33)
    reached = (drawn * np.uint64(vertices) >> np.uint64(31)).astype(np.int64)
    # neither itself nor its predecessor, to which it may be joined already
    kept = (reached != branching_off) & (reached != branching_off - 1)
    # of two ends that branch to each other one edge is enough
    mutual = kept & branches[reached]
    target_of = xp.full(vertices, -1, np.int64)
    target_of[branching_off] = reached
    kept &= ~(mutual & (target_of[reached] == branching_off) & (reached < branching_off))
    first = xp.concatenate([inner, branching_off[kept]])
    second = xp.concatenate([inner + 1, reached[kept]])
    if shuffle:
        labels = xp.argsort(numbers(SHUFFLE_SEQUENCE), kind="stable")
        first, second = labels[first], labels[second]
    return tuple(
        xp.concatenate(halves).astype(np.int32) for halves in ((first, second), (second, first))
    )
