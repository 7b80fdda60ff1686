"""Queries that end when the set of the first places is proven, against exact ranks."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options, Personalized, PersonalizedQuery
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Operation
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.select import TopK
from liverank_gpu.operations.sweeps import SweepMany
from liverank_gpu.pagerank.places import CHECK, SETTLED_TARGETS, BoundedPlaces, SettledTarget, Tie
from liverank_gpu.personalized.resolve import METHODS, TARGETS
from liverank_gpu.types import Dangling, VertexOrder
from tests.gpu.doubles import instead
from tests.gpu.graphs import engine_on
from tests.gpu.planted_ties import (
    COPIES,
    SEEDS,
    TWINS,
    VERTICES,
    exact_ranks,
    in_right_order,
    kinds,
    planted,
)

POLICIES: tuple[Dangling, ...] = get_args(Dangling)
LEAST = 1e-11
"""The target error, which no query that proves its places comes near to."""


def loaded(
    dangling: Dangling, backend: Backend, order: VertexOrder = "auto"
) -> tuple[Engine, list[int]]:
    """A ranked graph with planted ties, and all vertices in the right order from SEEDS."""
    engine = engine_on(Options(dangling=dangling, vertex_order=order), backend)
    engine.apply(planted(3, weighted=False))
    engine.update()
    restarts = np.zeros(VERTICES, np.longdouble)
    restarts[SEEDS] = np.longdouble(1) / len(SEEDS)
    exact = exact_ranks(engine, restarts)
    right = in_right_order(exact, kinds(engine, restarts))
    # what is planted is where these tests need it: equal ranks alone, and no others near them
    for planted_equal in (TWINS, COPIES):
        first = right.index(planted_equal[0])
        end = first + len(planted_equal)
        assert tuple(right[first:end]) == planted_equal
        assert np.ptp(exact[right[first:end]]) < 1e-14
        assert exact[right[first - 1]] - exact[right[first]] > 1e-6
        assert exact[right[end - 1]] - exact[right[end]] > 1e-6
    return engine, right


def asked(engine: Engine, k: int, target: str, method: str = "hybrid") -> Personalized:
    query = PersonalizedQuery(SEEDS, None, k, method, LEAST, target)
    return engine.personalized_many([query])[0]


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dangling", POLICIES)
def test_it_ends_when_the_set_is_proven_whatever_the_order(
    dangling: Dangling, method: str, backend: Backend
) -> None:
    engine, right = loaded(dangling, backend)
    # equal by symmetry, and within the set: no bound can tell them apart
    first = right.index(COPIES[0])
    k = first + len(COPIES)
    answer = asked(engine, k, "settled-set", method)
    assert set(answer.vertices.tolist()) == set(right[:k])
    assert answer.settled_set
    assert answer.settled <= first
    assert answer.error_bound > 1e-9
    ordered = asked(engine, k, "settled-top-k", method)
    assert (ordered.settled, ordered.settled_set) == (first, True)
    assert ordered.error_bound <= LEAST
    assert answer.iterations < ordered.iterations


@pytest.mark.in_shards
@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("dangling", POLICIES)
def test_a_tie_behind_the_last_place_is_proven_by_identical_in_lists_alone(
    dangling: Dangling, method: str, backend: Backend
) -> None:
    engine, right = loaded(dangling, backend)
    for k in (right.index(TWINS[0]) + 1, right.index(TWINS[0]) + 2):
        answer = asked(engine, k, "settled-set", method)
        assert answer.settled_set
        assert set(answer.vertices.tolist()) == set(right[:k])
        assert answer.error_bound > 1e-9
        assert len(answer.groups) - 1 in answer.ties
    # equal by symmetry: the set could be another one
    k = right.index(COPIES[0]) + 1
    answer = asked(engine, k, "settled-set", method)
    assert not answer.settled_set
    assert answer.error_bound <= LEAST
    assert set(answer.vertices[: answer.settled].tolist()) <= set(right[:k])


def test_the_set_of_some_vertices(backend: Backend) -> None:
    engine, right = loaded("uniform", backend)
    among = np.array([*COPIES, *TWINS, 5, 6, 7, 8])
    places = [vertex for vertex in right if vertex in among]
    proven = [k for k in range(1, len(among) + 1) if places[k - 1] != COPIES[0]]
    assert len(proven) == len(among) - 1
    for k in range(1, len(among) + 2):
        query = PersonalizedQuery(SEEDS, None, k, "pull", LEAST, "settled-set", among=among)
        (answer,) = engine.personalized_many([query])
        assert answer.settled_set == (places[k - 1 : k] != [COPIES[0]])
        assert (answer.error_bound > 1e-9) == answer.settled_set
        if answer.settled_set:
            assert set(answer.vertices.tolist()) == set(places[:k])
    # no vertex is behind the last one: nothing has to be known
    assert answer.iterations == 1


@pytest.mark.parametrize("some", [False, True])
@pytest.mark.parametrize("order", ["given", "degree"])
def test_a_block_ends_when_all_places_are_proven(
    order: VertexOrder, some: bool, backend: Backend
) -> None:
    steps: list[int] = []  # queries in each sweep of a block
    looks = [0]  # and how many are looked at after it

    def run(operation: Operation[Any], /) -> Any:
        if isinstance(operation, SweepMany):
            steps.append(len(operation.coefficients))
            looks.append(0)
        return backend.run(operation)

    def top_k_columns(values: Array, counts: NDArray[np.int64], *others: Any) -> list[TopK]:
        looks[-1] += int(np.count_nonzero(counts))
        return backend.select.top_k_columns(values, counts, *others)

    select = instead(backend.select, top_k_columns=top_k_columns)
    # so much that none leaves the block
    costs = replace(backend.costs, queries=replace(backend.costs.queries, alone=1e12))
    observed = replace(backend, run=run, select=select, costs=costs)
    engine, right = loaded("uniform", observed, order)
    among = np.unique([*right[::2], *TWINS, *COPIES]) if some else None
    if among is not None:
        right = [vertex for vertex in right if vertex in among]
    first = right.index(COPIES[0])
    wanted = (2, first, first + 1, first + 2, right.index(TWINS[0]) + 1)
    asked = [(k, target) for k in wanted for target in TARGETS]
    queries = [
        PersonalizedQuery(SEEDS, None, k, "pull", 1e-7, target, among=among) for k, target in asked
    ]
    answers = engine.personalized_many(queries)
    assert set(steps) == {len(queries)}
    for (k, _), answer in zip(asked, answers, strict=True):
        # the block goes on for the others
        assert answer.error_bound <= 1e-7
        assert answer.iterations == len(steps)
        assert answer.settled_set == (k != first + 1)
    # but ends when all are proven
    to_the_error = len(steps)
    in_order = [query for query in queries if query.target == "settled-top-k" and query.k <= first]
    as_sets = [query for query in queries if query.target == "settled-set" and query.k != first + 1]
    for provable in (as_sets, as_sets + in_order):
        steps.clear()
        answers = engine.personalized_many(provable)
        assert len(steps) == max(answer.iterations for answer in answers) < to_the_error
        for query, answer in zip(provable, answers, strict=True):
            assert answer.error_bound > 1e-7
            assert answer.settled_set
            assert set(answer.vertices.tolist()) == set(right[: query.k])
            if query.target == "settled-top-k":
                assert answer.vertices.tolist() == right[: query.k]
                assert answer.settled == query.k
    # they are looked at together, as often as the last one needs
    looks[:] = [0]
    engine.personalized_many(as_sets + in_order)
    looked = [count for count in looks if count]
    assert looked[0] == len(provable)
    assert len(looked) <= 6 < len(looks)


def test_a_batch_between_two_steps_is_followed(backend: Backend) -> None:
    engine, right = loaded("uniform", backend)
    k = right.index(TWINS[0]) + 1
    query = PersonalizedQuery(SEEDS, None, k, "pull", LEAST, "settled-set")
    job = engine.submit([query])
    job.step()
    # one of the twins gets a source more, and is before the others
    engine.apply(EdgeBatch.of([(right[2], TWINS[2])]))
    while not job.done:
        job.step()
    (answer,) = job.answers()
    engine.close(job)
    restarts = np.zeros(VERTICES, np.longdouble)
    restarts[SEEDS] = np.longdouble(1) / len(SEEDS)
    exact = exact_ranks(engine, restarts)
    right = in_right_order(exact, kinds(engine, restarts))
    assert TWINS[2] in answer.vertices
    assert answer.settled_set
    assert set(answer.vertices.tolist()) == set(right[:k])


@pytest.mark.parametrize("target", TARGETS)
def test_queries_go_on_when_all_their_places_are_removed(target: str, backend: Backend) -> None:
    engine, right = loaded("uniform", backend)
    last = right[-1]
    queries = [PersonalizedQuery(SEEDS, None, 3, "pull", 1e-7, target, among=np.array([last]))] * 4
    job = engine.submit(queries)
    job.step()
    engine.apply(EdgeBatch(remove=np.array([last])))
    while not job.done:
        job.step()
    for answer in job.answers():
        assert answer.vertices.tolist() == []
    engine.close(job)


@pytest.mark.parametrize(
    ("k", "tied", "in_order", "of_the_set"),
    [
        (3, (), [0, 1, 2], [2]),
        (9, (), [0, 1, 2, 3, 4], [4]),
        # within the set, across its last place, and all of it
        (4, (1, 2), [0, 2, 3], [3]),
        (3, (2, 3, 4), [0, 1], [1]),
        (2, (0, 1, 2), [], []),
    ],
)
def test_which_gaps_decide(
    k: int, tied: tuple[int, ...], in_order: list[int], of_the_set: list[int]
) -> None:
    values = np.array([0.5, 0.3, 0.2, 0.15, 0.1])
    values[list(tied)] = 0.3
    places = BoundedPlaces.by_gaps(np.arange(5), np.sort(values)[::-1], 1e-3, 0.05)
    if tied:
        places = places.with_ties([Tie(np.array(tied), np.array(tied))])
    assert places.deciding(k, "settled-top-k").tolist() == in_order
    assert places.deciding(k, "settled-set").tolist() == of_the_set


def test_of_the_last_value_before_ties_are_ordered_their_vertices_are_left_out() -> None:
    ids, values = np.arange(3), np.array([10.0, 6.0, 5.0])
    # what bounds the others is the tie's own second vertex
    places = BoundedPlaces(ids, values, values - 0.1, np.array([10.5, 6.5, 10.5]), 10.5)
    left_out: list[list[int]] = []

    def highest_other(excluded: NDArray[np.int64]) -> float:
        left_out.append(excluded.tolist())
        return 1.0

    tied = places.with_ties([Tie(np.array([0, 2]), np.array([0, 2]))], highest_other)
    assert tied.vertices.tolist() == [0, 2, 1]
    assert tied.others == 1.0
    assert left_out == [[0, 1, 2]]
    # no vertex of a tie has the last value, and all are listed
    places.with_ties([Tie(np.array([0, 1]), np.array([0, 1]))], highest_other)
    assert len(left_out) == 1


def test_the_next_check_of_a_set_follows_its_last_gap_alone() -> None:
    # the first two are as good as equal; bounds are ten times as wide as the third gap
    values = np.array([0.4, 0.4 - 1e-9, 0.3, 0.299])
    places = BoundedPlaces.by_gaps(np.arange(4), values, 0.01, 0.2)
    assert places.narrowest_gap(3, "settled-set") == pytest.approx(0.1)
    assert places.narrowest_gap(3, "settled-top-k") == pytest.approx(1e-7)
    assert places.narrowest_gap(2, "settled-set") == 1.0


@pytest.mark.parametrize("target", SETTLED_TARGETS)
def test_without_places_no_gap_decides(target: SettledTarget) -> None:
    places = BoundedPlaces.by_gaps(np.empty(0, np.int64), np.empty(0), 1e-3, 0.1)
    assert places.next_check(3, target, 2.0) == 2.0 * CHECK


@pytest.mark.in_shards
@pytest.mark.parametrize("target", SETTLED_TARGETS)
@pytest.mark.parametrize("method", METHODS)
def test_places_that_have_no_rank_yet_are_waited_for(
    method: str, target: SettledTarget, backend: Backend
) -> None:
    """The set of all vertices is proven before any of them but the seed has a rank."""
    leaves = 40
    out = [(0, leaf) for leaf in range(1, leaves + 1)]
    engine = engine_on(Options(vertex_order="given"), backend)
    engine.apply(EdgeBatch.of([*out, *((leaf, 0) for _, leaf in out[1:])]))
    queries = [
        PersonalizedQuery(np.array([seed]), None, leaves + 1, method, LEAST, target)
        for seed in (0, 2)
    ]
    for answer in engine.personalized_many(queries):
        assert len(answer.vertices) == leaves + 1
        assert answer.converged
        assert answer.settled_set
