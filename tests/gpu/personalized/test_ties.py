"""Vertices with identical in-lists are proven ties, and no others, against exact ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options, Personalized, PersonalizedQuery
from liverank_gpu.operations.backend import DEFAULT_SIZES, Backend, Sizes
from liverank_gpu.operations.graph import Fingerprints
from liverank_gpu.pagerank.places import (
    MOST_SOURCES,
    affordable_lists,
    identical_in_lists,
    longest_compared,
)
from liverank_gpu.personalized.resolve import METHODS
from liverank_gpu.types import Dangling
from tests.gpu.doubles import instead
from tests.gpu.graphs import engine_on
from tests.gpu.planted_ties import (
    COPIES,
    FOUND,
    LOOPED,
    NEARLY,
    OTHER_LOOP,
    PAIRS,
    SEEDS,
    TWINS,
    VERTICES,
    asked_of_pairs,
    exact_ranks,
    in_right_order,
    kinds,
    planted,
)

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


def _restarts(engine: Engine, query: PersonalizedQuery) -> NDArray[np.longdouble]:
    restarts = np.bincount(query.seeds, query.weights, engine.vertices).astype(np.longdouble)
    return np.asarray(restarts / restarts.sum())


def _assert_ties(engine: Engine, query: PersonalizedQuery, answer: Personalized) -> None:
    restarts = _restarts(engine, query)
    exact, classes = exact_ranks(engine, restarts), kinds(engine, restarts)
    among = range(engine.vertices) if query.among is None else query.among.tolist()
    right = [vertex for vertex in in_right_order(exact, classes) if vertex in among]
    listed = answer.vertices.tolist()
    assert listed[: answer.settled] == right[: answer.settled]
    assert not answer.settled_set or set(listed) == set(right[: len(listed)])
    assert sum(answer.groups) == len(listed) == min(query.k, len(among))
    assert np.abs(answer.ranks - exact[answer.vertices]).sum() <= answer.error_bound + 1e-15
    assert (np.diff(answer.ranks) <= 0.0).all()
    ends = np.cumsum(answer.groups)
    for number in answer.ties:
        places = slice(ends[number] - answer.groups[number], ends[number])
        assert listed[places] == right[places]
        assert len({classes[vertex] for vertex in listed[places]}) == 1
        assert np.ptp(exact[listed[places]]) < 1e-14
        assert np.ptp(answer.ranks[places]) == 0.0
    for number in range(len(ends) - (not answer.settled_set)):
        above, behind = right[: ends[number]], right[ends[number] :]
        assert set(listed[: ends[number]]) == set(above)
        if behind and number not in answer.ties[-1:]:
            assert exact[above].min() > exact[behind].max()


def _groups(answer: Personalized) -> list[tuple[list[int], bool]]:
    """The vertices of each group, and whether it is a tie."""
    parts = np.split(answer.vertices, np.cumsum(answer.groups)[:-1])
    return [(part.tolist(), number in answer.ties) for number, part in enumerate(parts)]


@pytest.mark.in_shards
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize(
    ("dangling", "weighted"), [("uniform", False), ("uniform", True), ("self-loop", False)]
)
def test_planted_ties_are_proven_and_near_ties_are_not(
    dangling: Dangling, method: str, weighted: bool, backend: Backend
) -> None:
    engine = engine_on(Options(dangling=dangling, weighted=weighted), backend)
    engine.apply(planted(3, weighted))
    engine.update()
    for target, k in ((1e-2, 9), (1e-4, 2), (1e-12, VERTICES)):
        query = PersonalizedQuery(SEEDS, None, k, method, target)
        _assert_ties(engine, query, engine.personalized_many([query])[0])
    # the last one, with a bound that leaves nothing else open but what is equal by symmetry
    answer = engine.personalized_many([query])[0]
    groups = _groups(answer)
    assert (list(TWINS), True) in groups
    # a part of a rounded sum of weights can be another part
    assert weighted != ((list(LOOPED), True) in groups)
    assert ([NEARLY], False) in groups
    assert ([OTHER_LOOP], False) in groups
    assert any(set(COPIES) <= set(vertices) and not tie for vertices, tie in groups)
    exact = exact_ranks(engine, _restarts(engine, query))
    above = int((exact > exact[COPIES[0]] + 1e-15).sum())
    assert weighted or answer.settled == above
    # a tie that the last place divides
    place = answer.vertices.tolist().index(TWINS[1]) + 1
    for k in (place - 1, place):
        query = PersonalizedQuery(SEEDS, None, k, method, 1e-12)
        (cut,) = engine.personalized_many([query])
        _assert_ties(engine, query, cut)
        assert cut.settled_set
        assert _groups(cut)[-1] == (list(TWINS[: k - place + 2]), True)
    # and one of which some are asked for
    query = PersonalizedQuery(SEEDS, None, 4, method, 1e-12, among=np.array([5, *TWINS[1:], 40]))
    (some,) = engine.personalized_many([query])
    _assert_ties(engine, query, some)
    assert (list(TWINS[1:]), True) in _groups(some)


@pytest.mark.parametrize("dangling", POLICIES)
def test_ties_are_proven_in_blocks(dangling: Dangling, backend: Backend) -> None:
    engine = Engine(Options(dangling=dangling), backend)
    engine.apply(planted(4, False))
    engine.update()
    queries = [
        PersonalizedQuery(seeds, None, k, "pull", 1e-7, among=among, zeros=True)
        for seeds in (SEEDS, np.array([TWINS[0]]), np.array([*TWINS[:2], 7]))
        for k, among in ((VERTICES, None), (3, None), (3, np.array([4, *TWINS, NEARLY])))
    ]
    answers = engine.personalized_many(queries)
    assert len({answer.iterations for answer in answers}) <= 2
    for query, answer in zip(queries, answers, strict=True):
        _assert_ties(engine, query, answer)
    assert (list(TWINS), True) in _groups(answers[0])
    assert (list(TWINS[:2]), True) in _groups(answers[2])
    # a seed ties with none, and seeds of equal weight with each other
    assert (list(TWINS[1:]), True) in _groups(answers[3])
    assert (list(TWINS[:2]), True) in _groups(answers[6])


def test_places_that_tie_end_a_query(backend: Backend) -> None:
    leaves = 40
    engine = Engine(Options(vertex_order="given"), backend)
    edges = [(0, leaf) for leaf in range(leaves, 0, -1)] + [(leaf, 0) for leaf in range(1, leaves)]
    engine.apply(EdgeBatch.of(edges))
    for method in METHODS:
        query = PersonalizedQuery(np.array([0]), None, 7, method, 1e-10, "settled-top-k")
        (answer,) = engine.personalized_many([query])
        assert answer.vertices.tolist() == list(range(7))
        assert (answer.settled, answer.settled_set) == (7, True)
        assert (answer.groups, answer.ties) == ((1, 6), (1,))
        assert answer.error_bound > 1e-10


@pytest.mark.parametrize("leaves", [2049, 2050, 5000])
def test_a_tie_of_thousands_is_found_whole(leaves: int, backend: Backend) -> None:
    """Also if there are more than a device copies before it has counted them: 2,048."""
    engine, others = Engine(backend=backend), np.arange(1, leaves + 1)
    engine.apply(EdgeBatch(0 * others, others))
    asked = PersonalizedQuery(np.array([0]), None, leaves + 1, "push", target="settled-top-k")
    (answer,) = engine.personalized_many([asked])
    assert answer.vertices.tolist() == list(range(leaves + 1))
    assert (answer.settled, answer.groups, answer.ties) == (leaves + 1, (1, leaves), (1,))


def test_a_watched_query_loses_a_tie_and_gets_it_back(backend: Backend) -> None:
    engine = Engine(backend=backend)
    engine.apply(EdgeBatch.of([(0, leaf) for leaf in range(1, 7)] + [(1, 0)], vertices=10))
    query = PersonalizedQuery(np.array([0]), None, 7, target_error=1e-3)
    engine.watch("mine", query)
    first = engine.watched("mine")
    assert (first.settled, first.groups, first.ties) == (7, (1, 6), (1,))
    # no walk from the seed is at 9
    for batch, groups, ties in (
        (EdgeBatch.of([(9, 2)]), (1, 6), ()),
        (EdgeBatch.of(delete=[(9, 2)]), (1, 6), (1,)),
    ):
        engine.apply(batch)
        engine.refresh_watched()
        answer = engine.watched("mine")
        assert answer.iterations == 0
        assert answer.vertices is first.vertices
        assert (answer.groups, answer.ties) == (groups, ties)
        assert answer.settled == (7 if ties else 1)
        _assert_ties(engine, query, answer)


def test_what_is_compared(backend: Backend) -> None:
    many = np.arange(10, 10 + MOST_SOURCES)
    lists = {
        0: many,
        1: many,
        2: np.append(many, [8, 9]),
        3: np.append(many, [8, 9]),
        # the same, and a loop that returns another part
        8: np.append(many[:3], 8),
        9: np.append(many[:3], 9),
        4: many[:3],
        5: many[:3],
        6: many[:4],
    }
    sources = np.concatenate(list(lists.values()))
    targets = np.repeat(list(lists), [len(each) for each in lists.values()])
    engine = Engine(backend=backend)
    engine.apply(EdgeBatch(sources, targets))
    graph = engine.internals.graph
    asked = np.array([0, 2, 3, 5, 6, 7, 9])
    found = identical_in_lists(graph, asked)
    # by one of them, each class is found whole; 6 is alone, and 7 has no in-edges
    assert sorted(each.tolist() for each in found.members) == [[0, 1], [4, 5], [8, 9]]
    labels = found.labels(np.array([0, 1, 2, 3, 4, 5, 7]))
    assert labels[0] == labels[1] >= 0
    assert labels[4] == labels[5] >= 0
    assert labels[4] != labels[0]
    assert labels[[2, 3, 6]].tolist() == [-1, -1, -1]
    assert identical_in_lists(graph, np.array([7])).members == []


@pytest.mark.parametrize(("most", "classes"), [(f[0], f[2]) for f in FOUND if f[1] == 0])
def test_lists_that_take_the_fewest_entries_are_looked_for(
    most: int, classes: int, backend: Backend
) -> None:
    engine = Engine(backend=replace(backend, sizes=Sizes(compared=most)))
    engine.apply(EdgeBatch.of(PAIRS))
    found = identical_in_lists(engine.internals.graph, asked_of_pairs(0))
    assert sorted(each.tolist() for each in found.members) == [
        [2 * number, 2 * number + 1] for number in range(classes)
    ]


def test_of_many_vertices_short_lists_are_compared() -> None:
    engine, most = Engine(), DEFAULT_SIZES.compared // 4
    sources, targets = np.array(PAIRS).T
    engine.apply(EdgeBatch(sources, targets, vertices=1000 + most))
    others = np.arange(1000, 1000 + most)
    for count, classes in ((most, 4), (most + 1, 3)):
        asked = np.append(asked_of_pairs(0), others[: count - 4])
        found = identical_in_lists(engine.internals.graph, asked)
        assert sorted(each.tolist() for each in found.members) == [
            [2 * number, 2 * number + 1] for number in range(classes)
        ]
    for vertices, longest in ((1, MOST_SOURCES), (2 * most + 1, 1), (8 * most, 1)):
        assert longest_compared(vertices, 4 * most) == longest
    assert affordable_lists(np.array([4 * most - 1, 1]), 4 * most).all()


def test_vertices_with_equal_hashes_are_compared(backend: Backend) -> None:
    engine = Engine(Options(vertex_order="degree"), backend)
    edges = [(source, target) for target in range(6) for source in (10 + target // 2, 20)]
    engine.apply(EdgeBatch.of(edges))

    def colliding(*arguments: Any) -> Fingerprints:
        return backend.lists.fingerprints(*arguments)._replace(hashes=np.full(6, 7))

    asked = np.array([4, 1, 0, 2, 3, 5])
    assert len(identical_in_lists(engine.internals.graph, asked).members) == 3
    lists = instead(backend.lists, fingerprints=colliding)
    engine = Engine(Options(vertex_order="degree"), replace(backend, lists=lists))
    engine.apply(EdgeBatch.of(edges))
    found = identical_in_lists(engine.internals.graph, asked)
    # one of them stands for all: no other class is found, and none that is not one
    assert [each.tolist() for each in found.members] == [[4, 5]]


@pytest.mark.parametrize("method", METHODS)
def test_nothing_ties_without_memory_to_compare(method: str, backend: Backend) -> None:
    query = PersonalizedQuery(np.array([0]), None, 5, method, 1e-3)
    full = Mock(side_effect=MemoryError)
    for failing, ties in (({}, (1,)), ({"fingerprints": full}, ()), ({"with_same_list": full}, ())):
        engine = Engine(backend=replace(backend, lists=instead(backend.lists, **failing)))
        engine.apply(EdgeBatch.of([(0, leaf) for leaf in range(1, 5)] + [(1, 0)]))
        (answer,) = engine.personalized_many([query])
        assert answer.ties == ties
        _assert_ties(engine, query, answer)
    assert full.call_count == 2
