"""CUDA C++ kernels: one topic a ``.cu`` file, with the shared header put in front.

The header is concatenated rather than included, because CuPy's cache of compiled modules does not
see an edited include.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

LANES = (1, 4, 32, 256)
"""Threads that work on one row, by class of row length."""

NAMES: dict[str, tuple[str, ...]] = {
    "pull": (
        *(f"pull_rows<{lanes}, {mode}>" for lanes in LANES for mode in range(3)),
        "finish_sums",
    ),
    "relax": (
        "take_all",
        *(f"gather_rows<{lanes}>" for lanes in LANES),
        "finish_pairs",
    ),
    "residual": (
        "perturbation",
        "spread_rows",
        "collect_large",
        "refresh_rows",
        "push_rounds",
    ),
    "expand": ("expand_rows", "look_back"),
}
"""The C++ name expressions of the kernels in each file."""

COOPERATIVE = frozenset({"residual"})
"""Files whose kernels are launched with all blocks resident, so that they can meet."""

COMPILE_OPTIONS = ("-std=c++17",)


@cache
def source(name: str) -> str:
    """The whole translation unit of ``<name>.cu``; messages name its parts and their lines."""
    folder = files(__package__)
    return "\n".join(
        f'#line 1 "{part}"\n{(folder / part).read_text("utf-8")}'
        for part in ("common.cuh", f"{name}.cu")
    )
