"""Ranks for a teleport distribution of edges that are streamed, against power iteration."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest

from liverank_gpu import (
    InvalidValue,
    Options,
    OutOfCoreRanking,
    OutOfCoreRanks,
    Solve,
    ViewQuery,
)
from liverank_gpu.backends import backend_named
from liverank_gpu.generate import rmat
from liverank_gpu.operations.backend import Backend
from liverank_gpu.out_of_core import ranking
from liverank_gpu.types import ViewDirection
from tests.gpu.observed import traced
from tests.gpu.out_of_core.streamed import (
    Columns,
    in_memory,
    named_least,
    network,
    ranked,
    without_locked_memory,
)
from tests.gpu.personalized.test_views import exact

VERTICES = 310
CPU = backend_named("cpu")
SEEDS, WEIGHTS = np.array([1, 250, 7, 7]), np.array([1.0, 2.0, 0.5, 0.5])
KINDS = {
    "directed": Options(),
    "undirected": Options(directed=False),
    "self-loop": Options(dangling="self-loop"),
    "weighted": Options(weighted=True, vertex_order="degree"),
}
VIEWS = {
    "few": ViewQuery(SEEDS, WEIGHTS, 1e-9),
    "many": ViewQuery(np.arange(0, VERTICES, 2), None, 1e-7, 0.9),
    "all": ViewQuery(None, None, 1e-6, 0.5),
}


def viewed(
    columns: Columns,
    options: Options,
    view: ViewQuery,
    backend: Backend,
    memory: int | None = None,
    vertices: int = VERTICES,
    **solve: Any,
) -> OutOfCoreRanks:
    """memory: None for the least budget that works"""
    return ranked(columns, options, backend, memory, vertices, Solve(**solve), view)


@pytest.mark.reference
@pytest.mark.parametrize("direction", get_args(ViewDirection))
@pytest.mark.parametrize("kind", KINDS)
def test_ranks_are_within_their_bound(
    kind: str, direction: ViewDirection, backend: Backend
) -> None:
    options, columns = KINDS[kind], network()
    engine = in_memory(columns, options, CPU, VERTICES)
    for each in VIEWS.values():
        view = replace(each, direction=direction)
        found = viewed(columns, options, view, backend)
        assert view.target_error is not None
        assert found.result.converged
        assert found.result.error_bound == found.ranks.error_bound <= view.target_error
        error = np.abs(found.ranks.to_numpy() - exact(engine, view)).sum()
        assert error <= found.ranks.error_bound + 1e-12
        assert (found.edges, found.windows > 1) == (engine.edges, True)
        assert found.passes >= found.result.iterations + 1


def test_ranks_and_places_are_those_of_a_view_in_memory(backend: Backend) -> None:
    columns, view = network(), VIEWS["few"]
    engine = in_memory(columns, Options(), CPU, VERTICES)
    engine.put_view("few", view)
    expected = engine.view("few")
    found = viewed(columns, Options(), view, backend, 1 << 20, trace=True)
    ids, ranks = found.ranks.top(5)
    assert ids.tolist() == expected.top(5)[0].tolist()
    assert found.ranks.of(ids).tolist() == ranks.tolist()
    # so that explanations can be made of them
    assert found.ranks.base == pytest.approx(expected.base, abs=1e-9)
    assert found.result.trace is not None
    assert found.result.trace.sweeps == found.result.iterations


def test_a_solve_that_runs_out_of_sweeps_says_so(backend: Backend) -> None:
    columns, options = network(), Options(max_iterations=2)
    engine = in_memory(columns, options, CPU, VERTICES)
    for view in VIEWS.values():
        found = viewed(columns, options, view, backend)
        assert (found.result.converged, found.result.iterations) == (False, 2)
        error = np.abs(found.ranks.to_numpy() - exact(engine, view)).sum()
        assert 1e-6 < error <= found.ranks.error_bound


@pytest.mark.parametrize("name", ["few", "all"])
def test_arrays_stay_within_the_budget(backend: Backend, name: str) -> None:
    """Counted by the allocator: sorting, windows and values together."""
    scale = 15 if backend.name == "cpu" else 12
    sources, targets = rmat(scale, 12, seed=5)
    columns = (sources, targets, np.ones(0, np.float32))
    seeds = VIEWS[name].seeds
    view = ViewQuery(seeds, None, 1e-4)
    given = (columns, Options(), view)
    with pytest.raises(InvalidValue) as raised:
        viewed(*given, backend, 1, 1 << scale)
    least = named_least(raised.value)
    unlocked = without_locked_memory(backend)
    viewed(*given, unlocked, least, 1 << scale)  # loads kernels
    with traced() as peak:
        found = viewed(*given, unlocked, least, 1 << scale)
    assert found.windows >= 2
    streamed = least - (1 << scale) * ranking.vertex_bytes(backend)
    staged = 0 if backend.name != "cuda" else streamed
    assert peak.bytes <= least + staged + (1 << 18)


@pytest.mark.parametrize(
    ("options", "view", "solve", "message"),
    [
        (Options(), ViewQuery(np.array([310])), {}, r"seeds\[0\]: 310 is not allowed"),
        (Options(), ViewQuery(SEEDS, WEIGHTS[:2]), {}, "weights: 'length 2'"),
        (Options(), ViewQuery(None, WEIGHTS), {}, "weights: '4 weights'"),
        (Options(), ViewQuery(SEEDS, damping=1.0), {}, "damping: 1.0"),
        (Options(), ViewQuery(SEEDS, target_error=0.0), {}, "target_error: 0.0"),
        (Options(), ViewQuery(SEEDS, direction="in"), {}, "direction: 'in'"),  # type: ignore[arg-type]
        (Options(), ViewQuery(SEEDS, within=SEEDS), {}, "within: '4 vertices' .* out of core"),
        (Options(), VIEWS["few"], {"strategy": "static"}, "'static' .* auto for a view"),
        (Options(), VIEWS["few"], {"strategy": "naive-dynamic"}, "'naive-dynamic' .* for a view"),
        (Options(), VIEWS["few"], {"settle": 3}, "settle: 3 is not allowed"),
    ],
)
def test_what_cannot_be_ranked_is_refused(
    options: Options, view: ViewQuery, solve: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidValue, match=message):
        viewed(network(), options, view, CPU, 1 << 20, **solve)


def test_a_graph_without_vertices_is_refused() -> None:
    with (
        OutOfCoreRanking(1 << 20, Options(), CPU, view=VIEWS["all"]) as graph,
        pytest.raises(InvalidValue, match="vertices: 0"),
    ):
        graph.rank()
