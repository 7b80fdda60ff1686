"""Personalized queries on small graphs made to break solves, every method, against exact rational
arithmetic: an answer is a distribution, no further from the exact ranks than its error bound.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from liverank_gpu import (
    EdgeBatch,
    Engine,
    Options,
    Personalized,
    PersonalizedQuery,
    QueryBatch,
    UnknownVertex,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.personalized.resolve import METHODS, PUBLISHED_METHODS, TARGETS
from liverank_gpu.types import Dangling
from tests.gpu.pagerank.test_small_adversaries import (
    DAMPINGS,
    QUOTIENTS,
    ROUNDING,
    SHAPES,
    batches_of,
    exact_ranks,
)

WAYS: dict[str, tuple[str, ...]] = {
    "alone": METHODS,
    "published": PUBLISHED_METHODS,
    "together": tuple(method for method in METHODS if method != "push"),
    "watched": METHODS,
    "during a batch": METHODS,
}
"""The methods of each."""

NUMBERED = [(way, method) for way, methods in WAYS.items() for method in methods]


def check(engine: Engine, query: PersonalizedQuery, answer: Personalized) -> None:
    """Of all vertices."""
    weights = np.ones(len(query.seeds)) if query.weights is None else query.weights
    restarts: dict[int, Fraction] = defaultdict(Fraction)
    for seed, weight in zip(query.seeds.tolist(), weights.tolist(), strict=True):
        restarts[seed] += Fraction(weight)
    exact = exact_ranks(engine, restarts, query.damping)
    ranks, bound = np.zeros(engine.id_limit), answer.error_bound
    ranks[answer.vertices] = answer.ranks
    told = (query, ranks, bound, answer.method, answer.refused)
    assert len(answer.vertices) == engine.vertices, told
    assert np.isfinite(ranks).all(), told
    assert (ranks >= 0.0).all(), told
    assert 0.0 <= bound <= 2.0, told
    # what was below 0 is given as 0, and is within the bound
    assert abs(ranks.sum() - 1.0) <= (ROUNDING if bound == 2.0 else bound + ROUNDING), told
    error = sum(abs(Fraction(a) - b) for a, b in zip(ranks.tolist(), exact, strict=True))
    assert error <= bound + QUOTIENTS, (float(error), *told)


def cases(
    name: str, method: str, number: int, long: bool
) -> Iterator[tuple[Options, list[EdgeBatch], np.random.Generator]]:
    """The shapes at every damping, with all else chosen at random: all of them, or one in 24,
    others for the next way. Fewer on a GPU and in shards: one in twelve, or in 96.
    """
    slow = name not in ("cpu", "reference")
    step = (12 if long else 96) if slow else (1 if long else 24)
    first = number % step
    # 1000 work-lists an iteration, of a vertex each, may come before the sweeps
    iterations = 1 if slow and method == "hybrid" else 3
    for seed, (shape, damping) in list(enumerate(product(SHAPES, DAMPINGS)))[first::step]:
        generator = np.random.default_rng((seed, number))
        weighted = bool(generator.integers(2))
        dangling: Dangling = "self-loop" if generator.random() < 0.3 else "uniform"
        options = Options(
            damping=damping,
            dangling=dangling,
            weighted=weighted,
            target_error=float(generator.choice([1e-6, 1e-3])),
            max_iterations=int(generator.choice([3, 20])) if name == "cpu" else iterations,
        )
        yield options, batches_of(generator, shape, weighted), generator


def queries(
    generator: np.random.Generator, engine: Engine, way: str, method: str
) -> list[PersonalizedQuery]:
    """About all vertices; enough for a block if they are to be solved together."""
    ids = np.setdiff1d(np.arange(engine.id_limit), engine.free_ids())
    damping = float(generator.choice([engine.options.damping, *DAMPINGS]))
    found = []
    for _ in range(4 if way == "together" else 1):
        seeds = generator.choice(ids, int(generator.integers(1, 4)))
        spread = 10.0 ** generator.uniform(-12, 12, len(seeds))
        found.append(
            PersonalizedQuery(
                seeds,
                spread if generator.random() < 0.5 else None,
                k=100,
                method=method,
                target="error" if way == "published" else str(generator.choice(TARGETS)),
                damping=damping,
                form="published" if way == "published" else "accelerated",
                zeros=True,
            )
        )
    return found


@pytest.mark.reference
@pytest.mark.parametrize("way", WAYS)
def test_an_answer_is_a_distribution_within_its_bound(
    backend: Backend, way: str, long: bool
) -> None:
    for method in WAYS[way]:
        # there thousands of work-lists of one vertex take minutes
        if (backend.name, method) != ("reference", "hybrid"):
            search(backend, way, method, long)


def search(backend: Backend, way: str, method: str, long: bool) -> None:
    number = NUMBERED.index((way, method))
    for options, batches, generator in cases(backend.name, method, number, long):
        engine = Engine(options, backend)
        running: QueryBatch | None = None
        asked: list[PersonalizedQuery] = []
        for number, batch in enumerate(batches):
            engine.apply(batch)
            if number != 2:  # for deflation
                engine.update()
            with suppress(UnknownVertex):  # a seed was removed
                if way == "watched" and asked:
                    engine.refresh_watched()
                    check(engine, asked[0], engine.watched("a"))
                if running is not None:
                    while not running.done:
                        engine.step(running)
                    check(engine, asked[0], running.answers()[0])
            if running is not None:
                engine.close(running)
            asked = queries(generator, engine, way, method)
            if way == "watched":
                engine.watch("a", asked[0])
                check(engine, asked[0], engine.watched("a"))
            elif way == "during a batch":
                running = engine.submit(asked)
                engine.step(running)
            else:
                for query, answer in zip(asked, engine.personalized_many(asked), strict=True):
                    check(engine, query, answer)


@pytest.mark.parametrize("target", TARGETS)
def test_a_query_whose_pushes_gain_hardly_anything_ends(target: str) -> None:
    """Its sweeps are predicted to cost more still."""
    engine = Engine(Options(damping=1.0 - 1e-9, max_iterations=5), "cpu")
    engine.apply(EdgeBatch.of([(0, 1), (1, 0)]))
    query = PersonalizedQuery(np.array([0]), k=1, target=target, zeros=True)
    running = engine.submit([query])
    for _ in range(2_000):
        if not running.done:
            engine.step(running)
    assert running.done
    (answer,) = running.answers()
    assert answer.iterations <= 1_000 * 5 + 10
