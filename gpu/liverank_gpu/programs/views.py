"""A graph as programs read it."""

from __future__ import annotations

from typing import Any

import numpy as np

from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.programs import ProgramGraph, VertexProgram


def ids_by_position(graph: DynamicGraph) -> Array:
    """int32[n], the id at each position."""
    ids = graph.backend.xp.arange(graph.vertices, dtype=np.int32)
    known = graph.permutation.ids
    ids[: len(known)] = known
    return ids


def absent_positions(graph: DynamicGraph) -> Array:
    """uint8[n], 1 at the positions of free ids."""
    absent = graph.backend.xp.zeros(graph.vertices, np.uint8)
    absent[graph.free] = 1
    return absent


def distinct(xp: Any, values: Array) -> Array:
    """The values in ascending order, each once; NumPy's own takes a hundred times as long."""
    values = xp.sort(values)
    return values[xp.concatenate([values[:1] == values[:1], values[1:] != values[:-1]])]


def program_graph(graph: DynamicGraph, program: VertexProgram) -> ProgramGraph:
    """The graph for a program, until the next batch."""
    view = graph.view
    if view.weighted and not program.reads_weights:
        view = view._replace(
            outgoing=view.outgoing._replace(weights=None),
            incoming=view.incoming._replace(weights=None),
            loop=(view.loop != 0).astype(np.uint8),
            degree=view.outgoing.row_lengths,
        )
    return ProgramGraph(
        view,
        graph.in_rows() if program.every_vertex or program.first_wins else None,
        ids_by_position(graph),
        absent_positions(graph),
        graph.ids.count,
        program.direction == "both" and graph.directed,
    )
