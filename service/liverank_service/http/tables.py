"""The schemas and the parameters of the HTTP interface, made of the tables in liverank."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from functools import reduce
from operator import or_
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from fastapi import Depends, Query
from msgspec import Struct
from msgspec.structs import fields
from pydantic import BaseModel, ConfigDict, Field, create_model

from liverank_service.tables import default_of, named, said


class Body(BaseModel):
    """What the models of all bodies have in common."""

    model_config = ConfigDict(extra="forbid", strict=True)


def like(example: dict[str, Any]) -> ConfigDict:
    """The configuration of a body with an example."""
    return ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [example]})


MODELS: dict[type[Struct], type[BaseModel]] = {}
"""By their tables: a member that has one of these has its model in OpenAPI."""


def parameter_of(table: type[Struct], name: str) -> Any:
    """What is said of a parameter of the query that is one option of a table."""
    return Query(**said(named(table, name).type)[1])


def query_of(
    table: type[Struct],
    make: Callable[..., Any] | None = None,
    changed: Mapping[str, Mapping[str, Any] | None] | None = None,
    optional: str = "",
) -> Any:
    """A dependency: what `make`, or the table, makes of options in the query of a request.

    changed   what is said of options instead: arguments of Query, and the type as `kind`; None: the
              query does not have the option
    optional  if only those are passed that are given: what their descriptions end with
    """
    parameters = []
    for member in fields(table):
        if (others := (changed or {}).get(member.name, {})) is None:
            continue
        kind, about = said(member.type)
        about |= others
        kind, default = about.pop("kind", kind), member.default
        if optional:
            kind, default, about["description"] = kind | None, None, about["description"] + optional
        read_from = Query(alias=member.encode_name, **about)
        parameter = inspect.Parameter(member.name, inspect.Parameter.KEYWORD_ONLY, default=default)
        parameters.append(parameter.replace(annotation=Annotated[kind, read_from]))

    def read(**given: Any) -> Any:
        if optional:
            given = {name: value for name, value in given.items() if value is not None}
        return (make or table)(**given)

    read.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    read.__annotations__ = {each.name: each.annotation for each in parameters}
    return Depends(read)


def model_of(
    table: type[Struct],
    name: str = "",
    description: str | None = None,
    *,
    example: dict[str, Any] | None = None,
    **changed: Any,
) -> Any:
    """The model of a body that has the members of a table: a class that no type checker sees.

    name         in OpenAPI; empty: the table's
    description  in OpenAPI; None: none
    changed      members that are others: their types, without a default; None: left out
    """
    members: dict[str, Any] = {}
    for each in fields(table):
        kind, about = said(each.type)
        default = {} if each.name in changed else default_of(each)
        kind = changed.get(each.name, kind)
        if kind is not None:
            members[each.name] = (_type(kind), Field(**default, **about))
    config = like(example) if example else Body.model_config
    title = name or table.__name__
    model: type[BaseModel] = create_model(title, __config__=config, __doc__=description, **members)
    MODELS[table] = model
    return model


def _type(annotation: Any) -> Any:
    """The same type with models in place of tables."""
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return MODELS[annotation] if annotation in MODELS else model_of(annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is None or origin is Literal:
        return annotation
    if origin is Annotated:
        kind, about = said(annotation)
        return Annotated[_type(kind), Field(**about)]
    replaced = tuple(map(_type, arguments))
    return reduce(or_, replaced) if origin in (Union, UnionType) else origin[replaced]
