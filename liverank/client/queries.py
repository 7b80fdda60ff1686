"""Personalized queries, answered once or watched, views, and sets of vertices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Unpack

from liverank.choices import Key
from liverank.client.arrow import (
    ARROW_STREAM,
    PersonalizedTable,
    personalized_table,
    seeds_stream,
)
from liverank.client.batches import keys_of
from liverank.client.call import (
    Call,
    decoder,
    operation,
    path_of,
    query_of,
    read,
    read_member,
    remove,
    write,
)
from liverank.client.responses import (
    PersonalizedAnswers,
    PersonalizedQuery,
    PersonalizedRanks,
    VertexRank,
    VertexSet,
    VertexSetMembers,
    ViewInfo,
    ViewState,
    WatchedRanks,
)
from liverank.client.sources import ReadKeywords
from liverank.options import QueryKeywords, ViewKeywords, given


class PersonalizedKeywords(QueryKeywords, ReadKeywords, total=False):
    """Of a query that is answered once."""


class QueryCalls:
    """A part of Calls."""

    @operation
    def personalized(
        self, graph: str, vertex: Key, k: int = 10, **options: Unpack[PersonalizedKeywords]
    ) -> Call[PersonalizedRanks]:
        """The k vertices of highest rank when every walk restarts at `vertex`; see
        PersonalizedQuery. `among` and `within` are names of sets.
        """
        return read(PersonalizedRanks, "graphs", graph, "personalized", vertex, k=k, **options)

    @operation
    def personalized_many(
        self, graph: str, queries: Sequence[PersonalizedQuery], **wait: Unpack[ReadKeywords]
    ) -> Call[PersonalizedAnswers]:
        """Queries with weighted seeds, answered together: faster than one after the other."""
        path = "graphs", graph, "personalized"
        body, query = {"queries": queries}, query_of(**wait)
        return write("POST", PersonalizedAnswers, body, *path, repeatable=True, query=query)

    @operation
    def personalized_table(
        self, graph: str, seeds: Any, k: int = 10, **options: Unpack[PersonalizedKeywords]
    ) -> Call[PersonalizedTable]:
        """`personalized_many` in columns, for many seeds: they are sent and answered as Arrow.

        seeds  a frame, as `send` reads them, or a mapping of columns: `seed` and, optionally,
               `weight` (1 if it is absent; those of repeats add up) and `query`, integers or
               strings that tell the seeds of several queries apart
        The others are those of every query: see PersonalizedQuery. `among` and `within` are
        names of sets.
        """
        return Call(
            method="POST",
            path=path_of("graphs", graph, "personalized"),
            query={"k": k, **query_of(**options)},
            body=seeds_stream(seeds),
            headers={"Content-Type": ARROW_STREAM, "Accept": ARROW_STREAM},
            parse=personalized_table,
            repeatable=True,
        )

    @operation
    def watch(
        self, graph: str, name: str, query: PersonalizedQuery, *, timeout: float | None = None
    ) -> Call[WatchedRanks]:
        """Keeps a query up to date under a name, replacing a query of that name; returns its first
        answer. The query's `target` must be `error`.
        """
        path, options = ("graphs", graph, "watched", name), given(timeout=timeout)
        return write("PUT", WatchedRanks, query, *path, repeatable=True, query=options)

    @operation
    def watched(self, graph: str, name: str, **wait: Unpack[ReadKeywords]) -> Call[WatchedRanks]:
        """The answer to a watched query for the newest version."""
        return read(WatchedRanks, "graphs", graph, "watched", name, **wait)

    @operation
    def unwatch(self, graph: str, name: str) -> Call[None]:
        """Removes a watched query."""
        return remove("graphs", graph, "watched", name)

    @operation
    def watched_rank(
        self, graph: str, name: str, vertex: Key, **wait: Unpack[ReadKeywords]
    ) -> Call[VertexRank]:
        """The rank of one of the k vertices of a watched query; ServerError 404 for others."""
        return read(VertexRank, "graphs", graph, "watched", name, "ranks", vertex, **wait)

    @operation
    def put_view(
        self,
        graph: str,
        name: str,
        teleport: Literal["uniform"] | Mapping[str, Any],
        *,
        timeout: float | None = None,
        **options: Unpack[ViewKeywords],
    ) -> Call[ViewState]:
        """Ranks all vertices for a teleport distribution of its own, and keeps these ranks fresh.
        Reads have them by `view`. A view of this name goes on from the ranks that it has.

        teleport  "uniform", {"set": NAME}, or {"weights": {KEY: WEIGHT}}; or {"weights": TABLE}
                  with the columns `seed` and `weight`, for many of them: sent as Arrow

        ViewOptions says what the others mean.
        """
        path = "graphs", graph, "views", name
        if isinstance(teleport, Mapping) and not isinstance(
            weights := teleport.get("weights", {}), Mapping
        ):
            return Call(
                method="PUT",
                path=path_of(*path),
                query=given(timeout=timeout, **options),
                body=seeds_stream(weights),
                headers={"Content-Type": ARROW_STREAM},
                parse=decoder(ViewState),
                repeatable=True,
            )
        body = given(teleport=teleport, **options)
        return write("PUT", ViewState, body, *path, repeatable=True, query=given(timeout=timeout))

    @operation
    def view(self, graph: str, name: str, **wait: Unpack[ReadKeywords]) -> Call[ViewState]:
        """What a view is, and the error bound of its ranks for the newest version."""
        return read(ViewState, "graphs", graph, "views", name, **wait)

    @operation
    def views(self, graph: str, **wait: Unpack[ReadKeywords]) -> Call[list[ViewInfo]]:
        """The views of a graph, by name."""
        return read_member("views", list[ViewInfo], "graphs", graph, "views", **wait)

    @operation
    def remove_view(self, graph: str, name: str) -> Call[None]:
        """Removes a view."""
        return remove("graphs", graph, "views", name)

    @operation
    def put_set(self, graph: str, name: str, vertices: Iterable[Key]) -> Call[VertexSet]:
        """Creates a named set of vertices, or gives it others. Batches change it by `sets`."""
        body = {"vertices": keys_of(vertices)}
        return write("PUT", VertexSet, body, "graphs", graph, "sets", name, repeatable=True)

    @operation
    def vertex_set(
        self, graph: str, name: str, **wait: Unpack[ReadKeywords]
    ) -> Call[VertexSetMembers]:
        """The vertices of a set."""
        return read(VertexSetMembers, "graphs", graph, "sets", name, **wait)

    @operation
    def drop_set(self, graph: str, name: str) -> Call[None]:
        """Removes a set; its vertices stay."""
        return remove("graphs", graph, "sets", name)
