"""Personalized queries that are kept fresh: after each batch their residual is perturbed, and
pushed if the bound has passed the target (the dynamic PPR that Wang et al. compare with).

After a perturbation r is signed; the bound and the certified places hold from both sides
(liverank_gpu.pagerank.certificate, liverank_gpu.personalized.certified_top_k). A query is solved to
half its target, so that most batches need no push at all: they change its bound, not its places.

An iterate that stayed near its seeds is packed to the entries that it touched, and unpacked into a
workspace that all share when there is something to do; so its cost follows what it touches, not n.
A dense one keeps y and r of its own, and borrows what lists the entries to push.
"""

from __future__ import annotations

from contextlib import suppress
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Generic, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue, OutOfMemory, UnknownVertex, without_frames
from liverank_gpu.graph.vertices import NO_IDS
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.pagerank.iterate import Workspace
from liverank_gpu.pagerank.places import BoundedPlaces, ProvenPlaces
from liverank_gpu.personalized.certified_top_k import Tying, with_ties
from liverank_gpu.personalized.iterate import query_bytes
from liverank_gpu.personalized.query import Query, QueryContext
from liverank_gpu.personalized.resolve import ResolvedQuery
from liverank_gpu.types import REMOVED, Personalized, PersonalizedQuery, Ranking

_SOLVED_PART = 0.5
"""A query is solved to this part of its target: the rest is for batches."""


Start = tuple[Ranking, float]
"""Ranks to begin at, float64[…] by id, and their base: what `Ranks.to_numpy` and `Ranks.base` gave
of this graph or an earlier one.
"""


class _ShortOfMemory(MemoryError):
    """There is no workspace for a query, in any process."""


class Registration:
    """The first solve of a query that is to be watched: `step` until `done`, then `Watched.keep`;
    `close` in any case. A batch between two steps perturbs it, and it continues.

    context   of the queries of its graph
    updates   how many batches of edges came since it began
    restarts  0: none made it start again
    """

    def __init__(
        self, context: QueryContext, name: str, asked: ResolvedQuery, start: Start | None = None
    ) -> None:
        """start  where to begin; None: at nothing

        Raises OutOfMemory, with what its vectors need at most; on all shards, if on one.
        """
        device, highest = context.graph.backend.device, context.vertices.highest
        needed = int(highest(_bytes_needed(context, asked)))
        available = int(-highest(-device.memory_available()))
        if needed > available:
            raise OutOfMemory(_purpose(name, asked), needed, available)
        self.name = name
        self.asked = asked
        self.updates = self.restarts = 0
        self.context = context
        self._start = start
        self._query: Query | None = None
        self._lost: UnknownVertex | None = None

    @property
    def done(self) -> bool:
        return self._query is not None and self._query.done

    @property
    def lost(self) -> bool:
        """Whether it lost a seed."""
        return self._lost is not None

    def step(self) -> None:
        """Continues, by about a sweep's work at most. Raises OutOfMemory, and UnknownVertex if a
        batch removed a seed.
        """
        if self._lost:
            raise copy(self._lost)
        if self._query is None:
            self._query = Query(self.context, to_solve(self.asked))
            if self._start is not None:
                self._start_from(self._query, *self._start)
        if not self._query.done:
            self._query.step()

    def _start_from(self, query: Query, ranks: Ranking, base: float) -> None:
        # sparse ranks are pushed from nothing in less, and stay sparse
        if not (
            np.count_nonzero(ranks) > len(ranks) // 8 and np.isfinite(ranks).all() and base > 0
        ):
            return
        graph = self.context.graph
        known = np.arange(min(len(ranks), graph.ids.limit))
        values = self.context.vertices.spread(known, ranks[: len(known)])
        values[graph.free] = 0.0
        query.start_from(values, base)

    def perturb(self, update: GraphUpdate) -> None:
        """Follows a batch of edges."""
        update = self.context.turned or update
        self.updates += 1
        try:
            self.asked = self._after(update)
            if self._query is not None and not self._query.follows(update):
                self.close()
        except UnknownVertex as error:
            self._lost = without_frames(error)
            self.close()

    def _after(self, update: GraphUpdate) -> ResolvedQuery:
        asked, before = self.asked.after(update.removed), self.asked.seeds
        if asked.seeds is not before:  # of a view, which would go on from the others
            gone = before.vertices[np.isin(before.vertices, update.removed)]
            raise UnknownVertex("seeds", int(gone[0]), REMOVED)
        return asked

    def take(self) -> Query:
        """The solved query, whose workspace the caller owns from now on."""
        assert self._query is not None
        query, self._query = self._query, None
        return query

    def close(self) -> None:
        """Gives the workspace back."""
        if self._query is not None:
            self._query.close()
        self._query = None


