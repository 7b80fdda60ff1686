"""The dynamic graph against a set of edges, on every backend."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal, get_args
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpu import EdgeBatch, Engine, Options, OutOfMemory
from gpu.backends.cuda.kernels.loader import BIN_LANES
from gpu.graph.dynamic_graph import DynamicGraph
from gpu.operations.backend import Backend
from gpu.operations.device import Array
from gpu.operations.rebuild import Slots
from gpu.operations.update import GraphUpdate, UpdateCounts
from gpu.types import Dangling
from tests.gpu.graphs import Model, random_batch
from tests.gpu.invariants import check_invariants

POLICIES: tuple[Dangling, ...] = get_args(Dangling)
COUNTS = (
    "inserted",
    "already_present",
    "deleted",
    "not_found",
    "new_vertices",
    "removed",
    "removed_edges",
)


@contextmanager
def _tiny_pools() -> Iterator[None]:
    """Pools without room to spare: rows move and pools are packed at every turn."""
    with (
        patch("gpu.graph.packed_csr.LEAST_SPARE", 4),
        patch("gpu.graph.packed_csr.SPARE_PART", 1 << 40),
    ):
        yield


def _apply(graph: DynamicGraph, model: Model, batch: EdgeBatch) -> GraphUpdate:
    """Applies to both; the receipt and what the strategies get must be the model's."""
    before, vertices = set(model.edges), model.vertices
    expected, update = model.apply(batch), graph.apply(batch)
    for count in COUNTS:
        assert getattr(update.counts, count) == getattr(expected, count), count
    changes = update.changes
    if changes is None:
        changed, gone = before ^ model.edges, before - model.edges
        _check_superset(graph, update, model.arcs(changed), model.arcs(gone))
        return update
    columns = {
        name: graph.backend.device.to_host(getattr(changes, name)).tolist()
        for name in (
            "sources",
            "old_degree",
            "removed_sources",
            "removed_targets",
            "added_sources",
            "added_targets",
        )
    }
    removed = list(zip(columns["removed_sources"], columns["removed_targets"], strict=True))
    added = list(zip(columns["added_sources"], columns["added_targets"], strict=True))
    assert sorted(removed) == sorted(model.arcs(before - model.edges))
    assert sorted(added) == sorted(model.arcs(model.edges - before))
    assert columns["sources"] == sorted({source for source, _ in removed + added})
    policy = int(graph.dangling == "self-loop")
    out_degree = dict.fromkeys(columns["sources"], policy)
    for source, _ in model.arcs(before):
        if source in out_degree:
            out_degree[source] += 1
    assert columns["old_degree"] == list(out_degree.values())
    assert graph.vertices >= vertices
    assert update.sources is changes.sources
    assert update.removed_targets is changes.removed_targets
    return update


def _check_superset(
    graph: DynamicGraph,
    update: GraphUpdate,
    changed: set[tuple[int, int]],
    gone: set[tuple[int, int]],
) -> None:
    sources = graph.permutation.ids_of(update.sources).tolist()
    assert len(sources) == len(set(sources))
    assert {source for source, _ in changed} <= set(sources)
    assert {target for _, target in gone} <= set(
        graph.permutation.ids_of(update.removed_targets).tolist()
    )


def _any_batch(generator: np.random.Generator, model: Model, removes: bool = False) -> EdgeBatch:
    """One of: a mixed batch, a whole list deleted, a hub, half of all edges deleted, all edges of a
    vertex both ways, a jump in vertices, nothing.
    """
    edges = np.array(sorted(model.edges) or [(0, 0)], np.int64)
    known = max(model.vertices, 1)
    kind = generator.integers(0, 10)
    if kind == 0:
        row = edges[edges[:, 0] == edges[generator.integers(len(edges)), 0]]
        return EdgeBatch(delete_sources=row[:, 0], delete_targets=row[:, 1])
    if kind == 1:
        hub, tips = generator.integers(known), np.arange(generator.integers(1, 40))
        pairs = np.stack([np.full(len(tips), hub), tips])
        sources, targets = pairs if generator.random() < 0.5 else pairs[::-1]
        return EdgeBatch(sources, targets)
    if kind == 2:
        gone = edges[generator.random(len(edges)) < generator.choice([0.5, 1.0])]
        return EdgeBatch(delete_sources=gone[:, 0], delete_targets=gone[:, 1])
    if kind == 3:
        vertex = generator.integers(known)
        gone = edges[(edges == vertex).any(axis=1)]
        new = generator.integers(0, known, (2, generator.integers(0, 30)))
        return EdgeBatch(new[0], new[1], gone[:, 0], gone[:, 1])
    if kind == 4:
        return EdgeBatch(vertices=model.vertices + int(generator.integers(0, 60)))
    return random_batch(generator, model, int(generator.integers(2, 60)), removes)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dangling", POLICIES)
