"""Strongly connected components, core numbers and triangles on ``cpu``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.native import kernels
from liverank_gpu.operations import analysis as op
from liverank_gpu.operations.csr import Csr, GraphView, runs
from liverank_gpu.operations.device import Array

# ---- strongly connected components on ``cpu`` ----

_SAMPLES = 1024
"""Edges in the sample for the reciprocity."""


class CpuComponents(op.ComponentOperations):
    def reciprocity(self, graph: GraphView) -> float:
        seen, found = kernels.count_reciprocal(graph.outgoing, graph.incoming, _SAMPLES)
        return float(found / max(seen, 1))

    def find(self, graph: GraphView) -> op.Components:
        component = np.zeros(graph.vertices, np.int32)
        count = kernels.number_components(graph.outgoing[:3], component)
        first, order = np.zeros(count + 1, np.int64), np.empty(graph.vertices, np.int32)
        counts = kernels.order_by_component(component, graph.incoming.row_lengths, first, order)
        return op.Components(order, first, *counts)


@runs
def _solve_components(do: op.SolveComponents) -> op.ComponentsSolved:
    graph, components = do.graph, do.components
    solved = kernels.solve_components(
        components.order,
        components.first,
        components.largest_size,
        components.largest_edges,
        graph.incoming,
        graph.loop,
        graph.degree,
        do.rhs_scale,
        do.damping,
        do.residual_goal,
        do.largest_step,
        do.most_sweeps,
        do.values,
        do.contributions,
    )
    return op.ComponentsSolved(*solved)


# ---- core numbers on ``cpu`` ----


@runs
def _core_numbers(do: op.CoreNumbers) -> tuple[Array, Array]:
    degree = do.lists.row_lengths.copy()
    order, place = np.empty((2, len(degree)), np.int32)
    longest = int(degree.max()) if len(degree) else 0
    first = np.zeros(longest + 2, np.int64)
    kernels.core_numbers(do.lists, degree, order, place, first)
    return degree, order


@runs
def _lower_cores(do: op.LowerCores) -> int:
    rows = (do.rows.groups, do.rows.order, do.lists)
    fallen: int = kernels.lower_cores(*rows, do.bounds, do.blocks, do.shift, do.now)
    return fallen


@runs
def _core_candidates(do: op.CoreCandidates) -> tuple[Array, Array]:
    near, vertices = do.near, len(do.bounds)
    outgoing, incoming = near.outgoing, near.incoming
    state, support, stamp = np.zeros((3, vertices), np.int32)
    found, still = np.empty(vertices, np.int32), np.empty_like(do.suspects)
    candidates, left, read = kernels.core_candidates(
        outgoing,
        outgoing if incoming is None else incoming,
        incoming is not None,
        do.bounds,
        do.places,
        do.suspects,
        state,
        support,
        stamp,
        found,
        still,
        near.most - near.read,
    )
    near.read += read
    if near.read > near.most:
        raise op.TooMuch
    return found[:candidates], still[:left]


# ---- triangles on ``cpu`` ----


@runs
def _count_triangles(do: op.CountTriangles) -> Array:
    groups, places = _parts(do.oriented, do.sources)
    triangles = np.zeros(len(do.sources), np.int32)
    third = np.zeros(len(do.sources) if do.every_edge else 0, np.int32)
    kernels.count_triangles(groups, do.oriented, places, do.every_edge, triangles, third)
    return triangles + third if do.every_edge else triangles


@runs
def _count_between(do: op.CountBetween) -> None:
    kernels.count_between(do.lowest, do.middle, do.triangles)


@runs
def _count_entries_between(do: op.CountEntriesBetween) -> None:
    kernels.count_entries_between(do.lowest, do.middle, do.of_lowest, do.counts, do.bounds)


@runs
def _list_triangles(do: op.ListTriangles) -> None:
    groups, places = _parts(do.oriented, do.sources)
    ends = do.lists.starts[:-1].copy()
    kernels.list_triangles(groups, do.oriented, places, do.interval, ends, do.lists.others)


@runs
def _lower_bounds(do: op.LowerBounds) -> tuple[int, int]:
    counts: tuple[int, int] = kernels.lower_bounds(
        do.interval.first_edge, *do.lists, do.by_bisection, do.bounds, do.marks, do.falls
    )
    return counts


def _parts(
    oriented: Csr, sources: NDArray[np.int32]
) -> tuple[NDArray[np.int64], NDArray[np.int32]]:
    """Rows divided among the threads by the entries that they compare, and their places."""
    vertices, parts = len(oriented.row_lengths), kernels.threads()
    lengths = oriented.row_lengths[oriented.column_indices]
    work = np.cumsum(np.bincount(sources, lengths, vertices))  # of the rows up to each
    limits = np.searchsorted(work, work[-1] / parts * np.arange(1, parts))
    places = CpuDevice().allocate("triangles", parts * vertices, np.int32)
    places.fill(0)
    return np.concatenate([[0], limits, [vertices]]), places
