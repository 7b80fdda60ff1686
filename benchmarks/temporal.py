"""Every strategy on real networks that change: time and measured error.

    python -m benchmarks.temporal ../shared/data
    python -m benchmarks.temporal ../shared/data --backend cuda

Each strategy keeps a graph and ranks of its own through the stream of a network, as a service
would; the strategies take turns at each batch. `auto` has a row for each of three targets;
`residual` is what it runs, so it has no row. After some of the batches, evenly spaced, the ranks
are compared (L1) with a converged solve by liverank_gpu.verify, which is not timed.

Then, on two of the networks, each strategy runs at several tolerances: what accuracy costs. The
frontier and prune tolerances keep their ratio to the tolerance.
"""

from __future__ import annotations

import os
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import Any, get_args

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.networks import NETWORKS, Network, read_network
from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Options, verify
from liverank_gpu.types import Dangling, Ranking

FRACTIONS = (1e-5, 1e-4, 1e-3)
"""Sizes of a batch, in events of the network."""

PRECISE = (1e-8, 1e-9)
"""More targets of `auto`: about the accuracy that the published strategies reach."""

PUBLISHED = [name for name in STRATEGIES if name not in ("auto", "residual")]

TRADED = ("sx-mathoverflow", "npm")
TRADED_FRACTION = 1e-4
TARGETS = (1e-2, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, 1e-9, 1e-10)
TOLERANCES = (1e-6, 1e-8, 1e-10, 1e-12)

Contender = tuple[str, Options]
"""A strategy and the options of its graph."""


def contenders(dangling: Dangling) -> dict[str, Contender]:
    """The rows of a table."""
    options = Options(dangling=dangling)
    own: dict[str, Contender] = {
        f"auto, {target:g}": ("auto", Options(dangling=dangling, target_error=target))
        for target in (options.target_error, *PRECISE)
    }
    return own | {name: (name, options) for name in PUBLISHED}


def traded(dangling: Dangling) -> dict[str, Contender]:
    """The points of a plot, in the order of each strategy's accuracy."""
    default = Options()
    points: dict[str, Contender] = {
        f"auto {target:g}": ("auto", Options(dangling=dangling, target_error=target))
        for target in TARGETS
    }
    for name in PUBLISHED:
        for tolerance in TOLERANCES:
            ratio = tolerance / default.tolerance
            options = Options(
                dangling=dangling,
                tolerance=tolerance,
                frontier_tolerance=min(0.5, ratio * default.frontier_tolerance),
                prune_tolerance=min(0.5, ratio * default.prune_tolerance),
            )
            points[f"{name} {tolerance:g}"] = (name, options)
    return points


class Row:
    """What one contender did with each batch."""

    def __init__(self, contender: Contender, backend: str, initial: EdgeBatch) -> None:
        self.strategy, self.options = contender
        self.engine = Engine(self.options, backend)  # type: ignore[arg-type]
        self.engine.apply(initial)
        # all begin with the same accurate ranks
        self.engine.update("static")
        self.solve: list[float] = []
        self.mutate: list[float] = []
        self.iterations: list[int] = []
        self.touched: list[int] = []
        self.bounds: list[float] = []
        self.checked: list[tuple[Ranking, float]] = []

    def take(self, batch: EdgeBatch, check: bool) -> None:
        """Applies a batch and solves; `check` keeps the ranks for a comparison."""
        change = self.engine.apply(batch)
        result = self.engine.update(self.strategy)
        self.mutate.append(change.seconds)
        self.solve.append(result.mark_seconds + result.solve_seconds)
        self.iterations.append(result.iterations)
        self.touched.append(result.touched_vertices)
        self.bounds.append(result.error_bound)
        if check:
            self.checked.append((self.engine.publish().to_numpy(), result.error_bound))

    def figures(self, exact: list[tuple[Ranking, float]]) -> dict[str, float]:
        """Means over the batches; `exact` ranks, with bounds on their errors, of those checked."""
        errors = []
        for (ranks, bound), (right, oracle_bound) in zip(self.checked, exact, strict=True):
            error = float(np.abs(ranks - right).sum())
            assert error <= bound + oracle_bound, (self.strategy, self.options, error, bound)
            errors.append(error)
        return {
            "mean_solve_ms": 1e3 * fmean(self.solve),
            "median_solve_ms": 1e3 * median(self.solve),
            "mean_mutate_ms": 1e3 * fmean(self.mutate),
            "mean_iterations": fmean(self.iterations),
            "mean_touched_vertices": fmean(self.touched),
            "mean_error": fmean(errors),
            "largest_error": max(errors),
            "mean_error_bound": fmean(self.bounds),
        }


