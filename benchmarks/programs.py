"""Programs on R-MAT graphs, and on ``cpu`` the same by igraph and NetworKit.

Sources are the vertices of the highest out-degree. Peers are timed from their own graph in memory
to an array of their answer, programs from the graph on the device to values there. The contenders
take turns; figures are medians. ``reached_edges`` are the out-edges of the vertices that
breadth-first search reaches, which is what its edges a second count; ``sweep_milliseconds`` the
time of a solve from uniform ranks over its sweeps. Peers that are not installed are left out.

    pip install -e '.[bench]'
    python -m benchmarks.programs --scales 16 18
    python -m benchmarks.programs sigps --backend cuda

sigps: figures 4.15 and 4.18 of Zhang's thesis on graph processing. ``speed-up``: programs on the
backend, and the same programs by one thread of the host. ``PageRank``: the routines of section
4.8.6, which keep a graph as a dense matrix, on the host and the device, beside our program: as many
iterations each, from the matrix or the graph in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, grid, shuffled_rmat
from benchmarks.timing import in_turns
from liverank_gpu import Answer, BackendName, EdgeBatch, Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array

MODES = ("synchronous", "asynchronous")

Columns = tuple[Array, Array]
Peer = Callable[[], Any]


def igraph_peers(
    edges: tuple[Any, Any], vertices: int, weights: Any, source: int
) -> dict[str, Peer]:
    """The same questions to igraph."""
    import igraph

    pairs = np.column_stack(edges)
    graph = igraph.Graph(n=vertices, edges=pairs, directed=True)
    graph.es["length"] = weights
    simple = graph.as_undirected().simplify()
    return {
        "levels": lambda: np.asarray(graph.distances(source, mode="out")),
        "distances": lambda: np.asarray(graph.distances(source, weights="length", mode="out")),
        "components": lambda: np.asarray(graph.connected_components("weak").membership),
        "triangles": lambda: simple.transitivity_undirected(),
        "cores": lambda: np.asarray(simple.coreness()),
    }


def networkit_peers(
    edges: tuple[Any, Any], vertices: int, weights: Any, source: int
) -> dict[str, Peer]:
    """The same questions to NetworKit."""
    import networkit

    graph = networkit.GraphFromCoo(edges, n=vertices, weighted=False, directed=True)
    lengths = networkit.GraphFromCoo((weights, edges), n=vertices, weighted=True, directed=True)
    ends = np.unique(np.sort(np.column_stack(edges), axis=1), axis=0)
    ends = ends[ends[:, 0] != ends[:, 1]]
    columns = (ends[:, 0].copy(), ends[:, 1].copy())
    simple = networkit.GraphFromCoo(columns, n=vertices, weighted=False, directed=False)
    simple.indexEdges()

    def run(algorithm: Any) -> Any:
        return algorithm.run()

    def by_edge() -> Any:
        return np.asarray(run(networkit.sparsification.TriangleEdgeScore(simple)).scores())

    return {
        "levels": lambda: np.asarray(run(networkit.distance.BFS(graph, source)).getDistances()),
        "distances": lambda: np.asarray(
            run(networkit.distance.Dijkstra(lengths, source)).getDistances()
        ),
        "components": lambda: run(networkit.components.WeaklyConnectedComponents(graph)),
        "triangles": by_edge,
        "support": by_edge,
        "cores": lambda: np.asarray(run(networkit.centrality.CoreDecomposition(simple)).scores()),
    }


PEERS: dict[str, Callable[..., dict[str, Peer]]] = {
    "igraph": igraph_peers,
    "NetworKit": networkit_peers,
}


def engine_of(backend: Backend, columns: Columns, vertices: int = 0, **options: Any) -> Engine:
    """An engine with the graph loaded."""
    weights = options.pop("weights", None)
    engine = Engine(Options(**options, weighted=weights is not None), backend)
    engine.apply(EdgeBatch(*columns, vertices=vertices, weights=weights))
    return engine


def rows(backend: Backend, scale: int, rounds: int, peers: bool) -> Iterator[dict[str, Any]]:
    """A row for each program and mode."""
    vertices = 1 << scale
    columns = shuffled_rmat(backend, scale, EDGES_PER_VERTEX * vertices)
    xp = backend.xp
    keys = xp.unique(columns[0].astype(np.int64) << 32 | columns[1])
    columns = (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32)
    weights = (1 + (keys * 2654435761 >> 7) % 255).astype(np.float32) / 256
    source = int(xp.bincount(columns[0]).argmax())
    directed = engine_of(backend, columns, vertices)
    weighted = engine_of(backend, columns, vertices, weights=weights)
    undirected = engine_of(backend, columns, vertices, directed=False)
    directed.update("static")
    result = directed.update("static")  # the first one compiles
    sweep = 1e3 * result.solve_seconds / result.iterations
    degree = backend.device.to_host(xp.bincount(columns[0], minlength=vertices))

    def run(engine: Engine, name: str, mode: str, **parameters: Any) -> Callable[[], Answer]:
        return lambda: engine.run(name, mode=mode, **parameters)

    runs: dict[str, Callable[[], Any]] = {}
    for mode in MODES:
        runs[f"levels {mode}"] = run(directed, "levels", mode, source=source)
        runs[f"distances {mode}"] = run(weighted, "distances", mode, source=source)
        runs[f"components {mode}"] = run(directed, "components", mode)
    runs["pagerank synchronous"] = run(directed, "pagerank", MODES[0], tolerance=1e-6)
    for name in ("triangles", "support", "cores", "densest", "labels"):
        runs[f"{name} synchronous"] = run(undirected, name, "synchronous")
    if peers:
        hosted = tuple(backend.device.to_host(each).astype(np.int64) for each in columns)
        given = (hosted, vertices, backend.device.to_host(weights).astype(np.float64), source)
        for peer, questions in PEERS.items():
            if find_spec(peer.lower()) is None:
                print(f"{peer} left out: not installed", flush=True)
                continue
            for name, question in questions(*given).items():
                runs[f"{name} {peer}"] = question
    found = in_turns(backend.device, runs, rounds)
    for name in dict.fromkeys(each.split()[0] for each in runs):
        for mode in MODES:
            if f"{name} {mode}" not in found:
                continue
            milliseconds, answer = found[f"{name} {mode}"]
            row = {
                "graph": f"rmat-{scale}",
                "vertices": vertices,
                "edges": len(keys),
                "program": name,
                "mode": mode,
                "milliseconds": milliseconds,
                "supersteps": answer.receipt.supersteps,
                "edges_read": answer.receipt.edges,
                "summary": answer.summary,
            }
            if name == "levels":
                reached = int(degree[answer.values != 2**31 - 1].sum())
                row |= {"reached_edges": reached}
            if name == "pagerank":
                row |= {"sweep_milliseconds": sweep}
            row["peers"] = {
                peer: found[f"{name} {peer}"][0] for peer in PEERS if f"{name} {peer}" in found
            }
            yield row


def measured(
    backend: BackendName, scales: list[int], rounds: int, no_peers: bool
) -> Iterator[dict[str, Any]]:
    """`no_peers`: the engine alone."""
    for scale in scales:
        yield from rows(backend_named(backend), scale, rounds, backend == "cpu" and not no_peers)


# ---- of a thesis ----

OF_THESIS: dict[str, dict[str, Any]] = {
    "pagerank": {"tolerance": 1e-6},
    "paths": {"source": 0},
    "trussness": {},
}
"""The thesis's PageRank, shortest paths with predecessors, and dense subgraphs."""

