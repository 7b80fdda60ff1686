"""`liverank serve --shards 2`: one server whose default graph is in two worker processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from liverank import Client, ServerError
from liverank_service.storage import checkpoint as checkpoints
from liverank_service.storage.backup import backup, restore
from liverank_service.storage.files import write_synced
from liverank_service.storage.graph_store import GraphStore
from tests.service.http.test_analyses import finished, start, values
from tests.service.http.test_programs import HOPS
from tests.service.server import Server, running, wait_for

pytestmark = pytest.mark.filterwarnings("default")
"""Dask's own warnings are not ours."""

PATH = "/graphs/default"
OPTIONS: Any = {"damping": 0.5}
"""Sweeps exchange messages: with so small a damping there are few."""

EDGES = [["a", "b"], ["b", "c"], ["c", "a"], ["d", "a"], ["a", "a"]]


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    data = tmp_path_factory.mktemp("sharded")
    store = GraphStore(data)
    store.open()
    store.create("default", OPTIONS)
    store.close()
    with running(data, shards=2, programs=True) as server:
        yield server


COUNTS = (
    *("version", "vertices", "edges", "inserted", "already_present", "deleted", "not_found"),
    *("new_vertices", "removed", "removed_edges", "expired", "degree", "ignored", "unknown"),
)
"""Members of answers that are the same on one device."""


def assert_same(found: Any, expected: Any) -> None:
    """What answers, and answers in them, say is the same, as far as their bounds tell."""
    bound = found.get("error_bound", 0.0) + expected.get("error_bound", 0.0)
    for name in COUNTS:
        assert found.get(name) == expected.get(name), name
    for name in ("rank", "teleport", "rest") if "rank" in found else ():
        assert abs(found.get(name, 0.0) - expected.get(name, 0.0)) <= bound
    ranks, others = (
        {each["vertex"]: each["rank"] for each in answer.get("ranks", ())}
        for answer in (found, expected)
    )
    keys = ranks.keys() | others.keys()  # those of rank 0 may be left out
    assert sum(abs(ranks.get(key, 0.0) - others.get(key, 0.0)) for key in keys) <= bound
    for one, other in zip(found.get("answers", ()), expected.get("answers", ()), strict=True):
        assert_same(one, other)


@dataclass
class Both:
    """A graph in shards, and one on one device that is sent the same."""

    graphs: list[tuple[Server, str]]

    def __call__(self, method: str, call: str, body: Any = None) -> Any:
        """What the shards answer, which is what one device does."""
        found, expected = (
            on.http.request(method, f"{path}/{call}".rstrip("/"), json=body)
            for on, path in self.graphs
        )
        assert found.status_code == expected.status_code, found.text
        if method == "DELETE":
            assert found.status_code == 204, found.text
            return None
        if found.is_success:
            assert_same(found.json(), expected.json())
        return found.json()

    def batch(self, **batch: Any) -> Any:
        return self("POST", "batches", batch)


@pytest.fixture(scope="module")
def both(sharded: Server, server: Server) -> Both:
    return Both([(sharded, PATH), (server, server.new_graph(**OPTIONS))])


def test_batches_and_reads_are_those_of_one_device(sharded: Server, both: Both) -> None:
    receipt = both.batch(insert=EDGES, vertices=["lone"])
    assert (receipt["inserted"], receipt["new_vertices"]) == (5, 5)
    assert set(receipt["seconds"]) >= {"mutate", "solve", "publish"}
    assert both.batch(delete=[["a", "a"]])["deleted"] == 1
    both.batch(insert=[["gone", "a"], ["b", "gone"]])
    receipt = both.batch(remove=["gone"])
    assert (receipt["removed"], receipt["removed_edges"]) == (1, 2)
    ranks = {each["vertex"]: each["rank"] for each in both("GET", "top?k=9")["ranks"]}
    assert set(ranks) == {"a", "b", "c", "d", "lone"}
    assert both("GET", "ranks/b")["rank"] == ranks["b"]
    assert sharded.http.get(f"{PATH}/ranks").status_code == 200


