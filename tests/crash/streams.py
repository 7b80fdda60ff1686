"""Clients of a server that is killed, whose state is known at any moment."""

from __future__ import annotations

import json
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple, Self

import httpx
import numpy as np

from liverank_gpu.verify import pagerank
from liverank_service.storage.graph_store import GraphStore
from tests.service.pipeline.windows import SECONDS, Model

GRAPH, WEIGHTED, WINDOWED = "/graphs/default", "/graphs/weighted", "/graphs/windowed"
HALF_LIFE = 100.0
VERTICES = 200
PATIENCE = 180.0
"""Seconds until what failed for a moment must succeed."""

REPEATED = 20
"""Of the requests before the previous comparison, this many are sent again; of later ones, all."""

DELAYS = ("not-ready", "storage-failed", "storage-full", "outcome-delayed", "ranking-delayed",
          "expiry-failed", "shard-lost")  # fmt: skip
"""Problems after which the same request is sent again."""

TOLD = ("version", "inserted", "already_present", "reweighted", "lowered", "deleted", "not_found",
        "new_vertices", "removed", "removed_edges")  # fmt: skip
"""What a receipt says of its batch, whenever it is written."""


class Request(NamedTuple):
    method: str
    path: str
    body: Any = None
    parameters: Mapping[str, str] = MappingProxyType({})
    key: str | None = None


class Answer(NamedTuple):
    """moment: nanoseconds of the monotonic clock, after it arrived first. read: after these bytes
    arrived first; None: another answer may differ in what is measured.
    """

    moment: int
    body: bytes
    is_rejected: bool
    read: int | None


class State(NamedTuple):
    """edges: with their weights, as if inserted at time 0. members: of the client's set."""

    edges: Mapping[tuple[str, str], float] = MappingProxyType({})
    seen: frozenset[str] = frozenset()
    members: frozenset[str] = frozenset()


@dataclass
class Client:
    """Sends one request after the other until the server has ended, and each again until it has an
    answer. It may send one again at any time: nothing is done twice.

    sent    requests, when they were sent, and what the server has after each, unless it is rejected
    answers by number of the request
    forgotten  how many of them were sent longer ago than idempotency keys are kept
    """

    name: str
    choose: random.Random
    initial: Any = None
    sent: list[tuple[Request, int, Any]] = field(default_factory=list)
    answers: dict[int, Answer] = field(default_factory=dict)
    compared: int = 0
    forgotten: int = 0

    @property
    def state(self) -> Any:
        """That after the last request."""
        done = (
            state
            for number, (*_, state) in reversed(list(enumerate(self.sent)))
            if number not in self.answers or not self.answers[number].is_rejected
        )
        return next(done, self.initial)

    def next(self) -> tuple[Request, Any]:
        """A request, and the state after it."""
        raise NotImplementedError

    def begin(self, http: httpx.Client) -> None:
        """Makes what the requests need."""

    def as_of(self, moment: int, loses: bool) -> Self:
        """The client if the server had ended at a moment of the past.

        loses  receipts that were not synced, which recovery writes again
        """
        kept = sum(sent <= moment for _, sent, _ in self.sent)
        answers = {
            number: answer
            if answer.read is not None and answer.read <= moment and not loses
            else answer._replace(read=None)
            for number, answer in self.answers.items()
            if answer.moment <= moment
        }
        return replace(
            self, sent=self.sent[:kept], answers=answers, compared=min(self.compared, kept)
        )

    def run(self, url: str, stop: threading.Event) -> None:
        """Sends at least one request. Returns when the server has ended, or at `stop`; the last one
        may have no answer.
        """
        with httpx.Client(base_url=url, timeout=PATIENCE) as http:
            try:
                self.begin(http)
                self.settle(http)
                while True:
                    request, state = self.next()
                    self.sent.append((request, time.monotonic_ns(), state))
                    self.settle(http)
                    if stop.is_set():
                        return
            except httpx.TransportError:
                return

    def settle(self, http: httpx.Client) -> None:
        """Sends the last request again if it has no answer. The state is then known: it was
        committed before the server ended, or is done now.
        """
        last = len(self.sent) - 1
        if last < 0 or last in self.answers:
            return
        answer = insist(http, self.sent[last][0])
        now = time.monotonic_ns()
        self.answers[last] = Answer(now, answer.content, answer.status_code == 507, now)

    def repeat(self, http: httpx.Client, everything: bool) -> int:
        """Sends requests again, and compares the answers. Returns how many."""
        old = range(self.forgotten, self.compared)
        chosen = old if everything else self.choose.sample(old, min(REPEATED, len(old)))
        again = [*chosen, *range(self.compared, len(self.sent))]
        for number in again:
            request, before = self.sent[number][0], self.answers[number]
            body = insist(http, request).content
            if before.read is not None:
                assert body == before.body, (request, body, before.body)
            else:
                found, expected = json.loads(body), json.loads(before.body)
                assert [found.get(name) for name in TOLD] == [
                    expected.get(name) for name in TOLD
                ], (request, found, expected)
                self.answers[number] = before._replace(body=body, read=time.monotonic_ns())
        self.compared = len(self.sent)
        return len(again)


