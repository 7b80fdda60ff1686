"""What kernels must move."""

from __future__ import annotations

import numpy as np

from benchmarks.traffic import NEEDED, Sizes
from gpu import EdgeBatch
from gpu.backends import backend_named
from gpu.graph import Graph
from gpu.kernels import NAMES


def test_every_model_is_that_of_a_kernel() -> None:
    kernels = {f"{file}: {name}" for file, names in NAMES.items() for name in names}
    assert set(NEEDED) <= kernels


def test_the_sizes_of_a_graph() -> None:
    graph = Graph(backend_named("cpu"), "uniform")
    # a loop is no entry, and a vertex with nothing else is alone
    graph.apply(EdgeBatch(np.array([0, 0, 1, 3]), np.array([1, 2, 2, 3]), vertices=6))
    assert Sizes.of(graph) == Sizes(vertices=6, entries=3, sending=2, alone=3)


def test_a_sweep_needs_what_its_header_says() -> None:
    sizes = Sizes(vertices=1_000, entries=16_000, sending=800, alone=100)
    # 4 bytes an entry; 16 + 5 + 16 + 16 + 4 a vertex
    assert NEEDED["relax: relax_rows<double, false>"](sizes, ()) == 4 * 16_000 + 57 * 1_000


def test_what_is_gathered_counts_no_more_than_there_is() -> None:
    order, length = np.array([0, 2], np.int32), np.array([3, 50, 2], np.int32)
    step = NEEDED["pull: pull_rows<double, true, false>"]
    for sending, gathered in ((4, 4), (100, 5)):
        sizes = Sizes(vertices=100, entries=55, sending=sending)
        assert step(sizes, (order, None, length)) == 4 * 5 + 37 * 2 + 8 * gathered
