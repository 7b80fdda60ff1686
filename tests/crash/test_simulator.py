"""A few seeds of the simulator."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.crash.nursery import PATIENCE, Nursery, wait_until
from tests.crash.simulator import Simulation, is_worker, workers_below
from tests.service.dask_cluster import settings_for, workers_here


@pytest.mark.parametrize("seed", range(2, 4))
def test_nothing_is_lost_or_done_twice(nursery: Nursery, tmp_path: Path, seed: int) -> None:
    counts = Simulation(tmp_path, nursery, seed).run(lives=3, moments=4)
    assert counts["requests"] > 0
    assert counts["jump"] == 1
    assert counts["comparisons"] > 3


def test_a_disk_that_does_not_sync_is_found_out(nursery: Nursery, tmp_path: Path) -> None:
    simulation = Simulation(tmp_path, nursery, 0)
    simulation.disk_lies = True
    with pytest.raises(AssertionError) as failed:
        simulation.run(lives=20, moments=4)
    assert "--seeds 1 --first 0" in "".join(failed.value.__notes__)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The settings of servers that use two workers."""
    with workers_here(2) as cluster:
        yield settings_for(cluster, tmp_path_factory.mktemp("tls"))


@pytest.mark.filterwarnings("default")  # Dask's own
def test_nothing_is_lost_with_shards(
    nursery: Nursery, cluster: dict[str, Any], tmp_path: Path
) -> None:
    def workers(_: int) -> list[psutil.Process]:
        return [one for one in psutil.Process().children(recursive=True) if is_worker(one)]

    simulation = Simulation(tmp_path, nursery, 17, workers, shards=2, **cluster)
    counts = simulation.run(lives=2, moments=2)
    assert counts["requests"] > 0
    assert counts["worker"] > 0


def test_the_workers_of_a_killed_server_end(nursery: Nursery, tmp_path: Path) -> None:
    server = nursery.start(tmp_path, shards=2)
    assert server.wait_until_ready()
    batches, batch = f"{server.url}/graphs/default/batches", {"insert": [["a", "b"]]}
    httpx.post(batches, json=batch, timeout=PATIENCE).raise_for_status()
    started = workers_below(server.pid)
    assert len(started) == 2
    server.kill()
    server.wait()
    assert wait_until(lambda: not any(map(is_worker, started)), PATIENCE)
