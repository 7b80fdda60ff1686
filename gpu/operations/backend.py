"""A backend: one kind of device and the operations that run on it, composed of their contracts.

Strategies and solvers are written once against these. Arrays live where the backend computes.
Vectors over vertices are flags, or *values*: y, r and scratch for them, all float64[n] or all
float32[n] as the graph stores them. What a float32 cannot hold stays in r or is part of what an
operation reports; sums are float64.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpu.operations.components import ComponentOperations
from gpu.operations.cores import CoreOperations
from gpu.operations.device import DeviceOperations
from gpu.operations.forward_push import ForwardPushOperations
from gpu.operations.frontier import FrontierOperations
from gpu.operations.generate import GenerateOperations
from gpu.operations.graph import GraphOperations
from gpu.operations.multivector import MultivectorOperations
from gpu.operations.program_windows import ProgramWindowOperations
from gpu.operations.programs import ProgramOperations
from gpu.operations.published import PublishedOperations
from gpu.operations.rebuild import RebuildOperations
from gpu.operations.residual import ResidualOperations
from gpu.operations.rounds import RoundOperations
from gpu.operations.select import SelectOperations
from gpu.operations.sweeps import SweepOperations
from gpu.operations.triangles import TriangleOperations


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs in units of the time that a dense sweep takes for one edge. Measured once, so that
    decisions follow counted work and the same batches give the same ranks.

    pushed_edge     one edge of a push
    sweep_overhead  a sweep over hardly any edges
    exchange        a collective operation of shards, for each shard, over hardly any data
    sparse_part     a set of fewer vertices than one in this many of all is cheaper as a list than
                    as flags over all of them; 0 if none is
    """

    pushed_edge: float
    sweep_overhead: float
    sparse_part: int
    exchange: float = 0.0


@dataclass(frozen=True, slots=True)
class Backend:
    """One kind of device and the operations that run on it.

    components  None where there are none: on ``cuda``, and where rows are only a part of a graph
    """

    name: str
    costs: Costs
    device: DeviceOperations
    graph: GraphOperations
    rebuild: RebuildOperations
    frontier: FrontierOperations
    published: PublishedOperations
    forward_push: ForwardPushOperations
    residual: ResidualOperations
    rounds: RoundOperations
    sweeps: SweepOperations
    multivector: MultivectorOperations
    select: SelectOperations
    generate: GenerateOperations
    programs: ProgramOperations
    program_windows: ProgramWindowOperations
    triangles: TriangleOperations
    cores: CoreOperations
    components: ComponentOperations | None = None

    @property
    def xp(self) -> Any:
        """The array module: NumPy or CuPy."""
        return self.device.xp
