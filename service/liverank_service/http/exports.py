"""Responses that stream an export, in the form that the client accepts."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from fastapi import Request, Response
from fastapi.responses import StreamingResponse
from starlette.types import Send

from liverank_service.catalog import Graph
from liverank_service.formats.encode import encoded
from liverank_service.http.body import context_of, limit_of
from liverank_service.http.limits import MIN_READING_BYTES_PER_SECOND
from liverank_service.http.responses import (
    cache_headers,
    entity_tag,
    export_form,
    not_modified,
)
from liverank_service.pipeline.shards import device_loss_ends_process
from liverank_service.queries.exports import Export

log = logging.getLogger("liverank.exports")

_ENCODERS = ThreadPoolExecutor(2, thread_name_prefix="liverank-export")
"""Exports share these threads piece by piece; reads have others."""

_COPIERS = ThreadPoolExecutor(thread_name_prefix="liverank-copy")


class ExportResponse(StreamingResponse):
    """An export in the form that was negotiated. It is cut off, and its copy released, if the
    client accepts it too slowly.
    """

    def __init__(
        self,
        request: Request,
        export: Export,
        media_type: str,
        coding: str | None,
        headers: dict[str, str],
        keep_alive: object = None,
    ) -> None:
        """keep_alive: what others may share until the export ends"""
        headers = {
            f"Liverank-{_titled(name)}": f"{fact}" for name, fact in export.facts.items()
        } | (headers)
        if coding is not None:
            headers["Content-Encoding"] = coding
        pieces = encoded(export.schema, export.pieces, media_type, coding)
        super().__init__(_made(pieces), headers=headers, media_type=media_type)
        self._request = request
        self._keep_alive = keep_alive
        self._seconds: float = request.app.state.settings.slow_client_seconds

    async def stream_response(self, send: Send) -> None:
        """Sends the pieces; counts the time in which the client accepts nothing."""
        loop = asyncio.get_running_loop()
        await send(
            {
                "type": "http.response.start",
                "status": self.status_code,
                "headers": self.raw_headers,
            }
        )
        sent, waited = 0, 0.0
        async for piece in self.body_iterator:
            assert isinstance(piece, bytes)
            sent += len(piece)
            started = loop.time()
            try:
                async with asyncio.timeout(
                    self._seconds + sent / MIN_READING_BYTES_PER_SECOND - waited
                ):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except TimeoutError:
                self._cut(sent)
                await asyncio.sleep(self._seconds)  # cancelled once the connection has ended
                return
            waited += loop.time() - started
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _cut(self, sent: int) -> None:
        scope = self._request.scope
        log.warning(
            "export cut: the client reads too slowly", extra={"path": scope["path"], "bytes": sent}
        )
        scope["abort"]()


class Made(NamedTuple):
    """An export, what of the graph is in it (see entity_tag), and what others may share until it
    ends.
    """

    export: Export
    state: str
    keep_alive: object = None


async def exported(
    request: Request, graph: Graph, state: str, make: Callable[[], Made]
) -> Response:
    """The export that `make` returns, or 304 for a client that has what has this state now. It is
    made on a thread of copies: it may wait for the writer, as may others meanwhile. Raises
    NotAcceptable, TooBusy.
    """
    media_type, coding = export_form(request)
    tag = entity_tag(request, graph, state, media_type, coding)
    if (known := not_modified(request, tag)) is not None:
        return known
    limit_of(request).start_export(context_of(request))
    made = await asyncio.get_running_loop().run_in_executor(_COPIERS, make)
    headers = cache_headers(entity_tag(request, graph, made.state, media_type, coding))
    return ExportResponse(request, made.export, media_type, coding, headers, made.keep_alive)


async def _made(pieces: Iterator[bytes]) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    while (piece := await loop.run_in_executor(_ENCODERS, _next, pieces)) is not None:
        yield piece


def _next(pieces: Iterator[bytes]) -> bytes | None:
    with device_loss_ends_process():
        return next(pieces, None)


def _titled(name: str) -> str:
    return name.replace("_", "-").title()
