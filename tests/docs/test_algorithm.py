"""The method on one page (docs/algorithm.md) is that of the engine, and its bounds are true.

The blocks of the page are run as they are. What they compute is compared with the engine, and with
liverank_gpu.verify, which shares no code with either.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options, verify
from liverank_gpu.types import Dangling
from tests.docs.examples import ROOT, Examples
from tests.gpu.graphs import FAMILIES, Pairs, random_graph

PAGE = ROOT / "docs" / "algorithm.md"
POLICIES: tuple[Dangling, ...] = get_args(Dangling)
GRAPHS: dict[str, Callable[[], Pairs]] = {
    **{f"random {seed}": partial(random_graph, seed) for seed in range(6)},
    **{name: family for name, family in FAMILIES.items() if family()[0] <= 200},
}
Values = NDArray[np.float64]


@pytest.fixture(scope="module")
def names(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What the page defines. Its functions look each other up here."""
    examples = Examples(PAGE, tmp_path_factory.mktemp("page"))
    examples.run()
    return examples.names


@pytest.fixture
def page(names: dict[str, Any]) -> Page:
    return Page(names)


class Page:
    def __init__(self, names: dict[str, Any]) -> None:
        self._names = names

    def __getattr__(self, name: str) -> Any:
        return self._names[name]

    def iterate(self, pairs: Pairs, dangling: Dangling) -> Any:
        return self.Iterate(self.Graph(pairs[0], _edges(pairs), dangling == "self-loop"))


def _edges(pairs: Pairs) -> set[tuple[int, int]]:
    return {(int(source), int(target)) for source, target in pairs[1]}


def _engine(pairs: Pairs, dangling: Dangling, target: float) -> Engine:
    engine = Engine(Options(dangling=dangling, target_error=target), backend="cpu")
    engine.apply(EdgeBatch.of(insert=_edges(pairs), vertices=pairs[0]))
    return engine


def _columns(iterate: Any) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    sources, targets = np.array(sorted(iterate.graph.edges), np.int64).reshape(-1, 2).T
    return sources, targets


def _policy(iterate: Any) -> Dangling:
    return "self-loop" if iterate.graph.self_loops else "uniform"


def _error(iterate: Any) -> tuple[float, float]:
    """The L1 error of the ranks, and how far that can be off."""
    exact, own = verify.pagerank(*_columns(iterate), iterate.graph.n, dangling=_policy(iterate))
    return float(np.abs(iterate.y / iterate.y.sum() - exact).sum()), own


def _assert_true(page: Page, iterate: Any) -> None:
    """r is the residual of y but for the rounding that is accounted for, and the bound holds."""
    true = verify.residual(*_columns(iterate), iterate.y, iterate.beta, dangling=_policy(iterate))
    assert np.abs(true - iterate.r).sum() <= iterate.rounding
    error, own = _error(iterate)
    assert error <= page.error_bound(iterate) + own


def _batch(
    generator: np.random.Generator, iterate: Any
) -> tuple[int, list[tuple[int, int]], list[tuple[int, int]]]:
    """The number of vertices afterwards, insertions and deletions. Some have no effect, some are
    loops.
    """
    n = iterate.graph.n + int(generator.integers(0, 3))
    inserted = generator.integers(0, n, (int(generator.integers(0, 6)), 2))
    loops = generator.random(len(inserted)) < 0.2
    inserted[loops, 1] = inserted[loops, 0]
    present = sorted(iterate.graph.edges)
    places = generator.integers(0, max(1, len(present)), 3 if present else 0)
    deleted = [present[place] for place in places] + [(n - 1, 0)]
    return n, [(int(source), int(target)) for source, target in inserted], deleted


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("name", GRAPHS)
def test_static_ranks_are_those_of_the_engine(page: Page, name: str, dangling: Dangling) -> None:
    pairs = GRAPHS[name]()
    engine, iterate = _engine(pairs, dangling, 1e-9), page.iterate(pairs, dangling)
    _assert_true(page, iterate)
    ranks, bound = page.solve(iterate, 1e-9)
    assert bound <= 1e-9
    _assert_true(page, iterate)
    result = engine.update()
    distance = np.abs(ranks - engine.publish().to_numpy()).sum()
    assert distance <= bound + result.error_bound <= 2e-9


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_batches_are_followed_as_by_the_engine(page: Page, seed: int, dangling: Dangling) -> None:
    generator, pairs = np.random.default_rng(seed), random_graph(seed)
    engine, iterate = _engine(pairs, dangling, 1e-7), page.iterate(pairs, dangling)
    page.solve(iterate, 1e-7)
    engine.update()
    for _ in range(3):
        n, insert, delete = _batch(generator, iterate)
        page.apply_batch(iterate, n, insert, delete)
        engine.apply(EdgeBatch.of(insert, delete, n))
        if dangling == "uniform":  # loops of the policy are no edges
            assert iterate.graph.edges == _edges((n, np.stack(engine.edge_list(), axis=1)))
        _assert_true(page, iterate)
        ranks, bound = page.solve(iterate, 1e-7)
        assert bound <= 1e-7
        _assert_true(page, iterate)
        result = engine.update()
        assert np.abs(ranks - engine.publish().to_numpy()).sum() <= bound + result.error_bound


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("seed", range(3))
def test_the_residual_after_a_batch_is_that_of_the_engine(
    page: Page, seed: int, dangling: Dangling
) -> None:
    generator, pairs = np.random.default_rng(seed), random_graph(seed + 10)
    engine, iterate = _engine(pairs, dangling, 1e-3), page.iterate(pairs, dangling)
    engine.update()
    of_engine = engine.internals.iterate
    iterate.y, iterate.beta = of_engine.values.copy(), of_engine.rhs_scale
    page.evaluate(iterate)
    for _ in range(4):
        n, insert, delete = _batch(generator, iterate)
        page.apply_batch(iterate, n, insert, delete)
        engine.apply(EdgeBatch.of(insert, delete, n))
        assert not of_engine.stale
        assert np.array_equal(iterate.y, of_engine.values)
        off = iterate.rounding + of_engine.certificate.uncertainty
        assert np.abs(iterate.r - of_engine.workspace.residual.values).sum() <= off
        assert page.error_bound(iterate) == pytest.approx(of_engine.error_bound, rel=1e-8)


