"""Compiles the kernels that graphs need."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.vertices import cache_lines_per_edge
from liverank_gpu.operations.backend import Backend, PageRule
from liverank_gpu.types import Dangling, EdgeBatch, Options, VertexOrder

SAMPLE_VERTICES = (4, 1 << 15)
"""Of a small and of a large graph, which run different kernels."""


def sample_batches(options: Options) -> Iterator[tuple[EdgeBatch, EdgeBatch]]:
    """The edges of a small and of a large graph, and a batch that changes many of its vertices. The
    edges are v → 2v and v → 2v+1, so that every vertex is near every other.
    """
    for vertices in SAMPLE_VERTICES:
        sources = np.repeat(np.arange(vertices, dtype=np.int64), 2)
        edges = EdgeBatch(sources, np.arange(2 * vertices) % vertices)
        changes = EdgeBatch(sources, np.full_like(sources, 1))
        yield dated(options, edges), dated(options, changes)


def warm_up(backend: Backend, dangling: Dangling, weighted: bool) -> None:
    """Runs every kernel that changes graphs of this kind."""
    # small and large batches run different kernels: load a graph, move its rows, leave holes, pack
    # it, and rebuild it; permuted and not
    orders: tuple[VertexOrder, ...] = ("given", "degree")
    for order in orders:
        for count, rows in ((900, 200), (20_000, 6_000)):
            graph, targets = DynamicGraph(backend, dangling, order, weighted), np.arange(count)
            sources = targets % rows
            graph.apply(EdgeBatch(sources, targets))
            graph.apply(EdgeBatch(sources, targets + 1))
            hole = slice(rows, 2 * rows)
            graph.apply(EdgeBatch(delete_sources=sources[hole], delete_targets=targets[hole]))
            graph.apply(EdgeBatch(delete_sources=sources, delete_targets=targets + 1))
            graph.apply(EdgeBatch(targets, sources, sources, targets), rebuilds=True)
            graph.edge_list()
            columns = backend.graph.columns(sources, targets)
            lengths = graph.incoming.csr.row_lengths
            cache_lines_per_edge(backend, graph.permutation, *columns, lengths)
    warm_up_pages(backend, dangling, weighted)


def warm_up_pages(backend: Backend, dangling: Dangling, weighted: bool) -> None:
    """Builds pages as for a large graph, if the backend can have them, and has them follow two
    batches at once.
    """
    if backend.pages is None:
        return
    costs = replace(backend.costs, pages=PageRule(1, 0.0, 0.0))
    graph = DynamicGraph(replace(backend, costs=costs), dangling, weighted=weighted)
    vertices = np.arange(900)
    for batch in (EdgeBatch(vertices, vertices + 1), EdgeBatch(vertices, vertices + 2)):
        graph.apply(batch)  # pages are built after a batch to a graph with edges
        graph.sweep_view(1.0)
    for batch in (EdgeBatch(vertices, vertices + 3), EdgeBatch(vertices, vertices + 1)):
        graph.apply(batch)
    graph.in_pages.catch_up()


def dated(options: Options, batch: EdgeBatch, time: float = 0.0) -> EdgeBatch:
    """The batch, of this time if weights decay."""
    if not options.decays:
        return batch
    return replace(batch, times=np.full(len(batch.insert_sources), time))
