"""Personalized queries that are kept fresh: after each batch their residual is perturbed, and
pushed where the bound has come to pass the target (the dynamic PPR that Wang et al. compare with).

After a perturbation r is signed: the bound and the settled places hold from both sides (gpu.walk,
gpu.settled). A query is solved to half its target, so that most batches need no push at all: they
change its bound, not its places.

A walk that stayed near its seeds is kept as the entries it has touched, and is put back into arrays
over the vertices, which all such walks share, when there is something to do; so its cost follows
what it touches, not n. A walk that went everywhere keeps arrays of its own.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from gpu.errors import OutOfMemory
from gpu.graph import Applied, Loaded
from gpu.job import Prepared
from gpu.personalized import Query, Spaces
from gpu.settled import settled_by_gaps
from gpu.types import Options, Personalized
from gpu.walk import Space

_SOLVED = 0.5
"""A query is solved to this part of its target: the rest is for batches."""


@dataclass(slots=True)
class _Entry:
    """A watched query; where memory ended it has no walk and no answer until it is solved again.

    answer  with one place more than was asked for, which shows how secure the last one is
    """

    asked: Prepared
    query: Query | None
    answer: Personalized | None
    perturbed: bool = False


class Registration:
    """A query that is to be watched, at its first solve: `step` until `done`, then `Watched.keep`;
    `close` in any case. A batch between two steps perturbs it, and it goes on where it is.

    batches   how many have come since it began
    restarts  0: none made it begin anew
    """

    def __init__(self, spaces: Spaces, options: Options, name: str, asked: Prepared) -> None:
        """Raises OutOfMemory, with what its vectors need at most."""
        backend, vertices = spaces.graph.backend, spaces.graph.vertices
        needed, available = Space.bytes_needed(vertices), backend.memory_available()
        if needed > available:
            raise OutOfMemory(f"the watched query {name!r}", needed, available)
        self.name = name
        self.asked = asked
        self.batches = self.restarts = 0
        self._spaces = spaces
        self._options = options
        self._query: Query | None = None

    @property
    def done(self) -> bool:
        return self._query is not None and self._query.done

    def step(self) -> None:
        """Goes on, by about a sweep's work at most. Raises OutOfMemory."""
        if self._query is None:
            self._query = _begun(self._spaces, self._options, self.asked)
        self._query.step()

    def perturb(self, applied: Applied | Loaded) -> None:
        """Follows a batch."""
        self.batches += 1
        if self._query is None:
            return
        try:
            self._query.perturb(applied)
        except MemoryError:
            # the batch stands; whoever asked hears of it when the query begins anew
            self.close()

    def take(self) -> Query:
        """The query, solved, whose arrays are the taker's from now on."""
        assert self._query is not None
        query, self._query = self._query, None
        return query

    def close(self) -> None:
        """Gives the arrays back."""
        if self._query is not None:
            self._query.close()
        self._query = None


class Watched:
    """The watched queries of one graph, by name."""

    def __init__(self, spaces: Spaces, options: Options) -> None:
        self._spaces = spaces
        self._options = options
        self._entries: dict[str, _Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def keep(self, registration: Registration) -> None:
        """Keeps a query that is solved, in place of another of the same name."""
        entry = _Entry(registration.asked, None, None)
        self._settle(entry, registration.take())
        self._entries[registration.name] = entry

    def remove(self, name: str) -> None:
        """Forgets a query, if there is one of this name."""
        self._entries.pop(name, None)

    def answer(self, name: str) -> Personalized:
        """The places as of the last `refresh`. Raises KeyError, and OutOfMemory where there was
        not enough to bring them up to date.
        """
        answer = self._entries[name].answer
        if answer is None:
            needed = Space.bytes_needed(self._spaces.graph.vertices)
            available = self._spaces.graph.backend.memory_available()
            raise OutOfMemory(f"the watched query {name!r}", needed, available)
        k = self._entries[name].asked.query.k
        return replace(
            answer,
            vertices=answer.vertices[:k],
            ranks=answer.ranks[:k],
            settled=min(answer.settled, k),
        )

    def perturb(self, applied: Applied | Loaded) -> None:
        """Makes every residual that of the graph after a batch."""
        for entry in self._entries.values():
            if entry.query is None:
                continue
            try:
                self._unpack(entry.query)
                entry.query.perturb(applied)
                self._pack(entry.query)
                entry.perturbed = True
            except MemoryError:
                entry.query = entry.answer = None

    def refresh(self) -> None:
        """Brings every answer up to date with the graph."""
        for entry in self._entries.values():
            if entry.query is None or entry.query.walk.error_bound > entry.asked.target_error:
                try:
                    self._solve(entry)
                except MemoryError:
                    entry.query = entry.answer = None
            elif entry.perturbed and entry.answer is not None:
                walk, answer = entry.query.walk, entry.answer
                missing = (walk.l1 + walk.uncertainty) / (1.0 - self._options.damping)
                entry.answer = replace(
                    answer,
                    error_bound=min(2.0, walk.error_bound),
                    settled=settled_by_gaps(
                        answer.ranks * walk.total, missing, entry.asked.query.k
                    ),
                    iterations=0,
                )
            entry.perturbed = False

    def _solve(self, entry: _Entry) -> None:
        asked, query = entry.asked, entry.query
        entry.query = entry.answer = None
        if query is not None:
            self._unpack(query)
            self._run(query)
            if query.walk.error_bound > asked.target_error:
                # rounding has come to be too much of the residual
                query = None
        if query is None:
            query = _begun(self._spaces, self._options, asked)
            self._run(query)
        self._settle(entry, query)

    def _settle(self, entry: _Entry, query: Query) -> None:
        entry.answer = query.answer()
        self._pack(query)
        entry.query = query

    @staticmethod
    def _run(query: Query) -> None:
        query.iterations = 0
        while not query.done:
            query.step()

    def _pack(self, query: Query) -> None:
        if not query.walk.dense:
            query.walk.stow()
            self._spaces.give(query.walk.space)

    def _unpack(self, query: Query) -> None:
        if query.walk.stowed:
            query.walk.unstow(self._spaces.take(query.method == "push"))

    @property
    def nbytes(self) -> int:
        """Bytes that the walks hold on the device."""
        walks = [entry.query.walk for entry in self._entries.values() if entry.query is not None]
        return sum(walk.nbytes for walk in walks)


def _begun(spaces: Spaces, options: Options, asked: Prepared) -> Query:
    return Query(
        spaces,
        options,
        asked.seeds,
        asked.query.k + 1,
        asked.query.method,
        _SOLVED * asked.target_error,
    )
