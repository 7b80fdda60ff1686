"""Built-in algorithms on a graph whose edges are in a file.

Their edges have no direction, so those of a directed graph are packed again, without it: for
triangles each in the row of one end, else in the rows of both, for labels once for each direction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.rows import row_sums
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.out_of_core.budget import Budget
from liverank_gpu.out_of_core.core_numbers import WindowedCores
from liverank_gpu.out_of_core.edge_values import sorted_by_id
from liverank_gpu.out_of_core.labels import WindowedLabels
from liverank_gpu.out_of_core.peeling import WindowedPeeling
from liverank_gpu.out_of_core.scratch_file import ScratchColumns
from liverank_gpu.out_of_core.spool import EdgeSpool, PackedEdges, padded
from liverank_gpu.out_of_core.triangles import WindowedTriangles
from liverank_gpu.out_of_core.trusses import WindowedTrusses
from liverank_gpu.out_of_core.undirected import neighbours, oriented
from liverank_gpu.out_of_core.window_stream import WindowStream
from liverank_gpu.out_of_core.windowed_graph import WindowedGraph
from liverank_gpu.programs.algorithms import (
    CLUSTERING,
    CORES,
    DENSEST,
    LABELS,
    TRIANGLES,
    Computed,
    Order,
    Parts,
    clustering_of,
    densest_part,
    first_labels,
)
from liverank_gpu.programs.truss import NO_TRIANGLES, SUPPORT, TRUSSNESS
from liverank_gpu.programs.views import distinct


class Packed(NamedTuple):
    """A graph in a file, and what there is for it in memory."""

    edges: PackedEdges
    budget: Budget


class Surroundings(NamedTuple):
    """What an algorithm runs in.

    memory  the budget, in bytes
    packed  the edges as programs read them
    folder  for files; None for the system's folder of temporary files
    repack  (spool, number of buffers, longest row that is sorted later) → Packed: packs other edges
            within the same budget; spends the spool. Raises InvalidValue, OSError
    order   see liverank_gpu.programs.run.Programs.begin
    """

    backend: Backend
    memory: int
    packed: Packed
    folder: Path | None
    repack: Callable[[EdgeSpool, int, int], Packed]
    order: Order = None


class Streamed(NamedTuple):
    """What an algorithm found, and what it read.

    computed   values by position, or those of edges and their ends on the host; supersteps are
               passes over the windows
    processed  windows, or pairs of windows, that were processed
    stream     of the windows, closed
    """

    computed: Computed
    processed: int
    stream: WindowStream


def _count(around: Surroundings) -> tuple[Array, NDArray[np.int64], WindowedTriangles, int]:
    """Triangles on the device and neighbours on the host, by position; what counted them; edges."""
    spool, rank = oriented(around.packed.edges, around.folder)
    edges, budget = around.repack(spool, WindowedTriangles.BUFFERS, 0)
    with edges.file:
        counting = WindowedTriangles(around.backend, edges, budget.window_slots)
        try:
            triangles = counting.count()
        finally:
            counting.close()
    degree = (edges.row_lengths + edges.out_lengths)[rank]
    return triangles[around.backend.device.to_device(rank)], degree, counting, edges.arcs


def _triangles(around: Surroundings) -> Streamed:
    triangles, _, counting, edges = _count(around)
    total = float(around.backend.device.sum(triangles)) / 3.0
    computed = Computed(triangles, counting.stream.passes, edges, {"triangles": total})
    return Streamed(computed, counting.pairs, counting.stream)


def _clustering(around: Surroundings) -> Streamed:
    backend = around.backend
    triangles, degree, counting, edges = _count(around)
    on_device = backend.device.to_device(degree)
    values, summary = clustering_of(backend.xp, triangles, on_device, len(degree))
    computed = Computed(values, counting.stream.passes, edges, summary)
    return Streamed(computed, counting.pairs, counting.stream)


class _Support(NamedTuple):
    """Triangles of each edge of a graph whose edges are in a file.

    packed     the oriented edges
    triangles  int32 of each slot
    ids        int32[n], of each row
    total      of all edges
    largest    of an edge
    of_row     of the edges of a row, and its slots, at most
    """

    packed: Packed
    triangles: ScratchColumns
    ids: NDArray[np.int32]
    total: int
    largest: int
    of_row: int
    counting: WindowedTriangles

    def by_id(self, around: Surroundings, more: int = 0) -> tuple[NDArray[Any], ...]:
        """See liverank_gpu.out_of_core.edge_values."""
        edges, budget = self.packed
        most = budget.bucket_edges
        return sorted_by_id(edges, self.triangles, self.ids, most, around.folder, more)


@contextmanager
def _counted(around: Surroundings, buffers: int) -> Iterator[_Support]:
    given = around.packed.edges
    spool, rank = oriented(given, around.folder)
    longest = int((given.row_lengths + given.out_lengths).max())
    packed = around.repack(spool, buffers, longest)
    with packed.edges.file, ScratchColumns(1, around.folder) as triangles:
        slots = packed.budget.window_slots
        counting = WindowedTriangles(around.backend, packed.edges, slots)
        total = largest = of_row = 0
        try:
            for window, counts in counting.count_by_edge():
                on_host = around.backend.device.to_host(counts)
                triangles.write(window.first, on_host)
                total += int(on_host.sum(dtype=np.int64))
                largest = max(largest, int(on_host.max(initial=0)))
                lengths = padded(packed.edges.row_lengths[window.vertices])
                of_row = max(of_row, int((row_sums(lengths, on_host) + lengths).max()))
        finally:
            counting.close()
        del counts, on_host
        ids = np.empty(len(rank), np.int32)
        ids[rank] = given.ids if len(given.ids) else np.arange(len(rank))
        yield _Support(packed, triangles, ids, total, largest, of_row, counting)


def _support(around: Surroundings) -> Streamed:
    with _counted(around, WindowedTriangles.BUFFERS_BY_EDGE) as found:
        sources, targets, values = found.by_id(around)
    summary = {"triangles": found.total / 3.0, "largest": float(found.largest)}
    counting, ends = found.counting, (sources, targets)
    computed = Computed(values, counting.stream.passes, len(values), summary, ends=ends)
    return Streamed(computed, counting.pairs, counting.stream)


def _trussness(around: Surroundings, binary: int, iterations: int, partitions: int) -> Streamed:
    with _counted(around, WindowedTrusses.BUFFERS) as found:
        edges, budget = found.packed
        each = 2 * WindowedTrusses.COUNT_BYTES  # half of the budget is for windows
        most = budget.streamed // each
        if found.of_row > most:
            least = around.memory + each * found.of_row - budget.streamed
            requirement = f"at least {least:,} bytes for the triangles of each vertex"
            raise InvalidValue("memory", around.memory, requirement)
        most = max(1, min(most, -(-(found.total + edges.slots) // partitions)))
        slots = budget.window_slots
        trusses = WindowedTrusses(around.backend, edges, found.triangles, slots, most)
        try:
            while not trusses.finished and trusses.iterations < iterations:
                trusses.lower(by_bisection=binary == 1)
        finally:
            trusses.close()
        sources, targets, values = found.by_id(around, NO_TRIANGLES)
    trusses.stream.passes += found.counting.stream.passes
    trusses.stream.bytes_loaded += found.counting.stream.bytes_loaded
    summary = {
        "largest": float(values.max(initial=0)),
        "partitions": float(trusses.intervals),
    }
    computed = Computed(
        values, trusses.stream.passes, trusses.examined, summary, trusses.finished,
        (sources, targets),
    )  # fmt: skip
    return Streamed(computed, found.counting.pairs + trusses.pairs, trusses.stream)


@contextmanager
def _neighbours(around: Surroundings, repeats: bool = False) -> Iterator[WindowedGraph]:
    """The graph with each edge in the rows of both ends.

    repeats  whether an edge in each direction is there twice
    """
    edges, budget = around.packed
    if edges.directed:
        edges, budget = around.repack(neighbours(edges, around.folder, repeats), 2, 0)
    try:
        graph = WindowedGraph(around.backend, edges, budget.window_slots)
        try:
            yield graph
        finally:
            graph.stream.close()
    finally:
        if edges is not around.packed.edges:
            edges.file.close()


def _cores(around: Surroundings) -> Streamed:
    with _neighbours(around) as graph:
        cores = WindowedCores(graph)
        cores.lower()
    summary = {"largest": float(cores.bounds.max())}
    computed = Computed(cores.bounds, graph.stream.passes, cores.edges, summary)
    return Streamed(computed, cores.processed, graph.stream)


def _densest(around: Surroundings, epsilon: float) -> Streamed:
    with _neighbours(around) as graph:
        peeling = WindowedPeeling(graph)
        computed = _ended(densest_part(peeling, epsilon, graph.vertices, graph.backend.device))
    return Streamed(computed, peeling.processed, graph.stream)


def _labels(around: Surroundings, iterations: int) -> Streamed:
    with _neighbours(around, repeats=True) as graph:
        own = np.arange(graph.vertices, dtype=np.int32)
        ids = around.packed.edges.ids if len(around.packed.edges.ids) else own
        on_device = around.backend.device.to_device(ids)
        labels, named = first_labels(around.backend, on_device, around.order)
        found = WindowedLabels(graph, labels)
        while found.is_active and graph.stream.passes < iterations:
            found.propagate()
    communities = float(len(distinct(around.backend.xp, found.labels)))
    summary = {"communities": communities}
    values = named[found.labels]
    computed = Computed(values, graph.stream.passes, found.edges, summary)
    return Streamed(computed, found.processed, graph.stream)


def _ended(parts: Parts) -> Computed:
    """What an algorithm returns at its end."""
    while True:
        try:
            next(parts)
        except StopIteration as end:
            found: Computed = end.value
            return found


class StreamedAlgorithm(NamedTuple):
    """How an algorithm runs.

    run        (surroundings, **parameters) → Streamed
    temporary  see Budget
    """

    run: Callable[..., Streamed]
    temporary: int = 0


ALGORITHMS = {
    LABELS: StreamedAlgorithm(_labels, WindowedLabels.TEMPORARY_BYTES),
    CORES: StreamedAlgorithm(_cores),
    DENSEST: StreamedAlgorithm(_densest),
    TRIANGLES: StreamedAlgorithm(_triangles),
    CLUSTERING: StreamedAlgorithm(_clustering),
    SUPPORT: StreamedAlgorithm(_support),
    TRUSSNESS: StreamedAlgorithm(_trussness),
}
"""Those that run out of core."""
