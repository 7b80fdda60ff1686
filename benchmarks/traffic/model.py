"""What models of traffic take: the sizes of a graph, and the arguments of a launch by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from liverank_gpu.backends.cuda.kernels.loader import kernels, source
from liverank_gpu.backends.cuda.kernels.parameters import Parameters, parameters_of
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.device import Array


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
"""The arguments of a launch, by the names that the kernel gives them, and its structs."""

Model = Callable[[Sizes, Arguments], float]
"""Bytes that a launch has to read from memory and write to it."""


def total(values: Array) -> int:
    """The sum of integers or flags."""
    return int(values.sum(dtype=np.int64))


def named(kernel: str, arguments: Sequence[Any]) -> Arguments:
    """The arguments of a launch by name.

    kernel  file and name expression, ``sweep: sweep<false>``
    Raises TypeError if they are not the kernel's parameters.
    """
    file, _, expression = kernel.partition(": ")
    parameters = _parameters(file)[expression]
    names = [member.name for member in parameters.members]
    return dict(zip(names, parameters.flattened(tuple(arguments)), strict=True))


@cache
def _parameters(file: str) -> dict[str, Parameters]:
    """The parameters of each kernel of a file."""
    return parameters_of(source(file), kernels(file))
