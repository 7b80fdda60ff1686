"""What models of traffic take: the sizes of a graph, and the arguments of a launch by name."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from liverank_gpu.backends.cuda.kernels.loader import source
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.device import Array

_KERNEL = re.compile(r"__global__ void (?:__launch_bounds__\([^)]*\) )?(\w+)\(([^)]*)\)")


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes of a graph.

    vertices  n
    entries   m, edges that are not loops: entries of the lists of either direction
    sending   vertices with an entry in their out-lists: their contributions are read by others
    isolated  vertices without an entry in either list
    """

    vertices: int = 0
    entries: int = 0
    sending: int = 0
    isolated: int = 0

    @classmethod
    def of(cls, graph: DynamicGraph) -> Sizes:
        lengths = graph.outgoing.csr.row_lengths
        return cls(
            vertices=graph.vertices,
            entries=total(lengths),
            sending=int(graph.backend.xp.count_nonzero(lengths)),
            isolated=graph.vertices - graph.connected,
        )


Arguments = Mapping[str, Any]
"""The arguments of a launch, by the names that the kernel gives them."""

Model = Callable[[Sizes, Arguments], float]
"""Bytes that a launch has to read from memory and write to it."""


def total(values: Array) -> int:
    """The sum of integers or flags."""
    return int(values.sum(dtype=np.int64))


def named(kernel: str, arguments: Sequence[Any]) -> Arguments:
    """The arguments of a launch by name.

    kernel  file and name expression, ``sweep: sweep<false>``
    Raises ValueError if their number is not that of the kernel's parameters.
    """
    file, _, expression = kernel.partition(": ")
    names = _parameters(file)[expression.split("<")[0]]
    return dict(zip(names, arguments, strict=True))


@cache
def _parameters(file: str) -> dict[str, tuple[str, ...]]:
    """The names of the parameters of each kernel of a file."""
    return {
        kernel[1]: tuple(each.split()[-1].lstrip("*") for each in kernel[2].split(","))
        for kernel in _KERNEL.finditer(source(file))
    }
