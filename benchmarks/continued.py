"""Core numbers, triangles and trussness after batches: continued from those before, beside
beginning again.

An R-MAT graph and one of edges between uniform vertices, with and without directions. A batch has
as many insertions as deletions, which are uniform among the edges. Each answer that continues is
compared with the one that begins again; figures are medians of `rounds` batches.

    python -m benchmarks.continued --scales 16
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median
from typing import Any, NamedTuple

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, shuffled_rmat
from benchmarks.timing import timed
from liverank_gpu import Answer, EdgeBatch, Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend

PROGRAMS = ("cores", "triangles", "trussness")

BATCHES = (2, 20, 200, 2000)
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


def rows(
    backend: Backend, scale: int, rounds: int, programs: Sequence[str]
) -> Iterator[dict[str, Any]]:
    """A row for each graph, program and size of batches."""
    generator = np.random.default_rng(2)
    for kind in ("rmat", "uniform"):
        first = _drawn(backend, kind, scale, EDGES_PER_VERTEX << scale, 1)
        more = _drawn(backend, kind, scale, 1 << scale, 7)
        for directed in (False, True):
            engine = Engine(Options(directed=directed), backend)
            engine.apply(EdgeBatch(first[0], first[1], vertices=1 << scale))
            answers, taken = {name: engine.run(name) for name in programs}, 0
            for size in BATCHES:
                found: dict[str, list[Round]] = {name: [] for name in programs}
                for _ in range(rounds):
                    edges = np.stack(engine.edge_list())
                    gone = edges[:, generator.integers(0, edges.shape[1], size // 2)]
                    new = [ends[taken : taken + size // 2] for ends in more]
                    taken += size // 2
                    engine.apply(_batch(np.stack(new), gone))
                    for name in programs:
                        each = _round(backend, engine, name, answers[name])
                        found[name].append(each)
                        answers[name] = each.answer
                for name, own in found.items():
                    receipts = [each.answer.receipt for each in own]
                    yield {
                        "graph": f"{kind}-{scale}",
                        "directed": directed,
                        "edges": engine.edges,
                        "program": name,
                        "operations": size,
                        "continued": sum(each.continued for each in receipts) / rounds,
                        "read": int(median(each.edges for each in receipts)),
                        "milliseconds": median(each.milliseconds for each in own),
                        "again": median(each.again for each in own),
                    }


class Round(NamedTuple):
    """Milliseconds to continue and to begin again, and the answer."""

    milliseconds: float
    again: float
    answer: Answer


def _round(backend: Backend, engine: Engine, name: str, before: Answer) -> Round:
    device = backend.device
    took, answer = timed(device, partial(engine.run, name, after=before))
    took_again, again = timed(device, partial(engine.run, name))
    equal = np.array_equal(answer.values, again.values)
    if answer.edges is not None and again.edges is not None:
        equal &= np.array_equal(np.stack(answer.edges), np.stack(again.edges))
    if not equal:
        raise AssertionError(f"{name}: another answer")
    return Round(took, took_again, answer)


def main() -> None:
    parser = harness.parser("programs that continue after batches", backends=True)
    parser.add_argument("--scales", type=int, nargs="*", default=[16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--programs", nargs="*", choices=PROGRAMS, default=PROGRAMS)
    parser.add_argument("--small", action="store_true", help="scale 10, one round: that it runs")
    arguments = parser.parse_args()
    scales, rounds = ([10], 1) if arguments.small else (arguments.scales, arguments.rounds)
    backend = backend_named(arguments.backend)
    figures = []
    for scale in scales:
        for row in rows(backend, scale, rounds, arguments.programs):
            print(row, flush=True)
            figures.append(row)
    print(harness.record("continued", arguments.backend, figures, arguments.results))


if __name__ == "__main__":
    main()
