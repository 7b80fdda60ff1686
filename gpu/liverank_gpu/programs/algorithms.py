"""Built-in vertex programs."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.analysis import CoreNumbers, CountTriangles
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array, DeviceOperations
from liverank_gpu.operations.programs import (
    Limits,
    ProgramGraph,
    ProgramState,
    RunProgram,
    VertexProgram,
    parameter_values,
)
from liverank_gpu.programs.views import (
    Undirected,
    absent_positions,
    distinct,
    ids_by_position,
    neighbour_lists,
)

UNREACHED = 2**31 - 1
"""The level of a vertex that no path from the source reaches."""


def _level_of_source(vertex: Any, source: Any) -> Any:
    return 0 if vertex == source else UNREACHED


def _next_level(source_value: Any) -> Any:
    return source_value + 1


def _minimum(old: Any, gathered: Any) -> Any:
    return min(old, gathered)


def _changed(old: Any, new: Any) -> Any:
    return old != new


LEVELS = VertexProgram(
    "levels",
    "int32",
    UNREACHED,
    initial=_level_of_source,
    gather=_next_level,
    merge="min",
    apply=_minimum,
    scatter=_changed,
    parameters={"source": 0},
    monotone=True,
    first_wins=True,
)
"""Breadth-first search: the number of edges of the shortest path from `source`, along edges."""


def _distance_of_source(vertex: Any, source: Any) -> Any:
    return 0.0 if vertex == source else math.inf


def _longer(source_value: Any, weight: Any) -> Any:
    return source_value + weight


DISTANCES = VertexProgram(
    "distances",
    "float64",
    math.inf,
    initial=_distance_of_source,
    gather=_longer,
    merge="min",
    apply=_minimum,
    scatter=_changed,
    parameters={"source": 0},
    monotone=True,
)
"""Shortest paths from `source`: the smallest sum of weights, which are lengths; infinite where no
path leads.
"""


def _own_id(vertex: Any) -> Any:
    return vertex


def _same(source_value: Any) -> Any:
    return source_value


COMPONENTS = VertexProgram(
    "components",
    "int32",
    UNREACHED,
    initial=_own_id,
    gather=_same,
    merge="min",
    apply=_minimum,
    scatter=_changed,
    monotone=True,
    direction="both",
)
"""Weakly connected components: the lowest id of each vertex's component."""


def _uniform(vertices: Any) -> Any:
    return 1.0 / vertices


def _contribution(source_value: Any, share: Any) -> Any:
    return source_value * share


def _rank(gathered: Any, aggregate: Any, vertices: Any, damping: Any) -> Any:
    return (1.0 - damping) / vertices + damping * (gathered + aggregate / vertices)


def _moved(old: Any, new: Any, tolerance: Any, vertices: Any) -> Any:
    return abs(new - old) > tolerance / vertices


def _dangling(value: Any, out_degree: Any) -> Any:
    return value if out_degree == 0.0 else 0.0


PAGERANK = VertexProgram(
    "pagerank",
    "float64",
    0.0,
    initial=_uniform,
    gather=_contribution,
    merge="sum",
    apply=_rank,
    scatter=_moved,
    aggregate=_dangling,
    parameters={"damping": 0.85, "tolerance": 1e-10},
    limits={"damping": (0.0, 1.0), "tolerance": (0.0, math.inf)},
    every_vertex=True,
    loops=True,
    supersteps=1000,
)
"""PageRank by power iteration, until no rank moves by more than tolerance/n. The engine's own ranks
come with a proven bound and follow batches: see Engine.update. This is the textbook's program.
"""


def _nothing() -> Any:
    return 0


def _one() -> Any:
    return 1


def _fewer(old: Any, gathered: Any) -> Any:
    return old - gathered


def _falls_below(old: Any, new: Any, k: Any) -> Any:
    return old >= k and new < k


PEEL = VertexProgram(
    "peel",
    "int32",
    0,
    initial=_nothing,
    gather=_one,
    merge="sum",
    apply=_fewer,
    scatter=_falls_below,
    parameters={"k": 0},
)
"""Values are degrees; vertices whose degree falls below k leave, and lower that of neighbours. Run
from given degrees: see liverank_gpu.programs.algorithms.
"""


# Algorithms that are not vertex programs themselves: they run one several times, or have their
# own kernels. All but label propagation ignore direction and loops; all ignore weights.


class Computed(NamedTuple):
    """What an algorithm found.

    values      by position, or those of `ends`
    supersteps  passes over the graph
    edges       edges read
    summary     see Answer
    finished    see Receipt
    ends        see Answer.edges, on the device
    """

    values: Array
    supersteps: int
    edges: int
    summary: dict[str, float]
    finished: bool = True
    ends: tuple[Array, Array] | None = None


Order = NDArray[np.int32] | None
"""See Programs.begin."""

