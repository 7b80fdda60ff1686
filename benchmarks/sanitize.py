"""A short stream that launches every kernel, for compute-sanitizer.

    python -m benchmarks.sanitize --tools memcheck racecheck initcheck

runs each of PARTS under each of these tools, as many processes at a time as there are cores, and
records what they found. `--part` runs one part, without a tool. Each array has memory of its own
from the driver, so that a tool knows its ends, and what was never written.

The edges of a dynamic graph, and those of generated graphs. Ranks: every strategy, both policies,
with and without weights and directions, and by pages. Personalized queries of every method, alone,
together, watched and among a few vertices. Programs. What they compute is compared by tests/gpu; a
run fails if a kernel that liverank_gpu.backends.cuda.kernels.loader names was not launched.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, nullcontext
from dataclasses import replace
from functools import partial
from itertools import cycle, product
from pathlib import Path
from time import perf_counter
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from liverank_gpu import (
    METHODS,
    PROGRAMS,
    PUBLISHED_METHODS,
    STRATEGIES,
    EdgeBatch,
    Engine,
    Options,
    OutOfCorePrograms,
    PersonalizedQuery,
    RankReference,
    ViewQuery,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.backends.cuda import kernels_of
from liverank_gpu.backends.cuda.kernels.loader import kernels, units
from liverank_gpu.engine import Group
from liverank_gpu.generate import preferential_attachment, published, rmat, uniform
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.once import rank_once
from liverank_gpu.operations.backend import Backend, PageRule
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, sweep_to_target
from liverank_gpu.programs.algorithms import Algorithm
from liverank_gpu.sharded.columns import dealt
from liverank_gpu.sharded.communicator import SingleCommunicator
from liverank_gpu.sharded.member import Member

RANKED = (
    Options(directed=False),
    Options(dangling="self-loop"),
    Options(dangling="self-loop", weighted=True, directed=False),
    Options(half_life=9.0),
)
"""Kinds of graphs that are ranked: each policy with and without weights."""

SCALE = 13
"""Of the ranked graph: log2 of the number of vertices, to which 3 times as many without edges are
added. So large, its top places are not found by sorting.
"""

SWEEPS = 20
"""Of a solve, at most."""

TOGETHER = 9
"""Queries submitted together."""


STREAMED = (
    Options(vertex_order="given"),
    Options(vertex_order="degree", directed=False),
    Options(vertex_order="degree", dangling="self-loop", weighted=True),
    Options(vertex_order="given", half_life=1.0, directed=False),
)
"""Kinds of graphs that a stream changes."""

NO_EDGES = np.empty((2, 0), np.int64)

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
        stack.enter_context(patch(f"liverank_gpu.graph.{name}", value))
    return stack


def batch_of(
    options: Options,
    time: int,
    insert: NDArray[np.int64],
    delete: NDArray[np.int64] = NO_EDGES,
    **others: Any,
) -> EdgeBatch:
    """A batch with the columns that such a graph takes.

    time            in half-lives
    insert, delete  int64[2, …], sources and targets
    """
    sources, targets = insert
    weights: Any
    times: Any
    # sums of these are exact in any order
    weights = (1 + (sources + targets + time) % 8) / 4 if options.weighted else None
    times = options.half_life * (time + sources % 3) if options.half_life else None
    columns = (sources, targets, delete[0], delete[1])
    return EdgeBatch(*columns, weights=weights, times=times, **others)


def stream(backend: Backend, options: Options) -> None:
    """Loads ranges of rows in either vertex order, rebuilds by a batch, grows and empties a hub,
    loses vertices, moves rows and packs them into arrays without spare slots.
    """
    generator = np.random.default_rng(5)
    graph = Group().graph(backend, options)
    with small_limits():
        edges = (800 * generator.random((2, 6000)) ** 3).astype(np.int64)
        graph.apply(batch_of(options, 0, edges))
        for step, size in enumerate((10, 300, 5000, 40)):
            new = generator.integers(0, 900, (2, size))
            hub = np.full(size, 7)
            gone = edges[:, generator.integers(0, 6000, size)]
            removed = generator.integers(0, 1000, 9)
            to_hub, from_hub = np.stack([new[0], hub]), np.stack([hub, new[1]])
            on_conflict = "add" if options.weighted else "replace"
            batches: tuple[tuple[Any, dict[str, Any]], ...] = (
                ((new, gone), {}),
                ((from_hub, to_hub), {"on_conflict": on_conflict}),
                ((to_hub, from_hub), {"remove": removed, "vertices": 1000 + size}),
            )
            for place, (columns, others) in enumerate(batches):
                # edges expire after 100 half-lives
                graph.apply(batch_of(options, 90 * step + 20 * place, *columns, **others))
            assert graph.outgoing.partition().count == graph.in_rows().count == graph.vertices
            graph.edge_list(), graph.edge_weights()


def wide_columns(backend: Backend, weighted: bool) -> None:
    """Loads and rebuilds from 64-bit ids that are on the device already, and a batch that is too
    large to be applied by one launch.
    """
    graph, generator = DynamicGraph(backend, "uniform", weighted=weighted), np.random.default_rng(7)
    columns = backend.xp.asarray(generator.integers(0, 500, (2, 2000)))
    weights = backend.xp.ones(2000, np.float32) if weighted else None
    with small_limits():
        graph.apply(EdgeBatch(columns[0], columns[1], weights=weights))
    graph.apply(EdgeBatch(columns[1], columns[0], weights=weights))
    many = generator.integers(0, 500, (2, 20_000))
    weights = np.ones(20_000, np.float32) if weighted else None
    graph.apply(EdgeBatch(many[0], many[1], weights=weights))


def dynamic_graphs(backend: Backend) -> None:
    """Of every kind."""
    for options in STREAMED:
        stream(backend, options)
    for weighted in (False, True):
        wide_columns(backend, weighted)


def generated(backend: Backend) -> None:
    """Draws graphs."""
    backend.generate.random_numbers(np.uint64(1), 3, 1000)
    for n, d in ((3000, 5), (300, 40)):
        preferential_attachment(n, d, probability=0.2, seed=1, backend=backend)
    for scheme in get_args(published.Scheme):
        published.preferential_attachment(
            9000, 1, probability=0.1, seed=1, scheme=scheme, backend=backend
        )
    uniform(300, 4000, seed=1, backend=backend)


def programs(backend: Backend) -> None:
    """Every program, continued after insertions too, and over windows of edges. Rows of every
    length.
    """
    for options in (Options(), Options(weighted=True, directed=False)):
        engine, generator = Engine(options, backend), np.random.default_rng(8)
        edges = (400 * generator.random((2, 3000)) ** 3).astype(np.int64)
        spokes = np.stack([np.full(1500, 3), np.arange(1500)])
        engine.apply(batch_of(options, 0, np.concatenate([edges, spokes, spokes[::-1]], axis=1)))
        first = {name: engine.run(name) for name in PROGRAMS}
        engine.apply(batch_of(options, 1, edges[::-1, :50], edges[:, :1]))
        modes = ("synchronous", "asynchronous")
        for name, mode in product(("levels", "distances", "components"), modes):
            engine.run(name, after=first[name], mode=mode)
            engine.run(name, mode=mode)
        engine.run("trussness", binary=0, partitions=3)
        with OutOfCorePrograms(1 << 20, options, backend) as graph:
            graph.add(*edges)
            algorithms = [name for name, each in PROGRAMS.items() if isinstance(each, Algorithm)]
            for name in ("levels", "distances", "components", "pagerank", *algorithms):
                graph.run(name)


def rank(options: Options, backend: Backend) -> None:
    """A stream of batches, each ranked by another strategy; then queries."""
    generator = np.random.default_rng(6)
    # few sweeps, which a sanitizer slows down; bounds hold wherever a solve ends
    engine = Engine(replace(options, tolerance=1e-5, max_iterations=SWEEPS), backend)
    # a hub whose row is shared by many warps, and the rows of a skewed graph
    edges = np.stack(rmat(SCALE, 8, seed=1))
    spokes = np.stack([np.arange(1 << SCALE), np.full(1 << SCALE, 3)])
    loaded = np.concatenate([edges, spokes], axis=1)
    # from the hub to vertices without edges
    following = np.stack([np.full(50, 3), np.arange(50) + (1 << SCALE)])
    engine.apply(batch_of(options, 0, loaded, vertices=4 << SCALE))
    engine.watch("one", PersonalizedQuery(np.array([5]), target_error=1e-4))
    for place, strategy in enumerate(("static", *STRATEGIES, "auto")):
        size = (3, 40, 400)[place % 3]
        new = generator.integers(0, 1 << SCALE, (2, size))
        gone = edges[:, generator.integers(0, edges.shape[1], size)]
        engine.apply(batch_of(options, 3 * place, new, gone))
        # sweeps over a graph as small as this are fused
        with single_sweeps(backend) if place % 2 else nullcontext():
            engine.update(strategy)
        engine.refresh_watched()
    time = 3 * len(STRATEGIES) + 6
    # which the schedule does not choose on a graph that converges so fast
    iterate = engine.internals.iterate
    iterate.reset()
    sweep_to_target(iterate, 4, [kind for kind in SWEEP_KINDS if kind.accelerated])
    engine.update("auto")
    ranks = engine.publish()
    ranks.top(20)
    told = RankReference(ranks)
    engine.apply(batch_of(options, time, following[:, :9]))
    engine.update("auto")
    assert told.changes(engine.publish(), threshold=0.01, most=10).found
    engine.update("dynamic-frontier-prune", "published")
    engine.update("static", "published")
    engine.apply(batch_of(options, time, new, remove=generator.integers(10, 1 << SCALE, 40)))
    engine.update("auto")
    push_parts(engine)
    engine.update("auto")
    read_edges(engine, batch_of(options, time + 3, following[:, 9:]))
    engine.update("auto")
    vertices = np.delete(np.arange(1 << SCALE), engine.free_ids())
    views(engine, vertices)
    for method in METHODS:
        engine.personalized(vertices[[1, 7]], k=5, method=method, target="settled-top-k")
    engine.personalized(vertices[[1, 7]], k=5, damping=0.5, among=vertices[::3])
    for each in PUBLISHED_METHODS:
        engine.personalized(vertices[[3]], method=each, form="published", target_error=0.5)
    seeds = generator.choice(vertices, TOGETHER)
    # of another damping, for which no direction of deflation is known
    for damping in (None, 0.5):
        engine.personalized_many(
            [PersonalizedQuery(np.array([seed]), k=50, damping=damping) for seed in seeds]
        )


def views(engine: Engine, vertices: NDArray[np.int64]) -> None:
    """A view whose seeds change, and the graph that edges are ranked in once."""
    for seeds in (vertices[[2, 9]], vertices[[2, 11, 30]]):
        engine.put_view("view", ViewQuery(seeds))
        engine.view("view")
    options, backend = engine.options, engine.internals.backend
    if options.half_life is None:
        weights = engine.edge_weights() if options.weighted else None
        rank_once(*engine.edge_list(), weights, options=options, backend=backend)


def push_parts(engine: Engine) -> None:
    """What shards push with, on the edges of a graph in one shard."""
    options, backend = engine.options, engine.internals.backend
    free = replace(backend.costs, exchange=0.0, sweep_overhead=0.0, pushed_edge=0.01)
    shard = Member(
        SingleCommunicator(),
        replace(options, half_life=None, target_error=1e-4),
        replace(backend, costs=free),
    )
    weights = engine.edge_weights() if options.weighted else None
    shard.apply(EdgeBatch(*engine.edge_list(), weights=weights))
    shard.update("static")
    shard.apply(*dealt(EdgeBatch.of(insert=[(1, 2), (5, 9), (7, 7)]), 1))
    trace = shard.update("residual", trace=True).trace
    assert trace is not None
    assert trace.pushes > 0


def paged_ranks(backend: Backend) -> None:
    """Ranks by pages, which a stream splits and fills in several rounds."""
    edges = np.stack(rmat(SCALE - 1, 16, seed=2))
    spokes = np.stack([np.arange(1 << SCALE - 1), np.full(1 << SCALE - 1, 9)])
    new = EdgeBatch(*np.stack(rmat(SCALE - 1, 1, seed=3)), *edges[:, :99])
    batches = [EdgeBatch(*spokes), new, EdgeBatch.of(remove=[9, 10])]
    for weighted in (False, True):
        engine = Engine(Options(max_iterations=SWEEPS, weighted=weighted), paged(backend))
        engine.apply(EdgeBatch(*edges))
        for batch in batches:
            engine.apply(batch)
            with single_sweeps(engine.internals.backend):
                engine.update("static")
                iterate = engine.internals.iterate
                iterate.reset()
                sweep_to_target(iterate, 4, [kind for kind in SWEEP_KINDS if kind.accelerated])
                engine.update("auto")
        engine.personalized(np.array([3]), k=5, method="pull")
        assert engine.memory()["pages"] > 0


def read_edges(engine: Engine, following: EdgeBatch) -> None:
    """Reads the edges of a few vertices, and all edges of one moment after another batch."""
    reader = engine.edge_reader
    captured = reader.capture(reader.buffer())
    reader.out_edges(np.array([3, 5]), 1 << 20)
    reader.neighbours(3, "in", 100)
    engine.apply(following)
    assert sum(len(block.sources) for block in captured.blocks())


def paged(backend: Backend) -> Backend:
    """The backend as on a large graph, whose in-lists are kept in pages."""
    return replace(backend, costs=replace(backend.costs, pages=PageRule(1, 0.0, 0.0)))


def single_sweeps(backend: Backend) -> AbstractContextManager[Any]:
    """A context in which sweeps are run one at a time, as on a large graph."""
    return patch.object(type(backend.sweeps), "most_fused", lambda *_: 1)


PARTS: dict[str, Callable[[Backend], None]] = {
    "edges": dynamic_graphs,
    "generated": generated,
    **{f"ranks-{place}": partial(rank, options) for place, options in enumerate(RANKED)},
    "pages": paged_ranks,
    "programs": programs,
}


def watch_launches(backend: Backend) -> set[str]:
    """The kernels that have not been launched; each leaves the set at its first launch."""
    left = {f"{unit}: {expression}" for unit in units() for expression in kernels(unit)}

    def noted(name: str, kernel: Callable[..., None]) -> Callable[..., None]:
        def run(*arguments: Any, **shared: int) -> None:
            left.discard(name)
            kernel(*arguments, **shared)

        return run

    loaded = kernels_of(backend)
    for unit in units():
        own = loaded[unit]
        for expression, kernel in own.items():
            own[expression] = noted(f"{unit}: {expression}", kernel)
    return left


def run(backend: Backend, parts: Sequence[str] = tuple(PARTS)) -> set[str]:
    """Runs parts on a ``cuda`` backend. Returns the kernels that were not launched."""
    left = watch_launches(backend)
    for part in parts:
        PARTS[part](backend)
        print(f"{part}: done", flush=True)
    return left


_NOT_LAUNCHED = "not launched: "

_OPTIONS = {
    # cuda.bindings looks for functions of newer drivers
    "memcheck": ["--report-api-errors", "no"],
    # kernels of CuPy that sort
    "racecheck": ["--kernel-regex-exclude", "kns=cupy"],
    "initcheck": [],
}
"""Options of each tool."""


def checked(tool: str, part: str, device: str) -> dict[str, Any]:
    """Runs a part under a tool: its errors, seconds, and the kernels that were not launched."""
    began = perf_counter()
    run = [sys.executable, "-P", "-m", "benchmarks.sanitize", "--part", part]
    done = subprocess.run(
        ["compute-sanitizer", "--tool", tool, *_OPTIONS[tool], *run],
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"CUDA_VISIBLE_DEVICES": device},
    )
    summary = re.search(r"SUMMARY: (\d+) (errors|hazards)", done.stdout)
    left = re.search(_NOT_LAUNCHED + "(.*)", done.stdout)
    if done.returncode or summary is None or left is None:
        sys.exit(f"{tool} of {part} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
    seconds = perf_counter() - began
    row = {"tool": tool, "part": part, "errors": int(summary[1]), "seconds": seconds}
    print(row, flush=True)
    return row | {"left": json.loads(left[1])}


def check_all(tools: Sequence[str], results: Path) -> None:
    """All parts under these tools, on the devices of CUDA_VISIBLE_DEVICES in turn, or on the
    first, and the record of what was found.
    """
    devices = os.environ.get("CUDA_VISIBLE_DEVICES", "0").split(",")
    parts = zip(product(tools, PARTS), cycle(devices), strict=False)
    jobs = [(tool, part, device) for (tool, part), device in parts]
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        rows = list(pool.map(lambda job: checked(*job), jobs))
    for tool in tools:
        left = set.intersection(*(set(row["left"]) for row in rows if row["tool"] == tool))
        assert not left, f"not launched under {tool}: {sorted(left)}"
    rows = [{key: row[key] for key in row if key != "left"} for row in rows]
    print(harness.record("sanitize", "cuda", {"rows": rows}, results))
    assert not any(row["errors"] for row in rows)


def main() -> None:
    parser = harness.parser("a stream that launches every kernel, for compute-sanitizer")
    parser.add_argument("--tools", nargs="+", choices=_OPTIONS, help="of compute-sanitizer")
    parser.add_argument("--part", dest="parts", action="append", choices=PARTS)
    given = parser.parse_args()
    if given.tools:
        check_all(given.tools, given.results)
        return
    import cupy

    cupy.cuda.set_allocator(None)
    parts = given.parts or tuple(PARTS)
    left = run(backend_named("cuda"), parts)
    print(_NOT_LAUNCHED + json.dumps(sorted(left)))
    assert given.parts or not left


if __name__ == "__main__":
    main()
