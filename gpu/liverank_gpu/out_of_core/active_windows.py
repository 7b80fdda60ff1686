"""Which windows have something to do: those of whose sources one became active since.

Vertices are divided into blocks. Each window knows from which blocks its edges come, from when it
was first loaded on, and each block when one of its vertices last became active.
"""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.out_of_core.window_stream import Window

_MOST_BLOCKS = 1 << 12
"""Blocks of vertices; fewer, so that all windows together have one flag a vertex at most."""

_PIECE = 1 << 16
"""Slots whose blocks are noted at once, or one part in _PARTS of a window."""

_PARTS = 64

NEVER = -1
"""The step in which a vertex became active that never did."""


class ActiveWindows:
    """What windows know.

    shift   the block of v is v >> shift
    blocks  int32[b] on the device: the last step in which one of its vertices became active
    since   int64[w]: the last step in which each window was processed
    """

    def __init__(self, backend: Backend, vertices: int, windows: int) -> None:
        """No vertex is active."""
        self._backend = backend
        most = max(1, min(_MOST_BLOCKS, vertices // windows))
        self.shift = max(0, (-(-vertices // most) - 1).bit_length())
        count = ((vertices - 1) >> self.shift) + 1
        self.blocks: Array = backend.xp.full(count, NEVER, np.int32)
        self.since = np.zeros(windows, np.int64)
        self._newest = np.full(count, NEVER, np.int32)
        self._sources = np.ones((windows, count), np.bool_)
        self._known = np.zeros(windows, np.bool_)

    def activate(self, vertices: Array, step: int) -> None:
        """Makes vertices active, integer[…]."""
        self.blocks[vertices >> self.shift] = step
        self.refresh()

    def activate_all(self) -> None:
        """Makes all vertices active, in step 0."""
        self.blocks[:] = 0
        self.refresh()

    def refresh(self) -> None:
        """Takes note of `blocks`, which operations write."""
        self._newest = self._backend.device.to_host(self.blocks)

    def is_active(self, window: Window) -> bool:
        """Whether a source of the window became active since it was processed."""
        newer = self._newest >= self.since[window.number]
        return bool((newer & self._sources[window.number]).any())

    def note_sources(self, window: Window, column_indices: Array, sends_back: bool) -> None:
        """Notes from which blocks the edges of a window come, once.

        sends_back  whether its own vertices count too
        """
        if self._known[window.number]:
            return
        flags = self._backend.xp.zeros(len(self._newest), np.bool_)
        piece = max(_PIECE, len(column_indices) // _PARTS)
        for first in range(0, len(column_indices), piece):
            flags[column_indices[first : first + piece] >> self.shift] = True
        if sends_back:
            own = window.vertices
            flags[own.start >> self.shift : ((own.stop - 1) >> self.shift) + 1] = True
        self._sources[window.number] = self._backend.device.to_host(flags)
        self._known[window.number] = True
