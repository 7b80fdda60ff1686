"""Generated graphs and update streams: the same for a seed, and of the shape they promise."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate import RMAT_PROBABILITIES, grid, rmat, update_stream
from liverank_gpu.native import kernels


@pytest.fixture
def all_threads() -> Iterator[None]:
    """All threads of the machine stand again after the test."""
    yield
    kernels.set_threads(0)


def pairs(edges: tuple[NDArray[np.int64], NDArray[np.int64]]) -> set[tuple[int, int]]:
    return set(zip(edges[0].tolist(), edges[1].tolist(), strict=True))


@pytest.mark.usefixtures("all_threads")
def test_rmat_is_the_same_on_one_thread_and_on_all() -> None:
    kernels.set_threads(1)
    alone = rmat(10, 8, seed=5)
    kernels.set_threads(0)
    together = rmat(10, 8, seed=5)
    assert np.array_equal(alone[0], together[0])
    assert np.array_equal(alone[1], together[1])


def test_rmat_of_a_seed_never_changes() -> None:
    """Benchmarks name graphs by their seed: these edges are a promise."""
    sources, targets = rmat(10, 8, seed=5)
    assert list(zip(sources[:4].tolist(), targets[:4].tolist(), strict=True)) == [
        (390, 244),
        (985, 680),
        (116, 239),
        (691, 214),
    ]
    assert (int(sources.sum()), int(targets.sum())) == (4_261_505, 4_304_982)


def test_rmat_differs_between_seeds() -> None:
    assert not np.array_equal(rmat(10, 8, seed=5)[0], rmat(10, 8, seed=6)[0])
    assert not np.array_equal(rmat(10, 8, seed=0)[0], rmat(10, 8, seed=2**64 - 1)[0])


def test_rmat_has_the_promised_size_and_ids() -> None:
    sources, targets = rmat(9, 7, seed=1)
    assert sources.dtype == targets.dtype == np.int64
    assert len(sources) == len(targets) == 7 * 2**9
    assert min(sources.min(), targets.min()) >= 0
    assert max(sources.max(), targets.max()) < 2**9


@pytest.mark.parametrize("level", [0, 4, 11])
def test_rmat_fills_the_quarters_of_every_level_by_graph500(level: int) -> None:
    sources, targets = rmat(12, 64, seed=2, shuffle=False)
    quarters = ((sources >> level) & 1) * 2 + ((targets >> level) & 1)
    shares = np.bincount(quarters, minlength=4) / len(quarters)
    # 262,144 draws: four standard deviations of a share are below 0.004.
    assert shares == pytest.approx(RMAT_PROBABILITIES, abs=0.004)


def test_rmat_degrees_are_skewed_both_ways() -> None:
    for ends in rmat(14, 16, seed=3):
        degrees = np.sort(np.bincount(ends, minlength=2**14))[::-1]
        assert degrees[0] > 200 * degrees.mean()
        assert degrees[: 2**14 // 100].sum() > 0.2 * degrees.sum()
        assert np.median(degrees) < degrees.mean() / 2


def test_shuffling_renames_vertices_and_nothing_else() -> None:
    plain, shuffled = rmat(10, 8, seed=4, shuffle=False), rmat(10, 8, seed=4)
    names: dict[int, int] = {}
    for before, after in zip(np.concatenate(plain), np.concatenate(shuffled), strict=True):
        assert names.setdefault(int(before), int(after)) == after
    assert len(set(names.values())) == len(names)
    assert np.bincount(plain[1]).argmax() == 0
    assert np.bincount(shuffled[1]).argmax() != 0


def test_a_grid_joins_each_vertex_to_its_neighbours_both_ways() -> None:
    edges = grid(3, 4)
    expected = {
        (row * 4 + column, (row + down) * 4 + column + right)
        for row in range(3)
        for column in range(4)
        for down, right in ((0, 1), (0, -1), (1, 0), (-1, 0))
        if 0 <= row + down < 3 and 0 <= column + right < 4
    }
    assert len(edges[0]) == len(expected) == 34
    assert pairs(edges) == expected


@pytest.mark.usefixtures("all_threads")
def test_a_thinned_grid_keeps_the_share_and_both_directions() -> None:
    edges = grid(200, 300, keep=0.7, seed=9)
    joints = 200 * 299 + 199 * 300
    assert len(edges[0]) / 2 / joints == pytest.approx(0.7, abs=0.01)
    present = pairs(edges)
    assert present < pairs(grid(200, 300))
    assert {(target, source) for source, target in present} == present
    kernels.set_threads(1)
    assert np.array_equal(grid(200, 300, keep=0.7, seed=9)[0], edges[0])
    kernels.set_threads(0)
    assert not np.array_equal(grid(200, 300, keep=0.7, seed=10)[0], edges[0])


def test_a_grid_of_one_vertex_has_no_edges() -> None:
    assert [len(ends) for ends in grid(1, 1)] == [0, 0]


def test_an_update_stream_inserts_80_and_deletes_20_percent_of_what_exists() -> None:
    sources, targets = rmat(8, 8, seed=1)
    present = pairs((sources, targets))
    batches = list(update_stream(sources, targets, 2**8, size=50, batches=20, seed=7))
    assert len(batches) == 20
    for batch in batches:
        deleted = pairs((batch.delete_sources, batch.delete_targets))
        assert len(batch.insert_sources) == 40
        assert len(batch.delete_sources) == len(deleted) == 10
        assert deleted <= present
        present = (present - deleted) | pairs((batch.insert_sources, batch.insert_targets))
        assert max(batch.insert_sources.max(), batch.insert_targets.max()) < 2**8


def test_deletions_choose_each_edge_and_insertions_each_vertex_with_equal_probability() -> None:
    sources, targets = np.arange(100), (np.arange(100) + 1) % 100
    deleted, inserted = np.zeros(100), np.zeros(100)
    for seed in range(200):
        (batch,) = update_stream(sources, targets, 100, size=100, batches=1, seed=seed)
        deleted += np.bincount(batch.delete_sources, minlength=100)
        inserted += np.bincount(batch.insert_targets, minlength=100)
    # Binomial with mean 40 (deviation 5.7) and Poisson-like with mean 160 (12.6): five deviations.
    assert np.all(np.abs(deleted - 40) < 29)
    assert np.all(np.abs(inserted - 160) < 64)


def test_an_update_stream_is_the_same_for_a_seed() -> None:
    def stream(seed: int) -> list[list[int]]:
        sources, targets = grid(10, 10)
        batches = update_stream(sources, targets, 100, size=10, batches=5, seed=seed)
        return [
            [*batch.insert_sources.tolist(), *batch.delete_targets.tolist()] for batch in batches
        ]

    assert stream(3) == stream(3)
    assert stream(3) != stream(4)


def test_an_update_stream_ends_with_its_arrivals() -> None:
    sources, targets = grid(5, 5)
    arrivals = np.arange(25), np.arange(25)[::-1]
    batches = list(update_stream(sources, targets, 25, size=10, batches=9, arrivals=arrivals))
    assert [batch.insert_sources.tolist() for batch in batches] == [
        list(range(start, start + 8)) for start in (0, 8, 16)
    ]


def test_an_update_stream_of_an_empty_graph_deletes_nothing_at_first() -> None:
    nothing = np.empty(0, np.int64)
    first, second = update_stream(nothing, nothing, 1000, size=10, batches=2)
    assert (len(first.insert_sources), len(first.delete_sources)) == (8, 0)
    assert (len(second.insert_sources), len(second.delete_sources)) == (8, 2)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: rmat(0), "scale: 0 is not allowed; it must be an integer from 1 to 30"),
        (lambda: rmat(31), "scale: 31 is not allowed; it must be an integer from 1 to 30"),
        (
            lambda: rmat(4, 0),
            "edges_per_vertex: 0 is not allowed; it must be an integer of at least 1",
        ),
        (lambda: grid(0, 3), "rows: 0 is not allowed; it must be an integer of at least 1"),
        (lambda: grid(3, 0), "columns: 0 is not allowed; it must be an integer of at least 1"),
        (
            lambda: grid(2**16, 2**16),
            "rows · columns: 4294967296 is not allowed; it must be at most 2147483647",
        ),
        (
            lambda: grid(3, 3, keep=0.0),
            "keep: 0.0 is not allowed; it must be a number above 0 and at most 1",
        ),
        (
            lambda: next(update_stream(*grid(2, 2), 4, size=0, batches=1)),
            "size: 0 is not allowed; it must be an integer of at least 1",
        ),
        (
            lambda: next(update_stream(*grid(1, 1), 0, size=1, batches=1)),
            "vertices: 0 is not allowed; it must be an integer of at least 1",
        ),
    ],
)
def test_bad_arguments_are_named(call: object, message: str) -> None:
    assert callable(call)
    with pytest.raises(InvalidValue) as refusal:
        call()
    assert str(refusal.value) == message
