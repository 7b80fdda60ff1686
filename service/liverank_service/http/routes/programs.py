"""Programs of users: text that is checked and translated, and that analyses then run."""

from __future__ import annotations

import logging
from typing import Annotated

from fastapi import APIRouter, Request, Response

from liverank_service.http.access import key_id
from liverank_service.http.body import parsed_body, read_body
from liverank_service.http.dependencies import OpenCatalog, in_order, name_of
from liverank_service.http.openapi import body_of, problems
from liverank_service.http.responses import json_response
from liverank_service.http.route import Route
from liverank_service.http.schemas import ProgramInfo, ProgramList, ProgramRequest

log = logging.getLogger("liverank.programs")

router = APIRouter(tags=["programs"], route_class=Route)

Name = Annotated[str, name_of("a program of a user", 64)]


def _log(request: Request, what: str, name: str) -> None:
    log.info("program %s", what, extra={"program": name, "by": key_id(request) or "nobody"})


@router.put(
    "/programs/{name}",
    response_model=ProgramInfo,
    responses={
        201: {"model": ProgramInfo, "description": "The name is new"},
        **problems(408, 413, 422, 507),
    },
    openapi_extra=body_of(ProgramRequest),
)
async def put_program(request: Request, catalog: OpenCatalog, name: Name) -> Response:
    """Checks, compiles and stores a program, in place of one of its name.

    Runs of that end as they are; fresh analyses run the new one from the next version on.
    """
    catalog.programs.check_allowed()
    given = await parsed_body(ProgramRequest, await read_body(request))
    put, is_new = await in_order(catalog, catalog.put_program, name, given.source)
    _log(request, "put", name)
    return json_response(put.document(), 201 if is_new else 200)


@router.get("/programs", response_model=ProgramList, responses=problems())
async def list_programs(catalog: OpenCatalog) -> Response:
    """The programs of users, by name."""
    catalog.check_ready()
    return json_response({"programs": [each.document() for each in catalog.programs.listed()]})


@router.get("/programs/{name}", response_model=ProgramInfo, responses=problems(404, 422))
async def read_program(catalog: OpenCatalog, name: Name) -> Response:
    """The source of a program, its parameters and its options."""
    catalog.check_ready()
    return json_response(catalog.programs.get(name).document())


@router.delete("/programs/{name}", status_code=204, responses=problems(404, 422, 507))
async def drop_program(request: Request, catalog: OpenCatalog, name: Name) -> Response:
    """Removes a program. Runs of it end as they are; its fresh analyses fail after that."""
    catalog.check_ready()
    await in_order(catalog, catalog.programs.remove, name)
    _log(request, "dropped", name)
    return Response(status_code=204)
