"""pydantic's errors as errors of the service."""

from __future__ import annotations

from pydantic_core import ErrorDetails

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
    "literal_error": "{expected}",
    "missing": "a value, since it has no default",
}
"""What a value must be, by type of the error; of other types pydantic's words are told."""


def invalid(error: ErrorDetails) -> FormatError | InvalidField:
    """The first of pydantic's errors, named by field and index."""
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
    expected = _EXPECTED.get(error["type"])
    if expected is None:
        return error["msg"]
    got = "" if shown is None else f", got {shown!r}"
    return f"expected {expected.format(**error.get('ctx', {}))}{got}"
