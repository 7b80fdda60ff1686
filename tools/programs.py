"""The built-in programs in C++, compiled with the extension:
gpu/liverank_gpu/native/builtin_programs.cpp.

Run it when gpu/liverank_gpu/programs/algorithms.py or the translation changed:

    python -m tools.programs
"""

from __future__ import annotations

from liverank_gpu.backends.cpu.programs import BEFORE, NATIVE, program_struct
from liverank_gpu.operations.programs import VertexProgram
from liverank_gpu.programs import algorithms

PATH = NATIVE / "builtin_programs.cpp"


def text() -> str:
    """What the file has to be."""
    title = "// Written by `python -m tools.programs`, from liverank_gpu/programs/algorithms.py.\n"
    programs = [each for each in vars(algorithms).values() if isinstance(each, VertexProgram)]
    structs = (f"\n// {each.name}\n{program_struct(each)}" for each in programs)
    return title + BEFORE + "".join(structs)


if __name__ == "__main__":
    PATH.write_text(text(), "utf-8")
    print(f"wrote {PATH}")
