"""Dense sweeps on ``cuda``, of one vector and of several."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.kernels.loader import (
    BIN_LANES,
    BIN_LIMITS,
    BLOCK,
    COLUMN_SUMS,
    COLUMNS,
    FUSED_BLOCKS,
    FUSED_SUMS,
    OVERFLOW_FACTOR,
    ROW_CHUNK,
    ROWS_PER_WARP,
    SWEEP_SUMS,
    WARP,
    PageShape,
)
from liverank_gpu.backends.cuda.launcher import Launcher, OnDevice, grid_blocks
from liverank_gpu.backends.cuda.pages import over_in_lists
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.sweeps import (
    GAIN_SWEEPS,
    AddCompensated,
    ComputeContributions,
    ComputeResidual,
    DeflationVector,
    FusedOrthomin,
    FusedRun,
    FusedSweeps,
    MultivectorOperations,
    OrthominProducts,
    OrthominStep,
    OrthominUpdate,
    QuantizeContributions,
    ResidualSums,
    StartFromInDegrees,
    SubtractAt,
    SumInDegrees,
    Sweep,
    SweepMany,
    SweepOperations,
    SweepResult,
)

# ---- dense sweeps over the transpose on ``cuda`` ----

NO_DEFLATION = DeflationVector(None, None, 0.0)
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
        -(-min(longest_row, OVERFLOW_FACTOR * limit) // lanes)
        for lanes, limit in zip(BIN_LANES, BIN_LIMITS, strict=False)
    ]
    parts = BIN_LANES[-1] // WARP
    return max(*own, -(-longest_row // BIN_LANES[-1])) + parts // WARP + 2 * 5


class CudaSweeps(OnDevice, SweepOperations):
    """See SweepOperations."""

    contribution_dtype = np.uint16

    def __init__(self, launch: Launcher, pages: PageShape | None) -> None:
        super().__init__(launch)
        self._pages = pages

    def most_fused(self, graph: GraphView) -> int:
        return MOST_FUSED if graph.edges + 2 * graph.vertices <= _FUSED_EDGES else 1

    def sum_depth(self, longest_row: int) -> int:
        return _sum_depth(longest_row)

    def _compute_contributions(self, do: ComputeContributions) -> None:
        graph = do.graph
        self._launch(
            "residual",
            "compute_contributions",
            grid_blocks(graph.vertices),
            graph.vertices,
            graph.degree,
            do.values,
            do.contributions,
            weighted=graph.weighted,
        )

    def _compute_residual(self, do: ComputeResidual) -> ResidualSums:
        graph = do.graph
        sums = self._launch.over_rows(
            "residual",
            "compute_residual",
            graph.incoming,
            do.rows,
            graph.loop,
            graph.degree,
            do.values,
            do.contributions,
            do.rhs_scale,
            do.damping,
            do.residual,
        )
        residual_l1, residual_sum, *_ = self._device.to_host(sums).tolist()
        return ResidualSums(residual_l1, residual_sum)

    def _quantize_contributions(self, do: QuantizeContributions) -> SweepResult:
        sums = self._over_vertices(
            "sweep",
            "quantize_contributions",
            do.graph,
            do.damping,
            do.shift,
            do.values,
            do.residual,
            do.contributions,
        )
        return SweepResult(*self._device.to_host(sums).tolist())

    def _sum_in_degrees(self, do: SumInDegrees) -> Array:
        return self._over_vertices("sweep", "sum_in_degrees", do.graph, do.damping)

    def _start_from_in_degrees(self, do: StartFromInDegrees) -> SweepResult:
        sums = self._over_vertices(
            "sweep",
            "start_from_in_degrees",
            do.graph,
            do.damping,
            do.rhs_scale,
            do.in_degrees,
            do.values,
            do.residual,
            do.contributions,
        )
        return SweepResult(*self._device.to_host(sums).tolist())

    def _sweep(self, do: Sweep) -> SweepResult:
        if do.kept != 0.0:
            raise NotImplementedError("sweeps have no momentum")
        deflated = str(do.deflation is not None).lower()
        z, z_residual, z_rhs_scale = do.deflation or NO_DEFLATION
        sums = over_in_lists(
            self._launch,
            self._pages,
            "sweep",
            (f"sweep<{deflated}>", f"finish_sweep<{deflated}>"),
            do.graph,
            do.rows,
            do.contributions,
            do.damping,
            do.shift,
            z,
            z_residual,
            z_rhs_scale,
            do.coefficient,
            do.values,
            do.residual,
            do.new_contributions,
        )
        return SweepResult(*self._device.to_host(sums).tolist())

    def _orthomin_products(self, do: OrthominProducts) -> Array:
        return over_in_lists(
            self._launch,
            self._pages,
            "orthomin",
            ("orthomin_image", "finish_image"),
            do.graph,
            do.rows,
            do.contributions,
            do.damping,
            do.mean,
            do.values,
            do.residual,
            do.floor == 0.0,
            do.floor,
            do.state.weights,
            do.has_previous,
            do.state.last_image,
            do.state.image,
        )

    def _orthomin_update(self, do: OrthominUpdate) -> tuple[OrthominStep, SweepResult]:
        sums = self._over_vertices(
            "orthomin",
            "orthomin_step",
            do.graph,
            do.damping,
            do.mean,
            do.products,
            do.has_previous,
            do.state.image,
            do.state.direction,
            do.state.last_image,
            do.values,
            do.residual,
            do.contributions,
        )
        # the host waits once for both
        both = self._device.to_host(self._xp.concatenate([do.products, sums]))
        products_here, sums_here = both.reshape(2, SWEEP_SUMS).tolist()
        return OrthominStep.of(products_here, do.has_previous), SweepResult(*sums_here)

    def _fused_sweeps(self, do: FusedSweeps) -> list[tuple[SweepResult, float]]:
        results = self._fused(
            "fused_sweeps",
            do.graph,
            do.rows,
            do.run,
            do.graph.loop,
            do.graph.degree,
            do.contributions,
            do.new_contributions,
            do.damping,
            do.values,
            do.residual,
        )
        return [(SweepResult(*row[:SWEEP_SUMS]), row[SWEEP_SUMS]) for row in results]

    def _fused_orthomin(self, do: FusedOrthomin) -> list[tuple[OrthominStep, SweepResult, float]]:
        results = self._fused(
            "fused_orthomin",
            do.graph,
            do.rows,
            do.run,
            do.graph.vertices,
            do.graph.loop,
            do.graph.degree,
            do.contributions,
            do.damping,
            do.values,
            do.residual,
            do.floor == 0.0,
            do.floor,
            do.state.weights,
            do.has_previous,
            do.image_mean,
            do.state.last_image,
            do.state.image,
            do.state.direction,
        )
        return [
            (
                OrthominStep.of(row[SWEEP_SUMS + 1 :], do.has_previous or place > 0),
                SweepResult(*row[:SWEEP_SUMS]),
                row[SWEEP_SUMS],
            )
            for place, row in enumerate(results)
        ]

    def _fused(
        self, kernel: str, graph: GraphView, rows: Rows, run: FusedRun, *arguments: Any
    ) -> list[list[float]]:
        """Launches a kernel of fused.cu with its own arguments; returns what each sweep wrote."""
        blocks, common = self._launch.row_arguments(graph.incoming, rows)
        most = self._device.multiprocessors * FUSED_BLOCKS[graph.weighted]
        blocks = min(blocks, most)
        bounds = run.bounds[: -GAIN_SWEEPS - 1 : -1]
        described = (
            *(run.residual_l1, run.residual_sum, run.mass),
            *(run.next_residual_sum, run.image_sum, run.free_mass),
            *(run.residual_goal, run.step_goal, run.least_gain),
            *(*bounds, *[0.0] * (GAIN_SWEEPS - len(bounds))),
            *(len(run.bounds), run.least_bounds, run.most),
        )
        results = self._xp.zeros(run.most * FUSED_SUMS + 1)  # all of it is read
        self._launch(
            "fused",
            kernel,
            blocks,
            *common,
            *arguments,
            described,
            self._xp.empty((2, blocks, SWEEP_SUMS)),
            results,
            weighted=graph.weighted,
        )
        written = self._device.to_host(results)
        sweeps = written[:-1].reshape(run.most, FUSED_SUMS)
        found: list[list[float]] = sweeps[: int(written[-1])].tolist()
        return found

    def _subtract_at(self, do: SubtractAt) -> None:
        count = len(do.places)
        self._launch(
            "sweep",
            "subtract_at",
            grid_blocks(count),
            do.places,
            do.weights,
            count,
            do.amount,
            do.residual,
        )

    def _over_vertices(self, source: str, kernel: str, graph: GraphView, *arguments: Any) -> Array:
        lengths = graph.incoming.row_lengths
        return self._launch.over_vertices(source, kernel, graph, lengths, *arguments)


# ---- several personalized vectors at once on ``cuda`` ----

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


class CudaMultivector(OnDevice, MultivectorOperations):
    """See MultivectorOperations. Matrices have COLUMNS columns."""

    contribution_dtype = np.uint16
    min_columns = 4

    def column_count(self, wanted: int) -> int:  # noqa: ARG002
        return COLUMNS

    def _sweep_many(self, do: SweepMany) -> NDArray[np.float64]:
        launch, graph, rows = self._launch, do.graph, do.rows
        deflated = str(do.deflation is not None).lower()
        z, z_residual, z_rhs_scale = do.deflation or NO_DEFLATION
        device_coefficients: Array | None = None
        if do.deflation is not None:
            padded = np.pad(do.coefficients, (0, COLUMNS - len(do.coefficients)))
            device_coefficients = launch.device.to_device(padded)
        long_rows = int(rows.groups[_LONG_GROUPS])
        ends, partials = self._sum_long_rows(graph, rows, long_rows, do.contributions)
        # the longest rows come first: see BIN_LIMITS
        warp_rows, half_warp_rows = int(rows.groups[_LONG_GROUPS + 1]), int(rows.groups[-2])
        long = (long_rows, ends, partials)
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
                first,
                last,
                *graph.incoming,
                graph.outgoing.row_lengths,
                graph.loop,
                graph.degree,
                do.contributions,
                do.damping,
                do.values,
                do.remainder,
                do.new_contributions,
                sums[begin:],
                z,
                z_residual,
                z_rhs_scale,
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
        launch, xp = self._launch, self._xp
        if long_rows == 0:
            return xp.empty(0, np.int64), xp.empty((1, COLUMNS))
        lengths = graph.incoming.row_lengths[rows.order[:long_rows]]
        ends = xp.cumsum((lengths + (ROW_CHUNK - 1)) // ROW_CHUNK, dtype=np.int64)
        # an upper bound: waiting for their number would leave the device idle
        chunks = graph.edges // ROW_CHUNK + long_rows
        partials = xp.empty((chunks, COLUMNS))
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
        blocks, size = self._launch.resident_blocks(count), count
        arrays = (do.places, do.amounts, size, do.carry, do.remainder)
        self._launch("multivector", "add_compensated", blocks, *arrays)
