"""Views over HTTP: ranks of all vertices for teleport distributions of their own."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any
from unittest.mock import patch

import networkx as nx
import pyarrow as pa
import pytest

from liverank_gpu.personalized.query import Query
from liverank_gpu.personalized.watched import Registration
from liverank_service.errors import FileDamaged
from liverank_service.http.schemas import Receipt, ViewAnswer, ViewsAnswer
from liverank_service.storage.kept_files import read_views
from tests.service.formats.test_decode import ARROW, arrow_stream
from tests.service.graphs import engine_of
from tests.service.http.test_personalized import EDGES, path
from tests.service.http.test_problems import problem
from tests.service.server import Server, running, wait_for

__all__ = ["path"]

WEIGHTS = {"v1": 1.0, "v2": 3.0}


def _exact(edges: list[Any], weights: dict[str, float] | None) -> dict[str, float]:
    graph = nx.DiGraph([tuple(edge) for edge in edges])
    return dict(
        nx.pagerank(graph, 0.85, weights, dangling=weights, max_iter=2000, tol=1e-14 / len(graph))
    )


def _put(server: Server, path: str, name: str, **body: Any) -> Any:
    answer = server.http.put(f"{path}/views/{name}", json=body)
    assert answer.status_code in (200, 201), answer.text
    return answer.json()


def _export(server: Server, path: str, view: str) -> tuple[dict[str, float], float]:
    """All ranks of a view, and their bound."""
    headers = {"Accept": ARROW}
    answer = server.http.get(f"{path}/ranks", params={"view": view}, headers=headers)
    assert answer.status_code == 200, answer.text
    table = pa.ipc.open_stream(answer.content).read_all()
    bound = float(table.schema.metadata[b"liverank.error_bound"])
    return dict(zip(*(table[name].to_pylist() for name in ("vertex", "rank")), strict=True)), bound


def _assert_exact(
    server: Server, path: str, view: str, edges: list[Any], weights: dict[str, float] | None
) -> float:
    found, bound = _export(server, path, view)
    exact = _exact(edges, weights)
    assert found.keys() == exact.keys()
    assert sum(abs(found[key] - exact[key]) for key in exact) <= bound + 1e-11
    return bound


def _refused(answer: Any) -> tuple[int, str, str]:
    document = answer.json()
    return answer.status_code, document["type"].rsplit(":", 1)[-1], document["field"]


def test_weights_may_be_sent_asarrow_stream(server: Server) -> None:
    path, headers = server.new_graph(), {"Content-Type": ARROW}
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()

    def put(body: bytes, **options: Any) -> Any:
        return server.http.put(f"{path}/views/a", content=body, headers=headers, params=options)

    body = arrow_stream(seed=[*WEIGHTS, "nobody"], weight=[*WEIGHTS.values(), 1.0])
    answer = put(body, target_error=1e-6, refresh="2.5", unknown="ignore")
    assert answer.status_code == 201, answer.text
    view = answer.json()
    assert (view["weights"], view["ignored"], view["refresh"]) == (3, ["nobody"], 2.5)
    assert view["target_error"] == 1e-6
    assert _assert_exact(server, path, "a", EDGES, WEIGHTS) <= 1e-6
    assert put(arrow_stream(seed=["v1", "v2"]), refresh="read").status_code == 200
    assert _refused(put(body)) == (404, "unknown-vertex", "teleport.weights")
    labelled = put(arrow_stream(seed=["v1", "v2"], query=[1, 2]))
    assert _refused(labelled) == (422, "invalid-body", "query")
    assert _refused(put(arrow_stream(seed=["v1"], weight=["x"]))) == (422, "invalid-body", "weight")
    both = server.http.put(f"{path}/views/a?refresh=read", json={"teleport": "uniform"})
    assert _refused(both) == (422, "invalid-value", "refresh")


def test_a_view_follows_every_batch(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    server.http.put(f"{path}/sets/good", json={"vertices": ["v3", "v4"]}).raise_for_status()
    first = server.http.put(
        f"{path}/views/trust", json={"teleport": {"weights": WEIGHTS}, "target_error": 1e-5}
    )
    assert first.status_code == 201
    answer = ViewAnswer.model_validate_json(first.content)
    assert (answer.teleport, answer.weights, answer.refresh) == ("weights", 2, "batch")
    assert answer.error_bound is not None
    assert answer.error_bound <= 1e-5
    _put(server, path, "set", teleport={"set": "good"}, target_error=1e-7)
    _put(server, path, "all", teleport="uniform", target_error=1e-8)
    edges = list(EDGES)
    for step in range(5):
        batch = [["v1", f"new {step}"], [f"new {step}", "v9"]]
        edges += batch
        sets = {"good": {"add": [f"new {step}"]}}
        posted = server.http.post(f"{path}/batches", json={"insert": batch, "sets": sets})
        receipt = Receipt.model_validate(posted.json())
        assert receipt.views.keys() == receipt.view_seconds.keys() == {"trust", "set", "all"}
        spent = sum(receipt.view_seconds.values())
        assert 0.0 < spent <= posted.json()["seconds"]["watched"]
        good = dict.fromkeys(["v3", "v4", *(f"new {each}" for each in range(step + 1))], 1.0)
        for name, weights, target in (("trust", WEIGHTS, 1e-5), ("set", good, 1e-7)):
            bound = _assert_exact(server, path, name, edges, weights)
            assert receipt.views[name] == bound <= target
        assert _assert_exact(server, path, "all", edges, None) <= 1e-8
    server.http.post(f"{path}/batches", json={"remove": ["v3"]}).raise_for_status()
    found, _ = _export(server, path, "set")
    assert "v3" not in found
    listed = ViewsAnswer.model_validate_json(server.http.get(f"{path}/views").content)
    assert [view.name for view in listed.views] == ["all", "set", "trust"]
    assert listed.views[1].set == "good"
    assert server.http.delete(f"{path}/views/trust").status_code == 204
    for method, url in (
        ("GET", "views/trust"),
        ("DELETE", "views/trust"),
        ("GET", "top?view=trust"),
        ("GET", "ranks?view=trust"),
        ("GET", "ranks/v1?view=trust"),
    ):
        gone = problem(server.http.request(method, f"{path}/{url}"), 404)
        assert gone["type"] == "urn:liverank:problem:unknown-view"
        assert gone["field"] == "view"
        assert gone["detail"].endswith("has no view 'trust'; there are: set, all")


def _assert_within(
    server: Server, path: str, view: str, edges: list[Any], within: set[str], seeds: set[str]
) -> None:
    """The ranks are those of the subgraph, and within the bound; others have rank 0."""
    found, bound = _export(server, path, view)
    graph = nx.DiGraph([tuple(edge) for edge in edges])
    weights = dict.fromkeys(seeds & within, 1.0) or None
    exact = dict.fromkeys(graph, 0.0) | nx.pagerank(
        graph.subgraph(within), 0.85, weights, dangling=weights, max_iter=2000, tol=1e-16
    )
    assert found.keys() == exact.keys()
    assert sum(abs(found[key] - exact[key]) for key in exact) <= bound + 1e-11
    assert bound <= 1e-9


def test_views_within_sets_follow_batches_and_a_restart(tmp_path: Path) -> None:
    edges = [*EDGES, ["v1", "v2"], ["v2", "v3"], ["v3", "v1"]]
    team, good = {"v1", "v2", "v3", "v5"}, {"v2", "v9"}
    seeds: dict[str, set[str]] = {"all": set(), "good": good, "some": {"v1"}}
    with running(tmp_path) as server:
        path = server.new_graph()
        server.http.post(f"{path}/batches", json={"insert": edges}).raise_for_status()
        for name, members in (("team", team), ("good", good)):
            body = {"vertices": sorted(members)}
            server.http.put(f"{path}/sets/{name}", json=body).raise_for_status()
        common = {"target_error": 1e-9, "within": "team"}
        put = _put(server, path, "all", teleport="uniform", refresh="read", **common)
        assert (put["within"], put["error_bound"] <= 1e-9) == ("team", True)
        _put(server, path, "good", teleport={"set": "good"}, **common)
        listed = _put(
            server,
            path,
            "some",
            teleport={"weights": {"v1": 2.0}},
            target_error=1e-9,
            within=[*sorted(team), "later"],
            unknown="ignore",
        )
        assert listed["within"] == 4  # of its keys is one no vertex yet

        def check(some: set[str]) -> None:
            for name, of in seeds.items():
                _assert_within(server, path, name, edges, some if name == "some" else team, of)

        check(team)
        for within in (["v2", "v9"], "team"):  # which it goes on from
            _put(server, path, "good", teleport={"set": "good"}, **common | {"within": within})
            inside = team if within == "team" else set(within)
            _assert_within(server, path, "good", edges, inside, good)
        batches: list[Any] = [
            {"insert": [["v9", "outside"], ["v1", "outside"]]},
            {"insert": [["v5", "v1"], ["v1", "later"], ["later", "v2"]]},
            {"sets": {"team": {"add": ["v9"], "remove": ["v5"]}}},
            {"insert": [["v9", "v1"], ["v2", "v9"]], "sets": {"good": {"add": ["v3"]}}},
        ]
        for batch in batches:
            edges += batch.get("insert", [])
            receipt = server.http.post(f"{path}/batches", json=batch).json()
            assert max(receipt["views"].values()) <= 1e-9
            for name, members in (("team", team), ("good", good)):
                change = batch.get("sets", {}).get(name, {})
                members |= {*change.get("add", ())}
                members -= {*change.get("remove", ())}
            is_known = any("later" in edge for edge in edges)
            check({"v1", "v2", "v3", "v5", *(["later"] if is_known else [])})
        explained = server.http.get(f"{path}/explain/v1", params={"view": "all"}).json()
        parts = explained["contributions"]
        assert {one["vertex"] for one in parts} <= team
        total = (
            explained["teleport"] + explained["rest"] + sum(one["contribution"] for one in parts)
        )
        assert abs(total - explained["rank"]) <= 1e-9
        outside = server.http.get(f"{path}/explain/outside", params={"view": "all"}).json()
        assert (outside["rank"], outside["contributions"], outside["teleport"]) == (0.0, [], 0.0)
        before = server.http.get(f"{path}/views").json()["views"]
        assert [one["within"] for one in before] == ["team", "team", 5]
    with running(tmp_path) as server:
        now = server.http.get(f"{path}/views").json()["views"]
        assert [one | {"error_bound": 0} for one in now] == [
            one | {"error_bound": 0} for one in before
        ]
        check({"v1", "v2", "v3", "v5", "later"})
        outside = {"teleport": {"weights": {"v5": 1.0, "v1": 1.0}}, "within": "team"}
        answer = server.http.put(f"{path}/views/no", json=outside)
        assert _refused(answer) == (422, "invalid-value", "teleport.weights")
        nobody = server.http.put(
            f"{path}/views/no", json={"teleport": "uniform", "within": "nobody"}
        )
        assert _refused(nobody) == (404, "unknown-set", "within")
        server.http.delete(f"{path}/sets/team").raise_for_status()
        lost = server.http.get(f"{path}/ranks/v1", params={"view": "all"})
        assert _refused(lost) == (404, "unknown-set", "within")
        stream = arrow_stream(seed=["v1"])
        headers = {"Content-Type": ARROW}
        url = f"{path}/views/arrow"
        server.http.put(f"{path}/sets/few", json={"vertices": ["v1", "v2"]}).raise_for_status()
        made = server.http.put(url, content=stream, headers=headers, params={"within": "few"})
        assert (made.status_code, made.json()["within"]) == (201, "few")


def test_a_reversed_view_follows_every_batch_and_a_restart(tmp_path: Path) -> None:
    path, edges = "/graphs/default", list(EDGES)
    with running(tmp_path) as server:
        server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
        body = {"teleport": {"weights": WEIGHTS}, "target_error": 1e-8, "direction": "reversed"}
        answer = ViewAnswer.model_validate(_put(server, path, "distrust", **body))
        assert answer.direction == "reversed"
        for step in range(3):
            batch = [["v1", f"new {step}"], [f"new {step}", "v9"]]
            edges += batch
            server.http.post(f"{path}/batches", json={"insert": batch}).raise_for_status()
            backwards = [(target, source) for source, target in edges]
            assert _assert_exact(server, path, "distrust", backwards, WEIGHTS) <= 1e-8
        _put(server, path, "distrust", **body | {"direction": "forward"})
        assert _assert_exact(server, path, "distrust", edges, WEIGHTS) <= 1e-8
        _put(server, path, "distrust", **body)
    with running(tmp_path) as server:
        assert server.http.get(f"{path}/views/distrust").json()["direction"] == "reversed"
        assert _assert_exact(server, path, "distrust", backwards, WEIGHTS) <= 1e-8


def test_weights_that_decay_have_no_reversed_view(server: Server) -> None:
    path = server.new_graph(half_life=60.0)
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    body = {"teleport": "uniform", "direction": "reversed"}
    document = problem(server.http.put(f"{path}/views/mine", json=body), 422)
    assert (document["field"], document["value"]) == ("direction", "reversed")


def test_reads_of_a_view_are_those_of_the_graph(server: Server, path: str) -> None:
    _put(server, path, "trust", teleport={"weights": WEIGHTS}, target_error=1e-9)
    exact = _exact(EDGES, WEIGHTS)
    best = sorted(exact, key=lambda key: -exact[key])
    answer = server.http.get(f"{path}/top", params={"view": "trust", "k": 5}).json()
    assert [place["vertex"] for place in answer["ranks"]] == best[:5]
    assert answer["settled"] == 5
    assert answer["error_bound"] <= 1e-9
    one = server.http.get(f"{path}/ranks/{best[0]}", params={"view": "trust"})
    assert one.json()["rank"] == pytest.approx(exact[best[0]], abs=1e-9)
    several = server.http.post(
        f"{path}/ranks", params={"view": "trust"}, json={"vertices": [*best[:3], "nobody"]}
    ).json()
    assert several["ranks"] == [*(pytest.approx(exact[key], abs=1e-9) for key in best[:3]), None]
    assert server.http.get(f"{path}/ranks/{best[0]}").json()["rank"] != one.json()["rank"]
    tag = one.headers["etag"]
    known = {"If-None-Match": tag}
    url = f"{path}/ranks/{best[0]}"
    again = server.http.get(url, params={"view": "trust"}, headers=known)
    assert again.status_code == 304
    _put(server, path, "trust", teleport={"weights": {"v1": 1.0}}, target_error=1e-9)
    again = server.http.get(url, params={"view": "trust"}, headers=known)
    version = again.json()["version"]
    for later, status in ((0, 200), (1, 504)):
        waiting = {"view": "trust", "min_version": version + later, "timeout": 0.1}
        assert server.http.get(url, params=waiting).status_code == status
    assert (again.status_code, again.json()["rank"]) == (
        200,
        pytest.approx(_exact(EDGES, {"v1": 1.0})[best[0]], abs=1e-9),
    )


def test_other_weights_go_on_from_the_ranks_that_are_there(server: Server, path: str) -> None:
    _put(server, path, "trust", teleport={"weights": WEIGHTS})
    with patch.object(Registration, "__init__", side_effect=AssertionError):
        other = {"v1": 1.0, "v2": 3.5}
        _put(server, path, "trust", teleport={"weights": other}, target_error=1e-8)
    assert _assert_exact(server, path, "trust", EDGES, other) <= 1e-8


def test_a_view_that_is_solved_when_it_is_read(server: Server, path: str) -> None:
    target = 1e-9
    for name, refresh in (("read", "read"), ("later", 1000), ("soon", 0.05)):
        view = _put(
            server,
            path,
            name,
            teleport={"weights": WEIGHTS},
            target_error=target,
            refresh=refresh,
        )
        assert view["refresh"] == refresh
    batch = [["v1", "v7"], ["v2", "v8"]]
    receipt = server.http.post(f"{path}/batches", json={"insert": batch}).json()
    edges = [*EDGES, *batch]
    assert receipt["views"]["read"] > target
    assert receipt["views"]["later"] > target
    assert server.http.get(f"{path}/views/read").json()["error_bound"] > target
    # the bound is of this version, whether it was solved or not
    assert _assert_exact(server, path, "later", edges, WEIGHTS) > target
    assert _assert_exact(server, path, "read", edges, WEIGHTS) <= target
    assert server.http.get(f"{path}/views/read").json()["error_bound"] <= target
    time.sleep(0.06)
    assert _assert_exact(server, path, "soon", edges, WEIGHTS) <= target
    tagged = server.http.get(f"{path}/top", params={"view": "read"}).headers["etag"]
    assert server.http.get(f"{path}/top", params={"view": "read"}).headers["etag"] == tagged


@pytest.mark.parametrize(
    ("name", "body", "status", "field"),
    [
        ("x", {}, 422, "teleport"),
        ("x", {"teleport": "all"}, 422, "teleport"),
        ("x", {"teleport": {}}, 422, "teleport"),
        ("x", {"teleport": {"set": "a", "weights": {"v0": 1}}}, 422, "teleport"),
        ("x", {"teleport": {"set": "none"}}, 404, "teleport.set"),
        ("x", {"teleport": {"weights": {"nobody": 1}}}, 404, "teleport.weights"),
        ("x", {"teleport": {"weights": {}}}, 422, "teleport.weights"),
        ("x", {"teleport": {"weights": {"v0": 0}}}, 422, "teleport.weights"),
        ("x", {"teleport": {"weights": {"v0": -1}}}, 422, "teleport.weights['v0']"),
        ("x", {"teleport": "uniform", "damping": 1}, 422, "damping"),
        ("x", {"teleport": "uniform", "target_error": 0}, 422, "target_error"),
        ("x", {"teleport": "uniform", "refresh": "hourly"}, 422, "refresh"),
        ("x", {"teleport": "uniform", "refresh": 0}, 422, "refresh"),
        ("x", {"teleport": "uniform", "direction": "in"}, 422, "direction"),
        ("x", {"teleport": "uniform", "k": 1}, 422, "k"),
        ("x" * 201, {"teleport": "uniform"}, 422, "view"),
    ],
)
def test_what_cannot_be_a_view_is_named(
    server: Server, path: str, name: str, body: dict[str, Any], status: int, field: str
) -> None:
    answer = server.http.put(f"{path}/views/{name}", json=body)
    assert problem(answer, status)["field"] == field
    assert problem(server.http.get(f"{path}/views/{name}"), 404)["field"] == "view"


def test_views_that_do_not_fit_are_refused(server: Server, path: str) -> None:
    backend = engine_of(server.catalog.get(path.rsplit("/", 1)[1]).pipeline).internals.backend
    with patch.object(backend.device, "memory_available", lambda: 100):
        answer = server.http.put(f"{path}/views/large", json={"teleport": "uniform"})
    detail = problem(answer, 507)["detail"]
    assert "the view 'large' needs" in detail
    assert "bytes; 100 are available" in detail
    problem(server.http.get(f"{path}/views/large"), 404)


def test_a_view_whose_weights_are_gone_has_no_ranks(server: Server) -> None:
    path = server.new_graph()
    server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
    server.http.put(f"{path}/sets/good", json={"vertices": ["v3"]}).raise_for_status()
    _put(server, path, "set", teleport={"set": "good"})
    _put(server, path, "strict", teleport={"weights": {"v3": 1}})
    _put(server, path, "lenient", teleport={"weights": {"v3": 1, "other": 1}}, unknown="ignore")
    assert server.http.get(f"{path}/views/lenient").json()["ignored"] == ["other"]
    receipt = server.http.post(f"{path}/batches", json={"remove": ["v3"]}).json()
    assert receipt["views"] == {"set": None, "strict": None, "lenient": None}
    for name, status in (("set", 409), ("lenient", 409), ("strict", 404)):
        problem(server.http.get(f"{path}/top", params={"view": name}), status)
    strict = server.http.get(f"{path}/views/strict").json()
    assert strict["error_bound"] is None
    assert "no vertex 'v3'" in strict["problem"]
    again = {"insert": [["v3", "v1"], ["v1", "v3"]], "sets": {"good": {"add": ["v3"]}}}
    server.http.post(f"{path}/batches", json=again).raise_for_status()
    for name in ("set", "strict", "lenient"):
        found, _ = _export(server, path, name)
        assert found["v3"] == max(found.values())


def test_views_survive_a_restart(tmp_path: Path) -> None:
    with running(tmp_path) as server:
        path = "/graphs/default"
        server.http.post(f"{path}/batches", json={"insert": EDGES}).raise_for_status()
        server.http.put(f"{path}/sets/good", json={"vertices": ["v3"]}).raise_for_status()
        _put(server, path, "trust", teleport={"weights": WEIGHTS}, damping=0.7, refresh="read")
        _put(server, path, "set", teleport={"set": "good"}, unknown="ignore", refresh=60)
        _put(server, path, "all", teleport="uniform", target_error=1e-7)
        before = server.http.get(f"{path}/views").json()["views"]
    file = tmp_path / "graphs" / "default" / "views.json"
    stored = json.loads(file.read_text())
    assert stored["format"] == 1
    assert stored["views"]["trust"]["teleport"] == {"weights": [["v1", 1.0], ["v2", 3.0]]}
    with running(tmp_path) as server:
        after = server.http.get(f"{path}/views").json()["views"]
        for view in (*before, *after):
            assert view.pop("error_bound") is not None
        assert after == before
        assert _assert_exact(server, path, "all", EDGES, None) <= 1e-7


def test_a_restart_starts_views_from_the_checkpoint(tmp_path: Path) -> None:
    """Those that spread over the graph: they need no solve, unless batches came after it."""
    path = "/graphs/default"
    with running(tmp_path) as server:
        edges = [[f"v{i}", f"v{(i * i + 7) % 200}"] for i in range(200)]
        edges += [["apart", "from"], ["from", "apart"]]
        server.http.post(f"{path}/batches", json={"insert": edges}).raise_for_status()
        _put(server, path, "all", teleport="uniform", target_error=1e-7, direction="reversed")
        _put(server, path, "some", teleport={"weights": {f"v{i}": 1 for i in range(100)}})
        _put(server, path, "few", teleport={"weights": {"apart": 1.0}})
        before = {name: _export(server, path, name) for name in ("all", "some", "few")}
        server.http.post(f"{path}/checkpoint").raise_for_status()
    (manifest,) = (tmp_path / "graphs" / "default" / "checkpoints").glob("*/manifest.json")
    stored = json.loads(manifest.read_text().split("\n", 1)[1])
    assert [view["name"] for view in stored["numbers"]["views"]] == ["all", "some"]
    with patch.object(Query, "start_from", autospec=True, side_effect=Query.start_from) as starts:
        with running(tmp_path) as server:
            # ranks are served before views are
            wait_for(lambda: server.http.get(f"{path}/views").status_code == 200)
            after = {name: _export(server, path, name) for name in before}
        assert starts.call_count == 2
        assert all(call.args[0].iterations == 0 for call in starts.call_args_list)
    for name, (ranks, bound) in after.items():
        distance = sum(abs(rank - before[name][0][key]) for key, rank in ranks.items())
        assert distance <= bound + before[name][1]


@pytest.mark.parametrize(
    ("view", "place"),
    [
        ({"teleport": "all"}, "views.v.teleport"),
        ({"teleport": {"weights": []}}, "weights"),
        (
            {"teleport": {"weights": [[1, 1.0]]}},
            "views.v.teleport.weights[0][0]: 1 is not a string",
        ),
        ({"refresh": 0}, "views.v.refresh"),
        ({"damping": 2}, "views.v.damping"),
        ({"direction": "in"}, "views.v.direction"),
        ({"within": []}, "views.v.within"),
        ({"within": ["a", 1]}, "views.v.within[1]: 1 is not a string"),
    ],
)
def test_a_damaged_file_is_named(tmp_path: Path, view: dict[str, Any], place: str) -> None:
    whole = {"teleport": "uniform", "damping": None, "target_error": None, "refresh": "batch"}
    file = tmp_path / "views.json"
    file.write_text(
        json.dumps({"format": 1, "views": {"v": {**whole, "unknown": "error", **view}}})
    )
    with pytest.raises(FileDamaged) as damaged:
        read_views(file, "string")
    assert str(damaged.value).startswith(str(file))
    assert place in str(damaged.value)
