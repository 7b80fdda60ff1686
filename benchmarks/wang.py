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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import GENERATED, generated
from benchmarks.networks import GRAPHS, read_graph
from benchmarks.timing import loaded, warm_up
from liverank_gpu import METHODS, PUBLISHED_METHODS, BackendName, Engine, PersonalizedQuery
from liverank_gpu.personalized.published import PublishedQuery

PAPER = ("Pokec", "Wiki", "Stack", "LiveJ")
"""The graphs of the paper by their names there."""

DRAWN = ("R-MAT", "preferential attachment", "grid")

_CALIBRATED_PART = 0.25
"""Iterations whose lists have more than this part of all edges tell what a pushed edge costs."""


@dataclass(frozen=True)
class Sizes:
    """What a run measures."""

    graphs: Sequence[str]
    scale: int
    sources: int
    target_error: float


FULL = Sizes((*DRAWN, "cnr-2000", "dblp-2010", *PAPER), 22, 10, 1e-4)
SMALL = Sizes((*DRAWN, "cnr-2000"), 15, 3, 1e-4)


@dataclass(frozen=True)
class Solved:
    """One query.

    certify_ms  of the certificate, in the published form
    iterations  of each, there, the mode, the work-list, its out-edges, Ψ and milliseconds
    """

    ms: float
    certify_ms: float | None
    error_bound: float
    iterations: Sequence[tuple[Any, ...]]


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


def measure(folder: Path, name: str, sizes: Sizes, backend: BackendName) -> list[dict[str, Any]]:
    """A row for each method of each form, then one with the iterations of one query."""
    if name in GENERATED:
        first = generated(name, sizes.scale, backend)
    else:
        first = read_graph(folder / GRAPHS[name])
    engine = loaded(first, backend, target_error=sizes.target_error)
    engine.update()
    candidates = np.unique(first.insert_sources)
    sources = np.random.default_rng(1).choice(candidates, sizes.sources)
    published: dict[str, list[Solved]] = {method: [] for method in PUBLISHED_METHODS}
    ours: dict[str, list[Solved]] = {method: [] for method in METHODS}
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
            answers.append(Solved(ms, None, answer.error_bound, [()] * answer.iterations))
    rows = [
        {"vertices": engine.vertices, "edges": engine.edges, "form": form, "method": method}
        | _figures(queries)
        for form, methods in (("published", published), ("accelerated", ours))
        for method, queries in methods.items()
    ]
    return [*rows, switching(engine.internals.graph.arcs, published)]


def _figures(queries: list[Solved]) -> dict[str, Any]:
    """Of all queries by one method."""
    proofs = [one.certify_ms for one in queries if one.certify_ms is not None]
    return {
        "queries": len(queries),
        "median_ms": harness.rounded(median(one.ms for one in queries)),
        **({"certify_ms": harness.rounded(median(proofs))} if proofs else {}),
        "iterations": median(len(one.iterations) for one in queries),
        "error_bound": harness.rounded(max(one.error_bound for one in queries)),
    }


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
        "pushed_edge": harness.rounded(median(costs)) if costs else None,
        "agreement": harness.rounded(
            sum((p[4] < q[4]) == (h[0] == "pushopt") for p, q, h in rows) / max(1, count)
        ),
        "mode": " ".join(h[0] for _, _, h in rows),
        "psi": " ".join(f"{h[3]:g}" for _, _, h in rows),
        "pushopt_ms": " ".join(f"{p[4]:.4g}" for p, _, _ in rows),
        "pull_ms": " ".join(f"{q[4]:.4g}" for _, q, _ in rows),
        "hybrid_ms": " ".join(f"{h[4]:.4g}" for _, _, h in rows),
    }


def measured(
    backend: BackendName, folder: Path, results: Path, small: bool, **given: Any
) -> dict[str, Any]:
    """`small` takes minutes on a small machine; `sources` are queries of each method."""
    sizes = harness.sized(FULL, SMALL, small, given)
    missing = [n for n in sizes.graphs if n in GRAPHS and not (folder / GRAPHS[n]).exists()]
    for name in missing:
        print(f"{name}: no {folder / GRAPHS[name]}")
    warm_up(backend)
    works = {
        name: partial(measure, folder, name, sizes, backend)
        for name in sizes.graphs
        if name not in missing
    }
    found = harness.resumed(results / f".wang-{backend}.partial", sizes, works)
    return {
        "target_error": sizes.target_error,
        "times": [{"graph": name, **row} for name, rows in found.items() for row in rows[:-1]],
        "switching": [{"graph": name, **rows[-1]} for name, rows in found.items()],
    }


def main() -> None:
    options = {"folder": Path, "small": False, "scale": int | None, "sources": int | None}
    options |= {"target_error": float | None, "graphs": list[str] | None}
    harness.run(__doc__, {"wang": (measured, options)}, backends=True)


if __name__ == "__main__":
    main()
