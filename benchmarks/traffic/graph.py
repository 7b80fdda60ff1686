"""Models of the kernels that change and rebuild the graph."""

from __future__ import annotations

from benchmarks.traffic.model import Arguments, Model, Sizes, total
from benchmarks.traffic.solve import per_item
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import COUNTERS


def _counter(arguments: Arguments, name: str) -> int:
    """A counter of a batch, by its name in COUNTERS."""
    return int(arguments["counters"][COUNTERS.index(name)])


def _distinct(ascending: Array) -> int:
    """The number of different values in an ascending list."""
    if len(ascending) == 0:
        return 0
    return 1 + total(ascending[1:] != ascending[:-1])


# what a batch changes


def _pack_keys(_: Sizes, arguments: Arguments) -> float:
    """Both ids and the key; the position of each id."""
    edges = int(arguments["edges"])
    ids = 2 * int(arguments["sources"].itemsize)
    return (ids + 8) * edges + 4 * min(int(arguments["permuted"]), 2 * edges)


def _find_rows(_: Sizes, arguments: Arguments) -> float:
    """The key, and the slot of the opposite one; four numbers for each edge; for each row its
    length, first edge, vertex, loop and work.
    """
    edges, rows = _counter(arguments, "EDGES"), _counter(arguments, "ROWS")
    return 16 * int(arguments["operations"]) + 16 * edges + (4 + 4 + 4 + 1 + 8) * rows


def _locate(_: Sizes, arguments: Arguments) -> float:
    """Every entry of the named rows; for each row its work, vertex, first edge, start and length;
    the edges that are looked up.
    """
    rows, edges = _counter(arguments, "ROWS"), _counter(arguments, "EDGES")
    lengths, vertices = arguments["row_lengths"], arguments["row_vertex"][:rows]
    entries = total(lengths[vertices[vertices < len(lengths)]])
    return 4 * entries + 28 * rows + 4 * edges


def _decide(_: Sizes, arguments: Arguments) -> float:
    """For each edge its key, operation, neighbour, row and slot; for each row vertex and first
    edge, and where its changes begin; the changes, and their keys for the other direction.
    """
    edges, rows = _counter(arguments, "EDGES"), _counter(arguments, "ROWS")
    removed, added = _counter(arguments, "REMOVED"), _counter(arguments, "ADDED")
    return 24 * edges + 16 * rows + (8 + 12) * removed + (8 + 8) * added


def _plan_rows(_: Sizes, arguments: Arguments) -> float:
    """For each row vertex, loop, changes, length, capacity and bin; the new length, start and work,
    and the list of those that change.
    """
    return (4 + 1 + 8 + 4 + 4 + 1 + 4 + 8 + 8 + 4) * _counter(arguments, "ROWS")


def _move_rows(_: Sizes, arguments: Arguments) -> float:
    """16 bytes in and out for four entries of a row that moves; the work of all rows."""
    rows = _counter(arguments, "ROWS")
    return 32 * (int(arguments["move_work"][rows]) - rows) + 8 * rows


def _place_changes(reported: int) -> Model:
    """For each change its row and neighbour and the slot written, and the slot of a removed entry;
    for each row its vertex, loop, changes, start and length.
    """

    def needed(_: Sizes, arguments: Arguments) -> float:
        removals, additions = int(arguments["removals"]), int(arguments["additions"])
        rows = max(
            _distinct(arguments["removed_row"][:removals]),
            _distinct(arguments["added_row"][:additions]),
        )
        changes = removals + additions
        return (12 + reported) * changes + 4 * removals + (4 + 1 + 8 + 8 + 8 + 4) * rows

    return needed


def _find_holes(_: Sizes, arguments: Arguments) -> float:
    """For each removal its row, neighbour and slot, the entry behind the row's new end, the hole
    and its filler; for each row vertex, loop, changes, start and new length.
    """
    removals = int(arguments["removals"])
    rows = _distinct(arguments["removed_row"][:removals])
    return (12 + 4 + 12) * removals + (4 + 1 + 8 + 8 + 4) * rows


def _fill_holes(_: Sizes, arguments: Arguments) -> float:
    """The hole, its filler, and the entry written."""
    return 16 * _counter(arguments, "HOLES")


def _finish_rows(reported: int) -> Model:
    """Index, vertex, loop, new length and start; the length, and start and capacity of a row that
    moves.
    """

    def needed(_: Sizes, arguments: Arguments) -> float:
        changed = int(arguments["changed"])
        moved = total(arguments["new_start"][arguments["changed_row"][:changed]] >= 0)
        return (4 + 4 + 1 + 4 + 8 + 4 + reported) * changed + 12 * moved

    return needed


# rebuilding


def _copy_rows(_: Sizes, arguments: Arguments) -> float:
    """Every slot in and out, and where each row begins, before and after."""
    return 8 * int(arguments["new_end"]) + 16 * int(arguments["vertices"])


def _deduplicate(_: Sizes, arguments: Arguments) -> float:
    """A key, and once more if it stays."""
    return 8 * int(arguments["total"]) + 8 * _counter(arguments, "EDGES")


def _count_buckets(_: Sizes, arguments: Arguments) -> float:
    """One id of each edge, and all positions."""
    ids = int(arguments["rows"].itemsize)
    return ids * int(arguments["edges"]) + 4 * int(arguments["permuted"])


def _keys_of_range(_: Sizes, arguments: Arguments) -> float:
    """One id of each edge; the other one and the key of those in the range; all positions."""
    ids = int(arguments["rows"].itemsize)
    chosen = (ids + 8) * len(arguments["keys"])
    return ids * int(arguments["edges"]) + chosen + 4 * int(arguments["permuted"])


MODELS: dict[str, Model] = {
    "resolve_update: pack_keys<int>": _pack_keys,
    "resolve_update: find_rows": _find_rows,
    "resolve_update: locate": _locate,
    "resolve_update: decide": _decide,
    "apply_update: plan_rows": _plan_rows,
    "apply_update: move_rows": _move_rows,
    # in the out-lists source and target of each change are reported
    "apply_update: place_changes<false>": _place_changes(0),
    "apply_update: place_changes<true>": _place_changes(8),
    "apply_update: find_holes": _find_holes,
    "apply_update: fill_holes": _fill_holes,
    # in the out-lists loop, the degree before and after, and the source
    "apply_update: finish_rows<false>": _finish_rows(0),
    "apply_update: finish_rows<true>": _finish_rows(1 + 4 + 4 + 4),
    # length, start and capacity of a row
    "rebuild: pack_rows": per_item(4 + 8 + 4, "vertices"),
    "rebuild: copy_rows": _copy_rows,
    # length
    "rebuild: count_bins": per_item(4, "vertices"),
    # length, order, bin
    "rebuild: partition": per_item(4 + 4 + 1, "vertices"),
    "rebuild: deduplicate": _deduplicate,
    # a key; what is written of a row is left out
    "rebuild: find_first_keys": per_item(8, "edges"),
    "rebuild: count_rows": per_item(8, "edges"),
    # a key and an entry
    "rebuild: fill_rows": per_item(8 + 4, "edges"),
    "rebuild: count_buckets<int>": _count_buckets,
    "rebuild: keys_of_range<int>": _keys_of_range,
}
