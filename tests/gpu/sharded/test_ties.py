"""Ties of vertices of several shards, against those of one device and against exact ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options, PersonalizedQuery, ShardedEngine
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.operations.sweeps import OrthominUpdate
from liverank_gpu.pagerank import places
from liverank_gpu.personalized.resolve import METHODS
from liverank_gpu.sharded.vertices import OwnVertices
from liverank_gpu.types import Dangling, VertexOrder
from tests.gpu.graphs import FAMILIES, assert_certified
from tests.gpu.observed import counted
from tests.gpu.planted_ties import (
    COPIES,
    FOUND,
    PAIRS,
    SEEDS,
    TWINS,
    VERTICES,
    asked_of_pairs,
    exact_ranks,
    in_right_order,
    kinds,
    planted,
)
from tests.gpu.sharded.test_shards import sharded_engine
from tests.gpu.sharded.threads import ThreadWorkers, failing_sweep

CPU = backend_named("cpu")
FREE = replace(CPU, costs=replace(CPU.costs, exchange=0.0))
KINDS = [(False, True), (True, True), (False, False), (True, False)]


@pytest.mark.parametrize("dangling", get_args(Dangling))
@pytest.mark.parametrize(("weighted", "directed"), KINDS)
@pytest.mark.parametrize(("shards", "order"), [(2, "given"), (3, "degree")])
def test_the_places_of_ties_are_proven(
    dangling: Dangling,
    weighted: bool,
    directed: bool,
    shards: int,
    order: VertexOrder,
    backend: Backend,
) -> None:
    options = Options(dangling=dangling, weighted=weighted, directed=directed, vertex_order=order)
    one, batch = Engine(options, CPU), planted(5, weighted, directed)
    one.apply(batch)
    restarts = np.full(VERTICES, 1 / np.longdouble(VERTICES))
    exact = exact_ranks(one, restarts)
    right = in_right_order(exact, kinds(one, restarts))
    workers = ThreadWorkers(options, shards, backend)
    with ShardedEngine(options, workers=workers) as engine:
        engine.apply(batch)
        for k in (right.index(TWINS[0]) + 2, VERTICES):
            expected, result = (each.update(settle=k) for each in (one, engine))
            assert (result.settled, result.converged) == (expected.settled, expected.converged)
            ranks = engine.publish()
            vertices, values = ranks.top(VERTICES)
            assert vertices[: result.settled].tolist() == right[: result.settled]
            assert np.abs(ranks.to_numpy() - exact).sum() <= result.error_bound + 1e-15
            ids, highest = engine.top(VERTICES)
            assert (ids.tolist(), highest.tolist()) == (vertices.tolist(), values.tolist())
            theirs = one.publish().ties_of(vertices)
            ours = ranks.ties_of(vertices)
            # the rounding of a tie's mean is part of the bound
            added = [
                result.error_bound - each.internals.iterate.error_bound for each in workers.shards
            ]
            assert (min(added) > 0.0) == bool((ours >= 0).any())
            assert ((ours[1:] == ours[:-1]) == (theirs[1:] == theirs[:-1])).all()
            assert ((ours < 0) == (theirs < 0)).all()
        engine.update()
        assert (engine.publish().ties_of(vertices) == -1).all()


@pytest.mark.parametrize("shards", [2, 3])
def test_sets_are_proven_as_on_one_device(shards: int, backend: Backend) -> None:
    options, batch = Options(target_error=1e-3), planted(5, False)
    one = Engine(options, CPU)
    one.apply(batch)
    restarts = np.full(VERTICES, 1 / np.longdouble(VERTICES))
    exact = exact_ranks(one, restarts)
    right = in_right_order(exact, kinds(one, restarts))
    with ShardedEngine(options, workers=ThreadWorkers(options, shards, backend)) as engine:
        engine.apply(batch)
        for k, is_proven in (
            (right.index(TWINS[0]) + 1, True),
            (right.index(COPIES[0]) + 1, False),
            (right.index(COPIES[0]) + 2, True),
        ):
            expected, result = (
                each.update(settle=k, target="settled-set") for each in (one, engine)
            )
            assert (result.settled_set, result.converged) == (is_proven, is_proven)
            assert (expected.settled_set, expected.converged) == (is_proven, is_proven)
            assert result.settled == expected.settled
            if is_proven:
                assert set(engine.publish().top(k)[0].tolist()) == set(right[:k])


def test_an_interrupted_solve_leaves_no_ties() -> None:
    workers = ThreadWorkers(Options(), 3, CPU)
    with ShardedEngine(Options(), workers=workers) as engine:
        engine.apply(planted(5, False))
        result = engine.update(settle=VERTICES)
        assert (engine.publish().ties_of(np.array(TWINS)) >= 0).all()
        with failing_sweep(workers), pytest.raises(MemoryError, match="the third sweep"):
            engine.update("static")
        assert len(engine.publish().to_numpy()) == len(engine.top(5)[0]) == 0
        again = engine.update(settle=VERTICES)
        assert again.settled == result.settled
        assert (engine.publish().ties_of(np.array(TWINS)) >= 0).all()


@pytest.mark.parametrize("shards", [2, 3])
def test_ties_are_settled_by_accelerated_sweeps(shards: int, backend: Backend) -> None:
    vertices, edges = FAMILIES["grid"]()
    edges = edges[np.random.default_rng(2).random(len(edges)) < 0.8]
    twins = [(source, vertices + end) for source in range(0, vertices, 9) for end in range(2)]
    pairs = np.concatenate([edges, twins])
    # so loose that places are not settled by then
    options, k = Options(damping=0.97, target_error=0.1), 6
    accelerated: list[OrthominUpdate] = []
    one = Engine(options, CPU)
    with counted(OrthominUpdate, accelerated), sharded_engine(options, shards, backend) as engine:
        for each in (one, engine):
            each.apply(EdgeBatch(pairs[:, 0], pairs[:, 1]))
            each.update("residual")
        expected = one.update("residual", settle=k)
        accelerated.clear()
        result = engine.update("residual", settle=k)
        assert accelerated
        assert (result.settled, expected.settled) == (k, k)
        ranks = engine.publish()
        top, _ = ranks.top(k)
        assert top.tolist() == one.publish().top(k)[0].tolist()
        assert top[:2].tolist() == [vertices, vertices + 1]
        assert ranks.ties_of(top)[:2].tolist() == [0, 0]
        assert_certified(engine, result.error_bound)


def assert_found(
    classes: list[list[int]],
    batch: EdgeBatch,
    asked: NDArray[np.int64],
    shards: int,
    backend: Backend,
) -> None:
    """By one device, and by each of the shards."""
    options = Options(vertex_order="degree", weighted=True)
    one = Engine(options, replace(CPU, sizes=backend.sizes))
    workers = ThreadWorkers(options, shards, backend)
    one.apply(batch)
    workers.call("apply", [(batch if rank == 0 else EdgeBatch(),) for rank in range(shards)])
    found = workers.together(
        [
            OwnVertices(shard.graph, communicator).identical_to
            for shard, communicator in zip(workers.shards, workers.communicators, strict=True)
        ],
        [(asked,)] * shards,
    )
    expected = places.identical_in_lists(one.internals.graph, asked)
    for each in (expected, *found):
        assert sorted(members.tolist() for members in each.members) == classes


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_the_same_lists_are_found_as_on_one_device(shards: int, backend: Backend) -> None:
    assert_found([list(TWINS)], planted(6, True), np.arange(VERTICES), shards, backend)


@pytest.mark.parametrize(("most", "others", "classes"), FOUND)
def test_lists_that_take_the_fewest_entries_are_looked_for(
    most: int, others: int, classes: int, backend: Backend
) -> None:
    backend = replace(backend, sizes=Sizes(compared=most))
    pairs = [[2 * number, 2 * number + 1] for number in range(classes)]
    assert_found(pairs, EdgeBatch.of(PAIRS), asked_of_pairs(others), 3, backend)


@pytest.mark.parametrize("method", METHODS)
def test_ties_of_personalized_queries_are_proven(method: str) -> None:
    options = Options(vertex_order="degree")
    one, batch = Engine(options, CPU), planted(3, False)
    one.apply(batch)
    one.update()
    with sharded_engine(options, 3, FREE) as engine:
        engine.apply(batch)
        engine.update()
        for k in (2, VERTICES):
            query = PersonalizedQuery(SEEDS, None, k, method, 1e-12)
            expected, answer = (each.personalized_many([query])[0] for each in (one, engine))
            assert answer.settled == expected.settled
            assert (answer.groups, answer.ties) == (expected.groups, expected.ties)
            assert answer.vertices[: answer.settled].tolist() == (
                expected.vertices[: answer.settled].tolist()
            )
        assert answer.ties
        right = answer.vertices.tolist()
        for k, is_proven in (
            (right.index(TWINS[0]) + 1, True),
            (right.index(COPIES[0]) + 1, False),
            (right.index(COPIES[0]) + 2, True),
        ):
            query = PersonalizedQuery(SEEDS, None, k, method, 1e-12, "settled-set")
            (answer,) = engine.personalized_many([query])
            assert answer.settled_set == is_proven
            assert (answer.error_bound > 1e-12) == is_proven
            assert not is_proven or set(answer.vertices.tolist()) == set(right[:k])
