"""Whole solves and single sweeps on R-MAT and a grid, at the size of the published figures.

The engine permutes vertices as it chooses. Each row of batches is 20 batches in a row. A solve is
as in benchmarks.timing.Solve; rows "from the host to published" are a whole batch. Errors are L1
distances of the last ranks to a solve to 1e-11.

    python -m benchmarks.solver --backend cuda --scale 24 --sweep-scale 25 --grid 4096
"""

from __future__ import annotations

from collections.abc import Iterator
from statistics import median
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import Drawn, drawn_grid, drawn_rmat, grid_target
from benchmarks.timing import TimedEngine, timed
from liverank_gpu import EdgeBatch, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.pagerank.iterate import ContributionBuffers
from liverank_gpu.pagerank.sweeps import sweep_to_target

FRACTIONS = (1e-6, 1e-5, 1e-4, 1e-3)
"""Sizes of a batch, in edges of the graph."""

TARGETS = (1e-6, 2e-6, 1e-5)
MOST_SWEEPS = 500
BATCHES = 20


class Measured:
    """The rows of the figures: what was measured, and how."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, bench: TimedEngine, milliseconds: list[float], **more: Any) -> None:
        """Adds a row."""
        row = {
            "what": what,
            "edges": bench.engine.edges,
            "dangling": bench.engine.options.dangling,
            "median_ms": median(milliseconds),
            "largest_ms": max(milliseconds),
            **more,
        }
        self.rows.append(row)
        print(row, flush=True)

    def static(self, bench: TimedEngine) -> None:
        """Solves from nothing: by sweeps to the target, and by the published stop rule."""

        def solve() -> None:
            sweep_to_target(bench.iterate, MOST_SWEEPS, from_nothing=True)

        times = [timed(bench.device, solve)[0] for _ in range(10)][5:]
        bench.engine.update("auto")
        bound = bench.iterate.error_bound
        self.add("static, auto", bench, times, error=bench.error(), bound=bound)
        solves = [bench.batch(EdgeBatch(), "static") for _ in range(3)]
        self.add(
            "static, stop rule of the papers",
            bench,
            [solve.milliseconds for solve in solves],
            iterations=solves[-1].iterations,
            error=bench.error(),
            bound=solves[-1].error_bound,
        )

    def stream(
        self, what: str, bench: TimedEngine, batches: Iterator[EdgeBatch], strategy: str = "auto"
    ) -> None:
        """Solves of batches."""
        bench.batch(EdgeBatch(), "auto")
        bench.batch(next(batches), strategy)
        solves = [bench.batch(next(batches), strategy) for _ in range(BATCHES)]
        self.add(
            what,
            bench,
            [solve.milliseconds for solve in solves],
            strategy=strategy,
            target_error=bench.engine.options.target_error,
            iterations=median(solve.iterations for solve in solves),
            error=bench.error(),
            bound=solves[-1].error_bound,
        )

    def whole(self, what: str, bench: TimedEngine, batches: Iterator[EdgeBatch]) -> None:
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
        self.add(what, bench, times[2:], target_error=engine.options.target_error)

    def sweeps(self, what: str, bench: TimedEngine) -> None:
        """One sweep over the residual, and one that computes it from the ranks."""
        iterate = bench.iterate
        graph = iterate.graph
        buffers = ContributionBuffers.allocate(graph.backend, graph.vertices)
        iterate.quantize(buffers)
        times = [timed(bench.device, lambda: iterate.sweep(buffers))[0] for _ in range(12)]
        self.add(f"{what}, of the residual", bench, times[2:])
        times = [timed(bench.device, iterate.recompute_residual)[0] for _ in range(7)]
        self.add(f"{what}, of the ranks in float64", bench, times[2:])


def main() -> None:
    parser = harness.parser("whole solves and single sweeps", backends=True)
    parser.add_argument("--scale", type=int, default=16)
    parser.add_argument("--sweep-scale", type=int, default=17)
    parser.add_argument("--grid", type=int, default=512, help="side")
    arguments = parser.parse_args()
    backend = backend_named(arguments.backend)
    xp, to_host = backend.xp, backend.device.to_host
    generator, random = np.random.default_rng(7), xp.random.default_rng(7)
    measured = Measured()

    def loaded(scale: int, options: Options) -> tuple[TimedEngine, Drawn]:
        graph = drawn_rmat(xp, random, scale)
        bench = TimedEngine(options, backend)
        bench.batch(graph.load)
        return bench, graph

    name = f"R-MAT {arguments.scale}"
    bench, graph = loaded(arguments.scale, Options(dangling="self-loop"))
    measured.static(bench)
    for target in TARGETS:
        bench.set_target(target)
        for fraction in FRACTIONS:
            batches = graph.batches(generator, round(fraction * bench.engine.edges), to_host)
            measured.stream(f"{name}, batch {fraction:.0e} of the edges", bench, batches)
    bench.set_target(Options().target_error)
    batches = graph.batches(generator, round(1e-4 * bench.engine.edges), to_host)
    for strategy in ("dynamic-frontier", "dynamic-frontier-prune", "naive-dynamic"):
        measured.stream(f"{name}, batch 1e-04 of the edges", bench, batches, strategy)
    del bench, graph, batches

    bench, graph = loaded(arguments.scale, Options())
    measured.static(bench)
    batches = graph.batches(generator, 1000, to_host)
    measured.whole(f"{name}, 1,000 edges from the host to published", bench, batches)
    del bench, graph, batches

    bench, graph = loaded(arguments.sweep_scale, Options())
    measured.sweeps(f"R-MAT {arguments.sweep_scale}, one sweep", bench)
    del bench, graph

    graph = drawn_grid(xp, random, arguments.grid)
    bench = TimedEngine(Options(target_error=grid_target(arguments.grid)), backend)
    bench.batch(graph.load)
    batches = graph.batches(generator, 10, to_host)
    measured.stream(f"grid {arguments.grid}, 10 edges", bench, batches)
    measured.whole(f"grid {arguments.grid}, 10 edges from the host to published", bench, batches)
    print(harness.record("solver", arguments.backend, measured.rows, arguments.results))


if __name__ == "__main__":
    main()
