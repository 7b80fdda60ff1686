"""The named sets of vertices of one graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liverank_service.errors import UnknownSet, UnknownVertex
from liverank_service.formats.columns import SetChange
from liverank_service.queries.model import Members


class VertexSets:
    """Only for the writer's thread, except that `members` may be read by any.

    members  replaced, never changed
    """

    def __init__(self, graph: str, members: Members) -> None:
        self._graph = graph
        self.members = members

    def after(
        self,
        changes: Mapping[str, SetChange],
        ids_of: Callable[[pa.Array], NDArray[np.int64]],
        removed: NDArray[np.int64],
    ) -> Members:
        """The members after a batch: without the vertices that it removes, then with its changes.

        ids_of   the ids of keys, -1 where a vertex is unknown
        removed  ids, ascending

        Raises UnknownSet, and UnknownVertex for an unknown vertex to add.
        """
        members = dict(self.members)
        for name, ids in self.members.items() if len(removed) else ():
            places = np.searchsorted(ids, removed)
            inside = places < len(ids)
            gone = places[inside][ids[places[inside]] == removed[inside]]
            members[name] = np.delete(ids, gone) if len(gone) else ids
        if not changes:
            return members if len(removed) else self.members
        for name, change in changes.items():
            if change.operation == "drop":
                if members.pop(name, None) is None:
                    raise UnknownSet(self._graph, name, f"sets.{name}")
                continue
            if name not in members and change.operation is None:
                raise UnknownSet(self._graph, name, f"sets.{name}")
            added = ids_of(change.add)
            if (added < 0).any():
                index = int(np.flatnonzero(added < 0)[0])
                key = change.add[index].as_py()
                raise UnknownVertex(self._graph, key, f"sets.{name}.add", index)
            before = np.empty(0, np.int64) if change.operation == "replace" else members[name]
            kept = np.setdiff1d(before, ids_of(change.remove), assume_unique=False)
            members[name] = np.union1d(kept, added)
        return members
