"""Every call of the HTTP interface, described once for both clients."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

import msgspec

from liverank.choices import Key
from liverank.client.analyses import AnalysisCalls
from liverank.client.batches import BatchCalls, keys_of
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
from liverank.client.changes import ChangeEvent
from liverank.client.graph_calls import GraphCalls
from liverank.client.operation_calls import OperationCalls
from liverank.client.programs import ProgramCalls
from liverank.client.queries import QueryCalls
from liverank.client.responses import (
    CheckpointTaken,
    GraphInfo,
    RankList,
    TopRanks,
    VertexRank,
)
from liverank.client.sources import SourceCalls, ViewedKeywords, query_of
from liverank.options import FeedKeywords, GraphKeywords


class Calls(
    BatchCalls, GraphCalls, QueryCalls, AnalysisCalls, ProgramCalls, SourceCalls, OperationCalls
):
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
        path = path_of("graphs", graph)
        return write("PUT", path, given(**options), GraphInfo, repeatable=True)

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

    # Ranks

    @operation
    def rank(self, graph: str, vertex: Key, **options: Unpack[ViewedKeywords]) -> Call[VertexRank]:
        """The rank of one vertex, in a view if that is given. Raises ServerError 404 for an unknown
        one.
        """
        path = path_of("graphs", graph, "ranks", vertex)
        return read(path, decoder(VertexRank), **query_of(**options))

    @operation
    def ranks(
        self, graph: str, vertices: Iterable[Key], **options: Unpack[ViewedKeywords]
    ) -> Call[RankList]:
        """The ranks of many vertices in their order, all of one version.

        vertices  keys, or a column of them: a Series, an Arrow or NumPy array
        view      name of a view: its ranks in place of the graph's
        """
        keys = keys_of(vertices)
        found = decoder(RankList)
        return Call(
            method="POST",
            path=path_of("graphs", graph, "ranks"),
            query=query_of(**options),
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
        among: str | None = None,
        **options: Unpack[ViewedKeywords],
    ) -> Call[TopRanks]:
        """Places offset … offset+k-1, best first; `among` the vertices of a named set, or all; by
        the ranks of a `view`, or of the graph.
        """
        path = path_of("graphs", graph, "top")
        found = decoder(TopRanks)
        query = {"k": k, "offset": offset, **query_of(**options)}
        return read(path, found, among=among, **query)

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
            parse=msgspec.json.Decoder(ChangeEvent).decode,
            repeatable=True,
        )
