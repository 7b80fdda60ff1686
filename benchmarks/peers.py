"""Whole solves beside other libraries at equal measured error. On ``cpu``: igraph (PRPACK),
NetworKit, NetworkX, and power iterations by GraphBLAS and SciPy; on ``cuda``: cuGraph and a power
iteration by cuSPARSE.

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
from functools import partial
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any

import numpy as np

from benchmarks import harness, timing
from benchmarks.inputs import EDGES_PER_VERTEX
from benchmarks.networks import GRAPHS, read_graph
from benchmarks.peer_solvers import DAMPING, PEERS, Edges, Ids, Solve
from benchmarks.timing import loosest
from liverank_gpu import BackendName, EdgeBatch, Engine, generate
from liverank_gpu.backends import backend_named
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Ranking

DATA = Path(__file__).parents[1] / "shared" / "data"
if not DATA.is_dir():
    DATA = Path(__file__).parents[2] / "shared" / "data"

REAL = ("cnr-2000", "npm")
"""Graphs of real links."""

Times = tuple[float, float]
"""Wall and processor seconds."""

_REFERENCE_TARGET = 1e-12
_CONFIRMED = 1e-10


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


def loaded(edges: Edges, backend: Backend, target: float) -> Engine:
    """An engine that has not solved yet."""
    batch = EdgeBatch(edges.sources, edges.targets, vertices=edges.vertices)
    return timing.loaded(batch, backend, damping=DAMPING, target_error=target)


def ranks(edges: Edges, backend: Backend, target: float) -> Ranking:
    """Of one solve."""
    engine = loaded(edges, backend, target)
    engine.update("auto")
    return engine.publish().to_numpy()


def _timed(solve: Callable[[], Any]) -> tuple[Times, Any]:
    """Wall and processor seconds, and the answer."""
    begin, begin_processor = perf_counter(), process_time()
    answer = solve()
    return (perf_counter() - begin, process_time() - begin_processor), answer


def _summary(times: list[Times]) -> dict[str, float]:
    return {
        "least_seconds": min(wall for wall, _ in times),
        "median_seconds": median(wall for wall, _ in times),
        "least_processor_seconds": min(processor for _, processor in times),
    }


def _error(found: Any, exact: Ranking) -> float:
    on_host = found.get() if hasattr(found, "get") else found
    return float(np.abs(on_host - exact).sum())


def solves_of(
    edges: Edges, backend: BackendName, threads: int
) -> Iterator[tuple[str, float, Solve]]:
    """Every peer at each of its tolerances."""
    for peer in PEERS[backend]:
        if not peer.installed or len(edges.sources) > peer.most_edges:
            why = "too many edges" if peer.installed else "not installed"
            print(f"{edges.name:10} {peer.name:10} left out: {why}", flush=True)
            continue
        solve = peer.prepare(edges, threads)
        for tolerance in peer.tolerances:
            yield peer.name, tolerance, solve


def compared(
    edges: Edges, backend: BackendName, threads: int, rounds: int
) -> Iterator[dict[str, Any]]:
    """A row for each peer and tolerance, at a target of no larger error."""
    chosen = backend_named(backend)
    exact = ranks(edges, chosen, _REFERENCE_TARGET)
    matches: list[tuple[Solve, dict[str, Any]]] = []
    for peer, tolerance, solve in solves_of(edges, backend, threads):
        error = _error(solve(tolerance), exact)
        if peer == "igraph" and error > _CONFIRMED:
            raise SystemExit(f"igraph is off by {error} from the reference")
        target, own_error = loosest(
            error, lambda target: _error(ranks(edges, chosen, target), exact), _REFERENCE_TARGET
        )
        facts: dict[str, Any] = {"peer": peer, "tolerance": tolerance, "error": error}
        matches.append((solve, facts | {"own_target": target, "own_error": own_error}))
    theirs: list[list[Times]] = [[] for _ in matches]
    own: list[list[Times]] = [[] for _ in matches]
    for _ in range(rounds):
        for place, (solve, facts) in enumerate(matches):
            theirs[place].append(_timed(partial(solve, facts["tolerance"]))[0])
            engine = loaded(edges, chosen, facts["own_target"])
            seconds, result = _timed(engine.update)
            own[place].append(seconds)
            facts["own_iterations"] = result.iterations
    key = "least_processor_seconds" if threads == 1 else "least_seconds"
    for (_, facts), their_times, own_times in zip(matches, theirs, own, strict=True):
        both = _summary(their_times), _summary(own_times)
        row = {
            "graph": edges.name,
            "vertices": edges.vertices,
            "edges": len(edges.sources),
            **facts,
            "peer_times": both[0],
            "own_times": both[1],
            "times_as_fast": both[0][key] / both[1][key],
        }
        print(row, flush=True)
        yield row


def measured(backend: BackendName, graphs: list[str], threads: int, rounds: int) -> dict[str, Any]:
    kernels.set_threads(threads)
    Engine(backend=backend).warm_up()
    solves = [row for name in graphs for row in compared(edges_of(name), backend, threads, rounds)]
    return {"threads": threads, "solves": solves}


if __name__ == "__main__":
    options = {"graphs": ["rmat-20", "grid-1024", *REAL], "threads": 2, "rounds": 5}
    harness.run(__doc__, {"peers": (measured, options)}, backends=True)
