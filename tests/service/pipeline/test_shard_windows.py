"""Edges that leave graphs in shards by age, against graphs on one device. The shards are threads
here.
"""

from __future__ import annotations

import random
import weakref
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from liverank_gpu import OutOfMemory
from liverank_gpu.graph.resolve import ResolvedBatch
from liverank_service.errors import RankingDelayed
from liverank_service.pipeline.expiry import Expiry
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.pipeline.window import EdgeTimes, WindowOptions
from liverank_service.storage.journal import Journal
from tests.service.graphs import (
    Sent,
    edges_of,
    engine_of,
    receipt,
    send,
    timed_batch,
    together,
    vertices_of,
    working,
    writer_of,
)
from tests.service.pipeline.losing_workers import Cluster
from tests.service.pipeline.windows import (
    EVENT,
    FORGETTING,
    WALL,
    Clock,
    Model,
    eventually,
    journalled,
    random_batches,
    receipts,
)

TOLD = (
    "version",
    "inserted",
    "already_present",
    "deleted",
    "not_found",
    "new_vertices",
    "removed",
    "removed_edges",
    "expired",
)
"""What receipts say of a batch, beside how it was ranked."""


def told(pipeline: Pipeline) -> list[dict[str, Any]]:
    """Of all versions whose receipts the journal has."""
    first = writer_of(pipeline).journal.retired + 1
    return [{name: each[name] for name in TOLD} for each in receipts(pipeline, first)]


def ranks_of(pipeline: Pipeline) -> dict[str, float]:
    top = pipeline.view.top(100)
    return dict(zip(top.vertices.to_pylist(), top.ranks, strict=True))


def payloads(directory: Path) -> list[bytes]:
    """Of the batches that the journal has."""
    journal = Journal(directory / "journal.db")
    found = [record.payload for _, _, record, _ in journal.batches(0)]
    journal.close()
    return found


def directories(path: Path) -> tuple[Path, Path]:
    ours, theirs = path / "shards", path / "one"
    ours.mkdir()
    theirs.mkdir()
    return ours, theirs


@pytest.mark.parametrize(
    ("window", "options"),
    [
        (EVENT, {}),
        (FORGETTING, {"directed": False}),
        (FORGETTING, {"half_life": 3.0}),
        (replace(FORGETTING, clock="wall"), {}),
    ],
    ids=["event", "forgetting", "decay", "wall"],
)
def test_a_random_stream_is_that_of_one_device(
    tmp_path: Path,
    cluster: Cluster,
    clock: Clock,
    window: WindowOptions,
    options: dict[str, Any],
) -> None:
    """Through checkpoints and restarts with other numbers of shards, or none."""
    ours, theirs = directories(tmp_path)
    model = Model(options.get("directed", True), forgets=window.forget_vertices)
    choice, batches = random.Random(5), list(random_batches(5, 40, keys=16))
    stored: dict[str, Any] = {"window": window, "target_error": 1e-9, **options}
    expiries = 0
    for shards in (2, 0, 3, 2):
        with (
            working(ours, shards=shards, **stored) as pipeline,
            working(theirs, **stored) as one,
        ):
            for number in range(10):
                insert, delete = batches.pop(0)
                remove = [f"k{choice.randrange(16)}"] if choice.random() < 0.2 else []
                for each in (pipeline, one):
                    send(each, timed_batch(insert, delete, remove=remove))
                if window.clock == "event":
                    model.apply_by_event(insert, delete, remove)
                else:
                    model.apply(insert, delete, remove)
                    for passed in (0.0, 0.5):
                        clock.now += passed
                        model.expire(clock.now)
                        for each in (pipeline, one):
                            eventually(lambda each=each: settled(each, model))  # type: ignore[misc]
                assert model.has(edges_of(pipeline))
                if window.forget_vertices:
                    assert vertices_of(pipeline) == model.vertices
                if number == 5:
                    assert told(pipeline) == told(one)
                    for each in (pipeline, one):
                        each.checkpoint().result(60)
            assert told(pipeline) == told(one)
            assert pipeline.committed == one.committed
            expected = ranks_of(one)
            assert ranks_of(pipeline) == pytest.approx(expected, abs=2e-9)
        assert payloads(ours) == payloads(theirs)
        expiries += sum(is_expiry for is_expiry, _ in journalled(ours))
    assert len(cluster.started) == 3
    assert expiries > 5


def settled(pipeline: Pipeline, model: Model) -> bool:
    """Whether all that is too old has left."""
    return model.has(edges_of(pipeline)) and vertices_of(pipeline) == model.vertices


