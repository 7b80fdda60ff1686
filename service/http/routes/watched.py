"""Personalized queries that are kept fresh, batch by batch."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path, Request, Response

from gpu import InvalidValue
from service.catalog import GraphOptions
from service.errors import NotReady, UnknownWatched
from service.http.parameters import (
    OpenGraph,
    PublishedView,
    Seconds,
    body_of,
    json_answer,
    parse_body,
    problems,
    read_body,
    seeds_of,
)
from service.http.route import DirectRoute
from service.http.routes.personalized import UNREAD, answer_body, answered
from service.http.schemas import WatchedAnswer, WatchedRequest
from service.queries.scheduler import Watch
from service.queries.view import View
from service.queries.watched import Definition

router = APIRouter(tags=["personalized"], route_class=DirectRoute)

LONGEST_NAME = 200

Name = Annotated[
    str,
    Path(
        description="name of a watched query",
        json_schema_extra={"minLength": 1, "maxLength": LONGEST_NAME},
    ),
]


@router.put(
    "/graphs/{graph}/watched/{name}",
    response_model=WatchedAnswer,
    responses={
        201: {"model": WatchedAnswer, "description": "The name is new"},
        **problems(404, 413, 422, 429, 504, 507),
    },
    openapi_extra=body_of(WatchedRequest),
)
async def watch(
    request: Request, graph: OpenGraph, name: Name, timeout: Seconds = 10.0
) -> Response:
    """Answers a query and keeps it fresh from now on; it replaces another of this name."""
    if not 1 <= len(name) <= LONGEST_NAME:
        raise InvalidValue("name", name, f"1 to {LONGEST_NAME} characters long")
    asked = parse_body(WatchedRequest, await read_body(request))
    definition = _definition(asked, graph.options)
    query = definition.keyed(graph.options.keys)
    found = await answered(request, graph, Watch([query], timeout, name, definition))
    if found is None:
        return UNREAD
    new, view = found
    return json_answer(_body(graph.name, view, name), 201 if new else 200)


@router.get(
    "/graphs/{graph}/watched/{name}",
    response_model=WatchedAnswer,
    responses=problems(404, 422, 504, 507),
)
async def read_watched(graph: OpenGraph, name: Name, view: PublishedView) -> Response:
    """The answer as of the newest version: it is there already."""
    return json_answer(_body(graph.name, view, name))


@router.delete("/graphs/{graph}/watched/{name}", status_code=204, responses=problems(404, 422))
async def unwatch(graph: OpenGraph, name: Name) -> Response:
    """Forgets a watched query."""
    await graph.pipeline.unwatch(name).arrival()
    return Response(status_code=204)


def _definition(asked: WatchedRequest, options: GraphOptions) -> Definition:
    seeds, weights = seeds_of(asked.seeds, options.keys, "seeds")
    target = options.target_error if asked.target_error is None else asked.target_error
    return Definition(tuple(seeds.to_pylist()), weights, asked.k, asked.method, target)


def _body(graph: str, view: View, name: str) -> dict[str, Any]:
    if view.watched is None:
        raise NotReady(f"graph {graph!r} is being recovered")
    watched = view.watched.get(name)
    if watched is None:
        raise UnknownWatched(graph, name)
    if watched.answer is None:
        raise watched.problem or UnknownWatched(graph, name)
    definition = watched.definition
    seeds = [str(seed) for seed in definition.seeds]
    return {
        "name": name,
        "version": view.version,
        "revision": view.revision,
        **answer_body(watched.vertices, watched.answer),
        "k": definition.k,
        "target_error": definition.target_error,
        "seeds": dict(zip(seeds, definition.weights, strict=True)),
    }
