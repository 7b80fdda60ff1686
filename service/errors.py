"""What can go wrong in the service, and the one map from an error to a problem document (RFC 9457).

    ServiceError
    ├── NotReady                 the server still recovers, or could not
    ├── UnknownGraph             no graph of that name
    ├── UnknownVertex            the graph has never seen that key
    ├── UnknownVersion           the graph has no batch of that number yet
    ├── GraphExists              a graph of that name has other options
    ├── InvalidValue (gpu)       an option, a parameter or a batch names a value that cannot be used
    ├── BodyTooLarge             a request is longer than the server takes
    ├── BatchTooLarge            a batch has more edges than the server takes at once
    ├── Unauthorized             a key is due, or the one given is none
    ├── Forbidden                the key does not reach so far
    ├── HostNotAllowed           without keys, only requests to loopback names are answered
    ├── CrossOrigin              without keys, pages of other sites are not answered
    ├── UnknownKey, LastKey      a key to revoke is none, or the last that can make others
    ├── QueueFull                too many batches of the graph wait
    ├── TooBusy                  too many requests, or bytes of bodies, are at work
    ├── SlowClient               a body came too slowly
    ├── TooManyGraphs            the server holds as many graphs as it may
    ├── UnsupportedEncoding      a body is compressed
    ├── IdempotencyConflict      an idempotency key came back with another body
    ├── BatchRejected            a journalled batch could not be applied; its version is spent
    ├── RankingFailed            a batch is committed and applied, but could not be ranked
    ├── RetiredVersion           the journal no longer holds how that batch ended
    ├── StorageFailed            the disk refused a write, or what lies on it cannot be read
    │   └── StorageFull          the disk has no room left
    ├── NotPublishedInTime       the version asked for was not published within the time given
    ├── NotAnsweredInTime        a personalized query was not solved within the time given
    └── UnknownWatched           the graph has no watched query of that name

Only `problem_of` knows HTTP; nothing below the routes raises a status.
"""

from __future__ import annotations

from collections.abc import Iterable
from http import HTTPStatus
from math import isfinite
from typing import Any

import orjson
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import Response

from gpu import BackendUnavailable, DeviceLost, InvalidValue, OutOfMemory
from service.formats.decode import ExpandsTooFar, FormatError, UnsupportedFormat

PROBLEM_JSON = "application/problem+json"
TYPE_PREFIX = "urn:liverank:problem:"
INTERNAL_ERROR = f"{TYPE_PREFIX}internal-error"
"""The type of what nobody foresaw."""


class ServiceError(Exception):
    """Base of every error that the service raises on purpose."""


class NotReady(ServiceError):
    def __init__(self, reason: str) -> None:
        super().__init__(f"the server is not ready: {reason}")


class UnknownGraph(ServiceError):
    def __init__(self, graph: str) -> None:
        self.field, self.value = "graph", graph
        super().__init__(f"there is no graph {graph!r}")


class UnknownVertex(ServiceError):
    def __init__(self, graph: str, vertex: str | int, field: str = "vertex") -> None:
        self.field, self.value = field, vertex
        super().__init__(f"graph {graph!r} has never seen the vertex {vertex!r}")


class UnknownVersion(ServiceError):
    def __init__(self, graph: str, version: int, newest: int) -> None:
        self.field, self.value = "version", version
        present = f"the batches 1 to {newest}" if newest else "no batch yet"
        super().__init__(f"graph {graph!r} has {present}; it has no batch {version}")


class GraphExists(ServiceError):
    """`field` is the option that differs."""

    def __init__(self, graph: str, field: str, value: object, present: object) -> None:
        self.field, self.value = field, value
        super().__init__(f"graph {graph!r} exists with {field} {present!r}, not {value!r}")


class BodyTooLarge(ServiceError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"the body is longer than the {limit:,} bytes that are taken")


class BatchTooLarge(ServiceError):
    def __init__(self, edges: int, limit: int) -> None:
        super().__init__(f"the batch has {edges:,} edges and vertices; {limit:,} are taken at once")


class Unauthorized(ServiceError):
    def __init__(self, reason: str) -> None:
        self.headers = {"WWW-Authenticate": 'Bearer realm="liverank"'}
        super().__init__(reason)


