"""Vertices of low degree are removed from a graph whose edges are in a file."""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.device import Array
from liverank_gpu.out_of_core.windowed_graph import WindowedGraph
from liverank_gpu.out_of_core.windowed_program import WindowedProgram
from liverank_gpu.programs.builtin import PEEL


class WindowedPeeling:
    """A liverank_gpu.programs.algorithms.Peeling in windows: each removal is a pass over the
    windows that have one of its vertices as a source.

    present    bool[n], by position
    processed  windows that were processed
    """

    def __init__(self, graph: WindowedGraph) -> None:
        """graph  each edge in the rows of both ends. Raises OutOfMemory."""
        self._graph, xp = graph, graph.backend.xp
        # no degree falls below 0, so that no vertex becomes active by itself
        self._running = WindowedProgram(graph, PEEL, {"k": 0}, "synchronous")
        self._running.values[:] = graph.view.incoming.row_lengths
        self.present: Array = xp.ones(graph.vertices, np.bool_)

    @property
    def processed(self) -> int:
        return self._running.processed

    @property
    def degrees(self) -> Array:
        """int32[…], of the vertices that are present."""
        return self._running.values[self.present]

    @property
    def work(self) -> tuple[int, int]:
        """Supersteps and edges."""
        return self._graph.stream.passes, self._running.messages

    def remove_below(self, k: int) -> None:
        """Removes all vertices of a degree below k, at once. Raises OSError."""
        low = self.present & (self._running.values < k)
        self._running.send(self._graph.backend.xp.flatnonzero(low))
        self.present = self.present & ~low
