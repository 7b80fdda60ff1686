"""Watched queries: personalized queries whose answers follow every batch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, NamedTuple

import orjson
import pyarrow as pa
from fastapi import APIRouter, Request, Response

from liverank_gpu import Personalized
from liverank_service.catalog import Graph
from liverank_service.errors import UnknownVertex
from liverank_service.http.body import MAX_VALUES, count_places, parsed_body, read_body
from liverank_service.http.dependencies import (
    OpenGraph,
    PublishedView,
    Timeout,
    Vertex,
    check_name,
    name_of,
    result_of,
)
from liverank_service.http.openapi import body_of, problems
from liverank_service.http.responses import FEW_ROWS, json_response, response_by_content
from liverank_service.http.route import Route
from liverank_service.http.routes.personalized import answer_document, check_keys
from liverank_service.http.schemas import RankAnswer, WatchedAnswer
from liverank_service.queries.model import WatchedQuery
from liverank_service.queries.scheduler import WatchRequest
from liverank_service.queries.view import View
from liverank_service.vertex_keys import key_from_text

router = APIRouter(tags=["personalized"], route_class=Route)

MAX_NAME = 200

Name = Annotated[str, name_of("a watched query", MAX_NAME)]


@router.put(
    "/graphs/{graph}/watched/{name}",
    response_model=WatchedAnswer,
    responses={
        201: {"model": WatchedAnswer, "description": "The name is new"},
        **problems(404, 413, 422, 429, 504, 507),
    },
    openapi_extra=body_of(WatchedQuery),
)
async def watch(
    request: Request, graph: OpenGraph, name: Name, timeout: Timeout = 10.0
) -> Response:
    """Answers a query and keeps the answer up to date; replaces a query with this name."""
    check_name("name", name, MAX_NAME)
    most = request.app.state.settings.max_query_keys
    query = await parsed_body(WatchedQuery, await read_body(request), most=most + MAX_VALUES)
    check_keys(query.listed_keys, most, "seeds")
    if query.target_error is None:
        query = query.model_copy(update={"target_error": graph.options.target_error})
    count_places(request, min(query.k, graph.pipeline.view.vertices), "k")
    pending = WatchRequest([query], timeout, name)
    graph.pipeline.submit_query(pending)
    is_new, view = await result_of(pending.answer, graph, request)
    status = 201 if is_new else 200
    return await _answer(graph, view, name, partial(json_response, status=status))


@router.get(
    "/graphs/{graph}/watched/{name}",
    response_model=WatchedAnswer,
    responses=problems(404, 413, 422, 504, 507),
)
async def read_watched(
    request: Request, graph: OpenGraph, name: Name, view: PublishedView
) -> Response:
    """The answer for the newest version, which is computed already."""
    count_places(request, len(_watched(view, name).vertices), "k")
    return await _answer(
        graph,
        view,
        name,
        lambda content: response_by_content(request, graph, orjson.dumps(content)),
    )


@router.get(
    "/graphs/{graph}/watched/{name}/ranks/{vertex:key}",
    response_model=RankAnswer,
    responses=problems(404, 422, 504, 507),
)
async def rank_in_watched(
    request: Request, graph: OpenGraph, name: Name, vertex: Vertex, view: PublishedView
) -> Response:
    """The rank of one of the k vertices of the answer."""
    key = key_from_text(vertex, graph.options.keys)
    watched = _watched(view, name)
    place = watched.vertices.index(key).as_py()
    if place < 0:
        raise UnknownVertex(graph.name, key)
    rank = float(watched.answer.ranks[place])
    head = view.facts | {"error_bound": watched.answer.error_bound}
    return response_by_content(request, graph, orjson.dumps({"vertex": key, "rank": rank, **head}))


@router.delete("/graphs/{graph}/watched/{name}", status_code=204, responses=problems(404, 422, 429))
async def unwatch(graph: OpenGraph, name: Name) -> Response:
    """Removes a watched query."""
    await asyncio.wrap_future(graph.pipeline.unwatch(name))
    return Response(status_code=204)


class _Answered(NamedTuple):
    query: WatchedQuery
    vertices: pa.Array
    answer: Personalized
    ignored: list[Any]


def _watched(view: View, name: str) -> _Answered:
    """Raises NotReady, UnknownWatched, and the error for which there is no answer."""
    answer, watched = view.answer(name), (view.watched or {})[name]
    return _Answered(watched.query, watched.vertices, answer, watched.ignored)


async def _answer(
    graph: Graph, view: View, name: str, respond: Callable[[dict[str, Any]], Response]
) -> Response:
    """What `respond` makes of the answer; on a thread if it is long."""
    watched = _watched(view, name)
    size = len(watched.vertices) + len(watched.query.seeds) + len(watched.query.among or ())
    if size <= FEW_ROWS:
        return respond(_body(graph, view, name, watched))
    return await asyncio.to_thread(lambda: respond(_body(graph, view, name, watched)))


def _body(graph: Graph, view: View, name: str, watched: _Answered) -> dict[str, Any]:
    query, vertices, places, ignored = watched
    return {
        "name": name,
        "version": view.version,
        "revision": view.revision,
        **answer_document(vertices, places, ignored),
        "k": query.k,
        "target_error": query.target_error,
        "seeds": query.seeds.to_dict(),
        "unknown": query.unknown,
        "damping": query.damping or graph.options.damping,
        "among": query.among,
        "zeros": query.zeros,
    }
