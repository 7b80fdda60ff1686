"""The benchmark of a graph that one device refuses."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import tables
from benchmarks.shards import Batches, compared, drawn, refusal
from liverank_gpu import EdgeBatch, Engine, Options, ShardedEngine
from liverank_gpu.backends import backend_named
from tests.cuda_emulator.emulated import counting_backend
from tests.gpu.sharded.threads import ThreadWorkers

OPTIONS = Options(target_error=1e-6)
BOUND = 900_000


def engine(most: int | None) -> Engine:
    backend = counting_backend()
    backend.device.limit_memory(most)
    return Engine(OPTIONS, backend)


def shards(most: int) -> ShardedEngine:
    backends = [counting_backend() for _ in range(2)]
    for each in backends:
        each.device.limit_memory(most)
    return ShardedEngine(OPTIONS, workers=ThreadWorkers(OPTIONS, 2, backends))


def edges() -> tuple[EdgeBatch, Batches]:
    columns = np.random.default_rng(1).integers(0, 6_000, (2, 30_000))
    return EdgeBatch(*columns), [EdgeBatch.of(insert=[(0, 5), (7, 9)], delete=[(1, 2)])]


def test_shards_hold_what_one_device_refuses() -> None:
    figures = compared(engine, shards, BOUND, *edges())
    one, several = figures["one device"], figures["shards"]
    assert one["needed bytes"] > one["available bytes"] > 0
    assert one["edges"] == several["edges"]
    assert max(several["held bytes"]) < one["held bytes"]
    assert several["difference"] <= one["error bound"] + several["error bound"]
    figures = {"scale": 13, "number of shards": 2, **figures}
    table = tables.TABLES["device-memory"]({"suite": "device-memory", "figures": [figures]})
    assert table.count("| 13 | 2 | 900,000 |") == 1


def test_one_device_that_takes_the_edges_is_an_error() -> None:
    with pytest.raises(RuntimeError, match="expected a refusal, got"):
        refusal(engine(None), edges()[0])


def test_batches_delete_edges_of_the_graph() -> None:
    load, batches = drawn(backend_named("cpu"), 8, 2)
    present = set(zip(load.insert_sources.tolist(), load.insert_targets.tolist(), strict=True))
    for batch in batches:
        gone = zip(batch.delete_sources.tolist(), batch.delete_targets.tolist(), strict=True)
        assert set(gone) <= present
