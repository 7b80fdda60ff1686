"""What a push costs, in edges of a dense sweep: by its rounds, and by its work-lists.

    milliseconds = push_overhead + round_overhead·rounds + pushed_vertex·entries + pushed_edge·edges

by least squares of the relative errors, each push with the weight of its time, without negative
terms. Pushes are the sparse phases after batches of several sizes, on R-MAT and on a grid; entries
are those of work-lists, edges their out-edges. The unit is a sweep's time over its edges, vertices
and overhead (Iterate.sweep_cost). A residual computed from y is what a batch whose perturbation is
too large costs.

On ``cpu`` times are processor time on one core. Sweeps run on all cores and most work-lists on one,
so the ratio grows with the number of cores; it is given for two. On ``cuda`` times are
those of the host, to the end of the work.

    python -m benchmarks.push_costs --backend cpu --rmat 20 --grid 1024
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import combinations
from time import perf_counter, process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.inputs import Drawn, drawn_grid, drawn_rmat, grid_target, rmat_target
from liverank_gpu import Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Operation
from liverank_gpu.operations.residual import (
    Push,
    PushResult,
)
from liverank_gpu.pagerank.iterate import ContributionBuffers

TERMS = ("push_overhead", "round_overhead", "pushed_vertex", "pushed_edge")
"""What is fitted: the cost of a push, a round, an entry of a work-list and an edge."""

SIZES = (1, 4, 16, 64, 256, 1024)
"""Edges of batches, in turn."""

_CORES = 2
"""Cores that sweeps run on where a work-list has one."""

_UNTIMED = len(SIZES)
_CALLS = 9


@dataclass(frozen=True, slots=True)
class Clock:
    """How a backend is timed.

    seconds  the clock
    sweeps   what the time of a sweep is divided by
    """

    seconds: Callable[[], float]
    sweeps: int


CLOCKS = {"cpu": Clock(process_time, _CORES), "cuda": Clock(perf_counter, 1)}


@dataclass(frozen=True, slots=True)
class Pushes:
    """The pushes of one graph.

    counts  float64[p, terms]: 1, rounds, entries and edges of each
    units   float64[p]: how long each took, in edges of a sweep
    """

    counts: NDArray[np.float64]
    units: NDArray[np.float64]


def watched(backend: Backend, seen: list[tuple[float, PushResult]]) -> Backend:
    """The backend with pushes that record their seconds and what they did."""
    clock, device = CLOCKS[backend.name], backend.device

    def run(operation: Operation[Any], /) -> Any:
        if not isinstance(operation, Push):
            return backend.run(operation)
        device.synchronize()
        begin = clock.seconds()
        pushed = backend.run(operation)
        device.synchronize()
        seen.append((clock.seconds() - begin, pushed))
        return pushed

    return replace(backend, run=run)


def least_seconds(backend: Backend, work: Callable[[], object]) -> float:
    """The least time of some calls."""
    clock, times = CLOCKS[backend.name], []
    for _ in range(_CALLS):
        backend.device.synchronize()
        begin = clock.seconds()
        work()
        backend.device.synchronize()
        times.append(clock.seconds() - begin)
    return min(times)


def measured(
    name: str, graph: Drawn, target: float, backend: Backend, batches: int
) -> tuple[dict[str, Any], Pushes]:
    """Figures of one graph, and its pushes."""
    seen: list[tuple[float, PushResult]] = []
    engine = Engine(Options(target_error=target), watched(backend, seen))
    engine.apply(graph.load_from_host(backend.device))
    engine.update("auto")
    generator, to_host = np.random.default_rng(1), backend.device.to_host
    streams = [graph.batches(generator, size, to_host) for size in SIZES]
    for number in range(batches + _UNTIMED):
        if number == _UNTIMED:
            seen.clear()
        engine.apply(next(streams[number % len(SIZES)]))
        engine.update("auto")
    iterate = engine.internals.iterate
    buffers = ContributionBuffers.allocate(backend, engine.internals.graph.vertices)
    iterate.quantize(buffers)
    sweep = least_seconds(backend, lambda: iterate.sweep(buffers))
    recomputed = least_seconds(backend, iterate.recompute_residual)
    unit = sweep / iterate.sweep_cost / CLOCKS[backend.name].sweeps
    assert seen
    counts = [(1, each.rounds, each.entries, each.delta.additions) for _, each in seen]
    pushes = Pushes(np.array(counts, float), np.array([time for time, _ in seen]) / unit)
    rounds, entries, edges = pushes.counts[:, 1:].sum(0).astype(int).tolist()
    figures = {
        "vertices": engine.vertices,
        "edges": engine.edges,
        "pushes": len(seen),
        "rounds": rounds,
        "entries": entries,
        "pushed_edges": edges,
        "microseconds": round(1e6 * sum(time for time, _ in seen)),
        "sweep_edge_picoseconds": round(1e12 * unit),
        "residual_in_sweeps": round(recomputed / sweep, 2),
    }
    print(name, figures, flush=True)
    return figures, pushes


def fitted(graphs: list[Pushes], terms: tuple[str, ...] = TERMS) -> dict[str, float]:
    """The costs that minimise the squares of relative errors, each push with the weight of its part
    of the time of its graph, and the mean of the relative errors with these weights.

    terms  those that may differ from 0
    """
    counts, units = (
        np.concatenate([getattr(graph, field) for graph in graphs]) for field in ("counts", "units")
    )
    parts = np.concatenate([each.units / each.units.sum() for each in graphs]) / len(graphs)
    relative, places = counts / units[:, None], [TERMS.index(term) for term in terms]
    weights = np.sqrt(parts)
    best, least = np.zeros(len(TERMS)), np.inf
    for chosen in _subsets(places):
        own = np.linalg.lstsq(relative[:, chosen] * weights[:, None], weights, rcond=None)[0]
        found = np.zeros(len(TERMS))
        found[chosen] = own
        error = float(np.sum((weights * (relative @ found - 1.0)) ** 2))
        if error < least and (own >= 0.0).all():
            best, least = found, error
    off = float(parts @ np.abs(relative @ best - 1.0))
    costs = dict(zip(TERMS, best.tolist(), strict=True)) | {"relative_error": off}
    return {name: float(f"{number:.4g}") for name, number in costs.items()}


def _subsets(places: list[int]) -> Iterator[list[int]]:
    for count in range(1, len(places) + 1):
        yield from map(list, combinations(places, count))


def main() -> None:
    parser = harness.parser("what a push costs, in edges of a sweep", backends=True)
    parser.add_argument("--rmat", type=int, nargs="*", default=[20], help="scales")
    parser.add_argument("--grid", type=int, nargs="*", default=[1024], help="sides")
    parser.add_argument("--batches", type=int, default=60)
    arguments = parser.parse_args()
    backend = backend_named(arguments.backend)
    if backend.name == "cpu":
        kernels.set_threads(1)
    Engine(backend=backend).warm_up()
    random = backend.xp.random.default_rng(7)
    figures: dict[str, Any] = {}
    pushes = []
    for kind, draw, sizes in (
        ("R-MAT", drawn_rmat, arguments.rmat),
        ("grid", drawn_grid, arguments.grid),
    ):
        for size in sizes:
            # the same accuracy for each rank of graphs of one kind
            target = grid_target(size) if kind == "grid" else rmat_target(size)
            name, graph = f"{kind} {size}", draw(backend.xp, random, size)
            figures[name], found = measured(name, graph, target, backend, arguments.batches)
            figures[name] |= {f"alone: {term}": cost for term, cost in fitted([found]).items()}
            pushes.append(found)
    figures["costs"] = fitted(pushes)
    figures["by edges alone"] = fitted(pushes, ("pushed_edge",))
    for name in ("costs", "by edges alone"):
        print(name, figures[name])
    print(harness.record("push-costs", backend.name, figures, arguments.results))


if __name__ == "__main__":
    main()
