"""`liverank serve --shards 2`: one server whose default graph is in two worker processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from liverank_service.storage import checkpoint as checkpoints
from liverank_service.storage.backup import backup, restore
from liverank_service.storage.files import write_synced
from tests.service.http.test_analyses import finished, start, values
from tests.service.http.test_programs import HOPS
from tests.service.server import Server, running, wait_for

pytestmark = pytest.mark.filterwarnings("default")
"""Dask's own warnings are not ours."""

PATH = "/graphs/default"
EDGES = [["a", "b"], ["b", "c"], ["c", "a"], ["d", "a"], ["a", "a"]]


@pytest.fixture(scope="module")
def sharded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("sharded"), shards=2, programs=True) as server:
        yield server


def test_batches_and_reads_are_those_of_one_device(sharded: Server, server: Server) -> None:
    one = server.new_graph()
    for path, on in ((PATH, sharded), (one, server)):
        body = {"insert": EDGES, "vertices": ["lone"]}
        receipt = on.http.post(f"{path}/batches", json=body).json()
        assert (receipt["inserted"], receipt["new_vertices"]) == (5, 5)
        assert set(receipt["seconds"]) >= {"mutate", "solve", "publish"}
        receipt = on.http.post(f"{path}/batches", json={"delete": [["a", "a"]]}).json()
        assert (receipt["version"], receipt["deleted"]) == (2, 1)
        on.http.post(f"{path}/batches", json={"insert": [["gone", "a"], ["b", "gone"]]})
        receipt = on.http.post(f"{path}/batches", json={"remove": ["gone"]}).json()
        assert (receipt["removed"], receipt["removed_edges"]) == (1, 2)
    bound = (
        sharded.http.get(PATH).json()["error_bound"] + server.http.get(one).json()["error_bound"]
    )
    ours, theirs = (
        {each["vertex"]: each["rank"] for each in on.http.get(f"{path}/top?k=9").json()["ranks"]}
        for path, on in ((PATH, sharded), (one, server))
    )
    assert set(ours) == set(theirs) == {"a", "b", "c", "d", "lone"}
    assert sum(abs(ours[key] - theirs[key]) for key in ours) <= bound
    assert sharded.http.get(f"{PATH}/ranks/b").json()["rank"] == ours["b"]
    assert sharded.http.get(f"{PATH}/ranks").status_code == 200


def test_new_lists_and_parts_of_ranks_are_those_of_one_device(
    sharded: Server, server: Server
) -> None:
    one = server.new_graph()
    lists: list[Any] = [{"a": ["c", "d", "b"], "d": []}, {"a": ["b"], "d": ["a"]}]
    counts: list[Any] = []
    parts: list[Any] = []
    for path, on in ((PATH, sharded), (one, server)):
        on.http.post(f"{path}/batches", json={"insert": EDGES[:4], "vertices": ["lone"]})
        for new in lists:
            receipt = on.http.post(f"{path}/batches", json={"replace": new}).json()
            counts.append([receipt[name] for name in ("inserted", "already_present", "deleted")])
            found = [on.http.get(f"{path}/explain/{v}?k=1").json() for v in ("a", "c", "d", "lone")]
            parts.append(found)
    assert counts[:2] == counts[2:] == [[2, 1, 1], [1, 1, 2]]
    for ours, theirs in zip(parts[:2], parts[2:], strict=True):
        for found, expected in zip(ours, theirs, strict=True):
            bound = found["error_bound"] + expected["error_bound"]
            assert found["degree"] == expected["degree"]
            for name in ("rank", "teleport", "rest"):
                assert abs(found[name] - expected[name]) <= bound
            given = sum(each["contribution"] for each in found["contributions"])
            assert abs(found["teleport"] + given + found["rest"] - found["rank"]) <= bound


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


