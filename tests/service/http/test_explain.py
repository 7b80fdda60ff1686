"""What a rank consists of, over HTTP: against NumPy, versions, keys, and what is refused."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liverank import Client, ServerError
from liverank_service.http.schemas import ExplainedAnswer
from tests.service.server import Server, running

ROWS = "a b 2, c b 1, c a 3, b a 1, d b 1, b b 1, a e/x 1"
EDGES: list[Any] = [[*row.split()[:2], int(row.split()[2])] for row in ROWS.split(", ")]


def explained(server: Server, path: str, key: str, **params: Any) -> dict[str, Any]:
    answer = server.http.get(f"{path}/explain/{key}", params=params)
    assert answer.status_code == 200, answer.text
    ExplainedAnswer.model_validate_json(answer.content)
    document: dict[str, Any] = answer.json()
    return document


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("weighted", [True, False])
def test_parts_are_those_of_the_list_of_edges(
    server: Server, weighted: bool, directed: bool
) -> None:
    path = server.new_graph(weighted=weighted, directed=directed)
    server.post(path, json={"insert": [row if weighted else row[:2] for row in EDGES]})
    ranks = {row["vertex"]: row["rank"] for row in server.http.get(f"{path}/top").json()["ranks"]}
    arcs: dict[tuple[str, str], float] = {}
    for source, target, weight in EDGES:
        arcs[source, target] = weight if weighted else 1.0
        if not directed:
            arcs[target, source] = arcs[source, target]
    strengths = {v: sum(w for (s, _), w in arcs.items() if s == v) for v in ranks}
    dangling = sum(rank for v, rank in ranks.items() if strengths[v] == 0)
    for vertex, rank in ranks.items():
        found = explained(server, path, vertex, k=2)
        given = {s: 0.85 * ranks[s] * w / strengths[s] for (s, t), w in arcs.items() if t == vertex}
        first = sorted(given.values(), reverse=True)[:2]
        assert [each["contribution"] for each in found["contributions"]] == pytest.approx(first)
        for each in found["contributions"]:
            assert each["contribution"] == pytest.approx(given[each["vertex"]])
        assert (found["vertex"], found["rank"], found["degree"]) == (vertex, rank, len(given))
        bound = found["error_bound"]
        assert found["rest"] == pytest.approx(sum(given.values()) - sum(first), abs=1e-15)
        assert abs(found["teleport"] - (0.15 + 0.85 * dangling) / len(ranks)) <= bound
        parts = found["teleport"] + sum(first) + found["rest"]
        assert abs(parts - rank) <= bound


@pytest.mark.parametrize("direction", ["forward", "reversed"])
@pytest.mark.parametrize("weighted", [True, False])
@pytest.mark.parametrize("teleport", [{"weights": {"b": 3.0, "d": 1.0}}, "uniform"])
def test_parts_of_a_view_are_those_of_its_walks(
    server: Server, weighted: bool, direction: str, teleport: Any
) -> None:
    path = server.new_graph(weighted=weighted)
    server.post(path, json={"insert": [row if weighted else row[:2] for row in EDGES]})
    view = {"teleport": teleport, "damping": 0.6, "direction": direction, "refresh": "read"}
    server.http.put(f"{path}/views/mine", json=view | {"target_error": 1e-9}).raise_for_status()
    edges = [*EDGES, ["d", "c", 2]]  # so that it has to be solved by the read
    server.post(path, json={"insert": [edges[-1] if weighted else edges[-1][:2]]})
    arcs = {(a, b) if direction == "forward" else (b, a): w if weighted else 1 for a, b, w in edges}
    first = explained(server, path, "b", view="mine")
    assert first["error_bound"] <= 1e-9
    read = server.http.get(f"{path}/top", params={"view": "mine"}).json()
    ranks = {row["vertex"]: row["rank"] for row in read["ranks"]}
    strengths = {v: sum(w for (s, _), w in arcs.items() if s == v) for v in ranks}
    dangling = sum(rank for v, rank in ranks.items() if strengths[v] == 0)
    seeds = dict.fromkeys(ranks, 1.0) if teleport == "uniform" else teleport["weights"]
    for vertex, rank in ranks.items():
        found = explained(server, path, vertex, k=1, view="mine")
        given = {s: 0.6 * ranks[s] * w / strengths[s] for (s, t), w in arcs.items() if t == vertex}
        most = sorted(given.values(), reverse=True)[:1]
        assert [each["contribution"] for each in found["contributions"]] == pytest.approx(most)
        assert (found["rank"], found["degree"]) == (rank, len(given))
        assert found["rest"] == pytest.approx(sum(given.values()) - sum(most), abs=1e-15)
        share = seeds.get(vertex, 0.0) / sum(seeds.values())
        assert found["teleport"] == pytest.approx((0.4 + 0.6 * dangling) * share, abs=1e-8)
        parts = found["teleport"] + sum(most) + found["rest"]
        assert abs(parts - rank) <= found["error_bound"] == read["error_bound"]
    unknown = server.http.get(f"{path}/explain/b", params={"view": "other"})
    assert (unknown.status_code, unknown.json()["field"]) == (404, "view")
    with Client(str(server.http.base_url)) as client:
        graph = path.rpartition("/")[2]
        assert client.explain(graph, "b", view="mine").teleport == first["teleport"]
        assert client.explain(graph, "b").teleport != first["teleport"]


def test_ranks_and_edges_are_of_one_version(server: Server) -> None:
    path = server.new_graph()
    server.post(path, json={"insert": [["a", "b"]]})
    server.http.post(f"{path}/batches?rank=later", json={"insert": [["c", "b"]]})
    late = server.http.get(f"{path}/explain/b", params={"timeout": 0.2})
    assert (late.status_code, late.json()["field"]) == (504, "min_version")
    assert "version 2 was not published" in late.json()["detail"]
    server.post(path, json={"insert": [["d", "b"]]})
    found = explained(server, path, "b")
    assert (found["version"], found["degree"]) == (3, 3)


def test_parts_add_up_while_batches_land(server: Server) -> None:
    path, generator = server.new_graph(target_error=1e-9), random.Random(2)
    server.post(path, json={"insert": [["v0", "v1"]]})
    for step in range(60):
        edges = [[f"v{generator.randrange(9)}", f"v{generator.randrange(9)}"] for _ in range(3)]
        request = {"insert": edges[:2], "delete": edges[2:]}
        server.http.post(f"{path}/batches?wait=durable", json=request).raise_for_status()
        found = explained(server, path, "v1")
        given = sum(each["contribution"] for each in found["contributions"])
        assert abs(found["teleport"] + given + found["rest"] - found["rank"]) <= 1e-9
        assert found["version"] >= step


def test_the_newest_checkpoint_explains_after_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        server.post("/graphs/default", json={"insert": [["a", "b"], ["c", "b"], ["b", "d"]]})
        before = explained(server, "/graphs/default", "b")
        server.http.post("/graphs/default/checkpoint").raise_for_status()
    with running(tmp_path) as server:
        after = explained(server, "/graphs/default", "b")
    for name in ("rank", "teleport", "degree", "contributions", "rest"):
        assert after[name] == before[name]


def test_keys_are_the_rest_of_the_path(server: Server) -> None:
    path = server.new_graph()
    server.post(path, json={"insert": [["a", "e/explain"], ["a", "e"]]})
    assert explained(server, path, "e/explain")["vertex"] == "e/explain"
    assert server.http.get(f"{path}/ranks/e/explain").json()["vertex"] == "e/explain"
    whole = server.new_graph(keys="integer")
    server.post(whole, json={"insert": [[1, -5]]})
    assert explained(server, whole, "-5")["contributions"][0]["vertex"] == 1


@pytest.mark.parametrize(("key", "params", "status"), [("x", {}, 404), ("b", {"k": 0}, 422)])
def test_what_cannot_be_explained_is_refused(
    server: Server, key: str, params: Any, status: int
) -> None:
    path = server.new_graph()
    server.post(path, json={"insert": [["a", "b"]]})
    assert server.http.get(f"{path}/explain/{key}", params=params).status_code == status


def test_too_many_in_edges_are_refused(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    path = server.new_graph()
    server.post(path, json={"insert": [["a", "b"], ["c", "b"]]})
    monkeypatch.setattr("liverank_service.pipeline.edge_reading.MAX_EXPLAINED", 1)
    problem = server.http.get(f"{path}/explain/b").json()
    assert (problem["status"], problem["field"]) == (422, "vertex")
    assert "at most 1 in-edges, this has 2" in problem["detail"]
    assert "'b'" in problem["detail"]
    monkeypatch.setattr("liverank_gpu.engine.MAX_EXPLAINED", 1)
    for name, within in (("all", None), ("inside", ["b", "c", "a"])):
        view = {"teleport": "uniform", "within": within}
        server.http.put(f"{path}/views/{name}", json=view).raise_for_status()
        problem = server.http.get(f"{path}/explain/b?view={name}").json()
        assert "vertex: 'b' is not allowed" in problem["detail"]


def test_the_client_has_what_a_rank_consists_of(server: Server) -> None:
    path = server.new_graph()
    graph = path.rpartition("/")[2]
    with Client(str(server.http.base_url)) as client:
        version = client.insert(graph, [("a", "b"), ("c", "b"), ("a", "c")]).version
        found = client.explain(graph, "b", 1, min_version=version)
        assert [each.vertex for each in found.contributions] == ["c"]
        parts = found.teleport + found.contributions[0].contribution + found.rest
        assert np.abs(parts - found.rank) <= found.error_bound
        with pytest.raises(ServerError, match="Unknown vertex"):
            client.explain(graph, "z")
