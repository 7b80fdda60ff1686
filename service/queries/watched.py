"""The watched queries of one graph: personalized queries whose results follow every batch."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpu import Engine, Personalized, PersonalizedQuery, Registration
from gpu import UnknownVertex as UnknownId
from service.errors import UnknownVertex, UnknownWatched
from service.queries.model import WatchedQuery
from service.vertex_keys import VertexKeys


@dataclass(frozen=True, slots=True)
class WatchedResult:
    """The result for one version. vertices: the keys of the answer; error: why there is none."""

    query: WatchedQuery
    vertices: list[Any]
    answer: Personalized | None
    error: Exception | None = None


class WatchedQueries:
    """Only for the writer's thread.

    queries, results  by name; replaced, never changed
    """

    def __init__(
        self,
        graph: str,
        engine: Engine,
        keys: Callable[[], VertexKeys],
        queries: Mapping[str, WatchedQuery],
    ) -> None:
        """Solves every query. keys: of the vertices now."""
        self._graph = graph
        self._engine = engine
        self._keys = keys
        self.queries = queries
        self._without_seeds: dict[str, UnknownVertex] = {}
        for name in queries:
            self._solve(name)
        self.results: Mapping[str, WatchedResult] = {}
        self.results = self._collect()

    def with_query(self, name: str, query: WatchedQuery) -> dict[str, WatchedQuery]:
        """The queries after `keep`."""
        return {**self.queries, name: query}

    def without_query(self, name: str) -> dict[str, WatchedQuery]:
        """The queries after `remove`. Raises UnknownWatched."""
        if name not in self.queries:
            raise UnknownWatched(self._graph, name)
        return {key: query for key, query in self.queries.items() if key != name}

    def keep(self, queries: Mapping[str, WatchedQuery], registration: Registration) -> None:
        """Adds a solved query, or replaces the one of its name. queries: from `with_query`."""
        name = registration.name
        self.queries = queries
        self._engine.keep(registration)
        self._without_seeds.pop(name, None)
        self.results = self._collect(changed=name)

    def remove(self, queries: Mapping[str, WatchedQuery], name: str) -> None:
        """queries: from `without_query`."""
        self.queries = queries
        self._engine.unwatch(name)
        self._without_seeds.pop(name, None)
        self.results = self._collect()

    def refresh(self) -> None:
        """Updates the results from the engine."""
        if not self.queries:
            return
        for name in list(self._without_seeds):
            self._solve(name)
        self._engine.refresh_watched()
        self.results = self._collect()

    def _solve(self, name: str) -> None:
        """Solves a stored query. A seed may be unknown: the batch that added it may have been lost
        with a damaged journal, and may be sent again.
        """
        try:
            self._engine.watch(name, self._by_ids(self.queries[name]))
            self._without_seeds.pop(name, None)
        except UnknownVertex as error:
            self._without_seeds[name] = error

    def _by_ids(self, query: WatchedQuery) -> PersonalizedQuery:
        return query.by_ids(self._graph, self._keys(), self._engine.id_limit, "seeds")

    def _collect(self, changed: str | None = None) -> dict[str, WatchedResult]:
        """The results of all queries. changed: the query that was replaced."""
        results: dict[str, WatchedResult] = {}
        for name, query in self.queries.items():
            is_new = name == changed
            try:
                if name not in self._without_seeds:
                    answer = self._engine.watched(name)
            except MemoryError as error:
                results[name] = WatchedResult(query, [], None, error)
                continue
            except UnknownId:
                # a seed was removed; its key may be that of a new vertex already
                self._engine.unwatch(name)
                self._solve(name)
                is_new = True
                if name not in self._without_seeds:
                    answer = self._engine.watched(name)
            if name in self._without_seeds:
                results[name] = WatchedResult(query, [], None, self._without_seeds[name])
                continue
            before = self.results.get(name)
            if before and before.answer and not is_new and answer.iterations == 0:
                vertices = before.vertices  # the same places
            else:
                vertices = self._keys().keys(answer.vertices).to_pylist()
            results[name] = WatchedResult(query, vertices, answer)
        return results