def test_new_lists_and_parts_of_ranks_are_those_of_one_device(both: Both) -> None:
    both.batch(insert=EDGES[:4], vertices=["lone"])
    counts: list[Any] = []
    lists: list[Any] = [{"a": ["c", "d", "b"], "d": []}, {"a": ["b"], "d": ["a"]}]
    for new in lists:
        receipt = both.batch(replace=new)
        counts.append([receipt[name] for name in ("inserted", "already_present", "deleted")])
        for vertex in ("a", "c", "d", "lone"):
            found = both("GET", f"explain/{vertex}?k=1")
            given = sum(each["contribution"] for each in found["contributions"])
            parts = found["teleport"] + given + found["rest"]
            assert abs(parts - found["rank"]) <= found["error_bound"]
    assert counts == [[2, 1, 1], [1, 1, 2]]


QUERIES = [
    {"seeds": {"a": 1.0}, "k": 9, "damping": 0.5},
    {"seeds": {"a": 1.0, "lone": 3.0}, "k": 3, "method": "pull", "trace": True, "damping": 0.5},
    {"seeds": {"d": 1.0}, "k": 2, "method": "push", "among": ["b", "c", "lone"], "damping": 0.5},
    {"seeds": {"b": 1.0}, "k": 2, "target": "settled-top-k"},
    {"seeds": {"b": 1.0}, "k": 2, "target": "settled-set"},
    {"seeds": {"a": 1.0}, "form": "published", "method": "pushopt", "target_error": 0.1},
    {"seeds": {"nobody": 1.0}, "unknown": "ignore"},
    {"seeds": {"a": 1.0}, "k": 9, "within": ["a", "b", "d", "lone"]},
]
"""A small damping: every sweep exchanges messages."""


def test_personalized_queries_are_those_of_one_device(both: Both) -> None:
    both.batch(insert=EDGES[:4], vertices=["lone"])
    answers = both("POST", "personalized?timeout=60", {"queries": QUERIES})["answers"]
    assert answers[1]["trace"]["steps"][0]["kind"] == "sweep"
    answer = both("GET", "personalized/a?k=9&damping=0.5&timeout=60")
    for one, again in zip(answers[0]["ranks"], answer["ranks"], strict=True):
        assert again["vertex"] == one["vertex"]
        assert again["rank"] == pytest.approx(one["rank"], abs=2 * answer["error_bound"])
    problem = both("GET", "personalized/nobody")
    assert problem["type"] == "urn:liverank:problem:unknown-vertex"


def test_views_are_those_of_one_device(sharded: Server, both: Both) -> None:
    views: dict[str, dict[str, Any]] = {
        "all": {"teleport": "uniform", "target_error": 1e-5},
        "some": {"teleport": {"weights": {"a": 1.0, "new": 2.0}}, "unknown": "ignore"},
        "inside": {"teleport": {"weights": {"a": 1.0}}, "within": "mine"},
        "against": {"teleport": {"set": "mine"}, "direction": "reversed", "refresh": "read"},
    }
    both.batch(insert=EDGES[:4], vertices=["lone"])
    both("PUT", "sets/mine", {"vertices": ["a", "b"]})
    for name, view in views.items():
        both("PUT", f"views/{name}?timeout=60", view)
    for change in (
        {},
        {"insert": [["new", "b"], ["c", "new"]], "sets": {"mine": {"add": ["c"]}}},
        {"remove": ["new"]},
    ):
        assert both.batch(**change)["views"].keys() == views.keys()
        for name, view in views.items():
            found = both("GET", f"top?k=9&view={name}")
            assert found["error_bound"] <= view.get("target_error", 1e-6)
            assert found["settled"] > 0
            assert {each["vertex"] for each in found["ranks"]} >= {"a", "b", "c", "d", "lone"}
            both("GET", f"explain/a?view={name}")
    ranks = sharded.http.get(f"{PATH}/ranks?view=all", headers={"accept": "text/csv"}).text
    assert len(ranks.splitlines()) == 6
    for name in views:
        both("DELETE", f"views/{name}")
        assert both("GET", f"views/{name}")["status"] == 404


def test_watched_queries_are_those_of_one_device(both: Both) -> None:
    queries = {
        "all": {"seeds": {"a": 1.0}, "k": 9, "damping": 0.5},
        "some": {"seeds": {"d": 1.0}, "k": 2, "among": ["b", "c"], "damping": 0.5},
        "late": {"seeds": {"new": 1.0}, "unknown": "ignore", "damping": 0.5},
    }
    both.batch(insert=EDGES[:4], vertices=["lone"])
    for name, query in queries.items():
        both("PUT", f"watched/{name}?timeout=60", query)
    for change in ({}, {"insert": [["new", "b"], ["c", "new"]]}, {"remove": ["new"]}):
        receipt = both.batch(**change)
        assert 0.0 < receipt["seconds"]["watched"] < receipt["seconds"]["total"]
        for name in queries:
            assert both("GET", f"watched/{name}")["version"] == receipt["version"]
    for name in queries:
        both("DELETE", f"watched/{name}")
        assert both("GET", f"watched/{name}")["status"] == 404