def test_personalized_queries_are_those_of_one_device(sharded: Server, server: Server) -> None:
    one = server.new_graph()
    server.http.post(f"{one}/batches", json={"insert": EDGES[:4], "vertices": ["lone"]})
    ours, theirs = (
        on.http.post(f"{path}/personalized?timeout=60", json={"queries": QUERIES}).json()["answers"]
        for path, on in ((PATH, sharded), (one, server))
    )
    for found, expected in zip(ours, theirs, strict=True):
        assert found["ignored"] == expected["ignored"]
        bound = found["error_bound"] + expected["error_bound"]
        places, others = (
            {each["vertex"]: each["rank"] for each in answer["ranks"]}
            for answer in (found, expected)
        )
        keys = places.keys() | others.keys()  # those of rank 0 are left out
        assert sum(abs(places.get(key, 0.0) - others.get(key, 0.0)) for key in keys) <= bound
    assert ours[1]["trace"]["steps"][0]["kind"] == "sweep"
    answer = sharded.http.get(f"{PATH}/personalized/a?k=9&damping=0.5&timeout=60").json()
    for one_of, again in zip(ours[0]["ranks"], answer["ranks"], strict=True):
        assert again["vertex"] == one_of["vertex"]
        assert again["rank"] == pytest.approx(one_of["rank"], abs=2 * answer["error_bound"])
    problem = sharded.http.get(f"{PATH}/personalized/nobody").json()
    assert problem["type"] == "urn:liverank:problem:unknown-vertex"


def test_views_are_those_of_one_device(sharded: Server, server: Server) -> None:
    one = server.new_graph()
    views: dict[str, dict[str, Any]] = {
        "all": {"teleport": "uniform", "target_error": 1e-5},
        "some": {"teleport": {"weights": {"a": 1.0, "new": 2.0}}, "unknown": "ignore"},
        "inside": {"teleport": {"weights": {"a": 1.0}}, "within": "mine"},
        "against": {"teleport": {"set": "mine"}, "direction": "reversed", "refresh": "read"},
    }

    def assert_same() -> None:
        for name in views:
            found, expected = (
                on.http.get(f"{path}/top?k=9&view={name}").json()
                for path, on in ((PATH, sharded), (one, server))
            )
            bound = found["error_bound"] + expected["error_bound"]
            assert found["error_bound"] <= views[name].get("target_error", 1e-6)
            ranks, others = (
                {each["vertex"]: each["rank"] for each in answer["ranks"]}
                for answer in (found, expected)
            )
            assert ranks.keys() == others.keys()
            assert sum(abs(ranks[key] - others[key]) for key in ranks) <= bound
            assert found["settled"] > 0
            parts, others = (
                on.http.get(f"{path}/explain/a?view={name}").json()
                for path, on in ((PATH, sharded), (one, server))
            )
            assert parts["degree"] == others["degree"]
            for part in ("rank", "teleport", "rest"):
                assert abs(parts[part] - others[part]) <= bound

    for path, on in ((PATH, sharded), (one, server)):
        body: dict[str, Any] = {"insert": EDGES[:4], "vertices": ["lone"]}
        on.http.post(f"{path}/batches", json=body).raise_for_status()
        on.http.put(f"{path}/sets/mine", json={"vertices": ["a", "b"]}).raise_for_status()
        for name, view in views.items():
            answer = on.http.put(f"{path}/views/{name}?timeout=60", json=view)
            assert answer.status_code == 201, answer.text
    assert_same()
    for change in (
        {"insert": [["new", "b"], ["c", "new"]], "sets": {"mine": {"add": ["c"]}}},
        {"remove": ["new"]},
    ):
        for path, on in ((PATH, sharded), (one, server)):
            receipt = on.http.post(f"{path}/batches", json=change).json()
            assert receipt["views"].keys() == views.keys()
        assert_same()
    ranks = sharded.http.get(f"{PATH}/ranks?view=all", headers={"accept": "text/csv"}).text
    assert len(ranks.splitlines()) == 6
    for name in views:
        assert sharded.http.delete(f"{PATH}/views/{name}").status_code == 204
        assert sharded.http.get(f"{PATH}/views/{name}").status_code == 404


