"""Batches of edges: send one, look up its outcome, rank again."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Header, Request, Response

from liverank.options import BatchOptions, RangeOptions, RecomputeOptions
from liverank_gpu import InvalidValue
from liverank_service.formats import EXPORTED
from liverank_service.formats.columns import SourceRange
from liverank_service.formats.decode import decode_batch
from liverank_service.formats.values import UNWEIGHTED
from liverank_service.http.body import check_limits, durable, ranked, received
from liverank_service.http.dependencies import OpenGraph
from liverank_service.http.openapi import body_of, problems
from liverank_service.http.responses import encoded_response, json_response
from liverank_service.http.route import Route
from liverank_service.http.schemas import (
    BatchRequest,
    Durable,
    Pending,
    Receipt,
    Rejected,
    query_of,
)
from liverank_service.pipeline.batch import Batch

router = APIRouter(tags=["batches"], route_class=Route)


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
    options: Annotated[BatchOptions, query_of(BatchOptions)],
    given: Annotated[SourceRange | None, query_of(RangeOptions, _range)],
    idempotency_key: Annotated[
        str | None,
        Header(
            alias="Idempotency-Key",
            min_length=1,
            max_length=255,
            description="a repeat is not applied again; it gets the first receipt",
        ),
    ] = None,
) -> Response:
    """Deletes, then inserts; all or nothing. After the response, the batch survives a crash."""
    strategy, form, trace = options.strategy, options.form, options.trace
    for name, value in (("strategy", strategy), ("form", form), ("trace", trace)):
        if options.rank == "later" and value:
            raise InvalidValue(name, value, "left out, because rank is 'later'")
    kind = graph.options
    chosen = kind.solve(strategy, form, trace)
    if options.on_conflict != "replace" and not kind.weighted:
        expected = f"left out, because {UNWEIGHTED}"
        raise InvalidValue("on_conflict", options.on_conflict, expected)
    content_type = request.headers.get("content-type")
    limit = request.app.state.settings.max_body_bytes

    def decode(body: bytes) -> Batch:
        adds = options.on_conflict == "add"
        attributes = kind.attributes(time.time(), adds)
        columns = decode_batch(content_type, body, kind.keys, limit, attributes)
        if adds or given is not None:
            columns = replace(columns, on_conflict=options.on_conflict, range=given)
        check_limits(request, columns)
        return Batch.of(columns, body, chosen, idempotency_key, options.rank == "later")

    batch = await received(request, graph, decode)
    if options.wait == "durable" or options.rank == "later":
        return json_response({"version": await durable(graph, batch), "status": "durable"}, 202)
    return encoded_response(await ranked(graph, batch))


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
    graph: OpenGraph, options: Annotated[RecomputeOptions, query_of(RecomputeOptions)]
) -> Response:
    """Ranks again, by `static`, or `auto` to prove places: same version, next revision."""
    strategy, form, trace = options.strategy, options.form, options.trace
    if options.target == "error":
        if options.k is not None:
            raise InvalidValue("k", options.k, "left out, because target is 'error'")
        chosen = graph.options.solve("static" if strategy is None else strategy, form, trace)
    else:
        strategy, k = "auto" if strategy is None else strategy, options.k or 10
        chosen = graph.options.solve(strategy, form, trace, k, options.target)
    return encoded_response(await asyncio.wrap_future(graph.pipeline.recompute(chosen)))
