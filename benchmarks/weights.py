"""Weighted graphs beside unweighted ones: a sweep, a batch of 1,000, and memory.

    python -m benchmarks.weights --backend cuda --scale 24
    python -m benchmarks.weights --backend cpu --scale 20

Both graphs have the same R-MAT edges with shuffled labels, and get the same batches: 80 %
insertions, between vertices drawn uniformly, and 20 % deletions. They alternate, so that ratios
hold on a machine that others use too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.graph import SMALL, Stream
from benchmarks.inputs import EDGES_PER_VERTEX, shuffled_rmat
from benchmarks.timing import timed
from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.pagerank.iterate import ContributionBuffers

KINDS = ("unweighted", "weighted")


def _alternated(
    engines: dict[str, Engine], work: Callable[[Engine], Any], count: int
) -> dict[str, float]:
    """Median milliseconds of each kind, and the ratio."""
    times: dict[str, list[float]] = {kind: [] for kind in KINDS}
    for _ in range(count + 1):
        for kind, engine in engines.items():
            device = engine.internals.backend.device
            times[kind].append(timed(device, partial(work, engine))[0])
    medians = {kind: float(np.median(each[1:])) for kind, each in times.items()}
    ratio = medians["weighted"] / medians["unweighted"]
    return {kind: round(each, 4) for kind, each in medians.items()} | {"ratio": round(ratio, 3)}


def _apply_next(pending: dict[str, Iterator[EdgeBatch]], solves: bool, engine: Engine) -> None:
    engine.apply(next(pending["weighted" if engine.options.weighted else "unweighted"]))
    if solves:
        engine.update()


def main() -> None:
    parser = harness.parser("weighted over unweighted graphs", backends=True)
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--count", type=int, default=21, help="repetitions")
    arguments = parser.parse_args()
    backend = backend_named(arguments.backend)
    vertices, edges = 1 << arguments.scale, EDGES_PER_VERTEX << arguments.scale
    sources, targets = shuffled_rmat(backend, arguments.scale, edges)
    generator = np.random.default_rng(3)
    weights = backend.device.to_device(generator.lognormal(size=edges).astype(np.float32))
    engines: dict[str, Engine] = {}
    figures: dict[str, Any] = {}

    def note(name: str, value: Any) -> None:
        figures[name] = value
        print(name, value, flush=True)

    for kind in KINDS:
        engine = engines[kind] = Engine(Options(weighted=kind == "weighted"), backend)
        given = weights if kind == "weighted" else None
        batch = EdgeBatch(sources, targets, vertices=vertices, weights=given)
        milliseconds, _ = timed(backend.device, partial(engine.apply, batch))
        note(f"load, {kind}, s", round(1e-3 * milliseconds, 3))
        note(f"first solve, {kind}, sweeps", engine.update().iterations)
        memory = engine.memory()
        lists = sum(memory[part] for part in ("out-lists", "in-lists", "slack"))
        note(f"memory, {kind}, bytes an edge", round(lists / engine.edges, 3))
    note("edges", engines["weighted"].edges)

    buffers = ContributionBuffers.allocate(backend, vertices)

    def sweep(engine: Engine) -> None:
        iterate = engine.internals.iterate
        iterate.quantize(buffers)
        iterate.sweep(buffers)

    def residual(engine: Engine) -> None:
        engine.internals.iterate.recompute_residual()

    note("quantize and sweep, ms", _alternated(engines, sweep, arguments.count))
    note("residual, ms", _alternated(engines, residual, arguments.count))
    stream = Stream(backend, sources, targets, vertices)
    for name, solves in (("mutate", False), ("mutate and solve", True)):
        batches = stream.host_batches(SMALL, arguments.count + 1)
        drawn = generator.lognormal(size=len(batches[0].insert_sources)).astype(np.float32)
        pending = {
            "unweighted": iter(batches),
            "weighted": iter([replace(batch, weights=drawn) for batch in batches]),
        }
        work = partial(_apply_next, pending, solves)
        note(f"batch of 1,000, {name}, ms", _alternated(engines, work, arguments.count))
    harness.record("weights", backend.name, figures, arguments.results)


if __name__ == "__main__":
    main()
