"""The measurements of Alam and Perumalla's cuPPA paper on preferential attachment.

    python -m benchmarks.preferential_attachment --backend cuda
    python -m benchmarks.preferential_attachment cuppa --backend cuda
    python -m benchmarks.preferential_attachment cuppa --shrink 50

Times are those of a whole call, memory for the graph included; the graph stays where it was drawn.
`--shrink` divides the vertices.

preferential-attachment: figures 3, 7 and 10 to 14 by our own generator, which has no queue. The
sequential models run on one core.

cuppa: the published algorithm beside ours, in turns, and what the paper counts of it: rounds
(segments), edges that waited, the longest queue of a thread, and passes of a thread over its queue.
Figures 3, 10, 11, 13 and 14; on ``cuda``, where threads run at the same time, 8, 9 and 15.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.attachment_models import DegreeDistribution, barabasi_albert, compiled, copy_model
from benchmarks.timing import timed
from liverank_gpu.backends import backend_named
from liverank_gpu.generate import preferential_attachment, published
from liverank_gpu.operations.backend import Backend

Row = dict[str, Any]
Named = Iterator[tuple[str, list[Row]]]
"""Figures by their names."""

Draw = Callable[[int, int, float], tuple[Any, Row]]
"""Vertices, edges of each and probability → a graph, and what is counted."""

VERTICES, EDGES_PER_VERTEX = 250_000_000, 4
"""The graph with a billion edges."""

SEQUENTIAL_VERTICES = 25_000_000
"""Of the graphs that the sequential models draw: a tenth, for their time."""

CUT_OFFS = (4, 10, 50)
"""The least degrees for which the exponent is estimated."""

BLOCKS = (32, 64, 128, 256, 512, 1024)
"""Threads of a block in figure 15."""

REPEATS = 3

OURS = "liverank"
PUBLISHED: dict[str, Row] = {
    "RRP": {"scheme": "rrp"},
    "SRRP, fixed": {"scheme": "srrp", "segments": "fixed"},
    "SRRP, dynamic": {"scheme": "srrp", "segments": "dynamic"},
}
"""The variants of the paper; the last one is cuPPA-Dynamic."""

POWERS = [2**power for power in range(8)]
FEW, MANY = (0.0, 1e-5, 1e-4, 1e-3, 0.01), (0.99, 1.0)
FIGURE_11 = (0.0, 0.001, 0.25, 0.5, 0.75, 1.0)


def ours(backend: Backend) -> Draw:
    """Our own generator."""

    def draw(vertices: int, d: int, p: float) -> tuple[Any, Row]:
        return preferential_attachment(vertices, d, probability=p, seed=1, backend=backend), {}

    return draw


def theirs(backend: Backend, **options: Any) -> Draw:
    """A variant of the paper."""

    def draw(vertices: int, d: int, p: float) -> tuple[Any, Row]:
        drawn = published.preferential_attachment(
            vertices, d, probability=p, seed=1, backend=backend, **options
        )
        rounds = drawn.rounds
        return drawn.graph, {
            "rounds": len(rounds.vertices),
            "queued": int(rounds.queued.sum()),
            "largest_queue": int(rounds.largest.max(initial=0)),
            "passes": int(rounds.passes.max(initial=0)),
        }

    return draw


def shown(milliseconds: list[float]) -> Row:
    """Their median and the largest, to four digits."""
    times = {"median_ms": median(milliseconds), "largest_ms": max(milliseconds)}
    return {name: harness.rounded(value) for name, value in times.items()}


def sweep(
    backend: Backend, draw: Draw, cases: Iterable[tuple[int, int]], probabilities: Iterable[float]
) -> list[Row]:
    """Every pair of vertices and edges a vertex at every probability: the median of REPEATS calls,
    or of one that takes more than a second.
    """
    rows, probabilities = [], tuple(probabilities)
    for vertices, d in cases:
        for probability in probabilities:
            times: list[float] = []
            while len(times) < REPEATS and max(times, default=0.0) < 1000.0:
                taken, drawn = timed(backend.device, partial(draw, vertices, d, probability))
                times.append(taken)
            case = {"vertices": vertices, "edges_per_vertex": d, "probability": probability}
            rows.append(case | shown(times) | drawn[1])
            del drawn
    return rows


# ---- our own generator ----


def distribution(model: str, probability: float, links: Any, xp: Any) -> Row:
    """The exponents and, in bins of √2, the share of vertices of each degree."""
    found = DegreeDistribution.of_links(xp, links)
    vertices = int(found.counts.sum())
    edges = np.unique(np.ceil(2 ** (np.arange(64) / 2))).astype(np.int64)
    counts, _ = np.histogram(found.degrees, edges, weights=found.counts)
    filled = np.flatnonzero(counts)
    shares = counts[filled] / (np.diff(edges)[filled] * vertices)
    return {
        "model": model,
        "vertices": vertices,
        "edges_per_vertex": links.shape[1],
        "probability": probability,
        "largest_degree": int(found.degrees[-1]),
        "exponents": {str(least): round(found.exponent(least), 3) for least in CUT_OFFS},
        "degrees": np.sqrt(edges[filled] * (edges[filled + 1] - 1.0)).round(1).tolist(),
        "shares": list(map(harness.rounded, shares)),
    }


def degrees(backend: Backend, vertices: int, sequential_vertices: int) -> list[Row]:
    """Figures 3 and 7: by model at p = 1/2, and by p."""
    drawn = [(vertices, p, 1) for p in (0.5, 0.0, 0.01, 0.25, 0.75, 1.0)]
    rows = []
    for count, p, seed in (*drawn, (sequential_vertices, 0.5, 2)):
        graph = preferential_attachment(
            count, EDGES_PER_VERTEX, probability=p, seed=seed, backend=backend
        )
        rows.append(distribution(OURS, p, graph.links, backend.xp))
        del graph
    return rows


def models(
    backend: Backend, vertices: int, sequential_vertices: int
) -> tuple[list[Row], list[Row]]:
    """Figure 10, and the lines of the sequential models in figure 3."""
    times: list[Row] = []
    distributions: list[Row] = []
    n, d = sequential_vertices, EDGES_PER_VERTEX
    cpu = backend_named("cpu")
    drawn: dict[str, Callable[[int], NDArray[np.int32]]] = {
        "SBA": lambda vertices: barabasi_albert(vertices, d, 3, compiled),
        "SCM": lambda vertices: copy_model(vertices, d, 0.5, 3, compiled),
    }
    for model, draw in drawn.items():
        draw(1000)  # compiles it
        taken, links = timed(cpu.device, partial(draw, n))
        times.append({"model": model, "vertices": n, "edges_per_vertex": d} | shown([taken]))
        distributions.append(distribution(model, 0.5, links, np))
    of = [(cpu, n), *([] if backend is cpu else [(backend, n), (backend, vertices)])]
    for each, count in of:
        (row,) = sweep(each, ours(each), [(count, d)], [0.5])
        times.append(row | {"model": f"{OURS}, {each.name}"})
    return times, distributions


def attachment(backend: str, shrink: int) -> Named:
    """The figures by our own generator."""
    chosen = backend_named(backend)
    vertices, sequential_vertices = VERTICES // shrink, SEQUENTIAL_VERTICES // shrink
    for d in (1, 4):  # compiles what is needed
        preferential_attachment(10_000, d, backend=chosen)
        preferential_attachment(10_000, d, backend="cpu")
    times, of_models = models(chosen, vertices, sequential_vertices)
    yield "models", times
    yield "degrees", degrees(chosen, vertices, sequential_vertices) + of_models
    draw = ours(chosen)
    cases = [(1_953_125 * power // shrink, 4) for power in POWERS]
    yield "vertices by probability", sweep(chosen, draw, cases, FIGURE_11)
    cases = [(max(60_000 * power // shrink, d), d) for d in POWERS for power in POWERS]
    yield "vertices by edges of a vertex", sweep(chosen, draw, cases, (0.5,))
    cases = [(n // shrink, d) for n, d in ((VERTICES, 4), (62_500_000, 16), (31_250_000, 32))]
    tenths = [tenth / 10 for tenth in range(1, 10)]
    yield "probability", sweep(chosen, draw, cases, (*FEW, *tenths, *MANY))
    cases = [(7_812_500 // shrink, d) for d in POWERS]
    probabilities = (0.0, 0.00001, 0.001, 0.25, 0.5, 0.75, 1.0)
    yield "edges of a vertex", sweep(chosen, draw, cases, probabilities)


# ---- the published algorithm ----


def variants(backend: Backend, vertices: int) -> list[Row]:
    """Figure 10: ours and each published variant, in turns, and the exponents of figure 3."""
    rows: dict[str, Row] = {}
    times: dict[str, list[float]] = {}
    draws = {name: theirs(backend, **options) for name, options in PUBLISHED.items()}
    for repeat in range(REPEATS):
        for model, draw in ({OURS: ours(backend)} | draws).items():
            work = partial(draw, vertices, EDGES_PER_VERTEX, 0.5)
            taken, (graph, counts) = timed(backend.device, work)
            times.setdefault(model, []).append(taken)
            if repeat == 0:
                found = DegreeDistribution.of_links(backend.xp, graph.links)
                rows[model] = {"exponent": round(found.exponent(4), 3), **counts}
            del graph
    shared = {"vertices": vertices, "edges_per_vertex": EDGES_PER_VERTEX, "probability": 0.5}
    return [{"model": model} | shared | shown(times[model]) | rows[model] for model in rows]


def largest_queues(backend: Backend, most_edges: int) -> list[Row]:
    """Figure 8: 1,280 threads, 64 a block, each with one vertex."""
    rows = []
    blocks = min(20, backend.generate.processors()[0])
    for d in (2**power for power in range(most_edges.bit_length())):
        for probability in (0.0, 0.25, 0.5, 0.75, 1.0):
            options = {"scheme": "rrp", "blocks": blocks, "threads": 64}
            _, counts = theirs(backend, **options)(d + 64 * blocks, d, probability)
            found = {name: counts[name] for name in ("largest_queue", "passes")}
            rows.append({"edges_per_vertex": d, "probability": probability} | found)
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


def cuppa(backend: str, shrink: int, most_edges: int) -> Named:
    """The published algorithm. `most_edges` of a vertex in figure 8."""
    chosen = backend_named(backend)
    n, d = VERTICES // shrink, EDGES_PER_VERTEX
    for options in ({}, *PUBLISHED.values()):  # compiles what is needed
        published.preferential_attachment(10_000, d, backend=chosen, **options)
        preferential_attachment(10_000, d, backend=chosen)
    dynamic = PUBLISHED["SRRP, dynamic"]
    draw = theirs(chosen, **dynamic)
    yield "models", variants(chosen, n)
    if backend == "cuda":
        rows = sweep(chosen, ours(chosen), [(4 * n, 16)], [0.5])
        yield "largest graph", [{"model": OURS} | row for row in rows]
    cases = [(1_953_125 * power // shrink, d) for power in POWERS]
    yield "vertices by probability", sweep(chosen, draw, cases, FIGURE_11)
    cases = [(7_812_500 // shrink, of_one) for of_one in POWERS]
    yield "edges of a vertex", sweep(chosen, draw, cases, (0.001, 0.5, 1.0))
    probabilities = (*FEW, 0.1, 0.3, 0.5, 0.7, 0.9, *MANY)
    yield "probability", sweep(chosen, draw, [(n, d)], probabilities)
    if backend == "cuda":
        rows = []
        for threads in BLOCKS:
            in_blocks = theirs(chosen, **dynamic, threads=threads)
            rows.append({"threads": threads} | sweep(chosen, in_blocks, [(n, d)], [0.5])[0])
        yield "threads of a block", rows
        yield "largest queue", largest_queues(chosen, most_edges)
        yield "queue by round", queues_by_round(chosen, min(512, most_edges))


def main() -> None:
    options = {"shrink": 1}
    suites: harness.Suites = {
        "preferential-attachment": (attachment, options),
        "cuppa": (cuppa, options | {"most_edges": 4096}),
    }
    harness.run(__doc__, suites, backends=True)


if __name__ == "__main__":
    main()
