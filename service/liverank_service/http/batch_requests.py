"""What every request that sends a batch does: receives and decodes the body, and submits it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import TypeVar

from fastapi import Request

from liverank_service.catalog import Graph
from liverank_service.formats.columns import EdgeColumns
from liverank_service.formats.json_body import LARGE_BODY
from liverank_service.http.body import announced_length, read_body, release_body
from liverank_service.pipeline.batch import Batch, check_size
from liverank_service.settings import Settings

Decoded = TypeVar("Decoded")

SMALL_BODY = 4096
"""Bodies up to this size are decoded on the event loop: passing them to a thread takes longer."""

# Reads use the loop's default threads; large batches must not occupy those. A body below LARGE_BODY
# is decoded with the interpreter lock held: a second thread would only be one more to wait for it.
_DECODER = ThreadPoolExecutor(1, thread_name_prefix="liverank-decode")
_LARGE_DECODERS = ThreadPoolExecutor(2, thread_name_prefix="liverank-decode-large")


async def received(request: Request, graph: Graph, decode: Callable[[bytes], Decoded]) -> Decoded:
    """The decoded body. Raises QueueFull before it reads the body, and what `read_body` raises."""
    graph.pipeline.batches.check(announced_length(request))
    body = await read_body(request)
    if len(body) <= SMALL_BODY:
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
