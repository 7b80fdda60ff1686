"""Ranks of R-MAT graphs whose edges are streamed, beside the rate of what they are streamed over.

On ``cuda`` edges come from page-locked memory of the host, and the rate is that of a copy of them
to the device in the same run; CuPy's memory pool refuses what exceeds the budget. On ``cpu`` they
come from a file, and the rate is that of reading it from its start to its end. The kernel's cache
of the file is dropped before that, before the solve, and in a second solve behind every window.
``share`` is what was loaded, over the whole time of the solve and the rate; ``share_of_passes``
counts what passes found in the buffers too. (1 GiB has room for all of 100M edges, so that they are
loaded once; 512 MiB has not.)

    python -m benchmarks.out_of_core
    python -m benchmarks.out_of_core --backend cuda
    python -m benchmarks.out_of_core --scale 14 --edges 262144 --memory 3145728
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, rmat, shuffled_rmat
from liverank_gpu import BackendName, Options, OutOfCoreRanking, OutOfCoreRanks, Solve
from liverank_gpu.backends import backend_named
from liverank_gpu.graph.packed_csr import row_blocks, slot_bytes
from liverank_gpu.graph.vertices import by_descending_degree
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.out_of_core.ranking import Budget, rank_windowed, vertex_bytes
from liverank_gpu.out_of_core.spool import EdgeSpool, PackedEdges, ScratchColumns
from liverank_gpu.out_of_core.windows import WindowedGraph

OPTIONS = Options(target_error=1e-6)
SOLVE = Solve("residual")

_PIECE = 1 << 22
"""Edges that are drawn at once on the host, and slots that are read at once for the rate."""

_SORTED = 1 << 27
"""Edges that are sorted at once on the device."""


def host_pieces(scale: int, edges: int) -> Iterator[tuple[Array, Array]]:
    """An R-MAT graph with shuffled labels, in pieces."""
    generator = np.random.Generator(np.random.Philox(1))
    labels = generator.permutation(1 << scale).astype(np.int32)
    for first in range(0, edges, _PIECE):
        sources, targets = rmat(np, generator, scale, min(_PIECE, edges - first))
        yield labels[sources], labels[targets]


def packed_on_host(scale: int, edges: int, memory: int, folder: Path | None) -> PackedEdges:
    """Drawn and sorted on the host, within the budget."""
    spool = EdgeSpool(folder)
    for sources, targets in host_pieces(scale, edges):
        spool.add(sources, targets)
    return spool.pack(1 << scale, memory // 200, fixed_loops=False, order=OPTIONS.vertex_order)


def packed_on_device(backend: Backend, scale: int, edges: int, folder: Path | None) -> PackedEdges:
    """Drawn and sorted on the device, which has room for all edges; without the vertices that have
    none, as in a file, and in the order that `auto` has for these graphs.
    """
    xp = backend.xp
    sources, targets = shuffled_rmat(backend, scale, edges)
    pieces = [slice(first, first + _SORTED) for first in range(0, edges, _SORTED)]
    present = xp.zeros(1 << scale, np.bool_)
    for piece in pieces:
        present[sources[piece]] = True
        present[targets[piece]] = True
    labels = xp.cumsum(present, dtype=np.int32) - 1
    vertices = int(labels[-1]) + 1

    def degrees(ends: Array) -> Array:
        degree = xp.zeros(vertices, np.int32)
        for piece in pieces:
            degree += xp.bincount(labels[ends[piece]], minlength=vertices).astype(np.int32)
        return degree

    ids = by_descending_degree(xp, degrees(sources))
    positions = xp.empty_like(ids)
    positions[ids] = xp.arange(vertices, dtype=np.int32)
    labels = positions[labels]
    in_degree = degrees(targets)
    for piece in pieces:
        sources[piece], targets[piece] = labels[sources[piece]], labels[targets[piece]]
    ids = backend.device.to_host(ids)
    packed = PackedEdges(vertices, directed=True, fixed_loops=False, folder=folder, ids=ids)
    for rows in row_blocks(backend.device.to_host(in_degree), _SORTED):
        parts = []
        for piece in pieces:
            inside = (targets[piece] >= rows.start) & (targets[piece] < rows.stop)
            parts.append(targets[piece][inside].astype(np.int64) << 32 | sources[piece][inside])
        keys = xp.concatenate(parts)
        keys.sort()
        packed.append(backend.device.to_host(keys))
    return packed


def copy_rate(backend: Backend, slots: int) -> float:
    """Bytes a second of copies from page-locked memory to the device: the best of five."""
    device = backend.device
    source = device.page_locked(slots, np.int32)
    source.fill(1)
    target = device.allocate("measurement", slots, np.int32)
    rates = []
    for _ in range(5):
        device.synchronize()
        started = time.perf_counter()
        device.start_copy(source, target)()
        device.synchronize()
        rates.append(source.nbytes / (time.perf_counter() - started))
    return max(rates)


def read_rate(file: ScratchColumns, slots: int) -> float:
    """Bytes a second of reading a file from its start to its end, none of it cached."""
    file.drop_cache()
    buffer: NDArray[np.int32] = np.empty(min(slots, 4 * _PIECE), np.int32)
    started = time.perf_counter()
    for first in range(0, slots, len(buffer)):
        file.read(first, buffer[: slots - first])
    return slot_bytes(weighted=False) * slots / (time.perf_counter() - started)


def window_slots(backend: Backend, packed: PackedEdges, memory: int) -> int:
    """Slots of one buffer within the budget."""
    each = vertex_bytes(backend)
    longest = int(packed.row_lengths.max())
    return Budget(memory, len(packed.row_lengths), each, longest).window_slots


def figures_of(found: OutOfCoreRanks, slots: int, rate: float) -> dict[str, Any]:
    """What one solve did, and its share of a rate in bytes a second."""
    seconds = found.result.solve_seconds
    return {
        "seconds": seconds,
        "passes": found.passes,
        "windows": found.windows,
        "bytes_loaded": found.bytes_loaded,
        "edges_per_second": found.edges * found.passes / seconds,
        "share": found.bytes_loaded / seconds / rate,
        "share_of_passes": slot_bytes(weighted=False) * slots * found.passes / seconds / rate,
        "error_bound": found.result.error_bound,
        "in_memory": found.in_memory,
    }


def from_file(
    backend: Backend, packed: PackedEdges, memory: list[int]
) -> tuple[float, list[dict[str, Any]]]:
    """The rate of the file, and the figures of each budget."""
    read = ScratchColumns.read

    def read_and_forget(self: ScratchColumns, place: int, *into: NDArray[Any]) -> None:
        read(self, place, *into)
        self.drop_cache()

    def solved(budget: int) -> OutOfCoreRanks:
        packed.file.drop_cache()
        graph = WindowedGraph(backend, packed, window_slots(backend, packed, budget))
        return rank_windowed(graph, OPTIONS, SOLVE)

    solved(min(memory))  # compiles
    rate, budgets = read_rate(packed.file, packed.slots), []
    for each in memory:
        once = figures_of(solved(each), packed.slots, rate)
        with patch.object(ScratchColumns, "read", read_and_forget):
            always = figures_of(solved(each), packed.slots, rate)
        budgets.append({"memory": each, "dropped first": once, "dropped always": always})
    return rate, budgets


def from_page_locked(
    backend: Backend, packed: PackedEdges, memory: int
) -> tuple[float, list[dict[str, Any]]]:
    """The rate of copies, and the figures of the budget."""
    slots, pool = window_slots(backend, packed, memory), None
    if backend.xp is not np:
        pool = backend.xp.get_default_memory_pool()
        pool.free_all_blocks()
        pool.set_limit(size=memory)
    rate = copy_rate(backend, min(slots, packed.slots))
    found = rank_windowed(WindowedGraph(backend, packed, slots), OPTIONS, SOLVE)
    if pool is not None:
        pool.set_limit(size=0)
    return rate, [{"memory": memory, "page-locked": figures_of(found, packed.slots, rate)}]


FULL = {"cuda": (27, 1 << 31, [8 << 30]), "cpu": (22, 104_000_000, [1 << 30, 512 << 20])}
"""Scale, edges that are drawn, and bytes of memory, unless others are asked for."""


def measured(
    backend: BackendName,
    scale: int | None,
    edges: int | None,
    memory: list[int] | None,
    scratch: Path | None,
) -> dict[str, Any]:
    """`scratch` is the folder for the file of edges."""
    chosen = backend_named(backend)
    full = FULL[backend]
    scale, edges, memory = scale or full[0], edges or full[1], memory or full[2]
    if backend == "cuda":
        with OutOfCoreRanking(1 << 26, OPTIONS, chosen, scratch) as small:
            for sources, targets in host_pieces(16, EDGES_PER_VERTEX << 16):
                small.add(sources, targets)
            small.rank(solve=SOLVE)  # compiles, and loads kernels
    started = time.perf_counter()
    if backend == "cuda":
        packed = packed_on_device(chosen, scale, edges, scratch)
    else:
        packed = packed_on_host(scale, edges, min(memory), scratch)
    pack_seconds = time.perf_counter() - started
    with packed.file:
        if backend == "cuda":
            rate, budgets = from_page_locked(chosen, packed, *memory)
        else:
            rate, budgets = from_file(chosen, packed, memory)
    return {
        "edges": packed.edges,
        "vertices": len(packed.row_lengths),
        "pack_seconds": pack_seconds,
        "bytes_per_second": rate,
        "budgets": budgets,
        "scale": scale,
    }


if __name__ == "__main__":
    options = {"scale": int | None, "edges": int | None, "memory": list[int] | None}
    suites: harness.Suites = {"out-of-core": (measured, options | {"scratch": Path | None})}
    harness.run(__doc__, suites, backends=True)
