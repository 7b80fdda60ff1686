"""Weighted graphs whose edges are streamed, against an independent oracle."""

from __future__ import annotations

from typing import Any, get_args

import numpy as np
import pytest

from liverank_gpu import (
    InvalidValue,
    Options,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.out_of_core import ranking
from liverank_gpu.out_of_core.spool import EdgeSpool, PackedEdges, padded
from liverank_gpu.types import Dangling
from tests.gpu.graphs import random_graph
from tests.gpu.observed import traced
from tests.gpu.out_of_core.streamed import (
    Columns,
    assert_right,
    ranked,
    without_locked_memory,
)


def repeated(seed: int, edges: int = 3000, vertices: int = 200) -> Columns:
    """Edges with repeats from either end, loops and dangling vertices; weights of all sizes."""
    generator = np.random.default_rng(seed)
    sources = generator.integers(0, vertices // 2, edges)
    targets = generator.integers(0, vertices, edges)
    sources, targets = np.append(sources, targets[:500]), np.append(targets, sources[:500])
    weights = np.exp2(generator.uniform(-40, 40, len(sources))).astype(np.float32)
    return sources, targets, weights


@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("dangling", get_args(Dangling))
def test_ranks_are_right(backend: Backend, dangling: Dangling, directed: bool) -> None:
    columns = repeated(1)
    options = Options(dangling=dangling, directed=directed, weighted=True, target_error=1e-9)
    found = ranked(columns, options, backend)
    assert found.windows > 2
    assert_right(found, columns, options)


def test_equal_weights_are_no_weights(backend: Backend) -> None:
    sources, targets, weights = repeated(3)
    columns, found = (sources, targets, np.ones_like(weights)), []
    for weighted in (True, False):
        options = Options(weighted=weighted, target_error=1e-9)
        found.append(ranked(columns, options, backend, 1 << 20))
    difference = np.abs(found[0].ranks.to_numpy() - found[1].ranks.to_numpy()).sum()
    assert difference <= sum(each.result.error_bound for each in found)
    # a pass over the edges loads their weights too
    loaded = [each.bytes_loaded for each in found]
    assert loaded[0] == 2 * loaded[1]


def test_the_last_repeat_counts_from_either_end(backend: Backend) -> None:
    options = Options(weighted=True, directed=False, target_error=1e-12)
    sent = (np.array([0, 1, 0]), np.array([1, 0, 2]), np.array([5.0, 3.0, 1.0], np.float32))
    found = ranked(sent, options, backend, 1 << 20)
    expected = (np.array([0, 0]), np.array([1, 2]), np.array([3.0, 1.0], np.float32))
    assert_right(found, expected, options)


def test_a_heavy_loop_leaves_room_for_other_edges(backend: Backend) -> None:
    columns = (np.array([0, 0, 1]), np.array([0, 1, 0]), np.array([1e30, 1e-30, 1.0], np.float32))
    options = Options(weighted=True, target_error=1e-9)
    found = ranked(columns, options, backend, 1 << 20)
    assert_right(found, columns, options)


def test_weights_come_from_page_locked_memory_too(backend: Backend) -> None:
    if backend.name != "cuda":
        pytest.skip("on the host, edges come from the file")
    columns, options = repeated(4), Options(weighted=True, target_error=1e-8)
    inside = ranked(columns, options, backend, 1 << 17)
    from_file = ranked(columns, options, without_locked_memory(backend), 1 << 17)
    assert (inside.in_memory, from_file.in_memory) == (True, False)
    assert np.array_equal(inside.ranks.to_numpy(), from_file.ranks.to_numpy())


def test_arrays_stay_within_the_budget(backend: Backend) -> None:
    if backend.name == "reference":
        pytest.skip("the scratch of its operations is not counted")
    vertices = 1 << (14 if backend.name == "cpu" else 12)
    columns = repeated(5, 12 * vertices, vertices)
    options = Options(weighted=True, target_error=1e-4)
    values = vertices * ranking.vertex_bytes(backend, weighted=True)
    memory = values + (1 << 18)
    ranked(columns, options, backend, memory, vertices)  # compiles
    backend = without_locked_memory(backend)
    with traced() as peak:
        found = ranked(columns, options, backend, memory, vertices)
    assert found.windows >= 2
    staged = 0 if backend.name != "cuda" else memory - values
    assert peak.bytes <= memory + staged + (1 << 18)


def test_strengths_are_bounded_by_the_depth_of_their_sums() -> None:
    """Summed one after the other, in the order of targets: Ŵ is within depth·u of W."""
    generator = np.random.default_rng(6)
    weights = np.exp2(generator.uniform(-30, 30, 1000)).astype(np.float32)
    spool = EdgeSpool(None, weighted=True)
    spool.add(np.zeros(1000, np.int64), np.arange(1, 1001), weights)
    packed = spool.pack(1001, 100, fixed_loops=False)
    packed.file.close()
    assert packed.longest_outgoing == 1000
    assert packed.strength_depth > 1000
    exact = sum(map(int, weights.astype(np.float64) * 2.0**80))
    off = abs(int(packed.degree[0] * 2.0**80) - exact) / exact
    assert off <= packed.strength_depth * 2.0**-53


@pytest.mark.parametrize("most_edges", [1, 50, 10**6])
@pytest.mark.parametrize("fixed_loops", [False, True])
@pytest.mark.parametrize("directed", [True, False])
def test_rows_have_the_weights_of_their_edges(
    directed: bool, fixed_loops: bool, most_edges: int
) -> None:
    vertices, edges = random_graph(7)
    sent = edges[np.random.default_rng(7).integers(0, len(edges), 3 * len(edges))]
    weights = np.arange(1, len(sent) + 1, dtype=np.float32)
    spool = EdgeSpool(None, directed, weighted=True)
    for first in range(0, len(sent), 50):
        piece = slice(first, first + 50)
        spool.add(sent[piece, 0], sent[piece, 1], weights[piece])
    expected: dict[tuple[int, int], float] = {}
    for (u, v), weight in zip(sent.tolist(), weights.tolist(), strict=True):
        expected[u, v] = weight
        if not directed:
            expected[v, u] = weight
    packed = spool.pack(vertices, most_edges, fixed_loops)
    with packed.file:
        assert weights_of(packed) == {ends: w for ends, w in expected.items() if ends[0] != ends[1]}
    loops = [1.0 if fixed_loops else expected.get((v, v), 0.0) for v in range(vertices)]
    assert packed.loop.tolist() == loops
    others = np.zeros(vertices)
    for (u, v), weight in expected.items():
        others[u] += weight if u != v else 0.0
    assert packed.degree.tolist() == (others + loops).tolist()


def weights_of(packed: PackedEdges) -> dict[tuple[int, int], float]:
    columns = [np.empty(packed.slots, dtype) for dtype in packed.dtypes]
    packed.file.read(0, *columns)
    found, starts = {}, np.cumsum(padded(packed.row_lengths)) - padded(packed.row_lengths)
    for v, (start, length) in enumerate(zip(starts, packed.row_lengths, strict=True)):
        for slot in range(start, start + length):
            found[int(columns[0][slot]), v] = float(columns[1][slot])
    return found


@pytest.mark.parametrize(
    ("weighted", "weights", "message"),
    [
        (False, [1.0], "weights: '1 weights' is not allowed; it must be None"),
        (True, [1.0, 2.0], "weights: 'length 2' .* 1 long, as sources"),
        (True, [0.0], r"weights\[1\]: 0.0 .* a finite number above 0"),
        (True, [np.nan], r"weights\[1\]: nan"),
        (True, [1e39], r"weights\[1\]: 1e\+39"),
        (True, [True], "weights: 'bool.*numbers"),
    ],
)
def test_wrong_weights_are_named(weighted: bool, weights: list[Any], message: str) -> None:
    spool = EdgeSpool(None, weighted=weighted)
    spool.add(np.array([0]), np.array([1]))
    with pytest.raises(InvalidValue, match=message):
        spool.add(np.array([0]), np.array([1]), np.array(weights))
    assert spool.added == 1
    spool.close()


@pytest.mark.parametrize("ends", [[0.5], [[0]], ["a"]])
def test_ids_are_integers(ends: list[Any]) -> None:
    spool = EdgeSpool(None)
    with pytest.raises(InvalidValue, match=r"targets: .* a one-dimensional integer array"):
        spool.add(np.array([0]), np.array(ends))
    spool.close()
