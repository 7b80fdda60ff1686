"""Programs of users: classes whose source travels, and is checked by the server."""

from __future__ import annotations

import ast
import inspect
import linecache
import math
import textwrap
from collections.abc import Iterator
from types import FunctionType
from typing import Any

from liverank.client.call import Call, operation, read, read_member, remove, write
from liverank.client.responses import ProgramInfo
from liverank.errors import InvalidInput


def source_of(program: type) -> str:
    """The source of a class, and after it the numbers with names and what of `math` it names.

    Raises InvalidInput if the source is neither in a file nor in a notebook.
    """
    text, known = "", dict[str, Any]()
    for function in _functions(program):
        text = text or _text_of(program, function)
        known |= {**function.__globals__, **inspect.getclosurevars(function).nonlocals}
    if not text:
        raise InvalidInput("program", "expected a class with its source in a file or a notebook")
    named = {each.id for each in ast.walk(ast.parse(text)) if isinstance(each, ast.Name)}
    lines = (_defined(name, known[name]) for name in sorted(named & known.keys()))
    return "\n".join([text, *filter(None, lines), ""])


def _functions(program: type) -> Iterator[FunctionType]:
    for each in vars(program).values():
        if isinstance(function := getattr(each, "__func__", each), FunctionType):
            yield function


def _text_of(program: type, function: FunctionType) -> str:
    """The lines of the class with this function, also where `inspect` finds no module of it."""
    file, line = function.__code__.co_filename, function.__code__.co_firstlineno
    linecache.checkcache(file)
    lines = linecache.getlines(file)
    for node in ast.walk(ast.parse("".join(lines))):
        if isinstance(node, ast.ClassDef) and node.name == program.__name__:
            begin = min([node.lineno, *(each.lineno for each in node.decorator_list)])
            if begin <= line <= (end := node.end_lineno or 0):
                return textwrap.dedent("".join(lines[begin - 1 : end]))
    return ""


def _defined(name: str, value: Any) -> str:
    """A line that gives the name its value; empty if it is nothing that programs may name."""
    if value is math:
        return f"import math as {name}"
    if isinstance(value, float) and math.isinf(value):
        return f"{name} = {'-' if value < 0 else ''}math.inf"
    if isinstance(value, bool | int | float):
        return f"{name} = {value!r}"
    own = getattr(value, "__name__", "")
    return f"from math import {own} as {name}" if value is getattr(math, own, None) else ""


class ProgramCalls:
    """A part of Calls."""

    @operation
    def put_program(self, program: type | str, name: str | None = None) -> Call[ProgramInfo]:
        """Has the server check, compile and keep a program, in place of one of its name. Raises
        ServerError 422, whose `problem` has the `line`, for what is refused; 403 if programs are
        off.

        program  a class, whose source is sent with the numbers that it names, or a source
        name     that analyses call it by; None: that of the class
        """
        if isinstance(program, str):
            if name is None:
                raise InvalidInput("name", "expected a name for the program of a source")
            source, own = program, name
        else:
            source, own = source_of(program), name or program.__name__
        return write("PUT", ProgramInfo, {"source": source}, "programs", own, repeatable=True)

    @operation
    def programs(self) -> Call[list[ProgramInfo]]:
        """The programs of users, by name."""
        return read_member("programs", list[ProgramInfo], "programs")

    @operation
    def program(self, name: str) -> Call[ProgramInfo]:
        """The source, the parameters and the options of a program of a user."""
        return read(ProgramInfo, "programs", name)

    @operation
    def drop_program(self, name: str) -> Call[None]:
        """Removes a program of a user. Runs of it end as they are."""
        return remove("programs", name)