Parts = Generator[tuple[int, int], None, Computed]
"""An algorithm that runs: yields supersteps and edges so far, first before its work, then between
two parts of it, and returns what it found.
"""


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A built-in algorithm.

    name        in messages
    compute     (graph, **parameters) → Parts. Between two parts the arrays of the graph may be
                replaced by copies
    parameters  with their default values
    limits      see VertexProgram
    ordered     whether ties go to the first vertex of an order; `compute` then has a parameter
                `order`, see Programs.begin
    """

    name: str
    compute: Callable[..., Parts]
    parameters: Mapping[str, float] = field(default_factory=dict)
    limits: Limits = field(default_factory=dict)
    ordered: bool = False

    def parameter_values(self, given: Mapping[str, float]) -> dict[str, float]:
        """See VertexProgram."""
        return parameter_values(self.name, self.parameters, given, self.limits)


def _triangles(graph: DynamicGraph) -> tuple[Undirected, Array]:
    """int64[n], the triangles of each vertex, by rank."""
    edges, xp = Undirected.of(graph), graph.backend.xp
    if len(edges.keys) == 0:
        return edges, xp.zeros(graph.vertices, np.int64)
    oriented, sources = edges.lists(xp, edges.keys), edges.sources
    found = graph.backend.run(CountTriangles(oriented, sources, every_edge=False))
    # each triangle is found at two entries of its first vertex
    first, others = (
        xp.bincount(ends, weights=found, minlength=graph.vertices)
        for ends in (sources, oriented.column_indices)
    )
    return edges, (first / 2.0 + others).astype(np.int64)


def _count(graph: DynamicGraph) -> Parts:
    yield 0, 0
    edges, triangles = _triangles(graph)
    total = float(triangles.sum()) / 3.0
    return Computed(triangles[edges.rank], 1, len(edges.keys), {"triangles": total})


def _clustering(graph: DynamicGraph) -> Parts:
    yield 0, 0
    edges, triangles = _triangles(graph)
    xp, vertices = graph.backend.xp, graph.ids.count
    coefficients, summary = clustering_of(xp, triangles, edges.degree, vertices)
    return Computed(coefficients[edges.rank], 1, len(edges.keys), summary)


def clustering_of(
    xp: Any, triangles: Array, degree: Array, vertices: int
) -> tuple[Array, dict[str, float]]:
    """Clustering coefficients, float64[n], and the summary, of so many vertices.

    triangles  int64[n], of each vertex
    degree     integer[n], its neighbours
    """
    pairs = degree * (degree - 1.0) / 2.0
    coefficients = triangles / xp.maximum(pairs, 1.0)
    total, wedges = float(triangles.sum()), float(pairs.sum())
    return coefficients, {
        "average": float(coefficients.sum()) / max(1, vertices),
        "transitivity": total / wedges if wedges else 0.0,
        "triangles": total / 3.0,
    }


class Peeling(Protocol):
    """A graph from which vertices of low degree are removed."""

    present: Array
    """bool[n], by position."""

    @property
    def degrees(self) -> Array:
        """int32[…], of the vertices that are present."""

    @property
    def work(self) -> tuple[int, int]:
        """Supersteps and edges."""

    def remove_below(self, k: int) -> None:
        """Removes all vertices of a degree below k, at once."""


class _Peeling:
    """Removes vertices of low degree; degrees of the others follow.

    present  bool[n], by position
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self._backend = backend = graph.backend
        xp, vertices = backend.xp, graph.vertices
        csr = neighbour_lists(graph)
        absent = absent_positions(graph)
        lengths = csr.row_lengths
        longest = int(lengths.max()) if vertices else 0
        view = GraphView(vertices, 0, csr, csr, xp.zeros(vertices, np.uint8), lengths, longest)
        self._graph = ProgramGraph(
            view, None, ids_by_position(graph), absent, graph.ids.count, both=False
        )
        self._shared = None if graph.directed else graph
        self.present = absent == 0
        self._state = ProgramState(lengths.copy(), xp.empty(vertices, np.int32))

    @property
    def degrees(self) -> Array:
        """int32[…], of the vertices that are present."""
        return self._state.values[self.present]

    @property
    def work(self) -> tuple[int, int]:
        """Supersteps and edges."""
        return self._state.supersteps, self._state.edges

    def remove_below(self, k: int) -> None:
        """Removes all vertices of a degree below k, at once."""
        xp, state = self._backend.xp, self._state
        if self._shared is not None:  # its arrays may be copies now
            csr = self._shared.outgoing.csr._replace(weights=None)
            view = self._graph.view._replace(outgoing=csr, incoming=csr)
            self._graph = self._graph._replace(view=view)
        low = self.present & (state.values < k)
        active = xp.flatnonzero(low).astype(np.int32)
        state.active[: len(active)] = active
        state.count = len(active)
        parameters = PEEL.parameter_values({"k": k})
        self._backend.run(RunProgram(PEEL, parameters, self._graph, "synchronous", 1, state))
        self.present = self.present & ~low


