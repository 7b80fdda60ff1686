"""The dashboard: a page at ``/`` and its files below ``/dashboard``, which need no API key.

The page calls the API like any other client, with a key that its user enters. Its policy lets it
load nothing from other hosts, run no script but its own files, and make no HTML from text
(`require-trusted-types-for`), so that a vertex key cannot become markup.
"""

from __future__ import annotations

import os
from pathlib import Path

from fastapi import Request, Response
from starlette.staticfiles import StaticFiles
from starlette.types import Scope

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


class _Files(StaticFiles):
    """Files with the headers of the dashboard."""

    def file_response(
        self,
        full_path: str | os.PathLike[str],
        stat_result: os.stat_result,
        scope: Scope,
        status_code: int = 200,
    ) -> Response:
        response = super().file_response(full_path, stat_result, scope, status_code)
        response.headers.update(_HEADERS)
        return response


assets = _Files(directory=FOLDER / "assets")
_page = _Files(directory=FOLDER)


async def dashboard(request: Request) -> Response:
    """The page; its addresses are relative, so that it works behind a path of a proxy."""
    return await _page.get_response("index.html", request.scope)
