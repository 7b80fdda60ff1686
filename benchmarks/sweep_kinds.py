"""Solves from uniform ranks by each kind of sweep, and by the schedule that `auto` follows.

Graphs of different families: R-MAT, a grid, and those of the given files. `chosen` is what `auto`
does; the other columns use one kind to the end. Times are those of the sweeps, medians of several
solves; the kinds take turns, so that other work on the machine affects all of them alike.

    python -m benchmarks.sweep_kinds ../shared/data/cnr-2000/cnr-2000.txt.zst --backend cpu
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, get_args

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, grid, rmat
from benchmarks.networks import read_graph
from benchmarks.timing import TimedEngine, timed
from liverank_gpu import Dangling, EdgeBatch, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, SweepKind, sweep_to_target

TARGETS = (1e-4, 1e-6, 1e-8)
MOST_SWEEPS = 1000
CHOSEN = "chosen"


def label(kind: SweepKind) -> str:
    """The name of a kind in the figures."""
    corrected = "mean-corrected" if kind.mean_corrected else "plain"
    return f"{corrected}, accelerated" if kind.accelerated else corrected


CONTENDERS: dict[str, tuple[SweepKind, ...]] = {
    CHOSEN: SWEEP_KINDS,
    **{label(kind): (kind,) for kind in SWEEP_KINDS},
}
"""The kinds that a solve may use, by the name of its column."""

_UNACCELERATED = tuple(label(kind) for kind in SWEEP_KINDS if not kind.accelerated)


def measured(
    name: str, batch: EdgeBatch, dangling: Dangling, backend: Backend, solves: int
) -> list[dict[str, Any]]:
    """A row for each target."""
    bench = TimedEngine(Options(dangling=dangling), backend)
    bench.engine.apply(batch)
    iterate = bench.iterate
    rows = []
    for target in TARGETS:
        bench.set_target(target)
        row: dict[str, Any] = {
            "graph": name,
            "vertices": bench.engine.vertices,
            "edges": bench.engine.edges,
            "dangling": dangling,
            "target_error": target,
        }
        times: dict[str, list[float]] = {column: [] for column in CONTENDERS}
        for turn in range(solves + 1):
            for column, kinds in CONTENDERS.items():
                iterate.reset()
                solve = partial(sweep_to_target, iterate, MOST_SWEEPS, kinds)
                milliseconds, swept = timed(bench.device, solve)
                if turn == 0:
                    row[column] = {
                        "sweeps": swept.sweeps,
                        "converged": swept.converged,
                        "bound": iterate.error_bound,
                    }
                else:
                    times[column].append(milliseconds)
        for column in CONTENDERS:
            row[column]["milliseconds"] = median(times[column])
        best = min(row[column]["milliseconds"] for column in _UNACCELERATED)
        row["over_best_without_acceleration"] = row[CHOSEN]["milliseconds"] / best
        rows.append(row)
        shown = "  ".join(
            f"{row[column]['sweeps']:4} {row[column]['milliseconds']:8.2f} ms"
            for column in CONTENDERS
        )
        ratio = row["over_best_without_acceleration"]
        print(f"{name:28} {dangling:9} {target:.0e}  {shown}  ratio {ratio:.2f}", flush=True)
    return rows


def main() -> None:
    parser = harness.parser("solves by each kind of sweep", backends=True)
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--rmat", type=int, default=18, help="scale")
    parser.add_argument("--grid", type=int, default=512, help="side")
    parser.add_argument("--solves", type=int, default=15)
    arguments = parser.parse_args()

    vertices = 1 << arguments.rmat
    edges = rmat(np, np.random.default_rng(7), arguments.rmat, EDGES_PER_VERTEX * vertices)
    graphs = {
        f"R-MAT {arguments.rmat}": EdgeBatch(*edges, vertices=vertices),
        f"grid {arguments.grid}": EdgeBatch(*grid(np, arguments.grid)),
        **{path.name.split(".")[0]: read_graph(path) for path in arguments.files},
    }
    backend = backend_named(arguments.backend)
    figures = [
        row
        for name, batch in graphs.items()
        for dangling in get_args(Dangling)
        for row in measured(name, batch, dangling, backend, arguments.solves)
    ]
    print(harness.record("sweep-kinds", arguments.backend, figures, arguments.results))


if __name__ == "__main__":
    main()
