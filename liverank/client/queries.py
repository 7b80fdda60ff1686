"""Personalized queries, answered once or watched, views, and sets of vertices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from liverank.choices import Form, Key, Method, Refresh, Target, Unknown, ViewDirection
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
    given,
    member,
    nothing,
    operation,
    path_of,
    read,
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
from liverank.client.sources import Positions, waiting


class QueryCalls:
    """A part of Calls."""

    @operation
    def personalized(
        self,
        graph: str,
        vertex: Key,
        k: int = 10,
        *,
        method: Method | None = None,
        target_error: float | None = None,
        target: Target | None = None,
        unknown: Unknown | None = None,
        damping: float | None = None,
        among: str | None = None,
        form: Form | None = None,
        trace: bool | None = None,
        zeros: bool | None = None,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[PersonalizedRanks]:
        """The k vertices of highest rank when every walk restarts at `vertex`; see
        PersonalizedQuery. `among` is the name of a set.
        """
        return read(
            path_of("graphs", graph, "personalized", vertex),
            decoder(PersonalizedRanks),
            k=k,
            method=method,
            target_error=target_error,
            target=target,
            unknown=unknown,
            damping=damping,
            among=among,
            form=form,
            trace=trace,
            zeros=zeros,
            **waiting(min_version, min_position, timeout),
        )

    @operation
    def personalized_many(
        self,
        graph: str,
        queries: Sequence[PersonalizedQuery],
        *,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[PersonalizedAnswers]:
        """Queries with weighted seeds, answered together: faster than one after the other."""
        path = path_of("graphs", graph, "personalized")
        query = waiting(min_version, min_position, timeout)
        body = {"queries": queries}
        return write("POST", path, body, PersonalizedAnswers, query, repeatable=True)

    @operation
    def personalized_table(
        self,
        graph: str,
        seeds: Any,
        k: int = 10,
        *,
        method: Method | None = None,
        target_error: float | None = None,
        target: Target | None = None,
        unknown: Unknown | None = None,
        damping: float | None = None,
        among: str | None = None,
        form: Form | None = None,
        trace: bool | None = None,
        zeros: bool | None = None,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[PersonalizedTable]:
        """`personalized_many` in columns, for many seeds: they are sent and answered as Arrow.

        seeds  a frame, as `send` reads them, or a mapping of columns: `seed` and, optionally,
               `weight` (1 if it is absent; those of repeats add up) and `query`, integers or
               strings that tell the seeds of several queries apart
        The others are those of every query: see PersonalizedQuery. `among` is the name of a set.
        """
        return Call(
            method="POST",
            path=path_of("graphs", graph, "personalized"),
            query=given(
                k=k,
                method=method,
                target_error=target_error,
                target=target,
                unknown=unknown,
                damping=damping,
                among=among,
                form=form,
                trace=trace,
                zeros=zeros,
                **waiting(min_version, min_position, timeout),
            ),
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
        path = path_of("graphs", graph, "watched", name)
        return write("PUT", path, query, WatchedRanks, given(timeout=timeout), repeatable=True)

    @operation
    def watched(
        self,
        graph: str,
        name: str,
        *,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[WatchedRanks]:
        """The answer to a watched query for the newest version."""
        path = path_of("graphs", graph, "watched", name)
        return read(path, decoder(WatchedRanks), **waiting(min_version, min_position, timeout))

    @operation
    def unwatch(self, graph: str, name: str) -> Call[None]:
        """Removes a watched query."""
        path = path_of("graphs", graph, "watched", name)
        return Call(method="DELETE", path=path, parse=nothing)

    @operation
    def watched_rank(
        self,
        graph: str,
        name: str,
        vertex: Key,
        *,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[VertexRank]:
        """The rank of one of the k vertices of a watched query; ServerError 404 for others."""
        path = path_of("graphs", graph, "watched", name, "ranks", vertex)
        return read(path, decoder(VertexRank), **waiting(min_version, min_position, timeout))

    @operation
    def put_view(
        self,
        graph: str,
        name: str,
        teleport: Literal["uniform"] | Mapping[str, Any],
        *,
        damping: float | None = None,
        direction: ViewDirection | None = None,
        target_error: float | None = None,
        refresh: Refresh | float | None = None,
        unknown: Unknown | None = None,
        timeout: float | None = None,
    ) -> Call[ViewState]:
        """Ranks all vertices for a teleport distribution of its own, and keeps these ranks fresh.
        Reads have them by `view`. A view of this name goes on from the ranks that it has.

        teleport  "uniform", {"set": NAME} or {"weights": {KEY: WEIGHT}}
        refresh   when it is solved, if its error bound has passed the target: "batch", "read", or
                  seconds that are to pass before
        unknown   "ignore": keys of weights that are no vertices are left out
        """
        members = given(
            damping=damping,
            direction=direction,
            target_error=target_error,
            refresh=refresh,
            unknown=unknown,
        )
        path = path_of("graphs", graph, "views", name)
        body = {"teleport": teleport, **members}
        return write("PUT", path, body, ViewState, given(timeout=timeout), repeatable=True)

    @operation
    def view(
        self,
        graph: str,
        name: str,
        *,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[ViewState]:
        """What a view is, and the error bound of its ranks for the newest version."""
        path = path_of("graphs", graph, "views", name)
        return read(path, decoder(ViewState), **waiting(min_version, min_position, timeout))

    @operation
    def views(
        self,
        graph: str,
        *,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[list[ViewInfo]]:
        """The views of a graph, by name."""
        path = path_of("graphs", graph, "views")
        found = member("views", list[ViewInfo])
        return read(path, found, **waiting(min_version, min_position, timeout))

    @operation
    def remove_view(self, graph: str, name: str) -> Call[None]:
        """Removes a view."""
        path = path_of("graphs", graph, "views", name)
        return Call(method="DELETE", path=path, parse=nothing)

    @operation
    def put_set(self, graph: str, name: str, vertices: Iterable[Key]) -> Call[VertexSet]:
        """Creates a named set of vertices, or gives it others. Batches change it by `sets`."""
        path = path_of("graphs", graph, "sets", name)
        return write("PUT", path, {"vertices": keys_of(vertices)}, VertexSet, repeatable=True)

    @operation
    def vertex_set(
        self,
        graph: str,
        name: str,
        *,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[VertexSetMembers]:
        """The vertices of a set."""
        path = path_of("graphs", graph, "sets", name)
        return read(path, decoder(VertexSetMembers), **waiting(min_version, min_position, timeout))

    @operation
    def drop_set(self, graph: str, name: str) -> Call[None]:
        """Removes a set; its vertices stay."""
        return Call(method="DELETE", path=path_of("graphs", graph, "sets", name), parse=nothing)