@given(seed=st.integers(0, 2**32 - 1), tiny=st.booleans(), removes=st.booleans())
@settings(max_examples=100, deadline=None, database=None, derandomize=True)
def test_any_stream_of_batches_leaves_the_graph_that_a_set_of_edges_does(
    dangling: Dangling, directed: bool, backend: Backend, seed: int, tiny: bool, removes: bool
) -> None:
    generator = np.random.default_rng(seed)
    graph = DynamicGraph(backend, dangling, directed=directed)
    model = Model(dangling, directed)
    for _ in range(25):
        batch = _any_batch(generator, model, removes)
        if tiny:
            with _tiny_pools():
                _apply(graph, model, batch)
        else:
            _apply(graph, model, batch)
        check_invariants(graph, model)
        if generator.random() < 0.3:
            assert graph.outgoing.partition().count == graph.in_rows().count == graph.vertices


@pytest.mark.parametrize("dangling", POLICIES)
def test_a_load_sorts_a_range_of_rows_at_a_time(dangling: Dangling, backend: Backend) -> None:
    generator = np.random.default_rng(2)
    edges = (5_000 * generator.random((2, 9_000)) ** 3).astype(np.int64)
    edges = np.concatenate([edges, edges[:, :500]], axis=1)
    model = Model(dangling)
    batch = EdgeBatch(edges[0], edges[1], vertices=6_000)
    model.apply(batch)
    pools = []
    for at_once in (1 << 27, 1_000, 1):
        with patch("gpu.graph.packed_csr.LOADED_AT_ONCE", at_once):
            graph = DynamicGraph(backend, dangling)
            _apply(graph, Model(dangling), batch)
        check_invariants(graph, model)
        pools.append(backend.device.to_host(graph.incoming.csr.column_indices).tolist())
    assert pools[0] == pools[1] == pools[2]


@pytest.mark.parametrize("dangling", POLICIES)
def test_a_hub_grows_shrinks_and_moves(dangling: Dangling, backend: Backend) -> None:
    graph, model = DynamicGraph(backend, dangling), Model(dangling)
    generator = np.random.default_rng(3)
    tips = np.arange(3_000)
    hub = np.full(3_000, 7)
    _apply(graph, model, EdgeBatch.of(insert=[(7, 8)]))
    # more operations than one block sorts, and several tiles of every prefix sum
    _apply(graph, model, EdgeBatch(np.append(hub, tips), np.append(tips, hub)))
    check_invariants(graph, model)
    assert graph.outgoing.longest >= 2_999
    for share in (0.001, 0.5, 0.9, 1.0):
        gone = tips[generator.random(3_000) < share]
        new = generator.integers(0, 5_000, (2, 200))
        at = np.full(len(gone), 7)
        _apply(graph, model, EdgeBatch(new[0], new[1], np.append(at, gone), np.append(gone, at)))
        check_invariants(graph, model)
    _apply(graph, model, EdgeBatch(hub, tips))
    check_invariants(graph, model)


def test_a_batch_applied_again_changes_nothing(backend: Backend) -> None:
    graph, model = DynamicGraph(backend, "uniform"), Model("uniform")
    batch = EdgeBatch.of(insert=[(0, 1), (2, 2), (1, 0), (0, 1)], delete=[(4, 4), (3, 0)])
    _apply(graph, model, batch)
    pools = _column_indices(graph)
    again = _apply(graph, model, batch)
    assert again.counts == UpdateCounts(0, 4, 0, 2, 0)
    assert len(again.sources) == 0
    assert _column_indices(graph) == pools


def _column_indices(graph: DynamicGraph) -> list[list[int]]:
    return [
        graph.backend.device.to_host(lists.csr.column_indices).tolist()
        for lists in (graph.outgoing, graph.incoming)
    ]


def test_an_edge_deleted_and_inserted_at_once_counts_as_both_and_stays(backend: Backend) -> None:
    graph, model = DynamicGraph(backend, "uniform"), Model("uniform")
    _apply(graph, model, EdgeBatch.of(insert=[(0, 1), (3, 3)]))
    both = [(0, 1), (3, 3), (2, 1)]
    applied = _apply(graph, model, EdgeBatch.of(insert=both, delete=both))
    counts = applied.counts
    assert (counts.inserted, counts.deleted, counts.not_found) == (3, 2, 1)
    assert graph.backend.device.to_host(applied.sources).tolist() == [2]
    check_invariants(graph, model)


