"""Watched queries on one shard: those of one device, on its own rows.

All shards take the same decisions. Whether there is memory for a workspace, shards tell each other:
if one has none, the query is forgotten by all, and the engine has it solved again. Any other error
ends the call on all shards, which then forget all queries.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.update import GraphUpdate
from liverank_gpu.pagerank.workspace import Workspace
from liverank_gpu.personalized.query import Query, QueryContext
from liverank_gpu.personalized.watched import Entry, Registration, Watched
from liverank_gpu.types import Personalized


class OwnRegistration(Registration):
    """The first solve of a query on one shard."""

    def _follow(self, running: Query, update: GraphUpdate) -> None:
        # an error ends the call on all shards
        running.perturb(update)


class _ShortOfMemory(MemoryError):
    """Memory is short on a shard, and all shards know."""


class Renewed(NamedTuple):
    """An answer now.

    stays  whether its places are still those that were given before, in which case vertices of
           the same ids are the same
    """

    answer: Personalized
    stays: bool


class OwnWatched(Watched):
    """The watched queries of one shard, as far as they have answers."""

    def __init__(self, context: QueryContext) -> None:
        super().__init__(context)
        self._given: dict[str, NDArray[np.int64]] = {}

    def remove(self, name: str) -> None:
        super().remove(name)
        self._given.pop(name, None)

    def renewed(self, name: str) -> Renewed:
        """The answer to a query that has one."""
        answer = self.answer(name)
        stays = answer.vertices is self._given.get(name)
        self._given[name] = answer.vertices
        return Renewed(answer, stays)

    def refreshed(self, among: Mapping[str, NDArray[np.int64]]) -> dict[str, Renewed]:
        """Brings the queries up to date that it has, and returns their answers.

        among  see Watched.restrict, by name
        """
        for name in [name for name, entry in self._entries.items() if entry.query is None]:
            self.remove(name)
        for name in among.keys() & self._entries.keys():
            self.restrict(name, among[name])
        self.refresh()
        return {name: self.renewed(name) for name, entry in self._entries.items() if entry.answer}

    def _workspace(self, query: Query) -> Workspace:
        workspace = None
        with suppress(MemoryError):
            workspace = super()._workspace(query)
        short = self._context.vertices.sums([workspace is None]) != [0.0]
        if short or workspace is None:
            raise _ShortOfMemory
        return workspace

    @staticmethod
    def _give_up(entry: Entry, error: MemoryError) -> None:
        if not isinstance(error, _ShortOfMemory):
            raise error
        Watched._give_up(entry, error)