DAMPING = 0.85

VERTICES, DEGREE = (100, 200, 300, 500, 5000), 10
"""Of the graphs of the three PageRanks, and their out-edges of a vertex."""


def speed_ups(
    backend: Backend, name: str, columns: Columns, rounds: int
) -> Iterator[dict[str, Any]]:
    """A row for each program."""
    host = backend_named("cpu")
    sources, targets = columns
    moved = backend.device.to_host(sources), backend.device.to_host(targets)
    for program, given in OF_THESIS.items():
        # dense subgraphs are those of a graph without directions
        directed = program != "trussness"
        there = engine_of(backend, columns, directed=directed)
        here = engine_of(host, moved, directed=directed)
        parallel, answer = alone(backend, partial(there.run, program, **given), rounds)
        threads = kernels.threads()
        kernels.set_threads(1)
        try:
            sequential, own = alone(host, partial(here.run, program, **given), 1)
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
            "edges": there.edges,
            "program": program,
            "ms": parallel,
            "sequential_ms": sequential,
            "times_as_fast": sequential / parallel,
        }
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
    ours, answer = alone(backend, partial(engine.run, "pagerank", **OF_THESIS["pagerank"]), rounds)
    count = answer.receipt.supersteps
    by_host, ranks = alone(backend, lambda: dense(np, matrix, count), rounds)
    by_device, _ = alone(backend, lambda: dense(backend.xp, there, count), rounds)
    off = float(np.abs(ranks - answer.values).sum())
    assert off <= 1e-4, off
    row = {"vertices": vertices, "edges": edges.shape[1], "iterations": count}
    row |= {"dense_host_ms": by_host, "dense_ms": by_device, "program_ms": ours}
    return row


def alone(backend: Backend, run: Callable[[], Any], rounds: int) -> tuple[float, Any]:
    """Median milliseconds, and the last answer."""
    return in_turns(backend.device, {"": run}, rounds)[""]


def sigps(backend: BackendName, scale: int, rounds: int) -> dict[str, Any]:
    """`scale` is of R-MAT; the grid has as many vertices."""
    chosen = backend_named(backend)
    graphs = {
        f"rmat-{scale}": shuffled_rmat(chosen, scale, EDGES_PER_VERTEX << scale),
        "grid": grid(chosen.xp, 1 << scale // 2),
    }
    speed = [row for name in graphs for row in speed_ups(chosen, name, graphs[name], rounds)]
    return {"speed-up": speed, "PageRank": [three(chosen, each, rounds) for each in VERTICES]}


def main() -> None:
    options = {"scales": [20, 22], "rounds": 5, "no_peers": False}
    suites: harness.Suites = {
        "programs": (measured, options),
        "sigps": (sigps, {"scale": 18, "rounds": 5}),
    }
    harness.run(__doc__, suites, backends=True)


if __name__ == "__main__":
    main()
