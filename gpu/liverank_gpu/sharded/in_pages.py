"""In-lists in pages in shards: liverank_gpu.graph.in_pages, on all shards or on none.

A contribution is rounded to the unit of the sums where it is used: by its own vertex, which is in
one shard, and by those that receive it, in all. So shards do not sweep by pages while another one
sweeps by rows. The pages of a shard have its own rows as targets, and columns as sources.

Whether all have pages, or are to build them, is agreed before anything else of a call, together
with other numbers; only a build takes an exchange of its own. Sweeps by rows, however many, have no
pages built here: only batches do.
"""

from __future__ import annotations

from liverank_gpu.graph.in_pages import InPages
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.update import BatchPlan, Counts, EdgeChanges
from liverank_gpu.sharded.columns import Columns
from liverank_gpu.sharded.communicator import Communicator


class ShardInPages(InPages):
    """The pages of one shard. All shards call `agree` after each batch before they sweep, and
    `view` together.
    """

    def __init__(self, local: Backend, communicator: Communicator, columns: Columns) -> None:
        super().__init__(local)
        self._communicator, self._columns = communicator, columns
        self._agreed = self._all_built = False

    def offer(self, graph: GraphView) -> tuple[bool, bool]:
        """Whether this shard has pages, and whether it has or would build them."""
        return self.kept, self.kept or self._may_build(graph, self._solves)

    def agree(self, kept: float, offered: float) -> None:
        """How many shards have pages, and how many have or would build them. Those that not all can
        have are dropped.
        """
        size = self._communicator.size
        self._agreed, self._all_built = offered == size, kept == size
        if self.kept and not self._agreed:
            self.drop()

    def view(
        self,
        graph: GraphView,
        largest_sum: float,
        of_query: bool = False,  # noqa: ARG002
    ) -> GraphView:
        """See InPages; the largest sum of all shards. Either all have pages, or none; a query
        builds those that the next solve would have built.
        """
        if not self._agreed:
            return graph
        if not self._all_built:
            if not self.kept:
                self._build(graph, self._solves)
            (built,) = self._communicator.sums([self.kept])
            self._agreed = self._all_built = built == self._communicator.size
            if not self._agreed:
                self._lists, self._solves.refused = None, graph.edges
        self._solves.wanted = False
        return self._paged(graph, largest_sum)

    def changes(self, plan: BatchPlan, counts: Counts) -> EdgeChanges:
        """What a plan of the in-lists changes, for `follow`; nothing if there are no pages. Raises
        MemoryError.
        """
        removed, added = (counts.removed, counts.added) if self.kept else (0, 0)
        rows = plan.row_vertex
        return EdgeChanges(
            sources=rows[:0],
            old_degree=rows[:0],
            removed_sources=plan.removed_neighbour[:removed],
            removed_targets=rows[plan.removed_row[:removed]],
            added_sources=plan.added_neighbour[:added],
            added_targets=rows[plan.added_row[:added]],
        )

    def _is_large(self, graph: GraphView) -> bool:
        return super()._is_large(graph._replace(edges=graph.edges // self._communicator.size))

    def _rows_swept_with(self, neighbours: Array) -> Array:
        return self._columns.rows_of(neighbours)
