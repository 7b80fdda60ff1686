"""Memory of a dynamic graph: what is refused, what fails and what is told."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options, OutOfMemory
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import VertexOrder
from tests.gpu.doubles import looked_after
from tests.gpu.graph.model import apply
from tests.gpu.graphs import Model, is_slow, random_batch
from tests.gpu.invariants import check_invariants


def _arrays(graph: DynamicGraph) -> list[Any]:
    """All that a batch may change, on the host."""
    graph_arrays = [graph.loop, graph.degree]
    for lists in (graph.outgoing, graph.incoming):
        graph_arrays += [*lists.csr[:3], lists.capacities]
    return [graph.backend.device.to_host(array).tolist() for array in graph_arrays]


@pytest.mark.parametrize("kind", ["load", "ordered load", "batch", "rebuild"])
def test_each_allocation_that_fails_leaves_the_graph_as_it_was(kind: str, backend: Backend) -> None:
    backend, device = looked_after(backend)
    for refused in range(1, 100):
        generator = np.random.default_rng(8)
        order: VertexOrder = "degree" if kind == "ordered load" else "auto"
        graph, model, rebuilds = DynamicGraph(backend, "uniform", order), Model("uniform"), False
        apply(graph, model, EdgeBatch(vertices=3))
        # a batch that grows everything: scratch, vertices, both pools
        tips = np.arange(1_500)
        batch = EdgeBatch(np.full(1_500, 1), tips, tips[:3], tips[:3], 3_000)
        if "load" not in kind:
            apply(graph, model, random_batch(generator, model, 60))
        if kind == "rebuild":
            batch, rebuilds = random_batch(generator, model, 60, removes=True), True
        with device.refusing(refused) as refusal:
            try:
                graph.apply(batch, rebuilds)
            except OutOfMemory:
                check_invariants(graph, model)
                assert "load" not in kind or graph.permutation.is_identity
            else:
                break
        apply(graph, model, batch, rebuilds)
        check_invariants(graph, model)
    assert refusal.asked == refused - 1
    assert refused > (26 if kind == "batch" else 18)


def test_what_cannot_fit_is_refused_with_figures_before_anything_is_touched(
    backend: Backend,
) -> None:
    backend, device = looked_after(backend)
    graph, model = DynamicGraph(backend, "uniform"), Model("uniform")
    apply(graph, model, EdgeBatch.of(insert=[(0, 1), (1, 2)]))
    before = _arrays(graph)
    with device.with_only(1 << 30), pytest.raises(OutOfMemory) as raised:
        graph.apply(EdgeBatch(vertices=2**30))
    assert raised.value.available == 1 << 30
    assert raised.value.needed == graph.bytes_needed(0, 2**30) > 39 * 2**30
    assert "1,073,741,824 vertices" in str(raised.value)
    assert _arrays(graph) == before


def test_memory_for_a_batch_and_its_solve_can_be_asked_for_beforehand(backend: Backend) -> None:
    backend, device = looked_after(backend)
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
    engine.update()
    before = engine.memory()
    with device.with_only(1 << 30):
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
    backend, device = looked_after(backend)
    engine = Engine(Options(), backend)
    sizes = (100_000, 25_000)
    if is_slow(backend):
        vertices //= 5
        sizes = (20_000, 5_000)
    for size in sizes:
        ids = generator.integers(0, vertices, (2, size))
        held = sum(engine.memory().values())
        engine.check_memory(size, vertices)
        needed = device.required
        engine.apply(EdgeBatch(ids[0], ids[1], vertices=vertices))
        engine.update()
        assert 0 < sum(engine.memory().values()) - held <= needed
        vertices = 2 * vertices


def test_lists_without_room_for_a_batch_need_memory_for_new_ones(backend: Backend) -> None:
    graph = DynamicGraph(backend, "uniform")
    sources, targets = np.random.default_rng(1).integers(0, 2_000, (2, 20_000))
    graph.apply(EdgeBatch(sources, targets))
    one, some = (graph.bytes_needed(count, graph.vertices) for count in (1, 500))
    assert some - one > 4 * graph.arcs


def test_lists_that_are_mostly_gaps_are_packed(backend: Backend) -> None:
    graph, count = DynamicGraph(backend, "uniform"), 20_000
    batch = EdgeBatch(*np.random.default_rng(1).integers(0, 2_000, (2, count)))
    graph.apply(batch)
    slots = [sum(lists.memory()[:2]) for lists in (graph.outgoing, graph.incoming)]
    for first in range(0, count * 7 // 8, 250):
        gone = slice(first, first + 250)
        ends = batch.insert_sources[gone], batch.insert_targets[gone]
        graph.apply(EdgeBatch(delete_sources=ends[0], delete_targets=ends[1]))
    for before, lists in zip(slots, (graph.outgoing, graph.incoming), strict=True):
        packed, rest, _ = lists.memory()
        assert packed + rest < before / 2


def test_memory_is_told_by_purpose(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch(np.arange(1000), np.arange(1, 1001)))
    engine.apply(EdgeBatch.of(insert=[(5, 3)]))
    memory = engine.memory()
    assert memory["out-lists"] == memory["in-lists"] == 1000 * 4 * 4
    assert memory["slack"] > 0
    assert memory["vertices"] == 1001 * (2 * 21 + 5)
    assert memory["scratch"] > 1024 * 93 * 2


def test_the_scratch_of_a_large_batch_is_there_for_the_next_one_until_they_are_ranked() -> None:
    engine = Engine(Options(), "cpu")
    engine.apply(EdgeBatch.of(insert=[(0, 1)]))
    scratch = engine.memory()["scratch"]
    for seed in range(2):
        ids = np.random.default_rng(seed).integers(0, 50_000, (2, 150_000))
        engine.apply(EdgeBatch(*ids))
        assert engine.memory()["scratch"] > 150_000 * 93 * 2
    engine.update()
    assert engine.memory()["scratch"] == scratch
