"""Solves of one strongly connected component after the other, and when they are chosen."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Options, Result
from liverank_gpu.native import kernels
from liverank_gpu.operations.analysis import SolveComponents
from liverank_gpu.operations.backend import Backend
from tests.gpu.doubles import instead
from tests.gpu.graphs import exact_ranks, igraph_ranks, loaded, random_graph
from tests.gpu.observed import observed

Edges = NDArray[np.int64]
"""int64[m, 2], distinct."""


@pytest.fixture
def cpu(backend: Backend) -> Backend:
    if backend.components is None:
        pytest.skip("components are solved on the host only")
    return backend


def _instead(cpu: Backend, **own: Any) -> Backend:
    """The backend, of which a test answers some operations on components itself."""
    return replace(cpu, components=instead(cpu.components, **own))


def _always(cpu: Backend, **own: Any) -> Backend:
    """The backend with sweeps so dear that components are worth their price, whatever the graph."""
    costs = replace(cpu.costs, sweep_overhead=1e12)
    return replace(_instead(cpu, reciprocity=lambda _: 0.0, **own), costs=costs)


def _kinds(result: Result) -> set[str]:
    assert result.trace is not None
    assert sum(step.rounds for step in result.trace.steps) == result.iterations
    return {step.kind for step in result.trace.steps}


def _backwards(vertices: int, edges: int, seed: int = 3) -> Edges:
    """Edges that lead to lower ids: no cycles."""
    generator = np.random.default_rng(seed)
    sources = generator.integers(1, vertices, edges)
    return np.unique(
        np.stack([sources, (sources * generator.random(edges)).astype(int)], 1), axis=0
    )


def _with_pairs(edges: Edges, pairs: int) -> Edges:
    """In addition some cycles of two and of three, with loops."""
    some = np.arange(pairs)
    cycles = [
        [some, some ^ 1],
        [some + pairs, pairs + (some + 1) % 3 + some // 3 * 3],
        [some, some],
    ]
    return np.unique(np.concatenate([edges, *(np.stack(each, 1) for each in cycles)]), axis=0)


def _giant(vertices: int, tail: int, degree: int = 6) -> Edges:
    """One large component, with a path into it and one out of it."""
    generator = np.random.default_rng(4)
    ring = np.arange(vertices)
    steps = generator.geometric(0.1, (degree, vertices))
    inner = [np.stack([ring, (ring + step) % vertices], 1) for step in (*steps, 1)]
    before = np.arange(vertices, vertices + tail)
    paths = [np.stack([before, before + 1], 1), np.stack([before + tail + 1, before + tail + 2], 1)]
    joints = np.array([[vertices + tail, 0], [5, vertices + tail + 1]])
    return np.unique(np.concatenate([*inner, *paths, joints]), axis=0)


GRAPHS: dict[str, Callable[[], Edges]] = {
    "a path": lambda: np.stack([np.arange(20_000), np.arange(1, 20_001)], 1),
    "no cycles": lambda: _backwards(5_000, 25_000),
    "few cycles": lambda: _with_pairs(_backwards(5_000, 25_000), 300),
    "one component with tails": lambda: _giant(3_000, 300),
    "random": lambda: np.unique(np.random.default_rng(5).integers(0, 9_000, (20_000, 2)), axis=0),
    "a cycle": lambda: np.stack([np.arange(20_500), (np.arange(20_500) + 1) % 20_000], 1),
}
"""Of more than 2¹⁴ edges: sweeps over fewer are not given up."""

POLICIES = {
    "uniform": Options(target_error=1e-12),
    "self-loop": Options(target_error=1e-12, dangling="self-loop"),
    "weighted": Options(target_error=1e-12, weighted=True),
}


@pytest.mark.parametrize("options", POLICIES.values(), ids=POLICIES)
@pytest.mark.parametrize("graph", GRAPHS)
def test_the_ranks_are_those_of_other_solvers(graph: str, options: Options, cpu: Backend) -> None:
    options = replace(options, tolerance=1e-15)
    edges = GRAPHS[graph]()
    vertices = int(edges.max()) + 4
    exact, bound = exact_ranks(loaded((vertices, edges), options, cpu))
    for strategy in ("auto", "static"):
        engine = loaded((vertices, edges), options, _always(cpu))
        result = engine.update(strategy, trace=True)
        assert result.converged
        assert "components" in _kinds(result)
        ranks = engine.publish().to_numpy()
        error = np.abs(ranks - exact).sum()
        assert error <= 1e-12 + bound
        assert error <= result.error_bound + bound
    if not options.weighted:
        other = igraph_ranks((vertices, edges), options.dangling)
        assert np.abs(ranks - other).sum() <= 1e-10


def test_removed_vertices_have_no_part(cpu: Backend) -> None:
    engine = loaded((0, GRAPHS["few cycles"]()), Options(target_error=1e-12), _always(cpu))
    engine.apply(EdgeBatch.of(remove=[3, 77, 499]))
    result = engine.update(trace=True)
    assert "components" in _kinds(result)
    exact, bound = exact_ranks(engine)
    error = np.abs(engine.publish().to_numpy() - exact).sum()
    assert error <= min(1e-12, result.error_bound) + bound


@pytest.mark.parametrize("seed", range(12))
def test_components_are_those_of_networkx(seed: int, cpu: Backend) -> None:
    vertices, edges = random_graph(seed)
    engine = loaded((vertices, edges), Options(vertex_order="given"), cpu)
    assert cpu.components is not None
    found = cpu.components.find(engine.internals.graph.view)
    parts = np.split(found.order, found.first[1:-1])
    graph = nx.DiGraph(edges.tolist())
    graph.add_nodes_from(range(vertices))
    expected = {frozenset(part) for part in nx.strongly_connected_components(graph)}
    assert {frozenset(part.tolist()) for part in parts} == expected
    assert all(part.tolist() == sorted(part) for part in parts)
    of_vertex = np.empty(vertices, int)
    for number, part in enumerate(parts):
        of_vertex[part] = number
    assert np.all(of_vertex[edges[:, 0]] <= of_vertex[edges[:, 1]])
    cyclic = [part for part in parts if len(part) > 1]
    lengths = engine.internals.graph.view.incoming.row_lengths
    counts = [int(lengths[part].sum()) for part in cyclic]
    assert (found.cyclic_edges, found.largest_edges) == (sum(counts), max(counts, default=0))
    assert found.largest_size == max((len(part) for part in cyclic), default=0)


def test_a_target_below_rounding_is_not_waited_for(cpu: Backend) -> None:
    """Rounding alone exceeds the target: the ranks are as exact as others, and it says so."""
    hub = np.stack([np.arange(1, 4_001), np.zeros(4_000, int)], 1)
    edges = np.concatenate([_backwards(4_001, 9_000), hub])
    edges = np.unique(np.concatenate([edges, _backwards(4_001, 20_000, 4)]), axis=0)
    engine = loaded((0, edges), Options(target_error=1e-13), _always(cpu))
    result = engine.update(trace=True)
    assert result.trace is not None
    assert result.trace.steps[-1].kind == "components"
    assert not result.converged
    exact, bound = exact_ranks(engine)
    assert np.abs(engine.publish().to_numpy() - exact).sum() <= 1e-13 + bound


def test_a_registry_is_solved_by_components_and_a_grid_is_not(cpu: Backend) -> None:
    leaves = np.random.default_rng(8).integers([6_000, 0], [60_000, 6_000], (200_000, 2))
    registry = _with_pairs(np.concatenate([_backwards(6_000, 20_000), leaves]), 1_000)
    engine = loaded((0, registry), Options(target_error=1e-10), cpu)
    result = engine.update(trace=True)
    assert "components" in _kinds(result)
    assert result.converged
    assert "components" in _kinds(engine.update("static", trace=True))
    assert "components" not in _kinds(engine.update("naive-dynamic", trace=True))

    side = 150
    corner = np.arange(side * side).reshape(side, side)
    right = np.stack([corner[:, :-1].ravel(), corner[:, 1:].ravel()], 1)
    down = np.stack([corner[:-1].ravel(), corner[1:].ravel()], 1)
    grid = np.concatenate([right, down])
    never = _instead(cpu, find=Mock(side_effect=AssertionError))
    both = np.concatenate([grid, grid[:, ::-1]])
    assert _kinds(loaded((0, both), Options(), never).update(trace=True)) == {"sweep"}
    undirected = loaded((0, grid), Options(directed=False, target_error=1e-10), never)
    assert _kinds(undirected.update(trace=True)) == {"sweep"}


@pytest.mark.parametrize("strategy", ["auto", "static"])
def test_a_solve_begins_with_components_where_in_degrees_say_little(
    strategy: str, cpu: Backend
) -> None:
    # the ranks of many leaves pass through a hub to a path of vertices with one in-edge each
    leaves, path = np.arange(300, 20_300), np.arange(300)
    edges = np.append(leaves, path[:-1]), np.append(leaves * 0, path[1:])
    engine = loaded((0, np.stack(edges, 1)), Options(target_error=1e-10), cpu)
    result = engine.update(strategy, trace=True)
    assert result.trace is not None
    # after the guess
    assert [step.kind for step in result.trace.steps][:2] == ["sweep", "components"]
    exact, uncertain = exact_ranks(engine)
    error = np.abs(engine.publish().to_numpy() - exact).sum()
    assert error <= min(result.error_bound, 1e-10) + uncertain


def _rings(rings: int, length: int = 5, links: int = 3) -> Edges:
    """Directed rings with links to earlier ones: all edges but the links are on cycles, and sweeps
    are slow.
    """
    generator = np.random.default_rng(6)
    v = np.arange(rings * length)
    around = np.stack([v, np.where(v % length == length - 1, v - length + 1, v + 1)], 1)
    sources = generator.integers(length, len(v), links * rings)
    targets = (sources // length * length * generator.random(len(sources))).astype(int)
    return np.unique(np.concatenate([around, np.stack([sources, targets], 1)]), axis=0)


@pytest.mark.parametrize("strategy", ["auto", "static"])
@pytest.mark.parametrize("options", POLICIES.values(), ids=POLICIES)
def test_components_take_over_from_sweeps_that_are_slow(
    options: Options, strategy: str, cpu: Backend
) -> None:
    options = replace(options, target_error=1e-9, tolerance=1e-13)
    edges = _rings(3_000)

    def solved(backend: Backend) -> tuple[Result, int]:
        engine = loaded((0, edges), options, backend)
        engine.internals.iterate.unguessable = engine.internals.iterate.cyclic = 0
        result = engine.update(strategy, trace=True)
        assert result.trace is not None
        assert result.converged
        exact, uncertain = exact_ranks(engine)
        error = np.abs(engine.publish().to_numpy() - exact).sum()
        assert error <= min(result.error_bound, 1e-9) + uncertain
        return result, sum(step.edges or 0 for step in result.trace.steps)

    result, edges_read = solved(cpu)
    assert result.trace is not None
    kinds = [step.kind for step in result.trace.steps]
    # the first ones show how slow they are
    assert kinds[:4] == ["sweep"] * 4
    assert "components" in kinds[4:12]
    without, edges_swept = solved(replace(cpu, components=None))
    assert _kinds(without) == {"sweep"}
    if cpu.name == "cpu":  # steps of the reference are not accelerated
        assert edges_read < 0.6 * edges_swept


def test_a_batch_is_ranked_by_components_where_sweeps_are_slow(cpu: Backend) -> None:
    edges = _rings(3_000)
    engine = loaded((0, edges), Options(target_error=1e-10), cpu)
    engine.update()
    generator = np.random.default_rng(9)
    batch = generator.integers(0, 15_000, (2, 2_000))
    engine.apply(EdgeBatch(batch[0], batch[1]))
    result = engine.update(trace=True)
    assert "components" in _kinds(result)
    exact, uncertain = exact_ranks(engine)
    assert np.abs(engine.publish().to_numpy() - exact).sum() <= result.error_bound + uncertain


def test_components_do_not_take_over_without_memory(cpu: Backend) -> None:
    edges, options = _rings(3_000), Options(target_error=1e-9)
    for name in ("find", "solve"):
        failing = Mock(side_effect=MemoryError)
        engine = loaded((0, edges), options, _instead(cpu, find=failing) if name == "find" else cpu)
        with observed(SolveComponents, failing if name == "solve" else lambda _, run: run()):
            for strategy in ("auto", "static"):
                result = engine.update(strategy, trace=True)
                assert _kinds(result) == {"sweep"}
                assert result.converged
        assert failing.called


def test_a_graph_whose_cycles_cost_too_much_is_searched_once(cpu: Backend) -> None:
    assert cpu.components is not None
    find = cpu.components.find
    # more edges on cycles than was guessed from vertices that are on none
    searched = Mock(side_effect=lambda graph: replace(find(graph), cyclic_edges=1 << 50))
    engine = loaded(
        (0, GRAPHS["a cycle"]()), Options(target_error=1e-12), _always(cpu, find=searched)
    )
    for _ in range(2):
        assert _kinds(engine.update("static", trace=True)) == {"sweep"}
    assert searched.call_count == 1


def _bits(backend: Backend, edges: Edges, threads: int) -> tuple[bytes, int]:
    kernels.set_threads(threads)
    try:
        engine = loaded((0, edges), Options(target_error=1e-12), _always(backend))
        result = engine.update(trace=True)
        assert "components" in _kinds(result)
        return engine.publish().to_numpy().tobytes(), result.iterations
    finally:
        kernels.set_threads(0)


def test_results_do_not_depend_on_the_number_of_threads(cpu: Backend) -> None:
    edges = _giant(12_000, 50)
    assert len(edges) > 3 << 14  # more chunks than one
    assert _bits(cpu, edges, 1) == _bits(cpu, edges, 2) == _bits(cpu, edges, 3)
