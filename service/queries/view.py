"""An immutable published version of a graph: reads are answered from it, and wait for no writer."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from gpu import Ranks
from service.queries.watched import WatchedAnswer
from service.vertex_keys.table import KeyTable

KEPT_PLACES = (1024, 2**17)
"""A view keeps at least and at most so many of its best places: fewer cost the same walk over all
ranks, more would cost a Python object for each vertex of a large graph."""


class _Top:
    """The best places of one `Ranks`, kept: repeated small asks do not walk all ranks again."""

    def __init__(self, ranks: Ranks, keys: KeyTable) -> None:
        self._ranks = ranks
        self._keys = keys
        self._growing = threading.Lock()
        self._kept: tuple[list[Any], list[float]] = ([], [])

    def knows(self, places: int) -> bool:
        return min(places, self._ranks.count) <= len(self._kept[0])

    def places(self, offset: int, count: int) -> tuple[list[Any], list[float]]:
        least, most = KEPT_PLACES
        end = offset + count
        if offset >= self._ranks.count:
            return [], []
        if end > most:
            return self._find(count, offset)
        if not self.knows(end):
            with self._growing:
                if not self.knows(end):
                    # Doubling: who walks down the list page by page pays for few walks.
                    self._kept = self._find(max(least, 1 << (end - 1).bit_length()), 0)
        vertices, ranks = self._kept
        return vertices[offset:end], ranks[offset:end]

    def _find(self, count: int, offset: int) -> tuple[list[Any], list[float]]:
        ids, ranks = self._ranks.top(count, offset)
        return self._keys.keys(ids).to_pylist(), ranks.tolist()


@dataclass(frozen=True)
class View:
    """One published version.

    version      every batch up to it is in the ranks, or was rejected
    revision     names these ranks; the next published ones have a higher one
    error_bound  proven upper bound on the L1 distance to the exact ranks
    vertices     keys with an id below it are in this view
    memory       bytes held for the graph when it was published, by purpose
    watched      the answers to the watched queries, by name; None before they are solved: in what
                 is read from a checkpoint
    """

    version: int
    revision: int
    error_bound: float
    vertices: int
    edges: int
    memory: dict[str, int]
    ranks: Ranks = field(repr=False)
    keys: KeyTable = field(repr=False)
    watched: Mapping[str, WatchedAnswer] | None = field(default_factory=dict, repr=False)

    @cached_property
    def _top(self) -> _Top:
        return _Top(self.ranks, self.keys)

    def ids(self, keys: pa.Array) -> NDArray[np.int64]:
        """int64[len(keys)]: the id of each key, -1 for one that this view does not have."""
        ids = self.keys.lookup(keys)
        # The key table runs ahead of the view: its writer may be at the next batch.
        ids[ids >= self.vertices] = -1
        return ids

    def rank(self, key: pa.Array) -> float | None:
        """The rank of the one key in the array `key`; None where this view does not have it."""
        ids = self.ids(key)
        return None if ids[0] < 0 else float(self.ranks.of(ids)[0])

    def ranks_of(self, keys: pa.Array) -> list[float | None]:
        """The rank of each key, in order; None where this view does not have the vertex."""
        ids = self.ids(keys)
        known = ids >= 0
        ranks: list[float | None] = [None] * len(ids)
        places = np.flatnonzero(known)
        for place, rank in zip(places.tolist(), self.ranks.of(ids[known]).tolist(), strict=True):
            ranks[place] = rank
        return ranks

    def top_is_known(self, count: int, offset: int) -> bool:
        """Whether `top` answers without work that grows with the graph."""
        return self._top.knows(offset + count)

    def top(self, count: int, offset: int = 0) -> tuple[list[Any], list[float]]:
        """Keys and ranks of places offset … offset+count-1, best first; fewer where it ends."""
        return self._top.places(offset, count)
