"""A graph in several shards against the same graph in one piece, and against liverank_gpu.verify:
in threads that exchange arrays, with the kernels of each backend.
"""

from __future__ import annotations

import gc
import pickle
import weakref
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import (
    STRATEGIES,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfMemory,
    ShardedEngine,
    ShardLost,
    UnknownVertex,
    verify,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.errors import BackendUnavailable, DeviceLost, EngineError
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.sweeps import OrthominUpdate
from liverank_gpu.pagerank.ranks import RankReference
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, relative_cost
from liverank_gpu.personalized.batch import Queries
from liverank_gpu.sharded.columns import MOST_REPLICATED, Numbering
from liverank_gpu.sharded.engine import ShardedQueries
from liverank_gpu.sharded.shared_memory import MappedPlaces, Place, ReusedValues, SharedValues
from liverank_gpu.types import Form, VertexOrder
from tests.gpu.doubles import instead, looked_after
from tests.gpu.graphs import (
    FAMILIES,
    Model,
    WeightedModel,
    batch_for,
    exact_ranks,
    model_of,
)
from tests.gpu.observed import counted
from tests.gpu.sharded.threads import ThreadCommunicator, ThreadWorkers, failing_sweep, pushing

CPU = backend_named("cpu")
TARGET = 1e-9


def sharded_engine(options: Options, shards: int, backend: Backend) -> ShardedEngine:
    return ShardedEngine(options, workers=ThreadWorkers(options, shards, backend))


def exact(model: Model, damping: float) -> NDArray[np.float64]:
    """float64[vertices]: the ranks of the model's graph, 0 for free ids."""
    weights = model.arc_weights() if isinstance(model, WeightedModel) else {}
    arcs = sorted(model.arcs())
    ids = np.setdiff1d(np.arange(model.vertices), sorted(model.free))
    edges = np.searchsorted(ids, np.array(arcs, np.int64).reshape(-1, 2))
    ranks = np.zeros(model.vertices)
    if len(ids):
        ranks[ids], bound = verify.pagerank(
            edges[:, 0],
            edges[:, 1],
            len(ids),
            damping,
            model.dangling,
            weights=np.array([weights[arc] for arc in arcs]) if weights else None,
        )
        assert bound < 1e-11
    return ranks


def assert_ranks(engine: ShardedEngine, model: Model, error_bound: float) -> None:
    ranks = engine.publish()
    values = ranks.to_numpy()
    error = np.abs(values - exact(model, engine.options.damping)).sum()
    assert error <= error_bound + 1e-11
    for k in (1, 7, model.vertices + 3):
        ids, top = engine.top(k)
        expected_ids, expected = ranks.top(k)
        assert ids.tolist() == expected_ids.tolist()
        assert top.tolist() == expected.tolist()


def run_stream(
    seed: int, options: Options, shards: int, backend: Backend, batches: int, removes: bool = False
) -> None:
    """Random batches to a sharded graph, compared with the model after each. Every other one goes
    to the shards in slices.
    """
    generator = np.random.default_rng(seed)
    model = model_of(options)
    with sharded_engine(options, shards, backend) as engine:
        for step in range(batches):
            size = int(generator.choice([2, 20, 120]))
            batch = batch_for(generator, model, size, removes)
            engine.most_replicated = -1 if step % 2 else MOST_REPLICATED
            change = engine.apply(batch)
            assert replace(change, seconds=0.0) == model.apply(batch)
            present = model.vertices - len(model.free)
            assert (engine.vertices, engine.edges) == (present, len(model.edges))
            vertices = [each for each in reversed(range(model.vertices)) if each not in model.free]
            ends = {end for edge in model.edges for end in edge}
            isolated = engine.edge_reader.are_isolated(np.array(vertices, np.int64))
            assert isolated.tolist() == [each not in ends for each in vertices]
            strategy = str(generator.choice(STRATEGIES))
            result = engine.update(strategy)
            assert result.converged
            if strategy in ("auto", "residual"):
                assert result.error_bound <= options.target_error
            assert_ranks(engine, model, result.error_bound)


def kind_of_graph(seed: int) -> Options:
    generator = np.random.default_rng(seed)
    return Options(
        target_error=TARGET,
        dangling="self-loop" if seed % 5 == 4 else "uniform",
        weighted=bool(seed % 2),
        directed=bool(seed // 2 % 2),
        vertex_order=str(generator.choice(["given", "degree"])),  # type: ignore[arg-type]
    )


def test_all_shards_expect_the_same_of_each_kind_of_sweep() -> None:
    workers = ThreadWorkers(Options(), 3, backend_named("cpu"))
    with ShardedEngine(workers=workers) as engine:
        engine.apply(EdgeBatch.of([(0, 1), (1, 2)], vertices=100))
        assert sorted(shard.graph.vertices for shard in workers.shards) == [33, 33, 34]
        for kind in SWEEP_KINDS:
            assert (
                len({relative_cost(kind, shard.internals.iterate) for shard in workers.shards}) == 1
            )


@pytest.mark.parametrize("seed", range(16))
def test_streams_give_the_ranks_and_counts_of_the_model(seed: int, backend: Backend) -> None:
    shards = [2, 3, 1, 5][seed // 4 % 4]
    run_stream(seed + 100, kind_of_graph(seed), shards, backend, batches=3)


@pytest.mark.parametrize("seed", range(16))
def test_streams_that_remove_vertices_give_the_ranks_and_counts_of_the_model(
    seed: int, backend: Backend
) -> None:
    backend = pushing(backend)
    run_stream(seed + 200, kind_of_graph(seed), 2 + seed // 4 % 2, backend, batches=4, removes=True)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_small_batch_takes_two_exchanges(weighted: bool) -> None:
    options = Options(weighted=weighted)
    workers = ThreadWorkers(options, 3, backend_named("cpu"))

    def taken(batch: EdgeBatch) -> int:
        engine.update()
        before = workers.communicators[0].exchanges
        engine.apply(batch)
        return workers.communicators[0].exchanges - before

    with ShardedEngine(options, workers=workers) as engine:
        engine.apply(EdgeBatch(*np.random.default_rng(3).integers(0, 500, (2, 3000))))
        # one begins every call, and in one all agree before anything is written
        assert taken(EdgeBatch.of(insert=[(1, 2), (3, 4)], delete=[(5, 6)])) == 2
        engine.most_replicated = -1
        assert taken(EdgeBatch.of(insert=[(1, 7)], delete=[(8, 6)])) > 4


@pytest.mark.parametrize("directed", [True, False])
def test_slow_sweeps_are_accelerated_as_on_one_device(directed: bool, backend: Backend) -> None:
    generator = np.random.default_rng(2)
    vertices, edges = FAMILIES["grid"]()
    edges = edges[generator.random(len(edges)) < 0.8]
    weights = generator.uniform(0.5, 2.0, len(edges)).astype(np.float32)
    options = Options(damping=0.97, target_error=1e-9, weighted=True, directed=directed)
    # shards have no momentum
    cpu = backend_named("cpu")
    cpu = replace(cpu, sweeps=instead(cpu.sweeps, takes_momentum=False))
    model, one = WeightedModel("uniform", directed), Engine(options, cpu)
    batch = EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices, weights=weights)
    accelerated: list[OrthominUpdate] = []
    with (
        sharded_engine(options, 3, backend) as engine,
        counted(OrthominUpdate, accelerated),
    ):
        for each in (model, one, engine):
            each.apply(batch)
        ours = engine.update("auto")
        steps = len(accelerated)  # of all shards
        theirs = one.update("auto")
        assert ours.converged
        assert ours.error_bound <= 1e-9
        assert_ranks(engine, model, ours.error_bound)
        assert steps >= 3 * 3 * ours.iterations // 4
        assert abs(ours.iterations - theirs.iterations) <= theirs.iterations // 20


def test_a_graph_that_outgrows_its_room_is_renumbered(backend: Backend) -> None:
    generator = np.random.default_rng(5)
    options, model = Options(target_error=TARGET), Model("uniform")
    with sharded_engine(options, 3, backend) as engine:
        for vertices in (3, 200, 190, 1000):
            pairs = generator.integers(0, vertices, (2, 400))
            batch = EdgeBatch(pairs[0], pairs[1])
            assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
            assert_ranks(engine, model, engine.update().error_bound)


def test_an_error_of_one_shard_leaves_the_graph_as_it_was(backend: Backend) -> None:
    options = Options(weighted=True, target_error=TARGET)
    model = WeightedModel("uniform")
    second, device = looked_after(backend)
    workers = ThreadWorkers(options, 2, [backend, second])
    with ShardedEngine(options, workers=workers) as engine:
        batch = EdgeBatch.of(insert=[(0, 1, 2.0), (1, 2, 1.0), (2, 0, 3e38)])
        model.apply(batch)
        engine.apply(batch)
        with pytest.raises(InvalidValue, match="weights"):
            engine.apply(EdgeBatch.of(insert=[(0, 3, 1.0), (2, 0, 3e38)], on_conflict="add"))
        with device.with_only(1), pytest.raises(OutOfMemory):
            engine.apply(EdgeBatch.of(insert=[(0, 300)]))
        assert (engine.vertices, engine.edges) == (3, 3)
        batch = EdgeBatch.of(insert=[(0, 3, 1.0)], delete=[(1, 2)])
        assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
        assert_ranks(engine, model, engine.update().error_bound)


class _Full(CpuDevice):
    """Memory that is full once the lists of the last batch are written."""

    full = False

    @property
    def xp(self) -> Any:
        return _WITHOUT_MEMORY if self.full else np


def _fail(*_: Any) -> None:
    raise MemoryError


_WITHOUT_MEMORY = SimpleNamespace(**(vars(np) | {"flatnonzero": _fail, "unique": _fail}))


def test_nothing_can_fail_once_the_lists_of_a_batch_are_written() -> None:
    """Once the shards have exchanged the last of what they have to know."""
    device, model, options = _Full(), Model("uniform"), Options(target_error=TARGET)
    load = EdgeBatch.of([(0, 1), (1, 2), (2, 0), (3, 1)])
    batches = load, EdgeBatch.of(insert=[(4, 0), (1, 3)], delete=[(1, 2)])
    last = list[int]()
    for fails in (False, True):
        workers = ThreadWorkers(options, 2, replace(backend_named("cpu"), device=device))
        first = workers.communicators[0]

        def fill(*_: Any, first: ThreadCommunicator = first, fails: bool = fails) -> None:
            device.full = fails and first.exchanges in last  # and the other one has received all

        first.after = fill
        with ShardedEngine(options, workers=workers) as engine:
            for batch in batches:
                change = engine.apply(batch)
                assert device.full == fails
                device.full = False
                if fails:
                    assert replace(change, seconds=0.0) == model.apply(batch)
                else:
                    last.append(first.exchanges)
            for strategy in ("dynamic-traversal", "auto") if fails else ():
                assert_ranks(engine, model, engine.update(strategy).error_bound)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("loaded", [True, False])
def test_the_insertion_that_makes_a_weight_exceed_float32_is_named(
    loaded: bool, directed: bool, backend: Backend
) -> None:
    options = Options(weighted=True, directed=directed)
    with sharded_engine(options, 3, backend) as engine:
        first = EdgeBatch.of(insert=[(7, 4, 2e38), (2, 2, 1.0)] if loaded else [], vertices=9)
        engine.apply(first)
        # in the second slice of three, and again in the last one
        rest = [(7, 4, 2e38), (6, 1, 3e38), (5, 3, 1.0), (6, 1, 3e38), (7, 4, 2.5e38), (8, 0, 1.0)]
        batch = EdgeBatch.of(insert=[(1, 0, 1.0), (0, 8, 1.0), *rest], on_conflict="add")
        with pytest.raises(InvalidValue) as caught:
            engine.apply(batch)
        assert caught.value.field == "weights[5]"
        assert caught.value.value == float(np.float32(3e38))
        assert "at most 3.4028234663852886e+38" in caught.value.requirement
        assert engine.edges == first.operations


def test_an_interrupted_solve_leaves_no_ranks_and_the_next_one_is_certified() -> None:
    generator = np.random.default_rng(9)
    options, model = Options(target_error=TARGET), Model("uniform")
    workers = ThreadWorkers(options, 3, backend_named("cpu"))
    with ShardedEngine(options, workers=workers) as engine:
        for batch in (EdgeBatch(*generator.integers(0, 80, (2, 300))), EdgeBatch.of(remove=[5, 9])):
            engine.apply(batch)
            model.apply(batch)
        engine.update()
        with failing_sweep(workers), pytest.raises(MemoryError, match="the third sweep"):
            engine.update("static")
        # as after an interruption in the middle of a step
        workers.shards[2].internals.iterate.rhs_scale *= 1.5
        workers.shards[0].graph.agree_on_count(0.0)
        workers.everywhere("_begin")
        assert not any(shard.graph.is_counted for shard in workers.shards)
        assert len(engine.publish().to_numpy()) == len(engine.top(5)[0]) == 0
        assert engine.shard_vertices == [0, 0, 0]
        for strategy in ("naive-dynamic", "auto"):
            assert_ranks(engine, model, engine.update(strategy).error_bound)


def test_a_sweep_takes_two_exchanges(backend: Backend) -> None:
    options = Options()
    workers = ThreadWorkers(options, 2, backend)
    with ShardedEngine(options, workers=workers) as engine:
        pairs = np.random.default_rng(1).integers(0, 50, (2, 300))
        engine.apply(EdgeBatch(pairs[0], pairs[1]))
        before = workers.communicators[0].exchanges
        result = engine.update("static")
        # one more tells whether the last call ended on all shards
        assert workers.communicators[0].exchanges - before <= 2 * result.iterations + 12 + 1


def test_what_is_wrong_is_refused(backend: Backend) -> None:
    with pytest.raises(InvalidValue, match="backend: 'tpu'"):
        ShardedEngine(backend="tpu")  # type: ignore[arg-type]
    for shards in (0, -1, True, 2.0):
        with pytest.raises(InvalidValue, match="shards"):
            ShardedEngine(shards=shards)  # type: ignore[arg-type]
    with sharded_engine(Options(), 2, backend) as engine:
        with pytest.raises(InvalidValue, match="strategy"):
            engine.update("fastest")
        with pytest.raises(InvalidValue, match="weights: '1 weights'"):
            engine.apply(EdgeBatch.of(insert=[(0, 1, 1.0)]))
        with pytest.raises(InvalidValue, match="times"):
            engine.apply(replace(EdgeBatch.of(insert=[(0, 1)]), times=np.zeros(1)))
        with pytest.raises(InvalidValue, match="k: -1"):
            engine.top(-1)


@pytest.mark.parametrize("size", [1, 2, 7])
def test_every_position_has_one_owner_and_one_column(size: int) -> None:
    for count in (0, 1, 5, 63, 64, 500, 100_000):
        positions = np.arange(count)
        shards = [Numbering(rank, size).for_positions(count) for rank in range(size)]
        rows = [each.positions_of(np.arange(each.rows(count))) for each in shards]
        assert np.array_equal(np.sort(np.concatenate(rows)), positions)
        for each in shards:
            columns = each.columns_of(positions, np)
            assert len(np.unique(columns)) == count
            assert (columns < each.columns).all()
            own = each.owners(positions) == each.rank
            assert np.array_equal(columns[own], each.rows_of(positions[own]))
            later = each.for_positions(3 * count + 100)
            renumbered = columns.astype(np.int32)
            each.renumber(renumbered, later, np.empty_like(renumbered), np)
            assert np.array_equal(renumbered, later.columns_of(positions, np))
            assert each.room * size <= 1.2 * count + 64 * size


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_too_many_vertices_for_the_columns_are_refused(size: int) -> None:
    with pytest.raises(InvalidValue, match=f"vertices.*with {size} shards") as refused:
        Numbering(0, size).for_positions(2**31 - 2)
    most = int(refused.value.requirement.split()[2])
    assert 2**31 * size / (size + 1) - 64 * size <= most
    largest = Numbering(size - 1, size).for_positions(most)
    assert most <= largest.room * size < largest.columns < 2**31
    with pytest.raises(InvalidValue, match=str(most)):
        Numbering(0, size).for_positions(most + 1)


@pytest.mark.parametrize(
    "error",
    [
        InvalidValue("k", -1, "at least 0"),
        UnknownVertex("vertices[3]", 7, "an id below 5"),
        DeviceLost("reset"),
        OutOfMemory("a batch", 10, 5),
        BackendUnavailable("cuda", "no device"),
        ShardLost(1, 2, "tls://127.0.0.1:5"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_errors_are_the_same_in_another_process(error: EngineError) -> None:
    other = pickle.loads(pickle.dumps(error))
    assert type(other) is type(error)
    assert (str(other), vars(other)) == (str(error), vars(error))


BESIDE_THE_GRAPH = {
    # made of others
    "personalized",
    "personalized_many",
    "decide",
    "explain",
    "watch",
    "step",
    "end_stage",
    "stage_seconds",
    # refuses
    "run",
    # does nothing
    "improve",
    # of an engine without vertices
    "staging_buffer",
    "ranks_of",
    "compiles_kernels",
    "warm_up",
    "warm_up_others",
    "warm_up_solve",
}
"""Calls of Engine that shards have as they are."""

OF_QUERIES = {
    "change_view",
    "keep",
    "put_view",
    "refresh_views",
    "refresh_watched",
    "register",
    "remove_view",
    "resolve",
    "restrict",
    "submit",
    "unwatch",
    "view",
    "view_lost_seeds",
    "view_steps_to",
    "views",
    "watched",
}
"""The same, of ShardedQueries, which goes to the shards."""

QUERIES_BESIDE_THEM = {
    # made of others
    "resolve",
    "resolved_view",
    "restrict",
    # of one device alone
    "close",
    "perturb",
    "warm_up",
    "warm_up_others",
    "nbytes",
}
"""Calls of Queries that ShardedQueries has as they are."""


def test_every_call_of_an_engine_goes_to_the_shards() -> None:
    calls = {name for name in vars(Engine) if not name.startswith("_")}
    others = {name for name in vars(ShardedEngine) if not name.startswith("_")}
    assert calls - others == BESIDE_THE_GRAPH | OF_QUERIES
    calls, others = (
        {name for name in vars(kind) if not name.startswith("_")}
        for kind in (Queries, ShardedQueries)
    )
    assert calls - others == QUERIES_BESIDE_THEM


class _Machines(ThreadWorkers):
    """Of which some are not that of the caller: `elsewhere`, by rank. called: the methods"""

    elsewhere: set[int]
    called: list[str]

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        self.called.append(method)
        if method not in ("values", "updated"):
            return super().call(method, arguments)
        places: list[Place] = [place for place, *_ in arguments]
        strangers = [place._replace(token=bytes(len(place.token))) for place in places]
        results = super().call(
            method,
            [
                ((strangers if rank in self.elsewhere else places)[rank], *others)
                for rank, (_, *others) in enumerate(arguments)
            ],
        )
        ranks = [each[1] for each in results] if method == "updated" else results
        sent = {rank for rank, each in enumerate(ranks) if each.values is not None}
        assert sent == self.elsewhere
        return results


@pytest.mark.parametrize("elsewhere", [set(), {1}, {0, 1, 2}])
def test_shards_of_other_machines_send_their_ranks(elsewhere: set[int]) -> None:
    ends = np.random.default_rng(3).integers(0, 50, (2, 200))
    one = Engine(Options(target_error=TARGET), CPU)
    workers = _Machines(one.options, 3, CPU)
    workers.elsewhere, workers.called = elsewhere, []
    with ShardedEngine(one.options, workers=workers) as engine:
        for each in (one, engine):
            each.apply(EdgeBatch(*ends))
            each.apply(EdgeBatch(remove=np.array([7])))
            each.update()
        earlier = engine.publish()
        expected = earlier.to_numpy().tolist()
        assert np.abs(earlier.to_numpy() - one.publish().to_numpy()).sum() <= 2 * TARGET
        for each in (one, engine):
            each.apply(EdgeBatch.of([(0, 60)]))
            each.update()
        workers.called.clear()
        later = engine.publish()
        assert workers.called == []  # they came with the update, since those before were published
        assert np.abs(later.to_numpy() - one.publish().to_numpy()).sum() <= 2 * TARGET
        again = engine.publish()
        assert (again.id_limit, again.to_numpy().tolist()) == (61, later.to_numpy().tolist())
        assert earlier.to_numpy().tolist() == expected  # no later one is written there


def test_an_update_whose_ranks_find_no_memory_has_succeeded() -> None:
    """They are published later, with their own bound."""
    short: list[bool] = []

    def total(values: Any) -> Any:
        if short and values.dtype == np.int32:
            raise MemoryError("lengths of rows, when the update is done")
        return CPU.device.sum(values)

    no_memory = replace(CPU, device=instead(CPU.device, sum=total))
    ends = np.random.default_rng(3).integers(0, 50, (2, 2, 200))
    options = Options(target_error=0.1)
    workers = ThreadWorkers(options, 3, [CPU, no_memory, CPU])
    with ShardedEngine(options, workers=workers) as engine:
        engine.apply(EdgeBatch(*ends[0]))
        engine.update("static")
        before = engine.publish().error_bound
        engine.apply(EdgeBatch(*ends[1]))
        short.append(True)
        result = engine.update()
        with pytest.raises(MemoryError):
            engine.publish()
        short.clear()
        ranks = engine.publish()
        assert ranks.error_bound == result.error_bound != before
        exact, bound = exact_ranks(engine)
        assert np.abs(ranks.to_numpy() - exact).sum() <= ranks.error_bound + bound


@pytest.mark.parametrize("order", ["given", "degree"])
def test_changes_of_ranks_are_found_while_vertices_come_and_go(order: VertexOrder) -> None:
    generator = np.random.default_rng(4)
    options = Options(target_error=TARGET, vertex_order=order)
    told, reference = np.zeros(0), None
    with ShardedEngine(options, workers=ThreadWorkers(options, 3, CPU)) as engine:
        for limit in (40, 41, 42, 43, 47, 60):
            sources, targets = generator.integers(0, limit, (2, 90))
            engine.apply(EdgeBatch(sources, targets, vertices=limit))
            engine.apply(EdgeBatch(remove=generator.integers(0, limit, 2)))
            engine.update()
            ranks = engine.publish()
            values, told = ranks.to_numpy(), np.append(told, np.zeros(limit - len(told)))
            told[engine.free_ids()] = 0.0
            if reference is None:
                reference, told = RankReference(ranks), values.copy()
            changed = np.flatnonzero(np.abs(values - told) > 0.1 * told)
            found = reference.changes(ranks, 0.1, 1000)
            assert (found.found, sorted(found.ids)) == (len(changed), changed.tolist())
            reference.tell(ranks, changed)
            told[changed] = values[changed]
            assert reference.of(np.arange(limit)).tolist() == told.tolist()
    assert len(told) == 60


def test_memory_of_ranks_is_used_again_when_nobody_has_them() -> None:
    reused, places = ReusedValues(), MappedPlaces()

    def published(value: float, length: int = 100) -> tuple[SharedValues, NDArray[np.float64]]:
        shared = reused.next(length)
        for first, own in ((0, value), (length // 2, -value)):
            part = places.part(shared.place, first, length // 2)
            assert part is not None
            part[:] = own
        return shared, reused.filled(shared, length)

    first, values = published(1.0)
    part = values[48:52]
    del values
    second, later = published(2.0)
    assert second is not first
    assert (part.tolist(), later[49:51].tolist()) == ([1.0, 1.0, -1.0, -1.0], [2.0, -2.0])
    del part
    third, last = published(3.0, 102)  # there is room for some more
    assert third is first
    assert (later[49:51].tolist(), last[50:52].tolist()) == ([2.0, -2.0], [3.0, -3.0])
    del later
    fourth, more = published(4.0, 200)
    assert fourth not in (first, second)
    assert more[99:101].tolist() == [4.0, -4.0]


def test_the_memory_of_a_shard_is_free_with_its_last_reference(backend: Backend) -> None:
    """A worker that holds the next graph keeps no arrays of this one until cycles are found."""
    options = Options()
    workers = ThreadWorkers(options, 2, backend)
    engine = ShardedEngine(options, workers=workers)
    engine.apply(EdgeBatch(*np.random.default_rng(1).integers(0, 300, (2, 2000))))
    forms: dict[str, Form | None] = {"residual": None, "dynamic-frontier": "published"}
    for strategy, form in forms.items():
        engine.update(strategy, form)
        engine.apply(EdgeBatch(*np.random.default_rng(2).integers(0, 300, (2, 10))))
        engine.update(strategy, form)
        engine.personalized(np.array([1]))
    engine.run("components")
    kept = [weakref.ref(each) for shard in workers.shards for each in (shard, shard.graph)]
    gc.disable()
    try:
        workers.shards.clear()
        del engine
        assert [each() for each in kept] == [None] * 4
    finally:
        gc.enable()
