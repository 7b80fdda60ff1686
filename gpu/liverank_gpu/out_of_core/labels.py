"""Label propagation on a graph whose edges are in a file.

A superstep is a pass over the windows: each has the whole lists of its vertices, so what their
neighbours vote for is counted there. All vertices change their labels at the end of the pass. A
window is skipped if no neighbour of its vertices has changed its label in the superstep before.
"""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.out_of_core.active_windows import ActiveWindows
from liverank_gpu.out_of_core.windowed_graph import WindowedGraph
from liverank_gpu.programs.algorithms import most_frequent


class WindowedLabels:
    """Labels that are propagated: see liverank_gpu.programs.algorithms.

    labels     int32[n] on the device, by position
    edges      entries read so far
    processed  windows that were processed
    """

    TEMPORARY_BYTES = 96
    """For each slot of a window, at most: votes, their runs, and the order of these. Half of it on
    ``cpu``, where sorting takes fewer copies.
    """

    def __init__(self, graph: WindowedGraph, labels: Array) -> None:
        """graph   each edge in the rows of both ends, as often as it counts
        labels  int32[n] on the device, the first ones
        """
        self._graph, self.labels = graph, labels
        self._windows = ActiveWindows(graph.backend, graph.vertices, len(graph.stream.windows))
        self._windows.activate_all()
        self.edges = self.processed = 0

    @property
    def is_active(self) -> bool:
        """Whether a label may change."""
        return any(map(self._windows.is_active, self._graph.stream.windows))

    def propagate(self) -> None:
        """One superstep. Raises OSError."""
        stream, windows, xp = self._graph.stream, self._windows, self._graph.backend.xp
        lists, following = self._graph.view.incoming, self.labels.copy()
        for window, slots in stream.visit(windows.is_active):
            windows.note_sources(window, slots[0], sends_back=False)
            rows = window.vertices
            votes = self._votes(Csr(lists.row_starts[rows], lists.row_lengths[rows], slots[0]))
            self.edges += len(votes)
            following[rows] = most_frequent(xp, votes, self.labels[rows])
            self.processed += 1
        windows.activate(xp.flatnonzero(following != self.labels), stream.passes)
        windows.since[:] = stream.passes
        self.labels = following

    def _votes(self, lists: Csr) -> Array:
        """int64[m], row << 32 | label of the neighbour."""
        rows, neighbours, _ = self._graph.backend.rebuild.entries(lists)
        votes: Array = rows.astype(np.int64)
        del rows
        votes <<= 32
        votes |= self.labels[neighbours]
        return votes
