"""Every strategy on a real temporal network, as in section 5.1.4 of the DF-P paper (Sahu, 2024).

90 % of the temporal edges are loaded and ranked; the rest arrives in 100 consecutive batches of a
size that is a fraction of all temporal edges. Each strategy keeps its own graph and ranks through
the stream, as a service would. After each batch the ranks are compared (L1) with a converged solve
by gpu.verify.

    python -m benchmarks.strategies ../shared/data/sx-mathoverflow/sx-mathoverflow.txt.gz
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import fmean, median
from typing import Any, get_args

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from benchmarks import harness
from gpu import STRATEGIES, EdgeBatch, Engine, Options, verify
from gpu.types import Dangling
from service.edge_lists import read_edge_list
from service.keys import KeyTable

LOADED = 0.9
FRACTIONS = (1e-5, 1e-4, 1e-3)


def temporal_edges(path: Path) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Sources and targets, ids by first appearance, in order of time."""
    edges = read_edge_list(path).by_time()
    keys = KeyTable("integer")
    pairs = np.empty(2 * len(edges.sources), np.int64)
    pairs[0::2] = edges.sources.to_numpy(zero_copy_only=False)
    pairs[1::2] = edges.targets.to_numpy(zero_copy_only=False)
    ids = keys.assign(pa.array(pairs))
    return ids[0::2].copy(), ids[1::2].copy()


def stream(
    sources: NDArray[np.int64],
    targets: NDArray[np.int64],
    options: Options,
    fraction: float,
    batches: int,
    backend: str,
) -> list[dict[str, Any]]:
    """One row of figures a strategy, over the same batches, which the strategies take in turn."""
    loaded = int(LOADED * len(sources))
    size = max(1, round(fraction * len(sources)))
    engines = {name: Engine(options, backend) for name in STRATEGIES}  # type: ignore[arg-type]
    for engine in engines.values():
        engine.apply(EdgeBatch(sources[:loaded], targets[:loaded]))
        engine.update("static")
    rows: dict[str, dict[str, list[float]]] = {
        name: {
            key: []
            for key in ("mutate", "mark", "solve", "iterations", "touched", "error", "bound")
        }
        for name in STRATEGIES
    }
    for step in range(batches):
        first = loaded + step * size
        batch = EdgeBatch(sources[first : first + size], targets[first : first + size])
        exact = None
        for name, engine in engines.items():
            change = engine.apply(batch)
            result = engine.update(name)
            if exact is None:
                exact, oracle_bound = verify.pagerank(
                    *engine.edge_list(), engine.vertices, options.damping, options.dangling
                )
            error = float(np.abs(engine.publish().to_numpy() - exact).sum())
            assert error <= result.error_bound + oracle_bound, (name, step, error, result)
            row = rows[name]
            row["mutate"].append(change.seconds)
            row["mark"].append(result.mark_seconds)
            row["solve"].append(result.solve_seconds)
            row["iterations"].append(result.iterations)
            row["touched"].append(result.touched_vertices)
            row["error"].append(error)
            row["bound"].append(result.error_bound)
    return [
        {
            "dangling": options.dangling,
            "fraction": fraction,
            "batch_size": size,
            "batches": batches,
            "strategy": name,
            "mean_solve_ms": 1e3 * fmean(map(sum, zip(row["mark"], row["solve"], strict=True))),
            "median_solve_ms": 1e3 * median(map(sum, zip(row["mark"], row["solve"], strict=True))),
            "mean_mutate_ms": 1e3 * fmean(row["mutate"]),
            "mean_iterations": fmean(row["iterations"]),
            "mean_touched_vertices": fmean(row["touched"]),
            "mean_error": fmean(row["error"]),
            "largest_error": max(row["error"]),
            "mean_error_bound": fmean(row["bound"]),
        }
        for name, row in rows.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description="every strategy on a real temporal network")
    parser.add_argument("file", type=Path)
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--batches", type=int, default=100)
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    arguments = parser.parse_args()

    Engine(backend=arguments.backend).warm_up()
    sources, targets = temporal_edges(arguments.file)
    figures = []
    for dangling in get_args(Dangling):
        for fraction in FRACTIONS:
            options = Options(dangling=dangling)
            rows = stream(sources, targets, options, fraction, arguments.batches, arguments.backend)
            figures += rows
            for row in rows:
                print(
                    f"{dangling:9}  {fraction:g}  {row['strategy']:22}"
                    f"  {row['mean_solve_ms']:8.3f} ms  {row['mean_iterations']:6.1f} iterations"
                    f"  {row['mean_touched_vertices']:9.1f} touched  error {row['mean_error']:.1e}"
                    f"  bound {row['mean_error_bound']:.1e}"
                )
    name = arguments.file.name.split(".")[0]
    print(harness.record(f"strategies-{name}", arguments.backend, figures, arguments.results))


if __name__ == "__main__":
    main()
