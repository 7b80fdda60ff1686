"""The watched queries of one graph: personalized queries whose results follow every batch.

A result is always what the query, asked now, would get. So its keys are looked up again where they
may name other vertices than before: seeds that were unknown, or that a batch removed, and what it
is among.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import copy
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

import pyarrow as pa

from liverank_gpu import Engine, InvalidValue, Personalized, Registration
from liverank_gpu import UnknownVertex as UnknownId
from liverank_service.errors import ServiceError, UnknownSet, UnknownVertex, UnknownWatched
from liverank_service.formats.values import EMPTY
from liverank_service.queries.model import (
    KeyedRequest,
    QueryByIds,
    Refusals,
    Vertices,
    WatchedQuery,
    no_places,
)
from liverank_service.vertex_keys import ARROW_TYPES

Query = TypeVar("Query", bound=KeyedRequest)
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class WatchedResult:
    """The result for one version.

    vertices  the keys of the answer
    error     why there is no answer
    ignored   the unknown seeds that are left out
    """

    query: WatchedQuery
    vertices: pa.Array
    answer: Personalized | None
    error: Exception | None = None
    ignored: list[Any] = field(default_factory=list)


class KeptQueries(ABC, Generic[Query, Result]):
    """Queries of one kind that follow every batch. Only for the writer's thread.

    queries, results  by name; replaced, never changed
    """

    def __init__(
        self,
        engine: Engine,
        vertices: Callable[[], Vertices],
        queries: Mapping[str, Query],
    ) -> None:
        """Solves every query. vertices: as they are now."""
        self._engine = engine
        self._vertices = vertices
        self.queries = queries
        # how each query was looked up last, or why it could not be; the engine watches those that
        # have ranks
        self._found: dict[str, QueryByIds | Exception] = {}
        for name in queries:
            self._solve(name)
        self.results: Mapping[str, Result] = {}
        self.results = self._collect()

    @abstractmethod
    def _unknown(self, name: str) -> ServiceError:
        """The error that there is none of this name."""

    @abstractmethod
    def _put(self, name: str, query: Any) -> None:
        """Has the engine solve a query by ids, and follow it."""

    @abstractmethod
    def _forget(self, name: str) -> None:
        """Has the engine forget a query, if it has it."""

    @abstractmethod
    def _refresh(self) -> None:
        """Has the engine bring its queries up to date."""

    @abstractmethod
    def _goes_on(self, name: str, found: QueryByIds, vertices: Vertices) -> bool:
        """Brings what the engine has to what the keys of a query name now; false if the query is to
        be solved again for that.
        """

    @abstractmethod
    def _result(self, name: str) -> Result:
        """The result of a query as the engine has it."""

    def with_query(self, name: str, query: Query) -> dict[str, Query]:
        """The queries after `keep`."""
        return {**self.queries, name: query}

    def without_query(self, name: str) -> dict[str, Query]:
        """The queries after `remove`. Raises UnknownWatched, UnknownView."""
        if name not in self.queries:
            raise self._unknown(name)
        return {key: query for key, query in self.queries.items() if key != name}

    def keep(
        self,
        queries: Mapping[str, Query],
        name: str,
        found: QueryByIds,
        registration: Registration | None,
    ) -> None:
        """Adds a query, or replaces the one of its name.

        queries       from `with_query`
        found         the query by ids, when its first solve began
        registration  that solve; None if it has no ranks, or goes on from those that it has
        """
        self.queries = queries
        if registration is None:
            self._solve(name)
        else:
            self._found[name] = found
            self._keep(name, registration)
            self._follow(name)
        self._refresh()
        self.results = self._collect()

    def _keep(self, name: str, registration: Registration) -> None:
        try:
            self._engine.keep(registration)
        except Exception as error:
            # the engine has another query of the name, or none: this one is to be solved again
            self._found[name] = copy(error)
            if not isinstance(error, MemoryError):
                raise

    def remove(self, queries: Mapping[str, Query], name: str) -> None:
        """queries: from `without_query`."""
        self.queries = queries
        self._forget(name)
        self._found.pop(name, None)
        self.results = self._collect()

    def refresh(self) -> None:
        """Updates the results from the engine."""
        if not self.queries:
            return
        for name in self.queries:
            self._follow(name)
        self._refresh()
        self.results = self._collect()

    def _solve(self, name: str) -> None:
        """Looks the keys of a query up, and solves it."""
        try:
            found = self.queries[name].by_ids(self._vertices())
            if found.has_ranks:
                self._put(name, found.query)
            else:
                self._forget(name)
        except (UnknownVertex, UnknownSet, InvalidValue, MemoryError) as error:
            self._forget(name)
            # frames have this object, and a lack of memory has a cause with more of them
            lacks = isinstance(error, MemoryError)
            self._found[name] = copy(error) if lacks else error.with_traceback(None)
        else:
            self._found[name] = found

    def _follow(self, name: str) -> None:
        """Solves a query again if its keys name others than those that it was solved for."""
        found, vertices = self._found[name], self._vertices()
        kind = ARROW_TYPES[vertices.keys.kind]
        if (
            isinstance(found, Exception)
            or not found.has_ranks
            or (vertices.ids_of(pa.array(found.ignored, kind)) >= 0).any()
            or not self._goes_on(name, found, vertices)
        ):
            self._solve(name)

    def _collect(self) -> dict[str, Result]:
        """The results of all queries."""
        return {name: self._result(name) for name in self.queries}


class WatchedQueries(KeptQueries[WatchedQuery, WatchedResult]):
    """The watched queries of one graph."""

    def __init__(self, refusals: Refusals, *given: Any) -> None:
        """given: those of KeptQueries"""
        self._refusals = refusals
        super().__init__(*given)

    def _unknown(self, name: str) -> ServiceError:
        return UnknownWatched(self._vertices().graph, name)

    def _put(self, name: str, query: Any) -> None:
        self._engine.unwatch(name)
        self._engine.watch(name, query)

    def _forget(self, name: str) -> None:
        self._engine.unwatch(name)

    def _refresh(self) -> None:
        self._engine.refresh_watched()

    def _goes_on(self, name: str, found: QueryByIds, vertices: Vertices) -> bool:  # noqa: ARG002
        """Tells the engine what it is among now."""
        try:
            among = self.queries[name].among_ids(vertices)
        except (UnknownVertex, UnknownSet):
            return False
        if among is None:
            return True
        if len(among) > 0:
            self._engine.restrict(name, among)
        return len(among) > 0

    def _result(self, name: str) -> WatchedResult:
        query, found, before = self.queries[name], self._found[name], self.results.get(name)
        keys = self._vertices().keys
        none = EMPTY[keys.kind]
        if isinstance(found, Exception):
            return WatchedResult(query, none, None, found)
        if not found.has_ranks:
            return WatchedResult(query, none, no_places(found.query), ignored=found.ignored)
        try:
            answer = self._engine.watched(name)
        except UnknownId:
            answer = None
        except MemoryError as error:
            return WatchedResult(query, none, None, copy(error))
        if answer is None:  # here, since an error would have the one above
            self._solve(name)
            return self._result(name)
        if before and before.answer and before.answer.vertices is answer.vertices:
            vertices = before.vertices
        else:  # it was solved
            self._refusals.report(answer, name)
            vertices = keys.keys(answer.vertices)
        return WatchedResult(query, vertices, answer, ignored=found.ignored)
