"""Other layouts of the in-lists: what they hold, and what they sum."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import pytest

from benchmarks import tables
from benchmarks.gather.hubs import Hubs
from benchmarks.gather.kernels import after_a_sweep
from benchmarks.gather.measure import MOST_ERROR, Pages, Way, error_of, measured
from benchmarks.inputs import Drawn, drawn_rmat
from liverank_gpu import EdgeBatch
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.graph import EdgeChanges
from tests.cuda_emulator.emulated import emulated_backend

HUBS, THREADS = 32, 64


@pytest.fixture
def drawn() -> Drawn:
    return drawn_rmat(np, np.random.default_rng(5), 8)


def loaded(drawn: Drawn) -> DynamicGraph:
    graph = DynamicGraph(emulated_backend(), "uniform")
    graph.apply(drawn.load)
    return graph


def batches(drawn: Drawn, count: int, size: int = 400) -> Iterator[EdgeBatch]:
    random = np.random.default_rng(9)
    for _, batch in zip(range(count), drawn.batches(random, size, np.asarray), strict=False):
        yield batch


def changes_of(graph: DynamicGraph, batch: EdgeBatch) -> EdgeChanges:
    changes = graph.apply(batch).changes
    assert changes is not None
    assert len(changes.removed_sources) > 0 < len(changes.added_sources)
    return changes


def edges_of(graph: DynamicGraph) -> list[tuple[int, int]]:
    rows, sources, _ = graph.backend.rebuild.entries(graph.incoming.csr)
    return sorted(zip(sources.tolist(), rows.tolist(), strict=True))


def test_the_parts_of_rows_hold_the_in_neighbours_among_hubs(drawn: Drawn) -> None:
    graph = loaded(drawn)
    hubs = Hubs(graph, HUBS, THREADS)

    def listed() -> list[tuple[int, int]]:
        return sorted(
            (int(hubs.hub_ids[hub]), v)
            for v, (_, _, start, length) in enumerate(hubs.rows.tolist())
            for hub in hubs.hubs[8 * start : 8 * start + length]
        )

    def expected() -> list[tuple[int, int]]:
        return [edge for edge in edges_of(graph) if edge[0] in set(hubs.hub_ids.tolist())]

    assert listed() == expected()
    assert len(listed()) == hubs.hub_edges
    for batch in batches(drawn, 2):
        hubs.apply(changes_of(graph, batch))
        assert listed() == expected()


def test_every_way_is_measured_and_shown(drawn: Drawn) -> None:
    rows = measured("R-MAT 8", drawn, emulated_backend(), 1, hubs=HUBS, threads=THREADS)
    ways = [row["way"] for row in rows]
    assert ways == ["rows", "pages", "32 hubs"]
    for row in rows:
        assert row["sweep_ms"] > 0.0
        assert row["error"] <= MOST_ERROR
    assert all(row["batches_ms"] for row in rows)
    assert rows[1]["random_reads"] < rows[0]["random_reads"]
    assert tables.kernels.gather({"figures": rows}).count("| R-MAT 8 |") == len(ways)


def test_a_sweep_that_differs_is_an_error(drawn: Drawn) -> None:
    graph = loaded(drawn)
    pages = Pages(graph)
    vectors = after_a_sweep(graph)
    lists = pages.view(1.0).pages
    assert lists is not None
    lists.lists.cells[0] ^= 1  # another target
    with pytest.raises(RuntimeError, match="a sweep differs"):
        error_of(Way("pages", pages.sweep, 0, 0), graph, vectors)


def test_too_little_memory_for_pages_is_an_error() -> None:
    graph = DynamicGraph(replace(emulated_backend(), pages=None), "uniform")
    graph.apply(EdgeBatch.of([(0, 1), (1, 2)]))
    with pytest.raises(RuntimeError, match="expected pages, got none"):
        Pages(graph)


def test_pages_without_room_are_reported(drawn: Drawn) -> None:
    graph = loaded(drawn)
    pages = Pages(graph)
    changes = graph.apply(EdgeBatch.of([(0, 10 * graph.vertices)])).changes
    assert changes is not None
    with pytest.raises(RuntimeError, match="no room for a batch"):
        pages.apply(changes)
