"""Ranks, top and personalized over HTTP."""

from __future__ import annotations

import threading
import time
from urllib.parse import quote

import pytest

from liverank_service.formats.json_body import LARGE_BODY
from liverank_service.http.schemas import PersonalizedRanks, RankAnswer, RanksAnswer, TopAnswer
from tests.service.server import Server


@pytest.fixture(scope="module")
def path(server: Server) -> str:
    """A star into "hub" from 2,000 leaves, and a key that must be quoted in a path."""
    created = server.new_graph()
    edges = [[f"leaf {i}", "hub"] for i in range(2000)] + [["hub", "a/b c?ü"]]
    assert server.http.post(f"{created}/batches", json={"insert": edges}).status_code == 200
    return created


def test_one_rank(server: Server, path: str) -> None:
    answer = server.http.get(f"{path}/ranks/hub")
    read = RankAnswer.model_validate_json(answer.content)
    assert (read.vertex, read.version) == ("hub", 1)
    assert read.error_bound <= 1e-6
    assert 0.2 < read.rank < 0.5


@pytest.mark.parametrize("quoted", ["a%2Fb%20c%3F%C3%BC", "a/b%20c%3F%C3%BC"])
def test_a_key_may_hold_slashes_and_anything_a_path_quotes(
    server: Server, path: str, quoted: str
) -> None:
    assert server.http.get(f"{path}/ranks/{quoted}").json()["vertex"] == "a/b c?ü"
    assert server.http.get(f"{path}/personalized/{quoted}").json()["vertex"] == "a/b c?ü"


@pytest.mark.parametrize(
    "key", ["line\nbreak", "trailing\n", "\n", "\u2028", "x\x00y", "\ufffd", "/"]
)
def test_a_key_in_a_path_may_hold_any_character(server: Server, key: str) -> None:
    path = server.new_graph()
    vertices = {"vertices": [key, "trailing", "line"]}
    assert server.http.post(f"{path}/batches", json=vertices).status_code == 200
    quoted = quote(key, safe="")
    for read in ("ranks", "personalized"):
        answer = server.http.get(f"{path}/{read}/{quoted}")
        assert answer.status_code == 200, answer.text
        assert answer.json()["vertex"] == key


@pytest.mark.parametrize("read", ["ranks", "personalized"])
def test_a_key_in_a_path_that_is_not_utf_8_is_refused(server: Server, read: str) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"vertices": ["\ufffd"]})
    answer = server.http.get(f"{path}/{read}/%FF")
    assert answer.status_code == 422
    assert answer.json()["field"] == "vertex"
    assert answer.json()["detail"].endswith("it must be UTF-8, percent-encoded")


@pytest.mark.parametrize(
    ("method", "call", "field"),
    [
        ("PUT", "watched/%FF", "name"),
        ("PUT", "sets/a%FF", "name"),
        ("PUT", "views/%ED%A0%80", "view"),
        ("PUT", "consumers/%FF", "source"),
        ("GET", "top?among=%FF", "among"),
        ("GET", "top?min_position=a::1&min_position=%FF::1", "min_position"),
    ],
)
def test_names_that_are_not_utf_8_are_not_one_name(
    server: Server, path: str, method: str, call: str, field: str
) -> None:
    answer = server.http.request(method, f"{path}/{call}", json={"seeds": {"a": 1}})
    assert answer.status_code == 422
    assert answer.json()["field"] == field
    assert answer.json()["detail"].endswith("it must be UTF-8, percent-encoded")


def test_many_ranks_in_order_and_null_where_unknown(server: Server, path: str) -> None:
    answer = server.http.post(
        f"{path}/ranks", json={"vertices": ["hub", "nobody", "leaf 3", "hub"]}
    )
    read = RanksAnswer.model_validate_json(answer.content)
    hub = server.http.get(f"{path}/ranks/hub").json()["rank"]
    leaf = server.http.get(f"{path}/ranks/leaf%203").json()["rank"]
    assert read.ranks == [hub, None, leaf, hub]
    assert server.http.post(f"{path}/ranks", json={"vertices": []}).json()["ranks"] == []


