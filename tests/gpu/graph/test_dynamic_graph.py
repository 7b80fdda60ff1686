"""The dynamic graph against a set of edges, on every backend."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Literal, get_args

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.backends.cuda.kernels.loader import BIN_LANES
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.graph import SentBatch, Slots, UpdateBatch, Updated
from liverank_gpu.types import Dangling, VertexOrder
from tests.gpu.doubles import instead, loading
from tests.gpu.graph.model import apply
from tests.gpu.graphs import Model, WeightedModel, is_emulated, random_batch, weighted_batch
from tests.gpu.invariants import check_invariants
from tests.gpu.observed import observable, observed

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


LARGE = 2_000
"""Operations of a batch whose rows outgrow what a pool has to spare, so that it is packed."""


def _any_batch(
    generator: np.random.Generator, model: Model, removes: bool = False, most: int = 60
) -> EdgeBatch:
    """One of: a mixed batch, a whole list deleted, a hub, half of all edges deleted, all edges of a
    vertex both ways, a jump in vertices, nothing. most: operations, about.
    """
    edges = np.array(sorted(model.edges) or [(0, 0)], np.int64)
    known = max(model.vertices, 1)
    kind = generator.integers(0, 10)
    if kind == 0:
        row = edges[edges[:, 0] == edges[generator.integers(len(edges)), 0]]
        return EdgeBatch(delete_sources=row[:, 0], delete_targets=row[:, 1])
    if kind == 1:
        hub, tips = generator.integers(known), np.arange(generator.integers(1, most))
        pairs = np.stack([np.full(len(tips), hub), tips])
        sources, targets = pairs if generator.random() < 0.5 else pairs[::-1]
        return EdgeBatch(sources, targets)
    if kind == 2:
        gone = edges[generator.random(len(edges)) < generator.choice([0.5, 1.0])]
        return EdgeBatch(delete_sources=gone[:, 0], delete_targets=gone[:, 1])
    if kind == 3:
        vertex = generator.integers(known)
        gone = edges[(edges == vertex).any(axis=1)]
        new = generator.integers(0, known, (2, generator.integers(0, most // 2)))
        return EdgeBatch(new[0], new[1], gone[:, 0], gone[:, 1])
    if kind == 4:
        return EdgeBatch(vertices=model.vertices + int(generator.integers(0, 60)))
    return random_batch(generator, model, int(generator.integers(2, most)), removes)


@pytest.mark.any_thread_order
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dangling", POLICIES)
def test_any_stream_of_batches_leaves_the_graph_that_a_set_of_edges_does(
    dangling: Dangling, directed: bool, weighted: bool, backend: Backend, long: bool
) -> None:
    examples = 100 if long else 6

    @given(seed=st.integers(0, 2**32 - 1), large=st.booleans(), removes=st.booleans())
    @settings(max_examples=examples, deadline=None, database=None, derandomize=True)
    def stream(seed: int, large: bool, removes: bool) -> None:
        generator = np.random.default_rng(seed)
        order = get_args(VertexOrder)[seed % 3]
        graph = DynamicGraph(backend, dangling, order, weighted, directed)
        model = (WeightedModel if weighted else Model)(dangling, directed)
        for _ in range(8 if is_emulated(backend) else 25):
            batch = _any_batch(generator, model, removes, LARGE if large else 60)
            if isinstance(model, WeightedModel):
                batch = weighted_batch(generator, model, len(batch.insert_sources), batch)
            apply(graph, model, batch)
            check_invariants(graph, model)
            if generator.random() < 0.3:
                assert graph.outgoing.partition().count == graph.in_rows().count == graph.vertices

    stream()


@pytest.mark.parametrize("order", get_args(VertexOrder))
@pytest.mark.parametrize("dangling", POLICIES)
def test_a_load_sorts_a_range_of_rows_at_a_time(
    dangling: Dangling, order: VertexOrder, backend: Backend
) -> None:
    generator = np.random.default_rng(2)
    size = 200 if is_emulated(backend) else 1_000
    edges = (5 * size * generator.random((2, 9 * size)) ** 3).astype(np.int64)
    edges = np.concatenate([edges, edges[:, : size // 2]], axis=1)
    model = Model(dangling)
    batch = EdgeBatch(edges[0], edges[1], vertices=6 * size)
    model.apply(batch)
    pools = []
    for at_once in (1 << 27, size, 1):
        graph = DynamicGraph(loading(backend, at_once), dangling, order)
        graph.apply(batch)
        check_invariants(graph, model)
        pools.append(backend.device.to_host(graph.incoming.csr.column_indices).tolist())
    assert pools[0] == pools[1] == pools[2]
    if order == "degree":
        lengths = graph.outgoing.csr.row_lengths + graph.incoming.csr.row_lengths
        lengths = backend.device.to_host(lengths)
        assert lengths[:10].min() > 10 * lengths[10:].mean()


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dangling", POLICIES)
def test_a_hub_grows_shrinks_and_moves(
    dangling: Dangling, weighted: bool, backend: Backend
) -> None:
    graph = DynamicGraph(backend, dangling, weighted=weighted)
    model = (WeightedModel if weighted else Model)(dangling)
    generator = np.random.default_rng(3)
    tips = np.arange(3_000)
    hub = np.full(3_000, 7)

    def check(batch: EdgeBatch) -> None:
        if isinstance(model, WeightedModel):
            batch = weighted_batch(generator, model, 2_000, batch)
        apply(graph, model, batch)
        check_invariants(graph, model)

    check(EdgeBatch.of(insert=[(7, 8), (7, 7)]))
    # more operations than one block sorts, and several tiles of every prefix sum
    check(EdgeBatch(np.append(hub, tips), np.append(tips, hub)))
    assert graph.outgoing.longest >= 2_999
    for share in (0.001, 0.5, 0.9, 1.0):
        gone = tips[generator.random(3_000) < share]
        new = generator.integers(0, 5_000, (2, 200))
        at = np.full(len(gone), 7)
        check(EdgeBatch(new[0], new[1], np.append(at, gone), np.append(gone, at)))
    check(EdgeBatch(hub, tips))


def test_the_loops_of_the_policy_can_be_neither_inserted_nor_deleted(backend: Backend) -> None:
    graph, model = DynamicGraph(backend, "self-loop"), Model("self-loop")
    apply(graph, model, EdgeBatch.of(insert=[(0, 1)]))
    applied = apply(graph, model, EdgeBatch.of(insert=[(1, 1), (5, 5)], delete=[(0, 0)]))
    counts = applied.counts
    assert (counts.already_present, counts.not_found, counts.new_vertices) == (2, 1, 4)
    check_invariants(graph, model)
    assert graph.backend.device.to_host(graph.degree).tolist() == [2, 1, 1, 1, 1, 1]


def test_the_same_batches_give_the_same_rows_bit_by_bit(backend: Backend) -> None:
    def pools() -> list[list[int]]:
        generator, model = np.random.default_rng(4), Model("uniform")
        graph = DynamicGraph(backend, "uniform")
        for _ in range(30):
            apply(graph, model, _any_batch(generator, model, most=LARGE))
        return [
            backend.device.to_host(array).tolist()
            for lists in (graph.outgoing, graph.incoming)
            for array in (lists.csr.column_indices, lists.csr.row_starts, lists.capacities)
        ]

    assert pools() == pools()


def test_the_order_of_threads_leaves_no_trace() -> None:
    from tests.cuda_emulator.emulated import emulated_backend

    def pools(order: Literal["forward", "shuffled"]) -> list[list[int]]:
        generator, model = np.random.default_rng(6), Model("uniform")
        graph = DynamicGraph(emulated_backend(order), "uniform")
        tips = np.arange(1_500)
        apply(graph, model, EdgeBatch(np.append(tips, tips * 0), np.append(tips * 0, tips)))
        for _ in range(12):
            apply(graph, model, _any_batch(generator, model, most=LARGE))
        apply(graph, model, EdgeBatch(tips, tips + 1, tips * 0, tips))
        check_invariants(graph, model)
        return [
            np.concatenate([lists.csr.column_indices[: lists.end], lists.csr.row_starts]).tolist()
            for lists in (graph.outgoing, graph.incoming)
        ]

    assert pools("forward") == pools("shuffled")


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize(
    ("dangling", "weights"),
    [*product(POLICIES, ["none", "kept"]), ("uniform", "decaying")],
)
def test_a_batch_that_is_applied_at_once_leaves_what_a_planned_one_does(
    dangling: Dangling, directed: bool, weights: str
) -> None:
    from tests.cuda_emulator.emulated import emulated_backend

    generator = np.random.default_rng(8)
    weighted, half_life = weights != "none", 1.0 if weights == "decaying" else None
    model = WeightedModel(dangling, directed) if weighted else Model(dangling, directed)
    taken: list[tuple[SentBatch, Updated | None]] = []
    backend = observable(emulated_backend("shuffled"))

    def look(update: UpdateBatch, run: Callable[[], Updated | None]) -> Updated | None:
        taken.append((update.sent, run()))
        return taken[-1][1]

    options = Options(
        dangling=dangling,
        vertex_order="degree",
        directed=directed,
        weighted=weighted,
        half_life=half_life,
    )
    planning = replace(backend, graph=instead(backend.graph, at_once=0))
    engines = [Engine(options, each) for each in (backend, planning)]
    for number in range(24):
        batch = _any_batch(generator, model, most=LARGE if number % 2 else 60)
        if number % 3 == 1:
            batch = random_batch(generator, model, 60, removes=True)
        elif number == 6:  # more than are sorted by comparing each with all
            batch = random_batch(generator, model, 5_000)
        if isinstance(model, WeightedModel):
            batch = weighted_batch(generator, model, 20, batch)
        model.apply(batch)
        if half_life:  # some insertions are too old, and some make others expire
            ages = generator.choice([0.0, 0.5, 130.0], len(batch.insert_sources), p=[0.8, 0.1, 0.1])
            batch = replace(batch, times=8.0 * number + 100.0 * (number > 12) - ages)
        with observed(UpdateBatch, look):
            changes = [replace(engine.apply(batch), seconds=0.0) for engine in engines]
        assert changes[0] == changes[1]
        graphs = [engine.internals.graph for engine in engines]
        of_vertices = [[graph.loop, graph.degree] for graph in graphs]
        of_lists = [
            [*lists.arrays().values(), lists.capacities]
            for graph in graphs
            for lists in (graph.outgoing, graph.incoming)
        ]
        of_lists = [of_lists[0] + of_lists[1], of_lists[2] + of_lists[3]]
        for arrays in (of_vertices, of_lists):
            for first, second in zip(*arrays, strict=True):
                np.testing.assert_array_equal(first, second)
        assert graphs[0].connected == graphs[1].connected
        iterates = [engine.internals.iterate for engine in engines]
        for iterate in iterates:
            iterate.exclude_free()
        maintained = [iterate.workspace.residual.values.copy() for iterate in iterates]
        if number % 4 == 0:
            for engine in engines:
                engine.update()
        elif not (iterates[0].stale or iterates[1].stale):
            certificate = iterates[0].certificate
            relative = (1.0 - options.damping) * float(certificate.mass)
            certified = relative * float(certificate.rounding_error)
            for iterate in iterates:
                iterate.recompute_residual()
            drifts = [
                float(np.abs(values - iterate.workspace.residual.values).sum())
                for values, iterate in zip(maintained, iterates, strict=True)
            ]
            # rounding, as much as where it is planned
            assert drifts[0] <= certified
            assert drifts[0] <= 2.0 * drifts[1] + (1e-11 if weighted else 1e-12)
    found = [(sent, each) for sent, each in taken if each is not None]
    applied = [each is not None and each.lists is not None for _, each in taken]
    assert any(applied)
    assert weighted or not all(applied)
    assert any(each.followed for _, each in found)
    assert any(each.lists and each.removed_edges for sent, each in found if len(sent.removed) > 1)
    assert directed <= any(len(sent.columns[-1][1]) > 4_096 for sent, _ in found)


@pytest.mark.parametrize("directed", [True, False])
def test_a_vertex_of_more_edges_than_a_batch_is_applied_at_once_with_can_be_removed(
    directed: bool, backend: Backend
) -> None:
    graph, model = DynamicGraph(backend, "uniform", directed=directed), Model("uniform", directed)
    leaves = np.arange(1, 16_500)
    sources = np.append(leaves, [0, 0, 1, 2])
    targets = np.append(leaves * 0, [0, 7, 2, 3])
    apply(graph, model, EdgeBatch(sources, targets))
    apply(graph, model, EdgeBatch.of(insert=[(1, 5)], delete=[(1, 2), (0, 7)], remove=[0, 3]))
    check_invariants(graph, model)


def test_columns_may_lie_on_the_device(backend: Backend) -> None:
    if backend.xp is np:
        pytest.skip("the arrays of this backend are the host's")
    graph, model = DynamicGraph(backend, "uniform"), Model("uniform")
    generator = np.random.default_rng(1)
    for step, dtype in enumerate((np.int64, np.int32) * 4):
        batch = random_batch(generator, model, 3_000 if step == 0 else 40)
        new_sources, new_targets, gone_sources, gone_targets = (
            backend.device.to_device(ids.astype(dtype))
            for ids in (
                batch.insert_sources,
                batch.insert_targets,
                batch.delete_sources,
                batch.delete_targets,
            )
        )
        on_device = EdgeBatch(new_sources, new_targets, gone_sources, gone_targets, batch.vertices)
        expected, applied = model.apply(batch), graph.apply(on_device)
        assert replace(applied.counts, seconds=0.0) == expected
        check_invariants(graph, model)


def test_rows_change_their_group_only_when_they_stray_far(backend: Backend) -> None:
    if backend.name == "reference":
        pytest.skip("all rows are one group")
    graph, model = DynamicGraph(backend, "uniform"), Model("uniform")
    apply(graph, model, EdgeBatch(np.arange(999), np.arange(1, 1000)))
    groups = graph.outgoing.partition().groups
    # two more edges at a few vertices: nothing that a sweep would feel
    apply(graph, model, EdgeBatch.of(insert=[(v, v + 2) for v in range(5)]))
    assert graph.outgoing.partition().groups is groups
    apply(graph, model, EdgeBatch(vertices=1005))
    assert graph.outgoing.partition().groups.tolist()[-1] == 1005
    check_invariants(graph, model)
    # a hub that one thread would work on alone; a warp does
    hub = np.full(900, 3)
    apply(graph, model, EdgeBatch(hub, np.arange(900)))
    rows = graph.outgoing.partition()
    assert rows.groups is not groups
    check_invariants(graph, model)
    if backend.name == "cuda":
        warp = len(BIN_LANES) - 1 - BIN_LANES.index(32)
        hubs = backend.device.to_host(rows.order)[rows.groups[warp] : rows.groups[warp + 1]]
        assert hubs.tolist() == [3]


def test_slots_beyond_the_thirty_second_bit_work(backend: Backend) -> None:
    """The rows of a graph of more than 2³² entries begin where 32 bits end."""
    if is_emulated(backend):
        pytest.skip("the emulated device copies its arrays, 17 GB here, at every launch")
    if backend.device.memory_available() < 20 << 30:
        pytest.skip("needs 20 GB of memory, most of it never touched")
    graph, model = DynamicGraph(backend, "uniform"), Model("uniform")
    apply(graph, model, EdgeBatch.of(insert=[(0, 1), (0, 2), (1, 2), (3, 0)]))
    far = 2**32
    for lists in (graph.outgoing, graph.incoming):
        # as if 2³² slots lay before: zeros, which the system provides only when they are touched
        column_indices = backend.xp.zeros(far + 4096, np.int32)
        column_indices[far : far + lists.end] = lists.csr.column_indices[: lists.end]
        lists.csr.row_starts[:] += far
        lists.end += far
        lists.packed += far  # a pool so empty would be packed
        lists.slots = Slots(column_indices)
        lists.extend(graph.vertices)
    for step in range(10):
        insert = [(0, v) for v in range(3, 3 + 3 * step)]
        graph.apply(EdgeBatch.of(insert=insert, delete=[(0, 2), (0, step)]))
        model.apply(EdgeBatch.of(insert=insert, delete=[(0, 2), (0, step)]))
    assert int(graph.outgoing.csr.row_starts[0]) > far
    sources, targets = graph.edge_list()
    assert set(zip(sources.tolist(), targets.tolist(), strict=True)) == model.edges
    entries = backend.rebuild.entries(graph.incoming.csr)
    in_rows, in_entries = map(backend.device.to_host, entries[:2])
    assert set(zip(in_entries.tolist(), in_rows.tolist(), strict=True)) == model.edges
