"""Personalized ranks: every method, one query and many, fixed and watched, against NetworkX and
gpu.verify.
"""

from __future__ import annotations

from collections import Counter
from functools import cache
from typing import Any, get_args

import networkx as nx
import numpy as np
import pytest

from gpu import EdgeBatch, Engine, InvalidValue, Options, Personalized, PersonalizedQuery, verify
from gpu.generate import rmat
from gpu.operations.backend import Backend
from gpu.personalized.query import Query
from gpu.personalized.resolve import METHODS
from gpu.types import Dangling, Ranking
from tests.gpu.graphs import FAMILIES, Model, Pairs, random_batch, random_graph

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


def _engine(pairs: Pairs, backend: Backend, dangling: Dangling = "uniform") -> Engine:
    vertices, edges = pairs
    engine = Engine(Options(dangling=dangling), backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    # as in a service: queries may be deflated along the global ranks (test_deflation.py)
    engine.update()
    return engine


def _exact(engine: Engine, query: PersonalizedQuery) -> Ranking:
    """float64[n] by gpu.verify, which shares no code with the engine."""
    sources, targets = engine.edge_list()
    weights = np.ones(len(query.seeds)) if query.weights is None else query.weights
    teleport = np.bincount(query.seeds, weights, minlength=engine.vertices)
    teleport = teleport / teleport.sum()
    order = np.lexsort((targets, sources))
    dangling = engine.options.dangling
    return _solved(sources[order].tobytes(), targets[order].tobytes(), teleport.tobytes(), dangling)


@cache
def _solved(sources: bytes, targets: bytes, teleport: bytes, dangling: Dangling) -> Ranking:
    # every backend and method is compared with it: it is computed once
    restarts = np.frombuffer(teleport)
    ranks, bound = verify.pagerank(
        np.frombuffer(sources, np.int64),
        np.frombuffer(targets, np.int64),
        len(restarts),
        0.85,
        dangling,
        restarts,
    )
    assert bound < 1e-11
    return ranks


def _assert_certified(engine: Engine, query: PersonalizedQuery, answer: Personalized) -> None:
    """The answer has all vertices; its error is within its bound, its settled places are right."""
    exact = _exact(engine, query)
    found = np.zeros(engine.vertices)
    found[answer.vertices] = answer.ranks
    # what is below 0 is given as 0, and nothing else changes the sum
    assert -1e-6 < found.sum() - 1.0 <= answer.error_bound + 1e-11
    assert (found >= 0.0).all()
    assert np.abs(found - exact).sum() <= answer.error_bound + 1e-11
    assert (np.diff(answer.ranks) <= 0.0).all()
    proven = answer.vertices[: answer.settled]
    others = np.delete(exact, proven).max(initial=-1.0)
    behind = np.maximum.accumulate(np.append(exact[proven], others)[::-1])[::-1][1:]
    assert (exact[proven] > behind - 1e-13).all()


def _queries(pairs: Pairs, seed: int) -> list[PersonalizedQuery]:
    """One seed, several, weighted, repeated; all vertices asked for."""
    generator, vertices = np.random.default_rng(seed), pairs[0]
    one = generator.integers(0, vertices, 1)
    some = generator.integers(0, vertices, 4)
    return [
        PersonalizedQuery(one, k=vertices),
        PersonalizedQuery(some, k=vertices),
        PersonalizedQuery(some, generator.random(4) + 0.01, k=vertices),
        PersonalizedQuery(np.append(some, some), np.arange(8.0), k=vertices),
    ]


def _with(query: PersonalizedQuery, method: str, target_error: float) -> PersonalizedQuery:
    return PersonalizedQuery(query.seeds, query.weights, query.k, method, target_error)


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_is_certified_on_every_family(
    family: str, dangling: Dangling, method: str, backend: Backend
) -> None:
    pairs = FAMILIES[family]()
    engine = _engine(pairs, backend, dangling)
    queries, targets = _queries(pairs, 1), [0.1, 1e-4, 1e-7]
    if backend.name != "cpu":
        queries, targets = queries[2:3], targets[1:]
    for query in queries:
        for target_error in targets:
            asked = _with(query, method, target_error)
            answer = engine.personalized_many([asked])[0]
            assert answer.error_bound <= target_error
            _assert_certified(engine, asked, answer)


@pytest.mark.any_thread_order
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dangling", POLICIES)
def test_every_method_solved_tightly_is_networkx(
    dangling: Dangling, method: str, backend: Backend
) -> None:
    for seed in range(6):
        pairs = vertices, edges = random_graph(seed)
        engine = _engine(pairs, backend, dangling)
        graph = nx.DiGraph()
        graph.add_nodes_from(range(vertices))
        graph.add_edges_from(edges.tolist())
        if dangling == "self-loop":
            graph.add_edges_from((v, v) for v in range(vertices))
        seeds = {0: 3.0, vertices - 1: 1.0, vertices // 2: 0.0}
        exact = nx.pagerank(graph, personalization=seeds, tol=1e-12 / vertices, max_iter=2000)
        answer = engine.personalized(
            np.array(list(seeds)),
            np.array(list(seeds.values())),
            k=vertices,
            method=method,
            target_error=1e-10,
        )
        assert answer.error_bound <= 1e-10
        found = dict(zip(answer.vertices.tolist(), answer.ranks.tolist(), strict=True))
        assert sum(abs(found[v] - exact[v]) for v in range(vertices)) <= 1e-9


@pytest.mark.any_thread_order
@pytest.mark.parametrize("dangling", POLICIES)
def test_many_queries_at_once_are_certified_one_by_one(
    dangling: Dangling, backend: Backend
) -> None:
    for seed in range(3 if backend.name == "cpu" else 1):
        pairs = random_graph(seed)
        engine = _engine(pairs, backend, dangling)
        asked = [
            _with(query, "pull", target)
            for part, target in ((0, 1e-3), (1, 1e-6), (2, 1e-7))
            for query in _queries(pairs, part)
        ]
        # what a block cannot promise is answered by itself, in its place
        asked.insert(3, _with(asked[0], "push", 1e-6))
        asked.insert(7, _with(asked[1], "pull", 1e-10))
        answers = engine.personalized_many(asked)
        assert [len(answer.vertices) for answer in answers] == [pairs[0]] * len(asked)
        for query, answer in zip(asked, answers, strict=True):
            assert query.target_error is not None
            assert answer.error_bound <= query.target_error
            _assert_certified(engine, query, answer)
        assert answers[3].method == "push"
        # one block: the same sweeps for all of it but those that it left behind, four at most
        sweeps = Counter(answer.iterations for answer in answers).most_common(1)[0][1]
        assert sweeps >= len(asked) - 2 - 4


def test_queries_that_stay_near_their_seeds_are_answered_by_pushing_in_a_crowd_too(
    backend: Backend,
) -> None:
    side = 60
    right = [(v, v + 1) for v in range(side * side) if (v + 1) % side]
    down = [(v, v + side) for v in range(side * (side - 1))]
    engine = _engine((side * side, np.array(right + down)), backend)
    # two of the corner behind which little lies, and two from which all is reached
    corner = side * side - 1
    near = [PersonalizedQuery(np.array([v]), k=9) for v in (corner, corner - 1)]
    far = [PersonalizedQuery(np.array([v]), None, 9, "pull") for v in (0, 1, 2, 3)]
    answers = engine.personalized_many([*near, *far])
    assert [answer.method for answer in answers] == ["push"] * 2 + ["pull"] * 4
    assert answers[0].ranks.tolist() == [1.0, *[0.0] * 8]
    for query, answer in zip([*near, *far], answers, strict=True):
        assert answer.error_bound <= 1e-6
        alone = engine.personalized(query.seeds, k=9, target_error=1e-10)
        assert np.abs(answer.ranks - alone.ranks).sum() <= answer.error_bound + 1e-10
    # their arrays are kept, and clean
    assert not any(free.values.any() for free in engine.internals.queries.pool._free)


def test_trials_end_where_too_few_are_answered(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    class Counted(Query):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            tried.append(self)

    monkeypatch.setattr("gpu.personalized.batch.Query", Counted)
    # all is reached from any vertex but the last one, which lets nothing go
    generator = np.random.default_rng(2)
    vertices, last = 300, 299
    engine = _engine((vertices, generator.integers(0, vertices - 1, (3000, 2))), backend)
    far, near = PersonalizedQuery(np.array([5]), k=9), PersonalizedQuery(np.array([last]), k=9)
    for asked, expected in (
        ([far] * 20, 8),
        # one that is answered buys two more
        ([*[far] * 7, near, *[far] * 20, near], 11),
        ([near] * 12, 12),
        ([*[far] * 3, *[near] * 2, *[far] * 4], 9),
    ):
        tried.clear()
        answers = engine.personalized_many(asked)
        assert len(tried) == expected
        for place, (query, answer) in enumerate(zip(asked, answers, strict=True)):
            alone = query is near and place < expected
            assert answer.method == ("push" if alone else "pull")
            assert answer.error_bound <= 1e-6
            if query is near:
                assert answer.ranks.tolist() == [1.0, *[0.0] * 8]


@pytest.mark.any_thread_order
@pytest.mark.parametrize("dangling", POLICIES)
def test_seeds_that_nothing_links_to_are_solved_in_a_block(
    dangling: Dangling, backend: Backend
) -> None:
    generator = np.random.default_rng(4)
    linked, count = 40, 100
    # vertex 39 has in-edges alone
    edges = generator.integers(0, (linked - 1, linked), (160, 2)).tolist()
    # without in-edges, and: 40 … 59 with out-edges, 60 … 69 with a loop too, 70 … 79 with a loop
    # alone, 80 … 99 with nothing
    edges += [(v, int(u)) for v in range(40, 70) for u in generator.integers(0, linked, 3)]
    edges += [(v, v) for v in range(60, 80)]
    engine = _engine((count, np.array(edges)), backend, dangling)
    some = [[41], [65], [72], [90], [41, 65, 72, 90], [3, 90], [50, 51, 99], [39], [39, 72]]
    asked = [
        PersonalizedQuery(np.array(seeds), weights, count, "pull", target)
        for target in (1e-3, 1e-7)
        for seeds in some
        for weights in (None, generator.random(len(seeds)) + 0.01)
    ]
    for query, answer in zip(asked, engine.personalized_many(asked), strict=True):
        assert query.target_error is not None
        assert answer.error_bound <= query.target_error
        _assert_certified(engine, query, answer)


@pytest.mark.any_thread_order
def test_rows_that_outgrow_their_group_are_solved_in_a_block(backend: Backend) -> None:
    generator = np.random.default_rng(6)
    count, rows = 600, ([1, 2, 3, 5], [9, 10, 14, 16], [30, 60], [70, 300])
    lengths = np.zeros(count, np.int64)
    lengths[generator.permutation(count)[:300]] = generator.integers(0, 70, 300)
    places = iter(generator.permutation(np.flatnonzero(lengths == 0)).tolist())
    grown = {next(places): size for sizes in rows for size in sizes}
    for v, size in grown.items():
        lengths[v] = size
    engine = _engine(
        (
            count,
            np.array(
                [(u, v) for v in range(count) for u in generator.permutation(count)[: lengths[v]]]
            ),
        ),
        backend,
    )
    few = [PersonalizedQuery(np.array([v]), None, count, "pull") for v in list(grown)[::4]]
    assert engine.personalized_many(few)  # by which rows have their groups
    insert = [
        (int(u), v)
        # not so many that all rows are partitioned again: see OVERFLOW_FACTOR of the kernels
        for v, more in zip(list(grown)[:12:5], (40, 130, 130), strict=True)
        for u in generator.permutation(count)[:more]
    ]
    emptied = list(grown)[3]
    sources, targets = engine.edge_list()
    delete = [(int(u), emptied) for u in sources[targets == emptied]]
    engine.apply(EdgeBatch.of(insert=insert, delete=delete))
    asked = few + [PersonalizedQuery(np.array([emptied, v]), None, count, "pull") for v in grown]
    first, second = (engine.personalized_many(asked) for _ in range(2))
    for query, answer, again in zip(asked, first, second, strict=True):
        assert answer.error_bound <= 1e-6
        _assert_certified(engine, query, answer)
        # sums have one shape, whatever runs first
        assert answer.ranks.tobytes() == again.ranks.tobytes()
        assert answer.error_bound == again.error_bound


def test_a_query_that_lags_behind_its_block_is_solved_alone(backend: Backend) -> None:
    # the last query circulates in a long cycle; the others mix at once
    generator, circle = np.random.default_rng(3), np.arange(200, 230)
    edges = np.concatenate(
        [
            generator.integers(0, 200, (2400, 2)),
            np.column_stack([circle, np.roll(circle, 1)]),
        ]
    )
    engine = _engine((230, edges), backend)
    asked = [
        PersonalizedQuery(np.array([seed]), k=230, method="pull")
        for seed in (*range(0, 160, 10), 205)
    ]
    answers = engine.personalized_many(asked)
    for query, answer in zip(asked, answers, strict=True):
        _assert_certified(engine, query, answer)
        assert answer.error_bound <= 1e-6
    *others, last = answers
    assert last.iterations > 40
    assert {answer.iterations for answer in others} == {others[0].iterations}
    # some sweeps were deflated along the global ranks, which have mass where they never come
    assert others[0].iterations < 35


def test_more_queries_than_a_block_takes_are_all_answered(backend: Backend) -> None:
    pairs = random_graph(3)
    engine = _engine(pairs, backend)
    asked = [PersonalizedQuery(np.array([v % pairs[0]]), k=3) for v in range(70)]
    together = engine.personalized_many(asked)
    for query, answer in zip(asked[::9], together[::9], strict=True):
        alone = engine.personalized(query.seeds, k=3)
        both = 2.0 * engine.options.target_error
        assert np.abs(alone.ranks - answer.ranks).max() <= both


def test_a_wide_hub_is_summed_in_chunks(backend: Backend) -> None:
    # 10,000 edges into one vertex: more than one warp of a block reads at once
    vertices, edges = FAMILIES["star inwards"]()
    back = np.array([[0, 5], [0, 9999]])
    engine = _engine((vertices, np.concatenate([edges, back])), backend)
    count = backend.multivector.min_columns
    asked = [
        PersonalizedQuery(np.array([v, 0]), None, vertices, "pull") for v in range(1, 1 + count)
    ]
    for query, answer in zip(asked, engine.personalized_many(asked), strict=True):
        _assert_certified(engine, query, answer)


def test_seeds_without_a_way_out_keep_all_rank(backend: Backend) -> None:
    engine = _engine((5, np.array([[0, 1], [2, 2]])), backend)
    for seed in (1, 3):  # dangling; isolated
        for method in METHODS:
            answer = engine.personalized(np.array([seed]), k=5, method=method)
            assert answer.vertices.tolist() == [seed, *(v for v in range(5) if v != seed)]
            assert answer.ranks.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
            assert answer.settled == 1
            assert answer.error_bound < 1e-12
    # a loop does not let go
    assert engine.personalized(np.array([2]), k=1).ranks.tolist() == [1.0]


def test_weights_add_up_and_those_of_zero_are_no_seeds(backend: Backend) -> None:
    engine = _engine(FAMILIES["karate club"](), backend)
    once = engine.personalized(np.array([3, 7]), np.array([2.0, 1.0]), k=34)
    for seeds, weights in (
        ([7, 3, 3], [1.0, 1.0, 1.0]),
        ([3, 5, 7], [4.0, 0.0, 2.0]),
        ([3, 7], [1.6e308, 0.8e308]),
        ([3, 7], [2e-320, 1e-320]),
    ):
        again = engine.personalized(np.array(seeds), np.array(weights), k=34)
        assert np.allclose(again.ranks, once.ranks, rtol=0, atol=2e-6)
        assert again.vertices[:5].tolist() == once.vertices[:5].tolist()


def test_settled_top_k_ends_as_soon_as_the_places_are_proven(backend: Backend) -> None:
    engine = _engine(random_graph(9), backend)
    asked = PersonalizedQuery(np.array([0]), k=3, target_error=1e-9, target="settled-top-k")
    (answer,) = engine.personalized_many([asked])
    full = engine.personalized(np.array([0]), k=3, target_error=1e-9)
    assert answer.settled == full.settled == 3
    assert answer.vertices.tolist() == full.vertices.tolist()
    assert answer.iterations < full.iterations
    assert answer.error_bound > 1e-9
    # equal ranks never are settled: then the target error ends it
    ring = _engine((4, np.array([[0, 1], [0, 2], [1, 3], [2, 3]])), backend)
    (tied,) = ring.personalized_many(
        [PersonalizedQuery(np.array([0]), k=4, target_error=1e-6, target="settled-top-k")]
    )
    assert tied.error_bound <= 1e-6
    assert tied.vertices.tolist() == [0, 3, 1, 2]
    assert tied.settled == 2


@pytest.mark.parametrize("method", METHODS)
def test_a_batch_between_two_steps_is_followed(method: str, backend: Backend) -> None:
    generator = np.random.default_rng(5)
    engine, model = Engine(backend=backend), Model("uniform")
    for size in (0, 400):
        batch = random_batch(generator, model, size) if size else EdgeBatch(vertices=60)
        model.apply(batch)
        engine.apply(batch)
    query = PersonalizedQuery(np.array([0]), np.array([1.0]), 1000, method, 1e-7)
    job = engine.submit([query, *[_with(query, "pull", 1e-6)] * backend.multivector.min_columns])
    steps = 0
    while not job.done:
        job.step()
        steps += 1
        if steps % 6 == 1 and steps < 40:
            batch = random_batch(generator, model, size=10)
            model.apply(batch)
            engine.apply(batch)
    answers = job.answers()
    engine.close(job)
    assert job.restarts >= 1 or method == "push"
    for asked, answer in ((query, answers[0]), (_with(query, "pull", 1e-6), answers[-1])):
        assert asked.target_error is not None
        assert answer.error_bound <= asked.target_error
        _assert_certified(engine, asked, answer)


@pytest.mark.parametrize("dangling", POLICIES)
def test_watched_queries_stay_within_their_bounds(dangling: Dangling, backend: Backend) -> None:
    """1,000 batches with growth on the cpu, fewer where that takes long."""
    generator = np.random.default_rng(3)
    engine, model = Engine(Options(dangling=dangling), backend), Model(dangling)
    for size in (0, 120):
        batch = random_batch(generator, model, size) if size else EdgeBatch(vertices=40)
        model.apply(batch)
        engine.apply(batch)
    watched = {
        "one": PersonalizedQuery(np.array([1]), k=4000, target_error=1e-4),
        "weighted": PersonalizedQuery(np.array([0, 5]), np.array([1.0, 3.0]), 4000, "push", 1e-3),
        "dense": PersonalizedQuery(np.array([2]), None, 4000, "pull", 1e-6),
    }
    for name, query in watched.items():
        engine.watch(name, query)
    refreshed = 0
    count = 1000 if backend.name == "cpu" else 30
    for step in range(count):
        batch = random_batch(generator, model, size=8)
        model.apply(batch)
        engine.apply(batch)
        engine.refresh_watched()
        for name, query in watched.items():
            answer = engine.watched(name)
            assert query.target_error is not None
            assert answer.error_bound <= query.target_error
            refreshed += answer.iterations > 0
            if step % 50 == 0 or step < 20:
                _assert_grown(engine, query, answer)
    assert refreshed > 0


def _assert_grown(engine: Engine, query: PersonalizedQuery, answer: Personalized) -> None:
    """As _assert_certified, where vertices newer than the places have no rank yet."""
    exact = _exact(engine, query)
    found = np.zeros(engine.vertices)
    found[answer.vertices] = answer.ranks
    assert np.abs(found - exact).sum() <= answer.error_bound + 1e-11
    right = np.argsort(-exact, kind="stable")
    assert answer.vertices[: answer.settled].tolist() == right[: answer.settled].tolist()


def test_a_watched_query_is_read_replaced_and_forgotten(backend: Backend) -> None:
    engine = _engine(FAMILIES["karate club"](), backend)
    engine.watch("mine", PersonalizedQuery(np.array([0]), k=1))
    assert engine.watched("mine").vertices.tolist() == [0]
    engine.watch("mine", PersonalizedQuery(np.array([33]), k=2))
    assert engine.watched("mine").vertices.tolist()[0] == 33
    assert len(engine.watched("mine").vertices) == 2
    with pytest.raises(InvalidValue, match=r"seeds\[0\]: 34 is not allowed"):
        engine.watch("mine", PersonalizedQuery(np.array([34])))
    assert len(engine.watched("mine").vertices) == 2
    engine.unwatch("mine")
    with pytest.raises(KeyError):
        engine.watched("mine")


def test_a_batch_that_leaves_a_watched_query_alone_costs_it_no_iteration(backend: Backend) -> None:
    engine = _engine(FAMILIES["disconnected parts"](), backend)
    engine.watch("here", PersonalizedQuery(np.array([0]), k=5, target_error=1e-6))
    before = engine.watched("here")
    engine.apply(EdgeBatch.of(insert=[(100, 101), (110, 119)]))
    engine.refresh_watched()
    after = engine.watched("here")
    assert after.iterations == 0
    assert after.vertices.tolist() == before.vertices.tolist()
    assert after.ranks.tolist() == before.ranks.tolist()
    assert after.error_bound <= 1e-6


def test_tight_targets_are_met_on_larger_graphs() -> None:
    """What a million additions can have rounded away of the kept sums ends no query early."""
    sources, targets = rmat(14, 16, seed=1)
    engine = Engine(backend="cpu")
    engine.apply(EdgeBatch(sources, targets, vertices=1 << 14))
    degrees = np.bincount(sources, minlength=1 << 14)
    for seed in np.random.default_rng(1).choice(np.flatnonzero(degrees), 5).tolist():
        for method in ("hybrid", "pull"):
            query = PersonalizedQuery(np.array([seed]), None, 1 << 14, method, 1e-9)
            (answer,) = engine.personalized_many([query])
            assert answer.error_bound <= 1e-9
        _assert_certified(engine, query, answer)
    # pushing so far is slow, and ends where it should too
    (answer,) = engine.personalized_many([PersonalizedQuery(np.array([0]), None, 5, "push", 1e-3)])
    assert answer.error_bound <= 1e-3
