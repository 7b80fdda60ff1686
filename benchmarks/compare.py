"""Two commits beside each other: the same work in alternating processes.

    python -m benchmarks.compare --other ../other --other-commit NAME --backend cpu

Each process imports the engine of one checkout and uses its public names alone, so that any two
commits with the same public interface can be compared. A figure is the least of the medians of
that commit's processes; the ratio is this commit's figure over the other's. The servers of two
commits: benchmarks.service.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import compared, figures_of, run
from liverank_gpu.generate import rmat

WORK = Path(__file__).with_name("compare_work.py")


def compare(
    backend: str, other: Path, other_commit: str, scale: int, rounds: int
) -> dict[str, Any]:
    """`scale` is log2 of the R-MAT vertices, `rounds` the processes of each commit."""
    with tempfile.TemporaryDirectory() as folder:
        edges = Path(folder) / "edges.npy"
        np.save(edges, np.stack(rmat(scale, 16, seed=1)))
        asked = (str(edges), backend, str(scale))
        rows = compared(other, rounds, lambda tree: figures_of(tree, WORK, *asked), min)
    return {"other commit": other_commit, "scale": scale, "milliseconds": rows}


if __name__ == "__main__":
    options = {"other": Path, "other_commit": str, "scale": 18, "rounds": 2}
    run(__doc__, {"compare": (compare, options)}, backends=True)
