"""Graphs with a half-life or a window over HTTP: options, ranks, receipts, and what is refused."""

from __future__ import annotations

import random
import time
from types import SimpleNamespace
from typing import Any

import networkx as nx
import orjson
import pytest

from liverank import Client
from liverank_service.http.routes import batches
from liverank_service.http.schemas import GraphInfo, Receipt
from liverank_service.pipeline import expiry
from tests.service.pipeline.windows import RunningClock
from tests.service.server import Server, wait_for

HALF_LIFE = 100.0

Timed = tuple[str, str, float, float]


def edges(seed: int, count: int = 250, vertices: int = 40) -> list[Timed]:
    """Distinct edges with weights and times over six half-lives, in order of time."""
    generator = random.Random(seed)
    pairs = {
        (f"v{generator.randrange(vertices)}", f"v{generator.randrange(vertices)}"): None
        for _ in range(count)
    }
    times = sorted(generator.uniform(0, 6 * HALF_LIFE) for _ in pairs)
    return [(*pair, generator.uniform(0.1, 9.0), at) for pair, at in zip(pairs, times, strict=True)]


def expected_ranks(present: list[Timed], directed: bool) -> dict[str, float]:
    now = max(at for *_, at in present)
    graph = nx.DiGraph() if directed else nx.Graph()
    graph.add_weighted_edges_from(
        (source, target, weight * 2 ** ((at - now) / HALF_LIFE))
        for source, target, weight, at in present
    )
    ranks: dict[str, float] = nx.pagerank(graph, weight="weight", tol=1e-12, max_iter=1000)
    return ranks


def assert_ranked(server: Server, path: str, present: list[Timed], directed: bool = True) -> None:
    found, expected = server.ranks(path), expected_ranks(present, directed)
    assert found.keys() == expected.keys()
    # weights are rounded to float32
    assert sum(abs(found[key] - expected[key]) for key in found) < 1e-6


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("clock", ["wall", "event"])
def test_weights_decay_as_in_networkx_with_weights_that_do(
    server: Server, clock: str, directed: bool
) -> None:
    path = server.new_graph(half_life=HALF_LIFE, clock=clock, directed=directed, target_error=1e-9)
    sent = edges(5)
    present: dict[tuple[str, str], Timed] = {}

    def key(edge: Timed) -> tuple[str, str]:
        return edge[:2] if directed else (min(edge[:2]), max(edge[:2]))

    for first in range(0, len(sent), 60):
        part = sent[first : first + 60]
        server.post(path, json={"insert": part})
        present |= {key(edge): edge for edge in part}
        assert_ranked(server, path, list(present.values()), directed)
    again = [(source, target, 2.0, at + 900.0) for source, target, _, at in sent[:40]]
    receipt = server.post(path, json={"insert": again, "delete": [sent[50][:2]]})
    del present[key(sent[50])]
    present |= {key(edge): edge for edge in again}
    assert receipt["deleted"] == 1
    assert_ranked(server, path, list(present.values()), directed)


def test_an_edge_a_hundred_half_lives_old_leaves_as_expired(server: Server) -> None:
    path = server.new_graph(half_life=1.0, clock="event")
    server.post(path, json={"insert": [["a", "b", 1, 0], ["b", "a", 1, 0]]})
    receipt = server.post(path, json={"insert": [["a", "c", 1, 500], ["a", "d", 1, 3]]})
    assert (receipt["inserted"], receipt["already_present"], receipt["expired"]) == (1, 1, 2)
    assert server.http.get(path).json()["edges"] == 2


