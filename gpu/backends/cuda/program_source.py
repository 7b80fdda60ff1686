"""The translation unit of a vertex program: its functions in C++, then the kernels."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gpu.backends.cuda.kernels.loader import program_parts
from gpu.device_functions import CPP, Kind
from gpu.operations.program_parameters import kind_of
from gpu.operations.programs import (
    AGGREGATE_IDENTITY,
    KINDS,
    LOOKING_PART,
    VertexProgram,
)

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

_VALUES = {"int32": "int", "int64": "long long", "float32": "float", "float64": "double"}

_HELPERS = """
#define POSITIVE_INFINITY (__longlong_as_double(0x7ff0000000000000ll))

// as Python's: the first of equal ones
template <typename T> __device__ __forceinline__ T smaller(T a, T b) { return b < a ? b : a; }
template <typename T> __device__ __forceinline__ T larger(T a, T b) { return b > a ? b : a; }

// as Python's: rounded downwards; 0 where b is, as Numba has it
__device__ __forceinline__ long long floor_quotient(long long a, long long b) {
    if (b == 0) return 0;
    const long long quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
}
__device__ __forceinline__ long long floor_remainder(long long a, long long b) {
    return b == 0 ? 0 : a - floor_quotient(a, b) * b;
}
"""


def program_kernels(program: VertexProgram, unit: Unit = "vertices") -> tuple[str, ...]:
    """The name expressions of a program's kernels in a translation unit."""
    if unit == "window":
        return WINDOW_KERNELS
    if program.every_vertex:
        return (*KERNELS, *ALL_KERNELS)
    return (*KERNELS, *(ACTIVE_KERNELS if program.monotone else ACTIVE_KERNELS[:1]))


def program_source(program: VertexProgram, weighted: bool, unit: Unit = "vertices") -> str:
    """The whole text of a translation unit: the kernels of whole graphs, or that of windows."""
    value = _VALUES[program.dtype]
    kinds = {"vertices": "int"} | {
        name: kind_of(name, default) for name, default in program.parameters.items()
    }
    merges = ("", "min", "max", "sum")
    own_merge = merges.index(program.merge) if isinstance(program.merge, str) else 0
    flags = {
        "INTEGER": np.dtype(program.dtype).kind == "i",
        "EVERY_VERTEX": program.every_vertex,
        "MONOTONE": program.monotone,
        "BOTH": program.direction == "both",
        "LOOPS": program.loops,
        "FIRST_WINS": program.first_wins,
    }
    lines = [
        _HELPERS,
        f"using Value = {value};",
        f"#define IDENTITY ((Value){_number(program.identity)})",
        f"#define AGGREGATE_IDENTITY {_number(AGGREGATE_IDENTITY[program.aggregator])}",
        "enum { MERGE_OTHER, MERGE_MIN, MERGE_MAX, MERGE_SUM };",
        f"constexpr int MERGE = {own_merge}, AGGREGATOR = {merges.index(program.aggregator)};",
        *(f"constexpr bool {name} = {str(flag).lower()};" for name, flag in flags.items()),
        f"constexpr int ACTIVE_BLOCKS = {ACTIVE_BLOCKS}, ALL_BLOCKS = {ALL_BLOCKS};",
        f"constexpr int LOOKING_PART = {LOOKING_PART};",
        "struct Parameters {",
        *(f"    {CPP[kind]} {name}_;" for name, kind in kinds.items()),  # type: ignore[index]
        "};",
        *(function.cpp for function in program.functions.values()),
        *(_wrapped(program, name, value) for name in program.functions),
    ]
    run = "window" if unit == "window" else "all" if program.every_vertex else "active"
    before, after = program_parts(weighted, f"run_{run}.cuh")
    return "\n".join([before, '#line 1 "program"', *lines, after])


def _wrapped(program: VertexProgram, name: str, value: str) -> str:
    """The function with all arguments that kernels pass: see gpu.backends.cpu.program_loops."""
    function = program.functions[name]
    kinds: dict[str, Kind] = dict.fromkeys(program.values_of(name), KINDS[program.dtype])
    declared = [f"{value} {each}_" for each in kinds]
    others = program.arguments_of(name)
    declared += [f"{CPP[kind]} {each}_" for each, kind in others.items()]
    kinds |= others
    given = ", ".join(
        f"({CPP[kinds[each]]}){each}_" if each in kinds else f"parameters.{each}_"
        for each in function.arguments
    )
    result = {"scatter": "bool", "aggregate": "double"}.get(name, value)
    header = f"__device__ __forceinline__ {result} program_{name}"
    arguments = ", ".join([*declared, "const Parameters& parameters"])
    return f"{header}({arguments}) {{ return ({result})user_{name}({given}); }}"


def _number(value: float) -> str:
    if np.isinf(value):
        return f"({'-' if value < 0 else ''}POSITIVE_INFINITY)"
    if isinstance(value, float):
        return repr(value)
    return f"({value}LL)" if value > -(2**63) else f"({value + 1}LL - 1)"
