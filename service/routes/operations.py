"""Whether the server lives, and whether it can be used."""

from __future__ import annotations

from fastapi import APIRouter, Response

from service.errors import NotReady
from service.routes.common import OpenCatalog, json_answer, problems
from service.schemas import Status

router = APIRouter(tags=["operations"])


@router.get("/livez", response_model=Status)
async def alive() -> Response:
    """200 as soon as the process answers."""
    return json_answer({"status": "alive"})


@router.get("/readyz", response_model=Status, responses=problems())
async def ready(catalog: OpenCatalog) -> Response:
    """200 once kernels are compiled and graphs recovered; 503 with the reason before."""
    if catalog.not_ready is not None:
        raise NotReady(catalog.not_ready)
    return json_answer({"status": "ready"})
