"""A graph and its model, changed by the same batches and compared."""

from __future__ import annotations

from dataclasses import replace

from liverank_gpu import EdgeBatch
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.graph import GraphUpdate
from tests.gpu.graphs import Model, WeightedModel

Weights = dict[tuple[int, int], float]


def _arcs(model: Model) -> Weights:
    """The weight of each arc; 1 without weights."""
    of_arcs = model.arc_weights() if isinstance(model, WeightedModel) else {}
    return of_arcs or dict.fromkeys(model.arcs(), 1.0)


def apply(
    graph: DynamicGraph, model: Model, batch: EdgeBatch, rebuilds: bool = False
) -> GraphUpdate:
    """Applies to both; the receipt and what the strategies get must be the model's."""
    before, vertices = _arcs(model), model.vertices
    expected, update = model.apply(batch), graph.apply(batch, rebuilds)
    assert replace(update.counts, seconds=0.0) == expected
    now = _arcs(model)
    gone = {arc: weight for arc, weight in before.items() if now.get(arc) != weight}
    new = {arc: weight for arc, weight in now.items() if before.get(arc) != weight}
    touched = {source for source, _ in gone | new}
    ids, host = graph.permutation.ids_of, graph.backend.device.to_host
    changes = update.changes
    if changes is None:
        # at least
        sources = ids(update.sources).tolist()
        assert len(sources) == len(set(sources))
        assert touched <= set(sources)
        named = set(ids(update.removed_targets).tolist())
        assert {target for arc, target in gone if (arc, target) not in now} <= named
        return update
    for arcs, ends, weights in (
        (gone, (changes.removed_sources, changes.removed_targets), changes.removed_weights),
        (new, (changes.added_sources, changes.added_targets), changes.added_weights),
    ):
        found = list(zip(*(ids(column).tolist() for column in ends), strict=True))
        assert sorted(found) == sorted(arcs)
        if graph.weighted:
            assert dict(zip(found, host(weights).tolist(), strict=True)) == arcs
    sources = ids(changes.sources).tolist()
    assert sorted(sources) == sorted(touched)
    if not graph.weighted:
        out_degree = dict.fromkeys(sources, int(graph.dangling == "self-loop"))
        for source, _ in before:
            if source in out_degree:
                out_degree[source] += 1
        assert host(changes.old_degree).tolist() == list(out_degree.values())
    assert graph.vertices >= vertices
    assert update.sources is changes.sources
    assert update.removed_targets is changes.removed_targets
    return update