def test_edges_without_a_time_arrive_now(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    path = server.new_graph(half_life=HALF_LIFE, target_error=1e-9)
    for at, target in ((1_000.0, "b"), (1_000.0 + 2 * HALF_LIFE, "c")):
        monkeypatch.setattr(batches, "time", SimpleNamespace(time=lambda at=at: at))
        body = {"insert": [["a", target], [target, "a"]]}
        server.post(path, json=body)
    expected = expected_ranks(
        [("a", "b", 1, 0), ("a", "c", 4, 0), ("b", "a", 1, 0), ("c", "a", 1, 0)], True
    )
    assert server.ranks(path) == pytest.approx(expected, abs=1e-7)


def test_a_window_by_the_wall_clock(server: Server, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = RunningClock(ahead=time.time())
    for module in (batches, expiry):
        monkeypatch.setattr(module, "time", clock)
    path = server.new_graph(window=60, target_error=1e-9)
    server.post(path, json={"insert": [["a", "b"], ["b", "c"]]})
    clock.passed += 40
    renewed = server.post(path, json={"insert": [["a", "b"], ["c", "a"]]})
    assert (renewed["already_present"], renewed["inserted"]) == (1, 1)
    assert server.http.get(path).json()["edges"] == 3
    clock.passed += 30
    wait_for(lambda: server.http.get(path).json()["edges"] == 2)
    info = server.http.get(path).json()
    assert info["memory"]["times"] > 0
    assert info["vertices"] == 3
    expired = server.http.get(f"{path}/batches/{info['version']}")
    Receipt.model_validate_json(expired.content)
    assert (expired.json()["expired"], expired.json()["deleted"]) == (1, 0)
    metrics = server.http.get("/metrics").text
    name = path.rsplit("/", 1)[1]
    assert f'liverank_edges_total{{change="expired",graph="{name}"}} 1.0' in metrics


def test_the_description_says_why_edges_that_are_too_old_stay(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = RunningClock(ahead=time.time())
    for module in (batches, expiry):
        monkeypatch.setattr(module, "time", clock)
    path = server.new_graph(window=600)
    name = path.rsplit("/", 1)[1]
    line = f'liverank_expiry_delayed{{graph="{name}"}}'
    server.post(path, json={"insert": [["a", "b"], ["b", "c"]]})
    assert "expiry_delay" not in server.http.get(path).json()
    assert f"{line} 0.0" in server.http.get("/metrics").text
    clock.ahead += 3600
    wait_for(lambda: "expiry_delay" in server.http.get(path).json())
    delay = GraphInfo.model_validate_json(server.http.get(path).content).expiry_delay
    assert delay is not None
    assert delay.reason.startswith("2 of 2 edges are too old")
    assert f"{line} 1.0" in server.http.get("/metrics").text
    with Client(str(server.http.base_url)) as client:
        described = client.graph(name).expiry_delay
        assert described is not None
        assert (described.reason, described.since) == (delay.reason, delay.since)
    clock.ahead -= 3600
    wait_for(lambda: "expiry_delay" not in server.http.get(path).json())
    assert server.http.get(path).json()["edges"] == 2


def test_a_window_by_the_event_clock(server: Server) -> None:
    path = server.new_graph(window=60, clock="event", keys="integer")
    server.post(path, json={"insert": [[1, 2, None, 0], [2, 3, None, 30]]})
    columns = {"source": [3], "target": [1], "time": [70]}
    receipt = server.post(path, json={"insert": columns})
    assert (receipt["version"], receipt["inserted"], receipt["expired"]) == (2, 1, 0)
    expired = server.http.get(f"{path}/batches/3").json()
    assert (expired["expired"], expired["deleted"], expired["inserted"]) == (1, 0, 0)
    found = server.http.get(f"{path}/edges", headers={"Accept": "text/csv"}).text
    assert sorted(found.split()[1:]) == ["2,3", "3,1"]


def test_decay_and_a_window_together(server: Server) -> None:
    path = server.new_graph(window=1000, half_life=1.0, clock="event")
    server.post(path, json={"insert": [["a", "b", 1, 0], ["b", "a", 1, 0]]})
    decayed = server.post(path, json={"insert": [["a", "c", 1, 500]]})
    assert decayed["expired"] == 1
    receipt = server.post(path, json={"insert": [["a", "d", 1, 1200]]})
    aged = server.http.get(f"{path}/batches/{receipt['version'] - 1}").json()
    # a → b had decayed before
    assert (aged["expired"], aged["deleted"], aged["not_found"]) == (1, 0, 0)
    assert server.http.get(path).json()["edges"] == 1


def test_a_graph_says_how_its_edges_age(server: Server) -> None:
    options = {"half_life": 60.0, "window": 3600.0, "clock": "event"}
    path = server.new_graph(**options)
    info = server.http.get(path)
    GraphInfo.model_validate_json(info.content)
    found = info.json()["options"]
    assert {name: found[name] for name in options} == options
    assert (found["weighted"], found["forget_vertices"]) == (True, False)
    assert server.http.put(path, json=options).status_code == 200
    assert server.http.put(path, json={"window": 3600}).status_code == 200
    other = server.http.put(path, json={"window": 60})
    assert (other.status_code, other.json()["field"]) == (409, "window")


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"half_life": 0}, "half_life"),
        ({"half_life": -1.0}, "half_life"),
        ({"half_life": "1h"}, "half_life"),
        ({"half_life": True}, "half_life"),
        ({"half_life": 60, "dangling": "self-loop"}, "dangling"),
        ({"half_life": 60, "weighted": False}, "weighted"),
        ({"window": 0}, "window"),
        ({"window": -3600}, "window"),
        ({"window": "1h"}, "window"),
        ({"clock": "event"}, "clock"),
        ({"clock": "sun", "window": 60}, "clock"),
        ({"forget_vertices": True}, "forget_vertices"),
        ({"forget_vertices": True, "half_life": 60}, "forget_vertices"),
        ({"forget_vertices": 1, "window": 60}, "forget_vertices"),
        ({"max_time_ahead": 60}, "max_time_ahead"),
        ({"max_time_ahead": 0, "window": 60}, "max_time_ahead"),
        ({"max_time_ahead": True, "half_life": 60}, "max_time_ahead"),
    ],
)
def test_wrong_options_are_refused_by_name(
    server: Server, options: dict[str, Any], field: str
) -> None:
    answer = server.http.put("/graphs/wrong-times", json=options)
    assert (answer.status_code, answer.json()["field"]) == (422, field)
    assert server.http.get("/graphs/wrong-times").status_code == 404


