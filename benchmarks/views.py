"""What views cost: batches on a graph with views beside one without, changes of teleport weights
beside solves from nothing, bytes a vertex, and exports of all ranks.

    python -m benchmarks.views --backend cuda

Two engines hold one R-MAT graph and take the same batches in turns: 80 % insertions, 20 %
deletions. Each view teleports to `--seeds` vertices of its own, with weights. Times end with the
published ranks of the graph and of each view. All bounds are checked to meet the target.
"""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import product
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.ipc as ipc

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, shuffled_rmat
from liverank_gpu import EdgeBatch, Engine, Options, Ranks, ViewQuery
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend

_SEED = 7


class Graph:
    """An engine, and the views that it keeps.

    held  bytes after each view
    """

    def __init__(self, backend: Backend, loaded: EdgeBatch, target: float, views: int, seeds: int):
        self.engine = Engine(Options(target_error=target), backend)
        self.engine.apply(loaded)
        self.engine.update()
        random = np.random.default_rng(_SEED)
        self.target, self.views = target, dict[str, ViewQuery]()
        self.held: list[int] = []
        for name in map(str, range(views)):
            ids = random.choice(loaded.vertices, seeds, replace=False)
            self.views[name] = ViewQuery(ids, random.random(seeds), target)
            self.engine.put_view(name, self.views[name])
            self.held.append(self.engine.memory()["personalized"])

    def batch(self, batch: EdgeBatch) -> None:
        """Applies a batch and publishes what follows."""
        self.engine.apply(batch)
        self.engine.update()
        self._met(self.engine.publish())
        self.engine.refresh_views()
        for name in self.views:
            self._met(self.engine.view(name))

    def changed(self, name: str, count: int, random: np.random.Generator) -> None:
        """Gives a view other weights for some of its seeds."""
        view = self.views[name]
        assert view.weights is not None
        weights = view.weights.copy()
        weights[random.choice(len(weights), count, replace=False)] = random.random(count)
        self.views[name] = replace(view, weights=weights)
        self.engine.put_view(name, self.views[name])
        self._met(self.engine.view(name))

    def begun(self, name: str) -> None:
        """Solves a view from nothing."""
        self.engine.put_view("begun", self.views[name])
        self._met(self.engine.view("begun"))

    def _met(self, ranks: Ranks) -> None:
        assert ranks.error_bound <= self.target


def _milliseconds(work: Callable[[], Any]) -> float:
    begun = perf_counter()
    work()
    return 1e3 * (perf_counter() - begun)


def _batches(loaded: EdgeBatch, size: int, count: int) -> list[EdgeBatch]:
    random, found = np.random.default_rng(_SEED), []
    deleted = size // 5
    for _ in range(count):
        inserted = random.integers(0, loaded.vertices, (2, size - deleted))
        at = random.integers(0, len(loaded.insert_sources), deleted).tolist()
        columns = (loaded.insert_sources, loaded.insert_targets)
        gone = [np.array([int(column[i]) for i in at]) for column in columns]
        found.append(EdgeBatch(*inserted, *gone))
    return found


def _exported(ranks: Ranks) -> int:
    """Bytes of an Arrow stream of all ranks."""
    values = ranks.to_numpy()
    table = pa.table({"vertex": np.arange(len(values)), "rank": values})
    sink = io.BytesIO()
    with ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return sink.tell()


def measure(
    backend: Backend, scale: int, target: float, views: int, seeds: int, repeats: int
) -> dict[str, Any]:
    """Medians in milliseconds, and ratios."""
    columns = shuffled_rmat(backend, scale, EDGES_PER_VERTEX << scale)
    loaded = EdgeBatch(*columns, vertices=1 << scale)
    without = Graph(backend, loaded, target, 0, seeds)
    beside = Graph(backend, loaded, target, views, seeds)
    held = beside.held
    each = (held[-1] - held[0]) / max(1, views - 1)
    times: dict[str, list[float]] = {}

    def take(what: str, work: Callable[[], Any]) -> None:
        times.setdefault(what, []).append(_milliseconds(work))

    for batch in _batches(loaded, 1000, repeats + 2):
        take("batch", partial(without.batch, batch))
        take("batch with views", partial(beside.batch, batch))
    random = np.random.default_rng(_SEED)
    for _ in range(repeats + 2):
        take("change of weights", lambda: beside.changed("0", min(1000, seeds), random))
        take("view from nothing", lambda: beside.begun("0"))
        beside.engine.remove_view("begun")
        take("export", lambda: _exported(without.engine.publish()))
        take("export of a view", lambda: _exported(beside.engine.view("0")))
    # the first two of each find memory and load kernels
    medians = {f"{what} ms": median(each[2:]) for what, each in times.items()}
    ratios = {
        "batch with views over without": ("batch with views", "batch"),
        "change over from nothing": ("change of weights", "view from nothing"),
        "export of a view over global": ("export of a view", "export"),
    }
    return {
        "scale": scale,
        "target": target,
        "views": views,
        "seeds of a view": seeds,
        **medians,
        "bytes a vertex of a view": each / (1 << scale),
        "bytes a vertex that views share": (held[0] - each) / (1 << scale),
        **{name: medians[f"{a} ms"] / medians[f"{b} ms"] for name, (a, b) in ratios.items()},
    }


def main() -> None:
    parser = harness.parser(__doc__ or "", backends=True)
    parser.add_argument("--scale", type=int, nargs="+", default=[24])
    parser.add_argument("--target-error", type=float, default=1e-6)
    parser.add_argument("--views", type=int, default=4)
    parser.add_argument("--seeds", type=int, nargs="+", default=[10_000, 1_000_000])
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    if given.views < 2:
        parser.error("--views: expected 2 or more, since memory is that of one more view")
    backend, figures = backend_named(given.backend), []
    for scale, seeds in product(given.scale, given.seeds):
        asked = given.target_error, given.views, seeds, given.repeats
        figures.append(measure(backend, scale, *asked))
        print(figures[-1], flush=True)
    harness.record("views", given.backend, figures, given.results)


if __name__ == "__main__":
    main()