@pytest.mark.parametrize("call", ["POST ranks", "POST subgraph", "PUT sets/some"])
def test_a_list_of_vertices_has_no_other_member_and_is_json(
    call: str, server: Server, path: str
) -> None:
    method, name = call.split()
    few: list[str] = []
    many = ["vertex"] * (LARGE_BODY // 8)
    for vertices in (few, many):
        body = {"vertices": vertices, "insert": [["a", "b"]]}
        answer = server.http.request(method, f"{path}/{name}", json=body)
        assert answer.status_code == 422
        assert answer.json()["detail"] == "insert: unknown member; expected vertices"
    header = {"Content-Type": "text/csv"}
    answer = server.http.request(method, f"{path}/{name}", content="source,target", headers=header)
    assert (answer.status_code, answer.json()["accepted"]) == (415, ["application/json"])


def test_top_is_sorted_and_pages_meet_without_a_gap(server: Server, path: str) -> None:
    whole = server.http.get(f"{path}/top", params={"k": 100_000}).json()["ranks"]
    assert len(whole) == 2002
    assert {whole[0]["vertex"], whole[1]["vertex"]} == {"hub", "a/b c?ü"}
    # Ties in order of first appearance; "hub" appeared after "leaf 0".
    assert [place["vertex"] for place in whole[2:5]] == ["leaf 0", "leaf 1", "leaf 2"]
    assert sum(place["rank"] for place in whole) == pytest.approx(1.0, abs=1e-12)
    pages = []
    for offset in range(0, 2100, 700):
        page = server.http.get(f"{path}/top", params={"k": 700, "offset": offset})
        pages += TopAnswer.model_validate_json(page.content).model_dump()["ranks"]
    assert pages == whole


def test_top_says_which_places_are_proven(server: Server, path: str) -> None:
    # two places, then 2,000 equal leaves
    found = server.http.get(f"{path}/top", params={"k": 5}).json()
    assert found["rank_error"] == found["error_bound"] / 2
    assert (found["settled"], found["settled_set"], found["groups"]) == (2, False, [1, 1, 3])
    assert found["ties"] == []
    found = server.http.get(f"{path}/top", params={"k": 2}).json()
    assert (found["settled"], found["settled_set"], found["groups"]) == (2, True, [1, 1])
    found = server.http.get(f"{path}/top", params={"k": 5000, "offset": 2}).json()
    assert (found["settled"], found["settled_set"], found["groups"]) == (0, True, [2000])


def test_top_beyond_the_end_is_empty(server: Server, path: str) -> None:
    for offset in (2002, 10**15):
        answer = server.http.get(f"{path}/top", params={"offset": offset}).json()
        assert (answer["ranks"], answer["groups"], answer["settled"]) == ([], [], 0)


def test_personalized_ranks_are_seen_from_the_vertex(server: Server, path: str) -> None:
    answer = server.http.get(f"{path}/personalized/leaf%207", params={"k": 5})
    read = PersonalizedRanks.model_validate_json(answer.content)
    assert {place.vertex for place in read.ranks[:3]} == {"leaf 7", "hub", "a/b c?ü"}
    assert (read.vertex, read.version) == ("leaf 7", 1)
    # leaf → hub → end, then back to the leaf: 1, α, α².
    norm = 1 + 0.85 + 0.85**2
    exact = {"leaf 7": 1 / norm, "hub": 0.85 / norm, "a/b c?ü": 0.85**2 / norm}
    ranks = {place.vertex: place.rank for place in read.ranks}
    error = sum(abs(ranks[vertex] - rank) for vertex, rank in exact.items())
    assert error <= read.error_bound <= 1e-6


def test_integer_keys_are_integers_in_paths_and_answers(server: Server) -> None:
    path = server.new_graph(keys="integer")
    least = -(2**63)
    server.http.post(f"{path}/batches", json={"insert": [[least, 7]]})
    assert server.http.get(f"{path}/ranks/{least}").json()["vertex"] == least
    for wrong in ("seven", str(2**63), "1.0", "٣"):
        answer = server.http.get(f"{path}/ranks/{wrong}")
        assert answer.status_code == 422
        assert answer.json()["field"] == "vertex"


def test_a_read_waits_for_the_version_it_asks_for(server: Server) -> None:
    path = server.new_graph()
    late = threading.Timer(
        0.3, lambda: server.http.post(f"{path}/batches", json={"insert": [["a", "b"]]})
    )
    late.start()
    answer = server.http.get(f"{path}/ranks/a", params={"min_version": 1, "timeout": 30})
    late.join()
    assert answer.json()["version"] == 1


def test_a_read_of_a_version_that_is_never_published_times_out(server: Server) -> None:
    path = server.new_graph()
    begin = time.monotonic()
    answer = server.http.get(f"{path}/top", params={"min_version": 1, "timeout": 0.2})
    assert 0.2 <= time.monotonic() - begin < 5
    assert answer.status_code == 504
    expected = "version 1 was not published within 0.2 s; the newest is 0"
    assert answer.json()["detail"] == expected


def test_dropping_a_graph_ends_the_reads_that_wait_on_it(server: Server) -> None:
    path = server.new_graph()
    drop = threading.Timer(0.2, lambda: server.http.delete(path))
    drop.start()
    answer = server.http.get(f"{path}/top", params={"min_version": 1, "timeout": 30})
    drop.join()
    assert answer.status_code == 404


def test_an_empty_graph_can_be_read(server: Server) -> None:
    path = server.new_graph()
    assert server.http.get(f"{path}/top").json()["ranks"] == []
    assert server.http.post(f"{path}/ranks", json={"vertices": ["a"]}).json()["ranks"] == [None]
    assert server.http.get(f"{path}/personalized/a").status_code == 404
    assert server.http.post(f"{path}/recompute").status_code == 200
