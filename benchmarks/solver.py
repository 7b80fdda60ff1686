"""Whole solves and single sweeps at the size of the published figures: R-MAT and a grid.

R-MAT has Graph500's parameters and 16 edges a vertex, repeats dropped; the engine numbers its
vertices as it likes. Batches are 80 % insertions, drawn as the graph was, and 20 % deletions of its
edges, 20 of each size in a row. A solve is the perturbation and the update; `whole` is a batch from
the host to published ranks. Errors are L1 distances of the last ranks to a solve to 1e-11.

    python -m benchmarks.solver --backend cuda --scale 24 --sweep-scale 25
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.residual import Timed, batches_of, grid, rmat
from gpu import EdgeBatch, Options
from gpu.sweeps import sweep_to_target

FRACTIONS = (1e-6, 1e-5, 1e-4, 1e-3)
BATCHES = 20


class Measured:
    """Figures of one backend, as rows of what was measured, and how."""

    def __init__(self, backend: str) -> None:
        self.backend = backend
        self.rows: list[dict[str, Any]] = []

    def add(self, what: str, timed: Timed, milliseconds: list[float], **more: Any) -> None:
        options = timed.engine.options
        row = {
            "what": what,
            "edges": timed.engine.edges,
            "dangling": options.dangling,
            "median_ms": median(milliseconds),
            "largest_ms": max(milliseconds),
            **more,
        }
        self.rows.append(row)
        print(row, flush=True)

    def wall(self, timed: Timed, work: Callable[[], Any]) -> float:
        timed.engine._backend.synchronize()
        begin = perf_counter()
        work()
        timed.engine._backend.synchronize()
        return 1e3 * (perf_counter() - begin)

    def static(self, timed: Timed) -> None:
        """From nothing: `auto` to its target, and the published rule."""
        state = timed.engine._state

        def anew() -> None:
            state.start_anew()
            sweep_to_target(state, 500)

        for _ in range(2):
            times = [self.wall(timed, anew) for _ in range(5)]
        timed.engine.update("auto")
        bound = state.error_bound
        self.add("static, auto", timed, times, error=timed.error(), bound=bound)
        rows = [timed.batch(EdgeBatch(), "static") for _ in range(3)]
        self.add(
            "static, stop rule of the papers",
            timed,
            [row["milliseconds"] for row in rows],
            iterations=rows[-1]["iterations"],
            error=timed.error(),
            bound=rows[-1]["bound"],
        )

    def stream(
        self, what: str, timed: Timed, batches: Iterator[EdgeBatch], strategy: str = "auto"
    ) -> None:
        timed.batch(EdgeBatch(), "auto")
        timed.batch(next(batches), strategy)
        rows = [timed.batch(next(batches), strategy) for _ in range(BATCHES)]
        self.add(
            what,
            timed,
            [row["milliseconds"] for row in rows],
            strategy=strategy,
            target_error=timed.engine.options.target_error,
            iterations=median(row["iterations"] for row in rows),
            error=timed.error(),
            bound=rows[-1]["bound"],
        )

    def whole(self, what: str, timed: Timed, batches: Iterator[EdgeBatch]) -> None:
        def work() -> None:
            timed.engine.apply(batch)
            timed.engine.update("auto")
            timed.engine.publish()

        times = []
        for _ in range(BATCHES + 2):
            batch = next(batches)
            times.append(self.wall(timed, work))
        self.add(what, timed, times[2:], target_error=timed.engine.options.target_error)

    def sweeps(self, what: str, timed: Timed) -> None:
        """One sweep of each kind, over a residual that is what it is."""
        graph, state = timed.engine._graph, timed.engine._state
        backend, damping = graph.backend, timed.engine.options.damping
        dtype = backend.share_dtypes["float64"]
        shares, others = state.spare("shares", dtype), state.spare("new shares", dtype)
        relax = [
            self.wall(
                timed,
                lambda: backend.relax(
                    graph, state.values, state.residual.values, shares, others, damping, 0.0
                ),
            )
            for _ in range(12)
        ]
        self.add(f"{what}, of the residual", timed, relax[2:])
        certify = [self.wall(timed, state.certify) for _ in range(7)]
        self.add(f"{what}, of the ranks in float64", timed, certify[2:])


def main() -> None:
    parser = argparse.ArgumentParser(description="whole solves and single sweeps")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--scale", type=int, default=16)
    parser.add_argument("--sweep-scale", type=int, default=17)
    parser.add_argument("--grid", type=int, default=512, help="side")
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    arguments = parser.parse_args()
    xp: Any = np
    host: Callable[[Any], Any] = np.asarray
    if arguments.backend == "cuda":
        import cupy

        xp, host = cupy, cupy.asnumpy
    generator, random = np.random.default_rng(7), xp.random.default_rng(7)
    measured = Measured(arguments.backend)

    def loaded(scale: int, options: Options) -> tuple[Timed, Any, Any]:
        vertices = 1 << scale
        sources, targets = (ids.astype(np.int32) for ids in rmat(xp, random, scale, 16 * vertices))
        timed = Timed(options, arguments.backend)
        timed.batch(EdgeBatch(sources, targets, vertices=vertices))
        return timed, sources, targets

    def draw(count: int) -> tuple[Any, Any]:
        return rmat(xp, random, arguments.scale, count)

    name = f"R-MAT {arguments.scale}"
    for dangling in ("self-loop", "uniform"):
        timed, sources, targets = loaded(arguments.scale, Options(dangling=dangling))
        measured.static(timed)
        state = timed.engine._state
        for target in (1e-6, 2e-6, 1e-5):
            timed.engine.options = state.options = Options(dangling=dangling, target_error=target)
            for fraction in FRACTIONS if dangling == "self-loop" else ():
                size = round(fraction * timed.engine.edges)
                batches = batches_of(host, generator, size, draw, sources, targets)
                measured.stream(f"{name}, batch {fraction:.0e} of the edges", timed, batches)
        timed.engine.options = state.options = Options(dangling=dangling)
        if dangling == "self-loop":
            size = round(1e-4 * timed.engine.edges)
            batches = batches_of(host, generator, size, draw, sources, targets)
            for strategy in ("dynamic-frontier-prune", "naive-dynamic"):
                measured.stream(f"{name}, batch 1e-04 of the edges", timed, batches, strategy)
        else:
            batches = batches_of(host, generator, 1000, draw, sources, targets)
            measured.whole(f"{name}, 1,000 edges from the host to published", timed, batches)
        del timed, state, sources, targets
    timed, sources, targets = loaded(arguments.sweep_scale, Options())
    measured.sweeps(f"R-MAT {arguments.sweep_scale}, one sweep", timed)
    del timed, sources, targets
    side = arguments.grid
    sources, targets = grid(xp, side)
    timed = Timed(Options(target_error=1e-7 * (4096 / side) ** 2), arguments.backend)
    timed.batch(EdgeBatch(host(sources), host(targets)))

    def draw_grid(count: int) -> tuple[Any, Any]:
        return random.integers(0, side * side, count), random.integers(0, side * side, count)

    batches = batches_of(host, generator, 10, draw_grid, sources, targets)
    measured.stream(f"grid {side}, 10 edges", timed, batches)
    measured.whole(f"grid {side}, 10 edges from the host to published", timed, batches)
    print(harness.record("solver", arguments.backend, measured.rows, arguments.results))


if __name__ == "__main__":
    main()
