"""The push kernels of the ``cpu`` backend: the two ways to spread, and how a push ends."""

from __future__ import annotations

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options, generate
from liverank_gpu.native import kernels
from liverank_gpu.operations.csr import Csr
from tests.gpu.backends.pushes import FIRST, LAST, LEAF, pushed, solved


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize("longest", [40, 800], ids=["in order", "in buckets"])
@pytest.mark.parametrize("weighted", [False, True])
def test_additions_are_those_of_one_after_the_other(
    weighted: bool, longest: int, threads: int
) -> None:
    generator = np.random.default_rng(1)
    vertices, count = 1000, 700
    lengths = generator.integers(0, longest, vertices).astype(np.int32)
    starts = np.concatenate([[0], np.cumsum(lengths)[:-1]]).astype(np.int64)
    column_indices = generator.integers(0, vertices, int(lengths.sum())).astype(np.int32)
    weights = generator.uniform(0.5, 2.0, len(column_indices)).astype(np.float32)
    outgoing = Csr(starts, lengths, column_indices, weights if weighted else None)
    sources = generator.permutation(vertices)[:count].astype(np.int32)
    contributions = generator.normal(size=count)
    slots = np.concatenate([np.arange(starts[u], starts[u] + lengths[u]) for u in sources])
    assert (len(slots) >= 1 << 17) == (longest == 800)
    amounts = np.repeat(contributions, lengths[sources])
    amounts = amounts * weights[slots] if weighted else amounts
    before = np.linspace(-1.0, 1.0, vertices)
    expected = before.copy()
    np.add.at(expected, column_indices[slots], amounts)

    r, marks, candidates = before.copy(), np.zeros(vertices, np.int32), np.zeros(vertices, np.int32)
    nothing = np.empty(0, np.int32), np.empty(0)
    kernels.set_threads(threads)
    try:
        lists = (r, marks, candidates, 0, 2.0)
        changed = kernels.scatter(sources, contributions, *nothing, outgoing, lists)
    finally:
        kernels.set_threads(0)
    assert np.array_equal(r, expected)
    listed, *sums, additions = changed
    assert additions == len(slots)
    # an entry is listed when it has passed the floor, and stays so if it falls below again
    assert set(np.flatnonzero(np.abs(r) > 2.0)) <= set(candidates[:listed].tolist())
    assert 0 < listed < vertices
    assert np.array_equal(np.flatnonzero(marks), np.sort(candidates[:listed]))
    # what was there before stays
    grown = [np.abs(r).sum() - np.abs(before).sum(), amounts.sum(), 0.0, np.abs(amounts).sum()]
    assert np.allclose(sums[:4], grown, rtol=1e-9, atol=1e-7)


def test_what_is_above_a_threshold_is_listed_in_order() -> None:
    count = 10_000
    r, lengths = np.random.default_rng(2).random(count), np.arange(count, dtype=np.int32) % 7
    queue, expected = np.empty(count, np.int32), np.flatnonzero(r > 0.5)
    listed, edges = kernels.detect(r, 0.5, lengths, queue)
    assert np.array_equal(queue[:listed], expected)
    assert edges == lengths[expected].sum()


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
