"""Batches that are only applied: `rank=later`."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from liverank_service.http.schemas import Durable
from tests.service.server import Server, running, wait_for

EDGES = [[f"v{each}", f"v{each * each % 40}"] for each in range(80)]


def send(server: Server, path: str, edges: Any, query: str = "", **headers: str) -> Any:
    url = f"{path}/batches{query}"
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    answer = server.http.post(url, json={"insert": edges}, headers=named)
    assert answer.status_code in (200, 202), answer.text
    return answer.json()


def assert_ranked(server: Server, path: str, edges: list[list[str]]) -> None:
    expected = nx.pagerank(nx.DiGraph([tuple(edge) for edge in edges]), tol=1e-12)
    vertices = list(expected)
    found = server.http.post(f"{path}/ranks", json={"vertices": vertices}).json()
    assert np.abs(np.array(found["ranks"]) - [expected[each] for each in vertices]).sum() < 1e-5


def test_reads_keep_the_old_revision_until_one_batch_ranks_all(server: Server) -> None:
    path = server.new_graph()
    send(server, path, EDGES[:10])
    before = server.http.get(f"{path}/top").json()
    for first in range(10, 70, 20):
        answer = server.http.post(
            f"{path}/batches?rank=later", json={"insert": EDGES[first : first + 20]}
        )
        assert answer.status_code == 202
        Durable.model_validate_json(answer.content)
    assert server.http.get(f"{path}/top").json() == before
    # edges are read as they are applied
    out = server.http.get(f"{path}/neighbors/{EDGES[69][0]}").json()
    assert {"vertex": EDGES[69][1]} in out["neighbors"]
    assert out["version"] == 4
    assert server.http.get(f"{path}/batches/2").json() == {"version": 2, "status": "pending"}
    pipeline = server.catalog.get(path.rsplit("/", 1)[1]).pipeline
    wait_for(lambda: pipeline.batches.jobs == 0)  # they hold no place of the queue

    last = send(server, path, EDGES[70:])
    assert (last["version"], last["ranked_version"]) == (5, 5)
    for version in (2, 3, 4):
        receipt = server.http.get(f"{path}/batches/{version}").json()
        assert (receipt["version"], receipt["ranked_version"]) == (version, 5)
        assert receipt["revision"] == last["revision"] == before["revision"] + 1
        assert receipt["inserted"] + receipt["already_present"] == 20
    assert_ranked(server, path, EDGES)


@pytest.mark.parametrize("option", ["strategy=static", "form=published", "trace=true"])
def test_how_to_rank_is_refused_where_nothing_is_ranked(server: Server, option: str) -> None:
    path = server.new_graph()
    refused = server.http.post(f"{path}/batches?rank=later&{option}", json={"insert": EDGES})
    assert refused.status_code == 422
    assert refused.json()["field"] == option.split("=")[0]
    assert "left out, because rank is 'later'" in refused.json()["detail"]
    assert server.http.get(path).json()["version"] == 0


def test_a_recomputation_and_a_checkpoint_rank_what_is_applied(server: Server) -> None:
    for call in ("recompute", "checkpoint"):
        path = server.new_graph()
        send(server, path, EDGES[:40], "?rank=later")
        send(server, path, EDGES[40:], "?rank=later&wait=ranked")
        assert server.http.get(path).json()["version"] == 0
        assert server.http.post(f"{path}/{call}").status_code == 200
        assert server.http.get(path).json()["version"] == 2
        assert server.http.get(f"{path}/batches/1").json()["ranked_version"] == 2
        assert_ranked(server, path, EDGES)


def test_a_new_watched_query_ranks_what_is_applied(server: Server) -> None:
    path = server.new_graph()
    send(server, path, [["a", "b"], ["b", "a"]])
    send(server, path, [["a", "c"], ["c", "a"]], "?rank=later")
    answer = server.http.put(f"{path}/watched/mine", json={"seeds": {"a": 1}}).json()
    assert answer["version"] == 2
    assert {place["vertex"] for place in answer["ranks"]} == {"a", "b", "c"}
    assert server.http.get(path).json()["version"] == 2
    assert server.http.get(f"{path}/batches/2").json()["ranked_version"] == 2


def test_reads_of_edges_wait_for_a_batch_to_be_applied_not_ranked(server: Server) -> None:
    path = server.new_graph()
    graph = server.catalog.get(path.rsplit("/", 1)[1]).pipeline
    reads = [
        server.http.build_request("GET", f"{path}/edges?min_version=2&timeout=60"),
        server.http.build_request("GET", f"{path}/neighbors/a?min_version=2&timeout=60"),
        server.http.build_request(
            "POST", f"{path}/subgraph?min_version=2&timeout=60", json={"vertices": ["a", "b"]}
        ),
    ]
    with ThreadPoolExecutor(len(reads)) as pool:
        answers = [pool.submit(server.http.send, read) for read in reads]
        wait_for(lambda: len(graph._commits._waiting) == len(reads))
        for edge in (["a", "b"], ["b", "a"]):
            send(server, path, [edge], "?rank=later")
        assert [answer.result().status_code for answer in answers] == [200, 200, 200]
        assert answers[2].result().json()["edges"] == [["a", "b"], ["b", "a"]]
    assert server.http.get(path).json()["version"] == 0
    late = server.http.get(f"{path}/neighbors/a?min_version=3&timeout=0.1")
    assert late.status_code == 504
    assert late.json()["detail"] == "version 3 was not applied within 0.1 s; the newest is 2"


def test_a_repeat_is_not_applied_again_and_one_that_waits_is_ranked(server: Server) -> None:
    path = server.new_graph()
    first = send(server, path, EDGES, "?rank=later", Idempotency_Key="one")
    again = send(server, path, EDGES, "?rank=later", Idempotency_Key="one")
    assert first == again == {"version": 1, "status": "durable"}
    assert server.http.get(path).json()["version"] == 0
    ranked = send(server, path, EDGES, "", Idempotency_Key="one")
    assert (ranked["version"], ranked["ranked_version"]) == (1, 1)
    assert ranked["inserted"] == len({tuple(edge) for edge in EDGES})
    assert_ranked(server, path, EDGES)


def test_another_strategy_before_it_is_ranked_by_itself(server: Server) -> None:
    path = server.new_graph()
    send(server, path, EDGES[:20], "?wait=durable&strategy=static")
    send(server, path, EDGES[20:40], "?rank=later")
    last = send(server, path, EDGES[40:], "?strategy=residual")
    assert last["strategy"] == "residual"
    assert server.http.get(f"{path}/batches/2").json()["ranked_version"] == 3
    first = server.http.get(f"{path}/batches/1").json()
    assert first["ranked_version"] >= 1
    assert_ranked(server, path, EDGES)


def test_a_restart_ranks_once(tmp_path: Path) -> None:
    path = "/graphs/default"
    with running(tmp_path) as server:
        for first in range(0, 80, 20):
            send(server, path, EDGES[first : first + 20], "?rank=later")
        assert server.http.get(path).json()["version"] == 0
    with running(tmp_path) as server:
        wait_for(lambda: server.http.get(path).json().get("version") == 4)
        revisions = {
            server.http.get(f"{path}/batches/{version}").json()["revision"]
            for version in range(1, 5)
        }
        assert len(revisions) == 1
        assert_ranked(server, path, EDGES)


@pytest.mark.parametrize("rank", ["now", "later"])
def test_the_size_of_the_journal_takes_no_checkpoint_of_what_is_not_ranked(
    tmp_path: Path, rank: str
) -> None:
    with running(tmp_path, checkpoint_bytes=1) as server:
        send(server, "/graphs/default", EDGES, f"?rank={rank}")
        folder = tmp_path / "graphs" / "default" / "checkpoints"

        def taken() -> bool:
            return folder.is_dir() and any(folder.iterdir())

        if rank == "now":
            wait_for(taken)
        else:
            time.sleep(0.5)
            assert not taken()
            assert server.http.get("/graphs/default").json()["version"] == 0


def test_what_deferred_batches_did_is_counted(server: Server) -> None:
    path = server.new_graph()
    name = path.rsplit("/", 1)[1]
    send(server, path, EDGES[:40], "?rank=later")
    send(server, path, EDGES[40:])
    line = f'liverank_batches_total{{graph="{name}",outcome="ranked"}} 2.0'
    wait_for(lambda: line in server.http.get("/metrics").text)


REJECTED = {"sets": {"none": {"add": ["v0"]}}}
"""A batch that changes a set that there is not."""


def test_a_rejected_batch_alone_is_waited_for_and_kept_by_a_checkpoint(tmp_path: Path) -> None:
    path = "/graphs/default"
    with running(tmp_path) as server:
        send(server, path, EDGES)
        assert server.http.post(f"{path}/checkpoint").status_code == 200
        answer = server.http.post(f"{path}/batches?rank=later", json=REJECTED)
        assert (answer.status_code, answer.json()["version"]) == (202, 2)
        assert server.http.get(f"{path}/top?min_version=2&timeout=60").json()["version"] == 2
        assert server.http.post(f"{path}/checkpoint").json()["version"] == 2
    with running(tmp_path) as server:
        wait_for(lambda: server.http.get(f"{path}/batches/2").status_code == 200)
        assert server.http.get(f"{path}/batches/2").json()["status"] == "rejected"
        assert server.http.get(path).json()["version"] == 2
        assert send(server, path, EDGES[:1])["version"] == 3
        assert server.http.post(f"{path}/checkpoint").json()["version"] == 3
        assert_ranked(server, path, EDGES)
    with running(tmp_path) as server:
        wait_for(lambda: server.http.get(path).json().get("version") == 3)
    directory = tmp_path / "graphs" / "default"
    assert not list(directory.glob("damaged-journal-*"))
    assert not list((directory / "checkpoints").glob("*damaged*"))
