"""The source text of the CUDA kernels, the kernels in it, and what Python and they must agree on.

A file ``NAME.cu`` is a translation unit twice: for unweighted graphs, and, as ``NAME_weighted``,
for weighted ones, with WEIGHTED set and other types of degrees and loops. Lines between
``#if WEIGHTED`` or ``#if !WEIGHTED`` and ``#endif`` are in one of them. INSTANCES(…) lists the name
expressions of templates. Includes are put in place here, since a digest of the whole text names its
machine code.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from itertools import accumulate
from pathlib import Path

from liverank_gpu.backends.cuda.kernels.parameters import KERNEL, names_of
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
    SCANS,
)
from liverank_gpu.operations.published import AFFECTED, PRUNED
from liverank_gpu.operations.residual import (
    LEVELS,
    LISTED,
    MESSAGE_HEADER,
    PUSH_ENDS,
    QUEUED,
    SOLVE_SHIFT,
    SPARED_GROWTH,
    RoundNumbers,
)
from liverank_gpu.operations.sweeps import GAIN_SWEEPS
from liverank_gpu.types import TRACED_STEPS

FOLDER = Path(__file__).parent

SHARED = FOLDER.parents[2] / "kernels"
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
"""A longer row of `iterate_listed` is divided into parts of this many entries."""

# ---- positions in the arrays of counts that kernels write and Python reads ----

_TALLY_WIDTHS = {
    "END": 1,
    "ROUNDS": 1,
    "VERTICES": 1,
    "ENTRIES": 1,
    "ADDITIONS": 1,
    "SELECTIONS": 1,
    "FINAL_LISTED": 1,
    "BELOW_ZERO": 1,
    "LISTED_COUNT": 3,
    "QUEUED_COUNT": 3,
    "QUEUED_EDGES": 3,
    "ITEMS": 3,
    "LARGEST": 3,
    "SUMS": 8,
    "THRESHOLD": 1,
    "LEVELS_COUNTS": 2 * LEVELS + 1,
    "SIZE": 0,
}

TALLY = dict(zip(_TALLY_WIDTHS, accumulate(_TALLY_WIDTHS.values(), initial=0), strict=False))
"""Positions in the tally of perturb.cu, push.cu and rounds.cu, an int64 array that is read back at
once: what was counted, the SUMS as float64, the last θ, and what rounds.cu counts at each
threshold. Counts with three positions use them in turn.
"""

ANSWER = 2 * len(COUNTERS) + 1 + TALLY["SIZE"] + 2
"""Integers that a kernel tells the host, at most."""

PUBLISHED_COUNTS = (
    "LARGEST",
    "LARGEST_RELATIVE",
    "RECOMPUTED",
    "EDGES",
    "PRUNED",
    "ITERATIONS",
    "CONVERGED",
    "DONE",
)
"""What published.cu counts, by position in a uint64 array; the first two are bits of a float64."""

LISTED_COUNTS = {"SHORT": 5, "MIDDLE": 6, "PARTS": 7, "ITEMS": 8, "SIZE": 9}
"""Positions in the counts of an iteration of `iterate_listed`, behind the first five of
PUBLISHED_COUNTS: short and middle rows of its list, parts of long rows, and chunks of out-lists.
"""

CORE_COUNTS = {"REMAINING": 0, "QUEUED": 3, "LEAST": 6, "SIZE": 9}
"""Positions in the counts of `core_numbers`, three for each kind."""

PROGRAM_COUNTS = {
    "ACTIVE": 0,
    "ITEMS": 3,
    "RECEIVED": 6,
    "MESSAGES": 9,
    "SUPERSTEPS": 10,
    "CHANGED": 11,
    "FINAL": 14,
    "ACTIVE_EDGES": 15,
    "SIZE": 18,
}
"""Positions in the counts of run_active.cuh and run_all.cuh. Those with three places use them in
turn. FINAL: how many vertices are active after the last superstep, or whether any value changed.
"""

PAGE_COUNTS = {"USED": 0, "FAILED": 1, "LEFT": 2, "CROWDED": 3, "NEXT_ITEM": 4, "SIZE": 5}
"""Positions in the counts of pages.cu: pages in use, whether there was no room for a page, how many
pages have changes that are left for another round, how many a round does not edit in place, and the
next item of a sweep.
"""

# ---- the sizes of pages.cu, for which it is compiled ----


@dataclass(frozen=True, slots=True)
class PageShape:
    """
    tile_bits   a tile has 2^tile_bits vertices, each with 8 bytes of shared memory; at most 15
    page_bytes  of a page, a power of two
    threads     of a block that adds pages
    blocks      of these that are resident on a multiprocessor
    """

    tile_bits: int
    page_bytes: int
    threads: int
    blocks: int

    @property
    def most_changed(self) -> int:
        """Changes of a page in one round of `rewrite_pages`."""
        return self.page_bytes // 4

    @property
    def key_bits(self) -> int:
        """Of a key below its tile: a source, and the place of the target in the tile."""
        return self.tile_bits + 31

    @property
    def shared_bytes(self) -> int:
        """Shared memory of a tile."""
        return 8 << self.tile_bits

    @property
    def constants(self) -> dict[str, int]:
        """What the kernels must know, by name."""
        return {
            "TILE_BITS": self.tile_bits,
            "PAGE_BYTES": self.page_bytes,
            "PAGE_THREADS": self.threads,
            "PAGE_BLOCKS": self.blocks,
            "MOST_CHANGED": self.most_changed,
        }


PAGE_SHAPE = PageShape(tile_bits=14, page_bytes=4096, threads=1024, blocks=1)
"""On an H200 tiles of 8,192 vertices were as fast on R-MAT 24, slower by 2 % on R-MAT 26."""

_STATIC_BYTES = 1024
"""Shared memory of `add_pages` beside a tile, at most, and what a device keeps of each block."""


def page_shape(shared_bytes: int) -> PageShape | None:
    """The shape on a device; None if a block has too little shared memory.

    shared_bytes  that a block may ask for
    """
    return PAGE_SHAPE if shared_bytes >= PAGE_SHAPE.shared_bytes + _STATIC_BYTES else None


# ---- translation units ----

COMPILE_OPTIONS = ("-std=c++17",)

_WEIGHTED = "_weighted"


def unit(file: str, weighted: bool) -> str:
    """The translation unit of a file for one kind of graph."""
    return file + _WEIGHTED if weighted else file


def is_weighted(unit: str) -> bool:
    """Whether a translation unit is for weighted graphs."""
    return unit.endswith(_WEIGHTED)


@cache
def units() -> tuple[str, ...]:
    """The translation units with kernels."""
    stems = sorted(path.stem for path in FOLDER.glob("*.cu"))
    both = [unit(file, weighted) for weighted in (False, True) for file in stems]
    return tuple(each for each in both if kernels(each))


@cache
def source(unit: str, pages: PageShape = PAGE_SHAPE) -> str:
    """The whole text of a translation unit; messages name its parts and their lines."""
    text = _Text(is_weighted(unit))
    own = [*_integers(pages.constants), _constants(is_weighted(unit))]
    return "\n".join([*own, text.of(f"{unit.removesuffix(_WEIGHTED)}.cu")])


def program_parts(weighted: bool, kernels_in: str) -> tuple[str, str]:
    """What comes before and after the functions of a vertex program; kernels_in: a file."""
    text = _Text(weighted)
    before = [_constants(weighted), text.of("program_vertex.h"), text.of("common.cuh")]
    return "\n".join(before), text.of(kernels_in)


class _Text:
    """The text of files for one kind of graph, each included once."""

    _LINE = re.compile(
        r'#(?:include "(?P<file>.+)"|if (?P<unweighted>!?)WEIGHTED|(?P<end>endif))\n'
    )

    def __init__(self, weighted: bool) -> None:
        self._weighted = weighted
        self._included: set[str] = set()

    def of(self, part: str) -> str:
        """A file, with what it includes that was not included before."""
        self._included.add(part)
        folder = SHARED if part.endswith(".h") else FOLDER
        lines, chosen, left_out = [f'#line 1 "{part}"\n'], False, False
        text = (folder / part).read_text("utf-8")
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            found = self._LINE.fullmatch(line)
            if found is None or (found["end"] and not chosen):
                # a line that is left out stays, empty, so that messages name the others
                lines.append("\n" if left_out or line == "#pragma once\n" else line)
            elif included := found["file"]:
                if included not in self._included:
                    lines += [self.of(included), f'#line {number + 1} "{part}"\n']
                else:
                    lines.append("\n")
            else:
                chosen = not found["end"]
                left_out = chosen and self._weighted == bool(found["unweighted"])
                lines.append("\n")
        return "".join(lines)


# ---- the kernels of a text ----

_INSTANCES = re.compile(r"^INSTANCES\((?P<names>[^()]*)\)", re.MULTILINE)


@cache
def kernels(unit: str) -> tuple[str, ...]:
    """The C++ name expressions of the kernels of a translation unit."""
    text = source(unit)
    plain = [kernel["name"] for kernel in KERNEL.finditer(text) if not kernel["template"]]
    instances = [
        " ".join(name.split())
        for listed in _INSTANCES.finditer(text)
        for name in re.split(r",(?![^<]*>)", listed["names"])
    ]
    return (*plain, *instances)


@cache
def parameter_names(unit: str, kernel: str) -> tuple[str, ...]:
    """Those of a kernel of a translation unit, by its name expression."""
    name = kernel.split("<")[0]
    (found,) = (each for each in KERNEL.finditer(source(unit)) if each["name"] == name)
    return names_of(found["parameters"])


# ---- constants ----


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
        "SCANS": SCANS,
        "COUNTERS": len(COUNTERS),
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
        "LEVELS": LEVELS,
        "MESSAGE_HEADER": MESSAGE_HEADER,
        "NO_PART": NO_PART,
    }
    ends = {end.upper(): place for place, end in enumerate(PUSH_ENDS)}
    counters = {counter: place for place, counter in enumerate(COUNTERS)}
    published = {count: place for place, count in enumerate(PUBLISHED_COUNTS)}
    names = (*RoundNumbers._fields, "size")
    round_numbers = {name.upper(): place for place, name in enumerate(names)}
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
                    ("RoundNumber", round_numbers),
                    ("PublishedCount", published),
                    ("ListedCount", LISTED_COUNTS),
                    ("CoreCount", CORE_COUNTS),
                    ("PageCount", PAGE_COUNTS),
                    ("ProgramCount", PROGRAM_COUNTS),
                )
            ),
            "#define INSTANCES(...)",
            f"#define LANES_OF_GROUPS {str(BIN_LANES[::-1])[1:-1]}",
        ]
    )


def _integers(numbers: dict[str, int]) -> list[str]:
    return [f"inline constexpr int {name} = {number};" for name, number in numbers.items()]


def _enumeration(name: str, members: dict[str, int]) -> str:
    listed = ", ".join(f"{member} = {number}" for member, number in members.items())
    return f"struct {name} {{ enum {{ {listed} }}; }};"
