"""What storing ranks as float32 saves and costs, beside float64, on one R-MAT graph and stream.

R-MAT is numbered by descending degree. Solve times are as in benchmarks.timing.Solve. The error of
both is the L1 distance to ranks of the same graph, solved in float64 to 1e-11.

    python -m benchmarks.storage --backend cuda --scale 22
"""

from __future__ import annotations

from itertools import islice
from statistics import median
from typing import Any, get_args

import numpy as np

from benchmarks import harness
from benchmarks.inputs import drawn_rmat
from benchmarks.timing import TimedEngine
from gpu import EdgeBatch, Engine, Options, Storage
from gpu.backends import backend_named
from gpu.operations.backend import Backend
from gpu.types import Ranking

_BATCH = 2_634


def measured(
    storage: Storage, backend: Backend, load: EdgeBatch, batches: list[EdgeBatch], exact: Ranking
) -> dict[str, Any]:
    """Figures of one storage; `exact`, the ranks after the last batch."""
    timed = TimedEngine(Options(storage=storage), backend)
    first = timed.batch(load)
    solves = [timed.batch(batch) for batch in batches]
    held = timed.engine.memory()["ranks"]
    ranks = timed.engine.publish().to_numpy()
    static = timed.batch(EdgeBatch(), "static")
    figures = {
        "storage": storage,
        "vertices": timed.engine.vertices,
        "edges": timed.engine.edges,
        "batch_size": _BATCH,
        "batches": len(batches),
        "first_solve_ms": first.milliseconds,
        "first_iterations": first.iterations,
        "median_ms": median(solve.milliseconds for solve in solves),
        "static_ms": static.milliseconds,
        "static_iterations": static.iterations,
        "ranks_bytes": held,
        "published_bytes": len(ranks) * np.dtype(storage).itemsize,
        "error_bound": solves[-1].error_bound,
        "last_error": float(np.abs(ranks - exact).sum()),
        "converged": all(solve.converged for solve in (first, *solves)),
    }
    print(figures, flush=True)
    return figures


def main() -> None:
    parser = harness.parser("float32 storage beside float64", backends=True)
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--batches", type=int, default=20)
    arguments = parser.parse_args()

    random = np.random.default_rng(7)
    graph = drawn_rmat(np, random, arguments.scale, by_degree=True)
    batches = list(islice(graph.batches(random, _BATCH, np.asarray), arguments.batches))
    backend = backend_named(arguments.backend)
    reference = Engine(Options(target_error=1e-11), backend)
    for batch in (graph.load, *batches):
        reference.apply(batch)
    reference.update("auto")
    exact = reference.publish().to_numpy()
    del reference
    figures = []
    for storage in get_args(Storage):
        Engine(Options(storage=storage), backend).warm_up()
        figures.append(measured(storage, backend, graph.load, batches, exact))
    print(harness.record("storage", arguments.backend, figures, arguments.results))


if __name__ == "__main__":
    main()
