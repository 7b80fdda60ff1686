"""CUDA C++ kernels: one topic a ``.cu`` file, with the shared headers put in front.

The headers are concatenated rather than included, because CuPy's cache of compiled modules does not
see an edited include.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

LANES = (1, 2, 8, 32, 256, 2048, 16384)
"""Threads that work on one row, by class of row length."""

LONGEST = (4, 16, 64, 2048, 16384, 131072)
"""The longest rows of all classes but the last, when rows are put into classes: 64 entries or less
for each thread."""

STRAY = 2
"""A row counts as astray once it is so many times longer than its class's longest, or so many times
shorter than its shortest."""

URGENT = 16
"""No row stays in its class that is so many times longer than its class's longest."""

VALUES = {"float64": "double", "float32": "float"}
"""The C++ type of a vector over the vertices, by dtype."""

NAMES: dict[str, tuple[str, ...]] = {
    "pull": (
        *(f"pull_rows<double, {stepping}, false>" for stepping in ("false", "true")),
        "pull_rows<double, true, true>",
        *(f"pull_rows<float, {stepping}, true>" for stepping in ("false", "true")),
        *(f"adopt_rows<{value}>" for value in VALUES.values()),
        "contribute",
        "add_up<true>",
    ),
    "relax": (
        *(f"relax_rows<{value}, false>" for value in VALUES.values()),
        "relax_rows<double, true>",
        *(f"round_shares<{value}>" for value in VALUES.values()),
        "lower",
        "add_up<true>",
    ),
    "descend": ("image_rows", "descend", "add_up<false>", "add_up<true>"),
    "residual": tuple(
        f"{name}<{value}>"
        for name in ("perturbation", "spread_rows", "collect_large", "refresh_rows", "push_rounds")
        for value in VALUES.values()
    ),
    "columns": (
        "gather_chunks",
        *(f"relax_rows<{leaning}>" for leaning in ("false", "true")),
        *(
            f"relax_few<{mostly_short}, {leaning}>"
            for mostly_short in ("false", "true")
            for leaning in ("false", "true")
        ),
        "add_carried",
    ),
    "select": (
        "count_sizes",
        "list_sizes",
        "count_column_sizes",
        "list_column_sizes",
        "highest_bounds",
    ),
    "expand": ("expand_rows", "look_back"),
    "resolve": ("pack<int>", "pack<int64>", "renumber", "sort_small", "heads", "locate", "decide"),
    "change": (
        "plan",
        "move_rows",
        *(f"place<{flag}>" for flag in ("false", "true")),
        "find_holes",
        "fill_holes",
        *(f"finish<{flag}>" for flag in ("false", "true")),
    ),
    "layout": (
        "pack_rows",
        "copy_rows",
        "count_classes",
        "partition",
        "distinct",
        "first_key",
        "row_length",
        "fill_rows",
        *(f"count_buckets<{ids}>" for ids in ("int", "int64")),
        *(f"gather_keys<{ids}>" for ids in ("int", "int64")),
        "list_entries",
    ),
}
"""The C++ name expressions of the kernels in each file."""

TILE = 1024
"""Items of one block in a prefix sum: those of BLOCK threads with ITEMS each in scan.cuh."""

COUNTERS = (
    "EDGES",
    "ROWS",
    "INSERTED",
    "DELETED",
    "REMOVED",
    "ADDED",
    "CHANGED",
    "NEEDED",
    "MOST",
    "GROWTH",
    "EMPTIED",
    "STRAYED",
    "URGENT",
    "LONGEST",
    "HOLES",
)
"""What a batch counts in one direction (gpu/edit.py), by position in an array of int64."""

HEADERS: dict[str, tuple[str, ...]] = {
    "pull": ("common.cuh", "rows.cuh"),
    **dict.fromkeys(("relax", "descend"), ("common.cuh", "rows.cuh", "shares.cuh")),
    **dict.fromkeys(("resolve", "change", "layout"), ("common.cuh", "scan.cuh", "order.cuh")),
    **dict.fromkeys(("residual", "expand", "columns", "select"), ("common.cuh",)),
}
"""What is put in front of each file; where rows or scans are, after the numbers above."""

COOPERATIVE = frozenset({"residual"})
"""Files whose kernels are launched with all blocks resident, so that they can meet."""

COMPILE_OPTIONS = ("-std=c++17",)


@cache
def source(name: str) -> str:
    """The whole translation unit of ``<name>.cu``; messages name its parts and their lines."""
    folder = files(__package__)
    texts = [
        f'#line 1 "{part}"\n{(folder / part).read_text("utf-8")}'
        for part in (*HEADERS[name], f"{name}.cu")
    ]
    return "\n".join([_numbers(), *texts] if len(HEADERS[name]) > 1 else texts)


def _numbers() -> str:
    """What Python and the kernels must agree on."""
    numbers = {"CLASSES": len(LANES), "STRAY": STRAY, "URGENT_LENGTH": URGENT}
    numbers |= {counter: place for place, counter in enumerate(COUNTERS)}
    numbers |= {f"LONGEST_{row_class}": longest for row_class, longest in enumerate(LONGEST)}
    listed = ", ".join(f"{name} = {number}" for name, number in numbers.items())
    return f"enum {{ {listed} }};\n#define LANES_FIRST {str(LANES[::-1])[1:-1]}"
