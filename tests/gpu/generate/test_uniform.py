"""Uniform random graphs: distinct edges, the same on every backend."""

from __future__ import annotations

import numpy as np
import pytest

from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate import edge_list, uniform
from liverank_gpu.operations.backend import Backend


def columns(backend: Backend, vertices: int, edges: int, seed: int = 0) -> list[list[int]]:
    drawn = uniform(vertices, edges, seed=seed, backend=backend)
    assert [ends.dtype for ends in drawn] == [np.int32, np.int32]
    return [ends.tolist() for ends in drawn]


@pytest.mark.any_thread_order
def test_all_pairs_are_all_edges(backend: Backend) -> None:
    for vertices in (2, 3, 17):
        pairs = {(v, u) for v in range(vertices) for u in range(vertices) if u != v}
        drawn = list(zip(*columns(backend, vertices, len(pairs), seed=3), strict=True))
        assert len(drawn) == len(pairs)
        assert set(drawn) == pairs


def test_edges_are_distinct_and_have_distinct_ends(backend: Backend) -> None:
    sources, targets = (np.array(ends) for ends in columns(backend, 1000, 20_000, seed=2**63))
    assert np.all(sources != targets)
    assert len(np.unique(sources * 1000 + targets)) == 20_000
    assert min(sources.min(), targets.min()) >= 0
    assert max(sources.max(), targets.max()) < 1000


def test_a_seed_never_changes_its_graph(backend: Backend) -> None:
    assert columns(backend, 2**31 - 1, 3, seed=5) == [
        [641901495, 1091404731, 419778207],
        [122468272, 260710916, 1727572580],
    ]
    sources, targets = columns(backend, 10_000, 50_000, seed=1)
    assert (sum(sources), sum(targets)) == (249_226_408, 250_460_752)
    assert columns(backend, 10_000, 700, seed=1) == [sources[:700], targets[:700]]
    assert columns(backend, 10_000, 700, seed=2) != [sources[:700], targets[:700]]


def test_each_pair_is_as_likely() -> None:
    counts = np.zeros((20, 20))
    for seed in range(2000):
        sources, targets = uniform(20, 19, seed=seed)
        counts[sources, targets] += 1
    off_diagonal = counts[~np.eye(20, dtype=bool)]
    # 380 pairs, each expected 100 times with variance 95: chi-square has mean 379, deviation 28
    assert counts.sum() == 38_000
    assert np.sum((off_diagonal - 100) ** 2 / 95) == pytest.approx(379, abs=5 * 28)


def test_degrees_are_those_of_independent_choices() -> None:
    for ends in uniform(50_000, 500_000, seed=8):
        degrees = np.bincount(ends, minlength=50_000)
        # Poisson with mean 10: deviation of the sample variance about 10 · √(2/50,000)
        assert degrees.var() == pytest.approx(10, abs=0.35)


@pytest.mark.parametrize(
    ("vertices", "edges", "message"),
    [
        (0, 0, "vertices: 0 is not allowed; it must be an integer from 1 to 2147483647"),
        (4, 13, "edges: 13 is not allowed; it must be an integer from 0 to 12"),
        (4, -1, "edges: -1 is not allowed; it must be an integer from 0 to 12"),
    ],
)
def test_bad_arguments_are_named(vertices: int, edges: int, message: str) -> None:
    with pytest.raises(InvalidValue) as refusal:
        uniform(vertices, edges)
    assert str(refusal.value) == message


def test_a_vertex_alone_has_no_edges(backend: Backend) -> None:
    assert columns(backend, 1, 0) == [[], []]


def test_an_edge_list_has_the_drawn_columns_on_the_host(backend: Backend) -> None:
    drawn = uniform(100, 500, seed=6, backend=backend)
    listed = edge_list(drawn, backend)
    for on_host, where_drawn in zip(listed, drawn, strict=True):
        assert isinstance(on_host, np.ndarray)
        assert on_host.dtype == np.int64
        assert on_host.tolist() == where_drawn.tolist()
