"""The memory of a solve is part of what is checked before a batch."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.global_iterate import SCRATCH_BYTES
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
    backend, device = looked_after(backend)
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
        with patch("liverank_gpu.pagerank.frontier._by_states", return_value=by_states):
            engine.apply(EdgeBatch.of(insert=[(0, 1)], delete=[(1, 2)]))
            engine.update(strategy, form)
        assert sum(engine.memory().values()) - held <= needed
        assert 0 < iterate.nbytes - ranks <= needed_by_solve
        assert iterate._scratch.keys() <= SCRATCH_BYTES.keys()
        for purpose, array in iterate._scratch.items():
            assert array.itemsize <= SCRATCH_BYTES[purpose]
