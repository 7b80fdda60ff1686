"""Authorization of calls.

With API keys, a request needs one (``Authorization: Bearer``) with the call's scope, for its graph.
Without keys every call is allowed, so nothing from outside may reach the server: it listens on
loopback only (or was started with --insecure), answers only to loopback names (a page whose name
was rebound to 127.0.0.1 sends its own name as Host), and refuses pages of other sites and what a
proxy forwarded, which may have changed the Host.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import cast
from urllib.parse import urlsplit

from fastapi import Request

from liverank.choices import Scope
from liverank_service.errors import (
    CrossOrigin,
    Forbidden,
    ForwardedRequest,
    HostNotAllowed,
    Unauthorized,
    Unprotected,
)
from liverank_service.http.framing import MAX_HEAD_BYTES
from liverank_service.pipeline.waiting import Turns, turns
from liverank_service.settings import Settings, is_loopback
from liverank_service.storage.api_keys import ApiKey, ApiKeyStore

REQUIRED_SCOPE: dict[str, Scope | None] = {
    "GET /livez": None,
    "GET /readyz": None,
    "GET /metrics": "read",
    "GET /programs": "read",
    "PUT /programs/{name}": "admin",
    "GET /programs/{name}": "read",
    "DELETE /programs/{name}": "admin",
    "GET /keys": "admin",
    "POST /keys": "admin",
    "DELETE /keys/{id}": "admin",
    "GET /graphs": "read",
    "PUT /graphs/{graph}": "admin",
    "GET /graphs/{graph}": "read",
    "DELETE /graphs/{graph}": "admin",
    "POST /graphs/{graph}/checkpoint": "admin",
    "POST /graphs/{graph}/batches": "write",
    "GET /graphs/{graph}/batches/{version}": "read",
    "POST /graphs/{graph}/recompute": "write",
    "GET /graphs/{graph}/ranks/{vertex}": "read",
    "POST /graphs/{graph}/ranks": "read",
    "GET /graphs/{graph}/ranks": "read",
    "GET /graphs/{graph}/top": "read",
    "GET /graphs/{graph}/edges": "read",
    "GET /graphs/{graph}/neighbors/{vertex}": "read",
    "GET /graphs/{graph}/explain/{vertex}": "read",
    "POST /graphs/{graph}/subgraph": "read",
    "GET /graphs/{graph}/changes": "read",
    "GET /graphs/{graph}/sources": "read",
    "PUT /graphs/{graph}/consumers/{source}": "write",
    "GET /graphs/{graph}/personalized/{vertex}": "read",
    "POST /graphs/{graph}/personalized": "read",
    "PUT /graphs/{graph}/sets/{name}": "write",
    "GET /graphs/{graph}/sets/{name}": "read",
    "DELETE /graphs/{graph}/sets/{name}": "write",
    "PUT /graphs/{graph}/watched/{name}": "write",
    "GET /graphs/{graph}/watched/{name}": "read",
    "GET /graphs/{graph}/watched/{name}/ranks/{vertex}": "read",
    "DELETE /graphs/{graph}/watched/{name}": "write",
    "GET /graphs/{graph}/views": "read",
    "PUT /graphs/{graph}/views/{view}": "write",
    "GET /graphs/{graph}/views/{view}": "read",
    "DELETE /graphs/{graph}/views/{view}": "write",
    "POST /graphs/{graph}/analyses/{analysis}": "write",
    "GET /graphs/{graph}/analyses": "read",
    "GET /graphs/{graph}/analyses/{analysis}": "read",
    "GET /graphs/{graph}/analyses/{analysis}/values/{vertex}": "read",
    "GET /graphs/{graph}/analyses/{analysis}/top": "read",
    "GET /graphs/{graph}/analyses/{analysis}/export": "read",
    "DELETE /graphs/{graph}/analyses/{analysis}": "write",
}
"""By call; None: open to all. The server does not start with a call that is not listed."""

_READS = re.compile(
    "|".join(
        re.sub(r"\{\w+\}", "[^/ ?]+", call) + "[ ?]"
        for call, scope in REQUIRED_SCOPE.items()
        if scope == "read" and not call.startswith("GET ")
    ).encode()
    + b"|GET "
)
_LIVENESS = re.compile(rb"GET /(livez|readyz)[ ?]")
_OF_API = re.compile(rb"[A-Z]+ /(graphs|keys|metrics|programs)[/ ?]")
_KEY_HEADER = b"\nauthorization:"

LIST_OF_GRAPHS = "GET /graphs"
"""Names no graph, but accepts keys for some graphs, which it then lists."""


def is_read(head: bytes) -> bool:
    """Whether the first bytes of a request are those of a GET, or of another call that needs no
    scope but `read`.
    """
    return _READS.match(head) is not None


class Access:
    """The access rules of one server."""

    def __init__(self, settings: Settings, keys: ApiKeyStore) -> None:
        """Raises Unprotected."""
        self.keys = keys
        self._loopback_only = settings.loopback
        self._may_be_forwarded = settings.insecure
        if not (keys or settings.loopback or settings.insecure):
            raise Unprotected(settings.host)

    def turns_of(self, head: bytes, is_behind: bool) -> Turns | None:
        """The turns that a request waits for, by its first bytes; None: it is served at once.

        Served at once are reads of those who may read, and liveness and readiness. Requests to
        pages, and those without a valid API key where there are keys, wait for turns of their own,
        so that a flood of them takes little time; others wait for those of writers.

        is_behind  whether it arrived before the request ahead of it was answered
        """
        if _LIVENESS.match(head):
            return turns("stranger") if is_behind else None
        if not self._is_of_api(head):
            return turns("stranger")
        return None if is_read(head) else turns("writer")

    def _is_of_api(self, head: bytes) -> bool:
        """Whether a request calls the API, with a valid key where there are keys."""
        if not _OF_API.match(head):
            return False
        if not self.keys:
            return True
        head = head[: head.find(b"\r\n\r\n", 0, MAX_HEAD_BYTES)]
        start = head.lower().find(_KEY_HEADER)
        if start < 0:
            return False
        value = head[start + len(_KEY_HEADER) :].partition(b"\n")[0]
        return self._key_in(value.decode("latin-1").strip()) is not None

    def check(self, call: str, request: Request) -> ApiKey | None:
        """The key of an allowed request; None if it needs none.

        Raises Unauthorized, Forbidden, ForwardedRequest, HostNotAllowed, CrossOrigin.
        """
        scope = REQUIRED_SCOPE[call]
        if scope is None:
            return None
        if not self.keys:
            self._check_way(request)
            self._check_origin(request)
            return None
        key = self.identify(request)
        if not key.includes(scope):
            raise Forbidden(f"key {key.name!r} has scope {key.scope}; this call needs {scope}")
        graph = request.path_params.get("graph")
        if graph is not None and not key.allows(graph):
            raise Forbidden(f"key {key.name!r} is not for graph {graph!r}")
        if graph is None and key.graphs is not None and call != LIST_OF_GRAPHS:
            raise Forbidden(f"key {key.name!r} is for some graphs; this call needs one for all")
        return key

    def identify(self, request: Request) -> ApiKey:
        """The key in the header Authorization. Raises Unauthorized."""
        value = request.headers.get("authorization", "")
        if (key := self._key_in(value)) is not None:
            return key
        if _is_bearer(value):
            raise Unauthorized("the API key is wrong or was revoked")
        raise Unauthorized("an API key is required, as Authorization: Bearer <key>")

    def _key_in(self, value: str) -> ApiKey | None:
        """The key in the value of a header Authorization, if it is one."""
        return self.keys.find(value.partition(" ")[2].strip()) if _is_bearer(value) else None

    def trusts(self, request: Request) -> bool:
        """Whether the response may contain details of the server."""
        try:
            return not self.keys or bool(self.identify(request))
        except Unauthorized:
            return False

    def _check_way(self, request: Request) -> None:
        if self._may_be_forwarded:
            return
        for name in request.headers:
            if name in ("forwarded", "via") or name.startswith("x-forwarded-"):
                raise ForwardedRequest(name)

    def _check_origin(self, request: Request) -> None:
        host = request.headers.get("host", "")
        if self._loopback_only and not _is_loopback(host):
            raise HostNotAllowed(host)
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise CrossOrigin(origin)


def _is_bearer(value: str) -> bool:
    return value.partition(" ")[0].lower() == "bearer"


@lru_cache(maxsize=64)
def _is_loopback(host: str) -> bool:
    """Whether a Host header, with or without a port, is a loopback name or address."""
    try:
        return is_loopback(urlsplit(f"//{host}").hostname or "")
    except ValueError:
        return False


def access_of(request: Request) -> Access:
    return cast(Access, request.app.state.access)


def key_id(request: Request) -> str | None:
    """Of the API key of a request that was let in; None without one."""
    key: ApiKey | None = request.state.key
    return None if key is None else key.id
