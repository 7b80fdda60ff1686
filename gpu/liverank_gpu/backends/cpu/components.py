"""Strongly connected components on ``cpu``."""

from __future__ import annotations

import numpy as np

from liverank_gpu.native import kernels
from liverank_gpu.operations.components import ComponentOperations, Components, ComponentsSolved
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array

_SAMPLES = 1024
"""Edges in the sample for the reciprocity."""


class CpuComponents(ComponentOperations):
    """See ComponentOperations."""

    def reciprocity(self, graph: GraphView) -> float:
        seen, found = kernels.count_reciprocal(graph.outgoing, graph.incoming, _SAMPLES)
        return float(found / max(seen, 1))

    def find(self, graph: GraphView) -> Components:
        component = np.zeros(graph.vertices, np.int32)
        count = kernels.number_components(graph.outgoing[:3], component)
        first, order = np.zeros(count + 1, np.int64), np.empty(graph.vertices, np.int32)
        counts = kernels.order_by_component(component, graph.incoming.row_lengths, first, order)
        return Components(order, first, *counts)

    def solve(
        self,
        graph: GraphView,
        components: Components,
        values: Array,
        contributions: Array,
        rhs_scale: float,
        damping: float,
        residual_goal: float,
        largest_step: float,
        most_sweeps: int,
    ) -> ComponentsSolved:
        solved = kernels.solve_components(
            components.order,
            components.first,
            components.largest_size,
            components.largest_edges,
            graph.incoming,
            graph.loop,
            graph.degree,
            rhs_scale,
            damping,
            residual_goal,
            largest_step,
            most_sweeps,
            values,
            contributions,
        )
        return ComponentsSolved(*solved)
