"""Named graphs: create, list, describe, checkpoint, drop."""

from __future__ import annotations

import asyncio
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Path, Request, Response
from msgspec.structs import asdict

from liverank.options import MAX_POSITION
from liverank_gpu import InvalidValue
from liverank_service.catalog import Graph
from liverank_service.graph_options import NAME, requested_options
from liverank_service.http.body import or_nothing, parsed_body, read_body
from liverank_service.http.dependencies import (
    OpenCatalog,
    OpenGraph,
    graphs_of,
    in_order,
    known_graphs,
    result_of,
)
from liverank_service.http.openapi import body_of, problems
from liverank_service.http.responses import json_response, response_by_content
from liverank_service.http.route import Route
from liverank_service.http.schemas import (
    CheckpointTaken,
    ConsumerRequest,
    GraphInfo,
    GraphList,
    GraphRequest,
    SourceList,
)

router = APIRouter(tags=["graphs"], route_class=Route)

NewName = Annotated[
    str,
    Path(description="name of a graph", json_schema_extra={"pattern": f"^{NAME.pattern}$"}),
]


def _describe(graph: Graph) -> dict[str, Any]:
    view, shards = graph.pipeline.view, graph.pipeline.shards
    document = {
        "graph": graph.name,
        "version": view.version,
        "revision": view.revision,
        "vertices": view.vertices,
        "edges": view.edges,
        "error_bound": view.error_bound,
        "backend": graph.pipeline.backend,
        "options": asdict(graph.options),
        "memory": graph.memory,
    }
    if shards.count:
        document["shards"] = shards.document()
    if (delay := graph.pipeline.expiry_delay) is not None:
        document["expiry_delay"] = asdict(delay)
    return document


@router.put(
    "/graphs/{graph}",
    response_model=GraphInfo,
    responses={
        201: {"model": GraphInfo, "description": "Created"},
        **problems(408, 409, 413, 415, 422, 507),
    },
    openapi_extra=body_of(GraphRequest, required=False),
)
async def create_graph(request: Request, graph: NewName, catalog: OpenCatalog) -> Response:
    """Creates the graph (201), or finds it with the same options (200).

    Omitted options have their defaults on creation, and are not compared later.
    """
    body = or_nothing(await read_body(request))
    given = (await parsed_body(GraphRequest, body)).model_dump(exclude_unset=True)
    requested_options(graph, given)  # a wrong one need not wait for another's compilation
    created, is_new = await in_order(catalog, catalog.create, graph, given)
    return json_response(_describe(created), 201 if is_new else 200)


@router.get("/graphs", response_model=GraphList, responses=problems())
async def list_graphs(request: Request, catalog: OpenCatalog) -> Response:
    """All graphs that the API key is valid for, by name."""
    return json_response({"graphs": [_describe(graph) for graph in graphs_of(request, catalog)]})


@router.get("/graphs/{graph}", response_model=GraphInfo, responses=problems(404, 422))
async def describe_graph(request: Request, graph: OpenGraph) -> Response:
    """Size, options, error bound and memory of the newest published version."""
    return response_by_content(request, graph, orjson.dumps(_describe(graph)))


@router.get("/graphs/{graph}/sources", response_model=SourceList, responses=problems(404, 422, 429))
async def list_sources(request: Request, graph: OpenGraph) -> Response:
    """The position that the committed batches have reached in each partition of each external
    source, and what its consumers report.
    """
    positions = await result_of(graph.pipeline.source_positions(), graph, request)
    sources = [asdict(one) for one in positions]
    consumers = [asdict(one) for one in graph.consumers.newest]
    content = orjson.dumps({"sources": sources, "consumers": consumers})
    return response_by_content(request, graph, content)


@router.put(
    "/graphs/{graph}/consumers/{source:key}",
    status_code=204,
    responses=problems(404, 408, 413, 415, 422),
    openapi_extra=body_of(ConsumerRequest),
)
async def report_consumer(
    request: Request,
    graph: OpenGraph,
    source: Annotated[str, Path(description="name of a source")],
) -> Response:
    """A consumer of an external source reports its state, for `GET /graphs/{graph}/sources` and
    `/readyz`, until the report expires.
    """
    if not 1 <= len(source) <= MAX_POSITION:
        raise InvalidValue("source", source, f"a text of 1 to {MAX_POSITION} characters")
    given = await parsed_body(ConsumerRequest, await read_body(request))
    graph.consumers.report(source, given.consumer, given.state, given.reason, given.seconds)
    return Response(status_code=204)


@router.post(
    "/graphs/{graph}/checkpoint", response_model=CheckpointTaken, responses=problems(404, 422, 507)
)
async def take_checkpoint(graph: OpenGraph) -> Response:
    """Writes a checkpoint of what is committed, so that a restart has nothing to replay."""
    taken = await asyncio.wrap_future(graph.pipeline.checkpoint())
    return json_response(asdict(taken))


@router.delete("/graphs/{graph}", status_code=204, responses=problems(404, 422))
async def drop_graph(request: Request, graph: str, catalog: OpenCatalog) -> Response:
    """Closes the graph and removes its files."""
    with known_graphs(request, catalog):
        await in_order(catalog, catalog.drop, graph)
    return Response(status_code=204)
