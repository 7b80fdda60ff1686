"""Graphs in shards: checkpoints, refusals and the loss of shards. The shards are threads here."""

from __future__ import annotations

import errno
import json
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from gpu import BackendName, Options, ShardLost, Solve, UnknownVertex
from gpu.backends import backend_named
from service.errors import NotReady, StorageFailed
from service.formats.seeds import SeedColumns
from service.pipeline.pipeline import Pipeline
from service.queries.model import KeyedQuery
from service.queries.requests import PendingQuery, QueryResponse
from service.shard_errors import RankingDelayed
from service.storage import checkpoint as checkpoints
from service.storage.files import write_synced
from service.storage.journal import Journal
from tests.gpu.sharded.threads import ThreadWorkers
from tests.service.graphs import (
    Sent,
    batch,
    edges_of,
    engine_of,
    opened,
    send,
    submit,
    timed_batch,
    vertices_of,
    weighted_batch,
    working,
)
from tests.service.server import wait_for

EDGES = [("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")]


class Cluster:
    """Starts shards. `failing` names the next call during which one is lost; `absent` is how often
    workers do not start from now on.
    """

    def __init__(self) -> None:
        self.failing: str | None = None
        self.absent = 0
        self.may_start = threading.Event()
        self.may_start.set()
        self.started: list[LosingWorkers] = []

    def start(self, options: Options, shards: int, backend: BackendName) -> LosingWorkers:
        assert backend == "cpu"
        self.may_start.wait(60)
        if self.absent:
            self.absent -= 1
            raise TimeoutError("workers have not come")
        workers = LosingWorkers(self, options, shards)
        self.started.append(workers)
        return workers


class LosingWorkers(ThreadWorkers):
    def __init__(self, cluster: Cluster, options: Options, size: int) -> None:
        super().__init__(options, size, backend_named("cpu"))
        self.closed = False
        self._cluster = cluster
        self._lost = False
        self._notify: list[Callable[[], None]] = []

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        assert not self.closed
        if self._cluster.failing == method:
            self._cluster.failing = None
            raise ShardLost(1, self.size, "tls://127.0.0.1:1")
        return super().call(method, arguments)

    def on_loss(self, notify: Callable[[], None]) -> None:
        self._notify.append(notify)

    def lose(self) -> None:
        """Loses a shard between two calls."""
        self._lost = True
        for notify in self._notify:
            notify()

    def check_alive(self) -> None:
        if self._lost:
            raise ShardLost(1, self.size, "tls://127.0.0.1:1")

    def close(self) -> None:
        self.closed = True
        super().close()


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    cluster = Cluster()
    monkeypatch.setattr("gpu.sharded.cluster.local_workers", cluster.start)
    return cluster


@pytest.fixture
def pipeline(tmp_path: Path, cluster: Cluster) -> Iterator[Pipeline]:  # noqa: ARG001
    with working(tmp_path, shards=2) as pipeline:
        yield pipeline


def ranks_of(pipeline: Pipeline) -> dict[str, float]:
    view = pipeline.view
    keys = view.keys.keys(np.arange(view.ranks.id_limit)).to_pylist()
    return dict(zip(keys, view.ranks.to_numpy().tolist(), strict=True))


def assert_same_ranks(ours: Pipeline, theirs: Pipeline) -> None:
    bound = ours.view.error_bound + theirs.view.error_bound
    expected, ranks = ranks_of(theirs), ranks_of(ours)
    assert set(ranks) == set(expected)
    assert sum(abs(ranks[key] - expected[key]) for key in expected) <= bound + 1e-12


def test_a_graph_opens_with_any_number_of_shards_and_without(
    tmp_path: Path, cluster: Cluster
) -> None:
    sent: list[list[tuple[str, str, float]]] = [
        [("a", "b", 2.0), ("b", "c", 1.0), ("c", "c", 4.0), ("a", "d", 1.5)],
        [("d", "b", 1.0), ("b", "e", 0.5)],
        [("e", "a", 3.0)],
        [("f", "a", 1.0)],
    ]
    for shards, edges in zip((2, 0, 3, 0), sent, strict=True):
        with working(tmp_path, shards=shards, weighted=True, target_error=1e-9) as pipeline:
            if shards:
                (workers,) = cluster.started
                cluster.started.clear()
                assert workers.size == shards
            got = send(pipeline, weighted_batch(edges, [("a", "d")] if len(edges) == 1 else []))
            assert got["inserted"] == len(edges)
            assert got["error_bound"] <= 1e-9
            taken = pipeline.checkpoint().result(60)
            assert taken.version == got["version"]
            assert pipeline.view.version == taken.version
        assert not shards or workers.closed
    with working(tmp_path, weighted=True, target_error=1e-9) as pipeline:
        sources, targets = engine_of(pipeline).edge_list()
        keys = pipeline.view.keys.keys
        ends = (keys(column).to_pylist() for column in (sources, targets))
        weights = engine_of(pipeline).edge_weights().tolist()
        expected = {edge for edges in sent for edge in edges} - {("a", "d", 1.5)}
        assert set(zip(*ends, weights, strict=True)) == expected


