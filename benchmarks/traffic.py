"""What each kernel has to read from memory and write to it, in bytes.

Counted is every byte once, however often a kernel asks for it, as if the caches held all that is
read at random and nothing lay beside what is wanted. So it is what no kernel for the same data in
the same arrays can stay below, but for what the launch before left in the cache. An array that is
read at random counts no more than the array has, and no more than is read; 4 bytes a neighbour's
id, 8 a float64. The headers of gpu/kernels/*.cu say what is asked for instead.

Models take the sizes of the graph and the launch's own arguments, after the launch: what it counted
is then there to be read. Kernels without a model are those whose time is that of a launch.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gpu.backends.base import Array
from gpu.graph import Graph
from gpu.kernels import COUNTERS

Arguments = Sequence[Any]
"""Of a launch, as the backend gives them."""

_WIDTH = 32
"""Columns of a matrix: see columns.cu."""

_PLACED = 4 + 8 + 4
"""Where a row is: order, start, length."""

_OWN = 4 + 1
"""What is known of a vertex: degree, loop."""

_TALLY_VERTICES, _TALLY_EDGES = 2, 3
"""Places of the tally of residual.cu."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """Of a graph.

    vertices  n
    entries   m, edges that are no loops: of the lists of either direction
    sending   vertices with an entry in their out-lists: whose numbers others read
    alone     vertices without an entry in either
    """

    vertices: int = 0
    entries: int = 0
    sending: int = 0
    alone: int = 0

    @classmethod
    def of(cls, graph: Graph) -> Sizes:
        xp, lengths = graph.backend.xp, graph.outgoing.length
        return cls(
            vertices=graph.vertices,
            entries=int(lengths.sum(dtype=np.int64)),
            sending=int(xp.count_nonzero(lengths)),
            alone=graph.vertices - graph.connected,
        )


Needed = Callable[[Sizes, Arguments], float]


def _total(values: Array) -> int:
    return int(values.sum(dtype=np.int64))


def _counted(counters: Array, name: str) -> int:
    """What a batch counted, by the name of the counter."""
    return int(counters[COUNTERS.index(name)])


# sweeps over all rows: m ids, and of each vertex its row, what is known of it, and …


def _relax(value: int, share: int, known: int = 0) -> Needed:
    """… y and r both ways, the share, which others read at random, and the next one; and what is
    leant on.
    """
    each = _PLACED + _OWN + 4 * value + 2 * share + known
    return lambda sizes, _: 4 * sizes.entries + each * sizes.vertices


def _find_residual(sizes: Sizes, _arguments: Arguments) -> float:
    """… y and r, one way each, and the contributions of those who have out-edges."""
    return 4 * sizes.entries + (_PLACED + _OWN + 16) * sizes.vertices + 8 * sizes.sending


def _find_residual_divided(sizes: Sizes, _arguments: Arguments) -> float:
    """… y and r in float32; what others read of it at random is its y and its degree."""
    return 4 * sizes.entries + (_PLACED + _OWN + 8) * sizes.vertices


def _image(sizes: Sizes, arguments: Arguments) -> float:
    """… share, r, weight, the image; y where weights are new, the last image where there is one."""
    weighted, followed = int(arguments[14]), int(arguments[17])
    each = _PLACED + _OWN + 2 + 8 + 4 + 8 + (0 if weighted else 8) + (8 if followed else 0)
    return 4 * sizes.entries + each * sizes.vertices


# passes over the vertices


def _round_shares(value: int, share: int) -> Needed:
    """Length, degree and loop, y, r and the share; a shift goes into every r, and where a vertex
    is alone y and r follow in any case.
    """

    def needed(sizes: Sizes, arguments: Arguments) -> float:
        moved = sizes.vertices if arguments[5] != 0.0 else sizes.alone
        each = 4 + _OWN + 2 * value + share
        return each * sizes.vertices + value * (moved + sizes.alone)

    return needed


def _descend(sizes: Sizes, arguments: Arguments) -> float:
    """Length, degree and loop, the image; y, r and share both ways; the direction and its image
    out, and in where there is a last one.
    """
    followed = int(arguments[7])
    return (4 + _OWN + 8 + 32 + 4 + 16 + (16 if followed else 0)) * sizes.vertices


def _contribute(sizes: Sizes, _arguments: Arguments) -> float:
    """Degree, y, contribution."""
    return 20 * sizes.vertices


def _collect(sizes: Sizes, _arguments: Arguments) -> float:
    """r and marks; the marks that change are few."""
    return 12 * sizes.vertices


def _values(each: int, place: int) -> Needed:
    """So many bytes of each of the items that an argument counts."""
    return lambda _, arguments: each * int(arguments[place])


# rounds over some rows


def _step(divided: bool) -> Needed:
    """As a sweep over the rows named: y in, y' out, the flag of those that spread or stay."""

    def needed(sizes: Sizes, arguments: Arguments) -> float:
        order, _, length, *_ = arguments
        rows = len(order)
        entries = _total(length[order])
        gathered = (8 + 4 if divided else 8) * min(sizes.sending, entries)
        return 4 * entries + (_PLACED + _OWN + 16) * rows + gathered

    return needed


