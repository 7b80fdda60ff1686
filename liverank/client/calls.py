"""Every call of the HTTP interface, described once for both clients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from liverank.client.batches import Batch, Edges, batch_call, keys_of
from liverank.client.call import (
    JSON,
    Call,
    decoder,
    events,
    given,
    json_body,
    member,
    nothing,
    operation,
    path_of,
    read,
    write,
)
from liverank.client.graph_calls import GraphCalls
from liverank.client.operation_calls import OperationCalls
from liverank.client.responses import (
    Accepted,
    ChangeEvent,
    CheckpointTaken,
    Dangling,
    GraphInfo,
    Key,
    KeyKind,
    Method,
    Outcome,
    Pending,
    PersonalizedAnswers,
    PersonalizedQuery,
    PersonalizedRanks,
    Rank,
    RankList,
    Receipt,
    Rejected,
    Storage,
    Strategy,
    Target,
    TopRanks,
    VertexRank,
    WatchedRanks,
)

if TYPE_CHECKING:
    from collections.abc import Iterable


class Calls(GraphCalls, OperationCalls):
    """Every call raises ServerError if the server refuses, and ServerUnreachable if it does not
    respond. Reads, and batches, which have idempotency keys, are retried first.

    min_version  every read: use this version or a later one. To read your own write, pass the
                 `version` of its receipt
    timeout      every read: seconds that the server may take for it, up to 300; None: 10
    """

    # Graphs

    @operation
    def create(
        self,
        graph: str,
        *,
        damping: float | None = None,
        dangling: Dangling | None = None,
        strategy: Strategy | None = None,
        target_error: float | None = None,
        storage: Storage | None = None,
        keys: KeyKind | None = None,
    ) -> Call[GraphInfo]:
        """Creates the graph, or finds it with the same options. Options that are None have their
        defaults in a new graph, and are not compared with those of an existing one.
        """
        options = given(
            damping=damping,
            dangling=dangling,
            strategy=strategy,
            target_error=target_error,
            storage=storage,
            keys=keys,
        )
        return write("PUT", path_of("graphs", graph), options, GraphInfo, repeatable=True)

    @operation
    def graphs(self) -> Call[list[GraphInfo]]:
        """All graphs that the API key is valid for, by name."""
        return read("/graphs", member("graphs", list[GraphInfo]))

    @operation
    def graph(self, graph: str) -> Call[GraphInfo]:
        """Vertices, edges, version, options, backend, error bound and memory of one graph."""
        return read(path_of("graphs", graph), decoder(GraphInfo))

    @operation
    def drop(self, graph: str) -> Call[None]:
        """Removes the graph and its data."""
        return Call(method="DELETE", path=path_of("graphs", graph), parse=nothing)

    @operation
    def checkpoint(self, graph: str) -> Call[CheckpointTaken]:
        """Has the server write a checkpoint of what is committed."""
        path = path_of("graphs", graph, "checkpoint")
        return Call(method="POST", path=path, parse=decoder(CheckpointTaken))

    # Batches

    @operation
    def send(
        self,
        graph: str,
        insert: Edges = (),
        delete: Edges = (),
        vertices: Iterable[Key] = (),
        *,
        source: str | None = None,
        target: str | None = None,
        strategy: Strategy | None = None,
        key: str | None = None,
    ) -> Call[Receipt]:
        """Sends a batch and waits for its ranks. The server deletes, then inserts, then adds the
        vertices; all or nothing.

        insert, delete  pairs, or anything that liverank.edges reads: frames, sparse matrices,
                        graphs
        source, target  the columns of frames; None: columns of these names, or the only two
        strategy        None: the graph's
        key             the idempotency key: a batch that is sent twice with it is applied once;
                        None: a new one
        """
        batch = Batch(insert, delete, vertices, strategy)
        return batch_call(graph, batch, source, target, "ranked", key, Receipt)

    @operation
    def append(
        self,
        graph: str,
        insert: Edges = (),
        delete: Edges = (),
        vertices: Iterable[Key] = (),
        *,
        source: str | None = None,
        target: str | None = None,
        strategy: Strategy | None = None,
        rank: Rank = "now",
        key: str | None = None,
    ) -> Call[Accepted]:
        """Like `send`, but returns once the batch is on disk. `batch` has the receipt later. With
        `rank="later"`, the next batch without it ranks this one too.
        """
        batch = Batch(insert, delete, vertices, strategy)
        return batch_call(graph, batch, source, target, "durable", key, Accepted, rank)

    @operation
    def insert(
        self,
        graph: str,
        edges: Edges,
        *,
        source: str | None = None,
        target: str | None = None,
        strategy: Strategy | None = None,
        key: str | None = None,
    ) -> Call[Receipt]:
        """Sends a batch that inserts the edges, and waits for its ranks: see `send`."""
        batch = Batch(edges, strategy=strategy)
        return batch_call(graph, batch, source, target, "ranked", key, Receipt)

    @operation
    def delete(
        self,
        graph: str,
        edges: Edges,
        *,
        source: str | None = None,
        target: str | None = None,
        strategy: Strategy | None = None,
        key: str | None = None,
    ) -> Call[Receipt]:
        """Sends a batch that deletes the edges, and waits for its ranks: see `send`."""
        batch = Batch(delete=edges, strategy=strategy)
        return batch_call(graph, batch, source, target, "ranked", key, Receipt)

    @operation
    def batch(self, graph: str, version: int) -> Call[Outcome]:
        """The outcome of a batch: its receipt, or that it is pending or rejected."""
        return read(path_of("graphs", graph, "batches", version), _outcome)

    @operation
    def recompute(self, graph: str, *, strategy: Strategy | None = None) -> Call[Receipt]:
        """Ranks the graph again, with `static` unless another strategy is given; its version does
        not change.
        """
        path = path_of("graphs", graph, "recompute")
        query = given(strategy=strategy)
        return Call(method="POST", path=path, query=query, parse=decoder(Receipt))

    # Ranks

    @operation
    def rank(
        self,
        graph: str,
        vertex: Key,
        *,
        min_version: int | None = None,
        timeout: float | None = None,
    ) -> Call[VertexRank]:
        """The rank of one vertex. Raises ServerError 404 for an unknown one."""
        path = path_of("graphs", graph, "ranks", vertex)
        return read(path, decoder(VertexRank), min_version=min_version, timeout=timeout)

    @operation
    def ranks(
        self,
        graph: str,
        vertices: Iterable[Key],
        *,
        min_version: int | None = None,
        timeout: float | None = None,
    ) -> Call[RankList]:
        """The ranks of many vertices in their order, all of one version.

        vertices  keys, or a column of them: a Series, an Arrow or NumPy array
        """
        keys = keys_of(vertices)
        found = decoder(RankList)
        return Call(
            method="POST",
            path=path_of("graphs", graph, "ranks"),
            query=given(min_version=min_version, timeout=timeout),
            body=json_body({"vertices": keys}),
            headers={"Content-Type": JSON},
            parse=lambda body: msgspec.structs.replace(found(body), vertices=keys),
            repeatable=True,
        )

    @operation
    def top(
        self,
        graph: str,
        k: int = 10,
        offset: int = 0,
        *,
        min_version: int | None = None,
        timeout: float | None = None,
    ) -> Call[TopRanks]:
        """Places offset … offset+k-1, best first."""
        path = path_of("graphs", graph, "top")
        query = {"k": k, "offset": offset, "min_version": min_version, "timeout": timeout}
        return read(path, decoder(TopRanks), **query)

    @events
    def changes(
        self,
        graph: str,
        *,
        top: int = 100,
        threshold: float = 0.05,
        limit: int = 1000,
        last_event_id: str | None = None,
    ) -> Call[ChangeEvent]:
        """Follows the ranks: a Snapshot, then a Change for each published revision, or a Gap.

        top        places at the top: the changes say who enters and who leaves them
        threshold  part by which a rank must differ from the one sent last to be sent again
        limit      vertices in an event
        last_event_id  continue after the event with this `id`

        Reconnects after a lost connection and while the server restarts. Raises ServerError also
        when the server ends the stream: the graph was dropped, the API key was revoked, or this
        client reads too slowly.
        """
        return Call(
            method="GET",
            path=path_of("graphs", graph, "changes"),
            query={"top": top, "threshold": threshold, "limit": limit},
            headers=given(**{"Last-Event-ID": last_event_id}),
            parse=msgspec.json.Decoder(ChangeEvent).decode,
            repeatable=True,
        )

    # Personalized ranks

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
        min_version: int | None = None,
        timeout: float | None = None,
    ) -> Call[PersonalizedRanks]:
        """The k vertices of highest rank when every walk restarts at `vertex`."""
        return read(
            path_of("graphs", graph, "personalized", vertex),
            decoder(PersonalizedRanks),
            k=k,
            method=method,
            target_error=target_error,
            target=target,
            min_version=min_version,
            timeout=timeout,
        )

    @operation
    def personalized_many(
        self,
        graph: str,
        queries: Sequence[PersonalizedQuery],
        *,
        min_version: int | None = None,
        timeout: float | None = None,
    ) -> Call[PersonalizedAnswers]:
        """Queries with weighted seeds, answered together: faster than one after the other."""
        path = path_of("graphs", graph, "personalized")
        query = given(min_version=min_version, timeout=timeout)
        body = {"queries": queries}
        return write("POST", path, body, PersonalizedAnswers, query, repeatable=True)

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
        timeout: float | None = None,
    ) -> Call[WatchedRanks]:
        """The answer to a watched query for the newest version."""
        path = path_of("graphs", graph, "watched", name)
        return read(path, decoder(WatchedRanks), min_version=min_version, timeout=timeout)

    @operation
    def unwatch(self, graph: str, name: str) -> Call[None]:
        """Removes a watched query."""
        path = path_of("graphs", graph, "watched", name)
        return Call(method="DELETE", path=path, parse=nothing)


def _outcome(body: bytes) -> Outcome:
    document = msgspec.json.decode(body)
    kinds: dict[str | None, type[Outcome]] = {None: Receipt, "pending": Pending}
    return msgspec.convert(document, kinds.get(document.get("status"), Rejected))