def test_edges_are_those_of_one_device(both: Both) -> None:
    both.batch(insert=EDGES[:4], vertices=["lone"])
    lines, expected = (
        on.http.get(f"{path}/edges", headers={"accept": "text/csv"}).text.splitlines()
        for on, path in both.graphs
    )
    assert lines[0] == expected[0]
    assert len(lines) == 5
    assert sorted(lines) == sorted(expected)
    found = both("GET", "neighbors/a?direction=in")["neighbors"]
    assert {each["vertex"] for each in found} == {"c", "d"}
    assert len(both("GET", "neighbors/a?direction=in&limit=1")["neighbors"]) == 1
    assert both("GET", "neighbors/lone")["neighbors"] == []
    found = both("POST", "subgraph", {"vertices": ["a", "b", "d", "x"]})
    assert sorted(found["edges"]) == [["a", "b"], ["d", "a"]]
    assert found["unknown"] == ["x"]


def test_edges_leave_a_window_as_on_one_device(sharded: Server, server: Server) -> None:
    options = {"window": 5.0, "clock": "event", "forget_vertices": True}
    both = Both([(sharded, "/graphs/windowed"), (server, server.new_graph(**options))])
    created = sharded.http.put("/graphs/windowed", json=options)
    assert created.status_code == 201, created.text
    assert created.json()["options"]["window"] == 5.0
    for row in (["a", "b", None, 1.0], ["b", "c", None, 4.0], ["c", "b", None, 7.0]):
        both.batch(insert=[row])
    receipts = [both("GET", f"batches/{version}") for version in range(1, 6)]
    assert [each["expired"] for each in receipts] == [0, 0, 0, 1, 0]
    document = both("GET", "")
    assert document["memory"]["times"] > 0
    assert (receipts[4]["removed"], receipts[4]["version"]) == (1, document["version"])
    assert document["edges"] == 2
    assert {each["vertex"] for each in both("GET", "top")["ranks"]} == {"b", "c"}
    assert sharded.http.delete("/graphs/windowed").status_code == 204


def test_solves_are_traced_and_end_when_places_are_proven(sharded: Server) -> None:
    receipt = sharded.http.post(f"{PATH}/recompute?strategy=static&trace=true").json()
    assert receipt["trace"]["steps"][-1]["kind"] == "sweep"
    receipt = sharded.http.post(f"{PATH}/recompute?target=settled-top-k&k=2").json()
    assert receipt["settled"] == 2
    assert sharded.http.get(f"{PATH}/top?k=2").json()["settled"] == 2
    receipt = sharded.http.post(f"{PATH}/recompute?target=settled-set&k=2").json()
    assert (receipt["settled_set"], receipt["converged"]) == (True, True)


def test_the_shards_are_described(sharded: Server) -> None:
    sharded.http.post(f"{PATH}/batches", json={"insert": EDGES}).raise_for_status()
    document = sharded.http.get(PATH).json()
    assert document["backend"] == "cpu"
    assert document["memory"]["shards"] > 0
    shards = document["shards"]
    assert sum(shards.pop("edges")) == document["edges"]
    assert sum(shards.pop("vertices")) == document["vertices"]
    nothing = {"reason": None, "since": None}
    assert shards == {"count": 2, "state": "serving", "restarts": 0, **nothing}
    metrics = sharded.http.get("/metrics").text
    for line in (
        'liverank_shard_vertices{graph="default",shard="1"} ',
        'liverank_shard_edges{graph="default",shard="0"} ',
        'liverank_recovering{graph="default"} 0.0',
        'liverank_shard_restarts_total{graph="default"} 0.0',
    ):
        assert f"\n{line}" in metrics


