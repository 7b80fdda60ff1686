"""Responses: JSON, and problem documents for every error."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import Request, Response
from starlette.background import BackgroundTask
from starlette.exceptions import HTTPException
from starlette.routing import Route

from liverank_gpu import DeviceLost, EngineError
from liverank_service import problems
from liverank_service.errors import ServiceError
from liverank_service.pipeline.shards import end_process

FEW_ROWS = 1000
"""Longer lists are made in a thread: the event loop would make other requests wait."""


def json_response(content: Any, status: int = 200) -> Response:
    body = orjson.dumps(content, option=orjson.OPT_APPEND_NEWLINE)
    return Response(body, status, media_type="application/json")


def encoded_response(body: bytes, status: int = 200) -> Response:
    """A response of encoded JSON. It ends with a line break, for terminals."""
    return Response(body + b"\n", status, media_type="application/json")


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