def test_the_loops_of_the_policy_can_be_neither_inserted_nor_deleted(backend: Backend) -> None:
    graph, model = DynamicGraph(backend, "self-loop"), Model("self-loop")
    _apply(graph, model, EdgeBatch.of(insert=[(0, 1)]))
    applied = _apply(graph, model, EdgeBatch.of(insert=[(1, 1), (5, 5)], delete=[(0, 0)]))
    counts = applied.counts
    assert (counts.already_present, counts.not_found, counts.new_vertices) == (2, 1, 4)
    check_invariants(graph, model)
    assert graph.backend.device.to_host(graph.degree).tolist() == [2, 1, 1, 1, 1, 1]


def test_the_same_batches_give_the_same_rows_bit_by_bit(backend: Backend) -> None:
    def pools() -> list[list[int]]:
        generator, model = np.random.default_rng(4), Model("uniform")
        graph = DynamicGraph(backend, "uniform")
        with _tiny_pools():
            for _ in range(30):
                _apply(graph, model, _any_batch(generator, model))
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
        _apply(graph, model, EdgeBatch(np.append(tips, tips * 0), np.append(tips * 0, tips)))
        with _tiny_pools():
            for _ in range(12):
                _apply(graph, model, _any_batch(generator, model))
            _apply(graph, model, EdgeBatch(tips, tips + 1, tips * 0, tips))
        check_invariants(graph, model)
        return [
            np.concatenate([lists.csr.column_indices[: lists.end], lists.csr.row_starts]).tolist()
            for lists in (graph.outgoing, graph.incoming)
        ]

    assert pools("forward") == pools("shuffled")


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
        for count in COUNTS:
            assert getattr(applied.counts, count) == getattr(expected, count), count
        check_invariants(graph, model)


def test_rows_change_their_group_only_when_they_stray_far(backend: Backend) -> None:
    graph, model = DynamicGraph(backend, "uniform"), Model("uniform")
    _apply(graph, model, EdgeBatch(np.arange(999), np.arange(1, 1000)))
    groups = graph.outgoing.partition().groups
    # two more edges at a few vertices: nothing that a sweep would feel
    _apply(graph, model, EdgeBatch.of(insert=[(v, v + 2) for v in range(5)]))
    assert graph.outgoing.partition().groups is groups
    _apply(graph, model, EdgeBatch(vertices=1005))
    assert graph.outgoing.partition().groups.tolist()[-1] == 1005
    check_invariants(graph, model)
    # a hub that one thread would work on alone; a warp does
    hub = np.full(900, 3)
    _apply(graph, model, EdgeBatch(hub, np.arange(900)))
    rows = graph.outgoing.partition()
    assert rows.groups is not groups
    check_invariants(graph, model)
    if backend.name == "cuda":
        warp = len(BIN_LANES) - 1 - BIN_LANES.index(32)
        hubs = backend.device.to_host(rows.order)[rows.groups[warp] : rows.groups[warp + 1]]
        assert hubs.tolist() == [3]


class _Refusal:
    """An allocator that refuses its n-th allocation."""

    def __init__(self, backend: Backend, refused: int) -> None:
        self.allocate = backend.device.allocate
        self.refused = refused
        self.asked = 0

    def __call__(self, purpose: str, count: int, dtype: type[np.generic]) -> Array:
        self.asked += 1
        if self.asked == self.refused:
            raise OutOfMemory(purpose, count, 0)
        return self.allocate(purpose, count, dtype)


def _arrays(graph: DynamicGraph) -> list[Any]:
    """All that a batch may change, on the host."""
    graph_arrays = [graph.loop, graph.degree]
    for lists in (graph.outgoing, graph.incoming):
        graph_arrays += [*lists.csr[:3], lists.capacities]
    return [graph.backend.device.to_host(array).tolist() for array in graph_arrays]


@pytest.mark.parametrize("loads", [True, False])
def test_each_allocation_that_fails_leaves_the_graph_as_it_was(
    loads: bool, backend: Backend
) -> None:
    for refused in range(1, 100):
        generator = np.random.default_rng(8)
        graph, model = DynamicGraph(backend, "uniform"), Model("uniform")
        if not loads:
            with _tiny_pools():
                _apply(graph, model, random_batch(generator, model, 60))
            graph._workspaces._kept = None
        # a batch that grows everything: scratch, vertices, both pools
        tips = np.arange(100)
        batch = EdgeBatch(np.full(100, 1), tips, tips[:3], tips[:3], 200)
        refusal = _Refusal(backend, refused)
        with _tiny_pools(), patch.object(backend.device, "allocate", refusal):
            try:
                graph.apply(batch)
            except OutOfMemory:
                check_invariants(graph, model)
            else:
                break
        _apply(graph, model, batch)
        check_invariants(graph, model)
    assert refusal.asked == refused - 1
    assert refused > (18 if loads else 26)


