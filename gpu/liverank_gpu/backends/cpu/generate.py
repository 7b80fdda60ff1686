"""Graphs drawn on ``cpu``."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.native import kernels
from liverank_gpu.operations import generate as op
from liverank_gpu.operations.csr import runs
from liverank_gpu.operations.device import Array

_LEAST_SEGMENT = 4096
_SEGMENT_SHIFT = 7
"""A segment has a 128th of the vertices before it, at least 4096."""


class CpuGenerate(op.GenerateOperations):
    def __init__(self, device: CpuDevice) -> None:
        self._device = device

    def random_numbers(self, start: np.uint64, skipped: int, count: int) -> Array:
        numbers = np.empty(count, np.uint64)
        kernels.fill_random(start, skipped, numbers)
        return numbers

    def preferential_attachment(
        self, start: np.uint64, vertices: int, edges_per_vertex: int, threshold: np.uint64
    ) -> Array:
        # A segment's vertices run at the same time and link through vertices before the segment.
        # Few copy edges lead into the segment itself; their vertices follow, in order.
        d = edges_per_vertex
        count = (vertices - d) * d
        self._device.require("the generated graph", 4 * count)
        links = self._device.allocate("the generated graph", count, np.int32).reshape(-1, d)
        first = d
        while first < vertices:
            size = min(max(_LEAST_SEGMENT, first >> _SEGMENT_SHIFT), vertices - first)
            kernels.attach(first, first + size, links, d, start, threshold)
            first += size
        return links

    def processors(self) -> tuple[int, int]:
        return kernels.threads(), 1

    @runs
    def _execute_copy_model(self, do: op.ExecuteCopyModel) -> Array:
        drawn = (do.first, do.last, do.links.shape[1], do.threshold, do.start)
        threads = do.threads.blocks * do.threads.threads
        return np.array(kernels.execute_copy_model(*drawn, threads, do.links))

    def uniform(self, start: np.uint64, vertices: int, edges: int) -> tuple[Array, Array]:
        self._device.require("the generated graph", 8 * edges)
        columns = [
            self._device.allocate("the generated graph", edges, np.int32) for _ in ("from", "to")
        ]
        kernels.permuted_pairs(
            start, vertices, op.feistel_bits(vertices), op.FEISTEL_ROUNDS, *columns
        )
        return columns[0], columns[1]
