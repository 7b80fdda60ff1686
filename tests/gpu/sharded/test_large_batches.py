"""Batches that are a large part of a graph in shards: merged into new lists, by all or by none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace

import numpy as np
import pytest

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Options, OutOfMemory, ShardedEngine
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.graph import SortedKeys
from liverank_gpu.sharded.loading import load_bytes
from tests.gpu.doubles import instead
from tests.gpu.graph.decaying import DAY, NOW, decaying_batch
from tests.gpu.graphs import (
    Model,
    WeightedModel,
    batch_for,
    model_of,
    some_weights,
)
from tests.gpu.observed import traced
from tests.gpu.sharded.test_decay import apply_to_both, assert_ranked
from tests.gpu.sharded.test_loading import own_sizes, scarce, short_at, short_memory
from tests.gpu.sharded.test_shards import assert_ranks, kind_of_graph, sharded_engine
from tests.gpu.sharded.threads import ThreadWorkers

CPU = scarce(backend_named("cpu"))


def large_from(backend: Backend, operations: int) -> AbstractContextManager[None]:
    """More of them are a large part of a graph that has at most four times as many. backend: of
    `scarce`
    """
    return own_sizes(backend, rebuild=operations)


@contextmanager
def loaded_by(workers: ThreadWorkers, *expected: int) -> Iterator[None]:
    """The ranks of the shards that take new lists."""
    before = [shard.graph.incoming for shard in workers.shards]
    yield
    new = [shard.graph.incoming is not before[rank] for rank, shard in enumerate(workers.shards)]
    assert np.flatnonzero(new).tolist() == [*expected]


def random_edges(generator: np.random.Generator, options: Options) -> EdgeBatch:
    sources, targets = (70 * generator.random((2, 160)) ** 2).astype(np.int64)
    weights = some_weights(generator, 160) if options.weighted else None
    return EdgeBatch(sources, targets, vertices=70, weights=weights)


def assert_edges(engine: ShardedEngine, model: Model) -> None:
    columns = (column.tolist() for column in engine.edge_list())
    found = dict(zip(zip(*columns, strict=True), engine.edge_weights().tolist(), strict=True))
    ones = dict.fromkeys(model.edges, 1.0)
    assert found == (model.weights if isinstance(model, WeightedModel) else ones)


def assert_touched(workers: ThreadWorkers, model: Model, before: set[tuple[int, int]]) -> None:
    """That shards say at least which sources changed, and which targets edges are gone from."""
    sources, targets = set(), set()
    for shard in workers.shards:
        update, graph = shard.unfollowed, shard.graph
        assert update is not None
        named = graph.numbering.positions_of(update.sources)
        sources |= set(graph.permutation.ids_of(named).tolist())
        xp = graph.backend.xp
        named = graph.numbering.positions_at(xp.asarray(update.removed_targets), xp)
        targets |= set(graph.permutation.ids_of(named).tolist())
    assert {source for source, _ in model.arcs(before ^ model.edges)} <= sources
    assert {target for _, target in model.arcs(before - model.edges)} <= targets


@pytest.mark.parametrize("removes", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_a_stream_of_large_batches_leaves_the_graph_of_the_model(
    seed: int, removes: bool, backend: Backend
) -> None:
    """In one range and in many, with small batches between."""
    generator, options = np.random.default_rng(seed), kind_of_graph(seed)
    shards, model, backend = [2, 3, 1, 4][seed % 4], model_of(options), scarce(backend)
    workers = ThreadWorkers(options, shards, backend)
    with ShardedEngine(options, workers=workers) as engine:
        for step in range(6):
            batch = random_edges(generator, options)
            if step:
                batch = batch_for(generator, model, 60, removes)
            before, large = set(model.edges), step != 3
            in_ranges = short_memory(backend) if step % 2 else nullcontext()
            are_large = large_from(backend, -1 if large else 1 << 20)
            with in_ranges, are_large, loaded_by(workers, *range(shards * large)):
                change = engine.apply(batch)
            assert replace(change, seconds=0.0) == model.apply(batch)
            assert_touched(workers, model, before)
            assert_edges(engine, model)
            result = engine.update(STRATEGIES[(seed + step) % len(STRATEGIES)])
            assert_ranks(engine, model, result.error_bound)


@pytest.mark.parametrize("directed", [True, False])
def test_weights_that_decay_are_stored_as_on_one_device(directed: bool, backend: Backend) -> None:
    generator = np.random.default_rng(7)
    options = Options(half_life=DAY, directed=directed, vertex_order="degree")
    one, now, backend = Engine(options, CPU), NOW, scarce(backend)
    with sharded_engine(options, 3, backend) as engine, large_from(backend, -1):
        for step in range(6):
            now += float(generator.choice([1.0, DAY, 30 * DAY]))
            apply_to_both(one, engine, decaying_batch(generator, now, 40))
            assert_ranked(one, engine, STRATEGIES[step % len(STRATEGIES)])


def test_the_whole_batch_decides() -> None:
    """More than a quarter of the edges, although no shard has so many in its slice."""
    options, tips = Options(target_error=1e-9), np.arange(400)
    workers = ThreadWorkers(options, 4, CPU)
    with ShardedEngine(options, workers=workers) as engine, large_from(CPU, 20):
        for count, step, expected in ((400, 1, 4), (100, 2, 0), (126, 3, 4), (400, 5, 4)):
            with loaded_by(workers, *range(expected)):
                engine.apply(EdgeBatch(tips[:count], tips[:count] + step))
    options = replace(options, directed=False)
    workers = ThreadWorkers(options, 2, CPU)
    with ShardedEngine(options, workers=workers) as engine, large_from(CPU, 20):
        engine.apply(EdgeBatch(tips, tips + 1))
        # a quarter of 800 arcs, and two more
        with loaded_by(workers):
            engine.apply(EdgeBatch(tips[:100], tips[:100] + 2))
        with loaded_by(workers, 0, 1):
            engine.apply(EdgeBatch(tips[:126], tips[:126] + 3))


def test_what_the_lists_have_counts_in_a_range() -> None:
    """A batch names five rows of a graph of 400, and is merged with all of them."""
    sizes, tips = list[int](), np.arange(400)

    def merge(*parts: SortedKeys) -> SortedKeys:
        sizes.append(sum(len(each.keys) for each in parts))
        return CPU.rebuild.merge(*parts)

    backend = replace(CPU, rebuild=instead(CPU.rebuild, merge=merge))
    with sharded_engine(Options(vertex_order="given"), 2, backend) as engine, large_from(CPU, 20):
        engine.apply(EdgeBatch(np.tile(tips, 3), np.concatenate([tips + k for k in (1, 2, 3)])))
        with short_memory(CPU, at_once=40):
            engine.apply(EdgeBatch(tips[:350] % 5, tips[:350] + 50))
    assert sum(sizes) == 2 * (1_200 + 350)
    assert max(sizes) < 80


@pytest.mark.parametrize("directed", [True, False])
def test_the_edge_whose_sum_exceeds_float32_is_named(directed: bool, backend: Backend) -> None:
    options = Options(weighted=True, directed=directed, target_error=1e-9)
    model, backend = WeightedModel("uniform", directed), scarce(backend)
    first = EdgeBatch.of(insert=[(7, 4, 2e38), (6, 1, 3e38), (5, 3, 1.0), (2, 2, 3e38)])
    adds = [(5, 3, 1.0), (4, 7, 1.0), (7, 4, 2.5e38), (1, 5, 2.0)]
    model.apply(first)
    for at_once in (1, 1000):
        for rows, named in (([*adds, (0, 8, 1.0)], 2), ([(2, 2, 3e38), (5, 3, 1.0)], 0)):
            batch = EdgeBatch.of(insert=rows, delete=[(6, 1)], on_conflict="add")
            with sharded_engine(options, 3, backend) as engine, large_from(backend, -1):
                engine.apply(first)
                refused = pytest.raises(ValueError, match=rf"weights\[{named}\]")
                with short_memory(backend, at_once), refused:
                    engine.apply(batch)
                assert_edges(engine, model)
                assert_ranks(engine, model, engine.update().error_bound)


def test_memory_that_runs_out_at_a_later_range_leaves_the_graph_as_it_was() -> None:
    options, generator = kind_of_graph(3), np.random.default_rng(3)
    model, workers = model_of(options), ThreadWorkers(options, 2, CPU)
    with ShardedEngine(options, workers=workers) as engine, large_from(CPU, -1):
        first = random_edges(generator, options)
        engine.apply(first)
        model.apply(first)
        engine.update()
        batch = batch_for(generator, model, 100, removes=True)
        refused = pytest.raises(OutOfMemory, match="a batch of")
        with short_memory(CPU), short_at(workers, 25), refused:
            engine.apply(batch)
        assert (engine.vertices, engine.edges) == (model.vertices, len(model.edges))
        assert_edges(engine, model)
        assert_ranks(engine, model, engine.update().error_bound)
        assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
        assert_edges(engine, model)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [True, False])
def test_a_large_batch_takes_at_most_80_bytes_an_arc(weighted: bool, directed: bool) -> None:
    """Twice as many with a weight; beside its columns, and the lists before it."""
    edges, vertices, shards, at_once = 250_000, 5_000, 2, 20_000
    generator = np.random.default_rng(4)
    options = Options(weighted=weighted, directed=directed)
    sources, targets = generator.integers(0, vertices, (2, 2, edges))
    weights = np.ones(edges, np.float32) if weighted else None
    first = EdgeBatch(sources[0], targets[0], weights=weights)
    others = slice(edges // 10, edges // 2)
    batch = EdgeBatch(
        sources[1, others],
        targets[1, others],
        sources[0, : edges // 10],
        targets[0, : edges // 10],
        weights=None if weights is None else weights[others],
    )
    with large_from(CPU, 1000), short_memory(CPU, at_once, chunk=10_000):
        for _ in range(2):  # the first one compiles
            with sharded_engine(options, shards, CPU) as engine:
                engine.apply(first)
                with traced() as peak:
                    engine.apply(batch)
    arcs = (1 if directed else 2) * edges
    operations = arcs // 2
    columns = 0 if directed else 20 * operations
    entries = arcs * 14 // 10 // shards + 4_000
    said = shards * load_bytes(CPU.sizes, entries, vertices // shards, 12, weighted)
    assert peak.bytes <= said + columns
    assert peak.bytes - columns < (160 if weighted else 80) * operations
