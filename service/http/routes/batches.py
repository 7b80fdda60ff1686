"""Batches of edges: send one, see how one went, rank again."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from functools import partial
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Header, Query, Request, Response

from gpu import STRATEGIES
from service.catalog import check_strategy
from service.formats.decode import decode_batch
from service.http.parameters import (
    OpenGraph,
    body_of,
    json_answer,
    problems,
    read_body,
    release_body,
    stored_answer,
)
from service.http.route import DirectRoute
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
from service.vertex_keys.table import KeyKind

router = APIRouter(tags=["batches"], route_class=DirectRoute)

Strategy = Annotated[
    str | None,
    Query(description="one of " + ", ".join(STRATEGIES), json_schema_extra=ONE_OF_STRATEGIES),
]


SMALL_BODY = 4096
"""Bytes of a body that is decoded at once: sending it to another thread takes longer."""

# Readers use the loop's own threads; writers who send a lot must not keep them waiting.
_DECODERS = ThreadPoolExecutor(2, thread_name_prefix="liverank-decode")


def _prepare(
    settings: Settings,
    content_type: str | None,
    body: bytes,
    kind: KeyKind,
    strategy: str,
    key: str | None,
) -> Batch:
    columns = decode_batch(content_type, body, kind, settings.max_body_bytes)
    check_size(columns, settings.max_batch_edges, settings.max_key_bytes)
    return Batch.of(columns, body, strategy, key)


@router.post(
    "/graphs/{graph}/batches",
    response_model=Receipt,
    responses={
        202: {"model": Durable, "description": "Committed; ranks follow"},
        **problems(404, 408, 413, 415, 422, 429, 500, 507),
    },
    openapi_extra=body_of(BatchRequest),
)
async def send_batch(
    request: Request,
    graph: OpenGraph,
    strategy: Strategy = None,
    wait: Annotated[
        Literal["ranked", "durable"], Query(description="what to wait for before the answer")
    ] = "ranked",
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
    """Deletes, then inserts. Taken whole or not at all; it survives a crash from the answer on."""
    chosen = graph.options.strategy if strategy is None else strategy
    check_strategy(chosen)
    announced = request.headers.get("content-length", "0")
    graph.pipeline.batches.check(int(announced) if announced.isdecimal() else 0)
    body = await read_body(request)
    content_type = request.headers.get("content-type")
    small = len(body) <= SMALL_BODY
    prepare = partial(
        _prepare,
        request.app.state.settings,
        content_type,
        body,
        graph.options.keys,
        chosen,
        idempotency_key,
    )
    del body
    if small:
        batch = prepare()
    else:
        # The context goes along: what is logged for the batch carries the request's id.
        run = partial(copy_context().run, prepare)
        batch = await asyncio.get_running_loop().run_in_executor(_DECODERS, run)
        del run
    del prepare
    release_body(request)
    graph.pipeline.submit(batch)
    if wait == "durable":
        version = await batch.durable.arrival()
        return json_answer({"version": version, "status": "durable"}, 202)
    return stored_answer(await batch.ranked.arrival())


@router.get(
    "/graphs/{graph}/batches/{version}",
    response_model=Receipt | Rejected | Pending,
    responses=problems(404, 410, 422),
)
async def describe_batch(graph: OpenGraph, version: int) -> Response:
    """The receipt of a batch, why it was rejected, or that it is pending."""
    outcome = await asyncio.to_thread(graph.pipeline.outcome, version)
    if outcome is None:
        return json_answer({"version": version, "status": "pending"})
    if outcome.status != "ranked":
        problem: dict[str, Any] = orjson.loads(outcome.body)
        return json_answer({"version": version, "status": outcome.status, "problem": problem})
    return stored_answer(outcome.body)


@router.post(
    "/graphs/{graph}/recompute", response_model=Receipt, responses=problems(404, 422, 429, 507)
)
async def recompute(graph: OpenGraph, strategy: Strategy = "static") -> Response:
    """Ranks again: the same version, the next revision."""
    chosen = graph.options.strategy if strategy is None else strategy
    check_strategy(chosen)
    return stored_answer(await graph.pipeline.recompute(chosen).arrival())
