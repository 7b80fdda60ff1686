"""Many personalized queries at once: in blocks, and by pushes where few vertices are reached."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks.networks import read_graph
from liverank_gpu import METHODS, EdgeBatch, Engine, Options, PersonalizedQuery
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.residual import PushResult, ResidualDelta
from liverank_gpu.personalized.forecast import Forecast, PushForecast
from liverank_gpu.types import Dangling
from tests.conftest import DATA
from tests.gpu.graphs import (
    is_emulated,
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
    # launches weigh more than a graph of this size on a GPU
    side = 200 if backend.name != "cuda" else 60
    right = [(v, v + 1) for v in range(side * side) if (v + 1) % side]
    down = [(v, v + side) for v in range(side * (side - 1))]
    engine = engine_of((side * side, np.array(right + down)), backend)
    # two of the corner behind which little lies, and two from which all is reached
    corner = side * side - 1
    near = [PersonalizedQuery(np.array([v]), k=9) for v in (corner, corner - 1)]
    far = [PersonalizedQuery(np.array([v]), None, 9, "pull") for v in (0, 1, 2, 3)]
    answers = engine.personalized_many([*near, *far])
    assert answers[0].vertices[0] == corner
    if backend.name != "cuda":
        assert [answer.method for answer in answers] == ["push"] * 2 + ["pull"] * 4
        assert answers[0].ranks.tolist() == [1.0]
    for query, answer in zip([*near, *far], answers, strict=True):
        assert answer.error_bound <= 1e-6
        alone = engine.personalized(query.seeds, k=9, target_error=1e-10)
        listed = dict(zip(answer.vertices.tolist(), answer.ranks.tolist(), strict=True))
        apart = sum(
            abs(listed.get(v, 0.0) - rank)
            for v, rank in zip(alone.vertices.tolist(), alone.ranks.tolist(), strict=True)
        )
        assert apart <= answer.error_bound + 1e-10
    # their arrays are kept, and clean
    for before, again in zip(answers, engine.personalized_many([*near, *far]), strict=True):
        assert np.abs(again.ranks - before.ranks).sum() <= before.error_bound + again.error_bound


def _work(
    engine: Engine, method: str, seeds: Sequence[int], together: bool, target: float = 1e-6
) -> float:
    """What a request costs, or one for each seed, by a graph that has seen no query before: counted
    in the unit of liverank_gpu.operations.backend.QueryCosts.
    """
    forecast = engine.internals.queries.forecast
    forecast.__init__(engine.internals.graph)  # type: ignore[misc]
    queries = [PersonalizedQuery(np.array([v]), method=method, target_error=target) for v in seeds]
    for request in [queries] if together else [[query] for query in queries]:
        engine.personalized_many(request)
    return forecast.spent


def _mixing(vertices: int, degree: int) -> NDArray[np.int64]:
    """Everything is reached in a few steps."""
    edges = np.random.default_rng(1).integers(0, vertices, (vertices * degree, 2))
    kept: NDArray[np.int64] = edges[edges[:, 0] != edges[:, 1]]
    return kept


def _lattice(side: int) -> NDArray[np.int64]:
    """Nothing is near anything else, both ways."""
    v = np.arange(side * side).reshape(side, side)
    pairs = [(v[:, :-1], v[:, 1:]), (v[:-1], v[1:])]
    edges = np.concatenate([np.column_stack([a.ravel(), b.ravel()]) for a, b in pairs])
    return np.concatenate([edges, edges[:, ::-1]])


def _trees(vertices: int) -> NDArray[np.int64]:
    """Walks end after a few steps, as citations do; a cycle of two makes sweeps slow."""
    targets = np.arange(1, vertices)
    sources = (targets * np.random.default_rng(2).random(vertices - 1) ** 0.5).astype(np.int64)
    return np.concatenate([np.column_stack([targets, sources]), [[0, 1], [1, 0]]])


GRAPHS: dict[str, Callable[[int], NDArray[np.int64]]] = {
    "mixing": lambda n: _mixing(n, 8),
    "sparse": lambda n: _mixing(n, 2),
    "lattice": lambda n: _lattice(int(n**0.5)),
    "trees": _trees,
    # one half of the seeds stays near, the other does not
    # most vertices let nothing go, and sweeps are several times as fast as they usually are
    "sinks": lambda n: _mixing(n, 2) // np.array([4, 1]),
    "both": lambda n: np.concatenate([_mixing(n // 2, 8), _trees(n // 2) + n // 2]),
}


def _costs_at_most_a_fifth_more(
    edges: NDArray[np.int64],
    backend: Backend,
    count: int,
    target: float = 1e-6,
    others: Sequence[str] = ("push", "pull"),
) -> None:
    engine = engine_of((int(edges.max()) + 1, edges), backend)
    seeds = np.random.default_rng(3).choice(np.unique(edges[:, 0]), count, replace=False).tolist()
    for together in (True, False):
        spent = {m: _work(engine, m, seeds, together, target) for m in ("hybrid", *others)}
        assert spent["hybrid"] <= 1.2 * min(spent[other] for other in others), (together, spent)


@pytest.mark.parametrize("name", GRAPHS)
def test_the_default_costs_at_most_a_fifth_more_than_the_better_method(
    name: str, backend: Backend
) -> None:
    others: Sequence[str] = ("push", "pull")
    if is_emulated(backend):
        # where launches take long: one graph for each choice, and its better method
        others = {"mixing": ["pull"], "trees": ["push"], "sinks": others}.get(name, [])
        if not others:
            pytest.skip("launches take long: three of the graphs are enough")
    vertices = 10_000 if backend.name != "cuda" else 1_000
    edges = GRAPHS[name](300 if is_emulated(backend) else vertices)
    count = 50
    if backend.name == "cuda":
        # pushes alone do not tell how few sweeps it takes, which matters to a dozen
        count = 24 if name in ("mixing", "sinks") else 12
    _costs_at_most_a_fifth_more(edges, backend, count, others=others)


@pytest.mark.parametrize(
    ("file", "target", "others"),
    [
        ("CollegeMsg/CollegeMsg.txt.gz", 1e-4, METHODS),
        ("tgn-ml/ml_enron.txt.zst", 1e-6, METHODS),
        ("p2p-Gnutella31/p2p-Gnutella31.e.zst", 1e-6, METHODS),
        # the other one costs ten times as much, or more
        ("higgs-twitter/higgs-retweet_network.edgelist.gz", 1e-6, ["push"]),
        ("sx-askubuntu-a2q/sx-askubuntu-a2q.txt.gz", 1e-4, ["push"]),
        ("cnr-2000/cnr-2000.txt.zst", 1e-4, ["push"]),
        ("sx-mathoverflow/sx-mathoverflow.txt.gz", 1e-4, ["pull"]),
    ],
)
def test_it_does_on_real_graphs_too(file: str, target: float, others: Sequence[str]) -> None:
    path = DATA / file
    if not path.exists():
        pytest.skip(f"there is no {path}")
    load = read_graph(path)
    edges = np.column_stack([load.insert_sources, load.insert_targets])
    others = [other for other in others if other != "hybrid"]
    _costs_at_most_a_fifth_more(edges, backend_named("cpu"), 50, target, others)


def test_one_long_work_list_does_not_make_a_push_seem_slow() -> None:
    """A call that is hardly more than that costs most so far, and gains little."""
    graph = engine_of((2, np.array([[0, 1]])), backend_named("cpu")).internals.graph
    push = PushForecast(Forecast(graph), 13.0)
    seen = []
    for edges, bound in ((50_000, 1.0), (60_000, 0.1), (70_000, 0.04), (300_000, 0.02)):
        delta = ResidualDelta(0.0, 0.0, 0.0, 0.0, 0.0, edges)
        push.record(PushResult("work", 0.1, 5, 100, 100, delta), bound)
        seen.append(push.left(1e-4))
    assert max(seen) < 3.0 * push.spent
    # two calls that gain little do
    for bound in (0.019, 0.018):
        push.record(PushResult("work", 0.1, 5, 100, 100, delta), bound)
    assert push.left(1e-4) > 10.0 * push.spent


def test_trials_end_where_too_few_are_answered() -> None:
    # all is reached from any vertex but the last, which lets nothing go
    vertices = 3_000
    edges = _mixing(vertices - 1, 20)
    edges = np.concatenate([edges, [[0, vertices - 1]]])
    engine = engine_of((vertices, edges), backend_named("cpu"))
    alone = engine.internals.backend.costs.queries.alone
    blocks = _work(engine, "pull", range(200), together=True)
    assert alone < _work(engine, "hybrid", range(200), together=True) - blocks < 50 * alone
    near = [PersonalizedQuery(np.array([vertices - 1]))] * 40
    assert {answer.method for answer in engine.personalized_many(near)} == {"push"}


def test_a_query_leaves_a_block_that_is_slower_than_its_pushes() -> None:
    """Sweeps turn out to be many, which nothing has shown before the block began."""
    engine = engine_of((160_000, _lattice(400)), backend_named("cpu"))
    seeds = np.random.default_rng(5).choice(160_000, 8, replace=False).tolist()
    queries = [PersonalizedQuery(np.array([v])) for v in seeds]
    forecast = engine.internals.queries.forecast
    for _ in range(3):
        forecast.record(0.85, 1.0, 1e-9, 4)
    forecast.spent = 0.0
    answers = engine.personalized_many(queries)
    assert all(answer.error_bound <= 1e-6 for answer in answers)
    assert "push" in {answer.method for answer in answers}
    assert forecast.spent <= 2.0 * _work(engine, "push", seeds, together=True)


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
    asked = [PersonalizedQuery(np.array([v % pairs[0]]), k=3, zeros=True) for v in range(70)]
    together = engine.personalized_many(asked)
    for query, answer in zip(asked[::9], together[::9], strict=True):
        alone = engine.personalized(query.seeds, k=3, zeros=True)
        both = 2.0 * engine.options.target_error
        assert np.abs(alone.ranks - answer.ranks).max() <= both


def test_a_block_on_rows_of_every_length_is_certified(backend: Backend) -> None:
    # hubs that a device sums in chunks, by a warp and by half a warp
    generator = np.random.default_rng(4)
    vertices = 6_000
    edges = [generator.integers(0, vertices, (12_000, 2))]
    for hub, count in ((0, 5_000), (1, 1_500), (2, 200), (3, 30)):
        edges.append(np.stack([generator.permutation(vertices)[:count], np.full(count, hub)], 1))
        edges.append(edges[-1][: count // 2, ::-1])
    pairs = vertices, np.unique(np.concatenate(edges), axis=0)
    engine = ranked(pairs, Options(weighted=True), backend)
    asked = [
        PersonalizedQuery(np.array([v]), None, vertices, "pull", 1e-6)
        for v in range(max(4, backend.multivector.min_columns))
    ]
    for query, answer in zip(asked, engine.personalized_many(asked), strict=True):
        assert answer.error_bound <= 1e-6
        assert_certified(engine, query, answer)


@pytest.mark.parametrize("scale", [1e-36, 1.0, 1e36])
def test_queries_on_weights_of_any_size_are_certified(scale: float, backend: Backend) -> None:
    vertices, edges = random_graph(7)
    engine = Engine(Options(weighted=True), backend)
    weights = (scale * np.random.default_rng(2).uniform(0.5, 1.0, len(edges))).astype(np.float32)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices, weights=weights))
    engine.update()
    asked = [PersonalizedQuery(np.array([v]), None, vertices, "pull", 1e-6) for v in range(8)]
    answers = engine.personalized_many(asked)
    for query, answer in zip(asked, answers, strict=True):
        assert_certified(engine, query, answer)
    # a block sweeps for all of its queries, and is used where it can represent what it sends
    sweeps = len({answer.iterations for answer in answers})
    assert (sweeps == 1) == (scale == 1.0)
