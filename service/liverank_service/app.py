"""The HTTP application: routes, middleware, errors and the catalog of graphs."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import anyio.to_thread
from fastapi import FastAPI
from fastapi.routing import APIRoute
from fastapi_offline import FastAPIOffline
from starlette.routing import BaseRoute, Mount, Route
from starlette.staticfiles import StaticFiles

from liverank_service.catalog import Catalog
from liverank_service.errors import MalformedRequest
from liverank_service.http.access import REQUIRED_SCOPE, Access
from liverank_service.http.limits import ConcurrencyLimit
from liverank_service.http.metrics import Metrics
from liverank_service.http.middleware import RequestMiddleware
from liverank_service.http.openapi import openapi_of
from liverank_service.http.pages import Document, Files, assets, dashboard, documentation
from liverank_service.http.responses import EXCEPTION_HANDLERS
from liverank_service.http.route import call_of
from liverank_service.http.routes import (
    analyses,
    api_keys,
    batches,
    changes,
    edges,
    graphs,
    operations,
    personalized,
    programs,
    ranks,
    sets,
    views,
    watched,
)
from liverank_service.http.server import Rules, Server
from liverank_service.http.server import server_of as http_server_of
from liverank_service.http.subscribers import Subscribers
from liverank_service.http.telemetry import OFF, observer_of, telemetry_of
from liverank_service.problems import encode_problem, problem_of
from liverank_service.settings import Settings
from liverank_service.storage.api_keys import ApiKeyStore

log = logging.getLogger("liverank.app")

_ROUTES = [
    route
    for module in (
        *(ranks, batches, personalized, graphs, edges),
        *(watched, views, sets, analyses, programs, changes, api_keys, operations),
    )
    for route in module.router.routes
]
"""The first match is taken: the most frequent calls come first."""


def _log_failure(error: Exception) -> None:
    log.error("the data directory could not be opened", exc_info=error)


def create_app(
    settings: Settings, open_failed: Callable[[Exception], None] = _log_failure
) -> FastAPI:
    """The service over the data directory of `settings`.

    /livez responds at once, /readyz with 200 once every graph is recovered. If that fails,
    `open_failed` is called on another thread; the app stays up, and /readyz gives the reason.

    Raises InvalidSetting if settings exclude each other, Unprotected if other machines could
    connect without a key, ApiKeysMissing if there were keys and are none, StorageFailed if they
    cannot be read.
    """
    settings.check_server()
    keys = ApiKeyStore(settings.data, settings.api_key, may_be_missing=settings.insecure)
    access = Access(settings, keys)
    release = version("liverank")
    metrics = Metrics(release, settings.slow_batch_seconds)
    telemetry = telemetry_of(metrics, release)
    app = FastAPIOffline(  # /docs must work where no other host can be reached
        title="liverank",
        description="Batches change a graph; its ranks follow, with a proven bound on their error.",
        contact={"name": "liverank"},
        version=release,
        summary="PageRank that stays fresh on a graph that never stops changing",
        lifespan=_lifespan,
        docs_url=None,  # see liverank_service.http.pages.documentation
        redoc_url=None,
        redirect_slashes=False,  # a redirect would name the client's Host before it is checked
        exception_handlers=EXCEPTION_HANDLERS,
        telemetry=OFF if telemetry is None else telemetry.config,
    )
    catalog = Catalog(settings, observer_of(metrics, telemetry))
    limit = ConcurrencyLimit(settings)
    metrics.watch(catalog, limit)
    app.state.settings = settings
    app.state.access = access
    app.state.limit = limit
    app.state.subscribers = Subscribers()
    app.state.metrics = metrics
    app.state.telemetry = telemetry
    app.state.catalog = catalog
    app.state.open_failed = open_failed
    app.add_middleware(RequestMiddleware, limit=limit, metrics=metrics.http, settings=settings)
    # not as nested routers, and before FastAPI's own: every request searches the list in order
    assert app.openapi_url is not None
    description = Document(lambda: openapi_of(app))
    document = Route(app.openapi_url, description.respond, include_in_schema=False)
    app.router.routes[:0] = [*_ROUTES, document]
    _keep_in_memory(app.router.routes)
    app.add_route("/", dashboard, include_in_schema=False)
    app.add_route("/docs", documentation, include_in_schema=False)
    app.mount("/dashboard", assets)
    for route in _ROUTES:
        assert isinstance(route, APIRoute)
        for method in route.methods or ():
            if call_of(method, route) not in REQUIRED_SCOPE:
                raise LookupError(f"REQUIRED_SCOPE has no entry for {call_of(method, route)}")
    app.openapi = lambda: openapi_of(app)  # type: ignore[method-assign]
    return app


def _keep_in_memory(routes: list[BaseRoute]) -> None:
    """Replaces folders of FastAPI's documentation by files in memory."""
    for place, route in enumerate(routes):
        if isinstance(route, Mount) and isinstance(route.app, StaticFiles):
            assert route.app.directory is not None
            files = Files(Path(route.app.directory))
            routes[place] = Mount(route.path, files, name=route.name)


def server_of(app: FastAPI, **options: Any) -> Server:
    """A server for an application of `create_app`. options: of uvicorn.Config."""
    settings: Settings = app.state.settings
    rules = Rules(
        settings.max_connections,
        settings.slow_client_seconds,
        lambda reason: encode_problem(problem_of(MalformedRequest(reason))),
        app.state.access.turns_of,
        app.state.limit.stop,
    )
    options = {"host": settings.host, "port": settings.port, "loop": "uvloop"} | options
    return http_server_of(app, rules, log_config=None, **options)


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    catalog: Catalog = app.state.catalog
    # in its own thread: the server answers /livez and /readyz during recovery
    opening = threading.Thread(target=_open, args=(app,), name="liverank-open", daemon=True)
    opening.start()
    yield
    await anyio.to_thread.run_sync(catalog.close)
    if app.state.telemetry is not None:
        await anyio.to_thread.run_sync(app.state.telemetry.close)


def _open(app: FastAPI) -> None:
    try:
        app.state.catalog.open()
    except Exception as error:
        app.state.open_failed(error)
    else:
        app.openapi()  # which takes a second, during which others would wait
        app.state.catalog.warm_up_others()
