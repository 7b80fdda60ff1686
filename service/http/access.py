"""Who may make which call.

With keys, a request needs one (``Authorization: Bearer``) whose scope and graphs reach as far as
the call. Without keys everything is allowed, so nothing from outside may come near: such a server
listens on loopback alone (or was told --insecure), answers only to loopback names (a page whose
name was bound anew to 127.0.0.1 sends its own name as Host), and not to pages of other sites.
"""

from __future__ import annotations

from ipaddress import ip_address
from typing import cast
from urllib.parse import urlsplit

from fastapi import Request

from service.errors import CrossOrigin, Forbidden, HostNotAllowed, ServiceError, Unauthorized
from service.settings import Settings
from service.storage.api_keys import ApiKey, KeyStore, Scope

CALLS: dict[str, Scope | None] = {
    "GET /livez": None,
    "GET /readyz": None,
    "GET /metrics": "read",
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
    "GET /graphs/{graph}/top": "read",
    "GET /graphs/{graph}/personalized/{vertex}": "read",
    "POST /graphs/{graph}/personalized": "read",
    "PUT /graphs/{graph}/watched/{name}": "write",
    "GET /graphs/{graph}/watched/{name}": "read",
    "DELETE /graphs/{graph}/watched/{name}": "write",
}
"""The scope that each call needs; None: open to all. A call that is missing is never answered."""

LIST_OF_GRAPHS = "GET /graphs"
"""Names no graph, yet takes keys that are for some graphs only: it lists those."""


class Unprotected(ServiceError):
    """Other machines could connect, and no key would be asked for."""

    def __init__(self, host: str) -> None:
        super().__init__(
            f"host {host!r} lets other machines connect, but there is no API key: set "
            "LIVERANK_API_KEY, or make one with `liverank keys create --data DIR`; --insecure "
            "starts without"
        )


class Access:
    """The rules of one server."""

    def __init__(self, settings: Settings, keys: KeyStore) -> None:
        """Raises Unprotected."""
        self.keys = keys
        self._names_count = settings.loopback
        if not (keys or settings.loopback or settings.insecure):
            raise Unprotected(settings.host)

    def check(self, call: str, request: Request) -> ApiKey | None:
        """The key of a request that may be made; None where none was asked for.

        Raises Unauthorized, Forbidden, HostNotAllowed, CrossOrigin.
        """
        scope = CALLS[call]
        if scope is None:
            return None
        if not self.keys:
            self._check_neighbourhood(request)
            return None
        key = self.identify(request)
        if not key.includes(scope):
            raise Forbidden(f"key {key.name!r} has scope {key.scope}; this call needs {scope}")
        graph = request.path_params.get("graph")
        if graph is not None and not key.sees(graph):
            raise Forbidden(f"key {key.name!r} is not for graph {graph!r}")
        if graph is None and key.graphs is not None and call != LIST_OF_GRAPHS:
            raise Forbidden(f"key {key.name!r} is for some graphs; this call needs one for all")
        return key

    def identify(self, request: Request) -> ApiKey:
        """The key in the header Authorization. Raises Unauthorized."""
        kind, _, text = request.headers.get("authorization", "").partition(" ")
        if kind.lower() != "bearer":
            raise Unauthorized("an API key is due, as Authorization: Bearer <key>")
        key = self.keys.find(text.strip())
        if key is None:
            raise Unauthorized("the API key is wrong, or was revoked")
        return key

    def trusts(self, request: Request) -> bool:
        """Whether details of the server may be told to whoever asks."""
        try:
            return not self.keys or bool(self.identify(request))
        except Unauthorized:
            return False

    def _check_neighbourhood(self, request: Request) -> None:
        host = request.headers.get("host", "")
        if self._names_count and not _is_loopback(host):
            raise HostNotAllowed(host)
        origin = request.headers.get("origin")
        if origin is not None and urlsplit(origin).netloc != host:
            raise CrossOrigin(origin)


def _is_loopback(host: str) -> bool:
    """Whether a Host header, with or without a port, names this machine to itself."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return False
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def access_of(request: Request) -> Access:
    return cast(Access, request.app.state.access)
