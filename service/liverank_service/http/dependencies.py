"""Dependencies of several endpoints: the graph, the view and the vertex of a request."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from functools import partial
from typing import Annotated, Any, ParamSpec, TypeVar, cast

from fastapi import Depends, Path, Query, Request
from pydantic import Field
from starlette.convertors import Convertor, register_url_convertor

from liverank.options import MAX_K, RanksOptions
from liverank_gpu import InvalidValue
from liverank_service.catalog import Catalog, Graph
from liverank_service.errors import (
    InvalidField,
    NotAnsweredInTime,
    NotPublishedInTime,
    NotReady,
    UnknownGraph,
    WaitEnded,
)
from liverank_service.http.access import key_id
from liverank_service.http.body import context_of, limit_of
from liverank_service.http.schemas import parameter_of
from liverank_service.queries.view import FIELD, PATTERN, MinPosition, View
from liverank_service.storage.api_keys import ApiKey

P = ParamSpec("P")
Result = TypeVar("Result")

K = Annotated[int, Query(ge=1, le=MAX_K, description="number of places; fewer in a smaller graph")]
Timeout = Annotated[
    float,
    Query(
        gt=0,
        le=300,
        description="seconds to wait for min_version and min_position, or for the answer",
    ),
]


def _answer_timeout(timeout: Timeout = 10.0) -> float:
    return timeout


AnswerTimeout = Annotated[float, Depends(_answer_timeout)]

MinPositions = Annotated[
    tuple[Annotated[str, Field(json_schema_extra={"pattern": PATTERN})], ...],
    Query(
        description="SOURCE:PARTITION:POSITION; wait until the messages of a source up to this "
        "position are published; may be repeated, for several partitions",
    ),
]


def catalog_of(request: Request) -> Catalog:
    return cast(Catalog, request.app.state.catalog)


OpenCatalog = Annotated[Catalog, Depends(catalog_of)]


def graphs_of(request: Request, catalog: Catalog) -> list[Graph]:
    """The graphs that the request may list, by name. Raises NotReady."""
    key: ApiKey | None = request.state.key
    return [graph for graph in catalog.graphs() if key is None or key.allows(graph.name)]


@contextmanager
def known_graphs(request: Request, catalog: Catalog) -> Iterator[None]:
    """Names graphs that there are, if one is unknown: those that the request may list."""
    try:
        yield
    except UnknownGraph as error:
        names = [graph.name for graph in graphs_of(request, catalog)]
        raise UnknownGraph(error.value, names) from None


def graph_of(
    request: Request,
    catalog: OpenCatalog,
    graph: Annotated[str, Path(description="name of a graph")],
) -> Graph:
    with known_graphs(request, catalog):
        return catalog.get(graph)


OpenGraph = Annotated[Graph, Depends(graph_of)]


async def view_of(
    request: Request,
    graph: OpenGraph,
    min_version: Annotated[
        int, Query(ge=0, description="wait until this version is published or rejected")
    ] = 0,
    min_position: MinPositions = (),
    timeout: Timeout = 10.0,
) -> View:
    """The newest view, or the first one with at least `min_version` and each `min_position`."""
    pipeline = graph.pipeline
    view = pipeline.view
    if view.version >= min_version and not min_position:
        return view
    positions = [MinPosition.parsed(text) for text in min_position]
    try:
        async with asyncio.timeout(timeout):
            try:
                _check_positions(graph, positions, view)
            except InvalidField:
                if (committed := pipeline.committed) <= view.version:
                    raise
                # a batch that is not published yet may be the first of the source
                newest = await result_of(pipeline.published(committed), graph, request)
                _check_positions(graph, positions, newest)
            return await result_of(pipeline.published(min_version, positions), graph, request)
    except TimeoutError:
        view = pipeline.view
        missing = [one for one in positions if not one.is_reached(view.positions)]
        if not missing or view.version < min_version:
            late: tuple[str, object, object] = "min_version", min_version, view.version
        else:
            stored = view.positions.get((missing[0].source, missing[0].partition), "none")
            late = FIELD, str(missing[0]), stored
        raise NotPublishedInTime(*late, "published", timeout) from None


def _check_positions(graph: Graph, positions: list[MinPosition], view: View) -> None:
    """Raises InvalidField."""
    for position in positions:
        position.check(graph.name, view.positions)


PublishedView = Annotated[View, Depends(view_of)]


async def seen_of(
    request: Request,
    graph: OpenGraph,
    published: PublishedView,
    view: Annotated[str | None, parameter_of(RanksOptions, "view")] = None,
    timeout: float = 10.0,
) -> View:
    """The published ranks of the graph, or of one of its views, solved first if it has to be."""
    if view is None:
        return published
    found = published.rank_view(view)
    if found.is_due(graph.options.target_error):
        bringing = graph.pipeline.bring_view(view)
        return (await answer_of(bringing, graph, request, timeout)).seen(view)
    return published.seen(view)


SeenRanks = Annotated[View, Depends(seen_of)]


async def wait_for_commit(
    request: Request,
    graph: OpenGraph,
    min_version: Annotated[
        int, Query(ge=0, description="wait until this version is applied or rejected")
    ] = 0,
    min_position: MinPositions = (),
    timeout: Timeout = 10.0,
) -> None:
    """Returns once a read of edges has at least `min_version` and each `min_position`."""
    if min_position:
        await view_of(request, graph, min_version, min_position, timeout)
        return
    pipeline = graph.pipeline
    if pipeline.committed >= min_version:
        return
    try:
        async with asyncio.timeout(timeout):
            await result_of(pipeline.commit_of(min_version), graph, request)
    except TimeoutError:
        raise NotPublishedInTime(
            "min_version", min_version, pipeline.committed, "applied", timeout
        ) from None


Committed = Annotated[None, Depends(wait_for_commit)]


class _KeyConvertor(Convertor[str]):
    """`{vertex:key}` in a path: the whole rest of it. Starlette's `path` stops at a line break."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("key", _KeyConvertor())


