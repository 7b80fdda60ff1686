"""Small graphs made to break solves, every strategy, against exact rational arithmetic.

What is published has to be a distribution, no further from the exact ranks than its error bound,
which is at most 2; and `converged` has to be true.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Form, Options, Result
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.strategies import forms_of, strategy_named
from liverank_gpu.types import Dangling
from tests.gpu.graphs import is_slow

DAMPINGS = (0.5, 0.85, 0.99, 1.0 - 1e-5, 1.0 - 1e-8, 1.0 - 1e-9, 1.0 - 1e-12, 1e-9)
TARGETS = (1e-6, 1e-3)
ROUNDING = 2.0**-40
"""What the sum of the ranks can be off, as liverank_gpu.pagerank.gate allows."""

ACCOUNTED = 1e-9
"""What it can be off where Σy fell by orders of magnitude, if the bound contains it."""

QUOTIENTS = 2.0**-48
"""What the quotients y / Σy of so few vertices can be off, in L1."""

Pair = tuple[int, int]


def _cycle(first: int, length: int) -> list[Pair]:
    return [(first + k, first + (k + 1) % length) for k in range(length)]


def _both(pairs: list[Pair]) -> list[Pair]:
    return [*pairs, *((v, u) for u, v in pairs)]


SHAPES: dict[str, tuple[int, list[Pair]]] = {
    "one loop": (1, [(0, 0)]),
    "two loops": (2, [(0, 0), (1, 1)]),
    "five loops": (5, [(v, v) for v in range(5)]),
    "loops beside an edge": (7, [(0, 1), *((v, v) for v in range(2, 7))]),
    "all dangling": (3, []),
    "one edge": (2, [(0, 1)]),
    "one edge and a loop": (2, [(0, 1), (1, 1)]),
    "chain": (6, [(v, v + 1) for v in range(5)]),
    "chain to a loop": (6, [*((v, v + 1) for v in range(5)), (5, 5)]),
    "star outwards": (6, [(0, v) for v in range(1, 6)]),
    "star inwards": (6, [(v, 0) for v in range(1, 6)]),
    "star both ways": (6, _both([(0, v) for v in range(1, 6)])),
    "2-cycle": (2, _cycle(0, 2)),
    "2-cycles": (6, [*_cycle(0, 2), *_cycle(2, 2), *_cycle(4, 2)]),
    "2-cycle with tails": (6, [*_cycle(0, 2), (2, 0), (3, 2), (1, 4), (4, 5)]),
    "3-cycle and 2-cycle": (6, [*_cycle(0, 3), *_cycle(3, 2), (0, 3)]),
    "bipartite": (6, [(u, v) for u in range(3) for v in range(3, 6)]),
    "bipartite both ways": (6, _both([(u, v) for u in range(3) for v in range(3, 6)])),
    "nearly bipartite": (5, [*_both([(0, 2), (0, 3), (1, 3), (1, 4)]), (4, 4)]),
    "leaking 2-cycle": (3, [*_cycle(0, 2), (1, 2)]),
    "one vertex beside others": (5, [(0, 1), (1, 0)]),
}
"""Number of vertices and edges."""


def _weights(generator: np.random.Generator, count: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """Of ordinary size, or up to 60 orders of magnitude apart."""
    span = float(generator.choice([0.5, 3.0, 30.0]))
    return (10.0 ** generator.uniform(-span, span, count)).astype(np.float32)


def batches_of(generator: np.random.Generator, shape: str, weighted: bool) -> list[EdgeBatch]:
    vertices, edges = SHAPES[shape]

    def inserting(pairs: list[Pair], **others: Any) -> EdgeBatch:
        batch = EdgeBatch.of(pairs, **others)
        weights = _weights(generator, len(pairs)) if weighted and pairs else None
        return EdgeBatch(
            batch.insert_sources,
            batch.insert_targets,
            batch.delete_sources,
            batch.delete_targets,
            batch.vertices,
            weights,
            remove=batch.remove,
        )

    some = [tuple(pair) for pair in generator.integers(0, vertices + 1, (2, 2)).tolist()]
    gone = [pair for pair in edges if generator.random() < 0.4]
    removed = [v for v in range(vertices) if generator.random() < 0.3][: vertices - 1]
    return [
        inserting(edges, vertices=vertices),
        inserting(some, delete=gone),
        inserting([], remove=removed),
        inserting(some[:1]),
    ]


def exact_ranks(
    engine: Engine, restarts: Mapping[int, Fraction] | None = None, damping: float | None = None
) -> list[Fraction]:
    """The ranks of all ids below `id_limit`, 0 for free ones: Gaussian elimination of
    (I - αP̄ᵀ)y = b.

    restarts  b, by vertex; None for 1 everywhere
    damping   α; None for the engine's
    """
    free = set(engine.free_ids().tolist())
    ids = [v for v in range(engine.id_limit) if v not in free]
    out: dict[int, dict[int, Fraction]] = {v: {} for v in ids}
    sources, targets = engine.edge_list()
    weights = engine.edge_weights()
    for u, v, weight in zip(sources.tolist(), targets.tolist(), weights.tolist(), strict=True):
        out[u][v] = Fraction(weight)
    if engine.options.dangling == "self-loop":
        for v in ids:
            out[v][v] = Fraction(1)
    place, alpha = {v: k for k, v in enumerate(ids)}, Fraction(damping or engine.options.damping)
    right = [Fraction(1 if restarts is None else restarts.get(v, 0)) for v in ids]
    rows = [[*(Fraction(int(i == j)) for j in ids), b] for i, b in zip(ids, right, strict=True)]
    for u, row in out.items():
        total = sum(row.values(), Fraction(0))
        for v, weight in row.items():
            rows[place[v]][place[u]] -= alpha * weight / total
    for k in range(len(ids)):
        # the columns are diagonally dominant, so no pivot is 0
        inverse = 1 / rows[k][k]
        rows[k] = [each * inverse for each in rows[k]]
        for other in range(len(ids)):
            if other != k and (factor := rows[other][k]) != 0:
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[k], strict=True)]
    total = sum((row[-1] for row in rows), Fraction(0))
    ranks = [Fraction(0)] * engine.id_limit
    for v in ids:
        ranks[v] = rows[place[v]][-1] / total
    return ranks


def check(engine: Engine, result: Result, strategy: str, exact: list[Fraction]) -> None:
    ranks, bound = engine.publish().to_numpy(), result.error_bound
    rounding = max(ROUNDING, min(bound, ACCOUNTED))
    assert np.isfinite(ranks).all(), (ranks, bound)
    assert (ranks >= 0.0).all(), (ranks, bound)
    assert abs(ranks.sum() - 1.0) <= rounding, (ranks.sum() - 1.0, bound, ranks)
    assert 0.0 <= bound <= 2.0, bound
    error = sum(abs(Fraction(a) - b) for a, b in zip(ranks.tolist(), exact, strict=True))
    assert error <= bound + QUOTIENTS, (float(error), bound, ranks)
    if strategy_named(strategy).affected == "residual":
        assert result.converged == (bound <= engine.options.target_error), (result, ranks)


def cases(strategy: str, slow: bool, long: bool) -> Iterator[tuple[Options, list[EdgeBatch], Form]]:
    """The shapes at every damping, with all else chosen at random: each several times, or one in
    five of them, or in nine if the backend is slow, others for the next strategy.
    """
    step, repeats = (1, 4) if long else (9 if slow else 5, 1)
    first = STRATEGIES.index(strategy) % step
    for seed, (shape, damping) in list(enumerate(product(SHAPES, DAMPINGS)))[first::step]:
        for repeat in range(repeats):
            generator = np.random.default_rng((seed, repeat, STRATEGIES.index(strategy)))
            weighted = bool(generator.integers(2))
            dangling: Dangling = "self-loop" if generator.random() < 0.3 else "uniform"
            options = Options(
                damping=damping,
                dangling=dangling,
                weighted=weighted,
                target_error=float(generator.choice(TARGETS)),
                max_iterations=int(generator.choice([3, 100])),
            )
            forms = forms_of(strategy_named(strategy), options)
            form = forms[int(generator.integers(len(forms)))]
            yield options, batches_of(generator, shape, weighted), form


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_published_is_a_distribution_within_its_bound(
    backend: Backend, strategy: str, long: bool
) -> None:
    for options, batches, form in cases(strategy, is_slow(backend), long):
        engine = Engine(options, backend)
        for batch in batches:
            engine.apply(batch)
            result = engine.update(strategy, form)
            check(engine, result, strategy, exact_ranks(engine))
