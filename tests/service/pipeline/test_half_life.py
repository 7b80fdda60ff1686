"""Weights that decay, through the pipeline: restarts, checkpoints, batches that wait together."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import networkx as nx
import pytest

from liverank_service.errors import BatchRejected
from liverank_service.pipeline.pipeline import Pipeline
from tests.service.graphs import receipt, send, submit, timed_batch, together, working

HALF_LIFE = 10.0
OPTIONS: dict[str, Any] = {"half_life": HALF_LIFE, "target_error": 1e-9}

BATCHES = [
    [("a", "b", 0.0), ("a", "c", 3.0), ("b", "a", 3.0), ("c", "a", 4.0)],
    [("a", "c", 17.0), ("c", "b", 18.0), ("b", "c", 19.0)],
    [("a", "b", 35.0), ("b", "c", 38.0), ("d", "a", 40.0)],
]


def expected(batches: list[list[tuple[str, str, float]]]) -> dict[str, float]:
    times = {(source, target): at for batch in batches for source, target, at in batch}
    graph = nx.DiGraph()
    graph.add_weighted_edges_from((*pair, 2 ** (at / HALF_LIFE)) for pair, at in times.items())
    ranks: dict[str, float] = nx.pagerank(graph, weight="weight", tol=1e-14, max_iter=1000)
    return ranks


def ranks_of(pipeline: Pipeline) -> dict[Any, float]:
    top = pipeline.view.top(10)
    return dict(zip(top.vertices.to_pylist(), top.ranks, strict=True))


@pytest.mark.parametrize("captured", [None, 1, 2])
def test_a_restart_has_the_decayed_weights(tmp_path: Path, captured: int | None) -> None:
    with working(tmp_path, **OPTIONS) as pipeline:
        for number, batch in enumerate(BATCHES[:2], start=1):
            send(pipeline, timed_batch(batch))
            if number == captured:
                pipeline.checkpoint().result(60)
    with working(tmp_path, **OPTIONS) as pipeline:
        assert ranks_of(pipeline) == pytest.approx(expected(BATCHES[:2]), abs=1e-7)
        send(pipeline, timed_batch(BATCHES[2]))
        assert ranks_of(pipeline) == pytest.approx(expected(BATCHES), abs=1e-7)


def test_batches_that_wait_together_count_each_what_they_expire(tmp_path: Path) -> None:
    """Each makes the edge of the one before 500 half-lives old."""
    with working(tmp_path, **OPTIONS) as pipeline:
        sent = [timed_batch([("a", f"t{number}", 5000.0 * number)]) for number in range(4)]
        together(pipeline, sent)
        found = [receipt(one) for one in sent]
        assert [(one["inserted"], one["expired"]) for one in found] == [(1, 0), *[(1, 1)] * 3]
        assert pipeline.view.edges == 1
    with working(tmp_path, **OPTIONS) as pipeline:
        assert pipeline.view.edges == 1


def test_a_time_that_the_engine_refuses_is_named_as_that_of_an_insertion(tmp_path: Path) -> None:
    with working(tmp_path, **OPTIONS) as pipeline:
        far = timed_batch([("a", "b", 1.0), ("b", "c", 1e300)])
        submit(pipeline, far)
        with pytest.raises(BatchRejected, match=r"insert\[1\]: time: 1e\+300 must be within 2⁴⁰"):
            far.ranked.result(60)
        assert pipeline.view.vertices == 0