class Replays:
    """Streams on one backend. Exact ranks are computed on all cores after each stream."""

    def __init__(self, backend: str, batches: int, checks: int) -> None:
        self.backend, self.batches, self.checks = backend, batches, checks
        cores = len(os.sched_getaffinity(0))
        self._oracles = ProcessPoolExecutor(min(cores, checks), get_context("spawn"))

    def run(
        self, network: Network, fraction: float, dangling: Dangling, points: dict[str, Contender]
    ) -> tuple[int, dict[str, dict[str, float]]]:
        """The size of a batch, and the figures of each contender by name."""
        size = max(1, round(fraction * len(network)))
        batches = network.batches(size, self.batches)
        checked = set(np.linspace(len(batches) - 1, 0, self.checks, endpoint=False).astype(int))
        rows = {name: Row(point, self.backend, network.initial) for name, point in points.items()}
        graphs: list[tuple[NDArray[np.int64], NDArray[np.int64], int]] = []
        for step, batch in enumerate(batches):
            for row in rows.values():
                row.take(batch, step in checked)
            if step in checked:
                engine = next(iter(rows.values())).engine
                graphs.append((*engine.edge_list(), engine.vertices))
        tasks = [
            self._oracles.submit(verify.pagerank, *graph, Options().damping, dangling)
            for graph in graphs
        ]
        exact = [task.result() for task in tasks]
        return size, {name: row.figures(exact) for name, row in rows.items()}


def main() -> None:
    parser = harness.parser("every strategy on real networks that change", backends=True)
    parser.add_argument("folder", type=Path, help="the folder of real graphs")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--checks", type=int, default=5)
    parser.add_argument("--networks", nargs="*", choices=NETWORKS, default=list(NETWORKS))
    arguments = parser.parse_args()

    engine = Engine(backend=arguments.backend)
    engine.warm_up()
    engine.warm_up_others()
    networks = {
        name: read_network(arguments.folder / NETWORKS[name]) for name in arguments.networks
    }
    replays = Replays(arguments.backend, arguments.batches, arguments.checks)
    rows: list[dict[str, Any]] = []
    for name, network in networks.items():
        for dangling in get_args(Dangling):
            for fraction in FRACTIONS:
                size, found = replays.run(network, fraction, dangling, contenders(dangling))
                for contender, figures in found.items():
                    rows.append(
                        {
                            "network": name,
                            "dangling": dangling,
                            "fraction": fraction,
                            "batch_size": size,
                            "contender": contender,
                            **figures,
                        }
                    )
                    _print(name, dangling, size, contender, figures)
    points: list[dict[str, Any]] = []
    for name in filter(networks.__contains__, TRADED):
        _, found = replays.run(networks[name], TRADED_FRACTION, "uniform", traded("uniform"))
        for contender, figures in found.items():
            strategy, accuracy = contender.split()
            points.append({"network": name, "strategy": strategy, "accuracy": accuracy, **figures})
            _print(name, "uniform", 0, contender, figures)
    sizes = {
        name: {
            "vertices": int(max(network.sources.max(), network.targets.max())) + 1,
            "events": len(network),
        }
        for name, network in networks.items()
    }
    document = {
        "batches": arguments.batches,
        "checks": arguments.checks,
        "networks": sizes,
        "replays": rows,
        "accuracies": points,
    }
    print(harness.record("temporal", arguments.backend, document, arguments.results))


def _print(
    network: str, dangling: str, size: int, contender: str, figures: dict[str, float]
) -> None:
    print(
        f"{network:16} {dangling:9} {size:4} {contender:28} {figures['mean_solve_ms']:9.3f} ms"
        f"  {figures['mean_iterations']:6.1f} iterations  error {figures['mean_error']:.1e}"
        f"  bound {figures['mean_error_bound']:.1e}",
        flush=True,
    )


if __name__ == "__main__":
    main()