def test_analyses_run_in_shards_and_follow_batches(sharded: Server, server: Server) -> None:
    one = server.new_graph()
    sharded.http.put("/programs/hops", json={"source": HOPS}).raise_for_status()
    answers: list[Any] = []
    for path, on in ((PATH, sharded), (one, server)):
        body = {"insert": [*EDGES, ["b", "e"], ["f", "g"]], "vertices": ["lone"]}
        on.http.post(f"{path}/batches", json=body).raise_for_status()
        names: dict[str, dict[str, Any]] = {
            "distances": {"source": "a"},
            "components": {},
            "labels": {},
            "cores": {},
            "clustering": {},
        }
        hops = "hops" if on is sharded else "levels"
        begun = [start(on, path, name, **given) for name, given in names.items()]
        begun.append(start(on, path, hops, source="a"))
        fresh = start(on, path, "components", fresh=True)
        for each in (*begun, fresh):
            finished(on, each)
        answers.append([values(on, each) for each in begun])
        sent = on.http.post(f"{path}/batches", json={"insert": [["g", "a"]]}).json()
        finished(on, fresh, sent["version"])
        answers[-1].append(values(on, fresh))
        assert len(set(answers[-1][-1].values())) < len(set(answers[-1][1].values()))
        on.http.post(f"{path}/batches", json={"remove": ["f", "g", "e"]}).raise_for_status()
        for each in (*begun, fresh):
            on.http.delete(each).raise_for_status()
    ours, theirs = answers
    for found, expected in zip(ours, theirs, strict=True):
        assert {key: found[key] for key in expected} == expected


@pytest.mark.parametrize(
    ("program", "body", "field"),
    [("support", {}, "analysis"), ("levels", {"mode": "asynchronous"}, "mode")],
)
def test_analyses_that_need_one_device_are_refused_by_name(
    sharded: Server, program: str, body: dict[str, Any], field: str
) -> None:
    given = body | ({"parameters": {"source": "a"}} if program == "levels" else {})
    answer = sharded.http.post(f"{PATH}/analyses/{program}", json=given)
    problem = answer.json()
    assert answer.status_code == 422, answer.text
    assert problem["type"] == "urn:liverank:problem:unsupported"
    assert problem["field"] == field
    instead = (
        "'synchronous'" if field == "mode" else "a server without --shards, or `liverank analyse`"
    )
    value = body.get("mode", program)
    assert f"{field}: {value!r} does not work with shards; {instead}" in problem["detail"]
    with (
        Client(str(sharded.http.base_url)) as client,
        pytest.raises(ServerError, match=f"{field}: '{value}' does not work with shards; .*does"),
    ):
        client.start_analysis(PATH.rsplit("/", 1)[1], program, **given)
    assert sharded.http.get(f"{PATH}/analyses").json() == {"analyses": []}


def test_a_backup_of_shards_opens_without_them(sharded: Server, tmp_path: Path) -> None:
    sharded.http.post(f"{PATH}/batches", json={"remove": ["lone"]}).raise_for_status()
    taken = sharded.http.post(f"{PATH}/checkpoint").json()
    sharded.http.post(f"{PATH}/batches", json={"vertices": ["lone"]}).raise_for_status()
    saved, data = tmp_path / "saved", tmp_path / "data"
    (copied,) = backup(sharded.catalog._settings.data, saved)
    assert copied.version == taken["version"] + 1
    assert restore(saved, data) == [copied]
    with running(data) as server:
        wait_for(lambda: server.http.get(PATH).json()["version"] == copied.version)
        ours, theirs = (each.http.get(PATH).json() for each in (server, sharded))
        for name in ("vertices", "edges"):
            assert ours[name] == theirs[name]
        assert "shards" not in ours


def process_of_a_worker(server: Server, graph: str = "default") -> int:
    """Of shard 1."""
    workers: Any = server.catalog.get(graph).pipeline.shards._workers
    assert workers.started is not None
    workers = workers.started
    processes: dict[str, int] = workers.client.run(os.getpid)
    return processes[workers.addresses[1]]


