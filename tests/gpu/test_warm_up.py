"""Warm-ups run what a GPU compiles, so that no request waits for it; on the CPU they do nothing."""

from __future__ import annotations

from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, InvalidValue, Options, Solve
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import GraphView
from liverank_gpu.sharded.dask_shard import warm_up
from tests.gpu.doubles import instead, looked_after


def compiling() -> Backend:
    """A backend whose kernels would be compiled when they are first needed, as on a GPU."""
    return replace(backend_named("cpu"), compiles_kernels=True)


def test_nothing_is_compiled_on_the_cpu() -> None:
    options = Options(weighted=True)
    backend, device = looked_after(backend_named("cpu"))
    engine, arrays = Engine(options, backend), list[str]()
    assert not engine.compiles_kernels
    device.allocating = arrays.append
    engine.warm_up()
    engine.warm_up_others()
    engine.warm_up_solve(Solve("static"))
    warm_up(options, backend)
    assert not arrays


@pytest.mark.parametrize("weighted", [False, True])
def test_a_warm_up_looks_for_ties(weighted: bool) -> None:
    # a device has other kernels for weighted graphs
    backend = compiling()
    looked = Mock(wraps=backend.lists.with_same_list)
    lists = instead(backend.lists, with_same_list=looked)
    Engine(Options(weighted=weighted), replace(backend, lists=lists)).warm_up()
    assert looked.called


@pytest.mark.parametrize(
    ("options", "solve"),
    [
        (Options(), Solve()),
        (Options(half_life=1.0), Solve("static")),
        (Options(), Solve("static", "published")),
        (Options(directed=False), Solve("dynamic-frontier")),
    ],
)
def test_the_warm_up_of_a_solve_runs_what_such_solves_of_small_and_large_graphs_do(
    options: Options, solve: Solve
) -> None:
    ran: set[tuple[type, bool]] = set()
    backend = replace(compiling(), components=None)

    def run(operation: Any, /) -> Any:
        if isinstance(graph := getattr(operation, "graph", None), GraphView):
            ran.add((type(operation), graph.vertices > 10_000))
        return backend.run(operation)

    engine = Engine(options, replace(backend, run=run))
    assert engine.compiles_kernels
    engine.warm_up_solve(solve)
    assert (engine.vertices, engine.edges) == (0, 0)
    warm = ran.copy()
    ran.clear()
    for vertices in (9, 20_000):
        engine = Engine(options, replace(backend, run=run))
        ends = np.random.default_rng(1).integers(0, vertices, (2, 2 * vertices))
        times = None if options.half_life is None else np.zeros(2 * vertices)
        engine.apply(EdgeBatch(ends[0], ends[1], times=times))
        engine.update(*solve.checked(options))
    assert ran <= warm
    assert {is_large for _, is_large in ran} == {False, True}


@pytest.mark.parametrize("place", [backend_named("cpu"), compiling()])
def test_a_solve_that_does_not_exist_cannot_be_warmed_up(place: Backend) -> None:
    with pytest.raises(InvalidValue, match="strategy"):
        Engine(backend=place).warm_up_solve(Solve("unknown"))
