"""Personalized PageRank: one query in the path, or many in a body."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Request, Response

from gpu import METHODS, TARGETS, Personalized
from service.http.body import parse_body, read_body
from service.http.conditional import entity_tag, not_modified, tagged_response
from service.http.dependencies import K, OpenGraph, PublishedView, Timeout, Vertex, result_of
from service.http.openapi import body_of, problems
from service.http.responses import encoded_response
from service.http.route import Route
from service.http.routes.ranks import ranked_vertices
from service.http.schemas import PersonalizedAnswer, PersonalizedAnswers, PersonalizedRequest
from service.queries.model import (
    L1_ERROR,
    ONE_OF_METHODS,
    ONE_OF_TARGETS,
    KeyedQuery,
    QueryRequest,
    QueryResponse,
    VertexQueryRequest,
)
from service.queries.view import state_of
from service.vertex_keys import key_from_text

router = APIRouter(tags=["personalized"], route_class=Route)


@router.get(
    "/graphs/{graph}/personalized/{vertex:key}",
    response_model=PersonalizedAnswer,
    responses=problems(404, 422, 429, 504, 507),
)
async def personalized(
    request: Request,
    graph: OpenGraph,
    vertex: Vertex,
    view: PublishedView,
    k: K = 10,
    method: Annotated[
        str, Query(description="one of " + ", ".join(METHODS), json_schema_extra=ONE_OF_METHODS)
    ] = "hybrid",
    target_error: Annotated[
        float | None,
        Query(description="L1 error to reach; the graph's if omitted", json_schema_extra=L1_ERROR),
    ] = None,
    target: Annotated[
        str, Query(description="one of " + ", ".join(TARGETS), json_schema_extra=ONE_OF_TARGETS)
    ] = "error",
    timeout: Timeout = 10.0,
) -> Response:
    """The vertices of highest rank when every walk restarts at this one, best first."""
    # the answer is known without solving, unless a newer version may have another one
    if view.version == graph.pipeline.committed and request.headers.get("if-none-match") != "*":
        known = not_modified(request, entity_tag(request, graph, view.state))
        if known is not None:
            return known
    key = key_from_text(vertex, graph.options.keys)
    query = KeyedQuery(
        seeds={vertex: 1.0}, k=k, method=method, target_error=target_error, target=target
    )
    pending = VertexQueryRequest([query], timeout)
    graph.pipeline.submit_query(pending)
    found = await result_of(pending.answer, graph, request)
    head = {"vertex": key, "version": found.version, "revision": found.revision}
    content = {**head, **answer_body(found.vertices[0], found.answers[0])}
    tag = entity_tag(request, graph, state_of(found.version, found.revision))
    return tagged_response(request, tag, content)


@router.post(
    "/graphs/{graph}/personalized",
    response_model=PersonalizedAnswers,
    responses=problems(404, 413, 422, 504, 507),
    openapi_extra=body_of(PersonalizedRequest),
)
async def personalized_many(
    request: Request, graph: OpenGraph, _view: PublishedView, timeout: Timeout = 10.0
) -> Response:
    """Queries with weighted seeds, answered together and in order, all of one version."""
    body = await read_body(request)
    queries = (await asyncio.to_thread(parse_body, PersonalizedRequest, body)).queries
    pending = QueryRequest(queries, timeout)
    graph.pipeline.submit_query(pending)
    found = await result_of(pending.answer, graph, request)
    return encoded_response(await asyncio.to_thread(_encoded, found))


def _encoded(found: QueryResponse) -> bytes:
    answers = [
        {**answer_body(vertices, answer), "ignored": ignored}
        for vertices, answer, ignored in zip(
            found.vertices, found.answers, found.ignored, strict=True
        )
    ]
    return orjson.dumps({"version": found.version, "revision": found.revision, "answers": answers})


def answer_body(vertices: list[Any], answer: Personalized) -> dict[str, Any]:
    return {
        "error_bound": answer.error_bound,
        "ranks": ranked_vertices(vertices, answer.ranks.tolist()),
        "settled": answer.settled,
        "method": answer.method,
        "iterations": answer.iterations,
    }
