"""Scratch memory for the batches of a graph."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.update import (
    COUNTERS,
    SCAN_TILE,
    SCANS,
    BatchPlan,
    Counts,
    EdgeChanges,
    PlanWeights,
)

_PLANNED = slice(COUNTERS.index("CHANGED"), COUNTERS.index("HOLES") + 1)
"""The counters from `plan_rows` on."""

_PLANNING_SCANS = 3
"""The first scan that `plan_rows` uses."""

_KEPT = 1 << 17
"""The workspace of batches of up to this many operations is kept."""

_WIDE, _NARROW, _TINY = 4, 15, 1
"""Arrays of a BatchPlan in int64, int32 and int8."""

_WEIGHTS = len(PlanWeights._fields)
"""Arrays of PlanWeights."""


class Workspace:
    """The plans of both directions for batches of up to `capacity` operations, reused."""

    def __init__(self, capacity: int, backend: Backend, weighted: bool = False) -> None:
        self.capacity = capacity
        self._weighted = weighted
        self._backend = backend
        counters, words = len(COUNTERS), _scan_words(capacity)
        self._zeroed = backend.device.allocate(
            "scratch for a batch", 2 * (counters + SCANS * words), np.int64
        )
        self._counters = self._zeroed[: 2 * counters].reshape(2, counters)
        self._scans = self._zeroed[2 * counters :].view(np.uint64).reshape(2, SCANS, words)
        self.outgoing = self._plan(0)
        self.incoming = self._plan(1)

    def _plan(self, direction: int) -> BatchPlan:
        wide, narrow, tiny = (
            self._block(*each)
            for each in ((np.int64, _WIDE), (np.int32, _NARROW), (np.int8, _TINY))
        )
        floats = self._block(np.float32, _WEIGHTS) if self._weighted else None
        plan = BatchPlan(
            (wide, narrow, tiny, floats),
            self._counters[direction],
            list(self._scans[direction]),
            *wide.reshape(_WIDE, -1),
            *narrow.reshape(_NARROW, -1),
            *tiny.reshape(_TINY, -1),
        )
        if floats is None:
            return plan
        weights = PlanWeights(*floats.reshape(_WEIGHTS, -1))
        weights.opposite.fill(0)  # they are sorted with their keys, those of no key too
        return replace(plan, weights=weights)

    def _block(self, dtype: type[np.generic], count: int) -> Array:
        # one more than there are operations, since arrays of first indices have an end
        size = count * (self.capacity + 1)
        return self._backend.device.allocate("scratch for a batch", size, dtype)

    def clear(self) -> None:
        """Before the next batch."""
        self._zeroed.fill(0)

    def clear_row_plan(self, plan: BatchPlan) -> None:
        """Before `plan_rows` runs again, because the rows were packed."""
        plan.counters[_PLANNED] = 0
        for scan in plan.scans[_PLANNING_SCANS:]:
            scan.fill(0)

    def counts(self) -> tuple[Counts, Counts]:
        """The counters of both directions. Waits for the device."""
        outgoing, incoming = self._backend.device.to_host(self._counters).tolist()
        return Counts(*outgoing), Counts(*incoming)

    @property
    def nbytes(self) -> int:
        return workspace_bytes(self.capacity, self._weighted)


class KeptWorkspace:
    """The workspace of one graph, kept from batch to batch unless one is large."""

    def __init__(self, backend: Backend, weighted: bool) -> None:
        self._backend = backend
        self._weighted = weighted
        self._kept: Workspace | None = None

    def take(self, operations: int) -> Workspace:
        """A cleared workspace for so many operations."""
        workspace = self._kept
        if workspace is None or workspace.capacity < operations:
            workspace = self._kept = None
            capacity = 1 << max(10, (operations - 1).bit_length())
            if operations > _KEPT:
                capacity = operations
            workspace = Workspace(capacity, self._backend, self._weighted)
            if operations <= _KEPT:
                self._kept = workspace
        workspace.clear()
        return workspace

    @property
    def nbytes(self) -> int:
        return self._kept.nbytes if self._kept else 0


def allocate_changes(backend: Backend, counts: Counts, weighted: bool) -> EdgeChanges:
    """Arrays for what a batch changes; they are not reused."""
    allocate, purpose = backend.device.allocate, "what a batch changed"
    changed, removed, added = counts.changed, counts.removed, counts.added
    block = allocate(purpose, 2 * (changed + removed + added), np.int32)
    rows, lost, gained = (
        block[: 2 * changed],
        block[2 * changed :],
        block[2 * (changed + removed) :],
    )
    changes = EdgeChanges(
        *(rows[:changed], rows[changed:]),
        *(lost[:removed], lost[removed : 2 * removed]),
        *(gained[:added], gained[added:]),
    )
    if not weighted:
        return changes
    return changes._replace(
        old_degree=allocate(purpose, counts.changed, np.float64),
        removed_weights=allocate(purpose, counts.removed, np.float32),
        added_weights=allocate(purpose, counts.added, np.float32),
    )


def workspace_bytes(operations: int, weighted: bool = False) -> int:
    """Bytes of a Workspace."""
    each = 8 * _WIDE + 4 * (_NARROW + _WEIGHTS * weighted) + _TINY
    words = len(COUNTERS) + SCANS * _scan_words(operations)
    return 2 * (each * (operations + 1) + 8 * words)


def _scan_words(operations: int) -> int:
    return 1 + -(-operations // SCAN_TILE)