def losing_at_expiry(patch: pytest.MonkeyPatch, cluster: Cluster, method: str) -> None:
    """The first expiry of anything loses a shard."""
    original = Expiry._commit_all

    def losing(self: Expiry, columns_of: Any, count: int, *others: Any) -> None:
        if count and len(cluster.started) == 1:
            cluster.failing = method
        original(self, columns_of, count, *others)

    patch.setattr(Expiry, "_commit_all", losing)


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("method", ["apply", "own_isolated", "update", "values"])
def test_by_event_a_loss_during_an_expiry_changes_no_version(
    tmp_path: Path,
    cluster: Cluster,
    monkeypatch: pytest.MonkeyPatch,
    method: str,
    captured: bool,
) -> None:
    """Batches that wait with the one that makes edges too old are those of the next writer."""
    ours, theirs = directories(tmp_path)
    losing_at_expiry(monkeypatch, cluster, method)
    with working(ours, shards=2, window=FORGETTING) as pipeline:
        first, sent = start_stream()
        send(pipeline, first)
        if captured:
            pipeline.checkpoint().result(60)
        together(pipeline, sent)
        with pytest.raises(RankingDelayed, match="version 2 is committed"):
            sent[0].ranked.result(60)
        if method in ("apply", "own_isolated"):
            found = [receipt(one) for one in sent[1:]]
            assert [one["version"] for one in found] == [5, 8, 2]
        pipeline.published(8).result(60)
        assert pipeline.shards.restarts == 1
        with working(theirs, window=FORGETTING) as one:
            first, sent = start_stream()
            send(one, first)
            together(one, sent)
            receipt(sent[2])
            assert told(pipeline) == told(one)
            assert edges_of(pipeline) == edges_of(one) == {("b", "c"), ("d", "b"), ("e", "f")}
            assert vertices_of(pipeline) == vertices_of(one) == set("bcdef")
            assert ranks_of(pipeline) == pytest.approx(ranks_of(one), abs=2e-6)
    assert payloads(ours) == payloads(theirs)
    assert len(payloads(ours)) == 8


def start_stream() -> tuple[Sent, list[Sent]]:
    """A batch, and three that make its edges too old, the first of which is sent again."""
    rows = [[("b", "c", 10.0)], [("d", "b", 11.0)], [("e", "f", 15.0), ("b", "c", 12.0)]]
    sent = [timed_batch(rows[number], key=f"k{number}") for number in (0, 1, 2, 0)]
    return timed_batch([("a", "b", 1.0), ("g", "d", 5.5)]), sent


@pytest.mark.parametrize("method", ["apply", "own_isolated", "update"])
def test_by_the_wall_clock_a_loss_during_an_expiry_loses_nothing(
    tmp_path: Path, cluster: Cluster, clock: Clock, method: str
) -> None:
    window = replace(WALL, forget_vertices=True)
    with working(tmp_path, shards=2, window=window) as pipeline:
        send(pipeline, timed_batch([("a", "b", 1_000.0), ("b", "c", 1_003.0)]))
        cluster.failing, clock.now = method, 1_006.0
        eventually(lambda: pipeline.shards.restarts == 1 and pipeline.shards.loss is None)
        eventually(lambda: pipeline.view.version == 3)
        assert (edges_of(pipeline), vertices_of(pipeline)) == ({("b", "c")}, {"b", "c"})
        assert [one["expired"] for one in receipts(pipeline)] == [0, 1, 0]
        clock.now = 1_010.0
        eventually(lambda: pipeline.view.vertices == 0)
    assert journalled(tmp_path) == [(False, 0), (True, 1), (True, 0), (True, 1), (True, 0)]


def test_the_times_of_lost_shards_are_freed_before_they_are_restored(
    tmp_path: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    with working(tmp_path, shards=2, window=EVENT) as pipeline:
        send(pipeline, timed_batch([("a", "b", 1.0)]))
        pipeline.checkpoint().result(60)
        window = writer_of(pipeline).keyed.window
        assert window is not None
        times, present = weakref.ref(window.times), list[bool]()
        del window
        original = EdgeTimes.restore

        def restore(self: EdgeTimes, *arguments: Any) -> None:
            present.append(times() is not None)
            original(self, *arguments)

        monkeypatch.setattr(EdgeTimes, "restore", restore)
        cluster.failing = "apply"
        with pytest.raises(RankingDelayed):
            send(pipeline, timed_batch([("c", "d", 7.0)]))
        pipeline.published(3).result(60)
        assert edges_of(pipeline) == {("c", "d")}
    assert present == [False]


def test_an_expiry_that_shards_reject_for_memory_is_divided(
    tmp_path: Path,
    cluster: Cluster,  # noqa: ARG001
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with working(tmp_path, shards=2, window=EVENT) as pipeline:
        send(pipeline, timed_batch([(f"v{n}", f"w{n % 7}", 1.0) for n in range(100)]))
        engine, room = engine_of(pipeline), 30
        apply = engine.apply

        def limited(batch: ResolvedBatch) -> Any:
            if batch.batch.operations > room:
                raise OutOfMemory("a batch", batch.batch.operations, room)
            return apply(batch)

        monkeypatch.setattr(engine, "apply", limited)
        send(pipeline, timed_batch([("a", "b", 100.0)]))
        assert edges_of(pipeline) == {("a", "b")}
        outcomes = [pipeline.outcome(version) for version in range(3, pipeline.committed + 1)]
        statuses = [outcome.status for outcome in outcomes if outcome is not None]
        assert statuses == ["rejected"] * 2 + ["ranked"] * 2 + ["rejected"] + ["ranked"] * 2
    deleted = [count for is_expiry, count in journalled(tmp_path) if is_expiry]
    assert deleted == [100, 50, 25, 25, 50, 25, 25]
