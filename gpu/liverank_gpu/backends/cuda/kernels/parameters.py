"""The parameters of kernels, as their declarations say: a launch passes them in one block of bytes,
laid out as a struct of C++.

A kernel's declaration is the only one. A launch passes arrays, None for a null pointer, numbers,
and tuples for structs, whose members come in the order of the struct.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

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
    "unsigned char": "B",
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
    """

    name: str
    type: str
    pointer: bool
    constant: bool
    offset: int

    @property
    def code(self) -> str:
        """The format character of `struct`."""
        return "Q" if self.pointer else _CODES[self.type]


class Parameters:
    """What a kernel takes.

    kernel   its name
    members  numbers and pointers, in the order in which a launch gives them
    offsets  of each parameter
    size     of the block, in bytes
    """

    def __init__(
        self, kernel: str, members: tuple[Member, ...], offsets: tuple[int, ...], size: int
    ) -> None:
        self.kernel, self.members, self.offsets, self.size = kernel, members, offsets, size
        text, end = "=", 0
        for member in members:
            text += f"{member.offset - end}x{member.code}"
            end = member.offset + struct.calcsize(f"={member.code}")
        self._layout = struct.Struct(f"{text}{size - end}x")
        self._pointers = tuple(member.pointer for member in members)

    def pack_into(self, block: Any, arguments: tuple[Any, ...]) -> None:
        """Writes the block of a launch.

        block  writable, of `size` bytes

        Raises TypeError if there are too few arguments or too many, or one does not fit.
        """
        values = self.flattened(arguments)
        try:
            self._layout.pack_into(
                block,
                0,
                *(
                    (0 if value is None else value.data.ptr) if pointer else value
                    for pointer, value in zip(self._pointers, values, strict=True)
                ),
            )
        except (AttributeError, struct.error, ValueError) as error:
            raise self._refusal(values) from error

    def flattened(self, arguments: tuple[Any, ...]) -> list[Any]:
        """The arguments, with the members of structs in place of tuples."""
        values: list[Any] = []
        _flatten(arguments, values)
        return values

    def _refusal(self, values: list[Any]) -> TypeError:
        if len(values) != len(self.members):
            return TypeError(f"{self.kernel} takes {len(self.members)} values, got {len(values)}")
        for member, value in zip(self.members, values, strict=True):
            named = f"{'an array of ' if member.pointer else ''}{member.type}"
            try:
                if member.pointer:
                    assert value is None or value.data.ptr >= 0
                else:
                    struct.pack(member.code, value)
            except (AttributeError, AssertionError, struct.error):
                break
        return TypeError(f"{self.kernel}: {member.name} must be {named}, got {value!r}")


def _flatten(values: Iterable[Any], into: list[Any]) -> None:
    for value in values:
        if isinstance(value, tuple):
            _flatten(value, into)
        else:
            into.append(value)


def parameters_of(text: str, expressions: Iterable[str]) -> dict[str, Parameters]:
    """The parameters of kernels of a source text, by their name expressions. Raises ValueError for
    what is no declaration of this kind, KeyError for a kernel that is not there.
    """
    kernels = {kernel["name"]: kernel for kernel in KERNEL.finditer(text)}
    types = _Types(text)
    return {each: types.parameters(each, kernels[each.split("<")[0]]) for each in expressions}


class _Types:
    """The types of a source text."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._aliases = {each["name"]: each["type"] for each in _ALIAS.finditer(text)}
        self._constants = {each["name"]: int(each["number"]) for each in _CONSTANT.finditer(text)}

    def parameters(self, expression: str, kernel: re.Match[str]) -> Parameters:
        name, _, given = expression.rstrip(">").partition("<")
        if kernel["template"]:
            named = [each.split()[-1] for each in kernel["template"].split(",")]
            self._aliases |= zip(named, (each.strip() for each in given.split(",")), strict=True)
        members: list[Member] = []
        offsets, end = [], 0
        for declaration in _COMMENT.sub("", kernel["parameters"]).split(","):
            offset, end, _ = self._place(" ".join(declaration.split()), "", end, members)
            offsets.append(offset)
        return Parameters(name, tuple(members), tuple(offsets), end)

    def _place(
        self, declaration: str, within: str, end: int, members: list[Member]
    ) -> tuple[int, int, int]:
        """Adds what a declaration declares, at the next place after `end`. Returns its offset, its
        end, and its alignment.
        """
        found = _MEMBER.fullmatch(declaration)
        if found is None:
            raise ValueError(f"not a declaration of a parameter: {declaration!r}")
        kind, name = self._named(found["type"]), within + found["name"]
        constant, pointer = found["constant"] is not None, found["pointer"] is not None
        if not pointer and kind not in _CODES:
            return self._place_struct(kind, name, end, members)
        size = 8 if pointer else struct.calcsize(f"={_CODES[kind]}")
        offset = -(-end // size) * size
        for at in range(self._count(found["count"])):
            suffix = f"[{at}]" if found["count"] else ""
            place = offset + at * size
            members.append(Member(name + suffix, kind, pointer, constant, place))
        return offset, members[-1].offset + size, size

    def _place_struct(
        self, kind: str, name: str, end: int, members: list[Member]
    ) -> tuple[int, int, int]:
        declarations = self._struct(kind)
        own: list[Member] = []
        size, alignment = 0, 1
        for declaration in declarations:
            _, size, each = self._place(declaration, f"{name}.", size, own)
            alignment = max(alignment, each)
        offset = -(-end // alignment) * alignment
        members += [
            Member(each.name, each.type, each.pointer, each.constant, offset + each.offset)
            for each in own
        ]
        return offset, offset + -(-size // alignment) * alignment, alignment

    def _struct(self, kind: str) -> list[str]:
        """The declarations of the members of a struct, one each."""
        bare = kind.rsplit("::", 1)[-1]
        found = re.search(rf"^ *struct {bare} {{(?P<members>[^{{}}]*)}};", self._text, re.MULTILINE)
        if found is None:
            raise ValueError(f"no struct {kind} of plain members")
        declared = []
        for line in _COMMENT.sub("", found["members"]).split(";"):
            first, *others = " ".join(line.split()).split(", ")
            if not first:
                continue
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