@dataclass(eq=False)
class Entry:
    """What is kept: a query that was solved and follows batches.

    query  None after it ran out of memory, until it is solved again
    lost   why there is no query any more, if its seeds were removed
    """

    name: str
    context: QueryContext
    asked: ResolvedQuery
    query: Query | None = None
    lost: UnknownVertex | None = None

    @property
    def bound(self) -> float:
        """On the error of y; infinite if there is none."""
        return np.inf if self.query is None else self.query.iterate.error_bound

    @property
    def why_missing(self) -> UnknownVertex | OutOfMemory:
        """Why it has no answer."""
        if self.lost is not None:
            return copy(self.lost)
        available = self.context.graph.backend.device.memory_available()
        needed = _bytes_needed(self.context, self.asked)
        return OutOfMemory(_purpose(self.name, self.asked), needed, available)

    @classmethod
    def of(cls, registration: Registration) -> Self:
        """What is kept of a first solve."""
        entry = cls(registration.name, registration.context, registration.asked)
        entry.take(registration)
        return entry

    def take(self, registration: Registration) -> None:
        """Has what a first solve came to."""
        self._store(registration.take())

    def forget(self) -> None:
        """Has it solved again at the next refresh, or never if it is lost."""
        self.query = None

    def perturb(self, update: GraphUpdate) -> None:
        """Makes the residual that of the graph after a batch."""
        update = self.context.turned or update
        if len(update.removed):
            self._remove(update.removed)
        if self.query is None:
            return
        try:
            self._unpack(self.query)
            self.query.perturb(update)
            self._pack(self.query)
        except MemoryError as error:
            self._give_up(error)

    def _remove(self, removed: NDArray[np.int64]) -> None:
        try:
            self.asked = self.asked.after(removed)
        except UnknownVertex as error:
            self.lost = without_frames(error)
            self.forget()

    def _solve(self) -> None:
        query = self.query
        self.forget()
        if query is not None:
            self._unpack(query)
            self._run(query)
            if query.iterate.error_bound > self.asked.target_error:
                # rounding has become too large a part of the residual
                query = None
        if query is None:
            query = Query(self.context, to_solve(self.asked))
            self._run(query)
        self._store(query)

    def _run(self, query: Query) -> None:
        query.renew()
        while not query.done:
            query.step()

    def _store(self, query: Query) -> None:
        self._pack(query)
        self.query = query

    def _pack(self, query: Query) -> None:
        pool = self.context.pool
        if query.iterate.dense:
            pool.keep_lists(query.iterate.workspace)
        else:
            pool.give_back(query.iterate.pack())

    def _unpack(self, query: Query) -> None:
        """Where it continues there is room for all vertices. Raises _ShortOfMemory: in all
        processes, if memory is short in one.
        """
        workspace = None
        with suppress(MemoryError):
            workspace = self._room(query)
        short = self.context.vertices.sums([workspace is None]) != [0.0]
        if short or workspace is None:
            raise _ShortOfMemory
        if query.iterate.packed:
            query.iterate.unpack(workspace)

    def _room(self, query: Query) -> Workspace:
        """Of this process. Raises MemoryError."""
        pool = self.context.pool
        if query.iterate.packed:
            return pool.take(query.query.method != "pull")
        workspace = query.iterate.workspace
        pool.lend_lists(workspace)
        workspace.reserve(self.context.graph.vertices)
        return workspace

    def _give_up(self, error: MemoryError) -> None:
        """Raises an error of this process alone."""
        if self.context.vertices.divided and not isinstance(error, _ShortOfMemory):
            raise error
        self.forget()

    @property
    def nbytes(self) -> int:
        """Bytes that it holds on the device."""
        return 0 if self.query is None else self.query.iterate.nbytes


Item = TypeVar("Item", bound=Entry)


class Kept(dict[str, Item], Generic[Item]):
    """What is kept of one kind on one graph, by name."""

    def perturb(self, update: GraphUpdate) -> None:
        """Makes every residual that of the graph after a batch."""
        for entry in self.values():
            entry.perturb(update)

    def remove(self, name: str) -> None:
        """Forgets it, if there is one of this name."""
        self.pop(name, None)

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        return sum(entry.nbytes for entry in self.values())


