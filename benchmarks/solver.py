"""Whole solves, single sweeps and batches on R-MAT and grids, at the size of the published figures.

    python -m benchmarks.solver --backend cuda --scale 24 --sweep-scale 25 --grid 4096
    python -m benchmarks.solver residual --backend cuda --rmat 24 --grid 1024 4096

The engine permutes vertices as it chooses. A solve is as in benchmarks.timing.Solve; rows "from the
host to published" are a whole batch. Errors are L1 distances of the last ranks to a solve to 1e-11.
The batches of `auto`, to a target of the same accuracy for each rank whatever the size of the
graph, have a record of their own, residual.
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import fmean, median
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import Drawn, drawn_grid, drawn_rmat, grid_target, rmat_target
from benchmarks.timing import TimedEngine, timed
from liverank_gpu import BackendName, EdgeBatch, Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.iterate import ContributionBuffers
from liverank_gpu.pagerank.sweeps import sweep_to_target

MOST_SWEEPS = 500
BATCHES = 20

GRID_BATCH = 10

Row = dict[str, Any]


def row(what: str, bench: TimedEngine, milliseconds: list[float], **more: Any) -> Row:
    """A row of the record solver."""
    return {
        "what": what,
        "edges": bench.engine.edges,
        "dangling": bench.engine.options.dangling,
        "median_ms": median(milliseconds),
        "largest_ms": max(milliseconds),
        **more,
    }


def static(bench: TimedEngine) -> Iterator[Row]:
    """Solves from nothing: by sweeps to the target, and by the published stop rule."""

    def solve() -> None:
        sweep_to_target(bench.iterate, MOST_SWEEPS, from_nothing=True)

    times = [timed(bench.device, solve)[0] for _ in range(10)][5:]
    bench.engine.update("auto")
    bound = bench.iterate.error_bound
    yield row("static, auto", bench, times, error=bench.error(), bound=bound)
    solves = [bench.batch(EdgeBatch(), "static") for _ in range(3)]
    yield row(
        "static, stop rule of the papers",
        bench,
        [solve.milliseconds for solve in solves],
        iterations=solves[-1].iterations,
        error=bench.error(),
        bound=solves[-1].error_bound,
    )


def whole(what: str, bench: TimedEngine, batches: Iterator[EdgeBatch]) -> Row:
    """Batches from the host to published ranks."""
    engine = bench.engine

    def work() -> None:
        engine.apply(batch)
        engine.update("auto")
        engine.publish()

    times = []
    for _ in range(BATCHES + 2):
        batch = next(batches)
        times.append(timed(bench.device, work)[0])
    return row(what, bench, times[2:], target_error=engine.options.target_error)


def sweeps(what: str, bench: TimedEngine) -> Iterator[Row]:
    """One sweep over the residual, and one that computes it from the ranks."""
    iterate = bench.iterate
    buffers = ContributionBuffers.allocate(iterate.graph.backend, iterate.graph.vertices)
    iterate.quantize(buffers)
    times = [timed(bench.device, lambda: iterate.sweep(buffers))[0] for _ in range(12)]
    yield row(f"{what}, of the residual", bench, times[2:])
    times = [timed(bench.device, iterate.recompute_residual)[0] for _ in range(7)]
    yield row(f"{what}, of the ranks in float64", bench, times[2:])


def followed(
    name: str, size: int, bench: TimedEngine, batches: Iterator[EdgeBatch], count: int
) -> Row:
    """A row of the record residual: `count` batches, after ten that are not counted."""
    solves = [bench.batch(next(batches)) for _ in range(10 + count)][10:]
    times = [solve.milliseconds for solve in solves]
    return {
        "graph": name,
        "vertices": bench.engine.vertices,
        "edges": bench.engine.edges,
        "batch_size": size,
        "batches": len(solves),
        "target_error": bench.engine.options.target_error,
        "mean_ms": fmean(times),
        "median_ms": median(times),
        "largest_ms": max(times),
        "mean_perturbation_ms": fmean(solve.perturbation for solve in solves),
        "mean_iterations": fmean(solve.iterations for solve in solves),
        "mean_touched_vertices": fmean(solve.touched_vertices for solve in solves),
        "mean_error_bound": fmean(solve.error_bound for solve in solves),
        "converged": all(solve.converged for solve in solves),
        "last_error": bench.error(),
    }


def loaded(backend: Backend, graph: Drawn, **options: Any) -> TimedEngine:
    bench = TimedEngine(Options(**options), backend)
    bench.batch(graph.load)
    return bench


def solver(backend: BackendName, scale: int, sweep_scale: int, grid: int) -> Iterator[Row]:
    """`grid` is a side."""
    chosen = backend_named(backend)
    to_host = chosen.device.to_host
    generator, random = np.random.default_rng(7), chosen.xp.random.default_rng(7)
    name, graph = f"R-MAT {scale}", drawn_rmat(chosen.xp, random, scale)
    yield from static(loaded(chosen, graph, dangling="self-loop"))
    bench = loaded(chosen, graph)
    yield from static(bench)
    batches = graph.batches(generator, 1000, to_host)
    yield whole(f"{name}, 1,000 edges from the host to published", bench, batches)
    del bench, graph, batches

    bench = loaded(chosen, drawn_rmat(chosen.xp, random, sweep_scale))
    yield from sweeps(f"R-MAT {sweep_scale}, one sweep", bench)
    del bench

    name, graph = f"grid {grid}", drawn_grid(chosen.xp, random, grid)
    bench = loaded(chosen, graph, target_error=grid_target(grid))
    batches = graph.batches(generator, GRID_BATCH, to_host)
    yield whole(f"{name}, 10 edges from the host to published", bench, batches)


def residual(
    backend: BackendName, rmat: list[int], grid: list[int], sizes: list[int], batches: int
) -> Iterator[Row]:
    """`rmat` are scales, whose batches have these `sizes`, and `grid` sides."""
    chosen = backend_named(backend)
    generator, random = np.random.default_rng(7), chosen.xp.random.default_rng(7)
    Engine(backend=chosen).warm_up()
    for scale in rmat:
        graph = drawn_rmat(chosen.xp, random, scale)
        bench = loaded(chosen, graph, target_error=rmat_target(scale))
        for size in sizes:
            drawn = graph.batches(generator, size, chosen.device.to_host)
            yield followed(f"R-MAT {scale}", size, bench, drawn, batches)
        del graph, bench, drawn
    for side in grid:
        graph = drawn_grid(chosen.xp, random, side)
        bench = loaded(chosen, graph, target_error=grid_target(side))
        drawn = graph.batches(generator, GRID_BATCH, chosen.device.to_host)
        yield followed(f"grid {side}", GRID_BATCH, bench, drawn, batches)
        del graph, bench, drawn


if __name__ == "__main__":
    sizes = {"sizes": [26, 263, 2_634, 26_342], "batches": 100}
    suites: harness.Suites = {
        "solver": (solver, {"scale": 16, "sweep_scale": 17, "grid": 512}),
        "residual": (residual, {"rmat": [16], "grid": [512], **sizes}),
    }
    harness.run(__doc__, suites, backends=True)
