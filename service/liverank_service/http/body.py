"""The body of a request: received and parsed within limits, and decoded and submitted if it is a
batch.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar, cast

import pyarrow as pa
from fastapi import Request
from pydantic import BaseModel, ValidationError

from liverank_service.catalog import Graph
from liverank_service.errors import (
    BodyTooLarge,
    FormatError,
    InvalidField,
    RequestTooLarge,
    SlowClient,
    UnsupportedEncoding,
)
from liverank_service.formats import CODINGS, JSON
from liverank_service.formats.columns import EdgeColumns
from liverank_service.formats.decode import media_type_of, parsing_bytes
from liverank_service.formats.json_body import LARGE_BODY, duplicate_member, has_members, values_in
from liverank_service.http.limits import ConcurrencyLimit, RequestContext
from liverank_service.http.parameters import first_of, invalid
from liverank_service.pipeline.batch import Batch, check_size
from liverank_service.settings import Settings

Model = TypeVar("Model", bound=BaseModel)
Result = TypeVar("Result")

SMALL_BODY = 1 << 16
"""Bodies and answers up to about this size are parsed and encoded on the event loop, in less than a
millisecond: passing them to a thread takes as long.
"""

MIN_SENDING_BYTES_PER_SECOND = 16 * 1024
"""Minimum average rate of a body, from `slow_client_seconds` on."""

MAX_VALUES = 10_000
"""Members and items in a body that has no list of queries, edges or vertices."""

PIECE_BYTES = 4 << 20
"""Decompressed at a time."""


def context_of(request: Request) -> RequestContext:
    return cast(RequestContext, request.scope["request_context"])


def limit_of(request: Request) -> ConcurrencyLimit:
    return cast(ConcurrencyLimit, request.app.state.limit)


def announced_length(request: Request) -> int:
    """The body's Content-Length, or 0."""
    announced = request.headers.get("content-length", "0")
    return int(announced) if announced.isdecimal() else 0


async def read_body(request: Request) -> bytes:
    """The whole body, decompressed. From its end on, what parsing it takes is counted too.

    Raises BodyTooLarge as soon as it is known to exceed the limit, compressed or not, TooBusy,
    SlowClient, UnsupportedEncoding, FormatError for a damaged compressed body.
    """
    settings = cast(Settings, request.app.state.settings)
    coding = request.headers.get("content-encoding", "identity").lower()
    if coding not in ("identity", *CODINGS):
        raise UnsupportedEncoding(coding, CODINGS)
    if announced_length(request) > settings.max_body_bytes:
        raise BodyTooLarge(settings.max_body_bytes)
    context, limit = context_of(request), limit_of(request)
    chunks = []
    length = 0
    loop = asyncio.get_running_loop()
    started = loop.time()
    try:
        async with asyncio.timeout(settings.slow_client_seconds) as timeout:
            async for chunk in request.stream():
                length += len(chunk)
                if length > settings.max_body_bytes:
                    raise BodyTooLarge(settings.max_body_bytes)
                limit.hold(context, len(chunk))
                chunks.append(chunk)
                if length >= MIN_SENDING_BYTES_PER_SECOND:
                    allowed = settings.slow_client_seconds + length / MIN_SENDING_BYTES_PER_SECOND
                    timeout.reschedule(started + allowed)
    except TimeoutError:
        raise SlowClient(length, loop.time() - started) from None
    body = b"".join(chunks)
    del chunks
    if coding != "identity":
        body = await _decompressed(request, body, coding)
    limit.hold(context, parsing_bytes(request.headers.get("content-type"), len(body)))
    return body


async def _decompressed(request: Request, body: bytes, coding: str) -> bytes:
    """Counts what it decompresses, and stops at the limit."""
    context, limit = context_of(request), limit_of(request)
    most = cast(Settings, request.app.state.settings).max_body_bytes
    pieces, length = [], 0
    try:
        stream = pa.CompressedInputStream(pa.BufferReader(body), coding)
        while piece := await asyncio.to_thread(stream.read, min(most - length + 1, PIECE_BYTES)):
            length += len(piece)
            if length > most:
                raise BodyTooLarge(most)
            limit.hold(context, len(piece))
            pieces.append(piece)
    except OSError as error:
        raise FormatError("body", None, f"expected {coding}: {error}") from error
    return b"".join(pieces)


