"""Personalized queries whose walk never leaves a set, on the subgraph that the set induces."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import get_args
from unittest.mock import Mock

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import (
    METHODS,
    PUBLISHED_METHODS,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfMemory,
    Personalized,
    PersonalizedQuery,
    UnknownVertex,
    verify,
)
from liverank_gpu.generate import rmat
from liverank_gpu.graph.reading import induced_subgraph
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.graph import Entries
from liverank_gpu.personalized.resolve import TARGETS
from liverank_gpu.types import Form
from tests.gpu.doubles import instead, looked_after
from tests.gpu.graphs import arc_weights_of, arcs_of, engine_on, random_graph, some_weights
from tests.gpu.personalized.certified import assert_answer
from tests.gpu.personalized.test_views import KINDS as OF_VIEWS

KINDS = OF_VIEWS | {"weighted undirected": Options(weighted=True, directed=False)}
WAYS: list[tuple[Form, str]] = [
    *(("accelerated", method) for method in METHODS),
    *(("published", method) for method in PUBLISHED_METHODS),
]


def engine_with(seed: int, options: Options, backend: Backend) -> Engine:
    """Some of whose vertices were removed."""
    vertices, edges = random_graph(seed)
    generator = np.random.default_rng(seed)
    weights = some_weights(generator, len(edges)) if options.weighted else None
    times = np.sort(1e9 + 600.0 * generator.random(len(edges))) if options.half_life else None
    engine = engine_on(options, backend)
    columns = (edges[:, 0], edges[:, 1])
    engine.apply(EdgeBatch(*columns, vertices=vertices, weights=weights, times=times))
    engine.apply(EdgeBatch.of(remove=generator.integers(0, vertices, vertices // 10).tolist()))
    engine.update()
    return engine


def present(engine: Engine) -> NDArray[np.int64]:
    return np.setdiff1d(np.arange(engine.id_limit), engine.free_ids())


def query_within(
    generator: np.random.Generator, engine: Engine, within: NDArray[np.int64]
) -> PersonalizedQuery:
    """All vertices of the set, from weighted seeds in it."""
    seeds = generator.choice(within, int(generator.integers(1, 4)))
    weights = generator.integers(1, 4, len(seeds)).astype(np.float64)
    k = max(1, engine.vertices)
    return PersonalizedQuery(seeds, weights, k, target_error=1e-9, zeros=True, within=within)


def some_vertices(generator: np.random.Generator, engine: Engine) -> NDArray[np.int64]:
    """Vertices, not in order, some of them twice."""
    there = present(engine)
    return generator.choice(there, int(generator.integers(1, 2 * len(there) + 1)))


def exact_within(engine: Engine, query: PersonalizedQuery) -> NDArray[np.float64]:
    """float64[id_limit], of the induced subgraph, by liverank_gpu.verify."""
    assert query.within is not None
    within = np.unique(query.within)
    sources, targets = arcs_of(engine)
    kept = np.isin(sources, within) & np.isin(targets, within)
    teleport = np.bincount(query.seeds, query.weights, engine.id_limit)[within]
    found, bound = verify.pagerank(
        np.searchsorted(within, sources[kept]),
        np.searchsorted(within, targets[kept]),
        len(within),
        query.damping or engine.options.damping,
        engine.options.dangling,
        teleport / teleport.sum(),
        arc_weights_of(engine)[kept] if engine.options.weighted else None,
    )
    assert bound < 1e-11
    exact = np.zeros(engine.id_limit)
    exact[within] = found
    return exact


def assert_right(engine: Engine, query: PersonalizedQuery, answer: Personalized) -> None:
    assert query.within is not None
    within = np.unique(query.within)
    among = within if query.among is None else np.intersect1d(within, query.among)
    assert_answer(query, answer, exact_within(engine, query), among)


@pytest.mark.in_shards
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_are_those_of_the_induced_subgraph(kind: str, backend: Backend, long: bool) -> None:
    for seed in range(12 if long else 2):
        generator = np.random.default_rng(seed)
        engine = engine_with(seed, KINDS[kind], backend)
        for form, method in WAYS:
            query = query_within(generator, engine, some_vertices(generator, engine))
            target = 1e-9 if form == "accelerated" else 1e-4
            query = replace(query, form=form, method=method, target_error=target)
            answer = engine.personalized_many([query])[0]
            assert answer.error_bound <= target or answer.method == "push"
            assert_right(engine, query, answer)


@pytest.mark.any_thread_order
def test_queries_with_and_without_sets_are_answered_together(backend: Backend) -> None:
    generator = np.random.default_rng(8)
    loads = Mock(wraps=backend.rebuild.row_ranges)
    rebuild = instead(backend.rebuild, row_ranges=loads)
    engine = engine_with(14, Options(weighted=True), replace(backend, rebuild=rebuild))
    sets = [some_vertices(generator, engine) for _ in range(3)]
    queries = []
    for index in range(6 * backend.multivector.min_columns):
        query = query_within(generator, engine, sets[index % 3])
        query = replace(query, method="pull", target_error=1e-6)
        queries.append(replace(query, within=None) if index % 4 == 0 else query)
    before = loads.call_count
    answers = engine.personalized_many(queries)
    assert loads.call_count == before + 2 * 3  # those of one set share its subgraph
    for query, answer in zip(queries, answers, strict=True):
        everywhere = replace(query, within=present(engine)) if query.within is None else query
        assert answer.error_bound <= 1e-6
        assert_right(engine, everywhere, answer)


@pytest.mark.in_shards
@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("zeros", [True, False])
def test_among_still_filters_answers(target: str, zeros: bool, backend: Backend) -> None:
    for seed in range(4 if backend.name == "cpu" else 1):
        generator = np.random.default_rng(seed + 20)
        engine = engine_with(seed + 20, Options(), backend)
        query = query_within(generator, engine, some_vertices(generator, engine))
        query = replace(
            query,
            among=some_vertices(generator, engine),
            k=3,
            target=target,
            zeros=zeros,
            trace=True,
        )
        answer = engine.personalized_many([query])[0]
        assert_right(engine, query, answer)
        assert answer.trace is not None
        assert zeros or (answer.ranks > 0.0).all()


def test_a_set_without_edges_has_its_seeds_alone(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of([(0, 1), (1, 2), (2, 0), (3, 4)]))
    within = np.array([0, 3])
    answer = engine.personalized(np.array([3, 0]), np.array([3.0, 1.0]), within=within)
    assert answer.vertices.tolist() == [3, 0]
    np.testing.assert_allclose(answer.ranks, [0.75, 0.25], atol=answer.error_bound)
    nothing = engine.personalized(np.array([3]), within=within, among=np.array([1]))
    assert len(nothing.vertices) == 0


@pytest.mark.in_shards
def test_a_batch_between_steps_begins_the_queries_again(backend: Backend) -> None:
    generator = np.random.default_rng(2)
    for removes in (False, True):
        # so few that the subgraph takes several steps
        engine = engine_with(16, Options(), replace(backend, sizes=Sizes(gathered=64)))
        within = some_vertices(generator, engine)
        queries = [query_within(generator, engine, within) for _ in range(2)]
        queries[1] = replace(queries[1], within=None)
        running = engine.submit(queries[:1])
        for _ in range(3):
            engine.step(running)
        assert not running.done
        engine.close(running)
        running = engine.submit(queries)
        engine.step(running)
        engine.step(running)
        lost = np.setdiff1d(within, np.concatenate([query.seeds for query in queries]))[:3]
        pairs = generator.integers(0, engine.id_limit, (20, 2))
        edges = [(a, b) for a, b in pairs.tolist() if not {a, b} & set(lost.tolist())]
        engine.apply(EdgeBatch.of(edges, remove=lost.tolist() if removes else ()))
        while not running.done:
            engine.step(running)
        if removes:
            assert len(lost)
            queries = [replace(queries[0], within=np.setdiff1d(within, lost)), queries[1]]
        queries[1] = replace(queries[1], within=present(engine))
        for query, answer in zip(queries, running.answers(), strict=True):
            assert_right(engine, query, answer)
        engine.close(running)


@pytest.mark.in_shards
def test_what_cannot_be_asked_is_refused(backend: Backend) -> None:
    engine = engine_on(Options(), backend)
    engine.apply(EdgeBatch.of([(0, 1), (1, 2), (2, 0), (3, 4)]))
    seeds = np.array([2, 0, 4, 2])
    with pytest.raises(InvalidValue, match="must be in `within`") as outside:
        engine.personalized(seeds, within=np.array([0, 1]))
    assert (outside.value.field, outside.value.value) == ("seeds", [2, 4])
    # a weight of 0 is ignored there too
    weights = np.array([0.0, 1.0, 0.0, 0.0])
    assert engine.personalized(seeds, weights, within=np.array([0, 1])).settled
    with pytest.raises(InvalidValue, match="within"):
        engine.personalized(seeds, within=np.array([], np.int64))
    with pytest.raises(UnknownVertex, match=r"within\[1\]"):
        engine.personalized(seeds, within=np.array([0, 5]))
    with pytest.raises(InvalidValue, match="left out for a watched query"):
        engine.watch("w", PersonalizedQuery(np.array([0]), within=np.array([0, 1])))


def test_a_subgraph_that_does_not_fit_is_refused_with_figures(backend: Backend) -> None:
    if backend.name != "cpu":
        pytest.skip("the memory of this backend is not counted alike")
    backend, device = looked_after(backend)
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch(*rmat(16, 16, seed=1)))
    query = PersonalizedQuery(np.array([0]), within=np.arange(engine.vertices))
    with (
        device.with_only(1 << 24),
        pytest.raises(OutOfMemory, match="the subgraph of 65,536 vertices"),
    ):
        engine.personalized_many([query])
    assert engine.personalized_many([query])[0].error_bound <= 1e-6


def test_the_cost_follows_the_set(backend: Backend) -> None:
    read: list[int] = []

    def entries(lists: Csr) -> Entries:
        read.append(int(backend.device.sum(lists.row_lengths)))
        return backend.rebuild.entries(lists)

    rebuild = instead(backend.rebuild, entries=entries)
    engine = Engine(Options(), replace(backend, rebuild=rebuild))
    engine.apply(EdgeBatch(*rmat(12, 16, seed=1)))
    degrees = np.bincount(engine.edge_list()[0], minlength=engine.vertices)
    within = np.flatnonzero(degrees == 1)[:50]
    forms: tuple[Form, ...] = get_args(Form)
    for method, form in product(METHODS, forms):
        read.clear()
        engine.personalized(within[:1], method=method, form=form, within=within)
        assert 0 < sum(read) <= 100  # of lists, and of those of the subgraph
    *_, subgraph = induced_subgraph(engine.internals.graph, within)
    assert subgraph is not None
    assert subgraph.vertices == 50
    assert subgraph.arcs <= 50
