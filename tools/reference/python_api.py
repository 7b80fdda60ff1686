"""Every public name of `liverank`, from its signature and its docstring."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from typing import Any

import msgspec

import liverank
from liverank.client import arrow, changes, exports, responses, sources
from liverank.client.call import events, operation
from liverank.options import GraphOptions, ViewOptions, described
from liverank.tables import Ranks, Tabular
from tools.reference.markdown import code, docstring, heading, members, table

_INTRODUCTION = """\
# Python API

Every public name, from its docstring. [From Python](python.md) explains them, with examples.

This page is written by `python -m tools.reference`.
"""

_GROUPS = {
    "In this process": ("pagerank", "Ranking", "NotConverged"),
    "The client": (
        "Client",
        "AsyncClient",
        "Batch",
        "SetChange",
        "SourceRange",
        "PersonalizedQuery",
    ),
    "The engine": ("Engine", "Options", "EdgeBatch", "VertexProgram"),
    "Errors and warnings": (
        "LiverankError",
        "InvalidInput",
        "MissingPackage",
        "ClientError",
        "ServerError",
        "ServerUnreachable",
        "UnusedWeights",
    ),
}


def python_api() -> Iterator[str]:
    """The lines of the page. Raises LookupError for a public name that no group has."""
    grouped = {name for names in _GROUPS.values() for name in names}
    if grouped != set(liverank.__all__):
        raise LookupError(
            f"_GROUPS differs from liverank.__all__: {grouped ^ set(liverank.__all__)}"
        )
    yield _INTRODUCTION.rstrip()
    for group, names in _GROUPS.items():
        yield from heading(2, group)
        for name in names:
            yield from _documented(name, getattr(liverank, name))
    yield from heading(2, "What the client returns")
    yield "Each member is an attribute. [HTTP](api.md) explains them."
    returned = {
        name: each
        for module in (responses, changes, exports, sources, arrow)
        for name, each in vars(module).items()
        if inspect.isclass(each)
        and not issubclass(each, dict)  # keywords
        and each.__module__ == module.__name__
        and not name.startswith("_")
        and name not in grouped
        and name != "export"
    }
    returned |= {kind.__name__: kind for kind in (GraphOptions, ViewOptions)}
    yield from _documented("Tabular", Tabular)
    yield from _documented("Ranks", Ranks)
    for name, each in returned.items():
        yield from _documented(name, each)


def _documented(name: str, documented: Any) -> Iterator[str]:
    yield from heading(3, name)
    if not inspect.isclass(documented):
        yield from (*_signature(name, documented), *docstring(documented))
        return
    bases = [base.__name__ for base in documented.__bases__ if not _is_hidden(base)]
    if bases:
        yield f"A subclass of {', '.join(f'[{base}](#{base.lower()})' for base in bases)}."
        yield ""
    if _has_fields(documented):
        text, meanings = members(documented) if documented.__doc__ else ([], {})
        yield from text
        yield from table(("member", "type", "default", "meaning"), _fields(documented, meanings))
    else:
        if "__init__" in vars(documented):
            yield from _signature(name, documented.__init__)
        yield from docstring(documented)
        if "__init__" in vars(documented) and documented.__init__.__doc__:
            yield from docstring(documented.__init__)
    if name == "AsyncClient":  # its calls are those of Client
        return
    for member, method in _methods(documented):
        yield from heading(4, f"{name}.{member}")
        yield from (*_signature(member, method), *docstring(method))


def _is_hidden(base: type) -> bool:
    return base.__name__.startswith("_") or base.__name__ in (
        *("object", "Struct", "Synchronous", "Asynchronous", "Calls", "Generic", "Exception"),
        *("ValueError", "ImportError", "UserWarning"),
    )


def _has_fields(documented: type) -> bool:
    return hasattr(documented, "__dataclass_fields__") or issubclass(documented, msgspec.Struct)


def _fields(documented: Any, meanings: dict[str, str]) -> Iterator[tuple[str, ...]]:
    if issubclass(documented, msgspec.Struct):
        for member in msgspec.structs.fields(documented):
            said = described(member.type)[1].description
            kind, default = _type_of(documented, member), code(repr(member.default))
            if member.default_factory is not msgspec.NODEFAULT:
                default = "empty"
            elif member.default is msgspec.NODEFAULT:
                default = ""
            yield code(member.name), code(kind), default, said or meanings.get(member.name, "")
        return
    annotations: dict[str, str] = {}
    for kind in reversed(documented.__mro__):
        annotations |= inspect.get_annotations(kind)
    for parameter in inspect.signature(documented).parameters.values():
        default = parameter.default
        shown = "" if default is parameter.empty or callable(default) else code(repr(default))
        if "factory" in str(default).lower():
            shown = "empty"
        kind = code(str(annotations[parameter.name]))
        yield code(parameter.name), kind, shown, meanings.get(parameter.name, "")


def _type_of(documented: type, member: msgspec.structs.FieldInfo) -> str:
    """The type of a member as its class says it, without what is said of its values."""
    annotations = (inspect.get_annotations(kind) for kind in documented.__mro__)
    text = next(str(each[member.name]) for each in annotations if member.name in each)
    if text.startswith("Annotated["):
        (expression,) = ast.parse(text).body
        return ast.unparse(expression.value.slice.elts[0])  # type: ignore[attr-defined]
    kind, said = described(member.type)
    return inspect.formatannotation(kind) if said.description else text


def _methods(documented: type) -> Iterator[tuple[str, Any]]:
    """Public methods and calls, by the class that defines them, with what callers see."""
    if issubclass(documented, Exception):
        return
    seen: set[str] = set()
    for kind in documented.__mro__:
        if kind.__module__.split(".")[0] not in ("liverank", "liverank_gpu"):
            continue
        if kind in (Tabular, Ranks) and documented is not kind:
            continue
        for name, member in vars(kind).items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            if inspect.isfunction(member) or isinstance(
                member, operation | events | exports.export
            ):
                yield name, member if inspect.isfunction(member) else getattr(documented, name)


def _signature(name: str, function: Any) -> list[str]:
    """A block of code: one line, or a line for each parameter."""
    signature = inspect.signature(function)
    parameters, is_keyword = [], False
    for parameter in signature.parameters.values():
        if parameter.name in ("self", "cls"):
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not is_keyword:
            parameters.append("*")
            is_keyword = True
        shown = f"{parameter.name}: {parameter.annotation}"
        if parameter.default is not parameter.empty:
            shown += f" = {parameter.default!r}"
        parameters.append(shown)
    returned = signature.return_annotation
    result = f" -> {_returned(name, str(returned))}" if name[0].islower() else ""
    line = f"{name}({', '.join(parameters)}){result}"
    if len(line) > 100:
        line = "\n".join([f"{name}(", *(f"    {each}," for each in parameters), f"){result}"])
    return ["```text", *line.splitlines(), "```", ""]


def _returned(name: str, annotation: str) -> str:
    """What a caller of a call gets: `Call[…]` describes it."""
    found = re.fullmatch(r"Call\[(.*)\]", annotation)
    if found is None:
        return annotation
    if name.startswith("export_"):
        return "Export"
    return f"Iterator[{found[1]}]" if name == "changes" else found[1]
