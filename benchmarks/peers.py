"""Whole solves on ``cpu`` beside igraph (PRPACK), NetworKit and a GraphBLAS power iteration, at
equal measured error; and batches of 10 edges on a grid beside a solve from uniform ranks.

All use the policy `uniform`. A peer is timed from its own graph in memory to its ranks: building
that graph is not part of it. The engine is timed from a graph that was just loaded. Each peer runs
at the tolerances below and its error is measured; the engine runs at the loosest of the tried
targets whose measured error is no larger. The reference is a solve of the engine to 1e-12; igraph,
which shares no code with it, has to confirm it.

The contenders take turns. Figures are the minimum and the median of the rounds: on a machine with
other work, the minimum is the best estimate of the time that the work takes. With `--threads 1`
processor time is used, which other processes do not lengthen by taking the cores.

    pip install -e '.[bench]'
    python -m benchmarks.peers --threads 2
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numba
import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX
from benchmarks.networks import read_graph
from gpu import EdgeBatch, Engine, Options, generate
from gpu.backends import backend_named
from gpu.operations.backend import Backend
from gpu.types import Ranking

DATA = Path(__file__).parents[1] / "shared" / "data"
if not DATA.is_dir():
    DATA = Path(__file__).parents[2] / "shared" / "data"

REAL = {
    "cnr-2000": "cnr-2000/cnr-2000.txt.zst",
    "npm": "pkg-deps/npm.2016-08-26.links.bin.zst",
}
"""Graphs of real links, and their files below the folder of data."""

_DAMPING = 0.85
_REFERENCE_TARGET = 1e-12
_CONFIRMED = 1e-10
_TOLERANCES = (1e-6, 1e-9)
_LOOSEST = 16.0
"""The engine's targets are tried downwards by halves from this many times the peer's error."""

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Edges:
    """A graph without repeated edges: ids below `vertices`, int64[m] each."""

    name: str
    vertices: int
    sources: Ids
    targets: Ids


def distinct(name: str, vertices: int, sources: Ids, targets: Ids) -> Edges:
    keys = np.unique(sources << 32 | targets)
    return Edges(name, vertices, keys >> 32, keys & 0xFFFFFFFF)


def edges_of(name: str) -> Edges:
    """The graph of this name: ``rmat-SCALE`` (Graph500 parameters, 16 edges a vertex, shuffled
    labels), ``grid-SIDE``, or one of REAL.
    """
    kind, _, size = name.partition("-")
    if kind == "rmat":
        columns = generate.rmat(int(size), EDGES_PER_VERTEX, seed=1)
        return distinct(name, 1 << int(size), *columns)
    if kind == "grid":
        return distinct(name, int(size) ** 2, *generate.grid(int(size), int(size)))
    batch = read_graph(DATA / REAL[name])
    return distinct(name, batch.vertices, batch.insert_sources, batch.insert_targets)


Solve = Callable[[float], Ranking]
"""Ranks at a tolerance, which each contender defines in its own way."""


def igraph_solver(edges: Edges) -> Solve:
    import igraph

    pairs = np.column_stack([edges.sources, edges.targets])
    graph = igraph.Graph(n=edges.vertices, edges=pairs, directed=True)
    return lambda _: np.asarray(graph.pagerank(damping=_DAMPING), np.float64)


def networkit_solver(edges: Edges, threads: int) -> Solve:
    import networkit

    networkit.setNumberOfThreads(threads)
    centrality = networkit.centrality
    columns = (edges.sources, edges.targets)
    graph = networkit.GraphFromCoo(columns, n=edges.vertices, weighted=False, directed=True)

    def solve(tolerance: float) -> Ranking:
        ranking = centrality.PageRank(
            graph,
            damp=_DAMPING,
            tol=tolerance,
            distributeSinks=centrality.SinkHandling.DistributeSinks,
        )
        ranking.norm = centrality.Norm.l1norm
        ranking.run()
        scores = np.asarray(ranking.scores(), np.float64)
        return np.asarray(scores / scores.sum(), np.float64)

    return solve


def graphblas_solver(edges: Edges, threads: int) -> Solve:
    """Power iteration as in LAGraph: each sweep is a plus-second product with the transpose, in
    float64; until the ranks move by at most the tolerance in L1.
    """
    import graphblas

    graphblas.ss.config["nthreads"] = threads
    size = edges.vertices
    transpose = graphblas.Matrix.from_coo(
        edges.targets, edges.sources, 1.0, nrows=size, ncols=size, dtype="FP64"
    )
    transpose.ss.config["format"] = "by_row"
    degree = np.bincount(edges.sources, minlength=size).astype(np.float64)
    weights = graphblas.Vector.from_dense(_DAMPING / np.maximum(degree, 1.0))
    dangling = graphblas.Vector.from_coo(np.flatnonzero(degree == 0), 1.0, size=size)
    plus_second = graphblas.semiring.plus_second
    plus, times = graphblas.monoid.plus, graphblas.binary.times

    def solve(tolerance: float) -> Ranking:
        ranks = graphblas.Vector.from_scalar(1.0 / size, size)
        change = 1.0
        while change > tolerance:
            mass = (ranks @ dangling).new().value or 0.0 if dangling.nvals else 0.0
            teleport = (1.0 - _DAMPING + _DAMPING * mass) / size
            contributions = ranks.ewise_mult(weights, times).new()
            following = graphblas.Vector.from_scalar(teleport, size)
            following(plus) << plus_second(transpose @ contributions)
            ranks(graphblas.binary.minus) << following
            change = float(ranks.apply(graphblas.unary.abs).reduce(plus).new())
            ranks = following
        scores = ranks.to_dense()
        return np.asarray(scores / scores.sum(), np.float64)

    return solve


class EngineSolver:
    """Solves from uniform ranks, each by an engine that was just loaded."""

    def __init__(self, edges: Edges) -> None:
        self._batch = EdgeBatch(edges.sources, edges.targets, vertices=edges.vertices)
        self.iterations = 0

    def loaded(self, target: float, backend: Backend | None = None) -> Engine:
        """An engine that has not solved yet."""
        options = Options(damping=_DAMPING, target_error=target)
        engine = Engine(options, backend or backend_named("cpu"))
        engine.apply(self._batch)
        return engine

    def prepared(self, target: float) -> Callable[[], None]:
        """A solve of a graph that is loaded before this returns."""
        engine = self.loaded(target)

        def solve() -> None:
            self.iterations = engine.update("auto").iterations

        return solve

    def ranks(self, target: float) -> Ranking:
        """The ranks of one solve."""
        engine = self.loaded(target)
        engine.update("auto")
        return engine.publish().to_numpy()


def _timed(solve: Callable[[], object]) -> tuple[float, float]:
    """Wall and processor seconds."""
    begin, begin_processor = perf_counter(), process_time()
    solve()
    return perf_counter() - begin, process_time() - begin_processor


def _clock_key(threads: int) -> str:
    """Which of the seconds of `_summary` are compared."""
    return "least_processor_seconds" if threads == 1 else "least_seconds"


def _summary(times: list[tuple[float, float]]) -> dict[str, float]:
    return {
        "least_seconds": min(wall for wall, _ in times),
        "median_seconds": median(wall for wall, _ in times),
        "least_processor_seconds": min(processor for _, processor in times),
    }


@dataclass(slots=True)
class Match:
    """One peer at one tolerance, and the engine at a target of no larger error."""

    peer: str
    tolerance: float
    solve: Solve
    error: float
    target: float
    own_error: float
    iterations: int = 0
    times: list[tuple[float, float]] = field(default_factory=list)
    own_times: list[tuple[float, float]] = field(default_factory=list)

    def run(self, solver: EngineSolver) -> None:
        """One round."""
        self.times.append(_timed(lambda: self.solve(self.tolerance)))
        self.own_times.append(_timed(solver.prepared(self.target)))
        self.iterations = solver.iterations


def matched(edges: Edges, solver: EngineSolver, threads: int) -> list[Match]:
    """Every peer at each of its tolerances."""
    exact = solver.ranks(_REFERENCE_TARGET)
    networkit_solve = networkit_solver(edges, threads)
    graphblas_solve = graphblas_solver(edges, threads)
    peers: list[tuple[str, float, Solve]] = [("igraph", 0.0, igraph_solver(edges))]
    peers += [("NetworKit", tolerance, networkit_solve) for tolerance in _TOLERANCES]
    peers += [("GraphBLAS", tolerance, graphblas_solve) for tolerance in _TOLERANCES]
    matches = []
    for name, tolerance, solve in peers:
        error = float(np.abs(solve(tolerance) - exact).sum())
        if name == "igraph" and error > _CONFIRMED:
            raise SystemExit(f"igraph is off by {error} from the reference")
        target = max(_LOOSEST * error, _REFERENCE_TARGET)
        while (own_error := float(np.abs(solver.ranks(target) - exact).sum())) > error:
            target = max(target / 2.0, _REFERENCE_TARGET)
        matches.append(Match(name, tolerance, solve, error, target, own_error))
    return matches


def compared(edges: Edges, threads: int, rounds: int) -> Iterator[dict[str, Any]]:
    """A row for each peer and tolerance."""
    solver = EngineSolver(edges)
    matches = matched(edges, solver, threads)
    for _ in range(rounds):
        for match in matches:
            match.run(solver)
    key = _clock_key(threads)
    for match in matches:
        theirs, own = _summary(match.times), _summary(match.own_times)
        row = {
            "graph": edges.name,
            "vertices": edges.vertices,
            "edges": len(edges.sources),
            "peer": match.peer,
            "tolerance": match.tolerance,
            "error": match.error,
            "own_target": match.target,
            "own_error": match.own_error,
            "own_iterations": match.iterations,
            "peer_times": theirs,
            "own_times": own,
            "times_as_fast": theirs[key] / own[key],
        }
        print(
            f"{edges.name:10} {match.peer:10} error {match.error:.1e}  {theirs[key]:7.3f} s"
            f"   engine {match.own_error:.1e}  {own[key]:7.3f} s"
            f"   {row['times_as_fast']:5.1f} times",
            flush=True,
        )
        yield row


def batches_of_ten(side: int, target: float, count: int, threads: int) -> dict[str, Any]:
    """Batches of 8 insertions and 2 deletions on a grid, beside a solve from uniform
    ranks.
    """
    edges = edges_of(f"grid-{side}")
    solver = EngineSolver(edges)
    clock = process_time if threads == 1 else perf_counter
    generator = np.random.default_rng(7)
    engine = solver.loaded(target)
    engine.update("auto")
    small, whole = [], []
    for step in range(count):
        if step % max(1, count // 5) == 0:
            whole.append(_timed(solver.prepared(target)))
        ends = generator.integers(0, edges.vertices, (2, 8))
        gone = generator.integers(0, len(edges.sources), 2)
        begin = clock()
        engine.apply(EdgeBatch(ends[0], ends[1], edges.sources[gone], edges.targets[gone]))
        result = engine.update("auto")
        small.append(clock() - begin)
        assert result.converged
    solve = _summary(whole)[_clock_key(threads)]
    row = {
        "graph": edges.name,
        "batches": count,
        "target_error": target,
        "batch_median_seconds": median(small),
        "batch_mean_seconds": sum(small) / len(small),
        "solve_seconds": solve,
        "times_as_fast": solve / median(small),
    }
    print(row, flush=True)
    return row


def main() -> None:
    parser = harness.parser("whole solves beside other libraries")
    parser.add_argument("--graphs", nargs="*", default=["rmat-20", "grid-1024", *REAL])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--grid", type=int, default=1024, help="side, for the batches")
    parser.add_argument("--batches", type=int, default=50)
    arguments = parser.parse_args()

    numba.set_num_threads(arguments.threads)
    Engine(backend="cpu").warm_up()
    figures = {
        "threads": arguments.threads,
        "solves": [
            row
            for name in arguments.graphs
            for row in compared(edges_of(name), arguments.threads, arguments.rounds)
        ],
        "batches": batches_of_ten(arguments.grid, 1e-6, arguments.batches, arguments.threads),
    }
    print(harness.record("peers", "cpu", figures, arguments.results))


if __name__ == "__main__":
    main()
