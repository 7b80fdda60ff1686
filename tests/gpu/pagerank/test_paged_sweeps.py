"""Sweeps by pages: what they send is what they take, and errors are within their bounds."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, Options, PersonalizedQuery, verify
from liverank_gpu.backends.cuda import kernels_of
from liverank_gpu.backends.cuda.kernels.loader import unit
from liverank_gpu.graph.in_pages import SWEEPS_BY_ROWS
from liverank_gpu.operations.backend import Backend, PageRule
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.pagerank.sweeps import SWEEP_KINDS, sweep_to_target
from liverank_gpu.snapshot import Snapshot
from liverank_gpu.types import Dangling
from tests.cuda_emulator.emulated import emulated_backend
from tests.gpu.doubles import looked_after, sweeping_singly
from tests.gpu.graphs import assert_certified, exact_ranks

VERTICES = 300


@pytest.fixture
def paging() -> Backend:
    """Pages for small graphs too, whose sweeps are not fused."""
    emulated = sweeping_singly(emulated_backend())
    return replace(emulated, costs=replace(emulated.costs, pages=PageRule(1, 0.0, 0.0)))


class Paged:
    """Counts the sweeps by pages and by rows."""

    def __init__(self, backend: Backend) -> None:
        self.sums = self.rows = 0
        loaded = kernels_of(backend)
        for file in ("pages", "sweep"):
            for each in (unit(file, False), unit(file, True)):
                for name, kernel in loaded[each].items():
                    loaded[each][name] = self._counted(name, kernel)

    def _counted(self, name: str, kernel: Any) -> Any:
        def run(*arguments: Any, **shared: int) -> None:
            self.sums += name == "add_pages"
            self.rows += name.startswith("sweep<") or name == "orthomin_image"
            kernel(*arguments, **shared)

        return run


def skewed(random: np.random.Generator, count: int, weighted: bool = False) -> EdgeBatch:
    sources = random.integers(0, VERTICES, count)
    targets = (VERTICES * random.random(count) ** 3).astype(np.int64)
    targets[::20] = sources[::20]
    sources[sources % 17 == 3] = 5  # dangling vertices, and a vertex with long lists
    weights = (10.0 ** random.uniform(-2.0, 2.0, count)).astype(np.float32) if weighted else None
    return EdgeBatch(sources, targets, vertices=VERTICES + 10, weights=weights)


def loaded(backend: Backend, options: Options) -> Engine:
    engine = Engine(options, backend)
    engine.apply(skewed(np.random.default_rng(2), 3000, options.weighted))
    engine.apply(EdgeBatch.of(remove=[7, 40]))
    return engine


def coarsen(engine: Engine, coarse: float) -> list[float]:
    """Has sweeps by pages use units that are so much larger, which are returned."""
    graph, units = engine.internals.graph, list[float]()
    view = graph.sweep_view

    def coarser(largest_sum: float, of_query: bool = False) -> GraphView:
        found = view(coarse * largest_sum, of_query)
        units.extend([] if found.pages is None else [found.pages.unit])
        return found

    graph.sweep_view = coarser  # type: ignore[method-assign]
    return units


def residual(engine: Engine) -> Any:
    """β·1 + αP̄ᵀy - y, summed along the edges, by position."""
    graph, iterate = engine.internals.graph, engine.internals.iterate
    rows, neighbours, weights = graph.backend.rebuild.entries(graph.incoming.csr)
    loops = np.flatnonzero(graph.loop)
    columns = np.append(neighbours, loops), np.append(rows, loops)
    scale, damping = iterate.rhs_scale, engine.options.damping
    if weights is not None:
        weights = np.append(weights, graph.loop[loops]).astype(np.float64)
    return verify.residual(*columns, iterate.values, scale, damping, "uniform", weights)


@pytest.mark.parametrize("accelerated", [False, True])
@pytest.mark.parametrize("dangling", ["uniform", "self-loop"])
@pytest.mark.parametrize("coarse", [1.0, 2.0**48])
def test_what_is_sent_is_what_is_taken(
    paging: Backend, dangling: Dangling, coarse: float, accelerated: bool
) -> None:
    """r is the residual of y after sweeps, to the rounding of float64, also if units are so large
    that most contributions are rounded.
    """
    engine = loaded(paging, Options(dangling=dangling, target_error=1e-13, max_iterations=12))
    iterate, seen = engine.internals.iterate, Paged(paging)
    coarsen(engine, coarse)
    iterate.reset()
    kinds = [kind for kind in SWEEP_KINDS if kind.accelerated == accelerated]
    before = iterate.certificate.residual_l1
    sweep_to_target(iterate, 12, kinds)
    assert seen.sums >= 12
    assert seen.rows == 0
    residuals = iterate.workspace.residual.values
    error = np.abs(residuals - residual(engine)).sum()
    assert error <= 1e-14 * before
    if coarse == 1.0:
        assert iterate.certificate.residual_l1 <= 0.01 * before


@pytest.mark.parametrize("dangling", ["uniform", "self-loop"])
@pytest.mark.parametrize("coarse", [1.0, 2.0**34])
def test_what_is_rounded_at_weighted_edges_is_accounted_for(
    paging: Backend, dangling: Dangling, coarse: float
) -> None:
    """r is the residual of y to half a unit for each edge of each sweep, and the bound has it."""
    # a target for which coarse units are fine
    engine = loaded(paging, Options(dangling=dangling, weighted=True, target_error=0.5))
    graph, iterate = engine.internals.graph, engine.internals.iterate
    seen, units = Paged(paging), coarsen(engine, coarse)
    iterate.reset()
    exact = iterate.certificate.uncertainty
    kinds = [kind for kind in SWEEP_KINDS if not kind.accelerated]
    sweep_to_target(iterate, 8, kinds, target=1e-13)
    assert seen.sums == len(units) >= 8 > seen.rows == 0
    error = np.abs(iterate.workspace.residual.values - residual(engine)).sum()
    rounded = 0.85 * graph.arcs * 0.5 * sum(units)
    assert error <= rounded + 1e-13 * graph.vertices
    assert 2.0 * rounded <= iterate.certificate.uncertainty <= 2.0 * rounded + exact + 1e-9
    if coarse > 1.0:
        assert 1e-3 * rounded < error  # it is rounded, and hardly more is accounted for


def batches(engine: Engine) -> Iterator[EdgeBatch]:
    random = np.random.default_rng(3)
    for size in (3, 40, 400, 40, 3, 1000):
        sources, targets = engine.edge_list()
        gone = random.choice(len(sources), min(size, len(sources) // 2), replace=False)
        new = skewed(random, size, engine.options.weighted)
        yield replace(new, delete_sources=sources[gone].copy(), delete_targets=targets[gone].copy())
        yield EdgeBatch.of(remove=[int(random.integers(20, VERTICES))])


@pytest.mark.parametrize(
    "options",
    [
        Options(target_error=1e-6),
        Options(target_error=1e-10, dangling="self-loop", damping=0.99),
        Options(target_error=1e-9, directed=False),
        Options(target_error=1e-6, weighted=True),
        Options(target_error=1e-9, weighted=True, directed=False, damping=0.95),
    ],
)
def test_errors_are_within_their_bounds_through_a_stream(paging: Backend, options: Options) -> None:
    seen, engine = Paged(paging), loaded(paging, options)
    for strategy, batch in zip(
        2 * ["auto", "auto", "static", "dynamic-traversal", "naive-dynamic", "auto"],
        batches(engine),
        strict=True,
    ):
        engine.apply(batch)
        if strategy == "auto":
            engine.internals.iterate.invalidate()  # so that it sweeps
        result = engine.update(strategy)
        assert_certified(engine, result.error_bound)
        assert result.converged
    assert seen.sums > 0
    assert options.weighted or seen.rows == 0
    assert engine.memory()["pages"] > 0


def loaded_at_once(backend: Backend, options: Options) -> Engine:
    """A graph that no batch has changed since, whose load had no memory for pages."""
    engine = Engine(options, backend)
    engine.apply(skewed(np.random.default_rng(2), 3000))
    engine.internals.graph.in_pages.drop()
    return engine


@pytest.mark.parametrize("weighted", [False, True])
def test_the_first_solve_after_a_load_or_a_restart_is_by_pages(
    paging: Backend, weighted: bool
) -> None:
    options = Options(weighted=weighted)
    engine, seen = Engine(options, paging), Paged(paging)
    engine.apply(skewed(np.random.default_rng(2), 3000, weighted))
    built = engine.memory()["pages"]
    snapshots: list[Snapshot] = []
    for each in (engine, Engine(options, paging)):
        if snapshots:
            each.restore(snapshots[0])
            each.internals.iterate.reset()
        assert each.memory()["pages"] == built > 0
        sums = seen.sums
        result = each.update("static")
        assert seen.sums >= sums + result.iterations > sums
        assert seen.rows == 0
        assert result.error_bound <= 1e-6
        assert_certified(each, result.error_bound)
        snapshots.append(each.capture(each.staging_buffer()).snapshot())


def test_a_load_without_memory_for_pages_beside_a_solve_has_none(paging: Backend) -> None:
    backend, device = looked_after(paging)
    backend = sweeping_singly(backend)
    engine, seen = Engine(Options(), backend), Paged(backend)
    edges = skewed(np.random.default_rng(2), 3000)
    engine.apply(edges)
    assert "pages" in engine.memory()
    assert backend.pages is not None
    pages = 2 * backend.pages.bytes_needed(engine.vertices, engine.edges)
    engine = Engine(Options(), backend)
    with device.with_only(pages):
        engine.apply(edges)
        assert "pages" not in engine.memory()
        result = engine.update("static")
    assert seen.sums == 0 < seen.rows
    assert result.error_bound <= 1e-6
    assert_certified(engine, result.error_bound)
    engine.apply(EdgeBatch.of([(0, 1), (1, 7)]))
    engine.update("static")
    assert seen.sums > 0


@pytest.mark.parametrize("accelerated", [False, True])
def test_a_solve_continues_by_pages_after_many_sweeps_by_rows(
    paging: Backend, accelerated: bool
) -> None:
    most = SWEEPS_BY_ROWS + 7
    options = Options(target_error=1e-13, damping=0.99, max_iterations=most)
    engine = loaded_at_once(paging, options)
    iterate, seen = engine.internals.iterate, Paged(paging)
    iterate.reset()
    kinds = [kind for kind in SWEEP_KINDS if kind.accelerated == accelerated]
    before = iterate.certificate.residual_l1
    sweep_to_target(iterate, most, kinds)
    assert seen.rows == SWEEPS_BY_ROWS
    assert seen.sums > 0
    error = np.abs(iterate.workspace.residual.values - residual(engine)).sum()
    assert error <= 1e-14 * before
    assert iterate.certificate.residual_l1 <= 0.01 * before


def test_queries_are_within_their_bounds_while_sweeps_turn_to_pages(
    paging: Backend,
) -> None:
    engine = loaded_at_once(paging, Options())
    engine.update("auto")
    engine.internals.graph.in_pages.drop()
    seen, ways = Paged(paging), set()
    for _ in range(8):
        rows, sums = seen.rows, seen.sums
        assert_a_query_is_within_its_bound(engine)
        ways.add((seen.rows > rows, seen.sums > sums))
    assert seen.rows == SWEEPS_BY_ROWS
    assert ways == {(True, False), (True, True), (False, True)}


@pytest.mark.parametrize("watched", [False, True])
def test_queries_do_not_change_a_bit_of_later_solves(paging: Backend, watched: bool) -> None:
    published = []
    for queries in (0, 8):
        engine = loaded_at_once(paging, Options())
        coarsen(engine, 2.0**30)  # sums over a graph this small are exact by rows, too
        sweeps = engine.update("static").iterations
        for number in range(queries):
            query = PersonalizedQuery(np.array([number]), method="pull", target_error=1e-8)
            if watched:
                engine.watch("it", query)
            else:
                engine.personalized_many([query])
        assert ("pages" in engine.memory()) == (queries > 0)
        sweeps += engine.update("static").iterations
        assert sweeps < SWEEPS_BY_ROWS
        published.append(engine.publish().to_numpy())
        engine.apply(EdgeBatch.of([(0, 1), (1, 7)]))
        engine.update("static")
        published[-1] = np.append(published[-1], engine.publish().to_numpy())
    assert published[0].tobytes() == published[1].tobytes()


def test_personalized_queries_sweep_by_pages_too(paging: Backend) -> None:
    engine = loaded(paging, Options())
    engine.update("auto")
    seen = Paged(paging)
    assert_a_query_is_within_its_bound(engine)
    assert seen.sums > 0 == seen.rows


def assert_a_query_is_within_its_bound(engine: Engine) -> None:
    query = PersonalizedQuery(np.array([5, 9]), k=10**6, method="pull", target_error=1e-8)
    (answer,) = engine.personalized_many([query])
    exact, uncertain = exact_ranks(engine, np.isin(np.arange(engine.id_limit), [5, 9]) / 2.0)
    ranks = np.zeros(engine.id_limit)
    ranks[answer.vertices] = answer.ranks
    assert np.abs(ranks - exact).sum() <= answer.error_bound + uncertain <= 2e-8


def test_weighted_sweeps_are_by_rows_while_rounding_would_count(paging: Backend) -> None:
    for target in (1e-6, 1e-12):
        engine, seen = loaded(paging, Options(weighted=True, target_error=target)), Paged(paging)
        result = engine.update("auto")
        assert result.error_bound <= target
        assert (seen.sums > 0, seen.rows > 0) == (True, target < 1e-6)
