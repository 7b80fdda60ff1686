"""Arrays that the personalized iterates of one graph share."""

from __future__ import annotations

from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.pagerank.workspace import (
    ContributionBuffers,
    Workspace,
    candidate_room,
    workspace_bytes,
)

_KEPT = 2
"""Free workspaces of a kind that are kept: for as many queries as usually run at once."""


class WorkspacePool:
    """Workspaces and contribution buffers, kept from query to query, since new ones cost a pass
    over n.
    """

    def __init__(self, graph: DynamicGraph) -> None:
        self.graph = graph
        self._free: list[Workspace] = []
        self._buffers: ContributionBuffers | None = None

    def take(self, list_every_vertex: bool = False) -> Workspace:
        """A workspace of zeros. Raises OutOfMemory.

        list_every_vertex  whether its candidate list has room for every vertex
        """
        fitting = [free for free in self._free if free.list_every_vertex == list_every_vertex]
        if fitting:
            workspace = fitting[-1]
            self._free.remove(workspace)
        else:
            workspace = Workspace(
                self.graph.backend,
                "a personalized vector",
                list_every_vertex=list_every_vertex,
            )
        workspace.extend(self.graph.vertices)
        return workspace

    def give_back(self, workspace: Workspace) -> None:
        """Clears a workspace and keeps it for the next query, unless there are enough."""
        workspace.clear()
        like = [
            free for free in self._free if free.list_every_vertex == workspace.list_every_vertex
        ]
        if len(like) < _KEPT:
            self._free.append(workspace)

    def buffers(self) -> ContributionBuffers:
        """Contribution buffers over all columns, for one sweep at a time."""
        columns = self.graph.columns
        if self._buffers is None or self._buffers.room < columns:
            self._buffers = None  # frees the old ones before new ones are allocated
            room = columns + columns // 8
            self._buffers = ContributionBuffers.allocate(self.graph.backend, room)
        return self._buffers

    @property
    def nbytes(self) -> int:
        kept = sum(workspace.nbytes for workspace in self._free)
        return kept + (self._buffers.nbytes if self._buffers else 0)


def query_bytes(vertices: int) -> int:
    """Bytes of a workspace, and of what a push needs beside it."""
    return workspace_bytes(vertices) + 4 * (vertices - candidate_room(vertices)) + 28 * vertices
