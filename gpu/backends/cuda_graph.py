"""The dynamic graph's operations of the ``cuda`` backend: launches of gpu/kernels/resolve.cu,
change.cu and layout.cu.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
from numpy.typing import NDArray

from gpu.backends.base import Array, Backend
from gpu.kernels import COUNTERS, LANES
from gpu.kernels import TILE as _TILE
from gpu.types import VERTEX_LIMIT

if TYPE_CHECKING:
    from gpu.adjacency import Adjacency
    from gpu.edit import Counts, Edit

_BLOCK = 256
_SHARING_BLOCKS = 4224
"""The most blocks that share rows by work: 32 on each of 132 multiprocessors, a few rounds."""

_FEW_SHARING_BLOCKS = 528
"""The same for small batches: what cannot fill the device starts sooner in fewer blocks."""

_SMALL = 4096
"""Keys that one block sorts, and that are packed on the host if they come from there."""

_FINE_BITS = 7
_BUCKETS = (31 - _FINE_BITS + 1) << _FINE_BITS
"""Buckets of rows that a load counts; gpu/kernels/layout.cu has the same."""

_NO_KEY = np.iinfo(np.int64).max


class Kernel(Protocol):
    """A compiled kernel, called as ``cupy.RawKernel`` is: arrays and typed NumPy scalars."""

    def __call__(
        self, grid: tuple[int, ...], block: tuple[int, ...], args: tuple[Any, ...]
    ) -> None: ...


class CudaGraphOperations(Backend):
    """Operations on adjacencies; see Backend."""

    _kernels: dict[str, dict[str, Kernel]]

    def columns(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        # ids fit 32 bits, and half the bytes come over
        first, second = (
            self.to_device(_narrow(ids)) if isinstance(ids, np.ndarray) else ids
            for ids in (sources, targets)
        )
        return (
            (first, second)
            if first.dtype == second.dtype
            else (
                first.astype(np.int64),
                second.astype(np.int64),
            )
        )

    def sorted_keys(
        self, columns: list[tuple[int, Array, Array]], vertices: tuple[int, int], positions: Array
    ) -> Array:
        total = sum(len(sources) for _, sources, _ in columns)
        on_host = all(isinstance(ids, np.ndarray) for _, *both in columns for ids in both)
        if on_host and total <= _SMALL:
            packed = [_packed(*column, vertices[column[0]]) for column in columns]
            keys = self.to_device(np.concatenate(packed))
            if total and len(positions):
                self._kernels["resolve"]["renumber"](
                    (_blocks(total),),
                    (_BLOCK,),
                    (keys, np.int32(total), positions, np.int64(len(positions))),
                )
            return self.sort(keys)
        keys = self.allocate("keys of a batch", total, np.int64)
        begin = 0
        for operation, *both in columns:
            end = begin + len(both[0])
            if end > begin:
                sources, targets = self.columns(*both)
                self._kernels["resolve"][f"pack<{_kind(sources)}>"](
                    (_blocks(end - begin, most=4 * _SHARING_BLOCKS),),
                    (_BLOCK,),
                    (
                        sources,
                        targets,
                        np.int64(end - begin),
                        np.int64(vertices[operation]),
                        np.int32(operation),
                        positions,
                        np.int64(len(positions)),
                        keys[begin:end],
                    ),
                )
            begin = end
        return self.sort(keys)

    def sort(self, keys: Array) -> Array:
        total = len(keys)
        if total > _SMALL:
            keys.sort()
            return keys
        ascending = self.allocate("keys of a batch", total, np.int64)
        if total:
            self._kernels["resolve"]["sort_small"](
                (_blocks(32 * total),), (_BLOCK,), (keys, np.int32(total), ascending)
            )
        return ascending

    def resolve(
        self, adjacency: Adjacency, loop: Array, fixed_loops: bool, keys: Array, edit: Edit
    ) -> None:
        if len(keys) == 0:
            return
        kernels, tiles = self._kernels["resolve"], _blocks(len(keys), _TILE)
        vertices = np.int64(adjacency.vertices)
        kernels["heads"](
            (tiles,),
            (_BLOCK,),
            (
                keys,
                np.int64(len(keys)),
                adjacency.length,
                vertices,
                edit.scans[0],
                edit.scans[1],
                edit.edge_operation,
                edit.edge_neighbour,
                edit.edge_row,
                edit.edge_slot,
                edit.row_edge,
                edit.row_vertex,
                edit.row_loop,
                edit.row_work,
                edit.opposite,
                edit.counters,
            ),
        )
        kernels["locate"](
            (
                # how much there is to read is known on the device alone
                _sharing(adjacency.end // 4 + 2 * len(keys))
                if len(keys) > _SMALL
                else _FEW_SHARING_BLOCKS,
            ),
            (_BLOCK,),
            (
                edit.counters,
                edit.row_edge,
                edit.row_vertex,
                edit.row_work,
                edit.edge_neighbour,
                adjacency.start,
                adjacency.length,
                adjacency.pool,
                edit.edge_slot,
            ),
        )
        kernels["decide"](
            (tiles,),
            (_BLOCK,),
            (
                keys,
                vertices,
                loop,
                np.int32(fixed_loops),
                edit.edge_operation,
                edit.edge_neighbour,
                edit.edge_row,
                edit.edge_slot,
                edit.row_edge,
                edit.row_vertex,
                edit.scans[2],
                edit.row_loop,
                edit.row_removed,
                edit.row_added,
                edit.removed_row,
                edit.removed_neighbour,
                edit.removed_slot,
                edit.added_row,
                edit.added_neighbour,
                edit.opposite,
                edit.counters,
            ),
        )

    def plan(self, adjacency: Adjacency, operations: int, edit: Edit) -> None:
        if operations == 0:
            return
        self._kernels["change"]["plan"](
            (_blocks(operations, _TILE),),
            (_BLOCK,),
            (
                edit.row_vertex,
                edit.row_loop,
                edit.row_removed,
                edit.row_added,
                np.int64(adjacency.vertices),
                adjacency.length,
                adjacency.capacity,
                adjacency.classes,
                edit.scans[3],
                edit.scans[4],
                edit.new_length,
                edit.new_start,
                edit.move_work,
                edit.changed_row,
                edit.counters,
            ),
        )

    def change(
        self,
        adjacency: Adjacency,
        edit: Edit,
        counts: Counts,
        loop: Array,
        degree: Array,
        report: tuple[Array, ...],
    ) -> None:
        kernels, end = self._kernels["change"], np.int64(adjacency.end)
        outgoing = "true" if report else "false"
        # the in-lists report nothing: any array stands for what is not written
        changed_rows, edges = (report[:2], report[2:]) if report else ((degree,) * 2, (degree,) * 4)
        if counts.needed:
            kernels["move_rows"](
                (_sharing(adjacency.end // 4 + counts.rows),),
                (_BLOCK,),
                (
                    edit.counters,
                    edit.row_vertex,
                    edit.new_start,
                    edit.move_work,
                    adjacency.start,
                    end,
                    adjacency.pool,
                ),
            )
        kernels[f"place<{outgoing}>"](
            (_blocks(counts.removed + counts.added),),
            (_BLOCK,),
            (
                edit.row_vertex,
                edit.row_loop,
                edit.row_removed,
                edit.row_added,
                edit.removed_row,
                edit.removed_neighbour,
                edit.removed_slot,
                edit.added_row,
                edit.added_neighbour,
                edit.new_start,
                adjacency.start,
                adjacency.length,
                end,
                np.int64(counts.removed),
                np.int64(counts.added),
                adjacency.pool,
                loop,
                *edges,
            ),
        )
        if counts.emptied:
            # the room of what is no longer needed: work and the slots of edges
            hole, filler = edit.row_work, edit.edge_slot
            kernels["find_holes"](
                (_blocks(counts.removed, _TILE),),
                (_BLOCK,),
                (
                    edit.row_vertex,
                    edit.row_loop,
                    edit.row_removed,
                    edit.row_added,
                    edit.removed_row,
                    edit.removed_neighbour,
                    edit.removed_slot,
                    edit.new_length,
                    adjacency.start,
                    np.int64(counts.removed),
                    adjacency.pool,
                    edit.scans[5],
                    hole,
                    filler,
                    edit.counters,
                ),
            )
            kernels["fill_holes"](
                (_blocks(counts.emptied),), (_BLOCK,), (edit.counters, hole, filler, adjacency.pool)
            )
        kernels[f"finish<{outgoing}>"](
            (_blocks(counts.changed),),
            (_BLOCK,),
            (
                np.int64(counts.changed),
                edit.changed_row,
                edit.row_vertex,
                edit.row_loop,
                edit.new_length,
                edit.new_start,
                end,
                adjacency.start,
                adjacency.length,
                adjacency.capacity,
                loop,
                degree,
                *changed_rows,
            ),
        )

    def distinct(self, keys: Array, loop: Array) -> tuple[int, int]:
        counters, scans = self._zeroed(1, len(keys))
        self._kernels["layout"]["distinct"](
            (_blocks(len(keys), _TILE),),
            (_BLOCK,),
            (keys, np.int64(len(keys)), scans[0], loop, counters),
        )
        found = self.to_host(counters).tolist()
        return found[COUNTERS.index("EDGES")], found[COUNTERS.index("CHANGED")]

    def row_ranges(
        self, rows: Array, vertices: int, most: int, positions: Array
    ) -> list[tuple[int, int, int]]:
        if len(rows) <= most:
            return [(0, vertices, len(rows))]
        buckets = self.allocate("scratch", _BUCKETS, np.int64)
        buckets.fill(0)
        self._kernels["layout"][f"count_buckets<{_kind(rows)}>"](
            (_blocks(len(rows), most=_SHARING_BLOCKS),),
            (_BLOCK,),
            (rows, np.int64(len(rows)), positions, np.int64(len(positions)), buckets),
        )
        ranges, first, held = [], 0, 0
        for bucket, ids in enumerate(self.to_host(buckets).tolist()):
            if held and held + ids > most:
                begin = _first_row(bucket)
                ranges.append((first, begin, held))
                first, held = begin, 0
            held += ids
        return [*ranges, (first, vertices, held)]

    def keys_of_range(
        self, rows: Array, neighbours: Array, chosen: tuple[int, int, int], positions: Array
    ) -> Array:
        low, high, ids = chosen
        keys = self.allocate("keys of a load", ids, np.int64)
        _, scans = self._zeroed(1, len(rows))
        self._kernels["layout"][f"gather_keys<{_kind(rows)}>"](
            (_blocks(len(rows), 16 * _BLOCK),),
            (_BLOCK,),
            (
                rows,
                neighbours,
                np.int64(len(rows)),
                np.int64(low),
                np.int64(high),
                positions,
                np.int64(len(positions)),
                scans[0],
                keys,
            ),
        )
        return self.sort(keys)

    def row_lengths(
        self, keys: Array, edges: int, low: int, first: Array, length: Array
    ) -> tuple[int, int]:
        if edges == 0:
            return 0, 0
        counters, _ = self._zeroed(0, 0)
        grid, count = (_blocks(edges, most=4 * _SHARING_BLOCKS),), np.int64(edges)
        kernels = self._kernels["layout"]
        kernels["first_key"](grid, (_BLOCK,), (keys, count, np.int64(low), first))
        kernels["row_length"](
            grid, (_BLOCK,), (keys, count, np.int64(low), first, length, counters)
        )
        found = self.to_host(counters).tolist()
        return found[COUNTERS.index("GROWTH")], found[COUNTERS.index("LONGEST")]

    def fill_rows(
        self, keys: Array, edges: int, low: int, first: Array, start: Array, pool: Array
    ) -> None:
        if edges:
            self._kernels["layout"]["fill_rows"](
                (_blocks(edges, most=4 * _SHARING_BLOCKS),),
                (_BLOCK,),
                (keys, np.int64(edges), np.int64(low), first, start, pool),
            )

    def pack_rows(self, length: Array, begin: int, start: Array, capacity: Array) -> None:
        vertices = len(length)
        _, scans = self._zeroed(1, vertices)
        if vertices:
            self._kernels["layout"]["pack_rows"](
                (_blocks(vertices, _TILE),),
                (_BLOCK,),
                (length, np.int64(vertices), np.int64(begin), scans[0], start, capacity),
            )

    def copy_rows(
        self,
        start: Array,
        length: Array,
        pool: Array,
        new_start: Array,
        new_end: int,
        new_pool: Array,
    ) -> None:
        vertices = len(length)
        if new_end:
            self._kernels["layout"]["copy_rows"](
                (_sharing(new_end // 4 + vertices),),
                (_BLOCK,),
                (start, pool, np.int64(vertices), new_start, np.int64(new_end), new_pool),
            )

    def entries(self, adjacency: Adjacency) -> tuple[Array, Array]:
        vertices, xp = adjacency.vertices, self.xp
        before = xp.zeros(vertices + 1, np.int64)
        xp.cumsum(adjacency.length, out=before[1:])
        total = int(before[-1])
        rows = self.allocate("list of edges", total, np.int32)
        neighbours = self.allocate("list of edges", total, np.int32)
        if total:
            self._kernels["layout"]["list_entries"](
                (_sharing(total + vertices),),
                (_BLOCK,),
                (
                    adjacency.start,
                    before,
                    adjacency.pool,
                    np.int64(vertices),
                    np.int64(total),
                    rows,
                    neighbours,
                ),
            )
        return rows, neighbours

    def partition(self, length: Array, order: Array, classes: Array) -> NDArray[np.int64]:
        vertices = len(length)
        counters, scans = self._zeroed(len(LANES) // 2, vertices)
        kernels = self._kernels["layout"]
        if vertices:
            kernels["count_classes"](
                (_sharing(vertices),), (_BLOCK,), (length, np.int64(vertices), counters)
            )
            kernels["partition"](
                (_blocks(vertices, _TILE),),
                (_BLOCK,),
                (length, np.int64(vertices), counters, *scans, order, classes),
            )
        sizes = self.to_host(counters)[: len(LANES) - 1]
        return np.concatenate([[0], np.cumsum(sizes), [vertices]]).astype(np.int64)

    def unbalanced(self, adjacency: Adjacency) -> bool:
        return 64 * adjacency.strayed > adjacency.vertices

    def _zeroed(self, scans: int, items: int) -> tuple[Array, Array]:
        """Counters, and room for prefix sums over so many items."""
        words = 1 + _blocks(items, _TILE)
        block = self.allocate("scratch", len(COUNTERS) + scans * words, np.int64)
        block.fill(0)
        room = block[len(COUNTERS) :].view(np.uint64).reshape(scans, words)
        return block[: len(COUNTERS)], room


def _blocks(items: int, each: int = _BLOCK, most: int = 2**31 - 1) -> int:
    return min(max(1, -(-items // each)), most)


def _sharing(units: int) -> int:
    # each warp has 2 units a thread to do, if there are not more
    return _blocks(units, 2 * _BLOCK, _SHARING_BLOCKS)


def _first_row(bucket: int) -> int:
    """The least row in a bucket of `count_buckets`."""
    shift = max(0, (bucket >> _FINE_BITS) - 1)
    return (bucket - (shift << _FINE_BITS)) << shift


def _narrow(ids: NDArray[np.integer[Any]]) -> NDArray[np.int32]:
    """What no graph has as an id, negative or beyond 32 bits, becomes 2³¹-1, which none has."""
    if ids.dtype == np.int32:
        return ids.astype(np.int32, copy=False)
    return np.minimum(ids.view(np.uint64), VERTEX_LIMIT).astype(np.int32)


def _kind(ids: Array) -> str:
    """The type of a column, as the kernels' names have it."""
    return "int" if ids.dtype.itemsize == 4 else "int64"


def _packed(
    operation: int, sources: NDArray[np.int64], targets: NDArray[np.int64], vertices: int
) -> NDArray[np.int64]:
    keys = sources << 32
    keys |= targets << 1
    keys |= operation
    # one comparison finds ids that are negative or too large
    unknown = np.maximum(sources.view(np.uint64), targets.view(np.uint64)) >= vertices
    keys[unknown] = _NO_KEY
    return keys
