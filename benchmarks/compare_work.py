"""What one process of benchmarks.compare does: a script that imports nothing but the engine that
PYTHONPATH names, and prints its figures in milliseconds as JSON.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable
from functools import partial
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

# an earlier commit calls its package gpu
_PACKAGE = "liverank_gpu" if Path("gpu", "liverank_gpu").is_dir() else "gpu"
engine_package: Any = import_module(_PACKAGE)
grid: Any = import_module(f"{_PACKAGE}.generate").grid

_FRACTIONS = (1e-7, 1e-6, 1e-5, 1e-4)
"""Batch sizes, as parts of the edges."""

_SMALL = 2_000
"""Vertices of a small graph."""


class _Worker:
    """The work of one process."""

    def __init__(self, backend: str, edges: NDArray[np.int64], scale: int) -> None:
        self.backend = backend
        self.sources, self.targets = edges
        self.vertices = 1 << scale
        self.random = np.random.default_rng(7)
        self.figures: dict[str, float] = {}

    def time(self, work: Callable[[], Any]) -> float:
        """Milliseconds of one call; the device is idle before and after."""
        self.synchronize()
        begin = perf_counter()
        work()
        self.synchronize()
        return 1e3 * (perf_counter() - begin)

    def median(self, name: str, work: Callable[[], Any], count: int) -> None:
        self.figures[name] = float(np.median([self.time(work) for _ in range(count)]))

    def synchronize(self) -> None:
        if self.backend == "cuda":
            import cupy

            cupy.cuda.Device().synchronize()

    def engine(self) -> Any:
        return engine_package.Engine(engine_package.Options(), self.backend)

    def batch(self, size: int) -> Any:
        """80 % insertions between vertices drawn evenly, 20 % deletions of first edges."""
        deletions = size // 5
        new = self.random.integers(0, self.vertices, (2, size - deletions))
        gone = self.random.integers(0, len(self.sources), deletions)
        return engine_package.EdgeBatch(new[0], new[1], self.sources[gone], self.targets[gone])

    def run(self) -> dict[str, float]:
        for name in ("warm_up", "warm_up_others"):  # the other commit may have the first alone
            getattr(self.engine(), name, lambda: None)()
        load = engine_package.EdgeBatch(self.sources, self.targets, vertices=self.vertices)
        self.engine().apply(load)  # the first use of threads and memory is no part of a load
        engine = self.engine()
        self.figures["load"] = self.time(lambda: engine.apply(load))
        engine.update()
        self.median("static", lambda: engine.update("static"), 7)
        self.batches(engine)
        self.one_edge()
        self.queries(engine)
        self.grid()
        return self.figures

    def batches(self, engine: Any) -> None:
        for fraction in _FRACTIONS:
            size = max(5, int(fraction * engine.edges))
            count = 21 if fraction < 1e-4 else 9
            applied, ranked = self.follow(engine, (self.batch(size) for _ in range(count)))
            self.figures[f"apply a batch of {fraction:g}"] = applied
            self.figures[f"rank a batch of {fraction:g}"] = ranked
        for strategy in ("naive-dynamic", "dynamic-traversal", "dynamic-frontier-prune"):
            times = []
            for _ in range(3):
                engine.apply(self.batch(max(5, int(1e-5 * engine.edges))))
                times.append(self.time(lambda: engine.update(strategy)))  # noqa: B023
            self.figures[f"{strategy}, batches of 1e-05"] = float(np.median(times))
        engine.update()

    def follow(self, engine: Any, batches: Iterable[Any]) -> tuple[float, float]:
        """The medians of applying each batch, and of ranking after it."""
        times = [
            (self.time(partial(engine.apply, batch)), self.time(engine.update)) for batch in batches
        ]
        applied, ranked = np.median(times, axis=0).tolist()
        return applied, ranked

    def one_edge(self) -> None:
        """One edge at a time comes to a small graph and goes again: what is done for any batch."""
        ends = np.random.default_rng(7).integers(0, _SMALL, (2, 8 * _SMALL + 100))
        edges, new = ends[:, :-100], ends[:, -100:]
        engine = self.engine()
        engine.apply(engine_package.EdgeBatch(*edges, vertices=_SMALL))
        engine.update()
        batches = []
        for place in range(100):
            one = new[:, place : place + 1]
            batches += [
                engine_package.EdgeBatch(*one),
                engine_package.EdgeBatch(delete_sources=one[0], delete_targets=one[1]),
            ]
        figures = self.follow(engine, batches)
        self.figures["one edge, apply"], self.figures["one edge, update"] = figures

    def queries(self, engine: Any) -> None:
        degree = np.bincount(self.sources, minlength=self.vertices)
        seeds = np.flatnonzero(degree)[:: max(1, np.count_nonzero(degree) // 200)]
        queries = [
            engine_package.PersonalizedQuery(seeds[i : i + 1], k=100, target_error=1e-6)
            for i in range(100)
        ]
        remaining = iter(queries)
        self.median("personalized", lambda: engine.personalized_many([next(remaining)]), 11)
        many = queries[20 : 20 + (64 if self.backend == "cuda" else 16)]
        self.median("personalized, many", lambda: engine.personalized_many(many), 3)
        ranks = engine.publish()
        self.median("publish", engine.publish, 5)
        self.median("top 100", lambda: ranks.top(100), 5)

    def grid(self) -> None:
        side = 1024 if self.backend == "cuda" else 256
        sources, targets = grid(side, side)

        def ranked() -> Any:
            engine = self.engine()
            engine.apply(engine_package.EdgeBatch(sources, targets))
            engine.update()
            return engine

        self.median("grid, load and rank", ranked, 3)
        engine, times = ranked(), []
        for _ in range(15):
            ends = self.random.integers(0, side * (side - 1), 8)
            engine.apply(engine_package.EdgeBatch(ends, ends + side))
            times.append(self.time(engine.update))
        self.figures["grid, batch of 8"] = float(np.median(times))


if __name__ == "__main__":
    edges_file, name, scale = sys.argv[1:]
    if name not in ("cpu", "cuda"):
        sys.exit(f"expected backend cpu or cuda, got {name!r}")
    print(json.dumps(_Worker(name, np.load(edges_file), int(scale)).run()))
