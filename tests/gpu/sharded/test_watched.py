"""Watched queries on a graph in shards, against liverank_gpu.verify and against one device."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import (
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfMemory,
    PersonalizedQuery,
    ShardedEngine,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.operations.residual import Perturb
from liverank_gpu.personalized.iterate import PersonalizedIterate, Seeds
from liverank_gpu.sharded.member import Member
from tests.gpu.doubles import TestDevice, looked_after
from tests.gpu.personalized.certified import assert_certified
from tests.gpu.sharded.test_personalized import FREE, both, weighted_or_not
from tests.gpu.sharded.threads import ThreadWorkers, failing, failing_sweep

CPU = backend_named("cpu")


def parts(count: int) -> EdgeBatch:
    """Rings of four vertices."""
    first = np.arange(0, 4 * count, 4)
    sources = np.concatenate([first + at for at in range(4)])
    targets = np.concatenate([first + (at + 1) % 4 for at in range(4)])
    return EdgeBatch(sources, targets, vertices=4 * count)


def held(workers: ThreadWorkers) -> list[int]:
    """Bytes of each shard for queries."""
    return [shard.memory()["personalized"] for shard in workers.shards]


@contextmanager
def rings(
    *names: str, backend: Backend = FREE
) -> Iterator[tuple[ThreadWorkers, Engine, ShardedEngine]]:
    """A graph in two shards and on one device, with a watched query in each of its parts."""
    options = Options(dangling="self-loop")
    backends = [looked_after(backend)[0] for _ in range(2)]
    workers, one = ThreadWorkers(options, 2, backends), Engine(options, CPU)
    with ShardedEngine(options, workers=workers) as engine:
        for each in (one, engine):
            each.apply(parts(400))
            each.update()
        for place, name in enumerate(names):
            engine.watch(name, ring_query(place))
        yield workers, one, engine


def assert_packed(workers: ThreadWorkers, engine: ShardedEngine) -> None:
    """One more query like the first takes less than y and r of it would, 16 bytes a vertex."""
    before = held(workers)
    engine.watch("one more", ring_query(300))
    for shard, many, few in zip(workers.shards, held(workers), before, strict=True):
        assert 0 < many - few < shard.graph.vertices // 2
    engine.unwatch("one more")
    assert held(workers) == before


def ring_query(place: int) -> PersonalizedQuery:
    return PersonalizedQuery(np.array([4 * place]), None, 4, "push", 1e-6)


def assert_all_right(one: Engine, engine: ShardedEngine, *names: str) -> None:
    engine.refresh_watched()
    for place, name in enumerate(names):
        assert engine.watched(name).error_bound <= 1e-6
        assert_certified(one, ring_query(place), engine.watched(name))


def test_a_query_near_its_seeds_is_packed_and_costs_no_iteration_when_left_alone() -> None:
    with rings("here") as (workers, one, engine):
        assert_packed(workers, engine)
        before = engine.watched("here")
        for each in (one, engine):
            each.apply(EdgeBatch.of([(100, 203)], vertices=1_700))
        engine.refresh_watched()
        after = engine.watched("here")
        assert after.iterations == 0
        # the same array: of ids that may name other vertices, there is a new one
        assert after.vertices is before.vertices
        assert after.ranks.tolist() == before.ranks.tolist()
        for each in (one, engine):
            each.apply(EdgeBatch.of([(1, 3)], remove=[2]))
            each.apply(EdgeBatch.of([(1, 2), (2, 3)]))
        engine.refresh_watched()
        assert engine.watched("here").iterations > 0
        assert engine.watched("here").vertices is not before.vertices
        assert_packed(workers, engine)
        assert_all_right(one, engine, "here")


def test_watched_queries_are_replaced_and_forgotten() -> None:
    with rings("a") as (workers, one, engine):
        assert_certified(one, ring_query(0), engine.watched("a"))
        engine.watch("a", replace(ring_query(0), among=np.array([1, 2]), k=1))
        assert engine.watched("a").vertices.tolist() == [1]
        engine.restrict("a", np.array([2, 3]))
        engine.watch("a", ring_query(0))
        assert_all_right(one, engine, "a")
        with pytest.raises(InvalidValue, match="trace: True"):
            engine.watch("a", replace(ring_query(0), trace=True))
        with pytest.raises(InvalidValue, match="form: 'published'"):
            engine.register("a", replace(ring_query(0), form="published"))
        engine.unwatch("a")
        engine.unwatch("nothing")
        for name in ("a", "nothing"):
            with pytest.raises(KeyError):
                engine.watched(name)
            with pytest.raises(KeyError):
                engine.restrict(name, np.array([1]))
        forgotten = held(workers)
        engine.watch("a", ring_query(0))
        assert all(few < many for few, many in zip(forgotten, held(workers), strict=True))
        engine.unwatch("a")
        assert held(workers) == forgotten


def test_a_restriction_that_did_not_reach_the_shards_is_sent_again() -> None:
    with rings("a") as (workers, _, engine):
        engine.restrict("a", np.array([2, 3]))
        workers.unreachable = "bring"
        with pytest.raises(TimeoutError):
            engine.refresh_watched()
        workers.unreachable = None
        engine.refresh_watched()
        assert engine.watched("a").vertices.tolist() == [2, 3]


def test_a_first_solve_follows_batches_between_its_steps() -> None:
    vertices, batch = weighted_or_not(6, Options())
    query = PersonalizedQuery(np.array([1]), None, 5, "pull", 1e-9)
    with both(Options(), 3, CPU, batch) as (one, engine):
        registration = engine.register("it", query)
        closed = engine.register("closed", replace(query, seeds=np.array([3])))
        other = engine.submit([replace(query, seeds=np.array([2]))])
        closed.step()
        closed.close()
        steps = 0
        while not registration.done:
            registration.step()
            if not other.done:
                other.step()
            if steps == 3:
                change = EdgeBatch.of([(1, vertices + 1), (vertices + 1, 4)], delete=[(0, 1)])
                for each in (one, engine):
                    each.apply(change)
            steps += 1
        assert steps > 5
        assert (registration.updates, registration.restarts) == (1, 0)
        with pytest.raises(KeyError):
            engine.watched("it")
        engine.keep(registration)
        registration.close()
        registration.close()
        assert_certified(one, query, engine.watched("it"))
        for each in (one, engine):
            each.apply(EdgeBatch.of([(4, 1), (2, 4)]))
        engine.refresh_watched()
        assert_certified(one, query, engine.watched("it"))
        with pytest.raises(KeyError):
            engine.watched("closed")


def test_entries_that_one_shard_cannot_list_are_listed_by_none() -> None:
    sizes = Sizes(least_candidates=3, candidate_part=1 << 20)
    with rings(backend=replace(FREE, sizes=sizes)) as (workers, _, _):

        def begun(seeds: NDArray[np.int64], shard: Member) -> PersonalizedIterate:
            context = shard.internals.queries
            of = Seeds.of(shard.graph.ids.limit, seeds)
            workspace = context.pool.take()
            return PersonalizedIterate(
                context.graph, workspace, context.options, of, context.vertices
            )

        for last, fits in ((5, True), (6, False)):  # an even one is one more of the first shard
            each = [partial(begun, np.array([0, 2, 4, last]), shard) for shard in workers.shards]
            iterates = workers.together(each, [()] * 2)
            assert [len(iterate.positions) for iterate in iterates] == ([3, 1] if fits else [4, 0])
            assert [iterate.dense for iterate in iterates] == [not fits] * 2


@pytest.mark.parametrize("during", ["refresh", "query", "between", "batch"])
def test_after_an_error_watched_queries_are_solved_again(during: str) -> None:
    names = ("a", "b", "c")
    wrong = PersonalizedQuery(np.array([5]), None, 4, "pull", 1e-9)
    with rings(*names) as (workers, one, engine):
        registration = engine.register("later", wrong)
        while not registration.done:
            registration.step()
        for each in (one, engine):
            each.apply(EdgeBatch.of([(1, 3), (5, 7), (9, 11)], remove=[17]))
        before = {name: engine.watched(name) for name in names}
        if during == "batch":
            following = failing(workers, Perturb, 3, RuntimeError("following"))
            with following, pytest.raises(RuntimeError, match="following"):
                engine.update()
        elif during == "refresh":
            engine.watch("dense", replace(wrong, seeds=np.array([1])))
            for each in (one, engine):
                each.apply(EdgeBatch.of([(2, 1)]))
            with failing_sweep(workers):
                engine.refresh_watched()
            engine.unwatch("dense")
        else:
            with failing_sweep(workers), pytest.raises(MemoryError, match="the third sweep"):
                engine.personalized_many([wrong])
            assert all(engine.watched(name) is before[name] for name in names)
        if during == "between":
            for each in (one, engine):
                each.apply(EdgeBatch.of([(2, 1)], remove=[6, 40]))
            engine.restrict("a", np.array([0, 1, 2, 3]))
        assert_all_right(one, engine, *names)
        if during == "query":
            engine.keep(registration)  # which the shards have forgotten
            assert_certified(one, wrong, engine.watched("later"))
        registration.close()
        assert engine.update().error_bound <= 1e-6


def test_a_first_solve_that_shards_forgot_is_done_again() -> None:
    """Also where the shards have another query of its name by then, and not by halves."""
    second = replace(ring_query(1), k=2)
    with rings("a") as (workers, one, engine):
        registration = engine.register("a", second)
        new = engine.register("new", second)
        for each in (registration, new):
            while not each.done:
                each.step()
        wrong = PersonalizedQuery(np.array([5]), None, 4, "pull", 1e-9)
        with failing_sweep(workers), pytest.raises(MemoryError, match="the third sweep"):
            engine.personalized_many([wrong])
        engine.refresh_watched()
        workers.unreachable = "solve"
        for each in (registration, new):
            with pytest.raises(TimeoutError, match="no answer"):
                engine.keep(each)
        workers.unreachable = None
        assert_certified(one, ring_query(0), engine.watched("a"))
        with pytest.raises(KeyError):
            engine.watched("new")
        for each in (registration, new):
            engine.keep(each)
            each.close()
            assert_certified(one, second, engine.watched(each.name))
        assert_all_right(one, engine)


def test_memory_that_is_short_on_one_shard_concerns_one_query() -> None:
    names = ("a", "b", "c")
    with rings(*names) as (workers, one, engine):
        device, refused = workers.shards[1].graph.backend.device, list[str]()
        assert isinstance(device, TestDevice)

        def refuse(purpose: str) -> None:
            if purpose == "a personalized vector" and not refused:
                refused.append(purpose)
                raise OutOfMemory(purpose, 10, 5)

        # the first query that follows has the workspace of all grow
        for each in (one, engine):
            each.apply(EdgeBatch.of([(1, 3), (5, 7), (9, 11)], vertices=2_000))
        device.available, device.allocating = 1_000, refuse
        engine.refresh_watched()
        assert refused
        for name in ("b", "c"):
            assert_certified(one, ring_query("abc".index(name)), engine.watched(name))
        with pytest.raises(
            OutOfMemory, match=r"the watched query 'a' needs [0-9,]+ bytes; 1,000 are"
        ):
            engine.watched("a")
        before = engine.watched("b").vertices
        with pytest.raises(OutOfMemory, match="the watched query 'b' needs"):
            engine.watch("b", ring_query(0))
        device.available = None
        # nothing was reset, and what was short is solved again
        assert_all_right(one, engine, *names)
        assert engine.watched("b").vertices is before
