"""In-lists in pages, on the emulated device: what they hold, and when they are built and dropped.
Ranks by pages: tests/gpu/pagerank/test_paged_sweeps.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cache
from itertools import pairwise
from typing import Any, Literal
from unittest.mock import Mock

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Options
from liverank_gpu.backends.cuda import make_backend
from liverank_gpu.backends.cuda.kernels.loader import PAGE_COUNTS, PAGE_SHAPE, page_shape
from liverank_gpu.errors import OutOfMemory
from liverank_gpu.graph import in_pages
from liverank_gpu.graph.decay import Decay
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.graph.in_pages import SWEEPS_BY_ROWS
from liverank_gpu.graph.reading import SharedGraph, detach
from liverank_gpu.graph.warm_up import warm_up
from liverank_gpu.operations.backend import Backend, PageRule
from liverank_gpu.operations.csr import PagedLists
from liverank_gpu.operations.graph import EdgeChanges, PageOperations
from tests.cuda_emulator.emulated import PAGES, emulated_backend, emulated_device
from tests.gpu.doubles import TestDevice, instead, looked_after

RANDOM_EDGES = 4000
VERTICES = 300
NO_EDGES = (np.empty(0, np.int64), np.empty(0, np.int64))


ALWAYS = PageRule(1, 0.0, 0.0)


def paging(order: Literal["forward", "shuffled"] = "forward", rule: PageRule = ALWAYS) -> Backend:
    """The emulated device, with pages as the rule says."""
    backend = emulated_backend(order)
    return replace(backend, costs=replace(backend.costs, pages=rule))


def skewed(
    random: np.random.Generator, count: int, vertices: int = VERTICES, weighted: bool = False
) -> EdgeBatch:
    """Insertions, of which many end in few vertices, and loops among them."""
    sources = random.integers(0, vertices, count)
    targets = (vertices * random.random(count) ** 3).astype(np.int64)
    targets[::50] = sources[::50]
    weights = (10.0 ** random.uniform(-3.0, 3.0, count)).astype(np.float32) if weighted else None
    return EdgeBatch(sources, targets, weights=weights)


Edges = list[tuple[Any, ...]]
"""Source and target of each edge, and its weight if it has one."""


def edges_of(graph: DynamicGraph) -> Edges:
    rows, sources, weights = graph.backend.rebuild.entries(graph.incoming.csr)
    columns = [sources, rows] if weights is None else [sources, rows, weights]
    return sorted(zip(*(column.tolist() for column in columns), strict=True))


def lists_of(graph: DynamicGraph) -> PagedLists:
    if not graph.in_pages.kept:
        graph.in_pages.want()
    view = graph.sweep_view(1.0).pages
    assert view is not None
    return view.lists


def edges_in(lists: PagedLists) -> Edges:
    """The edges in all pages; fails if a page holds keys outside its range, or out of order."""
    found: Edges = []
    most = PAGES.page_bytes // (2 if lists.weights is None else 4)
    order: list[int] = []
    for page in range(lists.built):
        while page >= 0:
            order.append(page)
            page = int(lists.following[page])
    assert sorted(order) == list(range(int(lists.counts[0])))
    ends = [*lists.first_keys[order[1:]].tolist(), 1 << 62]
    words = lists.cells.view(np.uint32)
    for page, high in zip(order, ends, strict=True):
        low = int(lists.first_keys[page])
        own = lists.cells[page * PAGES.page_bytes // 2 :][: lists.page_edges[page]]
        own = own.astype(np.int64)
        last = (page + 1) * PAGES.page_bytes // 4 - 1
        sources = words[last - np.arange(lists.page_sources[page])].astype(np.int64)
        assert 2 * len(own) + 4 * len(sources) <= PAGES.page_bytes
        assert len(own) <= most
        number = np.cumsum(own >> 15) - 1
        places, tile = own & (1 << PAGES.tile_bits) - 1, low >> PAGES.key_bits
        keys = tile << PAGES.key_bits | sources[number] << PAGES.tile_bits | places
        assert all(left < right for left, right in pairwise(keys.tolist()))
        assert np.all((low <= keys) & (keys < high))
        assert len(sources) == len(np.unique(keys >> PAGES.tile_bits))
        targets = (tile << PAGES.tile_bits) + places
        columns = [sources[number], targets]
        if lists.weights is not None:
            columns.append(lists.weights[page * most :][: len(own)])
        found += zip(*(column.tolist() for column in columns), strict=True)
    return sorted(found)


def batches(random: np.random.Generator, graph: DynamicGraph, count: int) -> Iterator[EdgeBatch]:
    """Batches of all sizes that insert, delete, and make the graph grow by a few vertices. With
    weights, some change those of edges that there are.
    """
    for number in range(count):
        size = int(10 ** random.uniform(0.0, 2.5))
        new = skewed(random, size, graph.vertices + number % 3, graph.weighted)
        sources, targets = graph.edge_list()
        fewer = min(size // (4 if graph.weighted else 1), len(sources) // 4)
        gone = random.choice(len(sources), fewer, replace=False)
        if graph.weighted and number % 4 == 1:
            changed = random.choice(len(sources), size)
            new = replace(new, insert_sources=sources[changed], insert_targets=targets[changed])
        yield replace(new, delete_sources=sources[gone].copy(), delete_targets=targets[gone].copy())


@pytest.mark.parametrize("order", ["forward", "shuffled"])
@pytest.mark.parametrize("directed", [True, False])
@pytest.mark.parametrize("weighted", [False, True])
def test_pages_follow_a_stream(
    order: Literal["forward", "shuffled"], directed: bool, weighted: bool
) -> None:
    random = np.random.default_rng(3)
    graph = DynamicGraph(paging(order), "uniform", "degree", weighted, directed)
    graph.apply(skewed(random, RANDOM_EDGES, weighted=weighted))
    lists = lists_of(graph)
    assert edges_in(lists) == edges_of(graph)
    crowded: list[int] = []
    for batch in batches(random, graph, 40 if weighted else 20):
        graph.apply(batch)
        assert lists_of(graph) is lists
        assert edges_in(lists) == edges_of(graph)
        crowded.append(int(lists.counts[PAGE_COUNTS["CROWDED"]]))
    assert int(lists.counts[0]) > lists.built
    assert min(crowded) == 0 < max(crowded)  # both kernels have had pages


@pytest.mark.parametrize("weighted", [False, True])
def test_pages_follow_several_batches_at_once(weighted: bool) -> None:
    random = np.random.default_rng(4)
    graph = DynamicGraph(paging(), "uniform", "degree", weighted)
    graph.apply(skewed(random, RANDOM_EDGES, weighted=weighted))
    lists = lists_of(graph)
    before = edges_in(lists)
    new = skewed(random, 40, weighted=weighted)
    for number, batch in enumerate(batches(random, graph, 6)):
        graph.apply(batch)
        # edges that come and go, an even or an odd number of times
        columns = (new.insert_sources[number:], new.insert_targets[number:])
        weights = None if new.weights is None else new.weights[number:] + np.float32(number)
        insertions = EdgeBatch(*columns, weights=weights)
        graph.apply(insertions if number % 2 else EdgeBatch(*NO_EDGES, *columns))
    assert edges_in(lists) == before != edges_of(graph)
    assert lists_of(graph) is lists
    assert edges_in(lists) == edges_of(graph)


@cache
def _operations() -> PageOperations:
    operations = emulated_backend().pages
    assert operations is not None
    return operations


def follow(lists: PagedLists, gone: set[tuple[Any, ...]], new: set[tuple[Any, ...]]) -> None:
    """Has pages follow removals and additions alone, and fails if they find no room."""
    nobody, operations = np.zeros(0, np.int32), _operations()
    columns = [
        np.array([edge[end] for edge in sorted(edges)], np.int32)
        for edges in (gone, new)
        for end in (0, 1)
    ]
    assert operations.follow(lists, EdgeChanges(nobody, nobody, *columns))


@pytest.mark.parametrize("most", [6, 70])
def test_several_changes_of_a_page_are_made_at_once(most: int) -> None:
    random = np.random.default_rng(16)
    graph = DynamicGraph(paging(), "uniform", "given")
    sources, targets = random.integers(0, 40, (2, 300))
    graph.apply(EdgeBatch(sources, targets, vertices=40))
    lists, edges = lists_of(graph), set(edges_of(graph))
    crowded: list[int] = []
    for turn in range(120):
        target = random.integers(0, 40)  # all targets, or one of them
        sources, targets = random.integers(0, 40, (2, random.integers(1, most)))
        targets = targets if turn % 2 else np.full(len(targets), target)
        toggled = {
            (u, v) for u, v in zip(sources.tolist(), targets.tolist(), strict=True) if u != v
        }
        before, edges = edges, edges ^ toggled
        follow(lists, before - edges, edges - before)
        assert edges_in(lists) == sorted(edges)
        crowded.append(int(lists.counts[PAGE_COUNTS["CROWDED"]]))
    # both kernels have had pages
    assert min(crowded) == 0 < max(crowded)


def test_a_page_takes_more_changes_than_one_round_has() -> None:
    graph = DynamicGraph(paging(), "uniform", "given")
    graph.apply(skewed(np.random.default_rng(6), RANDOM_EDGES))
    lists = lists_of(graph)
    hub = 200
    assert 3 * PAGES.most_changed < VERTICES - 1
    others = np.delete(np.arange(VERTICES), hub)
    graph.apply(EdgeBatch(others, np.full(VERTICES - 1, hub)))
    assert lists_of(graph) is lists
    assert edges_in(lists) == edges_of(graph)
    assert graph.incoming.csr.row_lengths[hub] == VERTICES - 1
    graph.apply(EdgeBatch.of(remove=[hub]))
    assert lists_of(graph) is lists
    assert edges_in(lists) == edges_of(graph)
    assert graph.incoming.csr.row_lengths[hub] == 0


def _more_edges(graph: DynamicGraph) -> None:
    graph.apply(EdgeBatch(*np.random.default_rng(1).integers(0, VERTICES, (2, 10 * RANDOM_EDGES))))


def _more_vertices(graph: DynamicGraph) -> None:
    graph.apply(EdgeBatch.of([(0, 2 * VERTICES)]))


def _rebuilt(graph: DynamicGraph) -> None:
    graph.apply(EdgeBatch.of([(0, VERTICES - 1)]), rebuilds=True)
    assert graph.sweep_view(1.0).pages is None  # until a batch follows
    graph.apply(EdgeBatch.of([(1, VERTICES - 1)]))


@pytest.mark.parametrize("change", [_more_edges, _more_vertices, _rebuilt])
def test_pages_without_room_are_built_again(change: Callable[[DynamicGraph], None]) -> None:
    graph = DynamicGraph(paging(), "uniform", "given")
    graph.apply(skewed(np.random.default_rng(7), RANDOM_EDGES))
    before = lists_of(graph)
    change(graph)
    assert graph.in_pages.memory() == {}
    assert "pages" not in graph.memory()
    after = graph.sweep_view(1.0).pages
    assert after is not None
    assert after.lists is not before
    assert edges_in(after.lists) == edges_of(graph)
    assert graph.memory()["pages"] == after.lists.nbytes


def test_ranges_of_tiles_are_joined() -> None:
    pages = instead(emulated_backend().pages, sorted_at_once=RANDOM_EDGES // 10)
    graph = DynamicGraph(replace(paging(), pages=pages), "uniform", "given")
    graph.apply(skewed(np.random.default_rng(8), RANDOM_EDGES))
    assert edges_in(lists_of(graph)) == edges_of(graph)


def test_they_are_built_for_a_stream_that_gains_by_them() -> None:
    edges, vertices = 10 * RANDOM_EDGES, 20_000

    def has_pages(batch: EdgeBatch, rule: PageRule, **options: Any) -> bool:
        graph = DynamicGraph(paging(rule=rule), "uniform", "given", **options)
        graph.apply(batch)
        assert graph.sweep_view(1.0).pages is None
        few = EdgeBatch.of([(0, 1), (0, 2), (0, 3)])
        graph.apply(few if batch.times is None else replace(few, times=np.zeros(3)))
        return graph.sweep_view(1.0).pages is not None

    many = skewed(np.random.default_rng(9), edges, vertices)
    near = np.arange(edges) // 8
    grid = EdgeBatch(near, near + np.arange(edges) % 8)
    assert has_pages(many, ALWAYS)
    assert has_pages(many, ALWAYS, weighted=True)
    dated = replace(many, times=np.zeros(edges))
    decay = Decay[Any](Options(half_life=1.0))
    assert not has_pages(dated, ALWAYS, weighted=True, decay=decay)
    assert not has_pages(many, replace(ALWAYS, least_edges=2 * edges))
    assert has_pages(many, replace(ALWAYS, least_degree=1.0))
    assert not has_pages(many, replace(ALWAYS, least_degree=edges / vertices))
    assert has_pages(many, replace(ALWAYS, least_random=0.5))
    assert not has_pages(grid, replace(ALWAYS, least_random=0.5))


def test_a_graph_that_grows_gets_them_at_the_least_size() -> None:
    random = np.random.default_rng(10)
    graph = DynamicGraph(paging(rule=replace(ALWAYS, least_edges=RANDOM_EDGES)), "uniform")
    graph.apply(skewed(random, RANDOM_EDGES // 2))
    while graph.edges < RANDOM_EDGES:
        assert graph.sweep_view(1.0).pages is None
        graph.apply(skewed(random, RANDOM_EDGES // 8))
    assert graph.sweep_view(1.0).pages is not None


@pytest.mark.parametrize(("vertices", "every"), [(10_000, 1), (40_000, 2)])
def test_a_sample_counts_the_random_reads_of_its_rows(vertices: int, every: int) -> None:
    graph = DynamicGraph(paging(), "uniform", "degree")
    graph.apply(skewed(np.random.default_rng(13), 10 * RANDOM_EDGES, vertices))
    found: list[bool] = []
    for row in range(every // 2, graph.vertices, every):
        start, length = (int(each[row]) for each in graph.incoming.csr[:2])
        own = graph.incoming.csr.column_indices[start : start + length].tolist()
        for before, neighbour in zip([-(1 << 20), *own], own, strict=False):
            found.append(neighbour - before > 16 and abs(neighbour - row) > 4096)
    # the first read of a row is compared with the last of the row before
    assert graph.in_pages.random_reads(graph.incoming.csr) == pytest.approx(
        np.mean(found), rel=0.05
    )
    assert 0.05 < np.mean(found) < 0.95


def test_a_device_with_little_shared_memory_has_no_pages() -> None:
    shared = [page_shape(each << 10) for each in (64, 99, 128, 163, 227)]
    assert shared == [None, None, None, PAGE_SHAPE, PAGE_SHAPE]
    backend = make_backend(replace(emulated_device(), pages=None))
    graph = DynamicGraph(replace(backend, costs=replace(backend.costs, pages=ALWAYS)), "uniform")
    graph.apply(skewed(np.random.default_rng(14), RANDOM_EDGES))
    graph.apply(EdgeBatch.of([(0, 1)]))
    assert graph.sweep_view(1.0).pages is None


def test_memory_decides_too() -> None:
    backend, device = looked_after(paging())
    graph = DynamicGraph(backend, "uniform", "given")
    graph.apply(skewed(np.random.default_rng(10), RANDOM_EDGES))
    device.available = 0
    graph.in_pages.want()
    assert graph.sweep_view(1.0).pages is None
    device.available = 1 << 30
    graph.in_pages.want()
    assert graph.sweep_view(1.0).pages is None  # it is asked again when it has grown
    graph.in_pages.drop()
    graph.in_pages.want()
    with device.without_arrays(1):  # of the sample
        assert graph.sweep_view(1.0).pages is None
    graph.in_pages.drop()
    lists = lists_of(graph)
    assert graph.backend.pages is not None
    assert lists.nbytes <= graph.backend.pages.bytes_needed(graph.vertices, graph.edges)
    graph.in_pages.require("a batch", 1 << 30)
    assert graph.in_pages.memory()
    with pytest.raises(OutOfMemory):
        graph.in_pages.require("a batch", 1 << 30, 2)
    assert graph.in_pages.memory() == {}


def test_many_sweeps_by_rows_build_them_too() -> None:
    backend, device = looked_after(paging())
    graph = DynamicGraph(backend, "uniform", "given")
    graph.apply(skewed(np.random.default_rng(15), RANDOM_EDGES))
    by_rows = [False] * in_pages.SWEEPS_BY_ROWS

    def swept(more: int) -> list[bool]:
        return [graph.sweep_view(1.0).pages is not None for _ in range(len(by_rows) + more)]

    assert swept(1) == [*by_rows, True]
    built = lists_of(graph)
    assert swept(1) == [True] * (len(by_rows) + 1)
    assert lists_of(graph) is built
    assert edges_in(built) == edges_of(graph)
    graph.in_pages.drop()
    assert swept(1) == [*by_rows, True]
    # without memory, rows are read as ever
    device.available = 0
    graph.in_pages.drop()
    assert swept(5) == [*by_rows, *[False] * 5]


def test_a_batch_that_pages_have_no_memory_to_follow_stands() -> None:
    backend = paging()
    follow = Mock(side_effect=MemoryError)
    pages = instead(backend.pages, follow=follow)
    graph = DynamicGraph(replace(backend, pages=pages), "uniform", "given")
    graph.apply(skewed(np.random.default_rng(11), RANDOM_EDGES))
    lists_of(graph)
    graph.apply(EdgeBatch.of([(0, VERTICES - 1)]))
    graph.in_pages.catch_up()
    assert follow.called
    assert (0, VERTICES - 1) in edges_of(graph)
    assert graph.in_pages.memory() == {}


def test_a_copy_that_is_read_has_no_pages() -> None:
    graph = DynamicGraph(paging(), "uniform", "given")
    graph.apply(skewed(np.random.default_rng(12), RANDOM_EDGES))
    lists_of(graph)
    shared = SharedGraph(graph)
    detach([shared], 0)
    graph.apply(EdgeBatch.of([(0, VERTICES - 1)]))
    assert shared.graph.sweep_view(1.0).pages is None
    assert graph.sweep_view(1.0).pages is not None


@pytest.mark.parametrize("weighted", [False, True])
def test_a_warm_up_builds_pages_that_follow_a_batch(weighted: bool) -> None:
    backend, called = emulated_backend(), Mock()
    assert backend.pages is not None
    pages = instead(backend.pages, build=called.build, follow=called.follow)
    called.build.side_effect, called.follow.side_effect = backend.pages.build, backend.pages.follow
    warm_up(replace(backend, pages=pages), "uniform", weighted)
    assert [name for name, *_ in called.method_calls] == ["build", "follow"]


def test_solves_have_no_pages_because_of_queries() -> None:
    backend, device = looked_after(paging())
    graph = DynamicGraph(backend, "uniform", "given")
    graph.apply(skewed(np.random.default_rng(15), RANDOM_EDGES))

    def lists(of_query: bool) -> PagedLists | None:
        paged = graph.sweep_view(1.0, of_query).pages
        return paged and paged.lists

    assert [lists(of_query=True) for _ in range(SWEEPS_BY_ROWS)] == [None] * SWEEPS_BY_ROWS
    built = lists(of_query=True)
    assert built is not None
    # they take them over when they would build their own
    assert [lists(of_query=False) for _ in range(SWEEPS_BY_ROWS)] == [None] * SWEEPS_BY_ROWS
    assert lists(of_query=False) is built
    # and queries use those of solves
    graph.in_pages.drop()
    graph.apply(EdgeBatch.of([(0, VERTICES - 1)]))
    assert lists(of_query=False) is lists(of_query=True) is not None
    # nor are they without them, where memory refused a query, or a batch needed that of its pages
    for shortage in (_refused_to_a_query, _taken_from_queries):
        graph.in_pages.drop()
        assert lists(of_query=False) is None
        shortage(device, graph)
        assert not graph.in_pages.kept
        assert [lists(of_query=False) for _ in range(SWEEPS_BY_ROWS - 1)] == [None] * (
            SWEEPS_BY_ROWS - 1
        )
        assert lists(of_query=False) is not None
    # a sample that fails for a solve leaves queries theirs
    graph.in_pages.drop()
    graph.in_pages.want()
    assert lists(of_query=True) is not None
    with device.without_arrays(1):
        assert lists(of_query=False) is None
    assert lists(of_query=True) is not None
    graph.apply(EdgeBatch.of([(1, VERTICES - 1)]))
    assert lists(of_query=False) is None  # until the graph has grown
    graph.apply(skewed(np.random.default_rng(16), 2 * RANDOM_EDGES))
    assert lists(of_query=False) is not None


def _refused_to_a_query(device: TestDevice, graph: DynamicGraph) -> None:
    with device.without_arrays(1):
        for _ in range(SWEEPS_BY_ROWS + 1):
            graph.sweep_view(1.0, of_query=True)


def _taken_from_queries(device: TestDevice, graph: DynamicGraph) -> None:
    for _ in range(SWEEPS_BY_ROWS + 1):
        graph.sweep_view(1.0, of_query=True)
    assert graph.in_pages.kept
    with device.with_only(1 << 20), pytest.raises(OutOfMemory):
        graph.in_pages.require("a batch", 1 << 40)
