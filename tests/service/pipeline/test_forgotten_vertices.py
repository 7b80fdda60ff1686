"""Vertices that leave with their last edge by age, and come back."""

from __future__ import annotations

import random
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from liverank_service.errors import ExpiryFailed, RankingDelayed, StorageFailed
from liverank_service.pipeline.window import WindowOptions
from tests.service.graphs import (
    edges_of,
    send,
    timed_batch,
    vertices_of,
    working,
    writer_of,
)
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


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_vertices_leave_with_their_last_edge(tmp_path: Path, seed: int, directed: bool) -> None:
    """Through restarts and checkpoints, with vertices that clients remove, and whose ids are used
    again.
    """
    model, choice = Model(directed, forgets=True), random.Random(seed)
    batches = list(random_batches(seed + 10, 60, keys=30))
    while batches:
        with working(tmp_path, window=FORGETTING, directed=directed) as pipeline:
            assert (vertices_of(pipeline), model.has(edges_of(pipeline))) == (model.vertices, True)
            for _ in range(min(len(batches), 20)):
                insert, delete = batches.pop(0)
                remove = [f"k{choice.randrange(30)}"] if choice.random() < 0.3 else []
                send(pipeline, timed_batch(insert, delete, remove=remove))
                model.apply_by_event(insert, delete, remove)
                assert vertices_of(pipeline) == model.vertices
                assert model.has(edges_of(pipeline))
                assert pipeline.view.vertices == len(model.vertices)
            if choice.random() < 0.5:
                pipeline.checkpoint().result(60)
    assert sum(is_expiry for is_expiry, _ in journalled(tmp_path)) > 10


def test_edges_of_removed_vertices_do_not_expire(tmp_path: Path) -> None:
    with working(tmp_path, window=EVENT) as pipeline:
        send(pipeline, timed_batch([("a", "b", 1.0), ("b", "c", 1.0), ("c", "d", 1.0)]))
        assert send(pipeline, timed_batch(remove=["b"]))["removed_edges"] == 2
        # which has the id of b
        send(pipeline, timed_batch([("new", "c", 2.0), ("a", "new", 5.0)]))
        send(pipeline, timed_batch([("x", "y", 6.5)]))
        assert edges_of(pipeline) == {("new", "c"), ("a", "new"), ("x", "y")}
        assert [one["expired"] for one in receipts(pipeline)] == [0, 0, 0, 0, 1]
        send(pipeline, timed_batch(remove=["new", "x", "y"]))
        send(pipeline, timed_batch([("a", "d", 100.0)]))
        assert edges_of(pipeline) == {("a", "d")}
        assert sum(one["expired"] for one in receipts(pipeline)) == 1


def test_vertices_that_leave_come_back_as_new_ones(tmp_path: Path) -> None:
    with working(tmp_path, window=FORGETTING) as pipeline:
        send(pipeline, timed_batch([("a", "b", 1.0), ("b", "c", 4.0)], vertices=["lonely"]))
        send(pipeline, timed_batch([("b", "c", 7.0)]))
        assert vertices_of(pipeline) == {"b", "c", "lonely"}
        again = send(pipeline, timed_batch([("a", "c", 8.0)]))
        assert (again["version"], again["new_vertices"]) == (5, 1)
        assert vertices_of(pipeline) == {"a", "b", "c", "lonely"}
        removal = receipts(pipeline)[3]
        assert (removal["removed"], removal["removed_edges"], removal["expired"]) == (1, 0, 0)


def test_by_the_wall_clock_vertices_leave_without_any_batch(tmp_path: Path, clock: Clock) -> None:
    with working(tmp_path, window=replace(WALL, forget_vertices=True)) as pipeline:
        send(pipeline, timed_batch([("a", "b", 1_000.0), ("b", "c", 1_003.0)]))
        clock.now = 1_006.0
        eventually(lambda: vertices_of(pipeline) == {"b", "c"})
        clock.now = 1_010.0
        eventually(lambda: pipeline.view.vertices == 0)
        assert pipeline.committed == 5


@pytest.mark.parametrize("captured", [False, True])
@pytest.mark.parametrize("window", [FORGETTING, replace(WALL, forget_vertices=True)])
def test_a_removal_that_was_not_committed_follows_after_the_start(
    tmp_path: Path,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    window: WindowOptions,
    captured: bool,
) -> None:
    with working(tmp_path, window=window) as pipeline:
        send(pipeline, timed_batch([("a", "b", 1_000.0), ("b", "c", 1_004.0)]))
        journal = writer_of(pipeline).journal
        original = journal.append

        def refuse(records: Any, revisions: int) -> list[int]:
            if any(b"remove" in record.payload for record in records):
                raise StorageFailed(journal.path, "the disk is full")
            return original(records, revisions)

        monkeypatch.setattr(journal, "append", refuse)
        clock.now = 1_007.0
        if window.clock == "event":
            with pytest.raises(RankingDelayed):
                send(pipeline, timed_batch([("b", "c", 1_007.0)]))
        eventually(lambda: edges_of(pipeline) == {("b", "c")})
        assert vertices_of(pipeline) == {"a", "b", "c"}
        if captured:
            delayed = pytest.raises(ExpiryFailed) if window.clock == "event" else nullcontext()
            with delayed:
                pipeline.checkpoint().result(60)
    with working(tmp_path, window=window) as pipeline:
        eventually(lambda: vertices_of(pipeline) == {"b", "c"})
        assert edges_of(pipeline) == {("b", "c")}
        assert pipeline.committed == (4 if window.clock == "event" else 3)


def test_a_graph_that_turns_over_its_vertices_stays_small(tmp_path: Path) -> None:
    sizes = []
    with working(tmp_path, window=FORGETTING) as pipeline:
        for number in range(60):
            edges = [(f"v{number}-{n}", f"v{number}-{n + 1}", float(number)) for n in range(40)]
            send(pipeline, timed_batch(edges))
            sizes.append(writer_of(pipeline).keyed.keys.limit)
        assert pipeline.view.vertices == 6 * 41
        window = writer_of(pipeline).keyed.window
        assert window is not None
        assert len(window.times) == 6 * 40
    assert max(sizes) <= 7 * 41  # the new ones precede the expiry
