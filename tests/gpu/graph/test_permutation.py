"""The order of vertices inside: no answer depends on it."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, InvalidValue, Options
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.vertices import VertexPermutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Dangling, VertexOrder
from tests.gpu.graphs import Model, engine_on
from tests.gpu.invariants import check_invariants


def _degree_ordered(batch: EdgeBatch, backend: Backend, dangling: Dangling = "uniform") -> Engine:
    engine = Engine(Options(dangling=dangling, vertex_order="degree"), backend)
    engine.apply(batch)
    return engine


def test_positions_fall_by_powers_of_two_of_the_degree_and_keep_the_order_inside(
    backend: Backend,
) -> None:
    # total degrees: 1, 2, 4, 2, 5, 8, 0, 2
    edges = [(5, 4), (5, 2), (5, 1), (5, 3), (5, 7), (4, 5), (2, 5), (7, 5), (2, 4), (2, 3)]
    edges += [(4, 0), (4, 1)]
    engine = _degree_ordered(EdgeBatch.of(insert=edges, vertices=8), backend)
    permutation = engine.internals.graph.permutation
    assert permutation.ids_of(np.arange(10)).tolist() == [5, 2, 4, 1, 3, 7, 0, 6, 8, 9]
    assert backend.device.to_host(permutation.positions).tolist() == [6, 3, 1, 4, 2, 0, 7, 5]


def test_equal_ranks_are_ordered_by_id_wherever_the_vertices_stand(backend: Backend) -> None:
    # nobody links to 1 … 30; every third of them links to two vertices and stands in front
    tips = np.arange(1, 31)
    sources = np.concatenate([tips, tips[::3]])
    targets = np.concatenate([np.zeros(30, np.int64), np.full(10, 31)])
    engine = _degree_ordered(EdgeBatch(sources, targets), backend)
    assert engine.internals.graph.permutation.ids_of(np.arange(6)).tolist() == [0, 31, 1, 4, 7, 10]
    engine.update()
    ranks = engine.publish()
    assert ranks.top(9)[0].tolist() == [0, 31, 1, 2, 3, 4, 5, 6, 7]
    assert ranks.top(3, offset=4)[0].tolist() == [3, 4, 5]
    assert ranks.top(100)[0].tolist() == [0, 31, *range(1, 31)]
    assert ranks.top(0)[0].tolist() == []
    # the seed comes first; no path leads to any of the others but 0 and 31
    answer = engine.personalized(np.array([7]), k=6, zeros=True)
    assert answer.vertices[3:].tolist() == [1, 2, 3]


def test_equal_ranks_above_the_last_place_are_ordered_by_id(backend: Backend) -> None:
    permutation = VertexPermutation(
        backend, backend.device.to_device(np.array([4, 2, 0, 3, 1], np.int32))
    )
    # ids 4 and 2 tie for the first place, 0, 3 and 1 for the third
    values = backend.device.to_device(np.array([9.0, 9.0, 5.0, 5.0, 5.0]))
    for k, best in enumerate(([], [2], [2, 4], [2, 4, 0], [2, 4, 0, 1], [2, 4, 0, 1, 3])):
        assert permutation.top_k(values, k)[0].tolist() == best


def test_ids_that_no_graph_has_are_not_found(backend: Backend) -> None:
    for order in get_args(VertexOrder):
        graph, model = DynamicGraph(backend, "uniform", order), Model("uniform")
        for many in (1, 5_000):
            batch = EdgeBatch.of(insert=[(0, 1), (2, 1)])
            graph.apply(batch)
            model.apply(batch)
            unknown = np.tile([-1, 2**32, -(2**32), 2**31 - 1, 2**40 + 2], many)
            applied = graph.apply(
                EdgeBatch(delete_sources=unknown, delete_targets=np.ones_like(unknown))
            )
            assert (applied.counts.deleted, applied.counts.not_found) == (0, 5 * many)
            check_invariants(graph, model)


@pytest.mark.in_shards
def test_ranks_published_between_the_first_edges_and_their_solve_are_the_old_ones(
    backend: Backend,
) -> None:
    engine = engine_on(Options(vertex_order="degree"), backend)
    engine.apply(EdgeBatch(vertices=4))
    engine.update()
    engine.apply(EdgeBatch.of(insert=[(2, 3), (1, 3), (0, 3), (3, 4)]))
    assert engine.publish().to_numpy().tolist() == [0.25] * 4
    engine.update()
    assert engine.publish().top(2)[0].tolist() == [4, 3]


def test_a_graph_that_lost_all_edges_keeps_its_order(backend: Backend) -> None:
    engine = _degree_ordered(EdgeBatch.of(insert=[(1, 3), (2, 3)]), backend)
    model = Model("uniform")
    engine.update()
    engine.apply(EdgeBatch.of(delete=[(1, 3), (2, 3)]))
    before = engine.publish().to_numpy()
    batch = EdgeBatch.of(insert=[(3, 0), (1, 0), (2, 5)])
    model.apply(batch)
    engine.apply(batch)
    assert engine.publish().to_numpy().tolist() == before.tolist()
    check_invariants(engine.internals.graph, model)
    assert engine.internals.graph.permutation.ids_of(np.arange(6)).tolist() == [3, 1, 2, 0, 4, 5]


def test_the_order_costs_eight_bytes_a_vertex_or_nothing(backend: Backend) -> None:
    sources = np.arange(1000)
    for order, expected in (("degree", 8 * 1001), ("given", 0), ("auto", 0)):
        engine = Engine(Options(vertex_order=order), backend)  # type: ignore[arg-type]
        engine.apply(EdgeBatch(sources, sources + 1))
        assert engine.memory()["vertex order"] == expected


def test_an_order_that_is_none_is_refused() -> None:
    with pytest.raises(InvalidValue) as raised:
        Options(vertex_order="random")  # type: ignore[arg-type]
    assert str(raised.value) == (
        "vertex_order: 'random' is not allowed; it must be 'auto', 'degree' or 'given'"
    )


@pytest.mark.parametrize("others", [0.0, -1.0, 1e-30])
def test_the_largest_of_many_are_found_where_few_are_larger_than_the_rest(
    others: float, backend: Backend
) -> None:
    values = np.full(20_000, others)
    values[[17, 4, 19_999]] = 0.5, 0.25, 0.25
    values[100:110] = 0.0
    for k in (1, 3, 9, 30):
        expected = np.lexsort((np.arange(len(values)), -values))[:k]
        places, best = backend.select.top_k(backend.device.to_device(values), k)
        assert places.tolist() == expected.tolist()
        assert best.tolist() == values[expected].tolist()
