"""Random batches: updates of a graph, and streams in time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate.graphs import Edges, check_count
from liverank_gpu.native import kernels
from liverank_gpu.operations.generate import LIFETIME_SEQUENCE, NEIGHBOUR_SEQUENCE, sequence_start
from liverank_gpu.types import EdgeBatch

# ---- random updates of a graph: edges come and go, vertices stay ----

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


# ---- a stream in which vertices arrive and leave ----


def temporal_stream(
    *,
    arrivals: int,
    edges_per_vertex: int,
    lifetime: float,
    batches: int,
    seed: int = 0,
) -> Iterator[EdgeBatch]:
    """`batches` batches, each of which adds `arrivals` vertices and takes away those whose time is
    over.

    Vertices are numbered as they arrive. Each draws `edges_per_vertex` out-neighbours uniformly
    among the vertices that are alive when its batch begins; repeats count once, and the first
    vertices have none. A vertex lives for a geometrically distributed number of batches with mean
    `lifetime`, so that about arrivals · lifetime are alive in the long run. The engine does not
    remove vertices: one that leaves loses all its edges, out-edges and in-edges, and keeps its id.
    A batch deletes the edges of those that leave, inserts those of the arrivals, and raises the
    number of vertices. No edge is ever inserted twice or deleted twice.

    lifetime  batches, at least 1
    Raises InvalidValue.
    """
    for name, value in (
        ("arrivals", arrivals),
        ("edges_per_vertex", edges_per_vertex),
        ("batches", batches),
    ):
        check_count(name, value)
    check_count("arrivals · batches", arrivals * batches)
    if not lifetime >= 1.0:
        raise InvalidValue("lifetime", lifetime, "a number of at least 1")
    return _batches(arrivals, edges_per_vertex, lifetime, batches, seed)


def _batches(
    arrivals: int, edges_per_vertex: int, lifetime: float, batches: int, seed: int
) -> Iterator[EdgeBatch]:
    lifetimes = sequence_start(seed, LIFETIME_SEQUENCE)
    neighbours = sequence_start(seed, NEIGHBOUR_SEQUENCE)
    nothing = np.empty(0, np.int64)
    alive, leaves = nothing, nothing  # ids in ascending order, and the batch in which each leaves
    edges = np.empty((3, 0), np.int64)  # source, target, and the batch in which an end leaves
    for batch in range(batches):
        staying = leaves > batch
        alive, leaves = alive[staying], leaves[staying]
        ending = edges[2] == batch
        deleted, edges = edges[:2, ending], edges[:, ~ending]
        ids = np.arange(batch * arrivals, (batch + 1) * arrivals)
        own_leaves = batch + _lifetimes(_numbers(lifetimes, ids[0], arrivals), lifetime)
        inserted = nothing, nothing
        if len(alive):
            skipped = ids[0] * edges_per_vertex
            numbers = _numbers(neighbours, skipped, arrivals * edges_per_vertex) >> np.uint64(33)
            places = (numbers * np.uint64(len(alive)) >> np.uint64(31)).astype(np.int64)
            # an arrival and a place in the list of the living, without repeats
            pairs = np.unique(np.repeat(np.arange(arrivals), edges_per_vertex) << 31 | places)
            arrival, place = pairs >> 31, pairs & (1 << 31) - 1
            inserted = ids[arrival], alive[place]
            ends = np.minimum(own_leaves[arrival], leaves[place])
            edges = np.concatenate([edges, np.stack([*inserted, ends])], axis=1)
        yield EdgeBatch(*inserted, deleted[0], deleted[1], int(ids[-1]) + 1)
        alive, leaves = np.concatenate([alive, ids]), np.concatenate([leaves, own_leaves])


def _numbers(start: np.uint64, skipped: int, count: int) -> NDArray[np.uint64]:
    numbers = np.empty(count, np.uint64)
    kernels.fill_random(start, skipped, numbers)
    return numbers


def _lifetimes(numbers: NDArray[np.uint64], mean: float) -> NDArray[np.int64]:
    """Geometric: at least 1, with this mean."""
    if mean == 1.0:
        return np.ones(len(numbers), np.int64)
    uniform = ((numbers >> np.uint64(11)) + np.uint64(1)) * 2.0**-53
    further = np.floor(np.log(uniform) / np.log1p(-1.0 / mean)).astype(np.int64)
    return np.asarray(1 + further)
