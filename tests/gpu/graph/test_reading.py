"""Reading edges while the graph changes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Any, get_args

import numpy as np
import pytest

from liverank_gpu import (
    CapturedEdges,
    DeviceLost,
    EdgeBatch,
    EdgeReader,
    Engine,
    InvalidValue,
    Options,
    OutOfMemory,
    StagingBuffer,
)
from liverank_gpu.graph.reading import BLOCK_EDGES
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Dangling
from tests.cuda_emulator.emulated import emulated_backend
from tests.gpu.doubles import looked_after
from tests.gpu.graphs import Model, random_batch

Weighted = dict[tuple[int, int], float]


def engine_of(
    backend: Backend, dangling: Dangling, weighted: bool, directed: bool = True
) -> tuple[Engine, Weighted]:
    """An engine after a few batches, some vertices removed, and its edges with their weights."""
    generator = np.random.default_rng(11)
    options = Options(dangling=dangling, weighted=weighted, directed=directed)
    engine, model = Engine(options, backend), Model(dangling, directed)
    for step in range(4):
        batch = random_batch(generator, model, 300, removes=not directed and step == 3)
        model.apply(batch)
        engine.apply(batch)
    pairs = np.array(sorted(model.edges))
    weights = np.ones(len(pairs), np.float32)
    if weighted:
        weights = generator.uniform(0.5, 2.0, len(pairs)).astype(np.float32)
        engine.apply(EdgeBatch(pairs[:, 0], pairs[:, 1], weights=weights))
    # a reordered graph, and vertices without edges at the end
    engine.apply(EdgeBatch.of(vertices=engine.vertices + 3))
    edges = {(int(u), int(v)): float(w) for (u, v), w in zip(pairs, weights, strict=True)}
    return engine, edges


def edges_of(captured: CapturedEdges) -> Weighted:
    found = {}
    for block in captured.blocks():
        weights = np.ones(len(block.sources)) if block.weights is None else block.weights
        for u, v, w in zip(block.sources, block.targets, weights, strict=True):
            assert (int(u), int(v)) not in found
            found[int(u), int(v)] = float(w)
    return found


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dangling", get_args(Dangling))
def test_a_capture_has_the_edges_of_its_moment(
    backend: Backend, dangling: Dangling, weighted: bool, directed: bool
) -> None:
    engine, edges = engine_of(backend, dangling, weighted, directed)
    buffer = engine.edge_reader.buffer()
    captured = engine.edge_reader.capture(buffer)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (2, 1), (400, 3)], delete=sorted(edges)[::2]))
    assert edges_of(captured) == edges
    assert captured.edges == len(edges)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_capture_is_read_by_blocks_of_whole_rows(backend: Backend, weighted: bool) -> None:
    engine = Engine(Options(weighted=weighted, vertex_order="given"), backend)
    # a row of more edges than a block has, between many that are short
    sources = np.repeat(np.arange(3 * BLOCK_EDGES // 8), 4)
    targets = (sources * 7 + np.tile([1, 2, 3, 4], len(sources) // 4)) % (2 * BLOCK_EDGES)
    tips = np.arange(5, 5 + BLOCK_EDGES + 1)
    sources, targets = np.append(sources, tips * 0), np.append(targets, tips)
    sent = np.unique(sources << 32 | targets)
    engine.apply(EdgeBatch(sources, targets))
    reader = engine.edge_reader
    blocks = list(reader.capture(reader.buffer()).blocks())
    assert len(blocks) >= 3
    assert max(len(np.unique(each.sources)) for each in blocks[1:]) > 1
    found = [each.sources << 32 | each.targets for each in blocks]
    assert np.array_equal(np.sort(np.concatenate(found)), sent)
    rows = np.concatenate([np.unique(each.sources) for each in blocks])
    assert len(np.unique(rows)) == len(rows)


def test_a_buffer_may_be_older_than_many_batches(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    buffer = engine.edge_reader.buffer()
    edges = [(u, (u * 7 + 1) % 500) for u in range(500)]
    engine.apply(EdgeBatch.of(edges))
    assert set(edges_of(engine.edge_reader.capture(buffer))) == set(edges)


def test_an_empty_graph_has_no_edges(backend: Backend) -> None:
    reader = Engine(Options(), backend).edge_reader
    assert edges_of(reader.capture(reader.buffer())) == {}


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dangling", get_args(Dangling))
def test_neighbours_are_those_of_the_graph_in_both_directions(
    backend: Backend, dangling: Dangling, weighted: bool
) -> None:
    engine, edges = engine_of(backend, dangling, weighted)
    out: dict[int, Weighted] = defaultdict(dict)
    for (source, target), weight in edges.items():
        out[source][source, target] = weight
    into: dict[int, Weighted] = defaultdict(dict)
    for (source, target), weight in edges.items():
        into[target][source, target] = weight
    for vertex in range(engine.vertices):
        for direction, expected in (("out", out[vertex]), ("in", into[vertex])):
            found = engine.edge_reader.neighbours(vertex, direction, 10_000)  # type: ignore[arg-type]
            ends = [
                (vertex, each) if direction == "out" else (each, vertex)
                for each in found.ids.tolist()
            ]
            weights = [1.0] * len(ends) if found.weights is None else found.weights.tolist()
            assert dict(zip(ends, weights, strict=True)) == expected
            assert found.degree == len(ends) == len(expected)
            assert (found.weights is not None) == weighted
            few = engine.edge_reader.neighbours(vertex, direction, 2)  # type: ignore[arg-type]
            assert few.degree == len(expected)
            assert len(few.ids) == min(2, len(expected))
            assert set(few.ids) <= set(found.ids)


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dangling", get_args(Dangling))
def test_the_edges_among_vertices_are_those_of_the_graph(
    backend: Backend, dangling: Dangling, weighted: bool, directed: bool
) -> None:
    engine, edges = engine_of(backend, dangling, weighted, directed)
    chosen = np.random.default_rng(3).permutation(engine.vertices)[: engine.vertices // 2]
    block = engine.edge_reader.out_edges(chosen, 1 << 20).within(chosen)
    weights = np.ones(len(block.sources)) if block.weights is None else block.weights
    found = {
        (u, v): w
        for u, v, w in zip(
            block.sources.tolist(), block.targets.tolist(), weights.tolist(), strict=True
        )
    }
    members = set(chosen.tolist())
    assert found == {edge: w for edge, w in edges.items() if set(edge) <= members}
    assert len(block.sources) == len(found)


def test_too_many_out_edges_are_refused(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of([(0, each) for each in range(1, 99)] + [(1, 1)]))
    ids = np.array([0, 1, 2])
    with pytest.raises(InvalidValue, match="at most 98 out-edges together, these have 99;"):
        engine.edge_reader.out_edges(ids, 98)
    assert len(engine.edge_reader.out_edges(ids, 99).sources) == 99


def test_a_copy_that_does_not_fit_is_refused(backend: Backend) -> None:
    backend, device = looked_after(backend)
    engine = Engine(Options(), backend)
    sources = np.repeat(np.arange(1 << 14), 8)
    engine.apply(EdgeBatch(sources, np.arange(len(sources)) % (1 << 14)))
    with device.with_only(1 << 14), pytest.raises(OutOfMemory, match="a copy of the edges"):
        engine.edge_reader.buffer()


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dangling", get_args(Dangling))
def test_vertices_are_isolated_without_an_edge_in_either_direction(
    backend: Backend, dangling: Dangling, directed: bool
) -> None:
    engine, edges = engine_of(backend, dangling, weighted=False, directed=directed)
    batch = EdgeBatch.of(insert=[(0, 1), (2, 2)], delete=[e for e in edges if {0, 1, 2} & set(e)])
    engine.apply(batch)
    present = set(zip(*(column.tolist() for column in engine.edge_list()), strict=True))
    vertices = np.setdiff1d(np.arange(engine.id_limit), engine.free_ids())
    found = engine.edge_reader.are_isolated(vertices)
    ends = {end for edge in present for end in edge}
    assert found.dtype == np.bool_
    assert found.tolist() == [int(vertex) not in ends for vertex in vertices]
    assert found.sum() >= 3
    assert found[:3].tolist() == [False, False, dangling == "self-loop"]
    assert engine.edge_reader.are_isolated(vertices[:0]).tolist() == []


class IllegalAddress(RuntimeError):
    """As CUDARuntimeError of CuPy."""

    status = 700


Step = Callable[[EdgeReader, StagingBuffer, CapturedEdges], Any]

STEPS: dict[str, Step] = {
    "capture": lambda reader, buffer, _: reader.capture(buffer),
    "blocks": lambda _, __, captured: list(captured.blocks()),
    "neighbours": lambda reader, _, __: reader.neighbours(0, "out", 5),
    "out_edges": lambda reader, _, __: reader.out_edges(np.array([0, 1]), 50),
}


@pytest.mark.parametrize("step", STEPS)
def test_a_device_that_is_lost_while_edges_are_read_is_told(step: str) -> None:
    backend, device = looked_after(emulated_backend())
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
    reader = engine.edge_reader
    buffer = reader.buffer()
    captured = reader.capture(buffer)
    error = IllegalAddress("an illegal memory access was encountered")

    def lost(*_: object) -> None:
        raise error

    device.copying = device.waiting = lost
    with pytest.raises(DeviceLost, match="illegal memory access"):
        STEPS[step](reader, buffer, captured)
