"""The ``cuda`` backend: CuPy arrays and the kernels in gpu/liverank_gpu/backends/cuda/kernels.

Rows are grouped into degree bins, and each row is summed by as many threads as suit its bin.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cuda.analysis import CudaAnalysis
from liverank_gpu.backends.cuda.device import CudaDevice, Device, Kernel, PooledMemory
from liverank_gpu.backends.cuda.generate import CudaGenerate
from liverank_gpu.backends.cuda.graph import CudaGraph, CudaLists, CudaRebuild
from liverank_gpu.backends.cuda.kernels.binaries import Binary, binary_of, binary_of_source
from liverank_gpu.backends.cuda.kernels.loader import page_shape, source
from liverank_gpu.backends.cuda.kernels.parameters import Parameters, parameters_of
from liverank_gpu.backends.cuda.launcher import Launcher
from liverank_gpu.backends.cuda.pages import CudaPages
from liverank_gpu.backends.cuda.programs import CudaPrograms
from liverank_gpu.backends.cuda.published import CudaForwardPush, CudaPublished
from liverank_gpu.backends.cuda.residual import CudaFrontier, CudaResidual
from liverank_gpu.backends.cuda.select import CudaSelect
from liverank_gpu.backends.cuda.sweeps import CudaMultivector, CudaSweeps
from liverank_gpu.errors import BackendUnavailable
from liverank_gpu.operations.analysis import SolveComponents
from liverank_gpu.operations.backend import Backend, Costs, QueryCosts, Sizes
from liverank_gpu.operations.csr import Kernels
from liverank_gpu.operations.device import Array, Event
from liverank_gpu.operations.residual import JacobiStep

_COSTS = Costs(
    pushed_edge=12.0,
    sweep_overhead=1.2e7,
    sparse_part=0,
    forward_edge=4.0,
    exchange=2e7,
    queries=QueryCosts(
        alone=2.3e8,
        push=2.5e7,
        round=4.5e6,
        pushed_edge=19.0,
        least_push=2.5e7,
        sweep=2.5e7,
        vertex=1.0,
        block_sweep=6.5e7,
        block=1.2,
        column=0.165,
        block_vertex=40.0,
        answer=5e7,
        placed_vertex=2.0,
    ),
)
"""An edge of a sweep takes about five picoseconds: launches weigh most on all but large graphs."""


def make_backend(device: Device, operations: type[CudaDevice] = CudaDevice) -> Backend:
    """The backend on a device: CuPy's, or one that runs the kernels on the CPU.

    operations  on its memory, and its time
    """
    cuda_device = operations(device)
    launcher = Launcher(cuda_device)
    graph = CudaGraph(launcher)
    rebuild = CudaRebuild(launcher, graph)
    sweeps, multivector = CudaSweeps(launcher, device.pages), CudaMultivector(launcher)
    frontier, select = CudaFrontier(launcher), CudaSelect(launcher)
    generate = CudaGenerate(launcher)
    run = Kernels(
        graph,
        rebuild,
        select,
        generate,
        sweeps,
        multivector,
        CudaResidual(launcher),
        frontier,
        CudaPublished(launcher),
        CudaForwardPush(launcher),
        CudaPrograms(launcher),
        CudaAnalysis(launcher),
        lacks=(JacobiStep, SolveComponents),
    )
    return Backend(
        name="cuda",
        costs=_COSTS,
        run=run,
        device=cuda_device,
        graph=graph,
        rebuild=rebuild,
        frontier=frontier,
        sweeps=sweeps,
        multivector=multivector,
        select=select,
        lists=CudaLists(launcher),
        generate=generate,
        pages=CudaPages(launcher, graph, rebuild, device.pages) if device.pages else None,
        repeatable=False,
        sizes=Sizes(copied=1 << 15),
    )


def kernels_of(backend: Backend) -> dict[str, dict[str, Kernel]]:
    """The kernels of a CUDA backend, file name → name expression → kernel, for measurements: a
    kernel that is replaced here is replaced in all operations.
    """
    if not isinstance(backend.device, CudaDevice):
        raise TypeError(f"expected a CUDA backend, got {backend.name!r}")
    return backend.device.kernels


class _LaunchFailed(RuntimeError):
    """What the driver says of a launch.

    status  CUresult
    """

    def __init__(self, kernel: str, status: Any) -> None:
        super().__init__(f"{kernel} was not launched: {status.name}")
        self.status = int(status)


class _LoadedKernel:
    """See Kernel. A launch costs one call of the driver, with all arguments in one block."""

    def __init__(self, function: Any, parameters: Parameters) -> None:
        """function: cupy.RawKernel"""
        import cupy
        from cuda.bindings import driver

        self._parameters = parameters
        self._last: tuple[int, ...] = (0,)
        self._launch = driver.cuLaunchKernel
        if parameters.cooperative:
            self._last, self._launch = (), driver.cuLaunchCooperativeKernel
        self._raw = function  # it unloads the code when nobody has it
        self._shared = 0  # bytes of dynamic shared memory that launches may have
        self._function = driver.CUfunction(function.kernel.ptr)
        self._stream = cupy.cuda.get_current_stream
        self._use_device = cupy.cuda.Device().use
        self._success = driver.CUresult.CUDA_SUCCESS
        self._no_context = driver.CUresult.CUDA_ERROR_INVALID_CONTEXT
        self._blocks: list[_Block] = []  # that no launch uses

    def __call__(
        self,
        grid: tuple[int, ...],
        block: tuple[int, ...],
        args: tuple[Any, ...],
        *,
        shared_mem: int = 0,
    ) -> None:
        try:
            values = self._blocks.pop()
        except IndexError:
            values = _Block(self._parameters)
        self._parameters.pack_into(values.bytes, args)
        if shared_mem > self._shared:
            self._raw.max_dynamic_shared_size_bytes = shared_mem
            self._shared = shared_mem
        shape = (*(*grid, 1, 1)[:3], *(*block, 1, 1)[:3], shared_mem)
        pointers, stream = values.pointers, self._stream().ptr
        (status,) = self._launch(self._function, *shape, stream, pointers, *self._last)
        if status == self._no_context:  # in a thread that has done nothing on the device yet
            self._use_device()
            (status,) = self._launch(self._function, *shape, stream, pointers, *self._last)
        if status != self._success:
            raise _LaunchFailed(self._parameters.kernel, status)
        self._blocks.append(values)


class _Block:
    """Memory for the arguments of a launch.

    bytes     of all of them
    pointers  the address of an array of pointers to each
    """

    def __init__(self, parameters: Parameters) -> None:
        self.bytes = ctypes.create_string_buffer(max(1, parameters.size))
        begin = ctypes.addressof(self.bytes)
        each = [begin + offset for offset in parameters.offsets]
        self._pointers = (ctypes.c_void_p * max(1, len(each)))(*each)
        self.pointers = ctypes.addressof(self._pointers)


def cuda_backend(operations: type[CudaDevice] = CudaDevice) -> Backend:
    """The backend on CuPy's current device. Raises BackendUnavailable with the reason.

    operations  on its memory, and its time
    """
    try:
        import cupy

        import_module("cuda.bindings.driver")
    except ImportError as error:
        missing = "cuda-bindings" if error.name and error.name.startswith("cuda") else "CuPy"
        raise BackendUnavailable(
            "cuda",
            f"{missing} is not installed: pip install -e '.[cuda13]' in the clone of liverank",
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

    def loaded(binary: Binary, text: str) -> Callable[[str], Kernel]:
        module = cupy.RawModule(path=str(binary.path))
        parameters = parameters_of(text, binary.names)

        def get(expression: str) -> Kernel:
            function = module.get_function(binary.names[expression])
            return _LoadedKernel(function, parameters[expression])

        return get

    def load(unit: str) -> Callable[[str], Kernel]:
        return loaded(binary_of(unit, capability), source(unit))

    def compiled(name: str, text: str, expressions: tuple[str, ...]) -> Callable[[str], Kernel]:
        return loaded(binary_of_source(name, text, expressions, capability), text)

    stream = cupy.cuda.Stream(non_blocking=True)
    copies = cupy.cuda.Stream(non_blocking=True)

    def page_locked(count: int) -> NDArray[np.uint8]:
        # not from CuPy's pool, which rounds up to a power of two
        try:
            memory = cupy.cuda.PinnedMemory(max(1, count))
        except cupy.cuda.runtime.CUDARuntimeError as error:
            raise MemoryError(str(error)) from error
        return np.frombuffer(cupy.cuda.PinnedMemoryPointer(memory, 0), np.uint8)[:count]

    def reading(after: Event | None) -> Any:
        if after is not None:
            stream.wait_event(after)
        return stream

    def mapped(memory: NDArray[np.uint8]) -> Array:
        # at the same address
        device, address = int(cupy.cuda.Device().id), memory.ctypes.data
        unowned = cupy.cuda.UnownedMemory(address, memory.nbytes, memory, device)
        return cupy.ndarray(memory.shape, np.uint8, cupy.cuda.MemoryPointer(unowned, 0))

    def to_device(source: NDArray[Any], target: Array) -> None:
        if source.nbytes:
            target.data.copy_from_host_async(source.ctypes.data, source.nbytes)

    def start_to_host(source: Array, target: NDArray[Any]) -> None:
        source.data.copy_to_host_async(target.ctypes.data, target.nbytes)

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
            to_device=to_device,
            to_host=cupy.asnumpy,
            start_to_host=start_to_host,
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
            mapped=mapped,
            start_copy=start_copy,
            reading=reading,
            multiprocessors=int(attributes["MultiProcessorCount"]),
            pages=pages,
        ),
        operations,
    )
