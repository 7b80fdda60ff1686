"""Rows in two parts, in-neighbours of high out-degree and others: see hubs.cu."""

from __future__ import annotations

import numpy as np

from benchmarks.gather.kernels import Kernels, Vectors
from liverank_gpu.backends.cuda.kernels.loader import SWEEP_SUMS
from liverank_gpu.backends.cuda.launcher import Launcher, blocks_for
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import EdgeChanges
from liverank_gpu.operations.sweeps import SweepResult

MOST_HUBS = 1 << 16
"""As many as ids of 16 bits can name; their contributions take 128 KiB of shared memory."""

_OTHERS_AT_ONCE, _HUBS_AT_ONCE = 4, 8
_ROW_SHIFT, _ADDED = 17, 1 << 16
"""See hubs.cu."""


class Hubs:
    """The in-lists of an unweighted graph, each in two parts.

    hub_ids   int32[h], by descending out-degree when the layout was built
    rows      int32[n, 4], see hubs.cu
    hubs      uint16[slots]: numbers of hubs, to which `rows` refers
    hub_edges edges from hubs when it was built
    """

    def __init__(self, graph: DynamicGraph, hubs: int = MOST_HUBS, threads: int = 1024) -> None:
        """`threads` of a block, one of which is resident on a multiprocessor."""
        names = ("copy_hubs", "sweep_divided", "change_hubs")
        self._launch = Kernels(graph.backend, "hubs", names, {"HUBS": hubs}, threads)
        self._launcher = Launcher(self._launch.device)
        self._graph, self._xp = graph, graph.backend.xp
        xp, n = self._xp, graph.vertices
        self.hub_ids = xp.argsort(-graph.view.outgoing.row_lengths)[:hubs].astype(np.int32)
        self._number = xp.full(n, -1, np.int32)
        self._number[self.hub_ids] = xp.arange(len(self.hub_ids), dtype=np.int32)
        self._table = xp.zeros(hubs, np.uint16)
        entries = graph.backend.rebuild.entries(graph.incoming.csr)
        numbers = self._number[entries.neighbours]
        self.rows = xp.zeros((n, 4), np.int32)
        self.hub_edges = int(xp.count_nonzero(numbers >= 0))
        self._others, _ = self._part(
            0, _OTHERS_AT_ONCE, entries.rows, entries.neighbours, numbers < 0
        )
        self.hubs, self._capacities = self._part(
            2, _HUBS_AT_ONCE, entries.rows, numbers.astype(np.uint16), numbers >= 0
        )

    def _part(
        self, column: int, at_once: int, rows: Array, entries: Array, chosen: Array
    ) -> tuple[Array, Array]:
        """The chosen entries, and the capacities of rows. Describes the part of each row in two
        columns of `rows`. There is room for rows that move: rows are packed without slack as in the
        product, and are not packed again here.
        """
        xp = self._xp
        rows, entries = rows[chosen], entries[chosen]
        lengths = xp.bincount(rows, minlength=self._graph.vertices)
        groups = -(-lengths // at_once)
        starts = xp.cumsum(groups) - groups
        self.rows[:, column], self.rows[:, column + 1] = starts, lengths
        total = int(groups.sum())
        room = 3 * total + 64 if column == 2 else total + 1
        slots = xp.zeros(room * at_once, entries.dtype)
        moved = at_once * starts - (xp.cumsum(lengths) - lengths)
        slots[moved[rows] + xp.arange(len(rows))] = entries
        if column == 2:
            self._end = xp.full(1, total, np.int32)
        return slots, (at_once * groups).astype(np.int32)

    @property
    def nbytes(self) -> int:
        arrays = (self.rows, self._others, self.hubs, self._capacities, self._number)
        return sum(int(array.nbytes) for array in arrays)

    def sweep(self, vectors: Vectors) -> SweepResult:
        """A sweep, in place."""
        graph, view, launch = self._graph, self._graph.view, self._launch
        count = len(self.hub_ids)
        arrays = (self.hub_ids, np.int32(count), vectors.contributions, self._table)
        launch("copy_hubs", blocks_for(count, launch.block), *arrays)
        _, ((order, _, parts, arrived), plan) = self._launcher.row_arguments(
            view.incoming, graph.in_rows()
        )
        blocks = launch.device.multiprocessors
        partial_sums = self._xp.empty((blocks, SWEEP_SUMS))
        launch(
            "sweep_divided",
            blocks,
            order,
            self.rows,
            self._others,
            self.hubs,
            parts,
            arrived,
            plan,
            self._table.view(np.uint32),
            view.loop,
            view.degree,
            vectors.contributions,
            np.float64(vectors.damping),
            np.float64(vectors.shift),
            vectors.values,
            vectors.residual,
            vectors.following,
            partial_sums,
            shared=2 * len(self._table),
        )
        return launch.result(partial_sums)

    def apply(self, changes: EdgeChanges) -> None:
        """Follows a batch in the parts that list hubs; the others change as rows of the product do.
        Raises RuntimeError if a row found no room.
        """
        xp, device = self._xp, self._launch.device
        keys = []
        for (sources, targets), added in ((changes[2:4], 0), (changes[4:6], _ADDED)):
            numbers = self._number[sources]
            kept = (numbers >= 0) & (sources != targets)
            keys.append(targets[kept].astype(np.int64) << _ROW_SHIFT | added | numbers[kept])
        ascending = xp.sort(xp.concatenate(keys))
        if len(ascending) == 0:
            return
        most = len(self.hubs) // _HUBS_AT_ONCE
        self._launch(
            "change_hubs",
            len(ascending),
            ascending,
            np.int64(len(ascending)),
            self.rows,
            self._capacities,
            self.hubs,
            self._end,
            np.int32(most),
        )
        end = int(device.to_host(self._end)[0])
        if end > most:
            raise RuntimeError(f"rows of hubs without room: {end} groups of {most}")
