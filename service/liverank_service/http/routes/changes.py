"""The change feed: what changes in the ranks, as server-sent events."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.sse import EventSourceResponse

from liverank.options import FeedOptions
from liverank_service.http.access import key_id
from liverank_service.http.body import context_of, limit_of
from liverank_service.http.dependencies import OpenGraph
from liverank_service.http.openapi import problems
from liverank_service.http.route import Route
from liverank_service.http.schemas import parameter_of
from liverank_service.http.subscribers import ChangeStream, subscribers_of
from liverank_service.queries.changes import MAX_CHANGES, MAX_TOP, Subscription

router = APIRouter(tags=["changes"], route_class=Route)


@router.get(
    "/graphs/{graph}/changes",
    response_class=EventSourceResponse,
    responses=problems(404, 409, 422, 507),
)
async def changes(
    request: Request,
    graph: OpenGraph,
    top: Annotated[int, Query(ge=1, le=MAX_TOP, description="places at the top")] = 100,
    threshold: Annotated[
        float,
        Query(ge=0, le=1e6, description="part by which a rank must differ from the one sent last"),
    ] = 0.05,
    limit: Annotated[
        int, Query(ge=2, le=MAX_CHANGES, description="vertices in an event; at least twice top")
    ] = 1000,
    among: Annotated[str | None, Query(description="name of a set: only its vertices")] = None,
    view: Annotated[str | None, parameter_of(FeedOptions, "view")] = None,
    watched: Annotated[str | None, parameter_of(FeedOptions, "watched")] = None,
    last_event_id: Annotated[
        str | None, Header(alias="Last-Event-ID", description="continue after this event")
    ] = None,
) -> Response:
    """An event for each published revision: who entered or left the top, and whose rank moved."""
    subscription = Subscription(top, threshold, limit, among, view, watched)
    limit_of(request).subscribe(context_of(request), graph.name, key_id(request))
    feed, subscribers = graph.pipeline.changes, subscribers_of(request)
    subscriber = subscribers.add(request)  # at once: the key can be revoked from now on
    try:
        joining = feed.join(subscription, last_event_id or None)
        try:
            joined = await asyncio.wrap_future(joining)
        except BaseException:
            feed.give_up(joining)
            raise
    except BaseException:
        subscribers.remove(subscriber)
        raise
    return ChangeStream(request, subscriber, feed, joined)
