"""The ``cuda`` backend: CuPy arrays and the kernels in gpu/liverank_gpu/backends/cuda/kernels.

Rows are grouped into degree bins, and each row is summed by as many threads as suit its bin.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.analysis import CudaCores, CudaTriangles
from liverank_gpu.backends.cuda.device import CudaDevice, Device, Kernel, PooledMemory
from liverank_gpu.backends.cuda.generate import CudaGenerate
from liverank_gpu.backends.cuda.graph import CudaGraph, CudaLists, CudaRebuild
from liverank_gpu.backends.cuda.kernels.binaries import binary_of, binary_of_source
from liverank_gpu.backends.cuda.kernels.loader import COOPERATIVE, file_of
from liverank_gpu.backends.cuda.kernels.page_shape import page_shape
from liverank_gpu.backends.cuda.launcher import Launcher
from liverank_gpu.backends.cuda.pages import CudaPages
from liverank_gpu.backends.cuda.programs import CudaPrograms, CudaProgramWindows
from liverank_gpu.backends.cuda.published import CudaForwardPush, CudaPublished
from liverank_gpu.backends.cuda.residual import CudaFrontier, CudaResidual, CudaRounds
from liverank_gpu.backends.cuda.select import CudaSelect
from liverank_gpu.backends.cuda.sweeps import CudaMultivector, CudaSweeps
from liverank_gpu.errors import BackendUnavailable
from liverank_gpu.operations.backend import Backend, Costs, QueryCosts
from liverank_gpu.operations.csr import Kernels
from liverank_gpu.operations.device import Array

_COSTS = Costs(
    pushed_edge=12.0,
    sweep_overhead=1.2e7,
    sparse_part=0,
    exchange=2e7,
    queries=QueryCosts(
        alone=4e8,
        push=3e7,
        round=1.3e6,
        pushed_edge=19.0,
        sweep=1.2e7,
        vertex=1.0,
        block_sweep=6e7,
        block=1.2,
        column=0.165,
        answer=5e7,
        placed_vertex=2.0,
    ),
)
"""An edge of a sweep takes about five picoseconds: launches weigh most on all but large graphs."""


def make_backend(device: Device) -> Backend:
    """The backend on a device: CuPy's, or one that runs the kernels on the CPU."""
    cuda_device = CudaDevice(device)
    launcher = Launcher(cuda_device)
    graph = CudaGraph(launcher)
    rebuild = CudaRebuild(launcher, graph)
    sweeps, multivector = CudaSweeps(launcher, device.pages), CudaMultivector(launcher)
    return Backend(
        name="cuda",
        costs=_COSTS,
        run=Kernels(
            sweeps.table,
            multivector.table,
            CudaPrograms(launcher).table,
            CudaProgramWindows(launcher).table,
            CudaCores(launcher).table,
            CudaTriangles(launcher).table,
        ),
        device=cuda_device,
        graph=graph,
        rebuild=rebuild,
        frontier=CudaFrontier(launcher),
        published=CudaPublished(launcher),
        forward_push=CudaForwardPush(launcher),
        residual=CudaResidual(launcher),
        rounds=CudaRounds(launcher),
        sweeps=sweeps,
        multivector=multivector,
        select=CudaSelect(launcher),
        lists=CudaLists(launcher),
        generate=CudaGenerate(launcher),
        pages=CudaPages(launcher, graph, rebuild, device.pages) if device.pages else None,
    )


def kernels_of(backend: Backend) -> dict[str, dict[str, Kernel]]:
    """The kernels of a CUDA backend, file name → name expression → kernel, for measurements: a
    kernel that is replaced here is replaced in all operations.
    """
    if not isinstance(backend.device, CudaDevice):
        raise TypeError(f"expected a CUDA backend, got {backend.name!r}")
    return backend.device.kernels


def cuda_backend() -> Backend:
    """The backend on CuPy's current device. Raises BackendUnavailable with the reason."""
    try:
        import cupy
    except ImportError as error:
        raise BackendUnavailable(
            "cuda", "CuPy is not installed: pip install -e '.[cuda13]' in the clone of liverank"
        ) from error
    try:
        if cupy.cuda.runtime.getDeviceCount() == 0:
            raise BackendUnavailable("cuda", "no device")
    except cupy.cuda.runtime.CUDARuntimeError as error:
        raise BackendUnavailable("cuda", str(error)) from error

    if "CUPY_ACCELERATORS" not in os.environ:
        # CuPy compiles CUB's block reductions for 35 s. What is large is reduced by our kernels, or
        # by CUB's reductions of whole arrays, which are compiled already.
        cupy._core.set_reduction_accelerators([])
    capability: str = cupy.cuda.Device().compute_capability
    attributes = cupy.cuda.Device().attributes
    pages = page_shape(int(attributes["MaxSharedMemoryPerBlockOptin"]))

    def load(unit: str) -> Callable[[str], Kernel]:
        binary = binary_of(unit, capability)
        module = cupy.RawModule(
            path=str(binary.path), enable_cooperative_groups=file_of(unit) in COOPERATIVE
        )

        def get(expression: str) -> Kernel:
            kernel: Any = module.get_function(binary.names[expression])
            if pages and expression == "add_pages":  # it says that it needs more than most
                kernel.max_dynamic_shared_size_bytes = pages.shared_bytes
            return cast(Kernel, kernel)

        return get

    def compiled(name: str, text: str, expressions: tuple[str, ...]) -> Callable[[str], Kernel]:
        binary = binary_of_source(name, text, expressions, capability)
        module = cupy.RawModule(path=str(binary.path), enable_cooperative_groups=True)
        return lambda expression: module.get_function(binary.names[expression])

    stream = cupy.cuda.Stream(non_blocking=True)
    copies = cupy.cuda.Stream(non_blocking=True)

    def page_locked(count: int) -> NDArray[np.uint8]:
        # not from CuPy's pool, which rounds up to a power of two
        try:
            memory = cupy.cuda.PinnedMemory(max(1, count))
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise MemoryError(str(error)) from error
        return np.frombuffer(cupy.cuda.PinnedMemoryPointer(memory, 0), np.uint8)[:count]

    def start_copy(source: NDArray[Any], target: Array) -> Callable[[], None]:
        target.data.copy_from_host_async(source.ctypes.data, source.nbytes, copies)
        copied = cupy.cuda.Event(disable_timing=True)
        copied.record(copies)
        return lambda: cupy.cuda.get_current_stream().wait_event(copied)

    return make_backend(
        Device(
            xp=cupy,
            load=load,
            compile=compiled,
            to_host=cupy.asnumpy,
            # of the calling thread, inside `reading` that of readers
            synchronize=lambda: cupy.cuda.get_current_stream().synchronize(),
            event=cupy.cuda.Event,
            milliseconds=cupy.cuda.get_elapsed_time,
            memory=PooledMemory(
                cupy.get_default_memory_pool(),
                lambda: int(cupy.cuda.Device().mem_info[0]),
                cupy.cuda.set_allocator,
            ),
            page_locked=page_locked,
            start_copy=start_copy,
            reading=lambda: stream,
            multiprocessors=int(attributes["MultiProcessorCount"]),
            pages=pages,
        )
    )
