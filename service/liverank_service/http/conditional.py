"""Conditional reads: entity tags, and 304 for a client that has the response (RFC 9110, section
13).

A tag names the epoch of the graph, what of the graph is in the response, and the form of the
response: its parameters, media type and content coding.
"""

from __future__ import annotations

import hashlib
import zlib
from http import HTTPStatus
from typing import Any

import orjson
from fastapi import Request, Response

from liverank_service.catalog import Graph
from liverank_service.formats import JSON
from liverank_service.http.compression import uncoded_tag
from liverank_service.http.responses import encoded_response

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
