"""What kernels have to move."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks.traffic import MODELS, needed_bytes
from benchmarks.traffic.model import Sizes, named
from liverank_gpu import EdgeBatch
from liverank_gpu.backends import backend_named
from liverank_gpu.backends.cuda.kernels.loader import kernels, units
from liverank_gpu.graph.dynamic_graph import DynamicGraph

KERNELS = {f"{file}: {name}" for file in units() for name in kernels(file)}


def test_every_model_is_that_of_a_kernel() -> None:
    assert set(MODELS) <= KERNELS


def test_the_sizes_of_a_graph() -> None:
    graph = DynamicGraph(backend_named("cpu"), "uniform")
    # a loop is no entry, and a vertex with nothing else is isolated
    graph.apply(EdgeBatch(np.array([0, 0, 1, 3]), np.array([1, 2, 2, 3]), vertices=6))
    assert Sizes.of(graph) == Sizes(vertices=6, entries=3, sending=2, isolated=3)


def test_arguments_have_the_names_of_the_kernels_parameters() -> None:
    kernel = "frontier: expand_forward"
    arguments = named(kernel, [0, 1, 2, (3, 4, 5, 6), *range(7, 11)])
    assert list(arguments)[:4] == ["vertices", "ends", "count", "out.starts"]
    assert (arguments["out.weights"], arguments["loop"], arguments["found"]) == (6, 7, 10)
    with pytest.raises(TypeError, match="takes 8 arguments"):
        named(kernel, range(9))


def test_a_sweep_needs_what_its_header_says() -> None:
    sizes = Sizes(vertices=1_000, entries=16_000, sending=800, isolated=100)
    # 4 bytes an entry; 16 + 5 + 16 + 16 + 4 a vertex
    needed = needed_bytes(
        "sweep: sweep<false>", sizes, [(None, (None,) * 4, None, None), (0,) * 17, *[None] * 13]
    )
    assert needed == 4 * 16_000 + 57 * 1_000


def test_what_is_flagged_counts_no_more_than_there_is() -> None:
    vertices, lengths = np.array([0, 2], np.int32), np.array([3, 50, 2], np.int32)
    step = "frontier: expand_forward"
    for count, flags in ((4, 4), (100, 5)):
        sizes = Sizes(vertices=count, entries=55)
        lists = (None, lengths, None, None)
        arguments = [vertices, None, 2, lists, *[None] * 3, np.zeros(1, np.uint64)]
        assert needed_bytes(step, sizes, arguments) == 4 * 5 + 25 * 2 + 4 * flags


def test_a_kernel_without_a_model_has_no_figure() -> None:
    assert needed_bytes("rebuild: sort_small", Sizes(), ()) is None
