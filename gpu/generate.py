"""Graphs and update streams from a seed.

    sources, targets = rmat(scale=16, edges_per_vertex=16, seed=7)
    for batch in update_stream(sources, targets, 2**16, size=1_000, batches=100, seed=7):
        engine.apply(batch)

The graphs come from counter-based random numbers: number i of a seed is a function of (seed, i) and
of nothing else, so that an edge is the same whichever thread draws it, and in whatever order.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from numba import njit, prange
from numpy.typing import NDArray

from gpu.errors import InvalidValue
from gpu.jit.threads import one_parallel_kernel
from gpu.types import VERTEX_LIMIT, EdgeBatch

Edges = tuple[NDArray[np.int64], NDArray[np.int64]]
"""Sources and targets, int64[m] each."""

RMAT_PROBABILITIES = (0.57, 0.19, 0.19, 0.05)
"""Of an edge lying in the upper left, upper right, lower left, lower right quarter of the
matrix.
"""

INSERTED_SHARE = 0.8
"""The share of insertions in a batch of `update_stream`; the others are deletions."""

# Independent sequences of one seed: each purpose draws from its own.
EDGE_SEQUENCE, LABEL_SEQUENCE, KEEP_SEQUENCE = 1, 2, 3

GOLDEN_GAMMA = np.uint64(0x9E3779B97F4A7C15)
MIX_FIRST, MIX_SECOND = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
SHIFT_30, SHIFT_27, SHIFT_31 = np.uint64(30), np.uint64(27), np.uint64(31)


def _mix_reference(state: np.uint64) -> np.uint64:
    """The output function of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014, figure 16)."""
    state = (state ^ (state >> SHIFT_30)) * MIX_FIRST
    state = (state ^ (state >> SHIFT_27)) * MIX_SECOND
    return state ^ (state >> SHIFT_31)


_mix = njit(cache=True, inline="always")(_mix_reference)


@njit(parallel=True, cache=True)
def _random_numbers(start: np.uint64, numbers: NDArray[np.uint64]) -> None:
    """Fills `numbers` with numbers 0 … of the sequence that begins at `start`."""
    for index in prange(len(numbers)):
        numbers[index] = _mix(start + np.uint64(index + 1) * GOLDEN_GAMMA)


@njit(parallel=True, cache=True)
def _rmat_edges(
    start: np.uint64,
    scale: int,
    thresholds: NDArray[np.uint64],
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
) -> None:
    """Each edge descends `scale` levels into the quarter that its random number of the level
    names.
    """
    for edge in prange(len(sources)):
        source = 0
        target = 0
        for level in range(scale):
            number = _mix(start + np.uint64(edge * scale + level + 1) * GOLDEN_GAMMA)
            lower = number >= thresholds[1]
            right = thresholds[0] <= number < thresholds[1] or number >= thresholds[2]
            source = source * 2 + (1 if lower else 0)
            target = target * 2 + (1 if right else 0)
        sources[edge] = source
        targets[edge] = target


def _sequence_start(seed: int, sequence: int) -> np.uint64:
    with np.errstate(over="ignore"):  # arithmetic modulo 2⁶⁴ is what SplitMix64 is made of
        start = _mix_reference(np.uint64(seed % 2**64) + np.uint64(sequence) * GOLDEN_GAMMA)
    return np.uint64(start)


def _numbers(seed: int, sequence: int, count: int) -> NDArray[np.uint64]:
    numbers = np.empty(count, np.uint64)
    with one_parallel_kernel:
        _random_numbers(_sequence_start(seed, sequence), numbers)
    return numbers


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
    with one_parallel_kernel:
        _rmat_edges(_sequence_start(seed, EDGE_SEQUENCE), scale, thresholds, sources, targets)
    if shuffle:
        labels = np.argsort(_numbers(seed, LABEL_SEQUENCE, vertices), kind="stable")
        sources, targets = labels[sources], labels[targets]
    return sources, targets


def grid(rows: int, columns: int, *, keep: float = 1.0, seed: int = 0) -> Edges:
    """A grid in which every vertex is joined to its four neighbours in both directions, like
    streets.

    Vertex `row · columns + column`. A joint (both of its edges) is kept with probability `keep`, so
    that a value below 1 leaves dead ends and detours as in road networks: low degrees and long
    paths, where R-MAT has hubs and short ones. Returns sources and targets, int64[m], without
    repeats; m = 2 · (rows · (columns - 1) + (rows - 1) · columns) where all are kept.

    Raises InvalidValue for less than one row or column, more vertices than ids, or keep out of (0,
    1].
    """
    for name, count in (("rows", rows), ("columns", columns)):
        if count < 1:
            raise InvalidValue(name, count, "an integer of at least 1")
    if rows * columns > VERTEX_LIMIT:
        raise InvalidValue("rows · columns", rows * columns, f"at most {VERTEX_LIMIT}")
    if not 0.0 < keep <= 1.0:
        raise InvalidValue("keep", keep, "a number above 0 and at most 1")
    ids = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    first = np.concatenate([ids[:, :-1].ravel(), ids[:-1, :].ravel()])
    second = np.concatenate([ids[:, 1:].ravel(), ids[1:, :].ravel()])
    if keep < 1.0:
        kept = _numbers(seed, KEEP_SEQUENCE, len(first)) < np.uint64(keep * 2.0**64)
        first, second = first[kept], second[kept]
    return np.concatenate([first, second]), np.concatenate([second, first])


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
