"""A long stream of small batches: does the bound still hold at its end, and how wide is it?

python -m benchmarks.stream --batches 100000
"""

from __future__ import annotations

from time import perf_counter

import numpy as np

from benchmarks import harness
from liverank_gpu import EdgeBatch, Engine, Options, verify


def main() -> None:
    parser = harness.parser("a long stream of small batches", backends=True)
    parser.add_argument("--batches", type=int, default=100_000)
    parser.add_argument("--vertices", type=int, default=2_000)
    parser.add_argument("--size", type=int, default=4, help="insertions of a batch, and deletions")
    arguments = parser.parse_args()

    generator = np.random.default_rng(11)
    vertices = arguments.vertices
    edges = generator.integers(0, vertices, (8 * vertices, 2))
    engine = Engine(Options(), arguments.backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    begin = perf_counter()
    seconds = 0.0
    for _ in range(arguments.batches):
        insert = generator.integers(0, vertices, (arguments.size, 2))
        place = generator.integers(0, len(edges), arguments.size)
        delete = edges[place]
        engine.apply(EdgeBatch(insert[:, 0], insert[:, 1], delete[:, 0], delete[:, 1]))
        edges[place] = insert
        result = engine.update("auto")
        assert result.converged
        seconds += result.solve_seconds
    elapsed = perf_counter() - begin
    sources, targets = engine.edge_list()
    exact, oracle_bound = verify.pagerank(sources, targets, vertices)
    error = float(np.abs(engine.publish().to_numpy() - exact).sum())
    device, iterate = engine.internals.backend.device, engine.internals.iterate
    values = device.to_host(iterate.values)
    true_residual = verify.residual(sources, targets, values, iterate.rhs_scale)
    kept_residual = device.to_host(iterate.workspace.residual.values)
    figures = {
        "vertices": vertices,
        "edges": engine.edges,
        "batches": arguments.batches,
        "batch_size": 2 * arguments.size,
        "mean_solve_ms": 1e3 * seconds / arguments.batches,
        "mean_batch_ms": 1e3 * elapsed / arguments.batches,
        "error": error,
        "oracle_bound": oracle_bound,
        "error_bound": result.error_bound,
        "bound_over_error": result.error_bound / error,
        "residual_off": float(np.abs(true_residual - kept_residual).sum() / values.sum()),
    }
    print(figures)
    print(harness.record("stream", arguments.backend, figures, arguments.results))
    assert error <= result.error_bound + oracle_bound


if __name__ == "__main__":
    main()
