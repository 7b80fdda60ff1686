"""The memory of a solve is part of what is checked before a batch."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.strategies import TABLE, forms_of
from tests.gpu.doubles import looked_after


@pytest.mark.parametrize("by_states", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_solve_by_any_strategy_takes_no_more_than_was_checked(
    strategy: str, weighted: bool, by_states: bool, backend: Backend
) -> None:
    if not by_states and backend.costs.sparse_part == 0:
        pytest.skip("it keeps no lists")
    # states of all vertices, or lists of any length
    costs = replace(backend.costs, sparse_part=0 if by_states else 1)
    backend, device = looked_after(replace(backend, costs=costs))
    generator = np.random.default_rng(4)
    vertices = 5000
    options = Options(weighted=weighted, frontier_tolerance=1e-9)
    for form in forms_of(TABLE[strategy], options):
        engine = Engine(options, backend)
        sources, targets = generator.integers(0, vertices, (2, 20_000))
        engine.apply(EdgeBatch(sources, targets, vertices=vertices))
        held = sum(engine.memory().values())
        engine.check_memory(2, vertices)
        needed = device.required
        iterate = engine.internals.iterate
        needed_by_solve = iterate.bytes_needed(vertices)
        ranks = iterate.nbytes
        engine.apply(EdgeBatch.of(insert=[(0, 1)], delete=[(1, 2)]))
        engine.update(strategy, form)
        assert sum(engine.memory().values()) - held <= needed
        # what there is now is no longer needed
        assert 0 < iterate.nbytes - ranks <= needed_by_solve - iterate.bytes_needed(vertices)
