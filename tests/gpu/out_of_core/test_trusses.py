"""The trussness of edges over windows."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

from liverank_gpu import InvalidValue, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.out_of_core.views import WindowedTrusses, supported_bounds
from liverank_gpu.programs.algorithms import NO_TRIANGLES
from tests.gpu.doubles import looked_after
from tests.gpu.observed import traced
from tests.gpu.out_of_core.streamed import (
    FOR_TRIANGLES,
    Columns,
    added,
    in_memory,
    least_memory,
    squeezed,
)
from tests.gpu.programs import oracle
from tests.gpu.programs.dense_parts import dn_graphs_of, overlapping_cliques


@pytest.mark.parametrize("parts", [1, 40])
@pytest.mark.parametrize("binary", [0, 1])
def test_bounds_fall_to_the_trussness(backend: Backend, binary: int, parts: int) -> None:
    """Cliques that have edges in common, and edges between them at random."""
    generator = np.random.default_rng(9)
    cliques = [np.triu_indices(size, 1) for size in (5, 9, 12)]
    ends = [first + np.stack(each) for first, each in zip((0, 3, 10), cliques, strict=True)]
    sources, targets = np.concatenate([*ends, generator.integers(0, 40, (2, 150))], axis=1)
    columns = sources, targets, np.ones(len(sources), np.float32)
    engine = in_memory(columns, Options(), backend, 40)
    expected = engine.run("trussness").values
    with squeezed(columns, Options(), backend, 40, "support", 1 << 16) as graph:
        answers = [
            graph.run("trussness", binary=binary, partitions=parts, iterations=iterations).answer
            for iterations in (1, 2, 1000)
        ]
    assert expected.max() == 12
    bounds = [engine.run("support").values + NO_TRIANGLES, *(each.values for each in answers)]
    for before, after in pairwise(bounds):
        assert (before >= after).all()
    assert bounds[1].tolist() != expected.tolist()
    assert bounds[3].tolist() == expected.tolist()
    assert [each.receipt.finished for each in answers] == [False, False, True]
    assert answers[2].summary["largest"] == 12
    assert answers[2].summary["partitions"] >= parts / 2


SIDE = 10


def _lattice() -> Columns:
    """Edges inside are in two triangles, those of the border in one, so that none is supported."""
    at = np.random.default_rng(4).permutation(SIDE * SIDE).reshape(SIDE, SIDE)
    ends = [(at[1:], at[:-1]), (at[:, 1:], at[:, :-1]), (at[1:, 1:], at[:-1, :-1])]
    sources, targets = (np.concatenate([pair[of].ravel() for pair in ends]) for of in (0, 1))
    return sources, targets, np.ones(len(sources), np.float32)


def test_bounds_fall_from_the_border_of_a_lattice_inwards(backend: Backend) -> None:
    columns = _lattice()
    with squeezed(columns, Options(), backend, SIDE * SIDE, "trussness", FOR_TRIANGLES) as graph:
        found = graph.run("trussness", partitions=1000)
    assert found.answer.values.tolist() == [3] * len(columns[0])
    assert found.answer.summary["partitions"] > SIDE * SIDE / 2


def test_rows_near_which_no_bound_fell_are_left_out(backend: Backend) -> None:
    """A clique beside the lattice is examined once."""
    lattice, clique = _lattice(), np.triu_indices(12, 1)
    sources, targets = (np.concatenate([lattice[end], SIDE * SIDE + clique[end]]) for end in (0, 1))
    columns = sources, targets, np.ones(len(sources), np.float32)
    with squeezed(
        columns, Options(), backend, SIDE * SIDE + 12, "trussness", FOR_TRIANGLES
    ) as graph:
        one, two, all_of_them = (
            graph.run("trussness", partitions=1000, iterations=most).answer for most in (1, 2, 1000)
        )
    assert one.receipt.edges == len(columns[0])
    assert 0 < two.receipt.edges - one.receipt.edges <= len(lattice[0])
    assert sorted(all_of_them.values.tolist()) == [3] * len(lattice[0]) + [12] * len(clique[0])


def test_entries_are_copied_to_the_host_once_an_iteration(backend: Backend) -> None:
    columns, copied = _lattice(), [0]
    backend, device = looked_after(backend)

    def copying(values: Any) -> None:
        copied[0] += len(values) if values.dtype == np.int32 else 0

    with squeezed(columns, Options(), backend, SIDE * SIDE, "trussness", FOR_TRIANGLES) as graph:
        device.copying, of_iterations = copying, []
        for most in (1, 2, 3):
            copied[0] = 0
            graph.run("trussness", iterations=most)
            of_iterations.append(copied[0])
    # the entry and the bound of each slot: with those that align rows, 2.3 an edge. And the bounds
    # that fell
    assert 2 * len(columns[0]) < min(np.diff(of_iterations))
    assert max(np.diff(of_iterations)) < 5 * len(columns[0])


def test_the_least_budget_of_trussness_has_the_triangles_of_each_vertex(backend: Backend) -> None:
    sources, targets = np.triu_indices(40, 1)
    columns = sources, targets, np.ones(len(sources), np.float32)
    of_triangles = "bytes for the triangles of each vertex"
    with squeezed(columns, Options(), backend, 40, "trussness") as graph:
        needed = least_memory(graph, "trussness")
    with (
        added(columns, Options(), backend, needed - 1, 40) as graph,
        pytest.raises(InvalidValue, match=f"at least {needed:,} {of_triangles}"),
    ):
        graph.run("trussness")
    with added(columns, Options(), backend, needed, 40) as graph:
        values = graph.run("trussness").answer.values
    assert values.tolist() == [40] * len(sources)


def test_counts_by_bound_take_what_the_budget_says() -> None:
    bounds = np.full(1 << 10, 31, np.int32)
    counts = np.ones(32 * len(bounds), np.int32)
    with traced() as peak:
        found = supported_bounds(np, bounds, 32 * np.arange(len(bounds)), counts)
    assert found.tolist() == [16] * len(bounds)  # 32 - b triangles have a bound of b or more
    taken = (peak.bytes + counts.nbytes) / len(counts)
    each = WindowedTrusses.COUNT_BYTES
    assert each / 2 < taken <= each


@pytest.mark.parametrize("seed", range(0, 30, 3))
def test_dn_graphs_over_windows_are_those_of_the_theorem(backend: Backend, seed: int) -> None:
    graph = overlapping_cliques(seed)
    sources, targets = np.array(list(graph.edges), np.int64).T
    columns = sources, targets, np.ones(len(sources), np.float32)
    options, name = Options(directed=False), "dn-graphs"
    with squeezed(columns, options, backend, len(graph), name, FOR_TRIANGLES) as windows:
        answer = windows.run("dn-graphs").answer
    expected = oracle.dn_graphs(graph)
    assert dn_graphs_of(answer) == expected
    assert answer.summary["graphs"] == len(set(expected.values()))
