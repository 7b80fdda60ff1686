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

from gpu.backends.base import Array, Frontier, Mass, Rows, Sweep
from gpu.backends.cuda_graph import CudaGraphOperations, Kernel
from gpu.errors import BackendUnavailable
from gpu.kernels import COMPILE_OPTIONS, LANES, LONGEST, NAMES, URGENT, source

if TYPE_CHECKING:
    from gpu.adjacency import Adjacency
    from gpu.graph import Graph

_BLOCK = 256
_MOST_BLOCKS = 2048
_SUMS = 5


@dataclass(frozen=True, slots=True)
class Device:
    """What the backend needs of a device.

    xp                the array module
    load              file name → (name expression → kernel)
    to_host           a device array as a NumPy array
    synchronize       waits for all work
    memory_available  bytes that can be allocated
    reading           a context in which another thread may read published arrays
    """

    xp: Any
    load: Callable[[str], Callable[[str], Kernel]]
    to_host: Callable[[Array], NDArray[Any]]
    synchronize: Callable[[], None]
    memory_available: Callable[[], int]
    reading: Callable[[], AbstractContextManager[Any]]


class CudaBackend(CudaGraphOperations):
    """One CUDA device."""

    name = "cuda"

    def __init__(self, device: Device) -> None:
        self.xp = device.xp
        self._device = device
        self._kernels = {
            name: {expression: load(expression) for expression in expressions}
            for name, expressions in NAMES.items()
            for load in [device.load(name)]
        }
        self._no_flags = self.xp.zeros(1, np.uint8)

    def to_device(self, values: NDArray[Any]) -> Array:
        return self.xp.array(values)

    def to_host(self, values: Array) -> NDArray[Any]:
        return self._device.to_host(values)

    def synchronize(self) -> None:
        self._device.synchronize()

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

    def pull(
        self,
        graph: Graph,
        rows: Rows,
        values: Array,
        contributions: Array,
        base: float,
        damping: float,
        new_values: Array,
        new_contributions: Array,
        frontier: Frontier | None = None,
    ) -> Sweep:
        xp, kernels = self.xp, self._kernels["pull"]
        launches = list(_launches(rows))
        blocks = sum(launch.blocks for launch in launches)
        partial_sums = xp.empty((max(blocks, 1), _SUMS))
        incoming, written = graph.incoming, 0
        tracked = "true" if frontier else "false"
        for launch in launches:
            kernels[f"pull_rows<{launch.lanes}, {tracked}>"](
                (launch.blocks,),
                (_BLOCK,),
                (
                    rows.order,
                    np.int64(launch.first),
                    np.int64(launch.last),
                    incoming.start,
                    incoming.length,
                    incoming.pool,
                    graph.loop,
                    graph.degree,
                    values,
                    contributions,
                    np.float64(base),
                    np.float64(damping),
                    new_values,
                    new_contributions,
                    frontier.affected if frontier else self._no_flags,
                    frontier.spreading if frontier else self._no_flags,
                    np.float64(frontier.prune_tolerance if frontier else -1.0),
                    np.float64(frontier.frontier_tolerance if frontier else -1.0),
                    partial_sums[written:],
                ),
            )
            written += launch.blocks
        sums = xp.empty(_SUMS)
        kernels["finish_sums"]((1,), (_BLOCK,), (partial_sums, np.int32(blocks), sums))
        residual_l1, residual_sum, largest_change, total, dangling = self.to_host(sums).tolist()
        return Sweep(residual_l1, residual_sum, largest_change, Mass(total, dangling))

    def expand(self, graph: Graph, rows: Rows, flags: Array) -> None:
        outgoing = graph.outgoing
        for launch in _launches(rows):
            self._kernels["expand"][f"expand_rows<{launch.lanes}>"](
                (launch.blocks,),
                (_BLOCK,),
                (
                    rows.order,
                    np.int64(launch.first),
                    np.int64(launch.last),
                    outgoing.start,
                    outgoing.length,
                    outgoing.pool,
                    graph.loop,
                    flags,
                ),
            )

    def top_k(self, values: Array, k: int) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
        xp = self.xp
        # a stable sort of the negated values orders equal ones by id
        best = xp.argsort(-values, kind="stable")[:k]
        return self.to_host(best).astype(np.int64), self.to_host(values[best])

    def sum_depth(self, longest_row: int) -> int:
        # a lane's own additions, in the class where a row of that length can be; shuffles; warps
        own = [
            -(-min(longest_row, URGENT * longest) // lanes)
            for lanes, longest in zip(LANES, LONGEST, strict=False)
        ]
        return max(*own, -(-longest_row // _BLOCK)) + 5 + _BLOCK // 32


@dataclass(frozen=True, slots=True)
class _Launch:
    """One group of rows: order[first : last] with `lanes` threads a row, in `blocks` blocks."""

    lanes: int
    first: int
    last: int
    blocks: int


def _launches(rows: Rows) -> list[_Launch]:
    limits = rows.groups.tolist()
    return [
        _Launch(lanes, first, last, min(_MOST_BLOCKS, -(-(last - first) * lanes // _BLOCK)))
        for lanes, first, last in zip(reversed(LANES), limits[:-1], limits[1:], strict=True)
        if last > first
    ]


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
            code=source(name), options=COMPILE_OPTIONS, name_expressions=NAMES[name]
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
            memory_available=lambda: int(cupy.cuda.Device().mem_info[0] + pool.free_bytes()),
            reading=lambda: stream,
        )
    )
