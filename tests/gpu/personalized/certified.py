"""Answers to personalized queries, compared with liverank_gpu.verify."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from liverank_gpu import Engine, Options, Personalized, PersonalizedQuery, verify
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Dangling, Ranking
from tests.gpu.graphs import Pairs, arc_weights_of, arcs_of, loaded


def engine_of(pairs: Pairs, backend: Backend, dangling: Dangling = "uniform") -> Engine:
    return ranked(pairs, Options(dangling=dangling), backend)


def ranked(pairs: Pairs, options: Options, backend: Backend) -> Engine:
    """As in a service: queries may be deflated along the global ranks (test_deflation.py)."""
    engine = loaded(pairs, options, backend)
    engine.update()
    return engine


def exact_ranks(engine: Engine, query: PersonalizedQuery) -> Ranking:
    """float64[id_limit] by liverank_gpu.verify, which shares no code with the engine."""
    weights = np.ones(len(query.seeds)) if query.weights is None else query.weights
    teleport = np.bincount(query.seeds, weights, minlength=engine.id_limit)
    ids = np.setdiff1d(np.arange(engine.id_limit), engine.free_ids())
    sources, targets = (np.searchsorted(ids, column) for column in arcs_of(engine))
    order = np.lexsort((targets, sources))
    of_arcs = arc_weights_of(engine)[order].tobytes() if engine.options.weighted else None
    exact = np.zeros(engine.id_limit)
    exact[ids] = _solved(
        sources[order].tobytes(),
        targets[order].tobytes(),
        of_arcs,
        (teleport[ids] / teleport.sum()).tobytes(),
        query.damping or engine.options.damping,
        engine.options.dangling,
    )
    return exact


@cache
def _solved(
    sources: bytes,
    targets: bytes,
    weights: bytes | None,
    teleport: bytes,
    damping: float,
    dangling: Dangling,
) -> Ranking:
    # every backend and method is compared with it: it is computed once
    restarts = np.frombuffer(teleport)
    ranks, bound = verify.pagerank(
        np.frombuffer(sources, np.int64),
        np.frombuffer(targets, np.int64),
        len(restarts),
        damping,
        dangling,
        restarts,
        None if weights is None else np.frombuffer(weights, np.float32),
    )
    assert bound < 1e-11
    return ranks


def assert_certified(engine: Engine, query: PersonalizedQuery, answer: Personalized) -> None:
    """The answer has the places that were asked for, and what it says of them is true."""
    among = np.setdiff1d(np.arange(engine.id_limit), engine.free_ids())
    if query.among is not None:
        among = np.unique(query.among)
    assert_answer(query, answer, exact_ranks(engine, query), among)


def assert_answer(
    query: PersonalizedQuery, answer: Personalized, exact: Ranking, among: NDArray[np.int64]
) -> None:
    """The same, of the exact ranks and the vertices that the query is about."""
    error = error_of(query, answer, exact, among)
    assert error <= answer.error_bound + 1e-11
    assert (answer.ranks >= 0.0).all()
    assert (np.diff(answer.ranks) <= 0.0).all()
    has_all = len(answer.vertices) < query.k or query.k >= np.count_nonzero(exact)
    if has_all and not np.delete(exact, among).any():
        # what is below 0 is given as 0, and nothing else changes the sum; but near the largest
        # weights, where no method comes to its target, a GPU takes contributions as 0
        least = -1e-6 if answer.error_bound < 1e-3 else -answer.error_bound
        assert least < answer.ranks.sum() - 1.0 <= answer.error_bound + 1e-11
    shown = np.full(len(exact), -1.0)
    shown[among] = exact[among]
    assert_groups(answer, shown)
    proven = answer.vertices[: answer.settled]
    others = np.delete(shown, proven).max(initial=-1.0)
    behind = np.maximum.accumulate(np.append(exact[proven], others)[::-1])[::-1][1:]
    assert (exact[proven] > behind - 1e-13).all()


def error_of(
    query: PersonalizedQuery, answer: Personalized, exact: Ranking, among: NDArray[np.int64]
) -> float:
    """The L1 error over the vertices that it is about, all of whose places the answer has but those
    of rank 0.
    """
    places, wanted = len(answer.vertices), min(query.k, len(among))
    assert len(np.unique(answer.vertices)) == places <= wanted
    assert np.isin(answer.vertices, among).all()
    error = np.abs(answer.ranks - exact[answer.vertices]).sum()
    if query.zeros:
        assert places == wanted
    else:
        assert (answer.ranks > 0.0).all()
    if places < wanted:
        # the others are said to have a rank of 0
        error += exact[np.setdiff1d(among, answer.vertices)].sum()
    return float(error)


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
