"""A network whose programs run in windows, and in memory."""

from __future__ import annotations

import re
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
    OutOfMemory,
    VertexProgram,
)
from liverank_gpu.operations.backend import Backend
from tests.gpu.doubles import looked_after

Columns = tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float32]]


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
    with pytest.raises(InvalidValue, match="must be at least") as raised:
        graph.run(program, **given)
    found = re.search(r"at least ([0-9,]+) bytes", str(raised.value))
    assert found
    return int(found[1].replace(",", ""))


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