class Forbidden(ServiceError):
    """The message names the key, never its text."""


class HostNotAllowed(ServiceError):
    def __init__(self, host: str) -> None:
        self.field, self.value = "Host", host
        super().__init__(
            f"Host {host!r} is no name of this machine; without API keys only localhost, 127.0.0.1 "
            "and [::1] are answered"
        )


class CrossOrigin(ServiceError):
    def __init__(self, origin: str) -> None:
        self.field, self.value = "Origin", origin
        super().__init__(
            f"a page of {origin!r} sent this; without API keys only pages of this server are "
            "answered"
        )


class UnknownKey(ServiceError):
    def __init__(self, identity: str) -> None:
        self.field, self.value = "key", identity
        super().__init__(f"there is no stored API key {identity!r}")


class LastKey(ServiceError):
    def __init__(self, identity: str) -> None:
        self.field, self.value = "key", identity
        super().__init__(
            f"key {identity!r} is the last of scope admin for all graphs; create another one first"
        )


class QueueFull(ServiceError):
    """`retry_after` is in seconds."""

    def __init__(self, graph: str, batches: int, bytes_held: int, retry_after: int) -> None:
        self.headers = {"Retry-After": str(retry_after)}
        super().__init__(
            f"graph {graph!r} is behind: {batches:,} batches and computations of "
            f"{bytes_held:,} bytes wait or are at work; ask again in {retry_after} s"
        )


class TooBusy(ServiceError):
    def __init__(self, what: str, limit: int) -> None:
        self.headers = {"Retry-After": "1"}
        super().__init__(f"{what}: {limit:,} is the limit; ask again")


class SlowClient(ServiceError):
    def __init__(self, received: int, seconds: float) -> None:
        self.headers = {"Connection": "close"}
        super().__init__(f"only {received:,} bytes of the body came within {seconds:.0f} s")


class TooManyGraphs(ServiceError):
    def __init__(self, limit: int) -> None:
        super().__init__(f"there are {limit:,} graphs, and no more are taken; drop one first")


class UnsupportedEncoding(ServiceError):
    def __init__(self, encoding: str) -> None:
        self.field, self.value, self.accepted = "Content-Encoding", encoding, ["identity"]
        super().__init__(f"Content-Encoding {encoding!r} is not read; send the body as it is")


class IdempotencyConflict(ServiceError):
    def __init__(self, key: str, version: int | None) -> None:
        self.field, self.value = "Idempotency-Key", key
        first = "another batch that is in flight" if version is None else f"batch {version}"
        super().__init__(f"the idempotency key {key!r} belongs to {first}, whose body differs")


class BatchRejected(ServiceError):
    """`problem` is the document that was journalled when the batch was rejected."""

    def __init__(self, version: int, problem: dict[str, Any]) -> None:
        self.version = version
        self.problem = problem
        super().__init__(f"batch {version} was rejected: {problem['detail']}")


class RankingFailed(ServiceError):
    def __init__(self, version: int, reason: str) -> None:
        self.version = version
        super().__init__(
            f"version {version} is committed and applied, but not ranked: {reason}; "
            "its ranks come with the next batch or recompute"
        )


class StorageFailed(ServiceError):
    def __init__(self, path: object, reason: object) -> None:
        super().__init__(f"{path}: {reason}")


class StorageFull(StorageFailed):
    """Writes go on as soon as there is room again."""


class RetiredVersion(ServiceError):
    def __init__(self, graph: str, version: int, retired: int) -> None:
        self.field, self.value = "version", version
        super().__init__(
            f"graph {graph!r} no longer knows how batch {version} ended: checkpoints hold the "
            f"batches up to {retired}"
        )


class NotPublishedInTime(ServiceError):
    def __init__(self, version: int, published: int, timeout: float) -> None:
        self.field, self.value = "min_version", version
        super().__init__(
            f"version {version} was not published within {timeout:g} s; the newest is {published}"
        )


class NotAnsweredInTime(ServiceError):
    def __init__(self, seconds: float) -> None:
        self.field, self.value = "timeout", seconds
        super().__init__(f"the query was not solved within {seconds:g} s")


