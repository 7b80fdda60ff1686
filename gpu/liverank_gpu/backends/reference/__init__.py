"""The ``reference`` backend: every operation in a few lines of NumPy, without a compiler.

It is what the other backends are compared with, and says in the fewest words what they compute. It
is slow: use ``cpu`` or ``cuda`` for more than small graphs. Sums go through a row one entry after
the other, so results differ from those of the others in rounding alone; what is no float is equal.
Its costs are those of ``cpu``, so that both decide alike.

rows        entries of rows, and what happens at one vertex
graph       batches, loading, packing, the same in-lists
solve       sweeps, the residual, pushes, components, several vectors
sets        frontiers, published iterations, the largest entries
programs    vertex programs
algorithms  triangles, cores, generators

Memory and time are the host's: those of ``cpu``, which are Python. What operations take beside the
arrays that they are given is not counted: out of core it comes on top of the budget.
"""

from __future__ import annotations

import numpy as np

from liverank_gpu.backends.cpu.device import CpuDevice
from liverank_gpu.backends.reference import algorithms, programs, sets, solve
from liverank_gpu.backends.reference.graph import ReferenceGraph, ReferenceLists, ReferenceRebuild
from liverank_gpu.operations.backend import HOST_COSTS, HOST_LACKS, Backend
from liverank_gpu.operations.csr import Kernels, Operation, Result


class _Plain(Kernels):
    def __call__(self, operation: Operation[Result], /) -> Result:
        with np.errstate(all="ignore"):
            return super().__call__(operation)


def reference_backend(device: CpuDevice | None = None) -> Backend:
    """The backend in NumPy.

    device  where its memory comes from; None: from the host
    """
    device, graph = device or CpuDevice(), ReferenceGraph()
    rebuild, generate = ReferenceRebuild(graph), algorithms.ReferenceGenerate(device)
    objects = (graph, rebuild, generate, select := sets.ReferenceSelect(device), solve.ROUNDS)
    return Backend(
        name="reference",
        costs=HOST_COSTS,
        run=_Plain(*objects, solve, sets, programs, algorithms, lacks=HOST_LACKS),
        device=device,
        graph=graph,
        rebuild=rebuild,
        frontier=sets.ReferenceFrontier(),
        sweeps=solve.ReferenceSweeps(),
        multivector=solve.ReferenceMultivector(),
        select=select,
        lists=ReferenceLists(),
        generate=generate,
        components=solve.ReferenceComponents(),
        compiles_kernels=False,
    )
