"""Programs on R-MAT graphs, and on ``cpu`` the same by igraph and NetworKit.

Sources are the vertices of the highest out-degree. Peers are timed from their own graph in memory
to an array of their answer, programs from the graph on the device to values there. The contenders
take turns; figures are medians. ``reached_edges`` are the out-edges of the vertices that
breadth-first search reaches, which is what its edges a second count; ``sweep_milliseconds`` the
time of a solve from uniform ranks over its sweeps. Peers that are not installed are left out.

    pip install -e '.[bench]'
    python -m benchmarks.programs --scales 16 18
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, shuffled_rmat
from benchmarks.timing import in_turns, loaded
from liverank_gpu import Answer, BackendName, EdgeBatch, Engine
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend

MODES = ("synchronous", "asynchronous")

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


def rows(backend: Backend, scale: int, rounds: int, peers: bool) -> Iterator[dict[str, Any]]:
    """A row for each program and mode."""
    vertices = 1 << scale
    columns = shuffled_rmat(backend, scale, EDGES_PER_VERTEX * vertices)
    xp = backend.xp
    keys = xp.unique(columns[0].astype(np.int64) << 32 | columns[1])
    columns = (keys >> 32).astype(np.int32), (keys & 0xFFFFFFFF).astype(np.int32)
    weights = (1 + (keys * 2654435761 >> 7) % 255).astype(np.float32) / 256
    source = int(xp.bincount(columns[0]).argmax())
    edges = EdgeBatch(*columns, vertices=vertices)
    directed, undirected = (loaded(edges, backend, directed=each) for each in (True, False))
    weighted = loaded(replace(edges, weights=weights), backend, weighted=True)
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


if __name__ == "__main__":
    options = {"scales": [20, 22], "rounds": 5, "no_peers": False}
    harness.run(__doc__, {"programs": (measured, options)}, backends=True)
