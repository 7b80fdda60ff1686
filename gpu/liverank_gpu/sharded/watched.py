"""The watched queries of a graph in shards, as a caller sees them.

Shards keep the iterates (liverank_gpu.sharded.own_watched); queries and answers are here. After an
error the shards have forgotten theirs, and those queries are solved again at the next refresh.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import OutOfMemory, UnknownVertex
from liverank_gpu.personalized.resolve import ResolvedQuery
from liverank_gpu.personalized.watched import Registration
from liverank_gpu.sharded.own_watched import Renewed
from liverank_gpu.sharded.queries import SLICE_SECONDS, Running
from liverank_gpu.types import Personalized


class ShardedRegistration(Registration):
    """The first solve of a query that the shards are to watch: see Registration.

    number  the shards know it by that
    """

    def __init__(
        self,
        solve: Callable[[ShardedRegistration], bool],
        name: str,
        asked: ResolvedQuery,
        number: int,
        running: list[Running],
    ) -> None:
        """solve    has the shards go on, and returns whether it is done
        running  what is not closed, which this one joins
        """
        self.name, self.asked, self.number = name, asked, number
        self.updates = self.restarts = 0
        self._solve, self._running = solve, running
        self._done, self._lost = False, None
        running.append(self)

    @property
    def done(self) -> bool:
        return self._done

    def step(self) -> None:
        """Has the shards go on, for about SLICE_SECONDS. Raises OutOfMemory, ShardLost, and
        UnknownVertex if a batch removed a seed.
        """
        if self._lost:
            raise self._lost
        self._done = self._solve(self)

    def follow(self, removed: NDArray[np.int64]) -> None:
        """Follows a batch of edges that removed these vertices: ids, ascending."""
        self.updates += 1
        self._done = False
        try:
            self.asked = self.asked.after(removed)
        except UnknownVertex as error:
            self._lost = error

    def close(self) -> None:
        if self in self._running:
            self._running.remove(self)


@dataclass(slots=True)
class _Entry:
    """A watched query, with its answer as of the last refresh.

    error  why it has none
    """

    asked: ResolvedQuery
    answer: Personalized | None
    error: UnknownVertex | MemoryError | None = None


class ShardedWatched:
    """The watched queries, by name."""

    def __init__(
        self, call: Callable[..., Any], numbers: Callable[[], int], running: list[Running]
    ) -> None:
        """call     calls a method of ShardQueries, and returns its result
        numbers  gives new ones
        running  what is not closed
        """
        self._call, self._new_number, self._running = call, numbers, running
        self._entries: dict[str, _Entry] = {}
        self._restricted: set[str] = set()

    def register(self, name: str, asked: ResolvedQuery) -> ShardedRegistration:
        """Begins a query that is to be watched."""
        return ShardedRegistration(self._step, name, asked, self._new_number(), self._running)

    def _step(self, registration: ShardedRegistration) -> bool:
        query = (registration.number, registration.name, registration.asked)
        open_numbers = [each.number for each in self._running]
        done: bool | OutOfMemory = self._call("register", *query, open_numbers, SLICE_SECONDS)
        if isinstance(done, OutOfMemory):
            raise done
        return done

    def watch(self, name: str, asked: ResolvedQuery) -> None:
        """Solves a query and keeps it. Raises OutOfMemory, ShardLost."""
        registration = self.register(name, asked)
        try:
            while not registration.done:
                registration.step()
            self.keep(registration)
        finally:
            registration.close()

    def keep(self, registration: Registration) -> None:
        """Watches a solved query, in place of another of its name. Raises OutOfMemory, ShardLost;
        then that one stays.
        """
        assert isinstance(registration, ShardedRegistration)
        name = registration.name
        answers: dict[str, Renewed] = self._call("keep", registration.number)
        if name not in answers:  # the shards have forgotten it
            self.watch(name, registration.asked)
            return
        self._entries[name] = _Entry(registration.asked, answers[name].answer)
        self._restricted.discard(name)

    def restrict(self, name: str, among: NDArray[np.int64]) -> None:
        """See Watched.restrict."""
        entry = self._entries[name]
        if entry.asked.among is None or not np.array_equal(among, entry.asked.among):
            entry.asked = replace(entry.asked, among=among)
            self._restricted.add(name)

    def remove(self, name: str) -> None:
        """See Watched.remove. Raises ShardLost."""
        if self._entries.pop(name, None) is not None:
            self._restricted.discard(name)
            self._call("unwatch", name)

    def answer(self, name: str) -> Personalized:
        """See Watched.answer."""
        entry = self._entries[name]
        if entry.error is not None:
            raise entry.error
        assert entry.answer is not None
        return entry.answer

    def follow(self, removed: NDArray[np.int64]) -> None:
        """Follows a batch of edges that removed these vertices: ids, ascending."""
        for entry in self._entries.values():
            try:
                entry.asked = entry.asked.after(removed)
            except UnknownVertex as error:
                entry.answer, entry.error = None, error

    def refresh(self) -> None:
        """Brings every answer up to date with the graph. Raises ShardLost."""
        if not self._entries:
            return
        among = {name: self._entries[name].asked.among for name in self._restricted}
        answers: dict[str, Renewed] = {}
        with suppress(MemoryError):  # then the shards have forgotten all of them
            answers = self._call("refresh", among)
        self._restricted.clear()  # not before: after another error the shards may not know them
        for name, entry in list(self._entries.items()):
            if name in answers:
                answer, stays = answers[name]
                if stays and entry.answer is not None:
                    answer = replace(answer, vertices=entry.answer.vertices)
                entry.answer, entry.error = answer, None
            elif not isinstance(entry.error, UnknownVertex):
                self._solve(name, entry)

    def _solve(self, name: str, entry: _Entry) -> None:
        try:
            self.watch(name, entry.asked)
        except MemoryError as error:
            entry.answer, entry.error = None, error
