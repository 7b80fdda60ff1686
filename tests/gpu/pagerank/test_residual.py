"""The residual and the certificate, kept true through streams of batches, on every backend."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, Options, verify
from liverank_gpu.generate import rmat
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.residual import ExpandBackward, ExpandForward, Perturb
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, SweepKind, sweep_to_target
from liverank_gpu.types import Dangling, TraceStep
from tests.gpu.graphs import (
    FAMILIES,
    assert_certified,
    batch_for,
    exact_ranks,
    is_emulated,
    model_of,
    random_graph,
    residual_error,
    some_weights,
)
from tests.gpu.observed import observed

POLICIES: tuple[Dangling, ...] = get_args(Dangling)
SMALL_FAMILIES = sorted(name for name, pairs in FAMILIES.items() if pairs()[0] <= 400)


def skewed(scale: int, degree: int = 1, seed: int = 2) -> NDArray[np.int64]:
    """int64[edges, 2]"""
    return np.stack(rmat(scale, degree, seed=seed, shuffle=False), axis=1)


def _batch(insert: NDArray[np.int64], delete: NDArray[np.int64]) -> EdgeBatch:
    return EdgeBatch(insert[:, 0], insert[:, 1], delete[:, 0], delete[:, 1])


@pytest.mark.any_thread_order
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("family", SMALL_FAMILIES)
def test_every_batch_is_certified_whatever_strategies_ran_before(
    family: str, dangling: Dangling, weighted: bool, backend: Backend, long: bool
) -> None:
    vertices, edges = FAMILIES[family]()
    generator = np.random.default_rng(SMALL_FAMILIES.index(family))
    options, off = Options(dangling=dangling, weighted=weighted), 1e-12 if weighted else 1e-13
    engine, model = Engine(options, backend), model_of(options)
    weights = some_weights(generator, len(edges)) if weighted else None
    batch = EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices, weights=weights)
    for step in range((100 if long else 25) if backend.name == "cpu" else 5):
        model.apply(batch)
        engine.apply(batch)
        if not engine.internals.iterate.stale:
            assert residual_error(engine) <= off, f"perturbed by batch {step}"
        strategy = STRATEGIES[int(generator.integers(len(STRATEGIES)))]
        result = engine.update(strategy)
        assert residual_error(engine) <= off, f"{strategy}, batch {step}"
        assert_certified(engine, result.error_bound)
        if strategy in ("auto", "residual"):
            assert result.converged
            assert result.error_bound <= 1e-6
        batch = batch_for(generator, model, int(generator.choice([1, 2, 8])))


@pytest.mark.parametrize("dangling", POLICIES)
def test_after_a_long_stream_the_bound_is_true_and_not_inflated(
    dangling: Dangling, backend: Backend, long: bool
) -> None:
    generator = np.random.default_rng(3)
    vertices = 300
    edges = generator.integers(0, vertices, (1500, 2))
    engine = Engine(Options(dangling=dangling), backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    count = (10_000 if long else 1_000) if backend.name == "cpu" else (100 if long else 30)
    for step in range(count):
        insert = generator.integers(0, vertices, (2, 2))
        if step % 100 == 0:
            insert[0, 1] = vertices
            vertices += 1
        place = generator.integers(0, len(edges), 2)
        engine.apply(_batch(insert, edges[place]))
        edges[place] = insert
        result = engine.update("auto")
        assert result.converged
    assert residual_error(engine) <= 1e-13
    error = assert_certified(engine, result.error_bound)
    assert result.error_bound <= 100 * error


def test_a_small_batch_touches_a_small_part_of_a_grid(backend: Backend) -> None:
    side, changed = (256, 3) if is_emulated(backend) else (512, 10)
    v = np.arange(side * side)
    right, down = v[v % side < side - 1], v[: -side or None]
    sources = np.concatenate([right, right + 1, down, down + side])
    targets = np.concatenate([right + 1, right, down + side, down])
    engine = Engine(Options(target_error=3e-5), backend)
    engine.apply(EdgeBatch(sources, targets))
    engine.update("auto")
    generator = np.random.default_rng(1)
    for _ in range(3):
        first = generator.integers(0, side * side - 2 * side, changed)
        engine.apply(EdgeBatch(first, first + 2 * side))
        result = engine.update("auto")
        assert result.converged
        assert result.touched_vertices <= 0.1 * engine.vertices
    assert residual_error(engine) <= 1e-13


def test_large_rounds_leave_the_residual_true(backend: Backend) -> None:
    scale = 14 if backend.name == "cpu" else 9
    generator = np.random.default_rng(2)
    edges = skewed(scale, 16)
    engine = Engine(Options(target_error=1e-3), backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=1 << scale))
    engine.update("auto")
    for step in range(8):
        delete = edges[generator.integers(0, len(edges), 10)]
        engine.apply(_batch(skewed(scale, seed=10 + step)[:40], delete))
        result = engine.update("auto")
        assert result.converged
        assert residual_error(engine) <= 1e-13


def test_too_many_candidates_are_swept(backend: Backend) -> None:
    edges = skewed(11, 8)
    # so dear that only candidates without room end a push before its goal
    costs = replace(backend.costs, sweep_overhead=1e7)
    engine = Engine(Options(target_error=1e-4), replace(backend, costs=costs))
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=1 << 11))
    engine.update("auto")
    ends = []
    for step in range(8):
        engine.apply(_batch(skewed(11, seed=10 + step)[:4], edges[:0]))
        result = engine.update("auto", trace=True)
        assert result.converged
        assert residual_error(engine) <= 1e-13
        assert result.trace is not None
        ends += [step.end for step in result.trace.steps]
    assert ends[ends.index("work") + 1] is None  # a sweep


def test_where_the_target_is_met_nothing_is_done(backend: Backend) -> None:
    vertices, edges = FAMILIES["grid"]()
    engine = Engine(Options(target_error=0.1), backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    engine.update("static")
    engine.apply(EdgeBatch.of(insert=[(0, 399)]))
    result = engine.update("auto")
    assert (result.iterations, result.touched_vertices, result.converged) == (0, 0, True)
    assert result.error_bound > 1e-5
    assert_certified(engine, result.error_bound)


def test_sweeps_are_as_few_as_the_better_way_needs(backend: Backend) -> None:
    # mass balance: 64 sweeps where there are closed classes, 9 on a skewed graph with vertices
    # without edges, 14 to 20 if they counted; without it: 60, and 66 or more
    def sweeps(edges: NDArray[np.int64]) -> int:
        engine = Engine(Options(target_error=1e-6), backend)
        engine.apply(EdgeBatch(edges[:, 0], edges[:, 1]))
        return engine.update("auto").iterations

    assert sweeps(FAMILIES["disconnected parts"]()[1]) <= 62
    assert sweeps(skewed(10, 16)) <= 11


@pytest.mark.parametrize("dangling", POLICIES)
def test_vertices_without_edges_follow_every_sweep(dangling: Dangling, backend: Backend) -> None:
    vertices, loops = 300, np.arange(60, 70)
    sources, targets = np.random.default_rng(5).integers(0, 60, (2, 200))
    for kind in SWEEP_KINDS:
        engine = Engine(Options(dangling=dangling), backend)
        engine.apply(
            EdgeBatch(
                np.concatenate([sources, loops]),
                np.concatenate([targets, loops]),
                vertices=vertices,
            )
        )
        iterate = engine.internals.iterate
        iterate.reset()
        swept = sweep_to_target(iterate, 200, (kind,))
        assert swept.converged, kind
        assert iterate.error_bound <= engine.options.target_error
        values = backend.device.to_host(iterate.values)
        ranks = values[
            backend.device.to_host(
                engine.internals.graph.permutation.positions_of(np.arange(vertices))
            )
        ]
        error = np.abs(ranks / ranks.sum() - exact_ranks(engine)[0]).sum()
        assert error <= iterate.error_bound + 1e-14, kind
        assert residual_error(engine) <= 1e-12, kind
        alone = ranks[70:]
        leaving = 1.0 - engine.options.damping if dangling == "self-loop" else 1.0
        # a plain way ends with a shift that they have not followed yet
        exactly = 2.0**-50 if kind.mean_corrected else 1e-6
        assert np.abs(alone * leaving / iterate.rhs_scale - 1.0).max() <= exactly, kind


@pytest.mark.parametrize("dangling", POLICIES)
def test_accelerated_sweeps_end_what_closed_classes_keep(
    backend: Backend, dangling: Dangling
) -> None:
    # all edges lead downwards, at last into pairs that no edge leaves
    generator, vertices, closed = np.random.default_rng(3), 900, 20
    sources = generator.integers(closed, vertices, 4 * vertices)
    targets = (sources * generator.random(len(sources)) ** 2).astype(np.int64)
    pairs = np.arange(closed)
    engine = Engine(Options(dangling=dangling, target_error=1e-6), backend)
    engine.apply(EdgeBatch(np.concatenate([sources, pairs]), np.concatenate([targets, pairs ^ 1])))
    iterate = engine.internals.iterate

    def sweeps(kinds: Sequence[SweepKind]) -> int:
        iterate.reset()
        swept = sweep_to_target(iterate, 200, kinds)
        assert swept.converged
        return swept.sweeps

    alone = min(sweeps((kind,)) for kind in SWEEP_KINDS if not kind.accelerated)
    assert sweeps(SWEEP_KINDS) < 0.75 * alone
    # they took turns, from the shares that the others had left
    assert residual_error(engine) <= 1e-12
    values = backend.device.to_host(iterate.values)
    ranks = values[
        backend.device.to_host(engine.internals.graph.permutation.positions_of(np.arange(vertices)))
    ]
    assert np.abs(ranks / ranks.sum() - exact_ranks(engine)[0]).sum() <= iterate.error_bound + 1e-12


def test_vertices_without_edges_do_not_slow_the_others(backend: Backend) -> None:
    edges = np.random.default_rng(8).integers(0, 500, (2, 4000))
    sweeps = []
    for vertices in (500, 5000):
        engine = Engine(Options(), backend)
        engine.apply(EdgeBatch(edges[0], edges[1], vertices=vertices))
        sweeps.append(engine.update("auto").iterations)
    assert sweeps[1] <= sweeps[0] + 1


def test_a_residual_that_was_off_comes_back(backend: Backend) -> None:
    vertices, edges = FAMILIES["grid"]()
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    engine.update("static")
    engine.internals.iterate.workspace.residual.values[::3] += 1e-9
    assert residual_error(engine) > 1e-10
    for _ in range(20):
        engine.apply(EdgeBatch())
        engine.update("auto")
    values = engine.internals.backend.device.to_host(engine.internals.iterate.values)
    true = verify.residual(*engine.edge_list(), values, engine.internals.iterate.rhs_scale)
    kept = engine.internals.backend.device.to_host(
        engine.internals.iterate.workspace.residual.values
    )
    assert np.abs(true - kept).sum() <= 1e-13 * values.sum()


def test_a_batch_stands_where_its_perturbation_runs_out_of_memory(backend: Backend) -> None:
    def no_memory(*_: object) -> None:
        raise MemoryError

    vertices, edges = FAMILIES["karate club"]()
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    engine.update("auto")
    with observed(Perturb, no_memory):
        assert engine.apply(EdgeBatch.of(insert=[(0, 33), (5, 40)])).new_vertices == 7
    for strategy in ("dynamic-frontier", "auto"):
        result = engine.update(strategy)
        assert residual_error(engine) <= 1e-13
        assert_certified(engine, result.error_bound)


@pytest.mark.parametrize("dangling", POLICIES)
def test_neighbours_are_the_same_from_either_end(dangling: Dangling, backend: Backend) -> None:
    xp, random = backend.xp, np.random.default_rng(4)
    for seed in range(20):
        vertices, edges = random_graph(seed)
        graph = DynamicGraph(backend, dangling)
        graph.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
        frontier = random.random(vertices) < 0.3
        known = (random.random(vertices) < 0.3).astype(np.int32)
        flags = [backend.device.to_device(known) for _ in range(2)]
        vertices = xp.flatnonzero(xp.asarray(frontier))
        forwards = backend.run(ExpandForward(graph.view, vertices, flags[0]))
        reached = (xp.asarray(frontier, np.uint8), flags[1])
        backwards = backend.run(ExpandBackward(graph.view, graph.in_rows(), *reached))
        assert sorted(backend.device.to_host(forwards)) == sorted(backend.device.to_host(backwards))
        assert (backend.device.to_host(flags[0]) == backend.device.to_host(flags[1])).all()


def _torus(backend: Backend, side: int, target_error: float) -> Engine:
    ids = np.arange(side * side).reshape(side, side)
    ways = [np.roll(ids, step, axis).ravel() for step in (1, -1) for axis in (0, 1)]
    engine = Engine(Options(target_error=target_error), backend)
    engine.apply(EdgeBatch(np.tile(ids.ravel(), 4), np.concatenate(ways)))
    engine.update()
    while engine.improve():
        pass
    return engine


def test_short_lists_at_the_floor_are_pushed_on_while_that_leads_to_the_goal(
    backend: Backend,
) -> None:
    if backend.name != "cuda":
        pytest.skip("only there a push ends before its list is empty")
    engine, generator = _torus(backend, 120, 1e-5), np.random.default_rng(1)
    steps: list[TraceStep] = []
    for _ in range(4):
        engine.apply(EdgeBatch(*generator.integers(0, 120 * 120, (2, 1))))
        result = engine.update(trace=True)
        assert result.trace is not None
        steps += result.trace.steps
        assert result.error_bound <= 1e-5
        while engine.improve():
            pass
    assert {step.kind for step in steps} == {"push"}
    assert len(steps) <= 5  # each began again from a lower floor when so many lists had been short


def test_what_comes_before_sweeps_is_done_while_a_push_runs_that_is_not_enough(
    backend: Backend,
) -> None:
    if backend.name != "cuda":
        pytest.skip("nothing runs beside a push")
    engine, generator, calls = _torus(backend, 60, 1e-4), np.random.default_rng(1), list[int]()
    iterate = engine.internals.iterate
    iterate.left_by_sweeps = 0.15
    iterate.before_sweeps = lambda: calls.append(1)
    engine.apply(EdgeBatch(*generator.integers(0, 3_600, (2, 1))))
    assert iterate.error_bound < 1e-4 / 0.15
    engine.update()
    assert not calls
    iterate.left_by_sweeps = 0.15
    engine.apply(EdgeBatch(*generator.integers(0, 3_600, (2, 300))))
    assert iterate.error_bound > 1e-4 / 0.15
    engine.update()
    assert calls
