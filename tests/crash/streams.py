"""Random batches for a server that is killed, and a model of the state that is expected."""

from __future__ import annotations

import json
import random
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import httpx
import numpy as np

from liverank_gpu.verify import pagerank
from liverank_service.storage.graph_store import GraphStore

GRAPH, WEIGHTED = "/graphs/default", "/graphs/weighted"
HALF_LIFE = 100.0
VERTICES = 200
CHECKED = 20
"""Of the batches before the previous check, this many are sent again at every check; of the later
ones, all.
"""


@dataclass
class Stream:
    """Random batches with idempotency keys, sent one after the other until the server has ended.

    Vertex keys contain the name of the stream, so streams do not change each other's edges, and
    each has a set of its own. The weights of a weighted graph decay; they are multiples of 1/16,
    inserted within a few half-lives, so that their sums are exact.

    edges    the expected ones with their weights, as if inserted at time 0
    seen     the expected vertices
    members  those of the set
    weighted  whether its edges have weights, which may be added to, and taken away
    delayed   answers that a batch is committed, but ranked later
    """

    name: str
    wait: str
    sent: list[dict[str, Any]] = field(default_factory=list)
    answers: dict[int, bytes] = field(default_factory=dict)
    edges: dict[tuple[str, str], float] = field(default_factory=dict)
    seen: set[str] = field(default_factory=set)
    members: set[str] = field(default_factory=set)
    checked: int = 0
    reported: int = 0
    choose: random.Random = field(default_factory=random.Random)
    graph: str = GRAPH
    weighted: bool = False
    delayed: int = 0

    def run(self, url: str, stop: threading.Event) -> None:
        """Sends at least one batch. Returns when the server has ended, or at `stop`; the last batch
        may have no response.
        """
        with httpx.Client(base_url=url, timeout=60) as http:
            try:
                if self.graph == WEIGHTED:
                    options = {"half_life": HALF_LIFE, "clock": "event"}
                    http.put(self.graph, json=options).raise_for_status()
                if http.get(self._set).status_code == 404:
                    # the only batch that has no idempotency key
                    answer = http.put(self._set, json={"vertices": []})
                    if not self._delays(answer):
                        answer.raise_for_status()
                self.settle(http)
                while True:
                    self._next()
                    self.settle(http)
                    if stop.is_set():
                        return
            except httpx.TransportError:
                return

    @property
    def _set(self) -> str:
        return f"{self.graph}/sets/{self.name}"

    def set_of(self, http: httpx.Client) -> set[str] | None:
        """The members on the server; None if there is no such set."""
        answer = http.get(self._set)
        assert answer.status_code in (200, 404), answer.text
        return set(answer.json()["vertices"]) if answer.status_code == 200 else None

    def _next(self) -> None:
        choose = self.choose
        removed = choose.sample(sorted(self.seen), min(2, len(self.seen))) * (choose.random() < 0.3)
        deleted = choose.sample(sorted(self.edges), min(3, len(self.edges)))
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
        left = set(choose.sample(sorted(self.members), len(self.members) // 8))
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
                    edge: self.edges[edge] - (choose.random() < 0.7) * choose.randrange(1, 8) / 16
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
        self.sent.append({"on_conflict": "add", **batch} if adds else batch)
        self.seen.difference_update(removed)
        self.edges = {
            edge: weight - taken.get(edge, weight if edge in deleted else 0.0)
            for edge, weight in self.edges.items()
            if edge[0] not in replaced and not set(edge) & set(removed)
        }
        self.edges = {edge: weight for edge, weight in self.edges.items() if weight > 0.0}
        for edge, weight, age in rows:
            before = self.edges.get(edge, 0.0) if adds else 0.0
            self.edges[edge] = weight * 2**age + before
        self.seen.update(key for edge, *_ in rows for key in edge)
        self.members = (self.members - set(removed) - left) | added

    def _row(self, edge: tuple[str, str], weight: float, age: int) -> tuple[Any, ...]:
        """An edge with what it has in the graph. age: of its time, in half-lives"""
        return (*edge, weight, HALF_LIFE * age) if self.graph == WEIGHTED else (*edge, weight)

    def send(self, http: httpx.Client, number: int) -> httpx.Response:
        batch = dict(self.sent[number])
        conflict = batch.pop("on_conflict", None)
        return http.post(
            f"{self.graph}/batches",
            params={"wait": self.wait} | ({"on_conflict": conflict} if conflict else {}),
            json=batch,
            headers={"Idempotency-Key": f"{self.name} {number}"},
        )

    def settle(self, http: httpx.Client) -> None:
        """Sends the last batch again if it has no response. The expected state is then known: the
        batch was committed before the kill, or is applied now, never twice.
        """
        last = len(self.sent) - 1
        if last >= 0 and last not in self.answers:
            while self._delays(answer := self.send(http, last)):
                pass
            assert answer.status_code == (202 if self.wait == "durable" else 200), answer.text
            self.answers[last] = answer.content

    def _delays(self, answer: httpx.Response) -> bool:
        """Whether shards were lost after the batch was committed."""
        delays = answer.json().get("type") == "urn:liverank:problem:ranking-delayed"
        self.delayed += delays
        return bool(delays)

    def new_receipts(self) -> Iterator[dict[str, Any]]:
        """The receipts that arrived since the last call."""
        while self.wait == "ranked" and self.reported in self.answers:
            yield json.loads(self.answers[self.reported])
            self.reported += 1

    def repeats(self, http: httpx.Client, everything: bool) -> tuple[int, int]:
        """Sends batches again; returns how many, and how many did not get their first receipt."""
        old = range(self.checked)
        chosen = old if everything else self.choose.sample(old, min(CHECKED, len(old)))
        again = [*chosen, *range(self.checked, len(self.sent))]
        differing = [
            number for number in again if self.send(http, number).content != self.answers[number]
        ]
        self.checked = len(self.sent)
        return len(again), len(differing)


@dataclass(frozen=True, slots=True)
class Comparison:
    """A server, and a model of its expected state.

    acknowledged  batches with a response
    versions      batches that the server has
    repeated      batches sent again
    differing     of those, how many did not get their first receipt
    """

    acknowledged: int
    versions: int
    repeated: int
    differing: int

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(
            *(getattr(self, one.name) + getattr(other, one.name) for one in fields(self))
        )

    @property
    def lost(self) -> int:
        return max(0, self.acknowledged - self.versions)

    @property
    def twice(self) -> int:
        return max(0, self.versions - self.acknowledged)


def streams(seed: int, graph: str = GRAPH, weighted: bool = False) -> list[Stream]:
    """weighted: whether the edges of GRAPH have weights; see `create_weighted`"""
    weighted = weighted or graph == WEIGHTED
    return [
        Stream(name, wait, choose=random.Random(f"{seed} {name}"), graph=graph, weighted=weighted)
        for name, wait in (("a", "ranked"), ("b", "ranked"), ("c", "durable"))
    ]


def create_weighted(data: Path, damping: float = 0.85) -> None:
    """A data directory whose graph GRAPH has weights, which do not decay: a batch that counts twice
    changes one, and graphs in shards can have them.
    """
    store = GraphStore(data)
    store.open()
    store.create(GRAPH.rpartition("/")[-1], {"weighted": True, "damping": damping})
    store.close()


def run_until_killed(
    sending: Sequence[Stream],
    url: str,
    seconds: float,
    beside: Sequence[Callable[[str, threading.Event], None]] = (),
) -> None:
    """Sends until the server has ended or the time is over. Raises what a thread raises.

    beside  what else is done during that time
    """
    stop = threading.Event()
    work = [*(stream.run for stream in sending), *beside]
    with ThreadPoolExecutor(len(work)) as threads:
        running = [threads.submit(function, url, stop) for function in work]
        wait(running, seconds, FIRST_EXCEPTION)
        stop.set()
    for each in running:
        each.result()


def check(sending: Sequence[Stream], url: str, everything: bool = False) -> Comparison:
    """Asserts: nothing lost or applied twice, the graph that of the model, the bound valid.

    sending  streams of one graph
    """
    (graph,) = {stream.graph for stream in sending}
    with httpx.Client(base_url=url, timeout=60) as http:
        for stream in sending:
            stream.settle(http)
        newest = max(
            (_version(body) for stream in sending for body in stream.answers.values()), default=0
        )
        answer = http.get(f"{graph}/top", params={"min_version": newest, "timeout": 60})
        assert answer.status_code == 200, answer.text
        sets = [stream.set_of(http) for stream in sending]
        assert all(
            (found is None and not stream.members) or found == stream.members
            for stream, found in zip(sending, sets, strict=True)
        )
        repeats = [stream.repeats(http, everything) for stream in sending]
        info = http.get(graph).json()
        compared = Comparison(
            acknowledged=sum(len(stream.answers) for stream in sending)
            + sum(found is not None for found in sets),
            versions=info["version"],
            repeated=sum(sent for sent, _ in repeats),
            differing=sum(differing for _, differing in repeats),
        )
        assert (compared.lost, compared.twice, compared.differing) == (0, 0, 0), compared
        edges = {edge: weight for stream in sending for edge, weight in stream.edges.items()}
        seen = sorted(set().union(*(stream.seen for stream in sending)))
        assert (info["edges"], info["vertices"]) == (len(edges), len(seen))
        if graph != WEIGHTED:
            assert _edges(http, graph) == edges
        if seen:
            _check_ranks(http, graph, edges, seen, info["options"]["damping"])
    return compared


def _version(body: bytes) -> int:
    version: int = httpx.Response(200, content=body).json()["version"]
    return version


def _edges(http: httpx.Client, graph: str) -> dict[tuple[str, str], float]:
    """Those on the server, with their weights."""
    answer = http.get(f"{graph}/edges", headers={"Accept": "application/x-ndjson"})
    assert answer.status_code == 200, answer.text
    rows = map(json.loads, answer.text.splitlines())
    return {(row["source"], row["target"]): row.get("weight", 1.0) for row in rows}


def _check_ranks(
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
