"""Many personalized queries at once: in blocks, and by pushes where few vertices are reached."""

from __future__ import annotations

from collections import Counter
from typing import Any, get_args

import numpy as np
import pytest

from gpu import EdgeBatch, PersonalizedQuery
from gpu.operations.backend import Backend
from gpu.personalized.query import Query
from gpu.types import Dangling
from tests.gpu.graphs import FAMILIES, random_graph
from tests.gpu.personalized.certified import assert_certified, engine_of, queries_of, solved_by

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


@pytest.mark.any_thread_order
@pytest.mark.parametrize("dangling", POLICIES)
def test_many_queries_at_once_are_certified_one_by_one(
    dangling: Dangling, backend: Backend
) -> None:
    for seed in range(3 if backend.name == "cpu" else 1):
        pairs = random_graph(seed)
        engine = engine_of(pairs, backend, dangling)
        asked = [
            solved_by(query, "pull", target)
            for part, target in ((0, 1e-3), (1, 1e-6), (2, 1e-7))
            for query in queries_of(pairs, part)
        ]
        # what a block cannot promise is answered by itself, in its place
        asked.insert(3, solved_by(asked[0], "push", 1e-6))
        asked.insert(7, solved_by(asked[1], "pull", 1e-10))
        answers = engine.personalized_many(asked)
        assert [len(answer.vertices) for answer in answers] == [pairs[0]] * len(asked)
        for query, answer in zip(asked, answers, strict=True):
            assert query.target_error is not None
            assert answer.error_bound <= query.target_error
            assert_certified(engine, query, answer)
        assert answers[3].method == "push"
        # one block: the same sweeps for all of it but those that it left behind, four at most
        sweeps = Counter(answer.iterations for answer in answers).most_common(1)[0][1]
        assert sweeps >= len(asked) - 2 - 4


def test_queries_that_stay_near_their_seeds_are_answered_by_pushing_in_a_crowd_too(
    backend: Backend,
) -> None:
    side = 60
    right = [(v, v + 1) for v in range(side * side) if (v + 1) % side]
    down = [(v, v + side) for v in range(side * (side - 1))]
    engine = engine_of((side * side, np.array(right + down)), backend)
    # two of the corner behind which little lies, and two from which all is reached
    corner = side * side - 1
    near = [PersonalizedQuery(np.array([v]), k=9) for v in (corner, corner - 1)]
    far = [PersonalizedQuery(np.array([v]), None, 9, "pull") for v in (0, 1, 2, 3)]
    answers = engine.personalized_many([*near, *far])
    assert [answer.method for answer in answers] == ["push"] * 2 + ["pull"] * 4
    assert answers[0].ranks.tolist() == [1.0, *[0.0] * 8]
    for query, answer in zip([*near, *far], answers, strict=True):
        assert answer.error_bound <= 1e-6
        alone = engine.personalized(query.seeds, k=9, target_error=1e-10)
        assert np.abs(answer.ranks - alone.ranks).sum() <= answer.error_bound + 1e-10
    # their arrays are kept, and clean
    assert not any(free.values.any() for free in engine.internals.queries.pool._free)


