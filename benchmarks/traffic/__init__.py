"""What each kernel has to read from memory and write to it, in bytes.

Every byte counts once, however often a kernel requests it: as if caches held all that is read at
random, and cache lines had nothing else in them. So no kernel for the same data in the same arrays
needs less, except for what the launch before left in the cache. An array that is read at random
counts at most its own size, and at most what is read of it: 4 bytes for the id of a neighbour, 8
for a float64. The headers of the .cu files say what is requested instead.

Models take the sizes of the graph and the arguments of the launch, after the launch, when its
counters can be read. Kernels that take as long as any launch have no model.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from benchmarks.traffic import graph, solve
from benchmarks.traffic.model import Sizes, named

MODELS = solve.MODELS | graph.MODELS
"""By file and name expression, as in liverank_gpu.backends.cuda.kernels.loader.kernels."""


def needed_bytes(kernel: str, sizes: Sizes, arguments: Sequence[Any]) -> float | None:
    """What a launch has to move; None for a kernel without a model."""
    model = MODELS.get(kernel)
    return None if model is None else model(sizes, named(kernel, arguments))
