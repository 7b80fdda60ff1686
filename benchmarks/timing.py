"""Clocks: the time of one call, and that of each solve of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from statistics import median
from time import perf_counter
from typing import Any, TypeVar

import numpy as np

from liverank_gpu import BackendName, EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import DeviceOperations
from liverank_gpu.operations.graph import GraphUpdate

_EXACT = 1e-11
"""Target of the solve that ranks are compared with."""

LARGEST_TARGET = 2.0
"""No two distributions are further apart."""

Answer = TypeVar("Answer")


def timed(device: DeviceOperations, work: Callable[[], Answer]) -> tuple[float, Answer]:
    """Milliseconds of one call, and what it returned. The device is idle before and after."""
    device.synchronize()
    begin = perf_counter()
    answer = work()
    device.synchronize()
    return 1e3 * (perf_counter() - begin), answer


def warm_up(backend: BackendName | Backend, **options: Any) -> None:
    """Compiles what solves and queries need."""
    engine = Engine(Options(**options), backend)
    engine.warm_up()
    engine.warm_up_others()


def loaded(edges: EdgeBatch, backend: BackendName | Backend, **options: Any) -> Engine:
    """An engine with these edges, which has not solved yet."""
    engine = Engine(Options(**options), backend)
    engine.apply(edges)
    return engine


def in_turns(
    device: DeviceOperations, works: Mapping[str, Callable[[], Answer]], repeats: int
) -> dict[str, tuple[float, Answer]]:
    """The median milliseconds of each, and what its last call returned. They take turns, so that
    other work on the machine affects all of them alike; the first turn is not counted.
    """
    times: dict[str, list[float]] = {name: [] for name in works}
    answers = {}
    for _ in range(repeats + 1):
        for name, work in works.items():
            milliseconds, answers[name] = timed(device, work)
            times[name].append(milliseconds)
    return {name: (median(each[1:]), answers[name]) for name, each in times.items()}


def loosest(
    error: float, error_of: Callable[[float], float], least: float, factor: float = 16.0
) -> tuple[float, float]:
    """The first target whose error is at most this one, of `factor` times it and halves, and its
    error; that of the least target if none is.
    """
    target = min(max(factor * error, least), LARGEST_TARGET)
    found = error_of(target)
    # rounding may leave another solve nearer to the reference than any of ours
    while found > error and target > least:
        target = max(target / 2.0, least)
        found = error_of(target)
    return target, found


@dataclass(frozen=True, slots=True)
class Solve:
    """One batch and the solve that followed it.

    milliseconds  perturbation of the residual when the batch was applied, and the solve; not the
                  update of the graph
    perturbation  its part of them
    others        see liverank_gpu.types.Result
    """

    milliseconds: float
    perturbation: float
    iterations: int
    touched_vertices: int
    error_bound: float
    converged: bool


class TimedEngine:
    """An engine whose solves are timed."""

    def __init__(self, options: Options, backend: Backend) -> None:
        self.engine = Engine(options, backend)
        self.device = backend.device
        self.iterate = self.engine.internals.iterate
        self._perturbation = 0.0
        perturb = self.iterate.perturb

        def timed_perturb(update: GraphUpdate) -> None:
            self._perturbation, _ = timed(self.device, lambda: perturb(update))

        self.iterate.perturb = timed_perturb  # type: ignore[method-assign]

    def set_target(self, target_error: float) -> None:
        """Changes the target of later solves; graph and ranks stay."""
        options = replace(self.engine.options, target_error=target_error)
        self.engine.options = self.iterate.options = options

    def batch(self, batch: EdgeBatch, strategy: str = "auto") -> Solve:
        """Applies a batch and solves."""
        self.engine.apply(batch)
        result = self.engine.update(strategy)
        solve = 1e3 * (result.mark_seconds + result.solve_seconds)
        return Solve(
            self._perturbation + solve,
            self._perturbation,
            result.iterations,
            result.touched_vertices,
            result.error_bound,
            result.converged,
        )

    def error(self) -> float:
        """L1 distance of the ranks to those of a solve to 1e-11, which they become."""
        ranks = self.engine.publish().to_numpy()
        target = self.engine.options.target_error
        self.set_target(_EXACT)
        self.engine.update("auto")
        self.set_target(target)
        return float(np.abs(self.engine.publish().to_numpy() - ranks).sum())
