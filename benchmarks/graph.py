"""The dynamic graph: time and memory of loads and batches; and of weighted edges, beside the same
edges without weights.

    python -m benchmarks.graph --backend cuda --scale 26
    python -m benchmarks.graph weights --backend cuda --scale 24

The graph is R-MAT with shuffled labels. Batches are 80 % insertions, between vertices drawn
uniformly, and 20 % deletions of edges drawn uniformly. Times are those of the host, from a call to
an idle device, so that counts have been read back. Batches of 1,000 come from the host;
loads and batches of 10,000,000 are on the device. Graphs with and without weights get the same
batches in turns, and have a record of their own, weights.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, random_batches, shuffled_rmat
from benchmarks.timing import in_turns, timed
from liverank_gpu import BackendName, EdgeBatch, Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.iterate import ContributionBuffers

SMALL, LARGE = 1_000, 10_000_000
"""Sizes of batches."""

REPEATS = 21
"""Of each figure of weights."""

Named = Iterator[tuple[str, Any]]
"""Figures by their names."""


def device_batch(xp: Any, first: EdgeBatch, size: int, generator: np.random.Generator) -> EdgeBatch:
    """See benchmarks.inputs.random_batches; in columns on the device."""
    deletions = size // 5
    draw = xp.random.default_rng(int(generator.integers(1 << 32))).integers
    chosen = draw(0, len(first.insert_sources), deletions)
    new = [draw(0, first.vertices, size - deletions).astype(np.int32) for _ in range(2)]
    return EdgeBatch(new[0], new[1], first.insert_sources[chosen], first.insert_targets[chosen])


def spread(milliseconds: list[float]) -> dict[str, float]:
    """Mean, median, 95th percentile and maximum."""
    times = np.array(milliseconds)
    found = {
        "mean_ms": times.mean(),
        "median_ms": np.median(times),
        "p95_ms": np.quantile(times, 0.95),
        "largest_ms": times.max(),
    }
    return {name: round(float(value), 4) for name, value in found.items()}


def run_batches(graph: DynamicGraph, batches: list[EdgeBatch]) -> list[float]:
    """Milliseconds of each batch, maintenance of the partitions that sweeps need included."""

    def one(batch: EdgeBatch) -> None:
        graph.apply(batch)
        assert graph.outgoing.partition().count == graph.in_rows().count

    return [timed(graph.backend.device, partial(one, batch))[0] for batch in batches]


def loaded(
    backend: Backend, scale: int, edges: int
) -> tuple[DynamicGraph, EdgeBatch, dict[str, Any]]:
    """A graph of R-MAT edges on the device, and time and memory of its load."""
    sources, targets = shuffled_rmat(backend, scale, edges)
    pool = None
    if backend.name == "cuda":
        pool = backend.xp.get_default_memory_pool()
        pool.free_all_blocks()
        before = pool.total_bytes()
    graph = DynamicGraph(backend, "uniform")
    batch = EdgeBatch(sources, targets, vertices=1 << scale)
    milliseconds, _ = timed(backend.device, lambda: graph.apply(batch))
    slots = (graph.outgoing.csr.column_indices, graph.incoming.csr.column_indices)
    figures: dict[str, Any] = {
        "sent": edges,
        "edges": graph.edges,
        "vertices": graph.vertices,
        "seconds": round(1e-3 * milliseconds, 4),
        "pool_bytes_per_edge": round(sum(each.nbytes for each in slots) / graph.edges, 3),
    }
    if pool is not None:
        peak = pool.total_bytes() - before
        figures["peak_bytes_per_edge_beside_columns"] = round(peak / edges, 3)
        figures["peak_bytes_per_edge_with_columns"] = round(peak / edges + 8, 3)
        pool.free_all_blocks()
    return graph, batch, figures


def plain(backend: BackendName, scale: int) -> Named:
    """Loads and batches."""
    chosen, generator = backend_named(backend), np.random.Generator(np.random.Philox(7))
    graph, first, figure = loaded(chosen, scale, EDGES_PER_VERTEX << scale)
    yield "load", figure
    yield "batch of 1,000", spread(run_batches(graph, random_batches(first, SMALL, 100, generator)))
    if backend == "cuda":
        batches = [device_batch(chosen.xp, first, LARGE, generator) for _ in range(6)]
        times = [timed(chosen.device, partial(graph.apply, batch))[0] for batch in batches]
        yield "batch of 10,000,000, ms", [round(time, 2) for time in times]
        yield "updates a second", round(1e3 * LARGE / float(np.median(times)))
    yield "memory after", graph.memory()


def weighted(backend: BackendName, scale: int) -> Named:
    """A sweep, a batch of 1,000, and memory, with weights and without."""
    chosen = backend_named(backend)
    vertices, edges = 1 << scale, EDGES_PER_VERTEX << scale
    sources, targets = shuffled_rmat(chosen, scale, edges)
    generator = np.random.default_rng(3)
    weights = chosen.device.to_device(generator.lognormal(size=edges).astype(np.float32))
    engines: dict[str, Engine] = {}
    for kind, given in (("unweighted", None), ("weighted", weights)):
        engine = engines[kind] = Engine(Options(weighted=given is not None), chosen)
        batch = EdgeBatch(sources, targets, vertices=vertices, weights=given)
        milliseconds, _ = timed(chosen.device, partial(engine.apply, batch))
        yield f"load, {kind}, s", round(1e-3 * milliseconds, 3)
        yield f"first solve, {kind}, sweeps", engine.update().iterations
        memory = engine.memory()
        lists = sum(memory[part] for part in ("out-lists", "in-lists", "slack"))
        yield f"memory, {kind}, bytes an edge", round(lists / engine.edges, 3)
    yield "edges", engine.edges
    buffers = ContributionBuffers.allocate(chosen, vertices)
    pending: dict[str, Iterator[EdgeBatch]] = {}

    def sweep(kind: str) -> None:
        iterate = engines[kind].internals.iterate
        iterate.quantize(buffers)
        iterate.sweep(buffers)

    def residual(kind: str) -> None:
        engines[kind].internals.iterate.recompute_residual()

    def mutate(kind: str) -> None:
        engines[kind].apply(next(pending[kind]))

    def solve(kind: str) -> None:
        mutate(kind)
        engines[kind].update()

    for name, work in (
        ("quantize and sweep, ms", sweep),
        ("residual, ms", residual),
        ("batch of 1,000, mutate, ms", mutate),
        ("batch of 1,000, mutate and solve, ms", solve),
    ):
        batches = random_batches(batch, SMALL, REPEATS + 1, generator)
        drawn = generator.lognormal(size=len(batches[0].insert_sources)).astype(np.float32)
        pending["unweighted"] = iter(batches)
        pending["weighted"] = iter([replace(batch, weights=drawn) for batch in batches])
        of = {kind: partial(work, kind) for kind in engines}
        medians = {kind: each for kind, (each, _) in in_turns(chosen.device, of, REPEATS).items()}
        ratio = medians["weighted"] / medians["unweighted"]
        medians = {kind: round(ms, 4) for kind, ms in medians.items()}
        yield name, medians | {"ratio": round(ratio, 3)}


if __name__ == "__main__":
    options = {"scale": 20}
    suites: harness.Suites = {
        "graph": (plain, options),
        "weights": (weighted, options),
    }
    harness.run(__doc__, suites, backends=True)
