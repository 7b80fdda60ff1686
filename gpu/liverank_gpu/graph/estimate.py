"""The memory of a graph: what it holds, and what a batch needs, before anything is allocated."""

from __future__ import annotations

from collections.abc import Callable

from liverank_gpu.errors import OutOfMemory
from liverank_gpu.graph.packed_csr import (
    LOADED_AT_ONCE,
    VERTEX_BYTES,
    PackedCsr,
    slot_bytes,
    slots_with_spare,
    workspace_bytes,
)
from liverank_gpu.graph.rebuild import rebuild_bytes
from liverank_gpu.graph.vertices import permutation_bytes
from liverank_gpu.operations.device import DeviceOperations


def batch_bytes(
    directions: tuple[PackedCsr, PackedCsr],
    arcs: int,
    operations: int,
    vertices: int,
    grown: int,
    vertex_bytes: int,
    rebuilds: bool,
    chooses_order: bool,
    weighted: bool,
    at_once: int,
    kept: int,
) -> int:
    """Upper bound on the memory that a batch takes beside what the graph holds, its peak included.

    arcs           of the graph
    operations     arcs to insert and to delete
    vertices       of the graph after the batch
    grown          vertices for which there is no room
    vertex_bytes   of a vertex, outside its rows
    rebuilds       whether the batch rebuilds both directions
    chooses_order  whether it may choose the permutation
    at_once        Sizes.entries
    kept           bytes of the workspace that is there
    """
    bytes_of_slot = slot_bytes(weighted)
    grown = (2 * VERTEX_BYTES + vertex_bytes) * grown * 5 // 4
    if rebuilds:
        # both directions and one that is cut to size; keys and the sort's copy of them
        edges = arcs + operations
        slots = 3 * bytes_of_slot * slots_with_spare(edges + 3 * min(edges, vertices))
        # a weighted sort moves keys, weights and their places
        each = 40 if weighted else 16
        lists = slots + each * min(edges, 2 * LOADED_AT_ONCE)
        lists += (2 * VERTEX_BYTES + vertex_bytes + 1) * vertices
        rest = rebuild_bytes(arcs, operations, weighted, at_once) if arcs else 0
        order = permutation_bytes(operations, vertices, at_once) if chooses_order else 0
        return 8 * operations + grown + rest + max(lists + 8 * vertices, order)
    moved = 0
    for direction in directions:
        # at worst each insertion moves a row of the average length of those it can meet
        most = direction.end + 8 * operations
        if most > len(direction.csr.column_indices):
            slots = slots_with_spare(direction.packed + 8 * operations)
            moved = max(moved, bytes_of_slot * slots)
    # columns, keys in both directions and the sort's copies of them
    each = 104 if weighted else 56
    workspace = max(0, workspace_bytes(operations, weighted) - kept)
    return grown + moved + workspace + each * operations


def batch_purpose(operations: int, vertices: int) -> str:
    """What memory is needed for, in words."""
    return f"a batch of {operations:,} edges and a graph of {vertices:,} vertices"


class NamingMemory:
    """Raises OutOfMemory, with the figures of a batch, for any other MemoryError.

    bytes_needed  DynamicGraph.bytes_needed, which takes `operations` and `vertices`
    """

    def __init__(
        self,
        device: DeviceOperations,
        bytes_needed: Callable[[int, int], int],
        operations: int,
        vertices: int,
    ) -> None:
        self._device, self._bytes_needed = device, bytes_needed
        self._sizes = operations, vertices

    def __enter__(self) -> None:
        return

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if isinstance(error, MemoryError) and not isinstance(error, OutOfMemory):
            purpose, needed = batch_purpose(*self._sizes), self._bytes_needed(*self._sizes)
            raise OutOfMemory(purpose, needed, self._device.memory_available()) from error


def held_bytes(outgoing: PackedCsr, incoming: PackedCsr, vertices: int) -> dict[str, int]:
    """Bytes of both directions, by purpose; vertices: those of arrays beside them."""
    out_lists, out_slack, out_vertices = outgoing.memory()
    in_lists, in_slack, in_vertices = incoming.memory()
    return {
        "out-lists": out_lists,
        "in-lists": in_lists,
        "slack": out_slack + in_slack,
        "vertices": out_vertices + in_vertices + vertices,
    }
