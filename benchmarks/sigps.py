"""Figures 4.15 and 4.18 of Zhang's thesis on graph processing, chapter 4 (SIGPS).

``speed-up``: programs on the backend, and the same programs by one thread of the host.
``PageRank``: the routines of section 4.8.6, which keep a graph as a dense matrix, on the host and
the device, beside our program: as many iterations each, from the matrix or the graph in memory.

    python -m benchmarks.sigps --backend cuda
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, grid, shuffled_rmat
from benchmarks.timing import timed_median
from liverank_gpu import BackendName, EdgeBatch, Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array

PROGRAMS: dict[str, dict[str, Any]] = {
    "pagerank": {"tolerance": 1e-6},
    "paths": {"source": 0},
    "trussness": {},
}
"""The thesis's PageRank, shortest paths with predecessors, and dense subgraphs."""

DAMPING = 0.85

VERTICES, DEGREE = (100, 200, 300, 500, 5000), 10
"""Of the graphs of the three PageRanks, and their out-edges of a vertex."""

Columns = tuple[Array, Array]


def engines(backend: Backend, columns: Columns) -> dict[str, Engine]:
    """By program: dense subgraphs are those of a graph without directions."""
    directed = Engine(Options(), backend)
    directed.apply(EdgeBatch(*columns))
    undirected = Engine(Options(directed=False), backend)
    undirected.apply(EdgeBatch(*columns))
    return {"pagerank": directed, "paths": directed, "trussness": undirected}


def milliseconds(backend: Backend, run: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """See timed_median; after a call that is not counted."""
    run()
    return timed_median(backend.device, run, rounds)


def speed_ups(
    backend: Backend, name: str, columns: Columns, rounds: int
) -> Iterator[dict[str, Any]]:
    """A row for each program."""
    host = backend_named("cpu")
    sources, targets = columns
    here = engines(host, (backend.device.to_host(sources), backend.device.to_host(targets)))
    there = engines(backend, columns)
    for program, given in PROGRAMS.items():
        parallel, answer = milliseconds(
            backend, partial(there[program].run, program, **given), rounds
        )
        threads = kernels.threads()
        kernels.set_threads(1)
        try:
            alone = partial(here[program].run, program, **given)
            sequential, own = milliseconds(host, alone, 1)
        finally:
            kernels.set_threads(threads)
        exact = program != "pagerank"
        assert (
            np.array_equal(answer.values, own.values)
            if exact
            else bool(np.allclose(answer.values, own.values, atol=1e-9))
        )
        row = {
            "graph": name,
            "edges": there[program].edges,
            "program": program,
            "ms": parallel,
            "sequential_ms": sequential,
            "times_as_fast": sequential / parallel,
        }
        print(row, flush=True)
        yield row


def dense(xp: Any, matrix: Array, iterations: int) -> Array:
    """Ranks by the transition matrix, float64[n, n]: what arrives in each row."""
    vertices = len(matrix)
    ranks = xp.full(vertices, 1.0 / vertices)
    for _ in range(iterations):
        ranks = DAMPING * (matrix @ ranks) + (1.0 - DAMPING) / vertices
    return ranks


def three(backend: Backend, vertices: int, rounds: int) -> dict[str, Any]:
    """The three PageRanks on a random graph without dangling vertices, by as many iterations."""
    random, device = np.random.default_rng(vertices), backend.device
    sources = np.repeat(np.arange(vertices), DEGREE)
    targets = (sources + random.integers(1, vertices, len(sources))) % vertices
    edges = np.unique(np.stack([sources, targets]), axis=1)
    matrix = np.zeros((vertices, vertices))
    matrix[edges[1], edges[0]] = 1.0 / np.bincount(edges[0])[edges[0]]
    there = device.to_device(matrix.ravel()).reshape(vertices, vertices)
    engine = Engine(Options(damping=DAMPING), backend)
    engine.apply(EdgeBatch(*edges))
    ours, answer = milliseconds(
        backend, lambda: engine.run("pagerank", **PROGRAMS["pagerank"]), rounds
    )
    count = answer.receipt.supersteps
    by_host, ranks = milliseconds(backend, lambda: dense(np, matrix, count), rounds)
    by_device, _ = milliseconds(backend, lambda: dense(backend.xp, there, count), rounds)
    off = float(np.abs(ranks - answer.values).sum())
    assert off <= 1e-4, off
    row = {"vertices": vertices, "edges": edges.shape[1], "iterations": count}
    row |= {"dense_host_ms": by_host, "dense_ms": by_device, "program_ms": ours}
    print(row, flush=True)
    return row


def measured(backend: BackendName, scale: int, rounds: int) -> dict[str, Any]:
    """`scale` is of R-MAT; the grid has as many vertices."""
    chosen = backend_named(backend)
    graphs = {
        f"rmat-{scale}": shuffled_rmat(chosen, scale, EDGES_PER_VERTEX << scale),
        "grid": grid(chosen.xp, 1 << scale // 2),
    }
    speed = [row for name in graphs for row in speed_ups(chosen, name, graphs[name], rounds)]
    return {"speed-up": speed, "PageRank": [three(chosen, each, rounds) for each in VERTICES]}


def main() -> None:
    harness.run(__doc__, {"sigps": (measured, {"scale": 18, "rounds": 5})}, backends=True)


if __name__ == "__main__":
    main()
