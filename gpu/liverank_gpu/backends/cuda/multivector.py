"""Several personalized vectors at once on ``cuda``."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.device import NULL
from liverank_gpu.backends.cuda.kernels.loader import (
    BIN_LANES,
    BIN_LIMITS,
    BLOCK,
    COLUMN_SUMS,
    COLUMNS,
    OVERFLOW_FACTOR,
    ROW_CHUNK,
    ROWS_PER_WARP,
    WARP,
)
from liverank_gpu.backends.cuda.launcher import Launcher, pointers
from liverank_gpu.backends.cuda.sweeps import NO_DEFLATION
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.multivector import AddCompensated, MultivectorOperations, SweepMany
from liverank_gpu.operations.operation import Table

_LONG_GROUPS = sum(lanes > WARP for lanes in BIN_LANES)
"""Groups of rows that several warps sum, the first ones; the rows of the next group have a warp
each, and those of the others half a warp.
"""

_LONG_BIN = len(BIN_LANES) - _LONG_GROUPS
"""The first degree bin of such rows."""

_SHORT_ROWS_PER_WARP = WARP
"""Rows that a warp of `sweep_many_short` prepares at a time."""

_WAVES = 4
"""Blocks of a launch, at most, in units of those that are resident at once."""


class CudaMultivector(MultivectorOperations):
    """See MultivectorOperations. Matrices have COLUMNS columns."""

    contribution_dtype = np.uint16
    min_columns = 4

    def __init__(self, launch: Launcher) -> None:
        self._launch = launch

    def column_count(self, wanted: int) -> int:  # noqa: ARG002
        return COLUMNS

    @property
    def table(self) -> Table:
        """What runs each operation."""
        return {SweepMany: self._sweep_many, AddCompensated: self._add_compensated}

    def _sweep_many(self, do: SweepMany) -> NDArray[np.float64]:
        launch, graph, rows = self._launch, do.graph, do.rows
        deflated = str(do.deflation is not None).lower()
        z, z_residual, z_rhs_scale = do.deflation or NO_DEFLATION
        device_coefficients: Array = NULL
        if do.deflation is not None:
            padded = np.pad(do.coefficients, (0, COLUMNS - len(do.coefficients)))
            device_coefficients = launch.device.to_device(padded)
        long_rows = int(rows.groups[_LONG_GROUPS])
        ends, partials = self._sum_long_rows(graph, rows, long_rows, do.contributions)
        # the longest rows come first: see BIN_LIMITS
        warp_rows, half_warp_rows = int(rows.groups[_LONG_GROUPS + 1]), int(rows.groups[-2])
        long = (np.int64(long_rows), ends, partials)
        launches: tuple[tuple[str, int, int, int, tuple[Any, ...]], ...] = (
            (f"sweep_many<{deflated}>", 0, warp_rows, ROWS_PER_WARP, long),
            *(
                (
                    f"sweep_many_short<{short}, {deflated}>",
                    first,
                    last,
                    _SHORT_ROWS_PER_WARP,
                    (do.seeded,),
                )
                for short, first, last in (
                    ("false", warp_rows, half_warp_rows),
                    ("true", half_warp_rows, rows.count),
                )
            ),
        )
        blocks = [
            self._blocks(-(-(last - first) // each)) if first < last else 0
            for _, first, last, each, _ in launches
        ]
        sums = launch.xp.empty((sum(blocks), COLUMN_SUMS, COLUMNS))
        begin = 0
        for count, (kernel, first, last, _, others) in zip(blocks, launches, strict=True):
            if count == 0:
                continue
            launch(
                "multivector",
                kernel,
                count,
                rows.order,
                np.int64(first),
                np.int64(last),
                *pointers(*graph.incoming),
                graph.outgoing.row_lengths,
                graph.loop,
                graph.degree,
                do.contributions,
                np.float64(do.damping),
                do.values,
                do.remainder,
                do.new_contributions,
                sums[begin:],
                z,
                z_residual,
                np.float64(z_rhs_scale),
                device_coefficients,
                *others,
                weighted=graph.weighted,
            )
            begin += count
        return launch.device.to_host(sums.sum(axis=0))

    def _sum_long_rows(
        self, graph: GraphView, rows: Rows, long_rows: int, contributions: Array
    ) -> tuple[Array, Array]:
        """Chunks of the first `long_rows` rows, int64[long_rows], ending with each row; and the sum
        over each chunk, float64[chunks, COLUMNS].
        """
        launch, xp = self._launch, self._launch.xp
        lengths = graph.incoming.row_lengths[rows.order[:long_rows]]
        ends = xp.cumsum((lengths + (ROW_CHUNK - 1)) // ROW_CHUNK, dtype=np.int64)
        # an upper bound: waiting for their number would leave the device idle
        chunks = graph.edges // ROW_CHUNK + long_rows if long_rows else 0
        partials = xp.empty((max(chunks, 1), COLUMNS))
        if chunks:
            launch(
                "multivector",
                "gather_chunks",
                self._blocks(chunks),
                rows.order,
                ends,
                np.int64(long_rows),
                *pointers(*graph.incoming),
                contributions,
                partials,
                weighted=graph.weighted,
            )
        return ends, partials

    def _blocks(self, warps: int) -> int:
        return self._launch.resident_blocks(warps * WARP, _WAVES)

    def column_depth(self, graph: GraphView) -> int:
        longest = graph.longest_row
        half_warp, warp = (OVERFLOW_FACTOR * BIN_LIMITS[_LONG_BIN - back] for back in (2, 1))
        most_blocks = self._blocks(graph.vertices)
        # half a warp adds up a short row; each half of a warp adds every second edge of another
        # row, or of a chunk; rows may have outgrown their bins
        in_row = max(
            min(longest, half_warp),
            min(longest, warp) // 2 + 1,
            ROW_CHUNK // 2 + longest // ROW_CHUNK + 2,
        )
        rows_per_pass = _SHORT_ROWS_PER_WARP * most_blocks * (BLOCK // WARP)
        in_warp = _SHORT_ROWS_PER_WARP * (1 + graph.vertices // rows_per_pass)
        return in_row + in_warp + 3 * most_blocks + BLOCK // WARP

    def _add_compensated(self, do: AddCompensated) -> None:
        count = len(do.places)
        blocks, size = self._launch.resident_blocks(count), np.int64(count)
        arrays = (do.places, do.amounts, size, do.carry, do.remainder)
        self._launch("multivector", "add_compensated", blocks, *arrays)
