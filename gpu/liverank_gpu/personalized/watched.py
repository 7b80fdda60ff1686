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

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import InvalidValue, OutOfMemory, UnknownVertex
from liverank_gpu.graph.vertices import NO_IDS
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.pagerank.iterate import Workspace
from liverank_gpu.pagerank.places import BoundedPlaces, ProvenPlaces
from liverank_gpu.personalized.certified_top_k import ties_of
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


@dataclass(slots=True)
class Entry:
    """A watched query. After it ran out of memory it has no query and no answer until it is solved
    again.

    answer     with one place more than asked for, which shows how secure the last one is
    values     float64[…], y of the vertices of the answer, when it was solved
    others     the largest y of all other vertices then, or more
    places     the vertices of the answer that were asked for
    shown      those of them that are answered: see ResolvedQuery.places
    perturbed  whether a batch came since the answer; outdated, whether its places are others
    lost       why there is no query any more, if a seed was removed
    """

    asked: ResolvedQuery
    query: Query | None
    answer: Personalized | None
    values: Ranking = field(default_factory=lambda: np.empty(0))
    others: float = 0.0
    places: NDArray[np.int64] = field(default_factory=lambda: NO_IDS)
    shown: NDArray[np.int64] = field(default_factory=lambda: NO_IDS)
    perturbed: bool = False
    outdated: bool = False
    lost: UnknownVertex | None = None


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
            raise self._lost
        if self._query is None:
            self._query = _begin(self.context, self.asked)
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
            self._lost = error
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