@pytest.mark.parametrize("method", ["apply", "update", "values"])
def test_a_batch_in_progress_is_not_lost_with_a_shard(
    pipeline: Pipeline, cluster: Cluster, method: str, tmp_path: Path
) -> None:
    send(pipeline, batch(EDGES))
    before, (first,) = pipeline.view, cluster.started
    cluster.may_start.clear()
    cluster.failing = method
    one, later = batch([("a", "c")], key="k"), batch([("e", "a")])
    submit(pipeline, one)
    with pytest.raises(RankingDelayed, match="version 2 is committed, but not ranked yet: shard 1"):
        one.ranked.result(60)
    assert one.durable.result(0) == 2
    wait_for(lambda: first.closed)
    loss = pipeline.shards.loss
    assert loss is not None
    assert "shard 1 of 2" in loss.reason
    assert pipeline.shards.document()["state"] == "recovering"
    # reads continue, what needs the writer waits or says so
    assert pipeline.view is before
    with pytest.raises(NotReady, match="is being recovered"):
        pipeline.outcome(2)
    submit(pipeline, later)
    assert not later.durable.done()
    cluster.may_start.set()
    assert later.ranked.result(60)
    assert later.durable.result(0) == 3
    wait_for(lambda: pipeline.shards.loss is None)
    assert pipeline.shards.restarts == 1
    outcome = pipeline.outcome(2)
    assert outcome is not None
    assert outcome.status == "ranked"
    assert b'"inserted":1' in outcome.body
    again = batch([("a", "c")], key="k")
    assert send(pipeline, again)["version"] == 2
    assert pipeline.view.edges == 6
    (tmp_path / "other").mkdir()
    with working(tmp_path / "other") as other:
        send(other, batch([*EDGES, ("a", "c"), ("e", "a")]))
        assert_same_ranks(pipeline, other)


def test_a_graph_recovers_from_a_loss_that_no_call_meets(
    pipeline: Pipeline, cluster: Cluster
) -> None:
    send(pipeline, batch(EDGES))
    (first,) = cluster.started
    first.lose()
    wait_for(lambda: pipeline.shards.restarts == 1 and pipeline.shards.loss is None)
    assert first.closed
    assert send(pipeline, batch([("a", "c")]))["version"] == 2
    first.lose()  # of workers that have been replaced
    assert send(pipeline, batch([("c", "d")]))["version"] == 3
    assert pipeline.shards.restarts == 1
    assert pipeline.view.edges == 6


def asked(pipeline: Pipeline, key: str) -> PendingQuery[QueryResponse]:
    query = KeyedQuery(seeds=SeedColumns.of({key: 1.0}), target_error=1e-9)
    request = PendingQuery[QueryResponse]([query], 60.0)
    pipeline.submit_query(request)
    return request


def test_a_query_in_progress_fails_with_a_shard_and_later_ones_are_answered(
    pipeline: Pipeline, cluster: Cluster, tmp_path: Path
) -> None:
    send(pipeline, batch(EDGES))
    before = asked(pipeline, "a").answer.result(60)
    cluster.may_start.clear()
    cluster.failing = "personalized"
    with pytest.raises(ShardLost, match="shard 1 of 2"):
        asked(pipeline, "a").answer.result(60)
    wait_for(lambda: pipeline.shards.loss is not None)
    with pytest.raises(NotReady, match="is being recovered: shard 1 of 2"):
        asked(pipeline, "a")
    cluster.may_start.set()
    wait_for(lambda: pipeline.shards.loss is None)
    after = asked(pipeline, "a").answer.result(60)
    (earlier,), (later,) = before.answers, after.answers
    assert later.vertices.to_pylist() == earlier.vertices.to_pylist()
    np.testing.assert_allclose(later.places.ranks, earlier.places.ranks, atol=2e-9)
    (tmp_path / "other").mkdir()
    with working(tmp_path / "other") as other:
        send(other, batch(EDGES))
        (expected,) = asked(other, "a").answer.result(60).answers
        np.testing.assert_allclose(later.places.ranks, expected.places.ranks, atol=2e-9)


