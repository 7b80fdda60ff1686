"""Conditional reads: entity tags, and 304 for a client that has the response (RFC 9110, section
13).

A tag names the epoch of the graph, what of the graph is in the response, and the form of the
response: its parameters, media type and content coding.
"""

from __future__ import annotations

import zlib
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import Request, Response

from service.catalog import Graph
from service.formats.media_types import JSON
from service.http.responses import encoded_response

EXPORT_VARY = "Accept, Accept-Encoding, Authorization"


def entity_tag(
    request: Request, graph: Graph, state: str, media_type: str = JSON, coding: str | None = None
) -> str:
    """state: identifies the content, for these parameters, within the epoch of the graph"""
    scope = request.scope
    form = (scope["raw_path"], scope["query_string"], media_type.encode(), (coding or "").encode())
    return f'"{graph.pipeline.epoch}-{state}-{zlib.crc32(b" ".join(form)):08x}"'


def cache_headers(tag: str, vary: str = "Accept, Authorization") -> dict[str, str]:
    """Headers of a response with a tag: caches must ask before they use it again."""
    return {"ETag": tag, "Cache-Control": "no-cache", "Vary": vary}


def is_known(request: Request, tag: str) -> bool:
    """Whether the client has the response with this tag."""
    known = request.headers.get("if-none-match")
    if known is None:
        return False
    tags = [one.strip().removeprefix("W/") for one in known.split(",")]
    return tag in tags or tags == ["*"]


def not_modified(headers: dict[str, str]) -> Response:
    return Response(status_code=HTTPStatus.NOT_MODIFIED, headers=headers)


def tagged_response(request: Request, graph: Graph, state: str, content: Any) -> Response:
    """JSON with a tag, or 304 if the client has it."""
    tag = entity_tag(request, graph, state)
    headers = cache_headers(tag)
    if is_known(request, tag):
        return not_modified(headers)
    response = encoded_response(orjson.dumps(content))
    response.headers.update(headers)
    return response
