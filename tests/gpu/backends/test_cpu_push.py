"""The push kernels of the ``cpu`` backend: the two ways to spread, and how a push ends."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu import EdgeBatch, Engine, Options, generate
from gpu.backends.cpu import spread_kernels
from gpu.backends.cpu.spread_kernels import Tally, WorkLists
from gpu.jit.threads import one_parallel_kernel
from gpu.operations.csr import Csr
from tests.gpu.backends.pushes import FIRST, LAST, LEAF, pushed, solved


def test_all_cores_spread_as_one_core_does() -> None:
    generator = np.random.default_rng(1)
    vertices, count = 1000, 700
    lengths = generator.integers(0, 400, vertices).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    column_indices = generator.integers(0, vertices, int(lengths.sum())).astype(np.int32)
    outgoing = Csr(starts, lengths, column_indices)
    sources = generator.permutation(vertices)[:count].astype(np.int32)
    contributions = generator.normal(size=count)
    edges = int(lengths[sources].sum())
    assert edges > 100_000

    def spread(kernel: Callable[..., Any]) -> tuple[NDArray[Any], ...]:
        r = np.linspace(-1.0, 1.0, vertices)
        marks = np.zeros(vertices, np.int32)
        candidates, queue = np.zeros(vertices, np.int32), np.zeros(vertices, np.int32)
        lists = WorkLists(r, marks, candidates, queue, lengths, 2.0, 8.0, 0.01)
        counts, sums = np.zeros(spread_kernels.COUNTS, np.int64), np.full(spread_kernels.SUMS, 7.0)
        with one_parallel_kernel:
            kernel(sources, contributions, edges, outgoing, lists, Tally(counts, sums))
        listed = counts[spread_kernels.LISTED_COUNT]
        queued = counts[spread_kernels.QUEUED_COUNT]
        return r, marks, np.sort(candidates[:listed]), np.sort(queue[:queued]), counts, sums

    in_order = spread(spread_kernels.spread_in_order)
    in_buckets = spread(spread_kernels.spread_in_buckets)
    for one, other in zip(in_order[:5], in_buckets[:5], strict=True):
        assert np.array_equal(one, other)
    assert np.allclose(in_order[5], in_buckets[5], rtol=1e-12)
    r, _, candidates, queue, _, sums = in_order
    assert set(np.flatnonzero(np.abs(r) > 2.0)) == set(candidates.tolist())
    above = np.abs(r) > 8.0 * (1.0 + 0.01 * lengths)
    assert set(np.flatnonzero(above)) == set(queue.tolist())
    assert 0 < len(queue) < len(candidates) < vertices
    grown = np.abs(r).sum() - np.abs(np.linspace(-1, 1, vertices)).sum()
    # what was there before stays
    assert abs(sums[spread_kernels.RESIDUAL_L1] - 7.0 - grown) <= 1e-5 * abs(grown)


def test_a_push_drops_candidates_that_are_not_above_the_floor() -> None:
    engine = solved()
    residual = engine.internals.iterate.workspace.residual
    result = pushed(engine, {LEAF: 0.5, FIRST: 1e-4, LAST: -2e-4}, floor=1e-4)
    assert (result.rounds, result.vertices) == (1, 1)
    assert residual.candidates[: residual.listed].tolist() == [LAST]


def test_the_threshold_falls_at_once_to_the_largest_residual() -> None:
    result = pushed(solved(), {LEAF: 0.1}, floor=1e-9, threshold=64.0)
    assert result.vertices == 1
    # to just below it, and once more by half when nothing is left
    assert 0.099 < 2.0 * result.threshold < 0.1


def test_a_residual_that_moves_a_rank_behind_its_loop_is_pushed() -> None:
    # at a vertex with a loop alone, y moves by r / 0.15: more than its last digit, which r is not
    engine = solved()
    value = float(engine.internals.iterate.values[0])
    step = float(np.spacing(value))
    result = pushed(engine, {0: 0.3 * step}, floor=1e-4 * step, threshold=1e-2 * step)
    assert (result.rounds, result.vertices) == (1, 1)
    assert float(engine.internals.iterate.values[0]) == value + 2.0 * step


def test_a_push_does_not_wait_for_a_few_vertices() -> None:
    # near the end of a threshold, mass moves to and fro between a few vertices of a grid: for 500
    # rounds in some of these batches, if every list is processed until it is empty
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
