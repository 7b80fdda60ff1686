"""The dynamic graph: time and memory of loads, batches and sweeps.

    python -m benchmarks.graph --backend cuda --scale 26 --long
    python -m benchmarks.graph --backend cpu --scale 20

The graph is R-MAT with shuffled labels. Batches are 80 % insertions, between vertices drawn
uniformly, and 20 % deletions of edges drawn uniformly. Times are those of the host, from a call to
an idle device, so that counts have been read back. Batches of 1,000 and 10,000 come from the host;
loads and batches of 10,000,000 are on the device.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, NO_CHANGES, shuffled_rmat
from benchmarks.timing import timed
from liverank_gpu.backends import backend_named
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr, GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import Slots
from liverank_gpu.operations.sweeps import ComputeResidual
from liverank_gpu.types import EdgeBatch, VertexOrder

SMALL_SCALE, SMALL_EDGES_PER_VERTEX = 20, 10
"""Of the graph that shows how the time of a batch grows with the graph: 1e7 edges."""

SMALL, MIDDLE, LARGE = 1_000, 10_000, 10_000_000
"""Sizes of batches."""


class Stream:
    """Batches for a graph of these edges, int32[m] on the device."""

    def __init__(self, backend: Backend, sources: Array, targets: Array, vertices: int) -> None:
        self._backend, self._sources, self._targets = backend, sources, targets
        self._vertices = vertices
        self._generator = np.random.Generator(np.random.Philox(7))

    def host_batches(self, size: int, count: int) -> list[EdgeBatch]:
        """`count` batches in columns on the host."""
        device, generator = self._backend.device, self._generator
        deletions = size // 5
        chosen = device.to_device(generator.integers(0, len(self._sources), count * deletions))
        gone = [
            device.to_host(ids[chosen]).astype(np.int64).reshape(count, deletions)
            for ids in (self._sources, self._targets)
        ]
        new = generator.integers(0, self._vertices, (2, count, size - deletions))
        return [EdgeBatch(new[0, i], new[1, i], gone[0][i], gone[1][i]) for i in range(count)]

    def device_batch(self, size: int) -> EdgeBatch:
        """One batch in columns on the device."""
        xp, deletions = self._backend.xp, size // 5
        draw = xp.random.default_rng(int(self._generator.integers(1 << 32))).integers
        chosen = draw(0, len(self._sources), deletions)
        new = [draw(0, self._vertices, size - deletions).astype(np.int32) for _ in range(2)]
        return EdgeBatch(new[0], new[1], self._sources[chosen], self._targets[chosen])


def spread(milliseconds: list[float]) -> dict[str, float]:
    """Mean, median, 95th percentile and maximum."""
    times = np.array(milliseconds)
    return {
        "mean_ms": round(float(times.mean()), 4),
        "median_ms": round(float(np.median(times)), 4),
        "p95_ms": round(float(np.quantile(times, 0.95)), 4),
        "largest_ms": round(float(times.max()), 4),
    }


def run_batches(graph: DynamicGraph, batches: list[EdgeBatch]) -> list[float]:
    """Milliseconds of each batch, maintenance of the partitions that sweeps need included."""

    def one(batch: EdgeBatch) -> None:
        graph.apply(batch)
        assert graph.outgoing.partition().count == graph.in_rows().count

    return [timed(graph.backend.device, partial(one, batch))[0] for batch in batches]


def loaded(
    backend: Backend, scale: int, edges: int, order: VertexOrder = "auto"
) -> tuple[DynamicGraph, Stream, dict[str, Any]]:
    """A graph of R-MAT edges on the device, and time and memory of its load."""
    sources, targets = shuffled_rmat(backend, scale, edges)
    pool = None
    if backend.name == "cuda":
        pool = backend.xp.get_default_memory_pool()
        pool.free_all_blocks()
        before = pool.total_bytes()
    graph = DynamicGraph(backend, "uniform", order)
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
    return graph, Stream(backend, sources, targets, 1 << scale), figures


def sweep_ms(graph: DynamicGraph, incoming: tuple[Csr, Rows] | None = None) -> float:
    """Median milliseconds of a sweep that computes a residual.

    incoming  in-lists to read instead of the graph's own
    """
    backend, xp, vertices = graph.backend, graph.backend.xp, graph.vertices
    values, contributions = xp.ones(vertices), xp.full(vertices, 0.1)
    residual = xp.empty(vertices)
    view, rows = graph.view, graph.in_rows()
    if incoming is not None:
        csr, rows = incoming
        view = GraphView(
            vertices, view.edges, view.outgoing, csr, view.loop, view.degree, view.longest_row
        )

    def one() -> None:
        arrays = (values, contributions, 0.15, 0.85, residual)
        backend.run(ComputeResidual(view, rows, *arrays))

    times = [timed(backend.device, one)[0] for _ in range(10)]
    return round(float(np.median(times[1:])), 4)


def packed_rows(graph: DynamicGraph) -> tuple[Csr, Rows]:
    """A copy of the in-lists packed without slack, in a fresh partition."""
    backend, csr, slots = graph.backend, graph.incoming.csr, graph.incoming.packed
    allocate, vertices = backend.device.allocate, graph.vertices
    starts = allocate("packed rows", vertices, np.int64)
    capacities = allocate("packed rows", vertices, np.int32)
    column_indices = allocate("packed rows", slots, np.int32)
    backend.rebuild.pack_rows(csr.row_lengths, 0, starts, capacities)
    backend.rebuild.copy_rows(csr, starts, slots, Slots(column_indices))
    return Csr(starts, csr.row_lengths, column_indices), fresh_partition(graph)


def fresh_partition(graph: DynamicGraph) -> Rows:
    """All in-lists, partitioned by their present lengths; the graph keeps its own partition."""
    allocate, vertices = graph.backend.device.allocate, graph.vertices
    order = allocate("partition", vertices, np.int32)
    degree_bins = allocate("partition", vertices, np.uint8)
    lengths = graph.incoming.csr.row_lengths
    return Rows(order, graph.backend.rebuild.partition(lengths, order, degree_bins))


def sweeps(graph: DynamicGraph) -> dict[str, float]:
    """A sweep over the rows as they are, and over packed ones."""
    slack = sweep_ms(graph)
    packed = sweep_ms(graph, packed_rows(graph))
    return {"slack_ms": slack, "packed_ms": packed, "ratio": round(slack / packed, 4)}


def main() -> None:
    parser = harness.parser("loads, batches and sweeps of the dynamic graph", backends=True)
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--long", action="store_true", help="10,000 batches more, and the drift")
    arguments = parser.parse_args()
    backend = backend_named(arguments.backend)
    figures: dict[str, Any] = {}

    def note(name: str, value: Any) -> None:
        figures[name] = value
        print(name, value, flush=True)

    small_scale = min(SMALL_SCALE, arguments.scale)
    small, stream, _ = loaded(backend, small_scale, SMALL_EDGES_PER_VERTEX << small_scale)
    run_batches(small, stream.host_batches(SMALL, 20))
    little = spread(run_batches(small, stream.host_batches(SMALL, 100)))
    note("batch of 1,000 on a small graph", {"edges": small.edges, **little})
    del small, stream

    edges = EDGES_PER_VERTEX << arguments.scale
    graph, stream, figure = loaded(backend, arguments.scale, edges, "given")
    note("load in the order given", figure)
    given_ms = sweep_ms(graph)
    note("sweep in the order given, ms", given_ms)
    del graph, stream

    graph, stream, figure = loaded(backend, arguments.scale, edges)
    note("load", figure)
    note("by degree", not graph.permutation.is_identity)
    note(
        "sweep in the order given over that in the order chosen",
        round(given_ms / sweep_ms(graph), 3),
    )
    note("sweep after load", sweeps(graph))
    fresh = spread(run_batches(graph, stream.host_batches(SMALL, 100)))
    note("batch of 1,000", fresh)
    note("growth, median", round(fresh["median_ms"] / little["median_ms"], 3))
    if arguments.long:
        run_batches(graph, stream.host_batches(SMALL, 10_000))
        times = run_batches(graph, stream.host_batches(SMALL, 100))
        note("batch of 1,000 after 10,000", spread(times))
        times = run_batches(graph, stream.host_batches(MIDDLE, 1000))
        note("batch of 10,000, first 100", spread(times[:100]))
        note("batch of 10,000, last 100", spread(times[-100:]))
        note("drift, median", round(float(np.median(times[-100:]) / np.median(times[:100])), 3))
        note("sweep after batches", sweeps(graph))
        pause, _ = timed(backend.device, lambda: graph.incoming.pack(NO_CHANGES))
        note("packing one direction, ms", round(pause, 3))
    if backend.name == "cuda":
        batches = [stream.device_batch(LARGE) for _ in range(6)]
        times = [timed(backend.device, partial(graph.apply, batch))[0] for batch in batches]
        note("batch of 10,000,000, ms", [round(time, 2) for time in times])
        note("updates a second", round(1e3 * LARGE / float(np.median(times))))
    note("memory after", graph.memory())
    harness.record("graph", backend.name, figures, arguments.results)


if __name__ == "__main__":
    main()
