"""Personalized PageRank: one query in the path, or many in a body."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

import orjson
import pyarrow as pa
from fastapi import APIRouter, Request, Response

from liverank.options import PersonalizedQuery, given
from liverank_gpu import PUBLISHED_METHODS, TARGETS, Personalized
from liverank_service.catalog import Graph
from liverank_service.errors import FormatError, InvalidField, RequestTooLarge
from liverank_service.formats import ARROW_STREAM, JSON
from liverank_service.formats.seeds import SeedColumns, decode_seeds
from liverank_service.http.body import count_places, on_thread, parse_body, read_body, release_body
from liverank_service.http.dependencies import (
    AnswerTimeout,
    OpenGraph,
    PublishedView,
    Vertex,
    result_of,
)
from liverank_service.http.openapi import answered, body_of, problems
from liverank_service.http.responses import (
    entity_tag,
    media_type_for,
    not_modified,
    tagged_response,
)
from liverank_service.http.route import Route
from liverank_service.http.routes.ranks import ranked_vertices
from liverank_service.http.schemas import (
    MAX_QUERIES,
    PersonalizedAnswers,
    PersonalizedRanks,
    PersonalizedRequest,
    query_of,
)
from liverank_service.queries.exports import answers_stream
from liverank_service.queries.model import (
    KeyedQuery,
    PendingQuery,
    QueryAnswer,
    QueryRequest,
    QueryResponse,
    WatchedQuery,
    members_of,
)
from liverank_service.queries.view import View, state_of
from liverank_service.settings import Settings
from liverank_service.vertex_keys import key_from_text

router = APIRouter(tags=["personalized"], route_class=Route)

_MEMBERS = len(KeyedQuery.model_fields)

_ROW_BYTES = 64
"""About what a place takes in an answer."""

_TRACE_PLACES = 1_000
"""Places that take as much as a trace."""

_METHOD = "one of " + ", ".join(PUBLISHED_METHODS) + "; `pushopt` of the published form"
_AMONG = "name of a set: only its vertices are in the answer, with their ranks in the whole graph"
_WITHIN = (
    "name of a set: the walk follows only the edges between its vertices, and they alone are in "
    "the answer, with their ranks in this part of the graph"
)
_IN_QUERY: dict[str, dict[str, Any] | None] = {
    "seeds": None,
    "method": {"description": _METHOD},
    "target": {"description": "one of " + ", ".join(TARGETS)},
    "among": {"description": _AMONG, "kind": str | None},
    "within": {"description": _WITHIN, "kind": str | None},
}
_OF_VERTEX = _IN_QUERY | {
    "k": {"description": "number of places; fewer in a smaller graph"},
    "unknown": {"description": "`ignore`: there are no ranks if the vertex is unknown"},
}
_OF_ARROW = _IN_QUERY | {
    "k": {"description": "number of places; 10"},
    "unknown": {"description": "`ignore`: seeds that are no vertices are left out"},
}


@router.get(
    "/graphs/{graph}/personalized/{vertex:key}",
    response_model=PersonalizedRanks,
    responses=problems(404, 413, 422, 429, 504, 507),
)
async def personalized_one(
    request: Request,
    graph: OpenGraph,
    vertex: Vertex,
    options: Annotated[dict[str, Any], query_of(PersonalizedQuery, dict, _OF_VERTEX)],
    timeout: AnswerTimeout,
    view: PublishedView,
) -> Response:
    """The vertices of highest rank when every walk restarts at this one, best first."""
    # the answer is known without solving, unless a newer version may have another one
    if view.version == graph.pipeline.committed and request.headers.get("if-none-match") != "*":
        known = not_modified(request, entity_tag(request, graph, view.state))
        if known is not None:
            return known
    key = key_from_text(vertex, graph.options.keys)
    query = KeyedQuery(seeds=SeedColumns.of({vertex: 1.0}), **options)
    count_places(request, _places(query, view), "k")
    pending = PendingQuery[QueryResponse]([query], timeout, seeds_field="vertex")
    graph.pipeline.submit_query(pending)
    found = await result_of(pending.answer, graph, request)
    head = {"vertex": key, "version": found.version, "revision": found.revision}
    tag = entity_tag(request, graph, state_of(found.version, found.revision))
    return await on_thread(
        _size(found), lambda: tagged_response(request, tag, {**head, **_document(found.answers[0])})
    )


@router.post(
    "/graphs/{graph}/personalized",
    response_model=PersonalizedAnswers,
    responses={**answered(ARROW_STREAM), **problems(404, 406, 413, 422, 429, 504, 507)},
    openapi_extra=body_of(PersonalizedRequest, others=(ARROW_STREAM,)),
)
async def personalized_many(
    request: Request,
    graph: OpenGraph,
    given: Annotated[
        dict[str, Any],
        query_of(
            PersonalizedQuery,
            dict,
            _OF_ARROW,
            " (of a body in Arrow; in JSON each query has its own)",
        ),
    ],
    timeout: AnswerTimeout,
    view: PublishedView,
) -> Response:
    """Queries with weighted seeds, answered together and in order, all of one version."""
    media_type = media_type_for(request, (JSON, ARROW_STREAM))
    body = await read_body(request)
    pending = await on_thread(len(body), partial(_parsed, request, graph, body, given, timeout))
    release_body(request)
    count_places(request, sum(_places(query, view) for query in pending.queries), "queries")
    graph.pipeline.submit_query(pending)
    found = await result_of(pending.answer, graph, request)
    if media_type == JSON:
        return await on_thread(_size(found), partial(_response, found))
    labels = pending.labels or range(len(pending.queries))
    stream = await on_thread(_size(found), partial(answers_stream, found, labels))
    return Response(stream, media_type=ARROW_STREAM)


def _parsed(
    request: Request, graph: Graph, body: bytes, given: Mapping[str, Any], timeout: float
) -> QueryRequest:
    """The queries in a body. Raises as parse_body, decode_seeds and check_keys."""
    settings: Settings = request.app.state.settings
    if not is_arrow(request):
        for name, value in given.items():
            raise InvalidField(name, None, value, "in JSON each query has its own")
        most = settings.max_query_keys
        parsed = parse_body(PersonalizedRequest, body, _members, most + _MEMBERS * MAX_QUERIES)
        check_keys(sum(query.listed_keys for query in parsed.queries), most, "queries")
        return QueryRequest(parsed.queries, timeout)
    seeds = decode_seeds(body, graph.options.keys, settings.max_body_bytes)
    check_keys(sum(map(len, seeds.values())), settings.max_query_keys, "seed")
    if len(seeds) > MAX_QUERIES:
        message = f"expected at most {MAX_QUERIES:,} queries, got {len(seeds):,}"
        raise FormatError("query", None, message)
    queries = [KeyedQuery(seeds=each, **given) for each in seeds.values()]
    return QueryRequest(queries, timeout, list(seeds))


def is_arrow(request: Request) -> bool:
    """Whether the body is an Arrow stream; others are JSON."""
    content_type = request.headers.get("content-type", "").split(";")[0].strip().lower()
    return content_type == ARROW_STREAM


def _places(query: WatchedQuery, view: View) -> int:
    """Places in the answer, at most; a trace counts as some."""
    traced = isinstance(query, KeyedQuery) and query.trace
    return min(query.k, view.vertices) + (_TRACE_PLACES if traced else 0)


def check_keys(count: int, limit: int, field: str) -> None:
    """Raises RequestTooLarge if queries list too many keys."""
    if count > limit:
        raise RequestTooLarge(field, count, limit, "seeds and vertices of `among` and `within`")


def _members(parsed: PersonalizedRequest) -> int:
    """The number of members of all objects in the body."""
    return 1 + sum(len(query.model_fields_set) + len(query.seeds) for query in parsed.queries)


def _size(found: QueryResponse) -> int:
    """About how many bytes the answers take in a response."""
    return _ROW_BYTES * sum(len(answer.vertices) for answer in found.answers)


def _response(found: QueryResponse) -> Response:
    """All answers as JSON. Each is encoded on its own, and they are joined without the interpreter
    lock: a read never waits for all of them.
    """
    head = orjson.dumps({"version": found.version, "revision": found.revision})
    pieces = [head[:-1], b',"answers":[']
    for answer in found.answers:
        pieces += [orjson.dumps(_document(answer)), b","]
    pieces[-1] = b"]}\n"
    return Response(b"".join(pieces), media_type=JSON)


def _document(answer: QueryAnswer) -> dict[str, Any]:
    return answer_document(answer.vertices, answer.places, answer.ignored)


def answer_document(vertices: pa.Array, places: Personalized, ignored: list[Any]) -> dict[str, Any]:
    return {
        "error_bound": places.error_bound,
        "ranks": ranked_vertices(vertices, places.ranks),
        **members_of(places, ignored),
        **given(refused=places.refused, trace=places.trace),
    }
