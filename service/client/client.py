"""The Python client of a liverank server.

    with Client("http://127.0.0.1:8080") as client:
        receipt = client.send("default", insert=[("a", "b"), ("b", "c")])
        for place in client.top("default", k=3)["ranks"]:
            print(place["vertex"], place["rank"])

Every batch carries an idempotency key, so that sending it again after a lost
connection changes the graph once. A server whose queue is full is asked again
when it says.

    ClientError
    ├── ServerError       the server answered with a problem document
    └── ServerUnreachable no answer came
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypedDict, cast
from urllib.parse import quote

import httpx

if TYPE_CHECKING:
    import pyarrow as pa

Key = str | int
Pair = tuple[Key, Key]

DEFAULT_URL = "http://127.0.0.1:8080"
ARROW_STREAM = "application/vnd.apache.arrow.stream"

CONNECT_SECONDS = 5.0
ANSWER_SECONDS = 600.0
"""A first solve of a large graph takes minutes, and the receipt comes after it."""

RETRY_PAUSES = (0.2, 0.5, 1.0, 2.0)
"""Seconds before each further attempt after a lost connection."""


QUEUE_SECONDS = 600.0
"""How long to go on asking a server whose queue is full."""


class RankedVertex(TypedDict):
    vertex: Key
    rank: float


class Receipt(TypedDict):
    """What a batch did.

    `seconds` by stage: queue, journal, keys, mutate, mark, solve, watched, publish, others,
    total.
    """

    version: int
    ranked_version: int
    revision: int
    inserted: int
    already_present: int
    deleted: int
    not_found: int
    new_vertices: int
    strategy: str
    iterations: int
    touched_vertices: int
    error_bound: float
    converged: bool
    seconds: dict[str, float]


class Accepted(TypedDict):
    """The answer to a batch that was sent with wait="durable": it is on disk, ranks follow."""

    version: int
    status: Literal["durable"]


class VertexRank(TypedDict):
    vertex: Key
    rank: float
    version: int
    revision: int
    error_bound: float


class RankList(TypedDict):
    """`ranks` in the order of the vertices asked for, None where a vertex is unknown."""

    version: int
    revision: int
    error_bound: float
    ranks: list[float | None]


class TopRanks(TypedDict):
    version: int
    revision: int
    error_bound: float
    ranks: list[RankedVertex]


class PersonalizedRanks(TypedDict):
    """`settled`: how many of the first places are proven to be held by the right vertex."""

    vertex: Key
    version: int
    revision: int
    error_bound: float
    ranks: list[RankedVertex]
    settled: int
    method: str
    iterations: int


class PersonalizedQuery(TypedDict, total=False):
    """What can be asked: `seeds` with their weights, which are due; and how."""

    seeds: dict[Key, float]
    k: int
    method: str
    target_error: float
    target: str


class PersonalizedAnswer(TypedDict):
    ranks: list[RankedVertex]
    error_bound: float
    settled: int
    method: str
    iterations: int


class PersonalizedAnswers(TypedDict):
    """`answers` in the order of the queries, all of one version."""

    version: int
    revision: int
    answers: list[PersonalizedAnswer]


class WatchedRanks(PersonalizedAnswer):
    """The answer of the newest version to a query that is kept fresh."""

    name: str
    version: int
    revision: int
    k: int
    target_error: float
    seeds: dict[str, float]


class ClientError(Exception):
    """Base of every error of the client."""


class ServerError(ClientError):
    """The server refused.

    `status`, and of the problem document (RFC 9457) `title`, `detail`, `field`; all of it is
    `problem`.
    """

    def __init__(self, status: int, problem: Mapping[str, Any]) -> None:
        self.status = status
        self.problem = dict(problem)
        self.title = str(problem.get("title") or f"HTTP status {status}")
        self.detail = str(problem.get("detail") or "")
        self.field: str | None = problem.get("field")
        message = f"{self.title}: {self.detail}" if self.detail else self.title
        if self.field and self.field not in message:
            message = f"{self.field}: {message}"
        super().__init__(message)


class ServerUnreachable(ClientError):
    """No answer came from `url`, for `reason`."""

    def __init__(self, url: str, reason: str) -> None:
        self.url = url
        self.reason = reason
        super().__init__(f"no answer from {url} ({reason}); is `liverank serve` running there?")


class Client:
    """One server. Not thread-safe: a connection is kept between calls.

    Calls raise ServerError for what the server refuses and ServerUnreachable when no answer comes,
    after further attempts where a repeat cannot do harm: reads, and batches under their
    idempotency key.
    """

    def __init__(
        self,
        url: str = DEFAULT_URL,
        *,
        api_key: str | None = None,
        transport: httpx.BaseTransport | None = None,
    ) -> None:
        """`api_key` goes with every call; None: LIVERANK_API_KEY, if there is one."""
        self.url = url.rstrip("/")
        key = api_key or os.environ.get("LIVERANK_API_KEY")
        try:
            self._http = httpx.Client(
                base_url=self.url,
                headers={"Authorization": f"Bearer {key}"} if key else None,
                timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
                transport=transport,
            )
        except httpx.InvalidURL as error:
            raise ServerUnreachable(url, str(error)) from error

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
        self._http.close()

    # Graphs

    def create(self, graph: str, **options: Any) -> dict[str, Any]:
        """Creates the graph, or finds it with the same options.

        Options: damping, dangling, strategy, target_error, storage, keys.
        """
        answer = self._call("PUT", _path("graphs", graph), json=options, repeatable=True)
        return cast("dict[str, Any]", answer)

    def graphs(self) -> list[dict[str, Any]]:
        """What `graph` says, of every graph."""
        answer = self._call("GET", "/graphs", repeatable=True)
        return cast("list[dict[str, Any]]", answer["graphs"])

    def graph(self, graph: str) -> dict[str, Any]:
        """Vertices, edges, version, options, backend, error bound and memory of one graph."""
        return cast("dict[str, Any]", self._call("GET", _path("graphs", graph), repeatable=True))

    def drop(self, graph: str) -> None:
        """Removes the graph and its data."""
        self._call("DELETE", _path("graphs", graph))

    def checkpoint(self, graph: str) -> dict[str, Any]:
        """Lets all that is committed be written to a checkpoint: version, bytes, seconds."""
        path = _path("graphs", graph, "checkpoint")
        return cast("dict[str, Any]", self._call("POST", path))

    def ready(self) -> bool:
        """Whether the server answers and has its kernels compiled; one attempt, no error."""
        try:
            return self._http.get("/readyz", timeout=CONNECT_SECONDS).is_success
        except httpx.TransportError:
            return False

    # API keys

    def keys(self) -> list[dict[str, Any]]:
        """All API keys: id, name, scope, graphs, created."""
        answer = self._call("GET", "/keys", repeatable=True)
        return cast("list[dict[str, Any]]", answer["keys"])

    def create_key(
        self, name: str, scope: str, graphs: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Makes an API key, for the graphs or, None, all; its text, `key`, is shown only now."""
        body = {"name": name, "scope": scope, "graphs": graphs}
        return cast("dict[str, Any]", self._call("POST", "/keys", json=body))

    def revoke_key(self, identity: str) -> None:
        """Ends the API key of this id."""
        self._call("DELETE", _path("keys", identity))

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

        key  the idempotency key of the batch; None takes a fresh one
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
        operations        strings, "insert" or "delete" for each edge; None inserts all
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
        """Like `send_columns`, but comes back once the batch is on disk; ranks follow later."""
        body = _arrow_stream(sources, targets, operations)
        return cast("Accepted", self._send(graph, strategy, "durable", key, content=body))

    def add_vertices(
        self, graph: str, vertices: Sequence[Key], *, key: str | None = None
    ) -> Accepted:
        """Adds vertices without edges; comes back as soon as the batch is on disk."""
        return cast(
            "Accepted", self._send(graph, None, "durable", key, json={"vertices": vertices})
        )

    def batch(self, graph: str, version: int) -> dict[str, Any]:
        """What became of the batch: pending, rejected with the reason, or its receipt."""
        path = _path("graphs", graph, "batches", version)
        return cast("dict[str, Any]", self._call("GET", path, repeatable=True))

    def recompute(self, graph: str, strategy: str = "static") -> Receipt:
        """Ranks the graph again with the strategy; its version stays."""
        path = _path("graphs", graph, "recompute")
        return cast("Receipt", self._call("POST", path, params={"strategy": strategy}))

    # Ranks

    def rank(self, graph: str, vertex: Key) -> VertexRank:
        """The rank of one vertex. Raises ServerError 404 for a vertex never seen.

        A path cannot hold a key with a line break: ask `ranks` for it.
        """
        path = _path("graphs", graph, "ranks", vertex)
        return cast("VertexRank", self._call("GET", path, repeatable=True))

    def ranks(self, graph: str, vertices: Sequence[Key]) -> RankList:
        """The ranks of many vertices, all of one version."""
        path = _path("graphs", graph, "ranks")
        return cast(
            "RankList", self._call("POST", path, json={"vertices": vertices}, repeatable=True)
        )

    def top(self, graph: str, k: int = 10, offset: int = 0) -> TopRanks:
        """Places offset … offset+k-1, best first."""
        query = {"k": k, "offset": offset}
        path = _path("graphs", graph, "top")
        return cast("TopRanks", self._call("GET", path, params=query, repeatable=True))

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
        """The k vertices that matter most to a walk that always returns to `vertex`."""
        path = _path("graphs", graph, "personalized", vertex)
        given = {"k": k, "method": method, "target_error": target_error, "target": target}
        query = {name: value for name, value in given.items() if value is not None}
        return cast("PersonalizedRanks", self._call("GET", path, params=query, repeatable=True))

    def personalized_many(
        self, graph: str, queries: Sequence[PersonalizedQuery], *, seconds: float = 60.0
    ) -> PersonalizedAnswers:
        """Queries with weighted seeds, answered together: quicker than one after the other."""
        path = _path("graphs", graph, "personalized")
        body = {"queries": [_with_text_seeds(query) for query in queries]}
        answer = self._call("POST", path, json=body, params={"timeout": seconds}, repeatable=True)
        return cast("PersonalizedAnswers", answer)

    def watch(self, graph: str, name: str, query: PersonalizedQuery) -> WatchedRanks:
        """Keeps a query fresh under a name, in place of another of this name; its first answer."""
        path = _path("graphs", graph, "watched", name)
        answer = self._call("PUT", path, json=_with_text_seeds(query), repeatable=True)
        return cast("WatchedRanks", answer)

    def watched(self, graph: str, name: str) -> WatchedRanks:
        """The answer to a watched query as of the newest version."""
        path = _path("graphs", graph, "watched", name)
        return cast("WatchedRanks", self._call("GET", path, repeatable=True))

    def unwatch(self, graph: str, name: str) -> None:
        """Forgets a watched query."""
        self._call("DELETE", _path("graphs", graph, "watched", name))

    def _send(
        self, graph: str, strategy: str | None, wait: str, key: str | None, **body: Any
    ) -> Any:
        headers = {"Idempotency-Key": key or uuid.uuid4().hex}
        if "content" in body:
            headers["Content-Type"] = ARROW_STREAM
        query = {"wait": wait} | ({"strategy": strategy} if strategy else {})
        path = _path("graphs", graph, "batches")
        return self._call("POST", path, params=query, headers=headers, repeatable=True, **body)

    def _call(self, method: str, path: str, *, repeatable: bool = False, **request: Any) -> Any:
        """One request, with further attempts after a lost connection or a full queue; the body of
        its answer.
        """
        patient_until = time.monotonic() + QUEUE_SECONDS
        while True:
            response = self._attempt(method, path, repeatable, request)
            if response.status_code != httpx.codes.TOO_MANY_REQUESTS:
                break
            # The server is behind, and took nothing; it says when to ask again.
            pause = float(response.headers.get("Retry-After", "1"))
            if time.monotonic() + pause > patient_until:
                break
            time.sleep(pause)
        if response.is_success:
            return response.json() if response.content else None
        raise ServerError(response.status_code, _problem(response))

    def _attempt(
        self, method: str, path: str, repeatable: bool, request: dict[str, Any]
    ) -> httpx.Response:
        """Any answer; a connection that is lost is tried again where that does no harm."""
        for pause in (*RETRY_PAUSES, None) if repeatable else (None,):
            try:
                return self._http.request(method, path, **request)
            except httpx.TransportError as error:
                # A second timeout would be no shorter, and a URL without a host is wrong for good.
                hopeless = isinstance(error, httpx.ReadTimeout | httpx.UnsupportedProtocol)
                if pause is None or hopeless:
                    raise ServerUnreachable(self.url, str(error) or type(error).__name__) from error
                time.sleep(pause)
        raise AssertionError("the last attempt returns or raises")


def _with_text_seeds(query: PersonalizedQuery) -> dict[str, Any]:
    """The query as JSON has it: the members of an object are text."""
    seeds = {str(seed): weight for seed, weight in query.get("seeds", {}).items()}
    return {**query, "seeds": seeds}


def _path(*parts: Key) -> str:
    return "/" + "/".join(_segment(str(part)) for part in parts)


def _segment(text: str) -> str:
    """One segment of a path. A bare `.` or `..` would be a step in it, so it is escaped too."""
    return text.replace(".", "%2E") if text in (".", "..") else quote(text, safe="")


def _problem(response: httpx.Response) -> Mapping[str, Any]:
    try:
        document = response.json()
    except ValueError:
        document = None
    if isinstance(document, dict):
        return document
    return {"title": response.reason_phrase, "detail": response.text[:200]}


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
