"""Dense sweeps over the transpose on ``cuda``."""

from __future__ import annotations

from typing import Any

import numpy as np

from liverank_gpu.backends.cuda.device import NULL
from liverank_gpu.backends.cuda.kernels.loader import (
    BIN_LANES,
    BIN_LIMITS,
    FUSED_BLOCKS,
    FUSED_SUMS,
    OVERFLOW_FACTOR,
    SWEEP_SUMS,
    WARP,
)
from liverank_gpu.backends.cuda.kernels.page_shape import PageShape
from liverank_gpu.backends.cuda.launcher import Launcher, grid_blocks
from liverank_gpu.backends.cuda.pages import over_in_lists
from liverank_gpu.operations.csr import GraphView, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.sweeps import (
    GAIN_SWEEPS,
    DeflationVector,
    FusedRun,
    OrthominState,
    OrthominStep,
    SweepOperations,
    SweepResult,
)

NO_DEFLATION = DeflationVector(NULL, NULL, 0.0)
"""For kernels that do not deflate."""

_FUSED_EDGES = 1 << 25
"""Edges, and two for each vertex, up to which sweeps are fused. On an H200 a solve took 0.40 to
0.65 of the time of single sweeps on grids and R-MAT graphs of up to 4M edges, 0.63 to 0.77 on those
of 16M, whose single sweeps take 0.23 to 0.35 ms.
"""

MOST_FUSED = 16
"""Sweeps of a launch: so long a launch never takes more than a few milliseconds."""

_RUN = np.dtype(
    [
        *((name, np.float64) for name in ("residual_l1", "residual_sum", "mass")),
        *((name, np.float64) for name in ("next_residual_sum", "image_sum", "free_mass")),
        *((name, np.float64) for name in ("residual_goal", "step_goal", "least_gain")),
        ("bounds", np.float64, GAIN_SWEEPS),
        *((name, np.int64) for name in ("known_bounds", "least_bounds", "most")),
    ]
)
"""FusedRun of fused.cu."""


