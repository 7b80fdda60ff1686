"""Batches over HTTP: receipts, waiting, idempotency, recomputation."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from liverank_service.http.schemas import Durable, Receipt
from tests.service.server import Server


def _counts(receipt: dict[str, Any]) -> tuple[int, ...]:
    names = ("inserted", "already_present", "deleted", "not_found", "new_vertices")
    return tuple(receipt[name] for name in names)


def test_the_receipt_counts_what_the_batch_did(server: Server) -> None:
    path = server.new_graph()
    first = server.http.post(
        f"{path}/batches",
        json={"insert": [["a", "b"], ["b", "c"], ["a", "b"]], "vertices": ["e", "a"]},
    )
    assert first.status_code == 200
    Receipt.model_validate_json(first.content)
    receipt = first.json()
    assert _counts(receipt) == (2, 1, 0, 0, 4)
    assert (receipt["version"], receipt["ranked_version"], receipt["strategy"]) == (1, 1, "auto")
    assert receipt["error_bound"] <= 1e-6
    assert receipt["converged"] is True
    stages = receipt["seconds"]
    total = stages.pop("total")
    assert sum(stages.values()) == pytest.approx(total, rel=1e-9)

    second = server.http.post(
        f"{path}/batches",
        # a-b is present and in both lists; x-y deletes keys that nobody has seen.
        json={"delete": [["a", "b"], ["x", "y"], ["a", "b"]], "insert": [["a", "b"]]},
    ).json()
    assert _counts(second) == (1, 0, 1, 2, 0)
    assert second["version"] == 2
    assert second["revision"] > receipt["revision"]
    info = server.http.get(path).json()
    assert (info["vertices"], info["edges"], info["version"]) == (4, 2, 2)


def test_deletions_create_no_vertices_even_if_the_batch_inserts_the_key(server: Server) -> None:
    path = server.new_graph()
    receipt = server.http.post(
        f"{path}/batches", json={"delete": [["a", "b"]], "insert": [["a", "b"]]}
    ).json()
    assert _counts(receipt) == (1, 0, 0, 1, 2)


def test_an_empty_batch_is_a_version_too(server: Server) -> None:
    path = server.new_graph()
    assert server.http.post(f"{path}/batches", json={}).json()["version"] == 1
    assert server.http.post(f"{path}/batches", json={}).json()["version"] == 2


def test_ids_follow_the_position_in_the_batch(server: Server) -> None:
    """Equal ranks are ordered by id, so a cycle lists its vertices in order of first appearance."""
    path = server.new_graph()
    cycle = [["d", "b"], ["b", "a"], ["a", "c"], ["c", "d"]]
    server.http.post(f"{path}/batches", json={"insert": cycle, "vertices": []})
    top = server.http.get(f"{path}/top").json()["ranks"]
    assert [place["vertex"] for place in top] == ["d", "b", "a", "c"]


def test_wait_durable_answers_with_the_version_and_ranks_follow(server: Server) -> None:
    path = server.new_graph()
    answer = server.http.post(
        f"{path}/batches", params={"wait": "durable"}, json={"insert": [["a", "b"]]}
    )
    assert answer.status_code == 202
    assert Durable.model_validate_json(answer.content).version == 1
    read = server.http.get(f"{path}/ranks/b", params={"min_version": 1})
    assert read.status_code == 200
    receipt = server.http.get(f"{path}/batches/1")
    assert Receipt.model_validate_json(receipt.content).inserted == 1


def test_a_thousand_edges_posted_twice_with_one_key_change_the_graph_once(server: Server) -> None:
    path = server.new_graph(keys="integer")
    edges = [[vertex, vertex + 1] for vertex in range(1000)]
    headers = {"Idempotency-Key": "one key"}
    first, second = (
        server.http.post(f"{path}/batches", json={"insert": edges}, headers=headers)
        for _ in range(2)
    )
    assert first.json()["inserted"] == 1000
    assert second.content == first.content
    info = server.http.get(path).json()
    assert (info["version"], info["edges"]) == (1, 1000)


def test_a_repeat_in_flight_waits_for_the_first_request(server: Server) -> None:
    path = server.new_graph()
    body = {"insert": [[f"s{i}", f"t{i}"] for i in range(500)]}

    def send(_: int) -> bytes:
        headers = {"Idempotency-Key": "in flight"}
        return server.http.post(f"{path}/batches", json=body, headers=headers).content

    with ThreadPoolExecutor(8) as pool:
        answers = set(pool.map(send, range(16)))
    assert len(answers) == 1
    assert server.http.get(path).json()["version"] == 1


def test_a_key_with_another_body_is_refused_and_spends_no_version(server: Server) -> None:
    path = server.new_graph()
    headers = {"Idempotency-Key": "mine"}
    server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]}, headers=headers)
    other = server.http.post(f"{path}/batches", json={"insert": [["a", "c"]]}, headers=headers)
    assert other.status_code == 422
    problem = other.json()
    assert problem["detail"] == (
        "idempotency key 'mine' belongs to batch 1, which differs in its body or on_conflict"
    )
    assert problem["field"] == "Idempotency-Key"
    assert server.http.get(path).json()["version"] == 1


def test_the_same_key_in_another_graph_is_another_key(server: Server) -> None:
    for path in (server.new_graph(), server.new_graph()):
        answer = server.http.post(
            f"{path}/batches", json={"vertices": ["a"]}, headers={"Idempotency-Key": "shared"}
        )
        assert answer.json()["new_vertices"] == 1


@pytest.mark.parametrize(
    "strategy",
    ["auto", "static", "naive-dynamic", "dynamic-traversal", "dynamic-frontier"],
)
def test_a_batch_is_ranked_by_the_strategy_that_it_names(server: Server, strategy: str) -> None:
    path = server.new_graph(strategy="static")
    batch = {"insert": [["a", "b"]]}
    assert server.http.post(f"{path}/batches", json=batch).json()["strategy"] == "static"
    answer = server.http.post(f"{path}/batches", params={"strategy": strategy}, json=batch)
    assert answer.json()["strategy"] == strategy


def test_recompute_raises_only_the_revision(server: Server) -> None:
    path = server.new_graph()
    batch = server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]}).json()
    answer = server.http.post(f"{path}/recompute", params={"strategy": "static"})
    assert answer.status_code == 200
    receipt = Receipt.model_validate_json(answer.content)
    assert (receipt.version, receipt.ranked_version, receipt.strategy) == (1, 1, "static")
    assert receipt.revision == batch["revision"] + 1
    assert _counts(answer.json()) == (0, 0, 0, 0, 0)
    read = server.http.get(f"{path}/top").json()
    assert (read["version"], read["revision"]) == (1, receipt.revision)


@pytest.mark.parametrize("target", [{}, {"target": "settled-top-k"}])
def test_recompute_refuses_a_strategy_without_a_name(
    server: Server, target: dict[str, str]
) -> None:
    params = {"strategy": "", **target}
    refused = server.http.post(f"{server.new_graph()}/recompute", params=params)
    assert (refused.status_code, refused.json()["field"]) == (422, "strategy")


def test_recompute_goes_on_until_the_places_are_proven(server: Server) -> None:
    path = server.new_graph(target_error=0.5)
    # d and e have the same in-edges
    edges = [[source, target] for target in "bcde" for source in "afgh"[: "edcb".find(target) + 1]]
    edges += [["a", "d"], ["f", "d"], ["f", "e"]]
    server.http.post(f"{path}/batches", json={"insert": edges})
    settle: dict[str, str | int] = {"target": "settled-top-k", "k": 2}
    receipt = Receipt.model_validate_json(
        server.http.post(f"{path}/recompute", params=settle).content
    )
    assert (receipt.strategy, receipt.settled, receipt.converged) == ("auto", 2, True)
    read = server.http.get(f"{path}/top", params={"k": 2}).json()
    assert (read["settled"], read["error_bound"]) == (2, receipt.error_bound)
    assert [each["vertex"] for each in read["ranks"]] == ["b", "c"]
    # places 3 and 4
    for k, groups in ((3, [1, 1, 1]), (4, [1, 1, 2])):
        tied = server.http.post(f"{path}/recompute", params={**settle, "k": k}).json()
        assert (tied["settled"], tied["converged"]) == (k, True)
        assert tied["error_bound"] > 1e-9
        read = server.http.get(f"{path}/top", params={"k": k}).json()
        assert (read["settled"], read["settled_set"]) == (k, True)
        assert (read["groups"], read["ties"]) == (groups, [2])
        assert [each["vertex"] for each in read["ranks"]] == [*"bcde"][:k]
    last = server.http.get(f"{path}/top", params={"k": 1, "offset": 3}).json()
    assert (last["settled"], last["groups"], last["ties"]) == (1, [1], [0])
    server.http.put(f"{path}/sets/mine", json={"vertices": ["e", "b", "d"]}).raise_for_status()
    server.http.post(f"{path}/recompute", params={**settle, "k": 4})
    read = server.http.get(f"{path}/top", params={"among": "mine"}).json()
    assert [each["vertex"] for each in read["ranks"]] == [*"bde"]
    assert (read["settled"], read["groups"], read["ties"]) == (3, [1, 2], [1])
    # a and f to h are equal for another reason, and the graph has no further place
    tied = server.http.post(f"{path}/recompute", params={**settle, "k": 5}).json()
    assert (tied["settled"], tied["converged"]) == (4, False)
    # but both are in the set, if that is asked
    either = server.http.post(f"{path}/recompute", params={"target": "settled-set", "k": 3}).json()
    assert (either["strategy"], either["settled_set"], either["converged"]) == ("auto", True, True)
    for k, is_proven in ((5, False), (8, True)):
        params: dict[str, str | int] = {"target": "settled-set", "k": k}
        either = server.http.post(f"{path}/recompute", params=params).json()
        assert (either["settled"], either["settled_set"]) == (4, is_proven)
        assert either["converged"] == is_proven
        read = server.http.get(f"{path}/top", params={"k": k}).json()
        assert (read["settled"], read["settled_set"]) == (4, is_proven)
    # a batch publishes ranks of which no ties are known
    server.http.post(f"{path}/batches", json={"insert": [["a", "e"]]})
    assert server.http.get(f"{path}/top", params={"k": 4}).json()["ties"] == []
    assert not {"settled", "settled_set"} & server.http.post(f"{path}/recompute").json().keys()
    wrong: list[tuple[dict[str, str | int], str]] = [
        ({"k": 2}, "k"),
        ({**settle, "strategy": "static"}, "strategy"),
        ({**settle, "k": 0}, "k"),
        ({"target": "places"}, "target"),
    ]
    for params, field in wrong:
        refused = server.http.post(f"{path}/recompute", params=params)
        assert (refused.status_code, refused.json()["field"]) == (422, field)


def test_ties_are_those_of_the_version_that_is_read(server: Server) -> None:
    path = server.new_graph(target_error=0.5)
    edges = [["hub", "twin"], ["hub", "other"], ["twin", "hub"], ["other", "hub"]]
    server.http.post(f"{path}/batches", json={"insert": edges})
    edge = [["twin", "other"]]
    settle: dict[str, str | int] = {"target": "settled-top-k", "k": 3}
    reads: dict[int, list[list[int]]] = {}
    ended = threading.Event()

    def settle_and_read() -> None:
        while not ended.is_set():
            server.http.post(f"{path}/recompute", params=settle).raise_for_status()
            read = server.http.get(f"{path}/top").json()
            reads.setdefault(read["version"], []).append(read["ties"])

    with ThreadPoolExecutor(2) as pool:
        readers = [pool.submit(settle_and_read) for _ in range(2)]
        for version in range(2, 42):
            change = "delete" if version % 2 else "insert"
            server.http.post(f"{path}/batches", json={change: edge}).raise_for_status()
        ended.set()
        for reader in readers:
            reader.result()
    # the edge, of even versions, sets the two apart
    found = [(version % 2 == 1, ties) for version, all_ties in reads.items() for ties in all_ties]
    assert (True, [1]) in found
    assert set(map(str, found)) <= {"(True, [1])", "(True, [])", "(False, [])"}
