"""A graph on one GPU and in shards on several: in one run, and within a bound on their memory.

    python -m benchmarks.shards --backend cuda --scale 24 26
    python -m benchmarks.shards device-memory --backend cuda --gibibytes 3.5

shards: loads, static solves, sweeps, and batches. On ``cuda`` processes, one a GPU, are started
here and meet by NCCL, without Dask; on ``cpu`` the shards are those of a ShardedEngine.

device-memory: a graph that exceeds the memory which one device may use, in shards that hold it
(``cuda``). R-MAT edges are loaded in one batch, from the host. One device holds them without a
bound, and refuses them within it; shards, one process a GPU, load them within it each, solve, and
follow batches. Their ranks are compared with those of the one device that has no bound, which got
the same batches.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, random_batches, shuffled_rmat
from liverank_gpu import (
    BackendName,
    Change,
    EdgeBatch,
    Engine,
    Options,
    OutOfMemory,
    Result,
    ShardedEngine,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend

_SIZE = 1000
"""Of a batch."""

Batches = list[EdgeBatch]


# ---- in one run ----


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

    def slice(self, backend: Backend, rank: int, size: int) -> EdgeBatch:
        """The edges that a shard brings, on its device."""
        edges = EDGES_PER_VERTEX << self.scale
        part = slice(edges * rank // size, edges * (rank + 1) // size)
        columns = shuffled_rmat(backend, self.scale, edges, part=part)
        return EdgeBatch(*columns, vertices=1 << self.scale)

    def changes(self, loaded: EdgeBatch) -> Batches:
        """Batches, one more than are counted, which delete some of these edges of the graph."""
        return random_batches(loaded, _SIZE, self.batches + 1, np.random.default_rng(7))


def measure(
    repeats: int,
    loaded: EdgeBatch,
    batches: Batches,
    apply: Callable[[EdgeBatch], Change],
    update: Callable[[str], Result],
) -> dict[str, Any]:
    """Figures of one contender, in seconds and milliseconds. Of several batches the first is not
    counted; the last solve is to the target.
    """
    begun = perf_counter()
    change = apply(loaded)
    load = perf_counter() - begun
    update("static")
    static_ms, sweep_ms, static = _static(repeats, update)
    update("residual")
    mutations, refreshes = [], []
    for batch in batches:
        begun = perf_counter()
        apply(batch)
        applied = perf_counter()
        result = update("residual")
        mutations.append(1e3 * (applied - begun))
        refreshes.append(1e3 * (perf_counter() - applied))
    _, later_sweep_ms, _ = _static(repeats, update)
    final = update("residual")
    return {
        "edges": change.inserted,
        "load seconds": load,
        "static ms": static_ms,
        "sweeps": static.iterations,
        "ms a sweep": sweep_ms,
        "error bound": static.error_bound,
        "batch ms": median(mutations[1:] or mutations),
        "solve after batch ms": median(refreshes[1:] or refreshes),
        "iterations after batch": result.iterations,
        "touched vertices after batch": result.touched_vertices,
        "error bound after batches": final.error_bound,
        "ms a sweep after batches": later_sweep_ms,
    }


def _static(repeats: int, update: Callable[[str], Result]) -> tuple[float, float, Result]:
    """Milliseconds of static solves and of their sweeps, and the last of them."""
    solves, sweeps = [], []
    for _ in range(repeats):
        begun = perf_counter()
        result = update("static")
        solves.append(1e3 * (perf_counter() - begun))
        sweeps.append(solves[-1] / max(1, result.iterations))
    return median(solves), median(sweeps), result


def one_device(task: Task, backend: Backend) -> dict[str, Any]:
    """The engine without shards."""
    engine = Engine(task.options, backend)
    loaded = task.slice(backend, 0, 1)
    return measure(task.repeats, loaded, task.changes(loaded), engine.apply, engine.update)


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
        batches = [dealt(batch, size)[rank] for batch in task.changes(first)]
        del first
        pool.free_all_blocks()
        figures = measure(task.repeats, loaded, batches, shard.apply, shard.update)
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
    with ShardedEngine(task.options, shards=size, backend="cpu") as engine:
        return measure(task.repeats, loaded, task.changes(loaded), engine.apply, engine.update)


def in_shards(
    backend: BackendName,
    scale: list[int],
    shards: list[int],
    target_error: float,
    repeats: int,
    batches: int,
) -> Iterator[dict[str, Any]]:
    """Of each number of `shards`; 1 is the engine alone."""
    chosen = backend_named(backend)
    several = several_devices if backend == "cuda" else several_processes
    for each in scale:
        task = Task(each, target_error, repeats, batches)
        for size in shards:
            run = one_device(task, chosen) if size == 1 else several(task, size)
            yield {"scale": each, "shards": size, **run}
            if backend == "cuda":
                gc.collect()
                chosen.xp.get_default_memory_pool().free_all_blocks()


# ---- within a bound on memory ----


def drawn(backend: Backend, scale: int, batches: int) -> tuple[EdgeBatch, Batches]:
    """R-MAT edges in one batch, and later batches, on the host."""
    columns = shuffled_rmat(backend, scale, EDGES_PER_VERTEX << scale)
    sources, targets = map(backend.device.to_host, columns)
    load = EdgeBatch(sources, targets, vertices=1 << scale)
    return load, random_batches(load, _SIZE, batches, np.random.default_rng(7))


def refusal(engine: Engine, load: EdgeBatch) -> dict[str, int]:
    """What the engine says of too little memory. Raises RuntimeError if it takes the edges."""
    try:
        engine.apply(load)
    except OutOfMemory as error:
        return {"needed bytes": error.needed, "available bytes": error.available}
    raise RuntimeError(f"expected a refusal, got {engine.edges:,} edges on one device")


def compared(
    engine: Callable[[int | None], Engine],
    shards: Callable[[int], ShardedEngine],
    most: int,
    load: EdgeBatch,
    batches: Batches,
) -> dict[str, Any]:
    """One device without a bound and with one, and shards with that bound.

    engine  one device whose arrays take so many bytes, or any
    shards  in processes whose arrays take so many bytes each
    """
    alone = engine(None)
    one = measure(1, load, batches, alone.apply, alone.update)
    ranks, edges = alone.publish().to_numpy(), alone.edges
    # without the pages, which an engine goes without where memory is short
    one["held bytes"] = sum(alone.memory().values()) - alone.memory().get("pages", 0)
    del alone
    refused = refusal(engine(most), load)
    with shards(most) as several:
        found = measure(1, load, batches, several.apply, several.update)
        own_ranks = several.publish().to_numpy()
        found["held bytes"] = several.shard_bytes
        if several.edges != edges:
            raise RuntimeError(f"expected {edges:,} edges, got {several.edges:,}")
    difference = float(np.abs(ranks - own_ranks).sum())
    if difference > (bound := sum(each["error bound after batches"] for each in (one, found))):
        raise RuntimeError(f"expected ranks that differ by at most {bound}, got {difference}")
    return {
        "device memory bytes": most,
        "edges sent": len(load.insert_sources),
        "one device": one | refused,
        "shards": found | {"difference": difference},
    }


def within_memory(
    backend: BackendName,
    scale: int,
    shards: int,
    gibibytes: list[float],
    target_error: float,
    batches: int,
) -> Iterator[dict[str, Any]]:
    """`gibibytes` of one device."""
    chosen, options = backend_named(backend), Options(target_error=target_error)
    pool = chosen.xp.get_default_memory_pool()
    load, later = drawn(chosen, scale, batches)

    def engine(most: int | None) -> Engine:
        gc.collect()
        pool.free_all_blocks()
        chosen.device.limit_memory(most)
        return Engine(options, chosen)

    def several(most: int) -> ShardedEngine:
        pool.free_all_blocks()
        return ShardedEngine(options, shards, backend, device_memory=most)

    for each in gibibytes:
        found = compared(engine, several, int(each * (1 << 30)), load, later)
        yield {"scale": scale, "number of shards": shards, **found}


if __name__ == "__main__":
    # NVLink multicast is not allowed everywhere
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    shared = {"target_error": 1e-6, "batches": 5}
    suites: harness.Suites = {
        "shards": (in_shards, {"scale": [24, 26], "shards": [1, 2], "repeats": 5, **shared}),
        "device-memory": (
            within_memory,
            {"scale": 24, "shards": 2, "gibibytes": [3.5], **shared},
        ),
    }
    harness.run(__doc__, suites, backends=True)
