"""Personalized queries in the published form, and the traces of both forms."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, get_args

import numpy as np
import pytest

from liverank_gpu import (
    METHODS,
    PUBLISHED_METHODS,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    PersonalizedQuery,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.published import MODES
from liverank_gpu.personalized.published import PublishedQuery
from liverank_gpu.types import TRACED_STEPS, Dangling, TraceStep
from tests.gpu.graphs import FAMILIES, loaded, random_graph
from tests.gpu.personalized.wang_reference import WangReference, reference_of

KINDS: dict[str, dict[str, Any]] = {
    **{policy: {"dangling": policy} for policy in get_args(Dangling)},
    "weighted": {"weighted": True},
    "undirected": {"directed": False},
}
SEEDS = np.array([1, 0, 1])


def _engine(backend: Backend, seed: int, **options: Any) -> Engine:
    return loaded(random_graph(seed), Options(**options), backend)


def _query(method: str, **options: Any) -> PersonalizedQuery:
    return PersonalizedQuery(SEEDS, method=method, form="published", **options)


def _reference(engine: Engine, query: PersonalizedQuery, backend: Backend) -> WangReference:
    return reference_of(engine, query, backend.costs.forward_edge)


def _started(engine: Engine, query: PersonalizedQuery) -> PublishedQuery:
    return PublishedQuery(engine.internals.queries, engine.resolve([query])[0])


@pytest.mark.any_thread_order
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("method", PUBLISHED_METHODS)
def test_each_iteration_is_that_of_the_paper(method: str, kind: str, backend: Backend) -> None:
    for seed in (5, 9) if backend.name == "cpu" else (9,):
        engine = _engine(backend, seed, **KINDS[kind])
        query = _query(method, target_error=1e-2)
        running, reference = _started(engine, query), _reference(engine, query, backend)
        permutation, host = engine.internals.graph.permutation, backend.device.to_host
        places = host(permutation.positions_of(np.arange(engine.vertices)))
        assert running.threshold == pytest.approx(reference.threshold, rel=1e-12)
        while not running.done:
            listed = host(running.state.queue[: running.work_list.vertices])
            assert sorted(listed) == sorted(places[reference.updated])
            assert running.work_list.edges == reference.list_edges
            assert running.cost_difference == reference.psi
            mode = running.mode
            assert mode == reference.mode(method)
            running.step()
            reference.iterate(mode)
            for found, expected in (
                (running.state.values, reference.scores),
                (running.state.residual, reference.residual),
            ):
                assert np.abs(host(found)[places] - expected).max() <= 1e-12
            assert not host(running.state.queued).any()
        assert len(reference.updated) == 0
        assert running.iterations > 5
        answer = running.answer()
        running.close()
        assert reference.exact_error() <= answer.error_bound <= 1e-2 * (1.0 + 1e-9)
        best = np.argsort(-reference.scores, kind="stable")[:3]
        assert np.allclose(answer.ranks[:3], (reference.scores / reference.scores.sum())[best])


@pytest.mark.in_shards
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("method", PUBLISHED_METHODS)
def test_every_family_is_certified(method: str, family: str, backend: Backend) -> None:
    engine = loaded(FAMILIES[family](), Options(), backend)
    vertices = engine.vertices
    seed = np.array([vertices // 2])
    answer = engine.personalized(seed, k=vertices, method=method, form="published")
    exact = engine.personalized(seed, k=vertices, target_error=1e-12)
    ranks, expected = np.zeros(vertices), np.zeros(vertices)
    ranks[answer.vertices], expected[exact.vertices] = answer.ranks, exact.ranks
    assert np.abs(ranks - expected).sum() <= answer.error_bound + exact.error_bound
    assert answer.error_bound <= engine.options.target_error * (1.0 + 1e-9)
    assert answer.vertices[: answer.settled].tolist() == exact.vertices[: answer.settled].tolist()
    assert answer.settled > 0 or vertices > 1


def test_a_hybrid_changes_its_mode_in_both_directions(backend: Backend) -> None:
    # residual moves between a hub, of 100 out-edges, and its leaves, which have 300 together
    hub, leaves = np.zeros(100, np.int64), np.arange(1, 101)
    costs = replace(backend.costs, forward_edge=2.0)
    engine = Engine(Options(), replace(backend, costs=costs))
    targets = [leaves, hub, np.full(100, 101), np.full(100, 102)]
    engine.apply(EdgeBatch(np.concatenate([hub, *[leaves] * 3]), np.concatenate(targets)))
    answer = engine.personalized(
        np.array([0]), method="hybrid", form="published", target_error=0.1, trace=True
    )
    assert answer.method == "hybrid"
    assert answer.trace is not None
    steps = answer.trace.steps
    changes = {(before.mode, after.mode) for before, after in pairwise(steps)}
    assert changes >= {("pushopt", "pull"), ("pull", "pushopt")}
    for step in steps:
        assert step.cost_difference is not None
        assert step.mode == ("pushopt" if step.cost_difference < 0.0 else "pull")
        assert step.kind == ("push" if step.mode == "pushopt" else "sweep")
    pulls = sum(step.mode == "pull" for step in steps)
    assert (answer.trace.pushes, answer.trace.sweeps) == (len(steps) - pulls, pulls)
    assert answer.trace.affected == 1


@pytest.mark.parametrize("method", PUBLISHED_METHODS)
def test_a_published_trace_has_the_work_lists(method: str, backend: Backend) -> None:
    engine = _engine(backend, 9)
    query = _query(method, target_error=1e-3, trace=True)
    reference = _reference(engine, query, backend)
    trace = engine.personalized_many([query])[0].trace
    assert trace is not None
    for step in trace.steps:
        mode = reference.mode(method)
        expected = TraceStep(
            kind="sweep" if mode == "pull" else "push",
            rounds=1,
            vertices=len(reference.updated),
            edges=reference.graph_edges if mode == "pull" else reference.list_edges,
            largest_change=pytest.approx(reference.residual.max(), rel=1e-9),  # type: ignore[arg-type]
            threshold=pytest.approx(reference.threshold, rel=1e-12),  # type: ignore[arg-type]
            mode=mode,  # type: ignore[arg-type]
            cost_difference=reference.psi,
        )
        assert step == expected
        reference.iterate(mode)
    assert len(reference.updated) == 0
    assert engine.personalized_many([replace(query, trace=False)])[0].trace is None


@pytest.mark.in_shards
@pytest.mark.parametrize("method", METHODS)
def test_a_trace_of_ours_has_pushes_and_sweeps(method: str, backend: Backend) -> None:
    engine = _engine(backend, 9)
    engine.update()
    query = PersonalizedQuery(SEEDS[:1], method=method, trace=True)
    # enough queries for a block, of which traced ones are no part
    others = [replace(query, method="pull", trace=False)] * 5
    answers = engine.personalized_many([query, *others])
    assert [answer.trace is None for answer in answers] == [False, *[True] * 5]
    answer = answers[0]
    trace = answer.trace
    assert trace is not None
    assert trace.affected == 1
    assert trace.pushes + trace.sweeps == answer.iterations
    assert sum(step.rounds for step in trace.steps) == answer.iterations
    assert answer.method == method or method == "hybrid"
    assert (trace.pushes > 0) == (answer.method != "pull")
    assert (trace.sweeps > 0) == (answer.method != "push")
    assert trace.steps[-1].error_bound == answer.error_bound
    for step in trace.steps:
        if step.kind == "push":
            assert step.end in ("goal", "floor", "work", "rounds")
            assert step.threshold is not None
        else:
            assert (step.vertices, step.edges) == (engine.vertices, engine.edges)
            assert step.deflation in ("seeds", "ranks", None)
    if method == "pull":
        assert trace.steps[0].deflation is not None


def test_a_trace_is_bounded(backend: Backend) -> None:
    engine = Engine(Options(damping=0.999, max_iterations=TRACED_STEPS + 10), backend)
    engine.apply(EdgeBatch.of([(0, 1), (1, 2), (2, 0)]))
    answer = engine.personalized(
        np.array([0]), method="pushopt", form="published", target_error=1e-300, trace=True
    )
    assert answer.trace is not None
    assert answer.iterations == answer.trace.pushes == TRACED_STEPS + 10
    assert len(answer.trace.steps) == TRACED_STEPS


def test_the_bound_is_true_when_iterations_run_out(backend: Backend) -> None:
    engine = _engine(backend, 5, max_iterations=3)
    for method in PUBLISHED_METHODS:
        query = _query(method, target_error=1e-8)
        reference = _reference(engine, query, backend)
        for _ in range(3):
            reference.iterate("pushopt")
        (answer,) = engine.personalized_many([query])
        assert answer.iterations == 3
        assert 1e-3 < reference.exact_error() <= answer.error_bound


@pytest.mark.in_shards
def test_a_published_query_begins_again_after_a_batch(backend: Backend) -> None:
    engine = _engine(backend, 9)
    queries = [_query(method) for method in PUBLISHED_METHODS]
    batch = engine.submit([*queries, PersonalizedQuery(SEEDS)])
    for turn in range(8):
        engine.step(batch)
        if turn % 3 == 0:
            vertices = engine.vertices + 1
            engine.apply(EdgeBatch.of([(0, vertices - 1), (vertices - 1, 1)], [(1, 0)]))
    assert batch.restarts > 0
    while not batch.done:
        engine.step(batch)
    answers = batch.answers()
    engine.close(batch)
    *published, ours = answers
    for answer in published:
        assert set(answer.vertices[:3]) == set(ours.vertices[:3])
        assert np.abs(answer.ranks - ours.ranks).max() <= answer.error_bound + ours.error_bound
    again = engine.personalized_many([*queries, PersonalizedQuery(SEEDS)])
    assert [one.vertices.tolist() for one in again] == [one.vertices.tolist() for one in answers]


@pytest.mark.parametrize(
    ("field", "options"),
    [
        ("form", {"form": "fast"}),
        ("method", {"method": "pushopt"}),
        ("method", {"method": "sweep", "form": "published"}),
        ("target", {"target": "settled-top-k", "form": "published"}),
    ],
)
def test_what_a_form_does_not_have_is_refused(
    field: str, options: dict[str, Any], backend: Backend
) -> None:
    engine = _engine(backend, 9)
    with pytest.raises(InvalidValue) as raised:
        engine.personalized(SEEDS, **options)
    assert (raised.value.field, raised.value.value) == (field, options[field])


@pytest.mark.parametrize(("field", "value"), [("form", "published"), ("trace", True)])
def test_watched_queries_have_one_form_and_no_trace(
    field: str, value: object, backend: Backend
) -> None:
    engine = _engine(backend, 9)
    query = PersonalizedQuery(SEEDS, **{field: value})  # type: ignore[arg-type]
    with pytest.raises(InvalidValue) as raised:
        engine.watch("one", query)
    assert (raised.value.field, raised.value.value) == (field, value)


def test_only_some_vertices_are_answered(backend: Backend) -> None:
    engine = _engine(backend, 9)
    among = np.array([2, 7, 30])
    for method in PUBLISHED_METHODS:
        answer = engine.personalized(
            SEEDS, method=method, form="published", among=among, damping=0.5
        )
        exact = engine.personalized(SEEDS, among=among, damping=0.5, target_error=1e-10)
        assert set(answer.vertices) == set(among)
        assert np.abs(answer.ranks - exact.ranks).max() <= answer.error_bound


def test_the_workspace_is_clean_for_the_next_query(backend: Backend) -> None:
    engine = _engine(backend, 9)
    workspaces = engine.internals.queries.pool
    for method in PUBLISHED_METHODS:
        engine.personalized(SEEDS, method=method, form="published")
        workspace = workspaces.take()
        for array in (workspace.values, workspace.residual.values, workspace.residual.marks):
            assert not backend.device.to_host(array).any()
        assert not workspace.lists_all
        workspaces.give_back(workspace)


def test_modes_of_an_iteration_are_methods_of_a_query() -> None:
    assert {*MODES, "hybrid"} == set(PUBLISHED_METHODS)