class UnknownWatched(ServiceError):
    def __init__(self, graph: str, name: str) -> None:
        self.field, self.value = "name", name
        super().__init__(f"graph {graph!r} has no watched query {name!r}")


_PROBLEMS: dict[type[Exception], tuple[HTTPStatus, str, str]] = {
    NotReady: (HTTPStatus.SERVICE_UNAVAILABLE, "not-ready", "Not ready"),
    UnknownGraph: (HTTPStatus.NOT_FOUND, "unknown-graph", "Unknown graph"),
    UnknownVertex: (HTTPStatus.NOT_FOUND, "unknown-vertex", "Unknown vertex"),
    UnknownVersion: (HTTPStatus.NOT_FOUND, "unknown-version", "Unknown version"),
    GraphExists: (HTTPStatus.CONFLICT, "graph-exists", "Graph exists with other options"),
    InvalidValue: (HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-value", "Invalid value"),
    FormatError: (HTTPStatus.UNPROCESSABLE_ENTITY, "invalid-body", "Invalid body"),
    UnsupportedFormat: (
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "unsupported-content-type",
        "Unsupported content type",
    ),
    ExpandsTooFar: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body-too-large", "Body too large"),
    BodyTooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "body-too-large", "Body too large"),
    BatchTooLarge: (HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "batch-too-large", "Batch too large"),
    Unauthorized: (HTTPStatus.UNAUTHORIZED, "unauthorized", "API key required"),
    Forbidden: (HTTPStatus.FORBIDDEN, "forbidden", "API key not sufficient"),
    HostNotAllowed: (HTTPStatus.MISDIRECTED_REQUEST, "host-not-allowed", "Host not allowed"),
    CrossOrigin: (HTTPStatus.FORBIDDEN, "cross-origin", "Cross-origin request"),
    UnknownKey: (HTTPStatus.NOT_FOUND, "unknown-key", "Unknown API key"),
    LastKey: (HTTPStatus.CONFLICT, "last-key", "Last API key"),
    QueueFull: (HTTPStatus.TOO_MANY_REQUESTS, "queue-full", "Queue full"),
    TooBusy: (HTTPStatus.SERVICE_UNAVAILABLE, "too-busy", "Too busy"),
    SlowClient: (HTTPStatus.REQUEST_TIMEOUT, "slow-client", "Slow client"),
    TooManyGraphs: (HTTPStatus.INSUFFICIENT_STORAGE, "too-many-graphs", "Too many graphs"),
    UnsupportedEncoding: (
        HTTPStatus.UNSUPPORTED_MEDIA_TYPE,
        "unsupported-content-encoding",
        "Unsupported content encoding",
    ),
    IdempotencyConflict: (
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "idempotency-conflict",
        "Idempotency key used with another body",
    ),
    RankingFailed: (HTTPStatus.INTERNAL_SERVER_ERROR, "ranking-failed", "Ranking failed"),
    RetiredVersion: (HTTPStatus.GONE, "retired-version", "Retired version"),
    StorageFull: (HTTPStatus.INSUFFICIENT_STORAGE, "storage-full", "Storage full"),
    StorageFailed: (HTTPStatus.SERVICE_UNAVAILABLE, "storage-failed", "Storage failed"),
    NotPublishedInTime: (
        HTTPStatus.GATEWAY_TIMEOUT,
        "not-published-in-time",
        "Not published in time",
    ),
    NotAnsweredInTime: (
        HTTPStatus.GATEWAY_TIMEOUT,
        "not-answered-in-time",
        "Not answered in time",
    ),
    UnknownWatched: (HTTPStatus.NOT_FOUND, "unknown-watched", "Unknown watched query"),
    OutOfMemory: (HTTPStatus.INSUFFICIENT_STORAGE, "out-of-memory", "Out of memory"),
    MemoryError: (HTTPStatus.INSUFFICIENT_STORAGE, "out-of-memory", "Out of memory"),
    DeviceLost: (HTTPStatus.SERVICE_UNAVAILABLE, "device-lost", "Device lost"),
    BackendUnavailable: (
        HTTPStatus.SERVICE_UNAVAILABLE,
        "backend-unavailable",
        "Backend unavailable",
    ),
}

