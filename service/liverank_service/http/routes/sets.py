"""Named sets of vertices, which batches change."""

from __future__ import annotations

import asyncio
from typing import Annotated

import orjson
from fastapi import APIRouter, Request, Response

from liverank_service.catalog import Graph
from liverank_service.formats.columns import MAX_SET_NAME, EdgeColumns, SetChange, check_set_name
from liverank_service.formats.decode import decode_vertices
from liverank_service.formats.encode import json_values
from liverank_service.formats.values import EMPTY
from liverank_service.http.body import check_limits, context_of, limit_of, ranked, received
from liverank_service.http.dependencies import OpenGraph, PublishedView, name_of
from liverank_service.http.openapi import body_of, problems
from liverank_service.http.responses import json_response, response_by_content
from liverank_service.http.route import Route
from liverank_service.http.schemas import SetAnswer, SetMembers, VerticesRequest
from liverank_service.pipeline.batch import Batch

router = APIRouter(tags=["sets"], route_class=Route)

Name = Annotated[str, name_of("a set", MAX_SET_NAME)]


@router.put(
    "/graphs/{graph}/sets/{name}",
    response_model=SetAnswer,
    responses=problems(404, 408, 413, 415, 422, 429, 500, 507),
    openapi_extra=body_of(VerticesRequest),
)
async def put_set(request: Request, graph: OpenGraph, name: Name) -> Response:
    """Creates the set, or gives it other vertices. This is a batch, with a version."""
    check_set_name(name, "name")
    content_type, kind = request.headers.get("content-type"), graph.options.keys

    def decode(body: bytes) -> tuple[Batch, int]:
        vertices = decode_vertices(content_type, body, kind)
        change = SetChange(vertices, vertices[:0], "replace")
        return _batch(request, graph, name, change), len(vertices.unique())

    batch, size = await received(request, graph, decode)
    receipt = orjson.loads(await ranked(graph, batch))
    published = {name: receipt[name] for name in ("version", "revision")}
    return json_response({"name": name, "size": size, **published})


@router.get(
    "/graphs/{graph}/sets/{name}", response_model=SetMembers, responses=problems(404, 422, 504)
)
async def read_set(request: Request, graph: OpenGraph, name: Name, view: PublishedView) -> Response:
    """The vertices of a set, in order of first appearance."""
    ids = view.members(name, "name")
    limit_of(request).copy(context_of(request), len(ids))

    def respond() -> Response:
        content = {
            "name": name,
            "size": len(ids),
            "version": view.version,
            "revision": view.revision,
            "vertices": json_values(view.keys.keys(ids)),
        }
        return response_by_content(request, graph, orjson.dumps(content))

    return await asyncio.to_thread(respond)


@router.delete(
    "/graphs/{graph}/sets/{name}", status_code=204, responses=problems(404, 422, 429, 500, 507)
)
async def drop_set(request: Request, graph: OpenGraph, name: Name) -> Response:
    """Removes a set; its vertices stay. This is a batch, with a version."""
    graph.pipeline.view.members(name, "name")
    nothing = EMPTY[graph.options.keys]
    await ranked(graph, _batch(request, graph, name, SetChange(nothing, nothing, "drop")))
    return Response(status_code=204)


def _batch(request: Request, graph: Graph, name: str, change: SetChange) -> Batch:
    """A batch that changes a set as a whole. Raises BatchTooLarge, BodyTooLarge, FormatError."""
    no = EMPTY[graph.options.keys]
    columns = EdgeColumns(no, no, no, no, no, sets={name: change})
    check_limits(request, columns)
    return Batch.of(columns, b"", graph.options.solve())
