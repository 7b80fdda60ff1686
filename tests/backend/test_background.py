"""Personalized walks that lean on the global ranks (gpu.background): what they gain, that what they
keep stays true, and that they do without where leaning is no help.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from gpu import EdgeBatch, Engine, Options, Personalized, PersonalizedQuery, verify
from gpu.backends.base import Backend
from gpu.background import Trials, gains
from gpu.generate import rmat
from gpu.graph import Graph
from gpu.seeds import Seeds
from gpu.state import State
from gpu.sweeps import sweep_to_target
from gpu.types import Dangling, Ranking, Storage
from gpu.walk import Shares, Space, Walk

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


def _engine(batch: EdgeBatch, backend: Backend, options: Options | None = None) -> Engine:
    engine = Engine(options or Options(), backend)
    engine.apply(batch)
    engine.update()
    return engine


def _mixing(seed: int = 3) -> EdgeBatch:
    """R-MAT: walks forget their seeds at once, and half of the vertices have no edges."""
    sources, targets = rmat(9, 8, seed=seed)
    return EdgeBatch(sources, targets, vertices=512)


def _apart() -> EdgeBatch:
    """The same, beside a circle that no walk from it reaches."""
    mixing, circle = _mixing(), np.arange(512, 612)
    return EdgeBatch(
        np.append(mixing.insert_sources, circle),
        np.append(mixing.insert_targets, np.roll(circle, 1)),
    )


def _seeds(batch: EdgeBatch, count: int) -> list[int]:
    """Where many edges begin."""
    degree = np.bincount(batch.insert_sources)[:512]
    return [int(v) for v in np.argsort(-degree, kind="stable")[:count]]


def _query(seed: int, method: str = "pull", **asked: object) -> PersonalizedQuery:
    options = {"k": 1000, "target_error": 1e-6} | asked
    return PersonalizedQuery(np.array([seed]), None, method=method, **options)  # type: ignore[arg-type]


def _assert_certified(engine: Engine, seed: int, answer: Personalized) -> None:
    sources, targets = engine.edge_list()
    restarts = np.zeros(engine.vertices)
    restarts[seed] = 1.0
    exact, bound = verify.pagerank(
        sources, targets, engine.vertices, 0.85, engine.options.dangling, restarts
    )
    found = np.zeros(engine.vertices)
    found[answer.vertices] = answer.ranks
    assert np.abs(found - exact).sum() <= answer.error_bound + bound
    assert (found >= 0.0).all()


@pytest.mark.parametrize("dangling", POLICIES)
def test_leaning_saves_sweeps_alone_and_in_a_block(dangling: Dangling, backend: Backend) -> None:
    batch, options = _mixing(), Options(dangling=dangling)
    ranked = _engine(batch, backend, options)
    without = Engine(options, backend)
    without.apply(batch)
    seeds = _seeds(batch, max(8, backend.least_columns))
    for target, saved in ((1e-4, 1), (1e-7, 2)):
        asked = [_query(seed, target_error=target) for seed in seeds]
        for alone in (True, False):
            answers, others = (
                [engine.personalized_many([query])[0] for query in asked]
                if alone
                else engine.personalized_many(asked)
                for engine in (ranked, without)
            )
            for seed, answer, other in zip(seeds, answers, others, strict=True):
                assert answer.error_bound <= target
                assert answer.iterations <= other.iterations - saved
                _assert_certified(ranked, seed, answer)


@pytest.mark.any_thread_order
@pytest.mark.parametrize("dangling", POLICIES)
def test_what_is_kept_of_a_walk_that_leans_is_its_residual(
    dangling: Dangling, backend: Backend
) -> None:
    options = Options(dangling=dangling, target_error=1e-3)
    graph = Graph(backend, dangling)
    state, batch = State(graph, options), _mixing()
    assert state.background(1e-6) is None  # of no vertices
    state.reserve(batch)
    state.perturb(graph.apply(batch))
    state.start_anew()
    sweep_to_target(state, 100)
    background = state.background(1e-6)
    assert background is not None
    # ranks that are this far off are leant on all the same
    assert float(backend.xp.abs(background.known.residual).sum()) > 1e-5 * background.total
    (seed,) = _seeds(batch, 1)
    walk = Walk(Space(graph), options, Seeds.of(graph.vertices, np.array([seed])))
    shares = Shares(graph, graph.vertices)
    for leans in (True, True, False, True):
        walk.sweep(shares, True, background if leans else None)
        values, residual = (
            backend.to_host(array) for array in (walk.space.values, walk.space.residual.values)
        )
        expected = _residual(graph, values, walk)
        assert np.abs(expected - residual).sum() <= walk.uncertainty + 1e-14
        assert walk.l1 == pytest.approx(np.abs(residual).sum(), rel=1e-12)
        assert walk.sum == pytest.approx(residual.sum(), abs=1e-14)
        assert walk.total == pytest.approx(values.sum(), rel=1e-12)
        # what both take from r is as much as there was: a part of what is new is left
        assert abs(walk.sum) < 0.05 * walk.l1


def _residual(graph: Graph, values: Ranking, walk: Walk) -> Ranking:
    """β·s + αP̄ᵀy - y from the edges, by positions."""
    backend, damping = graph.backend, walk.options.damping
    degree = backend.to_host(graph.degree).astype(np.float64)
    loop = backend.to_host(graph.loop)
    sent = np.divide(values, degree, out=np.zeros_like(values), where=degree > 0)
    position = backend.to_host(graph.numbering.positions_of(np.arange(graph.vertices)))
    sources, targets = (position[ends] for ends in graph.edge_list())
    residual = damping * np.bincount(targets, sent[sources], minlength=graph.vertices) - values
    if graph.dangling == "self-loop":
        added = loop.astype(np.bool_)
        added[sources[sources == targets]] = False
        residual[added] += damping * sent[added]
    residual[position[walk.seeds.vertices]] += walk.base * walk.seeds.weights
    return residual


def test_leaning_is_given_up_where_the_ranks_are_elsewhere(backend: Backend) -> None:
    batch = _apart()
    ranked = _engine(batch, backend)
    without = Engine(backend=backend)
    without.apply(batch)
    seeds = _seeds(batch, max(8, backend.least_columns))
    query = _query(seeds[0])
    plain = without.personalized_many([query])[0].iterations
    counted = [ranked.personalized_many([query])[0].iterations for _ in range(5)]
    # tried by the first, the third, and not again so soon
    assert plain < counted[0] == counted[2] <= plain + 8
    assert counted[1] == counted[3] == counted[4] == plain
    _assert_certified(ranked, seeds[0], ranked.personalized_many([query])[0])
    # a block too begins anew, and the next one does not try
    asked = [_query(seed) for seed in seeds]
    others, first, second = (
        engine.personalized_many(asked) for engine in (without, ranked, ranked)
    )
    assert others[0].iterations < first[0].iterations <= others[0].iterations + 8
    assert second[0].iterations == others[0].iterations
    for seed, answer in zip(seeds, first, strict=True):
        assert answer.error_bound <= 1e-6
        _assert_certified(ranked, seed, answer)


@pytest.mark.parametrize("method", ["pull", "hybrid"])
def test_batches_and_updates_between_sweeps_are_followed(method: str, backend: Backend) -> None:
    generator, batch = np.random.default_rng(4), _mixing()
    engine = _engine(batch, backend)
    seed = _seeds(batch, 1)[0]
    job = engine.ask([_query(seed, method, target_error=1e-8)])
    for step in range(100):
        if job.done:
            break
        engine.step(job)
        if step in (1, 3):
            new = generator.integers(0, 512, (2, 30))
            gone = batch.insert_sources[:5], batch.insert_targets[:5]
            engine.apply(EdgeBatch(new[0], new[1], *gone))
        if step in (2, 4, 5):
            engine.update("static" if step == 4 else "auto")
    (answer,) = job.answers()
    assert job.batches == 2
    engine.close(job)
    assert answer.error_bound <= 1e-8
    _assert_certified(engine, seed, answer)


def test_ranks_that_are_wrong_where_the_edges_are_are_not_leant_on(backend: Backend) -> None:
    # the vertices without edges have nearly all of the ranks' sum, and theirs are right
    for vertices in (220, 1000):
        engine = _engine(EdgeBatch(np.array([0]), np.array([1]), vertices=vertices), backend)
        engine.apply(EdgeBatch.of(insert=[(1, 0)], delete=[(0, 1)]))
        asked = [_query(1, target_error=1e-4)] * max(4, backend.least_columns)
        for queries in (asked[:1], asked):
            for answer in engine.personalized_many(queries):
                assert 0.0 <= answer.error_bound <= 1e-4
                _assert_certified(engine, 1, answer)


def test_where_few_sweeps_are_left_what_was_gained_is_kept(backend: Backend) -> None:
    batch = _apart()
    seeds = _seeds(batch, max(8, backend.least_columns))
    for most in range(1, 14):
        options = Options(max_iterations=most)
        engine = _engine(batch, backend, options)
        for count in (1, len(seeds)):
            answers = engine.personalized_many([_query(seed) for seed in seeds[:count]])
            for seed, answer in zip(seeds, answers, strict=False):
                assert answer.iterations <= most
                _assert_certified(engine, seed, answer)
                # five sweeps that leant, and then others: none of them may be for nothing
                assert most < 8 or answer.error_bound < 2.0


def test_no_bound_at_all_is_no_gain() -> None:
    none, some = np.array([np.inf, 1.0]), np.array([np.inf, 0.1])
    assert gains([none] * 4).tolist() == [True, True]
    assert gains([none] * 5).tolist() == [False, False]
    assert gains([none] * 4 + [some]).tolist() == [False, True]


def test_a_watched_query_goes_on_where_it_is_after_a_batch(backend: Backend) -> None:
    generator, batch = np.random.default_rng(5), _mixing()
    engine = _engine(batch, backend)
    (seed,) = _seeds(batch, 1)
    engine.watch("one", _query(seed, target_error=1e-6))
    first = engine.watched("one").iterations
    sweeps: list[int] = []
    for _ in range(20):
        # a few edges at first: what they change is less than any sweep of the first solve left
        new = generator.integers(0, 512, (2, 1 + len(sweeps)))
        engine.apply(EdgeBatch(new[0], new[1]))
        engine.update()
        engine.refresh_watched()
        sweeps.append(engine.watched("one").iterations)
        assert engine.watched("one").error_bound <= 1e-6
    assert 0 < max(sweeps) <= first
    assert np.median(sweeps) <= first - 2
    _assert_certified(engine, seed, engine.watched("one"))


@pytest.mark.parametrize("storage", get_args(Storage))
def test_ranks_that_are_not_fit_are_not_leant_on(storage: Storage, backend: Backend) -> None:
    options = Options(storage=storage)
    graph = Graph(backend, "uniform")
    state = State(graph, options)
    batch = _mixing()
    state.reserve(batch)
    state.perturb(graph.apply(batch))
    assert state.background(1e-6) is None  # the residual is not known
    state.start_anew()
    assert state.error_bound > 0.1
    assert state.background(1e-6) is None
    sweep_to_target(state, 100)
    if storage == "float32":
        assert state.background(1e-6) is None
    else:
        assert state.background(1e-6) is not None
        assert state.background(1e-15) is None  # rounding alone would be more
        state.forget()
        assert state.background(1e-6) is None


def test_after_failures_trials_are_ever_more_seldom() -> None:
    trials = Trials()
    tried = []
    for place in range(40):
        tried.append(trials.take_turn())
        if tried[-1]:
            trials.ended(gained=place > 30)
    assert np.flatnonzero(tried).tolist() == [0, 2, 6, 14, 30]
    assert [trials.take_turn() for _ in range(23)] == [False] * 22 + [True]
    trials.ended(gained=True)
    assert trials.due
