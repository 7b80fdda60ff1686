"""Errors as problem documents (RFC 9457): the one place that knows the status of each.

A document has type, title, status and detail, and, if the error has them, field, index, value,
accepted, line, version and stored. FastAPI's own errors are mapped in
liverank_service.http.responses.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from http import HTTPStatus
from math import isfinite
from typing import Any

import orjson

from liverank_gpu import (
    BackendUnavailable,
    DeviceLost,
    InvalidValue,
    OutOfMemory,
    ShardLost,
)
from liverank_service import errors

MEDIA_TYPE = "application/problem+json"
TYPE_PREFIX = "urn:liverank:problem:"

_LONGEST_TEXT = 200
"""Characters of a client's value that a document repeats."""


@dataclass(frozen=True, slots=True)
class ProblemType:
    """What all problems of one type have in common."""

    status: HTTPStatus
    name: str
    title: str

    def document(self, detail: str, **members: Any) -> dict[str, Any]:
        return {
            "type": f"{TYPE_PREFIX}{self.name}",
            "title": self.title,
            "status": int(self.status),
            "detail": detail,
            **members,
        }


_TYPES: dict[type[Exception], ProblemType] = {
    kind: ProblemType(HTTPStatus(status), name, title)
    for kind, status, name, title in (
        (errors.NotReady, 503, "not-ready", "Not ready"),
        (errors.UnknownGraph, 404, "unknown-graph", "Unknown graph"),
        (errors.UnknownVertex, 404, "unknown-vertex", "Unknown vertex"),
        (errors.UnknownVersion, 404, "unknown-version", "Unknown version"),
        (errors.UnknownSet, 404, "unknown-set", "Unknown set of vertices"),
        (errors.UnknownView, 404, "unknown-view", "Unknown view"),
        (errors.NoRanks, 409, "no-ranks", "View without ranks"),
        (errors.UnknownWatched, 404, "unknown-watched", "Unknown watched query"),
        (errors.UnknownAnalysis, 404, "unknown-analysis", "Unknown analysis"),
        (errors.TooManyAnalyses, 409, "too-many-analyses", "Too many analyses"),
        (errors.NoAnswer, 409, "no-answer", "Analysis without an answer"),
        (errors.LimitExceeded, 507, "limit-exceeded", "Limit of the analysis exceeded"),
        (errors.ProgramsOff, 403, "programs-off", "Programs of users are off"),
        (errors.ProgramRefused, 422, "program-refused", "Program refused"),
        (errors.UnknownProgram, 404, "unknown-program", "Unknown program"),
        (errors.TooManyPrograms, 507, "too-many-programs", "Too many programs"),
        (errors.GraphExists, 409, "graph-exists", "Graph exists with other options"),
        (errors.TooManyGraphs, 507, "too-many-graphs", "Too many graphs"),
        (errors.MalformedRequest, 400, "malformed-request", "Malformed request"),
        (InvalidValue, 422, "invalid-value", "Invalid value"),
        (errors.InvalidField, 422, "invalid-value", "Invalid value"),
        (errors.FormatError, 422, "invalid-body", "Invalid body"),
        (errors.UnsupportedFormat, 415, "unsupported-content-type", "Unsupported content type"),
        (
            errors.UnsupportedEncoding,
            415,
            "unsupported-content-encoding",
            "Unsupported content encoding",
        ),
        (errors.NotAcceptable, 406, "not-acceptable", "Not acceptable"),
        (errors.BodyTooLarge, 413, "body-too-large", "Body too large"),
        (errors.BatchTooLarge, 413, "batch-too-large", "Batch too large"),
        (errors.RequestTooLarge, 413, "request-too-large", "Request too large"),
        (errors.Unauthorized, 401, "unauthorized", "API key required"),
        (errors.Forbidden, 403, "forbidden", "API key not sufficient"),
        (errors.ForwardedRequest, 403, "forwarded-request", "Forwarded request"),
        (errors.HostNotAllowed, 421, "host-not-allowed", "Host not allowed"),
        (errors.CrossOrigin, 403, "cross-origin", "Cross-origin request"),
        (errors.UnknownApiKey, 404, "unknown-key", "Unknown API key"),
        (errors.LastApiKey, 409, "last-key", "Last API key"),
        (errors.QueueFull, 429, "queue-full", "Queue full"),
        (errors.TooBusy, 503, "too-busy", "Too busy"),
        (errors.SlowClient, 408, "slow-client", "Slow client"),
        (
            errors.IdempotencyConflict,
            422,
            "idempotency-conflict",
            "Idempotency key used with another body",
        ),
        (
            errors.SourcePositionConflict,
            409,
            "source-position",
            "Batch does not continue its source",
        ),
        (errors.BatchLost, 500, "batch-lost", "Batch lost"),
        (errors.RankingFailed, 500, "ranking-failed", "Ranking failed"),
        (errors.RankingDelayed, 503, "ranking-delayed", "Ranking delayed"),
        (errors.Unsupported, 422, "unsupported", "Not supported with shards"),
        (errors.ExpiryFailed, 503, "expiry-failed", "Expiry failed"),
        (errors.OutcomeDelayed, 503, "outcome-delayed", "Outcome delayed"),
        (errors.RetiredVersion, 410, "retired-version", "Retired version"),
        (errors.StorageFull, 507, "storage-full", "Storage full"),
        (errors.StorageFailed, 503, "storage-failed", "Storage failed"),
        (errors.NotPublishedInTime, 504, "not-published-in-time", "Not published in time"),
        (errors.NotAnsweredInTime, 504, "not-answered-in-time", "Not answered in time"),
        (errors.WaitEnded, 408, "wait-ended", "Wait ended"),
        (OutOfMemory, 507, "out-of-memory", "Out of memory"),
        (MemoryError, 507, "out-of-memory", "Out of memory"),
        (DeviceLost, 503, "device-lost", "Device lost"),
        (ShardLost, 503, "shard-lost", "Shard lost"),
        (BackendUnavailable, 503, "backend-unavailable", "Backend unavailable"),
    )
}
"""By class; a subclass comes before its base."""

