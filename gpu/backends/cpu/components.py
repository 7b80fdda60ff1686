"""Strongly connected components on ``cpu``."""

from __future__ import annotations

import numpy as np

from gpu.backends.cpu import component_kernels as kernels
from gpu.backends.cpu import component_search as search
from gpu.backends.cpu.component_kernels import MOST_CHUNKS, Local
from gpu.backends.cpu.rows import plain
from gpu.jit.compile import locked
from gpu.operations.components import ComponentOperations, Components, ComponentsSolved
from gpu.operations.csr import GraphView
from gpu.operations.device import Array

_SAMPLES = 1024
"""Edges in the sample for the reciprocity."""

_solve_components = locked(kernels.solve_components)


class CpuComponents(ComponentOperations):
    """See ComponentOperations."""

    def reciprocity(self, graph: GraphView) -> float:
        counts = np.zeros(2, np.int64)
        search.count_reciprocal(graph.outgoing, graph.incoming, _SAMPLES, counts)
        return float(counts[1] / max(counts[0], 1))

    def find(self, graph: GraphView) -> Components:
        component = np.zeros(graph.vertices, np.int32)
        count = search.number_components(*plain(graph.outgoing)[:3], component)
        first, order = np.zeros(count + 1, np.int64), np.empty(graph.vertices, np.int32)
        counts = np.zeros(3, np.int64)
        search.order_by_component(component, graph.incoming.row_lengths, first, order, counts)
        return Components(order, first, *counts.tolist())

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
        places = np.empty(graph.vertices, np.int32)
        places[components.order] = np.arange(graph.vertices, dtype=np.int32)
        sweeps, edges = _solve_components(
            components.order,
            components.first,
            places,
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
            _local(components, graph.weighted),
        )
        return ComponentsSolved(int(sweeps), int(edges))


def _local(components: Components, weighted: bool) -> Local:
    """Room for the largest component."""
    size, edges = components.largest_size, components.largest_edges
    rhs, diagonal, inverse, values = np.empty((4, size))
    return Local(
        bounds=np.zeros(MOST_CHUNKS + 1, np.int64),
        starts=np.empty(size, np.int64),
        lengths=np.empty(size, np.int32),
        indices=np.empty(edges, np.int32),
        weights=np.empty(edges, np.float32) if weighted else None,
        rhs=rhs,
        diagonal=diagonal,
        inverse=inverse,
        values=values,
        contributions=np.empty(2 * size),
        steps=np.empty((3, size)),
        targets=np.empty((3, size)),
        sums=np.empty((MOST_CHUNKS, kernels.SUMS)),
    )