class CudaSweeps(SweepOperations):
    """See SweepOperations."""

    contribution_dtype = np.uint16

    def __init__(self, launch: Launcher, pages: PageShape | None) -> None:
        self._launch, self._pages = launch, pages

    def compute_contributions(self, graph: GraphView, values: Array, contributions: Array) -> None:
        self._launch(
            "residual",
            "compute_contributions",
            grid_blocks(graph.vertices),
            np.int64(graph.vertices),
            graph.degree,
            values,
            contributions,
            weighted=graph.weighted,
        )

    def compute_residual(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        contributions: Array,
        rhs_scale: float,
        damping: float,
        residual: Array,
    ) -> tuple[float, float]:
        sums = self._launch.over_rows(
            "residual",
            "compute_residual",
            graph.incoming,
            rows,
            graph.loop,
            graph.degree,
            values,
            contributions,
            np.float64(rhs_scale),
            np.float64(damping),
            residual,
        )
        residual_l1, residual_sum, *_ = self._launch.device.to_host(sums).tolist()
        return residual_l1, residual_sum

    def quantize_contributions(
        self,
        graph: GraphView,
        values: Array,
        residual: Array,
        contributions: Array,
        damping: float,
        shift: float,
    ) -> SweepResult:
        sums = self._launch.over_vertices(
            "sweep",
            "quantize_contributions",
            graph,
            graph.incoming.row_lengths,
            np.float64(damping),
            np.float64(shift),
            values,
            residual,
            contributions,
        )
        return SweepResult(*self._launch.device.to_host(sums).tolist())

    def sum_in_degrees(self, graph: GraphView, damping: float) -> Array:
        lengths = graph.incoming.row_lengths
        return self._launch.over_vertices(
            "sweep", "sum_in_degrees", graph, lengths, np.float64(damping)
        )

    def start_from_in_degrees(
        self,
        graph: GraphView,
        in_degrees: Array,
        values: Array,
        residual: Array,
        contributions: Array,
        damping: float,
        rhs_scale: float,
    ) -> SweepResult:
        sums = self._launch.over_vertices(
            "sweep",
            "start_from_in_degrees",
            graph,
            graph.incoming.row_lengths,
            np.float64(damping),
            np.float64(rhs_scale),
            in_degrees,
            values,
            residual,
            contributions,
        )
        return SweepResult(*self._launch.device.to_host(sums).tolist())

    def sweep(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        residual: Array,
        contributions: Array,
        new_contributions: Array,
        damping: float,
        shift: float,
        deflation: DeflationVector | None = None,
        coefficient: float = 0.0,
    ) -> SweepResult:
        deflated = str(deflation is not None).lower()
        z, z_residual, z_rhs_scale = deflation or NO_DEFLATION
        sums = over_in_lists(
            self._launch,
            self._pages,
            "sweep",
            (f"sweep<{deflated}>", f"finish_sweep<{deflated}>"),
            graph,
            rows,
            contributions,
            np.float64(damping),
            np.float64(shift),
            z,
            z_residual,
            np.float64(z_rhs_scale),
            np.float64(coefficient),
            values,
            residual,
            new_contributions,
        )
        return SweepResult(*self._launch.device.to_host(sums).tolist())

    def orthomin_products(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        residual: Array,
        contributions: Array,
        state: OrthominState,
        damping: float,
        mean: float,
        floor: float,
        has_previous: bool,
    ) -> Array:
        return over_in_lists(
            self._launch,
            self._pages,
            "orthomin",
            ("orthomin_image", "finish_image"),
            graph,
            rows,
            contributions,
            np.float64(damping),
            np.float64(mean),
            values,
            residual,
            np.int32(floor == 0.0),
            np.float64(floor),
            state.weights,
            np.int32(has_previous),
            state.last_image,
            state.image,
        )

    def orthomin_update(
        self,
        graph: GraphView,
        values: Array,
        residual: Array,
        contributions: Array,
        state: OrthominState,
        damping: float,
        mean: float,
        products: Array,
        has_previous: bool,
    ) -> tuple[OrthominStep, SweepResult]:
        sums = self._launch.over_vertices(
            "orthomin",
            "orthomin_step",
            graph,
            graph.incoming.row_lengths,
            np.float64(damping),
            np.float64(mean),
            products,
            np.int32(has_previous),
            state.image,
            state.direction,
            state.last_image,
            values,
            residual,
            contributions,
        )
        # the host waits once for both
        both = self._launch.device.to_host(self._launch.xp.concatenate([products, sums]))
        products_here, sums_here = both.reshape(2, SWEEP_SUMS).tolist()
        return OrthominStep.of(products_here, has_previous), SweepResult(*sums_here)

    def most_fused(self, graph: GraphView) -> int:
        return MOST_FUSED if graph.edges + 2 * graph.vertices <= _FUSED_EDGES else 1

    def fused_sweeps(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        residual: Array,
        contributions: Array,
        new_contributions: Array,
        damping: float,
        run: FusedRun,
    ) -> list[tuple[SweepResult, float]]:
        results = self._fused(
            "fused_sweeps",
            graph,
            rows,
            run,
            graph.loop,
            graph.degree,
            contributions,
            new_contributions,
            np.float64(damping),
            values,
            residual,
        )
        return [(SweepResult(*row[:SWEEP_SUMS]), row[SWEEP_SUMS]) for row in results]

    def fused_orthomin(
        self,
        graph: GraphView,
        rows: Rows,
        values: Array,
        residual: Array,
        contributions: Array,
        state: OrthominState,
        damping: float,
        image_mean: float,
        floor: float,
        has_previous: bool,
        run: FusedRun,
    ) -> list[tuple[OrthominStep, SweepResult, float]]:
        results = self._fused(
            "fused_orthomin",
            graph,
            rows,
            run,
            np.int64(graph.vertices),
            graph.loop,
            graph.degree,
            contributions,
            np.float64(damping),
            values,
            residual,
            np.int32(floor == 0.0),
            np.float64(floor),
            state.weights,
            np.int32(has_previous),
            np.float64(image_mean),
            state.last_image,
            state.image,
            state.direction,
        )
        return [
            (
                OrthominStep.of(row[SWEEP_SUMS + 1 :], has_previous or place > 0),
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
        most = self._launch.device.multiprocessors * FUSED_BLOCKS[graph.weighted]
        blocks = min(blocks, most)
        bounds = run.bounds[: -GAIN_SWEEPS - 1 : -1]
        described = np.zeros((), _RUN)
        for name in _RUN.names or ():
            if name != "bounds":
                described[name] = len(run.bounds) if name == "known_bounds" else getattr(run, name)
        described["bounds"][: len(bounds)] = bounds
        results = self._launch.xp.zeros(run.most * FUSED_SUMS + 1)  # all of it is read
        self._launch(
            "fused",
            kernel,
            blocks,
            *common,
            *arguments,
            described.view(f"V{_RUN.itemsize}"),
            self._launch.xp.empty((2, blocks, SWEEP_SUMS)),
            results,
            weighted=graph.weighted,
        )
        written = self._launch.device.to_host(results)
        sweeps = written[:-1].reshape(run.most, FUSED_SUMS)
        found: list[list[float]] = sweeps[: int(written[-1])].tolist()
        return found

    def subtract_at(self, residual: Array, places: Array, weights: Array, amount: float) -> None:
        count = len(places)
        blocks, size = grid_blocks(count), np.int64(count)
        self._launch(
            "sweep", "subtract_at", blocks, places, weights, size, np.float64(amount), residual
        )

    def sum_depth(self, longest_row: int) -> int:
        # additions of one thread, in any bin that can have a row of this length; sums of the parts
        # of a row; shuffles
        own = [
            -(-min(longest_row, OVERFLOW_FACTOR * limit) // lanes)
            for lanes, limit in zip(BIN_LANES, BIN_LIMITS, strict=False)
        ]
        parts = BIN_LANES[-1] // WARP
        return max(*own, -(-longest_row // BIN_LANES[-1])) + parts // WARP + 2 * 5
