"""Small batches from host arrays to published ranks, beside another commit, in turns.

    python -m benchmarks.small_batches --other ../other --other-commit NAME --backend cuda

R-MAT has the parameters of Graph500 and shuffled labels; the grid has edges both ways. A batch is
80 % edges between vertices drawn evenly and 20 % deletions of edges (one edge: deleted one time in
five). *Weighted* edges have weights between 0 and 1; those that *decay* come a thousandth of a
half-life after one another; *with a removal*, a batch also removes a vertex drawn evenly. Figures
are the least of the medians, of the means and of the largest times of that commit's processes, in
milliseconds. They end when `publish` returns, which need not wait for the copy that it starts;
between two batches an engine that can improves its ranks, which is not timed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.harness import figures_of, in_turns, parser, record

WORK = Path(__file__).with_name("small_batches_work.py")

GRAPHS = {
    "cuda": [
        ["rmat", "", 22, 1e-6, [[1, 200], [26, 60], [1_000, 40], [10_000, 20]]],
        ["rmat", "weighted", 22, 1e-6, [[1, 200], [26, 60], [1_000, 40]]],
        ["rmat", "decaying", 20, 1e-6, [[1, 200], [26, 60], [1_000, 40]]],
        ["rmat", "with a removal", 22, 1e-6, [[1, 200], [26, 60], [1_000, 40]]],
        ["rmat", "", 24, 1e-6, [[1, 200], [26, 60], [263, 40], [1_000, 40], [10_000, 20]]],
        ["grid", "", 4096, 1e-7, [[1, 100], [10, 60]]],
    ],
    "cpu": [
        ["rmat", "", 16, 1e-6, [[1, 60], [26, 30], [1_000, 20]]],
        ["rmat", "weighted", 16, 1e-6, [[1, 60], [26, 30], [1_000, 20]]],
    ],
}
"""Kind of each graph, what is special about it, its size and target error, and sizes and numbers of
batches.
"""


def main() -> None:
    options = parser(__doc__, backends=True)
    options.add_argument("--other", type=Path, required=True, help="checkout of the other commit")
    options.add_argument("--other-commit", required=True, help="its name, for the record")
    options.add_argument("--rounds", type=int, default=2, help="processes of each commit")
    given = options.parse_args()
    asked = json.dumps({"backend": given.backend, "graphs": GRAPHS[given.backend]})
    runs = in_turns(given.other, given.rounds, lambda tree: figures_of(tree, WORK, asked))
    rows = []
    for name in runs["this"][0]:
        row: dict[str, Any] = {"batches": name}
        for which in runs:
            for figure in ("apply, update, publish", "median, mean, largest"):
                of_runs = np.array([run[name][figure] for run in runs[which]])
                row[f"{which}: {figure}"] = of_runs.min(0).round(4).tolist()
        total = "median, mean, largest"
        row["ratio of medians"] = row[f"this: {total}"][0] / row[f"other: {total}"][0]
        rows.append(row)
        print(row, flush=True)
    figures = {"other commit": given.other_commit, "milliseconds": rows}
    record("small-batches", given.backend, figures, given.results)


if __name__ == "__main__":
    main()
