"""Answers to personalized queries, compared with liverank_gpu.verify."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np

from liverank_gpu import EdgeBatch, Engine, Options, Personalized, PersonalizedQuery, verify
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Dangling, Ranking
from tests.gpu.graphs import Pairs


def engine_of(pairs: Pairs, backend: Backend, dangling: Dangling = "uniform") -> Engine:
    vertices, edges = pairs
    engine = Engine(Options(dangling=dangling), backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    # as in a service: queries may be deflated along the global ranks (test_deflation.py)
    engine.update()
    return engine


def exact_ranks(engine: Engine, query: PersonalizedQuery) -> Ranking:
    """float64[n] by liverank_gpu.verify, which shares no code with the engine."""
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


def assert_certified(engine: Engine, query: PersonalizedQuery, answer: Personalized) -> None:
    """The answer has all vertices; its error is within its bound, its settled places are right."""
    exact = exact_ranks(engine, query)
    found = np.zeros(engine.vertices)
    found[answer.vertices] = answer.ranks
    # what is below 0 is given as 0, and nothing else changes the sum
    assert -1e-6 < found.sum() - 1.0 <= answer.error_bound + 1e-11
    assert (found >= 0.0).all()
    assert np.abs(found - exact).sum() <= answer.error_bound + 1e-11
    assert (np.diff(answer.ranks) <= 0.0).all()
    assert_groups(answer, exact)
    proven = answer.vertices[: answer.settled]
    others = np.delete(exact, proven).max(initial=-1.0)
    behind = np.maximum.accumulate(np.append(exact[proven], others)[::-1])[::-1][1:]
    assert (exact[proven] > behind - 1e-13).all()


def queries_of(pairs: Pairs, seed: int) -> list[PersonalizedQuery]:
    """One seed, several, weighted, repeated; all vertices asked for."""
    generator, vertices = np.random.default_rng(seed), pairs[0]
    one = generator.integers(0, vertices, 1)
    some = generator.integers(0, vertices, 4)
    return [
        PersonalizedQuery(one, k=vertices, zeros=True),
        PersonalizedQuery(some, k=vertices, zeros=True),
        PersonalizedQuery(some, generator.random(4) + 0.01, k=vertices, zeros=True),
        PersonalizedQuery(np.append(some, some), np.arange(8.0), k=vertices, zeros=True),
    ]


def solved_by(query: PersonalizedQuery, method: str, target_error: float) -> PersonalizedQuery:
    return replace(query, method=method, target_error=target_error)


def assert_groups(answer: Personalized, exact: Ranking) -> None:
    """The groups are all places, none is above one before it, and what else is said of them."""
    groups = answer.groups
    assert sum(groups) == len(answer.vertices)
    tied = [number for number, size in enumerate(groups) if size > 1 and number in answer.ties]
    first = int(np.searchsorted(np.cumsum(groups), answer.settled, "right"))
    assert all(groups[number] == 1 or number in tied for number in range(first))
    end = 0
    for group in groups if answer.settled_set else groups[:-1]:
        end += group
        behind = np.delete(exact, answer.vertices[:end])
        # exact to 1e-11, as the oracle is
        assert exact[answer.vertices[:end]].min() >= behind.max(initial=0.0) - 1e-11
