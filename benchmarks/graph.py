"""The dynamic graph: time and memory of loads, batches and sweeps.

    python -m benchmarks.graph --backend cuda --scale 26 --long
    python -m benchmarks.graph --backend cpu --scale 20

An R-MAT graph of 2^scale vertices and 16 edges a vertex is loaded; then come batches of 80 %
insertions, between vertices drawn evenly, and 20 % deletions, of edges drawn evenly. Times are the
host's, around Graph.apply and a wait for the device, so that the counts are back; columns of
batches of 1,000 and 10,000 lie on the host, those of a load and of 10,000,000 on the device.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import harness
from gpu.adjacency import Adjacency
from gpu.backends import backend_named
from gpu.backends.base import Array, Backend
from gpu.edit import Counts
from gpu.graph import Graph
from gpu.types import EdgeBatch, VertexOrder

EDGES_PER_VERTEX = 16
SMALL_SCALE, SMALL_EDGES_PER_VERTEX = 20, 10  # 1e7 edges, for the growth figure
CHUNK = 1 << 26

_RMAT = """
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


def rmat(backend: Backend, scale: int, edges: int, seed: int = 1) -> tuple[Array, Array]:
    """int32[edges] sources and targets on the device, repeats and loops among them."""
    xp = backend.xp
    sources, targets = xp.empty(edges, np.int32), xp.empty(edges, np.int32)
    if xp is np:
        generator = np.random.Generator(np.random.Philox(seed))
        source, target = np.zeros(edges, np.int64), np.zeros(edges, np.int64)
        for _ in range(scale):
            u = generator.random(edges)
            source = source * 2 + (u >= 0.76)
            target = target * 2 + (((u >= 0.57) & (u < 0.76)) | (u >= 0.95))
        labels = generator.permutation(1 << scale)
        return labels[source].astype(np.int32), labels[target].astype(np.int32)
    draw = xp.ElementwiseKernel(
        "int64 first, uint64 seed, int32 scale", "int32 sources, int32 targets", _RMAT, "rmat"
    )
    for first in range(0, edges, CHUNK):
        last = min(first + CHUNK, edges)
        draw(first, seed << 40, scale, sources[first:last], targets[first:last])
    return sources, targets


class Stream:
    """Batches for a graph of these edges."""

    def __init__(self, backend: Backend, sources: Array, targets: Array, vertices: int) -> None:
        self.backend, self.sources, self.targets = backend, sources, targets
        self.vertices = vertices
        self.generator = np.random.Generator(np.random.Philox(7))

    def host_batches(self, size: int, count: int) -> list[EdgeBatch]:
        backend, generator = self.backend, self.generator
        deletions = size // 5
        chosen = backend.to_device(generator.integers(0, len(self.sources), count * deletions))
        gone = [
            backend.to_host(ids[chosen]).astype(np.int64).reshape(count, deletions)
            for ids in (self.sources, self.targets)
        ]
        new = generator.integers(0, self.vertices, (2, count, size - deletions))
        return [EdgeBatch(new[0, i], new[1, i], gone[0][i], gone[1][i]) for i in range(count)]

    def device_batch(self, size: int) -> EdgeBatch:
        xp, deletions = self.backend.xp, size // 5
        draw = xp.random.default_rng(int(self.generator.integers(1 << 32))).integers
        chosen = draw(0, len(self.sources), deletions)
        new = [draw(0, self.vertices, size - deletions).astype(np.int32) for _ in range(2)]
        return EdgeBatch(new[0], new[1], self.sources[chosen], self.targets[chosen])


def timed(backend: Backend, work: Callable[[], object]) -> float:
    backend.synchronize()
    begin = perf_counter()
    work()
    backend.synchronize()
    return perf_counter() - begin


def spread(seconds: list[float]) -> dict[str, float]:
    """Milliseconds."""
    ms = np.array(seconds) * 1e3
    return {
        "mean_ms": round(float(ms.mean()), 4),
        "median_ms": round(float(np.median(ms)), 4),
        "p95_ms": round(float(np.quantile(ms, 0.95)), 4),
        "largest_ms": round(float(ms.max()), 4),
    }


def run_batches(graph: Graph, batches: list[EdgeBatch]) -> list[float]:
    """Seconds of each batch, the upkeep of the sweeps' partition included."""

    def one(batch: EdgeBatch) -> None:
        graph.apply(batch)
        assert graph.outgoing.rows.count == graph.incoming.rows.count

    return [timed(graph.backend, partial(one, batch)) for batch in batches]


