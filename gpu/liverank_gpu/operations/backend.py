"""A backend: one kind of device and the operations that run on it, composed of their contracts.

Strategies and solvers are written once against these. Arrays live where the backend computes.
Vectors over vertices are flags, or *values*: y, r and scratch for them, float64[n].
"""

from __future__ import annotations

from dataclasses import dataclass
from sys import maxsize
from typing import Any

from liverank_gpu.operations.analysis import ComponentOperations
from liverank_gpu.operations.csr import Run
from liverank_gpu.operations.device import DeviceOperations
from liverank_gpu.operations.generate import GenerateOperations
from liverank_gpu.operations.graph import (
    GraphOperations,
    ListOperations,
    PageOperations,
    PlanSent,
    RebuildOperations,
    UpdateBatch,
)
from liverank_gpu.operations.residual import (
    FrontierOperations,
    PushResult,
)
from liverank_gpu.operations.select import SelectOperations
from liverank_gpu.operations.sweeps import (
    FusedOrthomin,
    FusedSweeps,
    MultivectorOperations,
    SweepOperations,
)


@dataclass(frozen=True, slots=True)
class PageRule:
    """For which graphs in-lists are kept in pages too, from counted figures.

    least_edges   of the graph: a sweep has to gain more than following a batch takes
    least_degree  edges a vertex: the pass over the vertices, which pages add, has to be a small
                  part of a sweep
    least_random  random reads an edge of a sweep by rows, in a sample
    """

    least_edges: int = 240_000_000
    least_degree: float = 8.0
    least_random: float = 0.5


@dataclass(frozen=True, slots=True)
class QueryCosts:
    """What personalized queries cost, in the unit of Costs: an edge of a sweep on a graph of many.

    alone        a query that is solved alone, beside its pushes and sweeps: its start, its answer
    push, round, pushed_edge  a call of a push, a round of it, and an edge
    least_push                what the edges of a call may cost at least, since the call costs too
    sweep, vertex             a sweep over hardly anything, and a vertex of it
    block_sweep               a sweep of a block over hardly anything
    block, column             an arc of a sweep of a block, and what each of its columns adds
    block_vertex              a vertex of a sweep of a block, in arcs
    answer, placed_vertex     the places of a vector over all vertices, and a vertex of it

    Those given are of ``cpu``, where the unit is about a nanosecond of processor time.
    """

    alone: float = 5e5
    push: float = 5e4
    round: float = 1e3
    pushed_edge: float = 18.0
    least_push: float = 2e5
    sweep: float = 5e4
    vertex: float = 12.0
    block_sweep: float = 1e5
    block: float = 1.0
    column: float = 0.22
    block_vertex: float = 12.0
    answer: float = 3e5
    placed_vertex: float = 20.0

    def of_sweep(self, vertices: int, arcs: int) -> float:
        """What a sweep takes."""
        return self.sweep + self.vertex * vertices + arcs

    def of_block_sweep(self, vertices: int, arcs: int, columns: int) -> float:
        """What a sweep of a block takes."""
        edges = self.block_vertex * vertices + arcs
        return self.block_sweep + (self.block + self.column * columns) * edges

    def of_answer(self, vertices: int) -> float:
        """What it takes to find the places of a vector over all vertices."""
        return self.answer + self.placed_vertex * vertices


@dataclass(frozen=True, slots=True)
class Costs:
    """Costs in units of the time that a dense sweep takes for one edge. Measured once, so that
    decisions follow counted work and the same batches give the same ranks.

    pushed_edge     one edge of a push, instead of all that it costs: see benchmarks/notes/pushes.md
    round_overhead  a round of a push over hardly any vertices, where it takes exchanges
    sweep_overhead  a sweep over hardly any edges
    exchange        a collective operation of shards, for each shard, over hardly any data
    forward_edge    one edge of a published lightweight push, in edges of a pull
    sparse_part     a set of fewer vertices than one in this many of all is cheaper as a list than
                    as flags over all of them; 0 if none is
    queries         those of personalized queries
    pages           when in-lists are kept in pages too, where there are such operations
    """

    pushed_edge: float
    sweep_overhead: float
    sparse_part: int
    round_overhead: float = 0.0
    exchange: float = 0.0
    forward_edge: float = 1.5
    queries: QueryCosts = QueryCosts()
    pages: PageRule = PageRule()

    def of_push(self, pushed: PushResult) -> float:
        """What a push took."""
        return pushed.delta.additions * self.pushed_edge + pushed.rounds * self.round_overhead