def test_a_push_changes_only_what_a_batch_can_reach(
    page: Page, monkeypatch: pytest.MonkeyPatch, names: dict[str, Any]
) -> None:
    pairs = FAMILIES["path"]()
    insert, delete = [(150, 160), (170, 190)], [(165, 166)]
    engine, iterate = _engine(pairs, "uniform", 1e-6), page.iterate(pairs, "uniform")
    page.solve(iterate, 1e-6)
    engine.update()
    before = iterate.y.copy()
    page.apply_batch(iterate, 200, insert, delete)
    engine.apply(EdgeBatch.of(insert, delete))
    assert page.error_bound(iterate) > 1e-3
    monkeypatch.setitem(names, "sweep", None)  # is not called
    ranks, bound = page.solve(iterate, 1e-6)
    assert bound <= 1e-6
    assert np.array_equal(iterate.y[:151], before[:151])
    assert not np.array_equal(iterate.y[151:], before[151:])
    _assert_true(page, iterate)
    result = engine.update(trace=True)
    assert result.trace is not None
    assert {step.kind for step in result.trace.steps} == {"push"}
    assert np.abs(ranks - engine.publish().to_numpy()).sum() <= bound + result.error_bound


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("name", GRAPHS)
def test_every_step_keeps_the_residual_and_the_bound_true(
    page: Page, name: str, dangling: Dangling
) -> None:
    iterate = page.iterate(GRAPHS[name](), dangling)
    graph = iterate.graph
    for step in (page.sweep, page.sweep, page.accelerate, lambda x: page.push(x, 1e-8)):
        step(iterate)
        _assert_true(page, iterate)
        if step in (page.sweep, page.accelerate):
            assert abs(iterate.r[~graph.isolated].sum()) <= 1e-12
            expected = iterate.beta / graph.diagonal[graph.isolated]
            assert iterate.y[graph.isolated] == pytest.approx(expected, rel=1e-14)


def test_deflation_removes_the_error_of_the_scale(
    page: Page, monkeypatch: pytest.MonkeyPatch, names: dict[str, Any]
) -> None:
    def swept() -> float:
        iterate = page.iterate(random_graph(4), "uniform")
        for _ in range(8):
            page.sweep(iterate)
        return float(page.error_bound(iterate))

    deflated = swept()
    monkeypatch.setitem(names, "deflate", lambda _: None)
    assert deflated < swept() / 100


def test_acceleration_saves_passes_over_the_edges_of_a_grid(
    page: Page, monkeypatch: pytest.MonkeyPatch, names: dict[str, Any]
) -> None:
    pairs, gather, passes = FAMILIES["grid"](), page.gather, 0

    def counted(graph: Any, values: Values) -> Values:
        nonlocal passes
        passes += 1
        gathered: Values = gather(graph, values)
        return gathered

    def solved() -> int:
        nonlocal passes
        passes = 0
        _, bound = page.solve(page.iterate(pairs, "uniform"), 1e-10)
        assert bound <= 1e-10
        return passes

    monkeypatch.setitem(names, "gather", counted)
    accelerated = solved()
    monkeypatch.setitem(names, "accelerate", lambda _: None)
    assert accelerated < 0.5 * solved()


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("name", ["random 4", "3-cycles", "loops only", "all dangling", "path"])
def test_rounding_ends_what_the_bound_can_reach(page: Page, name: str, dangling: Dangling) -> None:
    iterate = page.iterate(GRAPHS[name](), dangling)
    _, bound = page.solve(iterate, 0.0, most_sweeps=40)
    assert 0.0 < bound < 1e-11
    _assert_true(page, iterate)


def test_the_page_is_linked_from_where_the_engine_is_met() -> None:
    import liverank_gpu

    assert "docs/algorithm.md" in (liverank_gpu.__doc__ or "")
    for path in ("README.md", "docs/architecture.md", "docs/strategies.md"):
        assert "algorithm.md" in Path(ROOT / path).read_text("utf-8")
