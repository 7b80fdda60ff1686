"""The arguments that a route reads from a request, and the same in OpenAPI."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from starlette.types import Message

from liverank_service.errors import InvalidField
from liverank_service.http import route as routes
from liverank_service.http.limits import RequestContext
from liverank_service.http.route import Route

calls: list[str] = []


def doubled(number: Annotated[int, Query(ge=1)] = 1) -> int:
    calls.append("doubled")
    return 2 * number


async def quadrupled(twice: Annotated[int, Depends(doubled)]) -> int:
    return 2 * twice


async def endpoint(
    request: Request,
    name: Annotated[str, Path(description="a name")],
    twice: Annotated[int, Depends(doubled)],
    four_times: Annotated[int, Depends(quadrupled)],
    given_key: Annotated[str | None, Header(min_length=2, max_length=3)] = None,
    share: float = 0.5,
) -> Response:
    found = (name, twice, four_times, given_key, share)
    return Response(repr(found), headers={"method": request.method})


@pytest.fixture
def route(monkeypatch: pytest.MonkeyPatch) -> Route:
    monkeypatch.setattr(routes, "_enter", lambda _, call: calls.append(call))
    calls.clear()
    router = APIRouter(route_class=Route)
    router.get("/things/{name}")(endpoint)
    (made,) = router.routes
    assert isinstance(made, Route)
    return made


async def answered(route: Route, query: str = "", **headers: str) -> str:
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/things/x",
        "query_string": query.encode(),
        "request_context": RequestContext("a request"),
        "path_params": {"name": "x"},
        "headers": [(name.replace("_", "-").encode(), of.encode()) for name, of in headers.items()],
    }
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("nobody reads a body")

    async def send(message: Message) -> None:
        sent.append(message)

    await route.app(scope, receive, send)
    body: bytes = sent[1]["body"]
    return body.decode()


def run(coroutine: Any) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def test_arguments_are_read_from_path_query_header_and_dependencies(route: Route) -> None:
    answer = run(answered(route, "number=3&share=0.25", given_key="ab"))
    assert answer == "('x', 6, 12, 'ab', 0.25)"


def test_what_is_left_out_has_its_default(route: Route) -> None:
    assert run(answered(route)) == "('x', 2, 4, None, 0.5)"


def test_a_call_is_admitted_first_and_a_dependency_called_once(route: Route) -> None:
    run(answered(route))
    assert calls == ["GET /things/{name}", "doubled"]


@pytest.mark.parametrize(
    ("query", "headers", "field", "value", "message"),
    [
        ("number=0", {}, "number", "0", "expected a number of at least 1, got '0'"),
        ("number=x", {}, "number", "x", "expected an integer, got 'x'"),
        ("share=much", {}, "share", "much", "expected a number, got 'much'"),
        ("", {"given_key": "a"}, "given-key", "a", "String should have at least 2 characters"),
        ("", {"given_key": "abcd"}, "given-key", "abcd", "expected at most 3 characters, got"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(
    route: Route, query: str, headers: dict[str, str], field: str, value: str, message: str
) -> None:
    with pytest.raises(InvalidField, match=f"^{field}: {message}") as caught:
        run(answered(route, query, **headers))
    assert (caught.value.field, caught.value.value) == (field, value)


def test_a_query_parameter_that_is_not_there_is_refused(route: Route) -> None:
    with pytest.raises(InvalidField, match="unknown parameter; expected share, number") as caught:
        run(answered(route, "numbr=3"))
    assert caught.value.field == "numbr"


def test_openapi_shows_the_signature(route: Route) -> None:
    dependant = route.dependant
    told = [field.alias for field in (*dependant.query_params, *dependant.header_params)]
    assert told == ["share", "given-key"]
    assert [field.alias for field in dependant.dependencies[0].query_params] == ["number"]


def test_a_parameter_without_a_default_is_a_mistake_of_the_code() -> None:
    async def careless(number: int) -> Response:
        raise AssertionError(number)

    with pytest.raises(TypeError, match="parameter 'number' of the query needs a default"):
        APIRouter(route_class=Route).get("/")(careless)
