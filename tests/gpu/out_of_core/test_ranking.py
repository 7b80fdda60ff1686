"""Ranks of edges that are streamed, against an independent oracle, within a budget of memory."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args
from unittest.mock import patch

import numpy as np
import pytest

from liverank_gpu import (
    Engine,
    InvalidValue,
    Options,
    OutOfCoreRanking,
    OutOfCoreRanks,
    OutOfMemory,
    Solve,
    verify,
)
from liverank_gpu.generate import rmat
from liverank_gpu.operations.backend import Backend
from liverank_gpu.out_of_core import ranking
from liverank_gpu.types import Dangling, EdgeBatch, VertexOrder
from tests.gpu.doubles import looked_after
from tests.gpu.graphs import FAMILIES, Pairs, exact_ranks, random_graph
from tests.gpu.observed import traced
from tests.gpu.out_of_core import streamed
from tests.gpu.out_of_core.streamed import RESIDUAL, Columns, without_locked_memory

POLICIES: tuple[Dangling, ...] = get_args(Dangling)


def columns_of(pairs: Pairs) -> Columns:
    edges = pairs[1]
    return edges[:, 0], edges[:, 1], np.ones(len(edges), np.float32)


def ranked(
    pairs: Pairs, options: Options, backend: Backend, memory: int | None = None, **given: Any
) -> OutOfCoreRanks:
    return streamed.ranked(columns_of(pairs), options, backend, memory, pairs[0], **given)


def least_memory(pairs: Pairs, options: Options, backend: Backend) -> int:
    with pytest.raises(InvalidValue) as raised:
        ranked(pairs, options, backend, memory=1)
    return streamed.named_least(raised.value)


def assert_right(found: OutOfCoreRanks, pairs: Pairs, options: Options) -> None:
    streamed.assert_right(found, columns_of(pairs), options)


def skewed(scale: int = 11, edges: int = 16) -> Pairs:
    return 2**scale, np.stack(rmat(scale, edges, seed=5), axis=1)


def spread(vertices: int = 400, edges: int = 4000) -> Pairs:
    """Degrees that are near each other, so that windows are small; half of the vertices dangle."""
    generator = np.random.default_rng(3)
    ends = generator.integers(0, vertices, (edges, 2))
    ends[:, 0] //= 2
    return vertices, ends


@pytest.mark.parametrize("dangling", POLICIES)
@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_ranks_of_all_families_are_right(backend: Backend, family: str, dangling: Dangling) -> None:
    pairs, options = FAMILIES[family](), Options(dangling=dangling, target_error=1e-9)
    assert_right(ranked(pairs, options, backend), pairs, options)


@pytest.mark.parametrize(
    ("damping", "dangling", "directed"),
    [
        (0.5, "uniform", True),
        (0.5, "self-loop", False),
        (0.99, "uniform", False),
        (0.99, "self-loop", True),
    ],
)
def test_many_windows_give_the_right_ranks(
    backend: Backend, damping: float, dangling: Dangling, directed: bool
) -> None:
    pairs = spread()
    options = Options(damping, dangling, 1e-8, directed=directed)
    found = ranked(pairs, options, backend)
    assert found.windows >= 5
    assert_right(found, pairs, options)


@pytest.mark.parametrize("seed", range(8))
def test_random_graphs_with_repeats_are_ranked(backend: Backend, seed: int) -> None:
    vertices, edges = random_graph(seed)
    pairs = vertices, np.concatenate([edges, edges[::3]])
    options = Options(target_error=1e-9, dangling=POLICIES[seed % len(POLICIES)])
    found = ranked(pairs, options, backend)
    assert_right(found, pairs, options)


@pytest.mark.parametrize("order", get_args(VertexOrder))
@pytest.mark.parametrize("weighted", [False, True])
def test_ranks_are_by_id_in_every_order(
    backend: Backend, order: VertexOrder, weighted: bool
) -> None:
    options = Options(vertex_order=order, weighted=weighted, target_error=1e-9)
    vertices, edges = skewed(9)
    sources, targets = edges.T
    weights = (sources * 7 % 5 + targets % 3 + 1).astype(np.float32) if weighted else None
    engine = Engine(Options(weighted=weighted, target_error=1e-9), backend)
    engine.apply(EdgeBatch(sources, targets, vertices=vertices, weights=weights))
    engine.update()
    expected = engine.publish()
    backend = replace(backend, sizes=replace(backend.sizes, least_permuted=0))
    with OutOfCoreRanking(1 << 20, options, backend) as graph:
        graph.add(sources, targets, weights)
        found = graph.rank(vertices, RESIDUAL)
    error = np.abs(found.ranks.to_numpy() - expected.to_numpy()).sum()
    assert error <= found.result.error_bound + expected.error_bound
    ids, ranks = found.ranks.top(20)
    assert set(ids[:5].tolist()) == set(expected.top(5)[0].tolist())
    assert found.ranks.of(ids).tolist() == ranks.tolist()


def test_static_agrees_with_the_engine(backend: Backend) -> None:
    pairs, options = skewed(), Options(tolerance=1e-9, target_error=1e-5)
    found = ranked(pairs, options, backend, solve=Solve("static", trace=True))
    engine = Engine(options, backend)
    engine.apply(EdgeBatch(pairs[1][:, 0], pairs[1][:, 1], vertices=pairs[0]))
    engine.update("static")
    difference = np.abs(found.ranks.to_numpy() - engine.publish().to_numpy()).sum()
    assert difference <= found.result.error_bound + engine.publish().error_bound
    assert (found.result.strategy, found.result.form) == ("static", "accelerated")
    assert found.result.trace is not None
    assert found.result.trace.sweeps == found.result.iterations
    # from in-degrees there is no pass before the sweeps
    assert found.passes == found.result.iterations + 1


def test_the_error_bound_is_of_a_residual_computed_last(backend: Backend) -> None:
    """Whatever the sweeps have accumulated, the certificate comes from the final ranks."""
    pairs, options = skewed(9), Options(target_error=0.5, max_iterations=1)
    found = ranked(pairs, options, backend)
    matrix = verify.GoogleMatrix(pairs[1][:, 0], pairs[1][:, 1], pairs[0])
    true = matrix.error_bound(found.ranks.to_numpy())
    assert true <= found.result.error_bound * (1 + 1e-9)
    assert found.passes >= found.result.iterations + 2


def test_a_solve_that_runs_out_of_sweeps_says_so(backend: Backend) -> None:
    pairs, options = skewed(9), Options(target_error=1e-9, max_iterations=2)
    found = ranked(pairs, options, backend)
    assert not found.result.converged
    assert found.result.iterations == 2
    truth, _ = exact_ranks(streamed.in_memory(columns_of(pairs), options, backend, pairs[0]))
    assert np.abs(found.ranks.to_numpy() - truth).sum() <= found.result.error_bound


# memory


def test_a_budget_that_is_too_small_names_the_least_that_works(backend: Backend) -> None:
    pairs, options = skewed(8), Options()
    least = least_memory(pairs, options, backend)
    assert ranked(pairs, options, backend, least).windows >= 1
    with pytest.raises(InvalidValue, match=f"at least {least:,} bytes: .* for 256 vertices"):
        ranked(pairs, options, backend, least - 1)


def test_reserved_bytes_are_part_of_the_budget(backend: Backend) -> None:
    pairs, options = skewed(8), Options()
    least = least_memory(pairs, options, backend)
    with OutOfCoreRanking(least, options, backend) as graph:
        graph.add(*pairs[1].T)
        with pytest.raises(InvalidValue, match=f"at least {least + 1000:,} bytes"):
            graph.rank(pairs[0], reserved=1000)


def test_arrays_stay_within_the_budget(backend: Backend) -> None:
    """Counted by the allocator: sorting, windows and values together."""
    pairs = skewed(15 if backend.name == "cpu" else 12, 12)
    options = Options(target_error=1e-4)
    least, edges = least_memory(pairs, options, backend), pairs[1]
    ranked(pairs, options, backend, least, piece=len(edges))  # compiles
    streamed = least - pairs[0] * ranking.vertex_bytes(backend)
    assert streamed < 4 * len(edges)
    graph = OutOfCoreRanking(least, options, without_locked_memory(backend))
    with graph, traced() as peak:
        for first in range(0, len(edges), 1024):
            graph.add(*edges[first : first + 1024].T)
        found = graph.rank(pairs[0], RESIDUAL)
    assert found.windows >= 2
    # on a device, files are read into page-locked buffers of the host, as large as the windows
    staged = 0 if backend.name != "cuda" else streamed
    assert peak.bytes <= least + staged + (1 << 18)


def test_windows_are_no_larger_than_their_part(backend: Backend) -> None:
    pairs, options = spread(), Options()
    least = least_memory(pairs, options, backend)
    streamed = least - pairs[0] * ranking.vertex_bytes(backend)
    few = ranked(pairs, options, backend, least)
    many = ranked(pairs, options, backend, 1 << 30)
    # two of them fit into what is left of the budget
    assert few.windows * streamed // 2 >= many.bytes_loaded
    assert few.windows > many.windows == 1
    # a window that holds all edges is loaded once, however many passes there are
    assert 4 * few.edges <= many.bytes_loaded < 4 * (few.edges + 3 * pairs[0])
    assert few.bytes_loaded > 4 * many.bytes_loaded


def test_memory_that_there_is_not_is_refused_with_the_figures(backend: Backend) -> None:
    vertices = 1 << 19
    backend, device = looked_after(backend)
    with (
        device.with_only(1 << 20),
        pytest.raises(OutOfMemory, match=r"ranking 524,288 vertices out of core .* 1,048,576"),
    ):
        ranked((vertices, np.array([[0, 1]])), Options(), backend, 1 << 30)


# where edges are


def test_memory_that_cannot_be_locked_is_done_without(backend: Backend) -> None:
    if backend.name != "cuda":
        pytest.skip("on the host, edges come from the file")
    pairs, options = skewed(), Options(target_error=1e-8)
    refused, found = without_locked_memory(backend), ranked(pairs, options, backend)
    from_file = ranked(pairs, options, refused)
    assert (found.in_memory, from_file.in_memory) == (True, False)
    assert np.array_equal(found.ranks.to_numpy(), from_file.ranks.to_numpy())
    assert_right(from_file, pairs, options)


def open_files(folder: Path) -> list[str]:
    links = []
    for descriptor in os.listdir("/proc/self/fd"):
        try:
            links.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        except FileNotFoundError:
            continue
    return [link for link in links if link.startswith(str(folder))]


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError])
@pytest.mark.parametrize("at", ["pwrite", "preadv"])
def test_an_interruption_leaves_no_file_and_no_thread(
    backend: Backend, tmp_path: Path, at: str, error: type[BaseException]
) -> None:
    operation, calls = getattr(os, at), []
    memory = least_memory(spread(), Options(), backend)

    def interrupted(*arguments: Any) -> Any:
        calls.append(at)
        assert not list(tmp_path.iterdir())
        assert open_files(tmp_path)
        if len(calls) == 20:
            raise error
        return operation(*arguments)

    with patch.object(os, at, interrupted), pytest.raises(error):
        ranked(spread(), Options(), backend, memory, scratch=tmp_path, piece=2000)
    assert len(calls) >= 20
    assert not list(tmp_path.iterdir())
    assert not open_files(tmp_path)
    assert not [each for each in threading.enumerate() if each.name.startswith("liverank-windows")]


# what is refused


@pytest.mark.parametrize(
    ("options", "solve", "message"),
    [
        (Options(half_life=60.0), RESIDUAL, "half_life: 60.0 is not allowed"),
        (Options(), Solve("residual", settle=3), "settle: 3 is not allowed"),
        (Options(), Solve("dynamic-frontier"), "strategy: 'dynamic-frontier' .* out of core"),
        (Options(), Solve("static", "published"), "form: 'published' .* out of core"),
        (Options(form="published"), Solve("static"), "form: 'published' .* out of core"),
        (Options(), Solve("other"), "strategy: 'other'"),
    ],
)
def test_what_is_not_streamed_is_refused_by_name(
    backend: Backend, options: Options, solve: Solve, message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        ranked((2, np.array([[0, 1]])), options, backend, 1 << 20, solve=solve)


@pytest.mark.parametrize("memory", [0, -1, True, 1.5])
def test_a_budget_is_a_number_of_bytes(memory: Any) -> None:
    with pytest.raises(InvalidValue, match=r"memory: .* a number of bytes"):
        OutOfCoreRanking(memory)


def test_a_graph_without_vertices_has_no_ranks(backend: Backend) -> None:
    with pytest.raises(InvalidValue, match="vertices: 0"):
        ranked((0, np.zeros((0, 2), np.int64)), Options(), backend, 1 << 20)
