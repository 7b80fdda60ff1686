"""The client and the OpenAPI document of the server: every call, parameter and member of both."""

from __future__ import annotations

import inspect
import re
from typing import Any, Literal, get_args, get_origin, get_type_hints

import msgspec
import pytest
from msgspec.structs import FieldInfo, fields

from liverank import choices, options
from liverank.client import (
    AsyncClient,
    Client,
    PersonalizedQuery,
    SourceRange,
)
from liverank.client.batches import SetChange
from liverank.client.call import Call, events, operation
from liverank.client.calls import Calls
from liverank.client.exports import MEDIA_TYPES, export
from liverank_service.http.schemas import MODELS
from tests.service.server import openapi

DOCUMENT = openapi()
SCHEMAS = DOCUMENT["components"]["schemas"]


def _another(option: FieldInfo) -> Any:
    """A value of an option that is not its default."""
    kind, said = options.described(option.type)
    words = (said.extra_json_schema or {}).get("enum") or [
        word
        for each in (kind, *get_args(kind))
        if get_origin(each) is Literal
        for word in get_args(each)
    ]
    if words:
        return next((word for word in words if word != option.default), words[0])
    if kind is bool:
        return not option.default
    kinds = {kind, *get_args(kind)}
    return "s" if str in kinds else 0.5 if float in kinds else 3


TABLES = (
    options.GraphOptions,
    options.BatchOptions,
    options.RecomputeOptions,
    options.PersonalizedQuery,
    options.FeedOptions,
    options.ViewOptions,
)
OPTIONS = {option.name: _another(option) for table in TABLES for option in fields(table)}

ARGUMENTS: dict[str, Any] = OPTIONS | {
    "graph": "g",
    "name": "n",
    "vertex": "v",
    "vertices": ["v"],
    "version": 1,
    "identity": "i",
    "save_every": 5,
    "scope": "read",
    "graphs": ["g"],
    "edges": [("a", "b")],
    "insert": [("a", "b")],
    "delete": [("a", "b")],
    "queries": [
        PersonalizedQuery(
            **{each.name: OPTIONS[each.name] for each in fields(PersonalizedQuery)}
            | {"seeds": {"a": 1.0}}
        )
    ],
    "query": PersonalizedQuery(
        {"a": 1.0}, 3, "push", 0.1, unknown="ignore", damping=0.5, among="s", zeros=True
    ),
    "seeds": {"seed": ["a"]},
    "teleport": "uniform",
    "weight": None,
    "time": None,
    "offset": 2,
    "min_version": 4,
    "min_position": ["s:p:4"],
    "timeout": 2.0,
    "key": "once",
    "top": 5,
    "threshold": 0.5,
    "limit": 10,
    "last_event_id": "e-1",
    "remove": ["w"],
    "replace": {"v": ["w"]},
    "lists": {"v": ["w"]},
    "sets": {"s": SetChange(["a"], ["b"])},
    "source": None,
    "format": "parquet",
    "of": "edges",
    "direction": "in",
    "consumer": "c",
    "state": "retrying",
    "reason": "away",
    "seconds": 30.0,
    "source_range": SourceRange("s", "2", "1", "p"),
    "program": "levels",
    "parameters": {"source": "a"},
    "fresh": True,
    "mode": "asynchronous",
    "limits": {"supersteps": 3, "seconds": 1.0, "memory": 1 << 20},
    "wait": 2.0,
    "order": "smallest",
}
"""A value for every parameter of every method that is not its default."""

METHODS = {name: found for kind in Calls.__mro__ for name, found in vars(kind).items()}
OPERATIONS = [
    name for name, found in METHODS.items() if isinstance(found, operation | events | export)
]
NEGOTIATED = {"Content-Type", "Accept", "Accept-Encoding"}
"""Headers that OpenAPI does not declare as parameters."""

SHORTHANDS = {
    "append": "send",
    "insert": "send",
    "delete": "send",
    "remove": "send",
    "replace": "send",
    "personalized_table": "personalized_many",
    "consumers": "sources",
}
"""Other ways to send a batch, or queries, or to read a response."""

OF_TABLES = {
    *("k", "method", "target_error", "target", "unknown", "damping", "among", "form", "trace"),
    "zeros",
    "within",
}
WITHOUT = {
    "remove": {"on_conflict"},
    "personalized_many": OF_TABLES,
    # of weights in Arrow; in JSON they are in the body: see test_sets.py
    "put_view": {"damping", "direction", "target_error", "refresh", "unknown", "within"},
}
"""Parameters that mean nothing to one of the ways to send a batch, queries, or a view."""

IN_ARROW = {"personalized_table"}
"""Calls whose bodies and responses are Arrow streams."""

STREAMED = {name for name in OPERATIONS if not isinstance(METHODS[name], operation)} | IN_ARROW

SENT_IF_GIVEN = {"insert", "delete", "remove"}
"""Calls whose batches have no `replace`, which servers before it do not know."""

BY_APPEND = {"rank"}
"""Parameters that only `append` has: the other calls wait for the ranks."""

BESIDE = {"ranks": {"vertices"}}
"""Members that the client adds to a response."""


def described(name: str) -> Call[Any]:
    """The call with every parameter given, but for names of columns of frames."""
    parameters = list(inspect.signature(getattr(Calls, name)).parameters)[1:]
    values = ARGUMENTS | (dict.fromkeys(("source", "target")) if "weight" in parameters else {})
    call: Call[Any] = getattr(Calls, name)(None, **{each: values[each] for each in parameters})
    return call


