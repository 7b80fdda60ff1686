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
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import replace
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from statistics import fmean, median
from typing import Any, get_args

import numpy as np

from benchmarks import harness
from benchmarks.networks import NETWORKS, Network, read_network
from benchmarks.timing import warm_up
from liverank_gpu import STRATEGIES, BackendName, EdgeBatch, Engine, Options, verify
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

Row = dict[str, Any]
Contender = tuple[str, Options]
"""A strategy and the options of its graph."""


def contenders(dangling: Dangling) -> dict[str, Contender]:
    """The rows of a table."""
    options = Options(dangling=dangling)
    own: dict[str, Contender] = {
        f"auto, {target:g}": ("auto", replace(options, target_error=target))
        for target in (options.target_error, *PRECISE)
    }
    return own | {name: (name, options) for name in PUBLISHED}


def traded() -> dict[str, Contender]:
    """The points of a plot, in the order of each strategy's accuracy."""
    default = Options(dangling="uniform")
    points: dict[str, Contender] = {
        f"auto {target:g}": ("auto", replace(default, target_error=target)) for target in TARGETS
    }
    for name in PUBLISHED:
        for tolerance in TOLERANCES:
            ratio = tolerance / default.tolerance
            options = replace(
                default,
                tolerance=tolerance,
                frontier_tolerance=min(0.5, ratio * default.frontier_tolerance),
                prune_tolerance=min(0.5, ratio * default.prune_tolerance),
            )
            points[f"{name} {tolerance:g}"] = (name, options)
    return points


def replayed(
    initial: EdgeBatch, batches: list[EdgeBatch], contender: Contender, backend: BackendName
) -> Iterator[tuple[Engine, Row]]:
    """What one contender does with each batch, and the engine after it."""
    strategy, options = contender
    engine = Engine(options, backend)
    engine.apply(initial)
    # all begin with the same accurate ranks
    engine.update("static")
    for batch in batches:
        change = engine.apply(batch)
        result = engine.update(strategy)
        yield (
            engine,
            {
                "solve_ms": 1e3 * (result.mark_seconds + result.solve_seconds),
                "mutate_ms": 1e3 * change.seconds,
                "iterations": result.iterations,
                "touched_vertices": result.touched_vertices,
                "error_bound": result.error_bound,
            },
        )


def replays(
    network: Network,
    batches: list[EdgeBatch],
    points: dict[str, Contender],
    checks: int,
    backend: BackendName,
) -> dict[str, Row]:
    """The figures of each contender by name: means over the batches, errors of those checked."""
    checked = set(np.linspace(len(batches) - 1, 0, checks, endpoint=False).astype(int))
    found: dict[str, list[Row]] = {name: [] for name in points}
    pending: list[tuple[Future[Any], dict[str, tuple[Ranking, float]]]] = []
    dangling = next(iter(points.values()))[1].dangling
    cores = min(len(os.sched_getaffinity(0)), checks)
    with ProcessPoolExecutor(cores, get_context("spawn")) as oracles:
        turns = [replayed(network.initial, batches, each, backend) for each in points.values()]
        for number, turn in enumerate(zip(*turns, strict=True)):
            for name, (_, row) in zip(points, turn, strict=True):
                found[name].append(row)
            if number in checked:
                engine = turn[0][0]
                ranks = {
                    name: (each.publish().to_numpy(), row["error_bound"])
                    for name, (each, row) in zip(points, turn, strict=True)
                }
                graph = (*engine.edge_list(), engine.vertices, Options().damping, dangling)
                pending.append((oracles.submit(verify.pagerank, *graph), ranks))
        errors: dict[str, list[float]] = {name: [] for name in points}
        for exact, ranks in pending:
            right, uncertain = exact.result()
            for name, (own, bound) in ranks.items():
                errors[name].append(float(np.abs(own - right).sum()))
                assert errors[name][-1] <= bound + uncertain, (name, errors[name][-1], bound)
    return {
        name: {
            "median_solve_ms": median(row["solve_ms"] for row in rows),
            **{f"mean_{key}": fmean(row[key] for row in rows) for key in rows[0]},
            "mean_error": fmean(errors[name]),
            "largest_error": max(errors[name]),
        }
        for name, rows in found.items()
    }


def measured(
    backend: BackendName, folder: Path, batches: int, checks: int, networks: list[str]
) -> Iterator[tuple[str, Any]]:
    """`batches` of each size, of which `checks` are compared with exact ranks."""
    warm_up(backend)
    read = {name: read_network(folder / NETWORKS[name]) for name in networks}
    yield "batches", batches
    yield "checks", checks
    sizes = {name: {"vertices": each.vertices, "events": len(each)} for name, each in read.items()}
    yield "networks", sizes
    rows: list[Row] = []
    run = partial(replays, checks=checks, backend=backend)
    for name, network in read.items():
        for dangling in get_args(Dangling):
            for fraction in FRACTIONS:
                size = max(1, round(fraction * len(network)))
                facts = {"network": name, "dangling": dangling, "fraction": fraction}
                facts["batch_size"] = size
                found = run(network, network.batches(size, batches), contenders(dangling))
                rows += [facts | {"contender": each, **row} for each, row in found.items()]
        yield "replays", rows
    points: list[Row] = []
    for name in filter(read.__contains__, TRADED):
        size = max(1, round(TRADED_FRACTION * len(read[name])))
        for each, row in run(read[name], read[name].batches(size, batches), traded()).items():
            strategy, accuracy = each.split()
            points.append({"network": name, "strategy": strategy, "accuracy": accuracy, **row})
    yield "accuracies", points


if __name__ == "__main__":
    options = {"folder": Path, "batches": 100, "checks": 5, "networks": list(NETWORKS)}
    harness.run(__doc__, {"temporal": (measured, options)}, backends=True)
