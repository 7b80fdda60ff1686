"""Personalized ranks: every method, against NetworkX and liverank_gpu.verify."""

from __future__ import annotations

from itertools import product
from typing import Any, get_args

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, InvalidValue, Options, PersonalizedQuery
from liverank_gpu.backends import backend_named
from liverank_gpu.generate import grid, rmat
from liverank_gpu.operations.backend import Backend
from liverank_gpu.personalized.resolve import METHODS
from liverank_gpu.types import Dangling
from tests.gpu.graphs import (
    FAMILIES,
    Model,
    engine_on,
    exact_ranks,
    is_emulated,
    random_batch,
    random_graph,
)
from tests.gpu.personalized.certified import (
    assert_certified,
    engine_of,
    queries_of,
    ranked,
    solved_by,
)

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


@pytest.mark.in_shards
@pytest.mark.parametrize(("weighted", "directed"), [(False, True), (True, True), (True, False)])
@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_every_method_is_certified_on_every_family(
    family: str, dangling: Dangling, weighted: bool, directed: bool, backend: Backend
) -> None:
    pairs = FAMILIES[family]()
    options = Options(dangling=dangling, weighted=weighted, directed=directed)
    engine = ranked(pairs, options, backend)
    queries, targets = queries_of(pairs, 1), [0.1, 1e-4, 1e-7]
    if backend.name != "cpu":
        queries, targets = queries[2:3], targets[1:]
    for number, (method, query) in enumerate(product(METHODS, queries)):
        target_error = targets[number % len(targets)]
        asked = solved_by(query, method, target_error)
        answer = engine.personalized_many([asked])[0]
        assert answer.error_bound <= target_error, method
        assert_certified(engine, asked, answer)


@pytest.mark.in_shards
def test_seeds_without_a_way_out_keep_all_rank(backend: Backend) -> None:
    engine = engine_of((5, np.array([[0, 1], [2, 2]])), backend)
    for seed in (1, 3):  # dangling; isolated
        for method in METHODS:
            answer = engine.personalized(np.array([seed]), k=5, method=method, zeros=True)
            assert answer.vertices.tolist() == [seed, *(v for v in range(5) if v != seed)]
            assert answer.ranks.tolist() == [1.0, 0.0, 0.0, 0.0, 0.0]
            assert answer.settled == 1
            assert answer.error_bound < 1e-12
            # the others have a rank of 0
            answer = engine.personalized(np.array([seed]), k=5, method=method)
            assert (answer.vertices.tolist(), answer.ranks.tolist()) == ([seed], [1.0])
            assert (answer.settled, answer.settled_set, answer.groups) == (1, True, (1,))
    # a loop does not let go
    assert engine.personalized(np.array([2]), k=1).ranks.tolist() == [1.0]


@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_a_high_damping_is_met_where_correction_leaves_little_of_the_seeds(
    backend: Backend, directed: bool
) -> None:
    damping = 0.97 if is_emulated(backend) else 0.99
    engine = Engine(Options(damping=damping, directed=directed, max_iterations=3000), backend)
    edges = [(1, 0), (2, 1), (0, 0), (1, 1)] if directed else [(0, 1), (1, 2), (0, 0), (1, 1)]
    engine.apply(EdgeBatch.of(edges))
    restarts = np.array([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]][not directed])
    exact, _ = exact_ranks(engine, restarts)
    seeds = np.flatnonzero(restarts)
    query = PersonalizedQuery(seeds, k=3, method="pull", target_error=1e-3)
    alone = [engine.personalized(seeds, k=3, method=each, target_error=1e-3) for each in METHODS]
    for answer in (*alone, *engine.personalized_many([query] * 32)):
        assert answer.error_bound <= 1e-3
        assert np.abs(answer.ranks - exact[answer.vertices]).sum() <= 1e-3


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"seeds": [1.5]}, r"seeds: 'float64\[1\]' .* integer array"),
        ({"seeds": [[0, 1]]}, r"seeds: 'int64\[1, 2\]' .* one-dimensional"),
        ({"seeds": [0], "among": [0.5, 2.0]}, r"among: 'float64\[2\]' .* integer array"),
        ({"seeds": [0], "k": 1.5}, r"k: 1\.5 .* an integer, at least 1"),
    ],
)
def test_fractions_of_vertices_are_refused(asked: dict[str, Any], message: str) -> None:
    engine = engine_of((3, np.array([[0, 1], [1, 2]])), backend_named("cpu"))
    with pytest.raises(InvalidValue, match=message):
        engine.personalized_many([PersonalizedQuery(**asked)])


@pytest.mark.in_shards
def test_weights_add_up_and_those_of_zero_are_no_seeds(backend: Backend) -> None:
    engine = engine_of(FAMILIES["karate club"](), backend)
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


