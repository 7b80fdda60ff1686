"""The calls that read the edges of a graph, or all of its ranks."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Unpack

from liverank.choices import Direction, Key
from liverank.client.batches import keys_of
from liverank.client.call import Call, decoder, operation, path_of, read, write
from liverank.client.exports import Format, export, export_call
from liverank.client.responses import ExplainedRank, Neighbors, Subgraph
from liverank.client.sources import ReadKeywords, ViewedKeywords, query_of


class GraphCalls:
    """A part of Calls."""

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
        return read(
            path_of("graphs", graph, "neighbors", vertex),
            decoder(Neighbors),
            direction=direction,
            limit=limit,
            **query_of(**wait),
        )

    @operation
    def explain(
        self, graph: str, vertex: Key, k: int = 10, **options: Unpack[ViewedKeywords]
    ) -> Call[ExplainedRank]:
        """What the rank of a vertex, in a view if that is given, consists of, with the k
        in-neighbours that give the most. Raises ServerError 404 for an unknown one.
        """
        path = path_of("graphs", graph, "explain", vertex)
        return read(path, decoder(ExplainedRank), k=k, **query_of(**options))

    @operation
    def subgraph(
        self, graph: str, vertices: Iterable[Key], **wait: Unpack[ReadKeywords]
    ) -> Call[Subgraph]:
        """The edges among some vertices.

        vertices  as for `ranks`
        """
        path = path_of("graphs", graph, "subgraph")
        query = query_of(**wait)
        body = {"vertices": keys_of(vertices)}
        return write("POST", path, body, Subgraph, query, repeatable=True)
