"""Whole solves from nothing by each way of sweeping, and by the way that the residual chooses.

Graphs of every kind: R-MAT, a grid, and those named. `chosen` is what `auto` does; the others go
one way to the end. Times are of the sweeps, the median of some solves; the bound that each reaches
is the certificate's.

    python -m benchmarks.ways ../shared/data/cnr-2000/cnr-2000.txt.zst --backend cpu
"""

from __future__ import annotations

import argparse
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks import harness
from benchmarks.residual import grid, rmat
from gpu import EdgeBatch, Engine, Options
from gpu.sweeps import WAYS, Way, sweep_to_target
from service.formats.edge_files import read_edge_list
from service.vertex_keys import KeyTable

TARGETS = (1e-4, 1e-6, 1e-8)
LABELS = ("balanced, accelerated", "plain, accelerated", "balanced", "plain")


def read(path: Path) -> EdgeBatch:
    edges = read_edge_list(path)
    keys = KeyTable("integer" if pa.types.is_integer(edges.sources.type) else "string")
    ids = keys.assign(pa.chunked_array([edges.sources, edges.targets]).combine_chunks())
    return EdgeBatch(ids[: len(edges.sources)], ids[len(edges.sources) :])


def measured(name: str, batch: EdgeBatch, options: Options, backend: str, solves: int) -> list[Any]:
    engine = Engine(options, backend)  # type: ignore[arg-type]
    engine.apply(batch)
    state = engine._state
    rows = []
    for target in TARGETS:
        state.options = Options(options.damping, options.dangling, target)
        row: dict[str, Any] = {
            "graph": name,
            "vertices": engine.vertices,
            "edges": engine.edges,
            "dangling": options.dangling,
            "target_error": target,
        }
        named: list[tuple[str, tuple[Way, ...]]] = [("chosen", WAYS)]
        named += [(label, (way,)) for label, way in zip(LABELS, WAYS, strict=True)]
        times: dict[str, list[float]] = {label: [] for label, _ in named}
        # they take turns, so that what else the machine does falls on all of them
        for turn in range(solves + 1):
            for label, ways in named:
                state.start_anew()
                engine._backend.synchronize()
                begin = perf_counter()
                swept = sweep_to_target(state, 1000, ways)
                engine._backend.synchronize()
                if turn == 0:
                    row[label] = {
                        "sweeps": swept.sweeps,
                        "converged": swept.converged,
                        "bound": state.error_bound,
                    }
                else:
                    times[label].append(1e3 * (perf_counter() - begin))
        for label, _ in named:
            row[label]["milliseconds"] = median(times[label])
        plainly = min(row[label]["milliseconds"] for label in LABELS[2:])
        row["over_best_without_acceleration"] = row["chosen"]["milliseconds"] / plainly
        rows.append(row)
        shown = "  ".join(
            f"{row[label]['sweeps']:4} {row[label]['milliseconds']:8.2f} ms" for label, _ in named
        )
        ratio = row["over_best_without_acceleration"]
        print(
            f"{name:28} {options.dangling:9} {target:.0e}  {shown}  ratio {ratio:.2f}", flush=True
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="solves by each way of sweeping")
    parser.add_argument("files", type=Path, nargs="*")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rmat", type=int, default=18, help="scale")
    parser.add_argument("--grid", type=int, default=512, help="side")
    parser.add_argument("--solves", type=int, default=15)
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    arguments = parser.parse_args()

    vertices = 1 << arguments.rmat
    graphs = [
        (
            f"R-MAT {arguments.rmat}",
            EdgeBatch(
                *rmat(np, np.random.default_rng(7), arguments.rmat, 16 * vertices),
                vertices=vertices,
            ),
        ),
        (f"grid {arguments.grid}", EdgeBatch(*grid(np, arguments.grid))),
        *((path.name.split(".")[0], read(path)) for path in arguments.files),
    ]
    figures = []
    for name, batch in graphs:
        for dangling in ("uniform", "self-loop"):
            options = Options(dangling=dangling)
            figures += measured(name, batch, options, arguments.backend, arguments.solves)
    print(harness.record("ways", arguments.backend, figures, arguments.results))


if __name__ == "__main__":
    main()
