"""Weights that decay in shards: what is stored is as on one device, bit for bit."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, InvalidValue, Options, ShardedEngine
from liverank_gpu.backends import backend_named
from liverank_gpu.graph.decay import HIGHEST
from liverank_gpu.operations.backend import Backend
from tests.gpu.graph.decaying import DAY, NOW, assert_certified, decaying_batch
from tests.gpu.graphs import snapshot_of
from tests.gpu.sharded.test_shards import sharded_engine

CPU = backend_named("cpu")


def stored(engine: Engine) -> dict[tuple[int, int], float]:
    """The weight of each edge in the row of its source, or of its lower id."""
    captured = engine.edge_reader.capture(engine.edge_reader.buffer())
    found: dict[tuple[int, int], float] = {}
    for sources, targets, weights in captured.blocks():
        assert weights is not None
        pairs = zip(sources.tolist(), targets.tolist(), strict=True)
        found |= dict(zip(pairs, weights.tolist(), strict=True))
    return found


def apply_to_both(one: Engine, shards: ShardedEngine, batch: EdgeBatch) -> int:
    """Returns how many edges have expired."""
    change = one.apply(batch)
    assert replace(shards.apply(batch), seconds=0.0) == replace(change, seconds=0.0)
    assert stored(shards) == stored(one)
    assert shards.edges == one.edges == len(stored(one))
    return change.expired


def assert_ranked(one: Engine, shards: ShardedEngine, strategy: str = "auto") -> None:
    one.update()
    assert_certified(one)
    error_bound = shards.update(strategy).error_bound
    difference = shards.publish().to_numpy() - one.publish().to_numpy()
    assert np.abs(difference).sum() <= error_bound + one.publish().error_bound


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("shards", [2, 3])
def test_a_stream_of_decaying_edges_is_stored_as_on_one_device(
    shards: int, directed: bool, backend: Backend
) -> None:
    generator = np.random.default_rng(7)
    options = Options(half_life=DAY, directed=directed, vertex_order="degree")
    one, now, expired = Engine(options, CPU), NOW, 0
    with sharded_engine(options, shards, backend) as engine:
        for step in range(25 if backend.name == "cpu" else 8):
            now += DAY * generator.choice([0.1, 3.0, 20.0, 60.0])
            batch = decaying_batch(generator, now, 60 if step == 0 else 6)
            if step % 5 == 4:
                batch = replace(batch, remove=generator.integers(0, 30, 2))
            expired += apply_to_both(one, engine, batch)
            if one.free_ids().size:
                apply_to_both(one, engine, EdgeBatch(add=one.free_ids()))
            assert_ranked(one, engine, str(generator.choice(STRATEGIES)))
    assert expired > 0


@pytest.mark.parametrize("directed", [True, False])
def test_an_edge_that_expires_in_rows_of_two_shards_counts_once(
    directed: bool, backend: Backend
) -> None:
    options = Options(half_life=1.0, directed=directed)
    one = Engine(options, CPU)
    with sharded_engine(options, 2, backend) as engine:
        pairs = np.array([[0, 1], [1, 0], [2, 3], [0, 0]])
        batch = EdgeBatch(pairs[:, 0], pairs[:, 1], times=np.zeros(4))
        apply_to_both(one, engine, batch)
        # both ends outlive their edge; then rows are scaled
        ends = np.array([[0, 2], [1, 3]])
        later = EdgeBatch(ends[:, 0], ends[:, 1], times=np.full(2, 500.0))
        assert apply_to_both(one, engine, later) == 3
        for time in (505.0, 501.0 + HIGHEST):
            apply_to_both(one, engine, EdgeBatch(ends[:, 0], ends[:, 1], times=np.full(2, time)))
        assert_ranked(one, engine)
        late = EdgeBatch(np.array([0, 5]), np.array([3, 6]), times=np.full(2, 400.0))
        assert apply_to_both(one, engine, late) == 1
        assert_ranked(one, engine)


def test_exponents_are_in_snapshots_of_shards_and_of_one_device(backend: Backend) -> None:
    generator = np.random.default_rng(3)
    options = Options(half_life=DAY, directed=False)
    one = Engine(options, CPU)
    with (
        sharded_engine(options, 2, backend) as first,
        sharded_engine(options, 3, backend) as second,
    ):
        for time in (NOW, NOW + 12 * DAY):
            apply_to_both(one, first, decaying_batch(generator, time, 100))
        first.apply(EdgeBatch(vertices=45))
        first.update()
        snapshot = snapshot_of(first)
        assert len(snapshot.arrays["exponents"]) == len(snapshot.arrays["newest"]) == 45
        again = Engine(options, CPU)
        again.restore(snapshot)
        second.restore(snapshot)
        batch = decaying_batch(generator, NOW + 29 * DAY, 20)
        first.apply(batch)
        apply_to_both(again, second, batch)
        assert stored(first) == stored(again)
        assert_ranked(again, second)


def test_a_time_is_refused_by_its_place_in_the_batch(backend: Backend) -> None:
    with sharded_engine(Options(half_life=1e-3), 2, backend) as engine:
        ends = np.arange(4)
        with pytest.raises(InvalidValue, match=r"times\[3\]: .*within 2⁴⁰ half-lives of 0"):
            engine.apply(EdgeBatch(ends, ends + 1, times=np.array([0.0, 0.0, 0.0, 1.2e9])))
        with pytest.raises(InvalidValue, match="times: None"):
            engine.apply(EdgeBatch(ends, ends + 1))
        assert (engine.vertices, engine.edges) == (0, 0)
