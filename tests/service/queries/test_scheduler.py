"""Scheduling of queries: in slices between batches, taking turns."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest

from liverank_gpu import EdgeBatch, Engine, Options, Registration
from liverank_gpu.pagerank.gate import Gate
from liverank_service.errors import NotAnsweredInTime, UnknownVertex
from liverank_service.formats.seeds import SeedColumns
from liverank_service.queries.model import (
    KeyedQuery,
    QueryByIds,
    QueryRequest,
    Refusals,
    Vertices,
    WatchedQuery,
)
from liverank_service.queries.scheduler import MAX_BATCHES, QueryQueue, QueryScheduler, WatchRequest
from liverank_service.queries.view import View
from liverank_service.vertex_keys import VertexTable

VERTICES = 300
TURN = 0.0
"""Seconds: one step of one solve."""


@dataclass
class Graph:
    """An engine whose keys equal its ids, with a scheduler."""

    engine: Engine = field(default_factory=lambda: Engine(Options(), "cpu"))
    queue: QueryQueue = field(default_factory=lambda: QueryQueue(threading.Condition()))
    kept: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    version: int = 0
    closing: bool = False

    def __post_init__(self) -> None:
        keys = self.keys = VertexTable("integer")
        keys.assign(pa.array(range(VERTICES), pa.int64()))
        self.generator = np.random.default_rng(1)
        self.scheduler = QueryScheduler(
            self.queue,
            self.engine,
            lambda: Vertices("test", keys.state, self.engine.id_limit, {}),
            lambda: (self.version, 0),
            self._keep,
            lambda: self.closing,
            Refusals("test", self.refused.append),
        )
        self.batch(3000)

    def _keep(
        self, watch: WatchRequest, _: QueryByIds, registration: Registration | None
    ) -> tuple[bool, View]:
        assert registration is not None
        self.engine.keep(registration)
        self.kept.append(watch.name)
        return True, cast(View, SimpleNamespace())

    def batch(self, size: int = 100) -> None:
        edges = self.generator.integers(0, VERTICES, (2, size))
        self.engine.apply(EdgeBatch(edges[0], edges[1], vertices=VERTICES))
        self.version += 1

    def turns(self, asked: QueryRequest | WatchRequest, batches: bool) -> int:
        """The number of slices until the answer, each after a batch."""
        self.queue.put(asked)
        for turn in range(1, 1000):
            if batches:
                self.batch()
            self.scheduler.advance(TURN)
            if asked.answer.done():
                return turn
        raise AssertionError("never answered")


def _keyed(vertex: int, target_error: float = 1e-6, method: str = "pull") -> KeyedQuery:
    return KeyedQuery(
        seeds=SeedColumns.of({str(vertex): 1.0}),
        k=VERTICES,
        method=method,
        target_error=target_error,
    )


def _watch(
    name: str, vertex: int, target_error: float = 1e-6, timeout: float = 60.0
) -> WatchRequest:
    query = WatchedQuery(
        seeds=SeedColumns.of({str(vertex): 1.0}),
        k=VERTICES,
        method="pull",
        target_error=target_error,
    )
    return WatchRequest([query], timeout, name)


def _error(graph: Graph, vertex: int, answer: Any) -> float:
    exact = graph.engine.personalized(np.array([vertex]), k=VERTICES, target_error=1e-11)
    found = np.zeros(VERTICES)
    found[answer.vertices] = answer.ranks
    right = np.zeros(VERTICES)
    right[exact.vertices] = exact.ranks
    return float(np.abs(found - right).sum())


def test_a_block_under_a_stream_of_batches_is_answered_at_its_second_turn() -> None:
    graph = Graph()
    request = QueryRequest([_keyed(vertex) for vertex in range(40)], 60.0)
    assert graph.turns(request, batches=True) == 2
    answered = request.answer.result()
    assert answered.version == graph.version
    for vertex in (0, 39):
        answer = answered.answers[vertex].places
        assert answer.error_bound <= 1e-6
        assert _error(graph, vertex, answer) <= answer.error_bound + 1e-11
    assert graph.engine._queries.running == []


def test_one_query_under_a_stream_of_batches_follows_so_many_and_no_more() -> None:
    graph = Graph()
    request = QueryRequest([_keyed(7, 1e-10)], 60.0)
    # the solve begins in the first slice, after its batch
    assert graph.turns(request, batches=True) == MAX_BATCHES + 1
    (answer,) = (one.places for one in request.answer.result().answers)
    assert answer.error_bound <= 1e-10
    assert _error(graph, 7, answer) <= answer.error_bound + 1e-11


def test_who_is_answered_does_not_wait_for_others_of_the_job() -> None:
    graph = Graph()
    quick, slow = QueryRequest([_keyed(3, 0.1)], 60.0), QueryRequest([_keyed(4, 1e-12)], 60.0)
    graph.queue.put(quick)
    graph.queue.put(slow)
    while not quick.answer.done():
        graph.scheduler.advance(TURN)
        assert len(graph.engine._queries.running) == 1
    assert not slow.answer.done()
    # answered queries do not make the others start over with a batch
    graph.batch()
    assert [job.restarts for job in graph.engine._queries.running] == [0]
    while not slow.answer.done():
        graph.scheduler.advance(TURN)
    (answer,) = (one.places for one in slow.answer.result().answers)
    assert _error(graph, 4, answer) <= answer.error_bound + 1e-11


def test_what_is_made_at_once_has_its_time_and_no_more() -> None:
    graph = Graph()
    request = QueryRequest([_keyed(vertex, 1e-7) for vertex in range(64)], 60.0)
    graph.queue.put(request)
    graph.scheduler.advance(TURN)
    graph.batch()
    request.timeout = 0.0
    graph.scheduler.advance(TURN)
    with pytest.raises(NotAnsweredInTime):
        request.answer.result(0)
    assert graph.engine._queries.running == []
    assert not graph.scheduler


def test_a_graph_that_ends_waits_for_no_job() -> None:
    graph = Graph()
    request = QueryRequest([_keyed(vertex) for vertex in range(40)], 60.0)
    graph.queue.put(request)
    graph.scheduler.advance(TURN)
    graph.batch()
    graph.closing = True
    graph.scheduler.advance(TURN)
    assert not request.answer.done()


def test_a_watched_query_is_solved_in_turns_and_follows_batches_between_them() -> None:
    graph = Graph()
    watch = _watch("mine", 5)
    turns = graph.turns(watch, batches=True)
    assert 3 < turns <= MAX_BATCHES + 1
    assert graph.kept == ["mine"]
    answer = graph.engine.watched("mine")
    assert answer.error_bound <= 1e-6
    assert _error(graph, 5, answer) <= answer.error_bound + 1e-11
    assert graph.engine._queries.running == []


def test_an_abandoned_watch_request_is_cancelled() -> None:
    graph = Graph()
    gone, late = _watch("gone", 5), _watch("late", 6)
    for watch in (gone, late):
        graph.queue.put(watch)
        graph.scheduler.advance(TURN)
        assert len(graph.engine._queries.running) == 1
        if watch is gone:
            assert watch.answer.cancel()
        else:
            watch.timeout = 0.0
        graph.scheduler.advance(TURN)
        assert graph.engine._queries.running == []
        with pytest.raises(KeyError):
            graph.engine.watched(watch.name)
    with pytest.raises(NotAnsweredInTime):
        late.answer.result(0)
    assert graph.kept == []
    assert not graph.scheduler


def test_many_watched_queries_and_others_do_not_keep_each_other_waiting() -> None:
    graph = Graph()
    watches = [_watch(f"w{number}", number) for number in range(10)]
    for watch in watches:
        graph.queue.put(watch)
    request = QueryRequest([_keyed(20)], 60.0)
    graph.turns(request, batches=False)
    # taking turns with the first of them, not after all ten
    assert len(graph.kept) <= 1
    others: list[QueryRequest] = []
    while not watches[-1].answer.done():
        if not others or others[-1].answer.done():
            others.append(QueryRequest([_keyed(30)], 60.0))
            graph.queue.put(others[-1])
        graph.scheduler.advance(TURN)
    assert graph.kept == [watch.name for watch in watches]
    assert len(others) > 3


def test_a_request_that_loses_a_seed_is_looked_up_again() -> None:
    graph = Graph()
    seeds = SeedColumns.of({"7": 1.0, "8": 2.0})
    lost = KeyedQuery(seeds=seeds, k=VERTICES, method="pull", target_error=1e-10)
    left = lost.model_copy(update={"unknown": "ignore"})
    # more than a block, so that they run for several turns
    requests = [QueryRequest([query] * 2, 60.0) for query in (lost, left)]
    watch = _watch("mine", 7, 1e-10)
    for request in requests:
        graph.queue.put(request)
    graph.queue.put(watch)
    graph.scheduler.advance(TURN)
    assert graph.engine._queries.running
    graph.engine.apply(EdgeBatch.of(remove=[7]))
    graph.keys.remove(np.array([7]))
    while graph.scheduler:
        graph.scheduler.advance(TURN)
    with pytest.raises(UnknownVertex, match="has no vertex 7") as caught:
        requests[0].answer.result(0)
    assert caught.value.field == "queries[0].seeds"
    with pytest.raises(UnknownVertex, match="has no vertex 7"):
        watch.answer.result(0)
    for answer in requests[1].answer.result(0).answers:
        assert answer.ignored == [7]
        assert _error(graph, 8, answer.places) <= answer.places.error_bound + 1e-11
    assert graph.engine._queries.running == []


def test_a_query_is_over_after_its_timeout() -> None:
    request = _watch("slow", 0, timeout=600.0)
    assert not request.is_over()
    request.submitted -= 600.0
    assert request.is_over()
    with pytest.raises(NotAnsweredInTime):
        request.answer.result()


def test_ranks_that_are_refused_are_solved_again_and_the_log_says_so(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(Gate, "fault", lambda _: "they are not there")
    graph = Graph()
    asked = QueryRequest([_keyed(7, method="hybrid")], 60.0)
    graph.turns(asked, batches=False)
    (answer,) = asked.answer.result(0).answers
    assert answer.places.refused == "they are not there"
    assert answer.places.method in ("pull", "hybrid")
    assert _error(graph, 7, answer.places) <= 1e-6
    assert "graph test: the ranks of a personalized query were refused: they" in caplog.text
    assert graph.refused == ["query"]
