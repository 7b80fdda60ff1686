"""The translation unit of a vertex program: its functions in C++, then the kernels."""

from __future__ import annotations

from typing import Literal

from liverank_gpu.backends.cuda.kernels.loader import program_parts
from liverank_gpu.operations.program_source import definitions, number
from liverank_gpu.operations.programs import AGGREGATE_IDENTITY, LOOKING_PART, VertexProgram

KERNELS = ("initialise", "supports_any")
ACTIVE_KERNELS = ("run_active<false>", "run_active<true>")
ALL_KERNELS = ("run_all",)
WINDOW_KERNELS = ("gather_window",)

ACTIVE_BLOCKS, ALL_BLOCKS = 4, 3
"""Blocks of `run_active`, and of `run_all` and `gather_window`, that are resident on a
multiprocessor.
"""

Unit = Literal["vertices", "window"]
"""What the kernels of a translation unit pass over."""


def program_kernels(program: VertexProgram, unit: Unit = "vertices") -> tuple[str, ...]:
    """The name expressions of a program's kernels in a translation unit."""
    if unit == "window":
        return WINDOW_KERNELS
    if program.every_vertex:
        return (*KERNELS, *ALL_KERNELS)
    return (*KERNELS, *(ACTIVE_KERNELS if program.monotone else ACTIVE_KERNELS[:1]))


def program_source(program: VertexProgram, weighted: bool, unit: Unit = "vertices") -> str:
    """The whole text of a translation unit: the kernels of whole graphs, or that of windows."""
    lines = [
        "struct Program {",
        *definitions(program),
        "};",
        f"#define IDENTITY ((Value){number(program.identity)})",
        f"#define AGGREGATE_IDENTITY {number(AGGREGATE_IDENTITY[program.aggregator])}",
        f"constexpr int ACTIVE_BLOCKS = {ACTIVE_BLOCKS}, ALL_BLOCKS = {ALL_BLOCKS};",
        f"constexpr int LOOKING_PART = {LOOKING_PART};",
    ]
    run = "window" if unit == "window" else "all" if program.every_vertex else "active"
    before, after = program_parts(weighted, f"run_{run}.cuh")
    return "\n".join([before, '#line 1 "program"', *lines, after])
