"""An immutable published version of a graph: reads use it and never wait for the writer."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liverank_gpu import Personalized, Ranks
from liverank_service.errors import NoRanks, NotReady, UnknownSet, UnknownView, UnknownWatched
from liverank_service.formats.values import EMPTY
from liverank_service.queries.places import Places, RankedVertices
from liverank_service.queries.positions import Positions
from liverank_service.queries.rank_views import RankView
from liverank_service.queries.watched import WatchedResult
from liverank_service.vertex_keys import VertexKeys

CACHED_PLACES = (128, 2**17)
"""Bounds on the top places that a view caches: fewer would cost the same pass over all ranks, more
a copy of the keys of a large graph.
"""


class _TopCache:
    """The top places of one `Ranks`: repeated small requests do not pass over all ranks again."""

    def __init__(self, ranks: Ranks, keys: VertexKeys) -> None:
        self._ranks = ranks
        self._keys = keys
        self._growing = threading.Lock()
        self._cached = self._none = RankedVertices(
            EMPTY[keys.kind], np.empty(0), np.empty(0, np.int64)
        )

    def holds(self, places: int) -> bool:
        return min(places, self._ranks.count) <= len(self._cached.vertices)

    def places(self, offset: int, count: int) -> RankedVertices:
        fewest, most = CACHED_PLACES
        end = offset + count
        if offset >= self._ranks.count:
            return self._none
        if end > most:
            return self._compute(count, offset)
        if not self.holds(end):
            with self._growing:
                if not self.holds(end):
                    # doubled, so that reading page by page takes few passes
                    self._cached = self._compute(max(fewest, 1 << (end - 1).bit_length()), 0)
        return self._cached.part(offset, end)

    def _compute(self, count: int, offset: int) -> RankedVertices:
        return _ranked_vertices(self._ranks, self._keys, *self._ranks.top(count, offset))


def _ranked_vertices(
    ranks: Ranks, keys: VertexKeys, ids: NDArray[np.int64], values: NDArray[np.float64]
) -> RankedVertices:
    """values: the ranks of the ids, descending"""
    return RankedVertices(keys.keys(ids), values, ranks.ties_of(ids))


def state_of(version: int, revision: int) -> str:
    """Names a version and its ranks within one run of the graph."""
    return f"{version}.{revision}"


@dataclass(frozen=True)
class View:
    """One published version.

    version      every batch up to it is in the ranks, or was rejected
    revision     identifies these ranks; it increases with every publication
    error_bound  proven upper bound on the L1 distance to the exact ranks
    vertices     number of vertices
    memory       bytes held for the graph at publication, by purpose
    keys         of these vertices
    watched      results of the watched queries by name; None in the view of a checkpoint, which has
                 not solved them yet
    rank_views   the views by name, or None as well
    seen_from    the number of the view whose ranks these are; None for those of the graph
    sets         ids of the vertices of each named set, ascending
    positions    that its batches have reached in external sources
    """

    version: int
    revision: int
    error_bound: float
    vertices: int
    edges: int
    memory: dict[str, int]
    ranks: Ranks = field(repr=False)
    keys: VertexKeys = field(repr=False)
    watched: Mapping[str, WatchedResult] | None = field(default_factory=dict, repr=False)
    rank_views: Mapping[str, RankView] | None = field(default_factory=dict, repr=False)
    sets: Mapping[str, NDArray[np.int64]] = field(default_factory=dict, repr=False)
    positions: Positions = field(default_factory=dict, repr=False)
    seen_from: int | None = None

    @cached_property
    def state(self) -> str:
        """As `state_of`; of a view it names its ranks too."""
        of_graph = state_of(self.version, self.revision)
        return of_graph if self.seen_from is None else f"{of_graph}.{self.seen_from}"

    @cached_property
    def _seen(self) -> dict[int, View]:
        return {}

    def known_rank_views(self, graph: str) -> Mapping[str, RankView]:
        """The views of the graph, by name. Raises NotReady."""
        if self.rank_views is None:
            raise NotReady(f"graph {graph!r} is being recovered")
        return self.rank_views

    def rank_view(self, graph: str, name: str) -> RankView:
        """A view of the graph. Raises NotReady, UnknownView."""
        known = self.known_rank_views(graph)
        if name not in known:
            raise UnknownView(graph, name, list(known))
        return known[name]

    def seen(self, graph: str, name: str) -> View:
        """This version with the ranks of a view. Raises NotReady, UnknownView, NoRanks, and why the
        view has none.
        """
        found = self.rank_view(graph, name)
        if found.ranks is None:
            raise found.error or NoRanks(graph, name)
        seen, number = self._seen.get(found.number), found.number
        if seen is None:
            bound = found.ranks.error_bound
            seen = replace(self, ranks=found.ranks, error_bound=bound, seen_from=number)
            seen = self._seen.setdefault(number, seen)
        return seen

    @cached_property
    def _top(self) -> _TopCache:
        return _TopCache(self.ranks, self.keys)

    def ids(self, keys: pa.Array) -> NDArray[np.int64]:
        """int64[len(keys)]: the id of each key, -1 if the view does not have it."""
        return self.keys.lookup(keys)

    def rank(self, key: str | int) -> float | None:
        """The rank of one vertex; None if the view does not have it."""
        found = self.keys.id_of(key)
        return None if found < 0 else float(self.ranks.of(np.array([found]))[0])

    def ranks_of(self, keys: pa.Array) -> NDArray[np.float64]:
        """float64[len(keys)]: the rank of each key, in order; NaN if the view does not have it."""
        ids = self.ids(keys)
        known = ids >= 0
        ranks = np.full(len(ids), np.nan)
        ranks[known] = self.ranks.of(ids[known])
        return ranks

    def top_is_known(self, count: int, offset: int) -> bool:
        """Whether `top` returns without work that grows with the graph."""
        return self._top.holds(offset + count + 1)

    def top(self, count: int, offset: int = 0, among: NDArray[np.int64] | None = None) -> Places:
        """Places offset … offset+count-1, by keys; fewer at the end of the graph.

        among  int64[…], ids, ascending: only these have places
        """
        first = max(offset - 1, 0)
        wanted = offset - first + count + 1
        if among is None:
            listed = self._top.places(first, wanted)
        else:
            best = first_of(among, self.ranks.of(among), wanted, first)
            listed = _ranked_vertices(self.ranks, self.keys, *best)
        return Places.of(listed, self.error_bound, offset - first, count)

    def members(self, graph: str, name: str, field: str = "among") -> NDArray[np.int64]:
        """The ids of a set's vertices. Raises UnknownSet, which names the `field`."""
        if name not in self.sets:
            raise UnknownSet(graph, name, field)
        return self.sets[name]

    def answer(self, graph: str, name: str, field: str = "name") -> Personalized:
        """The answer to a watched query. Raises NotReady, UnknownWatched, which names the `field`,
        and why there is no answer.
        """
        if self.watched is None:
            raise NotReady(f"graph {graph!r} is being recovered")
        found = self.watched.get(name)
        if found is None:
            raise UnknownWatched(graph, name, field)
        if found.answer is None:
            raise found.error or UnknownWatched(graph, name, field)
        return found.answer


def first_of(
    ids: NDArray[np.int64], ranks: NDArray[np.float64], count: int, offset: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids and ranks of places offset … offset+count-1 among the vertices `ids`, ascending."""
    best = np.argsort(-ranks, kind="stable")[offset : offset + count]
    return ids[best], ranks[best]
