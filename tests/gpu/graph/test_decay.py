"""Weights that decay, against NetworkX with decayed weights and against the stored ones."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock, patch

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

from gpu import STRATEGIES, EdgeBatch, Engine, InvalidValue, Options, OutOfMemory, verify
from gpu.graph.decay import HIGHEST, LEAST, Decay
from gpu.graph.dynamic_graph import DynamicGraph
from gpu.operations.backend import Backend
from gpu.operations.update import GraphUpdate

DAY = 86_400.0
NOW = 1.7e9


def _stored(engine: Engine) -> dict[tuple[int, int], float]:
    """The stored weight of each arc, which must be the same in both directions."""
    graph, host = engine.internals.graph, engine.internals.backend.device.to_host
    found = []
    for lists in (graph.outgoing, graph.incoming):
        rows, neighbours, weights = map(host, graph.backend.rebuild.entries(lists.csr))
        ends = [graph.permutation.ids_of(column).tolist() for column in (rows, neighbours)]
        if lists is graph.incoming:
            ends.reverse()
        found.append(dict(zip(zip(*ends, strict=True), weights.tolist(), strict=True)))
    assert found[0] == found[1]
    loop = host(graph.loop)
    ids = graph.permutation.ids_of(np.arange(len(loop))).tolist()
    return found[0] | {(v, v): float(w) for v, w in zip(ids, loop, strict=True) if w}


def _assert_certified(engine: Engine) -> None:
    arcs = _stored(engine)
    sources, targets = np.array(list(arcs), np.int64).reshape(-1, 2).T
    exact, slack = verify.pagerank(
        sources, targets, engine.vertices, weights=np.array(list(arcs.values()))
    )
    ranks = engine.publish()
    assert np.abs(ranks.to_numpy() - exact).sum() <= ranks.error_bound + slack


def _restored(engine: Engine, backend: Backend) -> Engine:
    again = Engine(engine.options, backend)
    again.restore(engine.capture(engine.staging_buffer()).snapshot())
    return again


def _batch(generator: np.random.Generator, now: float, size: int) -> EdgeBatch:
    """Insertions, some of them late, and now and then a deletion."""
    inserted, deleted = generator.integers(0, 30, (2, size)), generator.integers(0, 30, (2, 2))
    return EdgeBatch(
        inserted[0],
        inserted[1],
        deleted[0],
        deleted[1],
        vertices=30,
        weights=generator.uniform(0.5, 2.0, size).astype(np.float32),
        on_conflict="add" if generator.random() < 0.3 else "replace",
        times=now - DAY * generator.choice([0.0, 0.5, 30.0], size),
    )


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


def test_ranks_are_those_of_networkx_with_decayed_weights(backend: Backend) -> None:
    generator = np.random.default_rng(1)
    engine = Engine(Options(half_life=DAY, target_error=1e-8), backend)
    levels: dict[tuple[int, int], float] = {}
    now = NOW
    for step in range(150 if backend.name == "cpu" else 30):
        # over all, far more than a row can span
        now += DAY * generator.choice([0.1, 1.0, 9.0])
        batch = _batch(generator, now, 40 if step == 0 else 6)
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
    generator = np.random.default_rng(2)
    options = Options(half_life=DAY, directed=directed, vertex_order="degree")
    engine = Engine(options, backend)
    levels: dict[tuple[int, int], float] = {}
    newest: dict[int, float] = {}
    now, expired = NOW, 0
    for step in range(100 if backend.name == "cpu" else 20):
        now += DAY * generator.choice([0.1, 3.0, 20.0])
        batch = _batch(generator, now, 60 if step == 0 else 6)
        _age(levels, batch, directed, newest)
        expired += engine.apply(batch).expired
        engine.update(STRATEGIES[int(generator.integers(len(STRATEGIES)))])
        stored = _stored(engine)
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
        _assert_certified(engine)
        if step % 20 == 9:
            again = _restored(engine, backend)
            assert np.array_equal(again.publish().to_numpy(), engine.publish().to_numpy())
            following = _batch(generator, now + 20 * DAY, 6)
            _age(levels, following, directed, newest)
            for each in (engine, again):
                each.apply(following)
            assert _stored(again) == _stored(engine)
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
        stored = _stored(engine)
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
        _assert_certified(engine)


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


def test_the_warm_up_of_a_graph_with_a_half_life_scales_rows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = Engine(Options(half_life=DAY), "cpu")
    rebuild = engine.internals.backend.rebuild
    scale_rows = Mock(wraps=rebuild.scale_rows)
    monkeypatch.setattr(rebuild, "scale_rows", scale_rows)
    engine.warm_up()
    assert scale_rows.called
    assert (engine.vertices, engine.edges) == (0, 0)


def _decaying(backend: Backend, directed: bool = True) -> Engine:
    """A graph of 40 vertices, of which the next batch of `_scaling` scales all rows."""
    generator = np.random.default_rng(5)
    engine = Engine(Options(half_life=DAY, directed=directed), backend)
    for time in (NOW, NOW + 12 * DAY):
        ends = generator.integers(0, 40, (2, 300))
        batch = EdgeBatch(ends[0], ends[1], vertices=40, times=np.full(300, time))
        engine.apply(batch)
    engine.update()
    return engine


def _scaling(engine: Engine) -> EdgeBatch:
    sources, targets = (column[:3] for column in engine.edge_list())
    deleted = np.array([7]), np.array([8])
    return EdgeBatch(sources, targets, *deleted, times=np.full(3, NOW + 20 * DAY))


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("chunk", [1, 1 << 22])
def test_scaled_rows_keep_their_probabilities(chunk: int, directed: bool, backend: Backend) -> None:
    engine = _decaying(backend, directed)
    batch = _scaling(engine)
    scale = Decay.scale
    found = []

    def compared(decay: Decay, graph: DynamicGraph) -> None:
        found.append((_stored(engine), np.array(backend.device.to_host(graph.degree))))
        scale(decay, graph)
        found.append((_stored(engine), np.array(backend.device.to_host(graph.degree))))

    with (
        patch("gpu.graph.decay._CHUNK", chunk),
        patch.object(Decay, "scale", compared),
    ):
        engine.apply(batch)
    *_, (weights, degree), (scaled, scaled_degree) = found
    assert weights.keys() == scaled.keys()
    graph = engine.internals.graph
    factors = scaled_degree / degree
    assert (factors < 1.0).any()
    assert (np.exp2(np.round(np.log2(factors))) == factors).all()
    for (source, target), weight in weights.items():
        factor = factors[int(graph.permutation.positions_of(np.array([source]))[0])]
        assert scaled[source, target] == weight * factor
    engine.update()
    _assert_certified(engine)


def test_no_memory_is_needed_once_a_batch_that_scales_rows_stands(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine, other = _decaying(backend), _decaying(backend)
    batch = _scaling(engine)
    other.apply(batch)
    perturb = engine._queries.perturb

    def then_out_of_memory(update: GraphUpdate) -> None:
        perturb(update)
        failing = Mock(side_effect=MemoryError)
        for name in ("gpu.graph.permutation._mapped", "gpu.graph.decay.rows_of"):
            monkeypatch.setattr(name, failing)
        monkeypatch.setattr(type(backend.device), "allocate", failing)

    monkeypatch.setattr(engine._queries, "perturb", then_out_of_memory)
    engine.apply(batch)
    monkeypatch.undo()
    assert _stored(engine) == _stored(other)


def test_a_batch_that_runs_out_of_memory_before_it_stands_changes_nothing(
    backend: Backend,
) -> None:
    """Whatever the step: each is told as OutOfMemory, and the same batch can be sent again."""
    for step in (
        "gpu.graph.decay._factors",
        "gpu.graph.decay._expired",
        "gpu.graph.dynamic_graph.Arcs.of",
        "gpu.graph.dynamic_graph.Removal.of",
    ):
        engine, other = _decaying(backend), _decaying(backend)
        batch = replace(_scaling(engine), remove=np.array([30]))
        before = _stored(engine)
        with (
            patch(step, side_effect=MemoryError),
            pytest.raises(OutOfMemory, match="a batch of 4 edges"),
        ):
            engine.apply(batch)
        assert _stored(engine) == before
        for each in (engine, other):
            each.apply(batch)
        assert _stored(engine) == _stored(other)
        engine.update()


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
    stored = _stored(engine)
    assert stored[0, 2] / stored[0, 1] == pytest.approx(2.0**-0.25, rel=2.0**-12)


def test_a_vertex_that_is_removed_and_comes_back_has_no_past(backend: Backend) -> None:
    engine = Engine(Options(half_life=1.0), backend)
    engine.apply(EdgeBatch(np.array([0, 1]), np.array([1, 2]), times=np.array([500.0, 500.0])))
    # of the old vertex 0 this insertion would be too old
    batch = EdgeBatch(np.array([0]), np.array([2]), times=np.zeros(1), remove=np.array([0]))
    change = engine.apply(batch)
    assert (change.inserted, change.expired, change.removed_edges) == (1, 0, 1)
    assert _stored(engine)[0, 2] == 1.0
    engine.update()
    _assert_certified(engine)


def test_a_snapshot_has_the_exponents_of_all_ids(backend: Backend) -> None:
    engine = Engine(Options(half_life=1.0), backend)
    engine.apply(EdgeBatch(np.array([1]), np.array([0]), times=np.array([20.0])))
    engine.apply(EdgeBatch.of(vertices=50))
    engine.update()
    arrays = engine.capture(engine.staging_buffer()).snapshot().arrays
    assert len(arrays["exponents"]) == len(arrays["newest"]) == 50
    assert arrays["newest"][:3].tolist() == [0, 20, 0]