def test_what_cannot_fit_is_refused_with_figures_before_anything_is_touched(
    backend: Backend,
) -> None:
    graph, model = DynamicGraph(backend, "uniform"), Model("uniform")
    _apply(graph, model, EdgeBatch.of(insert=[(0, 1), (1, 2)]))
    before = _arrays(graph)
    with (
        patch.object(type(backend.device), "memory_available", lambda _: 1 << 30),
        pytest.raises(OutOfMemory) as raised,
    ):
        graph.apply(EdgeBatch(vertices=2**30))
    assert raised.value.available == 1 << 30
    assert raised.value.needed == graph.bytes_needed(0, 2**30) > 39 * 2**30
    assert "1,073,741,824 vertices" in str(raised.value)
    assert _arrays(graph) == before


def test_memory_for_a_batch_and_its_solve_can_be_asked_for_beforehand(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
    engine.update()
    before = engine.memory()
    with patch.object(type(backend.device), "memory_available", lambda _: 1 << 30):
        engine.check_memory(1_000, 1_000_000)
        with pytest.raises(OutOfMemory) as raised:
            engine.check_memory(40_000_000, 3)
        # columns, both pools and one to cut to size, keys and the sort's copy of them
        assert raised.value.needed > 40_000_000 * (8 + 3 * 4 + 16)
        assert str(raised.value) == (
            "a batch of 40,000,000 edges and a graph of 3 vertices needs "
            f"{raised.value.needed:,} bytes; 1,073,741,824 are available"
        )
        with pytest.raises(OutOfMemory) as raised:
            engine.check_memory(0, 2**24)
        # lists and ranks of each vertex, and the room that they grow by
        assert raised.value.needed > 2**24 * (2 * 21 + 5 + 21 + 28 + 8)
        graph, iterate = engine.internals.graph, engine.internals.iterate
        of_both = graph.bytes_needed(0, 2**24) + iterate.bytes_needed(2**24)
        assert raised.value.needed == of_both + 8 * 2**24  # published ranks
        with pytest.raises(OutOfMemory):
            engine.apply(EdgeBatch(vertices=2**24))
    assert engine.memory() == before
    assert (engine.vertices, engine.edges) == (3, 2)


@pytest.mark.parametrize("vertices", [20_000, 100_000])
def test_what_a_batch_and_its_solve_take_is_no_more_than_was_said(
    vertices: int, backend: Backend
) -> None:
    generator = np.random.default_rng(2)
    engine = Engine(Options(), backend)
    for size in (100_000, 25_000):
        ids = generator.integers(0, vertices, (2, size))
        held = sum(engine.memory().values())
        with patch.object(type(backend.device), "require") as require:
            engine.check_memory(size, vertices)
        _, needed, _ = require.call_args.args
        engine.apply(EdgeBatch(ids[0], ids[1], vertices=vertices))
        engine.update()
        assert 0 < sum(engine.memory().values()) - held <= needed
        vertices = 2 * vertices


def test_memory_is_told_by_purpose(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch(np.arange(1000), np.arange(1, 1001)))
    engine.apply(EdgeBatch.of(insert=[(5, 3)]))
    memory = engine.memory()
    assert memory["out-lists"] == memory["in-lists"] == 1000 * 4 * 4
    assert memory["slack"] > 0
    assert memory["vertices"] == 1001 * (2 * 21 + 5)
    assert memory["scratch"] > 1024 * 93 * 2


def test_slots_beyond_the_thirty_second_bit_work(backend: Backend) -> None:
    """The rows of a graph of more than 2³² entries begin where 32 bits end."""
    if backend.name == "cuda" and backend.xp is np:
        pytest.skip("the emulated device copies its arrays, 17 GB here, at every launch")
    if backend.device.memory_available() < 20 << 30:
        pytest.skip("needs 20 GB of memory, most of it never touched")
    graph, model = DynamicGraph(backend, "uniform"), Model("uniform")
    _apply(graph, model, EdgeBatch.of(insert=[(0, 1), (0, 2), (1, 2), (3, 0)]))
    far = 2**32
    for lists in (graph.outgoing, graph.incoming):
        # as if 2³² slots lay before: zeros, which the system provides only when they are touched
        column_indices = backend.xp.zeros(far + 4096, np.int32)
        column_indices[far : far + lists.end] = lists.csr.column_indices[: lists.end]
        lists.csr.row_starts[:] += far
        lists.end += far
        lists._slots = Slots(column_indices)
        lists._update_views()
    with patch("gpu.graph.packed_csr.LEAST_SPARE", far):  # a pool so empty would be packed
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
