"""Liveness, readiness and metrics."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from fastapi import APIRouter, Request, Response
from msgspec import structs

from liverank_service.errors import NotReady
from liverank_service.http.access import access_of
from liverank_service.http.dependencies import OpenCatalog
from liverank_service.http.metrics import CONTENT_TYPE, Metrics
from liverank_service.http.openapi import problems
from liverank_service.http.responses import json_response
from liverank_service.http.route import Route
from liverank_service.http.schemas import Alive, Ready

router = APIRouter(tags=["operations"], route_class=Route)


@router.get("/livez", response_model=Alive)
async def alive() -> Response:
    """200 as soon as the process responds."""
    return json_response({"status": "alive"})


@router.get("/readyz", response_model=Ready, responses=problems())
async def ready(request: Request, catalog: OpenCatalog) -> Response:
    """200 once graphs are recovered; until then 503 with the reason.

    Graphs that have stopped are listed, graphs that recover from the loss of shards, and consumers
    of external sources that have reported that they do not consume; the server is ready
    nevertheless. With API keys in use, only requests with one get these lists and the reason, which
    name graphs and files.
    """
    access = access_of(request)
    trusted = access.trusts(request)
    if catalog.not_ready is not None:
        raise NotReady(catalog.not_ready if trusted else "the reason is shown to API keys only")
    document: dict[str, Any] = {"status": "ready"}
    key = access.identify(request) if trusted and access.keys else None

    def shown(graph: str) -> bool:
        return trusted and (key is None or key.allows(graph))

    stopped = [
        {"graph": name, "reason": reason}
        for name, reason in catalog.stopped().items()
        if shown(name)
    ]
    if stopped:
        document["stopped"] = stopped
    graphs = [graph for graph in catalog.graphs() if shown(graph.name)]
    lost = [(graph.name, loss) for graph in graphs if (loss := graph.pipeline.shards.loss)]
    if lost:
        document["recovering"] = [{"graph": name, **asdict(loss)} for name, loss in lost]
    waiting = [
        {"graph": graph.name, **structs.asdict(report)}
        for graph in graphs
        for report in graph.consumers.newest
        if report.state != "consuming"
    ]
    if waiting:
        document["consumers"] = waiting
    return json_response(document)


@router.get(
    "/metrics",
    response_class=Response,
    responses={
        200: {
            "description": "Prometheus' text format",
            "content": {"text/plain": {"schema": {"type": "string"}}},
        },
        **problems(),
    },
)
async def metrics(request: Request) -> Response:
    """Counters, histograms and the state of every graph, for Prometheus."""
    collected: Metrics = request.app.state.metrics
    return Response(collected.exposition(), media_type=CONTENT_TYPE)
