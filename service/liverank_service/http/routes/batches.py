"""Batches of edges: send one, look up its outcome, rank again."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Annotated, Any, Literal

import orjson
from fastapi import APIRouter, Header, Query, Request, Response

from liverank_gpu import STRATEGIES, Form, InvalidValue, OnConflict, Target
from liverank_service.formats.decode import decode_batch
from liverank_service.formats.media_types import EXPORTED
from liverank_service.formats.source_ranges import MAX_LENGTH, SourceRange
from liverank_service.formats.weights import UNWEIGHTED
from liverank_service.http.batch_requests import check_limits, durable, ranked, received
from liverank_service.http.dependencies import OpenGraph
from liverank_service.http.openapi import body_of, problems
from liverank_service.http.responses import encoded_response, json_response
from liverank_service.http.route import Route
from liverank_service.http.schemas import (
    ONE_OF_STRATEGIES,
    BatchRequest,
    Durable,
    Pending,
    Receipt,
    Rejected,
)
from liverank_service.pipeline.batch import Batch
from liverank_service.queries.model import MAX_K

router = APIRouter(tags=["batches"], route_class=Route)

Strategy = Annotated[
    str | None,
    Query(description="one of " + ", ".join(STRATEGIES), json_schema_extra=ONE_OF_STRATEGIES),
]

FormQuery = Annotated[Form | None, Query(description="how a published strategy runs; the graph's")]
Traced = Annotated[bool, Query(description="whether the receipt has a `trace`")]


@router.post(
    "/graphs/{graph}/batches",
    response_model=Receipt,
    responses={
        202: {"model": Durable, "description": "Committed; ranks follow"},
        **problems(404, 408, 409, 413, 415, 422, 429, 500, 507),
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
    source: Annotated[
        str | None,
        Query(
            min_length=1,
            max_length=MAX_LENGTH,
            description="the external source that the batch continues",
        ),
    ] = None,
    partition: Annotated[str, Query(max_length=MAX_LENGTH, description="of `source`")] = "",
    begin: Annotated[
        str | None,
        Query(
            alias="from",
            min_length=1,
            max_length=MAX_LENGTH,
            description="the stored position of the partition; none: it has none yet",
        ),
    ] = None,
    end: Annotated[
        str | None,
        Query(
            alias="to",
            min_length=1,
            max_length=MAX_LENGTH,
            description="the position after the batch; with `source`",
        ),
    ] = None,
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
    for name, value in (("strategy", strategy), ("form", form), ("trace", trace)):
        if rank == "later" and value:
            raise InvalidValue(name, value, "left out, because rank is 'later'")
    given = _range(source, partition, begin, end)
    chosen = graph.options.solve(strategy, form, trace)
    if on_conflict != "replace" and not graph.options.weighted:
        raise InvalidValue("on_conflict", on_conflict, f"left out, because {UNWEIGHTED}")
    content_type, options = request.headers.get("content-type"), graph.options
    limit = request.app.state.settings.max_body_bytes

    def decode(body: bytes) -> Batch:
        rule = options.time_rule(time.time())
        adds = on_conflict == "add"
        columns = decode_batch(
            content_type, body, options.keys, limit, options.weighted, rule, adds
        )
        columns = replace(columns, on_conflict=on_conflict, range=given)
        check_limits(request, columns)
        return Batch.of(columns, body, chosen, idempotency_key, rank == "later")

    batch = await received(request, graph, decode)
    if wait == "durable" or rank == "later":
        return json_response({"version": await durable(graph, batch), "status": "durable"}, 202)
    return encoded_response(await ranked(graph, batch))


def _range(
    source: str | None, partition: str, begin: str | None, end: str | None
) -> SourceRange | None:
    """None without a source. Raises InvalidValue if only some of the parameters are given."""
    if source is None:
        for name, value in (("partition", partition), ("from", begin), ("to", end)):
            if value:
                raise InvalidValue(name, value, "left out, because there is no source")
        return None
    if end is None or end == begin:
        raise InvalidValue("to", end, "given with source, and another position than from")
    return SourceRange(source, partition, begin, end)


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
    strategy: Strategy = None,
    form: FormQuery = None,
    trace: Traced = False,
    target: Annotated[
        Target,
        Query(
            description="`settled-top-k`: go on until the first k places are proven too; "
            "`settled-set`: until it is proven which vertices have them, in any order"
        ),
    ] = "error",
    k: Annotated[
        int | None, Query(ge=1, le=MAX_K, description="of settled-top-k and settled-set; 10")
    ] = None,
) -> Response:
    """Ranks again, by `static`, or `auto` to prove places: same version, next revision."""
    if target == "error":
        if k is not None:
            raise InvalidValue("k", k, "left out, because target is 'error'")
        chosen = graph.options.solve("static" if strategy is None else strategy, form, trace)
    else:
        chosen = graph.options.solve(
            "auto" if strategy is None else strategy, form, trace, k or 10, target
        )
    return encoded_response(await asyncio.wrap_future(graph.pipeline.recompute(chosen)))
