"""Contract: in-lists in pages, for sweeps that read less at random."""

from __future__ import annotations

from typing import Protocol

from liverank_gpu.operations.csr import Csr, PagedLists
from liverank_gpu.operations.graph import EdgeChanges


class PageOperations(Protocol):
    """Operations on PagedLists."""

    def bytes_needed(self, vertices: int, edges: int) -> int:
        """Upper bound on the memory that `build` takes, its peak included; without what a tile of
        more edges than are sorted at once takes.
        """

    def build(self, incoming: Csr) -> PagedLists:
        """The in-lists of an unweighted graph in pages, with room for more. Neighbours may be more
        than rows: columns of a shard. A range of tiles is sorted at a time. Raises OutOfMemory,
        MemoryError.
        """

    def follow(self, lists: PagedLists, changes: EdgeChanges) -> bool:
        """Changes the pages as a batch changed the graph, which has no more vertices than there is
        room for. Returns False if a page found no room, and raises MemoryError: then they cannot be
        used any more.
        """