class Watched:
    """The watched queries of one graph, by name."""

    def __init__(self, context: QueryContext) -> None:
        self._context = context
        self._pool = context.pool
        self._entries: dict[str, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def names(self) -> list[str]:
        """Of the queries that are kept."""
        return list(self._entries)

    def keep(self, registration: Registration) -> None:
        """Keeps a solved query, in place of another of the same name."""
        entry = self._entry(registration.asked)
        self._store(entry, registration.take())
        self._entries[registration.name] = entry

    def remove(self, name: str) -> None:
        """Forgets a query, if there is one of this name."""
        self._entries.pop(name, None)

    def restrict(self, name: str, among: NDArray[np.int64]) -> None:
        """Changes the vertices that a query is among, if they are others: int64[…], distinct,
        ascending.
        """
        entry = self._entries[name]
        if entry.asked.among is not None and np.array_equal(among, entry.asked.among):
            return
        entry.asked, entry.outdated = replace(entry.asked, among=among), True
        if entry.query is not None:
            entry.query.query = replace(entry.query.query, among=among)

    def _entry(self, asked: ResolvedQuery) -> Entry:
        return Entry(asked, None, None)

    def answer(self, name: str) -> Personalized:
        """The places as of the last `refresh`. Raises KeyError, OutOfMemory if there was not enough
        memory to bring them up to date, and UnknownVertex if a seed was removed.
        """
        answer = self._entries[name].answer
        if answer is None:
            raise self._missing(name)
        shown = self._entries[name].shown
        proven = ProvenPlaces(answer.settled, answer.settled_set, answer.groups, answer.ties)
        return replace(
            answer,
            vertices=shown,  # the same array as long as they stay
            ranks=answer.ranks[: len(shown)],
            **proven.first(len(shown))._asdict(),
        )

    def _missing(self, name: str) -> UnknownVertex | OutOfMemory:
        """Why a query has no answer."""
        entry = self._entries[name]
        return entry.lost or out_of_memory(self._context, name, entry.asked)

    def perturb(self, update: GraphUpdate) -> None:
        """Makes every residual that of the graph after a batch."""
        for entry in self._entries.values():
            if len(update.removed):
                self._remove(entry, update)
            if entry.query is None:
                continue
            try:
                self._unpack(entry.query)
                entry.query.perturb(update)
                self._pack(entry.query)
                entry.perturbed = True
            except MemoryError as error:
                self._give_up(entry, error)

    def _remove(self, entry: Entry, update: GraphUpdate) -> None:
        try:
            entry.asked = entry.asked.after(update.removed)
        except UnknownVertex as error:
            entry.query, entry.answer, entry.lost = None, None, error
        if entry.answer is not None and np.isin(entry.answer.vertices, update.removed).any():
            entry.outdated = True

    def refresh(self) -> None:
        """Brings every answer up to date with the graph."""
        perturbed = []
        for entry in self._entries.values():
            query = entry.query
            if entry.lost:
                continue
            if (
                query is None
                or entry.outdated
                or self._lacks_places(entry)
                or query.iterate.error_bound > entry.asked.target_error
            ):
                try:
                    self._solve(entry)
                except MemoryError as error:
                    self._give_up(entry, error)
            elif entry.perturbed and entry.answer is not None:
                perturbed.append(entry)
            entry.perturbed = entry.outdated = False
        self._renew_bounds(perturbed)

    def _lacks_places(self, entry: Entry) -> bool:
        """Whether vertices that joined have places that no vertex had."""
        asked = entry.asked
        return len(entry.places) < min(asked.k, asked.count(self._context.graph.ids))

    def _renew_bounds(self, entries: Sequence[Entry]) -> None:
        """Makes the bounds of answers whose places stay those of the graph after a batch."""
        bounded = [self._bounded(entry) for entry in entries]
        alike = np.concatenate([NO_IDS, *(places.alike(places.values) for places in bounded)])
        classes = None
        if len(alike):
            classes = self._context.vertices.identical_to(np.unique(alike))
        for entry, places in zip(entries, bounded, strict=True):
            assert entry.query is not None
            assert entry.answer is not None
            if classes is not None:
                asked = entry.query.query
                tied = places.with_ties(ties_of(classes, places.vertices, asked.seeds, asked.among))
                # a tie that was none when it was solved can have other places
                places = tied if np.array_equal(tied.vertices, places.vertices) else places
            entry.answer = replace(
                entry.answer,
                error_bound=min(2.0, entry.query.iterate.error_bound),
                **ProvenPlaces.of(*places.certified(entry.asked.k))._asdict(),
                iterations=0,
            )

    def _bounded(self, entry: Entry) -> BoundedPlaces:
        """The places of an answer, bounded by the size of the error now."""
        assert entry.query is not None
        assert entry.answer is not None
        vertices, others = entry.answer.vertices, entry.others
        if len(vertices) < entry.query.query.count(self._context.graph.ids):
            # vertices that joined begin at 0
            others = max(others, 0.0)
        error = float(entry.query.iterate.certificate.solution_error)
        return BoundedPlaces.by_gaps(vertices, entry.values, error, others)

    def _solve(self, entry: Entry) -> None:
        asked, query = entry.asked, entry.query
        entry.query = entry.answer = None
        if query is not None:
            self._unpack(query)
            self._run(query)
            if query.iterate.error_bound > asked.target_error:
                # rounding has become too large a part of the residual
                query = None
        if query is None:
            query = _begin(self._context, asked)
            self._run(query)
        self._store(entry, query)

    def _run(self, query: Query) -> None:
        query.renew()
        while not query.done:
            query.step()

    def _store(self, entry: Entry, query: Query) -> None:
        places = query.places()
        entry.answer = query.answer(places)
        vertices, values = self._context.vertices, query.iterate.workspace.values
        entry.values = vertices.values_at(values, places.vertices)
        entry.others = places.others
        entry.places = places.vertices[: entry.asked.k]
        entry.shown = entry.places[: entry.asked.places(entry.answer.ranks[: entry.asked.k])]
        self._pack(query)
        entry.query = query

    def _pack(self, query: Query) -> None:
        if query.iterate.dense:
            self._pool.keep_lists(query.iterate.workspace)
        else:
            self._pool.give_back(query.iterate.pack())

    def _unpack(self, query: Query) -> None:
        workspace = self._workspace(query)
        if query.iterate.packed:
            query.iterate.unpack(workspace)

    def _workspace(self, query: Query) -> Workspace:
        """Where a query continues, with room for all vertices. Raises _ShortOfMemory: in all
        processes, if memory is short in one.
        """
        workspace = None
        with suppress(MemoryError):
            workspace = self._room(query)
        short = self._context.vertices.sums([workspace is None]) != [0.0]
        if short or workspace is None:
            raise _ShortOfMemory
        return workspace

    def _room(self, query: Query) -> Workspace:
        """The same, in this process. Raises MemoryError."""
        if query.iterate.packed:
            return self._pool.take(query.query.method != "pull")
        workspace = query.iterate.workspace
        self._pool.lend_lists(workspace)
        workspace.reserve(self._context.graph.vertices)
        return workspace

    def _give_up(self, entry: Entry, error: MemoryError) -> None:
        """Has a query solved again at the next refresh. Raises an error of this process alone."""
        if self._context.vertices.divided and not isinstance(error, _ShortOfMemory):
            raise error
        entry.query = entry.answer = None

    @property
    def nbytes(self) -> int:
        """Bytes that the iterates hold on the device."""
        queries = [entry.query for entry in self._entries.values() if entry.query is not None]
        return sum(query.iterate.nbytes for query in queries)


def _begin(context: QueryContext, asked: ResolvedQuery) -> Query:
    return Query(context, to_solve(asked))


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


def out_of_memory(context: QueryContext, name: str, asked: ResolvedQuery) -> OutOfMemory:
    """That there is not enough for a query."""
    available = context.graph.backend.device.memory_available()
    return OutOfMemory(_purpose(name, asked), _bytes_needed(context, asked), available)


def _bytes_needed(context: QueryContext, asked: ResolvedQuery) -> int:
    vertices = context.graph.vertices
    walked = vertices if asked.within is None else len(asked.within)
    return query_bytes(walked) + asked.bytes_of_answer(vertices)
