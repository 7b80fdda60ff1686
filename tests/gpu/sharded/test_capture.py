"""Snapshots of shards open on one device, and those of one device on shards of any number."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest

from liverank_gpu import (
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfMemory,
    Ranks,
    ShardedEngine,
    Snapshot,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import ALIGNMENT
from liverank_gpu.sharded.columns import ListLayout
from tests.gpu.doubles import looked_after
from tests.gpu.graphs import (
    Model,
    WeightedModel,
    batch_for,
    model_of,
    snapshot_of,
)
from tests.gpu.sharded.test_shards import assert_ranks
from tests.gpu.sharded.threads import ThreadWorkers

CPU = backend_named("cpu")

KINDS = {
    "directed": Options(target_error=1e-9),
    "undirected": Options(target_error=1e-9, directed=False, vertex_order="degree"),
    "weighted": Options(target_error=1e-9, weighted=True, vertex_order="degree"),
    "loops": Options(target_error=1e-9, weighted=True, directed=False, dangling="self-loop"),
}
EACH_KIND = pytest.mark.parametrize("options", KINDS.values(), ids=KINDS.keys())


def workers_of(
    options: Options, shards: int, backend: Backend | Sequence[Backend]
) -> ThreadWorkers:
    """Of pieces that end within lists."""
    workers = ThreadWorkers(options, shards, backend)
    workers.piece = 7
    return workers


def sharded_engine(options: Options, shards: int, backend: Backend) -> ShardedEngine:
    return ShardedEngine(options, workers=workers_of(options, shards, backend))


def change(engine: Engine, model: Model, generator: np.random.Generator, size: int) -> None:
    """Applies a batch that may remove vertices, and that brings some back."""
    batch = batch_for(generator, model, size, True)
    engine.apply(batch)
    model.apply(batch)


def grown(engine: Engine, seed: int) -> Model:
    """What the engine has after some batches. The last ones add vertices without edges and remove
    vertices, so that ids are free.
    """
    generator, model = np.random.default_rng(seed), model_of(engine.options)
    for size in (40, 150, 30):
        change(engine, model, generator, size)
    limit = model.vertices
    for batch in (EdgeBatch(vertices=limit + 3), EdgeBatch.of(remove=[1, 4, limit])):
        engine.apply(batch)
        model.apply(batch)
    engine.update()
    assert model.free >= {1, 4, limit}
    return model


def edges_with_weights(engine: Engine) -> dict[tuple[int, int], float]:
    sources, targets = engine.edge_list()
    pairs = zip(sources.tolist(), targets.tolist(), strict=True)
    return dict(zip(pairs, engine.edge_weights().tolist(), strict=True))


def by_id(ranks: Ranks) -> dict[int, float]:
    ids, values = ranks.top(1000)
    return dict(zip(ids.tolist(), values.tolist(), strict=True))


def present(model: Model) -> int:
    return model.vertices - len(model.free)


@EACH_KIND
def test_a_snapshot_of_shards_opens_on_one_device(options: Options) -> None:
    with sharded_engine(options, 3, CPU) as shards:
        model = grown(shards, 1)
        snapshot = snapshot_of(shards)
        ids, ranks = shards.publish().top(1000)
    one = Engine(options, "cpu")
    found, values = one.ranks_of(snapshot).top(1000)
    assert (found.tolist(), values.tolist()) == (ids.tolist(), ranks.tolist())
    one.restore(snapshot)
    assert (one.vertices, one.edges) == (present(model), len(model.edges))
    assert one.free_ids().tolist() == sorted(model.free)
    assert set(edges_with_weights(one)) == model.edges
    if isinstance(model, WeightedModel):
        assert edges_with_weights(one) == model.weights
    result = one.update()
    assert result.iterations == 0  # the ranks are those of the edges
    assert result.error_bound <= options.target_error


@EACH_KIND
@pytest.mark.parametrize("before", [0, 3])
def test_shards_open_a_snapshot_of_any_number(options: Options, before: int) -> None:
    if before:
        with sharded_engine(options, before, CPU) as earlier:
            model = grown(earlier, 2)
            snapshot, ranks = snapshot_of(earlier), earlier.publish()
    else:
        one = Engine(options, "cpu")
        model = grown(one, 2)
        snapshot, ranks = snapshot_of(one), one.publish()
    workers = workers_of(options, 2, CPU)
    with ShardedEngine(options, workers=workers) as engine:
        workers.unreachable = "values"  # ranks are not needed
        engine.restore(snapshot)
        workers.unreachable = None
        assert (engine.vertices, engine.edges) == (present(model), len(model.edges))
        assert engine.ids.free().tolist() == sorted(model.free)
        assert sum(engine.shard_vertices) == engine.vertices
        assert sum(engine.shard_edges) == entries_of(model)
        assert by_id(engine.publish()) == pytest.approx(by_id(ranks), abs=1e-15)
        result = engine.update()
        assert result.iterations == 0
        assert_ranks(engine, model, result.error_bound)
        again = snapshot_of(engine)
        assert again.numbers["edges"] == snapshot.numbers["edges"]
        for name in ("ids", "length", "loop", "free"):  # the order is kept
            assert np.array_equal(again.arrays[name], snapshot.arrays[name])
        generator = np.random.default_rng(9)
        for _ in range(2):
            change(engine, model, generator, 50)
            assert_ranks(engine, model, engine.update().error_bound)


def entries_of(model: Model) -> int:
    """Entries of all out-lists, and loops that batches can change."""
    arcs = model.arcs()
    return len(arcs) if model.dangling == "uniform" else sum(u != v for u, v in arcs)


def test_later_batches_do_not_change_a_capture() -> None:
    options = KINDS["weighted"]
    generator = np.random.default_rng(5)
    with sharded_engine(options, 2, CPU) as engine:
        model = grown(engine, 3)
        expected = snapshot_of(engine)
        capture = engine.capture()
        pieces = {}
        for name, parts in capture.pieces().items():
            found = []
            for index, piece in enumerate(parts):
                found.append(piece())
                if index % 4 == 0:
                    change(engine, model, generator, 400)  # the room for vertices grows
            pieces[name] = np.concatenate(found)
        for name, array in {**capture.snapshot().arrays, **pieces}.items():
            assert np.array_equal(array, expected.arrays[name]), name
        assert capture.snapshot().numbers == expected.numbers


def test_a_list_that_is_longer_than_a_piece_is_split() -> None:
    options = Options()
    hub = EdgeBatch.of([(0, other) for other in range(1, 40)] + [(39, 0)])
    one = Engine(options, "cpu")
    with sharded_engine(options, 2, CPU) as engine:
        for each in (one, engine):
            each.apply(hub)
            each.update()
        capture = engine.capture()
        sizes = [len(piece()) for piece in capture.pieces()["neighbours"]]
        assert sizes == [7] * 6 + [2]
        ours, theirs = (snapshot_of(each).arrays["neighbours"] for each in (engine, one))
        assert sorted(ours[:39]) == sorted(theirs[:39]) == list(range(1, 40))
        assert ours[39:].tolist() == theirs[39:].tolist() == [0, 0, 0, 0, 0]


@pytest.mark.parametrize("shards", [1, 2, 5])
def test_every_entry_has_one_slot(shards: int) -> None:
    lengths = np.random.default_rng(shards).integers(0, 9, 50).astype(np.int32)
    lengths[[0, 1, 20, 49]] = 0
    layout = ListLayout(lengths, shards)
    padded = -(-lengths // ALIGNMENT) * ALIGNMENT
    starts = np.cumsum(padded) - padded
    assert layout.slots == padded.sum()
    for shard in range(shards):
        rows = range(shard, 50, shards)
        expected = [starts[row] + place for row in rows for place in range(lengths[row])]
        found: list[int] = []
        for first in range(0, layout.slots, 3):
            places = layout.places(shard, first, min(first + 3, layout.slots))
            if len(places.slots):
                assert places.first == len(found)
            found += (first + places.slots).tolist()
            if len(places.slots):
                assert places.end == len(found)
        assert found == expected


def test_a_graph_without_vertices_opens_too() -> None:
    with sharded_engine(Options(), 2, CPU) as engine:
        engine.update()
        snapshot = snapshot_of(engine)
    with sharded_engine(Options(vertex_order="degree"), 2, CPU) as engine:
        engine.restore(snapshot)
        assert (engine.vertices, engine.edges) == (0, 0)
        engine.apply(EdgeBatch.of([(0, 2), (1, 2)]))
        engine.update()
        assert len(snapshot_of(engine).arrays["ids"]) == 3  # its order could still be chosen


def test_a_snapshot_with_another_number_of_edges_is_refused() -> None:
    one = Engine(Options(), "cpu")
    one.apply(EdgeBatch.of([(0, 1), (1, 2)]))
    one.update()
    snapshot = snapshot_of(one)
    with (
        sharded_engine(Options(), 2, CPU) as engine,
        pytest.raises(InvalidValue, match="edges: 3 is not allowed"),
    ):
        engine.restore(Snapshot(snapshot.arrays, {**snapshot.numbers, "edges": 3}))


def test_a_capture_takes_no_more_than_the_lists() -> None:
    taken: list[str] = []
    looked = [looked_after(CPU) for _ in range(2)]
    workers = workers_of(Options(), 2, [backend for backend, _ in looked])
    with ShardedEngine(Options(), workers=workers) as engine:
        model = grown(engine, 4)
        for _, device in looked:
            device.allocating = taken.append
        engine.capture()
        assert taken == ["a copy of the graph"] * 2

        def short(purpose: str) -> None:
            raise OutOfMemory(purpose, 10, 1)

        looked[1][1].allocating = short
        with pytest.raises(OutOfMemory, match="a copy of the graph"):
            engine.capture()
        del looked[1][1].allocating
        assert_ranks(engine, model, engine.update().error_bound)
        assert snapshot_of(engine).numbers["edges"] == len(model.edges)


def test_a_restart_forgets_the_ranks_that_came_with_an_update() -> None:
    one = Engine(Options(), CPU)
    one.apply(EdgeBatch.of([(0, 1), (1, 0), (2, 1)]))
    one.update()
    with ShardedEngine(one.options, workers=ThreadWorkers(one.options, 2, CPU)) as engine:
        engine.update()
        engine.publish()
        engine.update()
        engine.restore(snapshot_of(one))
        assert engine.publish().id_limit == 3
