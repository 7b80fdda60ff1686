"""What is read of graphs whose weights decay."""

from __future__ import annotations

import numpy as np

from liverank_gpu import EdgeBatch, Engine, verify

DAY = 86_400.0
NOW = 1.7e9


def decaying_batch(generator: np.random.Generator, now: float, size: int) -> EdgeBatch:
    """Insertions, some of them late, and now and then a deletion."""
    inserted, deleted = generator.integers(0, 30, (2, size)), generator.integers(0, 30, (2, 2))
    return EdgeBatch(
        inserted[0],
        inserted[1],
        deleted[0],
        deleted[1],
        vertices=30,
        weights=generator.uniform(0.5, 2.0, size).astype(np.float32),
        on_conflict="add" if generator.random() < 0.3 else "replace",
        times=now - DAY * generator.choice([0.0, 0.5, 30.0], size),
    )


def stored_weights(engine: Engine) -> dict[tuple[int, int], float]:
    """The stored weight of each arc, which must be the same in both directions."""
    graph, host = engine.internals.graph, engine.internals.backend.device.to_host
    found = []
    for lists in (graph.outgoing, graph.incoming):
        rows, neighbours, weights = map(host, graph.backend.rebuild.entries(lists.csr))
        ends = [graph.permutation.ids_of(column).tolist() for column in (rows, neighbours)]
        if lists is graph.incoming:
            ends.reverse()
        found.append(dict(zip(zip(*ends, strict=True), weights.tolist(), strict=True)))
    assert found[0] == found[1]
    loop = host(graph.loop)
    ids = graph.permutation.ids_of(np.arange(len(loop))).tolist()
    return found[0] | {(v, v): float(w) for v, w in zip(ids, loop, strict=True) if w}


def assert_certified(engine: Engine) -> None:
    arcs = stored_weights(engine)
    sources, targets = np.array(list(arcs), np.int64).reshape(-1, 2).T
    exact, slack = verify.pagerank(
        sources, targets, engine.vertices, weights=np.array(list(arcs.values()))
    )
    ranks = engine.publish()
    assert np.abs(ranks.to_numpy() - exact).sum() <= ranks.error_bound + slack
