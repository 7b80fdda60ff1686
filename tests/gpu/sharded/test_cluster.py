"""Shards in worker processes of a local Dask cluster."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from time import monotonic
from typing import Any

import httpx
import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, InvalidValue, Options, ShardedEngine, ShardLost
from liverank_gpu.sharded.cluster import local_workers
from liverank_gpu.sharded.dask_shard import Parts
from liverank_gpu.sharded.dask_workers import DaskWorkers
from liverank_gpu.sharded.member import Member
from tests.gpu.graphs import (
    model_of,
    snapshot_of,
)

pytestmark = pytest.mark.filterwarnings("default")
"""Dask's own warnings are not ours."""


class Looking(Member):
    def looks(self, *arrays: NDArray[Any]) -> list[bool]:
        return [each.flags.aligned and each.flags.writeable for each in arrays]


@pytest.fixture(scope="module")
def workers() -> Iterator[DaskWorkers]:
    """Of a cluster of two, which have a graph already. The last test kills one."""
    found = local_workers(Options(target_error=1e-9), 2, parts=Parts(member=Looking))
    yield found
    found.close()


@pytest.fixture(scope="module")
def first(workers: DaskWorkers) -> ShardedEngine:
    """An engine on them."""
    engine = ShardedEngine(Options(target_error=1e-9), workers=workers)
    assert engine.backend == "cpu"
    return engine


def another(workers: DaskWorkers, options: Options) -> ShardedEngine:
    """An engine on the same workers."""
    return ShardedEngine(options, workers=DaskWorkers(workers.client, workers.addresses, options))


def update_for(engine: ShardedEngine, seconds: float) -> None:
    begun = monotonic()
    while monotonic() - begun < seconds:
        engine.update("static")


def test_peers_are_certified_and_there_is_no_dashboard(workers: DaskWorkers) -> None:
    assert all(address.startswith("tls://127.0.0.1:") for address in workers.addresses)
    cluster = workers.client.cluster
    assert cluster.scheduler_address.startswith("tls://")
    assert cluster.security.require_encryption
    ports = workers.client.run(lambda dask_worker: dask_worker.http_server.port)
    for port in (cluster.scheduler.http_server.port, *ports.values()):
        for page in ("", "status", "info/main/workers.html", "metrics", "health", "json/counts"):
            assert httpx.get(f"http://127.0.0.1:{port}/{page}").status_code == 404


def test_a_large_batch_and_a_large_snapshot_go_to_the_workers(workers: DaskWorkers) -> None:
    pairs = np.random.default_rng(1).integers(0, 20_000, (2, 50_000))
    weights = np.random.default_rng(2).uniform(0.5, 2.0, 50_000).astype(np.float32)
    options = Options(target_error=1e-7, weighted=True, directed=False, vertex_order="degree")
    engine, again, model = another(workers, options), another(workers, options), model_of(options)
    batch = EdgeBatch(pairs[0], pairs[1], weights=weights)
    assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
    assert engine.update().error_bound <= 1e-7
    again.restore(snapshot_of(engine))
    assert (again.vertices, again.edges) == (engine.vertices, engine.edges)
    assert np.array_equal(again.publish().to_numpy(), engine.publish().to_numpy())


def test_arrays_are_aligned_and_can_be_written(workers: DaskWorkers) -> None:
    odd = np.arange(3, dtype=np.uint8)
    assert workers.everywhere("looks", odd, np.arange(5), np.ones(7)) == [[True] * 3] * 2


def test_an_error_is_raised_here_and_the_engine_goes_on(workers: DaskWorkers) -> None:
    engine = another(workers, Options(weighted=True))
    engine.apply(EdgeBatch.of(insert=[(0, 1, 3e38)]))
    with pytest.raises(InvalidValue, match="weights"):
        engine.apply(EdgeBatch.of(insert=[(0, 1, 3e38)], on_conflict="add"))
    assert engine.apply(EdgeBatch.of(insert=[(1, 0, 1.0)])).inserted == 1


SCRIPT = """
import liverank_gpu.generate
from liverank_gpu import Options
from liverank_gpu.native import kernels
from liverank_gpu.sharded.cluster import local_workers
from liverank_gpu.sharded.dask_shard import Parts
from liverank_gpu.sharded.member import Member

# starts threads, in workers too: they import this module
liverank_gpu.generate.rmat(16, 16, seed=1)

class Counting(Member):
    def threads(self):
        return kernels.threads()

if __name__ == "__main__":
    workers = local_workers(Options(), 2, parts=Parts(member=Counting))
    print(workers.everywhere("threads"))
    workers.close()
"""


def test_workers_of_a_script_that_has_started_threads_share_the_cores(
    tmp_path: Path,
) -> None:
    script = tmp_path / "script.py"
    script.write_text(SCRIPT)
    command = [sys.executable, str(script)]
    root = str(Path(__file__).parents[3])
    environment = os.environ | {"PYTHONPATH": os.pathsep.join([root, *sys.path])}
    run = subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=120, check=False
    )
    each = max(1, len(os.sched_getaffinity(0)) // 2)
    assert run.stdout == f"[{each}, {each}]\n", run.stderr[-4000:]


def test_a_killed_worker_is_named_within_seconds(
    first: ShardedEngine, workers: DaskWorkers
) -> None:
    pairs = np.random.default_rng(1).integers(0, 50, (2, 300))
    first.apply(EdgeBatch(pairs[0], pairs[1]))
    first.update("static")
    killed = workers.client.run(os.getpid)[workers.addresses[1]]
    noticed = threading.Event()
    first.on_loss(noticed.set)
    first.check_alive()
    kill = threading.Timer(0.2, os.kill, (killed, signal.SIGKILL))
    kill.start()
    begun = monotonic()
    with pytest.raises(ShardLost, match=r"shard 1 of 2 at tls://127\.0\.0\.1"):
        update_for(first, 60.0)
    assert monotonic() - begun < 30.0
    kill.join()
    assert noticed.wait(5.0)
    with pytest.raises(ShardLost, match="shard 1 of 2"):
        first.check_alive()
    with pytest.raises(ShardLost, match="shard 1 of 2"):
        first.top(1)


def test_a_frozen_shard_is_lost_when_that_is_asked_for_and_one_that_computes_is_not(
    caplog: pytest.LogCaptureFixture,
) -> None:
    workers = local_workers(Options(), 2)
    try:
        engine = ShardedEngine(Options(), workers=workers)
        pairs = np.random.default_rng(1).integers(0, 50, (2, 300))
        engine.apply(EdgeBatch(pairs[0], pairs[1]))
        workers.lose_frozen(4.0)
        update_for(engine, 6.0)
        frozen = workers.client.run(os.getpid)[workers.addresses[1]]
        os.kill(frozen, signal.SIGSTOP)
        begun = monotonic()
        for _ in range(2):  # what comes after the call is refused too
            with pytest.raises(ShardLost, match=r"shard 1 of 2 at .* is lost"):
                update_for(engine, 60.0)
        assert 4.0 <= monotonic() - begun < 30.0
    finally:
        workers.close()
    assert "was not ended" not in caplog.text
