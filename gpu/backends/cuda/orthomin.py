"""The launches of a step of Orthomin(1) on ``cuda``: see SweepOperations.orthomin_step."""

from __future__ import annotations

import numpy as np

from gpu.backends.cuda.kernels.page_shape import PageShape
from gpu.backends.cuda.launcher import Launcher
from gpu.backends.cuda.pages import over_in_lists
from gpu.operations.csr import GraphView, Rows
from gpu.operations.device import Array
from gpu.operations.sweeps import OrthominState


def image(
    launch: Launcher,
    shape: PageShape | None,
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
    products: Array,
) -> None:
    """q̂ and the inner products, float64[SWEEP_SUMS] on the device."""
    over_in_lists(
        launch,
        shape,
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
        sums=products,
    )


def update(
    launch: Launcher,
    graph: GraphView,
    values: Array,
    residual: Array,
    contributions: Array,
    state: OrthominState,
    damping: float,
    mean: float,
    products: Array,
    has_previous: bool,
    sums: Array,
) -> None:
    """The step that follows from the products, and its sums, float64[SWEEP_SUMS]."""
    launch.over_vertices(
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
        sums=sums,
    )
