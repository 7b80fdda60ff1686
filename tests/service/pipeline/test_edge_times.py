"""The times of edges against a dictionary, and the memory that they take."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from liverank_gpu import kernels
from liverank_service.pipeline import window
from liverank_service.pipeline.window import EdgeTimes, Ids

VERTICES = 12

_id = st.integers(0, VERTICES - 1)
_edges = st.lists(st.tuples(_id, _id), max_size=12)
_times = st.one_of(st.integers(-5, 5).map(float), st.floats(-1e12, 1e12))
_insert = st.tuples(st.just("insert"), st.lists(st.tuples(_id, _id, _times), max_size=12))
_delete = st.tuples(st.just("delete"), _edges)
_remove = st.tuples(st.just("remove"), st.lists(_id, max_size=3))
_others: st.SearchStrategy[tuple[str, list[Any]]] = st.sampled_from(
    [("restore", []), ("expire", [])]
)


def ids(pairs: list[tuple[int, int]]) -> tuple[Ids, Ids]:
    columns = np.array(pairs, np.int64).reshape(-1, 2)
    return columns[:, 0], columns[:, 1]


def expired(times: EdgeTimes, cutoff: float) -> list[tuple[int, int]]:
    sources, targets = times.expired(cutoff)
    return list(zip(sources.tolist(), targets.tolist(), strict=True))


@pytest.mark.parametrize("directed", [True, False])
@settings(max_examples=150, deadline=None)
@given(steps=st.lists(st.one_of(_insert, _delete, _remove, _others), max_size=30), cutoff=_times)
def test_they_are_those_of_a_dictionary(
    directed: bool, steps: list[tuple[str, list[Any]]], cutoff: float
) -> None:
    def edge(source: int, target: int) -> tuple[int, int]:
        return (source, target) if directed else (min(source, target), max(source, target))

    times, model = EdgeTimes(directed), dict[tuple[int, int], float]()
    newest: float | None = None
    for kind, rows in steps:
        if kind == "insert":
            columns = ids([row[:2] for row in rows])
            times.reserve(len(rows))
            times.insert(*columns, np.array([row[2] for row in rows], np.float64))
            model |= {edge(*row[:2]): row[2] for row in rows}
            sent = (
                [row[2] for row in rows] if newest is None else [newest, *(row[2] for row in rows)]
            )
            newest = max(sent, default=None)
        elif kind == "delete":
            times.delete(*ids([*rows, (-1, 3), (3, -1)]))
            for row in rows:
                model.pop(edge(*row), None)
        elif kind == "remove":
            times.remove(np.array(rows, np.int64))
            model = {one: at for one, at in model.items() if not set(one) & set(rows)}
        elif kind == "expire":
            gone = expired(times, cutoff)
            times.delete(*ids(gone))
            model = {one: at for one, at in model.items() if one not in gone}
        else:
            again = EdgeTimes(directed)
            again.restore(times.capture().arrays(), times.newest)
            times = again
        assert len(times) == len(model)
        assert times.earliest == min(model.values(), default=None)
        assert times.newest == newest
        for limit in (cutoff, np.inf, -np.inf):
            old = sorted(one for one, time in model.items() if time < limit)
            assert expired(times, limit) == old


def test_many_edges_with_many_repeats_and_deletions() -> None:
    random = np.random.default_rng(4)
    times, model = EdgeTimes(True), dict[tuple[int, int], float]()
    for step in range(200):
        sources, targets = random.integers(0, 200, (2, 300))
        sent = random.integers(step, step + 50, 300).astype(np.float64)
        times.insert(sources, targets, sent)
        model |= dict(zip(zip(sources.tolist(), targets.tolist(), strict=True), sent, strict=True))
        gone = sorted(random.choice(sorted(model), 40).tolist())
        times.delete(*ids(gone))
        for source, target in gone:
            model.pop((source, target), None)
        cutoff = float(step) - 20
        old = sorted(edge for edge, time in model.items() if time < cutoff)
        assert expired(times, cutoff) == old
        times.delete(*ids(old))
        for edge in old:
            del model[edge]
    assert len(times) == len(model) > 1000


def test_ids_at_the_ends_of_their_range_are_kept_apart() -> None:
    last = 2**31 - 2
    corners = [(0, 0), (0, last), (last, 0), (last, last)]
    times = EdgeTimes(True)
    times.insert(*ids(corners), np.arange(4.0))
    assert expired(times, 10.0) == sorted(corners)
    times.delete(*ids(corners[:1]))
    assert expired(times, 10.0) == sorted(corners[1:])


def test_an_edge_that_is_sent_again_has_its_last_time_even_if_that_is_earlier() -> None:
    times = EdgeTimes(True)
    times.insert(*ids([(1, 2), (1, 2)]), np.array([9.0, 4.0]))
    assert times.earliest == 4.0
    assert expired(times, 5.0) == [(1, 2)]
    assert times.newest == 9.0


def test_what_is_expired_stays_until_it_is_deleted() -> None:
    times = EdgeTimes(True)
    times.insert(*ids([(1, 2), (3, 4)]), np.array([1.0, 5.0]))
    assert expired(times, 2.0) == expired(times, 2.0) == [(1, 2)]
    assert expired(times, 1.0) == []


@pytest.mark.parametrize("renewed", [False, True])
def test_memory_does_not_grow_with_the_number_of_insertions(renewed: bool) -> None:
    """A window of 20,000 edges through 40 windows; renewed: the same edges again and again."""
    window, batch = 20_000, 1_000
    times = EdgeTimes(True)
    sizes = []
    for step in range(40 * window // batch):
        first = step * batch % window if renewed else step * batch
        numbers = np.arange(first, first + batch)
        sources, targets = numbers % 50_021, numbers * 7 % 50_021
        times.reserve(batch)
        times.insert(sources, targets, np.full(batch, float(step)))
        old = times.expired(step + 1 - window / batch)
        times.reserve(0)
        times.delete(*old)
        sizes.append(times.nbytes)
    assert len(times) == window
    after_three = sizes[3 * window // batch]
    assert max(sizes[3 * window // batch :]) == after_three
    assert after_three < 100 * window


def test_memory_is_released_when_edges_leave() -> None:
    times = EdgeTimes(True)
    numbers = np.arange(200_000)
    times.insert(numbers, numbers, numbers.astype(np.float64))
    full = times.nbytes
    times.delete(numbers[100:], numbers[100:])
    times.reserve(0)
    assert times.nbytes < full / 50
    assert expired(times, np.inf) == [(n, n) for n in range(100)]
    times.delete(numbers, numbers)
    times.reserve(0)
    assert times.nbytes == EdgeTimes(True).nbytes
    assert times.earliest is None


def test_a_reservation_is_enough_for_its_insertions(monkeypatch: pytest.MonkeyPatch) -> None:
    times = EdgeTimes(True)
    numbers = np.arange(100_000)
    times.reserve(len(numbers))
    monkeypatch.setattr(EdgeTimes, "reserve", lambda *_: pytest.fail("memory is allocated"))
    times.insert(numbers, numbers, numbers.astype(np.float64))
    assert len(times) == len(numbers)


def test_memory_that_is_refused_leaves_the_times_unchanged(monkeypatch: pytest.MonkeyPatch) -> None:
    times = EdgeTimes(True)
    times.insert(*ids([(1, 2)]), np.array([3.0]))

    def refuse(*_: object) -> int:
        raise MemoryError

    monkeypatch.setattr(window, "kernels", SimpleNamespace(**vars(kernels) | {"heapify": refuse}))
    with pytest.raises(MemoryError):
        times.reserve(100_000)
    assert (len(times), times.earliest, expired(times, 4.0)) == (1, 3.0, [(1, 2)])
