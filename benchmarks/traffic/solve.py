"""Models of the kernels that solve: sweeps, steps over some rows, pushes, queries."""

from __future__ import annotations

import numpy as np

from benchmarks.traffic.model import Arguments, Model, Sizes, total
from liverank_gpu.backends.cuda.kernels.loader import COLUMNS, TALLY

_PLACED = 4 + 8 + 4
"""Where a row is: order, start, length."""

_OWN = 4 + 1
"""What is known of a vertex: degree, loop."""

_DEFLATION = 8 + 8
"""z and its residual."""


def per_item(size: int, count: str) -> Model:
    """A number of bytes for each of the items that an argument counts."""
    return lambda _, arguments: size * int(arguments[count])


# sweeps over all rows: m ids, and for each vertex its row, what is known of it, and more


def _sweep(known: int = 0) -> Model:
    """y and r, in and out; the contribution, which others read at random, and the next one."""
    each = _PLACED + _OWN + 4 * 8 + 2 * 2 + known
    return lambda sizes, _: 4 * sizes.entries + each * sizes.vertices


def _compute_residual(sizes: Sizes, _: Arguments) -> float:
    """y in, r out, and the contributions of the vertices that have out-edges."""
    return 4 * sizes.entries + (_PLACED + _OWN + 16) * sizes.vertices + 8 * sizes.sending


def _orthomin_image(sizes: Sizes, arguments: Arguments) -> float:
    """Contribution, r, weight, image; y for new weights; the last image if there is one."""
    each = _PLACED + _OWN + 2 + 8 + 4 + 8
    each += 0 if arguments["keeps_weights"] else 8
    each += 8 if arguments["has_previous"] else 0
    return 4 * sizes.entries + each * sizes.vertices


# passes over the vertices


def _quantize_contributions(sizes: Sizes, arguments: Arguments) -> float:
    """Length, degree and loop, y and r in, the contribution out. With a shift r is written at
    every vertex; y and r are written at isolated vertices in any case.
    """
    shifted = sizes.vertices if arguments["shift"] != 0.0 else sizes.isolated
    return (4 + _OWN + 16 + 2) * sizes.vertices + 8 * (shifted + sizes.isolated)


def _orthomin_step(sizes: Sizes, arguments: Arguments) -> float:
    """Length, degree and loop, the image; y, r and contribution in and out; the direction and its
    image out, and in if there is a last one.
    """
    last = 16 if arguments["has_previous"] else 0
    return (4 + _OWN + 8 + 32 + 4 + 16 + last) * sizes.vertices


# neighbours of some vertices


def _expand_forward(sizes: Sizes, arguments: Arguments) -> float:
    """For each vertex of the list its id, chunks, row and loop; ids; flags; each new vertex and its
    flag.
    """
    vertices = arguments["vertices"]
    entries = total(arguments["out.lengths"][vertices])
    flags = 4 * min(sizes.vertices, entries)
    found = int(arguments["found"][0])
    return (4 + 8 + 12 + 1) * len(vertices) + 4 * entries + flags + 8 * found


def _expand_backward(sizes: Sizes, arguments: Arguments) -> float:
    """All flags and the frontier; for a vertex without a flag its row, its loop, and its list: all
    of it, or at least one entry if a neighbour is found; each new vertex and its flag.
    """
    left, found = arguments["flags"] == 0, int(arguments["found"][0])
    entries = total(arguments["in.lengths"][left]) + found
    opened = total(left) + found
    return 5 * sizes.vertices + 13 * opened + 4 * entries + 8 * found


# pushes


def _push(sizes: Sizes, arguments: Arguments) -> float:
    """An id and an entry of r for each pushed edge; for each pushed vertex y, r and marks in and
    out, its row, degree and loop. Work-lists and vertices that are pushed again are left out.
    """
    tally = arguments["answer.told"]
    vertices, edges = int(tally[TALLY["VERTICES"]]), int(tally[TALLY["ADDITIONS"]])
    return 4 * edges + 16 * min(sizes.vertices, edges) + (16 + 16 + 8 + 12 + _OWN) * vertices


def _perturb(sizes: Sizes, arguments: Arguments) -> float:
    """For each source y, its loop, its degree before and after; for each other amount its edge, y
    and degrees; and both as they are written and read. For each source its id, chunks and row; ids
    of the neighbours; r in and out.
    """
    sources = arguments["changes.sources"]
    others = int(arguments["removed"]) + int(arguments["added"])
    contributions = arguments["memory"][: len(sources)].view(np.float64)
    entries = total(arguments["graph.out.lengths"][sources] * (contributions != 0.0))
    singles = len(sources) + others
    written = (8 + 1 + 4 + 4 + 8 + 8) * len(sources) + (8 + 8 + 4 + 4) * others + 12 * singles
    additions = min(sizes.vertices, entries + singles)
    scattered = (4 + 8 + 8 + 12) * len(sources) + 12 * singles + 4 * entries + 16 * additions
    return written + scattered


