"""The residual in shards, perturbed by owner and pushed in rounds; removal; and errors."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, InvalidValue, Options, OutOfMemory, ShardedEngine
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.operations.csr import Operation
from liverank_gpu.operations.residual import (
    AddReceived,
    PushResult,
    PushRound,
    ResidualDelta,
    SelectCandidates,
    SendSums,
)
from liverank_gpu.sharded.member import Member
from tests.gpu.doubles import looked_after
from tests.gpu.graphs import Model, WeightedModel, batch_for, model_of
from tests.gpu.sharded.test_shards import TARGET, assert_ranks
from tests.gpu.sharded.threads import ThreadWorkers, failing, pushing


def random_edges(seed: int, vertices: int, edges: int) -> EdgeBatch:
    return EdgeBatch(*np.random.default_rng(seed).integers(0, vertices, (2, edges)))


def residuals(workers: ThreadWorkers) -> list[NDArray[np.float64]]:
    """r of each shard."""
    to_host = workers.shards[0].graph.backend.device.to_host
    return [
        to_host(each.internals.iterate.workspace.residual.values).copy() for each in workers.shards
    ]


def sums_of(shard: Member) -> tuple[float, float, float]:
    certificate = shard.internals.iterate.certificate
    return certificate.residual_l1, certificate.residual_sum, certificate.mass


def test_a_step_of_a_push_is_not_run_by_all_shards(backend: Backend) -> None:
    workers = ThreadWorkers(Options(), 1, backend)
    (shard,) = workers.shards
    graph, residual = shard.graph, shard.internals.iterate.workspace.residual
    nothing: Any = None
    receive = AddReceived(graph.view, residual, nothing, nothing, [1.0], 1.0)
    with pytest.raises(NotImplementedError, match="AddReceived is run by each shard"):
        graph.backend.run(receive)
    workers.close()


@pytest.mark.parametrize("seed", range(12))
def test_a_batch_perturbs_what_would_be_computed(seed: int, backend: Backend) -> None:
    if seed % 2:
        # all columns are searched for sums
        backend = replace(backend, sizes=Sizes(least_listed=1, listed_part=1 << 20))
    generator = np.random.default_rng(seed)
    options = Options(
        target_error=TARGET,
        weighted=bool(seed // 2 % 2),
        directed=bool(seed // 4 % 2),
        dangling="self-loop" if seed % 3 == 2 else "uniform",
    )
    model = model_of(options)
    workers = ThreadWorkers(options, 2 + seed % 2, pushing(backend))
    with ShardedEngine(options, workers=workers) as engine:
        for size in (200, 3, 12):
            batch = batch_for(generator, model, size)
            assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
            if size < 200:
                workers.call("_begin", [()] * workers.size)
                maintained, sums = residuals(workers), [sums_of(each) for each in workers.shards]
                assert not any(each.internals.iterate.stale for each in workers.shards)
                assert len(set(sums)) == 1
                # followed, and counted again
                followed = connected(workers)
                for each in workers.shards:
                    each.graph.agree_on_count(0.0)
                assert followed == connected(workers)
                recompute(workers)
                for ours, theirs in zip(maintained, residuals(workers), strict=True):
                    assert np.abs(ours - theirs).max(initial=0.0) <= 1e-13
                assert np.allclose(sums[0], sums_of(workers.shards[0]), rtol=1e-11, atol=1e-11)
            assert_ranks(engine, model, engine.update().error_bound)


def connected(workers: ThreadWorkers) -> list[int]:
    """Vertices with edges, as each shard knows them."""
    reads = [partial(getattr, each.graph, "connected") for each in workers.shards]
    return workers.together(reads, [()] * workers.size)


def recompute(workers: ThreadWorkers) -> None:
    """Computes r from y on all shards."""
    iterates = [shard.internals.iterate for shard in workers.shards]
    for each in iterates:
        each.stale = True
    workers.together([each.recompute_residual for each in iterates], [()] * workers.size)


def pushed(workers: ThreadWorkers, *limits: float) -> PushResult:
    """What all shards return of a push that begins with the residuals above 1e-6."""
    runs = [shard.graph.backend.run for shard in workers.shards]
    iterates = [shard.internals.iterate for shard in workers.shards]
    select = [(SelectCandidates(each.workspace.residual, 1e-6),) for each in iterates]
    workers.together(runs, select)
    first, second = workers.together([each.push for each in iterates], [limits] * 2)
    assert first == second
    result: PushResult = first
    return result


@pytest.mark.parametrize("shards", [2, 3])
def test_pushes_meet_the_target_alone(shards: int, backend: Backend) -> None:
    options, model = Options(target_error=1e-6), Model("uniform")
    workers = ThreadWorkers(options, shards, pushing(backend))
    with ShardedEngine(options, workers=workers) as engine:
        # a tree, so that what a batch moves ends at the root
        vertices = np.arange(1, 3000)
        batch = EdgeBatch(vertices, vertices // 2)
        model.apply(batch)
        engine.apply(batch)
        engine.update()
        rounds = []
        for vertex in (7, 1000, 2999):
            batch = EdgeBatch.of(insert=[(vertex, 5)], delete=[(vertex - 1, (vertex - 1) // 2)])
            assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
            result = engine.update()
            assert result.converged
            assert 0 < result.touched_vertices < 100
            rounds.append(result.iterations)
            assert_ranks(engine, model, result.error_bound)
        assert max(rounds) > 1


def test_a_shard_without_vertices_takes_part_in_pushes(backend: Backend) -> None:
    options = Options(damping=0.01, vertex_order="degree")
    workers = ThreadWorkers(options, 3, pushing(backend))
    with ShardedEngine(options, workers=workers) as engine:
        for batch in (
            EdgeBatch(vertices=2),
            EdgeBatch.of(insert=[(0, 0), (0, 1), (1, 0), (1, 1)], remove=[1]),
        ):
            engine.apply(batch)
            result = engine.update()
            assert result.error_bound <= options.target_error
            np.testing.assert_allclose(engine.top(3)[1], [0.5, 0.5], atol=1e-6)
        assert [shard.graph.vertices for shard in workers.shards] == [1, 1, 0]


def test_a_push_stops_as_it_is_told(backend: Backend) -> None:
    options = Options(target_error=1e-6)
    # where a sweep is dearer, pushes go on until there are more candidates than a list holds
    costs = replace(backend_named("cpu").costs, exchange=0.0)
    workers = ThreadWorkers(options, 2, replace(backend, costs=costs))
    with ShardedEngine(options, workers=workers) as engine:
        engine.apply(random_edges(4, 3000, 12_000))
        engine.update()
        engine.apply(random_edges(5, 3000, 20))
        workers.call("_begin", [()] * 2)

        push = partial(pushed, workers)
        assert push(1e-9, 1e-3, 0, 10_000, 10).end == "work"
        assert push(1e-9, 1e-3, 10**9, 10**9, 0).end == "rounds"
        assert push(1e-9, 1e-3, 10_000, -1, 10).end == "work"
        met = PushResult("goal", 1e-3, 0, 0, 0, ResidualDelta(), below_zero=False)
        assert push(1.0, 1e-3, 10_000, 10_000, 10) == met
        done = push(1e-9, 1e-3, 10**9, 10**9, 100)
        assert done.end == "floor"
        assert done.delta.residual_l1 < 0.0


@pytest.mark.parametrize("left", [0.0, 0.5])
def test_a_push_ends_where_sweeps_gain_more(left: float, backend: Backend) -> None:
    """Also if it is known what they leave, though then no lower floor is tried: soon, but not just
    above what saves a sweep.
    """
    options = Options(target_error=1e-6)
    costs = replace(pushing(backend).costs, pushed_edge=100.0)
    workers = ThreadWorkers(options, 2, replace(backend, costs=costs))
    with ShardedEngine(options, workers=workers) as engine:
        engine.apply(random_edges(4, 3000, 20000))
        engine.update()
        engine.apply(random_edges(5, 3000, 20))
        workers.call("_begin", [()] * 2)
        for shard in workers.shards:
            shard.internals.iterate.left_by_sweeps = left
        result = pushed(workers, 1e-9, 1e-3, 10**9, 10**9, 100)
    assert result.end == ("work" if left else "floor")
    assert result.rounds == (2 if left else 1)


def test_a_round_takes_two_exchanges(backend: Backend) -> None:
    options = Options(target_error=1e-6)
    workers = ThreadWorkers(options, 2, pushing(backend))
    communicator, begun = workers.communicators[0], list[int]()

    def note(operation: Operation[Any]) -> None:
        if isinstance(operation, PushRound):
            begun.append(communicator.exchanges)

    with ShardedEngine(options, workers=workers) as engine:
        vertices = np.arange(1, 3000)
        engine.apply(EdgeBatch(vertices, vertices // 2))
        engine.update()
        engine.apply(EdgeBatch.of(insert=[(2999, 2)]))
        workers.running[0].before = note
        result = engine.update()
    assert 4 < len(begun) <= result.iterations < 100
    assert result.touched_vertices < 3000
    assert (np.diff(begun) == 2).all()


def test_a_long_candidate_list_of_one_shard_is_given_up_by_all(backend: Backend) -> None:
    backend = replace(backend, sizes=Sizes(least_candidates=3, candidate_part=1 << 20))
    options, model = Options(target_error=1e-7), Model("uniform")
    workers = ThreadWorkers(options, 2, pushing(backend))
    with ShardedEngine(options, workers=workers) as engine:
        for seed, edges, shards in ((1, 6000, 2), (2, 4, 1), (3, 30, 1)):
            # those of a shard end there, and later batches change the first one alone
            ends = np.random.default_rng(seed).integers(0, 1000, (2, edges))
            batch = EdgeBatch(*(2 * ends + np.arange(edges) % shards))
            assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
            assert_ranks(engine, model, engine.update().error_bound)


def test_an_error_after_a_batch_leaves_the_batch() -> None:
    error = MemoryError("an array")
    options, model = Options(target_error=TARGET), Model("uniform")
    second, device = looked_after(backend_named("cpu"))
    backends = [pushing(each) for each in (backend_named("cpu"), second, backend_named("cpu"))]
    workers = ThreadWorkers(options, 3, backends)
    with ShardedEngine(options, workers=workers) as engine:

        def short(purpose: str) -> None:
            if purpose == "residual to send":
                raise OutOfMemory(purpose, 10, 5)

        def apply(batch: EdgeBatch) -> None:
            assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)

        apply(random_edges(1, 90, 400))
        engine.update()
        # memory is short on one shard
        apply(EdgeBatch.of(insert=[(1, 2), (2, 88), (0, 5)]))
        device.allocating = short
        apply(EdgeBatch.of(insert=[(7, 8)], vertices=900))
        del device.allocating
        assert all(each.internals.iterate.stale for each in workers.shards)
        assert_ranks(engine, model, engine.update().error_bound)
        # one shard fails in the middle
        apply(EdgeBatch.of(insert=[(1, 3), (2, 87), (0, 6), (3, 9)]))
        with failing(workers, SendSums, 1, error), pytest.raises(MemoryError, match="an array"):
            engine.apply(EdgeBatch.of(insert=[(11, 12)]))
        apply(EdgeBatch.of(insert=[(11, 13)]))
        assert_ranks(engine, model, engine.update().error_bound)
        # ... or in the middle of a push
        apply(EdgeBatch.of(insert=[(2, 40)]))
        with failing(workers, AddReceived, 2, error), pytest.raises(MemoryError, match="an array"):
            engine.update()
        apply(EdgeBatch.of(insert=[(3, 41)]))
        assert_ranks(engine, model, engine.update().error_bound)


def test_a_refused_batch_leaves_all_shards_alike(backend: Backend) -> None:
    options, model = Options(target_error=TARGET, weighted=True), WeightedModel("uniform")
    with ShardedEngine(options, workers=ThreadWorkers(options, 2, backend)) as engine:
        batch = EdgeBatch.of(insert=[(0, 1, 3e38), (1, 2, 1.0), (1, 0, 1.0), (2, 0, 1.0)])
        model.apply(batch)
        engine.apply(batch)
        engine.update()
        # a fourth vertex takes room on the second shard alone
        refused = EdgeBatch.of(insert=[(0, 1, 3e38), (3, 0, 1.0)], on_conflict="add")
        with pytest.raises(InvalidValue, match="weights"):
            engine.apply(refused)
        assert_ranks(engine, model, engine.update("static").error_bound)


def test_short_memory_of_one_shard_leaves_the_numbering_of_all() -> None:
    options, model = Options(target_error=TARGET), Model("uniform")
    second, device = looked_after(backend_named("cpu"))
    workers = ThreadWorkers(options, 2, [backend_named("cpu"), second])
    with ShardedEngine(options, workers=workers) as engine:
        batch = random_edges(1, 60, 300)
        model.apply(batch)
        engine.apply(batch)
        engine.update()

        def failing(purpose: str) -> None:
            if purpose == "renumbering":
                raise OutOfMemory(purpose, 10, 5)

        device.allocating = failing
        with pytest.raises(OutOfMemory, match="renumbering"):
            engine.apply(EdgeBatch.of(insert=[(0, 5000)]))
        del device.allocating
        assert len({each.graph.numbering.room for each in workers.shards}) == 1
        assert_ranks(engine, model, engine.update("static").error_bound)
        batch = EdgeBatch.of(insert=[(0, 5000)])
        assert replace(engine.apply(batch), seconds=0.0) == model.apply(batch)
        assert_ranks(engine, model, engine.update().error_bound)
