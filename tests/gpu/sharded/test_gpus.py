"""Shards on GPUs: a local Dask cluster with one worker for each, which exchange data by NCCL. Needs
two GPUs, without which these tests are skipped. What they share with other devices is tested
everywhere: test_existing_cluster.py has the same calls on an emulated NCCL.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from time import monotonic
from typing import Any

import numpy as np
import pytest

from liverank_gpu import (
    STRATEGIES,
    BackendName,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfMemory,
    ShardedEngine,
    ShardLost,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend, PageRule
from liverank_gpu.sharded.cluster import local_workers, visible_devices
from liverank_gpu.sharded.communicator import NcclCommunicator
from liverank_gpu.sharded.dask_shard import PARTS, Parts
from liverank_gpu.sharded.dask_workers import DaskWorkers
from tests.gpu.graphs import batch_for, model_of
from tests.gpu.sharded.test_programs import BUILT_IN, OPTIONS, OWN, assert_same, edges
from tests.gpu.sharded.test_shards import assert_ranks, kind_of_graph

pytestmark = [
    pytest.mark.skipif(len(visible_devices()) < 2, reason="needs two GPUs"),
    pytest.mark.filterwarnings("default"),
]


COUNTING = """
from liverank_gpu.sharded.communicator import NcclCommunicator

start_gather = NcclCommunicator.start_gather

def counted(communicator, *arguments):
    NcclCommunicator.started += 1
    start_gather(communicator, *arguments)

