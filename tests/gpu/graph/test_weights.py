"""Weighted graphs against a dictionary of weights, on every backend."""

from __future__ import annotations

from typing import get_args

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, InvalidValue, Options
from liverank_gpu.columns import LARGEST_WEIGHT, LEAST_WEIGHT
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Dangling
from tests.gpu.graph.model import apply
from tests.gpu.graphs import WeightedModel
from tests.gpu.invariants import check_invariants

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


def test_edges_without_weights_weigh_one(backend: Backend) -> None:
    graph, model = DynamicGraph(backend, "uniform", weighted=True), WeightedModel("uniform")
    for batch in (
        EdgeBatch.of(insert=[(0, 1), (1, 2), (2, 2)]),
        EdgeBatch.of(insert=[(0, 1), (0, 1), (2, 2), (3, 0)], on_conflict="add"),
    ):
        apply(graph, model, batch)
        check_invariants(graph, model)
    assert model.weights == {(0, 1): 3.0, (1, 2): 1.0, (2, 2): 2.0, (3, 0): 1.0}


def test_a_strength_stays_above_a_loop_that_swallows_the_other_weights(backend: Backend) -> None:
    graph, model = DynamicGraph(backend, "uniform", weighted=True), WeightedModel("uniform")
    apply(graph, model, EdgeBatch.of(insert=[(0, 0, 1e30), (0, 1, 1e-30), (1, 1, 3.0)]))
    check_invariants(graph, model)
    apply(graph, model, EdgeBatch.of(insert=[(1, 1, 1e30), (1, 0, 1e-30)]))
    check_invariants(graph, model)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("rebuilt", [False, True])
def test_a_sum_that_exceeds_float32_changes_nothing(
    backend: Backend, rebuilt: bool, directed: bool
) -> None:
    graph = DynamicGraph(backend, "uniform", weighted=True, directed=directed)
    graph.apply(EdgeBatch.of(insert=[(0, 1, 2e38), (1, 2, 1.0), (1, 1, 3e38)]))
    before = [column.tolist() for column in (*graph.edge_list(), graph.edge_weights())]
    for edge in ((0, 1) if directed else (1, 0), (1, 1)):
        batch = EdgeBatch.of(
            insert=[(1, 2, 5.0), (5, 6, 1.0), (*edge, 2e38)], delete=[(2, 2)], on_conflict="add"
        )
        with pytest.raises(InvalidValue) as caught:
            graph.apply(batch, rebuilds=rebuilt)
        assert caught.value.field == "weights[2]"
        assert caught.value.value == float(np.float32(2e38))
        assert "at most 3.4028234663852886e+38" in caught.value.requirement
    assert graph.vertices == 3
    now = [column.tolist() for column in (*graph.edge_list(), graph.edge_weights())]
    assert now == before


@pytest.mark.parametrize("rebuilt", [False, True])
def test_the_first_edge_whose_sum_exceeds_float32_is_named(backend: Backend, rebuilt: bool) -> None:
    graph = DynamicGraph(backend, "uniform", "given", weighted=True)
    graph.apply(EdgeBatch.of(insert=[(v, v + 1, 2e38) for v in range(3000)]))
    # in the order of the rows, though the batch has them the other way round
    exceeding = [(2500, 2501, 2e38), (2000, 2001, 2e38), (70, 71, 2e38), (69, 70, 1e38)]
    others = [(v, 0, 1.0) for v in range(1, 3000)]
    batch = EdgeBatch.of(insert=exceeding + others, delete=[(0, 1)], on_conflict="add")
    with pytest.raises(InvalidValue) as caught:
        graph.apply(batch, rebuilds=rebuilt)
    assert caught.value.field == "weights[2]"


def test_an_unweighted_graph_says_what_to_do_with_weights(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    with pytest.raises(InvalidValue, match="create a graph with the option weighted") as caught:
        engine.apply(EdgeBatch.of(insert=[(0, 1, 2.0)]))
    assert (caught.value.field, caught.value.value) == ("weights", "1 weights")
    with pytest.raises(InvalidValue, match="on_conflict: 'add' is not allowed"):
        engine.apply(EdgeBatch.of(insert=[(0, 1)], on_conflict="add"))
    assert (engine.vertices, engine.edge_weights().tolist()) == (0, [])


@pytest.mark.parametrize("weight", [0.0, -1.0, np.inf, -np.inf, np.nan, 1e-39, 3.5e38])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_weight_that_no_edge_can_have_is_named(weight: float, dtype: type[np.floating]) -> None:
    with np.errstate(over="ignore"):
        weights = np.array([1.0, weight, weight]).astype(dtype)
    with pytest.raises(InvalidValue, match=r"above 0, .* \(1\.2e-38 to 3\.4e\+38\)") as caught:
        EdgeBatch(np.arange(3), np.arange(3), weights=weights)
    assert caught.value.field == "weights[1]"


def test_columns_of_weights_are_checked() -> None:
    edges, wrong = np.arange(2), np.array(["1.0", "2.0"])
    for weights, requirement in (
        (np.ones(3), "2 long, as insert_sources"),
        (np.ones((2, 1)), "a one-dimensional array of numbers"),
        (wrong, "a one-dimensional array of numbers"),
        (np.array([True, False]), "a one-dimensional array of numbers"),
    ):
        with pytest.raises(InvalidValue) as caught:
            EdgeBatch(edges, edges, weights=weights)  # type: ignore[arg-type]
        assert (caught.value.field, caught.value.requirement) == ("weights", requirement)
    with pytest.raises(InvalidValue, match="'replace' or 'add'"):
        EdgeBatch(edges, edges, on_conflict="keep")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="weighted: 1 is not allowed"):
        Options(weighted=1)  # type: ignore[arg-type]
    limits = EdgeBatch(edges, edges, weights=np.array([LEAST_WEIGHT, LARGEST_WEIGHT])).weights
    assert limits is not None
    assert limits.dtype == np.float32
