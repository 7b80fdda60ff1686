"""Contract: loading, packing, listing and grouping all rows of a graph."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import Csr, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import SortedKeys


class Slots(NamedTuple):
    """The entries of a Csr, by slot: its column indices and its weights, if it has any."""

    column_indices: Array
    weights: Array | None = None


class Entries(NamedTuple):
    """Edges as columns on the device.

    rows, neighbours  int32[entries]
    weights           float32[entries]; None for an unweighted graph
    """

    rows: Array
    neighbours: Array
    weights: Array | None = None


class Deduplicated(NamedTuple):
    """What `deduplicate` left and found.

    edges       keys left
    loops       distinct loops
    reweighted  kept edges whose weight changed, loops not counted
    exceeded    place of the last insertion of the first edge, by row and neighbour, whose sum of
                weights exceeds float32; -1 if there is none
    """

    edges: int
    loops: int
    reweighted: int = 0
    exceeded: int = -1


class RebuildOperations(ABC):
    """Operations on whole rows. Keys: see liverank_gpu.operations.graph.GraphOperations."""

    @abstractmethod
    def row_ranges(
        self, rows: Array, vertices: int, limit: int, positions: Array
    ) -> list[tuple[int, int, int]]:
        """Splits the rows of a column of ids into ranges, so that a load sorts one at a time.

        rows       integer[edges] of the host or the device, ids in 0 … vertices-1
        positions  see `sorted_keys`
        Returns (first row, end of rows, number of ids in the range), at most `limit` ids in each
        unless a row and its near neighbours have more.
        """

    @abstractmethod
    def keys_of_range(
        self,
        rows: Array,
        neighbours: Array,
        weights: Array | None,
        chosen: tuple[int, int, int],
        positions: Array,
    ) -> SortedKeys:
        """The keys of the insertions into one of `row_ranges`.

        weights  float32[edges] on the device; None for an unweighted graph
        """

    @abstractmethod
    def deduplicate(
        self, batch: SortedKeys, loop: Array, adds: bool = False, kept: int = 0
    ) -> Deduplicated:
        """Drops repeats and loops from sorted insertions, in place.

        loop  see GraphView: set for each loop
        adds  whether the weights of repeats are added; else the last one stands
        kept  insertions with a lower place are edges that the graph has already
        """

    @abstractmethod
    def merge(self, first: SortedKeys, second: SortedKeys) -> SortedKeys:
        """The keys of both, ascending, equal ones of `first` before those of `second`, in new
        arrays, with their weights and what stands in `order`. The arguments are spent.

        first  in any order, without repeats; that of ascending ones takes the least time
        """

    @abstractmethod
    def count_rows(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        """Counts the keys of each row of `edges` ascending, distinct ones.

        low     the first row of the range
        first   int64[rows of the range], receives the index of the first key of each row that has
                one
        length  int32[rows of the range], zero before, receives the number of keys
        Returns the slots of the rows when packed without slack, and the length of the longest row.
        """

    @abstractmethod
    def fill_rows(
        self, batch: SortedKeys, edges: int, low: int, first: Array, start: Array, slots: Slots
    ) -> None:
        """Writes the neighbours of ascending keys, and their weights, into their rows, ascending.

        low, first  as in `count_rows`
        start       int64[rows of the range], row starts
        """

    @abstractmethod
    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        """Places rows of these lengths one after the other from slot `begin`, without slack.

        start, capacity  int64[n] and int32[n], written; a capacity is the length rounded up to
                         ALIGNMENT
        """

    @abstractmethod
    def copy_rows(self, csr: Csr, new_start: Array, new_end: int, slots: Slots) -> None:
        """Copies all rows to where `pack_rows` placed them, up to slot `new_end`."""

    @abstractmethod
    def entries(self, csr: Csr) -> Entries:
        """Every entry, rows ascending."""

    @abstractmethod
    def sum_weights(self, csr: Csr, vertices: Array | None, loop: Array, strength: Array) -> None:
        """The strengths of a weighted graph, summed from its out-lists in the order of their slots.
        What rounding takes of a sum, relative to it, is at most `strength_depth` · 2⁻⁵³.

        vertices        int32[k], distinct; None for all
        loop, strength  see GraphView; strength is written at these vertices
        """

    @abstractmethod
    def scale_rows(
        self, outgoing: Csr, incoming: Csr, factors: Array, loop: Array, strength: Array
    ) -> None:
        """Multiplies the rows of a weighted graph, in both directions, by powers of two, and with
        them their loops and strengths. Allocates nothing.

        factors  float32[n], by row of the out-lists; no product leaves the normal numbers, so that
                 all are exact
        """

    @abstractmethod
    def strength_depth(self, longest_row: int) -> int:
        """The most additions that a weight goes through in `sum_weights`, and one more."""

    @abstractmethod
    def partition(self, length: Array, order: Array, degree_bins: Array) -> NDArray[np.int64]:
        """Groups all rows of these lengths (int32[n]) for the kernels.

        order        int32[n], receives Rows.order
        degree_bins  uint8[n], receives the bin of each row, on backends that have bins
        Returns Rows.groups. New vertices may be appended to the last group.
        """

    @abstractmethod
    def needs_partition(self, rows: Rows, misbinned: int, slots: int) -> bool:
        """Whether rows changed so much since the last `partition` that sweeps would be slower.

        misbinned  sum of Counts.misbinned since then
        slots      slots of all rows when packed without slack
        """
