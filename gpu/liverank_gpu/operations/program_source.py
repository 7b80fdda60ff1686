"""A vertex program as a struct in C++: what both backends put before their kernels, and after
gpu/liverank_gpu/kernels/program_vertex.h, which says what it has.
"""

from __future__ import annotations

import numpy as np

from liverank_gpu.device_functions import CPP, Kind
from liverank_gpu.operations.program_parameters import kind_of
from liverank_gpu.operations.programs import KINDS, VertexProgram

MERGES = ("", "min", "max", "sum")
"""As MERGE_OTHER, MERGE_MIN … of gpu/liverank_gpu/kernels/program_functions.h number them."""

_VALUES = {"int32": "int", "int64": "long long", "float32": "float", "float64": "double"}


def definitions(program: VertexProgram) -> list[str]:
    """Lines that define, in a struct, `Value`, the options of the program,
    `Parameters` (see parameter_record), and a function program_NAME for each of its functions.
    """
    value = _VALUES[program.dtype]
    kinds: dict[str, Kind] = {"vertices": "int"}
    kinds |= {name: kind_of(name, default) for name, default in program.parameters.items()}
    own_merge = MERGES.index(program.merge) if isinstance(program.merge, str) else 0
    flags = {
        "INTEGER": np.dtype(program.dtype).kind == "i",
        "EVERY_VERTEX": program.every_vertex,
        "MONOTONE": program.monotone,
        "BOTH": program.direction == "both",
        "LOOPS": program.loops,
        "FIRST_WINS": program.first_wins,
    }
    return [
        f"using Value = {value};",
        f"static constexpr int MERGE = {own_merge};",
        f"static constexpr int AGGREGATOR = {MERGES.index(program.aggregator)};",
        *(f"static constexpr bool {name} = {str(flag).lower()};" for name, flag in flags.items()),
        "struct Parameters {",
        *(f"    {CPP[kind]} {name}_;" for name, kind in kinds.items()),
        "};",
        *(f"static {function.cpp}" for function in program.functions.values()),
        *(_wrapped(program, name, value) for name in program.functions),
    ]


def number(value: float) -> str:
    """A number in C++."""
    if np.isinf(value):
        return f"({'-' if value < 0 else ''}POSITIVE_INFINITY)"
    if isinstance(value, float):
        return repr(value)
    return f"({value}LL)" if value > -(2**63) else f"({value + 1}LL - 1)"


def _wrapped(program: VertexProgram, name: str, value: str) -> str:
    """The function with all arguments that kernels pass: numbers become what functions are
    promised, and results the type of values.
    """
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
    header = f"static __device__ __forceinline__ {result} program_{name}"
    arguments = ", ".join([*declared, "const Parameters& parameters"])
    return f"{header}({arguments}) {{ return ({result})user_{name}({given}); }}"
