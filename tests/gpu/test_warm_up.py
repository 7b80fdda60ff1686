"""Warm-ups run what a GPU compiles, so that no request waits for it; on the CPU they do nothing."""

from __future__ import annotations

from dataclasses import replace
from unittest.mock import Mock, patch

import pytest

from liverank_gpu import Engine, InvalidValue, Options, Solve
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
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
def test_a_solve_is_warmed_up_by_such_solves_of_a_small_and_a_large_graph(
    options: Options, solve: Solve
) -> None:
    engine, update = Engine(options, compiling()), Engine.update
    assert engine.compiles_kernels
    with patch.object(Engine, "update", autospec=True, side_effect=update) as ranked:
        engine.warm_up_solve(solve)
    asked = solve.checked(options)
    assert [tuple(call.args[1:]) for call in ranked.call_args_list] == [tuple(asked)] * 2
    sizes = [call.args[0].vertices for call in ranked.call_args_list]
    assert sizes[0] < 10 < 10_000 < sizes[1]
    assert (engine.vertices, engine.edges) == (0, 0)


@pytest.mark.parametrize("place", [backend_named("cpu"), compiling()])
def test_a_solve_that_does_not_exist_cannot_be_warmed_up(place: Backend) -> None:
    with pytest.raises(InvalidValue, match="strategy"):
        Engine(backend=place).warm_up_solve(Solve("unknown"))
