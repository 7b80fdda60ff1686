"""Edges in pages by tiles of targets: see pages.cu."""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp

import numpy as np
from numpy.typing import NDArray

from benchmarks.gather.kernels import Kernels, Vectors
from gpu.backends.cuda.kernels.loader import SWEEP_SUMS, WARP
from gpu.backends.cuda.launcher import blocks_for, grid_blocks
from gpu.graph.dynamic_graph import DynamicGraph
from gpu.operations.device import Array
from gpu.operations.sweeps import SweepResult
from gpu.operations.update import EdgeChanges

ACCUMULATORS = {"two words": 0, "one word": 1, "float": 2}
"""How a sum is kept in shared memory, by its number in pages.cu."""

SOURCE_BITS = 27
"""Bits of a source in a key."""

_SUM_BITS = 52
"""Sums are multiples of 2⁻⁵² of ‖r‖₁, or of up to twice as much."""


@dataclass(frozen=True, slots=True)
class PageShape:
    """Sizes that the kernels are compiled for.

    tile_bits  a tile has 2^tile_bits vertices: 8 bytes of shared memory for each
    threads    of a block that adds pages
    resident   such blocks on a multiprocessor
    filled     the part of a new page that is used
    """

    tile_bits: int = 14
    page_bytes: int = 4096
    threads: int = 1024
    resident: int = 1
    filled: float = 0.8

    @property
    def key_bits(self) -> int:
        return self.tile_bits + SOURCE_BITS

    @property
    def shared(self) -> int:
        """Bytes of shared memory of a tile."""
        return 8 << self.tile_bits


ITEMS_PER_BLOCK = 8
"""Items of work for each resident block, about."""

SPARE_PAGES = 64
"""New pages that there is room for, at least; and a sixteenth of all."""


