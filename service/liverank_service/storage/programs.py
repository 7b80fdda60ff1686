"""The programs of users, and their file.

    DATA/programs.json  {"format": 1, "programs": {name: {"source", "created"}}}

A source is text: it is read as liverank_gpu.programs.source says, and nothing of it is executed.
One that a later release refuses stays in the file, and cannot be run.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from liverank_gpu import PROGRAMS, InvalidSource, InvalidValue, VertexProgram, program_of_source
from liverank_service.errors import (
    ProgramRefused,
    ProgramsOff,
    TooManyPrograms,
    UnknownProgram,
)
from liverank_service.queries.analyses import COLUMNS, EDGE_COLUMNS, AnyProgram
from liverank_service.storage.files import RowsFile, Stored

log = logging.getLogger("liverank.programs")

FILE = "programs.json"

MOST = 64
"""Programs of users."""


class _StoredProgram(Stored):
    """A program in the file."""

    source: str
    created: float


_STORED = RowsFile("a file of programs", "programs", dict[str, _StoredProgram], 1)


@dataclass(frozen=True, slots=True)
class UserProgram:
    """A program of a user.

    created  Unix time, seconds, at which this source was put
    program  None if this release refuses the source
    refusal  why
    """

    name: str
    source: str
    created: float
    program: VertexProgram | None
    refusal: str | None = None

    def document(self) -> dict[str, Any]:
        """As JSON has it."""
        found, known = self.program, {"name": self.name, "created": self.created}
        if found is None:
            return {**known, "source": self.source, "refusal": self.refusal, "parameters": {}}
        return {
            **known,
            "source": self.source,
            "refusal": None,
            "dtype": found.dtype,
            "edge_dtype": found.edge_dtype,
            "parameters": dict(found.parameters),
            "limits": {name: list(map(_finite, each)) for name, each in found.limits.items()},
            "monotone": found.monotone,
            "supersteps": found.supersteps,
        }


def _finite(number: float) -> float | None:
    return number if abs(number) != float("inf") else None


def checked_program(name: str, source: str) -> VertexProgram:
    """The program of a source. Raises InvalidValue for a name that is taken, ProgramRefused."""
    if name in PROGRAMS:
        raise InvalidValue("name", name, "other than that of a built-in program")
    try:
        return program_of_source(name, source, COLUMNS, EDGE_COLUMNS)
    except InvalidSource as error:
        raise ProgramRefused(error.line, error.value, str(error)) from None


def read_programs(data: Path) -> dict[str, UserProgram]:
    """The programs in the file; none if it is missing. Raises as RowsFile.read."""
    stored = _STORED.read(data / FILE) or {}
    return {name: _read(name, each) for name, each in stored.items()}


def _read(name: str, stored: _StoredProgram) -> UserProgram:
    try:
        program, refusal = checked_program(name, stored.source), None
    except (InvalidValue, ProgramRefused) as error:
        program, refusal = None, str(error)
        log.warning("program %s cannot be run any more: %s", name, refusal)
    return UserProgram(name, stored.source, stored.created, program, refusal)


class ProgramStore:
    """The programs of one data directory. Any thread may call any method.

    allowed  whether programs of users may be put and run
    """

    def __init__(self, data: Path, allowed: bool) -> None:
        self.allowed = allowed
        self._data = data
        self._programs: Mapping[str, UserProgram] = {}
        self._changing = threading.Lock()

    def open(self) -> None:
        """Reads the file. Raises as read_programs."""
        self._programs = read_programs(self._data)

    def listed(self) -> list[UserProgram]:
        """By name."""
        return sorted(self._programs.values(), key=lambda one: one.name)

    def get(self, name: str) -> UserProgram:
        """Raises UnknownProgram."""
        if (found := self._programs.get(name)) is None:
            raise UnknownProgram(name, sorted(self._programs))
        return found

    def check_allowed(self) -> None:
        """Raises ProgramsOff."""
        if not self.allowed:
            raise ProgramsOff

    def named(self, name: str) -> AnyProgram:
        """A program to run, built in or of a user.

        Raises InvalidValue for an unknown one, ProgramsOff, and ProgramRefused for one that this
        release refuses.
        """
        if name in PROGRAMS:
            return PROGRAMS[name]
        found = self._programs.get(name)
        if found is None:
            raise InvalidValue("program", name, f"one of {', '.join([*PROGRAMS, *self._programs])}")
        self.check_allowed()
        if found.program is None:
            raise ProgramRefused(1, name, f"program {name!r} cannot be run: {found.refusal}")
        return found.program

    def put(self, source: str, program: VertexProgram) -> tuple[UserProgram, bool]:
        """Stores a checked program, in place of one of its name; returns whether that is new.

        Raises TooManyPrograms, StorageFailed; nothing is then changed.
        """
        with self._changing:
            is_new = self.check_room(program.name)
            created = round(datetime.now(UTC).timestamp(), 3)
            put = UserProgram(program.name, source, created, program)
            self._replace({**self._programs, program.name: put})
            return put, is_new

    def check_room(self, name: str) -> bool:
        """Whether a program of this name would be new. Raises TooManyPrograms."""
        is_new = name not in self._programs
        if is_new and len(self._programs) >= MOST:
            raise TooManyPrograms(MOST)
        return is_new

    def remove(self, name: str) -> None:
        """Raises UnknownProgram, StorageFailed."""
        with self._changing:
            self.get(name)
            self._replace({own: each for own, each in self._programs.items() if own != name})

    def _replace(self, programs: Mapping[str, UserProgram]) -> None:
        stored = {
            each.name: {"source": each.source, "created": each.created}
            for each in programs.values()
        }
        _STORED.write(self._data / FILE, stored)
        self._programs = programs
