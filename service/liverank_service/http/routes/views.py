"""Views: ranks of all vertices for teleport distributions of their own, which follow every batch.
Their ranks are read as those of the graph are, with `view`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import orjson
from fastapi import APIRouter, Request, Response

from liverank.options import ViewOptions
from liverank_service.catalog import Graph
from liverank_service.errors import FormatError, InvalidField
from liverank_service.formats import ARROW_STREAM
from liverank_service.formats.seeds import decode_seeds
from liverank_service.http.body import MAX_VALUES, on_thread, parsed_body, read_body, release_body
from liverank_service.http.dependencies import (
    OpenGraph,
    PublishedView,
    Timeout,
    check_name,
    name_of,
    result_of,
)
from liverank_service.http.openapi import body_of, problems
from liverank_service.http.responses import json_response, response_by_content
from liverank_service.http.route import Route
from liverank_service.http.routes.personalized import check_keys, is_arrow
from liverank_service.http.schemas import ViewAnswer, ViewsAnswer, query_of
from liverank_service.problems import problem_of
from liverank_service.queries.rank_views import RankView, Teleport, ViewRequest
from liverank_service.queries.scheduler import WatchRequest
from liverank_service.queries.view import View

router = APIRouter(tags=["views"], route_class=Route)

MAX_NAME = 200

_WITHIN = "name of a set: walks follow only the edges between its vertices"

Name = Annotated[str, name_of("a view", MAX_NAME)]


@router.put(
    "/graphs/{graph}/views/{view}",
    response_model=ViewAnswer,
    responses={
        201: {"model": ViewAnswer, "description": "The name is new"},
        **problems(404, 409, 413, 422, 429, 504, 507),
    },
    openapi_extra=body_of(ViewRequest, others=(ARROW_STREAM,)),
)
async def put_view(
    request: Request,
    graph: OpenGraph,
    view: Name,
    given: Annotated[
        dict[str, Any],
        query_of(
            ViewOptions,
            dict,
            {"teleport": None, "within": {"kind": str | None, "description": _WITHIN}},
            " (of a body in Arrow; in JSON it is a member of the body)",
        ),
    ],
    timeout: Timeout = 10.0,
) -> Response:
    """Ranks all vertices for a teleport distribution, and keeps these ranks fresh. A view of this
    name goes on from the ranks that it has, unless its damping changes. Weights may be sent as
    Arrow, in the columns `seed` and `weight`.
    """
    check_name("view", view, MAX_NAME)
    asked = await _parsed(request, graph, given)
    most = request.app.state.settings.max_query_keys
    check_keys(asked.listed_keys, most, "within" if asked.keys_within else "teleport.weights")
    pending = WatchRequest([asked], timeout, view)
    graph.pipeline.submit_query(pending)
    is_new, published = await result_of(pending.answer, graph, request)
    found = published.rank_view(view)
    if found.error is not None:
        raise found.error
    document = {"name": view, **_document(graph, found), **_version(published)}
    return json_response(document, status=201 if is_new else 200)


async def _parsed(request: Request, graph: Graph, given: Mapping[str, Any]) -> ViewRequest:
    settings, body = request.app.state.settings, await read_body(request)
    if not is_arrow(request):
        for name, value in given.items():
            raise InvalidField(name, None, value, "in JSON it is a member of the body")
        return await parsed_body(ViewRequest, body, most=settings.max_query_keys + MAX_VALUES)
    limit = settings.max_body_bytes
    seeds = await on_thread(len(body), partial(decode_seeds, body, graph.options.keys, limit))
    release_body(request)
    if list(seeds) != [0]:
        raise FormatError("query", None, "expected no such column: a view has one distribution")
    return ViewRequest(teleport=Teleport(weights=seeds[0]), **given)


@router.get(
    "/graphs/{graph}/views/{view}",
    response_model=ViewAnswer,
    responses=problems(404, 422, 504),
)
async def read_view(
    request: Request, graph: OpenGraph, view: Name, published: PublishedView
) -> Response:
    """What a view is, and the error bound of its ranks for the newest version."""
    found = published.rank_view(view)
    document = {"name": view, **_document(graph, found), **_version(published)}
    return response_by_content(request, graph, orjson.dumps(document))


@router.get("/graphs/{graph}/views", response_model=ViewsAnswer, responses=problems(404, 422, 504))
async def read_views(request: Request, graph: OpenGraph, published: PublishedView) -> Response:
    """The views of a graph, by name."""
    views = [
        {"name": name, **_document(graph, found)}
        for name, found in sorted(published.known_rank_views.items())
    ]
    document = {**_version(published), "views": views}
    return response_by_content(request, graph, orjson.dumps(document))


@router.delete("/graphs/{graph}/views/{view}", status_code=204, responses=problems(404, 422, 429))
async def remove_view(graph: OpenGraph, view: Name) -> Response:
    """Removes a view."""
    await asyncio.wrap_future(graph.pipeline.remove_view(view))
    return Response(status_code=204)


def _version(published: View) -> dict[str, int]:
    return {"version": published.version, "revision": published.revision}


def _document(graph: Graph, found: RankView) -> dict[str, Any]:
    asked = found.request
    weights = asked.teleport.weights
    return {
        "teleport": asked.teleport.kind,
        "set": asked.teleport.set,
        "weights": None if weights is None else len(weights),
        "ignored": found.ignored,
        "unknown": asked.unknown,
        "within": found.within if asked.keys_within else asked.within,
        "damping": asked.damping or graph.options.damping,
        "direction": asked.direction,
        "target_error": asked.target_error or graph.options.target_error,
        "refresh": asked.refresh,
        "error_bound": found.error_bound,
        "problem": None if found.error is None else problem_of(found.error)["detail"],
    }
