"""The stream in which vertices arrive and leave."""

from __future__ import annotations

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate import temporal_stream

SHAPE = {"arrivals": 20, "edges_per_vertex": 3, "batches": 60}


def stream(seed: int = 1, lifetime: float = 6.0) -> list[EdgeBatch]:
    return list(temporal_stream(**SHAPE, lifetime=lifetime, seed=seed))


def pairs(sources: NDArray[np.int64], targets: NDArray[np.int64]) -> list[tuple[int, int]]:
    return list(zip(sources.tolist(), targets.tolist(), strict=True))


def test_edges_are_inserted_once_and_deleted_once_after_that() -> None:
    present: set[tuple[int, int]] = set()
    ever: set[tuple[int, int]] = set()
    for batch in stream():
        deleted = pairs(batch.delete_sources, batch.delete_targets)
        assert len(set(deleted)) == len(deleted)
        assert set(deleted) <= present
        present -= set(deleted)
        inserted = pairs(batch.insert_sources, batch.insert_targets)
        assert len(set(inserted)) == len(inserted)
        assert not set(inserted) & ever
        present |= set(inserted)
        ever |= set(inserted)
    assert len(present) < len(ever) / 2


def test_a_vertex_that_leaves_loses_all_its_edges_at_once_and_gets_no_more() -> None:
    present: dict[int, set[tuple[int, int]]] = {}
    left: set[int] = set()
    for number, batch in enumerate(stream()):
        deleted = pairs(batch.delete_sources, batch.delete_targets)
        for edge in deleted:
            for end in edge:
                present[end].discard(edge)
        for edge in deleted:
            gone = [end for end in edge if not present[end]]
            assert gone
            if len(gone) == 1:  # else either end may be the one that left
                left.add(gone[0])
        for edge in pairs(batch.insert_sources, batch.insert_targets):
            assert edge[0] // 20 == number
            assert edge[1] // 20 < number
            assert not left & set(edge)
            for end in edge:
                present.setdefault(end, set()).add(edge)
    assert len(left) > 100


def test_vertices_live_as_long_as_they_should() -> None:
    # with a lifetime of one batch nobody is alive when the next one begins
    assert sum(batch.operations for batch in stream(lifetime=1.0)) == 0
    batches = list(
        temporal_stream(arrivals=500, edges_per_vertex=2, lifetime=8.0, batches=100, seed=2)
    )
    targets = [len(np.unique(batch.insert_targets)) for batch in batches[50:]]
    # about 500 · 7 are alive after those of the batch itself have left; 1,000 draws hit
    # 3,500 · (1 - exp(-1000/3500)) of them
    assert np.mean(targets) == pytest.approx(3500 * (1 - np.exp(-1000 / 3500)), rel=0.03)


def test_a_seed_gives_one_stream() -> None:
    def ends(seed: int) -> list[list[int]]:
        return [
            [*batch.insert_targets.tolist(), *batch.delete_sources.tolist()]
            for batch in stream(seed)
        ]

    assert ends(3) == ends(3)
    assert ends(3) != ends(4)


def test_an_engine_follows_the_stream() -> None:
    engine = Engine(Options(target_error=1e-8), "cpu")
    for batch in stream():
        change = engine.apply(batch)
        assert change.already_present == change.not_found == 0
        assert change.new_vertices == 20
    engine.update()
    engine.publish()
    assert engine.vertices == 1200


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"arrivals": 0}, "arrivals: 0 is not allowed; it must be an integer from 1 to 2147483647"),
        (
            {"arrivals": 2**30, "batches": 4},
            "arrivals · batches: 4294967296 is not allowed;"
            " it must be an integer from 1 to 2147483647",
        ),
        ({"lifetime": 0.9}, "lifetime: 0.9 is not allowed; it must be a number of at least 1"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        temporal_stream(**{**SHAPE, "lifetime": 2.0, **options})  # type: ignore[arg-type]
    assert str(refusal.value) == message
