"""Solvers of other libraries for benchmarks.peers: each makes its own graph, and then ranks.

All follow the policy `uniform`. Those of `CPU` and `CUDA` whose package is not installed are left
out.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np
from numpy.typing import NDArray

DAMPING = 0.85

Ids = NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Edges:
    """A graph without repeated edges: ids below `vertices`, int64[m] each."""

    name: str
    vertices: int
    sources: Ids
    targets: Ids


Solve = Callable[[float], Any]
"""Ranks at a tolerance, which each contender defines in its own way: float64[n], where they were
computed.
"""


def igraph_solver(edges: Edges, threads: int) -> Solve:  # noqa: ARG001
    import igraph

    pairs = np.column_stack([edges.sources, edges.targets])
    graph = igraph.Graph(n=edges.vertices, edges=pairs, directed=True)
    return lambda _: np.asarray(graph.pagerank(damping=DAMPING), np.float64)


def networkit_solver(edges: Edges, threads: int) -> Solve:
    import networkit

    networkit.setNumberOfThreads(threads)
    centrality = networkit.centrality
    columns = (edges.sources, edges.targets)
    graph = networkit.GraphFromCoo(columns, n=edges.vertices, weighted=False, directed=True)

    def solve(tolerance: float) -> Any:
        ranking = centrality.PageRank(
            graph,
            damp=DAMPING,
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
    weights = graphblas.Vector.from_dense(DAMPING / np.maximum(degree, 1.0))
    dangling = graphblas.Vector.from_coo(np.flatnonzero(degree == 0), 1.0, size=size)
    plus_second = graphblas.semiring.plus_second
    plus, times = graphblas.monoid.plus, graphblas.binary.times

    def solve(tolerance: float) -> Any:
        ranks = graphblas.Vector.from_scalar(1.0 / size, size)
        change = 1.0
        while change > tolerance:
            mass = (ranks @ dangling).new().value or 0.0 if dangling.nvals else 0.0
            teleport = (1.0 - DAMPING + DAMPING * mass) / size
            contributions = ranks.ewise_mult(weights, times).new()
            following = graphblas.Vector.from_scalar(teleport, size)
            following(plus) << plus_second(transpose @ contributions)
            ranks(graphblas.binary.minus) << following
            change = float(ranks.apply(graphblas.unary.abs).reduce(plus).new())
            ranks = following
        scores = ranks.to_dense()
        return np.asarray(scores / scores.sum(), np.float64)

    return solve


def networkx_solver(edges: Edges, threads: int) -> Solve:  # noqa: ARG001
    """NetworkX makes a matrix of its graph in each solve."""
    import networkx

    graph = networkx.DiGraph()
    graph.add_nodes_from(range(edges.vertices))
    graph.add_edges_from(zip(edges.sources.tolist(), edges.targets.tolist(), strict=True))

    def solve(tolerance: float) -> Any:
        # its tolerance is that of one vertex
        share = tolerance / edges.vertices
        ranks = networkx.pagerank(graph, DAMPING, max_iter=1000, tol=share)
        return np.fromiter(ranks.values(), np.float64, edges.vertices)

    return solve


def power_iteration(
    transpose: Any,
    degree: Any,
    arrays: Any,
    tolerance: float,
    *,
    largest: bool = False,
    most: int = 1 << 30,
) -> Any:
    """Until the ranks move by at most the tolerance in L1, or the largest of them does.

    transpose  a sparse matrix of ones, row v has the in-neighbours of v
    degree     float64[n], out-degrees
    arrays     the module of the arrays: NumPy or CuPy
    most       iterations
    """
    size = len(degree)
    dangling, divisor = arrays.flatnonzero(degree == 0), arrays.maximum(degree, 1.0)
    ranks = arrays.full(size, 1.0 / size)
    for _ in range(most):
        mass = float(ranks[dangling].sum()) if len(dangling) else 0.0
        teleport = (1.0 - DAMPING + DAMPING * mass) / size
        following = transpose @ (DAMPING * ranks / divisor) + teleport
        moved = arrays.abs(following - ranks)
        ranks = following
        if float(moved.max() if largest else moved.sum()) <= tolerance:
            break
    return ranks if largest else ranks / ranks.sum()


def sparse_solver(edges: Edges, arrays: Any, **options: Any) -> Solve:
    """Sparse matrix by vector: by SciPy on one core, or by cuSPARSE through CuPy."""
    sparse = import_module("scipy.sparse" if arrays is np else "cupyx.scipy.sparse")
    sources, targets = (arrays.asarray(ids, np.int32) for ids in (edges.sources, edges.targets))
    entries = (arrays.ones(len(edges.sources)), (targets, sources))
    transpose = sparse.csr_matrix(entries, shape=(edges.vertices, edges.vertices))
    degree = arrays.bincount(sources, minlength=edges.vertices).astype(np.float64)
    return partial(power_iteration, transpose, degree, arrays, **options)


def scipy_solver(edges: Edges, threads: int) -> Solve:  # noqa: ARG001
    return sparse_solver(edges, np)


def cusparse_solver(edges: Edges, threads: int) -> Solve:  # noqa: ARG001
    import cupy

    return sparse_solver(edges, cupy)


def cugraph_solver(edges: Edges, threads: int) -> Solve:  # noqa: ARG001
    import cupy
    import pylibcugraph

    handle = pylibcugraph.ResourceHandle()
    sources, targets = (
        cupy.asarray(ids.astype(np.int32)) for ids in (edges.sources, edges.targets)
    )
    graph = pylibcugraph.SGGraph(
        handle,
        pylibcugraph.GraphProperties(is_symmetric=False, is_multigraph=False),
        sources,
        targets,
        weight_array=cupy.ones(len(sources)),
        store_transposed=True,
        renumber=True,
        do_expensive_check=False,
        vertices_array=cupy.arange(edges.vertices, dtype=np.int32),
    )

    def solve(tolerance: float) -> Any:
        vertices, values = pylibcugraph.pagerank(
            handle, graph, None, None, None, None, DAMPING, tolerance, 1000, False
        )
        ranks = cupy.zeros(edges.vertices)
        ranks[vertices] = values
        cupy.cuda.get_current_stream().synchronize()
        return ranks / ranks.sum()

    return solve


TOLERANCES = (1e-6, 1e-9)


@dataclass(frozen=True, slots=True)
class Peer:
    """A library.

    module      what it is imported as
    prepare     makes its graph; takes the edges and the number of threads
    tolerances  at which it is measured
    most_edges  of the graphs that it is measured on
    """

    name: str
    module: str
    prepare: Callable[[Edges, int], Solve]
    tolerances: tuple[float, ...] = TOLERANCES
    most_edges: int = 1 << 40

    @property
    def installed(self) -> bool:
        return find_spec(self.module) is not None


CPU = (
    # igraph has no tolerance; NetworkX keeps a dictionary for each vertex
    Peer("igraph", "igraph", igraph_solver, (0.0,)),
    Peer("NetworKit", "networkit", networkit_solver),
    Peer("GraphBLAS", "graphblas", graphblas_solver),
    Peer("SciPy", "scipy", scipy_solver),
    Peer("NetworkX", "networkx", networkx_solver, most_edges=1_000_000),
)
CUDA = (
    Peer("cuSPARSE", "cupy", cusparse_solver),
    Peer("cuGraph", "pylibcugraph", cugraph_solver),
)
PEERS = {"cpu": CPU, "cuda": CUDA}
