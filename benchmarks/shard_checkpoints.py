"""Memory of a server with shards during a checkpoint, and during a restart from it.

    python -m benchmarks.shard_checkpoints
    python -m benchmarks.shard_checkpoints --scale 12 --edges-per-vertex 4 16

The pipeline of one graph, whose shards are in worker processes, runs in a fresh process for each.
Memory is anonymous memory of that process, sampled every few milliseconds: the highest over what it
holds before a checkpoint, and over what it holds after a restart. The graphs differ in their edges
alone, so that what follows from edges and what follows from vertices can be told apart.
"""

from __future__ import annotations

import ctypes
import multiprocessing
import re
import tempfile
import threading
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np

from benchmarks import harness
from benchmarks.pipelines import created, load, opened, send
from liverank_gpu.generate import rmat
from liverank_service.errors import NotReady

_SAMPLE_SECONDS = 0.004


class Peak:
    """The highest anonymous memory of this process, in bytes; `before` and `after` it.

    Free memory is given back to the system first.
    """

    before = highest = after = 0

    def __enter__(self) -> Self:
        self.before = _kept()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._sample)
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()
        self.after = _kept()

    def _sample(self) -> None:
        while not self._ended.wait(_SAMPLE_SECONDS):
            self.highest = max(self.highest, _anonymous())


def _kept() -> int:
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    return _anonymous()


def _anonymous() -> int:
    status = Path("/proc/self/status").read_text()
    (found,) = re.findall(r"RssAnon:\s+(\d+) kB", status)
    return 1024 * int(found)


def stored(data: Path, scale: int, edges_per_vertex: int, shards: int) -> int:
    """Loads a graph, and takes two checkpoints, so that the journal, whose batches a restart reads,
    no longer has the load. Returns its edges.
    """
    pipeline = opened(created(data), shards)
    send(pipeline, [], [], np.arange(1 << scale))  # also those to which no edge is drawn
    load(pipeline, *rmat(scale, edges_per_vertex, seed=1))
    pipeline.checkpoint().result()
    send(pipeline, [1], [0])
    pipeline.checkpoint().result()
    edges = pipeline.view.edges
    pipeline.close(NotReady("the benchmark ends"))
    return edges


def measured(data: Path, shards: int) -> dict[str, Any]:
    """A restart, then a checkpoint."""
    with Peak() as restart:
        begin = time.perf_counter()
        pipeline = opened(data / "graphs" / "default", shards)
        seconds = time.perf_counter() - begin
    send(pipeline, [0], [1])
    with Peak() as checkpoint:
        taken = pipeline.checkpoint().result()
    figures = {
        "vertices": pipeline.view.vertices,
        "edges": pipeline.view.edges,
        "shards": shards,
        "checkpoint bytes": taken.bytes,
        "checkpoint seconds": taken.write_seconds,
        "pause seconds": taken.pause_seconds,
        "server bytes above, checkpoint": checkpoint.highest - checkpoint.before,
        "restart seconds": seconds,
        "server bytes above, restart": restart.highest - restart.after,
    }
    pipeline.close(NotReady("the benchmark ends"))
    return figures


def apart(function: Callable[..., Any], *arguments: Any) -> Any:
    """The function's result in a fresh process."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        return process.submit(function, *arguments).result()


def main() -> None:
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--scale", type=int, default=18)
    parser.add_argument("--edges-per-vertex", type=int, nargs="+", default=[16, 64])
    parser.add_argument("--shards", type=int, default=2)
    options = parser.parse_args()
    figures = []
    for edges_per_vertex in options.edges_per_vertex:
        with tempfile.TemporaryDirectory(prefix="liverank-shards-") as folder:
            data = Path(folder)
            apart(stored, data, options.scale, edges_per_vertex, options.shards)
            figures.append(apart(measured, data, options.shards))
            print(figures[-1], flush=True)
    print(harness.record("shard-checkpoints", "cpu", figures, options.results))


if __name__ == "__main__":
    main()
