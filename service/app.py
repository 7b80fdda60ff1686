"""The HTTP application: routes, errors and the life of the catalog put together.

uvicorn.run(create_app(Settings.from_environment()))
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import anyio.to_thread
from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

from gpu import EngineError
from service.catalog import Catalog
from service.errors import PROBLEM_JSON, ServiceError, encode_problem, problem_of
from service.formats import FormatError, UnsupportedFormat
from service.routes import batches, graphs, operations, personalized, ranks
from service.schemas import BatchRequest, GraphRequest, Problem, VerticesRequest
from service.settings import Settings

log = logging.getLogger("liverank.app")

_READ_BY_HAND: tuple[type[BaseModel], ...] = (BatchRequest, GraphRequest, Problem, VerticesRequest)
"""Models that no endpoint declares, because it reads its body itself."""


def create_app(settings: Settings) -> FastAPI:
    """The service over the data directory of `settings`.

    /livez answers at once, /readyz with 200 once every graph is recovered.
    """
    app = FastAPI(
        title="liverank",
        version=version("liverank"),
        summary="PageRank that stays fresh on a graph that never stops changing",
        lifespan=_lifespan,
    )
    app.state.settings = settings
    app.state.catalog = Catalog(settings)
    for module in (graphs, batches, ranks, personalized, operations):
        app.include_router(module.router)
    for kind in (
        ServiceError,
        EngineError,
        FormatError,
        UnsupportedFormat,
        RequestValidationError,
        HTTPException,
        Exception,
    ):
        app.add_exception_handler(kind, _answer_problem)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    catalog: Catalog = app.state.catalog
    # A thread of its own: the server answers /livez and /readyz while it recovers.
    opening = threading.Thread(target=_open, args=(catalog,), name="liverank-open", daemon=True)
    opening.start()
    yield
    await anyio.to_thread.run_sync(catalog.close)


def _open(catalog: Catalog) -> None:
    try:
        catalog.open()
    except Exception:
        log.exception("the data directory could not be opened")


async def _answer_problem(request: Request, error: Exception) -> Response:
    problem = {**problem_of(error), "instance": request.url.path}
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if problem["status"] == 503:
        headers["Retry-After"] = "1"
    return Response(encode_problem(problem), problem["status"], headers, PROBLEM_JSON)


def _openapi(app: FastAPI) -> dict[str, Any]:
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title, version=app.version, summary=app.summary, routes=app.routes
        )
        _, definitions = models_json_schema(
            [(model, "validation") for model in _READ_BY_HAND],
            ref_template="#/components/schemas/{model}",
        )
        schema["components"]["schemas"].update(definitions["$defs"])
        app.openapi_schema = schema
    return app.openapi_schema
