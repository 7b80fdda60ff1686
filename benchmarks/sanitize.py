"""A short stream over every kernel of the dynamic graph, for compute-sanitizer.

    compute-sanitizer --tool memcheck python -m benchmarks.sanitize

Also with racecheck and initcheck. Loads a range of rows at a time in either order of vertices,
merges a batch with the graph, grows and empties a hub, moves rows and lays them out anew in pools
without room to spare; the result is compared with the same on ``cpu``.
"""

from __future__ import annotations

from unittest.mock import patch

import numpy as np

from gpu.backends import backend_named
from gpu.graph import Graph
from gpu.types import BackendName, EdgeBatch, VertexOrder


def stream(name: BackendName, order: VertexOrder) -> list[list[int]]:
    """The edges after each of the batches, sorted."""
    backend = backend_named(name)
    generator = np.random.default_rng(5)
    graph = Graph(backend, "uniform", order)
    states = []
    with (
        patch("gpu.adjacency.LOADED_AT_ONCE", 1000),
        patch("gpu.adjacency.LEAST_SPARE", 4),
        patch("gpu.adjacency.SPARE", 1 << 40),
        patch("gpu.graph._LEAST_MERGED", 4000),
    ):
        edges = (800 * generator.random((2, 6000)) ** 3).astype(np.int64)
        graph.apply(EdgeBatch(edges[0], edges[1]))
        for size in (10, 300, 5000, 40):
            new = generator.integers(0, 900, (2, size))
            hub = np.full(size, 7)
            gone = edges[:, generator.integers(0, 6000, size)]
            graph.apply(EdgeBatch(new[0], new[1], gone[0], gone[1]))
            graph.apply(EdgeBatch(hub, new[1], new[0], hub))
            graph.apply(EdgeBatch(new[0], hub, hub, new[1], 1000 + size))
            assert graph.outgoing.rows.count == graph.incoming.rows.count == graph.vertices
            sources, targets = graph.edge_list()
            states.append(sorted((sources << 32 | targets).tolist()))
    return states


if __name__ == "__main__":
    expected = stream("cpu", "given")
    assert stream("cuda", "given") == expected
    assert stream("cuda", "degree") == expected
    print("the same edges on cuda and on cpu, in either order")
