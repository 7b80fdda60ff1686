"""Routes of this service: FastAPI's, with handling of requests that is shorter."""

from __future__ import annotations

import logging
from typing import Any

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.types import Receive, Scope, Send

from liverank_service.errors import InvalidField, ServiceError
from liverank_service.http.access import REQUIRED_SCOPE, access_of
from liverank_service.http.body import context_of, limit_of
from liverank_service.http.parameters import Endpoint
from liverank_service.http.responses import compressed

log = logging.getLogger("liverank.access")


class Route(APIRoute):
    """Authorizes a request before it is looked at. Then refuses unknown query parameters: for a
    misspelt one the default would silently be used, and of several values the last.

    FastAPI's own handling also closes what dependencies with `yield` have opened, of which there
    are none, and handles errors a second time.
    """

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._endpoint = Endpoint(self.endpoint, frozenset(self.param_convertors))
        self._calls = {method: call_of(method, self) for method in self.methods or ()}
        self.app = self._respond

    async def _respond(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        _enter(request, self._calls[request.method])
        if scope["query_string"]:
            _check_names(request, self._endpoint)
        response = await compressed(request, await self._endpoint(request))
        await response(scope, receive, send)


def call_of(method: str, route: APIRoute) -> str:
    """The name of a call, like ``GET /graphs/{graph}/top``, in access rules and metrics."""
    return f"{method} {route.path_format}"


def _enter(request: Request, call: str) -> None:
    """Authorizes and counts the request. Raises as Access.check and ConcurrencyLimit.enter do."""
    context = context_of(request)
    context.call = call
    try:
        request.state.key = access_of(request).check(call, request)
    except ServiceError as error:
        client = request.client.host if request.client else None
        log.warning("access denied: %s", error, extra={"call": call, "client": client})
        raise
    scope = REQUIRED_SCOPE[call]
    if scope is not None:
        limit_of(request).enter(context, "read" if scope == "read" else "other")


def _check_names(request: Request, endpoint: Endpoint) -> None:
    known, given = endpoint.query_names, request.query_params
    for name, value in given.items():
        if name not in known:
            message = f"unknown parameter; expected {', '.join(known) or 'none'}"
            raise InvalidField(name, None, value, message)
    if len(given.multi_items()) == len(given):
        return
    for name, value in given.items():
        values = given.getlist(name)
        if len(values) > 1 and name not in endpoint.repeated_names:
            got = ", ".join(map(repr, values))
            raise InvalidField(name, None, value, f"expected one value, got {got}")
