"""Dense sweeps on ``cuda``, of one vector and of several."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.kernels import loader as cu
from liverank_gpu.backends.cuda.launcher import Launcher, OnDevice, grid_blocks
from liverank_gpu.backends.cuda.pages import over_in_lists
from liverank_gpu.operations import sweeps as op
from liverank_gpu.operations.csr import GraphView, Rows, runs
from liverank_gpu.operations.device import Array

# ---- dense sweeps over the transpose on ``cuda`` ----

NO_DEFLATION = op.DeflationVector(None, None, 0.0)
"""For kernels that do not deflate."""

_FUSED_EDGES = 1 << 25
"""Edges, and two for each vertex, up to which sweeps are fused. On an H200 a solve took 0.40 to
0.65 of the time of single sweeps on grids and R-MAT graphs of up to 4M edges, 0.63 to 0.77 on those
of 16M, whose single sweeps take 0.23 to 0.35 ms.
"""

MOST_FUSED = 16
"""Sweeps of a launch: so long a launch never takes more than a few milliseconds."""


@lru_cache(maxsize=16)
def _sum_depth(longest_row: int) -> int:
    # additions of one thread, in any bin that can have a row of this length; sums of the parts of a
    # row; shuffles
    own = [
        -(-min(longest_row, cu.OVERFLOW_FACTOR * limit) // lanes)
        for lanes, limit in zip(cu.BIN_LANES, cu.BIN_LIMITS, strict=False)
    ]
    parts = cu.BIN_LANES[-1] // cu.WARP
    return max(*own, -(-longest_row // cu.BIN_LANES[-1])) + parts // cu.WARP + 2 * 5


class CudaSweeps(OnDevice, op.SweepOperations):
    contribution_dtype = np.uint16

    def __init__(self, launch: Launcher, pages: cu.PageShape | None) -> None:
        super().__init__(launch)
        self._pages = pages

    def most_fused(self, graph: GraphView) -> int:
        return MOST_FUSED if graph.edges + 2 * graph.vertices <= _FUSED_EDGES else 1

    def sum_depth(self, longest_row: int) -> int:
        return _sum_depth(longest_row)

    @runs
    def _compute_contributions(self, do: op.ComputeContributions) -> None:
        blocks = grid_blocks(do.graph.vertices)
        self._launch.run("sweep", "compute_contributions", blocks, do)

    @runs
    def _compute_residual(self, do: op.ComputeResidual) -> op.ResidualSums:
        sums = self._launch.over_rows("sweep", "compute_residual", do)
        residual_l1, residual_sum, *_ = self._device.to_host(sums).tolist()
        return op.ResidualSums(residual_l1, residual_sum)

    @runs
    def _quantize_contributions(self, do: op.QuantizeContributions) -> op.SweepResult:
        sums = self._launch.over_vertices("sweep", "quantize_contributions", do)
        return op.SweepResult(*self._device.to_host(sums).tolist())

    @runs
    def _sum_in_degrees(self, do: op.SumInDegrees) -> Array:
        return self._launch.over_vertices("sweep", "sum_in_degrees", do)

    @runs
    def _start_from_in_degrees(self, do: op.StartFromInDegrees) -> op.SweepResult:
        sums = self._launch.over_vertices("sweep", "start_from_in_degrees", do)
        return op.SweepResult(*self._device.to_host(sums).tolist())

    @runs
    def _sweep(self, do: op.Sweep) -> op.SweepResult:
        if do.kept != 0.0:
            raise NotImplementedError("sweeps have no momentum")
        deflated = str(do.deflation is not None).lower()
        kernels = f"sweep<{deflated}>", f"finish_sweep<{deflated}>"
        vector = _deflation(do.deflation)
        sums = over_in_lists(self._launch, self._pages, "sweep", kernels, do, **vector)
        return op.SweepResult(*self._device.to_host(sums).tolist())

    @runs
    def _orthomin_products(self, do: op.OrthominProducts) -> Array:
        kernels, keeps = ("orthomin_image", "finish_image"), do.floor == 0.0
        given = (self._launch, self._pages, "sweep", kernels, do)
        return over_in_lists(*given, keeps_weights=keeps)

    @runs
    def _orthomin_update(self, do: op.OrthominUpdate) -> tuple[op.OrthominStep, op.SweepResult]:
        sums = self._launch.over_vertices("sweep", "orthomin_step", do)
        # the host waits once for both
        both = self._device.to_host(self._xp.concatenate([do.products, sums]))
        products_here, sums_here = both.reshape(2, cu.SWEEP_SUMS).tolist()
        step = op.OrthominStep.of(products_here, do.has_previous)
        return step, op.SweepResult(*sums_here)

    @runs
    def _fused_sweeps(self, do: op.FusedSweeps) -> list[tuple[op.SweepResult, float]]:
        results = self._fused("fused_sweeps", do, other_contributions=do.new_contributions)
        return [(op.SweepResult(*row[: cu.SWEEP_SUMS]), row[cu.SWEEP_SUMS]) for row in results]

    @runs
    def _fused_orthomin(
        self, do: op.FusedOrthomin
    ) -> list[tuple[op.OrthominStep, op.SweepResult, float]]:
        results = self._fused("fused_orthomin", do, keeps_weights=do.floor == 0.0)
        return [
            (
                op.OrthominStep.of(row[cu.SWEEP_SUMS + 1 :], do.has_previous or place > 0),
                op.SweepResult(*row[: cu.SWEEP_SUMS]),
                row[cu.SWEEP_SUMS],
            )
            for place, row in enumerate(results)
        ]

    def _fused(
        self, kernel: str, do: op.FusedSweeps | op.FusedOrthomin, **own: Any
    ) -> list[list[float]]:
        """Runs a kernel of fused.cu; returns what each sweep wrote."""
        graph, run = do.graph, do.run
        blocks, (rows, plan) = self._launch.row_arguments(graph.incoming, do.rows)
        most = self._device.multiprocessors * cu.FUSED_BLOCKS[graph.weighted]
        blocks = min(blocks, most)
        bounds = run.bounds[: -op.GAIN_SWEEPS - 1 : -1]
        described = (
            *(run.residual_l1, run.residual_sum, run.mass),
            *(run.next_residual_sum, run.image_sum, run.free_mass),
            *(run.residual_goal, run.step_goal, run.least_gain),
            *(*bounds, *[0.0] * (op.GAIN_SWEEPS - len(bounds))),
            *(len(run.bounds), run.least_bounds, run.most),
        )
        results = self._xp.zeros(run.most * cu.FUSED_SUMS + 1)  # all of it is read
        sums = self._xp.empty((2, blocks, cu.SWEEP_SUMS))
        own |= {"rows": rows, "plan": plan, "run": described, "partial_sums": sums}
        self._launch.run("fused", kernel, blocks, do, results=results, **own)
        written = self._device.to_host(results)
        sweeps = written[:-1].reshape(run.most, cu.FUSED_SUMS)
        found: list[list[float]] = sweeps[: int(written[-1])].tolist()
        return found

    @runs
    def _subtract_at(self, do: op.SubtractAt) -> None:
        count = len(do.places)
        blocks = grid_blocks(count)
        self._launch.run("sweep", "subtract_at", blocks, do, weighted=False, count=count)


def _deflation(deflation: op.DeflationVector | None) -> dict[str, Any]:
    """What kernels take of a vector."""
    return dict(zip(("z", "z_residual", "z_rhs_scale"), deflation or NO_DEFLATION, strict=True))


# ---- several personalized vectors at once on ``cuda`` ----

_LONG_GROUPS = sum(lanes > cu.WARP for lanes in cu.BIN_LANES)
"""Groups of rows that several warps sum, the first ones; the rows of the next group have a warp
each, and those of the others half a warp.
"""

_LONG_BIN = len(cu.BIN_LANES) - _LONG_GROUPS
"""The first degree bin of such rows."""

_SHORT_ROWS_PER_WARP = cu.WARP
"""Rows that a warp of `sweep_many_short` prepares at a time."""

_WAVES = 4
"""Blocks of a launch, at most, in units of those that are resident at once."""


class CudaMultivector(OnDevice, op.MultivectorOperations):
    """See MultivectorOperations. Matrices have COLUMNS columns."""

    contribution_dtype = np.uint16
    min_columns = 4

    def column_count(self, wanted: int) -> int:  # noqa: ARG002
        return cu.COLUMNS

    @runs
    def _sweep_many(self, do: op.SweepMany) -> NDArray[np.float64]:
        launch, graph, rows = self._launch, do.graph, do.rows
        deflated = str(do.deflation is not None).lower()
        own = _deflation(do.deflation) | {"coefficients": None}
        if do.deflation is not None:
            padded = np.pad(do.coefficients, (0, cu.COLUMNS - len(do.coefficients)))
            own["coefficients"] = launch.device.to_device(padded)
        long_rows = int(rows.groups[_LONG_GROUPS])
        ends, partials = self._sum_long_rows(graph, rows, long_rows, do.contributions)
        own |= {"long_rows": long_rows, "ends": ends, "partials": partials}
        # the longest rows come first: see BIN_LIMITS
        warp_rows, half_warp_rows = int(rows.groups[_LONG_GROUPS + 1]), int(rows.groups[-2])
        short = f"sweep_many_short<false, {deflated}>", f"sweep_many_short<true, {deflated}>"
        launches = (
            (f"sweep_many<{deflated}>", 0, warp_rows, cu.ROWS_PER_WARP),
            (short[0], warp_rows, half_warp_rows, _SHORT_ROWS_PER_WARP),
            (short[1], half_warp_rows, rows.count, _SHORT_ROWS_PER_WARP),
        )
        blocks = [
            self._blocks(-(-(last - first) // each)) if first < last else 0
            for _, first, last, each in launches
        ]
        sums = launch.xp.empty((sum(blocks), cu.COLUMN_SUMS, cu.COLUMNS))
        begin = 0
        for count, (kernel, first, last, _) in zip(blocks, launches, strict=True):
            if count:
                own |= {"from": first, "to": last, "partial_sums": sums[begin:]}
                launch.run("multivector", kernel, count, do, **own)
                begin += count
        return launch.device.to_host(sums.sum(axis=0))

    def _sum_long_rows(
        self, graph: GraphView, rows: Rows, long_rows: int, contributions: Array
    ) -> tuple[Array, Array]:
        """Chunks of the first `long_rows` rows, int64[long_rows], ending with each row; and the sum
        over each chunk, float64[chunks, COLUMNS].
        """
        launch, xp = self._launch, self._xp
        if long_rows == 0:
            return xp.empty(0, np.int64), xp.empty((1, cu.COLUMNS))
        lengths = graph.incoming.row_lengths[rows.order[:long_rows]]
        ends = xp.cumsum((lengths + (cu.ROW_CHUNK - 1)) // cu.ROW_CHUNK, dtype=np.int64)
        # an upper bound: waiting for their number would leave the device idle
        chunks = graph.edges // cu.ROW_CHUNK + long_rows
        partials = xp.empty((chunks, cu.COLUMNS))
        launch(
            "multivector",
            "gather_chunks",
            self._blocks(chunks),
            rows.order,
            ends,
            long_rows,
            graph.incoming,
            contributions,
            partials,
            weighted=graph.weighted,
        )
        return ends, partials

    def _blocks(self, warps: int) -> int:
        return self._launch.resident_blocks(warps * cu.WARP, _WAVES)

    def column_depth(self, graph: GraphView) -> int:
        longest = graph.longest_row
        half_warp, warp = (cu.OVERFLOW_FACTOR * cu.BIN_LIMITS[_LONG_BIN - back] for back in (2, 1))
        most_blocks = self._blocks(graph.vertices)
        # half a warp adds up a short row; each half of a warp adds every second edge of another
        # row, or of a chunk; rows may have outgrown their bins
        in_row = max(
            min(longest, half_warp),
            min(longest, warp) // 2 + 1,
            cu.ROW_CHUNK // 2 + longest // cu.ROW_CHUNK + 2,
        )
        rows_per_pass = _SHORT_ROWS_PER_WARP * most_blocks * (cu.BLOCK // cu.WARP)
        in_warp = _SHORT_ROWS_PER_WARP * (1 + graph.vertices // rows_per_pass)
        return in_row + in_warp + 3 * most_blocks + cu.BLOCK // cu.WARP

    @runs
    def _add_compensated(self, do: op.AddCompensated) -> None:
        count = len(do.places)
        blocks, size = self._launch.resident_blocks(count), count
        arrays = (do.places, do.amounts, size, do.carry, do.remainder)
        self._launch("multivector", "add_compensated", blocks, *arrays)
