"""Ranks of edges that are ranked once: no graph is kept that batches could change.

A solve reads in-lists, out-degrees, or the sums of weights of out-edges, and loops. So there are
in-lists alone, in arrays of their size, in the order of the ids: edges are sorted in one direction,
and out-degrees are counted as the rows are filled. An undirected graph has the same lists in both
directions. Where a solve by components is tried, out-lists are made then.

Traffic for each edge on ``cuda``: 8 bytes from the host; 16 to make a key, 128 to sort it by eight
digits, 16 to drop repeats, 16 to count rows, 12 to fill them, and 8 and an addition at random to
count out-degrees. A sweep then takes 6 for each edge and 60 for each vertex.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from time import perf_counter
from typing import Any

import numpy as np

from liverank_gpu.backends import backend_named
from liverank_gpu.columns import highest_of, ids_of, weights_of
from liverank_gpu.engine import Engine
from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.batch import Columns, both_directions, not_loops
from liverank_gpu.graph.dynamic_graph import naming_memory
from liverank_gpu.graph.packed_csr import (
    LOADED_AT_ONCE,
    VERTEX_BYTES,
    PackedCsr,
    RowLengths,
    slot_bytes,
)
from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.graph.rebuild import degrees_of
from liverank_gpu.graph.vertices import VertexIds, VertexPermutation
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import ALIGNMENT, Csr, GraphView, loop_dtype, strength_dtype
from liverank_gpu.operations.device import Array, StageTimer
from liverank_gpu.operations.graph import Entries
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.places import GraphVertices
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.pagerank.solver import solver_of
from liverank_gpu.pagerank.strategies import (
    TABLE,
    Solve,
    Solved,
    checked_unconverged,
    strategy_named,
    tell_unconverged,
)
from liverank_gpu.personalized.iterate import WorkspacePool
from liverank_gpu.personalized.query import Query, QueryContext, no_deflation
from liverank_gpu.personalized.resolve import ResolvedView
from liverank_gpu.types import (
    VERTEX_LIMIT,
    BackendName,
    EdgeBatch,
    Options,
    Result,
    Trace,
    Unconverged,
    ViewQuery,
)


def static_bytes(options: Options, edges: int, vertices: int) -> int:
    """Upper bound on the memory that a StaticGraph takes, its peak included."""
    arcs, weighted = edges if options.directed else 2 * edges, options.weighted
    slots = slot_bytes(weighted) * (arcs + (ALIGNMENT - 1) * min(arcs, vertices))
    # a weighted sort moves keys, weights and their places; entries are listed to sum weights
    sort = (40 if weighted else 16) * min(arcs, 2 * LOADED_AT_ONCE)
    listed = 20 * arcs if weighted and options.directed else 0
    kept = sum(np.dtype(of(weighted)).itemsize for of in (loop_dtype, strength_dtype))
    # columns, of an undirected graph both those given and those of all arcs; row lengths
    columns = 8 * edges + (0 if options.directed else 8 * arcs)
    return columns + slots + max(sort, listed) + (VERTEX_BYTES + 8 + kept + 8) * vertices


class StaticGraph(RankedGraph):
    """A RankedGraph that does not change, of which a solve sweeps
    over all vertices.

    edges      number of distinct edges; the loops of the ``self-loop`` policy are not counted
    connected  vertices with an edge other than their own loop
    others     see liverank_gpu.graph.dynamic_graph.DynamicGraph
    """

    def __init__(
        self,
        backend: Backend,
        options: Options,
        columns: Columns,
        weights: Array | None,
        vertices: int,
    ) -> None:
        """columns  ids below `vertices`, integer[m] each on the host or the device. Of edges that
                 are repeated, one counts
        weights  float32[m], of a weighted graph alone; the last one of equal edges counts

        Raises OutOfMemory, MemoryError.
        """
        self.vertices = self.columns = vertices
        self.weighted, self.directed = options.weighted, options.directed
        self.fixed_loops = options.dangling == "self-loop"
        self.ids, self.permutation = VertexIds(vertices), VertexPermutation(backend)
        self.free: Array = backend.device.allocate("vertices", 0, np.int32)
        self.backend = backend
        needed = static_bytes(options, len(columns[0]), vertices)
        backend.device.require(f"ranking {len(columns[0]):,} edges", needed)
        allocate, xp = backend.device.allocate, backend.xp
        weights = None if weights is None else xp.asarray(weights)
        columns = backend.graph.columns(*columns)
        if not self.directed:
            if weights is not None:
                opposite = xp.asarray(not_loops(backend, columns))
                weights = xp.concatenate([weights, weights[opposite]])
            columns = both_directions(backend, columns)
        sources, targets = columns
        self.loop = allocate("vertices", vertices, loop_dtype(self.weighted), zeroed=True)
        lengths: Array = None
        if self.directed:
            lengths = allocate("vertices", vertices, np.int32, zeroed=True)
        self.incoming = PackedCsr(backend, vertices, self.weighted, grows=False)
        entries = Entries(targets, sources, weights)
        loaded = self.incoming.load(entries, self.loop, self._identity, counts=lengths)
        del sources, targets, weights, entries, columns
        loops = 0 if self.fixed_loops else loaded.loops
        if self.fixed_loops:
            self.loop.fill(1)
        self.arcs = loaded.edges + loops
        self.edges = (loaded.edges if self.directed else loaded.edges // 2) + loops
        self.outgoing: PackedCsr | RowLengths = self.incoming
        if self.directed:
            self.degree = self._degrees(lengths)
            # weights are added one after the other, then the loop, then a step above that
            longest = int(lengths.max()) if self.weighted and vertices else 0
            csr = self.incoming.csr
            none = csr.column_indices[:0], None if csr.weights is None else csr.weights[:0]
            self.outgoing = RowLengths(
                Csr(csr.row_starts[:0], lengths, *none), longest, longest + 2
            )
        else:
            self.degree = degrees_of(backend, self.incoming, self.loop, self.weighted)
        linked = self.incoming.csr.row_lengths | self.outgoing.csr.row_lengths
        self.connected = int(backend.device.sum(linked != 0))

    @property
    def _identity(self) -> Array:
        return self.backend.device.allocate("vertex order", 0, np.int32)

    def _degrees(self, lengths: Array) -> Array:
        """GraphView.degree, of a directed graph."""
        xp = self.backend.xp
        if not self.weighted:
            return lengths + self.loop
        entries = self.backend.rebuild.entries(self.incoming.csr)
        own = self.loop.astype(np.float64)
        sums = xp.bincount(entries.neighbours, entries.weights, minlength=self.vertices)
        degree = sums.astype(np.float64, copy=False) + own
        # a loop so heavy that it swallowed the other weights
        swallowed = (lengths > 0) & (degree == own)
        return xp.where(swallowed, xp.nextafter(degree, np.inf), degree)

    @cached_property
    def whole(self) -> GraphView:
        """The view with out-lists, which are made first of a directed graph. Raises OutOfMemory."""
        if not self.directed:
            return self.view
        backend, vertices = self.backend, self.vertices
        rows, neighbours, weights = backend.rebuild.entries(self.incoming.csr)
        no_loops = backend.device.allocate("vertices", vertices, loop_dtype(self.weighted))
        no_loops.fill(0)
        outgoing = PackedCsr(backend, vertices, self.weighted, grows=False)
        outgoing.load(Entries(neighbours, rows, weights), no_loops, self._identity)
        return self.view._replace(outgoing=outgoing.csr)


@dataclass(frozen=True, slots=True)
class RankedOnce:
    """The ranks of a graph that is gone.

    ranks          the ranks, on the device
    result         what the solve did
    vertices       number of vertices
    edges          number of distinct edges; the loops of ``self-loop`` are not counted
    duplicates     edges that repeat another, and loops where every vertex has one
    backend        its name
    build_seconds  time to build the graph
    """

    ranks: Ranks
    result: Result
    vertices: int
    edges: int
    duplicates: int
    backend: str
    build_seconds: float


def rank_once(
    sources: Any,
    targets: Any,
    weights: Any = None,
    *,
    vertices: int = 0,
    times: Any = None,
    options: Options | None = None,
    backend: BackendName | Backend = "auto",
    solve: Solve | None = None,
    unconverged: Unconverged = "warn",
    view: ViewQuery | None = None,
) -> RankedOnce:
    """The ranks of edges: those that an Engine publishes after one batch, within the error bounds
    of both, in less time and memory.

    sources, targets  ids, integer[m] each, in 0 … 2³¹-2: arrays of NumPy or Arrow, on ``cuda`` also
                      of CuPy. Those of int32 are not copied on the host
    weights           number[m], of a weighted graph: see EdgeBatch; None: all are 1
    vertices          ids below it are vertices; raised to what the edges need
    times             see EdgeBatch; of a graph with a half_life
    solve             None: Solve()
    unconverged       see Engine
    view              what to rank for in place of all vertices alike: see ViewQuery; its `refresh`
                      has no meaning here, and there is no `within`

    Where a solve needs more than in-lists (places to settle, published forms, strategies that
    follow a frontier), or weights decay, an engine runs it.

    Raises InvalidValue, OutOfMemory, BackendUnavailable, DeviceLost; warns of NotConverged, or
    raises it.
    """
    options, unconverged = options or Options(), checked_unconverged(unconverged)
    asked = (solve or Solve()).checked(options)
    chosen = backend if isinstance(backend, Backend) else backend_named(backend)
    by_engine = TABLE[asked.strategy].affected not in ("all", "residual") or asked.settle > 0
    by_engine |= asked.form == "published" or options.decays
    reverses = view is not None and ResolvedView.check(options, view)
    if view is not None:
        if by_engine or TABLE[asked.strategy].affected == "all":
            requirement = "auto or residual, without places to settle and half_life, for a view"
            raise InvalidValue("strategy", asked.strategy, requirement)
        if view.within is not None:
            given = f"{len(view.within)} vertices"
            raise InvalidValue("within", given, "left out for a graph that is ranked once")
    if by_engine:
        batch = EdgeBatch(sources, targets, vertices=vertices, weights=weights, times=times)
        return _by_engine(batch, options, chosen, asked, unconverged)
    if times is not None:
        raise InvalidValue("times", f"{len(times)} times", "left out without a half_life")
    if weights is not None and not options.weighted:
        given = f"{len(weights)} weights"
        raise InvalidValue("weights", given, "left out where the option weighted is False")
    if not 0 <= vertices <= VERTEX_LIMIT:
        raise InvalidValue("vertices", vertices, f"a count from 0 to {VERTEX_LIMIT}")
    columns = ids_of("sources", sources, narrow=True), ids_of("targets", targets, narrow=True)
    if len(columns[0]) != len(columns[1]):
        raise InvalidValue("targets", f"length {len(columns[1])}", f"{len(columns[0])} long")
    for name, ids in zip(("sources", "targets"), columns, strict=True):
        vertices = max(vertices, 1 + highest_of(name, ids, VERTEX_LIMIT))
    if weights is not None:
        weights = weights_of(weights, len(columns[0]), "sources")
    elif options.weighted:
        weights = np.ones(len(columns[0]), np.float32)
    if reverses:
        columns = columns[::-1]
    sizes = len(columns[0]), vertices
    naming = naming_memory(chosen.device, partial(static_bytes, options), *sizes)
    with chosen.device.detecting_loss(), naming:
        return _ranked(columns, weights, vertices, options, chosen, asked, unconverged, view)


def _ranked(
    columns: tuple[Any, Any],
    weights: Any,
    vertices: int,
    options: Options,
    backend: Backend,
    asked: Solve,
    unconverged: Unconverged,
    view: ViewQuery | None,
) -> RankedOnce:
    timer = StageTimer(backend.device)
    timer.begin()
    graph = StaticGraph(backend, options, columns, weights, vertices)
    timer.end("build")
    solved_by = _solved if view is None else partial(_viewed, view)
    ranks, solved, trace = solved_by(graph, options, asked, timer)
    seconds = timer.seconds()
    result = Result(
        asked.strategy,
        solved.iterations,
        solved.touched_vertices,
        ranks.error_bound,
        solved.converged,
        0.0,
        seconds["solve"],
        seconds["certify"],
        "accelerated",
        trace,
        **solved.outcome,
    )
    target = options.target_error if view is None else view.target_error or options.target_error
    tell_unconverged(result, target, 0, unconverged)
    duplicates = len(columns[0]) - graph.edges
    built = seconds["build"]
    return RankedOnce(ranks, result, vertices, graph.edges, duplicates, backend.name, built)


def _solved(
    graph: StaticGraph, options: Options, asked: Solve, timer: StageTimer
) -> tuple[Ranks, Solved, Trace | None]:
    """As Engine.update and Engine.publish."""
    iterate = GlobalIterate(graph, options)
    iterate.cover()
    iterate.invalidate()
    vertices, form = GraphVertices(graph), asked.form or "accelerated"
    solver = solver_of(iterate, strategy_named(asked.strategy), form, asked, vertices)
    solved = solver.solve()
    timer.end("solve")
    solved, bound = solver.certify(solved)
    timer.end("certify")
    values = graph.backend.xp.maximum(iterate.values, 0.0, out=iterate.values)
    numbers = float(iterate.certificate.mass), bound, graph.free, None, float(iterate.rhs_scale)
    ranks = Ranks(graph.backend, graph.permutation, values, *numbers)
    return ranks, solved, solver.trace(solved)


def _viewed(
    view: ViewQuery, graph: StaticGraph, options: Options, asked: Solve, timer: StageTimer
) -> tuple[Ranks, Solved, Trace | None]:
    """As Engine.put_view and Engine.view, by sweeps alone."""
    resolved = ResolvedView.of_view(graph.ids, options, view)
    resolved = replace(resolved, method="pull", trace=asked.trace)
    query = Query(QueryContext(WorkspacePool(graph), resolved.options, no_deflation), resolved)
    while not query.done:
        query.step()
    timer.end("solve")
    ranks = query.ranks()
    timer.end("certify")
    converged = ranks.error_bound <= resolved.target_error
    solved = Solved(query.iterations, graph.vertices, converged, refused=query.refused)
    return ranks, solved, query.trace()


def _by_engine(
    batch: EdgeBatch, options: Options, backend: Backend, asked: Solve, unconverged: Unconverged
) -> RankedOnce:
    engine, started = Engine(options, backend, unconverged), perf_counter()
    change = engine.apply(batch)
    built = perf_counter() - started
    result = engine.update(*asked)
    return RankedOnce(
        engine.publish(),
        result,
        engine.vertices,
        engine.edges,
        change.already_present,
        backend.name,
        built,
    )
