"""Graphs in shards: refusals and the loss of shards. The shards are threads here."""

from __future__ import annotations

import gc
import json
import sqlite3
from collections.abc import Iterator
from pathlib import Path
from weakref import ref

import numpy as np
import pytest

from liverank_gpu import ShardLost, Solve
from liverank_service.errors import BatchRejected, GraphStopped, NotReady, RankingDelayed
from liverank_service.formats.seeds import SeedColumns
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.pipeline.shards import FROZEN_SECONDS
from liverank_service.queries.model import KeyedQuery, PendingQuery, QueryResponse
from liverank_service.storage.files import storage_failure
from liverank_service.storage.journal import Journal
from tests.service.graphs import (
    Sent,
    batch,
    edges_of,
    engine_of,
    opened,
    send,
    started,
    submit,
    working,
)
from tests.service.pipeline.losing_workers import EDGES, Cluster
from tests.service.server import wait_for


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


@pytest.mark.parametrize("shards", [1, 2])
def test_a_batch_beyond_the_memory_of_one_device_is_for_two(
    tmp_path: Path, cluster: Cluster, shards: int
) -> None:
    sources, targets = np.random.default_rng(1).integers(0, 6_000, (2, 90_000)).astype(str).tolist()
    large = list(zip(sources, targets, strict=True))
    with working(tmp_path, shards=shards, device_memory=1_550_000) as pipeline:
        if shards == 1:
            with pytest.raises(BatchRejected, match=r"needs [0-9,]+ bytes; [0-9,]+ are") as raised:
                send(pipeline, batch(large))
            assert raised.value.reason["type"] == "urn:liverank:problem:out-of-memory"
            expected = set()
        else:
            send(pipeline, batch(large))
            expected = set(large)
        assert send(pipeline, batch([("a", "b")]))["version"] == 2
        assert edges_of(pipeline) == {*expected, ("a", "b")}
    assert len(cluster.started) == 1


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


@pytest.mark.parametrize("method", ["begin", "step"])
def test_an_analysis_in_progress_begins_again_after_the_loss_of_a_shard(
    pipeline: Pipeline, cluster: Cluster, method: str
) -> None:
    send(pipeline, batch(EDGES))
    began = pipeline.call(lambda writer: writer.analyses.start("components", {}, fresh=True))
    identity = began.result(60)

    def answered(version: int) -> bool:
        analyses = pipeline.analyses
        found = None if analyses is None else analyses.get(identity).answer
        return found is not None and found.version >= version

    wait_for(lambda: answered(1))
    cluster.failing = method
    send(pipeline, batch([("x", "y")]))
    wait_for(lambda: pipeline.shards.restarts == 1 and pipeline.shards.loss is None)
    wait_for(lambda: answered(2))
    found = pipeline.analyses.get(identity)  # type: ignore[union-attr]
    assert (found.state, found.problem) == ("finished", None)


def test_workers_that_start_while_their_graph_ends_have_to_answer_too(
    pipeline: Pipeline, cluster: Cluster
) -> None:
    cluster.may_start.clear()
    cluster.failing = "apply"
    one = batch(EDGES)
    submit(pipeline, one)
    with pytest.raises(RankingDelayed):
        one.ranked.result(60)
    wait_for(lambda: cluster.asked == 2)
    pipeline.end(NotReady("stopping"))
    cluster.may_start.set()
    pipeline.close(NotReady("stopping"))
    assert [each.frozen_seconds for each in cluster.started] == [None, FROZEN_SECONDS]


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
    cluster.failing = "answer"
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
    key = "a"
    neighbours = pipeline.edges.neighbours(key, "out", 9).result(60)
    assert sorted(neighbours.keys.to_pylist()) == ["b", "c"]
    cluster.failing = "own_neighbours"
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


def test_a_graph_in_shards_is_freed_without_a_search_for_garbage(
    tmp_path: Path, cluster: Cluster
) -> None:
    pipeline = opened(tmp_path, shards=2)
    for edges in (EDGES, [("a", "c")]):
        send(pipeline, batch(edges))
    gc.collect()
    gc.disable()
    try:
        engine = ref(engine_of(pipeline))
        pipeline.close(NotReady("the test ends"))
        del pipeline
        assert engine() is None
        assert cluster.started[0].closed
    finally:
        gc.enable()


