"""Strengths of weighted graphs on ``cuda``, and scaling of rows."""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.cuda.kernels.loader import WARP
from liverank_gpu.backends.cuda.launcher import BALANCED_BLOCKS, Launcher, blocks_for, pointers
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array


def sum_weights(
    launch: Launcher, csr: Csr, vertices: Array | None, count: int, loop: Array, strength: Array
) -> None:
    """See RebuildOperations.sum_weights; of the first `count` vertices."""
    if count:
        launch(
            "weights",
            "sum_weights",
            blocks_for(count * WARP, most=BALANCED_BLOCKS),
            *pointers(vertices),
            np.int64(count),
            csr.row_starts,
            csr.row_lengths,
            csr.weights,
            loop,
            strength,
            weighted=True,
        )


def scale_rows(
    launch: Launcher, outgoing: Csr, incoming: Csr, factors: Array, loop: Array, strength: Array
) -> None:
    """See RebuildOperations.scale_rows."""
    launch(
        "weights",
        "scale_rows",
        blocks_for(len(loop) * WARP, most=BALANCED_BLOCKS),
        np.int64(len(loop)),
        outgoing.row_starts,
        outgoing.row_lengths,
        outgoing.weights,
        *incoming,
        factors,
        loop,
        strength,
        weighted=True,
    )