def test_trials_end_where_too_few_are_answered(
    backend: Backend, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried = []

    class Counted(Query):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            tried.append(self)

    monkeypatch.setattr("gpu.personalized.batch.Query", Counted)
    # all is reached from any vertex but the last one, which lets nothing go
    generator = np.random.default_rng(2)
    vertices, last = 300, 299
    engine = engine_of((vertices, generator.integers(0, vertices - 1, (3000, 2))), backend)
    far, near = PersonalizedQuery(np.array([5]), k=9), PersonalizedQuery(np.array([last]), k=9)
    for asked, expected in (
        ([far] * 20, 8),
        # one that is answered buys two more
        ([*[far] * 7, near, *[far] * 20, near], 11),
        ([near] * 12, 12),
        ([*[far] * 3, *[near] * 2, *[far] * 4], 9),
    ):
        tried.clear()
        answers = engine.personalized_many(asked)
        assert len(tried) == expected
        for place, (query, answer) in enumerate(zip(asked, answers, strict=True)):
            alone = query is near and place < expected
            assert answer.method == ("push" if alone else "pull")
            assert answer.error_bound <= 1e-6
            if query is near:
                assert answer.ranks.tolist() == [1.0, *[0.0] * 8]


@pytest.mark.any_thread_order
@pytest.mark.parametrize("dangling", POLICIES)
def test_seeds_that_nothing_links_to_are_solved_in_a_block(
    dangling: Dangling, backend: Backend
) -> None:
    generator = np.random.default_rng(4)
    linked, count = 40, 100
    # vertex 39 has in-edges alone
    edges = generator.integers(0, (linked - 1, linked), (160, 2)).tolist()
    # without in-edges, and: 40 … 59 with out-edges, 60 … 69 with a loop too, 70 … 79 with a loop
    # alone, 80 … 99 with nothing
    edges += [(v, int(u)) for v in range(40, 70) for u in generator.integers(0, linked, 3)]
    edges += [(v, v) for v in range(60, 80)]
    engine = engine_of((count, np.array(edges)), backend, dangling)
    some = [[41], [65], [72], [90], [41, 65, 72, 90], [3, 90], [50, 51, 99], [39], [39, 72]]
    asked = [
        PersonalizedQuery(np.array(seeds), weights, count, "pull", target)
        for target in (1e-3, 1e-7)
        for seeds in some
        for weights in (None, generator.random(len(seeds)) + 0.01)
    ]
    for query, answer in zip(asked, engine.personalized_many(asked), strict=True):
        assert query.target_error is not None
        assert answer.error_bound <= query.target_error
        assert_certified(engine, query, answer)


@pytest.mark.any_thread_order
def test_rows_that_outgrow_their_group_are_solved_in_a_block(backend: Backend) -> None:
    generator = np.random.default_rng(6)
    count, rows = 600, ([1, 2, 3, 5], [9, 10, 14, 16], [30, 60], [70, 300])
    lengths = np.zeros(count, np.int64)
    lengths[generator.permutation(count)[:300]] = generator.integers(0, 70, 300)
    places = iter(generator.permutation(np.flatnonzero(lengths == 0)).tolist())
    grown = {next(places): size for sizes in rows for size in sizes}
    for v, size in grown.items():
        lengths[v] = size
    engine = engine_of(
        (
            count,
            np.array(
                [(u, v) for v in range(count) for u in generator.permutation(count)[: lengths[v]]]
            ),
        ),
        backend,
    )
    few = [PersonalizedQuery(np.array([v]), None, count, "pull") for v in list(grown)[::4]]
    assert engine.personalized_many(few)  # by which rows have their groups
    insert = [
        (int(u), v)
        # not so many that all rows are partitioned again: see OVERFLOW_FACTOR of the kernels
        for v, more in zip(list(grown)[:12:5], (40, 130, 130), strict=True)
        for u in generator.permutation(count)[:more]
    ]
    emptied = list(grown)[3]
    sources, targets = engine.edge_list()
    delete = [(int(u), emptied) for u in sources[targets == emptied]]
    engine.apply(EdgeBatch.of(insert=insert, delete=delete))
    asked = few + [PersonalizedQuery(np.array([emptied, v]), None, count, "pull") for v in grown]
    first, second = (engine.personalized_many(asked) for _ in range(2))
    for query, answer, again in zip(asked, first, second, strict=True):
        assert answer.error_bound <= 1e-6
        assert_certified(engine, query, answer)
        # sums have one shape, whatever runs first
        assert answer.ranks.tobytes() == again.ranks.tobytes()
        assert answer.error_bound == again.error_bound


def test_a_query_that_lags_behind_its_block_is_solved_alone(backend: Backend) -> None:
    # the last query circulates in a long cycle; the others mix at once
    generator, circle = np.random.default_rng(3), np.arange(200, 230)
    edges = np.concatenate(
        [
            generator.integers(0, 200, (2400, 2)),
            np.column_stack([circle, np.roll(circle, 1)]),
        ]
    )
    engine = engine_of((230, edges), backend)
    asked = [
        PersonalizedQuery(np.array([seed]), k=230, method="pull")
        for seed in (*range(0, 160, 10), 205)
    ]
    answers = engine.personalized_many(asked)
    for query, answer in zip(asked, answers, strict=True):
        assert_certified(engine, query, answer)
        assert answer.error_bound <= 1e-6
    *others, last = answers
    assert last.iterations > 40
    assert {answer.iterations for answer in others} == {others[0].iterations}
    # some sweeps were deflated along the global ranks, which have mass where they never come
    assert others[0].iterations < 35


def test_more_queries_than_a_block_takes_are_all_answered(backend: Backend) -> None:
    pairs = random_graph(3)
    engine = engine_of(pairs, backend)
    asked = [PersonalizedQuery(np.array([v % pairs[0]]), k=3) for v in range(70)]
    together = engine.personalized_many(asked)
    for query, answer in zip(asked[::9], together[::9], strict=True):
        alone = engine.personalized(query.seeds, k=3)
        both = 2.0 * engine.options.target_error
        assert np.abs(alone.ranks - answer.ranks).max() <= both


def test_a_wide_hub_is_summed_in_chunks(backend: Backend) -> None:
    # 10,000 edges into one vertex: more than one warp of a block reads at once
    vertices, edges = FAMILIES["star inwards"]()
    back = np.array([[0, 5], [0, 9999]])
    engine = engine_of((vertices, np.concatenate([edges, back])), backend)
    count = backend.multivector.min_columns
    asked = [
        PersonalizedQuery(np.array([v, 0]), None, vertices, "pull") for v in range(1, 1 + count)
    ]
    for query, answer in zip(asked, engine.personalized_many(asked), strict=True):
        assert_certified(engine, query, answer)
