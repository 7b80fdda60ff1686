"""The source text of the CUDA kernels, and what Python and the kernels must agree on.

Headers are concatenated rather than included, because CuPy's cache of compiled modules does not
notice an edited include.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

from liverank_gpu.backends.cuda.kernels.counts import (
    CORE_COUNTS,
    LISTED_COUNTS,
    PAGE_COUNTS,
    PROGRAM_COUNTS,
    PUBLISHED_COUNTS,
    TALLY,
)
from liverank_gpu.backends.cuda.kernels.page_shape import PAGE_SHAPE, PageShape
from liverank_gpu.operations.csr import ALIGNMENT
from liverank_gpu.operations.generate import FEISTEL_ROUNDS
from liverank_gpu.operations.graph import (
    COUNTERS,
    DELETE,
    INSERT,
    LAST_PLACE,
    LOOP_REWEIGHTED,
    NO_PART,
    SCAN_TILE,
)
from liverank_gpu.operations.published import AFFECTED, PRUNED
from liverank_gpu.operations.residual import (
    LEVELS,
    LISTED,
    PUSH_ENDS,
    QUEUED,
    SOLVE_SHIFT,
    SPARED_GROWTH,
)
from liverank_gpu.operations.sweeps import GAIN_SWEEPS
from liverank_gpu.trace import TRACED_STEPS

SHARED = files("liverank_gpu") / "kernels"
"""The headers that both backends compile."""

BLOCK, WARP = 256, 32
"""Threads of a block, unless a kernel says otherwise, and of a warp."""

BIN_LANES = (1, 2, 8, 32, 256, 2048, 16384)
"""Threads that work on one row, by degree bin."""

BIN_LIMITS = (4, 16, 64, 2048, 16384, 131072)
"""The longest row that goes to a degree bin, for all bins but the last: at most 64 entries for each
thread.
"""

MISBINNED_FACTOR = 2
"""A row is misbinned if it is longer than this many times the limit of its bin, or shorter than the
shortest row of its bin by this factor.
"""

OVERFLOW_FACTOR = 16
"""No row stays in its bin if it is longer than this many times the limit."""

SWEEP_SUMS = 5
"""Sums of a sweep; as many inner products of a step of Orthomin(1)."""

FUSED_SUMS = 2 * SWEEP_SUMS + 1
"""What fused.cu writes for each sweep."""

FUSED_BLOCKS = {False: 4, True: 3}
"""Blocks of fused.cu that fit on a multiprocessor at once, by whether the graph is weighted."""

EDGE_CHUNK = 128
"""Edges of an out-list that a warp works on at a time."""

COLUMNS = 32
"""Columns of the matrices of multivector.cu."""

COLUMN_SUMS = 3
"""Sums of each column in a sweep."""

ROW_CHUNK = 1024
"""Edges of a long row that a warp sums in multivector.cu."""

ROWS_PER_WARP = 4
"""Rows that a warp of `sweep_many` prepares at a time."""

LONG_STRENGTH = 2048
"""Out-edges of a vertex whose weights a block sums; a warp sums fewer."""

BUCKET_BITS = 7
BUCKETS = (32 - BUCKET_BITS) << BUCKET_BITS
"""Rows are counted in buckets of neighbouring ones: see rebuild.cu."""

RANGE_ITEMS = 16
"""Ids that a thread of `keys_of_range` takes."""

LONG_ROW = 2048
"""A longer row of listed.cu is divided into parts of this many entries."""

_IDS = ("int", "int64")
_FLAGS = ("false", "true")

_FILES: dict[str, tuple[str, ...]] = {
    "residual": (
        "compute_residual",
        "compute_contributions",
        "add_partial_sums<true>",
    ),
    "sweep": (
        *(f"sweep<{deflated}>" for deflated in _FLAGS),
        *(f"finish_sweep<{deflated}>" for deflated in _FLAGS),
        "quantize_contributions",
        "subtract_at",
        "sum_in_degrees",
        "start_from_in_degrees",
        "add_partial_sums<true>",
    ),
    "orthomin": (
        "orthomin_image",
        "finish_image",
        "orthomin_step",
        "add_partial_sums<false>",
        "add_partial_sums<true>",
    ),
    "fused": ("fused_sweeps", "fused_orthomin"),
    "pages": (
        *("clear_sums", "add_pages", "pack_entries", "pack_changes", "find_pages"),
        *("write_pages", "edit_pages", "rewrite_pages"),
    ),
    "perturb": ("perturb", "spread", "recompute_rows", "select_candidates"),
    "push": ("push",),
    "rounds": ("count_candidates", "take_candidates", "push_vertices"),
    "multivector": (
        "gather_chunks",
        *(f"sweep_many<{deflated}>" for deflated in _FLAGS),
        *(f"sweep_many_short<{short}, {deflated}>" for short in _FLAGS for deflated in _FLAGS),
        "add_compensated",
    ),
    "select": ("group_maxima", "list_largest", "list_changed", "highest_bound"),
    "forward_push": ("take", *(f"push<{flag}>" for flag in _FLAGS), "unlock", "pull", "detect"),
    "lists": ("fingerprints", "find_same"),
    "frontier": ("expand_forward", "expand_backward"),
    "cores": ("core_numbers", "lower_cores"),
    "triangles": (
        *(f"{name}<{flag}>" for name in ("count_triangles", "lower_bounds") for flag in _FLAGS),
        *("list_triangles", "count_between"),
        *(f"count_entries_between<{lowest}, {bound}>" for lowest in _FLAGS for bound in _FLAGS),
    ),
    "published": (
        *(f"{name}<{lanes}>" for name in ("update_ranks", "expand") for lanes in (1, BLOCK)),
        "send",
        "end_iteration",
    ),
    "listed": ("iterate_listed",),
    "resolve_update": (
        *(f"pack_keys<{ids}>" for ids in _IDS),
        "permute_keys",
        "sort_small",
        "find_rows",
        "locate",
        "decide",
    ),
    "apply_update": (
        "plan_rows",
        "move_rows",
        *(f"place_changes<{outgoing}>" for outgoing in _FLAGS),
        "find_holes",
        "fill_holes",
        *(f"finish_rows<{outgoing}>" for outgoing in _FLAGS),
    ),
    "generate": (
        "random_numbers",
        "preferential_attachment<1>",
        "preferential_attachment<8>",
        "uniform_pairs",
    ),
    "rebuild": (
        "pack_rows",
        "copy_rows",
        "count_bins",
        "partition",
        "deduplicate",
        "find_first_keys",
        "count_rows",
        "fill_rows",
        *(f"count_buckets<{ids}>" for ids in _IDS),
        *(f"keys_of_range<{ids}>" for ids in _IDS),
        "entries",
    ),
}
"""The C++ name expressions of the kernels in each file that an unweighted graph uses."""

_WEIGHTED = "_weighted"

_ONLY_WEIGHTED = {"weights": ("deduplicate_weighted", "sum_weights", "scale_rows")}
"""The same for files that a weighted graph alone uses."""

_ONLY_UNWEIGHTED: dict[str, frozenset[str]] = {
    "sweep": frozenset({"subtract_at", *(f"finish_sweep<{deflated}>" for deflated in _FLAGS)}),
    "orthomin": frozenset({"finish_image"}),
    "perturb": frozenset({"select_candidates"}),
    "rounds": frozenset({"count_candidates", "take_candidates"}),
    "multivector": frozenset({"add_compensated"}),
    "select": frozenset(_FILES["select"]) - {"highest_bound"},
    "resolve_update": frozenset(_FILES["resolve_update"]) - {"sort_small", "decide"},
    "generate": frozenset(_FILES["generate"]),
    **{file: frozenset(_FILES[file]) for file in ("cores", "pages", "triangles")},
    "rebuild": frozenset(
        (
            *(f"count_buckets<{ids}>" for ids in _IDS),
            *("pack_rows", "count_bins", "partition", "find_first_keys", "count_rows"),
            "deduplicate",
        )
    ),
}
"""Kernels that weighted graphs launch from the units of unweighted ones, or do not need."""

_WEIGHTED_FILES = {
    file: tuple(name for name in kernels if name not in _ONLY_UNWEIGHTED.get(file, ()))
    for file, kernels in (_FILES | _ONLY_WEIGHTED).items()
}

NAMES = _FILES | {f"{file}{_WEIGHTED}": names for file, names in _WEIGHTED_FILES.items() if names}
"""The name expressions of each translation unit. A file is compiled once for unweighted graphs and
once, as another unit, for weighted ones: with WEIGHTED set, and other types of degrees and loops.
"""

_SWEEPS = ("common.cuh", "rows.cuh", "sweeps.h", "contributions.cuh")

HEADERS: dict[str, tuple[str, ...]] = {
    "residual": ("common.cuh", "rows.cuh", "sweeps.h"),
    "forward_push": ("common.cuh", "rows.cuh"),
    "published": ("common.cuh", "ranking.cuh"),
    "listed": ("common.cuh", "rows.cuh", "ranking.cuh"),
    "sweep": (*_SWEEPS, "page_sums.cuh", "sweep_step.cuh"),
    "orthomin": (*_SWEEPS, "page_sums.cuh", "orthomin_step.cuh"),
    "pages": ("common.cuh", "contributions.cuh", "page_sums.cuh", "pages.cuh"),
    "fused": (*_SWEEPS, "sweep_step.cuh", "orthomin_step.cuh"),
    **dict.fromkeys(("perturb", "push", "rounds"), ("common.cuh", "work_lists.cuh")),
    "multivector": ("common.cuh", "columns.cuh"),
    **dict.fromkeys(("select", "frontier", "triangles", "cores"), ("common.cuh",)),
    **dict.fromkeys(("generate", "lists"), ("common.cuh", "random_numbers.cuh")),
    **dict.fromkeys(
        ("resolve_update", "apply_update", "rebuild", "weights"),
        ("common.cuh", "scan.cuh", "permutation.cuh"),
    ),
}
"""The headers in front of each file, after the constants and vertex.h. Those in .h are shared with
the CPU: gpu/liverank_gpu/kernels.
"""

COOPERATIVE = frozenset({"push", "listed", "cores", "fused"})
"""Files whose kernels are launched with all blocks resident, so that they can synchronise."""


def unit(file: str, weighted: bool) -> str:
    """The translation unit of a file for one kind of graph."""
    return file + _WEIGHTED if weighted else file


def file_of(unit: str) -> str:
    """The file of a translation unit."""
    return unit.removesuffix(_WEIGHTED)


def is_weighted(unit: str) -> bool:
    """Whether a translation unit is for weighted graphs."""
    return unit.endswith(_WEIGHTED)


COMPILE_OPTIONS = ("-std=c++17",)


@cache
def source(name: str, pages: PageShape = PAGE_SHAPE) -> str:
    """The whole text of a translation unit; messages name its parts and their lines."""
    file = file_of(name)
    texts = [_text(part) for part in ("vertex.h", *HEADERS[file], f"{file}.cu")]
    own = []
    if file == "pages":
        own = [*_integers(pages.constants), _enumeration("PageCount", PAGE_COUNTS)]
    elif file == "rounds":
        own = _integers({"LEVELS": LEVELS})
    elif file == "lists":
        own = _integers({"NO_PART": NO_PART})
    return "\n".join([_constants(is_weighted(name)), *own, *texts])


def program_parts(weighted: bool, kernels_in: str) -> tuple[str, str]:
    """What comes before and after the functions of a vertex program; kernels_in: a file."""
    headers = ("vertex.h", "program_functions.h", "program_vertex.h", "common.cuh")
    constants = [_constants(weighted), _enumeration("ProgramCount", PROGRAM_COUNTS)]
    kernels = ("programs.cuh", kernels_in)
    return "\n".join([*constants, *map(_text, headers)]), "\n".join(map(_text, kernels))


def _text(part: str) -> str:
    """A part of a translation unit. Shared headers include each other, which is done here."""
    folder = SHARED if part.endswith(".h") else files(__package__)
    text = (folder / part).read_text("utf-8")
    text = re.sub(r'^#(pragma once|include ".*")$', "", text, flags=re.MULTILINE)
    return f'#line 1 "{part}"\n{text}'


def _constants(weighted: bool) -> str:
    """The constants of this module and of the contracts, as C++; and the types of
    liverank_gpu.operations.csr.GraphView.
    """
    numbers = {
        "BLOCK": BLOCK,
        "WARP": WARP,
        "BINS": len(BIN_LANES),
        **{f"BIN_LIMIT_{row_bin}": limit for row_bin, limit in enumerate(BIN_LIMITS)},
        "MISBINNED_FACTOR": MISBINNED_FACTOR,
        "OVERFLOW_FACTOR": OVERFLOW_FACTOR,
        "SWEEP_SUMS": SWEEP_SUMS,
        "FUSED_SUMS": FUSED_SUMS,
        "FUSED_BLOCKS": FUSED_BLOCKS[weighted],
        "GAIN_SWEEPS": GAIN_SWEEPS,
        "EDGE_CHUNK": EDGE_CHUNK,
        "LONG_ROW": LONG_ROW,
        "COLUMNS": COLUMNS,
        "COLUMN_SUMS": COLUMN_SUMS,
        "ROW_CHUNK": ROW_CHUNK,
        "ROWS_PER_WARP": ROWS_PER_WARP,
        "LONG_STRENGTH": LONG_STRENGTH,
        "BUCKET_BITS": BUCKET_BITS,
        "BUCKETS": BUCKETS,
        "RANGE_ITEMS": RANGE_ITEMS,
        "ALIGNMENT": ALIGNMENT,
        "SCAN_TILE": SCAN_TILE,
        "DELETE": DELETE,
        "INSERT": INSERT,
        "LISTED": LISTED,
        "QUEUED": QUEUED,
        "SOLVE_SHIFT": SOLVE_SHIFT,
        "FEISTEL_ROUNDS": FEISTEL_ROUNDS,
        "AFFECTED": AFFECTED,
        "PRUNED": PRUNED,
        "TRACED": TRACED_STEPS,
        "LOOP_REWEIGHTED": LOOP_REWEIGHTED,
    }
    ends = {end.upper(): place for place, end in enumerate(PUSH_ENDS)}
    counters = {counter: place for place, counter in enumerate(COUNTERS)}
    published = {count: place for place, count in enumerate(PUBLISHED_COUNTS)}
    return "\n".join(
        [
            f"inline constexpr bool WEIGHTED = {str(weighted).lower()};",
            f"inline constexpr double SPARED_GROWTH = {SPARED_GROWTH};",
            f"inline constexpr long long LAST_PLACE = {LAST_PLACE}LL;",
            f"using Degree = {'double' if weighted else 'int'};",
            f"using Loop = {'float' if weighted else 'unsigned char'};",
            *_integers(numbers),
            *(
                _enumeration(name, members)
                for name, members in (
                    ("Counter", counters),
                    ("Tally", TALLY),
                    ("PushEnd", ends),
                    ("PublishedCount", published),
                    ("ListedCount", LISTED_COUNTS),
                    ("CoreCount", CORE_COUNTS),
                )
            ),
            f"#define LANES_OF_GROUPS {str(BIN_LANES[::-1])[1:-1]}",
        ]
    )


def _integers(numbers: dict[str, int]) -> list[str]:
    return [f"inline constexpr int {name} = {number};" for name, number in numbers.items()]


def _enumeration(name: str, members: dict[str, int]) -> str:
    listed = ", ".join(f"{member} = {number}" for member, number in members.items())
    return f"struct {name} {{ enum {{ {listed} }}; }};"
