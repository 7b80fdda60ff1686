"""Personalized queries: one by one, until settled, many at once, watched; and push against pull.

R-MAT has Graph500's parameters, 16 edges a vertex, and is numbered by falling degree; sources are
drawn among the vertices that have out-edges (from a vertex without there is nothing to compute).
The graph is ranked first, and after each batch, as a service does it: that is not in the times.
Times are those of the engine, from the call to the answer on the host.

    python -m benchmarks.personalized --backend cuda --rmat 24 --grid 4096
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.residual import grid, rmat
from gpu import EdgeBatch, Engine, Options, Personalized, PersonalizedQuery
from gpu.seeds import Seeds
from gpu.walk import Shares, Space, Walk

TARGET = 1e-6
WATCHED, WATCHED_TARGET, BATCH = 100, 1e-4, 1_000
MANY = 1_024
TRACED = 7
"""Iterations of the traced query."""

Figures = dict[str, Any]


class Bench:
    """An engine with a graph, and a clock that waits for the device."""

    def __init__(self, name: str, backend: str, sources: Any, targets: Any, vertices: int) -> None:
        self.name = name
        self.engine = Engine(Options(), backend)  # type: ignore[arg-type]
        self.engine.apply(EdgeBatch(sources, targets, vertices=vertices))
        self.engine.update()
        self.backend = self.engine._backend
        self.degree = self.backend.to_host(self.engine._graph.degree)

    def seconds(self, run: Callable[[], Any]) -> tuple[float, Any]:
        self.backend.synchronize()
        begin = perf_counter()
        found = run()
        self.backend.synchronize()
        return perf_counter() - begin, found

    def one(self, query: PersonalizedQuery) -> tuple[float, Personalized]:
        taken, (answer,) = self.seconds(lambda: self.engine.personalized_many([query]))
        return taken, answer

    def row(self, kind: str, queries: Sequence[PersonalizedQuery]) -> Figures:
        """Figures of queries made one after the other."""
        self.one(queries[0])
        seen = [self.one(query) for query in queries]
        times = np.array([taken for taken, _ in seen]) * 1e3
        answers = [answer for _, answer in seen]
        first = queries[0]
        figures = {
            "graph": self.name,
            "edges": self.engine.edges,
            "kind": kind,
            "method": first.method,
            "k": first.k,
            "target_error": first.target_error,
            "queries": len(queries),
            "median_ms": float(np.median(times)),
            "p90_ms": float(np.percentile(times, 90)),
            "largest_ms": float(times.max()),
            "median_iterations": float(np.median([answer.iterations for answer in answers])),
            "median_settled": float(np.median([answer.settled for answer in answers])),
            "all_settled": float(np.mean([answer.settled >= first.k for answer in answers])),
            "largest_bound": max(answer.error_bound for answer in answers),
        }
        print(
            f"{self.name} {kind} {first.method}: median {figures['median_ms']:.2f} ms, p90"
            f" {figures['p90_ms']:.2f}, {figures['median_iterations']} iterations, bound"
            f" {figures['largest_bound']:.1e}, settled {figures['median_settled']}",
            flush=True,
        )
        return figures

    def drawn(self, random: np.random.Generator, count: int, low: int = 1) -> list[int]:
        """Distinct sources of out-degree `low` or more, below ten times as many."""
        high = np.inf if low == 1 else 10 * low
        among = np.flatnonzero((self.degree >= low) & (self.degree < high))
        return [int(v) for v in random.choice(among, min(count, len(among)), replace=False)]


def _query(source: int, **options: Any) -> PersonalizedQuery:
    options = {"k": 100, "target_error": TARGET} | options
    return PersonalizedQuery(np.array([source]), **options)


def singles(bench: Bench, random: np.random.Generator, count: int) -> list[Figures]:
    """One query after the other, and until the places are settled."""
    sources = bench.drawn(random, count)
    some = sources[: max(1, count // 10)]
    settled = [_query(v, k=10, target="settled-top-k") for v in sources[: max(1, count // 5)]]
    return [
        bench.row("any source", [_query(v) for v in sources]),
        bench.row("any source", [_query(v, method="pull") for v in some]),
        bench.row("any source", [_query(v, target_error=1e-4) for v in some]),
        bench.row("settled-top-k", settled),
    ]


def methods(bench: Bench, random: np.random.Generator, lows: Sequence[int]) -> list[Figures]:
    """Each method by the source's degree; push only where it is not hopeless."""
    rows = []
    for low in lows:
        for source_target in (0.1, TARGET):
            sources = bench.drawn(random, 6, low)
            if not sources:
                continue
            names = ["hybrid", "pull"]
            if source_target > TARGET or "grid" in bench.name:
                names.append("push")
            kind = f"degree from {low}" if len(lows) > 1 else "any source"
            rows += [
                bench.row(
                    kind, [_query(v, method=name, target_error=source_target) for v in sources]
                )
                for name in names
            ]
    return rows


