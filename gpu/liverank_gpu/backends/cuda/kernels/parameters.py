"""The parameters of kernels, as their declarations say: a launch passes them in one block of bytes,
laid out as a struct of C++.

A kernel's declaration is the only one. A launch passes arrays, None for a null pointer, numbers,
and tuples for structs, whose members come in the order of the struct.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import reduce
from operator import getitem
from typing import Any, NamedTuple

KERNEL = re.compile(
    r"^(?:template <(?P<template>[^>]*)>\s+)?__global__ void\s+"
    r"(?:__launch_bounds__\((?:[^()]|\([^()]*\))*\)\s+)?"
    r"(?P<name>\w+)\((?P<parameters>[^()]*)\) {",
    re.MULTILINE,
)
"""The head of a kernel."""

_MEMBER = re.compile(
    r"(?P<constant>const )?(?P<type>[\w:]+(?: (?:int|char|short|long)\b)*) ?(?P<pointer>\*)? ?"
    r"(?:__restrict__ )?(?P<name>\w+)(?:\[(?P<count>[^]]+)\])?"
)
_CONSTANT = re.compile(r"^(?:inline )?constexpr int (?P<name>\w+) = (?P<number>\d+);", re.MULTILINE)
_ALIAS = re.compile(r"^using (?P<name>\w+) = (?P<type>[\w: ]+);", re.MULTILINE)
_COMMENT = re.compile(r"//.*")

_CODES = {
    "bool": "?",
    "char": "b",
    "signed char": "b",
    "unsigned char": "B",
    "short": "h",
    "unsigned short": "H",
    "int": "i",
    "unsigned": "I",
    "unsigned int": "I",
    "float": "f",
    "long long": "q",
    "unsigned long long": "Q",
    "double": "d",
}
"""The format characters of `struct` for the types of C++."""


@dataclass(frozen=True, slots=True)
class Member:
    """A number or a pointer in the block.

    name      of the parameter, and of the members of structs that lead to it
    type      of the number, or of what a pointer points to, without const
    pointer   whether it is one
    constant  whether a pointer points to const
    offset    in bytes
    place     of its value: the position of the argument, and those in tuples
    """

    name: str
    type: str
    pointer: bool
    constant: bool
    offset: int
    place: tuple[int, ...]

    @property
    def code(self) -> str:
        """The format character of `struct`."""
        return "Q" if self.pointer else _CODES[self.type]

    def takes(self, value: Any) -> bool:
        """Whether a launch can have this value."""
        try:
            if self.pointer:
                return value is None or value.data.ptr >= 0
            struct.pack(f"={self.code}", value)
        except (AttributeError, OverflowError, struct.error, TypeError):
            return False
        return True


class Parameters:
    """What a kernel takes.

    kernel       its name
    members      numbers and pointers, in the order in which a launch gives them
    offsets      of each parameter
    size         of the block, in bytes
    cooperative  whether the kernel synchronises all blocks, which have to be resident then
    """

    def __init__(
        self,
        kernel: str,
        members: tuple[Member, ...],
        offsets: tuple[int, ...],
        size: int,
        cooperative: bool,
    ) -> None:
        self.kernel, self.members, self.offsets, self.size = kernel, members, offsets, size
        self.cooperative = cooperative
        text, end = "=", 0
        for member in members:
            text += f"{member.offset - end}x{member.code}"
            end = member.offset + struct.calcsize(f"={member.code}")
        layout = struct.Struct(f"{text}{size - end}x")
        # written out, since a loop over 30 arguments takes five times as long
        values = ", ".join(_value_of(member) for member in members)
        self._pack: Callable[[Any, tuple[Any, ...]], None] = eval(
            f"lambda block, arguments: pack_into(block, 0, {values})",
            {"pack_into": layout.pack_into},
        )

    def pack_into(self, block: Any, arguments: tuple[Any, ...]) -> None:
        """Writes the block of a launch.

        block  writable, of `size` bytes

        Raises TypeError if there are too few arguments or too many, or one does not fit. (What a
        tuple has beyond its struct is not looked at; `flattened` does.)
        """
        try:
            if len(arguments) == len(self.offsets):
                self._pack(block, arguments)
                return
        except (AttributeError, IndexError, OverflowError, struct.error, TypeError):
            pass
        raise self._refusal(arguments)

    def flattened(self, arguments: tuple[Any, ...]) -> list[Any]:
        """The arguments, with the members of structs in place of tuples. Raises TypeError if there
        are too few or too many.
        """
        given = _count(arguments)
        if given == len(self.members) and len(arguments) == len(self.offsets):
            try:
                return [reduce(getitem, member.place, arguments) for member in self.members]
            except (IndexError, TypeError):
                pass  # the tuples have other lengths than the structs
        raise TypeError(
            f"{self.kernel} takes {len(self.offsets)} arguments with {len(self.members)} values, "
            f"got {len(arguments)} with {given}"
        )

    def _refusal(self, arguments: tuple[Any, ...]) -> TypeError:
        try:
            for member, value in zip(self.members, self.flattened(arguments), strict=True):
                if not member.takes(value):
                    named = f"{'an array of ' if member.pointer else ''}{member.type}"
                    got = f"{type(value).__name__} {value!r}"
                    return TypeError(f"{self.kernel}: {member.name} must be {named}, got {got}")
        except TypeError as error:
            return error
        return TypeError(f"{self.kernel}: the arguments do not fit")


def _value_of(member: Member) -> str:
    """Python that reads the value of a member from `arguments`."""
    value = "arguments" + "".join(f"[{each}]" for each in member.place)
    return f"0 if {value} is None else {value}.data.ptr" if member.pointer else value


def _count(values: tuple[Any, ...]) -> int:
    """Those that are no tuples, at any depth."""
    return sum(_count(value) if isinstance(value, tuple) else 1 for value in values)


def parameters_of(text: str, expressions: Iterable[str]) -> dict[str, Parameters]:
    """The parameters of kernels of a source text, by their name expressions. Raises ValueError for
    what is no declaration of this kind, KeyError for a kernel that is not there.
    """
    kernels = {kernel["name"]: kernel for kernel in KERNEL.finditer(text)}
    found = {}
    for expression in expressions:
        kernel = kernels[expression.split("<")[0]]
        try:
            found[expression] = _Types(text, expression, kernel).parameters()
        except ValueError as error:
            raise ValueError(f"{expression}: {error}") from error
    return found


def names_of(parameters: str) -> tuple[str, ...]:
    """The names in a parameter list."""
    return tuple(each.split()[-1] for each in _COMMENT.sub("", parameters).split(","))


def _block(text: str, begin: int) -> str:
    """What is in braces, behind the first of them."""
    depth = 1
    for brace in re.finditer("[{}]", text[begin:]):
        depth += 1 if brace[0] == "{" else -1
        if depth == 0:
            return text[begin : begin + brace.start()]
    return text[begin:]


class _Place(NamedTuple):
    """Where a declaration stands.

    within  the names that lead to it
    end     of what is before it, in bytes
    values  see Member.place; of the first element of an array
    """

    within: str
    end: int
    values: tuple[int, ...]


class _Types:
    """The types of a source text, as one of its kernels sees them."""

    def __init__(self, text: str, expression: str, kernel: re.Match[str]) -> None:
        self._text, self._kernel = text, kernel
        self._aliases = {each["name"]: each["type"] for each in _ALIAS.finditer(text)}
        self._constants = {each["name"]: int(each["number"]) for each in _CONSTANT.finditer(text)}
        if kernel["template"]:
            named = [each.split()[-1] for each in kernel["template"].split(",")]
            given = expression.rstrip(">").partition("<")[2].split(",")
            self._aliases |= zip(named, (each.strip() for each in given), strict=True)

    def parameters(self) -> Parameters:
        members: list[Member] = []
        offsets, end = [], 0
        kernel = self._kernel
        for at, declaration in enumerate(_COMMENT.sub("", kernel["parameters"]).split(",")):
            place = _Place("", end, (at,))
            offset, end, _ = self._add(" ".join(declaration.split()), place, members)
            offsets.append(offset)
        body = _block(self._text, kernel.end())
        names, all_offsets = tuple(members), tuple(offsets)
        return Parameters(kernel["name"], names, all_offsets, end, "this_grid()" in body)

    def _add(self, declaration: str, place: _Place, members: list[Member]) -> tuple[int, int, int]:
        """Adds what a declaration declares. Returns its offset, its end, and its alignment."""
        found = _MEMBER.fullmatch(declaration)
        if found is None:
            raise ValueError(f"not a declaration of a parameter: {declaration!r}")
        kind, name = self._named(found["type"]), place.within + found["name"]
        constant, pointer = found["constant"] is not None, found["pointer"] is not None
        if not pointer and kind not in _CODES:
            return self._add_struct(kind, _Place(f"{name}.", place.end, place.values), members)
        size = 8 if pointer else struct.calcsize(f"={_CODES[kind]}")
        offset = -(-place.end // size) * size
        *outer, first = place.values
        for at in range(self._count(found["count"])):
            suffix = f"[{at}]" if found["count"] else ""
            values = (*outer, first + at)
            members.append(
                Member(name + suffix, kind, pointer, constant, offset + at * size, values)
            )
        return offset, members[-1].offset + size, size

    def _add_struct(self, kind: str, place: _Place, members: list[Member]) -> tuple[int, int, int]:
        own: list[Member] = []
        size, alignment, at = 0, 1, 0
        for declaration in self._struct(kind):
            within = _Place(place.within, size, (*place.values, at))
            _, size, each = self._add(declaration, within, own)
            at = own[-1].place[len(place.values)] + 1
            alignment = max(alignment, each)
        offset = -(-place.end // alignment) * alignment
        members += [replace(each, offset=offset + each.offset) for each in own]
        return offset, offset + -(-size // alignment) * alignment, alignment

    def _struct(self, kind: str) -> list[str]:
        """The declarations of the members of a struct, one each."""
        bare = kind.rsplit("::", 1)[-1]
        # members come before functions
        found = re.search(
            rf"^ *struct {bare} {{(?P<members>[^{{}}]*?)^ *(?:}};|__device__)",
            self._text,
            re.MULTILINE,
        )
        if found is None:
            raise ValueError(f"no struct {kind} of plain members")
        declared = []
        for line in _COMMENT.sub("", found["members"]).split(";"):
            first, *others = " ".join(line.split()).split(", ")
            if not first:
                continue
            if others and "*" in line:
                raise ValueError(f"struct {kind}: one declaration for each pointer, not {line!r}")
            type_of_all = first[: first.rfind(" ") + 1]
            declared += [first, *(type_of_all + other for other in others)]
        return declared

    def _named(self, kind: str) -> str:
        """A type by the name that it has without aliases."""
        while kind in self._aliases:
            kind = self._aliases[kind]
        return kind

    def _count(self, text: str | None) -> int:
        """The length of an array: a number or a constant, or the sum of two."""
        if text is None:
            return 1
        terms = text.split(" + ")
        return sum(
            self._constants[term] if term in self._constants else int(term) for term in terms
        )
