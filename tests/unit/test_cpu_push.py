"""The push kernels of the ``cpu`` backend: the two ways to spread, and how a push ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gpu import EdgeBatch, Engine, Options, generate
from gpu.backends import cpu_push
from gpu.threads import one_parallel_kernel


@pytest.mark.parametrize("storage", [np.float64, np.float32])
def test_all_cores_spread_as_one_core_does(storage: type[np.floating[Any]]) -> None:
    generator = np.random.default_rng(1)
    vertices, count = 1000, 700
    length = generator.integers(0, 400, vertices).astype(np.int32)
    start = np.concatenate([[0], np.cumsum(length)[:-1]]).astype(np.int64)
    pool = generator.integers(0, vertices, int(length.sum())).astype(np.int32)
    sources = generator.permutation(vertices)[:count].astype(np.int32)
    shares = generator.normal(size=count)
    edges = int(length[sources].sum())
    assert edges > 100_000

    def spread(kernel: Callable[..., Any]) -> tuple[NDArray[Any], ...]:
        r = np.linspace(-1.0, 1.0, vertices).astype(storage)
        marks = np.zeros(vertices, np.int32)
        candidates, queue = np.zeros(vertices, np.int32), np.zeros(vertices, np.int32)
        counts = np.zeros(cpu_push.COUNTS, np.int64)
        sums = np.zeros(cpu_push.SUMS)
        lists = (marks, 2.0, 8.0, 0.01, candidates, queue, counts, sums)
        with one_parallel_kernel:
            kernel(sources, shares, edges, start, length, pool, r, *lists)
        listed, queued = counts[cpu_push.N_LISTED], counts[cpu_push.N_QUEUED]
        return r, marks, np.sort(candidates[:listed]), np.sort(queue[:queued]), counts, sums

    alone, together = spread(cpu_push._spread_in_order), spread(cpu_push._spread_in_buckets)
    for one, other in zip(alone[:5], together[:5], strict=True):
        assert np.array_equal(one, other)
    assert np.allclose(alone[5], together[5], rtol=1e-12)
    r, _, candidates, queue, _, sums = alone
    assert set(np.flatnonzero(np.abs(r) > 2.0)) == set(candidates.tolist())
    above = np.abs(r) > 8.0 * (1.0 + 0.01 * length)
    assert set(np.flatnonzero(above)) == set(queue.tolist())
    assert 0 < len(queue) < len(candidates) < vertices
    grown = np.abs(r.astype(np.float64)).sum() - np.abs(np.linspace(-1, 1, vertices)).sum()
    assert abs(sums[cpu_push.L1] - grown) <= 1e-5 * abs(grown)


def test_a_push_is_not_kept_by_a_few_vertices() -> None:
    # at the end of a threshold mass goes to and fro between a few vertices of a grid: 500 rounds
    # for some of these batches, if each list is worked on until it is empty
    side = 1024
    sources, targets = generate.grid(side, side)
    order = np.lexsort((targets, sources))
    sources, targets = sources[order], targets[order]
    engine = Engine(Options(target_error=1e-6), "cpu")
    engine.apply(EdgeBatch(sources, targets))
    engine.update("auto")
    generator = np.random.default_rng(7)
    for _ in range(8):
        ends = generator.integers(0, side * side, (2, 8))
        gone = generator.integers(0, len(sources), 2)
        engine.apply(EdgeBatch(ends[0], ends[1], sources[gone], targets[gone]))
        result = engine.update("auto")
        assert result.converged
        assert result.iterations <= 100
