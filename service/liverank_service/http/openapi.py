"""The OpenAPI document: adds what FastAPI cannot see, because endpoints read their bodies
themselves and respond with problem documents. An operation id is the name of its endpoint, since
client generators make names of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi
from fastapi.routing import APIRoute
from pydantic import BaseModel
from pydantic.json_schema import models_json_schema

from liverank_service.formats import CSV, EXPORTED, JSON, NDJSON
from liverank_service.http.access import REQUIRED_SCOPE
from liverank_service.http.schemas import Problem
from liverank_service.problems import MEDIA_TYPE

_UNDECLARED: dict[type[BaseModel], None] = {Problem: None}
"""Models that no endpoint declares: problems, and those of bodies."""

_TAGS = {
    "ranks": "Ranks of the newest published version",
    "batches": "Changes of a graph, and new solves",
    "personalized": "Ranks as seen from seeds, and watched queries",
    "views": "Ranks of all vertices as seen from seeds, which follow every batch",
    "graphs": "Create, describe and drop graphs",
    "edges": "Edges, neighbours and subgraphs",
    "sets": "Named sets of vertices",
    "analyses": "Programs on a graph, and their answers",
    "programs": "Programs of users, which analyses run",
    "changes": "Events of a graph as they happen",
    "keys": "API keys",
    "operations": "For those who run the server",
}

_MEANINGS = {
    401: "An API key is required",
    403: "The API key does not allow the call, a page of another site made it, or programs are off",
    404: "Unknown graph, vertex, version, watched query, view, set, analysis or program",
    406: "The client accepts no form of the response",
    408: "The body arrived too slowly",
    409: "Conflict with what exists",
    410: "The journal no longer holds the outcome of that batch",
    413: "The body, or what the request asks for, exceeds a limit",
    415: "The content type is not supported",
    421: "Without API keys, the server answers only to loopback names",
    422: "A field, named in the problem, is invalid",
    429: "Too much work waits for this graph; Retry-After says when to retry",
    500: "The batch is committed and applied, but could not be ranked",
    503: "The server is not ready or too busy, or its disk failed",
    504: "Timeout",
    507: "Not enough memory or disk space",
}


def problems(*statuses: int) -> dict[int | str, dict[str, Any]]:
    """The responses of an endpoint that are problem documents; 503 is always among them."""
    schema = {"$ref": "#/components/schemas/Problem"}
    return {
        status: {"description": _MEANINGS[status], "content": {MEDIA_TYPE: {"schema": schema}}}
        for status in (*statuses, 503)
    }


def body_of(
    model: type[BaseModel], *, required: bool = True, others: Sequence[str] = ()
) -> dict[str, Any]:
    """The JSON body of an endpoint that reads the request itself.

    others  media types that it may have instead
    """
    _UNDECLARED[model] = None
    schema = {"$ref": f"#/components/schemas/{model.__name__}"}
    content: dict[str, Any] = {JSON: {"schema": schema}}
    content |= {kind: {"schema": _raw(kind)} for kind in others}
    return {"requestBody": {"required": required, "content": content}}


def _raw(media_type: str) -> dict[str, str]:
    """The schema of a body that is no JSON."""
    is_text = media_type in (CSV, NDJSON)
    return {"type": "string"} if is_text else {"type": "string", "format": "binary"}


EXPORT: dict[int | str, dict[str, Any]] = {
    200: {
        "description": "The table, as the header Accept asks",
        "content": {kind: {"schema": _raw(kind)} for kind in EXPORTED},
    }
}
"""The response of an export."""


def answered(*media_types: str) -> dict[int | str, dict[str, Any]]:
    """Other forms of a response in JSON."""
    return {200: {"content": {kind: {"schema": _raw(kind)} for kind in media_types}}}


def _place(parameter: dict[str, Any], path: str) -> int:
    """Parameters of the path first, in its order; the others stay in theirs."""
    is_of_path = parameter["in"] == "path"
    return path.index(f"{{{parameter['name']}}}") if is_of_path else len(path)


def _add_items(part: Any) -> None:
    """Adds `items`, one of the kinds in `prefixItems`, to arrays without: linters ask for it, and
    generators that do not know `prefixItems` make types of it.
    """
    if isinstance(part, dict):
        if "prefixItems" in part and "items" not in part:
            kinds = [
                one
                for n, one in enumerate(part["prefixItems"])
                if one not in part["prefixItems"][:n]
            ]
            part["items"] = kinds[0] if len(kinds) == 1 else {"anyOf": kinds}
        part = list(part.values())
    for each in part if isinstance(part, list) else ():
        _add_items(each)


def openapi_of(app: FastAPI) -> dict[str, Any]:
    """The document of the app, with scopes and additional models."""
    if app.openapi_schema is None:
        schema = get_openapi(
            title=app.title,
            version=app.version,
            summary=app.summary,
            description=app.description,
            contact=app.contact,
            routes=app.routes,
        )
        _, definitions = models_json_schema(
            [(model, "validation") for model in _UNDECLARED],
            ref_template="#/components/schemas/{model}",
        )
        schema["components"]["schemas"].update(definitions["$defs"])
        schema["components"]["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
        names = {
            (method, route.path_format): route.name
            for route in app.routes
            if isinstance(route, APIRoute)
            for method in route.methods or ()
        }
        schema["servers"] = [{"url": "/", "description": "The server of this document"}]
        schema["tags"] = [{"name": name, "description": text} for name, text in _TAGS.items()]
        _add_items(schema["components"]["schemas"])
        for path, calls in schema["paths"].items():
            for method, call in calls.items():
                call["operationId"] = names[method.upper(), path]
                # FastAPI lists those of dependencies last; generated clients take them in order
                call.get("parameters", []).sort(key=lambda one: _place(one, path))
                # FastAPI makes a title of the endpoint's name, which says less
                call["summary"] = " ".join(call["description"].split()).split(". ")[0].rstrip(".")
                scope = REQUIRED_SCOPE[f"{method.upper()} {path}"]
                if scope is not None:
                    call["security"] = [{"key": []}]
                    call["description"] = f"{call['description']}\n\nScope: {scope}."
                statuses = [422]  # for parameters of the query that a call does not have
                statuses += [401, 403, 421] if scope is not None else []
                statuses += [408, 413, 415] if "requestBody" in call else []
                for status in statuses:
                    call["responses"].setdefault(str(status), problems(status)[status])
        app.openapi_schema = schema
    return app.openapi_schema
