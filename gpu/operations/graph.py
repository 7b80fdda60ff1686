"""Contract: changing and rebuilding a graph in compressed sparse rows."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from gpu.operations.csr import Csr, Rows, SlackCsr
from gpu.operations.device import Array
from gpu.operations.update import BatchPlan, Counts, EdgeChanges


class GraphOperations(ABC):
    """Operations on the arrays of a graph. A key packs an operation on an edge into 63 bits:
    ``row << 32 | neighbour << 1 | operation``, with DELETE = 0 and INSERT = 1. Sorted keys group
    the operations on an edge, deletions first, and the edges of a row by neighbour. The largest
    int64 is no operation.
    """

    @abstractmethod
    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        """Two columns of ids as the kernels take them: int32 or int64, both the same."""

    @abstractmethod
    def sorted_keys(
        self, columns: list[tuple[int, Array, Array]], vertices: tuple[int, int], positions: Array
    ) -> Array:
        """int64[…] on the device, ascending: one key for each row of the columns.

        columns    (operation, sources, targets), integer arrays of the host or the device
        vertices   for each operation, how many ids are known; a key with another id is no operation
        positions  int32[m], a permutation: position of each id below m; other ids are positions
        """

    @abstractmethod
    def sort(self, keys: Array) -> Array:
        """The int64[…] in ascending order, in place or in another array; the argument is spent."""

    @abstractmethod
    def resolve_update(
        self, csr: SlackCsr, loop: Array, fixed_loops: bool, keys: Array, plan: BatchPlan
    ) -> None:
        """Finds what sorted keys change in one direction: fills `plan` except for new rows.

        Every named row is read once, and its entries are looked up among the named edges. Changes
        have the order of the keys.

        loop         uint8[n]
        fixed_loops  whether loops can be neither inserted nor deleted
        """

    @abstractmethod
    def plan_rows(self, csr: SlackCsr, operations: int, plan: BatchPlan) -> None:
        """The new length of each named row and the new start of each that outgrows its capacity:
        fills the rest of `plan`. Writes nothing of the graph.
        """

    @abstractmethod
    def apply_update(
        self,
        csr: SlackCsr,
        plan: BatchPlan,
        counts: Counts,
        loop: Array,
        degree: Array,
        changes: EdgeChanges | None,
    ) -> None:
        """Applies a plan to one direction.

        Rows that outgrow their capacity move behind ``csr.end``. Additions take the slots of
        removed entries in order, then those behind the row's end. Where more is removed than
        added, the entries behind the new end fill the remaining slots in order.

        changes  for the out-lists: receives what changed, and loops and degrees are updated too;
                 None for the in-lists
        """

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
        self, rows: Array, neighbours: Array, chosen: tuple[int, int, int], positions: Array
    ) -> Array:
        """int64[ids in the range]: ascending keys of the insertions into one of `row_ranges`."""

    @abstractmethod
    def deduplicate(self, keys: Array, loop: Array) -> tuple[int, int]:
        """Drops repeats and loops from sorted insertions, in place.

        loop  uint8[n], set for each loop
        Returns the number of keys left and the number of distinct loops.
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
        self, keys: Array, edges: int, low: int, first: Array, start: Array, column_indices: Array
    ) -> None:
        """Writes the neighbours of ascending keys into their rows, ascending.

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
    def copy_rows(self, csr: Csr, new_start: Array, new_end: int, new_indices: Array) -> None:
        """Copies all rows to where `pack_rows` placed them, up to slot `new_end`."""

    @abstractmethod
    def entries(self, csr: Csr) -> tuple[Array, Array]:
        """int32[entries] each, on the device: row and neighbour of every entry, rows ascending."""

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
