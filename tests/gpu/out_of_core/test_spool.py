"""Edges in any order become packed in-lists."""

from __future__ import annotations

import resource

import numpy as np
import pytest

from liverank_gpu import InvalidValue, OutOfCorePrograms, OutOfCoreRanking
from liverank_gpu.generate import rmat
from liverank_gpu.operations.backend import Sizes
from liverank_gpu.out_of_core.ranking import sort_bytes
from liverank_gpu.out_of_core.spool import EdgeSpool, Ends, PackedEdges, ScratchColumns, padded
from liverank_gpu.types import VertexOrder
from tests.gpu.graphs import random_graph
from tests.gpu.observed import traced

ORDERS: tuple[VertexOrder, ...] = ("given", "degree")


def rows_of(packed: PackedEdges) -> list[list[int]]:
    """The in-list of each vertex; the slots behind each name no other source."""
    slots = np.empty(packed.slots, np.int32)
    packed.file.read(0, slots)
    lengths = packed.row_lengths
    rows = [row.tolist() for row in np.split(slots, np.cumsum(padded(lengths)))[:-1]]
    for row, length in zip(rows, lengths.tolist(), strict=True):
        assert set(row[length:]) <= {*row[length - 1 : length]}
        del row[length:]
    return rows


@pytest.mark.parametrize("most_edges", [1, 7, 100, 10**6])
@pytest.mark.parametrize("fixed_loops", [False, True])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("seed", range(3))
def test_rows_are_sorted_without_repeats_and_loops(
    seed: int, directed: bool, fixed_loops: bool, most_edges: int
) -> None:
    vertices, edges = random_graph(seed)
    generator = np.random.default_rng(seed)
    sent = edges[generator.integers(0, len(edges), 2 * len(edges))]
    pairs = {(int(u), int(v)) for u, v in sent}
    if not directed:
        pairs |= {(v, u) for u, v in pairs}
    spool = EdgeSpool(None, directed)
    for piece in np.array_split(sent, 5):
        spool.add(piece[:, 0], piece[:, 1].astype(np.uint64))
    assert spool.added == len(sent)
    assert spool.vertices == sent.max() + 1
    packed = spool.pack(vertices, most_edges, fixed_loops)
    with packed.file:
        others = {(u, v) for u, v in pairs if u != v}
        loops = {u for u, v in pairs if u == v}
        assert rows_of(packed) == [
            sorted(u for u, target in others if target == v) for v in range(vertices)
        ]
        assert packed.loop.tolist() == [fixed_loops or v in loops for v in range(vertices)]
        degree = [sum(source == v for source, _ in others) for v in range(vertices)]
        assert (packed.degree - packed.loop).tolist() == degree
        counted = 0 if fixed_loops else len(loops)
        assert packed.arcs == len(others) + counted
        assert packed.edges == len(others) // (1 if directed else 2) + counted


@pytest.mark.parametrize("most_edges", [7, 10**6])
@pytest.mark.parametrize("weighted", [False, True])
def test_vertices_are_in_the_order_of_their_out_degrees(weighted: bool, most_edges: int) -> None:
    vertices, edges = 40, rmat(5, 8, seed=4)
    weights = np.arange(1, len(edges[0]) + 1, dtype=np.float32)
    packs = []
    for order in ORDERS:
        spool = EdgeSpool(None, weighted=weighted)
        spool.add(*edges, weights if weighted else None)
        packs.append(spool.pack(vertices, most_edges, fixed_loops=False, order=order))
    given, packed = packs
    with given.file, packed.file:
        digits = [int(degree).bit_length() for degree in np.bincount(edges[0], minlength=vertices)]
        ids = packed.ids.tolist()
        assert ids == sorted(range(vertices), key=lambda v: (-digits[v], v))
        assert len(given.ids) == 0
        rows, by_position = rows_of(given), rows_of(packed)
        for v, row in zip(ids, by_position, strict=True):
            assert row == sorted(row)
            assert sorted(ids[u] for u in row) == rows[v]
        assert packed.degree.tolist() == given.degree[ids].tolist()
        assert packed.loop.tolist() == given.loop[ids].tolist()
        assert packed.arcs == given.arcs


