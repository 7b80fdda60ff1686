"""The edges of a graph: all of them, those of a vertex, and those among some vertices."""

from __future__ import annotations

import asyncio
from typing import Annotated, Literal

from fastapi import APIRouter, Query, Request, Response

from liverank.options import MAX_K, RanksOptions
from liverank_service.errors import NotPublishedInTime
from liverank_service.http.body import count_places
from liverank_service.http.dependencies import (
    Committed,
    K,
    OpenGraph,
    Timeout,
    Vertex,
    answer_of,
    result_of,
    seen_of,
)
from liverank_service.http.exports import Made, exported
from liverank_service.http.openapi import EXPORT, body_of, problems
from liverank_service.http.responses import (
    FEW_ROWS,
    entity_tag,
    json_response,
    tagged_response,
)
from liverank_service.http.route import Route
from liverank_service.http.routes.ranks import vertices_of
from liverank_service.http.schemas import (
    ExplainedAnswer,
    NeighborsAnswer,
    SubgraphAnswer,
    VerticesRequest,
    parameter_of,
)
from liverank_service.queries.exports import edges_export
from liverank_service.vertex_keys import key_from_text

router = APIRouter(tags=["edges"], route_class=Route)


@router.get(
    "/graphs/{graph}/edges",
    response_class=Response,
    responses={**EXPORT, **problems(404, 406, 422, 429, 504, 507)},
)
async def export_edges(request: Request, graph: OpenGraph, _committed: Committed) -> Response:
    """All edges of one version, streamed. Batches wait only while they are copied in memory."""

    def make() -> Made:
        copy = graph.pipeline.edges.copy()
        export = edges_export(copy.edges, copy.keys, copy.version, copy.weighted)
        return Made(export, f"{copy.version}", copy)

    return await exported(request, graph, f"{graph.pipeline.committed}", make)


@router.get(
    "/graphs/{graph}/neighbors/{vertex:key}",
    response_model=NeighborsAnswer,
    responses=problems(404, 413, 422, 429, 504),
)
async def neighbors(
    request: Request,
    graph: OpenGraph,
    vertex: Vertex,
    _committed: Committed,
    direction: Annotated[
        Literal["out", "in"], Query(description="out: targets of its edges; in: sources")
    ] = "out",
    limit: Annotated[int, Query(ge=1, le=MAX_K, description="neighbours in the response")] = 100,
    timeout: Timeout = 10.0,
) -> Response:
    """Neighbours of one vertex, read between two batches."""
    key = key_from_text(vertex, graph.options.keys)
    count_places(request, min(limit, graph.pipeline.view.vertices), "limit")
    reading = graph.pipeline.edges.neighbours(key, direction, limit)
    found = await answer_of(reading, graph, request, timeout)

    def respond() -> Response:
        content = {
            "vertex": key,
            "version": found.version,
            "direction": direction,
            "degree": found.degree,
            "neighbors": found.rows(),
        }
        return tagged_response(request, entity_tag(request, graph, f"{found.version}"), content)

    return respond() if len(found.keys) <= FEW_ROWS else await asyncio.to_thread(respond)


@router.get(
    "/graphs/{graph}/explain/{vertex:key}",
    response_model=ExplainedAnswer,
    responses=problems(404, 409, 413, 422, 429, 504, 507),
)
async def explain(
    request: Request,
    graph: OpenGraph,
    vertex: Vertex,
    _committed: Committed,
    k: K = 10,
    view: Annotated[str | None, parameter_of(RanksOptions, "view")] = None,
    timeout: Timeout = 10.0,
) -> Response:
    """What the rank of one vertex consists of: ranks and edges of one version, read between two
    batches. Waits for the ranks of batches that are not ranked yet.
    """
    key, pipeline = key_from_text(vertex, graph.options.keys), graph.pipeline
    count_places(request, min(k, pipeline.view.vertices), "k")
    await seen_of(request, graph, pipeline.view, view, timeout)  # which may solve it
    committed = pipeline.committed
    try:
        async with asyncio.timeout(timeout):
            while True:
                reading = pipeline.edges.steps_to(key, lambda: pipeline.view, view)
                read = await result_of(reading, graph, request)
                if read.found is not None:
                    break
                committed = read.version
                await result_of(pipeline.published(committed), graph, request)
    except TimeoutError:
        newest = pipeline.view.version
        raise NotPublishedInTime("min_version", committed, newest, "published", timeout) from None
    seen, found = read.view, read.found

    def respond() -> Response:
        content = {"vertex": key, **seen.facts, **read.document(k)}
        return tagged_response(request, entity_tag(request, graph, seen.state), content)

    return respond() if len(found[0]) <= FEW_ROWS else await asyncio.to_thread(respond)


@router.post(
    "/graphs/{graph}/subgraph",
    response_model=SubgraphAnswer,
    responses=problems(404, 408, 413, 415, 422, 429, 504),
    openapi_extra=body_of(VerticesRequest),
)
async def subgraph(
    request: Request, graph: OpenGraph, _committed: Committed, timeout: Timeout = 10.0
) -> Response:
    """The edges among some vertices, read between two batches."""
    vertices = await vertices_of(request, graph)
    found = await answer_of(graph.pipeline.edges.subgraph(vertices), graph, request, timeout)

    return await asyncio.to_thread(lambda: json_response(found.document()))
