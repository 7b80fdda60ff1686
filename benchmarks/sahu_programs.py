"""Figures 1 and 2 of the DF-P paper (Sahu, 2024): ways to partition the vertices, and Static beside
other programs. benchmarks.sahu runs them.

Figure 1, on ``cuda`` alone: DF and DF-P by two kernels over all vertices, a thread and a block for
each, which skip the vertices of the other one ("Don't Partition"); with vertices divided by
in-degree for the ranks ("Partition G'"), and by out-degree for the affected set too ("Partition G,
G'"); and with a thread for each vertex alone. The division itself takes no time here, as the graph
maintains it. No set is kept as a list, as the paper has none.

Figure 2: Static in both forms, beside a power iteration by the sparse product of SciPy (``cpu``) or
cuSPARSE (``cuda``), with the same stop rule, and on ``cpu`` igraph and NetworKit where they are
installed. All from a graph in memory to its ranks, with a loop at each vertex.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any
from unittest.mock import patch
from weakref import WeakKeyDictionary

import numpy as np

from benchmarks.peer_solvers import Edges, igraph_solver, networkit_solver, sparse_solver
from benchmarks.peers import distinct
from benchmarks.timing import loaded, timed
from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.backends.cuda.device import CudaDevice, Kernel
from liverank_gpu.backends.cuda.kernels.loader import source
from liverank_gpu.graph.packed_csr import PackedCsr
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Rows
from liverank_gpu.types import Form, Ranking

REPEATS = 5
NOT_PARTITIONED, BY_IN_DEGREE, PARTITIONED = "Don't Partition", "Partition G'", "Partition G, G'"
BY_THREADS = "a thread for each vertex"
WAYS = (NOT_PARTITIONED, BY_IN_DEGREE, PARTITIONED, BY_THREADS)

LONG = 64
"""Entries of the longest row of a thread: that of the graph's degree bins."""

SELECTING = ("update_ranks<1>", "update_ranks<BLOCK>", "expand<1>", "expand<BLOCK>")
_compiled = WeakKeyDictionary[CudaDevice, Callable[[str], Kernel]]()

FRONTIERS = ("dynamic-frontier", "dynamic-frontier-prune")


def partitions(
    graph: str, first: EdgeBatch, batches: list[EdgeBatch], backend: Backend
) -> Iterator[dict[str, Any]]:
    """Figure 1: rows of one graph. The ways take turns at each batch, each with its own engine."""
    for strategy in FRONTIERS:
        engines = {way: loaded(first, backend, dangling="self-loop") for way in WAYS}
        times: dict[str, list[float]] = {way: [] for way in WAYS}
        for engine in engines.values():
            engine.update("static", "published")
        for batch in batches:
            for way, engine in engines.items():
                engine.apply(batch)
                with divided(engine, way):
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
def divided(engine: Engine, way: str) -> Iterator[None]:
    """Solves by ordinary launches, over rows that are divided in this way."""
    graph, device = engine.internals.iterate.graph, engine.internals.backend.device
    assert isinstance(device, CudaDevice), "the kernels of `cuda`"
    partition, everything = PackedCsr.partition, device.xp.arange(graph.vertices, dtype=np.int32)

    def rows_of(lists: PackedCsr) -> Rows:
        known = partition(lists)
        if way == PARTITIONED or (way == BY_IN_DEGREE and lists is graph.incoming):
            return known
        groups = np.zeros_like(known.groups)
        groups[-1] = graph.vertices
        if way == BY_THREADS:
            return Rows(everything, groups)
        groups[1:] += graph.vertices  # all for the blocks, and all for the threads
        groups[1:-1] = graph.vertices
        return Rows(device.xp.concatenate([everything, everything]), groups)

    no_lists = replace(graph.backend.sizes, affected_edges=-1)
    without_lists = replace(graph.backend, sizes=no_lists)
    selecting = {NOT_PARTITIONED: SELECTING, BY_IN_DEGREE: SELECTING[2:]}.get(way, ())
    with (
        patch.object(PackedCsr, "partition", rows_of),
        patch.dict(device.kernels["published"], _selecting(device, selecting)),
        patch.object(graph, "backend", without_lists),
    ):
        yield


def _selecting(device: CudaDevice, names: tuple[str, ...]) -> dict[str, Kernel]:
    """Kernels over all vertices that skip the vertices of the other one."""
    if device not in _compiled:
        _compiled[device] = device.compile("dont_partition", selecting_text(), SELECTING)
    return {name: _compiled[device](name) for name in names}


def selecting_text() -> str:
    """The engine's kernels, of which each skips the rows that are of a length for the other one."""
    text = source("published")
    for vertex, lists in (("v", "in"), ("u", "out")):
        line = f"const int {vertex} = order[at];"
        assert text.count(line) == 1, line
        skips = f"if (({lists}.lengths[{vertex}] > {LONG}) != (LANES > 1)) continue;"
        text = text.replace(line, f"{line} {skips}")
    return text


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
    engine = loaded(first, backend, dangling="self-loop", target_error=1e-12)
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
    solve = sparse_solver(edges, xp, largest=True, most=Options().max_iterations)
    return partial(solve, tolerance)
