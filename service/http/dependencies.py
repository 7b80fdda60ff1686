"""Dependencies of several endpoints: the graph, the view and the vertex of a request."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import unquote_to_bytes

from fastapi import Depends, Path, Query, Request
from starlette.convertors import Convertor, register_url_convertor
from starlette.requests import ClientDisconnect

from gpu import InvalidValue
from service.catalog import Catalog, Graph
from service.errors import NotPublishedInTime
from service.queries.model import MAX_K
from service.queries.view import View

Result = TypeVar("Result")

K = Annotated[int, Query(ge=1, le=MAX_K, description="number of places; fewer in a smaller graph")]
Timeout = Annotated[
    float, Query(gt=0, le=300, description="seconds to wait for min_version, or for the answer")
]


def catalog_of(request: Request) -> Catalog:
    return cast(Catalog, request.app.state.catalog)


OpenCatalog = Annotated[Catalog, Depends(catalog_of)]


def graph_of(
    catalog: OpenCatalog, graph: Annotated[str, Path(description="name of a graph")]
) -> Graph:
    return catalog.get(graph)


OpenGraph = Annotated[Graph, Depends(graph_of)]


async def view_of(
    request: Request,
    graph: OpenGraph,
    min_version: Annotated[
        int, Query(ge=0, description="wait until this version is published or rejected")
    ] = 0,
    timeout: Timeout = 10.0,
) -> View:
    """The newest view, or the first one with at least `min_version`."""
    view = graph.pipeline.view
    if view.version >= min_version:
        return view
    try:
        async with asyncio.timeout(timeout):
            return await result_of(graph.pipeline.published(min_version), request)
    except TimeoutError:
        newest = graph.pipeline.view.version
        raise NotPublishedInTime(min_version, newest, timeout) from None


PublishedView = Annotated[View, Depends(view_of)]


class _KeyConvertor(Convertor[str]):
    """`{vertex:key}` in a path: the whole rest of it. Starlette's `path` stops at a line break."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("key", _KeyConvertor())


def vertex_of(
    request: Request,
    vertex: Annotated[str, Path(description="key of a vertex", json_schema_extra={"minLength": 1})],
) -> str:
    """The key in a path as text. Raises InvalidValue if its bytes are not UTF-8."""
    if "\ufffd" in vertex:  # the replacement character for bytes that are not UTF-8
        try:
            unquote_to_bytes(request.scope["raw_path"]).decode()
        except UnicodeDecodeError:
            raise InvalidValue("vertex", vertex, "UTF-8, percent-encoded") from None
    return vertex


Vertex = Annotated[str, Depends(vertex_of)]


async def result_of(future: Future[Result], request: Request) -> Result:
    """The result of a future, which is cancelled when the client disconnects or the wait ends.

    Raises ClientDisconnect. The body, if any, must have been read.
    """
    result = asyncio.wrap_future(future)
    disconnected = asyncio.ensure_future(_disconnected(request))
    waiting: set[asyncio.Future[Any]] = {result, disconnected}
    try:
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if not result.done():
            raise ClientDisconnect
        return result.result()
    finally:
        result.cancel()
        disconnected.cancel()


async def _disconnected(request: Request) -> None:
    while (await request.receive())["type"] != "http.disconnect":
        pass