def _cores(graph: DynamicGraph) -> Parts:
    """Peeling: Matula and Beck, "Smallest-last ordering" (JACM 1983)."""
    yield 0, 0
    lists = neighbour_lists(graph)
    cores = graph.backend.run(CoreNumbers(lists))
    largest = float(cores.max()) if graph.vertices else 0.0
    edges = int(graph.backend.device.sum(lists.row_lengths))
    return Computed(cores, 1, edges, {"largest": largest})


def _densest(graph: DynamicGraph, epsilon: float) -> Parts:
    """Bahmani, Kumar and Vassilvitskii, "Densest subgraph in streaming and MapReduce" (VLDB 2012),
    algorithm 1: each pass removes all vertices of at most 2(1+ε) times the density.
    """
    yield 0, 0
    return (yield from densest_part(_Peeling(graph), epsilon, graph.vertices, graph.backend.device))


def densest_part(
    peeling: Peeling, epsilon: float, vertices: int, device: DeviceOperations
) -> Parts:
    """See `_densest`; the vertices are those of the graph."""
    best, densest = 0.0, peeling.present
    factor = min(2.0 * (1.0 + epsilon), float(vertices))  # no degree is higher
    while len(degrees := peeling.degrees):
        density = float(device.sum(degrees)) / 2.0 / len(degrees)
        if density > best:
            best, densest = density, peeling.present
        peeling.remove_below(min(int(factor * density), vertices) + 1)
        yield peeling.work
    summary = {"density": best, "vertices": float(device.sum(densest))}
    return Computed(densest.astype(np.int32), *peeling.work, summary)


def _labels(graph: DynamicGraph, iterations: int, order: Order) -> Parts:
    """Community detection by label propagation, as LDBC Graphalytics defines it ("CDLP"): all
    vertices take the most frequent label of their neighbours, the lowest of several, at once. An
    edge in each direction counts twice. Labels are places in the order.
    """
    yield 0, 0
    xp = graph.backend.xp
    entries = graph.backend.rebuild.entries
    rows, neighbours, _ = entries(graph.outgoing.csr)
    if graph.directed:
        others = entries(graph.incoming.csr)
        rows = xp.concatenate([rows, others[0]])
        neighbours = xp.concatenate([neighbours, others[1]])
    rows = rows.astype(np.int64) << 32
    labels, named = first_labels(graph.backend, ids_by_position(graph), order)
    done = 0
    for done in range(1, iterations + 1):
        found = most_frequent(xp, rows | labels[neighbours], labels)
        same = not graph.backend.device.sum(found != labels)
        labels = found
        if same:
            break
        yield done, done * len(rows)
    communities = len(distinct(xp, labels[absent_positions(graph) == 0]))
    return Computed(named[labels], done, done * len(rows), {"communities": float(communities)})


def first_labels(backend: Backend, ids: Array, order: Order) -> tuple[Array, Array]:
    """int32[n] each: the label of each vertex, which is its place in the order; and the id of the
    vertex with that label.

    ids    int32[n] on the device, by position
    order  see Programs.begin
    """
    places = backend.xp.arange(len(ids), dtype=np.int32)
    if order is not None:
        places[: len(order)] = backend.device.to_device(order)
    labels = places[ids]
    named = places
    named[labels] = ids
    return labels, named


def most_frequent(xp: Any, keys: Array, labels: Array) -> Array:
    """int32[n]: the most frequent label of each row, the lowest of several.

    keys    int64[m], row << 32 | label; sorted in place
    labels  int32[n], for rows without entries
    """
    found = labels.copy()
    if len(keys) == 0:
        return found
    keys.sort()
    begins = xp.flatnonzero(xp.concatenate([xp.ones(1, bool), keys[1:] != keys[:-1]]))
    counts = xp.diff(xp.concatenate([begins, xp.full(1, len(keys), begins.dtype)]))
    runs = keys[begins]
    # the largest count of a row first; stable, so that of equal ones the lowest label is first. A
    # count is of at most two entries a vertex, while all entries may be more than 32 bits hold
    order = xp.argsort((runs >> 32 << 32) + (counts.max() - counts), kind="stable")
    runs = runs[order]
    rows = runs >> 32
    first = xp.concatenate([xp.ones(1, bool), rows[1:] != rows[:-1]])
    found[rows[first]] = (runs[first] & 0xFFFFFFFF).astype(np.int32)
    return found


TRIANGLES = Algorithm("triangles", _count)
"""The number of triangles that each vertex is part of, int64."""

CLUSTERING = Algorithm("clustering", _clustering)
"""The local clustering coefficient, float64: triangles over pairs of neighbours."""

CORES = Algorithm("cores", _cores)
"""The core number, int32: the largest k so that the vertex is in a subgraph of degrees ≥ k."""

DENSEST = Algorithm("densest", _densest, {"epsilon": 0.1}, {"epsilon": (0.0, sys.float_info.max)})
"""1 for the vertices of a subgraph whose density, edges over vertices, is at least that of the
densest one divided by 2(1+ε); 0 for others.
"""

LABELS = Algorithm("labels", _labels, {"iterations": 10}, {"iterations": (1, np.inf)}, ordered=True)
"""The community of each vertex, int32: the id of the vertex whose label its members agreed on."""
