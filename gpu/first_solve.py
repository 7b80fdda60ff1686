"""Compiles what one solve of a new graph needs: for programs that rank once and end, where all that
`Engine.warm_up` compiles would take longer than their work.
"""

from __future__ import annotations

import numpy as np

from gpu.backends import backend_named
from gpu.engine import Engine
from gpu.graph.warm_up import SAMPLE_VERTICES, dated, sample_options, warm_up_pages
from gpu.pagerank.frontier import warm_up_lists
from gpu.pagerank.solver import warm_up_acceleration
from gpu.pagerank.strategies import Solve, strategy_named
from gpu.types import BackendName, EdgeBatch, Options


def warm_up_solve(
    options: Options, backend: BackendName = "auto", solve: Solve | None = None
) -> None:
    """Compiles what a batch to a new graph, one solve of it and the first places need.

    solve  None: Solve()

    Raises BackendUnavailable; InvalidValue for a solve that does not exist.
    """
    solve, options = (solve or Solve()).checked(options), sample_options(options)
    chosen = backend_named(backend)
    for vertices in SAMPLE_VERTICES:
        engine = Engine(options, chosen, "ignore")
        # v → 2v, v → 2v+1 and v → 1: ranks that differ
        targets = np.append(np.arange(2 * vertices) % vertices, np.full(vertices, 1))
        sources = np.append(np.repeat(np.arange(vertices), 2), np.arange(vertices))
        engine.apply(dated(options, EdgeBatch(sources, targets)))
        engine.update(*solve)
        engine.publish().top(1)
        if solve.form != "published":
            warm_up_acceleration(engine.internals.iterate)
    strategy = strategy_named(solve.strategy)
    if strategy.affected in ("reachable", "frontier"):
        warm_up_lists(engine.internals.iterate, strategy)
    warm_up_pages(chosen, options.dangling, options.weighted)