@pytest.mark.in_shards
def test_settled_top_k_ends_as_soon_as_the_places_are_proven(backend: Backend) -> None:
    engine = engine_of(random_graph(9), backend)
    asked = PersonalizedQuery(np.array([0]), k=3, target_error=1e-9, target="settled-top-k")
    (answer,) = engine.personalized_many([asked])
    full = engine.personalized(np.array([0]), k=3, target_error=1e-9)
    assert answer.settled == full.settled == 3
    assert answer.vertices.tolist() == full.vertices.tolist()
    assert answer.iterations < full.iterations
    assert answer.error_bound > 1e-9
    # equal ranks of vertices with other in-lists never are settled: then the target error ends it
    edges = [[0, 1], [0, 2], [1, 3], [2, 4], [3, 0], [4, 0]]
    ring = engine_of((5, np.array(edges)), backend)
    (tied,) = ring.personalized_many(
        [PersonalizedQuery(np.array([0]), k=5, target_error=1e-6, target="settled-top-k")]
    )
    assert tied.error_bound <= 1e-6
    assert tied.vertices.tolist() == [0, 1, 2, 3, 4]
    assert (tied.settled, tied.groups, tied.ties) == (3, (1, 2, 2), (1,))


@pytest.mark.in_shards
@pytest.mark.parametrize("method", METHODS)
def test_a_batch_between_two_steps_is_followed(method: str, backend: Backend) -> None:
    generator = np.random.default_rng(5)
    engine, model = engine_on(Options(), backend), Model("uniform")
    for size in (0, 400):
        batch = random_batch(generator, model, size) if size else EdgeBatch(vertices=60)
        model.apply(batch)
        engine.apply(batch)
    query = PersonalizedQuery(np.array([0]), np.array([1.0]), 1000, method, 1e-7)
    job = engine.submit(
        [query, *[solved_by(query, "pull", 1e-6)] * backend.multivector.min_columns]
    )
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
    for asked, answer in ((query, answers[0]), (solved_by(query, "pull", 1e-6), answers[-1])):
        assert asked.target_error is not None
        assert answer.error_bound <= asked.target_error
        assert_certified(engine, asked, answer)


def test_tight_targets_are_met_on_larger_graphs() -> None:
    """What a million additions can have rounded away of the kept sums ends no query early."""
    sources, targets = rmat(14, 16, seed=1)
    engine = Engine(backend="cpu")
    engine.apply(EdgeBatch(sources, targets, vertices=1 << 14))
    degrees = np.bincount(sources, minlength=1 << 14)
    for seed in np.random.default_rng(1).choice(np.flatnonzero(degrees), 2).tolist():
        for method in ("hybrid", "pull"):
            query = PersonalizedQuery(np.array([seed]), None, 1 << 14, method, 1e-9)
            (answer,) = engine.personalized_many([query])
            assert answer.error_bound <= 1e-9
        assert_certified(engine, query, answer)
    # pushing so far is slow, and ends where it should too
    (answer,) = engine.personalized_many([PersonalizedQuery(np.array([0]), None, 5, "push", 1e-3)])
    assert answer.error_bound <= 1e-3


def test_a_work_list_that_is_too_long_is_not_tried_twice() -> None:
    # by the costs of the CPU; on a GPU pushes alone pay on this graph
    sources, targets = rmat(10, 16, seed=1)
    engine = Engine(backend="cpu")
    engine.apply(EdgeBatch(sources, targets, vertices=1 << 10))
    answer = engine.personalized(np.array([7]), k=5, trace=True)
    assert answer.method == "hybrid"
    assert answer.trace is not None
    pushes = [step for step in answer.trace.steps if step.kind == "push"]
    assert pushes[-1].end == "work"
    assert all(push.rounds > 0 for push in pushes)
    many = engine.personalized(np.arange(1 << 10), k=5, trace=True)
    assert many.trace is not None
    assert many.trace.steps[0].kind == "sweep"


def test_pushes_that_pay_are_judged_less_often() -> None:
    engine = Engine(backend="cpu")
    engine.apply(EdgeBatch(*grid(256, 256)))
    # sweeps that seem few, so that the first call is short
    forecast = engine.internals.queries.forecast
    for _ in range(3):
        forecast.record(0.85, 1.0, 1e-6, 4)
    longest = 0.5 * forecast.sweep / engine.internals.backend.costs.queries.pushed_edge
    answer = engine.personalized(np.array([32_896]), k=5, target_error=1e-6, trace=True)
    assert answer.method == "push"
    assert answer.trace is not None
    pushed = [step.edges for step in answer.trace.steps]
    assert sum(pushed) > 8 * pushed[0]
    # the last one may have reached the target before
    for place, later in enumerate(pushed[:-1]):
        assert later > min(sum(pushed[:place]) / 5, longest)
    assert max(pushed) > 2 * pushed[0]
