"""Built-in vertex programs, and the algorithms that are made of them or have their own kernels."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.packed_csr import distinct
from liverank_gpu.operations.analysis import NearRows, TooMuch
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Run
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.programs import (
    Limits,
    ProgramGraph,
    ProgramState,
    RunProgram,
    VertexProgram,
    parameter_values,
)
from liverank_gpu.programs.continued import (
    CoreOrder,
    Earlier,
    EdgeTriangles,
    TrussContinuation,
    VertexTriangles,
    continued_edge_triangles,
    continued_vertex_triangles,
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


NO_VERTEX = -1
"""The predecessor of a vertex that has none."""


def _path_to_source(vertex: Any, source: Any) -> Any:
    return 0.0 if vertex == source else math.inf, NO_VERTEX


def _longer_path(source_value: Any, weight: Any, sender: Any) -> Any:
    return source_value.distance + weight, sender


def _shorter_path(a: Any, b: Any) -> Any:
    if b.distance == a.distance:
        return b if b.predecessor < a.predecessor else a
    return b if b.distance < a.distance else a


def _kept_path(old: Any, gathered: Any) -> Any:
    if gathered.distance == old.distance:
        return gathered if gathered.predecessor < old.predecessor else old
    return gathered if gathered.distance < old.distance else old


def _nearer(old: Any, new: Any) -> Any:
    return old.distance != new.distance


PATHS = VertexProgram(
    "paths",
    {"distance": "float64", "predecessor": "int32"},
    (math.inf, NO_VERTEX),
    initial=_path_to_source,
    gather=_longer_path,
    merge=_shorter_path,
    apply=_kept_path,
    scatter=_nearer,
    parameters={"source": 0},
    monotone=True,
)
"""Shortest paths from `source` with predecessors (Zhang's thesis, algorithm 12): the distance, as
of DISTANCES, and the vertex before on a shortest path, of several the one with the lowest id.
NO_VERTEX of the source, and where no path leads. Lengths so small that sums do not change may close
a cycle.
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


def _never(old: Any, new: Any) -> Any:  # noqa: ARG001
    return False


PEEL = VertexProgram(
    "peel",
    "int32",
    0,
    initial=_nothing,
    gather=_one,
    merge="sum",
    apply=_fewer,
    scatter=_never,
)
"""Values are degrees; vertices that leave lower those of their neighbours. Run from given degrees,
one superstep for each set of vertices that leave: see DENSEST.
"""


# Algorithms that are not vertex programs themselves: they run one several times, or have their
# own kernels. All but label propagation ignore direction and loops; all ignore weights.
#
# Each is written once over what it reads of a graph, which is there in two forms: in memory
# (liverank_gpu.programs.views), and window by window (liverank_gpu.out_of_core.views).


class Neighbours(Protocol):
    """The neighbours of each position, without direction, loops and weights.

    run  of operations on them
    """

    run: Run

    @property
    def work(self) -> tuple[int, int]:
        """Passes over them and entries read, so far."""

    def core_numbers(self) -> tuple[Array, CoreOrder | None]:
        """int32[n], the core numbers, and what a later run continues with; None if none does."""

    def continued_cores(self, earlier: Earlier) -> tuple[Array, CoreOrder] | None:
        """The same from an earlier answer; None if it is as well to begin again."""

    def votes(self, labels: Array) -> Iterator[tuple[slice, Array]]:
        """The labels of the neighbours, for some rows at a time: int64[m] that may be changed, the
        row, from the first of these on, << 32 | the label. An edge in each direction counts twice.
        Rows of which no neighbour changed its label in the pass before may be left out.
        """

    def changed(self, flags: Array) -> bool:
        """Takes note of the labels that changed in a pass, bool[n]. Returns whether others may."""

    def program_graph(self) -> ProgramGraph:
        """For programs, until the next part of the work."""


class Trusses(Protocol):
    """Bounds of λ of all edges, which fall to it: see TRUSSNESS.

    examined    examinations of an edge so far
    iterations  passes over all edges so far
    partitions  intervals of rows, whose edges are examined one after the other
    finished    whether all bounds are supported
    """

    examined: int
    iterations: int
    partitions: int
    finished: bool

    def lower(self, by_bisection: bool) -> None:
        """One iteration.

        by_bisection  whether a bound falls to the highest one that is supported, or by one
        """

    def found(self, more: int) -> tuple[Array, tuple[Array, Array], int]:
        """Bounds and `more`, int32[m]; the edges, see Answer.edges; and passes over the graph."""

    def order(self) -> Array | None:
        """int64[m], with which a later run continues: see LowerBounds.falls. None if none does."""


class DnGraphs(NamedTuple):
    """The edges of DN-graphs.

    labels   int32[k], the lowest id of the DN-graph of each edge
    lambdas  int32[k], its λ
    ends     see Answer.edges
    graphs   how many
    """

    labels: Array
    lambdas: Array
    ends: tuple[Array, Array]
    graphs: int


class AnalysedGraph(Protocol):
    """What algorithms read of a graph, or of one shard of it. Raises OutOfMemory, and OSError if
    edges are in a file.

    vertices  number of vertices, of all shards
    """

    @property
    def backend(self) -> Backend: ...

    @property
    def vertices(self) -> int: ...

    @property
    def ids(self) -> Array:
        """int32[n], the id at each position."""

    def count(self, found: int) -> int:
        """The sum of what is found in each shard."""

    def united(self, values: Array) -> Array:
        """The values of all shards."""

    @property
    def absent(self) -> Array:
        """uint8[n], 1 at positions of no vertex."""

    def neighbours(self, repeats: bool = False) -> AbstractContextManager[Neighbours]:
        """repeats  whether they are for votes"""

    def near_rows(self) -> NearRows | None:
        """To continue with; None if it is as well to begin again."""

    def vertex_triangles(self) -> VertexTriangles:
        """Directions, loops and weights aside."""

    def edge_triangles(self) -> EdgeTriangles:
        """Likewise."""

    def trusses(self, partitions: int) -> AbstractContextManager[Trusses]:
        """partitions  at least about as many"""

    def dn_graphs(self, lambdas: Array, ends: tuple[Array, Array]) -> DnGraphs:
        """lambdas, ends  what `Trusses.found(0)` returned: λ of all edges"""


class EdgeValues(NamedTuple):
    """The values of edges of a vertex program, in no particular order. An edge without direction is
    there twice, once for each direction.

    sources, targets  int32[m], ids
    values            of its `edge_dtype`
    """

    sources: Array
    targets: Array
    values: Array


class Computed(NamedTuple):
    """What an algorithm found.

    values      float64 or integer[n], by position; with `ends` integer[m], of their edges
    supersteps  passes over the graph
    edges       edges read
    summary     see Answer
    finished    see Receipt
    continued   False if it began again although there was an earlier answer
    ends        see Answer.edges, on the device
    lambdas     see Answer.lambdas, on the device
    edge_values see Answer.edge_values
    kept        what a later run continues with, beside the values
    """

    values: Array
    supersteps: int
    edges: int
    summary: dict[str, float]
    finished: bool = True
    ends: tuple[Array, Array] | None = None
    lambdas: Array | None = None
    continued: bool = True
    edge_values: EdgeValues | None = None
    kept: CoreOrder | VertexTriangles | Array | None = None

    @classmethod
    def by(cls, program: VertexProgram, state: ProgramState) -> Computed:
        """By a vertex program that has ended."""
        has_aggregate = program.every_vertex or program.aggregates
        summary = {"aggregate": state.aggregate} if has_aggregate else {}
        finished = len(state.values) == 0 or state.count == 0
        return cls(state.values, state.supersteps, state.edges, summary, finished)


Found = TypeVar("Found")

Order = NDArray[np.int32] | None
"""See Programs.begin."""

Parts = Generator[tuple[int, int], int, Computed]
"""A program that runs: yields supersteps and edges so far, first before its work, then between two
parts of it, and returns what it found. It is sent the supersteps that the next part may have at
most; algorithms divide their work as they do.
"""


def ended(parts: Parts) -> Computed:
    """What an algorithm returns at its end."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: Computed = end.value
            return found


@dataclass(frozen=True, eq=False)
class Algorithm:
    """A built-in algorithm.

    name        in messages
    compute     (graph: AnalysedGraph, **parameters) → Parts. Between two parts the arrays of the
                graph may be replaced by copies
    parameters  with their default values
    limits      see VertexProgram
    ordered     whether ties go to the first vertex of an order; `compute` then has a parameter
                `order`, see Programs.begin
    continues   whether it may continue after batches; `compute` then has a parameter `earlier`, an
                Earlier or None
    in_shards   whether it runs on a graph in shards
    """

    name: str
    compute: Callable[..., Parts]
    parameters: Mapping[str, float] = field(default_factory=dict)
    limits: Limits = field(default_factory=dict)
    ordered: bool = False
    continues: bool = False
    in_shards: bool = False

    def parameter_values(self, given: Mapping[str, float]) -> dict[str, float]:
        """See VertexProgram."""
        return parameter_values(self.name, self.parameters, given, self.limits)


def _continued(
    graph: AnalysedGraph, earlier: Earlier | None, compute: Callable[[NearRows, Earlier], Found]
) -> Found | None:
    """What continuing finds; None if it is as well to begin again."""
    near = None if earlier is None else graph.near_rows()
    if near is None or earlier is None:
        return None
    try:
        return compute(near, earlier)
    except TooMuch:
        return None


def _vertex_triangles(
    graph: AnalysedGraph, earlier: Earlier | None
) -> tuple[VertexTriangles, VertexTriangles, bool]:
    """The triangles, the same by position, and whether they are continued."""
    found = _continued(graph, earlier, partial(continued_vertex_triangles, graph.backend))
    if found is not None:
        return found, found, True
    found = graph.vertex_triangles()
    counts, degree, rows = found[:3]
    return found, found._replace(counts=counts[rows], degree=degree[rows], rows=slice(None)), False


def _triangles(graph: AnalysedGraph, earlier: Earlier | None) -> Parts:
    yield 0, 0
    _, found, continued = _vertex_triangles(graph, earlier)
    total = graph.count(int(graph.backend.device.sum(found.counts)))
    summary = {"triangles": total / 3.0}
    work = found.passes, found.edges
    return Computed(found.counts, *work, summary, continued=continued, kept=found)


def _clustering(graph: AnalysedGraph, earlier: Earlier | None) -> Parts:
    yield 0, 0
    (counts, degree, rows, edges, passes), kept, continued = _vertex_triangles(graph, earlier)
    pairs = degree * (degree - 1.0) / 2.0
    coefficients = counts / graph.backend.xp.maximum(pairs, 1.0)
    sums = (each.sum()[None] for each in (counts, pairs, coefficients))
    total, wedges, average = (float(graph.united(each).sum()) for each in sums)
    summary = {
        "average": average / max(1, graph.vertices),
        "transitivity": total / wedges if wedges else 0.0,
        "triangles": total / 3.0,
    }
    values = coefficients[rows]
    return Computed(values, passes, edges, summary, continued=continued, kept=kept)


def _cores(graph: AnalysedGraph, earlier: Earlier | None) -> Parts:
    yield 0, 0
    with graph.neighbours() as neighbours:
        continued = None if earlier is None else neighbours.continued_cores(earlier)
        cores, order = continued or neighbours.core_numbers()
        work = neighbours.work
    highest = graph.united(cores.max(keepdims=True) if len(cores) else cores)
    summary = {"largest": float(highest.max()) if len(highest) else 0.0}
    return Computed(cores, *work, summary, continued=continued is not None, kept=order)


def _densest(graph: AnalysedGraph, epsilon: float) -> Parts:
    """Bahmani, Kumar and Vassilvitskii, "Densest subgraph in streaming and MapReduce" (VLDB 2012),
    algorithm 1: each pass removes all vertices of at most 2(1+ε) times the density.
    """
    yield 0, 0
    xp, device = graph.backend.xp, graph.backend.device
    with graph.neighbours() as neighbours:
        viewed = neighbours.program_graph()
        degrees = viewed.view.incoming.row_lengths.copy()
        state = ProgramState(degrees, xp.empty(0, np.int32))
        present = densest = viewed.absent == 0
        most = graph.vertices  # no degree is higher
        best, factor = 0.0, min(2.0 * (1.0 + epsilon), float(most))
        while left := graph.count(len(degrees := state.values[present])):
            density = graph.count(int(device.sum(degrees))) / 2.0 / left
            if density > best:
                best, densest = density, present
            low = present & (state.values <= min(int(factor * density), most))
            state.active = xp.flatnonzero(low).astype(np.int32)
            state.count = graph.count(len(state.active))
            viewed = neighbours.program_graph()
            neighbours.run(RunProgram(PEEL, {}, viewed, "synchronous", 1, state))
            present = present & ~low
            yield state.supersteps, state.edges
    summary = {"density": best, "vertices": float(graph.count(int(device.sum(densest))))}
    return Computed(densest.astype(np.int32), state.supersteps, state.edges, summary)


def _labels(graph: AnalysedGraph, iterations: int, order: Order) -> Parts:
    """Community detection by label propagation, as LDBC Graphalytics defines it ("CDLP"): all
    vertices take the most frequent label of their neighbours, the lowest of several, at once. An
    edge in each direction counts twice. Labels are places in the order.
    """
    yield 0, 0
    xp = graph.backend.xp
    ids = graph.ids
    labels, named = _first_labels(graph.backend, ids, graph.count(len(ids)), order)
    with graph.neighbours(repeats=True) as neighbours:
        may_change, done = True, 0
        while may_change and done < iterations:
            following = labels.copy()
            for rows, votes in neighbours.votes(labels):
                following[rows] = most_frequent(xp, votes, labels[rows])
                del votes  # the next ones are not made beside them
            may_change = neighbours.changed(following != labels)
            labels = following
            done += 1
            yield neighbours.work
        work = neighbours.work
    communities = len(distinct(xp, graph.united(distinct(xp, labels[graph.absent == 0]))))
    return Computed(named[labels], *work, {"communities": float(communities)})


def _first_labels(backend: Backend, ids: Array, limit: int, order: Order) -> tuple[Array, Array]:
    """The label of each vertex, which is its place in the order, int32[n]; and the id of the vertex
    with each label, int32[limit].

    ids    int32[n] on the device, by position
    limit  of the ids of all shards
    order  see Programs.begin
    """
    named = backend.xp.arange(limit, dtype=np.int32)
    if order is None:
        return ids, named
    places = named.copy()
    places[: len(order)] = backend.device.to_device(order)
    named[places] = named.copy()
    return places[ids], named


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


# Triangles of each edge, and the densest truss that each edge is in.
#
# The *k-truss* of a graph is its largest subgraph of which each edge is in at least k - 2 triangles
# (Cohen, "Trusses: cohesive subgraphs for social network analysis", 2008); the *trussness* of an
# edge is the largest k of whose truss it is part.
#
# Zhang's thesis (section 2.5) defines λ of a subgraph as the least number of common neighbours of
# its connected pairs, and λ of an edge as the largest one of all subgraphs with this edge. Of
# subgraphs of edges that is its trussness less 2, and what is computed here. Where subgraphs have
# all edges between their vertices, as the definition may be read, it can be lower.
#
# A bound of λ begins as the number of the edge's triangles and falls until as many of them have at
# least this bound on both other edges; the fixpoint is λ ("iterative triangulation", algorithms 1,
# 2 and 4; as iterated h-indices: Sarıyüce, Seshadhri and Pinar, VLDB 2018). Bounds change in place,
# and only edges whose support may have changed are examined again. Algorithm 2 takes a bound that
# is supported once as a lower limit for good; here bisection ends within one examination, because
# others' bounds may fall after it. Algorithm 4 ends if all converged *and* the iterations are used
# up; here if either is so.

NO_TRIANGLES = 2
"""The trussness of an edge without triangles."""


def _support(graph: AnalysedGraph, earlier: Earlier | None) -> Parts:
    yield 0, 0
    compute = partial(continued_edge_triangles, graph.backend, graph.ids)
    continued = _continued(graph, earlier, compute)
    counts, ends, total, largest, passes, edges = continued or graph.edge_triangles()
    summary = {"triangles": total / 3.0, "largest": float(largest)}
    return Computed(counts, passes, edges, summary, ends=ends, continued=continued is not None)


def _trussness(
    graph: AnalysedGraph, binary: int, iterations: int, partitions: int, earlier: Earlier | None
) -> Parts:
    yield 0, 0
    compute = partial(TrussContinuation, graph.backend, graph.ids, NO_TRIANGLES)
    continued = _continued(graph, earlier, compute)
    if continued is not None:
        values = continued.bounds + np.int32(NO_TRIANGLES)
        work = continued.rounds, continued.examined
        summary = {"largest": float(values.max()) if len(values) else 0.0, "partitions": 0.0}
        ends = continued.edges.ends[0], continued.edges.ends[1]
        return Computed(values, *work, summary, ends=ends, kept=continued.places)
    with graph.trusses(partitions) as trusses:
        while not trusses.finished and trusses.iterations < iterations:
            trusses.lower(by_bisection=binary == 1)
            yield trusses.iterations, trusses.examined
        values, ends, passes = trusses.found(NO_TRIANGLES)
        order = trusses.order()
    largest = float(values.max()) if len(values) else 0.0
    summary = {"largest": largest, "partitions": float(trusses.partitions)}
    work = passes, trusses.examined
    return Computed(values, *work, summary, trusses.finished, ends, continued=False, kept=order)


def _dn_graphs(graph: AnalysedGraph) -> Parts:
    yield 0, 0
    with graph.trusses(1) as trusses:
        while not trusses.finished:
            trusses.lower(by_bisection=True)
            yield trusses.iterations, trusses.examined
        lambdas, ends, passes = trusses.found(0)
    found = graph.dn_graphs(lambdas, ends)
    largest = float(found.lambdas.max()) if len(found.lambdas) else 0.0
    summary = {"graphs": float(found.graphs), "largest": largest}
    work = passes, trusses.examined
    return Computed(found.labels, *work, summary, ends=found.ends, lambdas=found.lambdas)


TRIANGLES = Algorithm("triangles", _triangles, continues=True, in_shards=True)
"""The number of triangles that each vertex is part of, int64."""

CLUSTERING = Algorithm("clustering", _clustering, continues=True, in_shards=True)
"""The local clustering coefficient, float64: triangles over pairs of neighbours."""

CORES = Algorithm("cores", _cores, continues=True, in_shards=True)
"""The core number, int32: the largest k so that the vertex is in a subgraph of degrees ≥ k."""

DENSEST = Algorithm(
    "densest",
    _densest,
    {"epsilon": 0.1},
    {"epsilon": (0.0, sys.float_info.max)},
    in_shards=True,
)
"""1 for the vertices of a subgraph whose density, edges over vertices, is at least that of the
densest one divided by 2(1+ε); 0 for others.
"""

LABELS = Algorithm(
    "labels",
    _labels,
    {"iterations": 10},
    {"iterations": (1, np.inf)},
    ordered=True,
    in_shards=True,
)
"""The community of each vertex, int32: the id of the vertex whose label its members agreed on."""

SUPPORT = Algorithm("support", _support, continues=True)
"""The number of triangles of each edge, int32."""

TRUSSNESS = Algorithm(
    "trussness",
    _trussness,
    {"binary": 1, "iterations": 2**31 - 1, "partitions": 1},
    {"binary": (0, 1), "iterations": (1, np.inf), "partitions": (1, np.inf)},
    continues=True,
)
"""The trussness of each edge, int32: λ + 2. An upper bound of it if the iterations do not suffice.

binary      1: a bound falls to the highest one that is supported, found by bisection (the thesis's
            BiTriDN); 0: by one at a time (TriDN)
iterations  at most
partitions  intervals of rows whose triangles are listed at a time, at least about as many
"""

DN_GRAPHS = Algorithm("dn-graphs", _dn_graphs)
"""The edges of DN-graphs: connected ones of equal λ that no edge of a higher λ touches. Of each the
lowest id of its DN-graph, int32; λ is in Answer.lambdas. A vertex is in one DN-graph at most.
"""
