"""The residual strategy on R-MAT and on grids, where it does most and least work.

Times are those of the solve (benchmarks.timing.Solve). The error is the L1 distance of the last
ranks to a solve to 1e-11. R-MAT is numbered by descending degree.

    python -m benchmarks.residual --backend cuda --rmat 24 --grid 4096

With `--costs` each graph is ranked with each of these costs in place of the backend's, which decide
how long a batch is pushed before sweeps take over. They take turns at each batch, so that other
work on the machine affects all alike:

    python -m benchmarks.residual --rmat 16 --costs "{}" '{"pushed_edge": 16}'
"""

from __future__ import annotations

import json
from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import replace
from statistics import fmean, median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import drawn_grid, drawn_rmat, grid_target, rmat_target
from benchmarks.timing import Solve, TimedEngine
from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend

RMAT_BATCHES = (26, 263, 2_634, 26_342)
GRID_BATCH = 10


def measured(
    name: str,
    size: int,
    engines: Sequence[TimedEngine],
    batches: Iterator[EdgeBatch],
    count: int,
    warm_up: int,
) -> list[dict[str, Any]]:
    """Figures of each engine, which all take `count` batches, after some that are not counted."""
    solves: list[list[Solve]] = [[] for _ in engines]
    for number in range(warm_up + count):
        batch = next(batches)
        for turn in range(len(engines)):
            place = (number + turn) % len(engines)
            solves[place].append(engines[place].batch(batch))
    return [
        _figures(name, size, timed, own[warm_up:])
        for timed, own in zip(engines, solves, strict=True)
    ]


def _figures(name: str, size: int, timed: TimedEngine, solves: list[Solve]) -> dict[str, Any]:
    times = [solve.milliseconds for solve in solves]
    figures = {
        "graph": name,
        "vertices": timed.engine.vertices,
        "edges": timed.engine.edges,
        "batch_size": size,
        "batches": len(solves),
        "target_error": timed.engine.options.target_error,
        "mean_ms": fmean(times),
        "median_ms": median(times),
        "largest_ms": max(times),
        "mean_perturbation_ms": fmean(solve.perturbation for solve in solves),
        "mean_iterations": fmean(solve.iterations for solve in solves),
        "mean_touched_vertices": fmean(solve.touched_vertices for solve in solves),
        "mean_error_bound": fmean(solve.error_bound for solve in solves),
        "converged": all(solve.converged for solve in solves),
        "last_error": timed.error(),
    }
    print(
        f"{name:10} {size:6}  mean {figures['mean_ms']:7.3f}  median {figures['median_ms']:7.3f}"
        f"  largest {figures['largest_ms']:7.3f} ms  perturbation"
        f" {figures['mean_perturbation_ms']:6.3f}  {figures['mean_iterations']:6.1f} iterations"
        f"  {figures['mean_touched_vertices']:12.1f} touched  bound"
        f" {figures['mean_error_bound']:.2e}  error {figures['last_error']:.2e}",
        flush=True,
    )
    return figures


def ranked(backends: Sequence[Backend], arguments: Namespace) -> Iterator[list[dict[str, Any]]]:
    """Figures of each graph and size of batches, by each backend."""
    backend = backends[0]
    xp, to_host = backend.xp, backend.device.to_host
    generator, random = np.random.default_rng(7), xp.random.default_rng(7)
    counts = arguments.batches, arguments.warm_up
    for side in arguments.grid:
        engines = [TimedEngine(Options(target_error=grid_target(side)), each) for each in backends]
        graph = drawn_grid(xp, random, side)
        for timed in engines:
            timed.batch(graph.load_from_host(backend.device))
        batches = graph.batches(generator, GRID_BATCH, to_host)
        yield measured(f"grid {side}", GRID_BATCH, engines, batches, *counts)
        del timed, engines, graph, batches
    for scale in arguments.rmat:
        graph = drawn_rmat(xp, random, scale, by_degree=True)
        target = rmat_target(scale)
        engines = [TimedEngine(Options(target_error=target), each) for each in backends]
        for timed in engines:
            begin = perf_counter()
            solve = timed.batch(graph.load_from_host(backend.device))
            print(f"loaded in {perf_counter() - begin:.1f} s; first solve {solve}", flush=True)
            print(f"static {timed.batch(EdgeBatch(), 'static')}", flush=True)
        for size in arguments.sizes:
            batches = graph.batches(generator, size, to_host)
            yield measured(f"R-MAT {scale}", size, engines, batches, *counts)
        del timed, engines, graph


def main() -> None:
    parser = harness.parser("the residual strategy on R-MAT and grids", backends=True)
    parser.add_argument("--rmat", type=int, nargs="*", default=[], help="scales")
    parser.add_argument("--grid", type=int, nargs="*", default=[], help="sides")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--sizes", type=int, nargs="*", default=RMAT_BATCHES)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--costs", type=json.loads, nargs="*", help="fields of Costs, in JSON")
    arguments = parser.parse_args()

    backend = backend_named(arguments.backend)
    Engine(backend=backend).warm_up()
    given = arguments.costs or [{}]
    backends = [replace(backend, costs=replace(backend.costs, **costs)) for costs in given]
    figures = []
    for rows in ranked(backends, arguments):
        for costs, row in zip(given, rows, strict=True):
            figures.append(row | ({"costs": costs} if arguments.costs else {}))
    print(harness.record("residual", arguments.backend, figures, arguments.results))


if __name__ == "__main__":
    main()
