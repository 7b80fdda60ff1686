"""A short stream over every kernel, for compute-sanitizer.

    compute-sanitizer --tool memcheck python -m benchmarks.sanitize

Also with racecheck and initcheck. The dynamic graph: loads a range of rows at a time in either
order of vertices, merges a batch with the graph, grows and empties a hub, moves rows and lays them
out anew in pools without room to spare; the result is compared with the same on ``cpu``. Ranks:
every strategy, both policies and storages, personalized queries of every method, alone, many at
once and watched; the errors are compared with the bounds. It fails where a kernel was not launched.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any
from unittest.mock import patch

import numpy as np

from gpu import STRATEGIES, EdgeBatch, Engine, Options, PersonalizedQuery, verify
from gpu.backends import backend_named
from gpu.backends.cuda import CudaBackend
from gpu.generate import rmat
from gpu.graph import Graph
from gpu.personalized import METHODS
from gpu.sweeps import WAYS, sweep_to_target
from gpu.types import BackendName, Dangling, Storage, VertexOrder

SCALE = 13
"""Of the ranked graph: two to the power of it vertices, and three times as many without edges."""

MANY = 9


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


def wide_columns() -> None:
    """Ids of 64 bits that lie on the device already."""
    graph, xp = Graph(backend_named("cuda"), "uniform"), backend_named("cuda").xp
    columns = xp.asarray(np.random.default_rng(7).integers(0, 500, (2, 2000)))
    with patch("gpu.adjacency.LOADED_AT_ONCE", 1000):
        graph.apply(EdgeBatch(columns[0], columns[1]))
    graph.apply(EdgeBatch(columns[1], columns[0]))


def rank(dangling: Dangling, storage: Storage, name: BackendName) -> None:
    """A stream of batches, each ranked by another strategy; then queries."""
    generator = np.random.default_rng(6)
    engine = Engine(Options(dangling=dangling, storage=storage), name)
    # a hub whose row is shared by many warps, and the rows of a skewed graph
    sources, targets = rmat(SCALE, 8, seed=1)
    spokes = np.arange(1 << SCALE)
    hub = np.full(len(spokes), 3)
    engine.apply(
        EdgeBatch(
            np.concatenate([sources, spokes]),
            np.concatenate([targets, hub]),
            vertices=4 << SCALE,
        )
    )
    engine.watch("one", PersonalizedQuery(np.array([5]), target_error=1e-4))
    for place, strategy in enumerate(("static", *STRATEGIES, "auto")):
        size = (3, 40, 400)[place % 3]
        new = generator.integers(0, 1 << SCALE, (2, size))
        gone = generator.integers(0, len(sources), size)
        engine.apply(EdgeBatch(new[0], new[1], sources[gone], targets[gone]))
        check(engine, engine.update(strategy).error_bound)
        engine.refresh_watched()
    if storage == "float64":
        # which so quick a graph is not offered
        engine._state.start_anew()
        sweep_to_target(engine._state, 4, [way for way in WAYS if way.accelerated])
        check(engine, engine.update("auto").error_bound)
    engine.publish().top(20)
    for method in METHODS:
        engine.personalized(np.array([1, 7]), k=5, method=method, target="settled-top-k")
    seeds = generator.integers(0, 1 << SCALE, MANY)
    engine.personalized_many([PersonalizedQuery(np.array([seed]), k=50) for seed in seeds])


def check(engine: Engine, bound: float) -> None:
    """The ranks are within their bound."""
    dangling = engine.options.dangling
    exact, uncertain = verify.pagerank(*engine.edge_list(), engine.vertices, 0.85, dangling)
    assert np.abs(engine.publish().to_numpy() - exact).sum() <= bound + uncertain


def watch_launches(backend: CudaBackend) -> set[str]:
    """The kernels that are not launched yet, and leave the set as they are."""
    left: set[str] = set()

    def noted(name: str, launch: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            left.discard(name)
            launch(*arguments)

        return run

    for file, kernels in backend._kernels.items():
        for expression, launch in kernels.items():
            left.add(f"{file}: {expression}")
            kernels[expression] = noted(f"{file}: {expression}", launch)
    return left


def main() -> None:
    backend = backend_named("cuda")
    assert isinstance(backend, CudaBackend)
    left = watch_launches(backend)
    expected = stream("cpu", "given")
    assert stream("cuda", "given") == expected
    assert stream("cuda", "degree") == expected
    print("the same edges on cuda and on cpu, in either order", flush=True)
    wide_columns()
    for dangling in ("uniform", "self-loop"):
        for storage in ("float64", "float32"):
            rank(dangling, storage, "cuda")
    assert not left, f"not launched: {sorted(left)}"
    print("all errors are within their bounds, and all kernels were launched")


if __name__ == "__main__":
    main()
