"""Responses: JSON, and problem documents for every error; in the form that the client accepts,
compressed if they are large, or none if the client has them. Exports have their own coding.

Which media type and which content coding a client accepts (RFC 9110, sections 12.4.2 and 12.5).

A range in `Accept` or `Accept-Encoding` may have a q-value from 0 to 1; 0 means not acceptable. Of
the ranges that match, the most specific one counts. Of equal q-values, the server's order decides.

Conditional reads: entity tags, and 304 for a client that has the response (RFC 9110, section
13).

A tag names the epoch of the graph, what of the graph is in the response, and the form of the
response: its parameters, media type and content coding.
"""

from __future__ import annotations

import asyncio
import hashlib
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from http import HTTPStatus
from typing import Any

import orjson
import pyarrow as pa
from fastapi import Request, Response
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.routing import Route

from liverank_gpu import DeviceLost, EngineError
from liverank_service import problems
from liverank_service.catalog import Graph
from liverank_service.errors import NotAcceptable, ServiceError
from liverank_service.formats import CODINGS, EXPORTED, JSON, PARQUET
from liverank_service.pipeline.shards import end_process


def export_form(request: Request, offered: Sequence[str] = EXPORTED) -> tuple[str, str | None]:
    """Media type and content coding of an export, or of JSON if that is offered, too. Raises
    NotAcceptable.
    """
    media_type = media_type_for(request, offered)
    coding = None if media_type == JSON else coding_for(request)
    # which is compressed internally
    return media_type, None if media_type == PARQUET else coding


def media_type_for(request: Request, offered: Sequence[str]) -> str:
    """The media type of the response. Raises NotAcceptable, with those offered."""
    header = _header(request, "accept")
    ranges = _ranges(header)
    if not ranges:
        return offered[0]
    best = max(offered, key=lambda kind: _quality(ranges, _covering(kind)))
    if _quality(ranges, _covering(best)) <= 0.0:
        raise NotAcceptable("Accept", header, tuple(offered))
    return best


def coding_for(request: Request) -> str | None:
    """The content coding of the response; None: identity. Raises NotAcceptable."""
    header = _header(request, "accept-encoding")
    ranges = _ranges(header)
    others = ranges.get("*", 0.0)
    qualities = {name: ranges.get(name, others) for name in CODINGS}
    # a coding is used if it is named; `*` alone asks for none
    best = max(CODINGS, key=lambda name: (name in ranges, qualities[name]))
    identity = ranges.get("identity", 0.0 if ranges.get("*") == 0.0 else None)
    is_wanted = best in ranges or identity == 0.0
    if is_wanted and qualities[best] > 0.0 and qualities[best] >= (identity or 0.0):
        return best
    if identity == 0.0:
        raise NotAcceptable("Accept-Encoding", header, (*CODINGS, "identity"))
    return None


def _header(request: Request, name: str) -> str:
    return ",".join(request.headers.getlist(name))


def _ranges(header: str) -> dict[str, float]:
    """The q-value of each range. One that is not a number from 0 to 1 counts as 0."""
    found = {}
    for entry in header.lower().split(","):
        name, *parameters = (part.strip() for part in entry.split(";"))
        if name:
            quality = next((p[2:] for p in parameters if p.startswith("q=")), "1")
            try:
                number = float(quality)
            except ValueError:
                number = 0.0
            found[name] = number if 0.0 <= number <= 1.0 else 0.0
    return found


def _covering(media_type: str) -> tuple[str, ...]:
    """The ranges that match a media type, the most specific first."""
    return media_type, f"{media_type.split('/')[0]}/*", "*/*"


def _quality(ranges: dict[str, float], covering: Sequence[str]) -> float:
    return next((ranges[name] for name in covering if name in ranges), 0.0)


FEW_ROWS = 1000
"""Longer lists are made in a thread: the event loop would make other requests wait."""


def json_response(content: Any, status: int = 200) -> Response:
    body = orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
    return Response(body, status, media_type=JSON)


def encoded_response(body: bytes) -> Response:
    """A response of encoded JSON. It ends with a line break, for terminals."""
    return Response(body + b"\n", media_type=JSON)


def problem_response(error: Exception, path: str) -> Response:
    """The response to a request for `path` that ended in `error`."""
    return _response(problems.problem_of(error), problems.headers_of(error), path)


async def _answer_error(request: Request, error: Exception) -> Response:
    return problem_response(error, request.scope["path"])


async def _answer_device_loss(request: Request, error: Exception) -> Response:
    """Answers, and ends the process: each later use of the device would fail."""
    assert isinstance(error, DeviceLost)
    response = problem_response(error, request.scope["path"])
    response.background = BackgroundTask(end_process, error)
    return response


