"""The ``cuda`` backend: CuPy arrays and the kernels of gpu/kernels.

Rows are grouped by length, and each group's rows are worked on by as many threads as suit it. What
makes a device is a parameter, so that tests run the same code with NumPy arrays and the kernels
compiled for the CPU.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from gpu.backends.base import (
    ENDINGS,
    LISTED,
    QUEUED,
    SOLVES,
    Array,
    Event,
    Known,
    Limits,
    Moved,
    Pushed,
    Residual,
    Rows,
)
from gpu.backends.cuda_columns import CudaColumnOperations
from gpu.backends.cuda_graph import Kernel
from gpu.backends.cuda_sweep import CudaSweepOperations
from gpu.errors import BackendUnavailable
from gpu.kernels import COMPILE_OPTIONS, COOPERATIVE, LANES, LONGEST, NAMES, VALUES, source

if TYPE_CHECKING:
    from gpu.adjacency import Adjacency
    from gpu.graph import Applied, Graph

_BLOCK = 256
_MOST_BLOCKS = 2048
_CHUNK = 128
"""Edges of an out-list that one warp works on at a time."""

_RESIDENT = 2
"""Blocks that fit on a multiprocessor at once, for kernels whose blocks meet."""

_FILL = 1 << 16
"""Out-edges of a work-list below which a round takes the same time, whatever it does."""

# places in the tally of residual.cu: counts, then sums
_ENDED, _ROUNDS, _VERTICES, _EDGES, _SELECTIONS, _LISTS, _LISTED_COUNT = range(7)
_COUNTS, _THRESHOLD, _TALLY = 21, 29, 30

_STICKY = {214, 700, 702, 704, 709, 710, 714, 715, 716, 717, 718, 719}
"""CUDA's errors after which every call of the process fails with the same: uncorrectable memory,
illegal addresses and instructions, timeouts, failed assertions and launches.
"""


@dataclass(frozen=True, slots=True)
class Device:
    """What the backend needs of a device.

    xp                the array module
    load              file name → (name expression → kernel)
    to_host           a device array as a NumPy array
    synchronize       waits for all work
    event             a new event, which is recorded where the calling thread's work goes
    milliseconds      the time between two events that are reached
    memory_available  bytes that can be allocated
    reading           a context in which another thread may read published arrays
    multiprocessors   how many it has
    """

    xp: Any
    load: Callable[[str], Callable[[str], Kernel]]
    to_host: Callable[[Array], NDArray[Any]]
    synchronize: Callable[[], None]
    event: Callable[[], Event]
    milliseconds: Callable[[Any, Any], float]
    memory_available: Callable[[], int]
    reading: Callable[[], AbstractContextManager[Any]]
    multiprocessors: int = 1


class CudaBackend(CudaSweepOperations, CudaColumnOperations):
    """One CUDA device."""

    name = "cuda"
    push_cost = 12.0
    sweep_overhead = 1.2e7

    def __init__(self, device: Device) -> None:
        self.xp = device.xp
        self._device = device
        self._kernels = {
            name: {expression: load(expression) for expression in expressions}
            for name, expressions in NAMES.items()
            for load in [device.load(name)]
        }
        self._no_flags = self.xp.zeros(1, np.uint8)
        self._no_marks = self.xp.zeros(1, np.int32)
        self._no_values = {name: self.xp.zeros(1, name) for name in VALUES}
        self._nothing_known = Known(self._no_values["float64"], self._no_values["float64"], 0.0)
        self._arrived = self.xp.zeros(1, np.int32)
        self._resident = device.multiprocessors * _RESIDENT

    def to_device(self, values: NDArray[Any]) -> Array:
        return self.xp.array(values)

    def to_host(self, values: Array) -> NDArray[Any]:
        return self._device.to_host(values)

    def synchronize(self) -> None:
        self._device.synchronize()

    def event(self) -> Event:
        return self._device.event()

    def seconds_between(self, first: Any, last: Any) -> float:
        return 1e-3 * self._device.milliseconds(first, last)

    def is_lost(self, error: Exception) -> bool:
        # of CuPy's CUDARuntimeError and CUDADriverError, which need a device to be imported
        return getattr(error, "status", None) in _STICKY

    def reading(self) -> AbstractContextManager[None]:
        return self._device.reading()

    def memory_available(self) -> int:
        return self._device.memory_available()

    def compact(self, flags: Array, adjacency: Adjacency) -> Rows:
        xp = self.xp
        order = adjacency.rows.order
        kept = flags[order] != 0
        before = xp.zeros(len(order) + 1, np.int64)
        xp.cumsum(kept, out=before[1:])
        groups = self.to_host(before[xp.asarray(adjacency.rows.groups)])
        return Rows(order[kept], groups)

    def rows_of(self, vertices: Array, adjacency: Adjacency) -> Rows:
        xp = self.xp
        vertices = xp.sort(vertices)
        shorter = xp.searchsorted(xp.asarray(LONGEST, np.int32), adjacency.length[vertices])
        classes = len(LONGEST) - shorter  # the longest rows come first
        order = vertices[xp.argsort(classes, kind="stable")].astype(np.int32)
        counts = self.to_host(xp.bincount(classes, minlength=len(LANES)))
        return Rows(order, np.concatenate([[0], np.cumsum(counts)]).astype(np.int64))

    def refresh(
        self,
        graph: Graph,
        first: int,
        last: int,
        values: Array,
        base: float,
        damping: float,
        residual: Residual,
    ) -> Moved:
        tally, incoming = self._tally(residual), graph.incoming
        self._residual_kernel("refresh_rows", values)(
            self._blocks((last - first) * 32),
            (_BLOCK,),
            (
                np.int64(first),
                np.int64(last),
                incoming.start,
                incoming.length,
                incoming.pool,
                graph.loop,
                graph.degree,
                values,
                np.float64(base),
                np.float64(damping),
                graph.outgoing.length,
                residual.values,
                residual.marks,
                np.float64(residual.floor),
                residual.candidates,
                np.int64(len(residual.candidates)),
                tally,
            ),
        )
        return self._moved(residual, self.to_host(tally))

    def perturb(
        self,
        graph: Graph,
        applied: Applied,
        values: Array,
        damping: float,
        residual: Residual,
        most_edges: int,
    ) -> Moved | None:
        xp, sources = self.xp, applied.sources
        removed, added = len(applied.removed_targets), len(applied.added_targets)
        singles = len(sources) + removed + added
        shares, chunks = xp.empty(len(sources)), xp.empty(len(sources), np.int64)
        targets, amounts = xp.empty(singles, np.int32), xp.empty(singles)
        self._residual_kernel("perturbation", values)(
            self._blocks(singles),
            (_BLOCK,),
            (
                sources,
                applied.old_degree,
                np.int64(len(sources)),
                applied.removed_sources,
                applied.removed_targets,
                np.int64(removed),
                applied.added_sources,
                applied.added_targets,
                np.int64(added),
                graph.outgoing.length,
                graph.loop,
                graph.degree,
                values,
                np.float64(damping),
                shares,
                chunks,
                targets,
                amounts,
            ),
        )
        ends = xp.cumsum(chunks)
        if int(ends[-1]) * _CHUNK + singles > most_edges + len(sources) * _CHUNK:
            return None
        return self._spread(graph, residual, sources, shares, ends, targets, amounts)

    def spread(
        self,
        graph: Graph,
        residual: Residual,
        sources: Array,
        shares: Array,
        targets: Array,
        amounts: Array,
    ) -> Moved:
        return self._spread(
            graph,
            residual,
            sources,
            shares,
            self._chunk_ends(graph.outgoing.length[sources]),
            targets,
            amounts,
        )

    def _spread(
        self,
        graph: Graph,
        residual: Residual,
        sources: Array,
        shares: Array,
        ends: Array,
        targets: Array,
        amounts: Array,
    ) -> Moved:
        outgoing = graph.outgoing
        tally = self._tally(residual)
        self._residual_kernel("spread_rows", residual.values)(
            (self._resident,),
            (_BLOCK,),
            (
                sources,
                shares,
                ends,
                np.int64(len(sources)),
                targets,
                amounts,
                np.int64(len(targets)),
                outgoing.start,
                outgoing.length,
                outgoing.pool,
                residual.values,
                residual.marks,
                np.float64(residual.floor),
                residual.candidates,
                np.int64(len(residual.candidates)),
                tally,
            ),
        )
        return self._moved(residual, self.to_host(tally))

    def push(
        self, graph: Graph, values: Array, damping: float, residual: Residual, limits: Limits
    ) -> Pushed:
        xp, outgoing = self.xp, graph.outgoing
        tally = self._tally(residual)
        capacity = len(residual.candidates)
        spare_candidates = xp.empty_like(residual.candidates)
        self._residual_kernel("push_rounds", values)(
            (self._resident,),
            (_BLOCK,),
            (
                outgoing.start,
                outgoing.length,
                outgoing.pool,
                graph.loop,
                graph.degree,
                values,
                residual.values,
                residual.marks,
                np.float64(residual.floor),
                residual.candidates,
                spare_candidates,
                np.int64(capacity),
                xp.empty_like(residual.candidates),
                xp.empty_like(residual.candidates),
                xp.empty(capacity),
                xp.empty(capacity + limits.round_edges // _CHUNK + 1, np.int64),
                np.int32(residual.solve % SOLVES),
                np.float64(damping),
                np.float64(limits.l1),
                np.float64(limits.sum),
                np.float64(limits.total),
                np.float64(limits.goal),
                np.float64(limits.threshold),
                np.float64(limits.edge_weight),
                np.int64(_FILL),
                np.int64(limits.round_edges),
                np.int64(limits.edges),
                np.int64(limits.rounds),
                tally,
            ),
        )
        seen = self.to_host(tally)
        if seen[_SELECTIONS] % 2:
            residual.candidates = spare_candidates
        seen[_LISTED_COUNT] = seen[_LISTS]
        return Pushed(
            ENDINGS[seen[_ENDED]],
            float(seen.view(np.float64)[_THRESHOLD]),
            int(seen[_ROUNDS]),
            int(seen[_VERTICES]),
            self._moved(residual, seen),
        )

    def collect(self, residual: Residual, floor: float) -> None:
        residual.listed, residual.floor = 0, floor
        tally = self._tally(residual)
        vertices = len(residual.values)
        self._residual_kernel("collect_large", residual.values)(
            self._blocks(vertices),
            (_BLOCK,),
            (
                residual.values,
                np.int64(vertices),
                np.float64(floor),
                residual.marks,
                residual.candidates,
                np.int64(len(residual.candidates)),
                tally,
            ),
        )
        self._moved(residual, self.to_host(tally))

    def _residual_kernel(self, name: str, values: Array) -> Kernel:
        return self._kernels["residual"][f"{name}<{VALUES[values.dtype.name]}>"]

    def _blocks(self, threads: int) -> tuple[int]:
        return (max(1, min(self._resident, -(-threads // _BLOCK))),)

    def _chunk_ends(self, length: Array) -> Array:
        """int64[k]: chunks of rows 0 … i of these lengths, at least one for each."""
        xp = self.xp
        return xp.cumsum(xp.maximum((length + (_CHUNK - 1)) // _CHUNK, 1), dtype=np.int64)

    def _tally(self, residual: Residual) -> Array:
        tally = np.zeros(_TALLY, np.int64)
        tally[_LISTED_COUNT] = residual.listed
        return self.to_device(tally)

    def _moved(self, residual: Residual, tally: NDArray[np.int64]) -> Moved:
        residual.listed = int(tally[_LISTED_COUNT])
        if residual.listed > len(residual.candidates):
            # more candidates than there is room for are no candidates
            residual.marks &= ~(LISTED | QUEUED)
            residual.listed, residual.floor = 0, np.inf
        l1, residual_sum, total, moved, magnitude = tally.view(np.float64)[
            _COUNTS : _COUNTS + 5
        ].tolist()
        return Moved(l1, residual_sum, total, moved, magnitude, int(tally[_EDGES]))

    def expand(self, graph: Graph, vertices: Array, flags: Array) -> Array:
        xp, outgoing = self.xp, graph.outgoing
        if len(vertices) == 0:
            return xp.zeros(0, np.int32)
        ends = self._chunk_ends(outgoing.length[vertices])
        chunks = int(ends[-1])
        fresh = xp.empty(min(len(flags), chunks * (_CHUNK + 1)), np.int32)
        found = xp.zeros(1, np.uint64)
        self._kernels["expand"]["expand_rows"](
            (min(_MOST_BLOCKS, -(-chunks * 32 // _BLOCK)),),
            (_BLOCK,),
            (
                vertices.astype(np.int32),
                ends,
                np.int64(len(vertices)),
                outgoing.start,
                outgoing.length,
                outgoing.pool,
                graph.loop,
                flags,
                fresh,
                found,
            ),
        )
        return fresh[: int(found[0])]

    def reached(self, graph: Graph, frontier: Array, flags: Array) -> Array:
        xp, incoming = self.xp, graph.incoming
        fresh = xp.empty(len(flags), np.int32)
        found = xp.zeros(1, np.uint64)
        self._kernels["expand"]["look_back"](
            (min(_MOST_BLOCKS, -(-len(flags) // _BLOCK)),),
            (_BLOCK,),
            (
                np.int64(len(flags)),
                incoming.start,
                incoming.length,
                incoming.pool,
                graph.loop,
                frontier,
                flags,
                fresh,
                found,
            ),
        )
        return fresh[: int(found[0])]


def cuda_backend() -> CudaBackend:
    """The backend on CuPy's current device. Raises BackendUnavailable with the reason."""
    try:
        import cupy
    except ImportError as error:
        raise BackendUnavailable(
            "cuda", "CuPy is not installed: pip install 'liverank[cuda13]'"
        ) from error
    try:
        if cupy.cuda.runtime.getDeviceCount() == 0:
            raise BackendUnavailable("cuda", "no device")
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendUnavailable("cuda", str(error)) from error

    def load(name: str) -> Callable[[str], Kernel]:
        module = cupy.RawModule(
            code=source(name),
            options=COMPILE_OPTIONS,
            name_expressions=NAMES[name],
            enable_cooperative_groups=name in COOPERATIVE,
        )
        function: Callable[[str], Kernel] = module.get_function
        return function

    pool = cupy.get_default_memory_pool()
    stream = cupy.cuda.Stream(non_blocking=True)
    return CudaBackend(
        Device(
            xp=cupy,
            load=load,
            to_host=cupy.asnumpy,
            synchronize=cupy.cuda.get_current_stream().synchronize,
            event=cupy.cuda.Event,
            milliseconds=cupy.cuda.get_elapsed_time,
            memory_available=lambda: int(cupy.cuda.Device().mem_info[0] + pool.free_bytes()),
            reading=lambda: stream,
            multiprocessors=int(cupy.cuda.Device().attributes["MultiProcessorCount"]),
        )
    )
