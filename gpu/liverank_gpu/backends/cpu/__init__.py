"""The ``cpu`` backend: NumPy arrays and loops in C++ (liverank_gpu.native) on all cores.

Work is divided into chunks of about equal numbers of rows and edges. A chunk sums in a fixed order,
and so are the sums of the chunks added: results do not depend on the number of threads.
"""

from __future__ import annotations

from liverank_gpu.backends.cpu import analysis, programs, published, residual, sweeps
from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.backends.cpu.generate import CpuGenerate
from liverank_gpu.backends.cpu.graph import CpuGraph, CpuLists, CpuRebuild
from liverank_gpu.backends.cpu.select import CpuSelect
from liverank_gpu.operations.backend import HOST_COSTS, HOST_LACKS, Backend
from liverank_gpu.operations.csr import Kernels


def cpu_backend(device: CpuDevice | None = None) -> Backend:
    """The backend on all cores.

    device  where its memory comes from; None: from the host
    """
    device = device or CpuDevice()
    graph = CpuGraph(device)
    rebuild = CpuRebuild(device, graph)
    generate, select = CpuGenerate(device), CpuSelect(device)
    objects = (graph, rebuild, generate, select, residual.ROUNDS)
    modules = (sweeps, residual, published, programs, analysis)
    return Backend(
        name="cpu",
        costs=HOST_COSTS,
        run=Kernels(*objects, *modules, lacks=HOST_LACKS),
        device=device,
        graph=graph,
        rebuild=rebuild,
        frontier=residual.CpuFrontier(),
        sweeps=sweeps.CpuSweeps(),
        multivector=sweeps.CpuMultivector(),
        select=select,
        lists=CpuLists(rebuild),
        generate=generate,
        components=analysis.CpuComponents(),
        compiles_kernels=False,
    )