def test_edges_are_read_and_a_read_in_progress_fails_with_a_shard(
    pipeline: Pipeline, cluster: Cluster
) -> None:
    send(pipeline, batch(EDGES))
    assert edges_of(pipeline) == set(EDGES)
    copy = pipeline.edges.copy()
    assert pipeline.edges.copy() is copy
    send(pipeline, batch([("a", "c")]))
    assert copy.edges.edges == 4
    assert pipeline.edges.copy().edges.edges == 5
    key = pa.array(["a"])
    neighbours = pipeline.edges.neighbours(key, "out", 9).result(60)
    assert sorted(neighbours.keys.to_pylist()) == ["b", "c"]
    cluster.failing = "neighbours"
    with pytest.raises(ShardLost):
        pipeline.edges.neighbours(key, "out", 9).result(60)
    wait_for(lambda: pipeline.shards.restarts == 1 and pipeline.shards.loss is None)
    assert pipeline.edges.neighbours(key, "in", 9).result(60).degree == 2


def test_batches_committed_with_others_in_progress_are_all_ranked_later(
    pipeline: Pipeline, cluster: Cluster
) -> None:
    cluster.failing = "apply"
    batches: list[Sent] = []

    def send_together() -> None:
        # of two strategies, so in groups of their own, which are committed together
        batches.extend(
            batch([("x", str(at))], strategy="static" if at > 1 else "auto") for at in range(4)
        )
        submit(pipeline, *batches)

    pipeline.call(lambda _: send_together()).result(60)
    for version, one in enumerate(batches, 1):
        with pytest.raises(RankingDelayed, match=f"version {version} is committed"):
            one.ranked.result(60)
    pipeline.published(4).result(60)
    pipeline.wait_until_open()
    assert pipeline.view.edges == 4
    assert {pipeline.outcome(version).status for version in range(1, 5)} == {"ranked"}  # type: ignore[union-attr]


@pytest.mark.parametrize("method", ["capture", "entries"])
def test_a_checkpoint_is_taken_after_a_shard_was_lost_during_it(
    pipeline: Pipeline, cluster: Cluster, tmp_path: Path, method: str
) -> None:
    send(pipeline, batch(EDGES))
    cluster.failing = method
    with pytest.raises(ShardLost):
        pipeline.checkpoint().result(60)
    wait_for(lambda: pipeline.shards.restarts == 1 and pipeline.shards.loss is None)
    assert checkpoints.stored(tmp_path / "checkpoints") == []
    assert pipeline.checkpoint().result(60).version == 1
    cluster.failing = "update"
    with pytest.raises(RankingDelayed):
        send(pipeline, batch([("a", "c")]))
    # from the checkpoint, which one more batch follows
    assert pipeline.published(2).result(60).edges == 5


def test_recovery_is_tried_until_workers_start(pipeline: Pipeline, cluster: Cluster) -> None:
    send(pipeline, batch(EDGES))
    cluster.failing, cluster.absent = "update", 2
    with pytest.raises(RankingDelayed):
        send(pipeline, batch([("a", "c")]))
    assert pipeline.published(2).result(60).edges == 5
    assert pipeline.shards.restarts == 3


def test_a_graph_can_be_closed_while_it_recovers(tmp_path: Path, cluster: Cluster) -> None:
    pipeline = opened(tmp_path, shards=2)
    cluster.failing, cluster.absent = "apply", 1000
    with pytest.raises(RankingDelayed):
        send(pipeline, batch(EDGES))
    waiting = batch([("a", "c")])
    submit(pipeline, waiting)
    pipeline.close(NotReady("the test ends"))
    with pytest.raises(NotReady, match="the test ends"):
        waiting.ranked.result(60)
    with working(tmp_path) as again:
        assert again.view.edges == 4


def test_workers_that_do_not_start_are_an_error_of_the_first_opening(
    tmp_path: Path, cluster: Cluster
) -> None:
    cluster.absent = 1
    with pytest.raises(ShardLost, match="the 2 shards did not answer: TimeoutError"):
        opened(tmp_path, shards=2)


