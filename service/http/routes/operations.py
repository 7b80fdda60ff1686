"""Liveness, readiness and metrics."""

from __future__ import annotations

from fastapi import APIRouter, Request, Response

from service.errors import NotReady
from service.http.access import access_of
from service.http.dependencies import OpenCatalog
from service.http.metrics import CONTENT_TYPE, Metrics
from service.http.openapi import problems
from service.http.responses import json_response
from service.http.route import Route
from service.http.schemas import Status

router = APIRouter(tags=["operations"], route_class=Route)


@router.get("/livez", response_model=Status)
async def alive() -> Response:
    """200 as soon as the process responds."""
    return json_response({"status": "alive"})


@router.get("/readyz", response_model=Status, responses=problems())
async def ready(request: Request, catalog: OpenCatalog) -> Response:
    """200 once kernels are compiled and graphs recovered; until then 503 with the reason.

    With API keys in use, only requests with one get the reason, which names graphs and files.
    """
    if catalog.not_ready is not None:
        trusted = access_of(request).trusts(request)
        raise NotReady(catalog.not_ready if trusted else "the reason is shown to API keys only")
    return json_response({"status": "ready"})


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
