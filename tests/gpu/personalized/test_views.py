"""Views: ranks of all vertices for teleport distributions of their own, kept fresh."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from time import sleep
from typing import TypeVar, get_args
from unittest.mock import Mock

import numpy as np
import pytest
from scipy import sparse

from liverank_gpu import (
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfMemory,
    PersonalizedQuery,
    Ranks,
    UnknownVertex,
    ViewQuery,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.generate import rmat
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.residual import Push
from liverank_gpu.operations.sweeps import Sweep
from liverank_gpu.types import Ranking, ViewDirection
from tests.gpu.doubles import instead, looked_after
from tests.gpu.graphs import (
    FAMILIES,
    Model,
    arc_weights_of,
    arcs_of,
    engine_on,
    is_slow,
    random_batch,
    some_weights,
)
from tests.gpu.observed import counted
from tests.gpu.personalized.certified import engine_of

KINDS = {
    "directed": Options(),
    "self-loop": Options(dangling="self-loop"),
    "undirected": Options(directed=False),
    "weighted": Options(weighted=True),
    "decaying": Options(half_life=60.0),
}


AnyEngine = TypeVar("AnyEngine", bound=Engine)

_SLACK = 1e-12
"""What power iteration in float64 may be off by."""


def exact(engine: Engine, view: ViewQuery) -> Ranking:
    """float64[id_limit] by power iteration, along the edges or against them: x = αPᵀx + (α·D(x) +
    1-α)·s, D(x) the sum of x over the vertices without out-edges.
    """
    limit, present = engine.id_limit, np.ones(engine.id_limit, np.bool_)
    present[engine.free_ids()] = False
    if view.within is not None:
        present[np.setdiff1d(np.arange(limit), view.within)] = False
    teleport = present.astype(np.float64)
    if view.seeds is not None:
        teleport = np.bincount(view.seeds, view.weights, limit).astype(np.float64)
    teleport /= teleport.sum()
    weights = arc_weights_of(engine).astype(np.float64)
    matrix = sparse.csr_array((weights, arcs_of(engine)), shape=(limit, limit))
    inside = sparse.diags_array(present.astype(np.float64))
    matrix = (inside @ matrix @ inside).tolil()  # the subgraph that the set induces
    if engine.options.dangling == "self-loop":
        matrix.setdiag(1.0)
    matrix = matrix.tocsr() if view.direction == "forward" else matrix.T.tocsr()
    sums = matrix.sum(axis=1)
    dangles = sums == 0.0
    steps = matrix.T.tocsr()
    sums[dangles] = 1.0
    damping, ranks = view.damping or engine.options.damping, teleport
    for _ in range(400):
        before = ranks
        restarts = damping * before[dangles].sum() + 1.0 - damping
        ranks = damping * (steps @ (before / sums)) + restarts * teleport
        if np.abs(ranks - before).sum() < 1e-15:
            break
    return ranks


def assert_within_bound(engine: Engine, view: ViewQuery, ranks: Ranks) -> None:
    """The L1 distance to a solve of the graph and the seeds as they are is at most the bound."""
    found = ranks.to_numpy()
    assert np.abs(found - exact(engine, view)).sum() <= ranks.error_bound + _SLACK
    assert ranks.count == engine.vertices
    assert found[engine.free_ids()].sum() == 0.0


def random_view(generator: np.random.Generator, engine: Engine, before: ViewQuery) -> ViewQuery:
    """The same view with other seeds, or with other weights of some of them."""
    present = np.setdiff1d(np.arange(engine.id_limit), engine.free_ids())
    seeds = before.seeds
    assert seeds is not None
    seeds = np.intersect1d(seeds, present)
    if len(seeds) == 0 or generator.random() < 0.5:
        seeds = generator.choice(present, min(len(present), int(generator.integers(1, 30))))
    weights = generator.integers(1, 4, len(seeds)).astype(np.float64)
    return replace(before, seeds=seeds, weights=weights)


def any_batch(generator: np.random.Generator, engine: Engine, time: float) -> EdgeBatch:
    """Of any kind that the graph can have."""
    model = Model(engine.options.dangling, engine.options.directed)
    sources, targets = engine.edge_list()
    model.vertices, model.free = engine.id_limit, set(engine.free_ids().tolist())
    model.edges = set(zip(sources.tolist(), targets.tolist(), strict=True))
    batch = random_batch(generator, model, size=8, removes=generator.random() < 0.3)
    if generator.random() < 0.2 and engine.vertices:
        batch = replace(batch, replace=np.array([generator.integers(0, engine.id_limit)]))
    count = len(batch.insert_sources)
    if engine.options.weighted:
        batch = replace(batch, weights=some_weights(generator, count).astype(np.float32))
    if engine.options.half_life:
        batch = replace(batch, times=time + generator.random(count))
    return batch


SEEDS, WEIGHTS = np.array([1, 7, 7]), np.array([1.0, 2.0, 3.0])


def views_of(options: Options) -> dict[str, ViewQuery]:
    views = {
        "few": ViewQuery(SEEDS, WEIGHTS, 1e-5),
        "loose": ViewQuery(np.array([3]), None, 0.3, 0.5, refresh="read"),
        "many": ViewQuery(np.arange(50), None, 1e-7, refresh=1e9),
        "uniform": ViewQuery(None, None, 1e-6, 0.7),
        "against": ViewQuery(SEEDS, WEIGHTS, 1e-5, direction="reversed"),
        "all against": ViewQuery(None, None, 1e-6, refresh="read", direction="reversed"),
    }
    if options.half_life:  # which has no reversed ones
        views = {name: view for name, view in views.items() if view.direction == "forward"}
    return views


@pytest.mark.reference
@pytest.mark.parametrize("kind", KINDS)
def test_views_stay_within_their_bounds(kind: str, backend: Backend, long: bool) -> None:
    """Through batches of every kind, and changes of the teleport distribution between them."""
    engine = Engine(replace(KINDS[kind], target_error=1e-6), backend)
    slow = is_slow(backend) or backend.name == "reference"
    follow_views(engine, 500 if long and not slow else 12, lambda engine, *_: engine)


def follow_views(
    engine: AnyEngine,
    count: int,
    restarted: Callable[[AnyEngine, int, dict[str, ViewQuery]], AnyEngine],
) -> AnyEngine:
    """Through so many batches, after each of which another engine may go on."""
    generator = np.random.default_rng(5)
    engine.apply(EdgeBatch(vertices=60))
    engine.apply(any_batch(generator, engine, 0.0))
    views = views_of(engine.options)
    for name, view in views.items():
        engine.put_view(name, view)
    assert engine.views == list(views)
    for step in range(count):
        batch = any_batch(generator, engine, 20.0 * step)
        engine.apply(batch)
        if step % 3:
            engine.update()
        for name, view in views.items():
            if view.seeds is None:
                continue
            # a vertex that was removed is no seed any more, also where it is back
            kept = ~np.isin(view.seeds, batch.remove)
            weights = None if view.weights is None else view.weights[kept]
            views[name] = view = replace(view, seeds=view.seeds[kept], weights=weights)
            if not kept.any():
                with pytest.raises(UnknownVertex):
                    engine.view(name)
            if engine.vertices and (generator.random() < 0.3 or not kept.any()):
                views[name] = random_view(generator, engine, view)
                engine.put_view(name, views[name])
        if engine.vertices == 0:
            engine.apply(EdgeBatch(add=np.arange(10)))
            continue
        for name, view in views.items() if step % 4 == 1 else ():
            assert_within_bound(engine, view, engine.view(name, solve=False))
        assert engine.refresh_views().keys() == views.keys()
        for name, view in views.items():
            assert_read(engine, name, view)
        engine = restarted(engine, step, views)
    return engine


@pytest.mark.in_shards
@pytest.mark.reference
@pytest.mark.parametrize("kind", KINDS)
def test_views_within_sets_stay_within_their_bounds(
    kind: str, backend: Backend, long: bool
) -> None:
    """Through batches of every kind, and changes of the sets between them: the ranks are those of
    the subgraph, and meet the target after each refresh.
    """
    slow = is_slow(backend) or backend.name == "reference"
    engine = engine_on(replace(KINDS[kind], target_error=1e-6), backend)
    follow_views_within(engine, 300 if long and not slow else 10)


def follow_views_within(engine: Engine, count: int) -> None:
    """Through so many batches."""
    generator = np.random.default_rng(6)
    engine.apply(EdgeBatch(vertices=60))
    engine.apply(any_batch(generator, engine, 0.0))
    few = np.array([3, 8, 9])
    views = {
        "few": ViewQuery(few, np.array([1.0, 2.0, 3.0]), 1e-8, within=np.arange(2, 30)),
        "uniform": ViewQuery(None, None, 1e-6, 0.7, "read", within=np.arange(0, 60, 2)),
        "all": ViewQuery(few, None, 1e-6, within=np.arange(60)),
    }
    if not engine.options.half_life:
        views["against"] = replace(views["few"], direction="reversed", refresh=1e9)
    for name, view in views.items():
        engine.put_view(name, view)
    for step in range(count):
        batch = any_batch(generator, engine, 20.0 * step)
        engine.apply(batch)
        engine.update()
        present = np.setdiff1d(np.arange(engine.id_limit), engine.free_ids())
        if len(present) < 20:
            engine.apply(EdgeBatch(add=np.arange(100, 140)))
            present = np.setdiff1d(np.arange(engine.id_limit), engine.free_ids())
        for name, view in views.items():
            assert view.within is not None
            # a vertex that left is not in the set, also where its id is another vertex again
            within = np.setdiff1d(view.within, batch.remove)
            views[name] = view = replace(view, within=within)
            members = np.append(within, few if view.seeds is None else view.seeds)
            lost = view.seeds is not None and np.isin(view.seeds, batch.remove).any()
            if generator.random() < 0.3 or lost or not np.isin(members, present).all():
                within = np.sort(generator.choice(present, len(present) // 2, replace=False))
                seeds = None if view.seeds is None else generator.choice(within, 3)
                views[name] = replace(view, within=within, seeds=seeds)
                engine.put_view(name, views[name])
        engine.refresh_views()
        for name, view in views.items():
            ranks = engine.view(name, solve=False)
            assert_within_bound(engine, view, ranks)
            assert view.target_error is not None
            assert ranks.error_bound <= view.target_error
            _assert_explained(engine, name, ranks, generator)


def _assert_explained(
    engine: Engine, name: str, ranks: Ranks, generator: np.random.Generator
) -> None:
    """The parts of a rank add up to it, within its bound."""
    present = np.setdiff1d(np.arange(engine.id_limit), engine.free_ids())
    vertex = int(generator.choice(present))
    steps, damping, restart = engine.view_steps_to(name, vertex)
    parts = ranks.explain(vertex, steps, damping, 3, restart)
    found = parts.base + parts.contributions.sum() + parts.rest
    assert abs(found - parts.rank) <= ranks.error_bound + _SLACK


def test_a_view_within_a_set_is_explained_before_it_is_read(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of([(0, 1), (1, 2), (2, 0), (3, 1)]))
    engine.put_view("v", ViewQuery(np.array([0]), within=np.arange(3)))
    (sources, steps), damping, restart = engine.view_steps_to("v", 1)
    assert (sources.tolist(), steps.tolist(), damping, restart) == ([0], [1.0], 0.85, 0.0)


def test_a_view_within_a_set_goes_on_from_its_ranks(backend: Backend) -> None:
    """In fewer sweeps than from nothing, over the edges inside alone, which are gathered when one
    of them changes.
    """
    loads = Mock(wraps=backend.rebuild.row_ranges)
    rebuild = instead(backend.rebuild, row_ranges=loads)
    engine = Engine(Options(), replace(backend, rebuild=rebuild))
    engine.apply(EdgeBatch(*rmat(8, 8, seed=1)))
    within = np.arange(0, 256, 2)
    view = ViewQuery(None, None, 1e-9, within=within)
    sweeps: list[Sweep] = []
    with counted(Sweep, sweeps):
        engine.put_view("v", view)
        from_nothing = len(sweeps)
        ranks = engine.view("v")
        sweeps.clear()
        engine.apply(EdgeBatch.of([(1, 2), (2, 3), (5, 7)]))  # not inside
        engine.refresh_views()
        assert engine.view("v") is ranks
        assert sweeps == []
        engine.apply(EdgeBatch.of([(250, 252)]))
        engine.refresh_views()
        assert 0 < len(sweeps) < from_nothing
    assert_within_bound(engine, view, engine.view("v"))
    assert engine.view("v").error_bound <= 1e-9
    before = engine.view("v").to_numpy(), engine.view("v").base
    seeds = replace(view, seeds=np.arange(0, 256, 4))
    gathered = loads.call_count
    engine.put_view("v", seeds)
    assert_within_bound(engine, seeds, engine.view("v"))
    for other in (seeds, replace(view, damping=0.5)):
        registration = engine.register("v", other)
        while not registration.done:
            engine.step(registration)
        engine.keep(registration)
        engine.close(registration)
        assert_within_bound(engine, other, engine.view("v"))
    assert loads.call_count == gathered
    sweeps.clear()
    with counted(Sweep, sweeps):
        engine.put_view("again", view, before)
    assert len(sweeps) < from_nothing
    assert_within_bound(engine, view, engine.view("again"))


def test_a_view_can_be_put_within_a_set_and_back(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch(*rmat(8, 8, seed=1)))
    seeds = np.array([4, 6])
    for within in (None, np.arange(0, 256, 2), None):
        for direction in get_args(ViewDirection):
            view = ViewQuery(seeds, None, 1e-7, within=within, direction=direction)
            engine.put_view("v", view)
            assert engine.views == ["v"]
            assert_within_bound(engine, view, engine.view("v"))
    with pytest.raises(InvalidValue, match=r"seeds: \[6\] is not allowed; it must be in `within`"):
        engine.put_view("v", ViewQuery(seeds, within=np.array([4, 5])))
    engine.put_view("v", replace(view, within=np.array([4, 6, 8])))
    engine.apply(EdgeBatch(remove=np.array([4])))
    assert engine.view_lost_seeds("v")
    engine.refresh_views()
    left = ViewQuery(np.array([6]), None, 1e-7, within=np.array([6, 8]), direction="reversed")
    assert_within_bound(engine, left, engine.view("v"))
    engine.apply(EdgeBatch(remove=np.array([6])))
    with pytest.raises(UnknownVertex):
        engine.view("v")
    engine.remove_view("v")
    assert engine.views == []


def test_a_first_solve_within_a_set_follows_batches(backend: Backend) -> None:
    """Between any two of its steps: it begins again where a batch changed what it reads."""
    view = ViewQuery(np.array([4]), None, 1e-9, within=np.arange(0, 256, 2))
    for after in range(4):
        engine = Engine(Options(), backend)
        engine.apply(EdgeBatch(*rmat(8, 8, seed=1)))
        registration = engine.register("v", view)
        for _ in range(after):
            engine.step(registration)
        engine.apply(EdgeBatch.of([(4, 250), (250, 252)]))
        while not registration.done:
            engine.step(registration)
        assert registration.restarts == (after > 0)
        engine.keep(registration)
        engine.close(registration)
        assert_within_bound(engine, view, engine.view("v"))
        assert engine.view("v").error_bound <= 1e-9


def assert_read(engine: Engine, name: str, view: ViewQuery) -> None:
    ranks = engine.view(name, solve=False)
    assert_within_bound(engine, view, ranks)
    assert view.target_error is not None
    if view.refresh == "batch":
        assert ranks.error_bound <= view.target_error
    if not isinstance(view.refresh, float):
        ranks = engine.view(name)
        assert ranks.error_bound <= view.target_error
        assert_within_bound(engine, view, ranks)
        ids, values = ranks.top(3)
        assert values.tolist() == ranks.of(ids).tolist() == sorted(ranks.to_numpy())[:-4:-1]


def test_other_seeds_cost_a_part_of_a_solve(backend: Backend) -> None:
    """A change of the teleport distribution perturbs r at the seeds that differ. The view goes on
    from where it is.
    """
    scale = 8 if is_slow(backend) else 12
    engine = Engine(Options(target_error=1e-6), backend)
    engine.apply(EdgeBatch(*rmat(scale, 8, seed=1)))
    engine.update()
    generator = np.random.default_rng(2)
    seeds = np.sort(generator.choice(engine.vertices, engine.vertices // 4, replace=False))
    weights = generator.random(len(seeds)) + 0.5
    sweeps: list[Sweep] = []
    with counted(Sweep, sweeps):
        engine.put_view("trust", ViewQuery(seeds, weights))
        from_nothing = len(sweeps)
        sweeps.clear()
        weights[5:8] *= 1.5
        view = ViewQuery(seeds, weights, refresh="read")
        engine.put_view("trust", view)
        perturbed = engine.view("trust", solve=False)
        assert sweeps == []
        # three weights of so many, in distributions that both sum to 1
        assert 1e-6 < perturbed.error_bound < 16.0 * 3.0 / len(seeds) / 0.15
        assert_within_bound(engine, view, perturbed)
        ranks = engine.view("trust")
    assert_within_bound(engine, view, ranks)
    assert ranks.error_bound <= 1e-6
    # the digits that it had are not computed again
    digits = np.log(perturbed.error_bound / 5e-7) / np.log(2.0 / 5e-7)
    assert len(sweeps) <= np.ceil((digits + 0.1) * from_nothing)


def test_a_view_starts_from_ranks_that_are_given(backend: Backend) -> None:
    """Those of this graph need no solve, those of an earlier one less; any others do no harm."""
    generator = np.random.default_rng(3)
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch(*rmat(8, 8, seed=1)))
    seeds = np.arange(0, 250, 3)
    for direction in get_args(ViewDirection):
        view = ViewQuery(seeds, None, 1e-6, direction=direction)
        engine.put_view("before", view)
        before = engine.view("before")
        start = before.to_numpy(), before.base
        solved: list[Sweep | Push] = []
        with counted(Sweep, solved), counted(Push, solved):
            engine.put_view("same", view, start)
        assert not solved
        assert_within_bound(engine, view, engine.view("same"))
        assert engine.view("same").error_bound <= 1e-6
        sources, targets = generator.integers(3, 300, (2, 30))
        removed = np.array([1, 2])  # no seeds
        engine.apply(EdgeBatch(sources, targets, remove=removed))
        nothing, negative = np.zeros(256), np.full(300, -1.0)
        few = np.zeros(256)
        few[3] = 1.0
        not_finite = np.where(negative < 0.0, np.nan, 0.0)
        for name, ranks in {
            "earlier": start[0],
            "longer": np.append(start[0], np.ones(100)),
            "nothing": nothing,
            "negative": negative,
            "few": few,
            "not finite": not_finite,
        }.items():
            engine.put_view(name, view, (ranks, start[1]))
            assert engine.view(name).error_bound <= 1e-6
            assert_within_bound(engine, view, engine.view(name))
        engine.apply(EdgeBatch.of([(1, 2), (2, 1)]))
        for name in engine.views:
            engine.remove_view(name)


def test_a_view_takes_24_bytes_a_vertex(backend: Backend) -> None:
    """y, r and the published ranks. What lists the entries to push is lent to one at a time."""
    scale = 8 if is_slow(backend) else 12
    engine = Engine(Options(target_error=1e-6), backend)
    engine.apply(EdgeBatch(*rmat(scale, 8, seed=1)))
    engine.update()
    generator = np.random.default_rng(2)
    held = []
    for index in range(4):
        seeds = generator.choice(engine.vertices, engine.vertices // 4, replace=False)
        engine.put_view(str(index), ViewQuery(seeds, direction=("forward", "reversed")[index // 2]))
        held.append(engine.memory()["personalized"])
    engine.apply(EdgeBatch(*generator.integers(0, engine.vertices, (2, 20))))
    engine.refresh_views()
    n, few = engine.vertices, 512
    assert held[1] - held[0] <= 24 * n + few
    assert held[2] - held[1] <= (24 + 4) * n + few  # with the in-degrees
    assert held[3] - held[2] <= 24 * n + few
    assert engine.memory()["personalized"] <= held[3] + 4 * few


def test_a_solve_ends_at_the_target_where_the_next_batch_passes_it_anyway(
    backend: Backend,
) -> None:
    """Else at half of it, so that batches that change little need no solve."""
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch(*rmat(8, 8, seed=1)))
    engine.update()
    target, bounds = 1e-6, list[float]()
    engine.put_view("v", ViewQuery(None, None, target))
    generator = np.random.default_rng(4)
    for _ in range(16 if backend.name == "cpu" else 8):
        engine.apply(EdgeBatch(*generator.integers(0, 256, (2, 60))))
        assert engine.view("v", solve=False).error_bound > 10.0 * target
        engine.refresh_views()
        bounds.append(engine.view("v").error_bound)
    assert target / 2 < max(bounds) <= target
    seeds, weights = np.arange(64), np.ones(64)
    engine.put_view("v", ViewQuery(seeds, weights.copy(), target))
    engine.refresh_views()
    for _ in range(4):  # each moves less than the target
        weights[:2] += 5e-6, -5e-6
        before = engine.view("v", solve=False).error_bound
        view = ViewQuery(seeds, weights.copy(), target, refresh="read")
        engine.put_view("v", view)
        after = engine.view("v", solve=False).error_bound
        assert 0.1 * target < after - before < target
        assert engine.view("v").error_bound <= (target if after <= target else target / 2)


def test_a_view_becomes_another(backend: Backend) -> None:
    """From few seeds to all vertices and back, with other targets, without a new solve."""
    engine = engine_of(FAMILIES["disconnected parts"](), backend)
    one = ViewQuery(np.array([0]), None, 1e-3)
    engine.put_view("v", one)
    for view in (
        ViewQuery(None, None, 1e-7),
        ViewQuery(np.array([3, 70]), np.array([1.0, 1e-9]), 1e-4),
        replace(one, target_error=1e-9),
        ViewQuery(None, None, 1e-5, refresh="read"),
    ):
        assert engine.change_view("v", view)
        assert_within_bound(engine, view, engine.view("v", solve=False))
        ranks = engine.view("v")
        assert_within_bound(engine, view, ranks)
        assert view.target_error is not None
        assert ranks.error_bound <= view.target_error
    other = replace(one, damping=0.4)
    assert not engine.change_view("v", other)
    engine.put_view("v", other)
    assert_within_bound(engine, other, engine.view("v"))


def test_seeds_that_were_given_before_are_known_by_their_ids(backend: Backend) -> None:
    """Not by the array, which may have changed; nor are those that repeat or have no weight."""
    engine = engine_of(FAMILIES["disconnected parts"](), backend)
    generator = np.random.default_rng(3)
    seeds = generator.permutation(60)
    for step in range(6):
        weights = generator.random(60)
        if step == 2:
            weights[7] = 0.0
        elif step == 3:
            seeds[:2] = seeds[1::-1]
        elif step == 4:
            seeds[0] = seeds[1]
        view = ViewQuery(seeds, weights, 1e-8)
        engine.put_view("v", view)
        assert_within_bound(engine, view, engine.view("v"))
        assert engine.view("v").error_bound <= 1e-8
    for removed in (seeds[5:6], seeds):  # one of them, and all
        view = ViewQuery(np.unique(seeds)[::-1].copy())
        engine.put_view("v", view)
        engine.apply(EdgeBatch(remove=removed))
        with pytest.raises(UnknownVertex, match="seeds"):
            engine.put_view("v", view)
        engine.apply(EdgeBatch(add=seeds))


def test_a_view_turns_around(backend: Backend) -> None:
    """It is solved again, and the reversed graph is kept while a view walks it, or will."""
    engine = engine_of(FAMILIES["karate club"](), backend)
    bytes_before = engine.memory()["personalized"]
    views = [
        ViewQuery(np.array([3, 8]), None, 1e-8, direction=direction)
        for direction in get_args(ViewDirection)
    ]
    for view in [*views, *views]:
        engine.put_view("v", view)
        assert engine.views == ["v"]
        assert engine.view("v").error_bound <= 1e-8
        assert_within_bound(engine, view, engine.view("v"))
    engine.remove_view("v")
    registration = engine.register("v", views[1])
    engine.step(registration)
    for batch in (EdgeBatch.of([(3, 40), (40, 8)]), EdgeBatch.of(delete=[(3, 40)])):
        engine.apply(batch)
        while not registration.done:
            engine.step(registration)
    engine.keep(registration)
    engine.close(registration)
    engine.apply(EdgeBatch.of([(8, 40), (3, 50)]))
    engine.refresh_views()
    assert_within_bound(engine, views[1], engine.view("v"))
    del registration
    engine.remove_view("v")
    assert engine.memory()["personalized"] <= bytes_before + engine.internals.queries.pool.nbytes


@pytest.mark.parametrize("weighted", [False, True])
def test_a_reversed_graph_follows_without_memory(weighted: bool) -> None:
    """It counts again, and its views are solved from nothing."""
    backend, device = looked_after(backend_named("cpu"))
    generator = np.random.default_rng(1)
    engine = Engine(Options(weighted=weighted), backend)
    engine.apply(any_batch(generator, engine, 0.0))
    view = ViewQuery(None, None, 1e-9, direction="reversed")
    engine.put_view("v", view)
    for refused in range(1, 30):  # each array that a batch takes
        batch = any_batch(generator, engine, 0.0)
        with device.without_arrays(refused), suppress(OutOfMemory):
            engine.apply(batch)
        assert_within_bound(engine, view, engine.view("v", solve=False))
        engine.apply(any_batch(generator, engine, 0.0))
        assert engine.view("v").error_bound <= 1e-9
        assert_within_bound(engine, view, engine.view("v"))
    # the first edges of a graph without any build its lists again
    engine.apply(
        EdgeBatch(delete_sources=engine.edge_list()[0], delete_targets=engine.edge_list()[1])
    )
    engine.apply(EdgeBatch.of([(v, v // 2) for v in range(70)]))
    assert_within_bound(engine, view, engine.view("v", solve=False))
    engine.apply(any_batch(generator, engine, 0.0))
    assert_within_bound(engine, view, engine.view("v", solve=False))
    assert_within_bound(engine, view, engine.view("v"))


@pytest.mark.parametrize("direction", get_args(ViewDirection))
def test_a_view_of_all_vertices_outlives_all_of_them(
    direction: ViewDirection, backend: Backend
) -> None:
    engine, view = engine_of(FAMILIES["karate club"](), backend), ViewQuery(None, None, 1e-8)
    view = replace(view, direction=direction)
    engine.put_view("v", view)
    engine.apply(EdgeBatch(remove=np.arange(engine.id_limit)))
    engine.refresh_views()
    assert (engine.view("v").count, engine.view("v").to_numpy().sum()) == (0, 0.0)
    engine.apply(EdgeBatch.of([(0, 1), (1, 2), (0, 2)]))
    engine.refresh_views()
    assert engine.view("v").error_bound <= 1e-8
    assert_within_bound(engine, view, engine.view("v"))


def test_a_batch_stands_where_a_view_within_a_set_has_no_memory_to_look_at_it() -> None:
    """What says that it does not fit has changed nothing, and what stands is followed."""
    backend, device = looked_after(backend_named("cpu"))
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of([(v, (v + 1) % 20) for v in range(20)]))
    view = ViewQuery(None, None, 1e-9, within=np.arange(10))
    engine.apply(EdgeBatch.of([(0, 15)]))  # the first one takes what is kept
    engine.put_view("v", view)
    stood = 0
    for refused in range(1, 30):  # each array that a batch takes
        before = engine.edges
        with device.without_arrays(refused), suppress(OutOfMemory):
            engine.apply(EdgeBatch.of([(refused % 10, (refused + 2 + refused // 10) % 10)]))
            stood += 1
            before = engine.edges
        assert engine.edges == before
        assert_within_bound(engine, view, engine.view("v"))
    assert stood > 10


def test_when_a_view_is_solved(backend: Backend) -> None:
    """Its bound is that of the graph as it is, whenever that is."""
    engine = engine_of(FAMILIES["karate club"](), backend)
    seeds = np.array([3, 8])
    views = {
        "batch": ViewQuery(seeds, None, 1e-8, refresh="batch"),
        "read": ViewQuery(seeds, None, 1e-8, refresh="read"),
        "later": ViewQuery(seeds, None, 1e-8, refresh=1e6),
    }
    for name, view in views.items():
        engine.put_view(name, view)
        assert engine.view(name).error_bound <= 1e-8
    assert engine.views == ["batch", "read", "later"]

    def bounds(solve: bool) -> list[bool]:
        """Which views meet their target."""
        met = []
        for name, view in views.items():
            ranks = engine.view(name, solve=solve)
            assert_within_bound(engine, view, ranks)
            met.append(ranks.error_bound <= 1e-8)
        return met

    engine.apply(EdgeBatch.of([(3, 20), (20, 33), (8, 25)]))
    assert bounds(solve=False) == [False, False, False]
    engine.refresh_views()
    assert bounds(solve=False) == [True, False, False]
    assert bounds(solve=True) == [True, True, False]
    engine.refresh_views()
    assert bounds(solve=True) == [True, True, False]
    views["later"] = ViewQuery(seeds, None, 1e-8, refresh=0.05)
    engine.put_view("later", views["later"])
    sleep(0.05)
    engine.refresh_views()
    assert bounds(solve=False) == [True, True, True]
    engine.apply(EdgeBatch.of(delete=[(3, 20)]))
    sleep(0.05)
    assert bounds(solve=True) == [True, True, True]


def test_what_was_read_stays_and_names_are_forgotten(backend: Backend) -> None:
    engine = engine_of(FAMILIES["karate club"](), backend)
    engine.put_view("mine", ViewQuery(np.array([0])))
    before = engine.view("mine")
    kept, bound = before.to_numpy(), before.error_bound
    engine.apply(EdgeBatch.of([(0, 40), (40, 1)], remove=[33]))
    after = engine.view("mine")
    assert (after.id_limit, after.count) == (41, 40)
    assert before.to_numpy().tolist() == kept.tolist()
    assert (before.error_bound, before.count) == (bound, 34)
    assert engine.memory()["personalized"] >= 8 * 41
    engine.watch("mine", PersonalizedQuery(np.array([1]), k=3))
    engine.remove_view("mine")
    assert engine.views == []
    with pytest.raises(KeyError):
        engine.view("mine")
    assert len(engine.watched("mine").vertices) == 3


def test_a_view_loses_the_seeds_that_are_removed(backend: Backend) -> None:
    engine = engine_of(FAMILIES["karate club"](), backend)
    engine.put_view("mine", ViewQuery(np.array([0, 5]), np.array([1.0, 3.0]), 1e-8))
    engine.apply(EdgeBatch.of(remove=[5]))
    assert_within_bound(engine, ViewQuery(np.array([0])), engine.view("mine"))
    assert engine.view_lost_seeds("mine")
    engine.put_view("mine", ViewQuery(np.array([0])))
    assert not engine.view_lost_seeds("mine")
    engine.apply(EdgeBatch.of(remove=[7]))
    assert not engine.view_lost_seeds("mine")
    assert engine.view("mine") is engine.view("mine")
    engine.apply(EdgeBatch.of(remove=[0]))
    with pytest.raises(UnknownVertex, match=r"seeds: 0 is not allowed"):
        engine.view("mine")
    engine.put_view("mine", ViewQuery(np.array([1])))
    assert_within_bound(engine, ViewQuery(np.array([1])), engine.view("mine"))


def test_a_first_solve_that_loses_a_seed_begins_again(backend: Backend) -> None:
    """So that its caller decides what becomes of the others."""
    engine = engine_of(FAMILIES["karate club"](), backend)
    registration = engine.register("mine", ViewQuery(np.array([0, 5])))
    engine.step(registration)
    engine.apply(EdgeBatch.of(remove=[5]))
    assert registration.lost
    with pytest.raises(UnknownVertex, match=r"seeds: 5 is not allowed"):
        engine.step(registration)
    engine.close(registration)
    assert engine.views == []


def test_what_cannot_be_a_view() -> None:
    backend, device = looked_after(backend_named("cpu"))
    engine = engine_of(FAMILIES["karate club"](), backend)
    engine.put_view("mine", ViewQuery(np.array([0])))
    before = engine.view("mine").to_numpy()
    one = np.array([1])
    for view, error in (
        (ViewQuery(np.array([34])), r"seeds\[0\]: 34 is not allowed"),
        (ViewQuery(np.array([], np.int64)), "seeds: .* at least one vertex"),
        (ViewQuery(one, np.array([0.0])), "weights: .* not all 0"),
        (ViewQuery(None, np.ones(34)), "weights: '34 weights' .* all vertices are seeds"),
        (ViewQuery(one, damping=1.0), "damping: 1.0"),
        (ViewQuery(one, target_error=0.0), "target_error: 0.0"),
        (ViewQuery(one, refresh=0), "refresh: 0 .* 'batch', 'read' or a number of seconds"),
        (ViewQuery(one, refresh=float("nan")), "refresh: nan"),
        (ViewQuery(one, refresh="hourly"), "refresh: 'hourly'"),  # type: ignore[arg-type]
        (ViewQuery(one, refresh=True), "refresh: True"),
        (ViewQuery(one, direction="in"), "direction: 'in'"),  # type: ignore[arg-type]
    ):
        with pytest.raises(InvalidValue, match=error):
            engine.put_view("mine", view)
    decaying = Engine(Options(half_life=1.0), backend_named("cpu"))
    decaying.apply(EdgeBatch(vertices=3))
    with pytest.raises(InvalidValue, match=r"direction: 'reversed' .* where weights decay"):
        decaying.put_view("mine", ViewQuery(one, direction="reversed"))
    with device.with_only(100), pytest.raises(OutOfMemory, match="the view 'large' needs"):
        engine.put_view("large", ViewQuery(one))
    assert engine.views == ["mine"]
    assert engine.view("mine").to_numpy().tolist() == before.tolist()
