"""A short stream that launches every kernel, for compute-sanitizer.

    compute-sanitizer --tool memcheck python -m benchmarks.sanitize

Also with racecheck and initcheck. The dynamic graph loads ranges of rows in either vertex order, is
rebuilt by a batch, grows and empties a hub, moves rows and packs them into arrays without spare
slots. Its edges, and those of generated graphs, are compared with those on ``cpu``. Ranks: every
strategy, both policies and storages, and personalized queries of every method, alone, together and
watched; errors are compared with their bounds. It fails if a kernel was not launched.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import replace
from itertools import product
from typing import Any, get_args
from unittest.mock import patch

import numpy as np

from gpu import (
    METHODS,
    STRATEGIES,
    Dangling,
    EdgeBatch,
    Engine,
    Options,
    PersonalizedQuery,
    RankReference,
    Storage,
    verify,
)
from gpu.backends import backend_named
from gpu.backends.cuda import kernels_of
from gpu.generate import preferential_attachment, rmat, uniform
from gpu.graph.dynamic_graph import DynamicGraph
from gpu.operations.backend import Backend
from gpu.pagerank.schedule import SWEEP_KINDS
from gpu.pagerank.sweeps import sweep_to_target
from gpu.types import VertexOrder

SCALE = 13
"""Of the ranked graph: log2 of the number of vertices, to which 3 times as many without edges are
added.
"""

TOGETHER = 9
"""Queries submitted together."""

LOADED_AT_ONCE, REBUILT_BY = 1000, 4000
"""Edges of a range, and operations above which a batch rebuilds the graph: a small graph has all
cases of a large one then.
"""


def small_limits() -> ExitStack:
    """A context in which small graphs are treated as large ones are."""

    def is_rebuilt_by(graph: DynamicGraph, operations: int) -> bool:
        return operations > (REBUILT_BY if graph.edges else 0)

    stack = ExitStack()
    for name, value in (
        ("packed_csr.LOADED_AT_ONCE", LOADED_AT_ONCE),
        ("packed_csr.LEAST_SPARE", 4),
        ("packed_csr.SPARE_PART", 1 << 40),
        ("dynamic_graph.DynamicGraph.is_rebuilt_by", is_rebuilt_by),
    ):
        stack.enter_context(patch(f"gpu.graph.{name}", value))
    return stack


def stream(backend: Backend, order: VertexOrder) -> list[list[int]]:
    """The edges after each of the batches, sorted."""
    generator = np.random.default_rng(5)
    graph = DynamicGraph(backend, "uniform", order)
    states = []
    with small_limits():
        edges = (800 * generator.random((2, 6000)) ** 3).astype(np.int64)
        graph.apply(EdgeBatch(edges[0], edges[1]))
        for size in (10, 300, 5000, 40):
            new = generator.integers(0, 900, (2, size))
            hub = np.full(size, 7)
            gone = edges[:, generator.integers(0, 6000, size)]
            graph.apply(EdgeBatch(new[0], new[1], gone[0], gone[1]))
            graph.apply(EdgeBatch(hub, new[1], new[0], hub))
            graph.apply(EdgeBatch(new[0], hub, hub, new[1], 1000 + size))
            assert graph.outgoing.partition().count == graph.in_rows().count == graph.vertices
            sources, targets = graph.edge_list()
            states.append(sorted((sources << 32 | targets).tolist()))
    return states


def wide_columns(backend: Backend) -> None:
    """Loads and rebuilds from 64-bit ids that are on the device already."""
    graph = DynamicGraph(backend, "uniform")
    columns = backend.xp.asarray(np.random.default_rng(7).integers(0, 500, (2, 2000)))
    with small_limits():
        graph.apply(EdgeBatch(columns[0], columns[1]))
    graph.apply(EdgeBatch(columns[1], columns[0]))


def generated(backend: Backend) -> list[list[int]]:
    """What the generators draw."""
    numbers = backend.generate.random_numbers(np.uint64(1), 3, 1000)
    attached = [
        preferential_attachment(n, d, probability=0.2, seed=1, backend=backend).links.ravel()
        for n, d in ((3000, 5), (300, 40))
    ]
    columns = uniform(300, 4000, seed=1, backend=backend)
    return [backend.device.to_host(drawn).tolist() for drawn in (numbers, *attached, *columns)]


def rank(backend: Backend, dangling: Dangling, storage: Storage) -> None:
    """A stream of batches, each ranked by another strategy; then queries."""
    generator = np.random.default_rng(6)
    engine = Engine(Options(dangling=dangling, storage=storage), backend)
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
        # which the schedule does not choose on a graph that converges so fast
        iterate = engine.internals.iterate
        iterate.reset()
        sweep_to_target(iterate, 4, [kind for kind in SWEEP_KINDS if kind.accelerated])
        check(engine, engine.update("auto").error_bound)
    ranks = engine.publish()
    ranks.top(20)
    told = RankReference(ranks)
    engine.apply(EdgeBatch(hub[:9], spokes[:9]))
    engine.update("auto")
    assert told.changes(engine.publish(), threshold=0.01, most=10).found
    if storage == "float64":
        engine.update("dynamic-frontier-prune", "published")
        engine.update("static", "published")
        small_frontiers(backend, dangling)
    for method in METHODS:
        engine.personalized(np.array([1, 7]), k=5, method=method, target="settled-top-k")
    seeds = generator.integers(0, 1 << SCALE, TOGETHER)
    engine.personalized_many([PersonalizedQuery(np.array([seed]), k=50) for seed in seeds])


def small_frontiers(backend: Backend, dangling: Dangling) -> None:
    """Frontiers as lists, which a device keeps only of float32 ranks."""
    lists = replace(backend, costs=replace(backend.costs, sparse_part=1))
    engine = Engine(Options(dangling=dangling), lists)
    vertices = np.arange(1 << SCALE)
    engine.apply(EdgeBatch(vertices, vertices // 2))
    engine.update("static")
    for strategy, size in (("dynamic-frontier", len(vertices) // 2), ("dynamic-frontier-prune", 9)):
        engine.apply(EdgeBatch(vertices[:size], vertices[-size:]))
        check(engine, engine.update(strategy).error_bound)


def check(engine: Engine, bound: float) -> None:
    """Asserts that the ranks are within their bound."""
    dangling = engine.options.dangling
    exact, uncertain = verify.pagerank(*engine.edge_list(), engine.vertices, 0.85, dangling)
    assert np.abs(engine.publish().to_numpy() - exact).sum() <= bound + uncertain


def watch_launches(backend: Backend) -> set[str]:
    """The kernels that have not been launched; each leaves the set at its first launch."""
    left: set[str] = set()

    def noted(name: str, kernel: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any) -> None:
            left.discard(name)
            kernel(*arguments)

        return run

    for file, kernels in kernels_of(backend).items():
        for expression, kernel in kernels.items():
            left.add(f"{file}: {expression}")
            kernels[expression] = noted(f"{file}: {expression}", kernel)
    return left


def run(
    backend: Backend, reference: Backend, cases: Iterable[tuple[Dangling, Storage]]
) -> set[str]:
    """Everything on a ``cuda`` backend. Returns the kernels that were not launched.

    reference  the backend that edges are compared with
    cases      policies and storages of the ranked graphs
    """
    left = watch_launches(backend)
    expected = stream(reference, "given")
    for order in ("given", "degree"):
        assert stream(backend, order) == expected
    print("the same edges on cuda and on cpu, in either order", flush=True)
    wide_columns(backend)
    assert generated(backend) == generated(reference)
    for dangling, storage in cases:
        rank(backend, dangling, storage)
    print("all errors are within their bounds", flush=True)
    return left


def main() -> None:
    cases = product(get_args(Dangling), get_args(Storage))
    left = run(backend_named("cuda"), backend_named("cpu"), cases)
    assert not left, f"not launched: {sorted(left)}"
    print("all kernels were launched")


if __name__ == "__main__":
    main()
