"""Other layouts of the in-lists: what they hold, and what they sum."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any, Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from benchmarks import tables
from benchmarks.gather.hubs import Hubs
from benchmarks.gather.kernels import after_a_sweep
from benchmarks.gather.measure import MOST_ERROR, Way, error_of, measured
from benchmarks.gather.pages import ACCUMULATORS, Pages, PageShape
from benchmarks.inputs import Drawn, drawn_rmat
from gpu import EdgeBatch
from gpu.graph.dynamic_graph import DynamicGraph
from gpu.operations.update import EdgeChanges
from tests.cuda_emulator.emulated import emulated_backend

SHAPE = PageShape(tile_bits=5, page_bytes=128, threads=64)
HUBS, THREADS = 32, 64


@pytest.fixture
def drawn() -> Drawn:
    return drawn_rmat(np, np.random.default_rng(5), 8)


def loaded(drawn: Drawn, order: Literal["forward", "shuffled"] = "forward") -> DynamicGraph:
    graph = DynamicGraph(emulated_backend(order), "uniform")
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


def edges_in(pages: Pages, cells: NDArray[Any]) -> list[tuple[int, int]]:
    """The edges in all pages; fails if a page holds keys outside its range, or out of order."""
    found: list[tuple[int, int]] = []
    ends = [*pages.first_keys[1:].tolist(), 1 << 62]
    words = cells.view(np.uint32)
    for page, low, high in zip(pages.directory, pages.first_keys.tolist(), ends, strict=True):
        own = cells[page * SHAPE.page_bytes // 2 :][: pages.page_edges[page]].astype(np.int64)
        last = (page + 1) * SHAPE.page_bytes // 4 - 1
        sources = words[last - np.arange(pages.page_sources[page])].astype(np.int64)
        assert 2 * len(own) + 4 * len(sources) <= SHAPE.page_bytes
        number = np.cumsum(own >> 15) - 1
        places, tile = own & (1 << SHAPE.tile_bits) - 1, low >> SHAPE.key_bits
        keys = tile << SHAPE.key_bits | sources[number] << SHAPE.tile_bits | places
        assert all(left < right for left, right in pairwise(keys.tolist()))
        assert np.all((low <= keys) & (keys < high))
        assert len(sources) == len(np.unique(keys >> SHAPE.tile_bits))
        targets = (tile << SHAPE.tile_bits) + places
        found += zip(sources[number].tolist(), targets.tolist(), strict=True)
    return sorted(found)


def test_pages_hold_the_edges_through_batches_that_split_them(drawn: Drawn) -> None:
    graph = loaded(drawn)
    pages = Pages(graph, SHAPE)
    assert edges_in(pages, pages.cells) == edges_of(graph)
    before = pages.used
    for batch in batches(drawn, 2, 2000):
        pages.apply(changes_of(graph, batch))
        assert edges_in(pages, pages.cells) == edges_of(graph)
    assert pages.used > before
    way = Way("pages", pages.sweep, 0, 0)
    assert error_of(way, graph, after_a_sweep(graph)) is not None


def test_a_page_without_room_is_reported(drawn: Drawn) -> None:
    graph = loaded(drawn)
    pages = Pages(graph, SHAPE)
    # hardly any edge ends in the last tile, so all of these are added to one page
    batch = EdgeBatch(np.arange(255), np.full(255, 255))
    changes = graph.apply(batch).changes
    assert changes is not None
    with pytest.raises(RuntimeError, match=r"without room for 25\d changes"):
        pages.apply(changes)


def test_sums_do_not_depend_on_the_order_of_additions(drawn: Drawn) -> None:
    found = []
    for order in ("forward", "shuffled"):
        graph = loaded(drawn, order)
        pages, vectors = Pages(graph, SHAPE), after_a_sweep(loaded(drawn))
        for accumulator in ACCUMULATORS:
            own = vectors.copy()
            pages.sweep(own, accumulator)
            if accumulator != "float":
                found.append(own.residual)
        pages.sweep(vectors, binned=True)
        found.append(vectors.residual)
    assert all(np.array_equal(found[0], other) for other in found)


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
    rows = measured(
        "R-MAT 8",
        drawn,
        emulated_backend(),
        1,
        shapes=(SHAPE,),
        hubs=HUBS,
        threads=THREADS,
        batches=(1000, 1e-3),
    )
    ways = [row["way"] for row in rows]
    assert ways[0] == "product"
    assert len(ways) == len(set(ways)) == 7
    for row in rows:
        assert row["sweep_ms"] > 0.0
        if row["error"] is not None and "float" not in row["way"]:
            assert row["error"] <= MOST_ERROR
    assert {row["way"] for row in rows if row["batches_ms"]} == {
        *("product", "pages, tiles of 32", "32 hubs")
    }
    assert rows[1]["random_reads"] < rows[0]["random_reads"]
    assert tables.kernels.gather({"figures": rows}).count("| R-MAT 8 |") == len(ways)


def test_a_sweep_that_differs_is_an_error(drawn: Drawn) -> None:
    graph = loaded(drawn)
    pages = Pages(graph, SHAPE)
    vectors = after_a_sweep(graph)
    pages.cells[0] ^= 1  # another target
    with pytest.raises(RuntimeError, match="a sweep differs"):
        error_of(Way("pages", pages.sweep, 0, 0), graph, vectors)
