"""What needs no API key and is the same for all: files and documents, which are kept in memory. And
the dashboard: a page at ``/`` and its files below ``/dashboard``.

The page calls the API like any other client, with a key that its user enters. Its policy lets it
load nothing from other hosts, run no script but its own files, and make no HTML from text
(`require-trusted-types-for`), so that a vertex key cannot become markup.
"""

from __future__ import annotations

import asyncio
import hashlib
import mimetypes
from collections.abc import Callable, Mapping
from http import HTTPStatus
from pathlib import Path
from typing import Any

import orjson
from fastapi import Request, Response
from fastapi.openapi.docs import get_swagger_ui_html
from starlette.exceptions import HTTPException
from starlette.types import Receive, Scope, Send

FOLDER = Path(__file__).parent / "dashboard"

_HEADERS = {
    "Cache-Control": "no-cache",  # ask before it is used again: the ETag changes with a release
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; font-src 'self'; "
        "img-src 'self' data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Frame-Options": "DENY",
}


class Files:
    """The files of a folder as an application, read once: requests take neither disk nor threads,
    and share the bytes that they are sent.
    """

    def __init__(self, folder: Path, headers: Mapping[str, str] | None = None) -> None:
        self._responses: dict[str, Response] = {}
        for path in folder.rglob("*"):
            if path.is_file():
                name = path.relative_to(folder).as_posix()
                kind = mimetypes.guess_type(name)[0] or "text/plain"
                self._responses[name] = _tagged(path.read_bytes(), kind, headers or {})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"].removeprefix(scope["root_path"])
        response = self.response(path.removeprefix("/"), Request(scope))
        await response(scope, receive, send)

    def response(self, name: str, request: Request) -> Response:
        """Raises HTTPException for an unknown file, and for methods other than GET and HEAD."""
        if request.method not in ("GET", "HEAD"):
            raise HTTPException(405)
        if name not in self._responses:
            raise HTTPException(404)
        return _unless_known(request, self._responses[name])


class Document:
    """What `make` returns, as JSON: made and encoded once, at the first request."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._making = asyncio.Lock()
        self._response: Response | None = None

    async def respond(self, request: Request) -> Response:
        async with self._making:
            if self._response is None:
                self._response = await asyncio.to_thread(self._encoded)
        return _unless_known(request, self._response)

    def _encoded(self) -> Response:
        return _tagged(orjson.dumps(self._make()), "application/json", {})


def _tagged(body: bytes, kind: str, headers: Mapping[str, str]) -> Response:
    tag = hashlib.blake2b(body, digest_size=16).hexdigest()
    return Response(body, headers={**headers, "ETag": f'"{tag}"'}, media_type=kind)


def _unless_known(request: Request, response: Response) -> Response:
    """304 for a client that has the response."""
    tag = response.headers["etag"]
    known = request.headers.get("if-none-match", "").split(",")
    if all(one.strip().removeprefix("W/") not in (tag, "*") for one in known):
        return response
    kept = [(name, value) for name, value in response.headers.items() if "content-" not in name]
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=dict(kept))


assets = Files(FOLDER / "assets", _HEADERS)
_page = _tagged((FOLDER / "index.html").read_bytes(), "text/html", _HEADERS)


_CALLS = get_swagger_ui_html(
    openapi_url="openapi.json",
    title="liverank: the calls",
    oauth2_redirect_url=None,
    swagger_js_url="static-offline-docs/swagger-ui-bundle.js",
    swagger_css_url="static-offline-docs/swagger-ui.css",
    swagger_favicon_url="dashboard/icon.svg",
)
_calls = bytes(_CALLS.body).replace(b"</head>", b'<script src="dashboard/docs.js"></script></head>')


async def documentation(request: Request) -> Response:  # noqa: ARG001
    """What the calls are, light or dark as the dashboard is."""
    return Response(_calls, media_type="text/html")


async def dashboard(request: Request) -> Response:
    """The page; its addresses are relative, so that it works behind a path of a proxy."""
    return _unless_known(request, _page)
