"""The dynamic graph in the stream of benchmarks.sanitize.

It loads ranges of rows in either vertex order, is rebuilt by a batch, grows and empties a hub,
loses vertices, moves rows and packs them into arrays without spare slots; with and without weights,
directions and decay. Its edges are compared with those on another backend.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Options
from liverank_gpu.engine import Group
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend

STREAMED = (
    Options(vertex_order="given"),
    Options(vertex_order="degree", directed=False),
    Options(vertex_order="degree", dangling="self-loop", weighted=True),
    Options(vertex_order="given", half_life=1.0, directed=False),
)
"""Kinds of graphs that a stream changes."""

NO_EDGES = np.empty((2, 0), np.int64)

LOADED_AT_ONCE, REBUILT_BY = 1000, 4000
"""Edges of a range, and operations above which a batch rebuilds the graph: a small graph has all
cases of a large one then.
"""


def small_limits() -> ExitStack:
    """A context in which small graphs are treated as large ones are."""

    def is_rebuilt_by(graph: DynamicGraph, operations: int) -> bool:
        return operations > (REBUILT_BY if graph.edges else 0)

    stack = ExitStack()
    for name, value in (
        ("packed_csr.LOADED_AT_ONCE", LOADED_AT_ONCE),
        ("packed_csr.LEAST_SPARE", 4),
        ("packed_csr.SPARE_PART", 1 << 40),
        ("dynamic_graph.DynamicGraph.is_rebuilt_by", is_rebuilt_by),
    ):
        stack.enter_context(patch(f"liverank_gpu.graph.{name}", value))
    return stack


def batch_of(
    options: Options,
    time: int,
    insert: NDArray[np.int64],
    delete: NDArray[np.int64] = NO_EDGES,
    **others: Any,
) -> EdgeBatch:
    """A batch with the columns that such a graph takes.

    time            in half-lives
    insert, delete  int64[2, …], sources and targets
    """
    sources, targets = insert
    weights: Any
    times: Any
    # sums of these are exact in any order
    weights = (1 + (sources + targets + time) % 8) / 4 if options.weighted else None
    times = options.half_life * (time + sources % 3) if options.half_life else None
    columns = (sources, targets, delete[0], delete[1])
    return EdgeBatch(*columns, weights=weights, times=times, **others)


def stream(backend: Backend, options: Options) -> list[list[tuple[int, int, float]]]:
    """The edges after each of the batches, sorted, with their weights."""
    generator = np.random.default_rng(5)
    graph = Group().graph(backend, options)
    states = []
    with small_limits():
        edges = (800 * generator.random((2, 6000)) ** 3).astype(np.int64)
        graph.apply(batch_of(options, 0, edges))
        for step, size in enumerate((10, 300, 5000, 40)):
            new = generator.integers(0, 900, (2, size))
            hub = np.full(size, 7)
            gone = edges[:, generator.integers(0, 6000, size)]
            removed = generator.integers(0, 1000, 9)
            to_hub, from_hub = np.stack([new[0], hub]), np.stack([hub, new[1]])
            on_conflict = "add" if options.weighted else "replace"
            batches: tuple[tuple[Any, dict[str, Any]], ...] = (
                ((new, gone), {}),
                ((from_hub, to_hub), {"on_conflict": on_conflict}),
                ((to_hub, from_hub), {"remove": removed, "vertices": 1000 + size}),
            )
            for place, (columns, others) in enumerate(batches):
                # edges expire after 100 half-lives
                graph.apply(batch_of(options, 90 * step + 20 * place, *columns, **others))
            assert graph.outgoing.partition().count == graph.in_rows().count == graph.vertices
            listed = (*graph.edge_list(), graph.edge_weights())
            states.append(sorted(zip(*(column.tolist() for column in listed), strict=True)))
    return states


def wide_columns(backend: Backend, weighted: bool) -> None:
    """Loads and rebuilds from 64-bit ids that are on the device already."""
    graph = DynamicGraph(backend, "uniform", weighted=weighted)
    columns = backend.xp.asarray(np.random.default_rng(7).integers(0, 500, (2, 2000)))
    weights = backend.xp.ones(2000, np.float32) if weighted else None
    with small_limits():
        graph.apply(EdgeBatch(columns[0], columns[1], weights=weights))
    graph.apply(EdgeBatch(columns[1], columns[0], weights=weights))


def same_edges(backend: Backend, reference: Backend) -> None:
    """Asserts that both backends have the same edges after every batch."""
    for options in STREAMED:
        assert stream(backend, options) == stream(reference, options), options
    for weighted in (False, True):
        wide_columns(backend, weighted)
