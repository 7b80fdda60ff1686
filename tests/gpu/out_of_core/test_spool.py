"""Edges in any order become packed in-lists."""

from __future__ import annotations

import numpy as np
import pytest

from gpu import InvalidValue
from gpu.out_of_core.scratch_file import ScratchColumns
from gpu.out_of_core.spool import EdgeSpool, PackedEdges, padded
from tests.gpu.graphs import random_graph


def rows_of(packed: PackedEdges) -> list[list[int]]:
    """The in-list of each vertex."""
    slots = np.empty(packed.slots, np.int32)
    packed.file.read(0, slots)
    lengths = packed.row_lengths
    ends = np.cumsum(padded(lengths))
    return [
        slots[start : start + length].tolist()
        for start, length in zip((ends - padded(lengths)).tolist(), lengths.tolist(), strict=True)
    ]


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
