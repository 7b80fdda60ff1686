"""Chain-like graphs: long paths with few branches, the same on every backend."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate import chains
from liverank_gpu.operations.backend import Backend


def test_every_backend_draws_the_same_graph(backend: Backend) -> None:
    for seed in (0, 7):
        expected = chains(5000, seed=seed)
        drawn = chains(5000, seed=seed, backend=backend)
        for ends, expected_ends in zip(drawn, expected, strict=True):
            assert ends.dtype == np.int32
            assert ends.tolist() == expected_ends.tolist()
    assert chains(5000, seed=1)[0].tolist() != chains(5000, seed=2)[0].tolist()


@pytest.mark.parametrize("length", [1.0, 3.0, 40.0])
def test_edges_have_their_reverses_and_no_repeats_or_loops(length: float) -> None:
    sources, targets = (ends.tolist() for ends in chains(500, length=length, branching=1.0))
    edges = set(zip(sources, targets, strict=True))
    assert len(edges) == len(sources)
    assert {(target, source) for source, target in edges} == edges
    assert all(source != target for source, target in edges)
    assert min(sources) >= 0
    assert max(sources) < 500


def test_without_branches_components_are_paths_of_the_given_length() -> None:
    sources, targets = chains(100_000, length=25.0, branching=0.0, seed=3)
    degrees = np.bincount(sources, minlength=100_000)
    assert degrees.max() == 2
    matrix = coo_array((np.ones(len(sources)), (sources, targets)), shape=(100_000, 100_000))
    count, labels = connected_components(matrix)
    assert len(sources) // 2 == 100_000 - count  # no cycles
    # 4,000 geometric lengths of deviation 24.5: four standard errors
    assert 100_000 / count == pytest.approx(25, abs=1.6)
    # the lengths are geometric: their deviation is √(25·24)
    assert np.bincount(labels).std() == pytest.approx(24.5, abs=2.5)


def test_branches_join_paths_and_leave_most_degrees_at_2() -> None:
    sources, _ = chains(100_000, length=30.0, branching=0.5, seed=3)
    degrees = np.bincount(sources, minlength=100_000)
    assert np.mean(degrees == 2) > 0.9
    # a 60th of the vertices are ends that branch off another one
    assert len(sources) / 2 == pytest.approx(100_000 * (29 / 30 + 1 / 60), rel=0.005)


def test_labels_in_order_put_paths_side_by_side() -> None:
    sources, targets = chains(1000, branching=0.0, shuffle=False)
    assert np.all(np.abs(sources - targets) == 1)


def test_one_vertex_has_no_edges(backend: Backend) -> None:
    assert [len(ends) for ends in chains(1, backend=backend)] == [0, 0]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"vertices": 0}, "vertices: 0 is not allowed; it must be an integer from 1 to 2147483647"),
        ({"length": 0.5}, "length: 0.5 is not allowed; it must be a number of at least 1"),
        (
            {"length": float("nan")},
            "length: nan is not allowed; it must be a number of at least 1",
        ),
        ({"branching": 2}, "branching: 2 is not allowed; it must be a number from 0 to 1"),
    ],
)
def test_bad_arguments_are_named(options: dict[str, float], message: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        chains(**{"vertices": 10, **options})  # type: ignore[arg-type]
    assert str(refusal.value) == message
