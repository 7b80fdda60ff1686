"""Kim's two PageRank methods for GPUs, edge-centric and node-centric, beside our sweeps.

Ten iterations in float32 by the kernels of kim.cu, as the paper has them: 1,000 blocks of 1,000
threads, with the transfers of the graph and the ranks, and without. Their arrays are prepared
before, and copied as CuPy copies. Our `cpu` backend has the place of Green-Marl; `cuda` is our own
sweep; `once` goes from unsorted columns to ranks with a proven bound (liverank_gpu.once). Errors
are L1 distances to the same ten iterations in float64.

    python -m benchmarks.kim ../shared/data
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.networks import read_graph
from benchmarks.timing import Answer, loaded, timed
from liverank_gpu import EdgeBatch, Engine, Options, Result, rank_once
from liverank_gpu.backends import backend_named
from liverank_gpu.backends.cuda.device import Kernel
from liverank_gpu.generate import grid, preferential_attachment, uniform
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.pagerank.iterate import ContributionBuffers

SOURCE = Path(__file__).with_suffix(".cu")
NAMES = (
    *(f"set_minimum<{value}>" for value in ("float", "double")),
    *(
        f"edge_centric<{value}, {undirected}>"
        for value in ("float", "double")
        for undirected in ("false", "true")
    ),
    *(f"node_centric<{value}>" for value in ("float", "double")),
)

DAMPING, ITERATIONS = 0.85, 10
BLOCKS, THREADS = 1000, 1000
REPEATS = 3

FIGURES = {2: "4", 4: "4, medium", 8: "5"}
"""The figure of random graphs, by millions of vertices."""

REAL = {
    "roads of Moscow": ("osm-roads/moscow-roads.gr.bin.zst", True),
    "citations, covid-lit": ("pkg-deps/covid-lit.2020-03-13.links.bin.zst", False),
}
"""The file of each real graph below the folder of graphs, and whether it is undirected."""

Load = Callable[[str], Kernel]
Vector = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Graph:
    """Directed edges, without repeats and loops, where a backend computes.

    sources, targets  int32[m]
    undirected        whether each edge has its reverse
    """

    name: str
    vertices: int
    sources: Array
    targets: Array
    undirected: bool = False


@dataclass(frozen=True)
class Method:
    """One of the paper's methods on a graph.

    host     the arrays that are copied to the device
    iterate  one iteration: these arrays there, and the ranks before and after
    """

    vertices: int
    dtype: type
    host: list[Array]
    iterate: Callable[[list[Array], Array, Array], None]


def edge_centric(backend: Backend, load: Load, graph: Graph, dtype: type = np.float32) -> Method:
    """Algorithms 1 and 2. An undirected graph has one pair for the two directions of an edge."""
    xp, value = backend.xp, "float" if dtype is np.float32 else "double"
    kept = graph.sources < graph.targets if graph.undirected else slice(None)
    columns = xp.stack([graph.sources[kept], graph.targets[kept]], axis=1)
    degrees = xp.bincount(graph.sources, minlength=graph.vertices).astype(np.int32)
    minimum = load(f"set_minimum<{value}>")
    add = load(f"edge_centric<{value}, {str(graph.undirected).lower()}>")
    nodes, damping = np.int32(graph.vertices), dtype(DAMPING)

    def iterate(arrays: list[Array], old: Array, new: Array) -> None:
        pairs, degree = arrays
        minimum((BLOCKS,), (THREADS,), (nodes, dtype((1 - DAMPING) / nodes), new))
        scalars = np.int64(len(pairs)), damping
        add((BLOCKS,), (THREADS,), (*scalars, degree, pairs.reshape(-1), old, new))

    host = [backend.device.to_host(array) for array in (columns, degrees)]
    return Method(graph.vertices, dtype, host, iterate)


def node_centric(backend: Backend, load: Load, graph: Graph, dtype: type = np.float32) -> Method:
    """Algorithm 3. A directed graph needs the pointers of its out-lists too."""
    xp = backend.xp

    def pointers(ends: Array) -> Array:
        ended = xp.cumsum(xp.bincount(ends, minlength=graph.vertices))
        return xp.concatenate([xp.zeros(1, np.int32), ended.astype(np.int32)])

    lists = [pointers(graph.targets), graph.sources[xp.argsort(graph.targets)]]
    if not graph.undirected:
        lists.append(pointers(graph.sources))
    add = load(f"node_centric<{'float' if dtype is np.float32 else 'double'}>")
    scalars = np.int32(graph.vertices), dtype(DAMPING)

    def iterate(arrays: list[Array], old: Array, new: Array) -> None:
        incoming, in_neighbours, *outgoing = arrays
        given = incoming, *(outgoing or [incoming]), in_neighbours
        add((BLOCKS,), (THREADS,), (*scalars, *given, old, new))

    host = [backend.device.to_host(array) for array in lists]
    return Method(graph.vertices, dtype, host, iterate)


METHODS: dict[str, Callable[..., Method]] = {
    "edge-centric": edge_centric,
    "node-centric": node_centric,
}


def upload(backend: Backend, method: Method) -> tuple[list[Array], Array, Array]:
    """The graph, the first ranks and room for the next ones, copied to the device."""
    first: Vector = np.full(method.vertices, 1.0 / method.vertices, method.dtype)
    copied = [backend.device.to_device(array) for array in (*method.host, first)]
    return copied[:-1], copied[-1], backend.xp.empty_like(copied[-1])


def iterations(
    method: Method, arrays: list[Array], old: Array, new: Array, count: int = ITERATIONS
) -> Array:
    """The ranks after `count` iterations, in one of the two arrays."""
    for _ in range(count):
        method.iterate(arrays, old, new)
        old, new = new, old
    return old


def ranks(backend: Backend, method: Method, count: int = ITERATIONS) -> Vector:
    """The ranks after `count` iterations, with all transfers."""
    ranked: Vector = backend.device.to_host(iterations(method, *upload(backend, method), count))
    return ranked


def expected(backend: Backend, graph: Graph, count: int = ITERATIONS) -> Vector:
    """The same iterations in float64, without the kernels."""
    xp = backend.xp
    sources, targets = graph.sources, graph.targets
    degree = xp.maximum(xp.bincount(sources, minlength=graph.vertices), 1)
    ranked = xp.full(graph.vertices, 1.0 / graph.vertices)
    for _ in range(count):
        sums = xp.bincount(targets, weights=(ranked / degree)[sources], minlength=graph.vertices)
        ranked = DAMPING * sums + (1 - DAMPING) / graph.vertices
    answer: Vector = backend.device.to_host(ranked)
    return answer


def by_kim(backend: Backend, load: Load, graph: Graph) -> Iterator[dict[str, Any]]:
    """A row for each method."""
    exact = expected(backend, graph)
    for name, prepared in METHODS.items():
        method = prepared(backend, load, graph)
        error = float(np.abs(ranks(backend, method) - exact).sum())
        whole = partial(ranks, backend, method)
        held = partial(iterations, method, *upload(backend, method))
        yield {
            "method": name,
            "with_transfers_ms": _median(backend, whole)[0],
            "iterations_ms": _median(backend, held)[0],
            "error": harness.rounded(error),
        }


def by_us(backend: Backend, graph: Graph) -> dict[str, Any]:
    """Ten of our sweeps; with transfers: from edges on the host to ranks on the host, the building
    of our dynamic graph included.
    """
    sources, targets = host_column(graph.sources), host_column(graph.targets)
    load = partial(loaded, EdgeBatch(sources, targets, vertices=graph.vertices), backend)

    def sweep_ten(engine: Engine) -> None:
        iterate = engine.internals.iterate
        buffers = ContributionBuffers.allocate(backend, engine.vertices)
        iterate.quantize(buffers)
        for _ in range(ITERATIONS):
            iterate.sweep(buffers)

    def whole() -> None:
        engine = load()
        sweep_ten(engine)
        engine.publish().to_numpy()

    engine = load()
    sweep_ten(engine)
    alone, _ = _median(backend, partial(sweep_ten, engine))
    row: dict[str, Any] = {"method": f"liverank, {backend.name}", "iterations_ms": alone}
    if backend.name == "cuda":
        row["with_transfers_ms"] = harness.rounded(timed(backend.device, whole)[0])
    return row


def by_us_once(backend: Backend, graph: Graph) -> dict[str, Any]:
    """From edges on the host to ranks on the host, by `rank_once`: ten sweeps at most, and to the
    target error; and by an engine to the same. The error bound is that of the target.
    """
    sources, targets = host_column(graph.sources), host_column(graph.targets)
    narrow = sources.astype(np.int32), targets.astype(np.int32)

    def once(options: Options) -> Result:
        found = rank_once(
            narrow[0],
            narrow[1],
            vertices=graph.vertices,
            options=options,
            backend=backend,
            unconverged="ignore",
        )
        found.ranks.to_numpy()
        return found.result

    def by_engine() -> Result:
        engine = loaded(EdgeBatch(sources, targets, vertices=graph.vertices), backend)
        result = engine.update()
        engine.publish().to_numpy()
        return result

    if backend.compiles_kernels:
        once(Options()), by_engine()
    repeats = REPEATS if backend.name == "cuda" else 1
    few, _ = _median(backend, partial(once, Options(max_iterations=ITERATIONS)), repeats)
    whole, result = _median(backend, partial(once, Options()), repeats)
    return {
        "method": f"liverank once, {backend.name}",
        "with_transfers_ms": few,
        "to_target_ms": whole,
        "engine_to_target_ms": _median(backend, by_engine, repeats)[0],
        "sweeps_to_target": result.iterations,
        "error_bound": harness.rounded(result.error_bound),
    }


def host_column(column: Array) -> NDArray[np.int64]:
    """A column on the host."""
    host: NDArray[np.int64] = (column.get() if hasattr(column, "get") else column).astype(np.int64)
    return host


def _median(
    backend: Backend, work: Callable[[], Answer], repeats: int | None = None
) -> tuple[float, Answer]:
    """Of the milliseconds, and the last answer."""
    found = [timed(backend.device, work) for _ in range(repeats or REPEATS)]
    return harness.rounded(median(milliseconds for milliseconds, _ in found)), found[-1][1]


def graphs(
    backend: Backend, folder: Path, shrink: int, millions: Sequence[int]
) -> Iterator[tuple[str, Graph]]:
    """The figure of the paper that each graph belongs to, and the graph."""
    xp = backend.xp
    for size in millions:
        figure = FIGURES[size]
        for density in (1, 5, 10):
            n = size * 1_000_000 // shrink
            ends = uniform(n, density * n, seed=1, backend=backend)
            yield figure, Graph(f"random, {n:,} vertices, {density} edges each", n, *ends)
    for name, (file, undirected) in REAL.items():
        batch = read_graph(folder / file)
        pairs = batch.insert_sources * batch.vertices + batch.insert_targets
        if undirected:
            reverse = batch.insert_targets * batch.vertices + batch.insert_sources
            pairs = np.concatenate([pairs, reverse])
        pairs = np.unique(pairs)
        columns = np.stack(np.divmod(pairs, batch.vertices)).astype(np.int32)
        columns = columns[:, columns[0] != columns[1]]
        sources, targets = (xp.asarray(ends) for ends in columns)
        yield "6", Graph(name, batch.vertices, sources, targets, undirected)
    # as many vertices and nearly as many edges as roadNet-CA and cit-Patents
    side = 1402 // round(shrink**0.5)
    streets = grid(side, side, keep=0.704, seed=1)
    sources, targets = (xp.asarray(ends.astype(np.int32)) for ends in streets)
    yield (
        "6, sizes of the paper",
        Graph("grid like roadNet-CA", side * side, sources, targets, True),
    )
    n = 3_774_768 // shrink
    attached = preferential_attachment(n, 4, seed=1, backend=backend).columns()
    yield "6, sizes of the paper", Graph("attachment like cit-Patents", n, *attached)


def measured(folder: Path, shrink: int, millions: list[int]) -> Iterator[dict[str, Any]]:
    """`shrink` divides the vertices; `millions` of them have the random graphs."""
    backend, cpu = backend_named("cuda"), backend_named("cpu")
    module = backend.xp.RawModule(
        code=SOURCE.read_text(), options=("-std=c++17",), name_expressions=NAMES
    )
    for figure, graph in graphs(backend, folder, shrink, millions):
        facts = {"figure": figure, "graph": graph.name, "vertices": graph.vertices}
        facts["edges"] = len(graph.sources)
        yield from (facts | row for row in by_kim(backend, module.get_function, graph))
        for each in (backend, cpu):
            yield facts | by_us(each, graph)
            yield facts | by_us_once(each, graph)


if __name__ == "__main__":
    options = {"folder": Path, "shrink": 1, "millions": list(FIGURES)}
    suites: harness.Suites = {"kim": (measured, options)}
    harness.run(__doc__, suites, backend="cuda")
