"""Changes of ranks against what was last told, on every backend."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options, RankReference, Ranks, ViewQuery
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import VertexOrder, ViewDirection


def _expected(ranks: NDArray[np.float64], told: NDArray[np.float64], threshold: float) -> set[int]:
    return set(np.flatnonzero(np.abs(ranks - told) > threshold * told).tolist())


@pytest.mark.any_thread_order
@pytest.mark.parametrize("threshold", [0.0, 0.05, 3.0])
@pytest.mark.parametrize("count", [1, 31, 20_000])
def test_exactly_the_changed_ranks_are_listed(
    count: int, threshold: float, backend: Backend
) -> None:
    random = np.random.default_rng(count)
    values = random.random(count)
    mass = 1.7
    earlier = values / mass
    earlier[random.random(count) < 0.5] *= 1.1
    earlier[random.random(count) < 0.2] *= 0.2
    earlier[random.random(count) < 0.1] = 0.0
    expected = _expected(values / mass, earlier, threshold)
    on_device = [backend.device.to_device(array) for array in (values, earlier)]
    for capacity in (count, 3):
        found, listed = backend.select.list_changed(
            on_device[0], mass, on_device[1], threshold, capacity
        )
        positions = backend.device.to_host(listed).tolist()
        assert found == len(expected)
        assert len(positions) == len(set(positions)) == min(found, capacity)
        assert set(positions) <= expected


def test_what_is_no_vertex_does_not_change(backend: Backend) -> None:
    values = np.arange(1.0, 1001.0)
    earlier = np.arange(1.0, 1001.0)
    values[[3, 500, 999]] = -np.inf
    earlier[[3, 500, 700]] = 0.0
    on_device = [backend.device.to_device(array) for array in (values, earlier)]
    found, listed = backend.select.list_changed(on_device[0], 1.0, on_device[1], 0.0, 10)
    assert (found, backend.device.to_host(listed).tolist()) == (1, [700])


def _followed(backend: Backend, order: VertexOrder = "auto") -> tuple[Engine, np.random.Generator]:
    engine = Engine(Options(vertex_order=order), backend)
    return engine, np.random.default_rng(7)


def _apply(
    engine: Engine, random: np.random.Generator, edges: int, vertices: int, others: int = 0
) -> Ranks:
    sources, targets = random.integers(0, vertices, (2, edges))
    engine.apply(EdgeBatch(sources, targets, vertices=vertices + others))
    engine.update()
    return engine.publish()


MANY = 1 << 16
"""Changes of more vertices are selected on the device."""


@pytest.mark.parametrize("others", [0, MANY])
@pytest.mark.parametrize("order", ["auto", "degree"])
def test_changes_follow_the_order_and_the_growth_of_the_graph(
    order: VertexOrder, others: int, backend: Backend
) -> None:
    engine, random = _followed(backend, order)
    engine.update()
    reference = RankReference(engine.publish())  # of a graph without vertices
    # a rank that changes by less than the threshold, and by more than whole others
    engine.apply(EdgeBatch.of([(v, 299) for v in range(299)]))
    told = np.zeros(0)
    threshold = 0.05
    for vertices in (300, 300, 320, 500, 500):
        ranks = _apply(engine, random, 200, vertices, others)
        current = ranks.to_numpy()
        told = np.append(told, np.zeros(len(current) - len(told)))
        told[engine.free_ids()] = 0.0
        expected = _expected(current, told, threshold)
        none = reference.changes(ranks, threshold, 0)
        assert (none.found, len(none.ids), len(none.values)) == (len(expected), 0, 0)
        changes = reference.changes(ranks, threshold, 40)
        assert changes.found == len(expected) > others
        assert len(changes.ids) == min(40, changes.found)
        assert set(changes.ids.tolist()) <= expected
        assert changes.values.tolist() == current[changes.ids].tolist()
        differences = np.abs(current - told)
        told_now = differences[changes.ids]
        assert (np.diff(told_now) <= 0).all()
        rest = sorted(expected - set(changes.ids.tolist()))
        assert differences[rest].max(initial=0.0) <= told_now.min()
        reference.tell(ranks, changes.ids)
        told[changes.ids] = current[changes.ids]
        everything = np.arange(len(current))
        assert reference.of(everything).tolist() == told.tolist()
        engine.apply(EdgeBatch.of(remove=changes.ids[-1:].tolist()))


@pytest.mark.parametrize("direction", ["forward", "reversed"])
@pytest.mark.parametrize("order", ["auto", "degree"])
def test_changes_of_a_view_follow_the_order_and_the_growth_of_the_graph(
    order: VertexOrder, direction: ViewDirection, backend: Backend
) -> None:
    engine, random = _followed(backend, order)
    _apply(engine, random, 200, 100)
    engine.put_view("mine", ViewQuery(np.arange(5), None, 1e-9, direction=direction))
    ranks = engine.view("mine")
    reference, told = RankReference(ranks), ranks.to_numpy()
    for vertices in (100, 130, 300):
        _apply(engine, random, 100, vertices)
        engine.refresh_views()
        ranks = engine.view("mine")
        current = ranks.to_numpy()
        told = np.append(told, np.zeros(len(current) - len(told)))
        changes = reference.changes(ranks, 0.05, len(current))
        assert set(changes.ids.tolist()) == _expected(current, told, 0.05) != set()
        reference.tell(ranks, changes.ids)
        told[changes.ids] = current[changes.ids]
        assert reference.of(np.arange(len(current))).tolist() == told.tolist()


def test_removed_vertices_change_nothing_and_return_as_new_ones(backend: Backend) -> None:
    engine = Engine(Options(target_error=1e-10), backend)
    engine.apply(EdgeBatch.of(insert=[(v, (v + 1) % 10) for v in range(10)]))
    engine.update()
    reference = RankReference(engine.publish())
    engine.apply(EdgeBatch.of(remove=[3]))
    engine.update()
    ranks = engine.publish()
    changes = reference.changes(ranks, 0.01, 20)
    assert 3 not in changes.ids.tolist()
    assert changes.found == len(changes.ids) == 9
    reference.tell(ranks, changes.ids)
    assert reference.changes(ranks, 0.01, 20).found == 0
    engine.apply(EdgeBatch.of(insert=[(2, 3), (3, 4)]))
    engine.update()
    assert 3 in reference.changes(engine.publish(), 0.01, 20).ids.tolist()


@pytest.mark.parametrize("order", ["given", "degree"])
def test_an_id_that_is_used_again_before_the_next_ranks_is_a_new_vertex(
    order: VertexOrder, backend: Backend
) -> None:
    engine = Engine(Options(target_error=1e-10, vertex_order=order), backend)
    edges = [(v, (v + 1) % 10) for v in range(10)] + [(v, 7) for v in range(6)]
    engine.apply(EdgeBatch.of(insert=edges))
    engine.update()
    reference = RankReference(engine.publish())
    # the new vertex 3 has the edges, and so the rank, of the old one
    engine.apply(EdgeBatch.of(insert=[edge for edge in edges if 3 in edge], remove=[3]))
    engine.update()
    ranks = engine.publish()
    assert reference.changes(ranks, 0.01, 20).found == 0
    others = np.array([v for v in range(10) if v != 3])
    before = reference.of(others).tolist()
    reference.forget(np.array([3, 12]))
    assert reference.of(np.array([3])).tolist() == [0.0]
    assert reference.of(others).tolist() == before
    assert reference.changes(ranks, 0.01, 20).ids.tolist() == [3]