def _grid(side: int) -> Ends:
    vertex = np.arange(side * side).reshape(side, side)
    first = np.concatenate([vertex[:, :-1].ravel(), vertex[:-1].ravel()])
    second = np.concatenate([vertex[:, 1:].ravel(), vertex[1:].ravel()])
    return first, second


@pytest.mark.parametrize(
    ("edges", "by_degree"),
    [(rmat(13, 16, seed=3), True), (_grid(100), False)],
    ids=["rmat", "grid"],
)
def test_auto_orders_vertices_where_fewer_lines_are_read_then(edges: Ends, by_degree: bool) -> None:
    least = 1 << 13
    for vertices in (least, least - 1) if by_degree else (100 * 100,):
        spool = EdgeSpool(None, sizes=Sizes(least_permuted=least))
        spool.add(*(ends % vertices for ends in edges))
        packed = spool.pack(vertices, 10**6, fixed_loops=False, order="auto")
        packed.file.close()
        assert (len(packed.ids) > 0) == (by_degree and vertices == least)


@pytest.mark.parametrize("weighted", [False, True])
def test_sorting_takes_what_the_budget_says(weighted: bool) -> None:
    count, weights = 1 << 15, np.ones(1 << 15) if weighted else None
    for _ in range(2):  # the first time compiles
        spool = EdgeSpool(None, weighted=weighted)
        # a row for each edge, so that padding is the most
        spool.add(np.arange(count), np.roll(np.arange(count), 7), weights)
        with traced() as peak:
            packed = spool.pack(count, count, fixed_loops=False)
        packed.file.close()
    kept = packed.row_lengths.nbytes + packed.out_lengths.nbytes + packed.loop.nbytes
    sorting = (peak.bytes - kept - (packed.degree.nbytes if weighted else 0)) / count
    assert 0.7 * sort_bytes(weighted) < sorting <= sort_bytes(weighted)


def test_edges_whose_sorting_failed_are_not_taken_for_no_edges() -> None:
    with OutOfCorePrograms(1 << 20, backend="cpu") as graph:
        graph.add(np.array([0, 1]), np.array([1, 2]))
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            with pytest.raises(OSError, match="File too large"):
                graph.run("levels", source=0)
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        with pytest.raises(InvalidValue, match=r"edges: '2 edges' .* added to a new graph"):
            graph.run("levels", source=0)


def test_edges_are_ranked_once() -> None:
    with OutOfCoreRanking(1 << 20, backend="cpu") as graph:
        graph.add(np.array([0, 1]), np.array([1, 2]))
        graph.rank()
        with pytest.raises(InvalidValue, match=r"edges: '2 edges' .* added to a new graph"):
            graph.rank()


def test_columns_are_checked() -> None:
    spool = EdgeSpool(None)
    with pytest.raises(InvalidValue, match="targets: 'length 1' is not allowed"):
        spool.add(np.array([0, 1]), np.array([1]))
    spool.add(np.array([0]), np.array([1]))
    with pytest.raises(InvalidValue, match=r"sources\[2\]: -1 .* an id from 0 to 2147483646"):
        spool.add(np.array([0, -1]), np.array([1, 1]))
    with pytest.raises(InvalidValue, match=r"targets\[1\]: 2147483647"):
        spool.add(np.array([0]), np.array([2**31 - 1]))
    assert spool.added == 1
    spool.close()


def test_a_scratch_file_that_ends_early_is_an_error() -> None:
    with ScratchColumns(1) as file:
        file.write(3, np.arange(5))
        whole = np.empty(8, np.int64)
        file.read(0, whole)
        assert whole.tolist() == [0, 0, 0, 0, 1, 2, 3, 4]
        with pytest.raises(OSError, match="expected 8 bytes more"):
            file.read(1, whole)
