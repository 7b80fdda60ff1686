"""A graph and its model, changed by the same batches and compared."""

from __future__ import annotations

from liverank_gpu import EdgeBatch
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.graph import GraphUpdate
from tests.gpu.graphs import Model

COUNTS = (
    "inserted",
    "already_present",
    "deleted",
    "not_found",
    "new_vertices",
    "removed",
    "removed_edges",
)


def apply(
    graph: DynamicGraph, model: Model, batch: EdgeBatch, rebuilds: bool = False
) -> GraphUpdate:
    """Applies to both; the receipt and what the strategies get must be the model's."""
    before, vertices = set(model.edges), model.vertices
    expected, update = model.apply(batch), graph.apply(batch, rebuilds)
    for count in COUNTS:
        assert getattr(update.counts, count) == getattr(expected, count), count
    changes = update.changes
    if changes is None:
        changed, gone = before ^ model.edges, before - model.edges
        _check_superset(graph, update, model.arcs(changed), model.arcs(gone))
        return update
    columns = {
        name: graph.permutation.ids_of(getattr(changes, name)).tolist()
        for name in (
            "sources",
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
    assert sorted(columns["sources"]) == sorted({source for source, _ in removed + added})
    policy = int(graph.dangling == "self-loop")
    out_degree = dict.fromkeys(columns["sources"], policy)
    for source, _ in model.arcs(before):
        if source in out_degree:
            out_degree[source] += 1
    assert graph.backend.device.to_host(changes.old_degree).tolist() == list(out_degree.values())
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
