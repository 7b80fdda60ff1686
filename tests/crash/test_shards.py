"""A server with shards, killed while they are checkpointed or restored, and started again with
another number of them.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.crash.nursery import Nursery, wait_until
from tests.crash.points import SHARDS_CHECKPOINTING, SHARDS_RECOVERING
from tests.crash.shards_marathon import is_worker
from tests.crash.streams import GRAPH, check, create_weighted, run_until_killed, streams
from tests.service.dask_cluster import settings_for, workers_here

pytestmark = pytest.mark.filterwarnings("default")
"""Dask's own warnings are not ours."""

SECONDS = 60.0
"""Until the point must have been passed."""

POINTS = [*SHARDS_CHECKPOINTING, "before a checkpoint is renamed", *SHARDS_RECOVERING]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The settings of servers that use two workers."""
    with workers_here(2) as cluster:
        yield settings_for(cluster, tmp_path_factory.mktemp("tls"))


def test_nothing_is_lost_or_done_twice_at_any_point_of_a_checkpoint(
    nursery: Nursery, cluster: dict[str, Any], tmp_path: Path
) -> None:
    create_weighted(tmp_path, damping=0.3)  # every sweep exchanges messages
    sending = streams(6, weighted=True)[::2]
    for number, point in enumerate(POINTS):
        shards, passes = 2 - number % 2, 2 if "piece" in point else 1
        server = nursery.start(tmp_path, point, passes, shards=shards, **cluster)
        if server.wait_until_ready():
            run_until_killed(sending, server.url, SECONDS, [_take_checkpoints])
        assert server.dies(), f"{point}: was not passed"
        server.wait()
    settings: dict[str, Any]
    for settings in ({"shards": 2, **cluster}, {}):
        server = nursery.start(tmp_path, **settings)
        assert server.wait_until_ready()
        check(sending, server.url, everything=True)
        server.kill()
        server.wait()


def test_the_workers_of_a_killed_server_end(nursery: Nursery, tmp_path: Path) -> None:
    create_weighted(tmp_path, damping=0.3)
    sending = streams(7, weighted=True)[::2]
    server = nursery.start(tmp_path, shards=2)
    assert server.wait_until_ready()
    run_until_killed(sending, server.url, 0.5)
    started = psutil.Process(server.pid).children(recursive=True)
    assert sum(map(is_worker, started)) == 2
    server.kill()
    server.wait()
    assert wait_until(lambda: not any(map(is_worker, started)), SECONDS)
    again = nursery.start(tmp_path)
    assert again.wait_until_ready()
    check(sending, again.url, everything=True)
    again.kill()
    again.wait()


def _take_checkpoints(url: str, stop: threading.Event) -> None:
    with httpx.Client(base_url=url, timeout=60) as http, suppress(httpx.TransportError):
        while not stop.wait(0.05):
            answer = http.post(f"{GRAPH}/checkpoint")
            # while the graph recovers
            assert answer.status_code in (200, 503), answer.text
