"""NVIDIA's run-time compiler, in this process or, as a command, in one of its own:

python -P nvrtc.py < REQUEST > RESULT

REQUEST  the arguments of `compiled`, as a list in JSON
RESULT   names and log, as a list in JSON; after the end of this line, the code

The exit status is ABSENT without a compiler, 1 if it refuses the source; stderr then says why. The
file imports nothing of the project, so that the command starts soon and needs little memory.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

ABSENT = 3


class Absent(Exception):
    """NVRTC is not installed."""


@dataclass(frozen=True, slots=True)
class Compiled:
    """The machine code of one translation unit.

    names  name expression → name in the code
    log    what the compiler said
    """

    code: bytes
    names: dict[str, str]
    log: str


def compiled(
    name: str, text: str, expressions: Sequence[str], options: Sequence[str]
) -> Compiled | str:
    """The code of a source, or why the compiler refuses it.

    name         of the source in messages, without suffix
    expressions  the C++ name expressions of the kernels

    Raises Absent, MemoryError, and RuntimeError if the compiler fails otherwise.
    """
    compiler = _Compiler()
    (program,) = compiler.call("CreateProgram", text.encode(), f"{name}.cu".encode(), 0, [], [])
    try:
        for expression in expressions:
            compiler.call("AddNameExpression", program, expression.encode())
        succeeded = compiler.compiles(program, [option.encode() for option in options])
        log = compiler.output("ProgramLog", program).rstrip(b"\0").decode()
        if not succeeded:
            return log
        names = {
            expression: compiler.call("GetLoweredName", program, expression.encode())[0].decode()
            for expression in expressions
        }
        return Compiled(compiler.output("CUBIN", program), names, log)
    finally:
        compiler.call("DestroyProgram", program)


class _Compiler:
    """Its functions release the interpreter lock."""

    def __init__(self) -> None:
        try:
            from cuda.bindings import nvrtc

            self._nvrtc = nvrtc
            self.call("Version")
        except (ImportError, RuntimeError) as error:
            raise Absent(str(error)) from error

    def call(self, function: str, *arguments: object) -> tuple[Any, ...]:
        status, *values = getattr(self._nvrtc, f"nvrtc{function}")(*arguments)
        if status != self._nvrtc.nvrtcResult.NVRTC_SUCCESS:
            raise RuntimeError(f"nvrtc{function} failed: {status}")
        return tuple(values)

    def compiles(self, program: Any, options: list[bytes]) -> bool:
        results = self._nvrtc.nvrtcResult
        (status,) = self._nvrtc.nvrtcCompileProgram(program, len(options), options)
        if status == results.NVRTC_ERROR_OUT_OF_MEMORY:
            raise MemoryError("nvrtcCompileProgram")
        return bool(status == results.NVRTC_SUCCESS)

    def output(self, name: str, program: Any) -> bytes:
        (size,) = self.call(f"Get{name}Size", program)
        buffer = bytes(size)  # filled in place
        self.call(f"Get{name}", program, buffer)
        return buffer


def _main() -> int:
    result = os.dup(1)
    os.dup2(2, 1)  # what libraries print
    try:
        found = compiled(*json.load(sys.stdin))
    except Absent as error:
        print(error, file=sys.stderr)
        return ABSENT
    if isinstance(found, str):
        print(found, file=sys.stderr)
        return 1
    with os.fdopen(result, "wb") as file:
        file.write(json.dumps([found.names, found.log]).encode() + b"\n" + found.code)
    return 0


if __name__ == "__main__":
    sys.exit(_main())
