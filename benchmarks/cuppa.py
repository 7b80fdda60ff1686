"""The published algorithm of Alam and Perumalla's cuPPA paper beside ours, on one device.

Each draws the same graph in turns: times are those of a whole call, memory for the graph included.
Of the published one there is what the paper counts: rounds (segments), edges that waited, the
longest queue of a thread, and passes of a thread over its queue. Figures 3, 10, 11, 13 and 14; on
``cuda``, where threads run at the same time, 8, 9 and 15.

    python -m benchmarks.cuppa --backend cuda
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from benchmarks import harness
from benchmarks.degrees import DegreeDistribution
from benchmarks.preferential_attachment import (
    BLOCKS,
    EDGES_PER_VERTEX,
    REPEATS,
    VERTICES,
    Row,
    shown,
)
from benchmarks.timing import timed
from liverank_gpu.backends import backend_named
from liverank_gpu.generate import preferential_attachment, published
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array

OURS = "liverank"
PUBLISHED: dict[str, Row] = {
    "RRP": {"scheme": "rrp"},
    "SRRP, fixed": {"scheme": "srrp", "segments": "fixed"},
    "SRRP, dynamic": {"scheme": "srrp", "segments": "dynamic"},
}
"""The variants of the paper; the last one is cuPPA-Dynamic."""

DYNAMIC = PUBLISHED["SRRP, dynamic"]


def counted(rounds: published.Rounds) -> Row:
    """What the paper counts, of all rounds."""
    return {
        "rounds": len(rounds.vertices),
        "queued": int(rounds.queued.sum()),
        "largest_queue": int(rounds.largest.max(initial=0)),
        "passes": int(rounds.passes.max(initial=0)),
    }


def variants(backend: Backend, vertices: int) -> list[Row]:
    """Figure 10: ours and each published variant, in turns, and the exponents of figure 3."""
    d = EDGES_PER_VERTEX
    rows: dict[str, Row] = {}
    times: dict[str, list[float]] = {}

    def ours() -> tuple[Array, Row]:
        return preferential_attachment(vertices, d, seed=1, backend=backend).links, {}

    def drawn(options: Row) -> tuple[Array, Row]:
        found = published.preferential_attachment(vertices, d, seed=1, backend=backend, **options)
        return found.graph.links, counted(found.rounds)

    draws: dict[str, Callable[[], tuple[Array, Row]]] = {OURS: ours}
    draws |= {name: partial(drawn, options) for name, options in PUBLISHED.items()}
    for repeat in range(REPEATS):
        for model, draw in draws.items():
            taken, (links, counts) = timed(backend.device, draw)
            times.setdefault(model, []).append(taken)
            if repeat == 0:
                degrees = DegreeDistribution.of_links(backend.xp, links)
                rows[model] = {"exponent": round(degrees.exponent(4), 3), **counts}
            del links
    shared = {"vertices": vertices, "edges_per_vertex": d, "probability": 0.5}
    return [{"model": model} | shared | shown(times[model]) | rows[model] for model in draws]


def largest(backend: Backend, vertices: int) -> list[Row]:
    """Our own generator with 16 edges a vertex, in one call after another."""
    d, times = 16, []
    for _ in range(REPEATS):
        taken, graph = timed(
            backend.device, partial(preferential_attachment, vertices, d, seed=1, backend=backend)
        )
        times.append(taken)
        del graph
    case = {"vertices": vertices, "edges_per_vertex": d, "probability": 0.5}
    return [{"model": OURS} | case | shown(times)]


def sweep(
    backend: Backend,
    cases: Iterable[tuple[int, int]],
    probabilities: Iterable[float],
    **options: Any,
) -> list[Row]:
    """cuPPA-Dynamic at every pair of vertices and edges a vertex, and at every probability: the
    median of REPEATS calls, or one that takes more than a second.
    """
    rows, probabilities = [], tuple(probabilities)
    for vertices, d in cases:
        for probability in probabilities:
            draw = partial(
                published.preferential_attachment,
                vertices,
                d,
                probability=probability,
                seed=1,
                backend=backend,
                **DYNAMIC,
                **options,
            )
            times: list[float] = []
            while len(times) < REPEATS and max(times, default=0.0) < 1000.0:
                taken, drawn = timed(backend.device, draw)
                times.append(taken)
            case = {"vertices": vertices, "edges_per_vertex": d, "probability": probability}
            rows.append(case | shown(times) | counted(drawn.rounds))
            del drawn
    return rows


def largest_queues(backend: Backend, most_edges: int) -> list[Row]:
    """Figure 8: 1,280 threads, 64 a block, each with one vertex."""
    rows = []
    blocks = min(20, backend.generate.processors()[0])
    powers = (2**power for power in range(most_edges.bit_length()))
    for d in powers:
        for probability in (0.0, 0.25, 0.5, 0.75, 1.0):
            drawn = published.preferential_attachment(
                d + 64 * blocks,
                d,
                probability=probability,
                seed=1,
                scheme="rrp",
                blocks=blocks,
                threads=64,
                backend=backend,
            )
            rows.append(
                {
                    "edges_per_vertex": d,
                    "probability": probability,
                    "largest_queue": int(drawn.rounds.largest[0]),
                    "passes": int(drawn.rounds.passes[0]),
                }
            )
    return rows


def queues_by_round(backend: Backend, threads: int) -> list[Row]:
    """Figure 9: 100 rounds in which each thread of a block has one vertex, p = 0."""
    d = threads
    drawn = published.preferential_attachment(
        d + 100 * threads,
        d,
        probability=0.0,
        seed=1,
        segments="fixed",
        blocks=1,
        threads=threads,
        capacity=d * threads,
        backend=backend,
    )
    return [
        {"round": place + 1, "largest_queue": int(largest)}
        for place, largest in enumerate(drawn.rounds.largest)
    ]


def main() -> None:
    parser = harness.parser("cuPPA as published", backends=True)
    parser.add_argument("--shrink", type=int, default=1, help="by what to divide the vertices")
    parser.add_argument("--quick", action="store_true", help="--shrink 10000, and small queues")
    arguments = parser.parse_args()
    backend = backend_named(arguments.backend)
    shrink = 10_000 if arguments.quick else arguments.shrink
    figures: dict[str, list[Row]] = {}

    def measured(name: str, rows: list[Row]) -> None:
        figures[name] = rows
        print(name, rows[-1], flush=True)
        harness.record("cuppa", arguments.backend, figures, arguments.results)

    n, d = VERTICES // shrink, EDGES_PER_VERTEX
    for options in ({}, *PUBLISHED.values()):  # compiles what is needed
        published.preferential_attachment(10_000, d, backend=backend, **options)
        preferential_attachment(10_000, d, backend=backend)
    measured("models", variants(backend, n))
    if backend.name == "cuda":
        measured("largest graph", largest(backend, 4 * n))
    powers = [2**power for power in range(8)]
    measured(
        "vertices by probability",
        sweep(
            backend,
            [(1_953_125 * power // shrink, d) for power in powers],
            (0.0, 0.001, 0.25, 0.5, 0.75, 1.0),
        ),
    )
    measured(
        "edges of a vertex",
        sweep(backend, [(7_812_500 // shrink, of_one) for of_one in powers], (0.001, 0.5, 1.0)),
    )
    probabilities = (0.0, 1e-5, 1e-4, 1e-3, 0.01, 0.1, 0.3, 0.5, 0.7, 0.9, 0.99, 1.0)
    measured("probability", sweep(backend, [(n, d)], probabilities))
    if backend.name == "cuda":
        rows = [
            {"threads": threads} | sweep(backend, [(n, d)], [0.5], threads=threads)[0]
            for threads in BLOCKS
        ]
        measured("threads of a block", rows)
        measured("largest queue", largest_queues(backend, 64 if arguments.quick else 4096))
        measured("queue by round", queues_by_round(backend, 32 if arguments.quick else 512))


if __name__ == "__main__":
    main()
