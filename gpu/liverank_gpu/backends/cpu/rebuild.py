"""Loading, packing, listing and grouping all rows of a graph on ``cpu``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.rows import CHUNK_WORK, chunk_rows
from liverank_gpu.backends.cpu.sweeps import sum_depth
from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import Csr, Rows
from liverank_gpu.operations.device import Array, DeviceOperations
from liverank_gpu.operations.graph import GraphOperations, SortedKeys
from liverank_gpu.operations.rebuild import Deduplicated, Entries, RebuildOperations, Slots
from liverank_gpu.operations.update import INSERT


class CpuRebuild(RebuildOperations):
    """See RebuildOperations."""

    def __init__(self, device: DeviceOperations, graph: GraphOperations) -> None:
        self._device = device
        self._graph = graph

    def row_ranges(
        self,
        rows: Array,
        vertices: int,
        limit: int,  # noqa: ARG002
        positions: Array,  # noqa: ARG002
    ) -> list[tuple[int, int, int]]:
        # keys are sorted in place here, so sorting a range at a time would save little memory
        return [(0, vertices, len(rows))]

    def keys_of_range(
        self,
        rows: Array,
        neighbours: Array,
        weights: Array | None,
        chosen: tuple[int, int, int],
        positions: Array,
    ) -> SortedKeys:
        columns = [(INSERT, rows, neighbours)]
        return self._graph.sorted_keys(columns, (0, chosen[1]), positions, weights)

    def deduplicate(
        self, batch: SortedKeys, loop: Array, adds: bool = False, kept: int = 0
    ) -> Deduplicated:
        if batch.weights is None:
            return Deduplicated(*kernels.deduplicate(batch.keys, loop))
        return Deduplicated(*kernels.deduplicate(*batch, loop, adds, kept))

    def merge(self, first: SortedKeys, second: SortedKeys) -> SortedKeys:
        if (first.keys[1:] < first.keys[:-1]).any():
            order = first.order
            first = self._graph.sort(first.keys, first.weights)
            if order is not None:
                first = first._replace(order=order[first.order])
        total = len(first.keys) + len(second.keys)
        merged = SortedKeys(
            *(
                None if each is None else self._device.allocate("keys of a load", total, each.dtype)
                for each in second
            )
        )
        kernels.merge_keys(first, second, merged)
        return merged

    def count_rows(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        counted: tuple[int, int] = kernels.count_rows(keys, edges, low, first, length)
        return counted

    def fill_rows(
        self, batch: SortedKeys, edges: int, low: int, first: Array, start: Array, slots: Slots
    ) -> None:
        column_indices, weights = slots
        kernels.fill_rows(
            edges, batch.keys, low, first, start, column_indices, batch.weights, weights
        )

    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        kernels.pack_rows(length, begin, start, capacity)

    def copy_rows(self, csr: Csr, new_start: Array, new_end: int, slots: Slots) -> None:
        kernels.copy_rows(new_end + 1, csr, new_start, *slots)

    def entries(self, csr: Csr) -> Entries:
        vertices = len(csr.row_lengths)
        before = np.zeros(vertices + 1, np.int64)
        np.cumsum(csr.row_lengths, out=before[1:])
        rows = self._device.allocate("list of edges", int(before[-1]), np.int32)
        neighbours = self._device.allocate("list of edges", int(before[-1]), np.int32)
        weights = None
        if csr.weights is not None:
            weights = self._device.allocate("list of edges", int(before[-1]), np.float32)
        kernels.list_entries(csr, before, rows, neighbours, weights)
        return Entries(rows, neighbours, weights)

    def sum_weights(self, csr: Csr, vertices: Array | None, loop: Array, strength: Array) -> None:
        if vertices is None:
            vertices = np.arange(len(csr.row_lengths), dtype=np.int32)
        kernels.sum_weights(vertices, csr, loop, strength)

    def scale_rows(
        self, outgoing: Csr, incoming: Csr, factors: Array, loop: Array, strength: Array
    ) -> None:
        kernels.scale_rows(outgoing, incoming, factors, loop, strength)

    def strength_depth(self, longest_row: int) -> int:
        # the last additions are the loop's and the step that keeps strengths above loops
        return sum_depth(longest_row) + 3

    def partition(self, length: Array, order: Array, degree_bins: Array) -> NDArray[np.int64]:  # noqa: ARG002
        order[:] = np.arange(len(length), dtype=np.int32)
        return chunk_rows(order, length).groups

    def needs_partition(self, rows: Rows, misbinned: int, slots: int) -> bool:
        last_group = int(rows.groups[-1] - rows.groups[-2])
        return 8 * misbinned > slots + rows.count or last_group > 2 * CHUNK_WORK
