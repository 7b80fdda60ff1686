"""PageRank as seen from a few vertices: one query in the path, or many in a body."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Query, Response
from fastapi import Request as HttpRequest

from gpu import Personalized
from gpu.personalized import METHODS, TARGETS
from service.catalog import Graph
from service.http.parameters import (
    OpenGraph,
    PublishedView,
    Seconds,
    Vertex,
    body_of,
    json_answer,
    key_of,
    parse_body,
    problems,
    read_body,
    seeds_of,
    stored_answer,
)
from service.http.route import DirectRoute
from service.http.routes.ranks import K, ranked_vertices
from service.http.schemas import (
    AN_ERROR,
    ONE_OF_METHODS,
    ONE_OF_TARGETS,
    PersonalizedAnswer,
    PersonalizedAnswers,
    PersonalizedRequest,
)
from service.queries.model import Answer, Answered, KeyedQuery, Request, Waiting

router = APIRouter(tags=["personalized"], route_class=DirectRoute)

_GONE_SECONDS = 0.1
"""How often it is looked whether who asked is still there."""

UNREAD = Response(status_code=499)
"""For a client that is gone: 499, as nginx has it in its log."""


@router.get(
    "/graphs/{graph}/personalized/{vertex:key}",
    response_model=PersonalizedAnswer,
    responses=problems(404, 422, 429, 504, 507),
)
async def personalized(
    http: HttpRequest,
    graph: OpenGraph,
    vertex: Vertex,
    _view: PublishedView,
    k: K = 10,
    method: Annotated[
        str, Query(description="one of " + ", ".join(METHODS), json_schema_extra=ONE_OF_METHODS)
    ] = "hybrid",
    target_error: Annotated[
        float | None,
        Query(
            description="L1 error to reach; the graph's own where omitted",
            json_schema_extra=AN_ERROR,
        ),
    ] = None,
    target: Annotated[
        str, Query(description="one of " + ", ".join(TARGETS), json_schema_extra=ONE_OF_TARGETS)
    ] = "error",
    timeout: Seconds = 10.0,
) -> Response:
    """The vertices that rank highest when every walk restarts at this one, best first."""
    key = key_of(vertex, graph.options.keys)
    query = KeyedQuery(key, None, k, method, target_error, target)
    found = await answered(http, graph, Request([query], timeout))
    if found is None:
        return UNREAD
    head = {"vertex": key[0].as_py(), "version": found.version, "revision": found.revision}
    return json_answer({**head, **answer_body(found.vertices[0], found.answers[0])})


@router.post(
    "/graphs/{graph}/personalized",
    response_model=PersonalizedAnswers,
    responses=problems(404, 413, 422, 504, 507),
    openapi_extra=body_of(PersonalizedRequest),
)
async def personalized_many(
    http: HttpRequest, graph: OpenGraph, _view: PublishedView, timeout: Seconds = 10.0
) -> Response:
    """Queries with weighted seeds, answered together and in order, all of one version."""
    body = await read_body(http)
    queries = await asyncio.to_thread(_parsed, body, graph)
    found = await answered(http, graph, Request(queries, timeout))
    if found is None:
        return UNREAD
    return stored_answer(await asyncio.to_thread(_encoded, found))


def _parsed(body: bytes, graph: Graph) -> list[KeyedQuery]:
    queries = []
    for place, asked in enumerate(parse_body(PersonalizedRequest, body).queries):
        name = f"queries[{place}]."
        seeds, weights = seeds_of(asked.seeds, graph.options.keys, f"{name}seeds")
        queries.append(
            KeyedQuery(
                seeds, weights, asked.k, asked.method, asked.target_error, asked.target, name
            )
        )
    return queries


def _encoded(found: Answered) -> bytes:
    answers = [
        answer_body(vertices, answer)
        for vertices, answer in zip(found.vertices, found.answers, strict=True)
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


async def answered(http: HttpRequest, graph: Graph, request: Waiting[Answer]) -> Answer | None:
    """Waits for an answer; None, and the request is given up, where the client has gone away."""
    graph.pipeline.ask(request)
    answer = asyncio.wrap_future(request.answered)
    try:
        while not (await asyncio.wait({answer}, timeout=_GONE_SECONDS))[0]:
            if await http.is_disconnected():
                break
        else:
            return answer.result()
    finally:
        answer.cancel()
    return None