def _adopt(_sizes: Sizes, arguments: Arguments) -> float:
    """Order, y' in, y out, the flags; degree and contribution where these are wanted, a place on a
    list for most.
    """
    count, contributing, listing = int(arguments[1]), int(arguments[6]), int(arguments[9])
    return (4 + 16 + (12 if contributing else 0) + (5 + 4 if listing else 0)) * count


def _look_back(sizes: Sizes, arguments: Arguments) -> float:
    """The flags of all; of a vertex without, its row, its loop, and its list, all of it or at least
    one entry where it is found; the frontier; what is found and its flag.
    """
    _, _, length, _, _, _, flags, _, found = arguments
    left, found_now = flags == 0, int(found[0])
    entries = _total(length[left]) + found_now
    opened = _total(left) + found_now
    return 5 * sizes.vertices + 13 * opened + 4 * entries + 8 * found_now


def _expand(sizes: Sizes, arguments: Arguments) -> float:
    """Of each vertex of the list its id, chunks, row and loop; ids; flags; what is found and its
    flag.
    """
    vertices, _, _, _, length, _, _, _, _, found = arguments
    entries = _total(length[vertices])
    flags = 4 * min(sizes.vertices, entries)
    return (4 + 8 + 12 + 1) * len(vertices) + 4 * entries + flags + 8 * int(found[0])


def _push(sizes: Sizes, arguments: Arguments) -> float:
    """An id and a place in r for each edge pushed; of a vertex pushed y, r and marks both ways, its
    row, degree and loop. Work-lists and vertices pushed again are left out.
    """
    tally = arguments[-1]
    vertices, edges = int(tally[_TALLY_VERTICES]), int(tally[_TALLY_EDGES])
    return 4 * edges + 16 * min(sizes.vertices, edges) + (16 + 16 + 8 + 12 + _OWN) * vertices


def _spread(sizes: Sizes, arguments: Arguments) -> float:
    """Of each source its id, share, chunks and row; target and amount of each single addition; ids;
    r both ways.
    """
    sources, shares, _, _, _, _, singles, _, length, *_ = arguments
    entries, singles = _total(length[sources] * (shares != 0.0)), int(singles)
    additions = min(sizes.vertices, entries + singles)
    return (4 + 8 + 8 + 12) * len(sources) + 12 * singles + 4 * entries + 16 * additions


# 32 walks at once


def _gather_chunks(sizes: Sizes, arguments: Arguments) -> float:
    """Ids and rows, the shares of the neighbours, and what each chunk leaves."""
    order, ends, rows, _, length, *_ = arguments
    entries = _total(length[order[: int(rows)]])
    gathered = 2 * _WIDTH * min(sizes.sending, entries)
    return 4 * entries + 24 * int(rows) + gathered + 8 * _WIDTH * int(ends[int(rows) - 1])


def _relax_alone(known: int) -> Needed:
    """Of a row its place, lengths and loop, and what is leant on; of each column y and left both
    ways, the new share; ids and shares of the neighbours, or for a long row what its chunks left.
    """

    def needed(sizes: Sizes, arguments: Arguments) -> float:
        order, begin, end, _, length, *_ = arguments
        long_rows, ends = int(arguments[19]), arguments[20]
        rows = int(end) - int(begin)
        entries = _total(length[order[max(int(begin), long_rows) : int(end)]])
        chunks = int(ends[long_rows - 1]) if long_rows else 0
        gathered = 2 * _WIDTH * min(sizes.sending, entries)
        return (25 + known + 26 * _WIDTH) * rows + 4 * entries + gathered + 8 * _WIDTH * chunks

    return needed


