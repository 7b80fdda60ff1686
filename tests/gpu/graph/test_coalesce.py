"""Small batches applied as one have the effect that they have one by one."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from itertools import count
from typing import get_args

import numpy as np
import pytest

from liverank_gpu import Change, EdgeBatch, Engine, Options, OutOfMemory, PersonalizedQuery
from liverank_gpu.operations.backend import Backend
from liverank_gpu.types import Dangling, OnConflict
from tests.gpu.doubles import looked_after
from tests.gpu.graphs import model_of, some_weights
from tests.gpu.invariants import check_invariants

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dangling", POLICIES)
def test_parts_report_what_they_would_one_by_one(
    backend: Backend, dangling: Dangling, directed: bool, weighted: bool
) -> None:
    generator = np.random.default_rng(11)
    options = Options(
        dangling=dangling, vertex_order="degree", directed=directed, weighted=weighted
    )
    engine, model = Engine(options, backend), model_of(options)
    first = EdgeBatch.of(insert=[(v, 5) for v in range(6)])
    engine.apply(first)
    model.apply(first)
    assert engine.internals.graph.permutation.ids.tolist()[0] == 5
    coalesced = 0
    for step in range(40):
        gone = EdgeBatch(remove=generator.integers(0, model.vertices, 3 if step % 4 == 0 else 0))
        engine.apply(gone)
        model.apply(gone)
        sizes = generator.integers(0, 3, (int(generator.integers(1, 12)), 2))
        known = model.vertices
        inserts = generator.integers(0, known + 6, (int(sizes[:, 0].sum()), 2))
        deletes = generator.integers(-1, known + 6, (int(sizes[:, 1].sum()), 2))
        if model.edges and len(deletes):
            deletes[0] = sorted(model.edges)[int(generator.integers(0, len(model.edges)))]
        weights = some_weights(generator, len(inserts)) if weighted else None
        adds: OnConflict = "add" if weighted and step % 2 else "replace"
        if weighted and len(inserts) and model.edges and step % 3 == 0:  # one that is there
            inserts[0] = sorted(model.edges)[int(generator.integers(0, len(model.edges)))]
        ends = (inserts[:, 0], inserts[:, 1], deletes[:, 0], deletes[:, 1])
        batch = EdgeBatch(*ends, weights=weights, on_conflict=adds)
        parts = [(int(insertions), int(deletions)) for insertions, deletions in sizes]
        edges = model.pairs(*np.concatenate([inserts, deletes]).T)
        changes = engine.apply_coalesced(batch, parts)
        if len(set(edges)) < len(edges) or not model.edges:
            assert changes is None
            assert (engine.id_limit, engine.edges) == (model.vertices, len(model.edges))
            continue
        assert changes is not None
        coalesced += 1
        expected = []
        inserted = deleted = 0
        for insertions, deletions in parts:
            own = slice(inserted, inserted + insertions)
            away = slice(deleted, deleted + deletions)
            part = EdgeBatch(
                *(ends[0][own], ends[1][own], ends[2][away], ends[3][away]),
                weights=None if weights is None else weights[own],
                on_conflict=adds,
            )
            expected.append(model.apply(part))
            inserted, deleted = inserted + insertions, deleted + deletions
        assert [replace(change, seconds=0.0) for change in changes] == expected
        check_invariants(engine.internals.graph, model)
    assert coalesced > (10 if weighted else 20)


def test_a_part_is_not_told_of_an_edge_whose_ids_it_has_in_lower_bits(backend: Backend) -> None:
    engine = Engine(Options(directed=False), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2), (2, 3)]))
    batch = EdgeBatch.of(delete=[(1, 2), (1 + (1 << 32), 2)])
    changes = engine.apply_coalesced(batch, [(0, 1), (0, 1)])
    assert changes is not None
    assert [(change.deleted, change.not_found) for change in changes] == [(1, 0), (0, 1)]


def test_the_first_edges_of_a_graph_are_not_coalesced(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    batch = EdgeBatch.of(insert=[(0, 1), (1, 2)])
    assert engine.apply_coalesced(batch, [(1, 0), (1, 0)]) is None
    assert (engine.vertices, engine.edges) == (0, 0)
    assert engine.apply(batch).inserted == 2


def test_parts_that_do_not_fit_change_nothing(backend: Backend) -> None:
    backend, device = looked_after(backend)
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1)]))
    with device.with_only(1), pytest.raises(OutOfMemory):
        engine.apply_coalesced(EdgeBatch.of(insert=[(1, 2), (2, 3)]), [(1, 0), (1, 0)])
    assert (engine.vertices, engine.edges) == (2, 1)


def _columns(engine: Engine) -> list[list[float]]:
    sources, targets = engine.edge_list()
    return [sources.tolist(), targets.tolist(), engine.edge_weights().tolist()]


@pytest.mark.parametrize("directed", [True, False])
def test_each_array_that_is_refused_leaves_all_parts_or_none(
    backend: Backend, directed: bool
) -> None:
    backend, device = looked_after(backend)
    options = Options(vertex_order="degree", weighted=True, directed=directed)
    batch = EdgeBatch.of(insert=[(3, 6, 1.0), (4, 5, 3.0), (2, 5, 2.0)], delete=[(-1, 5), (0, 5)])
    for refused in count(1):
        engine = Engine(options, backend)
        engine.apply(EdgeBatch.of(insert=[(v, 5, 2.0) for v in range(6)]))
        before = _columns(engine)
        changes = None
        with device.without_arrays(refused) as arrays, suppress(OutOfMemory):
            changes = engine.apply_coalesced(batch, [(1, 1), (2, 1)])
        if changes is None:
            assert _columns(engine) == before
            continue
        counted = [replace(change, seconds=0.0) for change in changes]
        assert counted == [
            Change(1, 0, 0, 1, new_vertices=1, seconds=0.0),
            Change(0, 1, 1, 0, new_vertices=0, seconds=0.0, reweighted=1),
        ]
        if arrays.left > 0:
            break
    assert refused > 20


def test_batches_whose_edges_expire_are_not_coalesced(backend: Backend) -> None:
    engine = Engine(Options(half_life=1.0), backend)
    engine.apply(EdgeBatch(np.array([0, 0]), np.array([1, 2]), times=np.zeros(2)))
    # the second part makes the first one too old, and what was there
    batch = EdgeBatch(np.array([0, 0]), np.array([3, 4]), times=np.array([0.0, 500.0]))
    assert engine.apply_coalesced(batch, [(1, 0), (1, 0)]) is None
    assert engine.edges == 2


def test_queries_follow_coalesced_batches(backend: Backend) -> None:
    engine = Engine(Options(vertex_order="degree"), backend)
    engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2), (2, 0), (3, 2), (4, 2)]))
    engine.watch("from 0", PersonalizedQuery(np.array([0]), k=6))
    job = engine.submit([PersonalizedQuery(np.array([0]), k=6)])
    parts = EdgeBatch.of(insert=[(0, 3), (2, 5)], delete=[(1, 2)])
    assert engine.apply_coalesced(parts, [(1, 1), (1, 0)]) is not None
    while not job.done:
        job.step()
    (answer,) = job.answers()
    engine.close(job)
    engine.refresh_watched()
    again = Engine(engine.options, backend)
    again.apply(EdgeBatch(*engine.edge_list()))
    fresh = again.personalized(np.array([0]), k=6, target_error=1e-9)
    for followed in (answer, engine.watched("from 0")):
        ranks = dict(zip(followed.vertices.tolist(), followed.ranks.tolist(), strict=True))
        expected = dict(zip(fresh.vertices.tolist(), fresh.ranks.tolist(), strict=True))
        distance = sum(abs(ranks.get(v, 0.0) - expected.get(v, 0.0)) for v in ranks | expected)
        assert distance <= followed.error_bound + fresh.error_bound
