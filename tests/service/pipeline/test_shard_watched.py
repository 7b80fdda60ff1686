"""Watched queries of graphs in shards, which are threads here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from liverank_gpu import ShardLost, Solve
from liverank_service.errors import NotReady, RankingDelayed, UnknownWatched
from liverank_service.formats.seeds import SeedColumns
from liverank_service.pipeline.batch import Batch
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.queries.model import WatchedQuery
from liverank_service.queries.scheduler import WatchRequest
from liverank_service.queries.watched import WatchedResult
from tests.service.graphs import Sent, batch, columns, send, submit, working
from tests.service.pipeline.losing_workers import EDGES, Cluster
from tests.service.server import wait_for


@pytest.fixture
def pipeline(tmp_path: Path, cluster: Cluster) -> Iterator[Pipeline]:  # noqa: ARG001
    with working(tmp_path, shards=2) as pipeline:
        yield pipeline


def begin(pipeline: Pipeline, name: str, **query: Any) -> WatchRequest:
    seeds = SeedColumns.of(query.pop("seeds", {"a": 1.0}))
    request = WatchRequest([WatchedQuery(seeds=seeds, **query)], 60.0, name)
    pipeline.submit_query(request)
    return request


def watch(pipeline: Pipeline, name: str, **query: Any) -> None:
    begin(pipeline, name, **query).answer.result(60)


def results(pipeline: Pipeline) -> dict[str, WatchedResult]:
    watched = pipeline.view.watched
    assert watched is not None
    return dict(watched)


def assert_same(ours: Pipeline, theirs: Pipeline) -> None:
    """The same places, as far as they are proven, and ranks."""
    found, expected = results(ours), results(theirs)
    assert found.keys() == expected.keys()
    for name, result in found.items():
        assert result.ignored == expected[name].ignored
        one, other = result.answer, expected[name].answer
        if one is None or other is None:
            assert type(result.error) is type(expected[name].error)
            continue
        ranks = dict(zip(result.vertices.to_pylist(), one.ranks.tolist(), strict=True))
        others = dict(zip(expected[name].vertices.to_pylist(), other.ranks.tolist(), strict=True))
        bound = one.error_bound + other.error_bound
        keys = ranks.keys() | others.keys()  # those of rank 0 are left out
        assert sum(abs(ranks.get(key, 0.0) - others.get(key, 0.0)) for key in keys) <= bound + 1e-12


def removal(*keys: str) -> Sent:
    removed = replace(columns(), remove=pa.array(keys, pa.string()))
    return Sent(Batch.of(removed, repr(keys).encode(), Solve()))


QUERIES: dict[str, dict[str, Any]] = {
    "all": {"k": 20, "target_error": 1e-5},
    "pull": {"seeds": {"b": 1.0, "c": 3.0}, "k": 20, "method": "pull", "damping": 0.5},
    "among": {"k": 3, "among": ["b", "c", "x"], "unknown": "ignore"},
    "late": {"seeds": {"x": 1.0, "d": 1.0}, "unknown": "ignore", "k": 20},
    "none": {"seeds": {"x": 1.0}, "unknown": "ignore", "k": 20},
}


def stream() -> list[Sent]:
    return [
        batch([("a", "c"), ("c", "e")]),
        batch([("x", "a"), ("e", "x")], [("d", "a")]),
        removal("x"),
        batch([("x", "b"), ("a", "x"), ("f", "g")]),
        removal("d", "f"),
        batch([("d", "a"), ("g", "d")]),
    ]


def test_answers_are_those_of_one_device_also_after_restarts(
    tmp_path: Path, cluster: Cluster
) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "shards").mkdir()
    steps = list(zip(stream(), stream(), strict=True))
    for shards, first in ((2, True), (0, False), (3, False)):
        with (
            working(tmp_path / "one") as one,
            working(tmp_path / "shards", shards=shards) as several,
        ):
            if first:
                for pipeline in (one, several):
                    send(pipeline, batch(EDGES))
                    for name, query in QUERIES.items():
                        watch(pipeline, name, **query)
            assert_same(several, one)
            for _ in range(2):
                batches = steps.pop(0)
                for pipeline, each in zip((one, several), batches, strict=True):
                    receipt = send(pipeline, each)
                    assert receipt["seconds"]["watched"] > 0.0
                assert several.view.version == receipt["version"]
                assert_same(several, one)
            if first:
                several.checkpoint().result(60)
    assert len(cluster.started) == 2


@pytest.mark.parametrize("call", ["solve", "keep", "bring", "remove"])
def test_a_shard_that_is_lost_in_a_call_loses_no_watched_query(
    pipeline: Pipeline, cluster: Cluster, call: str, tmp_path: Path
) -> None:
    send(pipeline, batch(EDGES))
    watch(pipeline, "kept", **QUERIES["all"])
    before = pipeline.view
    cluster.may_start.clear()
    cluster.failing = call
    if call == "bring":
        with pytest.raises(RankingDelayed, match="version 2 is committed"):
            send(pipeline, batch([("a", "c")]))
    elif call == "remove":
        with pytest.raises(ShardLost, match="shard 1 of 2"):
            pipeline.unwatch("kept").result(60)
    else:
        with pytest.raises(ShardLost, match="shard 1 of 2"):
            watch(pipeline, "new", **QUERIES["pull"])
    wait_for(lambda: pipeline.shards.loss is not None)
    assert pipeline.view is before
    with pytest.raises(NotReady, match="is being recovered: shard 1 of 2"):
        begin(pipeline, "new")
    cluster.may_start.set()
    wait_for(lambda: pipeline.shards.loss is None)
    assert pipeline.shards.restarts == 1
    watch(pipeline, "new", **QUERIES["pull"])
    if call == "remove":
        with pytest.raises(UnknownWatched):
            pipeline.unwatch("kept").result(60)
    send(pipeline, batch([("c", "d")]))
    (tmp_path / "other").mkdir()
    with working(tmp_path / "other") as other:
        send(other, batch(EDGES))
        for edges in [[("a", "c")]] * (call == "bring") + [[("c", "d")]]:
            send(other, batch(edges))
        if call != "remove":
            watch(other, "kept", **QUERIES["all"])
        watch(other, "new", **QUERIES["pull"])
        assert_same(pipeline, other)


def test_watched_queries_are_solved_again_after_a_loss_that_no_call_meets(
    pipeline: Pipeline, cluster: Cluster
) -> None:
    send(pipeline, batch(EDGES))
    watch(pipeline, "kept", **QUERIES["all"])
    before = results(pipeline)["kept"]
    assert before.answer is not None
    (first,) = cluster.started
    first.lose()
    wait_for(lambda: pipeline.shards.restarts == 1 and pipeline.shards.loss is None)
    after = results(pipeline)["kept"]
    assert after.answer is not None
    assert after.answer is not before.answer
    assert after.vertices == before.vertices
    send(pipeline, batch([("c", "f")]))
    assert "f" in results(pipeline)["kept"].vertices.to_pylist()


def test_a_query_without_ranks_that_meets_a_loss_fails_with_it(
    pipeline: Pipeline, cluster: Cluster
) -> None:
    send(pipeline, batch(EDGES))
    later = Sent(Batch.of(columns([("a", "c")]), b"later", Solve(), None, True))
    submit(pipeline, later)
    assert later.durable.result(60) == 2
    cluster.failing = "update"
    with pytest.raises(ShardLost, match="shard 1 of 2"):
        watch(pipeline, "none", **QUERIES["none"])
    wait_for(lambda: pipeline.shards.restarts == 1 and pipeline.shards.loss is None)
    watch(pipeline, "none", **QUERIES["none"])
    assert results(pipeline)["none"].ignored == ["x"]
