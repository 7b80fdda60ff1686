"""Views of graphs in shards, which are threads here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import networkx as nx
import numpy as np
import pytest

from liverank_gpu import ShardLost
from liverank_gpu.personalized.query import Query
from liverank_service.errors import RankingDelayed, UnknownView
from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.queries.rank_views import RankView, ViewRequest
from liverank_service.queries.scheduler import WatchRequest
from tests.service.graphs import Pairs, batch, send, working
from tests.service.pipeline.losing_workers import EDGES, Cluster
from tests.service.server import wait_for

WEIGHTS = {"a": 1.0, "c": 3.0}
VIEWS: dict[str, dict[str, Any]] = {
    "trust": {"teleport": {"weights": WEIGHTS}},
    "all": {"teleport": "uniform", "target_error": 1e-7},
    "inside": {"teleport": {"weights": WEIGHTS}, "within": ["a", "b", "c"], "target_error": 1e-7},
    "distrust": {"teleport": {"weights": WEIGHTS}, "direction": "reversed", "target_error": 1e-5},
}


@pytest.fixture
def pipeline(tmp_path: Path, cluster: Cluster) -> Iterator[Pipeline]:  # noqa: ARG001
    with working(tmp_path, shards=2) as pipeline:
        yield pipeline


def put(pipeline: Pipeline, name: str) -> None:
    request = WatchRequest([ViewRequest.model_validate(VIEWS[name])], 60.0, name)
    pipeline.submit_query(request)
    request.answer.result(60)


def results(pipeline: Pipeline) -> dict[str, RankView]:
    views = pipeline.view.rank_views
    assert views is not None
    return dict(views)


def assert_exact(pipeline: Pipeline, edges: Pairs, *names: str) -> None:
    """These are the views, each within its bound, which is within its target."""
    found = results(pipeline)
    assert found.keys() == set(names)
    for name, result in found.items():
        query, ranks = VIEWS[name], result.ranks
        assert ranks is not None
        assert ranks.error_bound <= query.get("target_error", 1e-6)
        graph = nx.DiGraph(edges)
        graph = graph.reverse() if "direction" in query else graph
        weights = None if query["teleport"] == "uniform" else WEIGHTS
        inside = graph.subgraph(query.get("within", graph))
        exact = dict.fromkeys(graph, 0.0) | nx.pagerank(
            inside, 0.85, weights, dangling=weights, max_iter=1000, tol=1e-14
        )
        keys = pipeline.view.keys.keys(np.arange(ranks.id_limit)).to_pylist()
        values = dict(zip(keys, ranks.to_numpy().tolist(), strict=True))
        assert values.keys() == exact.keys()
        assert sum(abs(values[key] - exact[key]) for key in exact) <= ranks.error_bound + 1e-11


def test_views_follow_batches_and_restarts(tmp_path: Path, cluster: Cluster) -> None:
    """A restart goes on from the ranks of a checkpoint, with any number of shards or none."""
    edges, solves = list(EDGES), patch.object(Query, "step", side_effect=AssertionError)
    with working(tmp_path, shards=2) as pipeline:
        send(pipeline, batch(EDGES))
        for name in VIEWS:
            put(pipeline, name)
        assert_exact(pipeline, edges, *VIEWS)
        for added in ([("a", "c"), ("c", "e")], [("e", "d"), ("x", "a")]):
            edges += added
            receipt = send(pipeline, batch(added))
            assert receipt["views"].keys() == receipt["view_seconds"].keys() == VIEWS.keys()
            assert_exact(pipeline, edges, *VIEWS)
            assert results(pipeline)["trust"].error_bound == receipt["views"]["trust"]
        for name in VIEWS:  # to half its target
            pipeline.remove_view(name).result(60)
            put(pipeline, name)
        assert pipeline.view.memory["shards"] > 0
        pipeline.checkpoint().result(60)
    for shards in (3, 0, 2):
        with solves, working(tmp_path, shards=shards) as pipeline:
            assert_exact(pipeline, edges, *VIEWS)
    with working(tmp_path, shards=2) as pipeline:
        edges += [("x", "b"), ("d", "b")]
        send(pipeline, batch(edges[-2:]))
        assert_exact(pipeline, edges, *VIEWS)
    with working(tmp_path, shards=2) as pipeline:  # from an earlier version of the graph
        assert_exact(pipeline, edges, *VIEWS)
    assert len(cluster.started) == 5


@pytest.mark.parametrize("call", ["solve", "keep", "bring", "remove"])
def test_a_shard_that_is_lost_in_a_call_loses_no_view(
    pipeline: Pipeline, cluster: Cluster, call: str
) -> None:
    edges = list(EDGES)
    send(pipeline, batch(EDGES))
    put(pipeline, "trust")
    cluster.failing = call
    kept = ["trust"]
    if call == "bring":
        edges.append(("a", "c"))
        with pytest.raises(RankingDelayed, match="version 2 is committed"):
            send(pipeline, batch([("a", "c")]))
    elif call == "remove":
        kept = []
        with pytest.raises(ShardLost, match="shard 1 of 2"):
            pipeline.remove_view("trust").result(60)
    else:
        with pytest.raises(ShardLost, match="shard 1 of 2"):
            put(pipeline, "distrust")
    wait_for(lambda: pipeline.shards.restarts == 1 and pipeline.shards.loss is None)
    if call == "remove":
        with pytest.raises(UnknownView):
            pipeline.remove_view("trust").result(60)
    else:
        put(pipeline, "distrust")
        kept.append("distrust")
    send(pipeline, batch([("c", "d")]))
    assert_exact(pipeline, [*edges, ("c", "d")], *kept)