def loaded(
    backend: Backend, scale: int, edges: int, order: VertexOrder = "auto"
) -> tuple[Graph, Stream, dict[str, Any]]:
    """A graph of R-MAT edges on the device, and what loading it took."""
    sources, targets = rmat(backend, scale, edges)
    pool = None
    if backend.name == "cuda":
        pool = backend.xp.get_default_memory_pool()
        pool.free_all_blocks()
        before = pool.total_bytes()
    graph = Graph(backend, "uniform", order)
    batch = EdgeBatch(sources, targets, vertices=1 << scale)
    seconds = timed(backend, lambda: graph.apply(batch))
    lists = graph.outgoing.pool.nbytes + graph.incoming.pool.nbytes
    figures: dict[str, Any] = {
        "sent": edges,
        "edges": graph.edges,
        "vertices": graph.vertices,
        "seconds": round(seconds, 4),
        "pool_bytes_per_edge": round(lists / graph.edges, 3),
    }
    if pool is not None:
        peak = pool.total_bytes() - before
        figures["peak_bytes_per_edge_beside_columns"] = round(peak / edges, 3)
        figures["peak_bytes_per_edge_with_columns"] = round(peak / edges + 8, 3)
        pool.free_all_blocks()
    return graph, Stream(backend, sources, targets, 1 << scale), figures


def sweep_ms(graph: Graph, incoming: Adjacency | None = None, repeats: int = 9) -> float:
    """Median milliseconds of one pull over all vertices."""
    backend, xp, vertices = graph.backend, graph.backend.xp, graph.vertices
    values, contributions = xp.ones(vertices), xp.full(vertices, 0.1)
    residual = xp.empty(vertices)
    kept = graph.incoming
    if incoming is not None:
        graph.incoming = incoming

    def one() -> None:
        backend.find_residual(graph, values, contributions, 0.15, 0.85, residual)

    one()
    times = [timed(backend, one) for _ in range(repeats)]
    graph.incoming = kept
    return round(float(np.median(times)) * 1e3, 4)


def packed_rows(graph: Graph) -> Adjacency:
    """The in-lists one after the other without slack; each begins where four entries can be read at
    once, as the kernels of the device do.
    """
    backend, rows = graph.backend, graph.incoming
    packed = Adjacency(backend, graph.vertices)
    packed.length[:] = rows.length
    backend.pack_rows(packed.length, 0, packed.start, packed.capacity)
    end = int(packed.start[-1]) + int(packed.capacity[-1])
    packed.pool = backend.allocate("packed rows", end, np.int32)
    backend.copy_rows(rows.start, rows.length, rows.pool, packed.start, end, packed.pool)
    return packed


def sweeps(graph: Graph) -> dict[str, float]:
    mine = sweep_ms(graph)
    packed = sweep_ms(graph, packed_rows(graph))
    return {"slack_ms": mine, "packed_ms": packed, "ratio": round(mine / packed, 4)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    parser.add_argument("--long", action="store_true", help="10,000 batches more, and the drift")
    options = parser.parse_args()
    backend = backend_named(options.backend)
    figures: dict[str, Any] = {}

    def note(name: str, value: Any) -> None:
        figures[name] = value
        print(name, value, flush=True)

    small, stream, _ = loaded(backend, SMALL_SCALE, SMALL_EDGES_PER_VERTEX << SMALL_SCALE)
    run_batches(small, stream.host_batches(1000, 20))
    little = spread(run_batches(small, stream.host_batches(1000, 100)))
    note("batch of 1,000 on 1e7 edges", little)
    del small, stream

    edges = EDGES_PER_VERTEX << options.scale
    graph, stream, figure = loaded(backend, options.scale, edges, "given")
    note("load in the order given", figure)
    given_ms = sweep_ms(graph)
    note("sweep in the order given, ms", given_ms)
    del graph, stream

    graph, stream, figure = loaded(backend, options.scale, edges)
    note("load", figure)
    note("by degree", not graph.numbering.given)
    note(
        "sweep in the order given over that in the order chosen",
        round(given_ms / sweep_ms(graph), 3),
    )
    note("sweep after load", sweeps(graph))
    fresh = spread(run_batches(graph, stream.host_batches(1000, 100)))
    note("batch of 1,000", fresh)
    note("growth, median", round(fresh["median_ms"] / little["median_ms"], 3))
    if options.long:
        run_batches(graph, stream.host_batches(1000, 10_000))
        note(
            "batch of 1,000 after 10,000",
            spread(run_batches(graph, stream.host_batches(1000, 100))),
        )
        times = run_batches(graph, stream.host_batches(10_000, 1000))
        note("batch of 10,000, first 100", spread(times[:100]))
        note("batch of 10,000, last 100", spread(times[-100:]))
        note("drift, median", round(float(np.median(times[-100:]) / np.median(times[:100])), 3))
        note("sweep after batches", sweeps(graph))
        nothing = Counts(*[0] * 15)
        pause = timed(backend, lambda: graph.incoming.pack(nothing))
        note("laying out one direction anew, ms", round(pause * 1e3, 3))
    if backend.name == "cuda":
        batches = [stream.device_batch(10_000_000) for _ in range(6)]
        seconds = [timed(backend, partial(graph.apply, batch)) for batch in batches]
        note("batch of 10,000,000, ms", [round(s * 1e3, 2) for s in seconds])
        note("updates a second", round(1e7 / float(np.median(seconds))))
    note("memory after", graph.memory())
    harness.record("graph", backend.name, figures, options.results)


if __name__ == "__main__":
    main()