# several vectors at once: 2 bytes a contribution, 8 a partial sum, 26 for y, remainder and new
# contribution


def _gather_chunks(sizes: Sizes, arguments: Arguments) -> float:
    """Ids and rows, the contributions of the neighbours, and the sum of each chunk."""
    rows = int(arguments["rows"])
    entries = total(arguments["in.lengths"][arguments["order"][:rows]])
    gathered = 2 * COLUMNS * min(sizes.sending, entries)
    chunks = int(arguments["ends"][rows - 1])
    return 4 * entries + 24 * rows + gathered + 8 * COLUMNS * chunks


def _sweep_many(known: int) -> Model:
    """For each row its place, lengths and loop, and the deflation vector; for each column y and
    remainder in and out, the new contribution; ids and contributions of the neighbours, or the
    sums of the chunks of a long row.
    """

    def needed(sizes: Sizes, arguments: Arguments) -> float:
        first, last = int(arguments["from"]), int(arguments["to"])
        long_rows, ends = int(arguments["long_rows"]), arguments["ends"]
        summed = arguments["order"][max(first, long_rows) : last]
        entries = total(arguments["row_lengths"][summed])
        chunks = int(ends[long_rows - 1]) if long_rows else 0
        gathered = 2 * COLUMNS * min(sizes.sending, entries)
        each = 25 + known + 26 * COLUMNS
        return each * (last - first) + 4 * entries + gathered + 8 * COLUMNS * chunks

    return needed


def _sweep_many_short(known: int) -> Model:
    """The same for rows with entries and for seeded ones. Without out-edges nothing is sent and the
    remainder stays. Any other row takes 9 bytes.
    """

    def needed(sizes: Sizes, arguments: Arguments) -> float:
        rows = arguments["order"][int(arguments["from"]) : int(arguments["to"])]
        lengths = arguments["row_lengths"][rows]
        chosen = (lengths > 0) | (arguments["seeded"][rows] > 0)
        entries, count = total(lengths), total(chosen)
        senders = total(chosen & (arguments["degree"][rows] > 0))
        columns = COLUMNS * ((8 + 4 + 8) * count + (4 + 2) * senders)
        gathered = 2 * COLUMNS * min(sizes.sending, entries)
        placed = 9 * (len(rows) - count) + (25 + known) * count
        return placed + columns + 4 * entries + gathered

    return needed


MODELS: dict[str, Model] = {
    "sweep: sweep<false>": _sweep(),
    "sweep: sweep<true>": _sweep(_DEFLATION),
    "sweep: quantize_contributions": _quantize_contributions,
    # length, degree and loop
    "sweep: sum_in_degrees": per_item(4 + _OWN, "vertices"),
    # the same; y, r and the contribution out
    "sweep: start_from_in_degrees": per_item(4 + _OWN + 8 + 8 + 2, "vertices"),
    "sweep: compute_residual": _compute_residual,
    # degree, y, contribution
    "sweep: compute_contributions": per_item(4 + 8 + 8, "vertices"),
    "sweep: orthomin_image": _orthomin_image,
    "sweep: orthomin_step": _orthomin_step,
    "perturb: perturb": _perturb,
    # r and marks; few marks change
    "perturb: select_candidates": per_item(8 + 4, "vertices"),
    "push: push": _push,
    "multivector: gather_chunks": _gather_chunks,
    "multivector: sweep_many<false>": _sweep_many(0),
    "multivector: sweep_many<true>": _sweep_many(_DEFLATION),
    "multivector: sweep_many_short<false, false>": _sweep_many_short(0),
    "multivector: sweep_many_short<false, true>": _sweep_many_short(_DEFLATION),
    "multivector: sweep_many_short<true, false>": _sweep_many_short(0),
    "multivector: sweep_many_short<true, true>": _sweep_many_short(_DEFLATION),
    # a value
    "select: group_maxima": per_item(8, "size"),
    "select: list_largest": per_item(8, "size"),
    # y, r, degree, loop
    "select: highest_bound": per_item(16 + _OWN, "count"),
    "frontier: expand_forward": _expand_forward,
    "frontier: expand_backward": _expand_backward,
}
