"""What storing ranks as float32 saves and costs, beside float64, on one R-MAT graph and stream.

R-MAT has Graph500's parameters, 16 edges a vertex, and is numbered by falling degree; a batch is
2,634 edges, 80 % insertions. Solve times are as in benchmarks/residual.py. The error of both is the
L1 distance to ranks of the same graph, solved in float64 to 1e-11.

    python -m benchmarks.storage --backend cuda --scale 22
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np

from benchmarks import harness
from benchmarks.residual import Timed, rmat
from gpu import EdgeBatch, Engine, Options
from gpu.types import Ranking, Storage

_BATCH = 2_634


def _lived(
    storage: Storage, backend: str, load: EdgeBatch, batches: list[EdgeBatch], exact: Ranking
) -> dict[str, Any]:
    timed = Timed(Options(storage=storage), backend)
    first = timed.batch(load)
    rows = [timed.batch(batch) for batch in batches]
    held = timed.engine.memory()["ranks"]
    ranks = timed.engine.publish().to_numpy()
    static = timed.batch(EdgeBatch(), "static")
    figures = {
        "storage": storage,
        "vertices": timed.engine.vertices,
        "edges": timed.engine.edges,
        "batch_size": _BATCH,
        "batches": len(batches),
        "first_solve_ms": first["milliseconds"],
        "first_iterations": first["iterations"],
        "median_ms": median(row["milliseconds"] for row in rows),
        "static_ms": static["milliseconds"],
        "static_iterations": static["iterations"],
        "ranks_bytes": held,
        "published_bytes": len(ranks) * np.dtype(storage).itemsize,
        "error_bound": rows[-1]["bound"],
        "last_error": float(np.abs(ranks - exact).sum()),
        "converged": all(row["converged"] for row in (first, *rows)),
    }
    print(figures, flush=True)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description="float32 storage beside float64")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    arguments = parser.parse_args()

    vertices = 1 << arguments.scale
    random = np.random.default_rng(7)
    sources, targets = rmat(np, random, arguments.scale, 16 * vertices)
    label = np.empty(vertices, np.int64)
    label[np.argsort(-np.bincount(sources, minlength=vertices))] = np.arange(vertices)
    sources, targets = label[sources], label[targets]
    load = EdgeBatch(sources, targets, vertices=vertices)
    batches = []
    for _ in range(arguments.batches):
        drawn = rmat(np, random, arguments.scale, _BATCH * 4 // 5)
        chosen = random.integers(0, len(sources), _BATCH - len(drawn[0]))
        batches.append(
            EdgeBatch(label[drawn[0]], label[drawn[1]], sources[chosen], targets[chosen])
        )

    reference = Engine(Options(target_error=1e-11), arguments.backend)
    for batch in (load, *batches):
        reference.apply(batch)
    reference.update("auto")
    exact = reference.publish().to_numpy()
    del reference
    figures = []
    for storage in get_args(Storage):
        Engine(Options(storage=storage), arguments.backend).warm_up()
        figures.append(_lived(storage, arguments.backend, load, batches, exact))
    print(harness.record("storage", arguments.backend, figures, arguments.results))


if __name__ == "__main__":
    main()
