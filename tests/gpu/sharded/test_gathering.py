"""Snapshots of shards open on one device, and those of one device on shards of any number."""

from __future__ import annotations

import numpy as np
import pytest

from gpu import EdgeBatch, Engine, InvalidValue, Options, ShardedEngine, Snapshot, Unsupported
from gpu.backends import backend_named
from tests.gpu.graphs import Model, WeightedModel, random_batch, weighted_batch
from tests.gpu.sharded.test_shards import assert_ranks, sharded_engine

CPU = backend_named("cpu")

KINDS = [
    Options(target_error=1e-9),
    Options(target_error=1e-9, directed=False, vertex_order="degree"),
    Options(target_error=1e-9, weighted=True, vertex_order="degree"),
    Options(target_error=1e-9, weighted=True, directed=False, dangling="self-loop"),
]


def grown(engine: Engine | ShardedEngine, seed: int) -> Model:
    """What the engine has after some batches, the last of which adds vertices without edges."""
    generator, options = np.random.default_rng(seed), engine.options
    model = (WeightedModel if options.weighted else Model)(options.dangling, options.directed)
    for size in (40, 150, 30):
        if isinstance(model, WeightedModel):
            batch = weighted_batch(generator, model, size)
        else:
            batch = random_batch(generator, model, size)
        engine.apply(batch)
        model.apply(batch)
    lone = EdgeBatch(vertices=model.vertices + 3)
    engine.apply(lone)
    model.apply(lone)
    engine.update()
    return model


def edges_with_weights(engine: Engine) -> dict[tuple[int, int], float]:
    sources, targets = engine.edge_list()
    pairs = zip(sources.tolist(), targets.tolist(), strict=True)
    return dict(zip(pairs, engine.edge_weights().tolist(), strict=True))


@pytest.mark.parametrize("options", KINDS, ids=["directed", "undirected", "weighted", "loops"])
def test_a_snapshot_of_shards_opens_on_one_device(options: Options) -> None:
    with sharded_engine(options, 3, CPU) as shards:
        model = grown(shards, 1)
        snapshot = Snapshot(*shards.gather())
        ranks = shards.publish().to_numpy()
    one = Engine(options, "cpu")
    assert one.ranks_of(snapshot).to_numpy().tolist() == ranks.tolist()
    one.restore(snapshot)
    assert (one.vertices, one.edges) == (model.vertices, len(model.edges))
    assert set(edges_with_weights(one)) == model.edges
    if isinstance(model, WeightedModel):
        assert edges_with_weights(one) == model.weights
    result = one.update()
    assert result.iterations == 0  # the ranks are those of the edges
    assert result.error_bound <= options.target_error


@pytest.mark.parametrize("options", KINDS, ids=["directed", "undirected", "weighted", "loops"])
@pytest.mark.parametrize("before", [0, 3])
def test_shards_open_a_snapshot_of_any_number(options: Options, before: int) -> None:
    if before:
        with sharded_engine(options, before, CPU) as earlier:
            model = grown(earlier, 2)
            snapshot = Snapshot(*earlier.gather())
            ranks = earlier.publish().to_numpy()
    else:
        one = Engine(options, "cpu")
        model = grown(one, 2)
        snapshot = one.capture(one.staging_buffer()).snapshot()
        ranks = one.publish().to_numpy()
    with sharded_engine(options, 2, CPU) as engine:
        engine.restore(snapshot.arrays, snapshot.numbers)
        assert (engine.vertices, engine.edges) == (model.vertices, len(model.edges))
        np.testing.assert_allclose(engine.publish().to_numpy(), ranks, atol=1e-15)
        assert sum(engine.shard_edges) == engine_arcs(model)
        result = engine.update()
        assert result.iterations == 0
        assert_ranks(engine, model, result.error_bound)
        again = Snapshot(*engine.gather())
        assert again.numbers["edges"] == snapshot.numbers["edges"]
        generator = np.random.default_rng(9)
        if isinstance(model, WeightedModel):
            batch = weighted_batch(generator, model, 50)
        else:
            batch = random_batch(generator, model, 50)
        engine.apply(batch)
        model.apply(batch)
        assert_ranks(engine, model, engine.update().error_bound)


def engine_arcs(model: Model) -> int:
    """Entries of all out-lists, and loops that batches can change."""
    arcs = model.arcs()
    return len(arcs) if model.dangling == "uniform" else sum(u != v for u, v in arcs)


def test_a_graph_without_vertices_opens_too() -> None:
    with sharded_engine(Options(), 2, CPU) as engine:
        engine.update()
        snapshot = Snapshot(*engine.gather())
    with sharded_engine(Options(), 2, CPU) as engine:
        engine.restore(snapshot.arrays, snapshot.numbers)
        assert (engine.vertices, engine.edges) == (0, 0)


def test_what_cannot_be_opened_is_refused_by_name() -> None:
    one = Engine(Options(), "cpu")
    one.apply(EdgeBatch.of([(0, 1), (1, 2)]))
    one.update()
    snapshot = one.capture(one.staging_buffer()).snapshot()
    with (
        sharded_engine(Options(), 2, CPU) as engine,
        pytest.raises(InvalidValue, match="edges: 3 is not allowed"),
    ):
        engine.restore(snapshot.arrays, {**snapshot.numbers, "edges": 3})
    one.apply(EdgeBatch.of(remove=[1]))
    one.update()
    snapshot = one.capture(one.staging_buffer()).snapshot()
    with sharded_engine(Options(), 2, CPU) as engine:
        with pytest.raises(Unsupported, match="free: '1 ids of removed vertices'"):
            engine.restore(snapshot.arrays, snapshot.numbers)
        assert engine.vertices == 0
