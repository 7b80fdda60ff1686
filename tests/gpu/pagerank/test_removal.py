"""Vertices that are removed: ranks, certificates and queries of what is left, and ids that are used
again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from liverank_gpu import (
    STRATEGIES,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    PersonalizedQuery,
    UnknownVertex,
)
from liverank_gpu.generate import rmat
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.sweeps import SweepMany
from liverank_gpu.personalized.block import Block
from liverank_gpu.personalized.resolve import METHODS
from liverank_gpu.types import Dangling
from tests.gpu.doubles import instead
from tests.gpu.graphs import (
    Model,
    WeightedModel,
    assert_certified,
    exact_ranks,
    random_batch,
    restored,
    weighted_batch,
)
from tests.gpu.observed import counted

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


def _assert_certified(engine: Engine, off_one: float = 1e-12) -> None:
    ranks = engine.publish()
    assert_certified(engine, ranks.error_bound, off_one)
    present = np.setdiff1d(np.arange(engine.id_limit), engine.free_ids())
    assert sorted(ranks.top(engine.id_limit)[0].tolist()) == present.tolist()


@pytest.mark.any_thread_order
@pytest.mark.parametrize("dangling", POLICIES)
def test_the_kept_residual_and_mass_are_those_of_the_remaining_vertices(
    dangling: Dangling, backend: Backend
) -> None:
    generator = np.random.default_rng(4)
    options = Options(dangling=dangling, target_error=1e-5)
    engine, model = Engine(options, backend), Model(dangling)
    host, graph = backend.device.to_host, engine.internals.graph
    iterate, damping = engine.internals.iterate, options.damping
    error = 1e-13
    for step in range(20 if backend.name == "cpu" else 10):
        batch = random_batch(generator, model, 80 if step == 0 else 8, removes=True)
        model.apply(batch)
        engine.apply(batch)
        engine.update(STRATEGIES[step % len(STRATEGIES)])
        values = host(iterate.values)
        ids = graph.permutation.ids_of(np.arange(engine.id_limit))
        ranked = ~np.isin(ids, engine.free_ids())
        sources, targets = (host(graph.permutation.positions_of(c)) for c in engine.edge_list())
        loop, degree = host(graph.loop), host(graph.degree)
        sent = np.divide(values, degree, out=np.zeros_like(values), where=degree > 0)
        received = np.bincount(targets, sent[sources], minlength=len(values))
        received += sent * (loop if dangling == "self-loop" else 0.0)
        true = iterate.rhs_scale + damping * received - values
        certificate = iterate.certificate
        scale = values[ranked].sum()
        kept = host(iterate.workspace.residual.values)
        assert np.abs(true - kept).sum() <= error * scale
        assert abs(scale - certificate.mass) <= error * scale
        # free ids have the value that β gives them, so that hardly any of r is theirs
        assert np.abs(kept[~ranked]).sum() <= error * certificate.free_mass


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strategy", ["auto", "static", "dynamic-frontier"])
def test_a_graph_that_hardly_anything_is_left_of_is_certified(
    strategy: str, weighted: bool, backend: Backend
) -> None:
    sources, targets = rmat(12 if backend.name == "cpu" else 8, 4, seed=1)
    engine = Engine(Options(target_error=1e-9, weighted=weighted), backend)
    engine.apply(EdgeBatch(sources, targets))
    engine.update()
    rest = np.array([7, 70, 170])
    gone = np.setdiff1d(np.arange(engine.id_limit), rest)
    for part in np.array_split(gone, 5):
        engine.apply(EdgeBatch(remove=part))
        result = engine.update(strategy)
        assert result.error_bound <= (1e-9 if strategy == "auto" else 1e-3)
        # the sum rounds as that of all that were there
        _assert_certified(engine, off_one=1e-9)
    assert engine.free_ids().tolist() == gone.tolist()
    engine.apply(EdgeBatch.of(insert=[(7, 70), (70, 170), (170, 7), (1, 7), (2, 1)]))
    assert engine.update("auto").error_bound <= 1e-9
    _assert_certified(engine)
    assert engine.vertices == 5


def test_a_graph_that_turns_over_its_vertices_stays_bounded(backend: Backend) -> None:
    generator = np.random.default_rng(2)
    engine = Engine(Options(), backend)
    alive: list[int] = []
    free: list[int] = []
    held = 0
    for step in range(60):
        gone = alive[:20] if len(alive) >= 300 else []
        alive = alive[len(gone) :]
        free = sorted([*free, *gone])
        reused, free = free[:20], free[20:]
        new = reused + [engine.id_limit + k for k in range(20 - len(reused))]
        alive += new
        ends = generator.integers(0, len(alive), 100)
        batch = EdgeBatch(np.repeat(new, 5), np.array(alive)[ends], remove=np.array(gone, np.int64))
        change = engine.apply(batch)
        assert (change.removed, change.new_vertices) == (len(gone), 20)
        engine.update()
        if step == 30:
            held = sum(engine.memory().values())
    assert engine.vertices == engine.id_limit == len(alive) == 300
    assert sum(engine.memory().values()) <= 1.05 * held
    _assert_certified(engine)


def test_all_vertices_can_be_removed(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
    engine.update()
    engine.apply(EdgeBatch.of(remove=[2, 1, 0]))
    assert (engine.vertices, engine.edges, engine.id_limit) == (0, 0, 3)
    for strategy in STRATEGIES:
        assert engine.update(strategy).error_bound == 0.0
    ranks = engine.publish()
    assert (ranks.count, ranks.top(3)[0].tolist(), ranks.to_numpy().tolist()) == (0, [], [0.0] * 3)
    again = restored(engine, backend)
    for each in (engine, again):
        change = each.apply(EdgeBatch.of(insert=[(1, 3)], add=[0]))
        assert (change.new_vertices, each.vertices) == (3, 3)
        assert each.update().error_bound <= 1e-6
        _assert_certified(each)


def test_a_removed_vertex_has_no_rank_and_no_place(backend: Backend) -> None:
    engine = Engine(Options(vertex_order="degree"), backend)
    engine.apply(EdgeBatch.of(insert=[(v, 5) for v in range(6)]))
    engine.update()
    before = engine.publish()
    engine.apply(EdgeBatch.of(remove=[5, 9, -1]))
    # what was ranked stays as it is until the next update
    for ranks in (before, engine.publish()):
        assert ranks.top(1)[0].tolist() == [5]
    engine.update()
    ranks = engine.publish()
    assert ranks.top(9)[0].tolist() == [0, 1, 2, 3, 4]
    assert np.allclose(ranks.to_numpy(), [0.2] * 5 + [0.0])
    with pytest.raises(UnknownVertex, match=r"vertices\[1\]: 5 is not allowed.*was removed"):
        ranks.of(np.array([0, 5]))
    with pytest.raises(UnknownVertex, match=r"vertices\[0\]: 6 .* an id below 6"):
        ranks.of(np.array([6]))
    refused: list[tuple[dict[str, Any], str]] = [
        ({"seeds": np.array([1, 5])}, "seeds[1]"),
        ({"seeds": np.array([1]), "among": np.array([0, 5])}, "among[1]"),
        ({"seeds": np.array([1]), "among": np.array([0, 6])}, "among[1]"),
    ]
    for arguments, field in refused:
        with pytest.raises(UnknownVertex) as caught:
            engine.personalized(**arguments)
        assert caught.value.field == field
    with pytest.raises(InvalidValue, match=r"add\[0\]: -1"):
        EdgeBatch.of(add=[-1])


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dangling", POLICIES)
def test_queries_follow_removals_and_weights(
    dangling: Dangling, directed: bool, backend: Backend
) -> None:
    generator = np.random.default_rng(8)
    options = Options(dangling=dangling, directed=directed, weighted=True, vertex_order="degree")
    engine, model = Engine(options, backend), WeightedModel(dangling, directed)
    first = weighted_batch(generator, model, 200)
    model.apply(first)
    engine.apply(first)
    engine.update()
    asked = {
        method: PersonalizedQuery(np.array([1]), None, 10_000, method, 1e-6) for method in METHODS
    }
    for method, query in asked.items():
        engine.watch(method, query)
    block = [asked["pull"]] * backend.multivector.min_columns
    for step in range(12 if backend.name == "cpu" else 5):
        running = engine.submit(block if step % 2 else [asked["hybrid"]])
        engine.step(running)
        batch = weighted_batch(generator, model, 8, removes=True)
        batch = EdgeBatch(
            batch.insert_sources,
            batch.insert_targets,
            weights=batch.weights,
            remove=batch.remove[batch.remove != 1][:5],
        )
        engine.apply(batch)
        model.apply(batch)
        while not running.done:
            engine.step(running)
        engine.refresh_watched()
        restarts = np.zeros(engine.id_limit)
        restarts[1] = 1.0
        exact, slack = exact_ranks(engine, restarts)
        answers = [*running.answers(), *(engine.watched(method) for method in METHODS)]
        engine.close(running)
        if step % 3 == 0:
            engine.update()
        for answer in answers:
            assert not np.isin(answer.vertices, engine.free_ids()).any()
            ranks = np.zeros(engine.id_limit)
            ranks[answer.vertices] = answer.ranks
            assert np.abs(ranks - exact).sum() <= answer.error_bound + slack
            assert answer.error_bound <= 1e-6


def test_the_first_places_are_found_without_a_copy(backend: Backend) -> None:
    searched: list[Array] = []

    def top_k_columns(matrix: Array, *others: Any) -> Any:
        searched.append(matrix)
        return backend.select.top_k_columns(matrix, *others)

    select = instead(backend.select, top_k_columns=top_k_columns)
    engine = Engine(Options(vertex_order="degree"), replace(backend, select=select))
    engine.apply(EdgeBatch.of(insert=[(v, (v * 7 + 1) % 60) for v in range(60)]))
    engine.apply(EdgeBatch.of(remove=[15, 40]))
    queries = [PersonalizedQuery(np.array([v]), None, 60, "pull") for v in range(8)]
    block = Block(engine.internals.queries, engine.resolve(queries))
    sweeps: list[SweepMany] = []
    with counted(SweepMany, sweeps):
        while not block.done:
            block.step()
    swept = sweeps[-1]
    values = np.array(backend.device.to_host(swept.values))
    answers = block.answers()
    assert searched[-1] is swept.values
    assert np.array_equal(backend.device.to_host(swept.values), values)
    for answer in answers:
        assert sorted(answer.vertices.tolist()) == [v for v in range(60) if v not in (15, 40)]
    contributions = 2 * swept.contributions.nbytes
    held = swept.values.nbytes + swept.remainder.nbytes + contributions + swept.seeded.nbytes
    of_free = swept.values[engine.internals.graph.free].nbytes
    assert Block.bytes_needed(engine.internals.graph, 8) >= held + of_free


def test_queries_that_lose_a_seed_say_so(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(v, (v * 7 + 1) % 60) for v in range(60)]))
    engine.update()
    some = [PersonalizedQuery(np.array([v]), None, 5, "pull") for v in range(8)]
    engine.watch("lost", some[3])
    engine.watch("kept", some[2])
    running, registration = engine.submit(some), engine.register("new", some[3])
    engine.step(running)
    engine.step(registration)
    engine.apply(EdgeBatch.of(remove=[3], insert=[(3, 4)]))
    while not running.done:
        engine.step(running)
    with pytest.raises(UnknownVertex, match="seeds: 3 is not allowed"):
        running.answers()
    assert running.take(range(3)) is not None
    with pytest.raises(UnknownVertex, match="seeds: 3 is not allowed"):
        running.take(range(3, 5))
    engine.close(running)
    with pytest.raises(UnknownVertex, match="seeds: 3"):
        engine.step(registration)
    engine.close(registration)
    engine.refresh_watched()
    assert len(engine.watched("kept").vertices) == 5
    with pytest.raises(UnknownVertex, match="seeds: 3"):
        engine.watched("lost")
    engine.watch("lost", some[3])
    assert 3 in engine.watched("lost").vertices.tolist()
