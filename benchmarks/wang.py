"""Figure 2 of the paper on personalized ranks (Wang et al., 2023), and our own form beside it.

    python -m benchmarks.wang ../shared/data --small
    python -m benchmarks.wang ../shared/data --backend cuda

(a) and (b): times of `push`, `pushopt`, `pull` and `hybrid` on each graph, of solving and, beside
it, of the certificate; and that of ours to the error bound which they reached. Sources are drawn
from the vertices with out-edges, and the methods take turns at each. (c): Ψ before each iteration
of one query, what `hybrid` makes of it, and the times of the iteration by `pushopt` and by `pull`.

The paper's graphs are taken from the folder where they are (PAPER); others take their place.

Resumable: what is done is kept beside the record until all is, and read again by the next run of
the same commit and command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
from rich.progress import Progress, TimeElapsedColumn

from benchmarks import harness
from benchmarks.networks import read_graph
from benchmarks.sahu import Kept
from liverank_gpu import (
    METHODS,
    PUBLISHED_METHODS,
    BackendName,
    EdgeBatch,
    Engine,
    Options,
    PersonalizedQuery,
    generate,
)
from liverank_gpu.personalized.published import PublishedQuery

PAPER = {
    "Pokec": "soc-pokec/soc-pokec-relationships.txt.gz",
    "Wiki": "wiki-topcats/wiki-topcats.txt.gz",
    "Stack": "sx-stackoverflow/sx-stackoverflow.txt.gz",
    "LiveJ": "soc-LiveJournal1/soc-LiveJournal1.txt.gz",
}
"""The graphs of the paper by their names there, as SNAP has them."""

REAL = {
    "cnr-2000": "cnr-2000/cnr-2000.txt.zst",
    "dblp-2010": "dblp-2010/dblp-2010.txt.zst",
    **PAPER,
}
GENERATED = ("R-MAT", "preferential attachment", "grid")
GRAPHS = (*GENERATED, *REAL)

_CALIBRATED_PART = 0.25
"""Iterations whose lists have more than this part of all edges tell what a pushed edge costs."""


@dataclass(frozen=True)
class Sizes:
    """What a run measures."""

    graphs: Sequence[str]
    scale: int
    sources: int
    target_error: float


FULL = Sizes(GRAPHS, 22, 10, 1e-4)
SMALL = Sizes((*GENERATED, "cnr-2000"), 15, 3, 1e-4)


def read(folder: Path, scale: int, backend: BackendName, name: str) -> EdgeBatch:
    """A graph with about 16 edges a vertex if it is generated."""
    if name in REAL:
        return read_graph(folder / REAL[name])
    vertices = 1 << scale
    columns = {
        "R-MAT": lambda: generate.rmat(scale, 16, seed=1),
        "grid": lambda: generate.grid(vertices >> scale // 2, 1 << scale // 2),
        "preferential attachment": lambda: generate.edge_list(
            generate.preferential_attachment(vertices, 8, seed=1, backend=backend).columns(),
            backend,
        ),
    }[name]()
    return EdgeBatch(*columns, vertices=vertices)


@dataclass(frozen=True)
class Solved:
    """One query in the published form.

    iterations  of each the mode, the work-list, its out-edges, Ψ and milliseconds
    """

    ms: float
    certify_ms: float
    error_bound: float
    iterations: Sequence[tuple[str, int, int, float, float]]


def solve(engine: Engine, query: PersonalizedQuery) -> Solved:
    """An iteration ends with a read of the device, so a clock tells its time."""
    (resolved,) = engine.resolve([query])
    started = perf_counter()
    running = PublishedQuery(engine.internals.queries, resolved)
    iterations = []
    while not running.done:
        mode, work_list, difference = running.mode, running.work_list, running.cost_difference
        before = perf_counter()
        running.step()
        iterations.append((mode, *work_list, difference, 1e3 * (perf_counter() - before)))
    solved = perf_counter()
    answer = running.answer()
    certified = perf_counter()
    running.close()
    times = 1e3 * (solved - started), 1e3 * (certified - solved)
    return Solved(*times, answer.error_bound, iterations)


def measure(first: EdgeBatch, sizes: Sizes, backend: BackendName) -> list[dict[str, Any]]:
    """A row for each method of each form, then one with the iterations of one query."""
    engine = Engine(Options(target_error=sizes.target_error), backend)
    engine.apply(first)
    engine.update()
    candidates = np.unique(first.insert_sources)
    sources = np.random.default_rng(1).choice(candidates, sizes.sources)
    published: dict[str, list[Solved]] = {method: [] for method in PUBLISHED_METHODS}
    ours: dict[str, list[tuple[float, int, float]]] = {method: [] for method in METHODS}
    for method in published:
        solve(engine, PersonalizedQuery(sources[:1], method=method, form="published"))
    # the methods take turns at each source
    for source in sources:
        seeds = np.array([source])
        for method, queries in published.items():
            query = PersonalizedQuery(seeds, method=method, form="published")
            queries.append(solve(engine, query))
            assert queries[-1].error_bound <= 1.001 * sizes.target_error, (source, method)
        for method, answers in ours.items():
            reached = published["pull"][-1].error_bound
            started = perf_counter()
            answer = engine.personalized(seeds, method=method, target_error=reached)
            ms = 1e3 * (perf_counter() - started)
            answers.append((ms, answer.iterations, answer.error_bound))
    graph = {"vertices": engine.vertices, "edges": engine.edges}
    rows = [
        graph
        | {
            "form": "published",
            "method": method,
            "queries": len(queries),
            "median_ms": _rounded(median(one.ms for one in queries)),
            "certify_ms": _rounded(median(one.certify_ms for one in queries)),
            "iterations": median(len(one.iterations) for one in queries),
            "error_bound": _rounded(max(one.error_bound for one in queries)),
        }
        for method, queries in published.items()
    ]
    rows += [
        graph
        | {
            "form": "accelerated",
            "method": method,
            "queries": len(answers),
            "median_ms": _rounded(median(ms for ms, _, _ in answers)),
            "iterations": median(iterations for _, iterations, _ in answers),
            "error_bound": _rounded(max(bound for _, _, bound in answers)),
        }
        for method, answers in ours.items()
    ]
    return [*rows, switching(engine.internals.graph.arcs, published)]


def switching(arcs: int, published: dict[str, list[Solved]]) -> dict[str, Any]:
    """Figure 2 (c), of the first source: columns by iteration, as strings of numbers."""
    push, pull, hybrid = (published[name][0].iterations for name in ("pushopt", "pull", "hybrid"))
    # rounding may leave one query an iteration more
    count = min(map(len, (push, pull, hybrid)))
    rows = list(zip(push[:count], pull[:count], hybrid[:count], strict=True))
    costs = [
        pushed[4] / pushed[2] / (pulled[4] / arcs)
        for pushed, pulled, _ in rows
        if pushed[2] > _CALIBRATED_PART * arcs
    ]
    return {
        "edges_of_pull": arcs,
        # time of an edge of pushopt in edges of pull, as measured
        "pushed_edge": _rounded(median(costs)) if costs else None,
        "agreement": _rounded(
            sum((p[4] < q[4]) == (h[0] == "pushopt") for p, q, h in rows) / max(1, count)
        ),
        "mode": " ".join(h[0] for _, _, h in rows),
        "vertices_of_list": " ".join(str(h[1]) for _, _, h in rows),
        "edges_of_list": " ".join(str(h[2]) for _, _, h in rows),
        "psi": " ".join(f"{h[3]:g}" for _, _, h in rows),
        "pushopt_ms": " ".join(f"{p[4]:.4g}" for p, _, _ in rows),
        "pull_ms": " ".join(f"{q[4]:.4g}" for _, q, _ in rows),
        "hybrid_ms": " ".join(f"{h[4]:.4g}" for _, _, h in rows),
    }


def _rounded(value: float) -> float:
    return float(f"{value:.4g}")


def main() -> None:
    parser = harness.parser("figure 2 of the paper on personalized ranks", backends=True)
    parser.add_argument("folder", type=Path, help="the folder of real graphs")
    parser.add_argument("--small", action="store_true", help="minutes on a small machine")
    parser.add_argument("--scale", type=int, help="of the generated graphs")
    parser.add_argument("--sources", type=int, help="queries of each method")
    parser.add_argument("--target-error", type=float, help="of each query")
    parser.add_argument("--graphs", nargs="*", choices=GRAPHS)
    arguments = parser.parse_args()
    given = {name: getattr(arguments, name) for name in ("scale", "sources", "target_error")}
    given["graphs"] = arguments.graphs
    sizes = replace(
        SMALL if arguments.small else FULL,
        **{name: value for name, value in given.items() if value is not None},
    )
    folder, backend = arguments.folder, arguments.backend
    missing = [n for n in sizes.graphs if n in REAL and not (folder / REAL[n]).exists()]
    for name in missing:
        print(f"{name}: no {folder / REAL[name]}")
    graphs: dict[str, Callable[[], EdgeBatch]] = {
        name: partial(read, folder, sizes.scale, backend, name)
        for name in sizes.graphs
        if name not in missing
    }
    engine = Engine(backend=backend)
    engine.warm_up()
    engine.warm_up_others()
    path = arguments.results / f".wang-{backend}.partial"
    kept = Kept(path, f"{harness.commit()} {sizes}")
    with Progress(*Progress.get_default_columns(), TimeElapsedColumn()) as progress:
        task = progress.add_task("graphs", total=len(graphs))
        for name, graph in graphs.items():
            progress.update(task, description=name)
            if name not in kept.rows:
                kept.add(name, measure(graph(), sizes, backend))
            progress.advance(task)
    figures = {
        "target_error": sizes.target_error,
        "times": [{"graph": n, **row} for n, rows in kept.rows.items() for row in rows[:-1]],
        "switching": [{"graph": name, **rows[-1]} for name, rows in kept.rows.items()],
    }
    print(harness.record("wang", backend, figures, arguments.results))
    path.unlink()


if __name__ == "__main__":
    main()
