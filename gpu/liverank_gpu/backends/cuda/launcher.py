"""Launches of the CUDA kernels, and what several operations share in them."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from operator import attrgetter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.device import CudaDevice, Mapped
from liverank_gpu.backends.cuda.kernels import loader as cu
from liverank_gpu.operations.csr import Csr, Rows
from liverank_gpu.operations.device import Array

_MOST_BLOCKS = 8192
"""Blocks that fill a large device several times; one block can add up their sums."""

BALANCED_BLOCKS = 4224
"""Blocks that balance rows by work, at most: 32 for each of 132 multiprocessors, a few waves."""

_RESIDENT = 2
"""Blocks that fit on a multiprocessor at once, for kernels whose blocks synchronise."""

_GROUP_LANES = np.array(cu.BIN_LANES[::-1])
_LONG_GROUPS = int((_GROUP_LANES > cu.WARP).sum())
"""Groups whose rows are divided among several warps."""

_IMAGES = ("orthomin_image", "finish_image")
"""Kernels whose last sum is no maximum."""

RowPlan = tuple[int, ...]
"""RowPlan of rows.cuh."""


class Launcher:
    """Launches the kernels of one device.

    resident  blocks of a launch that are resident at once
    """

    def __init__(self, device: CudaDevice) -> None:
        self.device = device
        self.xp = device.xp
        self.resident = device.multiprocessors * _RESIDENT
        self._arrived = self.xp.zeros(1, np.int32)
        self._answers: list[tuple[Array, Mapped]] = []  # that no launch uses
        # by kernel, kind of operation, and names of other arguments
        self._chosen: dict[tuple[Any, ...], Callable[[Any, Any], tuple[Any, ...]]] = {}

    def __call__(
        self,
        file: str,
        kernel: str,
        blocks: int,
        *arguments: Any,
        threads: int = cu.BLOCK,
        weighted: bool = False,
        shared_bytes: int = 0,
    ) -> None:
        """Launches a kernel with `blocks` blocks of `threads` threads.

        arguments     see liverank_gpu.backends.cuda.kernels.parameters
        weighted      whether it is for a weighted graph
        shared_bytes  of dynamic shared memory
        """
        launched = self.device.kernels[cu.unit(file, weighted)][kernel]
        launched((blocks,), (threads,), arguments, shared_mem=shared_bytes)

    def ask(
        self,
        file: str,
        kernel: str,
        *arguments: Any,
        weighted: bool = False,
        small: bool = False,
        meanwhile: Callable[[], object] | None = None,
    ) -> NDArray[np.int64]:
        """Launches a cooperative kernel whose last argument is an Answer, on all blocks that are
        resident, and waits. Several threads may ask at once.

        small      whether half the blocks do: they synchronise faster
        meanwhile  called when it has been launched; nothing that it launches is waited for

        Returns int64[ANSWER], what it told.
        """
        try:
            counts, told = answer = self._answers.pop()
        except IndexError:
            counts, told = answer = (
                self.xp.zeros(cu.ANSWER, np.int64),
                self.device.mapped(cu.ANSWER),
            )
        given = (*arguments, (counts, told.device))
        blocks = self.device.multiprocessors if small else self.resident
        self(file, kernel, blocks, *given, weighted=weighted)
        if meanwhile is None:
            self.device.synchronize()
        else:
            told_all = self.device.event()
            told_all.record()
            meanwhile()
            told_all.synchronize()
        found = told.host.copy()
        self._answers.append(answer)
        return found

    def resident_blocks(self, threads: int, waves: int = 1) -> int:
        """Blocks for this many threads, at most `waves` times those that are resident."""
        return blocks_for(threads, most=waves * self.resident)

    def run(
        self,
        file: str,
        kernel: str,
        blocks: int,
        do: Any,
        /,
        *,
        weighted: bool | None = None,
        **own: Any,
    ) -> None:
        """Launches a kernel for an operation, with arguments by the names of its parameters: `own`
        ones, then members of the operation and of what is _SEARCHED, or what is _SAME_AS these.

        weighted  whether it is for a weighted graph; None: as that of the operation is
        """
        weighted = do.graph.weighted if weighted is None else weighted
        arguments = self._arguments(file, kernel, weighted, do, own)
        self(file, kernel, blocks, *arguments, weighted=weighted)

    def _arguments(
        self, file: str, kernel: str, weighted: bool, do: Any, own: dict[str, Any]
    ) -> tuple[Any, ...]:
        key = (file, kernel, weighted, type(do), *own)
        if key not in self._chosen:
            names = cu.parameter_names(cu.unit(file, weighted), kernel)
            values = ", ".join(_value_of(name, do, own) for name in names)
            self._chosen[key] = eval(f"lambda do, own: ({values},)")
        found: tuple[Any, ...] = self._chosen[key](do, own)
        return found

    def over_rows(self, file: str, kernel: str, do: Any, /, **own: Any) -> Array:
        """Runs a kernel of rows.cuh for an operation, for one part of its rows after the other;
        returns its sums, float64[SWEEP_SUMS] on the device.
        """
        parts = []
        for part in [part.rows for part in do.rows.parts] or [do.rows]:
            blocks, (rows, plan) = self.row_arguments(do.graph.incoming, part)
            parts.append((blocks, 0, {**own, "rows": rows, "plan": plan}))
        return self._in_parts(file, kernel, parts, do, do.rows)

    def row_arguments(self, csr: Csr, rows: Rows) -> tuple[int, tuple[Any, ...]]:
        """Blocks of a kernel of rows.cuh, and the arguments before its own."""
        plan, blocks, long_rows, parts = _plan(tuple(rows.groups.tolist()))
        if long_rows > len(self._arrived):
            self._arrived = self.xp.zeros(2 * long_rows, np.int32)
        parts_memory = self.xp.empty(max(1, parts))
        return blocks, ((rows.order, csr, parts_memory, self._arrived), plan)

    def over_vertices(
        self, file: str, kernel: str, do: Any, rows: Rows | None = None, /, **own: Any
    ) -> Array:
        """Runs a kernel that takes each vertex once; returns its sums as `over_rows`.

        rows  with the parts to take one after the other: then all arrays are over vertices
        """
        parts, vertices = [], do.graph.vertices
        spans = rows.parts if rows else ()
        for first, end in [part.span for part in spans] or [(0, vertices)]:
            count = max(0, min(end, vertices) - first)
            blocks = blocks_for(count, most=_MOST_BLOCKS // 4)
            parts.append((blocks, first, {**own, "vertices": count}))
        return self._in_parts(file, kernel, parts, do, rows)

    def over_values(self, file: str, kernel: str, values: Array) -> Array:
        """Runs a kernel that takes each value once; returns its sums as `over_rows`."""
        blocks = blocks_for(len(values), most=_MOST_BLOCKS // 4)
        own = {"count": len(values), "values": values}
        return self._in_parts(file, kernel, [(blocks, 0, own)], None, None)

    def _in_parts(
        self,
        file: str,
        kernel: str,
        parts: list[tuple[int, int, dict[str, Any]]],
        do: Any,
        rows: Rows | None,
    ) -> Array:
        """Launches a kernel for each part, with so many blocks, from a vertex on, and with these
        arguments of its own, and adds up what all blocks wrote.
        """
        partial_sums = self.xp.empty((sum(blocks for blocks, *_ in parts), cu.SWEEP_SUMS))
        weighted = do is not None and do.graph.weighted
        begin = 0
        for part, (blocks, first, own) in enumerate(parts):
            own["partial_sums"] = written = partial_sums[begin : begin + blocks]
            arguments = self._arguments(file, kernel, weighted, do, own)
            if first:
                arguments = tuple(
                    each[first:] if isinstance(each, self.xp.ndarray) else each
                    for each in arguments[:-1]
                )
                arguments = (*arguments, written)
            self(file, kernel, blocks, *arguments, weighted=weighted)
            begin += blocks
            if rows is not None and rows.issued is not None:
                rows.issued(part)
        sums = self.xp.empty(cu.SWEEP_SUMS)
        adding = f"add_partial_sums<{str(kernel not in _IMAGES).lower()}>"
        self(file, adding, 1, partial_sums, begin, sums, weighted=weighted)
        return sums

    def chunk_ends(self, row_lengths: Array) -> Array:
        """int64[k]: chunks of EDGE_CHUNK edges of rows 0 … i, at least one for each row."""
        xp = self.xp
        chunks = (row_lengths + (cu.EDGE_CHUNK - 1)) // cu.EDGE_CHUNK
        return xp.cumsum(xp.maximum(chunks, 1), dtype=np.int64)


_SAME_AS = {
    "r": "residual",
    "in": "graph.incoming",
    "out": "graph.outgoing",
    "in_lengths": "graph.incoming.row_lengths",
    "out_lengths": "graph.outgoing.row_lengths",
    "starts": "row_starts",
    "lengths": "row_lengths",
    "entries": "column_indices",
}
"""Names of parameters, and of the members that they stand for."""


_SEARCHED = ("state", "rule", "graph", "rows", "graph.incoming", "lists", "interval")
"""Members of operations whose members are arguments too."""


def _value_of(name: str, do: Any, own: dict[str, Any]) -> str:
    """Python that reads the value of a parameter. Raises TypeError if there is none."""
    if name in own:
        return f"own[{name!r}]"
    for within in ("", *(f"{each}." for each in _SEARCHED)):
        for path in (within + name, within + _SAME_AS.get(name, name)):
            try:
                attrgetter(path)(do)
            except AttributeError:
                continue
            return f"do.{path}"
    raise TypeError(f"{type(do).__name__} has no {name}")


class OnDevice:
    """What launches operations."""

    def __init__(self, launch: Launcher) -> None:
        self._launch, self._device, self._xp = launch, launch.device, launch.xp


def blocks_for(items: int, each: int = cu.BLOCK, most: int = 2**31 - 1) -> int:
    """Blocks that take `each` items, at least one and at most `most`."""
    return min(max(1, -(-items // each)), most)


def balanced_blocks(units: int) -> int:
    """Blocks of a kernel that balances this many units of work."""
    # up to the limit, each thread has 2 units of work
    return blocks_for(units, 2 * cu.BLOCK, BALANCED_BLOCKS)


def grid_blocks(threads: int) -> int:
    """Blocks of a grid-stride loop over this many items."""
    return blocks_for(threads, most=_MOST_BLOCKS)


@lru_cache(maxsize=64)
def _plan(groups: tuple[int, ...]) -> tuple[RowPlan, int, int, int]:
    """The plan for rows in these groups, and the numbers of blocks, of rows that are divided among
    several warps, and of their parts.
    """
    sizes = np.diff(groups)
    units = np.where(
        _GROUP_LANES > cu.WARP,
        sizes * (_GROUP_LANES // cu.WARP),
        -(-sizes * np.minimum(_GROUP_LANES, cu.WARP) // cu.WARP),
    )
    first_units: list[int] = [0, *np.cumsum(units).tolist()]
    total, warps = first_units[-1], cu.BLOCK // cu.WARP
    units_per_warp = max(1, -(-total // (warps * _MOST_BLOCKS)))
    blocks = blocks_for(total, each=warps * units_per_warp)
    plan = (*groups, *first_units, units_per_warp)
    return plan, blocks, groups[_LONG_GROUPS], first_units[_LONG_GROUPS]
