"""Thousands of batches, through two restarts: is the bound always true, and is it inflated?

    python -m benchmarks.long_stream

Each batch inserts, reweights and deletes edges, and removes vertices or brings removed ones back;
weights that decay expire. After every CHECKED_EVERY batches the ranks are compared with an oracle
on the weights as stored. Fails if an error is above its bound.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from benchmarks.harness import parser, record
from liverank_gpu import EdgeBatch, Engine, Options, verify

VERTICES, EDGES = 400, 3000
CHECKED_EVERY = 25
HALF_LIFE = 100.0


def main() -> None:
    options = parser(__doc__, backends=True)
    options.add_argument("--batches", type=int, default=2500, help="of each kind of graph")
    given = options.parse_args()
    figures: dict[str, Any] = {
        "batches of each kind": given.batches,
        "target error": Options().target_error,
    }
    for directed in (True, False):
        for half_life in (None, HALF_LIFE):
            kind = Options(weighted=True, directed=directed, half_life=half_life)
            name = ("directed" if directed else "undirected") + (", decaying" if half_life else "")
            figures[name] = stream(kind, given.backend, given.batches)
            print(name, figures[name], flush=True)
    print(record("long-stream", given.backend, figures, given.results))


def stream(options: Options, backend: Any, batches: int) -> dict[str, Any]:
    """The figures of one kind of graph. Raises AssertionError."""
    generator = np.random.default_rng(3)
    engine = Engine(options, backend)
    row: dict[str, Any] = {
        "checks": 0,
        "largest error over bound": 0.0,
        "largest bound": 0.0,
    }
    counted = ("inserted", "reweighted", "deleted", "removed", "removed_edges", "expired")
    row |= dict.fromkeys(counted, 0)
    for number in range(batches):
        change = engine.apply(random_batch(generator, engine, number))
        for name in counted:
            row[name] += getattr(change, name)
        engine.update("auto")
        if number in (batches // 3, 2 * batches // 3):
            engine = restarted(engine, backend)
        if number % CHECKED_EVERY == 0 or number == batches - 1:
            error, bound = checked(engine)
            row["checks"] += 1
            row["largest error over bound"] = max(row["largest error over bound"], error / bound)
            row["largest bound"] = max(row["largest bound"], bound)
    return row


def random_batch(generator: np.random.Generator, engine: Engine, number: int) -> EdgeBatch:
    """About as many edges as leave come."""
    sources, targets = engine.edge_list()
    count = EDGES if number == 0 else max(5, EDGES - len(sources))
    inserted = generator.integers(0, VERTICES, (2, min(count, EDGES)))
    again = generator.integers(0, max(1, len(sources)), 5 if len(sources) else 0)
    gone = generator.integers(0, max(1, len(sources)), 3 if len(sources) else 0)
    present = sources[again], targets[again]
    columns = [np.append(new, old) for new, old in zip(inserted, present, strict=True)]
    weights = generator.lognormal(0.0, 2.0, len(columns[0])).astype(np.float32)
    decays = engine.options.half_life is not None
    # now and then no batch comes for many half-lives, and what is older than 100 of them expires
    now = HALF_LIFE * (number + 120 * (number // 200))
    return EdgeBatch(
        columns[0],
        columns[1],
        sources[gone],
        targets[gone],
        weights=weights,
        times=np.full(len(weights), now) if decays else None,
        remove=generator.integers(0, VERTICES, 2 if number % 3 == 0 else 0),
        on_conflict="add" if number % 2 else "replace",
    )


def restarted(engine: Engine, backend: Any) -> Engine:
    """Another engine that goes on from a snapshot."""
    again = Engine(engine.options, backend)
    again.restore(engine.capture(engine.staging_buffer()).snapshot())
    return again


def checked(engine: Engine) -> tuple[float, float]:
    """The L1 error of the ranks, and their bound with what the oracle is uncertain of."""
    graph, host = engine.internals.graph, engine.internals.backend.device.to_host
    ids_of = graph.permutation.ids_of
    # the out-lists, since an undirected edge that decays has another scale in each of two rows
    rows, neighbours, weights = map(host, graph.backend.rebuild.entries(graph.outgoing.csr))
    loop = host(graph.loop)
    looped = np.flatnonzero(loop)
    sources = ids_of(np.append(rows, looped))
    targets = ids_of(np.append(neighbours, looped))
    weights = np.append(weights, loop[looped])
    vertices = np.delete(np.arange(engine.id_limit), engine.free_ids())
    ends = np.searchsorted(vertices, sources), np.searchsorted(vertices, targets)
    exact, uncertain = verify.pagerank(*ends, len(vertices), weights=weights)
    ranks = engine.publish()
    error, bound = float(np.abs(ranks.of(vertices) - exact).sum()), ranks.error_bound + uncertain
    assert error <= bound, f"the error {error} exceeds its bound {bound}"
    return error, bound


if __name__ == "__main__":
    main()
