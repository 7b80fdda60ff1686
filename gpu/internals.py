"""The parts of an engine, for measurements and tests."""

from __future__ import annotations

from dataclasses import dataclass

from gpu.graph.dynamic_graph import DynamicGraph
from gpu.operations.backend import Backend
from gpu.pagerank.global_iterate import GlobalIterate
from gpu.personalized.query import QueryContext


@dataclass(frozen=True, slots=True)
class Internals:
    """Changing them makes results wrong."""

    backend: Backend
    graph: DynamicGraph
    iterate: GlobalIterate
    queries: QueryContext
