"""The HTTP application: routes, errors and the life of the catalog put together.

uvicorn.run(create_app(Settings.from_environment()))
"""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import anyio.to_thread
from fastapi import APIRouter, FastAPI, Response
from fastapi.middleware.asyncexitstack import AsyncExitStackMiddleware
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from service.catalog import Catalog
from service.errors import answer_of
from service.http.access import CALLS, Access
from service.http.limits import Capacity
from service.http.metrics import Metrics
from service.http.middleware import Exchanges
from service.http.parameters import call_of, problems
from service.http.route import DirectRoute, DirectRoutes
from service.http.routes import (
    api_keys,
    batches,
    graphs,
    operations,
    personalized,
    ranks,
    watched,
)
from service.http.schemas import (
    BatchRequest,
    GraphRequest,
    KeyRequest,
    PersonalizedRequest,
    Problem,
    VerticesRequest,
    WatchedRequest,
)
from service.http.unread_bodies import UnreadBodies
from service.settings import Settings
from service.storage.api_keys import KeyStore

log = logging.getLogger("liverank.app")

_ROUTERS: tuple[APIRouter, ...] = tuple(
    module.router
    for module in (batches, ranks, graphs, personalized, watched, api_keys, operations)
)
"""The first that matches is taken: those that are called most stand first."""

_READ_BY_HAND: tuple[type[BaseModel], ...] = (
    BatchRequest,
    GraphRequest,
    KeyRequest,
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

    Raises Unprotected where other machines could connect without a key, StorageFailed where the
    keys cannot be read.
    """
    access = Access(settings, KeyStore(settings.data, settings.api_key))
    app = FastAPIOffline(  # /docs must open where no other host can be reached
        title="liverank",
        version=version("liverank"),
        summary="PageRank that stays fresh on a graph that never stops changing",
        lifespan=_lifespan,
        redoc_url=None,
        telemetry={"tracing": False, "metrics": False, "logs": False},  # asked for each request
        redirect_slashes=False,  # to whatever Host the client names, before it is looked at
    )
    capacity = Capacity(settings)
    metrics = Metrics(app.version, settings.slow_batch_seconds)
    catalog = Catalog(settings, metrics.observer)
    metrics.watch(catalog, capacity)
    app.state.settings = settings
    app.state.access = access
    app.state.capacity = capacity
    app.state.metrics = metrics
    app.state.catalog = catalog
    app.state.open_failed = open_failed
    for router in _ROUTERS:
        app.router.routes.extend(router.routes)  # no router within a router: that costs time
    for call in (call_of(method, route) for router in _ROUTERS for method, route in _calls(router)):
        if call not in CALLS:
            raise LookupError(f"service.http.access.CALLS does not say who may call {call}")
    # Only layers that this service needs: those that FastAPI and Starlette would put here answer
    # errors in three places, and cost a good part of what the read of a rank does.
    pages = AsyncExitStackMiddleware(app.router)  # the /docs page wants it
    own = [route for route in app.routes if isinstance(route, DirectRoute)]
    exchanges = Exchanges(DirectRoutes(own, pages), capacity, metrics.http, _answer_of)
    app.middleware_stack = UnreadBodies(exchanges, settings.slow_client_seconds)
    app.openapi = lambda: _openapi(app)  # type: ignore[method-assign]
    return app


def _calls(router: APIRouter) -> Iterator[tuple[str, APIRoute]]:
    for route in router.routes:
        assert isinstance(route, APIRoute)
        for method in sorted(route.methods or ()):
            yield method, route


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


def _answer_of(error: Exception, path: str) -> Response:
    """The answer to a request for `path` that ended in `error`."""
    answer = answer_of(error, path)
    if answer.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        # Starlette names the methods of the first route only.
        methods = {
            method
            for router in _ROUTERS
            for method, route in _calls(router)
            if route.path_regex.match(path)
        }
        if methods:
            answer.headers["Allow"] = ", ".join(sorted(methods))
    return answer


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
        schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        for path, calls in schema["paths"].items():
            for method, call in calls.items():
                scope = CALLS[f"{method.upper()} {path}"]
                if scope is not None:
                    call["security"] = [{"key": []}]
                    call["description"] = f"{call['description']}\n\nScope: {scope}."
                    for status, answer in problems(401, 403, 421).items():
                        call["responses"].setdefault(str(status), answer)
        app.openapi_schema = schema
    return app.openapi_schema
