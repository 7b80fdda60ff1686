"""Graphs and batches that benchmarks run on, drawn from a seed on the device.

R-MAT has the parameters of Graph500. Batches are 80 % insertions, drawn as the graph was, and 20 %
deletions of its edges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from liverank_gpu import BackendName, EdgeBatch, generate
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array

EDGES_PER_VERTEX = 16
"""Of an R-MAT graph, repeats included."""

Columns = tuple[Array, Array]
"""Sources and targets, int32[m] each, on the device."""


def rmat(xp: Any, random: Any, scale: int, edges: int) -> Columns:
    """`edges` edges between 2^scale vertices, repeats and loops included."""
    sources, targets = xp.zeros(edges, np.int32), xp.zeros(edges, np.int32)
    for _ in range(scale):
        quadrant = random.random(edges)
        sources = 2 * sources + (quadrant >= 0.76)
        targets = 2 * targets + (((quadrant >= 0.57) & (quadrant < 0.76)) | (quadrant >= 0.95))
    return sources, targets


_CHUNK = 1 << 26

_SHUFFLED_RMAT = """
    unsigned long long source = 0, target = 0;
    for (int level = 0; level < scale; ++level) {
        unsigned long long x = seed + (first + i) * 32 + level;
        x += 0x9e3779b97f4a7c15ull;
        x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9ull;
        x = (x ^ x >> 27) * 0x94d049bb133111ebull;
        const double u = ((x ^ x >> 31) >> 11) * 0x1p-53;
        source = source * 2 + (u >= 0.76);
        target = target * 2 + (u >= 0.57 && u < 0.76 || u >= 0.95);
    }
    // a bijection of scale bits, so that an id says nothing of its degree
    const unsigned long long mask = (1ull << scale) - 1;
    for (int round = 0; round < 3; ++round) {
        source = source * 0x9e3779b97f4a7c15ull & mask; source ^= source >> (scale / 2);
        target = target * 0x9e3779b97f4a7c15ull & mask; target ^= target >> (scale / 2);
    }
    sources = (int)source;
    targets = (int)target;
"""


def shuffled_rmat(
    backend: Backend, scale: int, edges: int, seed: int = 1, part: slice = slice(None)
) -> Columns:
    """`rmat` with shuffled labels, or a part of its edges. On ``cuda`` edges are drawn in place,
    and those outside the part are not: 1e9 need no scratch.
    """
    xp = backend.xp
    begin, end, _ = part.indices(edges)
    if xp is np:
        generator = np.random.Generator(np.random.Philox(seed))
        drawn = rmat(np, generator, scale, edges)
        labels = generator.permutation(1 << scale).astype(np.int32)
        return labels[drawn[0][part]], labels[drawn[1][part]]
    sources, targets = xp.empty(end - begin, np.int32), xp.empty(end - begin, np.int32)
    draw = xp.ElementwiseKernel(
        "int64 first, uint64 seed, int32 scale",
        "int32 sources, int32 targets",
        _SHUFFLED_RMAT,
        "rmat",
    )
    for first in range(0, end - begin, _CHUNK):
        chunk = slice(first, first + _CHUNK)
        draw(begin + first, seed << 40, scale, sources[chunk], targets[chunk])
    return sources, targets


def grid(xp: Any, side: int) -> Columns:
    """The 4·side·(side-1) edges of a square grid, each two neighbours linked both ways."""
    v = xp.arange(side * side, dtype=np.int32)
    right, down = v[v % side < side - 1], v[v < side * (side - 1)]
    return (
        xp.concatenate([right, right + 1, down, down + side]),
        xp.concatenate([right + 1, right, down + side, down]),
    )


@dataclass(frozen=True, slots=True)
class Drawn:
    """A graph, and a way to draw more edges like its own.

    sources, targets  int32[m], on the device
    draw              draws this many more edges
    """

    vertices: int
    sources: Array
    targets: Array
    draw: Callable[[int], Columns]

    @property
    def load(self) -> EdgeBatch:
        """All edges, in columns on the device."""
        return EdgeBatch(self.sources, self.targets, vertices=self.vertices)

    def batches(
        self, generator: np.random.Generator, size: int, to_host: Callable[[Array], Array]
    ) -> Iterator[EdgeBatch]:
        """Endless batches of `size` edges; `generator` draws the deletions. `to_host` moves the
        columns, or leaves them on the device.
        """
        insertions = size * 4 // 5
        while True:
            new = self.draw(insertions)
            gone = generator.integers(0, len(self.sources), size - insertions)
            yield EdgeBatch(
                to_host(new[0]),
                to_host(new[1]),
                to_host(self.sources[gone]),
                to_host(self.targets[gone]),
            )


def random_batches(
    first: EdgeBatch, size: int, count: int, generator: np.random.Generator
) -> list[EdgeBatch]:
    """Batches on the host for a graph of these edges: insertions between vertices drawn uniformly,
    and deletions of edges drawn uniformly.
    """
    deletions = size - size * 4 // 5
    new = generator.integers(0, first.vertices, (2, count, size - deletions))
    chosen = generator.integers(0, len(first.insert_sources), (count, deletions))
    gone = []
    for column in (first.insert_sources, first.insert_targets):
        taken: Any = column[chosen.ravel()]
        host = taken.get() if hasattr(taken, "get") else taken
        gone.append(host.astype(np.int64).reshape(count, deletions))
    return [EdgeBatch(new[0, i], new[1, i], gone[0][i], gone[1][i]) for i in range(count)]


def drawn_rmat(xp: Any, random: Any, scale: int) -> Drawn:
    """R-MAT; further edges are drawn as those of the graph."""

    def draw(edges: int) -> Columns:
        return rmat(xp, random, scale, edges)

    return Drawn(1 << scale, *draw(EDGES_PER_VERTEX << scale), draw)


def drawn_grid(xp: Any, random: Any, side: int) -> Drawn:
    """A grid; further edges join vertices drawn uniformly."""
    vertices = side * side

    def draw(edges: int) -> Columns:
        ends = [random.integers(0, vertices, edges).astype(np.int32) for _ in range(2)]
        return ends[0], ends[1]

    return Drawn(vertices, *grid(xp, side), draw)


GENERATED = ("R-MAT", "grid", "chains", "preferential attachment")


def generated(name: str, scale: int, backend: BackendName) -> EdgeBatch:
    """One of GENERATED with 2^scale vertices, in columns on the host; drawn where solves run, which
    takes seconds on a device.
    """
    vertices, chosen = 1 << scale, backend_named(backend)

    def by_chance() -> Columns:
        random = chosen.xp.random.default_rng(1)
        drawn = rmat(chosen.xp, random, scale, EDGES_PER_VERTEX << scale)
        return chosen.device.to_host(drawn[0]), chosen.device.to_host(drawn[1])

    def attached() -> Columns:
        graph = generate.preferential_attachment(vertices, 8, seed=1, backend=backend)
        return generate.edge_list(graph.columns(), backend)

    columns = {
        "R-MAT": by_chance,
        "grid": lambda: generate.grid(vertices >> scale // 2, 1 << scale // 2),
        "chains": lambda: generate.edge_list(generate.chains(vertices, seed=1), "cpu"),
        "preferential attachment": attached,
    }
    return EdgeBatch(*columns[name](), vertices=vertices)


def grid_target(side: int) -> float:
    """A target error of the same accuracy for each rank, whatever the side: 1e-7 at 4096."""
    return 1e-7 * (4096 / side) ** 2


def rmat_target(scale: int) -> float:
    """The same for R-MAT, whatever the scale: 1e-6 at 24."""
    return 1e-6 * 2.0 ** (24 - scale)