@dataclass(frozen=True, slots=True)
class Sizes:
    """How much is done at once.

    chunk       operations of a batch on a graph in shards whose keys are made, or numbered, at
                once; entries, or a row of more, in which expired ones are looked for
    entries     edges that are looked up at once where a graph is rebuilt, or its order is chosen
    least_load  arcs of a range that a shard sends, or receives and holds, at most, however little
                memory there is; all arcs of a row and of its near neighbours are in one range
    gathered    entries, or a row of more, that a step towards a subgraph gathers
    rebuild     a batch of no more operations never rebuilds a graph
    copied      entries that a query has on the host, at most: a device looks at all vertices in the
                time that more take
    affected_edges, affected_vertices  an affected set of no more in-edges may be kept as a list,
                and of no more vertices, or than one part in 16 of all
    least_part  bytes of the contributions of a shard, from which on sending them takes longer than
                two more launches: at 224 GB/s, 37 µs
    least_listed, listed_part  a shard lists so many columns to which it has sums to send, and one
                in so many of all; with more, the vector is searched for them
    least_permuted  vertices and edges below which ``auto`` keeps the given order: all of y fits in
                cache
    least_stream  bytes of the buffers of a graph out of core, at least, so that there are not too
                many windows
    least_candidates, candidate_part  the candidate list of r has room for so many vertices, and for
                one in so many of all
    compared    entries of lists that one step of a search for identical ones reads, at most: what
                exceeds them is left out
    piece       edges out of core that are written at once, or read again: their keys are part of no
                budget
    """

    chunk: int = 1 << 21
    entries: int = 1 << 24
    least_load: int = 1 << 21
    gathered: int = 1 << 18
    rebuild: int = 1 << 20
    copied: int = maxsize
    affected_edges: int = 1 << 22
    affected_vertices: int = 1 << 18
    least_part: int = 1 << 23
    least_listed: int = 1024
    listed_part: int = 8
    least_permuted: int = 1 << 16
    least_stream: int = 1 << 16
    least_candidates: int = 1024
    candidate_part: int = 8
    compared: int = 1 << 20
    piece: int = 1 << 16


DEFAULT_SIZES = Sizes()


HOST_COSTS = Costs(pushed_edge=8.0, sweep_overhead=1e4, sparse_part=16, exchange=5e5)
"""Those of ``cpu``, and of ``reference``, so that both decide alike."""

HOST_LACKS = (FusedSweeps, FusedOrthomin, PlanSent, UpdateBatch)
"""What these do not run: it does at once what takes several launches."""


@dataclass(frozen=True, slots=True)
class Backend:
    """One kind of device and the operations that run on it.

    run               runs the operations that are records (liverank_gpu.operations.csr)
    components        None where there are none: on ``cuda``, and where rows are only a part of a
                      graph
    pages             None where there are none: everywhere but on ``cuda``
    compiles_kernels  whether kernels are compiled, or loaded, when they are first needed: all that
                      a warm-up is for
    repeatable        whether the same calls leave the same bits
    sizes             see Sizes
    """

    name: str
    costs: Costs
    run: Run
    device: DeviceOperations
    graph: GraphOperations
    rebuild: RebuildOperations
    frontier: FrontierOperations
    sweeps: SweepOperations
    multivector: MultivectorOperations
    select: SelectOperations
    lists: ListOperations
    generate: GenerateOperations
    components: ComponentOperations | None = None
    pages: PageOperations | None = None
    compiles_kernels: bool = True
    repeatable: bool = True
    sizes: Sizes = DEFAULT_SIZES

    @property
    def xp(self) -> Any:
        """The array module: NumPy or CuPy."""
        return self.device.xp
