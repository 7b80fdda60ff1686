"""In-lists in pages beside the rows of a graph: whether, when, and how they follow it.

Pages (liverank_gpu.operations.pages) take less time to sweep where rows read at random, and memory
and time to build and to follow batches. They are built with a load, where there is memory for them
beside a solve; else before a sweep that follows a batch, or many sweeps. They are kept through
batches, and dropped when the graph is rebuilt, a page finds no room, or memory is needed. Whoever
does not sweep in float64 reads rows. So do graphs whose weights decay: a scale moves all of a row.

A sum by pages and one by rows differ in their last bits. So that reads do not change the ranks that
are published, solves have pages when loads, batches and their own sweeps ask for them, whatever
queries swept; queries also use those of solves. (Memory that queries hold can still refuse pages.)
"""

from __future__ import annotations

from dataclasses import dataclass
from math import frexp

import numpy as np

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr, GraphView, PagedLists, PagedView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import ChangeBlock, ChangedLists, EdgeChanges

_SAMPLED_ROWS = 1 << 14

_SECTOR, _NEAR = 16, 1 << 12
"""A read is not random if it is as near to the one before in its list, so in the same 32 bytes, or
to its own row, since rows that are near are swept at the same time.
"""

_SUM_BITS, _WEIGHTED_SUM_BITS = 55, 61
"""The largest sum is up to 2⁵⁵ units; with weights, where each edge is rounded by itself, 2⁶¹."""

_LEAST_UNIT = -100
"""log2 of the smallest unit."""

_SAFE_FACTOR = 2
"""Pages are built if this many times the memory that they need is available."""

SWEEPS_BY_ROWS = 64
"""After so many, the next sweep builds pages: more will probably follow. Building them took as long
as 36 sweeps by rows on R-MAT 24, 26 on R-MAT 26 (benchmarks/notes/sweeps.md).
"""


_LATER_BATCHES, _LATER_EDGES = 256, 1 << 14
"""Batches that pages follow later, and changes of edges in all of them, at most: one has time until
the next sweep by pages, and several are followed at once.
"""


@dataclass(slots=True)
class _Demand:
    """What solves ask for, or queries.

    wanted   whether the next sweep is to build pages, if they are worth it
    refused  edges of the graph when its sample, or memory, was against them
    by_rows  sweeps since the graph had no edges, was rebuilt, or gave up its pages
    """

    wanted: bool = False
    refused: int = 0
    by_rows: int = 0