_HTTP_DETAILS = {
    HTTPStatus.NOT_FOUND: "there is nothing at this path; /docs lists the calls",
    HTTPStatus.METHOD_NOT_ALLOWED: "this path does not take this method; /docs lists the calls",
}


FORESEEN = (
    BatchRejected,
    RequestValidationError,
    HTTPException,
    *(kind for kind in _PROBLEMS if kind is not MemoryError),
)
"""Errors that say what was wrong with a request, or with what it asked for. Where others come from
is logged.
"""


def problem_of(error: Exception) -> dict[str, Any]:
    """The problem document of any error: type, title, status, detail.

    Where they are known, also field, index, value and what would be accepted.
    """
    if isinstance(error, BatchRejected):
        return {**error.problem, "version": error.version}
    if isinstance(error, RequestValidationError):
        return _validation_problem(error)
    if isinstance(error, HTTPException):
        status = HTTPStatus(error.status_code)
        detail = _HTTP_DETAILS.get(status, error.detail)
        return _document(status, status.phrase.lower().replace(" ", "-"), status.phrase, detail)
    for kind, (status, name, title) in _PROBLEMS.items():
        if isinstance(error, kind):
            members = {
                member: _plain(getattr(error, member))
                for member in ("field", "index", "value", "accepted")
                if getattr(error, member, None) is not None
            }
            return _document(status, name, title, str(error), members)
    # What an unforeseen error says can hold anything: it belongs into the log, not into an answer.
    return _document(
        HTTPStatus.INTERNAL_SERVER_ERROR,
        INTERNAL_ERROR.removeprefix(TYPE_PREFIX),
        "Internal error",
        f"the server failed with {type(error).__name__}; its log says more",
    )


def answer_of(error: Exception, path: str) -> Response:
    """The answer to a request for `path` that ended in `error`."""
    problem = {**problem_of(error), "instance": path}
    headers: dict[str, str] = dict(getattr(error, "headers", None) or {})
    if problem["status"] == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.setdefault("Retry-After", "1")
    if problem["type"] == INTERNAL_ERROR:
        # The request may not have been read to its end; unless it is told, a client that keeps
        # connections sends its next request into this one.
        headers["Connection"] = "close"
    return Response(encode_problem(problem) + b"\n", problem["status"], headers, PROBLEM_JSON)


def encode_problem(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document)


def _document(
    status: HTTPStatus, name: str, title: str, detail: str, members: dict[str, Any] | None = None
) -> dict[str, Any]:
    return {
        "type": f"{TYPE_PREFIX}{name}",
        "title": title,
        "status": int(status),
        "detail": detail,
        **(members or {}),
    }


def _validation_problem(error: RequestValidationError) -> dict[str, Any]:
    first = error.errors()[0]
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", first["msg"])
        return _document(
            HTTPStatus.UNPROCESSABLE_ENTITY,
            "invalid-body",
            "Invalid body",
            f"body: not JSON: {reason}",
            {"field": "body"},
        )
    location = list(first["loc"])
    if location and location[0] in {"query", "path", "header", "cookie", "body"}:
        location = location[1:]
    field = ".".join(str(part) for part in location if isinstance(part, str)) or "body"
    index = next((part for part in location if isinstance(part, int)), None)
    members: dict[str, Any] = {"field": field}
    if index is not None:
        members["index"] = index
    if isinstance(first.get("input"), str | int | float):
        members["value"] = _plain(first["input"])
    place = field if index is None else f"{field}[{index}]"
    return _document(
        HTTPStatus.UNPROCESSABLE_ENTITY,
        "invalid-value",
        "Invalid value",
        f"{place}: {first['msg']}",
        members,
    )


def _plain(value: object) -> Any:
    """`value` as JSON can carry it: NaN, infinities and objects by their text, long text cut."""
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if -(2**63) <= value < 2**63 else str(value)
    if isinstance(value, float):
        return value if isfinite(value) else str(value)
    if isinstance(value, list | tuple | frozenset | set):
        return [_plain(item) for item in _ordered(value)]
    text = value if isinstance(value, str) else repr(value)
    text = text.encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= 200 else text[:200] + "…"


def _ordered(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=str) if isinstance(values, set | frozenset) else list(values)
