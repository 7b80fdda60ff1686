"""Weights through the pipeline: coalesced batches, restarts, checkpoints, backups and salvage."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import orjson
import pytest

from liverank_gpu import LARGEST_WEIGHT
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.storage.backup import backup, restore
from liverank_service.storage.graph_store import GraphStore
from liverank_service.storage.journal import Journal
from tests.service.graphs import (
    Sent,
    batch,
    engine_of,
    receipt,
    send,
    together,
    weighted_batch,
    working,
)

Weights = dict[tuple[str, str], float]


def weights_in(pipeline: Pipeline) -> Weights:
    engine = engine_of(pipeline)
    sources, targets = (pipeline.view.keys.keys(ids).to_pylist() for ids in engine.edge_list())
    pairs = zip(sources, targets, strict=True)
    return dict(zip(pairs, engine.edge_weights().tolist(), strict=True))


BATCHES = [
    weighted_batch([("a", "b", 2.0), ("b", "c", 0.5), ("c", "a", 1.0)]),
    weighted_batch([("a", "b", 3.0), ("c", "b", 4.0)], on_conflict="add"),
    weighted_batch([("b", "c", 7.0), ("a", "c", 0.25)], delete=[("c", "a")]),
]
AFTER: Weights = {("a", "b"): 5.0, ("b", "c"): 7.0, ("c", "b"): 4.0, ("a", "c"): 0.25}


def fresh() -> Iterator[Sent]:
    """The batches, each to be sent once."""
    return (Sent(one.batch) for one in BATCHES)


@pytest.mark.parametrize("captured", [0, 1, 2, 3])
def test_a_restart_has_the_weights_of_journal_and_checkpoint(tmp_path: Path, captured: int) -> None:
    with working(tmp_path, weighted=True) as pipeline:
        for number, one in enumerate(fresh(), start=1):
            send(pipeline, one)
            if number == captured:
                pipeline.checkpoint().result(60)
        assert weights_in(pipeline) == AFTER
        before = pipeline.view.top(10)
    with working(tmp_path, weighted=True) as pipeline:
        assert weights_in(pipeline) == AFTER
        after = pipeline.view.top(10)
        assert dict(zip(after.vertices.to_pylist(), after.ranks, strict=True)) == pytest.approx(
            dict(zip(before.vertices.to_pylist(), before.ranks, strict=True)), abs=2e-6
        )
        answer = send(pipeline, weighted_batch([("a", "b", 1.0)], on_conflict="add"))
        assert answer["reweighted"] == 1
        assert weights_in(pipeline)["a", "b"] == 6.0


def test_coalesced_batches_are_counted_each(tmp_path: Path) -> None:
    with working(tmp_path, weighted=True) as pipeline:
        send(pipeline, weighted_batch([("a", "b", 2.0), ("b", "c", 0.5)]))
        batches = [
            weighted_batch([("a", "b", 3.0), ("x", "y", 1.0)]),
            weighted_batch([("b", "c", 0.5)]),
            weighted_batch([], delete=[("u", "v")]),
        ]
        plain = batch([("p", "q"), ("b", "a")])
        together(pipeline, [*batches, plain])
        names = ("inserted", "already_present", "reweighted", "deleted", "not_found")
        found = [[receipt(one)[name] for name in names] for one in (*batches, plain)]
        assert found == [[1, 0, 1, 0, 0], [0, 1, 0, 0, 0], [0, 0, 0, 0, 1], [2, 0, 0, 0, 0]]
        assert weights_in(pipeline) == {
            ("a", "b"): 3.0,
            ("x", "y"): 1.0,
            ("b", "c"): 0.5,
            ("p", "q"): 1.0,
            ("b", "a"): 1.0,
        }


def test_batches_that_add_replace_and_take_away_are_applied_in_order(tmp_path: Path) -> None:
    with working(tmp_path, weighted=True) as pipeline:
        send(pipeline, weighted_batch([("a", "b", 2.0), ("b", "c", 1.0)]))
        batches = [
            weighted_batch([("a", "b", 3.0)], on_conflict="add"),
            weighted_batch([], delete=[("a", "b")], on_conflict="add", taken=[4.0]),
            weighted_batch([("b", "c", 9.0), ("c", "d", 2.0)]),
            weighted_batch([("c", "a", 1.0), ("c", "d", 3.0)], on_conflict="add"),
            weighted_batch([], delete=[("a", "b"), ("b", "c")], on_conflict="add", taken=[1, None]),
        ]
        together(pipeline, batches)
        names = ("reweighted", "lowered", "deleted")
        counts = [[receipt(one)[name] for name in names] for one in batches]
        assert counts == [[1, 0, 0], [0, 1, 0], [1, 0, 0], [1, 0, 0], [0, 0, 2]]
        assert weights_in(pipeline) == {("c", "a"): 1.0, ("c", "d"): 5.0}
    with working(tmp_path, weighted=True) as pipeline:
        assert weights_in(pipeline) == {("c", "a"): 1.0, ("c", "d"): 5.0}


def test_a_salvaged_journal_keeps_the_weights(tmp_path: Path) -> None:
    with working(tmp_path, weighted=True) as pipeline:
        for one in fresh():
            send(pipeline, one)
    with closing(sqlite3.connect(tmp_path / "journal.db")) as connection, connection:
        connection.execute("UPDATE batches SET payload = x'00' WHERE version = 3")
    with working(tmp_path, weighted=True) as pipeline:
        outcome = pipeline.outcome(3)
        assert outcome is not None
        assert outcome.status == "lost"
        assert weights_in(pipeline) == {
            ("a", "b"): 5.0,
            ("b", "c"): 0.5,
            ("c", "a"): 1.0,
            ("c", "b"): 4.0,
        }


@pytest.mark.parametrize("captured", [False, True])
def test_a_backup_has_the_weights(tmp_path: Path, captured: bool) -> None:
    data, saved, again = (tmp_path / name for name in ("data", "saved", "again"))
    store = GraphStore(data)
    store.open()
    directory = store.create("heavy", {"weighted": True})
    with working(directory, weighted=True) as pipeline:
        first, *others = fresh()
        send(pipeline, first)
        if captured:
            pipeline.checkpoint().result(60)
        for one in others:
            send(pipeline, one)
        copied = backup(data, saved)
    store.close()
    assert restore(saved, again) == copied
    with working(again / "graphs" / "heavy", weighted=True) as pipeline:
        assert weights_in(pipeline) == AFTER


def test_a_restart_of_an_undirected_graph_has_each_edge_once(tmp_path: Path) -> None:
    options = {"weighted": True, "directed": False}
    with working(tmp_path, **options) as pipeline:
        send(pipeline, weighted_batch([("a", "b", 2.0), ("c", "b", 0.5)]))
        pipeline.checkpoint().result(60)
        together(
            pipeline,
            [weighted_batch([("b", "a", 3.0)]), weighted_batch([("c", "c", 1.0), ("d", "a", 1.0)])],
        )
        send(pipeline, weighted_batch([("b", "c", 0.5)], on_conflict="add"))
        weights = weights_in(pipeline)
    assert {frozenset(pair): weight for pair, weight in weights.items()} == {
        frozenset("ab"): 3.0,
        frozenset("bc"): 1.0,
        frozenset("c"): 1.0,
        frozenset("ad"): 1.0,
    }
    assert len(weights) == 4
    with working(tmp_path, **options) as pipeline:
        assert weights_in(pipeline) == weights
        assert pipeline.view.edges == 4


def test_a_sum_above_the_range_is_rejected_when_it_is_replayed(tmp_path: Path) -> None:
    # the process ended after the commit, before the rejection was stored
    with working(tmp_path, weighted=True) as pipeline:
        send(pipeline, weighted_batch([("a", "b", 1.0), ("c", "d", LARGEST_WEIGHT)]))
    journal = Journal(tmp_path / "journal.db")
    overflow = weighted_batch(
        [("a", "b", 1.0), ("c", "d", LARGEST_WEIGHT), ("e", "f", 1.0)], on_conflict="add"
    )
    assert journal.append([overflow.batch.record], 1)[0] == 2
    journal.close()
    for _ in range(2):
        with working(tmp_path, weighted=True) as pipeline:
            assert pipeline.view.version == 2
            outcome = pipeline.outcome(2)
            assert outcome is not None
            assert outcome.status == "rejected"
            problem = orjson.loads(outcome.body)
            assert (problem["field"], problem["index"]) == ("insert", 1)
            assert weights_in(pipeline) == {("a", "b"): 1.0, ("c", "d"): LARGEST_WEIGHT}
