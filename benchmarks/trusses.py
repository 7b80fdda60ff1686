"""Triangles and trussness of the edges of R-MAT graphs, without directions.

What section 3.10 of Zhang's thesis measures, as far as it exists here: the parts of the work
(table 3.3), bounds after a limited number of iterations (figure 3.12), and the triangles listed in
partitions (figures 3.13 and 3.16), each as often as `rounds`; figures are medians. ``orient`` is
the time until the oriented lists lie on the device, ``support`` that of all triangles by edge and
includes it, ``trussness`` that of everything. Every answer of trussness is compared with the first
one. ``list_bytes`` are those of the triangles' lists, ``final`` the part of the bounds that are
final.

    python -m benchmarks.trusses --backend cuda --scales 20
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from statistics import median
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, shuffled_rmat
from benchmarks.timing import timed
from liverank_gpu import Answer, EdgeBatch, Engine, Options
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.programs.views import Undirected

ITERATIONS = (1, 2, 3, 4, 5, 6, 10, 15, 20, 25)
"""The thesis's options, and a few more."""

PARTITIONS = (2, 8, 50, 100, 200, 400)


def rows(backend: Backend, scale: int, rounds: int, one_at_a_time: bool) -> Iterator[Any]:
    """A row for each part of the work, variant, number of iterations and of partitions."""
    vertices = 1 << scale
    columns = shuffled_rmat(backend, scale, EDGES_PER_VERTEX * vertices)
    engine = Engine(Options(directed=False), backend)
    engine.apply(EdgeBatch(*columns, vertices=vertices))
    graph = engine.internals.graph

    def lists() -> Any:
        edges = Undirected.of(graph)
        return edges.lists(backend.xp, edges.keys)

    def measured(work: Callable[[], Any]) -> tuple[float, Any]:
        work()  # compiles
        times = [timed(backend.device, work) for _ in range(rounds)]
        return median(time for time, _ in times), times[-1][1]

    def run(**parameters: Any) -> tuple[float, Answer]:
        milliseconds, answer = measured(lambda: engine.run("trussness", **parameters))
        return milliseconds, answer

    support_ms, support = measured(lambda: engine.run("support"))
    base = {
        "graph": f"rmat-{scale}",
        "vertices": vertices,
        "edges": len(support.values),
        "triangles": int(support.summary["triangles"]),
        "list_bytes": 8 * int(support.values.sum(dtype=np.int64)),
    }
    parts = {"orient": measured(lists)[0], "support": support_ms}
    for part, milliseconds in parts.items():
        yield base | {"kind": part, "milliseconds": milliseconds}
    truss_ms, final = run()
    common = base | {"largest": int(final.summary["largest"])}

    def row(kind: str, milliseconds: float, answer: Answer, **others: Any) -> dict[str, Any]:
        if answer.receipt.finished and not (answer.values == final.values).all():
            raise AssertionError(f"{kind} {others}: another trussness")
        return common | {
            "kind": kind,
            "milliseconds": milliseconds,
            "iterations": answer.receipt.supersteps,
            "examined": answer.receipt.edges,
            "partitions": int(answer.summary["partitions"]),
            "final": float((answer.values == final.values).mean()),
            **others,
        }

    yield row("trussness", truss_ms, final)
    if one_at_a_time:
        yield row("one at a time", *run(binary=0))
    for iterations in ITERATIONS:
        yield row("iterations", *run(iterations=iterations))
    for partitions in PARTITIONS:
        yield row("partitions", *run(partitions=partitions), asked=partitions)


def main() -> None:
    parser = harness.parser("trusses of R-MAT graphs", backends=True)
    parser.add_argument("--scales", type=int, nargs="*", default=[16])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--small", action="store_true", help="scale 8, one round: that it runs")
    parser.add_argument(
        "--no-single-steps", action="store_true", help="leave out bounds that fall one at a time"
    )
    arguments = parser.parse_args()
    scales, rounds = ([8], 1) if arguments.small else (arguments.scales, arguments.rounds)
    backend = backend_named(arguments.backend)
    figures = []
    for scale in scales:
        for row in rows(backend, scale, rounds, not arguments.no_single_steps):
            print(row, flush=True)
            figures.append(row)
    print(harness.record("trusses", arguments.backend, figures, arguments.results))


if __name__ == "__main__":
    main()
