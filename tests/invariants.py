"""What is true of every graph after every batch."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from gpu.adjacency import ALIGNMENT, Adjacency
from gpu.backends.base import Backend
from gpu.graph import Graph
from gpu.kernels import LANES, LONGEST, STRAY
from tests.graphs import Model


def check_invariants(graph: Graph, model: Model) -> None:
    """The graph is the model's, its transpose is the transpose, and all that is kept beside the
    rows agrees with them.
    """
    backend = graph.backend
    assert (graph.vertices, graph.edges) == (model.vertices, len(model.edges))
    loops = {edge for edge in model.edges if edge[0] == edge[1]}
    ids = graph.numbering.ids_of(backend.xp.arange(graph.vertices)).tolist()
    assert sorted(ids) == list(range(graph.vertices))
    out_rows = _rows(graph.outgoing, backend)
    in_rows = _rows(graph.incoming, backend)
    entries = {(ids[row], ids[entry]) for row, row_of in enumerate(out_rows) for entry in row_of}
    assert entries == model.edges - loops
    entries = {(ids[entry], ids[row]) for row, row_of in enumerate(in_rows) for entry in row_of}
    assert entries == model.edges - loops
    loop = backend.to_host(graph.loop)
    if graph.dangling == "self-loop":
        assert loop.tolist() == [1] * graph.vertices
    else:
        assert {(ids[v], ids[v]) for v in np.flatnonzero(loop).tolist()} == loops
    degree = backend.to_host(graph.outgoing.length) + loop
    assert backend.to_host(graph.degree).tolist() == degree.tolist()
    assert graph.connected == len({v for edge in model.edges - loops for v in edge})
    for adjacency, rows in ((graph.outgoing, out_rows), (graph.incoming, in_rows)):
        _check_places(adjacency, backend)
        assert adjacency.longest >= max(map(len, rows), default=0)
        _check_groups(adjacency, backend)
    sources, targets = graph.edge_list()
    assert sorted(zip(sources.tolist(), targets.tolist(), strict=True)) == sorted(model.edges)


def _rows(adjacency: Adjacency, backend: Backend) -> list[list[int]]:
    pool = backend.to_host(adjacency.pool)
    start, length = backend.to_host(adjacency.start), backend.to_host(adjacency.length)
    assert len(start) == len(length) == adjacency.vertices
    rows = [
        pool[begin : begin + count].tolist()
        for begin, count in zip(start.tolist(), length.tolist(), strict=True)
    ]
    for vertex, row in enumerate(rows):
        assert len(set(row)) == len(row), f"row {vertex} has an entry twice"
        assert all(0 <= entry < adjacency.vertices for entry in row), f"row {vertex}: {row}"
    return rows


def _check_places(adjacency: Adjacency, backend: Backend) -> None:
    start, capacity = backend.to_host(adjacency.start), backend.to_host(adjacency.capacity)
    length = backend.to_host(adjacency.length)
    assert (start % ALIGNMENT == 0).all()
    assert (capacity % ALIGNMENT == 0).all()
    assert (length <= capacity).all()
    assert adjacency.end <= len(adjacency.pool)
    held = np.flatnonzero(capacity)
    held = held[np.argsort(start[held])]
    ends = start[held] + capacity[held]
    assert (ends[:-1] <= start[held][1:]).all(), "places overlap"
    assert ends.max(initial=0) <= adjacency.end
    assert adjacency.packed == int(_tight(length).sum())


def _tight(length: NDArray[np.int32]) -> NDArray[np.int64]:
    return -(-length.astype(np.int64) // ALIGNMENT) * ALIGNMENT


def _check_groups(adjacency: Adjacency, backend: Backend) -> None:
    kept = adjacency._rows
    order = backend.to_host(kept.order)
    assert sorted(order.tolist()) == list(range(adjacency.vertices))
    assert (np.diff(kept.groups) >= 0).all()
    assert (kept.groups[0], kept.groups[-1]) == (0, adjacency.vertices)
    if backend.name != "cuda" or not adjacency._partitioned:
        return
    assert len(kept.groups) == len(LANES) + 1
    classes = np.repeat(np.arange(len(LANES))[::-1], np.diff(kept.groups))
    assert backend.to_host(adjacency.classes)[order].tolist() == classes.tolist()
    length = backend.to_host(adjacency.length)[order]
    longest = np.array([*LONGEST, 2**31 - 1])
    too_long = length > np.minimum(STRAY * longest, 2**31)[classes]
    shortest = np.array([-1, *LONGEST])
    too_short = length <= np.where(classes > 0, shortest[classes] // STRAY, -1)
    assert adjacency.strayed == int((too_long | too_short).sum())
