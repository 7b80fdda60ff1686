"""Solves from nothing with sweeps one at a time, and with many sweeps in one launch.

For graphs so small that launches take longer than sweeps. Both ways run on every graph here,
whatever its size, and take turns. Times are those of the sweeps, medians of several solves.

    python -m benchmarks.fused ../shared/data/cnr-2000/cnr-2000.txt.zst
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any
from unittest.mock import patch

from benchmarks import harness
from benchmarks.inputs import drawn_grid, drawn_rmat
from benchmarks.networks import read_graph
from benchmarks.timing import TimedEngine, timed
from liverank_gpu import EdgeBatch, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.backends.cuda.sweeps import MOST_FUSED
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.sweeps import sweep_to_target

TARGETS = (1e-4, 1e-6, 1e-8)
MOST_SWEEPS = 500
LAUNCHES = {"single": 1, "fused": MOST_FUSED}
"""Sweeps of one launch, at most, by the name of the way."""

UNTIMED = 2
"""Solves before the first one that counts."""


def measured(
    name: str, batch: EdgeBatch, options: Options, backend: Backend, solves: int
) -> Iterator[dict[str, Any]]:
    """A row for each target."""
    bench = TimedEngine(options, backend)
    bench.batch(batch)
    iterate, kind = bench.iterate, type(backend.sweeps)
    solve = partial(sweep_to_target, iterate, MOST_SWEEPS, from_nothing=True)
    for target in TARGETS:
        bench.set_target(target)
        times: dict[str, list[float]] = {way: [] for way in LAUNCHES}
        row: dict[str, Any] = {
            "graph": name,
            "vertices": bench.engine.vertices,
            "edges": bench.engine.edges,
            "dangling": options.dangling,
            "target_error": target,
        }
        for turn in range(UNTIMED + solves):
            for way, most in LAUNCHES.items():
                with patch.object(kind, "most_fused", lambda *_, most=most: most):
                    milliseconds, swept = timed(bench.device, solve)
                if turn >= UNTIMED:
                    times[way].append(milliseconds)
                row[way] = {"sweeps": swept.sweeps, "bound": iterate.error_bound}
        for way, own in times.items():
            row[way]["milliseconds"] = median(own)
        yield row


def main() -> None:
    parser = harness.parser("solves with many sweeps in one launch")
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--grids", type=int, nargs="*", default=[256, 512, 1024, 2048])
    parser.add_argument("--scales", type=int, nargs="*", default=[16, 18, 19, 20], help="of R-MAT")
    parser.add_argument("--solves", type=int, default=10)
    arguments = parser.parse_args()
    backend = backend_named("cuda")
    random = backend.xp.random.default_rng(7)
    both = Options(), Options(dangling="self-loop")
    graphs: list[tuple[str, EdgeBatch, tuple[Options, ...]]] = [
        (path.name.split(".")[0], read_graph(path), both) for path in arguments.files
    ]
    for side in arguments.grids:
        graphs.append((f"grid {side}", drawn_grid(backend.xp, random, side).load, both[:1]))
    for scale in arguments.scales:
        batch = drawn_rmat(backend.xp, random, scale).load
        graphs.append((f"R-MAT {scale}", batch, both[:1]))
    figures = []
    for name, batch, kinds in graphs:
        for options in kinds:
            for row in measured(name, batch, options, backend, arguments.solves):
                print(row, flush=True)
                figures.append(row)
    print(harness.record("fused", "cuda", figures, arguments.results))


if __name__ == "__main__":
    main()
