"""What a route finds in a request, and that FastAPI tells the world the same."""

from __future__ import annotations

from typing import Annotated, Any

import pytest
from fastapi import APIRouter, Depends, Header, Path, Query, Request, Response
from fastapi.exceptions import RequestValidationError
from starlette.types import Message, Receive, Scope, Send

from gpu import InvalidValue
from service.http import route as direct
from service.http.limits import Exchange
from service.http.route import DirectRoute, DirectRoutes

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
    given_key: Annotated[str | None, Header(min_length=2)] = None,
    share: float = 0.5,
) -> Response:
    found = (name, twice, four_times, given_key, share)
    return Response(repr(found), headers={"method": request.method})


@pytest.fixture
def route(monkeypatch: pytest.MonkeyPatch) -> DirectRoute:
    monkeypatch.setattr(direct, "_admit", lambda _, call: calls.append(call))
    calls.clear()
    router = APIRouter(route_class=DirectRoute)
    router.get("/things/{name}")(endpoint)
    (made,) = router.routes
    assert isinstance(made, DirectRoute)
    return made


async def answered(route: DirectRoute, query: str = "", **headers: str) -> str:
    scope: dict[str, Any] = {
        "type": "http",
        "method": "GET",
        "path": "/things/x",
        "query_string": query.encode(),
        "exchange": Exchange("a request"),
        "headers": [(name.replace("_", "-").encode(), of.encode()) for name, of in headers.items()],
    }
    sent: list[Message] = []

    async def receive() -> Message:
        raise AssertionError("nobody reads a body")

    async def send(message: Message) -> None:
        sent.append(message)

    async def others(scope: Scope, _receive: Receive, _send: Send) -> None:
        raise AssertionError(f"{scope['path']} is the route's")

    await DirectRoutes([route], others)(scope, receive, send)
    body: bytes = sent[1]["body"]
    return body.decode()


def run(coroutine: Any) -> Any:
    import asyncio

    return asyncio.run(coroutine)


def test_arguments_come_from_path_query_header_and_dependencies(route: DirectRoute) -> None:
    answer = run(answered(route, "number=3&share=0.25", given_key="ab"))
    assert answer == "('x', 6, 12, 'ab', 0.25)"


def test_what_is_left_out_has_its_default(route: DirectRoute) -> None:
    assert run(answered(route)) == "('x', 2, 4, None, 0.5)"


def test_a_call_is_admitted_first_and_a_dependency_called_once(route: DirectRoute) -> None:
    run(answered(route))
    assert calls == ["GET /things/{name}", "doubled"]


@pytest.mark.parametrize(
    ("query", "headers", "place", "kind"),
    [
        ("number=0", {}, ("query", "number"), "greater_than_equal"),
        ("number=x", {}, ("query", "number"), "int_parsing"),
        ("share=much", {}, ("query", "share"), "float_parsing"),
        ("", {"given_key": "a"}, ("header", "given-key"), "string_too_short"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(
    route: DirectRoute, query: str, headers: dict[str, str], place: tuple[str, str], kind: str
) -> None:
    with pytest.raises(RequestValidationError) as caught:
        run(answered(route, query, **headers))
    (error,) = caught.value.errors()
    assert (error["loc"], error["type"]) == (place, kind)


def test_a_query_parameter_that_is_not_there_is_refused(route: DirectRoute) -> None:
    with pytest.raises(InvalidValue, match="absent: this call takes share, number") as caught:
        run(answered(route, "numbr=3"))
    assert caught.value.field == "numbr"


def test_the_signature_is_what_openapi_tells(route: DirectRoute) -> None:
    dependant = route.dependant
    told = [field.alias for field in (*dependant.query_params, *dependant.header_params)]
    assert told == ["share", "given-key"]
    assert [field.alias for field in dependant.dependencies[0].query_params] == ["number"]


def test_a_parameter_without_a_default_is_a_mistake_of_the_code() -> None:
    async def careless(number: int) -> Response:
        raise AssertionError(number)

    with pytest.raises(TypeError, match="parameter 'number' of the query needs a default"):
        APIRouter(route_class=DirectRoute).get("/")(careless)
