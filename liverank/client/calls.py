"""Every call of the HTTP interface, described once for both clients."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Unpack

from msgspec import structs
from msgspec.json import Decoder

from liverank.choices import ConsumerState, Direction, Key, Scope
from liverank.client.analyses import AnalysisCalls
from liverank.client.batches import BatchCalls, keys_of
from liverank.client.call import (
    JSON,
    Call,
    decoder,
    events,
    json_body,
    operation,
    path_of,
    query_of,
    read,
    read_member,
    remove,
    write,
    yes,
)
from liverank.client.changes import ChangeEvent
from liverank.client.exports import Format, export, export_call
from liverank.client.programs import ProgramCalls
from liverank.client.queries import QueryCalls
from liverank.client.responses import (
    ApiKeyInfo,
    CheckpointTaken,
    ExplainedRank,
    GraphInfo,
    Neighbors,
    NewApiKey,
    RankList,
    SourceConsumer,
    SourcePosition,
    Subgraph,
    TopRanks,
    VertexRank,
)
from liverank.client.sources import ReadKeywords, ViewedKeywords
from liverank.options import FeedKeywords, GraphKeywords, given


class Calls(BatchCalls, QueryCalls, AnalysisCalls, ProgramCalls):
    """Every call raises ServerError if the server refuses, and ServerUnreachable if it does not
    respond. Reads, and batches, which have idempotency keys, are retried first.

    min_version   every read: use this version or a later one. To read your own write, pass the
                  `version` of its receipt
    min_position  every read: use a version that has the messages of external sources up to these
                  positions, for example those that `sources` of another replica returned
    timeout       every read: seconds that the server may take for it, up to 300; None: 10
    """

    # Graphs

    @operation
    def create(self, graph: str, **options: Unpack[GraphKeywords]) -> Call[GraphInfo]:
        """Creates the graph, or finds it with the same options. Options that are None have their
        defaults in a new graph, and are not compared with those of an existing one.
        """
        return write("PUT", GraphInfo, given(**options), "graphs", graph, repeatable=True)

    @operation
    def graphs(self) -> Call[list[GraphInfo]]:
        """All graphs that the API key is valid for, by name."""
        return read_member("graphs", list[GraphInfo], "graphs")

    @operation
    def graph(self, graph: str) -> Call[GraphInfo]:
        """Vertices, edges, version, options, backend, error bound and memory of one graph."""
        return read(GraphInfo, "graphs", graph)

    @operation
    def drop(self, graph: str) -> Call[None]:
        """Removes the graph and its data."""
        return remove("graphs", graph)

    @operation
    def checkpoint(self, graph: str) -> Call[CheckpointTaken]:
        """Has the server write a checkpoint of what is committed."""
        path = path_of("graphs", graph, "checkpoint")
        return Call(method="POST", path=path, parse=decoder(CheckpointTaken))

    # Ranks

    @operation
    def rank(self, graph: str, vertex: Key, **options: Unpack[ViewedKeywords]) -> Call[VertexRank]:
        """The rank of one vertex, in a view if that is given. Raises ServerError 404 for an unknown
        one.
        """
        return read(VertexRank, "graphs", graph, "ranks", vertex, **options)

    @operation
    def ranks(
        self, graph: str, vertices: Iterable[Key], **options: Unpack[ViewedKeywords]
    ) -> Call[RankList]:
        """The ranks of many vertices in their order, all of one version.

        vertices  keys, or a column of them: a Series, an Arrow or NumPy array
        view      name of a view: its ranks in place of the graph's
        """
        keys, query = keys_of(vertices), query_of(**options)
        call = write(
            "POST",
            RankList,
            {"vertices": keys},
            "graphs",
            graph,
            "ranks",
            repeatable=True,
            query=query,
        )
        found = call.parse
        return replace(call, parse=lambda body: structs.replace(found(body), vertices=keys))

    @operation
    def top(
        self,
        graph: str,
        k: int = 10,
        offset: int = 0,
        *,
        among: str | None = None,
        **options: Unpack[ViewedKeywords],
    ) -> Call[TopRanks]:
        """Places offset … offset+k-1, best first; `among` the vertices of a named set, or all; by
        the ranks of a `view`, or of the graph.
        """
        places = {"k": k, "offset": offset, "among": among}
        return read(TopRanks, "graphs", graph, "top", **places, **options)

    @events
    def changes(
        self,
        graph: str,
        *,
        top: int = 100,
        threshold: float = 0.05,
        limit: int = 1000,
        among: str | None = None,
        last_event_id: str | None = None,
        **ranks: Unpack[FeedKeywords],
    ) -> Call[ChangeEvent]:
        """Follows the ranks: a Snapshot, then a Change for each published revision, or a Gap.

        top        places at the top: the changes say who enters and who leaves them
        threshold  part by which a rank must differ from the one sent last to be sent again
        limit      vertices in an event
        among      the name of a set: only its vertices count
        last_event_id  continue after the event with this `id`
        view       the name of a view: its ranks in place of the graph's
        watched    the name of a watched query: its places alone

        Reconnects after a lost connection and while the server restarts. Raises ServerError also
        when the server ends the stream: the graph, the set, the view or the watched query was
        dropped or has no ranks any more, the API key was revoked, or this client reads too slowly.
        """
        return Call(
            method="GET",
            path=path_of("graphs", graph, "changes"),
            query=given(top=top, threshold=threshold, limit=limit, among=among, **ranks),
            headers=given(**{"Last-Event-ID": last_event_id}),
            parse=Decoder(ChangeEvent).decode,
            repeatable=True,
        )

    # Edges, and exports

    @export
    def export_ranks(
        self,
        graph: str,
        *,
        format: Format = "arrow",  # noqa: A002
        **options: Unpack[ViewedKeywords],
    ) -> Call[None]:
        """The ranks of all vertices, or of a view, all of one revision, streamed: see Export."""
        path = path_of("graphs", graph, "ranks")
        return export_call(path, format, **query_of(**options))

    @export
    def export_edges(
        self,
        graph: str,
        *,
        format: Format = "arrow",  # noqa: A002
        **wait: Unpack[ReadKeywords],
    ) -> Call[None]:
        """All edges of one version, streamed: see Export."""
        path = path_of("graphs", graph, "edges")
        return export_call(path, format, **query_of(**wait))

    @operation
    def neighbors(
        self,
        graph: str,
        vertex: Key,
        direction: Direction = "out",
        limit: int = 100,
        **wait: Unpack[ReadKeywords],
    ) -> Call[Neighbors]:
        """Up to `limit` neighbours of a vertex, in no particular order. Raises ServerError 404 for
        an unknown one.
        """
        which = {"direction": direction, "limit": limit}
        return read(Neighbors, "graphs", graph, "neighbors", vertex, **which, **wait)

    @operation
    def explain(
        self, graph: str, vertex: Key, k: int = 10, **options: Unpack[ViewedKeywords]
    ) -> Call[ExplainedRank]:
        """What the rank of a vertex, in a view if that is given, consists of, with the k
        in-neighbours that give the most. Raises ServerError 404 for an unknown one.
        """
        return read(ExplainedRank, "graphs", graph, "explain", vertex, k=k, **options)

    @operation
    def subgraph(
        self, graph: str, vertices: Iterable[Key], **wait: Unpack[ReadKeywords]
    ) -> Call[Subgraph]:
        """The edges among some vertices.

        vertices  as for `ranks`
        """
        body, query = {"vertices": keys_of(vertices)}, query_of(**wait)
        return write(
            "POST", Subgraph, body, "graphs", graph, "subgraph", repeatable=True, query=query
        )

    # External sources

    @operation
    def sources(self, graph: str) -> Call[list[SourcePosition]]:
        """The position that the committed batches have reached in each partition of each external
        source.
        """
        return read_member("sources", list[SourcePosition], "graphs", graph, "sources")

    @operation
    def consumers(self, graph: str) -> Call[list[SourceConsumer]]:
        """What the consumers of external sources have reported lately."""
        return read_member("consumers", list[SourceConsumer], "graphs", graph, "sources")

    @operation
    def report_consumer(
        self,
        graph: str,
        source: str,
        consumer: str,
        state: ConsumerState,
        reason: str | None = None,
        seconds: float = 60.0,
    ) -> Call[bool]:
        """Reports the state of a consumer of an external source; one attempt, and no error. Returns
        whether the server has it.

        consumer  a name among those of the source
        reason    why it does not consume, at most 1,000 characters
        seconds   until the report is dropped, unless another one follows; at most a day
        """
        body = {"consumer": consumer, "state": state, "reason": reason, "seconds": seconds}
        return Call(
            method="PUT",
            path=path_of("graphs", graph, "consumers", source),
            body=json_body(body),
            headers={"Content-Type": JSON},
            parse=yes,
            otherwise=False,
        )

    # API keys, and the server itself

    @operation
    def keys(self) -> Call[list[ApiKeyInfo]]:
        """All API keys, without their texts."""
        return read_member("keys", list[ApiKeyInfo], "keys")

    @operation
    def create_key(
        self, name: str, scope: Scope, graphs: Sequence[str] | None = None
    ) -> Call[NewApiKey]:
        """Creates an API key for the graphs (None: all); its text, `key`, is shown only now."""
        body = {"name": name, "scope": scope, "graphs": graphs}
        return write("POST", NewApiKey, body, "keys", repeatable=False)

    @operation
    def revoke_key(self, identity: str) -> Call[None]:
        """Removes the API key with this id."""
        return remove("keys", identity)

    @operation
    def alive(self) -> Call[bool]:
        """Whether the server's process responds; one attempt, and no error."""
        return Call(method="GET", path="/livez", parse=yes, otherwise=False)

    @operation
    def ready(self) -> Call[bool]:
        """Whether the server is ready; one attempt, and no error."""
        return Call(method="GET", path="/readyz", parse=yes, otherwise=False)

    @operation
    def metrics(self) -> Call[str]:
        """Counters and gauges in the text format of Prometheus."""
        return Call(method="GET", path="/metrics", parse=bytes.decode, repeatable=True)
