"""What a pushed edge costs, in edges of a dense sweep, on ``cpu``: the source of its constant.

Pushes are the sparse phases after batches of 10 random edges. A unit of a sweep is an edge or a
vertex. Both are processor time on one core. Sweeps run on all cores and most work-lists on one, so
the ratio grows with the number of cores; the backend's constant is that of two.

    python -m benchmarks.push_cost
"""

from __future__ import annotations

from dataclasses import replace
from time import process_time, thread_time
from typing import Any

import numba
import numpy as np

from benchmarks import harness
from benchmarks.peers import EngineSolver, edges_of
from gpu import EdgeBatch
from gpu.backends import backend_named
from gpu.backends.cpu.residual import CpuResidual
from gpu.operations.residual import PushResult
from gpu.pagerank.workspace import ContributionBuffers

_TARGET = 1e-6
_BATCHES = 20
_SWEEPS = 9


class TimedResidual(CpuResidual):
    """Counts the edges of its pushes, and their seconds."""

    def __init__(self) -> None:
        super().__init__()
        self.seconds, self.edges = 0.0, 0

    def push(self, *arguments: Any) -> PushResult:
        begin = thread_time()
        pushed = super().push(*arguments)
        self.seconds += thread_time() - begin
        self.edges += pushed.delta.additions
        return pushed


def measured(name: str) -> dict[str, Any]:
    """Figures of one graph of benchmarks.peers."""
    edges = edges_of(name)
    residual = TimedResidual()
    engine = EngineSolver(edges).loaded(_TARGET, replace(backend_named("cpu"), residual=residual))
    engine.update("auto")
    residual.seconds, residual.edges = 0.0, 0
    generator = np.random.default_rng(1)
    for _ in range(_BATCHES):
        ends = generator.integers(0, edges.vertices, (2, 10))
        engine.apply(EdgeBatch(ends[0], ends[1]))
        engine.update("auto")

    iterate = engine.internals.iterate
    buffers = ContributionBuffers.allocate(engine.internals.backend, edges.vertices)
    iterate.quantize(buffers)
    sweeps = []
    for _ in range(_SWEEPS):
        begin = process_time()
        iterate.sweep(buffers)
        sweeps.append(process_time() - begin)
    pushed, swept = residual.seconds / residual.edges, min(sweeps) / iterate.sweep_cost
    row = {
        "pushed_edges": residual.edges,
        "pushed_nanoseconds": 1e9 * pushed,
        "pulled_nanoseconds": 1e9 * swept,
        "ratio_on_one_core": pushed / swept,
        "ratio_on_two_cores": 2.0 * pushed / swept,
    }
    print(name, row, flush=True)
    return row


def main() -> None:
    parser = harness.parser("a pushed edge in edges of a sweep")
    parser.add_argument("--graphs", nargs="*", default=["rmat-20", "grid-1024", "cnr-2000"])
    arguments = parser.parse_args()
    numba.set_num_threads(1)
    figures = {name: measured(name) for name in arguments.graphs}
    print(harness.record("push-cost", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
