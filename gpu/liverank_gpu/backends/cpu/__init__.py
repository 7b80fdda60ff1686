"""The ``cpu`` backend: NumPy arrays and loops in C++ (liverank_gpu.native) on all cores.

Work is divided into chunks of about equal numbers of rows and edges. A chunk sums in a fixed order,
and so are the sums of the chunks added: results do not depend on the number of threads.
"""

from __future__ import annotations

from liverank_gpu.backends.cpu.components import CpuComponents
from liverank_gpu.backends.cpu.cores import CpuCores
from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.backends.cpu.forward_push import CpuForwardPush
from liverank_gpu.backends.cpu.frontier import CpuFrontier
from liverank_gpu.backends.cpu.generate import CpuGenerate
from liverank_gpu.backends.cpu.graph import CpuGraph
from liverank_gpu.backends.cpu.lists import CpuLists
from liverank_gpu.backends.cpu.multivector import MULTIVECTOR, CpuMultivector
from liverank_gpu.backends.cpu.program_windows import CpuProgramWindows
from liverank_gpu.backends.cpu.programs import CpuPrograms
from liverank_gpu.backends.cpu.published import CpuPublished
from liverank_gpu.backends.cpu.rebuild import CpuRebuild
from liverank_gpu.backends.cpu.residual import CpuResidual
from liverank_gpu.backends.cpu.rounds import CpuRounds
from liverank_gpu.backends.cpu.select import CpuSelect
from liverank_gpu.backends.cpu.sweeps import SWEEPS, CpuSweeps
from liverank_gpu.backends.cpu.triangles import CpuTriangles
from liverank_gpu.operations.backend import Backend, Costs
from liverank_gpu.operations.operation import Kernels


def cpu_backend() -> Backend:
    """The backend on all cores."""
    device = CpuDevice()
    graph = CpuGraph(device)
    rebuild = CpuRebuild(device, graph)
    return Backend(
        name="cpu",
        costs=Costs(pushed_edge=8.0, sweep_overhead=1e4, sparse_part=16, exchange=5e5),
        run=Kernels(SWEEPS, MULTIVECTOR),
        device=device,
        graph=graph,
        rebuild=rebuild,
        frontier=CpuFrontier(),
        published=CpuPublished(),
        forward_push=CpuForwardPush(),
        residual=CpuResidual(),
        rounds=CpuRounds(),
        sweeps=CpuSweeps(),
        multivector=CpuMultivector(),
        select=CpuSelect(device),
        lists=CpuLists(rebuild),
        generate=CpuGenerate(device),
        programs=CpuPrograms(),
        program_windows=CpuProgramWindows(),
        cores=CpuCores(),
        components=CpuComponents(),
        triangles=CpuTriangles(device),
        compiles_kernels=False,
    )