def _relax_few(known: int) -> Needed:
    """The same of rows with entries, and of those that are seeded; nothing is sent, and left stays,
    where there are no out-edges; 9 bytes for any other row.
    """

    def needed(sizes: Sizes, arguments: Arguments) -> float:
        order, begin, end, _, length, _, _, _, degree, *_ = arguments
        seeded = arguments[19]
        rows = order[int(begin) : int(end)]
        chosen = (length[rows] > 0) | (seeded[rows] > 0)
        entries, count = _total(length[rows]), _total(chosen)
        senders = _total(chosen & (degree[rows] > 0))
        columns = _WIDTH * ((8 + 4 + 8) * count + (4 + 2) * senders)
        gathered = 2 * _WIDTH * min(sizes.sending, entries)
        placed = 9 * (len(rows) - count) + (25 + known) * count
        return placed + columns + 4 * entries + gathered

    return needed


# the dynamic graph


def _pack(_sizes: Sizes, arguments: Arguments) -> float:
    """Both ids, the key, and what position each id has."""
    sources, _, edges, *_ = arguments
    positions = int(arguments[6])
    return (2 * int(sources.itemsize) + 8) * int(edges) + 4 * min(positions, 2 * int(edges))


def _heads(_sizes: Sizes, arguments: Arguments) -> float:
    """The key, and the place of the opposite one; four numbers of each edge; of each row its
    length, first edge, vertex, loop and work.
    """
    counters = arguments[15]
    edges, rows = _counted(counters, "EDGES"), _counted(counters, "ROWS")
    return 16 * int(arguments[1]) + 16 * edges + (4 + 4 + 4 + 1 + 8) * rows


def _locate(_sizes: Sizes, arguments: Arguments) -> float:
    """Every entry of the rows named; of each row its work, vertex, first edge, start and length;
    the edges that are looked for.
    """
    counters, _, row_vertex, _, _, _, length, *_ = arguments
    rows, edges = _counted(counters, "ROWS"), _counted(counters, "EDGES")
    vertices = row_vertex[:rows]
    entries = _total(length[vertices[vertices < len(length)]])
    return 4 * entries + 28 * rows + 4 * edges


def _decide(_sizes: Sizes, arguments: Arguments) -> float:
    """Of each edge its key, operation, neighbour, row and slot; of each row vertex and first edge,
    and where its changes begin; the changes, and their keys in the other direction.
    """
    counters = arguments[-1]
    edges, rows, removed, added = (
        _counted(counters, name) for name in ("EDGES", "ROWS", "REMOVED", "ADDED")
    )
    return 24 * edges + 16 * rows + (8 + 12) * removed + (8 + 8) * added


def _plan(_sizes: Sizes, arguments: Arguments) -> float:
    """Of each row vertex, loop, changes, length, capacity and class; the new length, start, work,
    and the list of those that change.
    """
    return (4 + 1 + 8 + 4 + 4 + 1 + 4 + 8 + 8 + 4) * _counted(arguments[14], "ROWS")


def _move_rows(_sizes: Sizes, arguments: Arguments) -> float:
    """16 bytes in and out for four entries of a row that moves; the work of all rows."""
    counters, _, _, move_work, *_ = arguments
    rows = _counted(counters, "ROWS")
    return 32 * (int(move_work[rows]) - rows) + 8 * rows


def _rows_among(ascending: Array) -> int:
    """How many different rows are in an ascending list."""
    if len(ascending) == 0:
        return 0
    return 1 + _total(ascending[1:] != ascending[:-1])


def _place(reported: int) -> Needed:
    """Row, neighbour and slot written of each change, the slot of what goes; of each row its
    vertex, loop, changes, start and length.
    """

    def needed(_sizes: Sizes, arguments: Arguments) -> float:
        removals, additions = int(arguments[13]), int(arguments[14])
        rows = max(_rows_among(arguments[4][:removals]), _rows_among(arguments[7][:additions]))
        changes = removals + additions
        return (12 + reported) * changes + 4 * removals + (4 + 1 + 8 + 8 + 8 + 4) * rows

    return needed


def _find_holes(_sizes: Sizes, arguments: Arguments) -> float:
    """Row, neighbour and slot of each removal, the entry behind the row's new end, the hole and
    what fills it; of each row vertex, loop, changes, start and new length.
    """
    removals = int(arguments[9])
    rows = _rows_among(arguments[4][:removals])
    return (12 + 4 + 12) * removals + (4 + 1 + 8 + 8 + 4) * rows


def _fill_holes(_sizes: Sizes, arguments: Arguments) -> float:
    """Place, entry, and the entry written."""
    return 16 * _counted(arguments[0], "HOLES")


