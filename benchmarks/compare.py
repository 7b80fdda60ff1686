"""Two commits beside each other: the same work in alternating processes.

    python -m benchmarks.compare --other ../other --other-commit NAME --backend cpu

Each process imports the engine of one checkout and uses its public names alone, so that any two
commits with the same public interface can be compared. A figure is the least of the medians of
that commit's processes; the ratio is this commit's figure over the other's.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np

from benchmarks.harness import figures_of, in_turns, parser, record
from liverank_gpu.generate import rmat

WORK = Path(__file__).with_name("compare_work.py")


def main() -> None:
    options = parser(__doc__, backends=True)
    options.add_argument("--other", type=Path, required=True, help="checkout of the other commit")
    options.add_argument("--other-commit", required=True, help="its name, for the record")
    options.add_argument("--scale", type=int, default=18, help="log2 of the R-MAT vertices")
    options.add_argument("--rounds", type=int, default=2, help="processes of each commit")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        edges = Path(folder) / "edges.npy"
        np.save(edges, np.stack(rmat(given.scale, 16, seed=1)))
        asked = (str(edges), given.backend, str(given.scale))
        runs = in_turns(given.other, given.rounds, lambda tree: figures_of(tree, WORK, *asked))
    rows = {}
    for name in runs["this"][0]:
        other, this = (min(run[name] for run in runs[which]) for which in runs)
        rows[name] = {"other": other, "this": this, "ratio": this / other}
        print(f"{name:36} {other:10.3f} {this:10.3f} {this / other:7.3f}")
    figures = {"other commit": given.other_commit, "scale": given.scale, "milliseconds": rows}
    record("compare", given.backend, figures, given.results)


if __name__ == "__main__":
    main()
