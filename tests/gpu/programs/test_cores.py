"""Core numbers that continue after batches, held against NetworkX."""

from __future__ import annotations

from typing import Any

import networkx as nx
import numpy as np
import pytest

from liverank_gpu import Answer, EdgeBatch, Engine, InvalidValue, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.analysis import CoreCandidates, CoreNumbers
from liverank_gpu.operations.backend import Backend
from liverank_gpu.programs import views
from liverank_gpu.programs.views import MemoryNeighbours, MemoryRows
from tests.gpu.graphs import Model, random_batch
from tests.gpu.observed import counted
from tests.gpu.programs import oracle


def _check(engine: Engine, answer: Answer) -> None:
    """The values, and the order with which the next run continues."""
    simple = oracle.undirected(oracle.graph_of(engine))
    expected: dict[int, float] = dict(nx.core_number(simple))
    assert answer.values.tolist() == oracle.by_id(expected, answer.values).tolist()
    assert answer.summary["largest"] == max(expected.values(), default=0)
    order = answer.earlier.kept
    to_host = answer.backend.device.to_host
    places, suspects = to_host(order.places), set(to_host(order.suspects).tolist())
    ids = to_host(views.ids_by_position(engine.internals.graph)).tolist()
    position = {v: at for at, v in enumerate(ids)}
    core = answer.values
    assert sorted(places.tolist()) == list(range(len(places)))
    for v in simple:
        behind = sum(
            (core[w], places[position[w]]) > (core[v], places[position[v]]) for w in simple[v]
        )
        assert behind <= core[v] or position[v] in suspects


@pytest.mark.any_thread_order
@pytest.mark.parametrize(
    "options",
    [Options(directed=False, vertex_order="degree"), Options(), Options(weighted=True)],
    ids=["undirected", "directed", "directed-weighted"],
)
@pytest.mark.parametrize("seed", range(8))
def test_cores_continue_after_insertions_and_deletions(
    backend: Backend, options: Options, seed: int
) -> None:
    generator = np.random.default_rng(seed)
    engine = Engine(options, backend)
    model = Model("uniform", options.directed)
    count = int(generator.integers(20, 300))
    sources, targets = (50 * generator.random((2, count)) ** (1 + seed % 3)).astype(np.int64)
    batch = EdgeBatch(sources, targets, vertices=50)
    model.apply(batch)
    engine.apply(batch)
    answer = engine.run("cores")
    continued = 0
    for step in range(12):
        for _ in range(1 + step % 2):
            batch = random_batch(generator, model, int(generator.integers(1, 25)), step % 3 == 2)
            model.apply(batch)
            engine.apply(batch)
        answer = engine.run("cores", after=answer)
        _check(engine, answer)
        continued += answer.receipt.continued
    assert continued >= 4


@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_cores_rise_by_more_than_one_and_fall_along_a_path(
    backend: Backend, directed: bool
) -> None:
    """A clique is built around a vertex of a cycle, which a deletion then opens. There is a longer
    cycle beside it, so that what is near the clique is a small part.
    """
    sources = np.arange(20_300)
    targets = np.where(sources == 299, 0, np.where(sources == 20_299, 300, sources + 1))
    engine = Engine(Options(directed=directed), backend)
    engine.apply(EdgeBatch(sources, targets))
    first = engine.run("cores")
    assert set(first.values.tolist()) == {2}
    clique = [(v, w) for v in range(0, 60, 5) for w in range(0, v, 5)]
    engine.apply(EdgeBatch.of(clique))
    risen = engine.run("cores", after=first)
    assert risen.receipt.continued
    assert risen.values[:60:5].tolist() == [11] * 12
    _check(engine, risen)
    engine.apply(EdgeBatch.of(delete=[*clique, (299, 0)]))
    fallen = engine.run("cores", after=risen)
    assert fallen.receipt.continued
    assert fallen.values.tolist() == [1] * 300 + [2] * 20_000
    _check(engine, fallen)
    assert set(first.values.tolist()) == {2}


