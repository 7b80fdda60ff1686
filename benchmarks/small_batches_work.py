"""What one process of benchmarks.small_batches does: a script that imports nothing but the engine
that PYTHONPATH names, and prints its figures in milliseconds as JSON.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

# an earlier commit calls its package gpu
_PACKAGE = "liverank_gpu" if Path("gpu", "liverank_gpu").is_dir() else "gpu"
package: Any = import_module(_PACKAGE)

_EDGES, _BLOCK = 16, 1 << 24
"""Edges of a vertex of R-MAT, and edges that are drawn at a time."""


def _rmat(xp: Any, scale: int) -> tuple[Any, Any]:
    """int32 columns with shuffled labels: Graph500's parameters."""
    random = xp.random.RandomState(1)
    edges = _EDGES << scale
    columns = xp.empty((2, edges), np.int32)
    labels = random.permutation(1 << scale).astype(np.int32)
    for first in range(0, edges, _BLOCK):
        count = min(_BLOCK, edges - first)
        ends = xp.zeros((2, count), np.int32)
        for _ in range(scale):
            u = random.random_sample(count)
            ends[0] = 2 * ends[0] + (u >= 0.76)
            ends[1] = 2 * ends[1] + (((u >= 0.57) & (u < 0.76)) | (u >= 0.95))
        columns[:, first : first + count] = labels[ends]
    return columns[0], columns[1]


def _grid(xp: Any, side: int) -> tuple[Any, Any]:
    """int32 columns: each vertex to its neighbours to the right and below, and back."""
    ids = xp.arange(side * side, dtype=np.int32).reshape(side, side)
    pairs = [(ids[:, :-1].ravel(), ids[:, 1:].ravel()), (ids[:-1].ravel(), ids[1:].ravel())]
    first, second = (xp.concatenate([pair[end] for pair in pairs]) for end in (0, 1))
    return xp.concatenate([first, second]), xp.concatenate([second, first])


class _Worker:
    """Batches on one graph."""

    def __init__(self, backend: str, kind: str, special: str, size: int, target: float) -> None:
        """special  empty, or "weighted", "decaying" or "with a removal" """
        self.backend, self.special = backend, special
        xp: Any = import_module("cupy") if backend == "cuda" else np
        self.sources, self.targets = (_rmat if kind == "rmat" else _grid)(xp, size)
        self.vertices = 1 << size if kind == "rmat" else size * size
        self.random = np.random.default_rng(7)
        self.xp, self.now = xp, 0.0
        options: dict[str, Any] = {"target_error": target}
        if special in ("weighted", "decaying"):
            options["weighted"] = True
        if special == "decaying":
            options["half_life"] = 1.0
        self.engine = package.Engine(package.Options(**options), backend)
        sent = self._weights(len(self.sources))
        load = package.EdgeBatch(self.sources, self.targets, vertices=self.vertices, **sent)
        self.engine.apply(load)
        self.engine.update()

    def _weights(self, count: int) -> dict[str, Any]:
        """Those of so many insertions, and their times, if the graph has any."""
        if self.special not in ("weighted", "decaying"):
            return {}
        sent = {"weights": 1.0 - self.random.random(count, np.float32)}
        if self.special == "decaying":
            self.now += 1e-3
            sent["times"] = np.full(count, self.now)
        return sent

    def batch(self, size: int) -> Any:
        """80 % insertions between vertices drawn evenly, 20 % deletions of first edges."""
        deletions = size // 5 if size > 1 else int(self.random.integers(5) == 0)
        new = self.random.integers(0, self.vertices, (2, size - deletions))
        chosen = self.xp.asarray(self.random.integers(0, len(self.sources), deletions))
        gone = [self.xp.take(ids, chosen).astype(np.int64) for ids in (self.sources, self.targets)]
        if self.backend == "cuda":
            gone = [ids.get() for ids in gone]
        sent = self._weights(size - deletions)
        if self.special == "with a removal":
            sent["remove"] = self.random.integers(0, self.vertices, 1)
        return package.EdgeBatch(new[0], new[1], *gone, **sent)

    def times(self, size: int, count: int) -> dict[str, list[float]]:
        """Medians of the stages in milliseconds, and median, mean and largest of their sum."""
        stages = []
        for batch in [self.batch(size) for _ in range(8 + count)]:
            begin = perf_counter()
            self.engine.apply(batch)
            applied = perf_counter()
            self.engine.update()
            updated = perf_counter()
            ranks = self.engine.publish()
            published = perf_counter()
            stages.append([applied - begin, updated - applied, published - updated])
            ranks.top(1)
            while getattr(self.engine, "improve", bool)():
                pass
        each = 1e3 * np.array(stages[8:])
        total = each.sum(1)
        return {
            "apply, update, publish": np.median(each, axis=0).tolist(),
            "median, mean, largest": [np.median(total), total.mean(), total.max()],
        }


if __name__ == "__main__":
    given = json.loads(sys.argv[1])
    for name in ("warm_up", "warm_up_others"):
        getattr(package.Engine(package.Options(), given["backend"]), name, lambda: None)()
    figures = {}
    for kind, special, graph_size, target, batches in given["graphs"]:
        worker = _Worker(given["backend"], kind, special, graph_size, target)
        for batch_size, count in batches:
            graph = f"{kind} {graph_size} {special}".rstrip()
            figures[f"{graph}, to {target:g}, {batch_size}"] = worker.times(batch_size, count)
        del worker
    print(json.dumps(figures))
