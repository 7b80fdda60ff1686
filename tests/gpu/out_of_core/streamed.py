"""A network whose programs run in windows, and in memory."""

from __future__ import annotations

import re
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import (
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfCorePrograms,
    VertexProgram,
)
from liverank_gpu.operations.backend import Backend

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
    """What the error of a budget of one byte names."""
    with (
        patch.object(graph, "_memory", 1),
        pytest.raises(InvalidValue, match="must be at least") as raised,
    ):
        graph.run(program, **given)
    found = re.search(r"at least ([0-9,]+) bytes", str(raised.value))
    assert found
    return int(found[1].replace(",", ""))


def small_budget(graph: OutOfCorePrograms, program: str) -> int:
    """A little more than the least budget, if that is not enough for most graphs."""
    least = least_memory(graph, program)
    # for the triangles of each vertex, and so that there are fewer pairs of windows
    return least + (1 << 15) if program == "trussness" else least


def in_memory(columns: Columns, options: Options, backend: Backend, vertices: int) -> Engine:
    engine = Engine(options, backend)
    sources, targets, weights = columns
    engine.apply(
        EdgeBatch(
            sources, targets, vertices=vertices, weights=weights if options.weighted else None
        )
    )
    return engine
