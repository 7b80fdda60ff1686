"""Routes that find their parameters themselves: FastAPI's way of doing it costs more than most of
the calls of this service do.

FastAPI reads the signature of an endpoint, for OpenAPI and the /docs page; `DirectRoute` reads the
same signature once and makes of it what runs for each request. It knows what the endpoints here
use: the request, dependencies without `yield`, and parameters of path, query and header, of which
those of path are due and the others have defaults.
"""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Annotated, Any, get_args, get_origin, get_type_hints

from fastapi import Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.params import Depends, Header, Path
from fastapi.routing import APIRoute
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from starlette.types import ASGIApp, Receive, Scope, Send

from gpu import InvalidValue
from service.errors import ServiceError
from service.http.access import CALLS, access_of
from service.http.parameters import call_of, capacity_of, exchange_of

log = logging.getLogger("liverank.access")

Solved = dict[Callable[..., Any], Any]
"""What dependencies have returned for a request: each is called once."""


class DirectRoute(APIRoute):
    """A route of this service.

    A call is admitted before anything else is looked at. Then a query parameter that it does not
    have is refused: it may be a misspelt one, and the default would be taken without a word.
    """

    def __init__(self, path: str, endpoint: Callable[..., Any], **options: Any) -> None:
        super().__init__(path, endpoint, **options)
        self._endpoint = _Call(endpoint, frozenset(self.param_convertors))
        self._calls = {method: call_of(method, self) for method in self.methods or ()}

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        async def refuse(request: Request) -> Response:
            raise LookupError(f"{request.url.path} came by a way that admits everyone")

        return refuse

    def takes(self, scope: Scope) -> bool:
        """Whether the request is for this route. Leaves the parameters of its path in `scope`."""
        if scope["method"] not in self._calls:
            return False
        match = self.path_regex.match(scope["path"])
        if match is None:
            return False
        scope["path_params"] = {
            name: self.param_convertors[name].convert(text)
            for name, text in match.groupdict().items()
        }
        return True

    async def handle(self, scope: Scope, receive: Receive, send: Send) -> None:
        call = self._calls.get(scope["method"])
        if call is None:  # the path is right
            await super().handle(scope, receive, send)
            return
        request = Request(scope, receive, send)
        _admit(request, call)
        if exchange_of(request).kind == "other":
            await capacity_of(request).turns.take()
        if scope["query_string"]:
            _refuse_unknown(request, self._endpoint.query_names)
        answer: Response = await self._endpoint(request, {})
        await answer(scope, receive, send)


class DirectRoutes:
    """The service's own routes; what none of them takes goes on to `others`."""

    def __init__(self, routes: Sequence[DirectRoute], others: ASGIApp) -> None:
        self._routes = routes
        self._others = others

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and not scope.get("root_path"):
            for route in self._routes:
                if route.takes(scope):
                    await route.handle(scope, receive, send)
                    return
        await self._others(scope, receive, send)


def _admit(request: Request, call: str) -> None:
    """Lets the request in. Raises what Access.check and Capacity.enter do."""
    exchange = exchange_of(request)
    exchange.call = call
    scope = CALLS[call]
    try:
        request.state.key = access_of(request).check(call, request)
    except ServiceError as error:
        client = request.client.host if request.client else None
        log.warning("not let in: %s", error, extra={"call": call, "client": client})
        raise
    if scope is not None:
        capacity_of(request).enter(exchange, "read" if scope == "read" else "other")


def _refuse_unknown(request: Request, known: list[str]) -> None:
    for name in request.query_params:
        if name not in known:
            raise InvalidValue(
                name,
                request.query_params[name],
                "absent: this call takes " + (", ".join(known) or "no query parameters"),
            )


class _Call:
    """A function, and where each of its arguments comes from.

    query_names  of its own query parameters, then of those of its dependencies
    """

    def __init__(self, function: Callable[..., Any], in_path: frozenset[str]) -> None:
        self._function = function
        self._waits = inspect.iscoroutinefunction(function)
        self._finders: list[tuple[str, _Call | _Parameter | None]] = []
        self.query_names: list[str] = []
        of_dependencies: list[str] = []
        types = get_type_hints(function, include_extras=True)
        for name, parameter in inspect.signature(function).parameters.items():
            finder = _finder(name, types[name], parameter.default, in_path)
            self._finders.append((name, finder))
            if isinstance(finder, _Call):
                of_dependencies += finder.query_names
            elif finder is not None and finder.place == "query":
                self.query_names.append(finder.alias)
        self.query_names = list(dict.fromkeys(self.query_names + of_dependencies))

    async def __call__(self, request: Request, solved: Solved) -> Any:
        """Calls it. Raises RequestValidationError, and what it and its dependencies raise."""
        arguments: dict[str, Any] = {}
        for name, finder in self._finders:
            if finder is None:
                arguments[name] = request
            elif isinstance(finder, _Parameter):
                arguments[name] = finder(request)
            elif finder._function in solved:
                arguments[name] = solved[finder._function]
            else:
                value = await finder(request, solved)
                arguments[name] = solved[finder._function] = value
        result = self._function(**arguments)
        return await result if self._waits else result


class _Parameter:
    """One value of a request."""

    def __init__(self, name: str, place: str, annotation: Any, field: Any, default: Any) -> None:
        self.place = place
        self.alias: str = name
        constraints = []
        if isinstance(field, FieldInfo):
            self.alias = field.alias or (name.replace("_", "-") if place == "header" else name)
            constraints = field.metadata
        self._default = default
        if place != "path" and default is inspect.Parameter.empty:
            raise TypeError(f"parameter {name!r} of the {place} needs a default")
        self._adapter: TypeAdapter[Any] | None = None
        if annotation is not str or constraints:
            due: Any = Annotated[annotation, *constraints] if constraints else annotation
            self._adapter = TypeAdapter(due)

    def __call__(self, request: Request) -> Any:
        if self.place == "path":
            value = request.path_params[self.alias]
        elif self.place == "header":
            value = request.headers.get(self.alias)
        else:
            value = request.query_params.get(self.alias)
        if value is None:
            return self._default
        if self._adapter is None:
            return value
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            first = error.errors(include_url=False)[0]
            raise RequestValidationError(
                [{**first, "loc": (self.place, self.alias, *first["loc"])}]
            ) from None


def _finder(
    name: str, annotation: Any, default: Any, in_path: frozenset[str]
) -> _Call | _Parameter | None:
    """Where an argument comes from; None for the request itself."""
    field: Any = None
    if get_origin(annotation) is Annotated:
        annotation, field = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, Request):
        return None
    if isinstance(field, Depends):
        assert field.dependency is not None
        return _Call(field.dependency, in_path)
    if isinstance(field, Path) or name in in_path:
        return _Parameter(name, "path", annotation, field, default)
    place = "header" if isinstance(field, Header) else "query"
    return _Parameter(name, place, annotation, field, default)