def _finish(reported: int) -> Needed:
    """Index, vertex, loop, new length and start; the length, and start and capacity of a row that
    moves.
    """

    def needed(_sizes: Sizes, arguments: Arguments) -> float:
        changed, changed_row, _, _, _, new_start, *_ = arguments
        moved = _total(new_start[changed_row[: int(changed)]] >= 0)
        return (4 + 4 + 1 + 4 + 8 + 4 + reported) * int(changed) + 12 * moved

    return needed


# loads and layouts


def _copy_rows(_sizes: Sizes, arguments: Arguments) -> float:
    """Every slot in and out, and where each row begins, before and now."""
    return 8 * int(arguments[4]) + 16 * int(arguments[2])


def _distinct(_sizes: Sizes, arguments: Arguments) -> float:
    """A key, and once more if it stays."""
    return 8 * int(arguments[1]) + 8 * _counted(arguments[4], "EDGES")


def _count_buckets(_sizes: Sizes, arguments: Arguments) -> float:
    """An id, and the positions of all."""
    rows, edges, _, positions, _ = arguments
    return int(rows.itemsize) * int(edges) + 4 * int(positions)


def _gather_keys(_sizes: Sizes, arguments: Arguments) -> float:
    """One id of each edge; of those of the range the other one and the key; all positions."""
    rows, _, edges, _, _, _, positions, _, keys = arguments
    chosen = (int(rows.itemsize) + 8) * len(keys)
    return int(rows.itemsize) * int(edges) + chosen + 4 * int(positions)


NEEDED: dict[str, Needed] = {
    "relax: relax_rows<double, false>": _relax(8, 2),
    "relax: relax_rows<double, true>": _relax(8, 2, known=16),
    "relax: relax_rows<float, false>": _relax(4, 4),
    "relax: round_shares<double>": _round_shares(8, 2),
    "relax: round_shares<float>": _round_shares(4, 4),
    "pull: pull_rows<double, false, false>": _find_residual,
    "pull: pull_rows<float, false, true>": _find_residual_divided,
    "pull: pull_rows<double, true, false>": _step(divided=False),
    "pull: pull_rows<double, true, true>": _step(divided=True),
    "pull: adopt_rows<double>": _adopt,
    "pull: contribute": _contribute,
    "descend: image_rows": _image,
    "descend: descend": _descend,
    "residual: spread_rows<double>": _spread,
    "residual: collect_large<double>": _collect,
    "residual: push_rounds<double>": _push,
    "columns: gather_chunks": _gather_chunks,
    "columns: relax_rows<false>": _relax_alone(0),
    "columns: relax_rows<true>": _relax_alone(16),
    "columns: relax_few<false, false>": _relax_few(0),
    "columns: relax_few<false, true>": _relax_few(16),
    "columns: relax_few<true, false>": _relax_few(0),
    "columns: relax_few<true, true>": _relax_few(16),
    # a value
    "select: count_sizes": _values(8, 1),
    "select: list_sizes": _values(8, 1),
    # a row of values
    "select: count_column_sizes": _values(8 * _WIDTH, 1),
    "select: list_column_sizes": _values(8 * _WIDTH, 1),
    # y, r, degree, loop
    "select: highest_bounds": _values(16 + _OWN, 4),
    "expand: expand_rows": _expand,
    "expand: look_back": _look_back,
    "resolve: pack<int>": _pack,
    "resolve: heads": _heads,
    "resolve: locate": _locate,
    "resolve: decide": _decide,
    "change: plan": _plan,
    "change: move_rows": _move_rows,
    # in the out-lists source and target of each change are reported
    "change: place<false>": _place(0),
    "change: place<true>": _place(8),
    "change: find_holes": _find_holes,
    "change: fill_holes": _fill_holes,
    # in the out-lists loop, degree before and now, and the source
    "change: finish<false>": _finish(0),
    "change: finish<true>": _finish(1 + 4 + 4 + 4),
    # length, start and capacity of a row
    "layout: pack_rows": _values(16, 1),
    "layout: copy_rows": _copy_rows,
    # length
    "layout: count_classes": _values(4, 1),
    # length, order, class
    "layout: partition": _values(9, 1),
    "layout: distinct": _distinct,
    # a key; what is written of a row is left out
    "layout: first_key": _values(8, 1),
    "layout: row_length": _values(8, 1),
    # a key and an entry
    "layout: fill_rows": _values(12, 1),
    "layout: count_buckets<int>": _count_buckets,
    "layout: gather_keys<int>": _gather_keys,
}
"""By file and name expression, as in gpu.kernels.NAMES."""