NcclCommunicator.started = 0
NcclCommunicator.start_gather = counted
"""
"""For workers: how many parts of contributions have been sent beside what is computed."""


@pytest.fixture(scope="module")
def workers() -> Iterator[DaskWorkers]:
    """On two GPUs, which have a graph already. The last test kills one."""
    found = local_workers(Options(target_error=1e-9), 2, "auto")
    found.client.run(exec, COUNTING, {})
    yield found
    found.close()


@pytest.fixture(scope="module")
def first(workers: DaskWorkers) -> ShardedEngine:
    """An engine on them."""
    engine = ShardedEngine(Options(target_error=1e-9), workers=workers)
    assert engine.backend == "cuda"
    return engine


@pytest.fixture
def another(workers: DaskWorkers) -> Iterator[Callable[..., ShardedEngine]]:
    """Starts an engine on the same workers, which have its graph until the test ends."""
    given = workers.client, workers.addresses
    with ExitStack() as engines:

        def started(options: Options, parts: Parts = PARTS) -> ShardedEngine:
            own = DaskWorkers(*given, options, "cuda", parts=parts, shared=True)
            return engines.enter_context(ShardedEngine(options, workers=own))

        yield started


def parts_started(workers: DaskWorkers) -> int:
    """How many parts each worker has sent: the same number on all of them."""
    (started,) = set(workers.client.run(getattr, NcclCommunicator, "started").values())
    return int(started)


@pytest.mark.parametrize("seed", range(16))
@pytest.mark.parametrize("removes", [False, True])
def test_streams_give_the_ranks_and_counts_of_the_model(
    another: Callable[..., ShardedEngine], seed: int, *, removes: bool
) -> None:
    generator, options = np.random.default_rng(seed), kind_of_graph(seed)
    model = model_of(options)
    engine = another(options)
    for _ in range(3):
        size = int(generator.choice([2, 20, 120]))
        batch = batch_for(generator, model, size, removes)
        assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
        strategy = str(generator.choice(STRATEGIES))
        assert_ranks(engine, model, engine.update(strategy).error_bound)


@pytest.mark.parametrize("options", OPTIONS.values(), ids=OPTIONS)
def test_programs_find_what_they_find_on_the_cpu(
    another: Callable[..., ShardedEngine], options: Options
) -> None:
    generator = np.random.default_rng(2)
    one, several = Engine(options, "cpu"), another(options)
    for step in range(3):
        for engine in (one, several):
            engine.apply(edges(np.random.default_rng(step), 3_000 + 500 * step, 9_000))
            engine.apply(EdgeBatch.of(remove=[7 + step, 11]))
        for program in (*BUILT_IN, *OWN):
            named = "source" in program.parameters
            given: dict[str, Any] = {"source": int(generator.integers(20, 3_000))} if named else {}
            assert_same(several.run(program, **given), one.run(program, **given))


@pytest.mark.parametrize(
    ("vertices", "edges", "in_parts"),
    [
        (200_000, 3_000_000, False),
        # contributions are sent in parts (liverank_gpu.sharded.operations)
        (10_000_000, 12_000_000, True),
    ],
)
def test_a_large_graph_has_the_ranks_of_one_gpu(
    another: Callable[..., ShardedEngine],
    workers: DaskWorkers,
    vertices: int,
    edges: int,
    *,
    in_parts: bool,
) -> None:
    pairs = np.random.default_rng(1).integers(0, vertices, (2, edges))
    options = Options(target_error=1e-8)
    one, several = Engine(options, "cuda"), another(options)
    for engine in (one, several):
        engine.apply(EdgeBatch(pairs[0], pairs[1]))
    before = parts_started(workers)
    bound = one.update().error_bound + several.update().error_bound
    assert (parts_started(workers) > before) == in_parts
    difference = one.publish().to_numpy() - several.publish().to_numpy()
    assert one.edges == several.edges
    assert np.abs(difference).sum() <= bound


def test_memory_that_a_bounded_device_keeps_can_be_used_again() -> None:
    device = backend_named("cuda").device
    device.xp.get_default_memory_pool().free_all_blocks()
    used = device.xp.get_default_memory_pool().used_bytes()
    device.limit_memory(used + (1 << 30))
    try:
        blocks = [device.allocate("blocks", 200 << 20, np.uint8) for _ in range(5)]
        with pytest.raises(OutOfMemory):
            device.allocate("one more", 200 << 20, np.uint8)
        blocks.clear()
        assert device.allocate("a larger one", 900 << 20, np.uint8).nbytes == 900 << 20
    finally:
        device.limit_memory(None)


def test_a_graph_that_one_gpu_refuses_is_held_by_two(workers: DaskWorkers) -> None:
    pairs = np.random.default_rng(3).integers(0, 1 << 20, (2, 40_000_000))
    options, most = Options(target_error=1e-8), 1 << 30
    one = Engine(options, "cuda")
    one.apply(EdgeBatch(*pairs))
    bound = one.update().error_bound
    given = workers.client, workers.addresses, options
    own = DaskWorkers(*given, "cuda", most, shared=True)
    try:
        several = ShardedEngine(options, workers=own)
        several.apply(EdgeBatch(*pairs))
        bound += several.update().error_bound
        difference = one.publish().to_numpy() - several.publish().to_numpy()
        assert one.edges == several.edges
        assert np.abs(difference).sum() <= bound
    finally:
        own.close()
        # the workers are those of other tests: without the bound again
        DaskWorkers(*given, "cuda", shared=True).close()
    one = Engine(options, "cuda")
    one.internals.backend.device.limit_memory(most)
    try:
        with pytest.raises(OutOfMemory):
            one.apply(EdgeBatch(*pairs))
    finally:
        one.internals.backend.device.limit_memory(None)


def paging(name: BackendName) -> Backend:
    """Small graphs have pages too."""
    backend = backend_named(name)
    return replace(backend, costs=replace(backend.costs, pages=PageRule(1, 0.0, 0.0)))


def test_sweeps_by_pages_give_the_ranks_of_one_gpu(another: Callable[..., ShardedEngine]) -> None:
    random, options = np.random.default_rng(3), Options(target_error=1e-8)
    one, by_rows = Engine(options, "cuda"), another(options)
    by_pages = another(options, Parts(backend=paging))
    pairs = random.integers(0, 200_000, (2, 3_000_000))
    for size in (0, 1000, 100_000, 10):
        gone = pairs[:, random.integers(0, pairs.shape[1], size)]
        new = random.integers(0, 200_000, (2, size)) if size else pairs
        for engine in (one, by_rows, by_pages):
            engine.apply(EdgeBatch(*new, *gone))
        for strategy in ("static", "auto"):
            bound = one.update(strategy).error_bound + by_pages.update(strategy).error_bound
            difference = one.publish().to_numpy() - by_pages.publish().to_numpy()
            assert np.abs(difference).sum() <= bound
    assert one.edges == by_pages.edges
    by_rows.update("static")
    by_rows.publish()
    more = np.subtract(by_pages.shard_bytes, by_rows.shard_bytes)
    assert more.min() > one.edges  # 2 bytes an edge, of half of them


def test_two_graphs_use_both_gpus_at_once(another: Callable[..., ShardedEngine]) -> None:
    pairs = np.random.default_rng(2).integers(0, 20_000, (2, 300_000))
    engines = [another(Options(target_error=1e-9)) for _ in range(2)]
    bounds: list[float] = []

    def solve(engine: ShardedEngine) -> None:
        engine.apply(EdgeBatch(pairs[0], pairs[1]))
        bounds.extend(engine.update("static").error_bound for _ in range(20))

    threads = [threading.Thread(target=solve, args=(each,), daemon=True) for each in engines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60.0)
    assert len(bounds) == 40


def test_an_error_is_raised_here_and_the_engine_goes_on(
    another: Callable[..., ShardedEngine],
) -> None:
    engine = another(Options(weighted=True))
    engine.apply(EdgeBatch.of(insert=[(0, 1, 3e38)]))
    with pytest.raises(InvalidValue, match="weights"):
        engine.apply(EdgeBatch.of(insert=[(0, 1, 3e38)], on_conflict="add"))
    assert engine.apply(EdgeBatch.of(insert=[(1, 0, 1.0)])).inserted == 1
    # its group of GPUs was aborted, and is formed again
    assert engine.update().converged


def test_a_killed_worker_is_named_within_seconds(
    first: ShardedEngine, workers: DaskWorkers
) -> None:
    pairs = np.random.default_rng(1).integers(0, 50, (2, 300))
    first.apply(EdgeBatch(pairs[0], pairs[1]))
    killed = workers.client.run(os.getpid)[workers.addresses[1]]
    kill = threading.Timer(0.2, os.kill, (killed, signal.SIGKILL))
    kill.start()
    begun = monotonic()
    with pytest.raises(ShardLost, match=r"shard 1 of 2 at tls://127\.0\.0\.1"):
        update_for(first, 60.0)
    assert monotonic() - begun < 15.0
    kill.join()


def update_for(engine: ShardedEngine, seconds: float) -> None:
    begun = monotonic()
    while monotonic() - begun < seconds:
        engine.update("static")
