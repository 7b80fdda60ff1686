"""Graphs drawn on ``cuda``."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.cuda.kernels.loader import WARP
from liverank_gpu.backends.cuda.launcher import OnDevice, blocks_for
from liverank_gpu.errors import InvalidValue
from liverank_gpu.operations.csr import runs
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.generate import ExecuteCopyModel, GenerateOperations, feistel_bits

_WAVES = 4
"""Blocks of a launch, at most, in units of those that the launcher counts as resident."""

_ATTACHMENT_WARPS = 16
"""Blocks of `preferential_attachment`, at most, in the same units. A block is one warp. A billion
edges take 22 ms so, and 24 to 38 ms in larger blocks: docs/papers.md, figure 15.
"""

_MOST_PER_LANE, _MOST_EDGES_PER_LANE = 8, 32
_TICKETS_PER_WARP = 4
"""A lane draws at most 8 vertices of a ticket, or 32 edges, but one vertex at least; fewer if a
warp would get less than 4 tickets. Copies wait for vertices that are being drawn.
"""

_EDGES_OF_A_WORD = 32
"""Edges of a vertex, at most, for which one word is enough as a filter; for more it has 8."""

_COPY_THREADS = 512
"""Threads of a block, at most, of the published copy model: θ of section 4.6.5."""

_SHARED_BYTES = 48 << 10
"""Shared memory of a block for its queues, at most."""


class CudaGenerate(OnDevice, GenerateOperations):
    def random_numbers(self, start: np.uint64, skipped: int, count: int) -> Array:
        numbers = self._xp.empty(count, np.uint64)
        blocks = self._launch.resident_blocks(count, _WAVES)
        scalars = (start, skipped, count)
        self._launch("generate", "random_numbers", blocks, *scalars, numbers)
        return numbers

    def preferential_attachment(
        self, start: np.uint64, vertices: int, edges_per_vertex: int, threshold: np.uint64
    ) -> Array:
        d = edges_per_vertex
        count = (vertices - d) * d
        self._device.require("the generated graph", 4 * count)
        links = self._device.allocate("the generated graph", count, np.int32)
        links.fill(-1)
        if count:
            blocks, per_ticket = self.attachment_shape(vertices - d, d)
            words = 1 if d <= _EDGES_OF_A_WORD else 8
            self._launch(
                "generate",
                f"preferential_attachment<{words}>",
                blocks,
                vertices,
                d,
                threshold,
                start,
                per_ticket,
                self._xp.zeros(1, np.uint64),
                links,
                threads=WARP,
            )
        return links.reshape(-1, d)

    def attachment_shape(self, vertices: int, edges_per_vertex: int) -> tuple[int, int]:
        """Blocks of one warp in a launch of `preferential_attachment` that draws this many
        vertices, and vertices of a ticket.
        """
        most_per_lane = max(1, min(_MOST_PER_LANE, _MOST_EDGES_PER_LANE // edges_per_vertex))
        blocks = blocks_for(vertices, each=WARP, most=self._launch.resident * _ATTACHMENT_WARPS)
        per_lane = vertices // (blocks * WARP * _TICKETS_PER_WARP)
        return blocks, WARP * min(max(1, per_lane), most_per_lane)

    def processors(self) -> tuple[int, int]:
        return self._device.multiprocessors, _COPY_THREADS

    @runs
    def _execute_copy_model(self, do: ExecuteCopyModel) -> Array:
        multiprocessors, threads = self._device.multiprocessors, do.threads
        if threads.blocks > multiprocessors:
            requirement = f"at most the multiprocessors of the device, {multiprocessors}"
            raise InvalidValue("blocks", threads.blocks, requirement)
        counts = self._xp.zeros(3, np.uint64)
        queues, block_bytes = None, 8 * threads.threads * threads.room
        if block_bytes > _SHARED_BYTES:
            self._device.require("the waiting queues", threads.blocks * block_bytes)
            count = threads.blocks * block_bytes // 8
            queues = self._device.allocate("the waiting queues", count, np.uint64)
        self._launch(
            "generate",
            "execute_copy_model",
            threads.blocks,
            do.first,
            do.last,
            do.links.shape[1],
            do.threshold,
            do.start,
            threads.room,
            queues,
            do.links,
            counts,
            threads=threads.threads,
            shared_bytes=0 if queues is not None else block_bytes,
        )
        return counts

    def uniform(self, start: np.uint64, vertices: int, edges: int) -> tuple[Array, Array]:
        self._device.require("the generated graph", 8 * edges)
        sources, targets = (
            self._device.allocate("the generated graph", edges, np.int32) for _ in ("from", "to")
        )
        if edges:
            scalars = (vertices, feistel_bits(vertices), edges)
            blocks = self._launch.resident_blocks(edges, _WAVES)
            self._launch("generate", "uniform_pairs", blocks, start, *scalars, sources, targets)
        return sources, targets
