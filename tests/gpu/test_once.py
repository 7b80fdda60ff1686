"""Ranks of edges that are ranked once, compared with NetworkX and with an engine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from numpy.typing import NDArray

from liverank_gpu import (
    EdgeBatch,
    Engine,
    InvalidValue,
    NotConverged,
    Options,
    OutOfMemory,
    Solve,
    UnknownVertex,
    ViewQuery,
    rank_once,
    verify,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.strategies import TABLE, forms_of
from liverank_gpu.types import Dangling
from tests.gpu.doubles import loading, looked_after
from tests.gpu.graphs import networkx_ranks

VERTICES, EDGES = 205, 900
TIGHT = 1e-10

Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


def random_edges(seed: int) -> Columns:
    """Edges with repeats and loops, and weights that differ widely. The last vertices have none."""
    rng = np.random.default_rng(seed)
    ends = rng.integers(0, VERTICES - 5, (2, EDGES))
    ends[:, -50:] = ends[:, :50]
    ends[1, 50:60] = ends[0, 50:60]
    return ends[0], ends[1], (10.0 ** rng.uniform(-3.0, 3.0, EDGES)).astype(np.float32)


def pairs_of(sources: NDArray[Any], targets: NDArray[Any]) -> tuple[int, NDArray[np.int64]]:
    return VERTICES, np.stack([sources, targets], axis=1).astype(np.int64)


@pytest.mark.parametrize("dangling", ["uniform", "self-loop"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [True, False])
def test_ranks_are_those_of_networkx_and_of_an_engine(
    backend: Backend, directed: bool, weighted: bool, dangling: Dangling
) -> None:
    sources, targets, weights = random_edges(1)
    given = weights if weighted else None
    options = Options(target_error=TIGHT, directed=directed, weighted=weighted, dangling=dangling)
    found = rank_once(sources, targets, given, vertices=VERTICES, options=options, backend=backend)
    ranks, bound = found.ranks.to_numpy(), found.result.error_bound
    assert bound <= TIGHT
    pairs = pairs_of(sources, targets)
    exact = networkx_ranks(pairs, dangling, weights=given, directed=directed)
    assert np.abs(ranks - exact).sum() <= bound + 1e-12
    engine = Engine(options, backend)
    change = engine.apply(EdgeBatch(sources, targets, vertices=VERTICES, weights=given))
    bounds = bound + engine.update().error_bound
    assert np.abs(ranks - engine.publish().to_numpy()).sum() <= bounds
    assert (found.vertices, found.edges) == (engine.vertices, engine.edges)
    assert (found.duplicates, found.backend) == (change.already_present, backend.name)
    assert found.ranks.top(3)[0].tolist() == np.argsort(-exact)[:3].tolist()
    assert found.ranks.error_bound == bound


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [True, False])
def test_edges_are_sorted_in_several_ranges(
    backend: Backend, directed: bool, weighted: bool
) -> None:
    sources, targets, weights = random_edges(2)
    given, options = weights if weighted else None, Options(directed=directed, weighted=weighted)
    whole, parts = (
        rank_once(sources, targets, given, options=options, backend=each)
        for each in (backend, loading(backend, 100))
    )
    assert (parts.edges, parts.duplicates) == (whole.edges, whole.duplicates)
    error = np.abs(parts.ranks.to_numpy() - whole.ranks.to_numpy()).sum()
    assert error <= 1e-14


@pytest.mark.parametrize(
    ("strategy", "form"),
    [(name, form) for name, row in TABLE.items() for form in forms_of(row, Options())],
)
def test_every_strategy_is_run(backend: Backend, strategy: str, form: Any) -> None:
    sources, targets, _ = random_edges(3)
    solve = Solve(strategy, form, trace=True)
    found = rank_once(sources, targets, vertices=VERTICES, backend=backend, solve=solve)
    exact = networkx_ranks(pairs_of(sources, targets), "uniform")
    error = np.abs(found.ranks.to_numpy() - exact).sum()
    # pruned vertices keep what they lack
    assert error <= found.result.error_bound <= (1e-4 if TABLE[strategy].prunes else 1e-6)
    assert (found.result.strategy, found.result.form) == (strategy, form)
    assert found.result.trace is not None
    assert found.result.converged


def test_places_are_settled(backend: Backend) -> None:
    sources, targets, _ = random_edges(4)
    found = rank_once(sources, targets, backend=backend, solve=Solve(settle=5))
    exact = networkx_ranks(pairs_of(sources, targets), "uniform")
    assert found.result.settled is not None
    assert found.result.settled >= 5
    assert found.ranks.top(5)[0].tolist() == np.argsort(-exact, kind="stable")[:5].tolist()


def test_weights_decay(backend: Backend) -> None:
    times = np.arange(3) * 10.0
    ends, options = (np.array([0, 0, 1]), np.array([1, 2, 0])), Options(half_life=10.0)
    found = rank_once(*ends, times=times, options=options, backend=backend)
    weights = (2.0 ** (times / 10.0)).astype(np.float32)
    exact, _ = verify.pagerank(*ends, 3, 0.85, "uniform", None, weights)
    assert np.abs(found.ranks.to_numpy() - exact).sum() <= found.result.error_bound
    with pytest.raises(InvalidValue, match="times: '3 times' is not allowed"):
        rank_once(*ends, times=times, backend=backend)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("direction", ["forward", "reversed"])
def test_walks_start_at_seeds(backend: Backend, direction: Any, weighted: bool) -> None:
    sources, targets, weights = random_edges(5)
    given, options = weights if weighted else None, Options(weighted=weighted, target_error=TIGHT)
    seeds, shares = np.array([3, 17, 80]), np.array([1.0, 2.0, 0.5])
    view = ViewQuery(seeds, shares, damping=0.7, direction=direction)
    found = rank_once(
        sources, targets, given, vertices=VERTICES, options=options, backend=backend, view=view
    )
    ends = (sources, targets) if direction == "forward" else (targets, sources)
    restarts = dict(zip(seeds.tolist(), shares.tolist(), strict=True))
    exact = networkx_ranks(pairs_of(*ends), "uniform", 0.7, given, restarts)
    bound = found.result.error_bound
    assert np.abs(found.ranks.to_numpy() - exact).sum() <= bound + 1e-12
    assert bound <= TIGHT
    assert found.result.converged


def test_a_view_that_cannot_be_ranked_is_refused(backend: Backend) -> None:
    ends, view = (np.array([0, 1]), np.array([1, 0])), ViewQuery(np.array([0]))
    for solve in (Solve("static"), Solve("dynamic-frontier"), Solve(settle=1)):
        with pytest.raises(InvalidValue, match=f"strategy: '{solve.strategy}' is not allowed"):
            rank_once(*ends, backend=backend, solve=solve, view=view)
    within = ViewQuery(np.array([0]), within=np.array([0]))
    with pytest.raises(InvalidValue, match="within: '1 vertices' is not allowed"):
        rank_once(*ends, backend=backend, view=within)
    with pytest.raises(UnknownVertex, match="2"):
        rank_once(*ends, backend=backend, view=ViewQuery(np.array([2])))


@pytest.mark.parametrize(
    "kind", ["int32", "int64", "arrow", "chunks", "list", "strided", "big-endian"]
)
def test_columns_of_every_kind_are_the_same(backend: Backend, kind: str) -> None:
    sources, targets, _ = random_edges(6)
    kinds: dict[str, Any] = {
        "int32": lambda ids: ids.astype(np.int32),
        "int64": lambda ids: ids,
        "arrow": lambda ids: pa.array(ids, pa.int32()),
        "chunks": lambda ids: pa.chunked_array([ids[:7], ids[7:]]),
        "list": lambda ids: ids.tolist(),
        "big-endian": lambda ids: ids.astype(">i4"),
        "strided": lambda ids: np.repeat(ids.astype(np.int32), 2)[::2],
    }
    expected = rank_once(sources, targets, backend=backend).ranks.to_numpy()
    found = rank_once(kinds[kind](sources), kinds[kind](targets), backend=backend)
    assert np.array_equal(found.ranks.to_numpy(), expected)


def test_columns_on_the_device_are_ranked(backend: Backend) -> None:
    sources, targets, weights = random_edges(7)
    options = Options(weighted=True)
    columns = [backend.device.to_device(each) for each in (sources, targets, weights)]
    found = rank_once(*columns, options=options, backend=backend).ranks.to_numpy()
    expected = rank_once(sources, targets, weights, options=options, backend=backend)
    assert np.array_equal(found, expected.ranks.to_numpy())


def test_graphs_without_edges(backend: Backend) -> None:
    nothing = np.empty(0, np.int64)
    empty = rank_once(nothing, nothing, backend=backend)
    assert (empty.vertices, empty.edges, empty.result.error_bound) == (0, 0, 0.0)
    assert empty.ranks.to_numpy().tolist() == []
    for options in (Options(), Options(directed=False, weighted=True, dangling="self-loop")):
        alone = rank_once(nothing, nothing, vertices=4, options=options, backend=backend)
        assert alone.ranks.to_numpy() == pytest.approx(np.full(4, 0.25))
        loop = rank_once([1], [1], vertices=2, options=options, backend=backend)
        fixed = options.dangling == "self-loop"
        assert (loop.edges, loop.duplicates) == ((0, 1) if fixed else (1, 0))


def test_a_loop_does_not_swallow_the_other_weights(backend: Backend) -> None:
    sources, targets = np.array([0, 0, 1]), np.array([0, 1, 0])
    weights = np.array([1e30, 1e-30, 1.0])
    for directed in (True, False):
        options = Options(weighted=True, directed=directed)
        found = rank_once(sources, targets, weights, options=options, backend=backend)
        kept = weights if directed else np.array([1e30, 1.0, 1.0])
        exact = networkx_ranks((2, np.stack([sources, targets], 1)), "uniform", weights=kept)
        assert np.abs(found.ranks.to_numpy() - exact).sum() <= found.result.error_bound + 1e-9


def test_components_are_solved_where_that_is_cheaper() -> None:
    # a path of 20,000 vertices, numbered at random: sweeps would take as many as the error says
    order = np.random.default_rng(8).permutation(20_000)
    solve = Solve(trace=True)
    found = rank_once(order[:-1], order[1:], backend="cpu", solve=solve)
    assert found.result.trace is not None
    assert "components" in [step.kind for step in found.result.trace.steps]
    exact, bound = verify.pagerank(order[:-1], order[1:], 20_000, 0.85, "uniform")
    assert np.abs(found.ranks.to_numpy() - exact).sum() <= found.result.error_bound + bound


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (([0, -1], [1, 1]), r"sources\[1\]: -1"),
        (([0, 1], [1, 2**31 - 1]), r"targets\[1\]: 2147483647"),
        (([0, 1], [1]), "targets: 'length 1'"),
        (([0.5], [1]), r"sources: 'float64\[1\]'"),
        (([0], [1], [1.0]), "weights: '1 weights'"),
    ],
)
def test_what_cannot_be_ranked_is_named(arguments: Any, named: str) -> None:
    with pytest.raises(InvalidValue, match=named):
        rank_once(*map(np.array, arguments), backend="cpu")
    with pytest.raises(InvalidValue, match=r"weights\[1\]: -1"):
        rank_once([0, 1], [1, 0], [1.0, -1.0], options=Options(weighted=True), backend="cpu")
    with pytest.raises(InvalidValue, match="vertices: -1"):
        rank_once([0], [1], vertices=-1, backend="cpu")


def test_too_few_iterations_are_told(backend: Backend) -> None:
    ends, options = random_edges(9)[:2], Options(max_iterations=2)
    with pytest.warns(NotConverged, match="2 iterations"):
        found = rank_once(*ends, options=options, backend=backend)
    assert not found.result.converged
    exact = networkx_ranks(pairs_of(*ends), "uniform")[: found.vertices]
    assert np.abs(found.ranks.to_numpy() - exact / exact.sum()).sum() <= found.result.error_bound
    with pytest.raises(NotConverged):
        rank_once(*ends, options=options, backend=backend, unconverged="raise")
    rank_once(*ends, options=options, backend=backend, unconverged="ignore")


def test_a_lack_of_memory_is_told_before(backend: Backend) -> None:
    few, device = looked_after(backend)
    ends = np.arange(2_000_000, dtype=np.int32)
    with device.with_only(20_000_000), pytest.raises(OutOfMemory, match="ranking 2,000,000 edges"):
        rank_once(ends, ends, backend=few)
    with device.with_only(20_000_000), pytest.raises(OutOfMemory, match="ranking") as raised:
        rank_once(ends[:9], ends[:9], vertices=2_000_000, backend=few)
    # starts and lengths of the rows, their order, loops and degrees
    assert raised.value.needed > 2_000_000 * (8 + 4 + 4 + 1 + 4)
