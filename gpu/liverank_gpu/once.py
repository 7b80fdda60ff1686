"""Ranks of edges that are ranked once: no graph is kept that batches could change."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np

from liverank_gpu.backends import backend_named
from liverank_gpu.columns import highest_of, ids_of, weights_of
from liverank_gpu.engine import Engine
from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.dynamic_graph import naming_memory
from liverank_gpu.graph.static_graph import StaticGraph, static_bytes
from liverank_gpu.operations.backend import Backend
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
from liverank_gpu.stage_timer import StageTimer
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
    by_engine |= asked.form == "published" or options.half_life is not None
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