def many(bench: Bench, random: np.random.Generator, count: int) -> Figures:
    """Queries asked at once."""
    asked = [_query(v) for v in bench.drawn(random, count)]
    bench.engine.personalized_many(asked[:32])
    taken, answers = bench.seconds(lambda: bench.engine.personalized_many(asked))
    figures = {
        "graph": bench.name,
        "queries": len(asked),
        "seconds": taken,
        "ms_each": taken / len(asked) * 1e3,
        "largest_bound": max(answer.error_bound for answer in answers),
        "sweeps_a_block": float(np.median([answer.iterations for answer in answers])),
    }
    print(f"many: {figures}", flush=True)
    return figures


def watched(
    bench: Bench, random: np.random.Generator, draw: Callable[[int], tuple[Any, Any]], batches: int
) -> Figures:
    """What watched queries add to a batch: perturbation when it is applied, and the refresh."""
    engine, size = bench.engine, BATCH
    for place, source in enumerate(bench.drawn(random, WATCHED)):
        engine.watch(f"watched {place}", _query(source, k=10, target_error=WATCHED_TARGET))
    held = engine.memory()["personalized"]

    def batch() -> float:
        sources, targets = draw(size)
        taken, _ = bench.seconds(lambda: engine.apply(EdgeBatch(sources, targets)))
        engine.update()
        return taken

    extra = []
    for _ in range(batches):
        applied = batch()
        extra.append(applied + bench.seconds(engine.refresh_watched)[0])
    bounds = [engine.watched(f"watched {place}").error_bound for place in range(WATCHED)]
    for place in range(WATCHED):
        engine.unwatch(f"watched {place}")
    alone = float(np.median([batch() for _ in range(batches)]))
    times = (np.array(extra) - alone) * 1e3
    figures = {
        "graph": bench.name,
        "watched": WATCHED,
        "target_error": WATCHED_TARGET,
        "batch_size": size,
        "batches": batches,
        "mean_extra_ms": float(times.mean()),
        "median_extra_ms": float(np.median(times)),
        "largest_extra_ms": float(times.max()),
        "bytes": held,
        "largest_bound": max(bounds),
    }
    print(f"watched: {figures}", flush=True)
    return figures


def trace(bench: Bench, source: int) -> list[Figures]:
    """What each iteration from one source takes as a push of all residuals and as a pull."""
    graph, backend = bench.engine._graph, bench.backend
    # one round a call, over all that has a residual
    options = Options(max_iterations=1)
    seeds = Seeds.of(graph.vertices, np.array([source]))
    pushing = Walk(Space(graph, everywhere=True), options, seeds)
    pulling = Walk(Space(graph), options, seeds)
    shares = Shares(graph, graph.vertices)
    rows = []
    for iteration in range(1, TRACED + 1):
        taken, pushed = bench.seconds(
            lambda: pushing.push(1e-12, 0.0, graph.edges + 1, graph.edges + 1)
        )
        pulled, _ = bench.seconds(lambda: pulling.sweep(shares, False))
        edges = 0 if pushed is None else pushed.change.edges
        work = float(graph.edges + graph.vertices)
        rows.append(
            {
                "iteration": iteration,
                "edges": edges,
                "score": backend.push_cost * edges / work - 0.1,
                "push_ms": taken * 1e3,
                "pull_ms": pulled * 1e3,
            }
        )
        print(f"trace: {rows[-1]}", flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description="personalized queries on R-MAT and a grid")
    parser.add_argument("--backend", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rmat", type=int, help="scale: two to the power of it vertices")
    parser.add_argument("--grid", type=int, help="side")
    parser.add_argument("--sources", type=int, default=1_000)
    parser.add_argument("--many", type=int, default=MANY)
    parser.add_argument("--batches", type=int, default=20)
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    arguments = parser.parse_args()

    xp: Any = np
    if arguments.backend == "cuda":
        import cupy

        xp = cupy
    Engine(backend=arguments.backend).warm_up()
    generator, random = np.random.default_rng(7), xp.random.default_rng(7)
    figures: Figures = {"rows": []}
    if arguments.grid:
        side = arguments.grid
        bench = Bench(f"grid {side}", arguments.backend, *grid(xp, side), side * side)
        figures["rows"] += methods(bench, generator, (1,))
        del bench
    if arguments.rmat:
        vertices = 1 << arguments.rmat
        sources, targets = rmat(xp, random, arguments.rmat, 16 * vertices)
        order = xp.argsort(-xp.bincount(sources, minlength=vertices))
        label = xp.empty(vertices, np.int64)
        label[order] = xp.arange(vertices)
        name = f"R-MAT {arguments.rmat}"
        bench = Bench(name, arguments.backend, label[sources], label[targets], vertices)
        del sources, targets, order

        def draw(count: int) -> tuple[Any, Any]:
            drawn = rmat(xp, random, arguments.rmat, count)
            return label[drawn[0]], label[drawn[1]]

        figures["rows"] += singles(bench, generator, arguments.sources)
        figures["rows"] += methods(bench, generator, (1, 10, 100, 1_000, 10_000))
        figures["many"] = many(bench, generator, arguments.many)
        figures["trace"] = trace(bench, bench.drawn(generator, 1, 10)[0])
        figures["watched"] = watched(bench, generator, draw, arguments.batches)
    print(harness.record("personalized", arguments.backend, figures, arguments.results))


if __name__ == "__main__":
    main()
