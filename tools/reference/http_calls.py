"""Every call of the HTTP interface, from the OpenAPI document."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from http import HTTPStatus
from typing import Any

from liverank_gpu import LARGEST_WEIGHT
from liverank_service.app import create_app
from liverank_service.http.access import LIST_OF_GRAPHS, REQUIRED_SCOPE
from liverank_service.settings import Settings
from tools.reference.markdown import code, heading, table

_INTRODUCTION = """\
# HTTP calls

Every call with its parameters, bodies and responses, from the OpenAPI document that a server has at
`/openapi.json`. [The HTTP interface](api.md) explains them, with an example each.

This page is written by `python -m tools.reference`.
"""

Schema = Mapping[str, Any]


def http_calls() -> Iterator[str]:
    """The lines of the page."""
    document = create_app(Settings()).openapi()
    yield _INTRODUCTION.rstrip()
    yield from _list(document)
    yield from heading(2, "Problems")
    yield "What each call may be refused with. [All types of problems](api.md#problems)"
    yield ""
    problems = {
        status: response["description"]
        for methods in document["paths"].values()
        for call in methods.values()
        for status, response in call["responses"].items()
        if "application/problem+json" in response.get("content", {})
    }
    yield from table(("status", "meaning"), sorted(problems.items()))
    by_tag: dict[str, list[tuple[str, str, Any]]] = {}
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            by_tag.setdefault(call["tags"][0], []).append((method.upper(), path, call))
    for tag, calls in sorted(by_tag.items()):
        yield from heading(2, tag.capitalize())
        for method, path, call in calls:
            yield from _call(method, path, call)
    yield from heading(2, "Schemas")
    yield "The members of JSON bodies and responses."
    for name, schema in sorted(document["components"]["schemas"].items()):
        yield from _schema(name, schema)


def _list(document: Schema) -> Iterator[str]:
    """Every call with the scope that an API key needs for it."""
    yield ""
    yield "`scope` is what an [API key](api.md#api-keys) needs, if keys are in use. Beside these,"
    yield "every server has the [dashboard](dashboard.md) at `GET /`, and this interface for people"
    yield "at `GET /docs` and for client generators at `GET /openapi.json`."
    yield ""
    rows = []
    for path, methods in document["paths"].items():
        for method, call in methods.items():
            name = f"{method.upper()} {path}"
            scope: str = REQUIRED_SCOPE[name] or "none"
            if "{graph}" not in path and scope != "none" and name != LIST_OF_GRAPHS:
                scope += ", all graphs"
            effect = " ".join(call["description"].split()).split(". ")[0].rstrip(".")
            identity = call["operationId"]
            rows.append((f"[`{name}`](#{identity})", scope, effect))
    yield from table(("call", "scope", "effect"), rows)


def _call(method: str, path: str, call: Schema) -> Iterator[str]:
    yield from heading(3, call["operationId"])
    yield code(f"{method} {path}")
    yield ""
    yield call["description"]
    yield ""
    yield from table(
        ("parameter", "in", "type", "default", "meaning"),
        (_parameter(each) for each in call.get("parameters", ())),
    )
    for content_type, content in call.get("requestBody", {}).get("content", {}).items():
        yield f"Body: {code(content_type)}, {_type(content['schema'])}"
        yield ""
    yield from table(
        ("status", "response", "body"),
        (
            _response(status, each)
            for status, each in sorted(call["responses"].items())
            if int(status) < HTTPStatus.BAD_REQUEST
        ),
    )
    refused = [
        status for status in sorted(call["responses"]) if int(status) >= HTTPStatus.BAD_REQUEST
    ]
    if refused:
        yield f"[Problems](#problems): {', '.join(refused)}"


def _parameter(parameter: Schema) -> tuple[str, ...]:
    schema = parameter["schema"]
    default = "required" if parameter.get("required") else _default(schema)
    return (
        code(parameter["name"]),
        parameter["in"],
        _type(schema),
        default,
        parameter.get("description", ""),
    )


def _response(status: str, response: Schema) -> tuple[str, ...]:
    bodies = [
        _type(content["schema"]) if content.get("schema", {}).get("$ref") else code(kind)
        for kind, content in response.get("content", {}).items()
    ]
    meaning = response["description"]
    if meaning == "Successful Response":
        meaning = HTTPStatus(int(status)).phrase
    return status, meaning, ", ".join(dict.fromkeys(bodies))


def _schema(name: str, schema: Schema) -> Iterator[str]:
    yield from heading(3, name)
    if "description" in schema:
        yield " ".join(schema["description"].split())
        yield ""
    required = schema.get("required", ())
    yield from table(
        ("member", "type", "default", "meaning"),
        (
            (
                code(member),
                _type(each),
                "required" if member in required else _default(each),
                each.get("description", ""),
            )
            for member, each in schema.get("properties", {}).items()
        ),
    )


def _default(schema: Schema) -> str:
    default = schema.get("default")
    return "" if default is None else code(json.dumps(default))


def _type(schema: Schema) -> str:
    """A schema in words: its type, and what limits its values."""
    if "$ref" in schema:
        name = schema["$ref"].rsplit("/", 1)[1]
        return f"[{name}](#{name.lower()})"
    for combined in ("anyOf", "oneOf"):
        if combined in schema:
            return " or ".join(dict.fromkeys(map(_type, schema[combined])))
    if "enum" in schema:
        return ", ".join(code(str(value)) for value in schema["enum"])
    if "const" in schema:
        return code(str(schema["const"]))
    kind = schema.get("type", "any")
    if kind == "array":
        if "prefixItems" in schema:
            return "[" + ", ".join(map(_type, schema["prefixItems"])) + "]"
        return "array of " + _type(schema.get("items", {}))
    if kind == "object" and isinstance(schema.get("additionalProperties"), dict):
        return "object of " + _type(schema["additionalProperties"])
    if schema.get("format") == "int64":
        return "64-bit integer"
    return str(kind) + _limits(schema)


def _limits(schema: Schema) -> str:
    if schema.get("maximum") == LARGEST_WEIGHT:
        return " (> 0, as float32)"
    limits = [
        f"{sign} {schema[name]}"
        for name, sign in (
            ("minimum", "≥"),
            ("exclusiveMinimum", ">"),
            ("maximum", "≤"),
            ("exclusiveMaximum", "<"),
        )
        if name in schema
    ]
    if "maxLength" in schema:
        limits.append(f"{schema.get('minLength', 0)} to {schema['maxLength']} characters")
    return f" ({', '.join(limits)})" if limits else ""
