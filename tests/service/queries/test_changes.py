"""What subscribers are told, against a model of what each of them knows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from liverank_service.pipeline.pipeline import Pipeline
from liverank_service.queries.changes import ChangeTracker, Subscription
from liverank_service.queries.view import View
from tests.service.graphs import Pairs, batch, send, working


class Model:
    """A subscriber: what it was told, and who it takes for the top."""

    def __init__(self, tracker: ChangeTracker) -> None:
        self.told = {one["vertex"]: one["rank"] for one in tracker.snapshot()}
        self.top = set(self.told)

    def take(self, event: dict[str, Any]) -> None:
        entered, left = names(event["entered"]), names(event["left"])
        assert not entered & self.top
        assert left <= self.top
        self.top = (self.top | entered) - left
        for one in (*event["entered"], *event["left"], *event["moved"]):
            self.told[one["vertex"]] = one["rank"]

    def outdated(self, view: View, threshold: float) -> set[str]:
        """Vertices that it was told, whose rank differs too much now."""
        ranks = all_ranks(view)
        return {
            vertex
            for vertex, told in self.told.items()
            if abs(ranks[vertex] - told) > threshold * told
        }


def names(listed: list[dict[str, Any]]) -> set[str]:
    return {one["vertex"] for one in listed}


def all_ranks(view: View) -> dict[str, float]:
    keys = view.keys.keys(np.arange(view.vertices)).to_pylist()
    return dict(zip(keys, view.ranks.to_numpy().tolist(), strict=True))


def random_pairs(random: np.random.Generator, count: int, vertices: int) -> Pairs:
    return [(str(a), str(b)) for a, b in random.integers(0, vertices, (count, 2)).tolist()]


def applied(pipeline: Pipeline, insert: Pairs) -> View:
    send(pipeline, batch(insert))
    return pipeline.view


@pytest.mark.parametrize("limit", [20, 1000])
def test_every_subscriber_knows_every_rank_up_to_the_threshold(limit: int, tmp_path: Path) -> None:
    random = np.random.default_rng(3)
    subscription = Subscription(top=10, threshold=0.1, limit=limit)
    truncated = 0
    with working(tmp_path) as pipeline:
        tracker = ChangeTracker(subscription, applied(pipeline, random_pairs(random, 300, 100)))
        models = [Model(tracker)]
        for step in range(60):
            view = applied(pipeline, random_pairs(random, 5, 100 + step))
            event = tracker.advance(view)
            told = [*event["entered"], *event["left"], *event["moved"]]
            assert len(told) <= limit
            assert len(names(told)) == len(told)
            assert all(one["rank"] == all_ranks(view)[one["vertex"]] for one in told)
            for model in models:
                model.take(event)
                assert model.top == set(view.top(10).vertices.to_pylist())
                if not event["truncated"]:
                    assert not model.outdated(view, 0.1)
            truncated += event["truncated"]
            if step % 7 == 0:
                models.append(Model(tracker))
        if limit == 20:
            assert truncated > 0
            for _ in range(20):  # what was left out is told with the next events
                event = tracker.advance(view)
                for model in models:
                    model.take(event)
            assert not event["truncated"]
            assert not any(model.outdated(view, 0.1) for model in models)


def test_only_ranks_that_moved_by_more_than_the_threshold_are_told(tmp_path: Path) -> None:
    random = np.random.default_rng(4)
    with working(tmp_path) as pipeline:
        tracker = ChangeTracker(
            Subscription(top=1, threshold=0.2, limit=1000),
            applied(pipeline, random_pairs(random, 300, 60)),
        )
        told = all_ranks(tracker.view)
        moved = 0
        for _ in range(40):
            view = applied(pipeline, random_pairs(random, 3, 60))
            event, ranks = tracker.advance(view), all_ranks(view)
            apart = {key for key in ranks if abs(ranks[key] - told[key]) > 0.2 * told[key]}
            exchanged = names([*event["entered"], *event["left"]])
            assert names(event["moved"]) == apart - exchanged
            told |= {key: ranks[key] for key in apart | exchanged}
            moved += len(apart)
        assert moved > 0
