"""What is true of every graph after every batch."""

from __future__ import annotations

from math import fsum

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.kernels.loader import BIN_LANES, BIN_LIMITS, MISBINNED_FACTOR
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.packed_csr import PackedCsr
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import ALIGNMENT
from liverank_gpu.pagerank.certificate import strength_roundoff
from tests.gpu.graphs import Model, WeightedModel


def check_invariants(graph: DynamicGraph, model: Model) -> None:
    """The graph is the model's, its transpose is the transpose, and all that is kept beside the
    rows agrees with them.
    """
    backend = graph.backend
    assert (graph.vertices, graph.edges) == (model.vertices, len(model.edges))
    assert (graph.ids.limit, graph.ids.free_count) == (model.vertices, len(model.free))
    assert graph.ids.free().tolist() == sorted(model.free)
    assert sorted(graph.permutation.ids_of(graph.free).tolist()) == sorted(model.free)
    loops = {edge for edge in model.edges if edge[0] == edge[1]}
    arcs = model.arcs()
    assert graph.arcs == len(arcs)
    ids = graph.permutation.ids_of(backend.xp.arange(graph.vertices)).tolist()
    assert sorted(ids) == list(range(graph.vertices))
    out_rows = _rows(graph.outgoing, backend)
    in_rows = _rows(graph.incoming, backend)
    entries = {(ids[row], ids[entry]) for row, row_of in enumerate(out_rows) for entry in row_of}
    assert entries == arcs - loops
    entries = {(ids[entry], ids[row]) for row, row_of in enumerate(in_rows) for entry in row_of}
    assert entries == arcs - loops
    loop = backend.device.to_host(graph.loop)
    if graph.dangling == "self-loop":
        assert loop.tolist() == [1] * graph.vertices
    else:
        assert {(ids[v], ids[v]) for v in np.flatnonzero(loop).tolist()} == loops
    if graph.weighted:
        assert isinstance(model, WeightedModel)
        _check_weights(graph, model, ids, loop)
    else:
        degree = backend.device.to_host(graph.outgoing.csr.row_lengths) + loop
        assert backend.device.to_host(graph.degree).tolist() == degree.tolist()
    assert graph.connected == len({v for edge in model.edges - loops for v in edge})
    for lists, rows in ((graph.outgoing, out_rows), (graph.incoming, in_rows)):
        _check_slots(lists, backend)
        assert lists.longest >= max(map(len, rows), default=0)
        _check_groups(lists, backend)
    sources, targets = graph.edge_list()
    assert sorted(zip(sources.tolist(), targets.tolist(), strict=True)) == sorted(model.edges)


def _check_weights(
    graph: DynamicGraph, model: WeightedModel, ids: list[int], loop: NDArray[np.float32]
) -> None:
    """Weights are those of the model in both directions, and strengths their sums."""
    host = graph.backend.device.to_host
    for lists, outgoing in ((graph.outgoing, True), (graph.incoming, False)):
        rows, neighbours, weights = map(host, graph.backend.rebuild.entries(lists.csr))
        found = {
            (ids[row], ids[entry]) if outgoing else (ids[entry], ids[row]): weight
            for row, entry, weight in zip(
                rows.tolist(), neighbours.tolist(), weights.tolist(), strict=True
            )
        }
        of_arc = model.arc_weights()
        assert found == {arc: of_arc[arc] for arc in found}
    if graph.dangling == "uniform":
        loops = {(v, v): weight for v, weight in zip(ids, loop.tolist(), strict=True) if weight}
        assert loops == {edge: w for edge, w in model.weights.items() if edge[0] == edge[1]}
    lengths, strength = host(graph.outgoing.csr.row_lengths), host(graph.degree)
    rows, _, weights = map(host, graph.backend.rebuild.entries(graph.outgoing.csr))
    exact = [fsum([*weights[rows == v].tolist(), float(loop[v])]) for v in range(len(loop))]
    roundoff = strength_roundoff(graph.backend.rebuild.strength_depth(graph.outgoing.longest))
    assert np.allclose(strength, exact, rtol=roundoff, atol=0.0)
    assert ((strength == loop) == (lengths == 0)).all()
    edges = zip(*(column.tolist() for column in graph.edge_list()), strict=True)
    assert dict(zip(edges, graph.edge_weights().tolist(), strict=True)) == model.weights


def _rows(lists: PackedCsr, backend: Backend) -> list[list[int]]:
    starts, lengths, column_indices = map(backend.device.to_host, lists.csr[:3])
    assert len(starts) == len(lengths) == lists.vertices
    rows = [
        column_indices[begin : begin + count].tolist()
        for begin, count in zip(starts.tolist(), lengths.tolist(), strict=True)
    ]
    for vertex, row in enumerate(rows):
        assert len(set(row)) == len(row), f"row {vertex} has an entry twice"
        assert all(0 <= entry < lists.vertices for entry in row), f"row {vertex}: {row}"
    return rows


def _check_slots(lists: PackedCsr, backend: Backend) -> None:
    start, length, column_indices = map(backend.device.to_host, lists.csr[:3])
    capacity = backend.device.to_host(lists.capacities)
    assert (start % ALIGNMENT == 0).all()
    assert (capacity % ALIGNMENT == 0).all()
    assert (length <= capacity).all()
    assert lists.end <= len(column_indices)
    held = np.flatnonzero(capacity)
    held = held[np.argsort(start[held])]
    ends = start[held] + capacity[held]
    assert (ends[:-1] <= start[held][1:]).all(), "rows overlap"
    assert ends.max(initial=0) <= lists.end
    assert lists.packed == int(_tight(length).sum())


def _tight(length: NDArray[np.int32]) -> NDArray[np.int64]:
    return -(-length.astype(np.int64) // ALIGNMENT) * ALIGNMENT


def _check_groups(lists: PackedCsr, backend: Backend) -> None:
    kept = lists.kept_partition
    if kept is None:
        return
    order = backend.device.to_host(kept.order)
    assert sorted(order.tolist()) == list(range(lists.vertices))
    assert (np.diff(kept.groups) >= 0).all()
    assert (kept.groups[0], kept.groups[-1]) == (0, lists.vertices)
    if backend.name != "cuda":
        return
    assert len(kept.groups) == len(BIN_LANES) + 1
    bins = np.repeat(np.arange(len(BIN_LANES))[::-1], np.diff(kept.groups))
    assert backend.device.to_host(lists.degree_bins)[order].tolist() == bins.tolist()
    length = backend.device.to_host(lists.csr.row_lengths)[order]
    longest = np.array([*BIN_LIMITS, 2**31 - 1])
    too_long = length > np.minimum(MISBINNED_FACTOR * longest, 2**31)[bins]
    shortest = np.array([-1, *BIN_LIMITS])
    too_short = length <= np.where(bins > 0, shortest[bins] // MISBINNED_FACTOR, -1)
    assert lists.misbinned == int((too_long | too_short).sum())
