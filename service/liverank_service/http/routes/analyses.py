"""Analyses: programs that run on one version of a graph, between its batches."""

from __future__ import annotations

import asyncio
from typing import Annotated

import orjson
from fastapi import APIRouter, Path, Query, Request, Response

from liverank.choices import Order, ValuesOf
from liverank_gpu import PROGRAMS
from liverank_service.catalog import Graph
from liverank_service.errors import NoAnswer
from liverank_service.formats.encode import json_objects
from liverank_service.http.body import count_places, or_nothing, parsed_body, read_body
from liverank_service.http.dependencies import (
    K,
    OpenCatalog,
    OpenGraph,
    Vertex,
    in_order,
    result_of,
)
from liverank_service.http.exports import Made, exported
from liverank_service.http.openapi import EXPORT, body_of, problems
from liverank_service.http.responses import json_response, response_by_content
from liverank_service.http.route import Route
from liverank_service.http.schemas import (
    AnalysisInfo,
    AnalysisList,
    AnalysisRequest,
    AnalysisStarted,
    TopValues,
    ValueAnswer,
)
from liverank_service.queries.analyses import Analysis, AnalysisAnswer, checked_parameters
from liverank_service.queries.exports import values_export
from liverank_service.vertex_keys import key_from_text

router = APIRouter(tags=["analyses"], route_class=Route)

Program = Annotated[
    str,
    Path(
        description="name of a program, built in or of a user",
        json_schema_extra={"examples": list(PROGRAMS)},
    ),
]
Identity = Annotated[str, Path(description="id of an analysis")]
Of = Annotated[
    ValuesOf | None,
    Query(description="whose values, of a user's program with both; default: those of vertices"),
]


@router.post(
    "/graphs/{graph}/analyses/{analysis}",
    status_code=202,
    response_model=AnalysisStarted,
    responses=problems(403, 404, 408, 409, 413, 422, 429, 507),
    openapi_extra=body_of(AnalysisRequest, required=False),
)
async def start_analysis(
    request: Request, catalog: OpenCatalog, graph: OpenGraph, analysis: Program
) -> Response:
    """Runs a program on the graph as the committed batches have made it."""
    given = await parsed_body(AnalysisRequest, or_nothing(await read_body(request)))
    program = catalog.programs.named(analysis)
    parameters = checked_parameters(program, given.parameters, graph.options.keys)
    await in_order(catalog, catalog.warm_up_program, graph, program, given.mode)
    wanted = (analysis, parameters, given.fresh, given.mode, given.limits, given.save_every)
    started = graph.pipeline.call(lambda writer: writer.analyses.start(*wanted))
    identity = await asyncio.wrap_future(started)
    response = json_response({"id": identity}, 202)
    response.headers["Location"] = f"/graphs/{graph.name}/analyses/{identity}"
    return response


@router.get("/graphs/{graph}/analyses", response_model=AnalysisList, responses=problems(404, 422))
async def list_analyses(request: Request, graph: OpenGraph) -> Response:
    """All analyses of the graph, in the order of their requests."""
    documents = [one.document() for one in graph.analyses.all()]
    return response_by_content(request, graph, orjson.dumps({"analyses": documents}))


@router.get(
    "/graphs/{graph}/analyses/{analysis}",
    response_model=AnalysisInfo,
    responses=problems(404, 422),
)
async def read_analysis(
    request: Request,
    graph: OpenGraph,
    analysis: Identity,
    wait: Annotated[
        float,
        Query(ge=0, le=300, description="seconds to wait until it is neither queued nor running"),
    ] = 0.0,
    min_version: Annotated[
        int, Query(ge=0, description="wait also until its answer is of this version or a later one")
    ] = 0,
) -> Response:
    """The state and the progress of an analysis, after the wait whatever they are."""
    found = await _after_wait(request, graph, analysis, wait, min_version)
    return response_by_content(request, graph, orjson.dumps(found.document()))


