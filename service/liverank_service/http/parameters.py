"""Arguments of an endpoint, read from a request by the endpoint's own signature.

FastAPI reads the same signature for OpenAPI and /docs, but its own reading of a request takes
longer than most calls of this service. Supported: the request, dependencies without `yield`, and
parameters of path (required), query and header (with a default). A parameter of the query that is
a tuple may be repeated.

What is wrong with one is said by errors of the service in place of pydantic's.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, get_args, get_origin, get_type_hints
from urllib.parse import unquote_to_bytes

from fastapi import Request
from fastapi.params import Depends, Header, Path
from pydantic import TypeAdapter, ValidationError
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from liverank_gpu import InvalidValue
from liverank_service.errors import FormatError, InvalidField

_EXPECTED = {
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
    "int_parsing": "an integer",
    "int_type": "an integer",
    "int_from_float": "an integer",
    "float_parsing": "a number",
    "float_type": "a number",
    "bool_parsing": "true or false",
    "bool_type": "true or false",
    "string_type": "a string",
    "string_too_long": "at most {max_length} characters",
    "literal_error": "{expected}",
    "list_type": "a list",
    "missing": "a value, since it has no default",
}
"""What a value must be, by type of the error; of other types pydantic's words are told."""


_MEMBER = re.compile(r"(str|int|float|bool|list|literal)(\[.*\])?")
"""What pydantic adds to the location of an error for each member of a union."""


def first_of(errors: list[ErrorDetails]) -> ErrorDetails:
    """The first of pydantic's errors; of a union the one that all members that fit furthest have
    in common, at its own location.
    """
    first = errors[0]
    for place in range(len(first["loc"])):
        alike = [each for each in errors if each["loc"][:place] == first["loc"][:place]]
        alike = [each for each in alike if _MEMBER.fullmatch(str((*each["loc"], "")[place]))]
        # keys of an object may be called as types are: the values of two are others
        inputs = [each["input"] for each in alike if len(each["loc"]) == place + 1]
        is_union = len({each["loc"][place] for each in alike}) > 1
        is_union = is_union and all(each == inputs[0] for each in inputs)
        if is_union and first in alike:
            most = max(len(each["loc"]) for each in alike)
            inner: list[ErrorDetails] = [
                {**each, "loc": each["loc"][:place] + each["loc"][place + 1 :]}
                for each in alike
                if len(each["loc"]) == most
            ]
            if (found := first_of(inner)) not in inner:  # of a union in it
                return found
            same = [_expected(each) for each in inner if each["loc"] == found["loc"]]
            if _EXPECTED["float_type"] in same:  # which integers are
                same = [each for each in same if each != _EXPECTED["int_type"]]
            expected = " or ".join(dict.fromkeys(filter(None, same)))
            return {**found, "type": "literal_error", "ctx": {"expected": expected}}
    return first


def invalid(error: ErrorDetails) -> FormatError | InvalidField:
    """One of pydantic's errors, named by field and index."""
    if error["type"] == "json_invalid":
        reason = error.get("ctx", {}).get("error", error["msg"])
        return FormatError("body", None, f"not JSON: {reason}")
    location = error["loc"]
    field = ".".join(part for part in location if isinstance(part, str)) or "body"
    index = next((part for part in location if isinstance(part, int)), None)
    value = error.get("input")
    shown = value if isinstance(value, str | int | float) else None
    return InvalidField(field, index, shown, _message(error, shown))


def _message(error: ErrorDetails, shown: object) -> str:
    expected = _expected(error)
    if expected is None:
        return error["msg"]
    got = "" if shown is None else f", got {shown!r}"
    return f"expected {expected}{got}"


def _expected(error: ErrorDetails) -> str | None:
    words = _EXPECTED.get(error["type"])
    return None if words is None else words.format(**error.get("ctx", {}))


