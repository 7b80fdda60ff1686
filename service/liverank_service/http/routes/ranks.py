"""Ranks of the newest published version: of one vertex, of many, the highest, and all."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
from fastapi import APIRouter, Query, Request, Response
from numpy.typing import NDArray

from liverank_gpu import rank_error
from liverank_service.catalog import Graph
from liverank_service.errors import UnknownVertex
from liverank_service.formats import EXPORTED, JSON
from liverank_service.formats.decode import decode_vertices
from liverank_service.formats.encode import json_objects, json_values
from liverank_service.http.body import count_places, read_body, release_body
from liverank_service.http.dependencies import K, OpenGraph, SeenRanks, Vertex
from liverank_service.http.exports import ExportResponse, Made, exported
from liverank_service.http.openapi import EXPORT, answered, body_of, problems
from liverank_service.http.responses import (
    FEW_ROWS,
    cache_headers,
    entity_tag,
    export_form,
    json_response,
    not_modified,
    tagged_response,
)
from liverank_service.http.route import Route
from liverank_service.http.schemas import RankAnswer, RanksAnswer, TopAnswer, VerticesRequest
from liverank_service.queries.exports import ranks_export, top_export
from liverank_service.vertex_keys import key_from_text

router = APIRouter(tags=["ranks"], route_class=Route)


def ranked_vertices(vertices: pa.Array, ranks: NDArray[np.float64]) -> Any:
    """The member `ranks` of a list of places, for orjson."""
    return json_objects({"vertex": vertices, "rank": ranks})


@router.get(
    "/graphs/{graph}/ranks/{vertex:key}",
    response_model=RankAnswer,
    responses=problems(404, 409, 422, 429, 504, 507),
)
async def rank_of_vertex(
    request: Request, graph: OpenGraph, vertex: Vertex, view: SeenRanks
) -> Response:
    """The rank of one vertex; the key may contain slashes."""
    key = key_from_text(vertex, graph.options.keys)
    rank = view.rank(key)
    if rank is None:
        raise UnknownVertex(graph.name, key)
    content = {"vertex": key, "rank": rank, **view.facts}
    return tagged_response(request, entity_tag(request, graph, view.state), content)


@router.get(
    "/graphs/{graph}/ranks",
    response_class=Response,
    responses={**EXPORT, **problems(404, 406, 409, 422, 429, 504, 507)},
)
async def export_ranks(request: Request, graph: OpenGraph, view: SeenRanks) -> Response:
    """The ranks of all vertices, all of one revision, streamed; batches do not wait for it."""
    return await exported(request, graph, view.state, lambda: Made(ranks_export(view), view.state))


@router.post(
    "/graphs/{graph}/ranks",
    response_model=RanksAnswer,
    responses=problems(404, 408, 409, 413, 415, 422, 429, 504, 507),
    openapi_extra=body_of(VerticesRequest),
)
async def ranks_of_vertices(request: Request, graph: OpenGraph, view: SeenRanks) -> Response:
    """The ranks of many vertices, in order; null for an unknown vertex."""
    vertices = await vertices_of(request, graph)

    def respond() -> Response:
        return json_response({**view.facts, "ranks": json_values(view.ranks_of(vertices))})

    return await asyncio.to_thread(respond)


async def vertices_of(request: Request, graph: Graph) -> pa.Array:
    """The keys in the body of a request, which are the places of its answer."""
    body, content_type = await read_body(request), request.headers.get("content-type")
    vertices = await asyncio.to_thread(decode_vertices, content_type, body, graph.options.keys)
    release_body(request)
    count_places(request, len(vertices), "vertices")
    return vertices


@router.get(
    "/graphs/{graph}/top",
    response_model=TopAnswer,
    responses={**answered(*EXPORTED), **problems(404, 406, 409, 413, 422, 429, 504, 507)},
)
async def top(
    request: Request,
    graph: OpenGraph,
    view: SeenRanks,
    k: K = 10,
    offset: Annotated[int, Query(ge=0, description="places to skip")] = 0,
    among: Annotated[str | None, Query(description="name of a set: only its vertices")] = None,
) -> Response:
    """The vertices of highest rank, best first; equal ranks in order of first appearance. JSON, or
    the vertices and ranks alone in a format of the exports.
    """
    media_type, coding = export_form(request, (JSON, *EXPORTED))
    count_places(request, min(k, view.vertices), "k")

    def respond() -> Response:
        members = None if among is None else view.members(among)
        places = view.top(k, offset, members)
        tag = entity_tag(request, graph, view.state, media_type, coding)
        if media_type != JSON:
            table = top_export(view, places)
            return not_modified(request, tag) or ExportResponse(
                request, table, media_type, coding, cache_headers(tag)
            )
        content = {
            **view.facts,
            "ranks": ranked_vertices(places.vertices, places.ranks),
            "rank_error": rank_error(view.error_bound),
            "settled": places.settled,
            "settled_set": places.settled_set,
            "groups": places.groups,
            "ties": places.ties,
        }
        return tagged_response(request, tag, content)

    is_short = among is None and k <= FEW_ROWS and view.top_is_known(k, offset)
    return respond() if is_short else await asyncio.to_thread(respond)
