"""Whole solves beside other libraries at equal measured error, and batches of 10 edges on a grid
beside a solve from uniform ranks. On ``cpu``: igraph (PRPACK), NetworKit, NetworkX, and power
iterations by GraphBLAS and SciPy; on ``cuda``: cuGraph and a power iteration by cuSPARSE.

All use the policy `uniform`. A peer is timed from its own graph in memory to its ranks: building
that graph is not part of it. The engine is timed from a graph that was just loaded. Each peer runs
at the tolerances below and its error is measured; the engine runs at the loosest of the tried
targets whose measured error is no larger. The reference is a solve of the engine to 1e-12. On
``cpu`` igraph, which shares no code with it, has to confirm it. Peers that are not installed are
left out, and named.

The contenders take turns. Figures are the minimum and the median of the rounds: on a machine with
other work, the minimum is the best estimate of the time that the work takes. With `--threads 1`
processor time is used, which other processes do not lengthen by taking the cores.

    pip install -e '.[bench]'
    python -m benchmarks.peers --threads 2
    python -m benchmarks.peers --backend cuda
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX
from benchmarks.networks import GRAPHS, read_graph
from benchmarks.peer_solvers import DAMPING, PEERS, Edges, Ids, Solve
from liverank_gpu import BackendName, EdgeBatch, Engine, Options, generate
from liverank_gpu.backends import backend_named
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Ranking

DATA = Path(__file__).parents[1] / "shared" / "data"
if not DATA.is_dir():
    DATA = Path(__file__).parents[2] / "shared" / "data"

REAL = ("cnr-2000", "npm")
"""Graphs of real links."""

_REFERENCE_TARGET = 1e-12
_CONFIRMED = 1e-10
_LOOSEST = 16.0
"""The engine's targets are tried downwards by halves from this many times the peer's error."""


def distinct(name: str, vertices: int, sources: Ids, targets: Ids, xp: Any = np) -> Edges:
    """`sources` and `targets` are arrays of `xp`, and so are the graph's."""
    keys = xp.unique(sources << 32 | targets)
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
    batch = read_graph(DATA / GRAPHS[name])
    return distinct(name, batch.vertices, batch.insert_sources, batch.insert_targets)


class EngineSolver:
    """Solves from uniform ranks, each by an engine that was just loaded."""

    def __init__(self, edges: Edges, backend: BackendName = "cpu") -> None:
        self._backend = backend_named(backend)
        self._batch = EdgeBatch(edges.sources, edges.targets, vertices=edges.vertices)
        self.iterations = 0

    def loaded(self, target: float, backend: Backend | None = None) -> Engine:
        """An engine that has not solved yet."""
        options = Options(damping=DAMPING, target_error=target)
        engine = Engine(options, backend or self._backend)
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


def matched(edges: Edges, solver: EngineSolver, backend: BackendName, threads: int) -> list[Match]:
    """Every peer at each of its tolerances."""
    exact = solver.ranks(_REFERENCE_TARGET)
    matches = []
    for peer in PEERS[backend]:
        if not peer.installed or len(edges.sources) > peer.most_edges:
            why = "too many edges" if peer.installed else "not installed"
            print(f"{edges.name:10} {peer.name:10} left out: {why}", flush=True)
            continue
        solve = peer.prepare(edges, threads)
        for tolerance in peer.tolerances:
            error = _error(solve(tolerance), exact)
            if peer.name == "igraph" and error > _CONFIRMED:
                raise SystemExit(f"igraph is off by {error} from the reference")
            target = max(_LOOSEST * error, _REFERENCE_TARGET)
            own_error = _error(solver.ranks(target), exact)
            # rounding may leave a peer nearer to the reference than any other solve
            while own_error > error and target > _REFERENCE_TARGET:
                target = max(target / 2.0, _REFERENCE_TARGET)
                own_error = _error(solver.ranks(target), exact)
            matches.append(Match(peer.name, tolerance, solve, error, target, own_error))
    return matches


def _error(ranks: Any, exact: Ranking) -> float:
    on_host = ranks.get() if hasattr(ranks, "get") else ranks
    return float(np.abs(on_host - exact).sum())


def compared(
    edges: Edges, backend: BackendName, threads: int, rounds: int
) -> Iterator[dict[str, Any]]:
    """A row for each peer and tolerance."""
    solver = EngineSolver(edges, backend)
    matches = matched(edges, solver, backend, threads)
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


def batches_of_ten(
    side: int, target: float, count: int, backend: BackendName, threads: int
) -> dict[str, Any]:
    """Batches of 8 insertions and 2 deletions on a grid, beside a solve from uniform
    ranks.
    """
    edges = edges_of(f"grid-{side}")
    solver = EngineSolver(edges, backend)
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


def measured(
    backend: BackendName, graphs: list[str], threads: int, rounds: int, grid: int, batches: int
) -> dict[str, Any]:
    """`grid` is the side of the graph that `batches` change."""
    kernels.set_threads(threads)
    Engine(backend=backend).warm_up()
    solves = [row for name in graphs for row in compared(edges_of(name), backend, threads, rounds)]
    small = batches_of_ten(grid, 1e-6, batches, backend, threads)
    return {"threads": threads, "solves": solves, "batches": small}


if __name__ == "__main__":
    options = {"graphs": ["rmat-20", "grid-1024", *REAL], "threads": 2, "rounds": 5}
    options |= {"grid": 1024, "batches": 50}
    harness.run(__doc__, {"peers": (measured, options)}, backends=True)