def test_every_strategy_runs_in_both_forms(pipeline: Pipeline) -> None:
    send(pipeline, batch(EDGES))
    receipt = send(pipeline, batch([("a", "d")], strategy="dynamic-frontier"))
    assert receipt["strategy"] == "dynamic-frontier"
    for form in ("published", "accelerated"):
        receipt = json.loads(pipeline.recompute(Solve("static", form)).result(60))
        assert receipt["form"] == form
        assert receipt["error_bound"] <= 1e-6


@pytest.mark.parametrize("where", ["checkpoint", "journal", "unanswered"])
def test_removed_vertices_come_back_with_any_number_of_shards_and_without(
    tmp_path: Path,
    cluster: Cluster,  # noqa: ARG001
    where: str,
) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch([*EDGES, ("b", "b")]))
    expected = {*EDGES, ("b", "b")}
    for shards, gone, back in ((2, "d", "e"), (0, "b", "d"), (3, "e", "f"), (2, "a", "g")):
        with working(tmp_path, shards=shards) as pipeline:
            limit = pipeline.view.ranks.id_limit
            with pytest.MonkeyPatch.context() as patch:
                if where == "unanswered":
                    patch.setattr(Journal, "add_receipts", lambda _, rows: list(rows))
                got = send(pipeline, timed_batch(remove=[gone, "nobody"]))
            lost = {edge for edge in expected if gone in edge}
            assert (got["removed"], got["removed_edges"]) == (1, len(lost))
            if where == "checkpoint":
                assert pipeline.checkpoint().result(60).version == got["version"]
        expected = (expected - lost) | {(back, "c")}
        with working(tmp_path, shards=3 - shards) as pipeline:
            with pytest.raises(UnknownVertex):
                pipeline.view.ranks.of(pipeline.view.ids(pa.array([gone])))
            # the id that is free is used again, after a recovery too
            got = send(pipeline, batch([(back, "c")]))
            assert (got["inserted"], got["new_vertices"]) == (1, 1)
            assert pipeline.view.ranks.id_limit == limit
            assert (pipeline.view.vertices, pipeline.view.edges) == (limit, len(expected))
    with working(tmp_path) as pipeline:
        assert edges_of(pipeline) == expected
        assert vertices_of(pipeline) == {"c", "d", "f", "g"}


def test_a_checkpoint_does_not_go_on_with_other_shards(
    pipeline: Pipeline, cluster: Cluster, tmp_path: Path
) -> None:
    send(pipeline, batch(EDGES))
    captured = pipeline._capture()
    cluster.failing = "apply"
    with pytest.raises(RankingDelayed):
        send(pipeline, batch([("a", "c")]))
    pipeline.published(2).result(60)
    with pytest.raises(NotReady, match="the shards that were captured are lost"):
        checkpoints.write(tmp_path / "checkpoints", captured.checkpoint())
    assert list((tmp_path / "checkpoints").iterdir()) == []
    captured.release()
    assert pipeline.checkpoint().result(60).version == 2
    assert pipeline.shards.restarts == 1


def test_batches_are_ranked_while_a_checkpoint_is_written(
    pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("gpu.sharded.capture.PIECE_SLOTS", 4)
    send(pipeline, batch(EDGES))
    versions: list[int] = []

    def write_slowly(path: Path, parts: Iterable[memoryview]) -> None:
        def slowly() -> Iterator[memoryview]:
            for part in parts:
                if path.name == "neighbours.bin":
                    assert len(part) <= 4 * 4
                    versions.append(send(pipeline, batch([("a", str(len(versions)))]))["version"])
                yield part

        write_synced(path, slowly())

    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_synced", write_slowly)
        taken = pipeline.checkpoint().result(60)
    assert (taken.version, versions) == (1, [2, 3, 4, 5])
    (path,) = checkpoints.stored(tmp_path / "checkpoints")
    stored = checkpoints.read(path)
    assert stored.nbytes == taken.bytes
    assert (len(stored.arrays["length"]), stored.numbers["engine"]["edges"]) == (4, 4)
    assert pipeline.checkpoint().result(60).version == 5


def test_the_copy_of_a_checkpoint_that_fails_is_freed(
    pipeline: Pipeline, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    send(pipeline, batch(EDGES))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoints, "write_synced", full)
        with pytest.raises(StorageFailed):
            pipeline.checkpoint().result(60)
    (workers,) = cluster.started
    assert [shard._captured for shard in workers.shards] == [None, None]
    assert pipeline.checkpoint().result(60).version == 1
    assert [shard._captured for shard in workers.shards] == [None, None]
