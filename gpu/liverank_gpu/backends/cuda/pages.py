"""In-lists in pages on ``cuda``: see pages.cu."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.kernels.loader import BLOCK, PAGE_COUNTS, WARP, PageShape
from liverank_gpu.backends.cuda.launcher import Launcher, blocks_for, grid_blocks
from liverank_gpu.operations import graph as op
from liverank_gpu.operations.csr import Csr, GraphView, PagedLists, PagedView
from liverank_gpu.operations.device import Array

_SCRATCH, _WEIGHT_SCRATCH = 64, 48
"""Bytes of scratch for each edge of a range, and what weights add."""

_FILLED = 0.8
"""The part of a new page that is used."""

_SPARE_PART, _LEAST_SPARE = 16, 64
"""There is a spare page for every _SPARE_PART, and at least _LEAST_SPARE."""

_ROOM_PART = 16
"""There is room for a new vertex for every _ROOM_PART."""

_MOST_BYTES, _SOURCE_BYTES = 6, (4, 2)
"""Of a page, for an edge and its source; and for this source, without and with weights: there is
room for so few weights that 4 are counted for each edge.
"""

_ITEMS_PER_BLOCK = 8
"""Items of work for each resident block, about."""

_WAVES = 2
"""Blocks that rewrite pages, over those that are resident of most kernels."""


class CudaPages(op.PageOperations):
    sorted_at_once = 1 << 26
    """Edges that a build sorts at once, if no tile has more."""

    def __init__(
        self,
        launch: Launcher,
        graph: op.GraphOperations,
        rebuild: op.RebuildOperations,
        shape: PageShape,
    ) -> None:
        self._launch, self._graph, self._rebuild = launch, graph, rebuild
        self._device, self._xp = launch.device, launch.xp
        self.shape = shape

    def bytes_needed(self, vertices: int, edges: int, weighted: bool = False) -> int:
        filled = _FILLED * (self.shape.page_bytes - _MOST_BYTES)
        tiles = self._tiles(vertices)
        pages = int(_MOST_BYTES * edges / filled) + 2 * tiles
        spare = pages // _SPARE_PART + _LEAST_SPARE
        # the pages of all ranges, and then all in one array
        held = (2 * pages + spare) * ((1 + weighted) * self.shape.page_bytes + 32)
        scratch = (_SCRATCH + weighted * _WEIGHT_SCRATCH) * min(edges, self.sorted_at_once)
        return held + 8 * (vertices + (tiles << self.shape.tile_bits)) + scratch

    def _tiles(self, vertices: int) -> int:
        """Tiles of as many vertices, and of those that there is to be room for."""
        return 1 + (vertices + vertices // _ROOM_PART >> self.shape.tile_bits)

    def build(self, incoming: Csr) -> PagedLists:
        vertices, tiles = len(incoming.row_lengths), self._tiles(len(incoming.row_lengths))
        ranges = [self._build_range(incoming, *each) for each in self._ranges(incoming)]
        tile_of = np.concatenate([each[0] for each in ranges])
        first_keys = np.concatenate([each[1] for each in ranges])
        # tiles without vertices have an empty page too
        begun = int(tile_of[-1]) + 1 if len(tile_of) else 0
        tile_of = np.append(tile_of, np.arange(begun, tiles))
        first_keys = np.append(first_keys, np.arange(begun, tiles) << self.shape.key_bits)
        built = len(tile_of)
        pages = built + built // _SPARE_PART + _LEAST_SPARE
        allocate, cells = self._device.allocate, self.shape.page_bytes // 2
        joined = allocate("in-lists in pages", pages * cells, np.uint16)
        weights = None
        if incoming.weights is not None:
            weights = allocate("in-lists in pages", pages * cells // 2, np.float32)
            weights[built * cells // 2 :].fill(0.0)
        numbers = allocate("in-lists in pages", 3 * pages, np.int32)
        keys = allocate("in-lists in pages", pages, np.int64)
        page_edges, page_sources, following = (
            numbers[begin * pages : (begin + 1) * pages] for begin in range(3)
        )
        page_edges.fill(0)
        page_sources.fill(0)
        following.fill(-1)
        joined[built * cells :].fill(0)
        end = 0
        ranges.reverse()
        while ranges:  # each is freed as soon as it is copied
            _, _, of_range, edges, sources, own_weights = ranges.pop()
            begin, end = end, end + len(edges)
            joined[begin * cells : end * cells] = of_range
            page_edges[begin:end], page_sources[begin:end] = edges, sources
            if weights is not None:
                weights[begin * cells // 2 : end * cells // 2] = own_weights
            del of_range, own_weights
        keys[:built] = self._device.to_device(first_keys)
        items, divided = self._items(tile_of, tiles)
        sums = allocate("in-lists in pages", tiles << self.shape.tile_bits, np.int64)
        sums.fill(0)
        counts = np.zeros(PAGE_COUNTS["SIZE"], np.int32)
        counts[PAGE_COUNTS["USED"]] = built
        on_device = self._device.to_device
        assert vertices <= len(sums)
        return PagedLists(
            joined,
            page_edges,
            page_sources,
            keys,
            following,
            built,
            built,
            on_device(counts),
            on_device(items),
            on_device(divided),
            sums,
            weights,
        )

    def _ranges(self, incoming: Csr) -> Iterator[tuple[int, int]]:
        """(first tile, last tile + 1) of ranges of up to sorted_at_once edges, or of one tile."""
        xp, vertices = self._xp, len(incoming.row_lengths)
        if vertices == 0:
            return
        through = xp.cumsum(incoming.row_lengths, dtype=np.int64)
        tiles = -(-vertices >> self.shape.tile_bits)
        last = np.minimum(np.arange(1, tiles + 1) << self.shape.tile_bits, vertices) - 1
        ends = self._device.to_host(through[self._device.to_device(last)])
        first, before = 0, 0
        while first < tiles:
            end = int(np.searchsorted(ends, before + self.sorted_at_once, side="right"))
            end = max(first + 1, end)
            yield first, end
            first, before = end, int(ends[end - 1])

    def _build_range(
        self, incoming: Csr, first: int, end: int
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], Array, Array, Array, Array | None]:
        """Tiles and first keys of the pages of these tiles, on the host; their cells, edges,
        sources and weights.
        """
        shape, device = self.shape, self._device
        rows = slice(first << shape.tile_bits, end << shape.tile_bits)
        own = incoming._replace(
            row_starts=incoming.row_starts[rows], row_lengths=incoming.row_lengths[rows]
        )
        entries = self._rebuild.entries(own)
        count = len(entries.rows)
        keys = device.allocate("keys of pages", count, np.int64)
        columns = (entries.rows, entries.neighbours, count, rows.start)
        if count:
            self._launch("pages", "pack_entries", grid_blocks(count), *columns, keys)
        key_weights = entries.weights
        del entries, columns
        keys, key_weights, _ = self._graph.sort(keys, key_weights)
        weighted = key_weights is not None
        begins, of_begins = self._page_begins(keys, weighted)
        tiles = of_begins >> shape.key_bits
        # a tile without edges has an empty page
        empty = np.setdiff1d(np.arange(first, end), tiles)
        places = np.searchsorted(tiles, empty)
        begins = np.insert(begins, places, np.append(begins, count)[places])
        of_begins = np.insert(of_begins, places, 0)
        tiles = np.insert(tiles, places, empty)
        new_tile = np.append(True, tiles[1:] != tiles[:-1])
        first_keys = np.where(new_tile, tiles << shape.key_bits, of_begins)
        pages = len(tiles)
        cells = device.allocate("in-lists in pages", pages * shape.page_bytes // 2, np.uint16)
        cells.fill(0)
        edges = device.allocate("in-lists in pages", pages, np.int32)
        sources = device.allocate("in-lists in pages", pages, np.int32)
        weights = None
        if weighted:
            weights = device.allocate("in-lists in pages", len(cells) // 2, np.float32)
            weights.fill(0.0)
        ends = device.to_device(np.append(begins, count))
        written = (keys, key_weights, ends, cells, weights, edges, sources)
        self._launch("pages", "write_pages", pages, *written, weighted=weighted)
        return tiles, first_keys, cells, edges, sources, weights

    def _page_begins(
        self, keys: Array, weighted: bool
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Where pages begin in ascending keys, so that each is filled as far as it should be, and
        the keys there.
        """
        xp, shape = self._xp, self.shape
        if len(keys) == 0:
            return np.zeros(0, np.int64), np.zeros(0, np.int64)
        costs = xp.full(len(keys), _MOST_BYTES, np.int64)
        source = keys >> shape.tile_bits
        costs[1:] -= _SOURCE_BYTES[weighted] * (source[1:] == source[:-1])
        costs = xp.cumsum(costs)
        costs //= int(_FILLED * shape.page_bytes)
        source >>= shape.key_bits - shape.tile_bits  # now the tile
        new = (costs[1:] != costs[:-1]) | (source[1:] != source[:-1])
        begins = xp.concatenate([xp.zeros(1, np.int64), xp.flatnonzero(new) + 1])
        return self._device.to_host(begins), self._device.to_host(keys[begins])

    def _items(
        self, tile_of: NDArray[np.int64], tiles: int
    ) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """PagedLists.items, the largest first, and divided. tile_of: the tile of each page."""
        blocks = self._device.multiprocessors * self.shape.blocks
        most = max(1, -(-len(tile_of) // (_ITEMS_PER_BLOCK * blocks)))
        counts = np.bincount(tile_of, minlength=tiles)
        parts = -(-counts // most)
        item_tiles = np.repeat(np.arange(tiles), parts)
        part = np.arange(len(item_tiles)) - np.repeat(np.cumsum(parts) - parts, parts)
        first = np.repeat(np.cumsum(counts) - counts, parts)
        begin, end = (
            first + (part + more) * counts[item_tiles] // parts[item_tiles] for more in (0, 1)
        )
        items = np.stack([item_tiles, begin, end - begin, parts[item_tiles] > 1], axis=1)
        items = items[np.argsort(begin - end, kind="stable")].astype(np.int32)
        return np.ascontiguousarray(items), np.flatnonzero(parts > 1).astype(np.int32)

    def follow(self, lists: PagedLists, *changes: op.EdgeChanges) -> bool:
        several = len(changes) > 1
        if several and lists.weights is not None:  # the last weight of an edge counts
            return all(self.follow(lists, each) for each in changes)
        removed_sources, removed_targets, added_sources, added_targets = (
            self._xp.concatenate(columns) if several else columns[0]
            for columns in zip(*(each[2:6] for each in changes), strict=True)
        )
        removals, additions = len(removed_targets), len(added_targets)
        total = removals + additions
        if total == 0:
            return True
        packed = self._device.allocate("changes of pages", total, np.int64)
        numbers = self._device.allocate("changes of pages", 2 * total, np.int32)
        self._launch(
            "pages",
            "pack_changes",
            grid_blocks(total),
            *(removed_sources, removed_targets, removals),
            *(added_sources, added_targets, additions),
            packed,
        )
        weights = None
        if lists.weights is not None:
            (own,) = changes
            weights = self._xp.concatenate([own.removed_weights, own.added_weights])
        ascending, weights, _ = self._graph.sort(packed, weights)
        if several:
            ascending = self._net(ascending)
        while True:
            # a page never takes more new ones than it is given edges
            lists.used += min(additions, len(ascending))
            many = len(ascending) > self.shape.most_changed
            left = self._xp.zeros(len(ascending), np.uint8) if many else None
            self._change(lists, ascending, weights, numbers, left)
            if not many and lists.used <= len(lists.following):
                return True
            counts = self._device.to_host(lists.counts)
            lists.used = int(counts[PAGE_COUNTS["USED"]])
            if counts[PAGE_COUNTS["FAILED"]]:
                return False
            if left is None or not counts[PAGE_COUNTS["LEFT"]]:
                return True
            ascending = ascending[left != 0]
            weights = None if weights is None else weights[left != 0]

    def _net(self, ascending: Array) -> Array:
        """What is left of the packed changes of several batches. An edge comes and goes in turn: of
        an odd number of changes that in the middle is left, of an even one none.
        """
        xp, edges = self._xp, ascending >> 1
        differ = xp.ones(len(edges) + 1, np.bool_)
        differ[1:-1] = edges[1:] != edges[:-1]
        ends = xp.flatnonzero(differ)
        first, counts = ends[:-1], ends[1:] - ends[:-1]
        return ascending[(first + counts // 2)[counts % 2 == 1]]

    def _change(
        self,
        lists: PagedLists,
        ascending: Array,
        weights: Array | None,
        numbers: Array,
        left: Array | None,
    ) -> None:
        """Applies packed changes with their weights; numbers  int32[…], at least twice as long."""
        count, weighted = len(ascending), weights is not None
        found, crowded = numbers[:count], numbers[count : 2 * count]
        run, own = self._launch.run, {"changes": ascending, "count": count}
        run("pages", "find_pages", grid_blocks(count), lists, weighted=False, found=found, **own)
        own |= {"at": found, "crowded": crowded, "change_weights": weights}
        run("pages", "edit_pages", blocks_for(WARP * count), lists, weighted=weighted, **own)
        own |= {"left": left, "most_pages": len(lists.following)}
        blocks = self._launch.resident_blocks(BLOCK * count, _WAVES)
        run("pages", "rewrite_pages", blocks, lists, weighted=weighted, **own)


def over_in_lists(
    launch: Launcher,
    shape: PageShape | None,
    file: str,
    kernels: tuple[str, str],
    do: Any,
    **own: Any,
) -> Array:
    """Launches the kernel that sums rows, or forms the sums by pages and launches the one that
    takes them, one part of the rows after the other; returns its sums, on the device.
    """
    of_rows, of_sums = kernels
    if do.graph.pages is None or shape is None:
        return launch.over_rows(file, of_rows, do, **own)
    paged = _paged_sums(launch, shape, do.graph, do.graph.pages, do.contributions)
    own |= zip(("page_sums", "unit", "scale"), paged, strict=True)
    return launch.over_vertices(file, of_sums, do, do.rows, **own)


def _paged_sums(
    launch: Launcher, shape: PageShape, graph: GraphView, pages: PagedView, contributions: Array
) -> tuple[Any, ...]:
    """Forms the sums of a sweep. Returns them, their unit, and its inverse."""
    lists, scale = pages.lists, np.float32(1.0 / pages.unit)
    next_item, divided = lists.counts[PAGE_COUNTS["NEXT_ITEM"] :], len(lists.divided)
    clearing = (lists.divided, divided, next_item, lists.sums)
    launch("pages", "clear_sums", max(1, divided), *clearing)
    launch(
        "pages",
        "add_pages",
        min(launch.device.multiprocessors * shape.blocks, len(lists.items)),
        graph.vertices,
        lists.items,
        len(lists.items),
        lists.cells,
        lists.weights,
        lists.page_edges,
        lists.page_sources,
        lists.following,
        contributions,
        scale,
        next_item,
        lists.sums,
        weighted=graph.weighted,
        threads=shape.threads,
        shared_bytes=shape.shared_bytes,
    )
    return lists.sums, np.float32(pages.unit), scale
