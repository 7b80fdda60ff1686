"""The kernels of another layout, the vectors of a sweep, and the product's sweeps."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from liverank_gpu.backends.cuda.device import CudaDevice
from liverank_gpu.backends.cuda.kernels.loader import BLOCK, SWEEP_SUMS, text_of
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.sweeps import StartFromInDegrees, SumInDegrees, Sweep, SweepResult

_FOLDER = Path(__file__).parent
_ADD_SUMS = "add_partial_sums<true>"


class Kernels:
    """The kernels of one file of this folder, behind the headers of the product's sweep."""

    def __init__(
        self,
        backend: Backend,
        file: str,
        names: tuple[str, ...],
        constants: dict[str, int],
        block: int = BLOCK,
    ) -> None:
        """`block` threads take the place of the product's BLOCK."""
        if not isinstance(backend.device, CudaDevice):
            raise TypeError(f"expected a CUDA backend, got {backend.name!r}")
        headers = text_of("sweep_step.cuh")
        own = f"inline constexpr int BLOCK = {BLOCK};"
        if headers.count(own) != 1:
            raise ValueError(f"expected {own!r} once in the headers of sweep.cu")
        headers = headers.replace(own, f"inline constexpr int BLOCK = {block};")
        lines = [f"inline constexpr int {name} = {value};" for name, value in constants.items()]
        text = (_FOLDER / f"{file}.cu").read_text("utf-8")
        whole = "\n".join([headers, *lines, f'#line 1 "{file}.cu"', text])
        self.device, self.block = backend.device, block
        self._kernel = self.device.compile(f"gather_{file}", whole, (*names, _ADD_SUMS))

    def __call__(
        self, kernel: str, blocks: int, *arguments: Any, threads: int = 0, shared: int = 0
    ) -> None:
        """Launches a kernel; `shared` is its dynamic shared memory in bytes."""
        shape = (blocks,), (threads or self.block,), arguments
        self._kernel(kernel)(*shape, shared_mem=shared)

    def result(self, partial_sums: Array) -> SweepResult:
        """The sums of a sweep from those of its blocks."""
        sums = self.device.xp.empty(SWEEP_SUMS)
        self(_ADD_SUMS, 1, partial_sums, np.int32(len(partial_sums)), sums)
        return SweepResult(*self.device.to_host(sums).tolist())


@dataclass(slots=True)
class Vectors:
    """What a sweep reads and writes.

    values, residual           float64[n]
    contributions, following   uint16[n]: bfloat16, of this residual and of the next
    shift                      what the sweep takes from every r
    residual_l1                ‖r‖₁ before the sweep
    """

    values: Array
    residual: Array
    contributions: Array
    following: Array
    damping: float
    shift: float
    residual_l1: float

    def copy(self) -> Vectors:
        """A copy that another sweep may write to."""
        return replace(
            self,
            values=self.values.copy(),
            residual=self.residual.copy(),
            contributions=self.contributions.copy(),
            following=self.following.copy(),
        )


def after_a_sweep(graph: DynamicGraph, damping: float = 0.85) -> Vectors:
    """y, r and contributions of a solve from nothing after its first sweep: r of either sign, and
    a shift that makes Σr zero.
    """
    xp, n = graph.backend.xp, graph.vertices
    values, residual = xp.empty(n), xp.empty(n)
    contributions, following = xp.zeros(n, np.uint16), xp.zeros(n, np.uint16)
    beta = 1.0 - damping
    run = graph.backend.run
    in_degrees = run(SumInDegrees(graph.view, damping))
    arrays = (values, residual, contributions)
    run(StartFromInDegrees(graph.view, in_degrees, *arrays, damping, beta))
    vectors = Vectors(values, residual, contributions, following, damping, 0.0, beta * n)
    result = product_sweep(graph, vectors)
    vectors.contributions, vectors.following = following, contributions
    vectors.residual_l1 = result.residual_l1
    vectors.shift = result.next_residual_sum / n
    return vectors


def product_sweep(
    graph: DynamicGraph, vectors: Vectors, view: GraphView | None = None
) -> SweepResult:
    """A sweep of the product, in place: by rows, or as another view than the graph's says."""
    sweep = Sweep(
        view or graph.view,
        graph.in_rows(),
        vectors.values,
        vectors.residual,
        vectors.contributions,
        vectors.following,
        vectors.damping,
        vectors.shift,
    )
    return graph.backend.run(sweep)
