"""Figures 1 and 2 of the DF-P paper (Sahu, 2024): ways to partition the vertices, and Static beside
other programs. benchmarks.sahu runs them.

Figure 1, on ``cuda`` alone: DF and DF-P with all vertices by a thread each; divided by in-degree
for the ranks ("Partition G'"); and by out-degree for the affected set too ("Partition G, G'"). The
division itself takes no time here, as the graph maintains it. No set is kept as a list, as the
paper has none.

Figure 2: Static in both forms, beside a power iteration by the sparse product of SciPy (``cpu``) or
cuSPARSE (``cuda``), with the same stop rule, and on ``cpu`` igraph and NetworKit where they are
installed. All from a graph in memory to its ranks, with a loop at each vertex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from statistics import median
from typing import Any
from unittest.mock import patch

import numpy as np

from benchmarks.peer_solvers import Edges, igraph_solver, networkit_solver
from benchmarks.peers import distinct
from benchmarks.timing import timed
from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.graph.packed_csr import PackedCsr
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Rows
from liverank_gpu.types import Form, Ranking

REPEATS = 5
ALL_BY_THREADS = "a thread for each vertex"
PARTITIONS = (ALL_BY_THREADS, "Partition G'", "Partition G, G'")
FRONTIERS = ("dynamic-frontier", "dynamic-frontier-prune")


def partitions(
    graph: str, first: EdgeBatch, batches: list[EdgeBatch], backend: Backend
) -> Iterator[dict[str, Any]]:
    """Figure 1: rows of one graph. The ways take turns at each batch, each with its own engine."""
    for strategy in FRONTIERS:
        options = Options(dangling="self-loop")
        engines = {way: _loaded(first, backend, options) for way in PARTITIONS}
        times: dict[str, list[float]] = {way: [] for way in PARTITIONS}
        for engine in engines.values():
            engine.update("static", "published")
        for batch in batches:
            for way, engine in engines.items():
                engine.apply(batch)
                with _partitioned(engine, way):
                    result = engine.update(strategy, "published")
                times[way].append(1e3 * (result.mark_seconds + result.solve_seconds))
        for way, own in times.items():
            yield {
                "figures": "1",
                "graph": graph,
                "dangling": "self-loop",
                "strategy": strategy,
                "partition": way,
                "median_ms": median(own),
            }


@contextmanager
def _partitioned(engine: Engine, way: str) -> Iterator[None]:
    """Solves by ordinary launches, over rows that are divided in this way."""
    graph = engine.internals.iterate.graph
    partition = PackedCsr.partition

    def divided(rows: PackedCsr) -> Rows:
        known = partition(rows)
        if way == PARTITIONS[2] or (way == PARTITIONS[1] and rows is graph.incoming):
            return known
        groups = np.zeros_like(known.groups)
        groups[-1] = graph.vertices
        return Rows(graph.backend.xp.arange(graph.vertices, dtype=np.int32), groups)

    with (
        patch.object(PackedCsr, "partition", divided),
        patch("liverank_gpu.backends.cuda.published.LISTED_EDGES", -1),
    ):
        yield


Solve = Callable[[], tuple[float, Ranking]]
"""Milliseconds and ranks of one solve."""


def programs(graph: str, first: EdgeBatch, backend: Backend) -> Iterator[dict[str, Any]]:
    """Figure 2: rows of one graph. The programs take turns."""
    xp, size = backend.xp, first.vertices
    sources, targets = (
        xp.concatenate([xp.asarray(ids, np.int64), xp.arange(size)])
        for ids in (first.insert_sources, first.insert_targets)
    )
    edges = distinct(graph, size, sources, targets, xp)
    options = Options(dangling="self-loop", target_error=1e-12)
    engine = _loaded(first, backend, options)
    engine.update("auto")
    exact = engine.publish().to_numpy()
    solves = {
        f"Static, {form}": _static(engine, form) for form in ("published", "accelerated")
    } | dict(_others(edges, backend))
    times: dict[str, list[float]] = {name: [] for name in solves}
    errors = {name: float(np.abs(solve()[1] - exact).sum()) for name, solve in solves.items()}
    for _ in range(REPEATS):
        for name, solve in solves.items():
            times[name].append(solve()[0])
    for name, own in times.items():
        yield {
            "figures": "2",
            "graph": graph,
            "dangling": "self-loop",
            "edges": len(edges.sources),
            "contender": name,
            "median_ms": median(own),
            "error": errors[name],
        }


def _loaded(first: EdgeBatch, backend: Backend, options: Options) -> Engine:
    engine = Engine(options, backend)
    engine.apply(first)
    return engine


def _static(engine: Engine, form: Form) -> Solve:
    def solve() -> tuple[float, Ranking]:
        result = engine.update("static", form)
        spent = 1e3 * (result.mark_seconds + result.solve_seconds)
        return spent, engine.publish().to_numpy()

    return solve


def _others(edges: Edges, backend: Backend) -> Iterator[tuple[str, Solve]]:
    tolerance, device = Options().tolerance, backend.device
    product = _power_iteration(edges, backend.xp, tolerance)

    def multiply() -> tuple[float, Ranking]:
        spent, ranks = timed(device, product)
        return spent, device.to_host(ranks)

    yield ("cuSPARSE" if backend.name == "cuda" else "SciPy"), multiply
    if backend.name == "cpu" and find_spec("igraph"):
        igraph = igraph_solver(edges, kernels.threads())
        yield "igraph", lambda: timed(device, lambda: igraph(tolerance))
    if backend.name == "cpu" and find_spec("networkit"):
        networkit = networkit_solver(edges, kernels.threads())
        yield "NetworKit", lambda: timed(device, lambda: networkit(tolerance))


def _power_iteration(edges: Edges, xp: Any, tolerance: float) -> Callable[[], Any]:
    """The published Static by a sparse product, on a graph without dangling vertices."""
    sparse = import_module("scipy.sparse" if xp is np else "cupyx.scipy.sparse")
    size, damping, most = edges.vertices, Options().damping, Options().max_iterations
    columns = (xp.asarray(edges.targets, np.int32), xp.asarray(edges.sources, np.int32))
    transpose = sparse.csr_matrix((xp.ones(len(edges.sources)), columns), shape=(size, size))
    weights = damping / xp.bincount(columns[1], minlength=size)

    def solve() -> Any:
        ranks = xp.full(size, 1.0 / size)
        for _ in range(most):
            following = transpose @ (ranks * weights) + (1.0 - damping) / size
            change = float(xp.abs(following - ranks).max())
            ranks = following
            if change <= tolerance:
                break
        return ranks

    return solve
