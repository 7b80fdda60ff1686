"""A graph on one GPU and in shards on several, one process each, in one run: loads, static solves,
sweeps, and batches.

The processes are started here and meet by NCCL, without Dask. On ``cpu`` the shards are those of a
ShardedEngine.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, shuffled_rmat
from liverank_gpu import Change, EdgeBatch, Engine, Options, Result, ShardedEngine
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend

_INSERTED, _DELETED = 800, 200
"""Of a batch."""


@dataclass(frozen=True)
class Task:
    """What is measured. Of `repeats` the median counts."""

    scale: int
    target_error: float
    repeats: int
    batches: int

    @property
    def options(self) -> Options:
        return Options(target_error=self.target_error)

    @property
    def edges(self) -> int:
        return EDGES_PER_VERTEX << self.scale

    def slice(self, backend: Backend, rank: int, size: int) -> EdgeBatch:
        """The edges that a shard brings, on its device."""
        part = slice(self.edges * rank // size, self.edges * (rank + 1) // size)
        columns = shuffled_rmat(backend, self.scale, self.edges, part=part)
        return EdgeBatch(*columns, vertices=1 << self.scale)

    def changes(self, loaded: EdgeBatch) -> list[EdgeBatch]:
        """Batches, one more than are counted.

        loaded  some edges of the graph, of which they delete
        """
        generator = np.random.default_rng(7)
        batches = []
        for _ in range(self.batches + 1):
            inserted = generator.integers(0, 1 << self.scale, (2, _INSERTED))
            at = generator.integers(0, len(loaded.insert_sources), _DELETED)
            deleted = [np.array([int(column[i]) for i in at.tolist()]) for column in _ends(loaded)]
            batches.append(EdgeBatch(*inserted, *deleted))
        return batches


def _ends(batch: EdgeBatch) -> tuple[Any, Any]:
    return batch.insert_sources, batch.insert_targets


def measure(
    task: Task,
    loaded: EdgeBatch,
    changes: list[EdgeBatch],
    apply: Callable[[EdgeBatch], Change],
    update: Callable[[str], Result],
) -> dict[str, Any]:
    """Figures of one contender, in seconds and milliseconds."""
    begun = perf_counter()
    change = apply(loaded)
    load = perf_counter() - begun
    update("static")
    static_ms, sweep_ms, static = _static(task, update)
    update("residual")
    mutations, refreshes = [], []
    for batch in changes:
        begun = perf_counter()
        apply(batch)
        applied = perf_counter()
        result = update("residual")
        mutations.append(1e3 * (applied - begun))
        refreshes.append(1e3 * (perf_counter() - applied))
    _, later_sweep_ms, _ = _static(task, update)
    return {
        "edges": change.inserted,
        "load seconds": load,
        "static ms": static_ms,
        "sweeps": static.iterations,
        "ms a sweep": sweep_ms,
        "error bound": static.error_bound,
        "batch ms": median(mutations[1:]),
        "solve after batch ms": median(refreshes[1:]),
        "iterations after batch": result.iterations,
        "touched vertices after batch": result.touched_vertices,
        "error bound after batches": result.error_bound,
        "ms a sweep after batches": later_sweep_ms,
    }


def _static(task: Task, update: Callable[[str], Result]) -> tuple[float, float, Result]:
    """Milliseconds of static solves and of their sweeps, and the last of them."""
    solves, sweeps = [], []
    for _ in range(task.repeats):
        begun = perf_counter()
        result = update("static")
        solves.append(1e3 * (perf_counter() - begun))
        sweeps.append(solves[-1] / max(1, result.iterations))
    return median(solves), median(sweeps), result


def one_device(task: Task, backend: Backend) -> dict[str, Any]:
    """The engine without shards."""
    engine = Engine(task.options, backend)
    loaded = task.slice(backend, 0, 1)
    return measure(task, loaded, task.changes(loaded), engine.apply, engine.update)


def _shard(task: Task, rank: int, size: int, channel: Connection) -> None:
    """The process of one GPU: sends the identity of the group (shard 0) or nothing, receives that
    of shard 0, and sends its figures.
    """
    try:
        import cupy

        from liverank_gpu.sharded.columns import dealt
        from liverank_gpu.sharded.communicator import NcclCommunicator, unique_id
        from liverank_gpu.sharded.member import Member

        cupy.cuda.Device(rank).use()
        channel.send(unique_id() if rank == 0 else None)
        communicator = NcclCommunicator(rank, size, channel.recv())
        backend = backend_named("cuda")
        shard = Member(communicator, task.options, backend)
        loaded = task.slice(backend, rank, size)
        pool = cupy.get_default_memory_pool()
        pool.free_all_blocks()
        # all have the batches whole: what they delete is of the edges that shard 0 brought
        first = task.slice(backend, 0, size) if rank else loaded
        changes = [dealt(batch, size)[rank] for batch in task.changes(first)]
        del first
        pool.free_all_blocks()
        figures = measure(task, loaded, changes, shard.apply, shard.update)
        channel.send(figures | {"memory bytes": pool.total_bytes()})
    except BaseException as error:
        channel.send(error if isinstance(error, Exception) else RuntimeError(repr(error)))
        raise


def several_devices(task: Task, size: int) -> dict[str, Any]:
    """One process for each GPU. The figures are those of shard 0; all end together."""
    spawn = multiprocessing.get_context("spawn")
    pairs = [spawn.Pipe() for _ in range(size)]
    channels = [here for here, _ in pairs]
    processes = [
        spawn.Process(target=_shard, args=(task, rank, size, there), daemon=True)
        for rank, (_, there) in enumerate(pairs)
    ]
    for process in processes:
        process.start()
    try:
        identity = _received(channels)[channels[0]]
        for channel in channels:
            channel.send(identity)
        figures: dict[str, Any] = _received(channels)[channels[0]]
        return figures
    finally:
        for process in processes:
            process.join(10)
            process.kill()


def _received(channels: list[Connection]) -> dict[Connection, Any]:
    """A message of each shard. Raises the error of the first that fails."""
    messages: dict[Connection, Any] = {}
    while len(messages) < len(channels):
        ready = wait([each for each in channels if each not in messages], timeout=300)
        if not ready:
            raise TimeoutError("no shard sent anything for 300 s")
        for channel in ready:
            assert isinstance(channel, Connection)
            messages[channel] = message = channel.recv()
            if isinstance(message, Exception):
                raise message
    return messages


def several_processes(task: Task, size: int) -> dict[str, Any]:
    """The shards of a ShardedEngine."""
    loaded = task.slice(backend_named("cpu"), 0, 1)
    changes = task.changes(loaded)
    with ShardedEngine(task.options, shards=size, backend="cpu") as engine:
        return measure(task, loaded, changes, engine.apply, engine.update)


def main() -> None:
    parser = harness.parser(__doc__ or "", backends=True)
    parser.add_argument("--scale", type=int, nargs="+", default=[24, 26])
    parser.add_argument("--shards", type=int, nargs="+", default=[1, 2], help="1: the engine alone")
    parser.add_argument("--target-error", type=float, default=1e-6)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--batches", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="R-MAT 14, to see that it runs")
    options = parser.parse_args()
    # NVLink multicast is not allowed everywhere
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    figures = []
    for scale in [14] if options.small else options.scale:
        task = Task(scale, options.target_error, options.repeats, options.batches)
        backend = backend_named(options.backend)
        several = several_devices if options.backend == "cuda" else several_processes
        for size in options.shards:
            run = one_device(task, backend) if size == 1 else several(task, size)
            found = {"scale": scale, "shards": size, **run}
            figures.append(found)
            print(found, flush=True)
            if options.backend == "cuda":
                gc.collect()
                backend.xp.get_default_memory_pool().free_all_blocks()
    harness.record("shards", options.backend, figures, options.results)


if __name__ == "__main__":
    main()
