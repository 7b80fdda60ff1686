"""What the routes share: the graph in the path, the view to read, the body, the answer."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated, Any, TypeVar, cast
from urllib.parse import unquote_to_bytes

import orjson
import pyarrow as pa
from fastapi import Depends, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ValidationError
from starlette.convertors import Convertor, register_url_convertor

from gpu import InvalidValue
from service.catalog import Catalog, Graph
from service.errors import (
    PROBLEM_JSON,
    BodyTooLarge,
    NotPublishedInTime,
    SlowClient,
    UnsupportedEncoding,
)
from service.formats.decode import FormatError
from service.formats.duplicate_members import repeated_member
from service.http.limits import Capacity, Exchange
from service.queries.view import View
from service.settings import Settings
from service.vertex_keys.table import ARROW_TYPES, KeyKind

Model = TypeVar("Model", bound=BaseModel)

SLOWEST_BYTES_PER_SECOND = 16 * 1024
"""A body that comes more slowly, on average, is given up after `slow_client_seconds`."""

_INTEGER = re.compile(r"-?[0-9]{1,19}")


def catalog_of(request: Request) -> Catalog:
    return cast(Catalog, request.app.state.catalog)


def call_of(method: str, route: APIRoute) -> str:
    """The name of a call, like ``GET /graphs/{graph}/top``: in tables, metrics and documents."""
    return f"{method} {route.path_format}"


def exchange_of(request: Request) -> Exchange:
    return cast(Exchange, request.scope["exchange"])


def capacity_of(request: Request) -> Capacity:
    return cast(Capacity, request.app.state.capacity)


OpenCatalog = Annotated[Catalog, Depends(catalog_of)]


def graph_of(
    catalog: OpenCatalog, graph: Annotated[str, Path(description="name of a graph")]
) -> Graph:
    return catalog.get(graph)


OpenGraph = Annotated[Graph, Depends(graph_of)]


Seconds = Annotated[
    float, Query(gt=0, le=300, description="seconds to wait for min_version, or for an answer")
]


async def view_of(
    graph: OpenGraph,
    min_version: Annotated[
        int, Query(ge=0, description="wait until this version is published or rejected")
    ] = 0,
    timeout: Seconds = 10.0,
) -> View:
    """The newest view, or the first one that holds `min_version`."""
    view = graph.pipeline.view
    if view.version >= min_version:
        return view
    try:
        async with asyncio.timeout(timeout):
            return await asyncio.wrap_future(graph.pipeline.published(min_version))
    except TimeoutError:
        newest = graph.pipeline.view.version
        raise NotPublishedInTime(min_version, newest, timeout) from None


PublishedView = Annotated[View, Depends(view_of)]


async def read_body(request: Request) -> bytes:
    """The whole body.

    Raises BodyTooLarge as soon as it is known to be longer than is taken, TooBusy, SlowClient,
    UnsupportedEncoding.
    """
    settings = cast(Settings, request.app.state.settings)
    limit = settings.max_body_bytes
    encoding = request.headers.get("content-encoding", "identity")
    if encoding != "identity":
        raise UnsupportedEncoding(encoding)
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limit:
        raise BodyTooLarge(limit)
    exchange, capacity = exchange_of(request), capacity_of(request)
    chunks = []
    length = 0
    started = asyncio.get_running_loop().time()
    try:
        async with asyncio.timeout(settings.slow_client_seconds) as patience:
            async for chunk in request.stream():
                length += len(chunk)
                if length > limit:
                    raise BodyTooLarge(limit)
                capacity.hold(exchange, len(chunk))
                chunks.append(chunk)
                if length >= SLOWEST_BYTES_PER_SECOND:
                    earned = settings.slow_client_seconds + length / SLOWEST_BYTES_PER_SECOND
                    patience.reschedule(started + earned)
    except TimeoutError:
        waited = asyncio.get_running_loop().time() - started
        raise SlowClient(length, waited) from None
    return b"".join(chunks)


def release_body(request: Request) -> None:
    """Says that the body is parsed: its bytes no longer count among those being received."""
    capacity_of(request).release_body(exchange_of(request))


def parse_body(model: type[Model], body: bytes) -> Model:
    """The JSON `body` as `model`.

    Raises RequestValidationError, which names the field, and FormatError for a member that stands
    twice.
    """
    try:
        parsed = model.model_validate_json(body)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        if first["type"] == "extra_forbidden" and len(first["loc"]) == 1:
            known = ", ".join(model.model_fields)
            requirement = f"absent; known are {known}"
            raise InvalidValue(str(first["loc"][0]), first["input"], requirement) from None
        raise RequestValidationError([first]) from None
    name = repeated_member(body)
    if name is not None:
        raise FormatError(name, None, "stands twice in one object")
    return parsed


class _KeyConvertor(Convertor[str]):
    """`{vertex:key}` in a path: all that is left of it. `path` stops at a line break."""

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
    """The key in a path as text. Raises InvalidValue where its bytes are not UTF-8."""
    if "\ufffd" in vertex:  # which also stands where the bytes could not be decoded
        try:
            unquote_to_bytes(request.scope["raw_path"]).decode()
        except UnicodeDecodeError:
            raise InvalidValue("vertex", vertex, "UTF-8, percent-encoded") from None
    return vertex


Vertex = Annotated[str, Depends(vertex_of)]


def key_of(vertex: str, kind: KeyKind) -> pa.Array:
    """The key in a path, as an array of one. Raises InvalidValue."""
    if kind == "integer":
        if _INTEGER.fullmatch(vertex) is None or not -(2**63) <= int(vertex) < 2**63:
            raise InvalidValue("vertex", vertex, "a signed 64-bit integer: the graph's keys are")
        return pa.array([int(vertex)], pa.int64())
    if not vertex:
        raise InvalidValue("vertex", vertex, "a key of at least one character")
    return pa.array([vertex], pa.string())


def seeds_of(
    seeds: dict[str, float], kind: KeyKind, field: str
) -> tuple[pa.Array, tuple[float, ...]]:
    """Keys and weights of a JSON object, whose members are text whatever the graph's keys are.

    Raises InvalidValue.
    """
    if not seeds:
        raise InvalidValue(field, {}, "at least one vertex with its weight")
    keys: list[str | int] = []
    for text in seeds:
        try:
            keys.append(key_of(text, kind)[0].as_py())
        except InvalidValue as error:
            raise InvalidValue(f"{field}[{text!r}]", text, error.requirement) from None
    return pa.array(keys, ARROW_TYPES[kind]), tuple(seeds.values())


def json_answer(content: Any, status: int = 200) -> Response:
    return stored_answer(orjson.dumps(content), status)


def stored_answer(body: bytes, status: int = 200) -> Response:
    """JSON that was encoded before. It ends its line: a terminal shows one answer after another."""
    return Response(body + b"\n", status, media_type="application/json")


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """For OpenAPI: the statuses that come with a problem document; 503 always can."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": _MEANINGS[status], "content": {PROBLEM_JSON: {"schema": schema}}}
        for status in (*statuses, 503)
    }


_MEANINGS = {
    401: "An API key is due",
    403: "The API key does not reach so far, or a page of another site asks",
    408: "The body came too slowly",
    404: "Unknown graph, vertex, version or watched query",
    409: "What is there is in the way",
    410: "The journal no longer holds how that batch ended",
    413: "The body is longer than is taken",
    415: "The content type is not taken",
    421: "Without API keys, only names of this machine are answered",
    422: "A field, named in the problem, cannot be used",
    429: "Too much waits for this graph; Retry-After says when to ask again",
    500: "The batch is committed and applied, but not ranked",
    503: "The server is not ready or too busy, or its disk failed",
    504: "It was not there in time",
    507: "It does not fit, into memory or onto the disk",
}


def body_of(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """For OpenAPI: the JSON body of an endpoint that reads the request itself."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {
        "requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}
    }
