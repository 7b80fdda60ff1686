"""The trussness of edges over windows."""

from __future__ import annotations

import re
import tracemalloc
from itertools import pairwise
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from liverank_gpu import InvalidValue, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.out_of_core.views import WindowedTrusses, supported_bounds
from liverank_gpu.out_of_core.windows import Window, WindowStream
from liverank_gpu.programs.algorithms import NO_TRIANGLES
from tests.gpu.out_of_core.streamed import (
    Columns,
    added,
    in_memory,
    least_memory,
    small_budget,
)


@pytest.mark.usefixtures("small_windows")
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
    with (
        added(columns, Options(), backend, 1, 40) as graph,
        patch.object(graph, "_memory", small_budget(graph, "support") + (1 << 16)),
    ):
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


@pytest.mark.usefixtures("small_windows")
def test_bounds_fall_from_the_border_of_a_lattice_inwards(backend: Backend) -> None:
    columns = _lattice()
    with (
        added(columns, Options(), backend, 1, SIDE * SIDE) as graph,
        patch.object(graph, "_memory", small_budget(graph, "trussness")),
    ):
        found = graph.run("trussness", partitions=1000)
    assert found.answer.values.tolist() == [3] * len(columns[0])
    assert found.answer.summary["partitions"] > SIDE * SIDE / 2


@pytest.mark.usefixtures("small_windows")
def test_rows_near_which_no_bound_fell_are_left_out(backend: Backend) -> None:
    """A clique beside the lattice is examined once."""
    lattice, clique = _lattice(), np.triu_indices(12, 1)
    sources, targets = (np.concatenate([lattice[end], SIDE * SIDE + clique[end]]) for end in (0, 1))
    columns = sources, targets, np.ones(len(sources), np.float32)
    with (
        added(columns, Options(), backend, 1, SIDE * SIDE + 12) as graph,
        patch.object(graph, "_memory", small_budget(graph, "trussness")),
    ):
        one, two, all_of_them = (
            graph.run("trussness", partitions=1000, iterations=most).answer for most in (1, 2, 1000)
        )
    assert one.receipt.edges == len(columns[0])
    assert 0 < two.receipt.edges - one.receipt.edges <= len(lattice[0])
    assert sorted(all_of_them.values.tolist()) == [3] * len(lattice[0]) + [12] * len(clique[0])


@pytest.mark.usefixtures("small_windows")
def test_entries_are_copied_to_the_host_once_an_iteration(backend: Backend) -> None:
    """And those again whose bound fell, from 2 to 1: of each slot entry and bound, and bounds where
    any fell.
    """
    columns, device = _lattice(), backend.device
    to_host, reload, lower = device.to_host, WindowStream.reload, WindowedTrusses.lower
    copied, expected = [0], [0]

    def counted(values: Any) -> Any:
        copied[0] += len(values) if values.dtype == np.int32 else 0
        return to_host(values)

    def reloaded(stream: WindowStream, window: Window, slots: slice) -> None:
        expected[0] += slots.stop - slots.start
        reload(stream, window, slots)

    def lowered(trusses: WindowedTrusses, by_bisection: bool) -> None:
        expected[0] += 2 * sum(window.slots for window in trusses.pairs.stream.windows)
        with patch.object(device, "to_host", counted):
            lower(trusses, by_bisection)

    with (
        added(columns, Options(), backend, 1, SIDE * SIDE) as graph,
        patch.object(graph, "_memory", small_budget(graph, "trussness")),
        patch.object(WindowedTrusses, "lower", lowered),
        patch.object(WindowStream, "reload", reloaded),
    ):
        graph.run("trussness")
    fell = in_memory(columns, Options(), backend, SIDE * SIDE).run("support").values == 2
    assert copied[0] == expected[0] + fell.sum()


def test_the_least_budget_of_trussness_has_the_triangles_of_each_vertex(backend: Backend) -> None:
    sources, targets = np.triu_indices(40, 1)
    columns = sources, targets, np.ones(len(sources), np.float32)
    with added(columns, Options(), backend, 1, 40) as graph:
        least = least_memory(graph, "trussness")
        message = r"at least ([0-9,]+) bytes for the triangles of each vertex"
        with (
            patch.object(graph, "_memory", least),
            pytest.raises(InvalidValue, match=message) as raised,
        ):
            graph.run("trussness")
        found = re.search(message, str(raised.value))
        assert found
        needed = int(found[1].replace(",", ""))
        with (
            patch.object(graph, "_memory", needed - 1),
            pytest.raises(InvalidValue, match=message),
        ):
            graph.run("trussness")
        with patch.object(graph, "_memory", needed):
            values = graph.run("trussness").answer.values
    assert values.tolist() == [40] * len(sources)


def test_counts_by_bound_take_what_the_budget_says() -> None:
    bounds = np.full(1 << 10, 31, np.int32)
    counts = np.ones(32 * len(bounds), np.int32)
    tracemalloc.start()
    try:
        found = supported_bounds(np, bounds, 32 * np.arange(len(bounds)), counts)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert found.tolist() == [16] * len(bounds)  # 32 - b triangles have a bound of b or more
    taken = (peak + counts.nbytes) / len(counts)
    each = WindowedTrusses.COUNT_BYTES
    assert each / 2 < taken <= each