def test_an_engine_whose_shards_are_lost_is_freed_without_a_search_for_garbage(
    pipeline: Pipeline, cluster: Cluster
) -> None:
    send(pipeline, batch(EDGES))
    gc.disable()
    try:
        lost = ref(engine_of(pipeline))
        cluster.started[0].lose()
        wait_for(lambda: pipeline.shards.restarts == 1 and pipeline.shards.loss is None)
        send(pipeline, batch([("a", "c")]))
        wait_for(lambda: lost() is None)
    finally:
        gc.enable()


def test_recovery_is_tried_until_workers_start(pipeline: Pipeline, cluster: Cluster) -> None:
    send(pipeline, batch(EDGES))
    cluster.failing, cluster.absent = "update", 2
    with pytest.raises(RankingDelayed):
        send(pipeline, batch([("a", "c")]))
    assert pipeline.published(2).result(60).edges == 5
    assert pipeline.shards.restarts == 3


def test_recovery_is_tried_until_the_disk_takes_what_it_writes(
    pipeline: Pipeline, cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(pipeline, batch(EDGES))
    data, full = tmp_path / "journal.db", sqlite3.OperationalError("database or disk is full")
    full.sqlite_errorcode = sqlite3.SQLITE_FULL
    refused = []

    def refuse(*_: object) -> None:
        refused.append(pipeline.shards.loss)
        raise storage_failure(data, full) from full

    monkeypatch.setattr(Journal, "add_receipts", refuse)
    cluster.failing = "update"
    with pytest.raises(RankingDelayed):
        send(pipeline, batch([("a", "c")]))
    wait_for(lambda: len(refused) > 1)
    later = batch([("c", "d")])
    submit(pipeline, later)
    monkeypatch.undo()
    assert later.ranked.result(60)
    assert None not in refused
    assert (pipeline.shards.loss, pipeline.fault, pipeline.view.edges) == (None, None, 6)
    assert pipeline.outcome(2).status == "ranked"  # type: ignore[union-attr]


def test_damage_that_recovery_finds_ends_it(
    pipeline: Pipeline, cluster: Cluster, tmp_path: Path
) -> None:
    send(pipeline, batch(EDGES))
    (tmp_path / "watched.json").write_text("{")
    cluster.started[0].lose()
    wait_for(lambda: pipeline.fault is not None)
    assert isinstance(pipeline.fault, GraphStopped)
    assert pipeline.shards.restarts == 1


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


@pytest.mark.parametrize("method", ["build", "apply", "update", "values"])
def test_a_shard_lost_while_its_graph_is_opened_is_no_error(
    tmp_path: Path, cluster: Cluster, method: str
) -> None:
    with working(tmp_path, shards=2) as pipeline:
        send(pipeline, batch(EDGES))
        pipeline.checkpoint().result(60)
        send(pipeline, batch([("a", "c")]))
    # and workers that do not come at once, as where another process starts them
    cluster.failing, cluster.later_absent = method, 2
    with working(tmp_path, shards=2) as again:
        assert cluster.failing is None
        assert again.shards.restarts == 3
        assert again.shards.loss is None
        assert (again.view.version, again.view.edges) == (2, 5)
        assert send(again, batch([("c", "d")]))["version"] == 3


def test_shards_lost_at_every_opening_are_an_error(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("liverank_service.pipeline.shards._OPENING_ATTEMPTS", 3)
    with working(tmp_path) as pipeline:
        send(pipeline, batch(EDGES))
    cluster.failing, cluster.later_absent = "update", 1000
    with pytest.raises(ShardLost, match="the 2 shards did not answer: TimeoutError"):
        opened(tmp_path, shards=2)
    assert (len(cluster.started), cluster.absent) == (1, 998)  # three attempts


def test_a_graph_can_be_closed_while_it_is_opened_again(tmp_path: Path, cluster: Cluster) -> None:
    with working(tmp_path) as pipeline:
        send(pipeline, batch(EDGES))
    cluster.failing, cluster.later_absent = "update", 1000
    opening = started(tmp_path, shards=2)
    opening.recover()
    wait_for(lambda: opening.shards.restarts > 1)
    opening.close(NotReady("the test ends"))
    with pytest.raises(NotReady, match="the test ends"):
        opening.wait_until_open()


def test_every_strategy_runs_in_both_forms(pipeline: Pipeline) -> None:
    send(pipeline, batch(EDGES))
    receipt = send(pipeline, batch([("a", "d")], strategy="dynamic-frontier"))
    assert receipt["strategy"] == "dynamic-frontier"
    for form in ("published", "accelerated"):
        receipt = json.loads(pipeline.recompute(Solve("static", form)).result(60))
        assert receipt["form"] == form
        assert receipt["error_bound"] <= 1e-6
