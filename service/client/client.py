"""The Python client of a liverank server.

    with Client("http://127.0.0.1:8080") as client:
        receipt = client.send("default", insert=[("a", "b"), ("b", "c")])
        for place in client.top("default", k=3)["ranks"]:
            print(place["vertex"], place["rank"])

Every batch has an idempotency key, so that a retry after a lost connection is applied once. While
the server's queue is full, the client waits and retries.
"""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast

from service.client.connection import Connection, path_of
from service.client.types import (
    Accepted,
    Key,
    Pair,
    PersonalizedAnswers,
    PersonalizedQuery,
    PersonalizedRanks,
    RankList,
    Receipt,
    TopRanks,
    VertexRank,
    WatchedRanks,
)

if TYPE_CHECKING:
    import httpx
    import pyarrow as pa

DEFAULT_URL = "http://127.0.0.1:8080"

_ARROW_STREAM = "application/vnd.apache.arrow.stream"


class Client:
    """One server. Not thread-safe: a connection is kept between calls.

    Calls raise ServerError if the server refuses, and ServerUnreachable if it does not respond.
    Reads, and batches, which have idempotency keys, are retried first.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """api_key: sent with every call; None: LIVERANK_API_KEY, if it is set."""
        key = api_key or os.environ.get("LIVERANK_API_KEY")
        self._connection = Connection(url, key, transport)
        self.url = self._connection.url

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    # Graphs

    def create(self, graph: str, **options: Any) -> dict[str, Any]:
        """Creates the graph, or finds it with the same options.

        Options: damping, dangling, strategy, target_error, storage, keys.
        """
        return cast("dict[str, Any]", self._put(path_of("graphs", graph), options))

    def graphs(self) -> list[dict[str, Any]]:
        """What `graph` returns, for every graph."""
        return cast("list[dict[str, Any]]", self._get("/graphs")["graphs"])

    def graph(self, graph: str) -> dict[str, Any]:
        """Vertices, edges, version, options, backend, error bound and memory of one graph."""
        return cast("dict[str, Any]", self._get(path_of("graphs", graph)))

    def drop(self, graph: str) -> None:
        """Removes the graph and its data."""
        self._connection.call("DELETE", path_of("graphs", graph))

    def checkpoint(self, graph: str) -> dict[str, Any]:
        """Has the server write a checkpoint: its version, bytes and seconds."""
        answer = self._connection.call("POST", path_of("graphs", graph, "checkpoint"))
        return cast("dict[str, Any]", answer)

    def ready(self) -> bool:
        """Whether the server is ready; one attempt, and no error."""
        return self._connection.is_ready()

    # API keys

    def keys(self) -> list[dict[str, Any]]:
        """All API keys: id, name, scope, graphs, created."""
        return cast("list[dict[str, Any]]", self._get("/keys")["keys"])

    def create_key(
        self, name: str, scope: str, graphs: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Creates an API key for the graphs (None: all); its text, `key`, is shown only now."""
        body = {"name": name, "scope": scope, "graphs": graphs}
        return cast("dict[str, Any]", self._connection.call("POST", "/keys", json=body))

    def revoke_key(self, identity: str) -> None:
        """Removes the API key with this id."""
        self._connection.call("DELETE", path_of("keys", identity))

    # Batches

    def send(
        self,
        graph: str,
        insert: Sequence[Pair] = (),
        delete: Sequence[Pair] = (),
        vertices: Sequence[Key] = (),
        *,
        strategy: str | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Sends a small batch as JSON and waits for its ranks.

        key  the idempotency key of the batch; None: a new one
        """
        body = {"insert": insert, "delete": delete, "vertices": vertices}
        return cast("Receipt", self._send(graph, strategy, "ranked", key, json=body))

    def send_columns(
        self,
        graph: str,
        sources: pa.Array,
        targets: pa.Array,
        operations: pa.Array | None = None,
        *,
        strategy: str | None = None,
        key: str | None = None,
    ) -> Receipt:
        """Sends a large batch as an Arrow stream and waits for its ranks.

        sources, targets  keys of the edges, strings or 64-bit integers, of equal length
        operations        strings, "insert" or "delete" for each edge; None: all are inserted
        """
        body = _arrow_stream(sources, targets, operations)
        return cast("Receipt", self._send(graph, strategy, "ranked", key, content=body))

    def append_columns(
        self,
        graph: str,
        sources: pa.Array,
        targets: pa.Array,
        operations: pa.Array | None = None,
        *,
        strategy: str | None = None,
        key: str | None = None,
    ) -> Accepted:
        """Like `send_columns`, but returns once the batch is on disk; ranks follow later."""
        body = _arrow_stream(sources, targets, operations)
        return cast("Accepted", self._send(graph, strategy, "durable", key, content=body))

    def add_vertices(
        self, graph: str, vertices: Sequence[Key], *, key: str | None = None
    ) -> Accepted:
        """Adds vertices without edges; returns once the batch is on disk."""
        body = {"vertices": vertices}
        return cast("Accepted", self._send(graph, None, "durable", key, json=body))

    def batch(self, graph: str, version: int) -> dict[str, Any]:
        """The outcome of the batch: pending, rejected with the reason, or its receipt."""
        return cast("dict[str, Any]", self._get(path_of("graphs", graph, "batches", version)))

    def recompute(self, graph: str, strategy: str = "static") -> Receipt:
        """Ranks the graph again with the strategy; its version does not change."""
        path = path_of("graphs", graph, "recompute")
        answer = self._connection.call("POST", path, params={"strategy": strategy})
        return cast("Receipt", answer)

    # Ranks

    def rank(self, graph: str, vertex: Key) -> VertexRank:
        """The rank of one vertex. Raises ServerError 404 for an unknown vertex.

        For a key with a line break use `ranks`.
        """
        return cast("VertexRank", self._get(path_of("graphs", graph, "ranks", vertex)))

    def ranks(self, graph: str, vertices: Sequence[Key]) -> RankList:
        """The ranks of many vertices, all of one version."""
        path = path_of("graphs", graph, "ranks")
        return cast("RankList", self._post(path, {"vertices": vertices}))

    def top(self, graph: str, k: int = 10, offset: int = 0) -> TopRanks:
        """Places offset … offset+k-1, best first."""
        return cast("TopRanks", self._get(path_of("graphs", graph, "top"), k=k, offset=offset))

    def changes(
        self,
        graph: str,
        *,
        top: int = 100,
        threshold: float = 0.05,
        limit: int = 1000,
        last_event_id: str | None = None,
    ) -> Iterator[dict[str, Any]]:
        """Follows the ranks: a ``snapshot``, then a ``change`` for each published revision, or a
        ``gap`` with a snapshot. Each has the members in docs/api.md, its name as ``event`` and its
        ``id``. Reconnects after a lost connection.

        Raises ServerError, also when the server ends the stream, and ServerUnreachable.
        """
        query = {"top": top, "threshold": threshold, "limit": limit}
        path = path_of("graphs", graph, "changes")
        return self._connection.events(path, last_event_id, params=query)

    def personalized(
        self,
        graph: str,
        vertex: Key,
        k: int = 10,
        method: str | None = None,
        *,
        target_error: float | None = None,
        target: str | None = None,
    ) -> PersonalizedRanks:
        """The k vertices of highest rank when every walk restarts at `vertex`."""
        path = path_of("graphs", graph, "personalized", vertex)
        answer = self._get(path, k=k, method=method, target_error=target_error, target=target)
        return cast("PersonalizedRanks", answer)

    def personalized_many(
        self, graph: str, queries: Sequence[PersonalizedQuery], *, seconds: float = 60.0
    ) -> PersonalizedAnswers:
        """Queries with weighted seeds, answered together: faster than one after the other."""
        path = path_of("graphs", graph, "personalized")
        body = {"queries": [_with_text_seeds(query) for query in queries]}
        return cast("PersonalizedAnswers", self._post(path, body, timeout=seconds))

    def watch(self, graph: str, name: str, query: PersonalizedQuery) -> WatchedRanks:
        """Keeps a query up to date under a name, replacing a query of that name; returns its first
        answer.
        """
        path = path_of("graphs", graph, "watched", name)
        return cast("WatchedRanks", self._put(path, _with_text_seeds(query)))

    def watched(self, graph: str, name: str) -> WatchedRanks:
        """The answer to a watched query for the newest version."""
        return cast("WatchedRanks", self._get(path_of("graphs", graph, "watched", name)))

    def unwatch(self, graph: str, name: str) -> None:
        """Removes a watched query."""
        self._connection.call("DELETE", path_of("graphs", graph, "watched", name))

    # Requests that may be repeated

    def _get(self, path: str, **query: Any) -> Any:
        given = {name: value for name, value in query.items() if value is not None}
        return self._connection.call("GET", path, params=given, repeatable=True)

    def _post(self, path: str, body: Any, **query: Any) -> Any:
        return self._connection.call("POST", path, json=body, params=query, repeatable=True)

    def _put(self, path: str, body: Any) -> Any:
        return self._connection.call("PUT", path, json=body, repeatable=True)

    def _send(
        self, graph: str, strategy: str | None, wait: str, key: str | None, **body: Any
    ) -> Any:
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        if "content" in body:
            headers["Content-Type"] = _ARROW_STREAM
        query = {"wait": wait} | ({"strategy": strategy} if strategy else {})
        path = path_of("graphs", graph, "batches")
        return self._connection.call(
            "POST", path, params=query, headers=headers, repeatable=True, **body
        )


def _with_text_seeds(query: PersonalizedQuery) -> dict[str, Any]:
    """The query as JSON: the members of an object are text."""
    seeds = {str(seed): weight for seed, weight in query.get("seeds", {}).items()}
    return {**query, "seeds": seeds}


def _arrow_stream(sources: pa.Array, targets: pa.Array, operations: pa.Array | None) -> bytes:
    import pyarrow as pa

    columns = {"source": sources, "target": targets}
    if operations is not None:
        columns["operation"] = operations
    table = pa.table(columns)
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as writer:
        writer.write_table(table)
    return cast("bytes", sink.getvalue().to_pybytes())
