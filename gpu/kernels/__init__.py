"""CUDA C++ kernels: one topic a ``.cu`` file, with the shared headers put in front.

The headers are concatenated rather than included, because CuPy's cache of compiled modules does not
see an edited include.
"""

from __future__ import annotations

from functools import cache
from importlib.resources import files

LANES = (1, 4, 32, 256)
"""Threads that work on one row, by class of row length."""

LONGEST = (4, 32, 2048)
"""The longest rows of all classes but the last, when rows are put into classes."""

STRAY = 2
"""A row counts as astray once it is so many times longer than its class's longest, or so many times
shorter than its shortest."""

URGENT = 16
"""No row stays in its class that is so many times longer than its class's longest."""

COLUMN_ROWS = (4, 32)
"""Rows that a warp takes at a time in columns.cu: of many edges, and of few."""

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
    "columns": ("gather_chunks", *(f"relax_rows<{rows}>" for rows in COLUMN_ROWS)),
    "select": (
        "count_sizes",
        "list_sizes",
        "count_column_sizes",
        "list_column_sizes",
        "bound_values",
    ),
    "expand": ("expand_rows", "look_back"),
    "resolve": ("pack<int>", "pack<int64>", "sort_small", "heads", "locate", "decide"),
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

GRAPH_FILES = ("resolve", "change", "layout")
"""Files that also get scan.cuh and the numbers above."""

COOPERATIVE = frozenset({"residual"})
"""Files whose kernels are launched with all blocks resident, so that they can meet."""

COMPILE_OPTIONS = ("-std=c++17",)


@cache
def source(name: str) -> str:
    """The whole translation unit of ``<name>.cu``; messages name its parts and their lines."""
    folder = files(__package__)
    headers = ("common.cuh", "scan.cuh") if name in GRAPH_FILES else ("common.cuh",)
    texts = [
        f'#line 1 "{part}"\n{(folder / part).read_text("utf-8")}'
        for part in (*headers, f"{name}.cu")
    ]
    if name in GRAPH_FILES:
        texts.insert(0, _numbers())
    return "\n".join(texts)


def _numbers() -> str:
    """What Python and the kernels must agree on."""
    numbers = {"CLASSES": len(LANES), "STRAY": STRAY, "URGENT_LENGTH": URGENT}
    numbers |= {f"LONGEST_{row_class}": longest for row_class, longest in enumerate(LONGEST)}
    numbers |= {counter: place for place, counter in enumerate(COUNTERS)}
    return f"enum {{ {', '.join(f'{name} = {number}' for name, number in numbers.items())} }};"
