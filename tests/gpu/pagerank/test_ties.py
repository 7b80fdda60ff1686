"""Vertices with identical in-lists are proven ties among global ranks, and no others, against exact
ranks.
"""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, InvalidValue, Options, Ranks, Result, proven_descents
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.places import FirstPlaces, GraphVertices
from liverank_gpu.types import Dangling
from tests.gpu.graphs import engine_on
from tests.gpu.planted_ties import (
    COPIES,
    LOOPED,
    NEARLY,
    OTHER_LOOP,
    TWINS,
    exact_ranks,
    in_right_order,
    kinds,
    planted,
)

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


def _loaded(options: Options, backend: Backend, seed: int = 3) -> Engine:
    engine = engine_on(options, backend)
    engine.apply(planted(seed, options.weighted, options.directed))
    return engine


def _exact(engine: Engine) -> tuple[NDArray[np.longdouble], list[int]]:
    """The ranks, and the vertices in their order."""
    restarts = np.full(engine.vertices, 1 / np.longdouble(engine.vertices))
    exact = exact_ranks(engine, restarts)
    return exact, in_right_order(exact, kinds(engine, restarts))


def _ties(ranks: Ranks) -> list[list[int]]:
    """The vertices of each tie among all places, in their order."""
    vertices, values = ranks.top(ranks.count)
    numbers = ranks.ties_of(vertices)
    found = [np.flatnonzero(numbers == number) for number in np.unique(numbers[numbers >= 0])]
    for places in found:
        assert len(places) > 1
        assert np.ptp(places) == len(places) - 1
        assert np.ptp(values[places]) == 0.0
    return sorted(vertices[places].tolist() for places in found)


def _assert_proven(engine: Engine, result: Result) -> None:
    """What is said of the published ranks is so."""
    exact, right = _exact(engine)
    restarts = np.full(engine.vertices, 1 / np.longdouble(engine.vertices))
    kind_of = kinds(engine, restarts)
    ranks = engine.publish()
    assert ranks.error_bound == result.error_bound
    vertices, values = ranks.top(ranks.count)
    assert np.abs(ranks.to_numpy() - exact).sum() <= result.error_bound + 1e-15
    assert result.settled is not None
    assert vertices[: result.settled].tolist() == right[: result.settled]
    for members in _ties(ranks):
        assert len({kind_of[vertex] for vertex in members}) == 1
        assert np.ptp(exact[members]) < 1e-14
        # all that are of this kind, where they belong
        assert members == [each for each in right if kind_of[each] == kind_of[members[0]]]
        first = right.index(members[0])
        places = slice(first, first + len(members))
        assert vertices[places].tolist() == right[places] == members
        # no other rank is as near as the bound allows
        apart = np.abs(np.delete(values, np.arange(first, first + len(members))) - values[first])
        assert apart.min() > result.error_bound


@pytest.mark.in_shards
@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize(
    ("weighted", "directed"), [(False, True), (True, True), (False, False), (True, False)]
)
def test_planted_ties_are_proven_and_near_ties_are_not(
    dangling: Dangling, weighted: bool, directed: bool, backend: Backend
) -> None:
    options = Options(dangling=dangling, weighted=weighted, directed=directed, target_error=1e-3)
    engine = _loaded(options, backend)
    exact, right = _exact(engine)
    assert _ties_are_unknown(engine)
    place, limit = right.index(TWINS[0]), right.index(COPIES[0])
    # a part of a rounded sum of weights can be another part
    unproven = [*LOOPED, *(TWINS if dangling == "self-loop" else ())] if weighted else []
    limit = min([limit, *map(right.index, unproven)])
    # the tie that the last place divides, and then that ends with it
    for k in (place + 1, place + 2, place + 3):
        result = engine.update(settle=k)
        _assert_proven(engine, result)
        assert (result.settled, result.converged) == (min(k, limit), k <= limit)
        found = _ties(engine.publish())
        assert (TWINS[0] in unproven) != any(set(TWINS) <= set(each) for each in found)
        assert (result.error_bound > 1e-12) == (k <= limit)
    # all places: what is equal by symmetry alone is not proven
    result = engine.update(settle=engine.vertices)
    _assert_proven(engine, result)
    settled = engine.publish()
    found = _ties(settled)
    for planted_tie in (TWINS, LOOPED):
        is_found = any(set(planted_tie) <= set(each) for each in found)
        assert is_found == (planted_tie[0] not in unproven)
    assert not {NEARLY, OTHER_LOOP, *COPIES} & {vertex for each in found for vertex in each}
    assert (result.settled, result.converged) == (limit, False)
    above = right[:limit]
    assert exact[above].min() > exact[right[limit:]].max() + 1e-15
    # the next ranks have none, and those that were published keep theirs
    engine.apply(EdgeBatch.of([(TWINS[0] + 5, TWINS[1])]))
    assert _ties(engine.publish()) == found
    engine.update()
    assert _ties_are_unknown(engine)
    assert _ties(settled) == found
    result = engine.update(settle=place + 1)
    _assert_proven(engine, result)


