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


_SIDES = ("outgoing", "incoming")

_WIDE = ("row_work", "move_work", "new_start")
_NARROW = (
    "edge_operation",
    "edge_neighbour",
    "edge_row",
    "edge_slot",
    "row_edge",
    "row_vertex",
    "row_removed",
    "row_added",
    "removed_row",
    "removed_neighbour",
    "removed_slot",
    "added_row",
    "added_neighbour",
    "new_length",
    "changed_row",
)
"""The arrays of a plan in one block, as Side in batch.cu has them."""


def _side(arguments: Arguments, name: str) -> Arguments:
    """The arguments of one direction, and the arrays of its plan."""
    begin = f"{name}."
    side = {
        key.removeprefix(begin): value for key, value in arguments.items() if key.startswith(begin)
    }
    room = int(side["room"])
    for block, parts in (("wide", _WIDE), ("narrow", _NARROW)):
        for at, part in enumerate(parts):
            side[part] = side[block][at * room : (at + 1) * room]
    return side


def _plan_batch(_: Sizes, arguments: Arguments) -> float:
    """See `_planned`, of both directions."""
    return sum(_planned(_side(arguments, name)) for name in _SIDES)


def _planned(side: Arguments) -> float:
    """A key of each operation. Four numbers for each edge, which are read again with its key; for
    each row its length, first edge, vertex, loop and work, twice, and its capacity and bin. Every
    entry of the named rows, with where each begins; the changes; and for each row the new length,
    start and work, and the list of those that change.
    """
    rows, edges = _counter(side, "ROWS"), _counter(side, "EDGES")
    lengths, vertices = side["row_lengths"], side["row_vertex"][:rows]
    entries = total(lengths[vertices[vertices < len(lengths)]])
    changes = 12 * _counter(side, "REMOVED") + 8 * _counter(side, "ADDED")
    found = 8 * int(side["operations"]) + (16 + 4 + 24) * edges + (21 + 28 + 16) * rows
    return found + 4 * entries + changes + (1 + 8 + 4 + 4 + 1 + 4 + 8 + 8 + 4 + 4) * rows


def _apply_batch(_: Sizes, arguments: Arguments) -> float:
    """See `_applied`, of both directions; of the out-lists also source and target of each change,
    and of each changed row its loop, its degree before and after, and the source.
    """
    out, into = (_side(arguments, name) for name in _SIDES)
    reported = 8 * (_counter(out, "REMOVED") + _counter(out, "ADDED"))
    return _applied(out) + _applied(into) + reported + 13 * _counter(out, "CHANGED")


def _applied(side: Arguments) -> float:
    """16 bytes in and out for four entries of a row that moves, and the work of all rows; for each
    change its row and neighbour and the slot written, and the slot of a removed entry; for each row
    its vertex, loop, changes, start and length. A removal from a row that shrinks is read again,
    with the entry behind the new end, the hole and its filler. For each changed row its index,
    vertex, loop, length and start; and start and capacity of one that moved.
    """
    rows, changed = _counter(side, "ROWS"), _counter(side, "CHANGED")
    removals, additions = _counter(side, "REMOVED"), _counter(side, "ADDED")
    bytes_moved = 0
    if _counter(side, "NEEDED"):
        bytes_moved = 32 * (int(side["move_work"][rows]) - rows) + 8 * rows
    touched = max(
        _distinct(side["removed_row"][:removals]), _distinct(side["added_row"][:additions])
    )
    placed = 12 * (removals + additions) + 4 * removals + (4 + 1 + 8 + 8 + 8 + 4) * touched
    filled = 0
    if _counter(side, "EMPTIED"):
        filled = (12 + 4 + 12) * removals + 16 * _counter(side, "HOLES")
    moved = total(side["new_start"][side["changed_row"][:changed]] >= 0)
    return bytes_moved + placed + filled + (4 + 4 + 1 + 4 + 8 + 4) * changed + 12 * moved


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
    "rebuild: pack_keys<int>": _pack_keys,
    # a key in and out
    "rebuild: transpose_keys": per_item(16, "total"),
    "batch: plan_batch": _plan_batch,
    "batch: apply_batch": _apply_batch,
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