class InPages:
    """The pages of one graph, or none.

    lists  the pages, or None
    """

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.lists: PagedLists | None = None
        self._for_solves = False  # whether solves use them too
        self._solves, self._queries = _Demand(), _Demand()
        # batches that the pages have not followed, and their changes
        self._later: list[ChangedLists | ChangeBlock] = []
        self._later_edges = 0

    def memory(self) -> dict[str, int]:
        """Bytes of the pages, if there are any, by purpose."""
        return {"pages": self.lists.nbytes} if self.lists else {}

    @property
    def kept(self) -> bool:
        """Whether there are pages."""
        return self.lists is not None

    def want(self) -> None:
        """Has the next sweep build them, if they are worth it."""
        self._solves.wanted = self._queries.wanted = True

    def view(self, graph: GraphView, largest_sum: float, of_query: bool = False) -> GraphView:
        """The graph with its pages, which are built if they are wanted and worth it; without pages
        if there are none for a sweep of a query, or of a solve.

        largest_sum  upper bound on the sum of sizes of contributions to a vertex
        """
        if self._backend.pages is None:
            return graph
        self.catch_up()
        demand = self._queries if of_query else self._solves
        if not self._has(of_query):
            demand.wanted |= demand.by_rows >= SWEEPS_BY_ROWS
            if self._may_build(graph, demand):
                self._build(graph, demand)
        demand.wanted = False
        if not self._has(of_query):
            demand.by_rows += 1
            return graph
        return self._paged(graph, largest_sum)

    def _has(self, of_query: bool) -> bool:
        return self.kept and (of_query or self._for_solves)

    def build_ahead(self, graph: GraphView, beside: int) -> None:
        """After a load: builds those of solves, if they are worth it.

        beside  bytes that have to be available still
        """
        if self._for_solves or not self._is_large(graph):
            return
        if lists := self._built(graph, beside):
            self.lists, self._for_solves = lists, True

    def _may_build(self, graph: GraphView, demand: _Demand) -> bool:
        """Whether pages are wanted, and were not refused when the graph was about as large."""
        return demand.wanted and self._is_large(graph) and graph.edges >= 2 * demand.refused

    def _build(self, graph: GraphView, demand: _Demand) -> None:
        lists = self._built(graph)
        demand.refused = 0 if lists else graph.edges
        if lists:
            self.lists = lists
            self._for_solves |= demand is self._solves

    def _paged(self, graph: GraphView, largest_sum: float) -> GraphView:
        """The graph with the pages that there are."""
        if self.lists is None:
            return graph
        bits = _WEIGHTED_SUM_BITS if graph.weighted else _SUM_BITS
        exponent = max(frexp(largest_sum)[1] - bits, _LEAST_UNIT)
        return graph._replace(pages=PagedView(self.lists, 2.0**exponent))

    def follow(self, changes: EdgeChanges, vertices: int) -> None:
        """Follows a batch. vertices: of the graph after it."""
        self.follow_later(ChangedLists.of(changes), vertices)
        self.catch_up()

    def follow_later(self, lists: ChangedLists | ChangeBlock, vertices: int) -> None:
        """Follows a batch that rebuilt nothing before the next sweep by pages. Nothing changes its
        arrays until then.
        """
        if self.lists is not None and vertices > self.lists.room:
            self._give_up()
        if self.lists is None:
            self.want()
            return
        self._later.append(lists)
        self._later_edges += lists.edges
        self._solves.wanted |= not self._for_solves
        if len(self._later) > _LATER_BATCHES or self._later_edges > _LATER_EDGES:
            self.catch_up()

    def catch_up(self) -> None:
        """Follows the batches that were left for later."""
        operations, lists, later = self._backend.pages, self.lists, self._later
        if operations is None or lists is None or not later:
            return
        self._later, self._later_edges = [], 0
        try:
            changes = (each.changes for each in later)
            followed = operations.follow(lists, *(each for each in changes if each is not None))
        except MemoryError:
            followed = False
        if not followed:
            self._give_up()
            self.want()

    def drop(self) -> None:
        """Gives up the pages and their memory, until a load, a batch, or many sweeps."""
        self._give_up()
        self._solves = _Demand()

    def _give_up(self) -> None:
        if self._for_solves:
            self._solves = _Demand()
        self.lists, self._for_solves, self._queries = None, False, _Demand()
        self._later, self._later_edges = [], 0

    def require(self, purpose: str, needed: int, times: int = 1) -> None:
        """As DeviceOperations.require; drops the pages if there is not enough memory with them."""
        device = self._backend.device
        if self.lists and not device.has_room(needed, times):
            self._give_up()
        device.require(purpose, needed, times)

    def _built(self, graph: GraphView, beside: int = 0) -> PagedLists | None:
        """The pages of a graph, or None if they are not worth it or memory would not suffice. Those
        that queries had built are as good.
        """
        operations, least = self._backend.pages, self._backend.costs.pages.least_random
        try:
            if operations is None or self.random_reads(graph.incoming) < least:
                return None
            if self.lists:
                return self.lists
            entries = int(self._backend.device.sum(graph.incoming.row_lengths))
            needed = _SAFE_FACTOR * operations.bytes_needed(graph.vertices, entries, graph.weighted)
            self._backend.device.require("in-lists in pages", needed + beside)
            return operations.build(graph.incoming)
        except MemoryError:
            return None

    def _is_large(self, graph: GraphView) -> bool:
        """Whether reads at random may be worth pages."""
        rule = self._backend.costs.pages
        least = max(rule.least_edges, rule.least_degree * graph.vertices)
        return self._backend.pages is not None and graph.edges >= least

    def random_reads(self, incoming: Csr) -> float:
        """Random reads an edge of a sweep over rows, in a sample of them."""
        xp, total = self._backend.xp, self._backend.device.sum
        every = max(1, len(incoming.row_lengths) // _SAMPLED_ROWS)
        # from the middle of the first: where the longest rows come first, one would be all edges
        chosen = slice(every // 2, None, every)
        sample = incoming._replace(
            row_starts=xp.ascontiguousarray(incoming.row_starts[chosen]),
            row_lengths=xp.ascontiguousarray(incoming.row_lengths[chosen]),
        )
        rows, neighbours, _ = self._backend.rebuild.entries(sample)
        if len(rows) == 0:
            return 0.0
        own = neighbours.astype(np.int64)
        rows = every * rows.astype(np.int64) + every // 2
        random = xp.abs(self._rows_swept_with(own) - rows) > _NEAR
        random[1:] &= xp.abs(own[1:] - own[:-1]) > _SECTOR
        return float(total(random)) / len(rows)

    def _rows_swept_with(self, neighbours: Array) -> Array:
        """The rows that are swept at about the time at which these are read, if all is in order."""
        return neighbours
