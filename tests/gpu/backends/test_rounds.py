"""The parts of a round of a push, against plain loops over vertices."""

from __future__ import annotations

from math import fsum
from typing import Any

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.residual import (
    LEVELS,
    LISTED,
    SOLVE_SHIFT,
    CountCandidates,
    PushVertices,
    Residual,
    SelectCandidates,
    TakeCandidates,
)

pytestmark = pytest.mark.reference

DAMPING, FLOOR, EDGE_WEIGHT = 0.75, 1e-3, 0.5
THRESHOLDS = (0.4, 0.05, 0.00625, FLOOR)
SOLVE = 7


def engine_with(backend: Backend, weighted: bool, policy: str) -> tuple[Engine, Residual]:
    """A graph with loops, vertices without edges and a hub, whose r is random: some of it is below
    FLOOR and still listed, and some vertices were pushed in this solve.
    """
    generator = np.random.default_rng(3)
    sources, targets = generator.integers(0, 700, (2, 3000))
    sources[:900] = 5
    targets[900:1000] = sources[900:1000]
    weights = generator.integers(1, 9, 3000).astype(np.float32) if weighted else None
    options: Any = {"weighted": weighted, "dangling": policy}
    engine = Engine(Options(**options), backend)
    engine.apply(EdgeBatch(sources, targets, vertices=900, weights=weights))
    engine.update()
    residual = engine.internals.iterate.workspace.residual
    r = 10.0 ** generator.uniform(-5, 1, 900) * generator.choice([-1, 1], 900)
    residual.values[:] = backend.device.to_device(r)
    residual.marks[:] = 0
    residual.marks[100:200] = SOLVE << SOLVE_SHIFT
    residual.solve = SOLVE
    residual.candidates = backend.device.allocate("candidates", 900, np.int32)
    backend.run(SelectCandidates(residual, FLOOR / 4))
    residual.floor = FLOOR
    return engine, residual


@pytest.mark.parametrize("weighted", [False, True])
def test_candidates_are_counted_and_taken(weighted: bool, backend: Backend) -> None:
    engine, residual = engine_with(backend, weighted, "uniform")
    to_host, graph = backend.device.to_host, engine.internals.graph.view
    lengths = to_host(graph.outgoing.row_lengths).astype(np.int64)
    sizes = np.abs(to_host(residual.values))
    reached = sizes / (1.0 + EDGE_WEIGHT * lengths)
    listed = np.flatnonzero(sizes > FLOOR / 4)
    assert residual.listed == len(listed)
    above = [listed[reached[listed] > threshold] for threshold in THRESHOLDS]
    large = np.flatnonzero(sizes > FLOOR)
    expected = [len(each) for each in above] + [int(lengths[each].sum()) for each in above]
    assert 0 < expected[0] < expected[LEVELS - 1] < len(large) < len(listed)
    numbers = backend.run(CountCandidates(graph, residual, THRESHOLDS, EDGE_WEIGHT))
    assert numbers == [*expected, len(large)]
    taken = backend.run(
        TakeCandidates(graph, residual, THRESHOLDS[1], EDGE_WEIGHT, numbers[1], numbers[-1])
    )
    assert np.array_equal(np.sort(to_host(taken)), above[1])
    assert residual.listed == len(large)
    assert np.array_equal(np.sort(to_host(residual.candidates[: residual.listed])), large)
    marks = to_host(residual.marks)
    assert np.array_equal(np.flatnonzero(marks & LISTED), large)
    assert np.array_equal(np.flatnonzero(marks >> SOLVE_SHIFT == SOLVE), np.arange(100, 200))
    # and there may be none
    numbers = backend.run(CountCandidates(graph, residual, (1e9,) * LEVELS, EDGE_WEIGHT))
    assert numbers == [0] * 2 * LEVELS + [len(large)]
    taken = backend.run(TakeCandidates(graph, residual, 1e9, EDGE_WEIGHT, 0, len(large)))
    assert len(taken) == 0


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("policy", ["uniform", "self-loop"])
def test_vertices_are_pushed_as_by_hand(weighted: bool, policy: str, backend: Backend) -> None:
    engine, residual = engine_with(backend, weighted, policy)
    to_host, graph = backend.device.to_host, engine.internals.graph.view
    values = engine.internals.iterate.values
    degree, loop = to_host(graph.degree), to_host(graph.loop)
    y, r, marks = (to_host(each) for each in (values, residual.values, residual.marks))
    pushed = np.random.default_rng(4).permutation(900)[:500].astype(np.int32)
    pushed[0] = 5
    pushed = np.unique(pushed)
    contributions, sums = backend.run(
        PushVertices(graph, values, DAMPING, residual, backend.device.to_device(pushed))
    )
    changes = []
    for place, u in enumerate(pushed.tolist()):
        d, before = float(degree[u]), float(r[u])
        diagonal = 1.0 - (DAMPING * float(loop[u]) / d if d else 0.0)
        new = float(y[u]) + before / diagonal
        step = new - float(y[u])
        rest = before - diagonal * step
        sent = DAMPING * step / d if d else 0.0
        assert float(contributions[place]) == pytest.approx(sent, rel=1e-6)
        changes.append((abs(rest) - abs(before), rest - before, step, abs(before)))
        y[u], r[u] = new, rest
    assert np.allclose(to_host(values), y, rtol=1e-12, atol=0.0)
    assert np.allclose(to_host(residual.values), r, rtol=1e-12, atol=1e-12)
    first = int((marks[pushed] >> SOLVE_SHIFT != SOLVE).sum())
    assert 0 < first < len(pushed)
    expected = [fsum(map(float, column)) for column in zip(*changes, strict=True)]
    assert np.allclose(to_host(sums), [*expected, first], rtol=1e-5, atol=1e-5)
    marks[pushed] = marks[pushed] & LISTED | SOLVE << SOLVE_SHIFT
    assert np.array_equal(to_host(residual.marks), marks)
