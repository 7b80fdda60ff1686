"""The cache of top places of a view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import liverank_service.queries.view
from liverank_gpu import EdgeBatch, Engine, Ranks
from liverank_service.queries.view import View
from liverank_service.vertex_keys import VertexTable


@pytest.fixture
def walks(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """The (count, offset) of each pass over all ranks; a view caches 4 to 16 places here."""
    monkeypatch.setattr(liverank_service.queries.view, "CACHED_PLACES", (4, 16))
    seen: list[tuple[int, int]] = []
    original = Ranks.top

    def top(self: Ranks, k: int, offset: int = 0) -> Any:
        seen.append((k, offset))
        return original(self, k, offset)

    monkeypatch.setattr(Ranks, "top", top)
    return seen


@pytest.fixture
def view() -> View:
    """A path 0 → 1 → … → 29, whose ranks rise along it; the keys are the ids plus 100."""
    engine = Engine(backend="cpu")
    engine.apply(EdgeBatch.of(insert=[(i, i + 1) for i in range(29)]))
    result = engine.update()
    keys = VertexTable("integer")
    keys.assign(pa.array(range(100, 130), pa.int64()))
    return View("test", 1, 1, result.error_bound, 30, 29, {}, engine.publish(), keys.state)


def test_small_asks_walk_once(view: View, walks: list[tuple[int, int]]) -> None:
    assert not view.top_is_known(1, 0)
    assert view.top(1).vertices.to_pylist() == [129]
    assert view.top_is_known(3, 0)
    assert view.top(1, 2).vertices.to_pylist() == [127]
    assert walks == [(4, 0)]


def test_paging_doubles_what_is_kept(view: View, walks: list[tuple[int, int]]) -> None:
    pages = [
        vertex for offset in range(0, 14, 2) for vertex in view.top(2, offset).vertices.to_pylist()
    ]
    assert pages == list(range(129, 115, -1))
    assert walks == [(4, 0), (8, 0), (16, 0)]


def test_deep_asks_are_answered_but_not_kept(view: View, walks: list[tuple[int, int]]) -> None:
    places = view.top(20, 15)
    assert places.vertices.to_pylist() == list(range(114, 99, -1))
    assert (np.diff(places.ranks) <= 0).all()
    assert not view.top_is_known(20, 15)
    assert walks == [(22, 14)]
    for offset in (30, 99):
        beyond = view.top(5, offset)
        assert (len(beyond.vertices), len(beyond.ranks), beyond.settled_set) == (0, 0, True)
        assert (beyond.settled, beyond.groups, beyond.ties) == (0, [], [])


def test_keys_that_came_after_the_view_are_unknown(view: View) -> None:
    view.keys._table.assign(pa.array([500], pa.int64()))
    keys = pa.array([129, 500, 7], pa.int64())
    assert view.ids(keys).tolist() == [29, -1, -1]
    first, *others = view.ranks_of(keys)
    assert first == pytest.approx(float(np.max(view.ranks.to_numpy())))
    assert np.isnan(others).all()
    assert view.rank(129) == first
    assert view.rank(500) is None
