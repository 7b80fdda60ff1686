"""Weights that decay, against NetworkX with decayed weights and against the stored ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, InvalidValue, Options
from liverank_gpu.graph.decay import HIGHEST, LEAST
from liverank_gpu.operations.backend import Backend, Sizes
from tests.gpu.graph.decaying import (
    DAY,
    NOW,
    assert_certified,
    decaying_batch,
    stored_weights,
)
from tests.gpu.graphs import restored


def _age(
    edges: dict[tuple[int, int], float],
    batch: EdgeBatch,
    directed: bool,
    newest: dict[int, float] | None = None,
) -> None:
    """Applies a batch to the logarithms of the weights of arcs, and of the largest of each row."""
    assert batch.weights is not None
    assert batch.times is not None
    for a, b in zip(batch.delete_sources.tolist(), batch.delete_targets.tolist(), strict=True):
        for arc in ((a, b),) if directed else ((a, b), (b, a)):
            edges.pop(arc, None)
    levels = np.log2(batch.weights.astype(np.float64)) + batch.times / DAY
    for a, b, level in zip(
        batch.insert_sources.tolist(), batch.insert_targets.tolist(), levels.tolist(), strict=True
    ):
        for arc in {(a, b)} if directed else {(a, b), (b, a)}:
            added = batch.on_conflict == "add" and arc in edges
            edges[arc] = float(np.logaddexp2(edges[arc], level)) if added else level
            if newest is not None:
                newest[arc[0]] = max(newest.get(arc[0], level), level)


def test_ranks_are_those_of_networkx_with_decayed_weights(backend: Backend, long: bool) -> None:
    generator = np.random.default_rng(1)
    engine = Engine(Options(half_life=DAY, target_error=1e-8), backend)
    levels: dict[tuple[int, int], float] = {}
    now = NOW
    steps = (150 if long else 50) if backend.name == "cpu" else (30 if long else 10)
    for step in range(steps):
        # over all, far more than a row can span
        now += DAY * generator.choice([0.1, 1.0, 9.0]) * max(1, 30 // steps)
        batch = decaying_batch(generator, now, 40 if step == 0 else 6)
        _age(levels, batch, True)
        engine.apply(batch)
        engine.update()
        graph = nx.DiGraph()
        graph.add_nodes_from(range(30))
        newest = {a: max(x for (u, _), x in levels.items() if u == a) for a, _ in levels}
        graph.add_weighted_edges_from(
            (a, b, 2.0 ** (x - newest[a])) for (a, b), x in levels.items()
        )
        exact = nx.pagerank(graph, tol=1e-12 / 30, max_iter=2000, weight="weight")
        ranks = engine.publish().to_numpy()
        assert np.abs(ranks - [exact[v] for v in range(30)]).sum() <= 1e-6, step


@pytest.mark.any_thread_order
@pytest.mark.parametrize("directed", [True, False])
def test_a_stream_of_decaying_edges_and_restarts_keeps_its_certificate(
    directed: bool, backend: Backend
) -> None:
    backend = replace(backend, sizes=Sizes(chunk=9))
    generator = np.random.default_rng(2)
    options = Options(half_life=DAY, directed=directed, vertex_order="degree")
    engine = Engine(options, backend)
    levels: dict[tuple[int, int], float] = {}
    newest: dict[int, float] = {}
    now, expired = NOW, 0
    for step in range(40 if backend.name == "cpu" else 12):
        now += DAY * generator.choice([0.1, 3.0, 20.0])
        batch = decaying_batch(generator, now, 60 if step == 0 else 6)
        _age(levels, batch, directed, newest)
        expired += engine.apply(batch).expired
        engine.update(STRATEGIES[int(generator.integers(len(STRATEGIES)))])
        stored = stored_weights(engine)
        assert stored.keys() <= levels.keys()
        # an undirected edge is in two rows
        lasting = {
            arc
            for arc, level in levels.items()
            if all(level > newest[v] - 99 for v in (arc[:1] if directed else arc))
        }
        assert lasting <= stored.keys()
        assert all(LEAST <= weight < 2.0 ** (HIGHEST + 1) for weight in stored.values())
        assert engine.edges == len(stored if directed else {tuple(sorted(arc)) for arc in stored})
        for source in {source for source, _ in stored}:
            rank = {arc: levels[arc] - newest[source] for arc in stored if arc[0] == source}
            best = max(rank, key=rank.__getitem__)
            for arc, level in rank.items():
                ratio = stored[arc] / stored[best]
                assert np.isclose(np.log2(ratio), level - rank[best], rtol=0, atol=1e-4)
        assert_certified(engine)
        if step % 20 == 9:
            again = restored(engine, backend)
            assert np.array_equal(again.publish().to_numpy(), engine.publish().to_numpy())
            following = decaying_batch(generator, now + 20 * DAY, 6)
            _age(levels, following, directed, newest)
            for each in (engine, again):
                each.apply(following)
            assert stored_weights(again) == stored_weights(engine)
            engine = again
            engine.update()
    assert expired > 0


def test_a_new_time_renews_and_an_addition_adds_to_the_decayed_weight(backend: Backend) -> None:
    engine = Engine(Options(half_life=10.0), backend)

    def shares(*edges: tuple[int, int, float], time: float, **options: Any) -> list[float]:
        batch = EdgeBatch.of(edges, **options)
        times = np.full(len(edges), time)
        engine.apply(
            EdgeBatch(
                batch.insert_sources,
                batch.insert_targets,
                weights=batch.weights,
                on_conflict=batch.on_conflict,
                times=times,
            )
        )
        stored = stored_weights(engine)
        total = sum(stored.values())
        return [stored[0, target] / total for target in sorted(v for _, v in stored)]

    assert shares((0, 1, 1.0), (0, 2, 1.0), time=0.0) == [0.5, 0.5]
    assert np.allclose(shares((0, 2, 1.0), time=10.0), [1 / 3, 2 / 3])
    # 1 of 20 s ago is worth a quarter, 1 of 10 s ago a half
    assert np.allclose(
        shares((0, 1, 1.0), time=20.0, on_conflict="add"), np.array([1.25, 0.5]) / 1.75
    )
    assert np.allclose(shares((0, 1, 0.5), time=20.0), [0.5, 0.5])


def test_what_is_too_old_leaves_or_does_not_come(backend: Backend) -> None:
    for directed in (True, False):
        engine = Engine(Options(half_life=1.0, directed=directed), backend)
        first = EdgeBatch(np.array([0, 0, 3]), np.array([1, 0, 4]), times=np.full(3, 0.0))
        engine.apply(first)
        engine.update()
        change = engine.apply(EdgeBatch(np.array([0]), np.array([2]), times=np.array([5000.0])))
        assert (change.inserted, change.deleted, change.expired) == (1, 0, 2)
        late = EdgeBatch(np.array([0, 5]), np.array([3, 6]), times=np.array([4000.0, 4000.0]))
        change = engine.apply(late)
        assert (change.inserted, change.already_present, change.expired) == (1, 1, 1)
        assert sorted(zip(*(c.tolist() for c in engine.edge_list()), strict=True)) == [
            (0, 2),
            (3, 4),
            (5, 6),
        ]
        engine.update()
        assert_certified(engine)


def test_what_cannot_decay_is_refused(backend: Backend) -> None:
    options: list[tuple[dict[str, Any], str]] = [
        ({"half_life": 0.0}, "half_life"),
        ({"half_life": float("inf")}, "half_life"),
        ({"half_life": True}, "half_life"),
        ({"half_life": 1.0, "dangling": "self-loop"}, "dangling"),
    ]
    for given, field in options:
        with pytest.raises(InvalidValue) as caught:
            Options(**given)
        assert caught.value.field == field
    assert Options(half_life=1).weighted
    one = (np.array([0]), np.array([1]))
    times: list[tuple[NDArray[Any], str]] = [
        (np.array([0.0, 1.0]), "times: 'length 2'"),
        (np.array([np.nan]), r"times\[0\]: nan"),
        (np.array(["now"]), "times: "),
    ]
    for column, message in times:
        with pytest.raises(InvalidValue, match=message):
            EdgeBatch(*one, times=column)
    engine = Engine(Options(half_life=1.0), backend)
    with pytest.raises(InvalidValue, match=r"times: None is not allowed; .* one time for each"):
        engine.apply(EdgeBatch(*one))
    engine.apply(EdgeBatch(delete_sources=one[0], delete_targets=one[1], vertices=2))
    plain = Engine(Options(weighted=True), backend)
    with pytest.raises(InvalidValue, match=r"times: '1 times' is not allowed; .* no half_life"):
        plain.apply(EdgeBatch(*one, times=np.array([0.0])))
    assert plain.vertices == 0


def test_times_far_from_0_are_refused(backend: Backend) -> None:
    engine = Engine(Options(half_life=1e-3, directed=False), backend)
    for time in (1.2e9, -1.2e9, 1e308):
        batch = EdgeBatch(np.array([0, 0]), np.array([1, 2]), times=np.array([NOW / 4, time]))
        with pytest.raises(InvalidValue, match=r"times\[1\]: .*within 2⁴⁰ half-lives of 0"):
            engine.apply(batch)
        assert (engine.vertices, engine.edges) == (0, 0)
    # 2^-12 half-lives still count
    limit = 2.0**40 * 1e-3
    times = np.array([limit, limit * (1.0 - 2.0**-42)])
    engine.apply(EdgeBatch(np.array([0, 0]), np.array([1, 2]), times=times))
    stored = stored_weights(engine)
    assert stored[0, 2] / stored[0, 1] == pytest.approx(2.0**-0.25, rel=2.0**-12)


def test_a_vertex_that_is_removed_and_comes_back_has_no_past(backend: Backend) -> None:
    engine = Engine(Options(half_life=1.0), backend)
    engine.apply(EdgeBatch(np.array([0, 1]), np.array([1, 2]), times=np.array([500.0, 500.0])))
    # of the old vertex 0 this insertion would be too old
    batch = EdgeBatch(np.array([0]), np.array([2]), times=np.zeros(1), remove=np.array([0]))
    change = engine.apply(batch)
    assert (change.inserted, change.expired, change.removed_edges) == (1, 0, 1)
    assert stored_weights(engine)[0, 2] == 1.0
    engine.update()
    assert_certified(engine)


def test_a_snapshot_has_the_exponents_of_all_ids(backend: Backend) -> None:
    engine = Engine(Options(half_life=1.0), backend)
    engine.apply(EdgeBatch(np.array([1]), np.array([0]), times=np.array([20.0])))
    engine.apply(EdgeBatch.of(vertices=50))
    engine.update()
    arrays = engine.capture(engine.staging_buffer()).snapshot().arrays
    assert len(arrays["exponents"]) == len(arrays["newest"]) == 50
    assert arrays["newest"][:3].tolist() == [0, 20, 0]


@pytest.mark.parametrize("directed", [True, False])
def test_an_exceeding_weight_is_named_by_its_place_in_the_batch(
    directed: bool, backend: Backend
) -> None:
    engine = Engine(Options(half_life=1.0, directed=directed), backend)
    for time in (0.0, 15.0):
        engine.apply(EdgeBatch(np.array([0]), np.array([1]), times=np.full(1, time)))
    # the first one has expired; so many of the others exceed float32 in the scale of the row
    count = 4200
    targets, times = np.ones(count, np.int64), np.full(count, 115.0)
    targets[0], times[0] = 2, 0.0
    batch = EdgeBatch(
        np.zeros(count, np.int64),
        targets,
        weights=np.full(count, 1.99, np.float32),
        on_conflict="add",
        times=times,
    )
    with pytest.raises(InvalidValue) as caught:
        engine.apply(batch)
    assert caught.value.field == f"weights[{count - 1}]"
    assert engine.edges == 1
