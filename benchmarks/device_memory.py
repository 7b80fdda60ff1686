"""A graph that exceeds the memory which one device may use, in shards that hold it (CUDA).

    python -m benchmarks.device_memory --scale 24 --gibibytes 3.5

R-MAT edges are loaded in one batch, from the host. One device holds them without a bound, and
refuses them within it; shards, one process a GPU, load them within it each, solve, and follow
batches. Their ranks are compared with those of the one device that has no bound, which got the same
batches.
"""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, shuffled_rmat
from liverank_gpu import EdgeBatch, Engine, Options, OutOfMemory, ShardedEngine
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend

_INSERTED, _DELETED = 800, 200
"""Of a batch."""

Batches = list[EdgeBatch]


def drawn(backend: Backend, scale: int, batches: int) -> tuple[EdgeBatch, Batches]:
    """R-MAT edges in one batch, and later batches, on the host."""
    columns = shuffled_rmat(backend, scale, EDGES_PER_VERTEX << scale)
    sources, targets = map(backend.device.to_host, columns)
    generator = np.random.default_rng(7)
    later = []
    for _ in range(batches):
        new_sources, new_targets = generator.integers(0, 1 << scale, (2, _INSERTED))
        gone = generator.integers(0, len(sources), _DELETED)
        later.append(EdgeBatch(new_sources, new_targets, sources[gone], targets[gone]))
    return EdgeBatch(sources, targets, vertices=1 << scale), later


def refusal(engine: Engine, load: EdgeBatch) -> dict[str, int]:
    """What the engine says of too little memory. Raises RuntimeError if it takes the edges."""
    try:
        engine.apply(load)
    except OutOfMemory as error:
        return {"needed bytes": error.needed, "available bytes": error.available}
    raise RuntimeError(f"expected a refusal, got {engine.edges:,} edges on one device")


def measured(
    engine: Engine | ShardedEngine, load: EdgeBatch, batches: Batches
) -> tuple[dict[str, Any], NDArray[np.float64]]:
    """Figures of a load, a static solve and batches with their solves; and the last ranks."""
    begun = perf_counter()
    engine.apply(load)
    seconds = perf_counter() - begun
    engine.update("static")
    begun = perf_counter()
    engine.update("static")
    static = perf_counter() - begun
    engine.update()
    times = []
    for batch in batches:
        begun = perf_counter()
        engine.apply(batch)
        result = engine.update()
        times.append(perf_counter() - begun)
    ranks = engine.publish().to_numpy()
    return {
        "edges": engine.edges,
        "load seconds": seconds,
        "static ms": 1e3 * static,
        "batch and solve ms": 1e3 * median(times),
        "error bound": result.error_bound,
    }, ranks


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
    one, ranks = measured(alone, load, batches)
    # without the pages, which an engine goes without where memory is short
    one["held bytes"] = sum(alone.memory().values()) - alone.memory().get("pages", 0)
    del alone
    refused = refusal(engine(most), load)
    with shards(most) as several:
        found, own_ranks = measured(several, load, batches)
        found["held bytes"] = several.shard_bytes
    if found["edges"] != one["edges"]:
        raise RuntimeError(f"expected {one['edges']:,} edges, got {found['edges']:,}")
    difference = float(np.abs(ranks - own_ranks).sum())
    if difference > (bound := one["error bound"] + found["error bound"]):
        raise RuntimeError(f"expected ranks that differ by at most {bound}, got {difference}")
    return {
        "device memory bytes": most,
        "edges sent": len(load.insert_sources),
        "one device": one | refused,
        "shards": found | {"difference": difference},
    }


def main() -> None:
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--scale", type=int, default=24)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--gibibytes", type=float, nargs="+", default=[3.5], help="of one device")
    parser.add_argument("--target-error", type=float, default=1e-6)
    parser.add_argument("--batches", type=int, default=5)
    arguments = parser.parse_args()
    # NVLink multicast is not allowed everywhere
    os.environ.setdefault("NCCL_NVLS_ENABLE", "0")
    backend = backend_named("cuda")
    pool = backend.xp.get_default_memory_pool()
    options = Options(target_error=arguments.target_error)
    load, batches = drawn(backend, arguments.scale, arguments.batches)
    figures = []

    def engine(most: int | None) -> Engine:
        gc.collect()
        pool.free_all_blocks()
        backend.device.limit_memory(most)
        return Engine(options, backend)

    def shards(most: int) -> ShardedEngine:
        pool.free_all_blocks()
        return ShardedEngine(options, arguments.shards, "cuda", device_memory=most)

    for gibibytes in arguments.gibibytes:
        found = compared(engine, shards, int(gibibytes * (1 << 30)), load, batches)
        figures.append({"scale": arguments.scale, "number of shards": arguments.shards, **found})
        print(figures[-1], flush=True)
    print(harness.record("device-memory", "cuda", figures, arguments.results))


if __name__ == "__main__":
    main()
