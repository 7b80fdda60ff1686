"""What a pushed edge takes, in pulled ones, on the ``cpu`` backend: where its constant comes from.

Pushed edges are those of the sparse phases that batches of 10 random edges set off, on one core; a
pulled one is a unit of work of a dense sweep, an edge or a vertex, on one core too. All in
processor time. Sweeps run on all cores and most work-lists on one, so the ratio grows with the
cores; the backend has it for two.

    python -m benchmarks.push_cost
"""

from __future__ import annotations

import argparse
from pathlib import Path
from time import process_time, thread_time
from typing import Any

import numba
import numpy as np

from benchmarks import harness
from benchmarks.peers import Ours, edges_of
from gpu import EdgeBatch
from gpu.backends.base import Pushed

_BATCHES = 20
_SWEEPS = 9


def measured(name: str) -> dict[str, Any]:
    edges = edges_of(name)
    engine = Ours(edges).loaded(1e-6)
    engine.update("auto")
    state, graph, backend = engine._state, engine._graph, engine._backend
    seconds, pushed_edges, push = 0.0, 0, backend.push

    def timed(*arguments: Any) -> Pushed:
        nonlocal seconds, pushed_edges
        begin = thread_time()
        pushed = push(*arguments)
        seconds += thread_time() - begin
        pushed_edges += pushed.change.edges
        return pushed

    backend.push = timed  # type: ignore[method-assign, assignment]
    generator = np.random.default_rng(1)
    for _ in range(_BATCHES):
        ends = generator.integers(0, edges.vertices, (2, 10))
        engine.apply(EdgeBatch(ends[0], ends[1]))
        engine.update("auto")
    del backend.push

    pulls = []
    kind = backend.share_dtypes["float64"]
    shares, others = np.zeros(edges.vertices, kind), np.zeros(edges.vertices, kind)
    for _ in range(_SWEEPS):
        begin = process_time()
        backend.relax(graph, state.values, state.residual.values, shares, others, 0.85, 0.0)
        pulls.append((process_time() - begin) / state.sweep_work)
    ratio = seconds / pushed_edges / min(pulls)
    row = {
        "pushed_edges": pushed_edges,
        "pushed_nanoseconds": 1e9 * seconds / pushed_edges,
        "pulled_nanoseconds": 1e9 * min(pulls),
        "ratio_on_one_core": ratio,
        "ratio_on_two_cores": 2.0 * ratio,
    }
    print(name, row, flush=True)
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description="a pushed edge in pulled ones")
    parser.add_argument("--graphs", nargs="*", default=["rmat-20", "grid-1024", "cnr-2000"])
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    arguments = parser.parse_args()
    numba.set_num_threads(1)
    figures = {name: measured(name) for name in arguments.graphs}
    print(harness.record("push-cost", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