def test_a_change_reads_what_is_near_it(backend: Backend) -> None:
    """Cliques that touch in a row: an edge within one is far from the others."""
    each, count = 8, 200
    ends = np.array([(v, w) for v in range(each) for w in range(v)])
    first = (each - 1) * np.arange(count)[:, None]
    engine = Engine(Options(directed=False), backend)
    sources, targets = ((first + ends[:, end]).ravel() for end in (0, 1))
    engine.apply(EdgeBatch(sources, targets))
    answer = engine.run("cores")
    engine.apply(EdgeBatch.of(delete=[(0, 1)]))
    lower = engine.run("cores", after=answer)
    assert (lower.receipt.continued, lower.receipt.supersteps) == (True, 1)
    assert lower.receipt.edges < answer.receipt.edges / 20
    _check(engine, lower)
    engine.apply(EdgeBatch.of([(0, 1)]))
    again = engine.run("cores", after=lower)
    assert again.values.tolist() == answer.values.tolist()
    assert again.receipt.edges < answer.receipt.edges / 20


def test_cores_begin_again_where_continuing_reads_more(backend: Backend) -> None:
    engine = Engine(Options(directed=False), backend)
    ends = np.random.default_rng(3).integers(0, 400, (2, 4000))
    engine.apply(EdgeBatch(*ends))
    answer = engine.run("cores")
    ran: list[CoreNumbers] = []
    # it is tried, and stops where it would read too much; of more changes it is not tried
    for changes, supersteps in ((200, 2), (100, 1)):
        engine.apply(EdgeBatch(*np.random.default_rng(4).integers(0, 400, (2, changes))))
        ran.clear()
        with counted(CoreNumbers, ran):
            found = engine.run("cores", after=answer)
        assert (found.receipt.continued, len(ran)) == (False, 1)
        assert found.receipt.supersteps == supersteps
        _check(engine, found)
    # and the next run continues from it
    engine.apply(EdgeBatch.of([(0, 1), (0, 2)]))
    ran.clear()
    with counted(CoreNumbers, ran):
        found = engine.run("cores", after=found)
    assert (found.receipt.continued, len(ran)) == (True, 0)
    _check(engine, found)


def test_batches_that_come_while_it_runs_count_for_the_next_run(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of([(0, 1), (1, 2), (2, 0), (2, 3)]))
    running = engine.programs.begin("cores")
    engine.apply(EdgeBatch.of([(3, 0), (3, 4)], delete=[(0, 1)]))
    while not running.done:
        running.step(1.0)
    answer = running.answer()
    engine.programs.close(running)
    assert answer.values.tolist() == [2, 2, 2, 1]
    found = engine.run("cores", after=answer)
    assert found.receipt.continued
    _check(engine, found)


def test_an_answer_of_another_program_is_refused() -> None:
    engine = Engine(Options(), "cpu")
    engine.apply(EdgeBatch.of([(0, 1)]))
    with pytest.raises(InvalidValue, match="after"):
        engine.run("cores", after=engine.run("triangles"))


@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
@pytest.mark.parametrize("seed", range(10))
def test_candidates_have_all_whose_bounds_may_rise(
    backend: Backend, seed: int, directed: bool
) -> None:
    generator = np.random.default_rng(seed)
    before, more = (
        generator.integers(0, 40, (2, 150 + 20 * seed)),
        generator.integers(0, 40, (2, 9)),
    )
    for one in (backend_named("reference"), backend):
        engine = Engine(Options(directed=directed), one)
        engine.apply(EdgeBatch(before[0], before[1], vertices=40))
        graph = engine.internals.graph
        bounds, order = MemoryNeighbours(graph).core_numbers()
        assert order is not None
        engine.apply(EdgeBatch(more[0], more[1]))
        simple = oracle.undirected(oracle.graph_of(engine))
        suspects: Any = one.device.to_device(np.unique(more).astype(np.int32))
        near = MemoryRows(graph, part_read=1)
        found = one.run(CoreCandidates(near, bounds, order.places, suspects))
        candidates, still = (set(one.device.to_host(each).tolist()) for each in found)
        b, places = (one.device.to_host(each).tolist() for each in (bounds, order.places))
        behind = {v: sum((b[w], places[w]) > (b[v], places[v]) for w in simple[v]) for v in simple}
        assert still == {v for v in np.unique(more).tolist() if behind[v] > b[v]}
        risen = _largest_risen(simple, b)
        assert risen <= candidates
        assert one.name != "cpu" or risen == candidates


def _largest_risen(graph: nx.Graph, bounds: list[int]) -> set[int]:
    """X: vertices leave it until the bounds of all of it, with one more each, are supported."""
    risen = set(graph)
    while True:
        supported = {
            v for v in risen
            if sum(bounds[w] + (w in risen) > bounds[v] for w in graph[v]) > bounds[v]
        }  # fmt: skip
        if supported == risen:
            return risen
        risen = supported
