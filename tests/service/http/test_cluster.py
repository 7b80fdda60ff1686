"""`liverank serve --shards 2 --cluster ADDRESS`: two graphs of one server, on the same workers."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from distributed import SpecCluster

from tests.service.dask_cluster import settings_for, workers_here
from tests.service.server import Server, running, wait_for

pytestmark = pytest.mark.filterwarnings("default")
"""Dask's own warnings are not ours."""

GRAPHS = ["default", "other"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[SpecCluster]:
    with workers_here(2) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def on_cluster(cluster: SpecCluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    settings = settings_for(cluster, tmp_path_factory.mktemp("tls"))
    with running(tmp_path_factory.mktemp("data"), shards=2, **settings) as server:
        assert server.http.put("/graphs/other", json={"directed": False}).status_code == 201
        yield server


def workers_of(server: Server, graph: str) -> Any:
    workers: Any = server.catalog.get(graph).pipeline.shards._workers
    assert workers.started is not None
    return workers.started


def test_two_graphs_change_at_once(on_cluster: Server) -> None:
    def send(graph: str) -> list[dict[str, Any]]:
        return [
            on_cluster.http.post(
                f"/graphs/{graph}/batches",
                json={"insert": [[str(at), str(at + 1)], [str(at), "0"]]},
            ).json()
            for at in range(1, 6)
        ]

    with ThreadPoolExecutor(2) as threads:
        receipts = list(threads.map(send, GRAPHS))
    for graph, own in zip(GRAPHS, receipts, strict=True):
        assert [receipt["version"] for receipt in own] == [1, 2, 3, 4, 5]
        assert [receipt["inserted"] for receipt in own] == [2] * 5
        document = on_cluster.http.get(f"/graphs/{graph}").json()
        assert (document["vertices"], document["edges"], document["backend"]) == (7, 10, "cpu")
        assert document["shards"]["count"] == 2
    first, second = (workers_of(on_cluster, graph) for graph in GRAPHS)
    assert first.addresses == second.addresses
    assert all(address.startswith("tls://") for address in first.addresses)


def test_both_graphs_recover_from_a_killed_worker(on_cluster: Server) -> None:
    before = on_cluster.http.get("/graphs/other/ranks/0").json()
    workers = workers_of(on_cluster, "default")
    os.kill(workers.client.run(os.getpid)[workers.addresses[1]], signal.SIGKILL)
    lost: dict[str, str] = {}

    def both() -> bool:
        for each in on_cluster.http.get("/readyz").json().get("recovering", []):
            lost[each["graph"]] = each["reason"]
        return set(lost) == set(GRAPHS)

    wait_for(both, 30.0)
    assert all(workers.addresses[1] in reason for reason in lost.values())
    assert on_cluster.http.get("/graphs/other/ranks/0").json() == before
    for graph in GRAPHS:
        body = {"insert": [["0", "9"]]}
        receipt = on_cluster.http.post(f"/graphs/{graph}/batches", json=body).json()
        assert (receipt["version"], receipt["inserted"]) == (6, 1)
        assert on_cluster.http.get(f"/graphs/{graph}").json()["edges"] == 11
    assert on_cluster.http.get("/readyz").json() == {"status": "ready"}


def test_reads_go_on_without_the_scheduler(on_cluster: Server, cluster: SpecCluster) -> None:
    before = on_cluster.http.get("/graphs/default/top?k=3").json()["ranks"]
    cluster.close()
    wait_for(lambda: len(on_cluster.http.get("/readyz").json().get("recovering", [])) == 2, 40.0)
    for each in on_cluster.http.get("/readyz").json()["recovering"]:
        assert "is lost" in each["reason"] or "Dask cluster" in each["reason"]
    assert on_cluster.http.get("/graphs/default/top?k=3").json()["ranks"] == before
