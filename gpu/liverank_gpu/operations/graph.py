"""Contract: changing a graph in compressed sparse rows by batches."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

from liverank_gpu.operations.csr import SlackCsr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.update import BatchPlan, Counts, EdgeChanges


class SortedKeys(NamedTuple):
    """Keys in ascending order, equal ones in the order in which they were given.

    keys     int64[k]
    weights  float32[k], those of the operations; None for an unweighted graph
    order    integer[k], their places before the sort; None for an unweighted graph
    """

    keys: Array
    weights: Array | None = None
    order: Array | None = None


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
        self,
        columns: list[tuple[int, Array, Array]],
        vertices: tuple[int, int],
        positions: Array,
        weights: Array | None = None,
    ) -> SortedKeys:
        """The keys of all rows of the columns, one after the other.

        columns    (operation, sources, targets), integer arrays of the host or the device
        vertices   for each operation, how many ids are known; a key with another id is no operation
        positions  int32[m], a permutation: position of each id below m; other ids are positions
        weights    float32[rows] on the device; None for an unweighted graph
        """

    @abstractmethod
    def sort(self, keys: Array, weights: Array | None = None) -> SortedKeys:
        """The int64[…] in ascending order, in place or in another array; the argument is spent."""

    @abstractmethod
    def resolve_update(
        self,
        csr: SlackCsr,
        loop: Array,
        fixed_loops: bool,
        batch: SortedKeys,
        adds: bool,
        directed: bool,
        plan: BatchPlan,
    ) -> None:
        """Finds what sorted keys change in one direction: fills `plan` except for new rows.

        Every named row is read once, and its entries are looked up among the named edges. Changes
        have the order of the keys.

        loop         see GraphView
        fixed_loops  whether loops can be neither inserted nor deleted
        adds         whether weights are added to those present, or replace them
        directed     see liverank_gpu.types.Options; decides what counts (see Counts.inserted)
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
