"""pydantic's errors as errors of the service."""

from __future__ import annotations

from pydantic_core import ErrorDetails

from service.errors import FormatError, InvalidField


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
    return InvalidField(field, index, shown, error["msg"])
