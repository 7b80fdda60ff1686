"""The HTTP application: routes, errors and the life of the catalog put together.

uvicorn.run(create_app(Settings.from_environment()))
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import anyio.to_thread
from fastapi import Depends, FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.openapi.utils import get_openapi
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema
from starlette.exceptions import HTTPException

from gpu import EngineError
from service.catalog import Catalog
from service.errors import INTERNAL_ERROR, PROBLEM_JSON, ServiceError, encode_problem, problem_of
from service.formats import FormatError, UnsupportedFormat
from service.routes import batches, graphs, operations, personalized, ranks, watched
from service.routes.common import refuse_unknown_parameters
from service.schemas import (
    BatchRequest,
    GraphRequest,
    PersonalizedRequest,
    Problem,
    VerticesRequest,
    WatchedRequest,
)
from service.settings import Settings

log = logging.getLogger("liverank.app")

_READ_BY_HAND: tuple[type[BaseModel], ...] = (
    BatchRequest,
    GraphRequest,
    PersonalizedRequest,
    Problem,
    VerticesRequest,
    WatchedRequest,
)
"""Models that no endpoint declares, because it reads its body itself."""


def _log_failure(error: Exception) -> None:
    log.error("the data directory could not be opened", exc_info=error)


def create_app(
    settings: Settings, open_failed: Callable[[Exception], None] = _log_failure
) -> FastAPI:
    """The service over the data directory of `settings`.

    /livez answers at once, /readyz with 200 once every graph is recovered. Where that fails,
    `open_failed` is told from another thread; the app stays up, and /readyz says why.
    """
    app = FastAPIOffline(  # /docs must open where no other host can be reached
        title="liverank",
        version=version("liverank"),
        summary="PageRank that stays fresh on a graph that never stops changing",
        lifespan=_lifespan,
        redoc_url=None,
    )
    app.state.settings = settings
    app.state.catalog = Catalog(settings)
    app.state.open_failed = open_failed
    for module in (graphs, batches, ranks, personalized, watched, operations):
        app.include_router(module.router, dependencies=[Depends(refuse_unknown_parameters)])
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
    opening = threading.Thread(target=_open, args=(app,), name="liverank-open", daemon=True)
    opening.start()
    yield
    await anyio.to_thread.run_sync(catalog.close)


def _open(app: FastAPI) -> None:
    try:
        app.state.catalog.open()
    except Exception as error:
        app.state.open_failed(error)


async def _answer_problem(request: Request, error: Exception) -> Response:
    problem = {**problem_of(error), "instance": request.url.path}
    headers = dict(error.headers or {}) if isinstance(error, HTTPException) else {}
    if problem["status"] == 503:
        headers["Retry-After"] = "1"
    if problem["type"] == INTERNAL_ERROR:
        # The server closes the connection of a request that failed; unless it is told, a client
        # that keeps connections sends its next request into it.
        headers["Connection"] = "close"
    return Response(encode_problem(problem) + b"\n", problem["status"], headers, PROBLEM_JSON)


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
