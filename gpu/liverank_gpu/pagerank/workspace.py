"""Arrays over the vertices in which an iterate lives."""

from __future__ import annotations

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import LISTED, Residual

_LEAST_CANDIDATES = 1024
_CANDIDATE_PART = 8
"""The candidate list has room for _LEAST_CANDIDATES vertices, and one in _CANDIDATE_PART of all."""

_BELOW_ALL = -1.0
"""A floor below every |r|: every vertex whose r is added to is listed, and stays listed."""


class Workspace:
    """y, r, and the marks and candidate list of r, with room to grow; zero until written.

    values    values[n], y
    residual  see liverank_gpu.operations.residual.Residual
    """

    def __init__(self, backend: Backend, purpose: str, list_every_vertex: bool = False) -> None:
        """`list_every_vertex` gives the candidate list room for all vertices."""
        self._backend = backend
        self._purpose = purpose
        self.list_every_vertex = list_every_vertex
        self._values = backend.device.allocate(purpose, 0, np.float64)
        self._residuals = backend.device.allocate(purpose, 0, np.float64)
        self._marks = backend.device.allocate(purpose, 0, np.int32)
        self.values: Array = self._values
        candidates = backend.device.allocate(purpose, 0, np.int32)
        self.residual = Residual(self._residuals, self._marks, candidates, 0, np.inf, 0)

    @property
    def vertices(self) -> int:
        return len(self.values)

    @property
    def room(self) -> int:
        """Vertices that fit without allocation."""
        return len(self._values)

    def reserve(self, vertices: int) -> None:
        """Makes room for `vertices`, by a quarter more if it must grow; nothing visible changes,
        also if it raises OutOfMemory.
        """
        if vertices <= self.room:
            return
        room = max(vertices, self.room + self.room // 4)
        known, listed = self.vertices, self.residual.listed
        allocate = self._backend.device.allocate
        values = allocate(self._purpose, room, np.float64)
        residuals = allocate(self._purpose, room, np.float64)
        marks = allocate(self._purpose, room, np.int32)
        candidates = allocate(self._purpose, self._list_room(room), np.int32)
        for array, old in (
            (values, self.values),
            (residuals, self.residual.values),
            (marks, self.residual.marks),
        ):
            array[:known] = old
            array[known:] = 0
        candidates[:listed] = self.residual.candidates[:listed]
        self._values, self._residuals, self._marks = values, residuals, marks
        self.residual.candidates = candidates
        self._update_views(known)

    def extend(self, vertices: int) -> None:
        """Covers `vertices`; new ones are zero. Raises OutOfMemory if none have been reserved."""
        if vertices != self.vertices:
            self.reserve(vertices)
            self._update_views(vertices)

    @property
    def lists_all(self) -> bool:
        """Whether every vertex where y or r may not be 0 is on the candidate list."""
        return self.residual.floor < 0.0

    @property
    def listed(self) -> Array:
        """int32[…]: the candidates."""
        return self.residual.candidates[: self.residual.listed]

    def list_all(self, vertices: Array) -> None:
        """Lists the only vertices where y or r may not be 0. If there is no room, nothing is listed
        from now on.
        """
        residual, count = self.residual, len(vertices)
        if count > len(residual.candidates):
            residual.listed, residual.floor = 0, np.inf
            return
        residual.candidates[:count] = vertices
        residual.marks[vertices] = LISTED
        residual.listed, residual.floor = count, _BELOW_ALL

    def drop_list(self) -> None:
        """Gives up the list of all nonzero entries."""
        if self.lists_all:
            self.residual.marks[self.listed] = 0
            self.residual.listed, self.residual.floor = 0, np.inf

    def clear(self) -> None:
        """Zero again: at the listed vertices, or everywhere if nothing is listed."""
        arrays = (self.values, self.residual.values, self.residual.marks)
        if self.lists_all:
            listed = self.listed
            for array in arrays:
                array[listed] = 0
        else:
            for array in arrays:
                array.fill(0)
        self.residual.listed, self.residual.floor = 0, np.inf

    def _update_views(self, vertices: int) -> None:
        self.values = self._values[:vertices]
        self.residual.values = self._residuals[:vertices]
        self.residual.marks = self._marks[:vertices]

    def _list_room(self, room: int) -> int:
        return room if self.list_every_vertex else candidate_room(room)

    @property
    def nbytes(self) -> int:
        arrays = (self._values, self._residuals, self._marks, self.residual.candidates)
        return sum(int(array.nbytes) for array in arrays)


def candidate_room(vertices: int) -> int:
    """Length of the candidate list of this many vertices."""
    return vertices // _CANDIDATE_PART + _LEAST_CANDIDATES


def workspace_bytes(vertices: int) -> int:
    """Bytes of a Workspace."""
    return (8 + 8 + 4) * vertices + 4 * candidate_room(vertices)


class ContributionBuffers:
    """The quantized contributions of a residual, and room for those of the next.

    next_residual_sum  what the residual will sum to after a sweep without deflation
    """

    def __init__(self, current: Array, following: Array) -> None:
        self._arrays = [current, following]
        self._residual: object = None
        self.next_residual_sum = 0.0

    @classmethod
    def allocate(cls, backend: Backend, room: int) -> ContributionBuffers:
        """Buffers for iterates with up to `room` vertices."""
        dtype = backend.sweeps.contribution_dtype
        return cls(*(backend.device.allocate("contributions", room, dtype) for _ in range(2)))

    def arrays(self, length: int) -> tuple[Array, Array]:
        """(current, following) of this length, DynamicGraph.columns."""
        current, following = self._arrays
        return current[:length], following[:length]

    def holds(self, residual: object) -> bool:
        """Whether the current contributions are of this residual (see Iterate.residual_id)."""
        return self._residual is residual

    def fill(self, residual: object, next_residual_sum: float) -> None:
        """Records that the current contributions are those of a residual."""
        self._residual, self.next_residual_sum = residual, next_residual_sum

    def swap(self, residual: object, next_residual_sum: float) -> None:
        """Records that the following contributions are those of a residual: they become current."""
        self._arrays.reverse()
        self.fill(residual, next_residual_sum)

    @property
    def room(self) -> int:
        return len(self._arrays[0])

    @property
    def nbytes(self) -> int:
        return sum(int(array.nbytes) for array in self._arrays)
