"""Built-in vertex programs."""

from __future__ import annotations

import math
from typing import Any

from liverank_gpu.operations.programs import VertexProgram

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
