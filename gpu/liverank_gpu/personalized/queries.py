"""The personalized queries of one graph: those that run, and those that are watched."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.update import GraphUpdate
from liverank_gpu.personalized.batch import QueryBatch
from liverank_gpu.personalized.query import QueryContext
from liverank_gpu.personalized.resolve import (
    METHODS,
    PUBLISHED_METHODS,
    AnyQuery,
    ResolvedQuery,
    checked_among,
    resolve,
)
from liverank_gpu.personalized.watched import Registration, Watched, require_watchable
from liverank_gpu.types import PersonalizedQuery


class Queries:
    """Begins queries and lets all of them follow batches.

    running  those that were begun and not closed
    watched  see liverank_gpu.personalized.watched
    """

    def __init__(self, context: QueryContext) -> None:
        self.context = context
        self.watched = Watched(context)
        self.running: list[QueryBatch | Registration] = []

    def resolve(self, queries: Sequence[AnyQuery]) -> list[ResolvedQuery]:
        """Raises InvalidValue, naming ``queries[3].k``."""
        return resolve(self.context.graph.ids, self.context.options, queries)

    def submit(self, queries: Sequence[AnyQuery]) -> QueryBatch:
        """Begins queries that are answered once. Raises InvalidValue."""
        batch = QueryBatch(self.context, self.resolve(queries))
        self.running.append(batch)
        return batch

    def register(self, name: str, query: PersonalizedQuery) -> Registration:
        """Begins a query that is to be watched. Raises InvalidValue, OutOfMemory."""
        require_watchable(query)
        registration = Registration(self.context, name, self.resolve([query])[0])
        self.running.append(registration)
        return registration

    def restrict(self, name: str, among: NDArray[np.integer[Any]]) -> None:
        """Changes the vertices that a watched query is among. Raises KeyError, InvalidValue."""
        self.watched.restrict(name, checked_among(self.context.graph.ids, among))

    def close(self, running: QueryBatch | Registration) -> None:
        """Ends what was begun, and takes its arrays back."""
        self.running.remove(running)
        running.close()

    def perturb(self, update: GraphUpdate) -> None:
        """Lets all of them follow a batch."""
        for running in self.running:
            running.perturb(update)
        self.watched.perturb(update)

    def warm_up(self) -> None:
        """Compiles what single queries need, and what ties do, on a graph that has vertex 0, and
        edges that lead to vertex 2.
        """
        for method in METHODS:
            self._solve([PersonalizedQuery(np.array([0]), k=1, method=method)])
        self.context.vertices.identical_to(np.array([2]))

    def warm_up_others(self) -> None:
        """Compiles what queries in a block and the published form need, on a graph that has
        vertex 2.
        """
        # takes more sweeps than vertex 0, from which only that is visited
        query = PersonalizedQuery(np.array([2]), k=1, method="pull")
        self._solve([query] * self.context.graph.backend.multivector.min_columns)
        for method in PUBLISHED_METHODS:
            self._solve([replace(query, method=method, form="published")])

    def _solve(self, queries: Sequence[PersonalizedQuery]) -> None:
        batch = self.submit(queries)
        while not batch.done:
            batch.step()
        self.close(batch)

    @property
    def nbytes(self) -> int:
        """Bytes held on the device."""
        return self.context.pool.nbytes + self.watched.nbytes