async def _answer_http_error(request: Request, error: Exception) -> Response:
    """The response to what the router raises: an unknown path, or a wrong method."""
    assert isinstance(error, HTTPException)
    status = HTTPStatus(error.status_code)
    headers = dict(error.headers or {})
    path, detail = request.scope["path"], error.detail
    if status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers["Allow"] = allowed = _allowed_methods(request, path)
        detail = f"method: expected {allowed}, got {request.method}; /docs lists the calls"
    return _response(problems.problem_of_status(status, detail), headers, path)


EXCEPTION_HANDLERS: dict[Any, Callable[[Request, Exception], Awaitable[Response]]] = {
    ServiceError: _answer_error,
    EngineError: _answer_error,
    DeviceLost: _answer_device_loss,
    HTTPException: _answer_http_error,
}
"""For FastAPI. Other errors are faults, which RequestMiddleware logs and answers."""


def _allowed_methods(request: Request, path: str) -> str:
    """The methods of all routes with the path: Starlette names those of the first one only."""
    methods = {
        method
        for route in request.app.routes
        if isinstance(route, Route) and route.path_regex.match(path)
        for method in route.methods or ()
    }
    return ", ".join(sorted(methods))


def _response(document: dict[str, Any], headers: Mapping[str, str], path: str) -> Response:
    # escape again what would end the path in a URI
    instance = path.replace("?", "%3F").replace("#", "%23").replace("\\", "%5C")
    body = problems.encode_problem({**document, "instance": instance}) + b"\n"
    return Response(body, document["status"], headers, problems.MEDIA_TYPE)


MIN_COMPRESSED_BYTES = 16 * 1024
"""Shorter responses fit into a few packets and are not compressed."""


async def compressed(request: Request, response: Response) -> Response:
    """The response, compressed if it is large and the client accepts a coding."""
    body = getattr(response, "body", b"")  # a stream has none
    if len(body) < MIN_COMPRESSED_BYTES or response.media_type != JSON:
        return response
    headers = response.headers
    vary = headers.get("vary")
    if vary is None or "Accept-Encoding" not in vary:
        headers["Vary"] = f"{vary}, Accept-Encoding" if vary else "Accept-Encoding"
    try:
        coding = coding_for(request)
    except NotAcceptable:  # it gets JSON as it is
        return response
    if coding is None:
        return response
    response.body = await asyncio.to_thread(_compress, body, coding)
    headers["Content-Encoding"] = coding
    headers["Content-Length"] = str(len(response.body))
    if (tag := headers.get("etag")) is not None:
        headers["ETag"] = coded_tag(tag, coding)
    return response


def coded_tag(tag: str, coding: str) -> str:
    """The entity tag of a response that is compressed."""
    return f'{tag[:-1]}-{coding}"'


def uncoded_tag(tag: str) -> str:
    """The entity tag of the same response, not compressed."""
    for coding in CODINGS:
        if tag.endswith(f'-{coding}"'):
            return tag.removesuffix(f'-{coding}"') + '"'
    return tag


def _compress(body: bytes, coding: str) -> bytes:
    if coding == "gzip":
        return zlib.compress(body, level=1, wbits=16 + zlib.MAX_WBITS)
    compressed: bytes = pa.compress(body, codec=coding, asbytes=True)
    return compressed


_VARY = "Accept, Accept-Encoding, Authorization"


def entity_tag(
    request: Request, graph: Graph, state: str, media_type: str = JSON, coding: str | None = None
) -> str:
    """state: identifies the content, for these parameters, within the epoch of the graph"""
    scope = request.scope
    form = (scope["raw_path"], scope["query_string"], media_type.encode(), (coding or "").encode())
    return f'"{graph.pipeline.epoch}-{state}-{zlib.crc32(b" ".join(form)):08x}"'


def cache_headers(tag: str) -> dict[str, str]:
    """Headers of a response with a tag: caches must ask before they use it again."""
    return {"ETag": tag, "Cache-Control": "no-cache", "Vary": _VARY}


def not_modified(request: Request, tag: str) -> Response | None:
    """The response to a client that has the one with this tag, in whatever coding."""
    known = request.headers.get("if-none-match", "")
    for one in known.split(","):
        named = tag if known.strip() == "*" else one.strip().removeprefix("W/")
        if named and tag in (named, uncoded_tag(named)):
            return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=cache_headers(named))
    return None


def tagged_response(request: Request, tag: str, content: Any) -> Response:
    """JSON with a tag, or 304 if the client has it."""
    return not_modified(request, tag) or _tagged(tag, orjson.dumps(content))


def response_by_content(request: Request, graph: Graph, body: bytes) -> Response:
    """Encoded JSON, whose tag is a digest of it, or 304 if the client has it."""
    tag = entity_tag(request, graph, hashlib.blake2b(body, digest_size=8).hexdigest())
    return not_modified(request, tag) or _tagged(tag, body)


def _tagged(tag: str, body: bytes) -> Response:
    response = encoded_response(body)
    response.headers.update(cache_headers(tag))
    return response
