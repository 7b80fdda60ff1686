"""Core numbers after batches: continued from those before, beside beginning again.

An R-MAT graph and one of edges between uniform vertices, with and without directions. A batch has
as many insertions as deletions, which are uniform among the edges. Each answer that continues is
compared with the one that begins again; figures are medians of `rounds` batches.

    python -m benchmarks.cores --scales 18
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, shuffled_rmat
from benchmarks.timing import timed
from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend

BATCHES = (2, 20, 200, 2000, 20_000)
"""Operations of a batch."""


def _drawn(backend: Backend, kind: str, scale: int, edges: int, seed: int) -> list[Any]:
    """Sources and targets on the host."""
    if kind == "uniform":
        return list(np.random.default_rng(seed).integers(0, 1 << scale, (2, edges)))
    columns = shuffled_rmat(backend, scale, edges, seed)
    return [backend.device.to_host(ends).astype(np.int64) for ends in columns]


def _batch(new: Any, gone: Any) -> EdgeBatch:
    added, deleted = (list(zip(*ends.tolist(), strict=True)) for ends in (new, gone))
    return EdgeBatch.of(added, delete=deleted)


def rows(backend: Backend, scale: int, rounds: int) -> Iterator[Any]:
    """A row for each graph and size of batches."""
    generator = np.random.default_rng(2)
    for kind in ("rmat", "uniform"):
        first = _drawn(backend, kind, scale, EDGES_PER_VERTEX << scale, 1)
        more = _drawn(backend, kind, scale, 1 << scale, 7)
        for directed in (False, True):
            engine = Engine(Options(directed=directed), backend)
            engine.apply(EdgeBatch(first[0], first[1], vertices=1 << scale))
            answer, taken = engine.run("cores"), 0
            for size in BATCHES:
                times, again_times, read, changed, continued = [], [], [], [], 0
                for _ in range(rounds):
                    edges = np.stack(engine.edge_list())
                    gone = edges[:, generator.integers(0, edges.shape[1], size // 2)]
                    new = [ends[taken : taken + size // 2] for ends in more]
                    taken += size // 2
                    engine.apply(_batch(np.stack(new), gone))
                    before = answer
                    took, answer = timed(backend.device, partial(engine.run, "cores", after=before))
                    took_again, again = timed(backend.device, partial(engine.run, "cores"))
                    if not np.array_equal(answer.values, again.values):
                        raise AssertionError(f"{kind} {size}: other core numbers")
                    times.append(took)
                    again_times.append(took_again)
                    read.append(answer.receipt.edges)
                    changed.append(int(np.count_nonzero(answer.values != before.values)))
                    continued += answer.receipt.continued
                yield {
                    "graph": f"{kind}-{scale}",
                    "directed": directed,
                    "edges": engine.edges,
                    "operations": size,
                    "continued": continued / rounds,
                    "changed": int(median(changed)),
                    "entries": int(median(read)),
                    "milliseconds": median(times),
                    "again": median(again_times),
                }


def main() -> None:
    parser = harness.parser("core numbers after batches", backends=True)
    parser.add_argument("--scales", type=int, nargs="*", default=[18])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--small", action="store_true", help="scale 10, one round: that it runs")
    arguments = parser.parse_args()
    scales, rounds = ([10], 1) if arguments.small else (arguments.scales, arguments.rounds)
    backend = backend_named(arguments.backend)
    figures = []
    for scale in scales:
        for row in rows(backend, scale, rounds):
            print(row, flush=True)
            figures.append(row)
    print(harness.record("cores", arguments.backend, figures, arguments.results))


if __name__ == "__main__":
    main()