@router.delete(
    "/graphs/{graph}/analyses/{analysis}", status_code=204, responses=problems(404, 422, 429, 507)
)
async def drop_analysis(graph: OpenGraph, analysis: Identity) -> Response:
    """Cancels an analysis that is queued or runs; removes one that has ended."""
    await asyncio.wrap_future(graph.pipeline.call(lambda writer: writer.analyses.remove(analysis)))
    return Response(status_code=204)


@router.get(
    "/graphs/{graph}/analyses/{analysis}/values/{vertex:key}",
    response_model=ValueAnswer,
    responses=problems(404, 409, 422),
)
async def value_of_vertex(
    request: Request, graph: OpenGraph, analysis: Identity, vertex: Vertex
) -> Response:
    """The value of one vertex of the version of the answer.

    Of `support` and `trussness`, the largest value of its edges; of `dn-graphs`, the vertex that
    names its DN-graph. Of `paths`, also the vertex before it.
    """
    answer = _answer(graph, analysis)
    key = key_from_text(vertex, graph.options.keys)
    found = answer.value_of(graph.name, key)
    content = {"vertex": key, "value": found.pop("value"), "version": answer.version, **found}
    return response_by_content(request, graph, orjson.dumps(content))


@router.get(
    "/graphs/{graph}/analyses/{analysis}/top",
    response_model=TopValues,
    responses=problems(404, 409, 413, 422),
)
async def top_values(
    request: Request,
    graph: OpenGraph,
    analysis: Identity,
    k: K = 10,
    order: Annotated[Order, Query(description="which values come first")] = "largest",
    of: Of = None,
) -> Response:
    """The vertices of the largest or the smallest values; equal ones in order of first appearance.

    Of `components` and `labels`, the largest or the smallest groups; of `dn-graphs`, the DN-graphs
    of the largest or the smallest λ; of `support` and `trussness`, and with `of=edges`, the edges.
    """
    answer = _answer(graph, analysis).values_of(of)
    count_places(request, k, "k")

    def respond() -> Response:
        top = answer.top(k, order)
        rows = json_objects(dict(zip(top.schema.names, top.columns, strict=True)))
        content = {"version": answer.version, "values": [], "edges": []}
        content["edges" if "source" in top.schema.names else "values"] = rows
        return response_by_content(request, graph, orjson.dumps(content))

    return await asyncio.to_thread(respond)


@router.get(
    "/graphs/{graph}/analyses/{analysis}/export",
    response_class=Response,
    responses={**EXPORT, **problems(404, 406, 409, 422)},
)
async def export_values(
    request: Request, graph: OpenGraph, analysis: Identity, of: Of = None
) -> Response:
    """The values of all vertices, of all edges, or of the edges of DN-graphs, of the version of the
    answer, streamed.
    """
    answer = _answer(graph, analysis).values_of(of)
    state = f"{analysis}-{answer.version}"
    return await exported(request, graph, state, lambda: Made(values_export(answer), state))


async def _after_wait(
    request: Request, graph: Graph, identity: str, wait: float, version: int
) -> Analysis:
    """The analysis once it has ended, with an answer of that version at least, or after `wait`
    seconds. Raises UnknownAnalysis, and as result_of.
    """
    analyses = graph.analyses

    def is_ready(found: Analysis) -> bool:
        answered = 0 if found.answer is None else found.answer.version
        return not found.is_unfinished and answered >= version

    ends, found = analyses.ends, analyses.get(identity)
    try:
        async with asyncio.timeout(wait):
            while wait and not is_ready(found):
                await result_of(analyses.next_end(ends), graph, request)
                ends, found = analyses.ends, analyses.get(identity)
    except TimeoutError:
        found = analyses.get(identity)
    return found


def _answer(graph: Graph, identity: str) -> AnalysisAnswer:
    """Raises UnknownAnalysis, NoAnswer."""
    found = graph.analyses.get(identity)
    if found.answer is None:
        raise NoAnswer(identity, found.state)
    return found.answer
