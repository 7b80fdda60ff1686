"""Personalized queries deflated along the global ranks: what they gain, that their residual and
bound stay true, and that they do without where deflation does not pay.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options, PersonalizedQuery
from liverank_gpu.generate import rmat
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.iterate import ContributionBuffers, Workspace
from liverank_gpu.pagerank.sweeps import sweep_to_target
from liverank_gpu.personalized.forecast import DeflationHistory, DeflationTrial
from liverank_gpu.personalized.iterate import SEED_CORRECTION, PersonalizedIterate, Seeds
from liverank_gpu.types import Dangling, Ranking
from tests.gpu.graphs import is_slow
from tests.gpu.personalized.certified import assert_certified

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


def _engine(batch: EdgeBatch, backend: Backend, options: Options | None = None) -> Engine:
    engine = Engine(options or Options(), backend)
    engine.apply(batch)
    engine.update()
    return engine


def _mixing(seed: int = 3) -> EdgeBatch:
    """R-MAT: queries mix at once, and half of the vertices have no edges."""
    sources, targets = rmat(9, 8, seed=seed)
    return EdgeBatch(sources, targets, vertices=512)


def _apart() -> EdgeBatch:
    """The same, beside a cycle that is never reached from it."""
    mixing, circle = _mixing(), np.arange(512, 612)
    return EdgeBatch(
        np.append(mixing.insert_sources, circle),
        np.append(mixing.insert_targets, np.roll(circle, 1)),
    )


def _seeds(batch: EdgeBatch, count: int) -> list[int]:
    """Vertices of high out-degree."""
    degree = np.bincount(batch.insert_sources)[:512]
    return [int(v) for v in np.argsort(-degree, kind="stable")[:count]]


def _query(seed: int, method: str = "pull", **asked: object) -> PersonalizedQuery:
    options = {"k": 1000, "target_error": 1e-6} | asked
    return PersonalizedQuery(np.array([seed]), None, method=method, **options)  # type: ignore[arg-type]


@pytest.mark.parametrize("dangling", POLICIES)
def test_deflation_saves_sweeps_alone_and_in_a_block(dangling: Dangling, backend: Backend) -> None:
    batch, options = _mixing(), Options(dangling=dangling)
    ranked = _engine(batch, backend, options)
    without = Engine(options, backend)
    without.apply(batch)
    seeds = _seeds(batch, max(8, backend.multivector.min_columns))
    most = 2 if is_slow(backend) else len(seeds)
    for target, saved in ((1e-4, 1), (1e-7, 2)):
        asked = [_query(seed, target_error=target) for seed in seeds]
        for alone in (True, False):
            answers, others = (
                [engine.personalized_many([query])[0] for query in asked[:most]]
                if alone
                else engine.personalized_many(asked)
                for engine in (ranked, without)
            )
            for seed, answer, other in zip(seeds, answers, others, strict=not alone):
                assert answer.error_bound <= target
                assert answer.iterations <= other.iterations - saved
                assert_certified(ranked, _query(seed), answer)


@pytest.mark.any_thread_order
@pytest.mark.parametrize("dangling", POLICIES)
def test_the_residual_of_a_deflated_iterate_is_maintained(
    dangling: Dangling, backend: Backend
) -> None:
    options = Options(dangling=dangling, target_error=0.02)
    graph = DynamicGraph(backend, dangling)
    iterate, batch = GlobalIterate(graph, options), _mixing()
    assert iterate.deflation(1e-6) is None  # of no vertices
    iterate.reserve(batch.vertices)
    iterate.perturb(graph.apply(batch))
    iterate.reset()
    sweep_to_target(iterate, 100)
    deflation = iterate.deflation(1e-6)
    assert deflation is not None
    assert deflation.vector is not None
    # ranks that are this far off are used all the same
    assert float(backend.xp.abs(deflation.vector.residual).sum()) > 1e-5 * deflation.mass
    (seed,) = _seeds(batch, 1)
    workspace = Workspace(backend, "a personalized vector")
    workspace.extend(graph.vertices)
    seeds = Seeds.of(graph.vertices, np.array([seed]))
    personalized = PersonalizedIterate(graph, workspace, options, seeds)
    buffers = ContributionBuffers.allocate(backend, graph.vertices)
    certificate = personalized.certificate
    for deflated in (True, True, False, True):
        personalized.sweep(buffers, deflation if deflated else SEED_CORRECTION)
        values, residual = (
            backend.device.to_host(array) for array in (workspace.values, workspace.residual.values)
        )
        expected = _residual(personalized, values)
        assert np.abs(expected - residual).sum() <= certificate.uncertainty + 1e-14
        assert certificate.residual_l1 == pytest.approx(np.abs(residual).sum(), rel=1e-12)
        assert certificate.residual_sum == pytest.approx(residual.sum(), abs=1e-14)
        assert certificate.mass == pytest.approx(values.sum(), rel=1e-12)
        # both subtract as much from r as there was: part of what is new is left
        assert abs(certificate.residual_sum) < 0.05 * certificate.residual_l1


def _residual(iterate: PersonalizedIterate, values: Ranking) -> Ranking:
    """β·s + αP̄ᵀy - y from the edges, by positions."""
    graph, damping = iterate.graph, iterate.options.damping
    assert isinstance(graph, DynamicGraph)
    backend, seeds = graph.backend, iterate.seeds
    degree = backend.device.to_host(graph.degree).astype(np.float64)
    loop = backend.device.to_host(graph.loop)
    sent = np.divide(values, degree, out=np.zeros_like(values), where=degree > 0)
    position = backend.device.to_host(graph.permutation.positions_of(np.arange(graph.vertices)))
    sources, targets = (position[ends] for ends in graph.edge_list())
    residual = damping * np.bincount(targets, sent[sources], minlength=graph.vertices) - values
    if graph.dangling == "self-loop":
        added = loop.astype(np.bool_)
        added[sources[sources == targets]] = False
        residual[added] += damping * sent[added]
    residual[position[seeds.vertices]] += iterate.rhs_scale * seeds.weights
    return residual


def test_deflation_is_given_up_where_the_ranks_are_elsewhere(backend: Backend) -> None:
    batch = _apart()
    ranked = _engine(batch, backend)
    without = Engine(backend=backend)
    without.apply(batch)
    seeds = _seeds(batch, max(8, backend.multivector.min_columns))
    query = _query(seeds[0])
    plain = without.personalized_many([query])[0].iterations
    counted = [ranked.personalized_many([query])[0].iterations for _ in range(5)]
    # tried by the first, the third, and not again so soon
    assert plain < counted[0] == counted[2] <= plain + 8
    assert counted[1] == counted[3] == counted[4] == plain
    assert_certified(ranked, _query(seeds[0]), ranked.personalized_many([query])[0])
    # a block starts again too, and the next one does not try
    asked = [_query(seed) for seed in seeds]
    others, first, second = (
        engine.personalized_many(asked) for engine in (without, ranked, ranked)
    )
    assert others[0].iterations < first[0].iterations <= others[0].iterations + 8
    assert second[0].iterations == others[0].iterations
    for seed, answer in zip(seeds, first, strict=True):
        assert answer.error_bound <= 1e-6
        assert_certified(ranked, _query(seed), answer)


@pytest.mark.parametrize("method", ["pull", "hybrid"])
def test_batches_and_updates_between_sweeps_are_followed(method: str, backend: Backend) -> None:
    generator, batch = np.random.default_rng(4), _mixing()
    engine = _engine(batch, backend)
    seed = _seeds(batch, 1)[0]
    job = engine.submit([_query(seed, method, target_error=1e-8)])
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
    assert job.updates == 2
    engine.close(job)
    assert answer.error_bound <= 1e-8
    assert_certified(engine, _query(seed), answer)


def test_ranks_that_are_wrong_where_the_edges_are_are_not_used(backend: Backend) -> None:
    # the vertices without edges have nearly all of the ranks' sum, and theirs are right
    for vertices in (220, 1000):
        engine = _engine(EdgeBatch(np.array([0]), np.array([1]), vertices=vertices), backend)
        engine.apply(EdgeBatch.of(insert=[(1, 0)], delete=[(0, 1)]))
        asked = [_query(1, target_error=1e-4)] * max(4, backend.multivector.min_columns)
        for queries in (asked[:1], asked):
            for answer in engine.personalized_many(queries):
                assert 0.0 <= answer.error_bound <= 1e-4
                assert_certified(engine, _query(1), answer)


def test_where_few_sweeps_are_left_what_was_gained_is_kept(backend: Backend, long: bool) -> None:
    batch = _apart()
    seeds = _seeds(batch, max(8, backend.multivector.min_columns))
    for most in range(1, 14, 4 if is_slow(backend) and not long else 1):
        options = Options(max_iterations=most)
        engine = _engine(batch, backend, options)
        for count in (1, len(seeds)):
            answers = engine.personalized_many([_query(seed) for seed in seeds[:count]])
            for seed, answer in zip(seeds, answers, strict=False):
                assert answer.iterations <= most
                assert_certified(engine, _query(seed), answer)
                # five deflated sweeps, and then others: none of them may be for nothing
                assert most < 8 or answer.error_bound < 2.0


def test_no_bound_at_all_is_no_gain() -> None:
    def fails(*bounds: list[float]) -> list[bool]:
        trial = DeflationTrial(DeflationHistory(), lambda _: None, 1e-6)
        running = np.zeros(len(bounds[0]), np.bool_)
        return [trial.fails(np.array(each), running, done=False) for each in bounds]

    assert fails(*[[np.inf]] * 5) == [False] * 4 + [True]
    assert fails(*[[1.0]] * 5) == [False] * 4 + [True]
    assert fails(*[[1.0]] * 4, [0.1]) == [False] * 5
    # half of a block may gain nothing
    assert fails(*[[np.inf, 1.0]] * 4, [np.inf, 0.1]) == [False] * 5
    assert fails(*[[np.inf, 1.0]] * 5) == [False] * 4 + [True]


def test_a_watched_query_goes_on_where_it_is_after_a_batch(backend: Backend) -> None:
    generator, batch = np.random.default_rng(5), _mixing()
    engine = _engine(batch, backend)
    (seed,) = _seeds(batch, 1)
    engine.watch("one", _query(seed, target_error=1e-6))
    first = engine.watched("one").iterations
    sweeps: list[int] = []
    for _ in range(8 if is_slow(backend) else 20):
        # a few edges at first: what they change is less than any sweep of the first solve left
        new = generator.integers(0, 512, (2, 1 + len(sweeps)))
        engine.apply(EdgeBatch(new[0], new[1]))
        engine.update()
        engine.refresh_watched()
        sweeps.append(engine.watched("one").iterations)
        assert engine.watched("one").error_bound <= 1e-6
    assert 0 < max(sweeps) <= first
    assert np.median(sweeps) <= first - 2
    assert_certified(engine, _query(seed), engine.watched("one"))


def test_unusable_ranks_are_not_used(backend: Backend) -> None:
    graph = DynamicGraph(backend, "uniform")
    iterate = GlobalIterate(graph, Options())
    batch = _mixing()
    iterate.reserve(batch.vertices)
    iterate.perturb(graph.apply(batch))
    assert iterate.deflation(1e-6) is None  # the residual is unknown
    iterate.reset()
    assert iterate.error_bound > 0.1
    assert iterate.deflation(1e-6) is None
    sweep_to_target(iterate, 100)
    assert iterate.deflation(1e-6) is not None
    assert iterate.deflation(1e-15) is None  # rounding alone would be more
    iterate.invalidate()
    assert iterate.deflation(1e-6) is None


def test_after_failures_trials_become_rare() -> None:
    history = DeflationHistory()
    tried = []
    for place in range(40):
        tried.append(history.take_turn())
        if tried[-1]:
            history.record(gained=place > 30)
    assert np.flatnonzero(tried).tolist() == [0, 2, 6, 14, 30]
    assert [history.take_turn() for _ in range(23)] == [False] * 22 + [True]
    history.record(gained=True)
    assert history.next_tries
