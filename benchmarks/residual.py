"""The residual strategy on the two families where graphs differ most: R-MAT and a grid.

R-MAT has Graph500's parameters, 16 edges a vertex, and is numbered by falling degree; batches are
80 % insertions, drawn as the graph was, and 20 % deletions. Times are those of the solve: the
perturbation of the residual when the batch is applied, and the update; not the mutation of the
graph. The error is the L1 distance of the last ranks to a solve to 1e-11.

    python -m benchmarks.residual --backend cuda --rmat 24 --grid 4096
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import harness
from gpu import EdgeBatch, Engine, Options
from gpu.backends.base import Array
from gpu.graph import Applied, Loaded

RMAT_BATCHES = (26, 263, 2_634, 26_342)
RMAT_TARGET = 1e-6


def rmat(xp: Any, random: Any, scale: int, edges: int) -> tuple[Array, Array]:
    """Sources and targets, int64[edges], repeats included."""
    sources, targets = xp.zeros(edges, np.int64), xp.zeros(edges, np.int64)
    for _ in range(scale):
        quadrant = random.random(edges)
        sources = 2 * sources + (quadrant >= 0.76)
        targets = 2 * targets + (((quadrant >= 0.57) & (quadrant < 0.76)) | (quadrant >= 0.95))
    return sources, targets


def grid(xp: Any, side: int) -> tuple[Array, Array]:
    """Sources and targets of a grid of side x side, each neighbour linked both ways."""
    v = xp.arange(side * side, dtype=np.int64)
    right, down = v[v % side < side - 1], v[v < side * (side - 1)]
    return (
        xp.concatenate([right, right + 1, down, down + side]),
        xp.concatenate([right + 1, right, down + side, down]),
    )


class Timed:
    """An engine, and the seconds of the last batch's solve: perturbation and update."""

    def __init__(self, options: Options, backend: str) -> None:
        self.engine = Engine(options, backend)  # type: ignore[arg-type]
        self.perturbation = 0.0
        perturb = self.engine._state.perturb

        def timed(applied: Applied | Loaded) -> None:
            self.engine._backend.synchronize()
            begin = perf_counter()
            perturb(applied)
            self.engine._backend.synchronize()
            self.perturbation = perf_counter() - begin

        self.engine._state.perturb = timed  # type: ignore[method-assign]

    def batch(self, batch: EdgeBatch, strategy: str = "auto") -> dict[str, Any]:
        self.engine.apply(batch)
        result = self.engine.update(strategy)
        return {
            "milliseconds": 1e3 * (self.perturbation + result.mark_seconds + result.solve_seconds),
            "perturbation": 1e3 * self.perturbation,
            "iterations": result.iterations,
            "touched": result.touched_vertices,
            "bound": result.error_bound,
            "converged": result.converged,
        }

    def error(self) -> float:
        """L1 distance of the ranks as they are to a solve to 1e-11."""
        ranks = self.engine.publish().to_numpy()
        state, options = self.engine._state, self.engine.options
        state.options = Options(damping=options.damping, target_error=1e-11)
        self.engine.update("auto")
        state.options = options
        return float(np.abs(self.engine.publish().to_numpy() - ranks).sum())


def measured(
    name: str, size: int, timed: Timed, batches: Iterator[EdgeBatch], count: int, warm_up: int
) -> dict[str, Any]:
    rows = [timed.batch(next(batches)) for _ in range(warm_up + count)][warm_up:]
    times = [row["milliseconds"] for row in rows]
    figures = {
        "graph": name,
        "vertices": timed.engine.vertices,
        "edges": timed.engine.edges,
        "batch_size": size,
        "batches": count,
        "target_error": timed.engine.options.target_error,
        "mean_ms": fmean(times),
        "median_ms": median(times),
        "largest_ms": max(times),
        "mean_perturbation_ms": fmean(row["perturbation"] for row in rows),
        "mean_iterations": fmean(row["iterations"] for row in rows),
        "mean_touched_vertices": fmean(row["touched"] for row in rows),
        "mean_error_bound": fmean(row["bound"] for row in rows),
        "converged": all(row["converged"] for row in rows),
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


def batches_of(
    host: Callable[[Array], Any],
    generator: np.random.Generator,
    size: int,
    draw: Callable[[int], tuple[Array, Array]],
    sources: Array,
    targets: Array,
) -> Iterator[EdgeBatch]:
    """80 % insertions as drawn, 20 % deletions of edges that were loaded."""
    insertions = size * 4 // 5
    while True:
        drawn = draw(insertions)
        chosen = generator.integers(0, len(sources), size - insertions)
        yield EdgeBatch(
            host(drawn[0]), host(drawn[1]), host(sources[chosen]), host(targets[chosen])
        )


def main() -> None:
    parser = argparse.ArgumentParser(description="the residual strategy on R-MAT and a grid")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rmat", type=int, help="scale: two to the power of it vertices")
    parser.add_argument("--grid", type=int, nargs="*", default=[], help="sides")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--sizes", type=int, nargs="*", default=RMAT_BATCHES)
    parser.add_argument("--warm-up", type=int, default=10)
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    arguments = parser.parse_args()

    xp: Any = np
    host: Callable[[Array], Any] = np.asarray
    if arguments.backend == "cuda":
        import cupy

        xp, host = cupy, cupy.asnumpy
    Engine(backend=arguments.backend).warm_up()
    generator = np.random.default_rng(7)
    random = xp.random.default_rng(7)
    figures = []
    for side in arguments.grid:
        # the same absolute error for all sides: 1e-7 on 4096 x 4096
        target = 1e-7 * (4096 / side) ** 2
        timed = Timed(Options(target_error=target), arguments.backend)
        sources, targets = grid(xp, side)
        timed.batch(EdgeBatch(host(sources), host(targets)))

        def draw_grid(count: int, vertices: int = side * side) -> tuple[Array, Array]:
            return random.integers(0, vertices, count), random.integers(0, vertices, count)

        batches = batches_of(host, generator, 10, draw_grid, sources, targets)
        name = f"grid {side}"
        figures.append(measured(name, 10, timed, batches, arguments.batches, arguments.warm_up))
        del timed, sources, targets
    if arguments.rmat:
        vertices = 1 << arguments.rmat
        sources, targets = rmat(xp, random, arguments.rmat, 16 * vertices)
        order = xp.argsort(-xp.bincount(sources, minlength=vertices))
        label = xp.empty(vertices, np.int64)
        label[order] = xp.arange(vertices)
        sources, targets = label[sources], label[targets]

        def draw_rmat(count: int) -> tuple[Array, Array]:
            drawn = rmat(xp, random, arguments.rmat, count)
            return label[drawn[0]], label[drawn[1]]

        timed = Timed(Options(target_error=RMAT_TARGET), arguments.backend)
        begin = perf_counter()
        row = timed.batch(EdgeBatch(host(sources), host(targets), vertices=vertices))
        print(f"loaded in {perf_counter() - begin:.1f} s; first solve {row}", flush=True)
        row = timed.batch(EdgeBatch(), "static")
        print(f"static {row}", flush=True)
        for size in arguments.sizes:
            batches = batches_of(host, generator, size, draw_rmat, sources, targets)
            name = f"R-MAT {arguments.rmat}"
            figures.append(
                measured(name, size, timed, batches, arguments.batches, arguments.warm_up)
            )
    print(harness.record("residual", arguments.backend, figures, arguments.results))


if __name__ == "__main__":
    main()
