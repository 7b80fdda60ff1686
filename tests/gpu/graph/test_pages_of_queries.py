"""In-lists in pages where queries sweep too: solves have them when they would without."""

from __future__ import annotations

import numpy as np
import pytest

from liverank_gpu import EdgeBatch
from liverank_gpu.errors import OutOfMemory
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.in_pages import SWEEPS_BY_ROWS
from liverank_gpu.operations.csr import PagedLists
from tests.gpu.doubles import TestDevice, looked_after
from tests.gpu.graph.test_pages import RANDOM_EDGES, VERTICES, paging, skewed


def test_solves_have_no_pages_because_of_queries() -> None:
    backend, device = looked_after(paging())
    graph = DynamicGraph(backend, "uniform", "given")
    graph.apply(skewed(np.random.default_rng(15), RANDOM_EDGES))

    def lists(of_query: bool) -> PagedLists | None:
        paged = graph.sweep_view(1.0, of_query).pages
        return paged and paged.lists

    assert [lists(of_query=True) for _ in range(SWEEPS_BY_ROWS)] == [None] * SWEEPS_BY_ROWS
    built = lists(of_query=True)
    assert built is not None
    # they take them over when they would build their own
    assert [lists(of_query=False) for _ in range(SWEEPS_BY_ROWS)] == [None] * SWEEPS_BY_ROWS
    assert lists(of_query=False) is built
    # and queries use those of solves
    graph.in_pages.drop()
    graph.apply(EdgeBatch.of([(0, VERTICES - 1)]))
    assert lists(of_query=False) is lists(of_query=True) is not None
    # nor are they without them, where memory refused a query, or a batch needed that of its pages
    for shortage in (_refused_to_a_query, _taken_from_queries):
        graph.in_pages.drop()
        assert lists(of_query=False) is None
        shortage(device, graph)
        assert not graph.in_pages.kept
        assert [lists(of_query=False) for _ in range(SWEEPS_BY_ROWS - 1)] == [None] * (
            SWEEPS_BY_ROWS - 1
        )
        assert lists(of_query=False) is not None
    # a sample that fails for a solve leaves queries theirs
    graph.in_pages.drop()
    graph.in_pages.want()
    assert lists(of_query=True) is not None
    with device.without_arrays(1):
        assert lists(of_query=False) is None
    assert lists(of_query=True) is not None
    graph.apply(EdgeBatch.of([(1, VERTICES - 1)]))
    assert lists(of_query=False) is None  # until the graph has grown
    graph.apply(skewed(np.random.default_rng(16), 2 * RANDOM_EDGES))
    assert lists(of_query=False) is not None


def _refused_to_a_query(device: TestDevice, graph: DynamicGraph) -> None:
    with device.without_arrays(1):
        for _ in range(SWEEPS_BY_ROWS + 1):
            graph.sweep_view(1.0, of_query=True)


def _taken_from_queries(device: TestDevice, graph: DynamicGraph) -> None:
    for _ in range(SWEEPS_BY_ROWS + 1):
        graph.sweep_view(1.0, of_query=True)
    assert graph.in_pages.kept
    with device.with_only(1 << 20), pytest.raises(OutOfMemory):
        graph.in_pages.require("a batch", 1 << 40)
