"""Views of a graph in shards, against power iteration: see tests/gpu/personalized/test_views.py."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from time import sleep
from typing import Any, get_args

import numpy as np
import pytest

from liverank_gpu import (
    EdgeBatch,
    InvalidValue,
    Options,
    OutOfMemory,
    PersonalizedQuery,
    ShardedEngine,
    UnknownVertex,
    ViewQuery,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.generate import rmat
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.residual import Perturb, Push
from liverank_gpu.operations.sweeps import Sweep
from liverank_gpu.sharded.queries import Told
from liverank_gpu.types import ViewDirection
from tests.gpu.doubles import TestDevice, looked_after
from tests.gpu.graphs import is_slow, snapshot_of
from tests.gpu.observed import counted
from tests.gpu.personalized.test_views import (
    KINDS,
    SEEDS,
    WEIGHTS,
    assert_read,
    assert_within_bound,
    follow_views,
    views_of,
)
from tests.gpu.sharded.test_shards import sharded_engine
from tests.gpu.sharded.threads import ThreadWorkers, failing, failing_sweep

CPU = backend_named("cpu")
DIRECTIONS = get_args(ViewDirection)
INSIDE = {"inside": ViewQuery(SEEDS, WEIGHTS, 1e-7, within=np.arange(128))}


def restarted(
    engine: ShardedEngine, again: ShardedEngine, views: dict[str, ViewQuery]
) -> ShardedEngine:
    """The same graph in other shards, whose views go on from their ranks."""
    engine.update()
    again.restore(snapshot_of(engine))
    for name, view in views.items():
        ranks = engine.view(name, solve=False)
        again.put_view(name, view, (ranks.to_numpy(), ranks.base))
        assert_within_bound(again, view, again.view(name, solve=False))
    engine.close()
    return again


@pytest.mark.parametrize("kind", KINDS)
def test_views_stay_within_their_bounds(kind: str, backend: Backend, long: bool) -> None:
    """Through batches of every kind, changes of the teleport distribution, and restarts with
    another number of shards.
    """
    options = replace(KINDS[kind], target_error=1e-6)
    costs = replace(backend.costs, exchange=0.0)  # small graphs are pushed too

    def other_shards(
        engine: ShardedEngine, step: int, views: dict[str, ViewQuery]
    ) -> ShardedEngine:
        if step % 8 != 7:
            return engine
        again = sharded_engine(options, 2 + step % 16 // 7, replace(backend, costs=costs))
        return restarted(engine, again, views)

    count = 10 if is_slow(backend) else (200 if long else 10)
    follow_views(sharded_engine(options, 2, backend), count, other_shards).close()


class Seen(ThreadWorkers):
    """sent  whether shards sent ranks
    ask, answer  change what shard 0 is asked, and what shard 1 tells of a view
    """

    def __init__(self, options: Options, size: int, backends: Sequence[Backend]) -> None:
        super().__init__(options, size, backends)
        self.sent = False
        self.ask: Callable[[tuple[Any, ...]], tuple[Any, ...]] = lambda arguments: arguments
        self.answer: Callable[[Told], Told] = lambda told: told

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        first, second = arguments
        found = super().call(method, [self.ask(first), second])
        for name, told in found[1].items() if method == "call_kept" and is_told(found[1]) else ():
            self.sent |= told.content is not None
            found[1] = {**found[1], name: self.answer(told)}
        return found


def is_told(found: Any) -> bool:
    return isinstance(found, dict) and all(isinstance(each, Told) for each in found.values())


@contextmanager
def graph(*names: str) -> Iterator[tuple[Seen, ShardedEngine, dict[str, ViewQuery]]]:
    """A graph in two shards, with some of its views."""
    options = Options(target_error=1e-6)
    workers = Seen(options, 2, [looked_after(CPU)[0] for _ in range(2)])
    with ShardedEngine(options, workers=workers) as engine:
        engine.apply(EdgeBatch(*rmat(8, 8, seed=1)))
        engine.update()
        views = {name: view for name, view in (views_of(options) | INSIDE).items() if name in names}
        for name, view in views.items():
            engine.put_view(name, view)
        yield workers, engine, views


@contextmanager
def no_solve() -> Iterator[None]:
    done = list[Any]()
    with counted(Sweep, done), counted(Push, done):
        yield
    assert not done


def test_ranks_are_gathered_when_they_are_others() -> None:
    with graph("uniform", "against") as (workers, engine, _):
        before = {name: engine.view(name) for name in engine.views}
        assert workers.sent
        workers.sent = False
        assert all(engine.view(name) is ranks for name, ranks in before.items())
        # a vertex without edges changes the bound of neither
        engine.apply(EdgeBatch.of(delete=[(9, 300)]))
        engine.refresh_views()
        for name, ranks in before.items():
            assert engine.view(name).top(3)[1].tolist() == ranks.top(3)[1].tolist()
        assert not workers.sent
        held = {each: shard.memory()["personalized"] for each, shard in enumerate(workers.shards)}
        engine.remove_view("uniform")
        engine.remove_view("nothing")
        assert engine.views == ["against"]
        for each, shard in enumerate(workers.shards):
            assert shard.memory()["personalized"] <= held[each] - 24 * (engine.vertices // 2)
        engine.publish()
        assert engine.memory()["shards"] >= 24 * engine.vertices
        for call in (engine.view, engine.view_lost_seeds):
            with pytest.raises(KeyError):
                call("uniform")


@pytest.mark.parametrize("within", [False, True])
def test_a_view_before_the_first_update_has_the_order_of_now(within: bool) -> None:
    """Vertices are ordered when the first edges arrive: before that, and then, there are no global
    ranks yet.
    """
    source, target = rmat(6, 4, seed=3)
    view = ViewQuery(SEEDS, WEIGHTS, 1e-9, within=np.arange(64) if within else None)
    with sharded_engine(Options(vertex_order="degree"), 2, CPU) as engine:
        engine.apply(EdgeBatch(vertices=64))
        for batch in (EdgeBatch(source, target), EdgeBatch.of([(0, 1)], remove=[63, 62])):
            engine.put_view("view", view)
            engine.apply(batch)
            assert_within_bound(engine, view, engine.view("view"))
            engine.publish()


@pytest.mark.parametrize("call", ["refresh", "read", "keep"])
def test_ranks_that_did_not_arrive_are_sent_again(call: str) -> None:
    """The bound is never said of others."""

    class Large:
        def __len__(self) -> int:
            raise MemoryError("gathering")

    def spoiled(told: Told) -> Told:
        return told if told.content is None else told._replace(content=(Large(), 1.0, 1.0))  # type: ignore[arg-type]

    with graph("few", "uniform") as (workers, engine, views):
        engine.apply(EdgeBatch(*np.random.default_rng(1).integers(0, 256, (2, 60))))
        if call == "keep":
            views = {name: replace(view, damping=0.5) for name, view in views.items()}
        calls: dict[str, Callable[[str], Any]] = {
            "refresh": lambda _: engine.refresh_views(),
            "read": lambda name: engine.view(name),
            "keep": lambda name: engine.put_view(name, views[name]),
        }
        workers.answer = spoiled
        for name in views:
            with pytest.raises(MemoryError, match="gathering"):
                calls[call](name)
        workers.answer = lambda told: told
        for name, view in views.items():
            assert_within_bound(engine, view, engine.view(name, solve=False))
            assert_read(engine, name, view)


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_views_start_from_ranks_and_go_on_from_them(direction: ViewDirection) -> None:
    view = ViewQuery(np.arange(0, 250, 3), None, 1e-6, direction=direction)
    with graph() as (workers, engine, _):
        engine.put_view("first", view)
        ranks = engine.view("first")
        with no_solve():
            engine.put_view("second", view, (ranks.to_numpy(), ranks.base))
        assert_within_bound(engine, view, engine.view("second"))
        # after an error, from what was gathered
        wrong = PersonalizedQuery(np.array([5]), None, 4, "pull", 1e-9)
        with failing_sweep(workers), pytest.raises(MemoryError, match="the third sweep"):
            engine.personalized_many([wrong])
        with no_solve():
            engine.refresh_views()
            workers.sent = False
            engine.refresh_views()
        assert not workers.sent  # nothing was forgotten once more
        engine.apply(EdgeBatch.of([(1, 3), (5, 7), (300, 2)], remove=[8]))
        engine.refresh_views()
        for name in ("first", "second"):
            assert engine.view(name).error_bound <= 1e-6
            assert_within_bound(engine, view, engine.view(name))


class Unreadable:
    """In place of a view."""

    def __getattr__(self, name: str) -> Any:
        sleep(0.1)  # the other shard has begun
        raise MemoryError("changing")


@pytest.mark.parametrize("during", ["refresh", "read", "batch", "change", "changing"])
def test_after_an_error_views_are_solved_again(during: str) -> None:
    names = ("few", "uniform", "against", "all against", "inside")
    with graph(*names) as (workers, engine, views):
        if during == "change":
            wrong = PersonalizedQuery(np.array([5]), None, 4, "pull", 1e-9)
            with failing_sweep(workers), pytest.raises(MemoryError, match="the third sweep"):
                engine.personalized_many([wrong])
            views["few"] = replace(views["few"], seeds=np.array([2, 3, 4]))
            assert not engine.change_view("few", views["few"])
            engine.put_view("few", views["few"])
        elif during == "changing":  # in one shard alone
            other = replace(views["few"], seeds=np.array([2, 3, 4]))
            workers.ask = lambda asked: (*asked[:2], Unreadable())
            with pytest.raises(MemoryError, match="changing"):
                engine.put_view("few", other)
            workers.ask = lambda asked: asked
            # neither goes on with what the other may not have
            workers.everywhere("call_kept", "remove", "view", "nothing")
            assert [shard.memory()["personalized"] for shard in workers.shards] == [0, 0]
        engine.apply(EdgeBatch(*np.random.default_rng(1).integers(0, 256, (2, 60))))
        if during == "batch":
            following = failing(workers, Perturb, 2, RuntimeError("following"))
            with following, pytest.raises(RuntimeError, match="following"):
                engine.update()
        elif during == "refresh":
            with failing_sweep(workers):
                engine.refresh_views()
        elif during == "read":
            with failing_sweep(workers):
                engine.view("uniform")
        engine.refresh_views()
        assert not engine.running  # no solve is left open
        for name, view in views.items():
            assert_read(engine, name, view)
        engine.apply(EdgeBatch.of([(3, 5), (5, 300)]))
        engine.refresh_views()
        for name, view in views.items():
            assert_read(engine, name, view)


@pytest.mark.parametrize("method", ["solve", "bring", "register", "keep"])
def test_an_error_of_one_shard_makes_all_forget_their_views(method: str) -> None:
    with graph("uniform") as (workers, engine, _):
        engine.apply(EdgeBatch(*np.random.default_rng(1).integers(0, 256, (2, 60))))
        registration = engine.register("it", ViewQuery(None, None, 1e-9, 0.9))
        asked: Any = ("bring", "view", engine.new_number(), {}, None, "batch", {})
        while method == "keep" and not registration.done:
            registration.step()

        def call() -> None:
            if method == "register":
                workers.ask = lambda asked: (*asked[:3], Unreadable(), *asked[4:])
            while method in ("solve", "register"):
                registration.step()
            if method == "keep":
                device = workers.shards[1].graph.backend.device
                assert isinstance(device, TestDevice)
                with device.refusing(1):
                    engine.keep(registration)
            workers.everywhere("call_kept", *asked)

        with failing_sweep(workers), pytest.raises(MemoryError):
            call()
        workers.ask = lambda asked: asked
        workers.everywhere("call_kept", "remove", "view", "nothing")
        assert [shard.memory()["personalized"] for shard in workers.shards] == [0, 0]
        engine.close(registration)


def test_a_view_for_which_one_shard_has_no_memory_is_refused() -> None:
    """Others stay. What is left of the attempt makes no shard walk a graph that others have not."""
    with graph("few") as (workers, engine, views):
        before = engine.view("few")
        for direction in reversed(DIRECTIONS):
            large = ViewQuery(None, direction=direction)
            device = workers.shards[1].graph.backend.device
            assert isinstance(device, TestDevice)
            needs = "the view 'large' needs"
            with device.with_only(100), pytest.raises(OutOfMemory, match=needs) as refused:
                engine.put_view("large", large)
            assert engine.views == ["few"]
            with no_solve():
                assert engine.view("few") is before
            # after the first one shard alone keeps its attempt
            for batch in (EdgeBatch.of([(2, 9)]), EdgeBatch.of(delete=[(2, 9)])):
                engine.apply(batch)
                engine.refresh_views()
                assert_read(engine, "few", views["few"])
            before = engine.view("few")
            del refused  # which kept the reversed graph of the first shard
            engine.put_view("large", large)
            assert_read(engine, "large", replace(large, target_error=1e-6))
            engine.remove_view("large")


def test_one_shard_without_memory_for_a_reversed_graph_ends_the_call_of_all() -> None:
    """None waits for it. What was kept is solved again."""
    with graph("few") as (workers, engine, views):
        device, against = workers.shards[1].graph.backend.device, ViewQuery(None, None, 1e-6)
        assert isinstance(device, TestDevice)
        against = replace(against, direction="reversed")
        with device.refusing(1), pytest.raises(OutOfMemory, match="a reversed graph"):
            engine.put_view("against", against)
        engine.refresh_views()
        assert_read(engine, "few", views["few"])
        engine.put_view("against", against)
        assert_read(engine, "against", against)


def test_a_first_solve_follows_batches_between_its_steps() -> None:
    with graph() as (workers, engine, _):
        of = np.arange(0, 200, 2), None, 1e-9
        views = [ViewQuery(*of, direction=direction) for direction in DIRECTIONS]
        for view in (*views, ViewQuery(*of, within=np.arange(250))):
            registration = engine.register("it", view)
            steps = 0
            while not registration.done:
                registration.step()
                if steps == 2:
                    engine.apply(EdgeBatch.of([(1, 301), (301, 4)], delete=[(0, 1)]))
                if steps == 4:  # it begins again
                    wrong = PersonalizedQuery(np.array([5]), None, 4, "pull", 1e-9)
                    with failing_sweep(workers), pytest.raises(MemoryError, match="third sweep"):
                        engine.personalized_many([wrong])
                steps += 1
            assert steps > 5
            assert registration.updates == 1
            engine.keep(registration)
            engine.close(registration)
            assert_within_bound(engine, view, engine.view("it", solve=False))
            assert engine.view("it").error_bound <= 1e-9
        lost = engine.register("lost", ViewQuery(np.array([0, 6])))
        lost.step()
        engine.apply(EdgeBatch.of(remove=[6]))
        assert lost.lost
        with pytest.raises(UnknownVertex, match="seeds: 6"):
            lost.step()
        engine.close(lost)
        assert engine.views == ["it"]
        assert engine.view_lost_seeds("it")


def test_shards_agree_when_to_solve_a_view() -> None:
    """Though each has seen at another time that its bound met its target."""
    view = ViewQuery(SEEDS, WEIGHTS, 1e-8, refresh=0.4)
    with graph() as (workers, engine, _):
        engine.put_view("v", view)
        for each in workers.communicators:
            each.after = lambda *_: sleep(0.3)  # while the other one waits for its turn
        engine.refresh_views()
        for each in workers.communicators:
            del each.after
        engine.apply(EdgeBatch(*np.random.default_rng(1).integers(0, 256, (2, 5))))
        assert engine.view("v", solve=False).error_bound > 1e-8
        sleep(0.2)  # by the one clock it is time, by the other it is not
        engine.refresh_views()
        assert engine.view("v", solve=False).error_bound <= 1e-8
        assert_within_bound(engine, view, engine.view("v", solve=False))


def test_what_cannot_be_a_view_changes_none() -> None:
    with graph("few") as (_, engine, _):
        before = engine.view("few")
        for view, error in (
            (ViewQuery(np.array([999])), r"seeds\[0\]: 999 is not allowed"),
            (ViewQuery(None, np.ones(3)), "weights: '3 weights'"),
            (ViewQuery(SEEDS, within=np.array([1])), r"seeds: \[7\] .* in `within`"),
            (ViewQuery(SEEDS, direction="in"), "direction: 'in'"),  # type: ignore[arg-type]
        ):
            for call in (engine.put_view, engine.change_view, engine.register):
                with pytest.raises(InvalidValue, match=error):
                    call("few", view)
        assert not engine.change_view("few", ViewQuery(SEEDS, direction="reversed"))
        assert not engine.change_view("few", ViewQuery(SEEDS, damping=0.5))
        assert not engine.change_view("other", ViewQuery(SEEDS))
        assert engine.view("few") is before
