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
from pydantic import BaseModel, ValidationError
from starlette.convertors import Convertor, register_url_convertor

from gpu import InvalidValue
from service.catalog import Catalog, Graph
from service.errors import PROBLEM_JSON, BodyTooLarge, NotPublishedInTime
from service.keys import KeyKind
from service.settings import Settings
from service.view import View

Model = TypeVar("Model", bound=BaseModel)

_INTEGER = re.compile(r"-?[0-9]{1,19}")


# Dependencies are coroutines: FastAPI sends plain functions to a worker thread, which costs more
# than what they do.


async def catalog_of(request: Request) -> Catalog:
    return cast(Catalog, request.app.state.catalog)


async def refuse_unknown_parameters(request: Request) -> None:
    """Raises InvalidValue for a query parameter that the call does not have: it may be a misspelt
    one, and the default would be taken instead without a word.
    """
    if not request.query_params:
        return
    path = request.app.openapi()["paths"][request.scope["route"].path_format]
    parameters = path[request.method.lower()].get("parameters", [])
    known = [parameter["name"] for parameter in parameters if parameter["in"] == "query"]
    for name in request.query_params:
        if name not in known:
            raise InvalidValue(
                name,
                request.query_params[name],
                "absent: this call takes " + (", ".join(known) or "no query parameters"),
            )


OpenCatalog = Annotated[Catalog, Depends(catalog_of)]


async def graph_of(
    catalog: OpenCatalog, graph: Annotated[str, Path(description="name of a graph")]
) -> Graph:
    return catalog.get(graph)


OpenGraph = Annotated[Graph, Depends(graph_of)]


async def view_of(
    graph: OpenGraph,
    min_version: Annotated[
        int, Query(ge=0, description="wait until this version is published or rejected")
    ] = 0,
    timeout: Annotated[
        float, Query(gt=0, le=300, description="seconds to wait for min_version")
    ] = 10.0,
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
    """The whole body. Raises BodyTooLarge as soon as it is known to be longer than is taken."""
    limit = cast(Settings, request.app.state.settings).max_body_bytes
    announced = request.headers.get("content-length", "0")
    if announced.isdecimal() and int(announced) > limit:
        raise BodyTooLarge(limit)
    chunks = []
    length = 0
    async for chunk in request.stream():
        length += len(chunk)
        if length > limit:
            raise BodyTooLarge(limit)
        chunks.append(chunk)
    return b"".join(chunks)


def parse_body(model: type[Model], body: bytes) -> Model:
    """The JSON `body` as `model`. Raises RequestValidationError, which names the field."""
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise RequestValidationError(error.errors(include_url=False)) from None


class _KeyConvertor(Convertor[str]):
    """`{vertex:key}` in a path: all that is left of it. `path` stops at a line break."""

    regex = "(?s:.*)"

    def convert(self, value: str) -> str:
        return value

    def to_string(self, value: str) -> str:
        return value


register_url_convertor("key", _KeyConvertor())


async def vertex_of(
    request: Request, vertex: Annotated[str, Path(description="key of a vertex")]
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
    404: "Unknown graph, vertex or version",
    409: "The graph exists with other options",
    410: "The journal no longer holds how that batch ended",
    413: "The body is longer than is taken",
    415: "The content type is not taken",
    422: "A field, named in the problem, cannot be used",
    500: "The batch is committed and applied, but not ranked",
    503: "The server is not ready, or its disk failed",
    504: "min_version was not published in time",
    507: "The batch does not fit into memory, or the disk is full",
}


def body_of(model: type[BaseModel], *, required: bool = True) -> dict[str, Any]:
    """For OpenAPI: the JSON body of an endpoint that reads the request itself."""
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    return {
        "requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}
    }