class Endpoint:
    """A function with its dependencies, each of which is called once per request.

    query_names     names of its query parameters, then of those of its dependencies
    repeated_names  those of them that may be given several times
    """

    def __init__(self, function: Callable[..., Any], path_names: frozenset[str]) -> None:
        """path_names: the parameters that the route's path has."""
        self._path_names = path_names
        self._steps: list[_Step] = []
        self._places: dict[Callable[..., Any], int] = {}
        own = self._plan(function)
        others = [name for step in self._steps for name in step.query_names]
        self.query_names = list(dict.fromkeys([*self._steps[own].query_names, *others]))
        read = [each for step in self._steps for _, each in step.parameters]
        self.repeated_names = {each.alias for each in read if each.is_repeated}

    async def __call__(self, request: Request) -> Any:
        """Calls the function. Raises InvalidField, and what the function and its dependencies
        raise.
        """
        results: list[Any] = []
        for function, is_async, requests, parameters, dependencies in self._steps:
            arguments = {name: parameter.read(request) for name, parameter in parameters}
            for name in requests:
                arguments[name] = request
            for name, place in dependencies:
                arguments[name] = results[place]
            result = function(**arguments)
            results.append(await result if is_async else result)
        return results[-1]

    def _plan(self, function: Callable[..., Any]) -> int:
        """Adds the function's step after those of its dependencies; returns the index of its
        result.
        """
        if function in self._places:
            return self._places[function]
        step = _Step(function, inspect.iscoroutinefunction(function), [], [], [])
        types = get_type_hints(function, include_extras=True)
        for name, parameter in inspect.signature(function).parameters.items():
            annotation, field = types[name], None
            if get_origin(annotation) is Annotated:
                annotation, field = get_args(annotation)
            if isinstance(annotation, type) and issubclass(annotation, Request):
                step.requests.append(name)
            elif isinstance(field, Depends):
                assert field.dependency is not None
                step.dependencies.append((name, self._plan(field.dependency)))
            else:
                location = self._location(name, field)
                read = _Parameter(name, location, annotation, field, parameter.default)
                step.parameters.append((name, read))
        self._steps.append(step)
        self._places[function] = len(self._steps) - 1
        return self._places[function]

    def _location(self, name: str, field: Any) -> str:
        if isinstance(field, Path) or name in self._path_names:
            return "path"
        return "header" if isinstance(field, Header) else "query"


class _Step(NamedTuple):
    """A function to call, and its arguments by their sources.

    dependencies  indices of earlier steps
    """

    function: Callable[..., Any]
    is_async: bool
    requests: list[str]
    parameters: list[tuple[str, _Parameter]]
    dependencies: list[tuple[str, int]]

    @property
    def query_names(self) -> list[str]:
        return [read.alias for _, read in self.parameters if read.location == "query"]


class _Parameter:
    """One value of a request."""

    def __init__(self, name: str, location: str, annotation: Any, field: Any, default: Any) -> None:
        self.location = location
        self.alias: str = name
        constraints = []
        if isinstance(field, FieldInfo):
            dashed = name.replace("_", "-") if location == "header" else name
            self.alias = field.alias or dashed
            constraints = field.metadata
        if location != "path" and default is inspect.Parameter.empty:
            raise TypeError(f"parameter {name!r} of the {location} needs a default")
        self._default = default
        self.is_repeated = get_origin(annotation) is tuple
        self._adapter: TypeAdapter[Any] | None = None
        if annotation is not str or constraints:
            self._adapter = TypeAdapter(
                Annotated[annotation, *constraints] if constraints else annotation
            )

    def read(self, request: Request) -> Any:
        """Raises InvalidField."""
        if self.location == "path":
            value = request.path_params[self.alias]
        elif self.location == "header":
            value = request.headers.get(self.alias)
        elif not request.scope["query_string"]:
            return self._default
        elif self.is_repeated:
            value = request.query_params.getlist(self.alias) or None
        else:
            value = request.query_params.get(self.alias)
        if value is None:
            return self._default
        if self.location != "header" and "\ufffd" in "".join(value):
            self._check_text(request, value)
        if self._adapter is None:
            return value
        try:
            return self._adapter.validate_python(value)
        except ValidationError as error:
            first = first_of(error.errors(include_url=False))
            raise invalid({**first, "loc": (self.alias, *first["loc"])}) from None

    def _check_text(self, request: Request, value: Any) -> None:
        """Raises InvalidValue: the replacement character stands for bytes that are not UTF-8, of
        which several would be the same name.
        """
        name = "raw_path" if self.location == "path" else "query_string"
        try:
            unquote_to_bytes(request.scope[name]).decode()
        except UnicodeDecodeError:
            raise InvalidValue(self.alias, value, "UTF-8, percent-encoded") from None
