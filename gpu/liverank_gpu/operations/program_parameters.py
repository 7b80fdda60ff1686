"""The parameters of programs: integers and floats, by name."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.device_functions import Kind
from liverank_gpu.errors import InvalidValue

Limits = Mapping[str, tuple[float, float]]
"""The least and the largest value of the parameters that may not take every value."""

SOURCE = "source"
"""The parameter that is the id of a vertex."""


def parameter_values(
    program: str, defaults: Mapping[str, float], given: Mapping[str, float], limits: Limits
) -> dict[str, float]:
    """All parameters, the given ones in place of their defaults. Raises InvalidValue for others,
    for another kind of number, and for one outside its limits.
    """
    for name in given:
        if name not in defaults:
            known = ", ".join(defaults) or "no parameter"
            raise InvalidValue(f"{program}({name})", given[name], f"one of: {known}")
    return {
        name: _checked(name, given.get(name, default), kind_of(name, default), limits)
        for name, default in defaults.items()
    }


def kind_of(name: str, value: object) -> Kind:
    """The kind of a parameter. Raises InvalidValue."""
    if isinstance(value, bool) or not isinstance(value, int | float | np.integer | np.floating):
        raise InvalidValue(name, value, "an integer or a float")
    return "int" if isinstance(value, int | np.integer) else "float"


def _checked(name: str, value: Any, kind: Kind, limits: Limits) -> float:
    if kind_of(name, value) == "float" and kind == "int":
        raise InvalidValue(name, value, "an integer")
    if kind == "int" and not -(2**63) <= value < 2**63:
        raise InvalidValue(name, value, "an integer of 64 bits")
    least, largest = limits.get(name, (-math.inf, math.inf))
    if not least <= value <= largest:  # nor a NaN
        between = f"from {least:g} to {largest:g}" if largest < math.inf else f"at least {least:g}"
        raise InvalidValue(name, value, between if name in limits else "a number")
    return int(value) if kind == "int" else float(value)


def parameter_record(parameters: Mapping[str, float], vertices: int) -> NDArray[np.void]:
    """The number of vertices and the parameters as one record: int64 and float64 members."""
    values = {"vertices": vertices, **parameters}
    dtype = [
        (name, np.int64 if kind_of(name, value) == "int" else np.float64)
        for name, value in values.items()
    ]
    record = np.zeros((), dtype)
    for name, value in values.items():
        record[name] = value
    return record
