"""Watched queries follow the batches."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, InvalidValue, Options, Personalized, PersonalizedQuery
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Operation
from liverank_gpu.operations.sweeps import Sweep
from liverank_gpu.pagerank.certificate import StallRule
from liverank_gpu.types import Dangling
from tests.gpu.graphs import FAMILIES, Model, engine_on, random_batch
from tests.gpu.personalized.certified import engine_of, exact_ranks

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


@pytest.mark.in_shards
@pytest.mark.parametrize("dangling", POLICIES)
def test_watched_queries_stay_within_their_bounds(
    dangling: Dangling, backend: Backend, long: bool
) -> None:
    """Up to 1,000 batches with growth on the cpu, fewer where that takes long."""
    generator = np.random.default_rng(3)
    engine, model = engine_on(Options(dangling=dangling), backend), Model(dangling)
    for size in (0, 120):
        batch = random_batch(generator, model, size) if size else EdgeBatch(vertices=40)
        model.apply(batch)
        engine.apply(batch)
    watched = {
        "one": PersonalizedQuery(np.array([1]), k=4000, target_error=1e-4),
        "weighted": PersonalizedQuery(np.array([0, 5]), np.array([1.0, 3.0]), 4000, "push", 1e-3),
        "dense": PersonalizedQuery(np.array([2]), None, 4000, "pull", 1e-6),
    }
    watched = {name: replace(query, zeros=True) for name, query in watched.items()}
    for name, query in watched.items():
        engine.watch(name, query)
    refreshed = 0
    count = (1000 if long else 80) if backend.name == "cpu" else (30 if long else 12)
    for step in range(count):
        batch = random_batch(generator, model, size=8)
        model.apply(batch)
        engine.apply(batch)
        engine.refresh_watched()
        for name, query in watched.items():
            answer = engine.watched(name)
            assert query.target_error is not None
            assert answer.error_bound <= query.target_error
            refreshed += answer.iterations > 0
            if step % 50 == 0 or step < 20:
                _assert_grown(engine, query, answer)
    assert refreshed > 0


def _assert_grown(engine: Engine, query: PersonalizedQuery, answer: Personalized) -> None:
    """As _assert_certified, of at most k places."""
    exact = exact_ranks(engine, query)
    assert len(answer.vertices) == min(query.k, engine.vertices)
    found = np.zeros(engine.vertices)
    found[answer.vertices] = answer.ranks
    assert np.abs(found - exact).sum() <= answer.error_bound + 1e-11
    right = np.argsort(-exact, kind="stable")
    # the oracle has ties in any order: it rounds each of them
    group = np.repeat(np.arange(len(answer.groups)), answer.groups)
    proven = slice(answer.settled)
    other = answer.vertices[proven] != right[proven]
    assert np.isin(group[proven][other], answer.ties).all()
    gaps = np.abs(exact[answer.vertices[proven]] - exact[right[proven]])
    assert gaps.max(initial=0.0) <= 1e-14
    for number in answer.ties:
        assert (np.diff(answer.vertices[group == number]) > 0).all()


@pytest.mark.in_shards
def test_a_watched_query_is_read_replaced_and_forgotten(backend: Backend) -> None:
    engine = engine_of(FAMILIES["karate club"](), backend)
    engine.watch("mine", PersonalizedQuery(np.array([0]), k=1))
    assert engine.watched("mine").vertices.tolist() == [0]
    engine.watch("mine", PersonalizedQuery(np.array([33]), k=2))
    assert engine.watched("mine").vertices.tolist()[0] == 33
    assert len(engine.watched("mine").vertices) == 2
    with pytest.raises(InvalidValue, match=r"seeds\[0\]: 34 is not allowed"):
        engine.watch("mine", PersonalizedQuery(np.array([34])))
    assert len(engine.watched("mine").vertices) == 2
    engine.unwatch("mine")
    with pytest.raises(KeyError):
        engine.watched("mine")


def test_a_batch_that_leaves_a_watched_query_alone_costs_it_no_iteration(backend: Backend) -> None:
    engine = engine_of(FAMILIES["disconnected parts"](), backend)
    engine.watch("here", PersonalizedQuery(np.array([0]), k=5, target_error=1e-6))
    before = engine.watched("here")
    engine.apply(EdgeBatch.of(insert=[(100, 101), (110, 119)]))
    engine.refresh_watched()
    after = engine.watched("here")
    assert after.iterations == 0
    assert after.vertices.tolist() == before.vertices.tolist()
    assert after.ranks.tolist() == before.ranks.tolist()
    assert after.error_bound <= 1e-6


def test_what_was_refused_once_is_not_said_of_later_answers(backend: Backend) -> None:
    spoiled = 0

    def run(operation: Operation[Any], /) -> Any:
        nonlocal spoiled
        result = backend.run(operation)
        if spoiled == StallRule.LIMIT or not isinstance(operation, Sweep):
            return result
        spoiled, operation.values[:] = spoiled + 1, np.nan
        return result._replace(residual_l1=np.nan, mass=np.nan)

    engine = Engine(Options(), replace(backend, run=run))
    engine.apply(EdgeBatch.of([(0, 1), (1, 2), (2, 0)]))
    engine.watch("a", PersonalizedQuery(np.array([0]), k=2, method="pull"))
    assert "divided by their sum, nan" in str(engine.watched("a").refused)
    engine.apply(EdgeBatch.of([(0, 2)]))
    engine.refresh_watched()
    answer = engine.watched("a")
    assert answer.iterations > 0
    assert answer.refused is None
