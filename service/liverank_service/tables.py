"""What the tables in liverank say, for pydantic and FastAPI."""

from __future__ import annotations

from typing import Any, get_args

from msgspec import NODEFAULT, Struct
from msgspec.structs import FieldInfo, fields
from pydantic import Field

from liverank.options import described


def member_of(table: type[Struct], name: str, **changed: Any) -> Any:
    """A member of a pydantic model that is one of a table; changed: arguments of Field."""
    member = named(table, name)
    return Field(**default_of(member), **said(member.type)[1] | changed)


def named(table: type[Struct], name: str) -> FieldInfo:
    """The option of this name."""
    (member,) = (each for each in fields(table) if each.name == name)
    return member


def default_of(member: FieldInfo) -> dict[str, Any]:
    """The argument `default`; none for a member that is required."""
    if member.default_factory is not NODEFAULT:
        return {"default": member.default_factory()}
    return {} if member.default is NODEFAULT else {"default": member.default}


def said(annotation: Any) -> tuple[Any, dict[str, Any]]:
    """The type of a member, and what is said of its values as arguments of Field and Query. One of
    the strings that are listed is a string: the server says in more words what is wrong.
    """
    kind, meta = described(annotation)
    extra = meta.extra_json_schema
    if "enum" in (extra or {}):
        kind = str | None if type(None) in get_args(kind) else str
    limits = {name: getattr(meta, name) for name in ("ge", "le", "min_length", "max_length")}
    given = {name: value for name, value in limits.items() if value is not None}
    return kind, given | {"description": meta.description, "json_schema_extra": extra}
