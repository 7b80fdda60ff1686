"""The parts of an engine, for measurements and tests."""

from __future__ import annotations

from dataclasses import dataclass

from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.personalized.query import QueryContext


@dataclass(frozen=True, slots=True)
class Internals:
    """Changing them makes results wrong."""

    backend: Backend
    graph: DynamicGraph
    iterate: GlobalIterate
    queries: QueryContext