class Pages:
    """The in-lists of an unweighted graph in pages.

    cells      uint16[pages · page_bytes/2], see pages.cu
    page_edges, page_sources  int32[pages]
    directory  int32[entries]: the pages, by tile and key
    first_keys int64[entries]: the first key that each may hold
    used       pages in use
    """

    def __init__(self, graph: DynamicGraph, shape: PageShape) -> None:
        names = [f"add_pages<{kind}, false>" for kind in ACCUMULATORS.values()]
        names += ["add_pages<0, true>", "bin_contributions", "finish_sweep", "write_pages"]
        constants = {
            "TILE_BITS": shape.tile_bits,
            "SOURCE_BITS": SOURCE_BITS,
            "PAGE_BYTES": shape.page_bytes,
            "THREADS": shape.threads,
            "RESIDENT": shape.resident,
        }
        self._launch = Kernels(
            graph.backend, "pages", (*names, "find_pages", "rewrite_pages"), constants
        )
        self._graph, self._shape, self._xp = graph, shape, graph.backend.xp
        self._tiles = -(-graph.vertices >> shape.tile_bits)
        self._sums = self._xp.zeros(graph.vertices, np.int64)
        self._next_item = self._xp.zeros(1, np.int32)
        self._binned: tuple[Array, Array, Array] | None = None
        self._build()

    def _keys(self, sources: Array, targets: Array) -> Array:
        """Ascending keys of edges."""
        shape = self._shape
        keys = targets.astype(np.int64)
        keys = (keys >> shape.tile_bits << shape.key_bits) | keys & ((1 << shape.tile_bits) - 1)
        keys |= sources.astype(np.int64) << shape.tile_bits
        keys.sort()
        return keys

    def _build(self) -> None:
        xp, shape, device = self._xp, self._shape, self._launch.device
        entries = self._graph.backend.rebuild.entries(self._graph.incoming.csr)
        keys = self._keys(entries.neighbours, entries.rows)
        del entries
        first_of_tile = xp.searchsorted(keys, xp.arange(self._tiles) << shape.key_bits)
        begins = device.to_host(self._page_begins(keys, first_of_tile))
        # a tile without edges has an empty page
        tiles = np.searchsorted(device.to_host(first_of_tile), begins, side="right") - 1
        empty = np.setdiff1d(np.arange(self._tiles), tiles)
        places = np.searchsorted(tiles, empty)
        begins = np.insert(begins, places, np.append(begins, len(keys))[places])
        tiles = np.insert(tiles, places, empty)
        self.used = len(begins)
        most = self.used + self.used // 16 + SPARE_PAGES
        self.cells = xp.zeros(most * shape.page_bytes // 2, np.uint16)
        self.page_edges, self.page_sources = xp.zeros((2, most), np.int32)
        self.directory = xp.arange(self.used, dtype=np.int32)
        ends = device.to_device(np.append(begins, len(keys)))
        first = np.append(True, tiles[1:] != tiles[:-1])
        self.first_keys = device.to_device(tiles.astype(np.int64) << shape.key_bits)
        inner = device.to_device(np.flatnonzero(~first))
        self.first_keys[inner] = keys[ends[inner]]
        arrays = (self.cells, self.page_edges, self.page_sources)
        self._launch("write_pages", self.used, keys, ends, *arrays)
        self._plan(tiles)

    def _page_begins(self, keys: Array, first_of_tile: Array) -> Array:
        """int64[…]: where pages begin, so that each is filled as far as it should be."""
        xp, shape = self._xp, self._shape
        if len(keys) == 0:
            return xp.zeros(0, np.int64)
        costs = xp.full(len(keys), 6, np.int64)
        source = keys >> shape.tile_bits
        costs[1:] -= 4 * (source[1:] == source[:-1])
        del source
        costs = xp.cumsum(costs) - costs
        tiles = keys >> shape.key_bits
        costs -= costs[xp.minimum(first_of_tile, len(keys) - 1)][tiles]
        costs //= int(shape.filled * shape.page_bytes)
        new = (costs[1:] != costs[:-1]) | (tiles[1:] != tiles[:-1])
        return xp.concatenate([xp.zeros(1, np.int64), xp.flatnonzero(new) + 1])

    def _plan(self, tiles: NDArray[np.int64]) -> None:
        """Divides the pages into items of work, the largest first.

        tiles  of the entries of the directory
        """
        xp, device = self._xp, self._launch.device
        blocks = device.multiprocessors * self._shape.resident
        most = max(1, -(-self.used // (ITEMS_PER_BLOCK * blocks)))
        counts = np.bincount(tiles, minlength=self._tiles)
        parts = -(-counts // most)
        item_tiles = np.repeat(np.arange(self._tiles), parts)
        part = np.arange(len(item_tiles)) - np.repeat(np.cumsum(parts) - parts, parts)
        first = np.repeat(np.cumsum(counts) - counts, parts)
        begin, end = (
            first + (part + more) * counts[item_tiles] // parts[item_tiles] for more in (0, 1)
        )
        items = np.stack([item_tiles, begin, end - begin, parts[item_tiles] > 1], axis=1)
        items = items[np.argsort(begin - end, kind="stable")].astype(np.int32)
        self._blocks = min(blocks, len(items))
        self._items = device.to_device(np.ascontiguousarray(items))
        self._divided = xp.asarray((parts > 1).astype(np.uint8))

    @property
    def sources(self) -> int:
        """Sources of all pages: contributions that a sweep reads."""
        return int(self.page_sources[: self.used].sum(dtype=np.int64))

    @property
    def nbytes(self) -> int:
        arrays = (self.cells, self.page_edges, self.page_sources, self.directory, self.first_keys)
        return sum(int(array.nbytes) for array in (*arrays, self._sums))

    def sweep(
        self, vectors: Vectors, accumulator: str = "two words", binned: bool = False
    ) -> SweepResult:
        """A sweep, in place. `binned` writes the contributions into the bins of pages first."""
        self.add(vectors, accumulator, binned)
        return self.finish(vectors)

    def add(self, vectors: Vectors, accumulator: str = "two words", binned: bool = False) -> None:
        """The sums of the contributions, as integers."""
        arrays = (self.cells, self.page_edges, self.page_sources, vectors.contributions)
        starts = amounts = np.uintp(0)
        if binned:
            order, starts, amounts = self._bins()
            blocks, count = blocks_for(WARP * self.used, most=8192), np.int32(self.used)
            self._launch("bin_contributions", blocks, order, count, *arrays, starts, amounts)
        self._launch(
            f"add_pages<{ACCUMULATORS[accumulator]}, {str(binned).lower()}>",
            self._blocks,
            np.int64(self._graph.vertices),
            self._items,
            np.int32(len(self._items)),
            self.directory,
            *arrays,
            starts,
            amounts,
            np.float32(1.0 / self._unit(vectors)),
            self._next_item,
            self._sums,
            threads=self._shape.threads,
            shared=self._shape.shared,
        )

    def finish(self, vectors: Vectors) -> SweepResult:
        """The rest of a sweep after `add`."""
        graph, view = self._graph, self._graph.view
        blocks = min(grid_blocks(graph.vertices), 2048)
        partial_sums = self._xp.empty((blocks, SWEEP_SUMS))
        self._launch(
            "finish_sweep",
            blocks,
            np.int64(graph.vertices),
            view.incoming.row_lengths,
            view.loop,
            view.degree,
            vectors.contributions,
            np.float64(vectors.damping),
            np.float64(vectors.shift),
            np.float64(self._unit(vectors)),
            self._divided,
            self._next_item,
            self._sums,
            vectors.values,
            vectors.residual,
            vectors.following,
            partial_sums,
        )
        return self._launch.result(partial_sums)

    def _unit(self, vectors: Vectors) -> float:
        """What a sum of 1 stands for: a power of two."""
        return float(2.0 ** (frexp(vectors.residual_l1)[1] - _SUM_BITS))

    def _bins(self) -> tuple[Array, Array, Array]:
        """Pages by their first source, where the bin of each begins, and room for all."""
        if self._binned is None:
            xp, last = self._xp, self._shape.page_bytes // 4
            words = self.cells.view(np.uint32)
            order = xp.argsort(words[last * xp.arange(1, self.used + 1) - 1]).astype(np.int32)
            counts = self.page_sources[: self.used].astype(np.int64)
            starts = xp.cumsum(counts) - counts
            self._binned = order, starts, xp.empty(self.sources, np.uint16)
        return self._binned

    def apply(self, changes: EdgeChanges) -> None:
        """Follows a batch of the graph. Raises RuntimeError if a page found no room."""
        xp, device = self._xp, self._launch.device
        removed, added = (
            self._keys(sources[kept], targets[kept])
            for sources, targets, kept in (
                (ends[0], ends[1], ends[0] != ends[1]) for ends in (changes[2:4], changes[4:6])
            )
        )
        found = []
        for keys in (removed, added):
            at = xp.empty(len(keys), np.int32)
            arguments = (keys, np.int64(len(keys)), self.first_keys, np.int64(len(self.directory)))
            if len(keys):
                self._launch("find_pages", blocks_for(len(keys)), *arguments, at)
            found.append(at)
        if len(removed) + len(added) == 0:
            return
        split = xp.full(len(self.directory), -1, np.int32)
        split_keys = xp.empty(len(self.directory), np.int64)
        counts = device.to_device(np.array([self.used, 0], np.int32))
        self._launch(
            "rewrite_pages",
            len(removed) + len(added),
            removed,
            found[0],
            np.int64(len(removed)),
            added,
            found[1],
            np.int64(len(added)),
            self.directory,
            self.first_keys,
            np.int32(len(self.page_edges)),
            self.cells,
            self.page_edges,
            self.page_sources,
            split,
            split_keys,
            counts,
        )
        used, failures = device.to_host(counts).tolist()
        if failures:
            raise RuntimeError(f"pages without room for {failures} changes")
        if used > self.used:
            self.used = used
            self._insert(split, split_keys)
        self._binned = None

    def _insert(self, split: Array, split_keys: Array) -> None:
        """Enters new pages into the directory."""
        xp, entries = self._xp, self._xp.flatnonzero(split >= 0)
        keys = xp.concatenate([self.first_keys, split_keys[entries]])
        order = xp.argsort(keys)
        self.directory = xp.concatenate([self.directory, split[entries]])[order]
        self.first_keys = keys[order]
        self._plan(self._launch.device.to_host(self.first_keys >> self._shape.key_bits))