@pytest.mark.in_shards
@pytest.mark.parametrize("dangling", POLICIES)
def test_the_set_that_divides_a_tie_is_proven(dangling: Dangling, backend: Backend) -> None:
    engine = _loaded(Options(dangling=dangling, target_error=1e-3), backend)
    right = _exact(engine)[1]
    for first, is_tie in ((right.index(TWINS[0]), True), (right.index(COPIES[0]), False)):
        result = engine.update(settle=first + 1, target="settled-set")
        _assert_proven(engine, result)
        assert (result.settled_set, result.converged) == (is_tie, is_tie)
        assert (result.error_bound > 1e-12) == is_tie
        if is_tie:
            members = engine.publish().top(first + 1)[0].tolist()
            assert set(members) == set(right[: first + 1])


def _ties_are_unknown(engine: Engine) -> bool:
    return bool((engine.publish().ties_of(np.arange(engine.vertices)) == -1).all())


def test_ties_end_a_solve(backend: Backend) -> None:
    # the leaves join in descending order; the last vertex has a lower rank than they have
    leaves, target = 40, 1e-3
    engine = Engine(Options(vertex_order="given", target_error=target, weighted=True), backend)
    star = [(0, leaf, 0.7) for leaf in range(leaves, 0, -1)] + [(0, leaves + 1, 0.69)]
    engine.apply(EdgeBatch.of(star[:9] + [(leaf, 0, 3.0) for leaf in (3, 7)], vertices=leaves + 2))
    engine.update()
    engine.apply(EdgeBatch.of(star[9:]))
    engine.update()
    graph, iterate = engine.internals.graph, engine.internals.iterate
    exact, right = _exact(engine)
    assert right == list(range(leaves + 2))
    gap = float(exact[leaves] - exact[leaves + 1])
    places = FirstPlaces.of(iterate, GraphVertices(graph), leaves + 2, "settled-top-k")
    assert iterate.error_bound > gap
    assert places.proven.settled < leaves + 1
    assert places.open_gap == pytest.approx(gap, abs=0.5 * iterate.error_bound)
    assert places.open_gap > 0.0
    for k in (1, 7, leaves, leaves + 1, leaves + 2):
        result = engine.update(settle=k)
        assert (result.settled, result.converged) == (k, True)
        assert 1e-8 < result.error_bound <= target
        _assert_proven(engine, result)
        ranks = engine.publish()
        assert _ties(ranks) == ([] if k == 1 else [right[1 : leaves + 1]])
        # their rank is the mean, rounded to what is stored
        values = np.asarray(engine.internals.backend.device.to_host(iterate.values), np.longdouble)
        mean = float(values[1 : leaves + 1].mean() / iterate.certificate.mass)
        part = 2.0**-52 * leaves * mean
        added = result.error_bound - iterate.error_bound
        assert added == (0.0 if k == 1 else pytest.approx(part, abs=1e-18, rel=1e-3))
        assert k == 1 or ranks.to_numpy()[1] == pytest.approx(mean, abs=part / leaves, rel=0)


def test_what_is_no_tie_is_told_apart_by_a_smaller_bound(backend: Backend) -> None:
    engine = Engine(Options(target_error=0.5), backend)
    engine.apply(EdgeBatch.of([(0, 1), (0, 2), (3, 2), (4, 0), (5, 0), (1, 0)], vertices=40))
    result = engine.update(settle=3)
    ranks = engine.publish()
    assert (result.settled, result.converged) == (3, True)
    assert proven_descents(ranks.top(4)[1], result.error_bound).all()
    assert _ties(ranks) == []


def test_removed_vertices_leave_their_tie(backend: Backend) -> None:
    engine = Engine(Options(target_error=1e-3), backend)
    engine.apply(EdgeBatch.of([(0, leaf) for leaf in range(1, 9)] + [(1, 0), (2, 0)]))
    engine.update(settle=9)
    assert _ties(engine.publish()) == [list(range(1, 9))]
    engine.apply(EdgeBatch.of(remove=[1, 4]))
    assert engine.update(settle=7).settled == 7
    assert _ties(engine.publish()) == [[2, 3, 5, 6, 7, 8]]


def test_removed_vertices_have_no_place(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(planted(3, weighted=False))
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
