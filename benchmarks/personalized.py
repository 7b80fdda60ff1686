"""Personalized queries: alone, until places are proven, many at once, watched; and push against
pull. Each method on more graphs: benchmarks.wang.

Sources are drawn among the vertices with out-edges: from
any other there is nothing to compute. The graph is ranked at the start and after each batch, as a
service does; that is not part of the times, which run from the call to the answer on the host.

    python -m benchmarks.personalized --backend cuda --rmat 24
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import Drawn, drawn_rmat
from benchmarks.timing import loaded, timed, warm_up
from liverank_gpu import BackendName, EdgeBatch, Personalized, PersonalizedQuery
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.iterate import ContributionBuffers
from liverank_gpu.personalized.iterate import PersonalizedIterate, Seeds

TARGET = 1e-6
WATCHED, WATCHED_TARGET, BATCH = 100, 1e-4, 1_000
FIRST = 10
"""Places that are to be proven."""
TRACED = 7
"""Iterations of the traced query."""

_SWITCH_SWEEPS = 0.1
"""Ψ compares the cost of a work-list with this part of a sweep, as Wang et al. do."""

Figures = dict[str, Any]


class Bench:
    """An engine with a graph that has been ranked."""

    def __init__(self, name: str, backend: Backend, load: EdgeBatch) -> None:
        self.name = name
        self.backend = backend
        self.engine = loaded(load, backend)
        self.engine.update()
        graph = self.engine.internals.graph
        self._degree = backend.device.to_host(graph.permutation.by_id(graph.degree))

    def one(self, query: PersonalizedQuery) -> tuple[float, Personalized]:
        """Milliseconds, and the answer."""
        milliseconds, (answer,) = timed(
            self.backend.device, lambda: self.engine.personalized_many([query])
        )
        return milliseconds, answer

    def rows(self, *compared: tuple[str, Sequence[PersonalizedQuery]]) -> list[Figures]:
        """Figures of each kind of these, whose queries are made in turns, so that a slow moment of
        the machine falls on all of them; the first of each is made once more before.
        """
        kinds, queries = zip(*compared, strict=True)
        for first, *_ in queries:
            self.one(first)
        turns = [[self.one(query) for query in turn] for turn in zip(*queries, strict=True)]
        seen = zip(*turns, strict=True)
        return [self._figures(*each) for each in zip(kinds, queries, seen, strict=True)]

    def _figures(
        self, kind: str, queries: Sequence[PersonalizedQuery], seen: Sequence[tuple[float, Any]]
    ) -> Figures:
        """Of these queries, with the milliseconds that each took and its answer."""
        times = np.array([milliseconds for milliseconds, _ in seen])
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
            "set_settled": float(np.mean([answer.settled_set for answer in answers])),
            "largest_bound": max(answer.error_bound for answer in answers),
        }
        print(
            f"{self.name} {kind} {first.method}: median {figures['median_ms']:.2f} ms, p90"
            f" {figures['p90_ms']:.2f}, {figures['median_iterations']} iterations, bound"
            f" {figures['largest_bound']:.1e}, settled {figures['median_settled']}, sets"
            f" {figures['set_settled']:.0%}",
            flush=True,
        )
        return figures

    def drawn(self, random: np.random.Generator, count: int) -> list[int]:
        """Distinct sources with out-edges."""
        among = np.flatnonzero(self._degree)
        return [int(v) for v in random.choice(among, min(count, len(among)), replace=False)]


def _query(source: int, **options: Any) -> PersonalizedQuery:
    options = {"k": 100, "target_error": TARGET} | options
    return PersonalizedQuery(np.array([source]), **options)


def singles(bench: Bench, random: np.random.Generator, count: int) -> list[Figures]:
    """Queries one after the other, to a target error, and until places are proven: as a set, and in
    their order.
    """
    sources = bench.drawn(random, count)
    some = sources[: max(1, count // 10)]
    fewer = sources[: max(1, count // 5)]
    return [
        *bench.rows(("any source", [_query(v) for v in sources])),
        *bench.rows(("any source", [_query(v, method="pull") for v in some])),
        *bench.rows(("any source", [_query(v, target_error=1e-4) for v in some])),
        *bench.rows(
            *(
                (target, [_query(v, k=FIRST, target=target) for v in fewer])
                for target in ("settled-set", "settled-top-k")
            )
        ),
    ]


def together(bench: Bench, random: np.random.Generator, count: int) -> Figures:
    """Queries submitted together."""
    queries = [_query(v) for v in bench.drawn(random, count)]
    bench.engine.personalized_many(queries[:32])
    milliseconds, answers = timed(
        bench.backend.device, lambda: bench.engine.personalized_many(queries)
    )
    figures = {
        "graph": bench.name,
        "queries": len(queries),
        "seconds": 1e-3 * milliseconds,
        "ms_each": milliseconds / len(queries),
        "largest_bound": max(answer.error_bound for answer in answers),
        "sweeps_a_block": float(np.median([answer.iterations for answer in answers])),
    }
    print(f"many: {figures}", flush=True)
    return figures


def watched(bench: Bench, random: np.random.Generator, graph: Drawn, batches: int) -> Figures:
    """What watched queries add to a batch: their perturbation, and the refresh."""
    engine, device = bench.engine, bench.backend.device
    sources = {f"watched {source}": source for source in bench.drawn(random, WATCHED)}
    for name, source in sources.items():
        engine.watch(name, _query(source, k=10, target_error=WATCHED_TARGET))
    held = engine.memory()["personalized"]

    def batch() -> float:
        edges = EdgeBatch(*graph.draw(BATCH))
        milliseconds, _ = timed(device, lambda: engine.apply(edges))
        engine.update()
        return milliseconds

    times = [batch() + timed(device, engine.refresh_watched)[0] for _ in range(batches)]
    bounds = [engine.watched(name).error_bound for name in sources]
    for name in sources:
        engine.unwatch(name)
    alone = float(np.median([batch() for _ in range(batches)]))
    extra = np.array(times) - alone
    figures = {
        "graph": bench.name,
        "watched": len(sources),
        "target_error": WATCHED_TARGET,
        "batch_size": BATCH,
        "batches": batches,
        "mean_extra_ms": float(extra.mean()),
        "median_extra_ms": float(np.median(extra)),
        "largest_extra_ms": float(extra.max()),
        "bytes": held,
        "largest_bound": max(bounds),
    }
    print(f"watched: {figures}", flush=True)
    return figures


def trace(bench: Bench, source: int) -> list[Figures]:
    """What each iteration from one source costs as a push of all residuals, and as a sweep."""
    graph, pool = bench.engine.internals.graph, bench.engine.internals.queries.pool
    # one round a call, over every vertex that has a residual
    options = replace(bench.engine.options, max_iterations=1)
    seeds = Seeds.of(graph.vertices, np.array([source]))
    pushing = PersonalizedIterate(graph, pool.take(list_every_vertex=True), options, seeds)
    sweeping = PersonalizedIterate(graph, pool.take(), options, seeds)
    buffers = ContributionBuffers.allocate(bench.backend, graph.vertices)
    device, rows = bench.backend.device, []
    for iteration in range(1, TRACED + 1):
        push_ms, pushed = timed(
            device, lambda: pushing.push_to(1e-12, 0.0, graph.edges + 1, graph.edges + 1)
        )
        pull_ms, _ = timed(device, lambda: sweeping.sweep(buffers))
        edges = 0 if pushed is None else pushed.delta.additions
        sweep_edges = float(graph.edges + graph.vertices)
        rows.append(
            {
                "iteration": iteration,
                "edges": edges,
                "score": bench.backend.costs.pushed_edge * edges / sweep_edges - _SWITCH_SWEEPS,
                "push_ms": push_ms,
                "pull_ms": pull_ms,
            }
        )
        print(f"trace: {rows[-1]}", flush=True)
    pool.give_back(pushing.workspace)
    pool.give_back(sweeping.workspace)
    return rows


def measured(
    backend: BackendName, rmat: int, sources: int, many: int, batches: int
) -> Iterator[tuple[str, Any]]:
    """`rmat` is a scale."""
    chosen = backend_named(backend)
    for weighted in (False, True):
        warm_up(chosen, weighted=weighted)
    generator, random = np.random.default_rng(7), chosen.xp.random.default_rng(7)
    graph = drawn_rmat(chosen.xp, random, rmat)
    bench = Bench(f"R-MAT {rmat}", chosen, graph.load)
    yield "rows", singles(bench, generator, sources)
    yield "many", together(bench, generator, many)
    yield "trace", trace(bench, bench.drawn(generator, 1)[0])
    yield "watched", watched(bench, generator, graph, batches)


if __name__ == "__main__":
    options = {"rmat": 16, "sources": 1_000, "many": 1_024, "batches": 20}
    harness.run(__doc__, {"personalized": (measured, options)}, backends=True)