@dataclass(eq=False)
class WatchedQuery(Entry):
    """A watched query, as Entry.

    answer     with one place more than asked for, which shows how secure the last one is; None
               without a query
    values     float64[…], y of the vertices of the answer, when it was solved
    others     the largest y of all other vertices then, or more
    places     the vertices of the answer that were asked for
    shown      those of them that are answered: see ResolvedQuery.places
    perturbed  whether a batch came since the answer; outdated, whether its places are others
    """

    answer: Personalized | None = None
    values: Ranking = field(default_factory=lambda: np.empty(0))
    others: float = 0.0
    places: NDArray[np.int64] = field(default_factory=lambda: NO_IDS)
    shown: NDArray[np.int64] = field(default_factory=lambda: NO_IDS)
    perturbed: bool = False
    outdated: bool = False

    def forget(self) -> None:
        self.query = self.answer = None

    def perturb(self, update: GraphUpdate) -> None:
        super().perturb(update)
        self.perturbed = True

    def _remove(self, removed: NDArray[np.int64]) -> None:
        super()._remove(removed)
        if self.answer is not None and np.isin(self.answer.vertices, removed).any():
            self.outdated = True

    def restrict(self, among: NDArray[np.int64]) -> None:
        """Changes the vertices that it is among at the next refresh, if they are others: int64[…],
        distinct, ascending.
        """
        if self.asked.among is not None and np.array_equal(among, self.asked.among):
            return
        self.asked, self.outdated = replace(self.asked, among=among), True
        if self.query is not None:
            self.query.query = replace(self.query.query, among=among)

    def shown_answer(self) -> Personalized:
        """The places as of the last `refresh`. Raises OutOfMemory if there was not enough memory to
        bring them up to date, and UnknownVertex if a seed was removed.
        """
        answer, shown = self.answer, self.shown
        if answer is None:
            raise self.why_missing
        proven = ProvenPlaces(answer.settled, answer.settled_set, answer.groups, answer.ties)
        return replace(
            answer,
            vertices=shown,  # the same array as long as they stay
            ranks=answer.ranks[: len(shown)],
            **proven.first(len(shown))._asdict(),
        )

    def refresh(self) -> bool:
        """Solves it again if it has to be. Whether only the bounds of its places are others."""
        if self.lost:
            return False
        # vertices that joined have places that no vertex had
        count = min(self.asked.k, self.asked.count(self.context.graph.ids))
        lacks_places = len(self.places) < count
        solve = self.outdated or lacks_places or self.bound > self.asked.target_error
        stays = self.perturbed and not solve
        if solve:
            try:
                self._solve()
            except MemoryError as error:
                self._give_up(error)
        self.perturbed = self.outdated = False
        return stays

    def bounded(self) -> Tying:
        """The places of its answer, bounded by the size of the error now."""
        assert self.query is not None
        assert self.answer is not None
        vertices, others = self.answer.vertices, self.others
        if len(vertices) < self.query.query.count(self.context.graph.ids):
            # vertices that joined begin at 0
            others = max(others, 0.0)
        error = float(self.query.iterate.certificate.solution_error)
        places = BoundedPlaces.by_gaps(vertices, self.values, error, others)
        return Tying(places, places.values, self.query.query.seeds, self.query.query.among)

    def renew_bounds(self, places: BoundedPlaces) -> None:
        """Makes those of an answer whose places stay those of the graph after a batch."""
        assert self.answer is not None
        self.answer = replace(
            self.answer,
            error_bound=min(2.0, self.bound),
            **ProvenPlaces.of(*places.certified(self.asked.k))._asdict(),
            iterations=0,
        )

    def _store(self, query: Query) -> None:
        places = query.places()
        self.answer = query.answer(places)
        vertices, values = self.context.vertices, query.iterate.workspace.values
        self.values = vertices.values_at(values, places.vertices)
        self.others = places.others
        self.places = places.vertices[: self.asked.k]
        self.shown = self.places[: self.asked.places(self.answer.ranks[: self.asked.k])]
        super()._store(query)


class Watched(Kept[WatchedQuery]):
    """The watched queries of one graph, by name."""

    def keep(self, registration: Registration) -> None:
        """Keeps a solved query, in place of another of the same name."""
        self[registration.name] = WatchedQuery.of(registration)

    def refresh(self) -> None:
        """Brings every answer up to date with the graph."""
        stay = [entry for entry in self.values() if entry.refresh()]
        bounded = [entry.bounded() for entry in stay]
        if stay:
            tied = with_ties(stay[0].context.vertices, bounded)
            for entry, (before, *_), places in zip(stay, bounded, tied, strict=True):
                # a tie that was none when it was solved can have other places
                stays = np.array_equal(before.vertices, places.vertices)
                entry.renew_bounds(places if stays else before)


def to_solve(asked: ResolvedQuery) -> ResolvedQuery:
    """The query that is solved for one that is kept."""
    target_error = _SOLVED_PART * asked.target_error
    return replace(asked, k=asked.k + 1, target_error=target_error, target="error")


def require_watchable(query: PersonalizedQuery) -> None:
    """Raises InvalidValue."""
    for name, value, expected in (
        ("form", query.form, "accelerated"),
        ("trace", query.trace, False),
    ):
        if value != expected:
            raise InvalidValue(name, value, f"{expected!r} for a watched query")
    if query.within is not None:
        given = f"{len(query.within)} vertices"
        raise InvalidValue("within", given, "left out for a watched query")


def _purpose(name: str, asked: ResolvedQuery) -> str:
    return f"the {asked.kind} {name!r}"


def _bytes_needed(context: QueryContext, asked: ResolvedQuery) -> int:
    vertices = context.graph.vertices
    walked = vertices if asked.within is None else len(asked.within)
    return query_bytes(walked) + asked.bytes_of_answer(vertices)
