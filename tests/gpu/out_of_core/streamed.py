"""A network whose programs run in windows, and in memory."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import (
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfCorePrograms,
    OutOfCoreRanking,
    OutOfCoreRanks,
    OutOfMemory,
    Solve,
    VertexProgram,
    ViewQuery,
    verify,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from tests.gpu.doubles import looked_after
from tests.gpu.graphs import arc_weights_of, arcs_of, exact_ranks

Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]
RESIDUAL = Solve("residual")
CPU = backend_named("cpu")


def ranked(
    columns: Columns,
    options: Options,
    backend: Backend,
    memory: int | None = None,
    vertices: int = 0,
    solve: Solve = RESIDUAL,
    view: ViewQuery | None = None,
    scratch: Path | None = None,
    piece: int = 700,
) -> OutOfCoreRanks:
    """Of edges that are added in pieces. memory: None for the least budget that works"""
    if memory is None:
        with pytest.raises(InvalidValue) as raised:
            ranked(columns, options, backend, 1, vertices, solve, view, scratch, piece)
        memory = named_least(raised.value)
    with OutOfCoreRanking(memory, options, backend, scratch, view=view) as graph:
        for first in range(0, len(columns[0]), piece):
            part = slice(first, first + piece)
            weights = columns[2][part] if options.weighted else None
            graph.add(columns[0][part], columns[1][part], weights)
        return graph.rank(vertices, solve)


def named_least(error: InvalidValue) -> int:
    """The least budget that a refusal of one that is too small names."""
    found = re.search(r"must be at least ([0-9,]+) bytes", str(error))
    assert found
    return int(found[1].replace(",", ""))


def assert_right(found: OutOfCoreRanks, columns: Columns, options: Options) -> None:
    """The ranks are those of a graph in memory with these edges, by an independent oracle."""
    ranks = found.ranks.to_numpy()
    engine = in_memory(columns, options, CPU, len(ranks))
    exact, slack = exact_ranks(engine)
    assert found.edges == engine.edges
    assert found.result.converged
    assert found.result.error_bound <= options.target_error
    assert float(np.abs(ranks - exact).sum()) <= found.result.error_bound + slack
    weights = arc_weights_of(engine) if options.weighted else None
    matrix = verify.GoogleMatrix(
        *arcs_of(engine), len(ranks), options.damping, options.dangling, weights=weights
    )
    assert matrix.error_bound(ranks) <= 2.0 * options.target_error


def network(vertices: int = 300, edges: int = 1500) -> Columns:
    """Parts that are not connected, loops, repeats, dangling vertices, and lengths that sums keep
    exact.
    """
    generator = np.random.default_rng(5)
    ends = generator.integers(0, vertices // 2, (2, edges))
    ends[:, ::3] += vertices // 2 - 10
    ends[:, :20] = ends[:1, :20]
    lengths = generator.integers(1, 64, edges) / 8
    return ends[0], ends[1], lengths.astype(np.float32)


def added(
    columns: Columns, options: Options, backend: Backend, memory: int, vertices: int
) -> OutOfCorePrograms:
    graph = OutOfCorePrograms(memory, options, backend)
    sources, targets, weights = columns
    graph.add(sources, targets, weights if options.weighted else None)
    graph.vertices = vertices
    return graph


def least_memory(graph: OutOfCorePrograms, program: str | VertexProgram, **given: Any) -> int:
    """What the error of a graph whose budget is too small names."""
    with pytest.raises(InvalidValue) as raised:
        graph.run(program, **given)
    return named_least(raised.value)


def squeezed(
    columns: Columns,
    options: Options,
    backend: Backend,
    vertices: int,
    program: str | VertexProgram,
    more: int = 0,
    **given: Any,
) -> OutOfCorePrograms:
    """A graph with the least budget for a program, and so much more."""
    with added(columns, options, backend, 1, vertices) as graph:
        least = least_memory(graph, program, **given)
    return added(columns, options, backend, least + more, vertices)


FOR_TRIANGLES = 1 << 15
"""What trussness needs more, for the triangles of each vertex, and for fewer pairs of windows."""


def without_locked_memory(backend: Backend) -> Backend:
    """The same on a host that has none for all edges, which a stream asks for when it has its
    buffers; those can be locked.
    """
    backend, device = looked_after(backend)
    asked = [False]

    def allocating(_: str) -> None:
        asked[0] = False

    def locking(count: int) -> None:
        if not asked[0]:
            asked[0] = True
            raise OutOfMemory("page-locked memory", 4 * count, 0)

    device.allocating, device.locking = allocating, locking
    return backend


def in_memory(columns: Columns, options: Options, backend: Backend, vertices: int) -> Engine:
    engine = Engine(options, backend)
    sources, targets, weights = columns
    engine.apply(
        EdgeBatch(
            sources, targets, vertices=vertices, weights=weights if options.weighted else None
        )
    )
    return engine