def insist(http: httpx.Client, request: Request, until: str | None = None) -> httpx.Response:
    """The answer to a request that is repeated while a fault lasts, or until there is a member of
    this name in a problem.
    """
    deadline = time.monotonic() + PATIENCE
    headers = {} if request.key is None else {"Idempotency-Key": request.key}
    while True:
        answer = http.request(
            request.method,
            request.path,
            params=request.parameters,
            json=request.body,
            headers=headers,
        )
        document = answer.json() if answer.content else {}
        if until in document:
            return answer
        problem = document.get("type", "")
        if not problem.endswith(DELAYS):
            is_rejected = answer.status_code == 507 and "version" in document
            is_gone = answer.status_code == 404 and request.method in ("GET", "DELETE")
            assert answer.is_success or is_rejected or is_gone, (request, answer.text)
            return answer
        assert time.monotonic() < deadline, answer.text
        time.sleep(0.01)


@dataclass
class Stream(Client):
    """Random batches. Vertex keys contain the name of the client, so clients do not change each
    other's edges, and each has a set of its own. The weights of a weighted graph decay; they are
    multiples of 1/16, inserted within a few half-lives, so that their sums are exact.

    wait      for the ranks, or for the commit
    weighted  whether edges have weights, which may be added to, and taken away
    """

    wait: str = "ranked"
    initial: State = field(default_factory=State)
    graph: str = GRAPH
    weighted: bool = False

    @property
    def _set(self) -> str:
        return f"{self.graph}/sets/{self.name}"

    def begin(self, http: httpx.Client) -> None:
        if self.graph == WEIGHTED:
            options = {"half_life": HALF_LIFE, "clock": "event"}
            insist(http, Request("PUT", self.graph, options))
        if insist(http, Request("GET", self._set)).status_code == 404:
            # the only batch that has no idempotency key, so it is not sent again once committed
            insist(http, Request("PUT", self._set, {"vertices": []}), until="version")

    def members(self, http: httpx.Client) -> set[str] | None:
        """Those on the server; None if there is no such set."""
        answer = http.get(self._set)
        assert answer.status_code in (200, 404), answer.text
        return set(answer.json()["vertices"]) if answer.status_code == 200 else None

    def next(self) -> tuple[Request, State]:
        choose, before = self.choose, self.state
        removed = choose.sample(sorted(before.seen), min(2, len(before.seen)))
        removed *= choose.random() < 0.3
        deleted = choose.sample(sorted(before.edges), min(3, len(before.edges)))
        inserted = [
            (f"{self.name}{choose.randrange(VERTICES)}", f"{self.name}{choose.randrange(VERTICES)}")
            for _ in range(choose.randrange(1, 12))
        ]
        replaced: dict[str, list[str]] = {}
        if choose.random() < 0.3:
            numbers = choose.sample(range(VERTICES), choose.randrange(1, 6))
            vertex, *targets = (f"{self.name}{number}" for number in numbers)
            replaced[vertex] = targets
            deleted = [edge for edge in deleted if edge[0] not in replaced]
            inserted = [edge for edge in inserted if edge[0] not in replaced]
        added = {key for edge in inserted[:1] for key in edge if choose.random() < 0.3}
        left = set(choose.sample(sorted(before.members), len(before.members) // 8))
        batch: dict[str, Any] = {
            "remove": removed,
            "delete": deleted,
            "insert": inserted,
            "sets": {self.name: {"add": sorted(added), "remove": sorted(left)}},
        }
        listed = [(vertex, target) for vertex, targets in replaced.items() for target in targets]
        rows = [(edge, 1.0, 0) for edge in (*inserted, *listed)]
        adds, taken, sent = False, dict[tuple[str, str], float](), list[tuple[Any, ...]]()
        if self.weighted:
            ages = 4 if self.graph == WEIGHTED else 1
            rows = [
                (edge, choose.randrange(1, 1600) / 16, choose.randrange(ages)) for edge, *_ in rows
            ]
            sent = [self._row(*row) for row in rows]
            batch["insert"] = sent[: len(inserted)]
            adds = choose.random() < 0.5
            if adds and not replaced and choose.random() < 0.5:
                taken = {
                    edge: before.edges[edge] - (choose.random() < 0.7) * choose.randrange(1, 8) / 16
                    for edge in deleted
                }
                taken = {edge: weight for edge, weight in taken.items() if weight > 0.0}
                deleted = list(taken)
                batch["delete"] = [self._row(edge, weight, 0) for edge, weight in taken.items()]
            else:
                batch["delete"] = deleted
        if replaced:
            (vertex,) = replaced
            with_weights = [row[1:] for row in sent[len(inserted) :]]
            batch["replace"] = {vertex: with_weights or replaced[vertex]}
        edges = {
            edge: weight - taken.get(edge, weight if edge in deleted else 0.0)
            for edge, weight in before.edges.items()
            if edge[0] not in replaced and not set(edge) & set(removed)
        }
        edges = {edge: weight for edge, weight in edges.items() if weight > 0.0}
        for edge, weight, age in rows:
            edges[edge] = weight * 2**age + (edges.get(edge, 0.0) if adds else 0.0)
        seen = (before.seen - set(removed)) | {key for edge, *_ in rows for key in edge}
        members = (before.members - set(removed) - left) | added
        parameters = {"wait": self.wait} | ({"on_conflict": "add"} if adds else {})
        request = Request(
            "POST",
            f"{self.graph}/batches",
            batch,
            parameters,
            f"{self.name} {len(self.sent)}",
        )
        return request, State(edges, frozenset(seen), frozenset(members))

    def _row(self, edge: tuple[str, str], weight: float, age: int) -> tuple[Any, ...]:
        """An edge with what it has in the graph. age: of its time, in half-lives"""
        return (*edge, weight, HALF_LIFE * age) if self.graph == WEIGHTED else (*edge, weight)


@dataclass
class Windowed(Client):
    """Batches with times, the only ones of a graph whose edges leave by the event clock."""

    def __post_init__(self) -> None:
        self.initial = Model(forgets=True)

    def begin(self, http: httpx.Client) -> None:
        options = {"window": SECONDS, "clock": "event", "weighted": True, "forget_vertices": True}
        insist(http, Request("PUT", WINDOWED, options))

    def next(self) -> tuple[Request, Model]:
        choose, now = self.choose, 1_000.0 + len(self.sent) / 2
        keys = [f"w{choose.randrange(12)}" for _ in range(12)]
        insert = [
            (*pair, now - choose.choice([0.0, 0.5, 3.0, 7.0]))
            for pair in zip(keys[: choose.randrange(6)], keys[6:], strict=False)
        ]
        delete = [(keys[1], keys[0])] * (choose.random() < 0.5)
        rows = [(source, target, 1.0, at) for source, target, at in insert]
        batch = {"insert": rows, "delete": delete}
        model = replace(self.state, vertices=set(self.state.vertices))
        model.edges = dict(model.edges)
        model.apply_by_event(insert, delete)
        return Request("POST", f"{WINDOWED}/batches", batch, key=f"w {len(self.sent)}"), model

    def compare(self, http: httpx.Client, _: Path) -> None:
        """Asserts that what is too old has left, and nothing else."""
        deadline = time.monotonic() + PATIENCE
        while (found := edges_of(http, WINDOWED).keys()) != self.state.edges.keys():
            assert time.monotonic() < deadline, sorted(found ^ self.state.edges.keys())
            time.sleep(0.02)
        assert http.get(WINDOWED).json()["vertices"] == len(self.state.vertices)


@dataclass
class Graphs(Client):
    """Creates and drops graphs: each with a damping factor and an edge of its own."""

    initial: Any = ()

    def next(self) -> tuple[Request, tuple[int, ...]]:
        number, step = divmod(len(self.sent), 3)
        path = f"/graphs/graph-{number}"
        if step == 0:
            return Request("PUT", path, {"damping": self._damping(number)}), (*self.state, number)
        if step == 1:
            batch = {"insert": [["a", f"b{number}"]]}
            return Request("POST", f"{path}/batches", batch, key=path), self.state
        dropped = self.state[: max(0, len(self.state) - 2)]
        if not dropped:
            return Request("GET", path), self.state
        return Request("DELETE", f"/graphs/graph-{dropped[0]}"), self.state[len(dropped) :]

    @staticmethod
    def _damping(number: int) -> float:
        return (1 + number % 9) / 10

    def repeat(self, _: httpx.Client, everything: bool) -> int:  # noqa: ARG002
        """What is created and dropped again is not done twice, but otherwise."""
        return 0

    def compare(self, http: httpx.Client, data: Path) -> None:
        found = {graph["graph"]: graph for graph in http.get("/graphs").json()["graphs"]}
        left = {path.name for path in (data / "graphs").iterdir()}
        assert left == set(found), left
        own = {name: graph for name, graph in found.items() if name.startswith("graph-")}
        assert own.keys() == {f"graph-{number}" for number in self.state}
        for number in self.state:
            graph = own[f"graph-{number}"]
            assert graph["options"]["damping"] == self._damping(number)
            filled = self.answers.get(3 * number + 1)  # it may have been rejected
            inserted = 0 if filled is None else json.loads(filled.body).get("inserted", 0)
            assert (graph["version"], graph["edges"]) == (filled is not None, inserted), graph


@dataclass
class Views(Client):
    """Puts and removes views of the first graph: each with a damping factor."""

    def __post_init__(self) -> None:
        self.initial = {}

    def next(self) -> tuple[Request, dict[str, float]]:
        name, damping = f"view-{self.choose.randrange(3)}", self.choose.randrange(1, 9) / 10
        path, before = f"{GRAPH}/views/{name}", self.state
        if name in before and self.choose.random() < 0.4:
            return Request("DELETE", path), {k: each for k, each in before.items() if k != name}
        body = {"teleport": "uniform", "damping": damping, "refresh": "read"}
        return Request("PUT", path, body), {**before, name: damping}

    def repeat(self, _: httpx.Client, everything: bool) -> int:  # noqa: ARG002
        """What is put and removed again is not done twice, but otherwise."""
        return 0

    def compare(self, http: httpx.Client, _: Path) -> None:
        found = http.get(f"{GRAPH}/views").json()["views"]
        assert {view["name"]: view["damping"] for view in found} == self.state


def streams(
    seed: int, graph: str = GRAPH, *, durable: bool = False, weighted: bool = False
) -> list[Stream]:
    """Three clients of one graph. durable: one of them does not wait for ranks"""
    return [
        Stream(
            name,
            random.Random(f"{seed} {graph} {name}"),
            wait="durable" if durable and name == "c" else "ranked",
            graph=graph,
            weighted=weighted,
        )
        for name in "abc"
    ]


def create_weighted(data: Path) -> None:
    """A data directory whose graph GRAPH has weights, which do not decay: a batch that counts twice
    changes one, and graphs in shards can have them. Every sweep exchanges messages.
    """
    store = GraphStore(data)
    store.open()
    store.create(GRAPH.rpartition("/")[-1], {"weighted": True, "damping": 0.3})
    store.close()


def run_together(
    url: str, seconds: float, work: Sequence[Callable[[str, threading.Event], None]]
) -> None:
    """Works until the time is over, or something has failed. Raises what a thread raises."""
    stop = threading.Event()
    with ThreadPoolExecutor(len(work)) as threads:
        running = [threads.submit(function, url, stop) for function in work]
        wait(running, seconds, FIRST_EXCEPTION)
        stop.set()
    for each in running:
        each.result()


def compare(http: httpx.Client, sending: Sequence[Stream], everything: bool) -> int:
    """Asserts: nothing lost or applied twice, the graph that of the model, the bound valid.
    Returns how many batches were sent again.

    sending  the streams of one graph
    """
    (graph,) = {stream.graph for stream in sending}
    newest = max((json.loads(each.body)["version"] for each in _answers(sending)), default=0)
    answer = http.get(f"{graph}/top", params={"min_version": newest, "timeout": 60})
    assert answer.status_code == 200, answer.text
    sets = [stream.members(http) for stream in sending]
    for found, stream in zip(sets, sending, strict=True):
        assert (found or set()) == stream.state.members, stream.name
    repeated = sum(stream.repeat(http, everything) for stream in sending)
    info = http.get(graph).json()
    acknowledged = len(list(_answers(sending))) + sum(found is not None for found in sets)
    assert info["version"] == acknowledged, "lost" if info["version"] < acknowledged else "twice"
    edges = {edge: weight for stream in sending for edge, weight in stream.state.edges.items()}
    seen = sorted(frozenset().union(*(stream.state.seen for stream in sending)))
    stored = edges_of(http, graph)
    assert stored.keys() == edges.keys(), sorted(stored.keys() ^ edges.keys())
    assert graph == WEIGHTED or stored == edges
    assert info["vertices"] == len(seen), (info, seen)
    if seen:
        _compare_ranks(http, graph, edges, seen, info["options"]["damping"])
    return repeated


def _answers(sending: Sequence[Stream]) -> Iterator[Answer]:
    return (answer for stream in sending for answer in stream.answers.values())


def edges_of(http: httpx.Client, graph: str) -> dict[tuple[str, str], float]:
    """Those on the server, with their weights."""
    answer = http.get(f"{graph}/edges", headers={"Accept": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text
    rows = map(json.loads, answer.text.splitlines())
    return {(row["source"], row["target"]): row.get("weight", 1.0) for row in rows}


def _compare_ranks(
    http: httpx.Client,
    graph: str,
    edges: dict[tuple[str, str], float],
    seen: list[str],
    damping: float,
) -> None:
    place = {key: number for number, key in enumerate(seen)}
    sources = np.array([place[source] for source, _ in edges], np.int64)
    targets = np.array([place[target] for _, target in edges], np.int64)
    weights = np.array(list(edges.values()))
    exact, slack = pagerank(sources, targets, len(seen), damping, "uniform", weights=weights)
    answer = http.post(f"{graph}/ranks", json={"vertices": seen}).json()
    error = np.abs(np.array(answer["ranks"], np.float64) - exact).sum()
    assert error <= answer["error_bound"] + slack
    assert answer["error_bound"] <= 1e-6
