"""What a rank consists of, against NumPy on the list of edges."""

from __future__ import annotations

from contextlib import ExitStack, nullcontext
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import (
    MAX_EXPLAINED,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    Ranks,
    Snapshot,
    UnknownVertex,
    ViewQuery,
)
from liverank_gpu.operations.backend import Backend
from tests.gpu.graphs import snapshot_of
from tests.gpu.sharded.test_shards import sharded_engine

HALF_LIFE = 10.0
KINDS: list[dict[str, Any]] = [
    {},
    {"weighted": True},
    {"directed": False},
    {"directed": False, "weighted": True},
    {"weighted": True, "half_life": HALF_LIFE},
    {"directed": False, "weighted": True, "half_life": HALF_LIFE},
    {"dangling": "self-loop"},
    {"dangling": "self-loop", "weighted": True, "directed": False},
]


SHARES = {1: 0.75, 4: 0.25}
_SEEDS = (np.array(list(SHARES)), np.array([3.0, 1.0]))
VIEWS = {
    "along": ViewQuery(*_SEEDS, 1e-8, 0.6),
    "later": ViewQuery(*_SEEDS, 1e-8, refresh=1e9),
    "against": ViewQuery(*_SEEDS, 1e-8, direction="reversed"),
}


def matrix_of(options: Options, rows: list[tuple[int, int, float, float]], size: int) -> Any:
    """The weight of each arc, as if inserted at time 0."""
    weights = np.zeros((size, size))
    for source, target, weight, time in rows:
        amount = weight if options.weighted else 1.0
        amount *= 2 ** (time / HALF_LIFE) if options.half_life else 1.0
        weights[source, target] = amount
        if not options.directed:
            weights[target, source] = amount
    if options.dangling == "self-loop":
        np.fill_diagonal(weights, 1.0)
    return weights


def check(
    engine: Engine,
    ranks: Ranks,
    weights: NDArray[np.float64],
    present: NDArray[np.int64],
    k: int,
    view: str | None = None,
) -> None:
    """Every vertex: the parts are those of NumPy, and add up to the rank within the bound.

    view  whose ranks these are: one of VIEWS
    """
    values, damping, bound = ranks.to_numpy(), engine.options.damping, ranks.error_bound
    if view is not None:
        damping = VIEWS[view].damping or damping
    strengths = weights.sum(axis=1)
    dangling = values[present][strengths[present] == 0].sum()
    base = (1 - damping + damping * dangling) / len(present)
    assert view or abs(ranks.base - base) <= bound + 1e-15
    for vertex in present.tolist():
        if view is None:
            found = engine.explain(vertex, ranks, k)
        else:
            steps = engine.view_steps_to(view, vertex)
            assert steps.damping == damping
            found = ranks.explain(vertex, steps.steps, damping, k, steps.restart)
            restarts = base * len(present) * SHARES.get(vertex, 0.0)
            assert abs(found.base - restarts) <= bound + 1e-15
        sources = np.flatnonzero(weights[:, vertex])
        given = damping * values[sources] * weights[sources, vertex] / strengths[sources]
        assert found.rank == values[vertex]
        assert found.degree == len(sources)
        assert len(found.sources) == min(k, len(sources))
        assert np.isin(found.sources, sources).all()
        expected = dict(zip(sources.tolist(), given.tolist(), strict=True))
        for source, contribution in zip(found.sources.tolist(), found.contributions, strict=True):
            assert contribution == pytest.approx(expected[source], rel=1e-6)
        assert found.contributions == pytest.approx(np.sort(given)[::-1][:k], rel=1e-6)
        parts = found.base + found.contributions.sum() + found.rest
        assert abs(parts - found.rank) <= bound + 1e-15


