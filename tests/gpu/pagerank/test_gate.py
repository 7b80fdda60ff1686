"""The gate before publication: what it lets pass, what it mends and what it replaces."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liverank_gpu import (
    EdgeBatch,
    Engine,
    InvalidValue,
    NotConverged,
    Options,
    PersonalizedQuery,
    ShardedEngine,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Operation
from liverank_gpu.operations.residual import ResidualDelta, SelectCandidates
from liverank_gpu.operations.sweeps import FusedSweeps, Sweep
from liverank_gpu.pagerank import gate
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.strategies import Solved
from tests.gpu.doubles import instead
from tests.gpu.graphs import assert_certified, exact_ranks

EDGES = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 0)]


def ranked(backend: Backend, strategy: str = "auto", **options: Any) -> Engine:
    engine = Engine(Options(**options), backend, "ignore")
    engine.apply(EdgeBatch.of(EDGES))
    engine.update(strategy)
    return engine


@pytest.mark.parametrize("loops", [2, 4, 5])
def test_a_first_solve_by_correction_of_loops_alone_keeps_their_ranks(
    backend: Backend, loops: int
) -> None:
    """Where loops times damping is 1 the correction of β took all of it: NaN, and converged."""
    engine = Engine(Options(damping=1.0 / loops), backend)
    engine.apply(EdgeBatch.of([(v, v) for v in range(loops)]))
    result = engine.update("naive-dynamic")
    assert (result.converged, result.fallback) == (True, None)
    assert result.error_bound < 1e-12
    assert engine.publish().to_numpy() == pytest.approx(np.full(loops, 1.0 / loops), abs=1e-15)


@pytest.mark.parametrize("target", ["settled-top-k", "settled-set"])
def test_places_can_be_asked_for_while_the_bound_is_above_2(backend: Backend, target: Any) -> None:
    """The next target was a part of the bound: "37.45 is not allowed; it must be … at most 2"."""
    options = Options(damping=1.0 - 1e-12, dangling="self-loop", weighted=True, max_iterations=100)
    engine = Engine(options, backend, "ignore")
    pairs = [(0, 1), (1, 0), (2, 3), (3, 2), (4, 5), (5, 4)]
    weights = [190.6, 9.311e25, 1.143e-10, 3.076e-15, 5.861e-15, 5810281.5]
    engine.apply(EdgeBatch.of([(*pair, w) for pair, w in zip(pairs, weights, strict=True)]))
    result = engine.update(settle=3, target=target)
    assert 0.0 < result.error_bound <= 2.0
    exact, uncertain = exact_ranks(engine)
    error = np.abs(engine.publish().to_numpy() - exact).sum()
    assert error <= result.error_bound + uncertain
    assert result.settled is not None


def _set(value: float, entries: slice = slice(None)) -> Callable[[GlobalIterate], None]:
    def change(iterate: GlobalIterate) -> None:
        iterate.values[entries] = value
        iterate.recompute_residual()

    return change


def _believed(iterate: GlobalIterate) -> None:
    """Negative ranks, with a certificate that says they are nearly exact."""
    iterate.values[:] = 0.25
    iterate.recompute_residual()
    iterate.values[0] = -0.5
    iterate.certificate.set_sums(0.03, 0.0)


SPOILED: dict[str, Callable[[GlobalIterate], None]] = {
    "NaN": _set(np.nan),
    "one NaN": _set(np.nan, slice(1, 2)),
    "infinite": _set(np.inf, slice(1, 2)),
    "zero": _set(0.0),
    "negative": _set(-1.0),
    "one negative": _set(-3.0, slice(1, 2)),
    "a bound that is false": _believed,
}


@pytest.mark.parametrize("left", SPOILED)
def test_ranks_that_are_no_distribution_are_replaced_by_a_static_solve(
    backend: Backend, left: str
) -> None:
    engine = ranked(backend)
    engine.apply(EdgeBatch.of([(3, 2), (1, 3)], delete=[(0, 1)]))
    iterate = engine.internals.iterate
    SPOILED[left](iterate)
    solved, bound = gate.passed(iterate, Solved(1, 4, True))
    assert (solved.fallback, solved.converged) == ("static", True)
    assert solved.refused
    result = engine.update()
    assert result.fallback is None
    assert result.error_bound <= 1e-6
    assert_certified(engine, result.error_bound)
    assert bound <= 1e-6


def test_an_update_tells_that_its_ranks_were_replaced(backend: Backend) -> None:
    engine = ranked(backend)
    engine.apply(EdgeBatch.of([(3, 2), (1, 3)], delete=[(0, 1)]))
    _set(np.nan, slice(1, 2))(engine.internals.iterate)
    result = engine.update("naive-dynamic")
    assert (result.fallback, result.converged) == ("static", True)
    assert result.refused
    assert result.error_bound <= 1e-6
    assert_certified(engine, result.error_bound)
    engine.apply(EdgeBatch.of([(0, 1)]))
    assert engine.update("naive-dynamic").fallback is None
    assert_certified(engine, 1e-6)


def test_negative_ranks_within_the_bound_become_zero(backend: Backend) -> None:
    engine = Engine(Options(damping=0.05), backend, "ignore")
    engine.apply(EdgeBatch.of([(0, 1)], vertices=20))
    engine.update()
    engine.apply(EdgeBatch.of([(2, 1)]))
    iterate = engine.internals.iterate
    _set(-0.1, slice(3, 4))(iterate)
    solved, bound = gate.passed(iterate, Solved(1, 20, True))
    assert solved.fallback is None
    ranks = backend.device.to_host(iterate.values) / float(iterate.certificate.mass)
    assert ranks.min() == 0.0
    assert ranks.sum() == pytest.approx(1.0, abs=1e-12)
    ids = backend.device.to_host(engine.internals.graph.permutation.positions_of(np.arange(20)))
    assert 0.01 < np.abs(ranks[ids] - exact_ranks(engine)[0]).sum() <= bound < 0.5


@pytest.mark.parametrize("form", ["accelerated", "published"])
def test_equal_ranks_are_what_is_left_if_nothing_else_is(form: Any, backend: Backend) -> None:
    works = True

    def run(operation: Operation[Any], /) -> Any:
        result = backend.run(operation)
        if not works and isinstance(operation, (Sweep, FusedSweeps)):
            operation.values[:] = np.nan
        return result

    engine = ranked(replace(backend, run=run))
    engine.apply(EdgeBatch.of([(3, 2), (1, 3), (0, 4)]))
    engine.internals.iterate.invalidate()  # so that it sweeps
    works = False
    if form == "published":
        _set(np.nan)(engine.internals.iterate)
        result = engine.update("naive-dynamic", form=form)
    else:
        result = engine.update(settle=2)
    assert (result.fallback, result.converged, result.error_bound) == ("equal", False, 2.0)
    assert engine.publish().base == pytest.approx(0.15 / 5)
    assert result.refused
    assert "of a static solve" in result.refused
    assert engine.publish().to_numpy().tolist() == [0.2] * 5
    works = True
    assert engine.update().fallback is None
    assert_certified(engine, 1e-6)


@pytest.mark.parametrize("kind", ["values", "total", "base", "error_bound"])
def test_a_snapshot_without_ranks_is_solved_anew(backend: Backend, kind: str) -> None:
    engine = ranked(backend)
    snapshot = engine.capture(engine.staging_buffer()).snapshot()
    assert snapshot.ranks_fault() is None
    if kind == "values":
        spoiled = replace(snapshot, arrays=snapshot.arrays | {kind: np.full(4, np.nan)})
    else:
        spoiled = replace(snapshot, numbers=snapshot.numbers | {"ranked_base": 0.5, kind: np.nan})
    assert spoiled.ranks_fault()
    restored = Engine(engine.options, backend)
    restored.restore(spoiled)
    assert restored.publish().error_bound == 2.0
    assert restored.publish().to_numpy().tolist() == [0.25] * 4
    assert restored.publish().base == pytest.approx(0.15 / 4)
    assert restored.update().converged
    assert_certified(restored, 1e-6)


def test_a_solve_that_has_not_converged_is_told() -> None:
    options = Options(damping=0.99, max_iterations=3)
    batch = EdgeBatch.of(EDGES)
    engine = Engine(options, "cpu")
    engine.apply(batch)
    with pytest.warns(NotConverged, match=r"not converged after 3 iterations: .* target_error is"):
        assert not engine.update().converged
    with pytest.warns(NotConverged, match="strategy 'static' has not met its stop rule"):
        engine.update("static")
    raising = Engine(options, "cpu", unconverged="raise")
    raising.apply(batch)
    with pytest.raises(NotConverged) as caught:
        raising.update()
    assert caught.value.iterations == 3
    # the ranks are there, within the bound
    assert caught.value.error_bound == raising.publish().error_bound
    assert_certified(raising, caught.value.error_bound)
    with pytest.raises(InvalidValue, match="unconverged: 'no' is not allowed"):
        Engine(options, "cpu", unconverged="no")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="unconverged"):
        ShardedEngine(options, unconverged="no")  # type: ignore[arg-type]


def test_personalized_queries_that_have_not_converged_are_told() -> None:
    method = "pull"
    options = Options(damping=0.99, max_iterations=3, target_error=1e-8)
    engine, batch = Engine(options, "cpu"), EdgeBatch.of([*EDGES, (0, 3), (3, 2), (1, 0)])
    engine.apply(batch)
    asked = [PersonalizedQuery(np.array([v]), method=method) for v in (0, 1)]
    easy = PersonalizedQuery(np.array([0]), method=method, target_error=2.0)
    with pytest.warns(NotConverged, match=r"after \d iterations: .* target_error is 1\.0e-08$"):
        assert not engine.personalized(np.array([0]), method=method).converged
    with pytest.warns(NotConverged, match=r"\(queries\[[02]\], the farthest off of 2\)") as told:
        answers = engine.personalized_many([asked[0], easy, asked[1]])
    assert len(told) == 1
    assert told[0].filename == __file__
    assert [answer.converged for answer in answers] == [False, True, False]
    raising = Engine(options, "cpu", unconverged="raise")
    raising.apply(batch)
    with pytest.raises(NotConverged):
        raising.personalized_many(asked)
    assert raising.personalized_many([easy])[0].converged
    # places that are proven are what was asked for
    proven = PersonalizedQuery(np.array([0]), k=1, method=method, target="settled-set")
    answer = Engine(options, "cpu", unconverged="ignore")
    answer.apply(batch)
    (first,) = answer.personalized_many([proven])
    assert first.converged == first.settled_set


def test_a_published_query_has_converged_where_it_ends_by_itself() -> None:
    for most, converged in ((500, True), (2, False)):
        engine = Engine(Options(max_iterations=most), "cpu", unconverged="ignore")
        engine.apply(EdgeBatch.of(EDGES))
        found = engine.personalized(np.array([0]), method="pull", form="published")
        assert found.converged is converged


def test_a_push_that_leaves_no_negative_entry_needs_no_pass_over_the_ranks(
    backend: Backend,
) -> None:
    if backend.name != "cuda":
        pytest.skip("its pushes do not say so")
    measured: list[int] = []

    def size(values: Any) -> float:
        measured.append(len(values))
        return backend.select.size(values)

    side, generator = 60, np.random.default_rng(1)
    ids = np.arange(side * side).reshape(side, side)
    ways = [np.roll(ids, step, axis).ravel() for step in (1, -1) for axis in (0, 1)]
    counting = replace(backend, select=instead(backend.select, size=size))
    engine = Engine(Options(target_error=1e-4), counting)
    engine.apply(EdgeBatch(np.tile(ids.ravel(), 4), np.concatenate(ways)))
    engine.update()
    measured.clear()
    for _ in range(4):
        engine.apply(EdgeBatch(*generator.integers(0, side * side, (2, 1))))
        result = engine.update()
        assert 0 < result.touched_vertices < engine.vertices
        exact, uncertain = exact_ranks(engine)
        ranks = engine.publish().to_numpy()
        assert ranks.min() >= 0.0
        assert float(np.abs(ranks - exact).sum()) <= result.error_bound + uncertain
    assert not measured
    # a residual that no batch leaves
    iterate = engine.internals.iterate
    residual, before = iterate.workspace.residual, float(iterate.values[7])
    residual.values[7] -= 2.0 * before
    iterate.add(ResidualDelta(2.0 * before, -2.0 * before))
    engine.apply(EdgeBatch.of([(7, 9)]))
    backend.run(SelectCandidates(residual, 0.1 * before))
    engine.update()
    assert iterate.below_zero
    assert measured
    assert engine.publish().to_numpy().min() >= 0.0