Vertex = Annotated[str, Path(description="key of a vertex", json_schema_extra={"minLength": 1})]


async def result_of(future: Future[Result], graph: Graph, request: Request) -> Result:
    """The result of a future, which is cancelled when the wait ends early.

    Raises TooBusy, WaitEnded when the client closes its side of the connection, and NotReady when
    the server stops.
    """
    result = asyncio.wrap_future(future)
    try:
        limit = limit_of(request)
        limit.wait(context_of(request), graph.name, key_id(request))
        input_end: asyncio.Future[None] = request.scope["input_end"]
        ends: set[asyncio.Future[Any]] = {result, input_end, limit.stopping}
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        if result.done():
            return result.result()
        raise WaitEnded if input_end.done() else NotReady("stopping")
    finally:
        result.cancel()


async def answer_of(
    future: Future[Result], graph: Graph, request: Request, timeout: float
) -> Result:
    """As result_of; raises NotAnsweredInTime too, after so many seconds."""
    try:
        async with asyncio.timeout(timeout):
            return await result_of(future, graph, request)
    except TimeoutError:
        raise NotAnsweredInTime(timeout) from None


async def in_order(
    catalog: Catalog, change: Callable[P, Result], *given: P.args, **named: P.kwargs
) -> Result:
    """What the function returns, on the thread of changes of the catalog."""
    call = partial(change, *given, **named)
    return await asyncio.get_running_loop().run_in_executor(catalog.changes, call)


def name_of(what: str, longest: int) -> Any:
    """What is said of a name in a path, of 1 to `longest` characters."""
    limits = {"minLength": 1, "maxLength": longest}
    return Path(description=f"name of {what}", json_schema_extra=limits)


def check_name(field: str, name: str, longest: int) -> None:
    """Raises InvalidValue."""
    if not 1 <= len(name) <= longest:
        raise InvalidValue(field, name, f"1 to {longest} characters")
