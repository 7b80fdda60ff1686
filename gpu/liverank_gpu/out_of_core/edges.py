"""Edges that arrive in any order, and what becomes of them within a memory budget."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends import backend_named
from liverank_gpu.errors import InvalidValue
from liverank_gpu.operations.backend import Backend
from liverank_gpu.out_of_core.budget import Budget
from liverank_gpu.out_of_core.spool import EdgeSpool, PackedEdges
from liverank_gpu.out_of_core.windowed_graph import WindowedGraph
from liverank_gpu.types import BackendName, Options


class OutOfCoreEdges:
    """Gathers edges in a file. To be used in a ``with`` statement, or closed; its files have no
    names, so nothing remains of them.

    The budget bounds the arrays of the graph, where the backend computes: values of vertices and
    windows of in-lists, and the edges that are sorted on the host before. On ``cuda`` in-lists are
    kept in page-locked memory of the host if it has room, beside the budget.
    """

    def __init__(
        self,
        memory: int,
        options: Options | None = None,
        backend: BackendName | Backend = "auto",
        scratch: Path | None = None,
    ) -> None:
        """memory   the budget, in bytes
        options  without ``half_life``
        backend  its name, or the backend itself
        scratch  folder for files: 16 bytes an edge at most, 24 if it has a weight, twice that for
                 an undirected graph; None for the system's folder of temporary files

        Raises InvalidValue, BackendUnavailable, OSError.
        """
        self._options = options = options or Options()
        if isinstance(memory, bool) or not isinstance(memory, int) or memory < 1:
            raise InvalidValue("memory", memory, "a number of bytes, at least 1")
        if options.half_life is not None:
            raise InvalidValue("half_life", options.half_life, "None for a graph out of core")
        self._memory, self._scratch = memory, scratch
        self.backend = backend if isinstance(backend, Backend) else backend_named(backend)
        self._spool = EdgeSpool(scratch, options.directed, options.weighted)

    @property
    def added(self) -> int:
        """Number of edges that were added, repeats included."""
        return self._spool.added

    def add(
        self,
        sources: NDArray[np.integer[Any]],
        targets: NDArray[np.integer[Any]],
        weights: NDArray[Any] | None = None,
    ) -> None:
        """Adds edges: ids from 0 to 2³¹-2, integer[k] each. Repeats are one edge, with the weight
        of the last one.

        weights  number[k], as those of an EdgeBatch, of a weighted graph; None: all are 1

        Raises InvalidValue, OSError.
        """
        self._spool.add(sources, targets, weights)

    def _divided(self, vertices: int, each: int, reserved: int, temporary: int = 0) -> Budget:
        """The budget with `each` bytes for a vertex. Raises InvalidValue.

        temporary  see Budget
        """
        if vertices == 0:
            raise InvalidValue("vertices", vertices, "at least 1")
        longest, weighted = self._spool.longest, self._options.weighted
        return Budget.divide(
            self._memory, reserved, vertices, each, longest, weighted, temporary=temporary
        )

    def _packed(self, vertices: int, budget: Budget) -> PackedEdges:
        """See EdgeSpool.pack."""
        fixed_loops, order = self._options.dangling == "self-loop", self._options.vertex_order
        return self._spool.pack(vertices, budget.bucket_edges, fixed_loops, order)

    def _windowed(
        self, packed: PackedEdges, each: int, budget: Budget, doing: str
    ) -> WindowedGraph:
        """The graph in windows, with a stream to be closed.

        doing  to the vertices, in messages

        Raises OutOfMemory, OSError.
        """
        self._require(packed, each, budget, doing)
        return WindowedGraph(self.backend, packed, budget.window_slots)

    def _require(self, packed: PackedEdges, each: int, budget: Budget, doing: str) -> None:
        """Raises OutOfMemory if there is less memory than the budget allows."""
        vertices, slots = len(packed.row_lengths), min(budget.window_slots, packed.slots)
        needed = vertices * each + budget.slot_bytes * slots
        self.backend.device.require(f"{doing} {vertices:,} vertices out of core", needed)

    def close(self) -> None:
        """Frees the files."""
        self._spool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()
