"""An immutable published version of a graph: reads use it and never wait for the writer. Places in
the order of ranks, and what is proven about them. Positions of external sources that a read waits
for.

Positions are texts of their source. Those of brokers have an order, by one or several numbers: a
sequence of NATS, an offset of Kafka, an id of Redis such as `1526919030474-55`.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liverank_gpu import InvalidValue, Personalized, Ranks, proven_descents
from liverank_service.errors import (
    InvalidField,
    NoRanks,
    NotReady,
    UnknownSet,
    UnknownView,
    UnknownWatched,
)
from liverank_service.formats.values import EMPTY
from liverank_service.queries.rank_views import RankView
from liverank_service.queries.watched import WatchedResult
from liverank_service.vertex_keys import VertexKeys

Positions = Mapping[tuple[str, str], str]
"""By source and partition."""

FIELD = "min_position"

_POSITION = r"[0-9]{1,20}(?:-[0-9]{1,20})*"
_NUMBERS = re.compile(_POSITION)

PATTERN = rf"^[\s\S]+:[^:]*:{_POSITION}$"
"""What `MinPosition.parsed` accepts, for the OpenAPI document."""


@dataclass(frozen=True, slots=True)
class MinPosition:
    """The messages of one partition up to a position, and perhaps later ones."""

    source: str
    partition: str
    position: str

    @classmethod
    def parsed(cls, text: str) -> MinPosition:
        """From SOURCE:PARTITION:POSITION; only SOURCE may have colons. Raises InvalidValue."""
        head, *last = text.rsplit(":", 2)
        if not head or len(last) != 2 or numbers_of(last[1]) is None:
            expected = "SOURCE:PARTITION:POSITION, with a position such as 12 or 12-3"
            raise InvalidValue(FIELD, text, expected)
        return cls(head, *last)

    def __str__(self) -> str:
        return f"{self.source}:{self.partition}:{self.position}"

    def check(self, graph: str, positions: Positions) -> None:
        """Raises InvalidField if the graph cannot reach it: for an unknown source, and if the
        stored position has another form. A partition of a known source may still get messages.
        """
        if not any(source == self.source for source, _ in positions):
            message = f"graph {graph!r} has no source {self.source!r}"
            raise InvalidField(FIELD, None, str(self), message)
        stored = positions.get((self.source, self.partition))
        if stored is not None and len(numbers_of(stored) or ()) != len(self._numbers):
            message = f"expected a position of the form of the stored one, {stored!r}"
            raise InvalidField(FIELD, None, str(self), f"{message}, got {self.position!r}")

    def is_reached(self, positions: Positions) -> bool:
        stored = numbers_of(positions.get((self.source, self.partition), ""))
        wanted = self._numbers
        return stored is not None and len(stored) == len(wanted) and stored >= wanted

    @property
    def _numbers(self) -> tuple[int, ...]:
        found = numbers_of(self.position)
        assert found is not None
        return found


def numbers_of(position: str) -> tuple[int, ...] | None:
    """The numbers by which a position is ordered; None if it has no order."""
    if _NUMBERS.fullmatch(position) is None:
        return None
    return tuple(map(int, position.split("-")))


def are_reached(wanted: Collection[MinPosition], positions: Positions) -> bool:
    return all(one.is_reached(positions) for one in wanted)


class RankedVertices(NamedTuple):
    """Vertices one after the other in the order of ranks, highest first.

    vertices  keys
    ranks     float64[len(vertices)]
    ties      int64[len(vertices)]: a number for each tie among them, -1 for a vertex in none:
              liverank_gpu.Ranks.ties_of
    """

    vertices: pa.Array
    ranks: NDArray[np.float64]
    ties: NDArray[np.int64]

    def part(self, first: int, end: int) -> RankedVertices:
        part = slice(first, end)
        return RankedVertices(self.vertices[part], self.ranks[part], self.ties[part])


@dataclass(frozen=True, slots=True, eq=False)
class Places:
    """Some places one after the other.

    vertices         keys; highest rank first
    ranks            float64[len(vertices)]
    settled          how many of the first places are proven to be theirs
    settled_set      whether it is proven that these vertices have these places, in any order
    groups           numbers of places one after the other. The order of the groups is proven, the
                     order within a group of several is not, unless it is a tie
    ties             numbers of the groups, from 0 on, whose vertices are proven to have equal ranks
    """

    vertices: pa.Array
    ranks: NDArray[np.float64]
    settled: int
    settled_set: bool
    groups: list[int]
    ties: list[int]

    @classmethod
    def of(cls, listed: RankedVertices, error_bound: float, before: int, count: int) -> Places:
        """`count` of these places from number `before` on, or all if there are fewer.

        listed  with one place more on either side, if the graph has them
        """
        vertices, ranks, ties = listed.part(before, before + count)
        if not len(ranks):
            return cls(vertices, ranks, 0, True, [], [])
        # a tie is proven to be above or below all other vertices
        above = proven_descents(listed.ranks, error_bound)
        above |= np.diff(listed.ties) != 0
        tied = listed.ties[1:] >= 0
        end = before + len(ranks)
        proven = np.concatenate([[True], above | tied, [True]])[before : end + 1]
        unproven = np.flatnonzero(~(proven[:-1] & proven[1:]))
        settled = int(unproven[0]) if len(unproven) else len(ranks)
        borders = 1 + np.flatnonzero(above[before : end - 1])
        firsts = np.concatenate([[0], borders])
        groups = np.diff(firsts, append=len(ranks)).tolist()
        of_ties = np.flatnonzero(ties[firsts] >= 0).tolist()
        return cls(vertices, ranks, settled, bool(proven[0] and proven[-1]), groups, of_ties)


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


Position = tuple[int, int]
"""A revision, and how often it has been published again."""


def state_of(version: int, revision: int) -> str:
    """Names a version and its ranks within one run of the graph."""
    return f"{version}.{revision}"


@dataclass(frozen=True)
class View:
    """One published version.

    graph        its name
    version      every batch up to it is in the ranks, or was rejected
    revision     identifies these ranks; it increases with every publication
    error_bound  proven upper bound on the L1 distance to the exact ranks
    vertices     number of vertices
    memory       bytes held for the graph at publication, by purpose
    keys         of these vertices
    watched      results of the watched queries by name; None in the view of a checkpoint, which has
                 not solved them yet
    rank_views   the views by name, or None as well
    renewed      how often it was published again, with other ranks of views or watched queries
    seen_from    the number of the view whose ranks these are; None for those of the graph
    sets         ids of the vertices of each named set, ascending
    positions    that its batches have reached in external sources
    """

    graph: str
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
    renewed: int = 0
    seen_from: int | None = None

    @property
    def facts(self) -> dict[str, int | float]:
        """The members of every read."""
        return {"version": self.version, "revision": self.revision, "error_bound": self.error_bound}

    @property
    def position(self) -> Position:
        """Increases with every publication."""
        return self.revision, self.renewed

    @cached_property
    def state(self) -> str:
        """As `state_of`; of a view it names its ranks too."""
        of_graph = state_of(self.version, self.revision)
        return of_graph if self.seen_from is None else f"{of_graph}.{self.seen_from}"

    @cached_property
    def _seen(self) -> dict[int, View]:
        return {}

    @property
    def known_rank_views(self) -> Mapping[str, RankView]:
        """The views of the graph, by name. Raises NotReady."""
        if self.rank_views is None:
            raise NotReady(f"graph {self.graph!r} is being recovered")
        return self.rank_views

    def rank_view(self, name: str) -> RankView:
        """A view of the graph. Raises NotReady, UnknownView."""
        known = self.known_rank_views
        if name not in known:
            raise UnknownView(self.graph, name, list(known))
        return known[name]

    def seen(self, name: str) -> View:
        """This version with the ranks of a view. Raises NotReady, UnknownView, NoRanks, and why the
        view has none.
        """
        found = self.rank_view(name)
        if found.ranks is None:
            raise found.error or NoRanks(self.graph, name)
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

    def members(self, name: str, field: str = "among") -> NDArray[np.int64]:
        """The ids of a set's vertices. Raises UnknownSet, which names the `field`."""
        if name not in self.sets:
            raise UnknownSet(self.graph, name, field)
        return self.sets[name]

    def answer(self, name: str, field: str = "name") -> Personalized:
        """The answer to a watched query. Raises NotReady, UnknownWatched, which names the `field`,
        and why there is no answer.
        """
        if self.watched is None:
            raise NotReady(f"graph {self.graph!r} is being recovered")
        found = self.watched.get(name)
        if found is None or found.answer is None:
            error = None if found is None else found.error
            raise error or UnknownWatched(self.graph, name, field)
        return found.answer


def first_of(
    ids: NDArray[np.int64], ranks: NDArray[np.float64], count: int, offset: int = 0
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Ids and ranks of places offset … offset+count-1 among the vertices `ids`, ascending."""
    best = np.argsort(-ranks, kind="stable")[offset : offset + count]
    return ids[best], ranks[best]
