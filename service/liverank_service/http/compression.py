"""Content coding of large JSON responses; exports have their own."""

from __future__ import annotations

import asyncio
import zlib

import pyarrow as pa
from fastapi import Request, Response

from liverank_service.errors import NotAcceptable
from liverank_service.formats import CODINGS, JSON
from liverank_service.http.negotiation import coding_for

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