def test_watched_queries_are_those_of_one_device(sharded: Server, server: Server) -> None:
    one = server.new_graph()
    for path, on in ((PATH, sharded), (one, server)):
        body: dict[str, Any] = {"insert": EDGES[:4], "vertices": ["lone"]}
        on.http.post(f"{path}/batches", json=body).raise_for_status()
    queries = {
        "all": {"seeds": {"a": 1.0}, "k": 9, "damping": 0.5},
        "some": {"seeds": {"d": 1.0}, "k": 2, "among": ["b", "c"], "damping": 0.5},
        "late": {"seeds": {"new": 1.0}, "unknown": "ignore", "damping": 0.5},
    }

    def assert_same() -> None:
        for name in queries:
            found, expected = (
                on.http.get(f"{path}/watched/{name}").json()
                for path, on in ((PATH, sharded), (one, server))
            )
            assert found["ignored"] == expected["ignored"]
            bound = found["error_bound"] + expected["error_bound"]
            places, others = (
                {each["vertex"]: each["rank"] for each in answer["ranks"]}
                for answer in (found, expected)
            )
            assert places.keys() == others.keys()
            assert sum(abs(places[key] - others[key]) for key in places) <= bound
            assert found["version"] == sharded.http.get(PATH).json()["version"]

    for path, on in ((PATH, sharded), (one, server)):
        for name, query in queries.items():
            answer = on.http.put(f"{path}/watched/{name}?timeout=60", json=query)
            assert answer.status_code == 201, answer.text
    assert_same()
    for change in ({"insert": [["new", "b"], ["c", "new"]]}, {"remove": ["new"]}):
        for path, on in ((PATH, sharded), (one, server)):
            receipt = on.http.post(f"{path}/batches", json=change).json()
            assert 0.0 < receipt["seconds"]["watched"] < receipt["seconds"]["total"]
        assert_same()
    for name in queries:
        assert sharded.http.delete(f"{PATH}/watched/{name}").status_code == 204
        assert sharded.http.get(f"{PATH}/watched/{name}").status_code == 404


def test_edges_are_those_of_one_device(sharded: Server, server: Server) -> None:
    one = server.new_graph()
    server.http.post(f"{one}/batches", json={"insert": EDGES[:4], "vertices": ["lone"]})
    lines, expected = (
        on.http.get(f"{path}/edges", headers={"accept": "text/csv"}).text.splitlines()
        for path, on in ((PATH, sharded), (one, server))
    )
    assert lines[0] == expected[0]
    assert len(lines) == 5
    assert sorted(lines) == sorted(expected)
    for call in ("neighbors/a?direction=in", "neighbors/a?direction=in&limit=1", "neighbors/lone"):
        ours, theirs = (
            on.http.get(f"{path}/{call}").json() for path, on in ((PATH, sharded), (one, server))
        )
        assert ours["degree"] == theirs["degree"]
        if "limit" not in call:
            assert sorted(map(str, ours["neighbors"])) == sorted(map(str, theirs["neighbors"]))
        assert len(ours["neighbors"]) == len(theirs["neighbors"])
    ours, theirs = (
        on.http.post(f"{path}/subgraph", json={"vertices": ["a", "b", "d", "x"]}).json()
        for path, on in ((PATH, sharded), (one, server))
    )
    assert sorted(ours["edges"]) == sorted(theirs["edges"]) == [["a", "b"], ["d", "a"]]
    assert ours["unknown"] == ["x"]


def test_edges_leave_a_window_as_on_one_device(sharded: Server, server: Server) -> None:
    options = {"window": 5.0, "clock": "event", "forget_vertices": True}
    one = server.new_graph(**options)
    created = sharded.http.put("/graphs/windowed", json=options)
    assert created.status_code == 201, created.text
    assert created.json()["options"]["window"] == 5.0
    rows = [["a", "b", None, 1.0], ["b", "c", None, 4.0], ["c", "b", None, 7.0]]
    told = []
    for path, on in (("/graphs/windowed", sharded), (one, server)):
        for row in rows:
            on.http.post(f"{path}/batches", json={"insert": [row]}).raise_for_status()
        document = on.http.get(path).json()
        assert document["memory"]["times"] > 0
        receipts = [on.http.get(f"{path}/batches/{version}").json() for version in range(1, 6)]
        assert [each["expired"] for each in receipts] == [0, 0, 0, 1, 0]
        assert (receipts[4]["removed"], receipts[4]["version"]) == (1, document["version"])
        top = on.http.get(f"{path}/top").json()["ranks"]
        told.append((document["edges"], {each["vertex"]: each["rank"] for each in top}))
    assert told[0][0] == told[1][0] == 2
    assert told[0][1] == pytest.approx(told[1][1], abs=2e-6)
    assert set(told[0][1]) == {"b", "c"}
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
    [("triangles", {}, "analysis"), ("levels", {"mode": "asynchronous"}, "mode")],
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
    assert "does not work with shards" in problem["detail"]
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


def process_of_a_worker(server: Server) -> int:
    """Of shard 1."""
    workers: Any = server.catalog.get("default").pipeline.shards._workers
    assert workers.started is not None
    workers = workers.started
    processes: dict[str, int] = workers._client.run(os.getpid)
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