def test_refused_times_change_nothing(server: Server) -> None:
    wall = server.new_graph(half_life=60.0)
    event = server.new_graph(window=60.0, clock="event")
    plain = server.new_graph(weighted=True)
    ahead = time.time() + 3600
    columns = {"source": ["a", "b"], "target": ["b", "c"], "time": [0, ahead]}
    for path, body, field, index in (
        (wall, {"insert": [["a", "b", 1, ahead]]}, "insert", 0),
        (wall, {"insert": columns}, "insert.time", 1),
        (wall, {"insert": [["a", "b", 1, "now"]]}, "insert", 0),
        (event, {"insert": [["a", "b"]]}, "time", None),
        (event, {"insert": [["a", "b", None, time.time() * 1000]]}, "insert", 0),
        (plain, {"insert": [["a", "b", 1, 5]]}, "insert", 0),
    ):  # fmt: skip
        answer = server.http.post(f"{path}/batches", json=body)
        assert answer.status_code == 422, answer.text
        problem = answer.json()
        assert (problem["field"], problem.get("index")) == (field, index)
        assert server.http.get(path).json()["version"] == 0


def test_a_graph_says_how_far_ahead_a_time_may_be(server: Server) -> None:
    """A restart keeps it; another one is refused, and its default is that of the clock."""
    for options, most in (
        ({"window": 60}, 60),
        ({"half_life": 60, "clock": "event"}, 86_400),
        ({"window": 60, "clock": "event", "max_time_ahead": 1e12}, 1e12),
    ):
        path = server.new_graph(**options)
        assert server.http.get(path).json()["options"]["max_time_ahead"] == most
        repeated = server.http.put(path, json={**options, "max_time_ahead": most})
        assert repeated.status_code == 200
        other = server.http.put(path, json={**options, "max_time_ahead": 5})
        assert (other.status_code, other.json()["field"]) == (409, "max_time_ahead")
    far = {"insert": [["a", "b", None, time.time() * 100]]}
    assert server.http.post(f"{path}/batches", json=far).status_code == 200


def test_a_repeat_of_a_batch_that_arrived_earlier_gets_its_receipt(server: Server) -> None:
    path = server.new_graph(window=1e6)
    body = orjson.dumps({"insert": [["a", "b"]]})
    headers = {"Idempotency-Key": "once", "Content-Type": "application/json"}
    first, second = (
        server.http.post(f"{path}/batches", content=body, headers=headers).json() for _ in range(2)
    )
    assert first == second
