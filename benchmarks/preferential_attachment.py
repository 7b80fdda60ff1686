"""Preferential attachment on the device: the measurements of Alam and Perumalla's cuPPA paper.

Times are those of a whole call of liverank_gpu.generate.preferential_attachment, memory for the
graph included; the graph stays where it was drawn. The sequential models run on one core. Figures
3, 7 and 10 to 15 are measured; 8 and 9 are counted, since our kernel has no waiting queue: the
edges that phase 1 of the paper's algorithm would queue if the vertices of a round begin together.
benchmarks.cuppa measures the paper's algorithm.

    python -m benchmarks.preferential_attachment --backend cuda
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import partial
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.attachment_models import barabasi_albert, compiled, copy_model
from benchmarks.degrees import DegreeDistribution
from benchmarks.timing import timed
from liverank_gpu.backends import backend_named
from liverank_gpu.backends.cuda import kernels_of
from liverank_gpu.generate import preferential_attachment
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.generate import ATTACHMENT_SEQUENCE, sequence_start, threshold

Row = dict[str, Any]

VERTICES, EDGES_PER_VERTEX = 250_000_000, 4
"""The graph with a billion edges."""

SEQUENTIAL_VERTICES = 25_000_000
"""Of the graphs that the sequential models draw: a tenth, for their time."""

CUT_OFFS = (4, 10, 50)
"""The least degrees for which the exponent is estimated."""

BLOCKS = (32, 64, 128, 256, 512, 1024)
"""Threads of a block in figure 15."""

REPEATS = 3


def milliseconds(backend: Backend, vertices: int, d: int, probability: float) -> Row:
    """The median time of REPEATS calls, or of one that takes more than a second."""

    def draw() -> None:
        preferential_attachment(vertices, d, probability=probability, seed=1, backend=backend)

    times = [timed(backend.device, draw)[0]]
    while len(times) < REPEATS and times[0] < 1000.0:
        times.append(timed(backend.device, draw)[0])
    row = {"vertices": vertices, "edges_per_vertex": d, "probability": probability}
    return row | shown(times)


def shown(milliseconds: list[float]) -> Row:
    """Their median and the largest, to four digits."""
    times = {"median_ms": median(milliseconds), "largest_ms": max(milliseconds)}
    return {name: float(f"{value:.4g}") for name, value in times.items()}


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
        "shares": [float(f"{share:.4g}") for share in shares],
    }


def degrees(backend: Backend, vertices: int, sequential_vertices: int) -> list[Row]:
    """Figures 3 and 7: by model at p = 1/2, and by p."""
    rows = []
    for probability in (0.5, 0.0, 0.01, 0.25, 0.75, 1.0):
        graph = preferential_attachment(
            vertices, EDGES_PER_VERTEX, probability=probability, seed=1, backend=backend
        )
        rows.append(distribution("liverank", probability, graph.links, backend.xp))
        del graph
    smaller = preferential_attachment(
        sequential_vertices, EDGES_PER_VERTEX, seed=2, backend=backend
    )
    rows.append(distribution("liverank", 0.5, smaller.links, backend.xp))
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
        times.append(
            {
                "model": model,
                "vertices": n,
                "edges_per_vertex": d,
            }
            | shown([taken])
        )
        distributions.append(distribution(model, 0.5, links, np))
    times.append(milliseconds(cpu, n, d, 0.5) | {"model": "liverank, cpu"})
    if backend is not cpu:
        for count in (n, vertices):
            times.append(
                milliseconds(backend, count, d, 0.5) | {"model": f"liverank, {backend.name}"}
            )
    return times, distributions


def sweep(
    backend: Backend, cases: Iterable[tuple[int, int]], probabilities: Iterable[float]
) -> list[Row]:
    """Times of every pair of vertices and edges a vertex at every probability."""
    probabilities = tuple(probabilities)
    return [milliseconds(backend, n, d, p) for n, d in cases for p in probabilities]


def draw_in_blocks(backend: Backend, threads: int, vertices: int, links: Array) -> None:
    """Draws the graph of seed 1 and p = 1/2 with the kernel in blocks of `threads` threads, with as
    many threads in all as the device has room for.

    links  int32[vertices - d, d], written
    """
    launch = kernels_of(backend)["generate"]["preferential_attachment<1>"]
    links.fill(-1)
    resident = 2048 * getattr(backend.device, "multiprocessors", 1)
    blocks = max(1, min(resident, vertices) // threads)
    scalars = np.int32(vertices), np.int32(links.shape[1]), threshold(0.5)
    start = sequence_start(1, ATTACHMENT_SEQUENCE)
    tickets = backend.xp.zeros(1, np.uint64)
    launch((blocks,), (threads,), (*scalars, start, np.int32(256), tickets, links))


def threads_per_block(backend: Backend, vertices: int) -> list[Row]:
    """Figure 15: the kernel by threads of a block."""
    d = EDGES_PER_VERTEX
    links = backend.xp.empty((vertices - d, d), np.int32)
    rows = []
    for threads in BLOCKS:
        draw = partial(draw_in_blocks, backend, threads, vertices, links)
        draw()
        times = [timed(backend.device, draw)[0] for _ in range(REPEATS)]
        rows.append({"threads": threads} | shown(times))
    return rows


def _queue(first: int, d: int, probability: float, seed: int, sizes: Any, linked_by: Any) -> None:
    """The edges of each of the vertices from `first` on that phase 1 queues."""
    random.seed(seed)
    vertices = len(sizes)
    for v in range(first, first + vertices):
        for _ in range(d):
            while True:
                u = random.randrange(0, v)
                if random.random() >= probability:
                    if u >= first:
                        sizes[v - first] += 1
                        break
                    u = random.randrange(0, d)  # where the edges of a finished vertex lead
                if linked_by[u] != v:
                    linked_by[u] = v
                    break


def queued(first: int, vertices: int, d: int, probability: float) -> NDArray[np.int64]:
    """int64[vertices]: the edges that phase 1 of the paper's algorithm 1 queues for each vertex of
    a round.

    A copy is queued where its origin is in the same round, which begins with vertex `first`. Copies
    from vertices before lead to the clique: so they do if the round is the first one or p = 0.
    """
    assert first == d or probability == 0.0
    sizes, linked_by = np.zeros(vertices, np.int64), np.full(first + vertices, -1, np.int64)
    compiled(_queue)(first, d, probability, 1, sizes, linked_by)
    return sizes


def queues(quick: bool) -> tuple[list[Row], list[Row]]:
    """Figures 8 and 9."""
    largest = [
        {
            "edges_per_vertex": d,
            "probability": p,
            "largest_queue": int(queued(d, 1280, d, p).max()),
        }
        for d in (2**power for power in range(7 if quick else 13))
        for p in (0.0, 0.25, 0.5, 0.75, 1.0)
    ]
    d, threads = (32, 32) if quick else (512, 512)
    by_round = [
        {"round": place + 1, "largest_queue": int(queued(d + place * threads, threads, d, 0).max())}
        for place in range(100)
    ]
    return largest, by_round


def main() -> None:
    parser = harness.parser("preferential attachment", backends=True)
    parser.add_argument("--shrink", type=int, default=1, help="by what to divide the vertices")
    parser.add_argument("--quick", action="store_true", help="--shrink 10000, and small queues")
    arguments = parser.parse_args()
    backend = backend_named(arguments.backend)
    shrink = 10_000 if arguments.quick else arguments.shrink
    vertices, sequential_vertices = VERTICES // shrink, SEQUENTIAL_VERTICES // shrink
    for d in (1, 4):  # compiles what is needed
        preferential_attachment(10_000, d, backend=backend)
        preferential_attachment(10_000, d, backend="cpu")
    powers = [2**power for power in range(8)]
    figures: dict[str, Any] = {}

    def measured(name: str, rows: list[Row]) -> None:
        figures[name] = rows
        print(name, rows[-1], flush=True)
        harness.record("preferential-attachment", arguments.backend, figures, arguments.results)

    times, of_models = models(backend, vertices, sequential_vertices)
    measured("models", times)
    if backend.name == "cuda":
        measured("threads of a block", threads_per_block(backend, vertices))
    measured("degrees", degrees(backend, vertices, sequential_vertices) + of_models)
    largest, by_round = queues(arguments.quick)
    measured("largest queue", largest)
    measured("queue by round", by_round)
    several = ((VERTICES, 4), (62_500_000, 16), (31_250_000, 32))
    swept: dict[str, tuple[list[tuple[int, int]], tuple[float, ...]]] = {
        "vertices by probability": (
            [(1_953_125 * power // shrink, 4) for power in powers],
            (0.0, 0.001, 0.25, 0.5, 0.75, 1.0),
        ),
        "vertices by edges of a vertex": (
            [(max(60_000 * power // shrink, d), d) for d in powers for power in powers],
            (0.5,),
        ),
        "probability": (
            [(n // shrink, d) for n, d in several],
            (0.0, 1e-5, 1e-4, 1e-3, 0.01, *(tenth / 10 for tenth in range(1, 10)), 0.99, 1.0),
        ),
        "edges of a vertex": (
            [(7_812_500 // shrink, d) for d in powers],
            (0.0, 0.00001, 0.001, 0.25, 0.5, 0.75, 1.0),
        ),
    }
    for name, (cases, probabilities) in swept.items():
        measured(name, sweep(backend, cases, probabilities))


if __name__ == "__main__":
    main()
