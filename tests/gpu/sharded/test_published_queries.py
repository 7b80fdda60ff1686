"""Personalized queries in the published form in shards: each iteration is that of one device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import count
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import (
    PUBLISHED_METHODS,
    EdgeBatch,
    Engine,
    Options,
    PersonalizedQuery,
    ShardedEngine,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Operation
from liverank_gpu.operations.published import TakeListed
from liverank_gpu.personalized.published import PublishedQuery
from liverank_gpu.types import Personalized, VertexOrder
from tests.gpu.personalized.certified import assert_certified
from tests.gpu.personalized.test_published_personalized import KINDS
from tests.gpu.personalized.wang_reference import WangReference, reference_of
from tests.gpu.sharded.test_personalized import both, random_edges, weighted_or_not
from tests.gpu.sharded.threads import ThreadWorkers

CPU = backend_named("cpu")
SEEDS = np.array([1, 0, 1])


def published(method: str, target_error: float = 1e-3, **options: Any) -> PersonalizedQuery:
    asked = PersonalizedQuery(SEEDS, method=method, form="published", target_error=target_error)
    return replace(asked, **options)


class Running:
    """A query on all shards."""

    def __init__(
        self, workers: ThreadWorkers, engine: ShardedEngine, query: PersonalizedQuery
    ) -> None:
        self._workers, (resolved,) = workers, engine.resolve([query])
        contexts = [shard.internals.queries for shard in workers.shards]
        self.parts: list[PublishedQuery] = self._together(
            [partial(PublishedQuery, context, resolved) for context in contexts]
        )

    def _together(self, calls: Sequence[Callable[[], Any]]) -> list[Any]:
        return self._workers.together(calls, [()] * len(calls))

    def step(self) -> None:
        self._together([part.step for part in self.parts])

    def answer(self) -> Personalized:
        answers = self._together([part.answer for part in self.parts])
        assert all(repr(each) == repr(answers[0]) for each in answers)
        self._together([part.close for part in self.parts])
        first: Personalized = answers[0]
        return first

    def listed(self) -> list[int]:
        """The ids on the work-list, ascending."""
        ids: list[int] = []
        for part in self.parts:
            to_host = part.iterate.graph.backend.device.to_host
            rows = to_host(part.state.queue[: part.own_list.vertices])
            ids += part.iterate.vertices.ids_of(rows).tolist()
            lengths = to_host(part.iterate.graph.outgoing.csr.row_lengths)
            assert part.own_list.edges == lengths[rows].sum()
        return sorted(ids)

    def vector(self, name: str) -> NDArray[np.float64]:
        """float64[n]: y or r by id."""
        found = np.full(self.parts[0].iterate.graph.ids.count, np.nan)
        for part in self.parts:
            values = part.iterate.graph.backend.device.to_host(getattr(part.state, name))
            found[part.iterate.vertices.ids_of(np.arange(len(values)))] = values
        return found


def assert_iterations(running: Running, reference: WangReference, method: str) -> None:
    """Runs both to the end, and compares them before and after each iteration."""
    while not running.parts[0].done:
        assert running.listed() == reference.updated.tolist()
        mode = reference.mode(method)
        for part in running.parts:
            assert part.threshold == pytest.approx(reference.threshold, rel=1e-12)
            assert part.work_list == (len(reference.updated), reference.list_edges)
            assert part.cost_difference == reference.psi
            assert part.mode == mode
        running.step()
        reference.iterate(mode)
        for name, expected in (("values", reference.scores), ("residual", reference.residual)):
            assert np.abs(running.vector(name) - expected).max() <= 1e-12
        assert not any(part.state.queued.any() for part in running.parts)
    assert all(part.done for part in running.parts)
    assert len(reference.updated) == 0


@pytest.mark.any_thread_order
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", PUBLISHED_METHODS)
def test_each_iteration_is_that_of_the_paper(
    method: str, kind: str, backend: Backend, long: bool
) -> None:
    turn = [*KINDS].index(kind) + PUBLISHED_METHODS.index(method)
    orders: tuple[VertexOrder, ...] = ("given", "degree")
    for number, seed in enumerate((5, 9) if long else (5 + 4 * (turn % 2),)):
        options = Options(vertex_order=orders[(turn // 2 + number) % 2], **KINDS[kind])
        _, batch = weighted_or_not(seed, options)
        workers, one = ThreadWorkers(options, 2 + seed % 4, backend), Engine(options, CPU)
        with ShardedEngine(options, workers=workers) as engine:
            for each in (one, engine):
                each.apply(batch)
            query = published(method, 1e-2)
            reference = reference_of(one, query, backend.costs.forward_edge)
            running = Running(workers, engine, query)
            assert_iterations(running, reference, method)
            assert running.parts[0].iterations > 5
            answer = running.answer()
            assert reference.exact_error() <= answer.error_bound <= 1e-2 * (1.0 + 1e-9)
            assert_certified(one, query, answer)
            # the workspaces are zero again: the next query begins as the first
            again = reference_of(one, query, backend.costs.forward_edge)
            assert_iterations(Running(workers, engine, query), again, method)


@pytest.mark.parametrize("method", PUBLISHED_METHODS)
def test_a_shard_without_vertices_takes_part(method: str, backend: Backend) -> None:
    for batch in (EdgeBatch.of([(0, 0)]), EdgeBatch.of([(0, 0), (0, 1), (1, 0)])):
        with both(Options(), 4, backend, batch) as (one, engine):
            query = published(method, seeds=np.array([0]), trace=True)
            ours, theirs = (each.personalized_many([query])[0] for each in (engine, one))
            assert ours.vertices.tolist() == theirs.vertices.tolist()
            assert ours.ranks == pytest.approx(theirs.ranks, rel=1e-12)
            assert ours.error_bound == pytest.approx(theirs.error_bound, rel=1e-6)
            assert ours.iterations == theirs.iterations > 20
            assert ours.trace is not None
            assert theirs.trace is not None
            for mine, other in zip(ours.trace.steps, theirs.trace.steps, strict=True):
                assert mine.largest_change == pytest.approx(other.largest_change, rel=1e-9)
                if backend.name == "cpu":
                    assert replace(mine, largest_change=None) == replace(other, largest_change=None)


@pytest.mark.parametrize("method", PUBLISHED_METHODS)
def test_an_interrupted_iteration_leaves_the_next_ones_right(method: str) -> None:
    options, numbers = Options(), count(1)

    def failing(operation: Operation[Any], /) -> Any:
        found = CPU.run(operation)
        # one of the three shards, in the third iteration
        if isinstance(operation, TakeListed) and next(numbers) == 8:
            raise MemoryError("the third iteration")
        return found

    workers = ThreadWorkers(options, 3, replace(CPU, run=failing))
    query, one = published(method, 1e-8, k=80), Engine(options, CPU)
    with ShardedEngine(options, workers=workers) as engine:
        for each in (one, engine):
            each.apply(random_edges(np.random.default_rng(9), 80, 300))
        with pytest.raises(MemoryError, match="the third iteration"):
            engine.personalized_many([query])
        for _ in range(2):
            (answer,) = engine.personalized_many([query])
            assert answer.error_bound <= 1e-8 * (1.0 + 1e-9)
            assert_certified(one, query, answer)


@pytest.mark.parametrize(("method", "exchanges"), [("push", 3), ("pushopt", 3), ("pull", 2)])
def test_an_iteration_takes_few_exchanges(method: str, exchanges: int) -> None:
    workers = ThreadWorkers(Options(), 2, CPU)
    with ShardedEngine(Options(), workers=workers) as engine:
        engine.apply(random_edges(np.random.default_rng(9), 80, 300))
        running = Running(workers, engine, published(method))
        running.step()  # the first makes room for what is sent
        before = workers.communicators[0].exchanges
        running.step()
        assert workers.communicators[0].exchanges == before + exchanges
