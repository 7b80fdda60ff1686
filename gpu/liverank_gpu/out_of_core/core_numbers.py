"""Core numbers of a graph whose edges are in a file.

Bounds begin as degrees and fall to the h-index of those of the neighbours, until none does: see
CoreOperations.lower_cores, and for parts of a graph Montresor, De Pellegrini and Miorandi,
"Distributed k-core decomposition" (TPDS 2013). Bounds change in place, so a window sees what those
before it have changed in the same pass.
"""

from __future__ import annotations

from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.out_of_core.active_windows import ActiveWindows
from liverank_gpu.out_of_core.windowed_graph import WindowedGraph


class WindowedCores:
    """Bounds that fall to the core numbers.

    bounds     int32[n] on the device, by position
    edges      entries read so far
    processed  windows that were processed
    """

    def __init__(self, graph: WindowedGraph) -> None:
        """graph  each edge in the rows of both ends"""
        self._graph, self._device = graph, graph.backend.device
        self.bounds: Array = graph.view.incoming.row_lengths.copy()
        self._windows = ActiveWindows(graph.backend, graph.vertices, len(graph.stream.windows))
        self._windows.activate_all()
        self.edges = self.processed = 0

    def lower(self) -> None:
        """Lowers bounds until none falls. Raises OSError."""
        stream, windows = self._graph.stream, self._windows
        while any(map(windows.is_active, stream.windows)):
            for window, slots in stream.visit(windows.is_active):
                windows.note_sources(window, slots[0], sends_back=False)
                self.processed += 1
                lists = self._graph.view.incoming
                fallen = self._graph.backend.cores.lower_cores(
                    Csr(lists.row_starts, lists.row_lengths, slots[0]),
                    window.rows,
                    self.bounds,
                    windows.blocks,
                    windows.shift,
                    self.processed,
                )
                windows.since[window.number] = self.processed
                if fallen:
                    windows.refresh()
                self.edges += int(self._device.sum(lists.row_lengths[window.vertices]))