def or_nothing(body: bytes) -> bytes:
    """An optional body; `{}` for none, also as `null`, which generated clients send."""
    return b"{}" if body.strip() in (b"", b"null") else body


def count_places(request: Request, places: int, field: str) -> None:
    """Counts the places of the answer. Raises as ConcurrencyLimit.answer."""
    limit_of(request).answer(context_of(request), places, field)


async def on_thread(size: int, work: Callable[[], Result]) -> Result:
    """What `work` returns, which parses or makes about `size` bytes."""
    return work() if size <= SMALL_BODY else await asyncio.to_thread(work)


def release_body(request: Request) -> None:
    """Stops counting the body, which has been parsed, among those being received or parsed."""
    limit_of(request).release_body(context_of(request))


async def parsed_body(model: type[Model], body: bytes, most: int = MAX_VALUES) -> Model:
    """As parse_body, on a thread if the body is long."""
    return await on_thread(len(body), partial(parse_body, model, body, most=most))


def parse_body(
    model: type[Model],
    body: bytes,
    members: Callable[[Model], int] | None = None,
    most: int = MAX_VALUES,
) -> Model:
    """The JSON `body` as `model`.

    members  the number of members of all its objects; None if that is not worth knowing, because
             the body is short
    most     values in it: more are refused before there is an object for each

    Raises RequestTooLarge, InvalidField, and FormatError for malformed JSON and for a duplicate
    member.
    """
    if (count := values_in(body, most)) > most:
        raise RequestTooLarge("body", count, most, "values")
    try:
        parsed = model.model_validate_json(body)
    except ValidationError as error:
        first = first_of(error.errors(include_url=False))
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            message = f"unknown member; expected {', '.join(model.model_fields)}"
            raise InvalidField(str(first["loc"][0]), None, first["input"], message) from None
        raise invalid(first) from None
    if members is not None and has_members(body, members(parsed)):
        return parsed
    name = duplicate_member(body)
    if name is not None:
        raise FormatError(name, None, "duplicate member")
    return parsed


Decoded = TypeVar("Decoded")

SMALL_BATCH, SMALL_JSON = 1 << 12, 1 << 14
"""Bodies up to these sizes are decoded on the event loop: passing them to a thread takes longer.
Readers of other formats than JSON use threads, whatever the size: 0.4 to 0.9 ms.
"""

# Reads use the loop's default threads; large batches must not occupy those. A body below LARGE_BODY
# is decoded with the interpreter lock held: a second thread would only be one more to wait for it.
_DECODER = ThreadPoolExecutor(1, thread_name_prefix="liverank-decode")
_LARGE_DECODERS = ThreadPoolExecutor(2, thread_name_prefix="liverank-decode-large")


async def received(request: Request, graph: Graph, decode: Callable[[bytes], Decoded]) -> Decoded:
    """The decoded body. Raises QueueFull before it reads the body, and what `read_body` raises."""
    graph.pipeline.batches.check(announced_length(request))
    body = await read_body(request)
    is_json = media_type_of(request.headers.get("content-type")) == JSON
    if len(body) <= (SMALL_JSON if is_json else SMALL_BATCH):
        decoded = decode(body)
    else:
        # with the context, so that log records of the batch have the request's id
        run = partial(copy_context().run, decode, body)
        decoders = _DECODER if len(body) < LARGE_BODY else _LARGE_DECODERS
        decoded = await asyncio.get_running_loop().run_in_executor(decoders, run)
    release_body(request)
    return decoded


def check_limits(request: Request, columns: EdgeColumns) -> None:
    """Raises BatchTooLarge, and FormatError for a key too long."""
    settings: Settings = request.app.state.settings
    check_size(columns, settings.max_batch_edges, settings.max_key_bytes)


async def durable(graph: Graph, batch: Batch) -> int:
    """The version of a batch, once it is committed. Raises QueueFull, and as PendingBatch."""
    version: asyncio.Future[int] = asyncio.get_running_loop().create_future()
    graph.pipeline.submit(batch, durable=version)
    return await version


async def ranked(graph: Graph, batch: Batch) -> bytes:
    """The receipt of a batch, once it is ranked. Raises QueueFull, and as PendingBatch."""
    receipt: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
    graph.pipeline.submit(batch, ranked=receipt)
    return await receipt
