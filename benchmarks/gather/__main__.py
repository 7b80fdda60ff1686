"""Sweeps by other layouts of the in-lists, beside the product's, in one run: see
benchmarks.gather.

Times are medians of turns in which every way sweeps once, from the same contributions. A batch is
followed by every layout; what it adds is the time of that, beside the whole mutation of the
product's graph.

    python -m benchmarks.gather --scales 24 26 --uniform 24
"""

from __future__ import annotations

from itertools import count
from typing import Any

from benchmarks import harness
from benchmarks.gather.measure import measured
from benchmarks.inputs import EDGES_PER_VERTEX, Columns, Drawn, shuffled_rmat
from liverank_gpu.backends import backend_named
from liverank_gpu.generate import uniform
from liverank_gpu.operations.backend import Backend


def rmat(backend: Backend, scale: int) -> Drawn:
    """R-MAT with shuffled labels."""
    seeds = count(1)

    def draw(edges: int) -> Columns:
        return shuffled_rmat(backend, scale, edges, next(seeds))

    return Drawn(1 << scale, *draw(EDGES_PER_VERTEX << scale), draw)


def even(backend: Backend, scale: int) -> Drawn:
    """Edges between vertices drawn uniformly: no skew."""
    seeds, vertices = count(1), 1 << scale

    def draw(edges: int) -> Columns:
        return uniform(vertices, edges, seed=next(seeds), backend=backend)

    return Drawn(vertices, *draw(EDGES_PER_VERTEX << scale), draw)


def main() -> None:
    parser = harness.parser("sweeps by other layouts of the in-lists (CUDA)")
    parser.add_argument("--scales", type=int, nargs="*", default=[24, 26], help="of R-MAT")
    parser.add_argument("--uniform", type=int, nargs="*", default=[24], help="scales")
    parser.add_argument("--turns", type=int, default=15)
    arguments = parser.parse_args()
    backend = backend_named("cuda")
    figures: list[dict[str, Any]] = []
    graphs = [("R-MAT", rmat, scale) for scale in arguments.scales]
    graphs += [("uniform", even, scale) for scale in arguments.uniform]
    for kind, drawn, scale in graphs:
        name = f"{kind} {scale}"
        for row in measured(name, drawn(backend, scale), backend, arguments.turns):
            print(row, flush=True)
            figures.append(row)
        harness.record("gather", "cuda", figures, arguments.results)
        backend.xp.get_default_memory_pool().free_all_blocks()


if __name__ == "__main__":
    main()
