"""What functions for the device make of numbers, in Python: the functions of
gpu/liverank_gpu/kernels/program_functions.h, and those of `math`.

Integers have 64 bits, floats are double. What Python refuses is infinite, not a number, or 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

Number = Literal["int", "float", "bool"]

MATH: dict[str, Number] = {
    **dict.fromkeys(("sqrt", "exp", "log", "fabs", "pow"), "float"),
    **dict.fromkeys(("floor", "ceil"), "int"),
    **dict.fromkeys(("isinf", "isnan"), "bool"),
}
"""Functions of `math`, and what they return."""

_HALF = 1 << 63


def wrapped(number: int) -> int:
    """What is left of an integer that 64 bits have no room for."""
    return number if -_HALF <= number < _HALF else (number + _HALF) % (2 * _HALF) - _HALF


def quotient_of(a: float, b: float) -> float:
    if b:
        return a / b
    return math.copysign(math.inf, a) * math.copysign(1.0, b) if a and a == a else math.nan


def floor_quotient(a: int, b: int) -> int:
    return wrapped(a // b) if b else 0


def floor_remainder(a: int, b: int) -> int:
    return a % b if b else 0


def whole(number: float) -> int:
    """The integer towards 0; the lowest one where 64 bits have no room for it."""
    if isinstance(number, float):
        return int(number) if -(2.0**63) <= number < 2.0**63 else -_HALF
    return int(number)


CAST: dict[Number, Callable[[Any], Any]] = {"int": whole, "float": float, "bool": bool}


def of_math(name: str) -> Callable[..., Any]:
    """A function of `math`, of all floats."""
    function, cast = getattr(np, {"pow": "power"}.get(name, name)), CAST[MATH[name]]

    def called(*numbers: float) -> Any:
        with np.errstate(all="ignore"):
            return cast(float(function(*map(np.float64, numbers))))

    return called