def test_the_steps_of_what_is_no_view_or_vertex_are_refused(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
    engine.put_view("mine", ViewQuery(np.array([0])))
    with pytest.raises(KeyError):
        engine.view_steps_to("other", 0)
    engine.apply(EdgeBatch.of(remove=[1]))
    engine.refresh_views()
    for vertex in (1, 3):
        with pytest.raises(UnknownVertex):
            engine.view_steps_to("mine", vertex)


@pytest.mark.parametrize(
    ("kind", "shards"), [*((kind, 0) for kind in range(len(KINDS))), (0, 2), (5, 2), (7, 2)]
)
def test_parts_are_those_of_the_list_of_edges(kind: int, shards: int, backend: Backend) -> None:
    options = Options(target_error=1e-6, **KINDS[kind])
    random, size = np.random.default_rng(kind), 30
    rows: dict[tuple[int, int], tuple[int, int, float, float]] = {}
    with (
        sharded_engine(options, shards, backend)
        if shards
        else nullcontext(Engine(options, backend)) as engine
    ):
        for step in range(4):
            edges = random.integers(0, size, (40, 2))
            edges = edges[edges[:, 0] % 5 != 4]  # some have no out-edges
            if not options.directed:
                edges = np.sort(edges, axis=1)
            if options.dangling == "self-loop":
                edges = edges[edges[:, 0] != edges[:, 1]]
            edges = np.unique(edges, axis=0)
            weights = random.integers(1, 9, len(edges)).astype(np.float32)
            time = 25.0 * step
            engine.apply(
                EdgeBatch(
                    edges[:, 0],
                    edges[:, 1],
                    vertices=size,
                    weights=weights if options.weighted else None,
                    times=np.full(len(edges), time) if options.half_life else None,
                    remove=np.array([7] if step == 2 else [], np.int64),
                )
            )
            if step == 2:
                rows = {edge: row for edge, row in rows.items() if 7 not in edge}
            for edge, weight in zip(edges.tolist(), weights.tolist(), strict=True):
                rows[edge[0], edge[1]] = (*edge, weight, time)
            engine.update("auto" if step % 2 else "static")
            present = np.arange(size)
            if step >= 2 and not any(7 in edge for edge in rows):
                present = present[present != 7]
            matrix = matrix_of(options, list(rows.values()), size)
            check(engine, engine.publish(), matrix, present, k=3)
            for name, view in VIEWS.items():
                if options.half_life and view.direction == "reversed":
                    continue  # which is refused
                if step == 0:
                    engine.put_view(name, view)
            engine.refresh_views()
            for name in engine.views:
                walked = matrix.T if VIEWS[name].direction == "reversed" else matrix
                check(engine, engine.view(name, solve=False), walked, present, 3, name)


@pytest.mark.parametrize("form", ["accelerated", "published"])
@pytest.mark.parametrize("strategy", ["naive-dynamic", "dynamic-frontier"])
def test_parts_add_up_whatever_solved(strategy: str, form: Any, backend: Backend) -> None:
    options = Options(weighted=True)
    engine, random = Engine(options, backend), np.random.default_rng(3)
    edges = np.unique(random.integers(0, 25, (60, 2)), axis=0)
    edges = edges[edges[:, 0] > 3]
    for part in (edges[:40], edges[40:]):
        engine.apply(EdgeBatch(part[:, 0], part[:, 1], vertices=25))
        engine.update(strategy, form=form)
    weights = np.zeros((25, 25))
    weights[edges[:, 0], edges[:, 1]] = 1.0
    check(engine, engine.publish(), weights, np.arange(25), k=100)


@pytest.mark.parametrize("strategy", ["static", "dynamic-frontier"])
def test_parts_add_up_where_only_the_scale_is_not_solved(strategy: str, backend: Backend) -> None:
    """The ranks of a cycle are right from the beginning, long before its y is that of its β."""
    engine = Engine(Options(tolerance=1e-3), backend)
    engine.apply(EdgeBatch(vertices=3))
    engine.update(strategy, form="published")
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2), (2, 0)]))
    assert engine.update(strategy, form="published").error_bound < 1e-12
    check(engine, engine.publish(), np.roll(np.eye(3), 1, axis=1), np.arange(3), k=1)


@pytest.mark.parametrize("shards", [0, 2])
@pytest.mark.parametrize("form", ["accelerated", "published"])
def test_a_snapshot_explains_as_what_it_was_taken_of(
    form: Any, shards: int, backend: Backend
) -> None:
    options, cycle = Options(tolerance=1e-3), np.roll(np.eye(3), 1, axis=1)
    with ExitStack() as stack:
        engine, again, other = (
            stack.enter_context(sharded_engine(options, shards, backend))
            if shards
            else Engine(options, backend)
            for _ in range(3)
        )
        engine.apply(EdgeBatch(vertices=3))
        engine.update("dynamic-frontier", form=form)
        engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2), (2, 0)]))
        bound = engine.update("dynamic-frontier", form=form).error_bound
        snapshot, before = snapshot_of(engine), engine.publish()
        again.restore(snapshot)
        other.restore(snapshot_of(again))
        for ranks in (again.ranks_of(snapshot), again.publish(), other.publish()):
            assert (ranks.base, ranks.error_bound) == (before.base, bound)
            check(again, ranks, cycle, np.arange(3), k=1)
        # those that are as older releases stored them say which β y is of
        stored = {name: snapshot.numbers[name] for name in ("base", "total", "error_bound")}
        older = again.ranks_of(Snapshot(snapshot.arrays, {**stored, "edges": 3}))
        assert older.base == stored["base"] / stored["total"]
        assert (older.base == before.base) == (form == "accelerated")
        assert (snapshot.numbers.keys() == {*stored, "edges"}) == (form == "accelerated")


def test_what_cannot_be_explained_is_refused(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (2, 1), (1, 1)]))
    engine.update("auto")
    ranks = engine.publish()
    assert engine.explain(0, ranks).degree == 0
    assert engine.explain(1, ranks, 0).sources.tolist() == []
    with pytest.raises(UnknownVertex):
        engine.explain(3, ranks)
    with pytest.raises(InvalidValue, match="k: -1"):
        engine.explain(1, ranks, -1)
    with pytest.raises(InvalidValue, match="at most 2 in-edges, this has 3"):
        engine.edge_reader.steps_to(1, 2)


def test_a_vertex_of_more_in_edges_than_are_read_is_not_explained() -> None:
    engine = Engine(Options(), "cpu")
    sources = np.arange(1, MAX_EXPLAINED + 2)
    engine.apply(EdgeBatch(sources, 0 * sources))
    engine.update()
    with pytest.raises(InvalidValue, match="at most 1,048,576 in-edges, this has 1,048,577"):
        engine.explain(0, engine.publish())
