"""Solves that go on until the first places are proven, against exact ranks."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, InvalidValue, Options, proven_descents
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Dangling
from tests.gpu.planted_ties import exact_ranks

POLICIES: tuple[Dangling, ...] = get_args(Dangling)
VERTICES = 240


def _edges(seed: int) -> NDArray[np.int64]:
    """Skewed; and two vertices, 240 and 241, with the same out-lists and in-lists, but for two
    sources with the same in-lists, each of which leads to one of the two: equal by symmetry.
    """
    generator = np.random.default_rng(seed)
    pairs = (VERTICES * generator.random((2, 900)) ** 2).astype(np.int64)
    sources = generator.choice(VERTICES, 9, replace=False)
    equal = [
        np.stack(columns)
        for twin in (VERTICES, VERTICES + 1)
        for columns in (
            (sources, np.full(9, twin)),
            (np.full(6, twin), np.arange(6)),
            (np.full(1, 2), np.full(1, twin + 2)),
            (np.full(1, twin + 2), np.full(1, twin)),
        )
    ]
    return np.concatenate([pairs, *equal], axis=1)


def _loaded(options: Options, edges: NDArray[np.int64], backend: Backend) -> Engine:
    engine = Engine(options, backend)
    engine.apply(EdgeBatch(edges[0].copy(), edges[1].copy()))
    return engine


def _exact(engine: Engine) -> NDArray[np.longdouble]:
    return exact_ranks(engine, np.full(engine.vertices, 1 / np.longdouble(engine.vertices)))


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("seed", range(2))
def test_it_ends_when_the_places_are_proven_and_tells_no_equal_ranks_apart(
    dangling: Dangling, seed: int, backend: Backend
) -> None:
    engine = _loaded(Options(dangling=dangling, target_error=1e-3), _edges(seed), backend)
    exact = _exact(engine)
    order = np.argsort(-exact, kind="stable")
    # the first pair, which is closer to each other than the oracle can tell
    descents = exact[order[:-1]] - exact[order[1:]]
    apart = int(np.argmax(descents <= 1e-14))
    assert set(order[apart : apart + 2].tolist()) == {VERTICES, VERTICES + 1}
    assert 2 < apart < 60
    plain = engine.update("auto")
    assert plain.settled is None
    for k in (1, apart):
        result = engine.update("auto", settle=k)
        vertices, ranks = engine.publish().top(k + 1)
        assert (result.settled, result.converged) == (k, True)
        assert proven_descents(ranks, result.error_bound)[:k].all()
        assert vertices[:k].tolist() == order[:k].tolist()
        assert result.error_bound <= 1e-3
        assert result.error_bound >= 1e-3 * descents[:k].min()
    assert engine.update("auto", settle=k).iterations == 0
    tied = engine.update("auto", settle=apart + 1)
    assert (tied.settled, tied.converged) == (apart, False)
    assert tied.error_bound <= 1e-11
    error = np.abs(engine.publish().to_numpy() - exact).sum()
    assert error <= tied.error_bound + 1e-15


@pytest.mark.parametrize("dangling", POLICIES)
def test_a_set_is_proven_whatever_its_order(dangling: Dangling, backend: Backend) -> None:
    engine = _loaded(Options(dangling=dangling, target_error=1e-3), _edges(1), backend)
    exact = _exact(engine)
    order = np.argsort(-exact, kind="stable")
    equal = int(np.argmax(exact[order[:-1]] - exact[order[1:]] <= 1e-14))
    engine.update("auto")
    # with all of them, though no bound tells two apart; each place alone, and both
    for k in (equal, equal + 2):
        result = engine.update("auto", settle=k, target="settled-set")
        vertices, ranks = engine.publish().top(k + 1)
        assert (result.settled_set, result.converged) == (True, True)
        assert (result.settled or 0) <= equal
        assert set(vertices[:k].tolist()) == set(order[:k].tolist())
        gap = exact[order[k - 1]] - exact[order[k]]
        assert ranks[k - 1] - ranks[k] > result.error_bound >= 1e-3 * min(gap, 1e-3)
    assert engine.update("auto", settle=k, target="settled-set").iterations == 0
    ordered = engine.update("auto", settle=k)
    assert (ordered.settled, ordered.settled_set, ordered.converged) == (equal, True, False)
    # the last place divides the two
    divided = engine.update("auto", settle=equal + 1, target="settled-set")
    assert (divided.settled_set, divided.converged) == (False, False)
    assert divided.error_bound <= 1e-11


def test_removed_vertices_have_no_place(backend: Backend) -> None:
    engine = _loaded(Options(), _edges(1), backend)
    engine.update("auto")
    first = engine.publish().top(3)[0]
    engine.apply(EdgeBatch.of(remove=first[:2].tolist()))
    result = engine.update("auto", settle=2)
    assert (result.settled, result.converged) == (2, True)
    assert not set(first[:2].tolist()) & set(engine.publish().top(2)[0].tolist())


def test_all_places_of_a_small_graph(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    nothing = engine.update("auto", settle=3, target="settled-set")
    assert (nothing.settled, nothing.settled_set, nothing.converged) == (0, True, True)
    engine.apply(EdgeBatch.of([(0, 1), (1, 2), (0, 2)]))
    result = engine.update("auto", settle=7)
    assert (result.settled, result.settled_set, result.converged) == (3, True, True)
    # the set of all vertices needs no proof
    engine.apply(EdgeBatch.of([(3, 2), (4, 2), (5, 2)]))
    result = engine.update("auto", settle=6, target="settled-set")
    assert (result.settled, result.settled_set, result.converged) == (2, True, True)
    assert engine.update("auto").settled_set is None


def test_what_is_to_be_proven_is_named(backend: Backend) -> None:
    with pytest.raises(InvalidValue, match=r"target.* settled-top-k, settled-set"):
        Engine(Options(), backend).update(settle=2, target="error")  # type: ignore[arg-type]


@pytest.mark.parametrize(("strategy", "settle"), [("static", 3), ("auto", -1)])
def test_only_the_strategy_with_a_bound_as_its_target_settles(
    strategy: str, settle: int, backend: Backend
) -> None:
    engine = Engine(Options(), backend)
    with pytest.raises(InvalidValue, match="strategy" if settle > 0 else "settle"):
        engine.update(strategy, settle=settle)