def endpoint_of(call: Call[Any]) -> tuple[str, dict[str, Any]]:
    """The name of a call's endpoint, and its description."""
    found = [
        (f"{call.method} {path}", methods[call.method.lower()])
        for path, methods in DOCUMENT["paths"].items()
        if re.fullmatch(re.sub(r"\\{\w+\\}", "[^/]+", re.escape(path)), call.path)
        and call.method.lower() in methods
    ]
    assert len(found) == 1, f"{call.method} {call.path}: {found}"
    return found[0]


def test_the_client_has_every_call_of_the_api_once() -> None:
    own = [endpoint_of(described(name))[0] for name in OPERATIONS if name not in SHORTHANDS]
    api = [
        f"{method.upper()} {path}" for path, item in DOCUMENT["paths"].items() for method in item
    ]
    assert sorted(own) == sorted(api)


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_parameter_of_the_api_can_be_given_and_no_other(name: str) -> None:
    call = described(name)
    _, endpoint = endpoint_of(call)
    declared = {
        each["name"]
        for each in endpoint.get("parameters", [])
        if each["in"] in ("query", "header") and each["name"] != "authorization"
    }
    declared -= WITHOUT.get(name, set())
    declared -= set() if name == "append" else BY_APPEND
    sent = set(call.query) | (set(call.headers) - NEGOTIATED)
    assert sent == declared


@pytest.mark.parametrize("name", OPERATIONS)
def test_every_member_of_a_body_can_be_given_and_no_other(name: str) -> None:
    call = described(name)
    _, endpoint = endpoint_of(call)
    if "requestBody" not in endpoint:
        assert call.body is None
        return
    assert call.headers["Content-Type"] in endpoint["requestBody"]["content"]
    if name in IN_ARROW:
        assert call.headers["Accept"] in endpoint["responses"]["200"]["content"]
        return
    schema = endpoint["requestBody"]["content"]["application/json"]["schema"]
    document = msgspec.json.decode(call.body or b"")
    if name in SENT_IF_GIVEN:
        assert "replace" not in document
        document["replace"] = {}
    _compare(document, _resolved(schema))


def _compare(document: dict[str, Any], schema: dict[str, Any]) -> None:
    assert set(document) == set(schema["properties"])
    for name, member in schema["properties"].items():
        if member.get("type") == "array" and "$ref" in member["items"]:
            for item in document[name]:
                _compare(item, _resolved(member["items"]))


def _resolved(schema: dict[str, Any]) -> dict[str, Any]:
    while "$ref" in schema:
        schema = SCHEMAS[schema["$ref"].rsplit("/", 1)[1]]
    return schema


@pytest.mark.parametrize("name", [name for name in OPERATIONS if name.startswith("export_")])
def test_every_media_type_of_an_export_can_be_asked_for(name: str) -> None:
    _, endpoint = endpoint_of(described(name))
    assert set(endpoint["responses"]["200"]["content"]) == set(MEDIA_TYPES.values())


@pytest.mark.parametrize("name", OPERATIONS)
def test_calls_return_what_the_api_responds(name: str) -> None:
    _, endpoint = endpoint_of(described(name))
    hints = get_type_hints(getattr(Calls, name))
    (kind,) = get_args(hints["return"])
    if kind in (type(None), bool, str) or name in STREAMED:
        return
    accepted = {"append": ["202"], "batch": ["200"]}.get(name, ["200", "201"])
    declared = {
        reference.rsplit("/", 1)[1]
        for status, body in endpoint["responses"].items()
        if status in accepted and "content" in body
        for reference in re.findall(r"'\$ref': '(.*?)'", str(body["content"]["application/json"]))
    }
    if get_origin(kind) is list:  # a member of a document, such as {"graphs": […]}
        (document,) = declared
        declared = {SCHEMAS[document]["properties"][name]["items"]["$ref"].rsplit("/", 1)[1]}
    kinds = get_args(kind) if get_origin(kind) is not None else (kind,)
    assert {MODELS[each].__name__ for each in kinds} == declared


def test_the_programs_and_orders_are_those_of_the_api() -> None:
    start = DOCUMENT["paths"]["/graphs/{graph}/analyses/{analysis}"]["post"]
    (program,) = (each for each in start["parameters"] if each["name"] == "analysis")
    assert set(get_args(choices.Program)) == set(program["schema"]["examples"])
    top = DOCUMENT["paths"]["/graphs/{graph}/analyses/{analysis}/top"]["get"]
    (order,) = (each for each in top["parameters"] if each["name"] == "order")
    assert set(get_args(choices.Order)) == set(order["schema"]["enum"])


def test_defaults_of_a_query_are_those_of_the_api() -> None:
    assert msgspec.json.encode(PersonalizedQuery({"a": 1.0})) == b'{"seeds":{"a":1.0}}'
    for name in OF_TABLES:
        declared = SCHEMAS["KeyedQuery"]["properties"][name].get("default")
        assert getattr(PersonalizedQuery({"a": 1.0}), name) == declared


@pytest.mark.parametrize("name", OPERATIONS)
def test_both_clients_have_the_call_with_the_same_parameters(name: str) -> None:
    assert inspect.signature(getattr(Client, name)) == inspect.signature(getattr(AsyncClient, name))
    bound = inspect.signature(getattr(Client(), name))
    assert "self" not in bound.parameters
    assert getattr(Client, name).__doc__