def test_a_killed_worker_loses_nothing(sharded: Server) -> None:
    # which the tests before it leave, if they ran
    sharded.http.post(f"{PATH}/batches", json={"insert": EDGES[:4]}).raise_for_status()
    edges = sharded.http.get(PATH).json()["edges"]
    assert edges >= 4
    taken = sharded.http.post(f"{PATH}/checkpoint").json()
    receipt = sharded.http.post(f"{PATH}/batches", json={"insert": [["e", "a"]]}).json()
    assert receipt["version"] == taken["version"] + 1
    before = sharded.http.get(f"{PATH}/ranks/a").json()
    os.kill(process_of_a_worker(sharded), signal.SIGKILL)
    # without any call that needs the shards
    wait_for(lambda: "recovering" in sharded.http.get("/readyz").json(), 30.0)
    (recovering,) = sharded.http.get("/readyz").json()["recovering"]
    assert recovering["graph"] == "default"
    assert "shard 1 of 2" in recovering["reason"]
    assert sharded.http.get(f"{PATH}/ranks/a").json() == before
    assert sharded.http.get(PATH).json()["shards"]["state"] == "recovering"
    later = sharded.http.post(f"{PATH}/batches", json={"insert": [["a", "c"]]}).json()
    version = receipt["version"] + 1
    assert (later["version"], later["inserted"]) == (version, 1)
    assert sharded.http.get("/readyz").json() == {"status": "ready"}
    document = sharded.http.get(PATH).json()
    assert (document["version"], document["edges"]) == (version, edges + 2)
    assert document["shards"]["restarts"] == 1
    deleted = sharded.http.post(f"{PATH}/batches", json={"delete": [["e", "a"], ["a", "c"]]})
    assert deleted.json()["deleted"] == 2


def test_a_worker_killed_during_a_checkpoint_loses_nothing(
    sharded: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    sharded.http.post(f"{PATH}/checkpoint").raise_for_status()
    folder = sharded.catalog._settings.data / "graphs" / "default" / "checkpoints"
    sent = sharded.http.post(f"{PATH}/batches", json={"insert": [["e", "b"]]}).json()
    document, before = sharded.http.get(PATH).json(), sorted(folder.iterdir())
    process = process_of_a_worker(sharded)

    def kill_and_write(path: Path, parts: Iterable[memoryview]) -> None:
        if path.name == "neighbours.bin":  # which the shards have copied, but not sent
            os.kill(process, signal.SIGKILL)
        write_synced(path, parts)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_synced", kill_and_write)
        answer = sharded.http.post(f"{PATH}/checkpoint")
    assert answer.status_code == 503, answer.text
    assert answer.json()["type"] == "urn:liverank:problem:shard-lost"
    assert sorted(folder.iterdir()) == before
    restarts = document["shards"]["restarts"] + 1
    wait_for(lambda: sharded.http.get(PATH).json()["shards"]["restarts"] == restarts, 30.0)
    wait_for(lambda: sharded.http.get("/readyz").json() == {"status": "ready"})
    again = sharded.http.get(PATH).json()
    assert (again["version"], again["edges"]) == (sent["version"], document["edges"])
    taken = sharded.http.post(f"{PATH}/checkpoint").json()
    assert taken["version"] == sent["version"]
    deleted = sharded.http.post(f"{PATH}/batches", json={"delete": [["e", "b"]]})
    assert deleted.json()["deleted"] == 1


def test_a_frozen_worker_holds_up_neither_the_end_of_its_graph_nor_that_of_the_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("liverank_service.pipeline.shards.FROZEN_SECONDS", 3.0)
    with running(tmp_path, shards=2) as server:
        server.http.put("/graphs/other").raise_for_status()
        for graph in ("default", "other"):
            batches = f"/graphs/{graph}/batches"
            server.http.post(batches, json={"insert": EDGES[:3]}).raise_for_status()
            os.kill(process_of_a_worker(server, graph), signal.SIGSTOP)
            sent = server.http.post(f"{batches}?wait=durable", json={"insert": EDGES[3:]})
            assert sent.json()["version"] == 2
        begun = monotonic()
        assert server.http.delete("/graphs/other").status_code == 204
        assert monotonic() - begun < 60.0
        assert server.http.get("/graphs/other").status_code == 404
        begun = monotonic()
    assert monotonic() - begun < 60.0
    for graph in ("default", "other"):
        assert f"graph {graph}: shard 1 of 2 at " in caplog.text
        assert f"graph {graph}: what is in progress is waited for; each worker has" in caplog.text
    assert "it ends, and what is committed is ranked when it is opened again" in caplog.text
    assert "was not ended" not in caplog.text
    with running(tmp_path) as server:
        assert server.http.get("/graphs/other").status_code == 404
        assert server.http.get(f"{PATH}/batches/2").json()["inserted"] == 2
        assert server.http.get(PATH).json()["edges"] == 5
