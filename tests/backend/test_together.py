"""Small batches applied as one are what they are one by one."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import numpy as np
import pytest

from gpu import EdgeBatch, Engine, Options
from gpu.backends.base import Backend
from gpu.types import Dangling
from tests.graphs import Model
from tests.invariants import check_invariants

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


@pytest.mark.parametrize("dangling", POLICIES)
def test_parts_report_what_they_would_one_by_one(backend: Backend, dangling: Dangling) -> None:
    generator = np.random.default_rng(11)
    engine, model = Engine(Options(dangling=dangling), backend), Model(dangling)
    together = 0
    for _ in range(40):
        sizes = generator.integers(0, 3, (int(generator.integers(1, 12)), 2))
        known = model.vertices
        inserts = generator.integers(0, known + 6, (int(sizes[:, 0].sum()), 2))
        deletes = generator.integers(-1, known + 6, (int(sizes[:, 1].sum()), 2))
        if model.edges and len(deletes):
            deletes[0] = sorted(model.edges)[int(generator.integers(0, len(model.edges)))]
        batch = EdgeBatch(inserts[:, 0], inserts[:, 1], deletes[:, 0], deletes[:, 1])
        parts = [(int(insertions), int(deletions)) for insertions, deletions in sizes]
        edges = [tuple(edge) for edge in np.concatenate([inserts, deletes]).tolist()]
        changes = engine.apply_parts(batch, parts)
        if len(set(edges)) < len(edges):
            assert changes is None
            assert (engine.vertices, engine.edges) == (model.vertices, len(model.edges))
            continue
        assert changes is not None
        together += 1
        due = []
        inserted = deleted = 0
        for insertions, deletions in parts:
            due.append(
                model.apply(
                    EdgeBatch(
                        *inserts[inserted : inserted + insertions].T,
                        *deletes[deleted : deleted + deletions].T,
                    )
                )
            )
            inserted, deleted = inserted + insertions, deleted + deletions
        assert [replace(change, seconds=0.0) for change in changes] == due
        check_invariants(engine._graph, model)
    assert together > 20