INTERNAL_ERROR = ProblemType(HTTPStatus.INTERNAL_SERVER_ERROR, "internal-error", "Internal error")

_HEADERS = {
    "unauthorized": {"WWW-Authenticate": 'Bearer realm="liverank"'},
    "slow-client": {"Connection": "close"},
    # The body may not have been read to its end: a client that kept the connection would send its
    # next request into it.
    "internal-error": {"Connection": "close"},
}

_HTTP_DETAILS = {HTTPStatus.NOT_FOUND: "no call has this path; /docs lists the calls"}


def problem_types() -> dict[str, HTTPStatus]:
    """The name and status of every type."""
    known = [
        *_TYPES.values(),
        INTERNAL_ERROR,
        *map(_type_of_status, (*_HTTP_DETAILS, HTTPStatus.METHOD_NOT_ALLOWED)),
    ]
    return {kind.name: kind.status for kind in known}


def problem_of(error: Exception) -> dict[str, Any]:
    """The problem document of any error."""
    if isinstance(error, errors.BatchRejected):
        return {**error.reason, "version": error.version}
    kind = _type_of(error)
    if kind is INTERNAL_ERROR:
        # The text of an unexpected error could hold anything, so only the log has it.
        return kind.document(f"the server failed with {type(error).__name__}; see its log")
    members = {
        member: _plain(getattr(error, member))
        for member in ("field", "index", "line", "value", "accepted", "version", "stored")
        if getattr(error, member, None) is not None
    }
    return kind.document(str(error), **members)


def problem_of_status(status: HTTPStatus, detail: str) -> dict[str, Any]:
    """The problem document of an HTTP error that is no error of the service."""
    return _type_of_status(status).document(_HTTP_DETAILS.get(status, detail))


def headers_of(error: Exception) -> dict[str, str]:
    """Headers of the response to a request that ended in `error`."""
    kind = _type_of(error)
    headers = dict(_HEADERS.get(kind.name, {}))
    retry_after = getattr(error, "retry_after", None)
    if retry_after is None and kind.status == HTTPStatus.SERVICE_UNAVAILABLE:
        retry_after = 1
    if retry_after is not None:
        headers["Retry-After"] = str(retry_after)
    return headers


def encode_problem(document: dict[str, Any]) -> bytes:
    return orjson.dumps(document)


def _type_of(error: Exception) -> ProblemType:
    for kind, problem_type in _TYPES.items():
        if isinstance(error, kind):
            return problem_type
    return INTERNAL_ERROR


def _type_of_status(status: HTTPStatus) -> ProblemType:
    return ProblemType(status, status.phrase.lower().replace(" ", "-"), status.phrase.capitalize())


def _plain(value: object) -> Any:
    """`value` as JSON can hold it: NaN, infinities and objects as text, long text cut."""
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
    return text if len(text) <= _LONGEST_TEXT else text[:_LONGEST_TEXT] + "…"


def _ordered(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=str) if isinstance(values, set | frozenset) else list(values)
