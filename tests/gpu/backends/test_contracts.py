"""Operations of every backend against what their contracts say, with NumPy as the model."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, OutOfMemory, PersonalizedQuery, RankReference
from liverank_gpu.backends.cpu.sweeps import CHUNK_WORK
from liverank_gpu.backends.cuda import make_backend
from liverank_gpu.backends.cuda.kernels.loader import (
    BIN_LANES,
    BIN_LIMITS,
    BLOCK,
    OVERFLOW_FACTOR,
    WARP,
)
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.residual import ExpandBackward, ExpandForward, Perturb
from liverank_gpu.operations.sweeps import (
    AddCompensated,
    OrthominProducts,
    QuantizeContributions,
    SweepMany,
)
from liverank_gpu.pagerank.frontier import expand
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, Swept, sweep_to_target
from liverank_gpu.types import Options
from tests.cuda_emulator.emulated import emulated_device
from tests.gpu.backends.pushes import FIRST, LEAF, pushed, solved
from tests.gpu.doubles import looked_after, sweeping_singly
from tests.gpu.observed import counted, observed

pytestmark = pytest.mark.reference

COUNTS = [1, 255, 257, 3_000]
"""Below and above what one block of threads covers at once."""


def _random_graph(backend: Backend, vertices: int, edges: int) -> Engine:
    engine = Engine(Options(), backend)
    sources, targets = np.random.default_rng(3).integers(0, vertices, (2, edges))
    engine.apply(EdgeBatch(sources, targets, vertices=vertices))
    return engine


@pytest.mark.parametrize("count", COUNTS)
def test_what_float32_cannot_represent_is_carried_over(count: int, backend: Backend) -> None:
    random = np.random.default_rng(2)
    places = random.permutation(5_000)[:count].astype(np.int64)
    remainder = random.random(5_000).astype(np.float32)
    amounts = random.random(count) * 1e-9
    exact = remainder.astype(np.float64)
    arrays = [backend.device.to_device(a) for a in (remainder, places, amounts, np.zeros(count))]
    for _ in range(40):
        backend.run(AddCompensated(*arrays))
        exact[places] += amounts
    stored, carry = (backend.device.to_host(arrays[place]).astype(np.float64) for place in (0, 3))
    stored[places] += carry
    assert np.abs(stored - exact).max() <= 1e-14


def test_a_perturbation_makes_no_more_additions_than_it_may(backend: Backend) -> None:
    if backend.name != "cpu":
        pytest.skip("a device counts the edges of its lists by chunks")
    engine = Engine(Options(), backend)
    tips = np.arange(1, 11)
    engine.apply(EdgeBatch(np.zeros_like(tips), tips, vertices=20))
    engine.update()
    graph, iterate = engine.internals.graph, engine.internals.iterate
    changes = graph.apply(
        EdgeBatch(np.zeros(3, np.int64), np.arange(11, 14), np.zeros(5, np.int64), tips[:5])
    ).changes
    assert changes is not None
    residual = iterate.workspace.residual
    before = backend.device.to_host(residual.values).copy()
    # the new list of 8, 5 removed edges and 3 added ones
    arguments = (graph.view, changes, iterate.values, 0.85, residual)
    assert backend.run(Perturb(*arguments, 15)) is None
    assert np.array_equal(backend.device.to_host(residual.values), before)
    delta = backend.run(Perturb(*arguments, 16))
    assert delta is not None
    assert delta.additions == 16


def test_what_vertices_without_edges_keep_counts_in_the_sum(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 0)]))
    engine.apply(EdgeBatch(vertices=300))
    graph, sweeps, to_device = engine.internals.graph, backend.sweeps, backend.device.to_device
    # the last digit of y is 1/8: up to half of it stays in r
    values, residual = np.full(300, 1e15), np.zeros(300)
    residual[2:] = np.random.default_rng(6).random(298)
    y, r = to_device(values), to_device(residual)
    contributions = to_device(np.zeros(300, sweeps.contribution_dtype))
    result = backend.run(QuantizeContributions(graph.view, y, r, contributions, 0.85, 0.0))
    left = backend.device.to_host(r)
    assert np.abs(left).sum() > 1.0
    assert result.residual_sum == pytest.approx(left.sum(), abs=1e-9)
    assert result.residual_l1 == pytest.approx(np.abs(left).sum(), abs=1e-9)


def test_the_sums_of_a_block_are_those_of_what_it_leaves(backend: Backend) -> None:
    if backend.name != "cuda":
        pytest.skip("reads the contributions of a device, bfloat16")
    engine = _random_graph(backend, 6_000, 30_000)
    engine.update()
    seen = []

    def look(sweep: SweepMany, run: Callable[[], NDArray[np.float64]]) -> Any:
        sums, host = run(), backend.device.to_host
        contributions = host(sweep.new_contributions).astype(np.uint32)
        sent = (contributions << 16).view(np.float32).astype(np.float64)
        lengths = host(sweep.graph.outgoing.row_lengths)[:, None]
        exact = (sweep.damping * lengths * sent + host(sweep.remainder)).sum(axis=0)
        seen.append(np.abs(sums[1] - exact).max())
        return sums

    asked = [PersonalizedQuery(np.array([v]), method="pull") for v in range(8)]
    with observed(SweepMany, look):
        engine.personalized_many(asked)
    assert len(seen) > 5
    assert max(seen) <= 1e-7


def test_a_vertex_with_a_long_list_has_a_higher_threshold(backend: Backend) -> None:
    engine = solved(backend)
    values = engine.internals.iterate.values
    before = backend.device.to_host(values).copy()
    # vertex 10 has 100 out-edges: 0.5 is less than 0.1 · (1 + 0.1 · 100), and 0.2 more than 0.1
    result = pushed(engine, {LEAF: 0.2, 10: 0.5}, 1e-9, threshold=0.1, edge_weight=0.1)
    assert (result.rounds, result.vertices) == (1, 1)
    assert np.flatnonzero(backend.device.to_host(values) != before).tolist() == [LEAF]


def test_what_a_rank_has_no_digits_for_is_pushed_by_nobody(backend: Backend) -> None:
    # the residual of FIRST is above every threshold and below half of the last digit of its y
    engine = solved(backend)
    iterate = engine.internals.iterate
    residual = iterate.workspace.residual
    value = float(iterate.values[FIRST])
    small = 0.4 * float(np.spacing(value))
    entries = {LEAF: 0.125, FIRST: small}
    result = pushed(engine, entries, 1e-3 * small, threshold=0.1, rounds=100)
    assert (result.end, result.rounds, result.vertices) == ("floor", 1, 1)
    assert (float(iterate.values[FIRST]), float(residual.values[FIRST])) == (value, small)


def test_a_push_counts_the_entries_of_its_work_lists(backend: Backend) -> None:
    # the circle passes half of the residual on in each round, until it is below the floor
    result = pushed(solved(backend), {LEAF: 0.5, FIRST: 0.5}, 0.3, threshold=0.3, rounds=9)
    assert (result.end, result.rounds, result.delta.additions) == ("floor", 4, 4)
    assert (result.vertices, result.entries) == (5, 5)
    refused = pushed(solved(backend), {FIRST: 0.5}, 0.3, threshold=0.3, round_edges=0)
    assert (refused.end, refused.rounds, refused.entries) == ("work", 0, 0)


def test_all_vertices_are_looked_at_however_few_blocks_run(backend: Backend) -> None:
    vertices = 600_000  # an expansion has 2048 blocks at most
    graph = _random_graph(backend, vertices, 3_000).internals.graph
    frontier, in_frontier = np.arange(0, vertices, 7), np.zeros(vertices, np.uint8)
    in_frontier[frontier] = 1
    sources, targets = graph.edge_list()
    expected = np.unique(targets[np.isin(sources, frontier)])
    assert expected[-1] > 2048 * BLOCK
    flags, in_frontier = backend.xp.zeros(vertices, np.int32), backend.device.to_device(in_frontier)
    found = backend.run(ExpandBackward(graph.view, graph.in_rows(), in_frontier, flags))
    assert np.array_equal(np.sort(backend.device.to_host(found)), expected)


@pytest.mark.parametrize("count", [300, 3_000], ids=["few", "sorted apart"])
def test_a_batch_finds_the_edges_of_a_hub(backend: Backend, count: int) -> None:
    random = np.random.default_rng(5)
    graph = DynamicGraph(backend, "uniform")
    tips = random.permutation(30_000)[:20_000] + 1
    graph.apply(EdgeBatch(np.zeros_like(tips), tips, vertices=40_000))
    gone, new = random.permutation(tips)[:count], np.arange(35_000, 35_000 + count)
    known = random.permutation(tips)[:count]
    inserted, deleted = np.append(new, known), np.append(gone, [30_500, 30_501])
    counts = graph.apply(
        EdgeBatch(np.zeros_like(inserted), inserted, np.zeros_like(deleted), deleted)
    ).counts
    assert counts.not_found == 2
    sources, targets = graph.edge_list()
    assert not sources.any()
    assert sorted(targets) == sorted((set(tips) - set(gone)) | set(inserted))


@pytest.mark.parametrize("length", [1, 31, 1_000, 1_000_000])
def test_no_sum_is_shallower_than_a_tree(length: int, backend: Backend) -> None:
    assert backend.sweeps.sum_depth(length) >= np.log2(length)
    assert backend.rebuild.strength_depth(length) >= np.log2(length)


def test_the_depth_of_a_row_has_its_lanes_and_the_trees_of_two_warps(backend: Backend) -> None:
    if backend.name != "cuda":
        pytest.skip("lanes are those of a device")
    for lanes, limit in zip(BIN_LANES, BIN_LIMITS, strict=False):
        if lanes > WARP:
            length = OVERFLOW_FACTOR * limit
            assert backend.sweeps.sum_depth(length) >= length // lanes + 2 * np.log2(WARP)


def test_sums_of_columns_go_through_the_sums_of_all_blocks() -> None:
    backend = make_backend(replace(emulated_device(), multiprocessors=9_000))
    view = _random_graph(backend, 300, 900).internals.graph.view
    # each of three launches leaves a sum for each block
    large = view._replace(vertices=1 << 24)
    depth = backend.multivector.column_depth
    assert depth(large) >= depth(view) + 3 * 9_000


def test_a_small_frontier_is_expanded_forward_and_a_large_one_backward(backend: Backend) -> None:
    graph = _random_graph(backend, 400, 4_000).internals.graph
    xp = backend.xp
    for count, expected in ((1, ExpandForward), (4, ExpandForward), (200, ExpandBackward)):
        seen: list[ExpandForward | ExpandBackward] = []
        with counted(ExpandForward, seen), counted(ExpandBackward, seen):
            frontier = xp.arange(count, dtype=np.int32)
            expand(graph, frontier, xp.zeros(400, np.int32), xp.zeros(400, np.uint8))
        assert [type(each) for each in seen] == [expected], count


def test_a_target_that_is_met_exactly_is_met(backend: Backend) -> None:
    engine = _random_graph(backend, 60, 300)
    engine.update("static")
    iterate = engine.internals.iterate
    bound = iterate.error_bound
    assert sweep_to_target(iterate, 0, target=bound) == Swept(0, True)
    assert sweep_to_target(iterate, 10, target=bound) == Swept(0, True)
    assert sweep_to_target(iterate, 0, target=0.5 * bound) == Swept(0, False)


def test_orthomin_keeps_its_weights_until_it_starts_afresh(backend: Backend) -> None:
    engine = _random_graph(sweeping_singly(backend), 300, 900)
    seen = set()

    def look(step: OrthominProducts, run: Callable[[], Any]) -> Any:
        before = backend.device.to_host(step.state.weights).copy()
        products = run()
        is_kept = np.array_equal(before, backend.device.to_host(step.state.weights))
        seen.add((step.floor == 0.0, is_kept))
        return products

    iterate = engine.internals.iterate
    iterate.reset()
    with observed(OrthominProducts, look):
        sweep_to_target(iterate, 30, [kind for kind in SWEEP_KINDS if kind.accelerated])
    assert seen == {(True, True), (False, False)}


def test_no_group_of_rows_outgrows_the_others(backend: Backend) -> None:
    if backend.name != "cpu":
        pytest.skip("on a device rows are grouped by their length")
    graph = DynamicGraph(backend, "uniform")
    graph.apply(EdgeBatch.of(insert=[(0, 1)]))
    assert graph.outgoing.partition().groups.tolist() == [0, 2]
    graph.apply(EdgeBatch(vertices=4 * CHUNK_WORK))
    groups = graph.outgoing.partition().groups
    assert np.diff(groups).max() <= CHUNK_WORK
    assert groups[-1] == 4 * CHUNK_WORK


def test_ranges_of_rows_hold_no_more_than_they_may(backend: Backend) -> None:
    if backend.name != "cuda":
        pytest.skip("a CPU sorts all rows at once")
    rows = np.sort(np.random.default_rng(7).integers(0, 1 << 20, 20_000)).astype(np.int32)
    no_positions = backend.device.to_device(np.zeros(0, np.int32))
    ranges = backend.rebuild.row_ranges(
        backend.device.to_device(rows), 1 << 20, 3_000, no_positions
    )
    firsts, lasts, counts = np.array(ranges).T
    assert firsts.tolist() == [0, *lasts[:-1]]
    assert lasts[-1] == 1 << 20
    held = np.searchsorted(rows, lasts) - np.searchsorted(rows, firsts)
    assert counts.tolist() == held.tolist()
    assert max(counts) <= 3_000
    assert len(ranges) <= 2 * 20_000 // 3_000


def test_the_ranks_of_a_subscription_are_refused_with_their_size(backend: Backend) -> None:
    backend, device = looked_after(backend)
    engine = _random_graph(backend, 100, 300)
    engine.update()
    ranks = engine.publish()
    with device.with_only(799), pytest.raises(OutOfMemory) as raised:
        RankReference(ranks)
    assert raised.value.needed == 800


@pytest.mark.parametrize("dtype", [bool, np.uint8, np.int32, np.int64, np.float32, np.float64])
def test_sums_are_as_wide_as_their_type_allows(backend: Backend, dtype: type) -> None:
    values: NDArray[Any] = np.full(3_000_001, 1, dtype)
    found = backend.device.sum(backend.device.to_device(values))
    assert found.dtype == (np.float64 if np.dtype(dtype).kind == "f" else np.int64)
    assert float(found) == len(values)
    if dtype in (np.float32, np.int32):
        large = values * dtype(2**30)
        assert float(backend.device.sum(backend.device.to_device(large))) == 2**30 * len(values)
