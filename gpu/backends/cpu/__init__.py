"""The ``cpu`` backend: NumPy arrays and loops in C++ (gpu.native) on all cores.

Work is divided into chunks of about equal numbers of rows and edges. A chunk sums in a fixed order,
and so are the sums of the chunks added: results do not depend on the number of threads.
"""

from __future__ import annotations

from gpu.backends.cpu.components import CpuComponents
from gpu.backends.cpu.cores import CpuCores
from gpu.backends.cpu.device import CpuDevice
from gpu.backends.cpu.forward_push import CpuForwardPush
from gpu.backends.cpu.frontier import CpuFrontier
from gpu.backends.cpu.generate import CpuGenerate
from gpu.backends.cpu.graph import CpuGraph
from gpu.backends.cpu.lists import CpuLists
from gpu.backends.cpu.multivector import CpuMultivector
from gpu.backends.cpu.program_windows import CpuProgramWindows
from gpu.backends.cpu.programs import CpuPrograms
from gpu.backends.cpu.published import CpuPublished
from gpu.backends.cpu.rebuild import CpuRebuild
from gpu.backends.cpu.residual import CpuResidual
from gpu.backends.cpu.rounds import CpuRounds
from gpu.backends.cpu.select import CpuSelect
from gpu.backends.cpu.sweeps import CpuSweeps
from gpu.backends.cpu.triangles import CpuTriangles
from gpu.operations.backend import Backend, Costs


def cpu_backend() -> Backend:
    """The backend on all cores."""
    device = CpuDevice()
    graph = CpuGraph(device)
    rebuild = CpuRebuild(device, graph)
    return Backend(
        name="cpu",
        costs=Costs(pushed_edge=8.0, sweep_overhead=1e4, sparse_part=16, exchange=5e5),
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
