"""Batches of edges: send one, look up its outcome, rank again."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Header, Query, Request, Response

from gpu import STRATEGIES, Form, InvalidValue, OnConflict, Solve
from service.catalog import GraphOptions
from service.formats.decode import decode_batch
from service.formats.media_types import EXPORTED
from service.formats.weights import UNWEIGHTED
from service.http.body import announced_length, read_body, release_body
from service.http.dependencies import OpenGraph
from service.http.openapi import body_of, problems
from service.http.responses import encoded_response, json_response
from service.http.route import Route
from service.http.schemas import (
    ONE_OF_STRATEGIES,
    BatchRequest,
    Durable,
    Pending,
    Receipt,
    Rejected,
)
from service.pipeline.batch import Batch
from service.pipeline.limits import check_size
from service.settings import Settings

router = APIRouter(tags=["batches"], route_class=Route)

Strategy = Annotated[
    str | None,
    Query(description="one of " + ", ".join(STRATEGIES), json_schema_extra=ONE_OF_STRATEGIES),
]

FormQuery = Annotated[Form | None, Query(description="how a published strategy runs; the graph's")]
Traced = Annotated[bool, Query(description="whether the receipt has a `trace`")]

SMALL_BODY = 4096
"""Bodies up to this size are decoded on the event loop: passing them to a thread takes longer."""

# Reads use the loop's default threads; large batches must not occupy those.
_DECODERS = ThreadPoolExecutor(2, thread_name_prefix="liverank-decode")


def _decode(
    settings: Settings,
    content_type: str | None,
    body: bytes,
    options: GraphOptions,
    on_conflict: OnConflict,
    solve: Solve,
    key: str | None,
    rank_later: bool,
) -> Batch:
    limit = settings.max_body_bytes
    columns = decode_batch(content_type, body, options.keys, limit, options.weighted)
    columns = replace(columns, on_conflict=on_conflict)
    check_size(columns, settings.max_batch_edges, settings.max_key_bytes)
    return Batch.of(columns, body, solve, key, rank_later)


@router.post(
    "/graphs/{graph}/batches",
    response_model=Receipt,
    responses={
        202: {"model": Durable, "description": "Committed; ranks follow"},
        **problems(404, 408, 413, 415, 422, 429, 500, 507),
    },
    openapi_extra=body_of(BatchRequest, others=EXPORTED),
)
async def send_batch(
    request: Request,
    graph: OpenGraph,
    strategy: Strategy = None,
    form: FormQuery = None,
    trace: Traced = False,
    wait: Annotated[Literal["ranked", "durable"], Query(description="when to respond")] = "ranked",
    on_conflict: Annotated[
        OnConflict,
        Query(description="what a weight does to that of a present or repeated edge"),
    ] = "replace",
    rank: Annotated[
        Literal["now", "later"],
        Query(description="later: only apply it, and respond as for wait=durable"),
    ] = "now",
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=255,
            description="a repeat gets the first receipt",
        ),
    ] = None,
) -> Response:
    """Deletes, then inserts; all or nothing. After the response, the batch survives a crash."""
    chosen = graph.options.solve(strategy, form, trace)
    if on_conflict != "replace" and not graph.options.weighted:
        raise InvalidValue("on_conflict", on_conflict, f"left out, because {UNWEIGHTED}")
    graph.pipeline.batches.check(announced_length(request))
    body = await read_body(request)
    decode = partial(
        _decode,
        request.app.state.settings,
        request.headers.get("content-type"),
        body,
        graph.options,
        on_conflict,
        chosen,
        idempotency_key,
        rank == "later",
    )
    if len(body) <= SMALL_BODY:
        batch = decode()
    else:
        # with the context, so that log records of the batch have the request's id
        run = partial(copy_context().run, decode)
        batch = await asyncio.get_running_loop().run_in_executor(_DECODERS, run)
        del run
    del body, decode  # not needed while the batch waits
    release_body(request)
    loop = asyncio.get_running_loop()
    if wait == "durable" or rank == "later":
        durable: asyncio.Future[int] = loop.create_future()
        graph.pipeline.submit(batch, durable=durable)
        return json_response({"version": await durable, "status": "durable"}, 202)
    ranked: asyncio.Future[bytes] = loop.create_future()
    graph.pipeline.submit(batch, ranked=ranked)
    return encoded_response(await ranked)


@router.get(
    "/graphs/{graph}/batches/{version}",
    response_model=Receipt | Rejected | Pending,
    responses=problems(404, 410, 422),
)
async def describe_batch(graph: OpenGraph, version: int) -> Response:
    """The receipt of a batch, the reason of its rejection, or `pending`."""
    outcome = await asyncio.to_thread(graph.pipeline.outcome, version)
    if outcome is None:
        return json_response({"version": version, "status": "pending"})
    if outcome.status != "ranked":
        problem: dict[str, Any] = orjson.loads(outcome.body)
        return json_response({"version": version, "status": outcome.status, "problem": problem})
    return encoded_response(outcome.body)


@router.post(
    "/graphs/{graph}/recompute", response_model=Receipt, responses=problems(404, 422, 429, 507)
)
async def recompute(
    graph: OpenGraph,
    strategy: Strategy = "static",
    form: FormQuery = None,
    trace: Traced = False,
) -> Response:
    """Ranks again: same version, next revision."""
    chosen = graph.options.solve(strategy, form, trace)
    return encoded_response(await asyncio.wrap_future(graph.pipeline.recompute(chosen)))
