"""The published form: every iteration against the paper's pseudocode, and the certificate."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from liverank_gpu import STRATEGIES, EdgeBatch, Engine, InvalidValue, Options
from liverank_gpu.operations.backend import Backend, Sizes
from liverank_gpu.pagerank.strategies import TABLE, forms_of
from liverank_gpu.types import Dangling, Form
from tests.gpu.graphs import (
    FAMILIES,
    WeightedModel,
    assert_certified,
    engine_on,
    loaded,
    random_graph,
    some_weights,
    weighted_batch,
)
from tests.gpu.pagerank.published_reference import PublishedReference

POLICIES: tuple[Dangling, ...] = get_args(Dangling)
PUBLISHED = [name for name in STRATEGIES if "published" in forms_of(TABLE[name], Options())]
BATCHES = ("insert", "delete", "both", "none")

Edges = list[tuple[int, int]]


def _batch(
    generator: np.random.Generator, reference: PublishedReference, kind: str
) -> tuple[Edges, Edges]:
    """Insertions and deletions, some without effect, that add no vertices."""
    n = reference.vertices
    size = max(1, len(reference.edges) // 20)
    insert = generator.integers(0, n, (size, 2)).tolist() if kind in ("insert", "both") else []
    present = sorted(reference.edges)
    chosen = generator.integers(0, max(1, len(present)), size).tolist()
    deletes = kind in ("delete", "both") and present
    delete = [present[at] for at in chosen] if deletes else []
    return [(u, v) for u, v in insert], [*delete, (0, n - 1)] if delete else []


def _started(
    options: Options, backend: Backend, seed: int
) -> tuple[Engine, PublishedReference, np.random.Generator]:
    vertices, edges = random_graph(seed)
    pairs = [(u, v) for u, v in edges.tolist()]
    engine, reference = engine_on(options, backend), PublishedReference(options, vertices)
    engine.apply(EdgeBatch.of(pairs, vertices=vertices))
    reference.apply(pairs, [])
    return engine, reference, np.random.default_rng(seed)


def _assert_equal(engine: Engine, reference: PublishedReference, strategy: str) -> float:
    """Returns the error bound."""
    result = engine.update(strategy)
    iterations, converged, touched = reference.update(strategy)
    assert (result.iterations, result.converged) == (iterations, converged)
    assert result.touched_vertices == touched
    assert result.form == "published"
    ranks = engine.publish().to_numpy()
    assert np.abs(ranks - reference.normalised).max() <= 1e-12
    return result.error_bound


@pytest.mark.in_shards
@pytest.mark.any_thread_order
@pytest.mark.parametrize("kind", BATCHES)
@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("strategy", PUBLISHED)
def test_published_strategies_are_the_pseudocode(
    strategy: str, dangling: Dangling, kind: str, backend: Backend, long: bool
) -> None:
    options = Options(dangling=dangling, form="published")
    for seed in range(3 if long else 1):
        engine, reference, generator = _started(options, backend, seed)
        _assert_equal(engine, reference, "static")
        for _ in range(3):
            insert, delete = _batch(generator, reference, kind)
            engine.apply(EdgeBatch.of(insert, delete))
            reference.apply(insert, delete)
            error_bound = _assert_equal(engine, reference, strategy)
        assert_certified(engine, error_bound)


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("strategy", PUBLISHED)
@pytest.mark.parametrize("iterations", [1, 2, 3, 5, 9])
def test_each_iteration_is_that_of_the_pseudocode(
    iterations: int, strategy: str, dangling: Dangling, backend: Backend
) -> None:
    options = Options(
        dangling=dangling, form="published", max_iterations=iterations, frontier_tolerance=1e-3
    )
    engine, reference, generator = _started(options, backend, seed=5)
    _assert_equal(engine, reference, "static")
    for _ in range(2):
        insert, delete = _batch(generator, reference, "both")
        engine.apply(EdgeBatch.of(insert, delete))
        reference.apply(insert, delete)
        _assert_equal(engine, reference, strategy)


def test_dfp_as_printed_does_not_converge_where_a_rank_is_above_the_quotient_of_tolerances(
    backend: Backend,
) -> None:
    options = Options(dangling="self-loop", form="published")
    engine, reference, generator = _started(options, backend, seed=1)
    printed = PublishedReference(options, reference.vertices, as_printed=True)
    printed.apply(sorted(reference.edges), [])
    for each in (reference, printed):
        each.update("static")
    assert printed.ranks.max() > options.tolerance / options.prune_tolerance
    engine.update("static")
    insert, delete = _batch(generator, reference, "both")
    for graph in (reference, printed):
        graph.apply(insert, delete)
    engine.apply(EdgeBatch.of(insert, delete))
    # what is pruned has changed by at most τ_p of its rank, which is more than τ
    iterations, converged, _ = printed.update("dynamic-frontier-prune")
    assert (iterations, converged) == (options.max_iterations, False)
    _assert_equal(engine, reference, "dynamic-frontier-prune")
    assert engine.update("dynamic-frontier-prune").converged


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("family", FAMILIES)
def test_published_static_of_every_family_is_certified(
    family: str, dangling: Dangling, backend: Backend
) -> None:
    options = Options(dangling=dangling, form="published")
    engine = loaded(FAMILIES[family](), options, backend)
    assert engine.update("static").converged
    assert_certified(engine, engine.update("naive-dynamic").error_bound)


@pytest.mark.in_shards
@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("strategy", PUBLISHED)
def test_published_strategies_rank_weighted_graphs(
    strategy: str, dangling: Dangling, backend: Backend
) -> None:
    generator = np.random.default_rng(PUBLISHED.index(strategy))
    options = Options(dangling=dangling, form="published", weighted=True)
    engine, model = engine_on(options, backend), WeightedModel(dangling)
    vertices, edges = random_graph(3)
    weights = some_weights(generator, len(edges))
    first = EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices, weights=weights)
    engine.apply(first)
    model.apply(first)
    engine.update("static")
    for _ in range(4):
        batch = weighted_batch(generator, model, 6)
        engine.apply(batch)
        model.apply(batch)
        result = engine.update(strategy)
        assert result.converged
        assert result.error_bound < 1e-3
        assert_certified(engine, result.error_bound)


@pytest.mark.parametrize("dangling", POLICIES)
def test_forms_and_strategies_alternate(dangling: Dangling, backend: Backend, long: bool) -> None:
    """Whatever ran before, the residual is known afterwards and the next bound is true."""
    generator = np.random.default_rng(1)
    engine, reference, _ = _started(Options(dangling=dangling), backend, seed=9)
    for turn in range(24 if long else 12):
        insert, delete = _batch(generator, reference, "both")
        vertices = engine.vertices + turn % 2
        engine.apply(EdgeBatch.of(insert, delete, vertices=vertices))
        strategy = STRATEGIES[int(generator.integers(0, len(STRATEGIES)))]
        forms = forms_of(TABLE[strategy], engine.options)
        form = forms[int(generator.integers(0, len(forms)))]
        result = engine.update(strategy, form)
        assert result.form == form
        assert_certified(engine, result.error_bound)
        if strategy in ("auto", "residual"):
            assert result.error_bound <= engine.options.target_error


@pytest.mark.parametrize("form", get_args(Form))
def test_the_next_solve_does_not_depend_on_the_vertices_that_this_one_expanded(
    form: Form, backend: Backend
) -> None:
    if backend.costs.sparse_part == 0:
        pytest.skip("it keeps no lists")
    # a solve that ends in its first iteration, with expanding vertices
    options = Options(max_iterations=1, frontier_tolerance=1e-9)
    by_states = replace(backend, costs=replace(backend.costs, sparse_part=0))
    engine, reference, generator = _started(options, by_states, seed=5)
    engine.update("static")
    insert, delete = _batch(generator, reference, "both")
    engine.apply(EdgeBatch.of(insert, delete))
    engine.update("dynamic-frontier", form)
    assert not engine.internals.iterate.scratch("expanding", np.uint8).any()


def test_the_certificate_is_a_stage_of_its_own(backend: Backend) -> None:
    engine, _, _ = _started(Options(), backend, seed=9)
    published = engine.update("static", "published")
    assert published.certify_seconds > 0.0
    assert set(engine.stage_seconds()) == {"mark", "solve", "certify"}


def test_a_vertex_of_high_degree_is_summed_by_a_block(backend: Backend, long: bool) -> None:
    # more than BIN_LIMITS[3]
    vertices = 10_001 if long else 2_501
    edges = FAMILIES["star inwards"]()[1][: vertices - 1]
    options = Options(form="published", dangling="self-loop")
    engine, reference = Engine(options, backend), PublishedReference(options, vertices)
    engine.apply(EdgeBatch(edges[:, 0], edges[:, 1], vertices=vertices))
    reference.apply([(u, v) for u, v in edges.tolist()], [])
    _assert_equal(engine, reference, "static")
    back = [(0, v) for v in range(1, 9 * vertices // 10)]
    engine.apply(EdgeBatch.of(back))
    reference.apply(back, [])
    _assert_equal(engine, reference, "dynamic-frontier-prune")


@pytest.mark.parametrize("strategy", ["dynamic-frontier", "dynamic-frontier-prune"])
@pytest.mark.parametrize(("edges", "vertices"), [(-1, 20), (50, 50), (300, 300), (10_000, 40)])
def test_a_list_that_grows_too_long_is_followed_by_states(
    edges: int, vertices: int, strategy: str, backend: Backend
) -> None:
    if backend.name != "cuda":
        pytest.skip("it keeps no lists")
    options = Options(form="published", dangling="self-loop")
    sizes = Sizes(affected_edges=edges, affected_vertices=vertices)
    engine, reference, _ = _started(options, replace(backend, sizes=sizes), seed=5)
    _assert_equal(engine, reference, "static")
    engine.apply(EdgeBatch.of([(0, 1), (1, 3)]))
    reference.apply([(0, 1), (1, 3)], [])
    _assert_equal(engine, reference, strategy)


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize(
    "strategy", ["dynamic-traversal", "dynamic-frontier", "dynamic-frontier-prune"]
)
@pytest.mark.parametrize("most_edges", [0, 40, 300])
def test_sweeps_take_a_solve_over_once_most_vertices_are_affected(
    most_edges: int, strategy: str, dangling: Dangling, backend: Backend
) -> None:
    options = Options(dangling=dangling)
    # a sweep costs so much that it waits for about so many edges
    edges = _started(options, backend, seed=5)[0].edges
    costs = replace(backend.costs, sweep_overhead=most_edges - edges // 8)
    engine, reference, generator = _started(options, replace(backend, costs=costs), seed=5)
    engine.update("static")
    for _ in range(2):
        insert, delete = _batch(generator, reference, "both")
        engine.apply(EdgeBatch.of(insert, delete, remove=[int(generator.integers(0, 9))]))
        result = engine.update(strategy, trace=True)
        assert result.converged
        assert result.trace is not None
        kinds = [step.kind for step in result.trace.steps]
        assert len(kinds) == result.iterations
        assert kinds == sorted(kinds)
        assert "sweep" in kinds or most_edges == 300
        # as exact as what pruning would leave
        assert assert_certified(engine, result.error_bound) <= 2e-5


def test_forms_that_cannot_run_are_refused(backend: Backend) -> None:
    with pytest.raises(InvalidValue, match="form"):
        replace(Options(), form="fast")  # type: ignore[arg-type]
    with pytest.raises(InvalidValue, match="'accelerated' where strategy is 'auto'"):
        Engine(Options(), backend).update("auto", "published")
    # the graph's form is that of the strategies which have it
    assert Engine(Options(form="published"), backend).update("auto").form == "accelerated"
