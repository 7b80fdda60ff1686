"""Ties of vertices of several shards, against those of one device and against exact ranks."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options, ShardedEngine
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.operations.sweeps import OrthominUpdate
from liverank_gpu.pagerank import places
from liverank_gpu.sharded.vertices import OwnVertices
from tests.gpu.graphs import FAMILIES, assert_certified
from tests.gpu.observed import counted
from tests.gpu.planted_ties import (
    FOUND,
    PAIRS,
    TWINS,
    VERTICES,
    asked_of_pairs,
    planted,
)
from tests.gpu.sharded.test_shards import sharded_engine
from tests.gpu.sharded.threads import ThreadWorkers, failing_sweep

CPU = backend_named("cpu")
FREE = replace(CPU, costs=replace(CPU.costs, exchange=0.0))


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
