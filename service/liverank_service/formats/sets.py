"""Changes of vertex sets in request bodies and in the journal's payloads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

import pyarrow as pa

from liverank_service.errors import FormatError
from liverank_service.formats.columns import SetChange, SetOperation
from liverank_service.formats.values import described, key_column, listed
from liverank_service.vertex_keys import KeyKind

MAX_SET_NAME = 200
MAX_SETS = 10_000
"""That one batch changes."""

_MEMBERS = ("add", "remove")


def decode_sets(document: object, kind: KeyKind) -> dict[str, SetChange]:
    """The changes by name, of {name: {"add": [key, …], "remove": [key, …]}}. Raises FormatError."""
    sets = _sets(document, _MEMBERS)
    if len(sets) > MAX_SETS:
        raise FormatError("sets", None, f"expected at most {MAX_SETS:,} sets, got {len(sets):,}")
    return {name: _change(name, given, kind) for name, given in sets.items()}


def check_name(name: str, field: str) -> None:
    """Raises FormatError."""
    if not 1 <= len(name) <= MAX_SET_NAME:
        message = f"expected 1 to {MAX_SET_NAME} characters, got {described(name)}"
        raise FormatError(field, None, message)


def set_documents(sets: Mapping[str, SetChange]) -> dict[str, Any]:
    """The changes as JSON, as the journal has them."""
    return {
        name: {
            "add": change.add.to_pylist(),
            "remove": change.remove.to_pylist(),
            "whole": change.operation,
        }
        for name, change in sets.items()
    }


def stored_sets(document: object, kind: KeyKind) -> dict[str, SetChange]:
    """The changes in a document of `set_documents`. Raises FormatError."""
    changes = {}
    for name, given in _sets(document, (*_MEMBERS, "whole")).items():
        operation: Any = given.pop("whole", None)
        if operation is not None and operation not in get_args(SetOperation):
            raise FormatError(f"sets.{name}.whole", None, f"got {described(operation)}")
        change = _change(name, given, kind)
        changes[name] = SetChange(change.add, change.remove, operation)
    return changes


def _sets(document: object, members: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    if not isinstance(document, dict):
        raise FormatError("sets", None, f"expected an object of sets, got {described(document)}")
    for name, given in document.items():
        check_name(name, "sets")
        if not isinstance(given, dict):
            message = f"expected an object of {listed(_MEMBERS)}, got {described(given)}"
            raise FormatError(f"sets.{name}", None, message)
        for member in given:
            if member not in members:
                message = f"unknown member; expected {listed(_MEMBERS)}"
                raise FormatError(f"sets.{name}.{member}", None, message)
    return document


def _change(name: str, given: dict[str, Any], kind: KeyKind) -> SetChange:
    columns: list[pa.Array] = []
    for member in _MEMBERS:
        keys, field = given.get(member, []), f"sets.{name}.{member}"
        if not isinstance(keys, list):
            raise FormatError(field, None, f"expected an array of keys, got {described(keys)}")
        columns.append(key_column(keys, kind, field))
    return SetChange(*columns)
