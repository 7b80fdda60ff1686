"""The calls that read the edges of a graph, or all of its ranks."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liverank.choices import Direction, Key
from liverank.client.batches import keys_of
from liverank.client.call import Call, decoder, operation, path_of, read, write
from liverank.client.exports import Format, export, export_call
from liverank.client.responses import ExplainedRank, Neighbors, Subgraph
from liverank.client.sources import Positions, waiting

if TYPE_CHECKING:
    from collections.abc import Iterable


class GraphCalls:
    """A part of Calls."""

    @export
    def export_ranks(
        self,
        graph: str,
        *,
        format: Format = "arrow",  # noqa: A002
        view: str | None = None,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[None]:
        """The ranks of all vertices, or of a view, all of one revision, streamed: see Export."""
        path = path_of("graphs", graph, "ranks")
        query = waiting(min_version, min_position, timeout)
        return export_call(path, format, view=view, **query)

    @export
    def export_edges(
        self,
        graph: str,
        *,
        format: Format = "arrow",  # noqa: A002
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[None]:
        """All edges of one version, streamed: see Export."""
        path = path_of("graphs", graph, "edges")
        return export_call(path, format, **waiting(min_version, min_position, timeout))

    @operation
    def neighbors(
        self,
        graph: str,
        vertex: Key,
        direction: Direction = "out",
        limit: int = 100,
        *,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[Neighbors]:
        """Up to `limit` neighbours of a vertex, in no particular order. Raises ServerError 404 for
        an unknown one.
        """
        return read(
            path_of("graphs", graph, "neighbors", vertex),
            decoder(Neighbors),
            direction=direction,
            limit=limit,
            **waiting(min_version, min_position, timeout),
        )

    @operation
    def explain(
        self,
        graph: str,
        vertex: Key,
        k: int = 10,
        *,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[ExplainedRank]:
        """What the rank of a vertex consists of, with the k in-neighbours that give the most.
        Raises ServerError 404 for an unknown one.
        """
        return read(
            path_of("graphs", graph, "explain", vertex),
            decoder(ExplainedRank),
            k=k,
            **waiting(min_version, min_position, timeout),
        )

    @operation
    def subgraph(
        self,
        graph: str,
        vertices: Iterable[Key],
        *,
        min_version: int | None = None,
        min_position: Positions | None = None,
        timeout: float | None = None,
    ) -> Call[Subgraph]:
        """The edges among some vertices.

        vertices  as for `ranks`
        """
        path = path_of("graphs", graph, "subgraph")
        query = waiting(min_version, min_position, timeout)
        body = {"vertices": keys_of(vertices)}
        return write("POST", path, body, Subgraph, query, repeatable=True)
