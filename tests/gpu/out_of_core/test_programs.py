"""Programs over windows answer what they do on a graph in memory."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from liverank_gpu import (
    InvalidValue,
    Options,
    OutOfCoreAnswer,
    OutOfCorePrograms,
    UnknownVertex,
    VertexProgram,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.programs import Mode
from liverank_gpu.out_of_core import ranking
from liverank_gpu.programs.algorithms import COMPONENTS, LEVELS, PAGERANK
from liverank_gpu.types import VertexOrder
from tests.gpu.observed import traced
from tests.gpu.out_of_core.streamed import (
    Columns,
    added,
    in_memory,
    least_memory,
    network,
    squeezed,
    without_locked_memory,
)
from tests.gpu.programs import oracle

MODES: tuple[Mode, ...] = ("synchronous", "asynchronous")


def runs(
    columns: Columns, options: Options, backend: Backend, vertices: int, *named: Any, **given: Any
) -> Iterator[tuple[Any, OutOfCoreAnswer]]:
    """Each program in each mode that it has, with the least memory."""
    for program in named:
        own = given.get(program, {})
        with squeezed(columns, options, backend, vertices, program, **own) as graph:
            for mode in MODES:
                refuses = (program == "components" and options.directed and mode == MODES[0]) or (
                    program == "pagerank" and mode == MODES[1]
                )
                if not refuses:
                    yield program, graph.run(program, mode, **own)


@pytest.mark.any_thread_order
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_levels_and_components_are_those_of_the_graph_in_memory(
    backend: Backend, directed: bool, order: VertexOrder
) -> None:
    options, vertices = Options(directed=directed, vertex_order=order), 310
    columns = network()
    engine = in_memory(columns, options, backend, vertices)
    graph = oracle.graph_of(engine)
    expected = {"levels": oracle.levels(graph, 3), "components": oracle.components(graph)}
    given = {"levels": {"source": 3}}
    for program, found in runs(columns, options, backend, vertices, *expected, **given):
        answer = found.answer
        assert (answer.values == oracle.by_id(expected[program], answer.values)).all()
        assert answer.receipt.finished
        assert not answer.may_continue
        assert found.windows >= 4
        assert found.edges == engine.edges


@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_weighted_programs_are_those_of_the_graph_in_memory(
    backend: Backend, directed: bool
) -> None:
    columns, options, vertices = network(), Options(directed=directed, weighted=True), 310
    # the last of several weights counts: NetworkX gets what the engine has
    engine = in_memory(columns, options, backend, vertices)
    distances = oracle.distances(oracle.graph_of(engine), 3)
    few_supersteps: dict[str, Any] = {"damping": 0.5, "tolerance": 1e-12}
    ranks = engine.run("pagerank", **few_supersteps)
    given = {"distances": {"source": 3}, "pagerank": few_supersteps}
    for program, found in runs(columns, options, backend, vertices, *given, **given):
        values, receipt = found.answer.values, found.answer.receipt
        assert found.windows >= 4
        if program == "distances":
            assert (values == oracle.by_id(distances, values)).all()
            continue
        assert np.abs(values - ranks.values).sum() < 1e-10
        aggregate = ranks.summary["aggregate"]
        assert found.answer.summary["aggregate"] == pytest.approx(aggregate, rel=1e-8)
        assert found.processed == found.windows * receipt.supersteps
        assert receipt.supersteps == ranks.receipt.supersteps
        assert receipt.edges == ranks.receipt.edges


def _walks(vertex: Any, source: Any) -> Any:
    return 1 if vertex == source else 0


def _same(source_value: Any) -> Any:
    return source_value


def _more(old: Any, gathered: Any, superstep: Any) -> Any:
    return old + gathered * (superstep + 1)


def _rose(old: Any, new: Any) -> Any:
    return new > old


WALKS = VertexProgram(
    "walks",
    "int64",
    0,
    initial=_walks,
    gather=_same,
    merge="sum",
    apply=_more,
    scatter=_rose,
    parameters={"source": 0},
    supersteps=5,
)
"""Neither monotone nor with every vertex active: each message counts, once, in its superstep."""


def test_a_users_program_that_is_not_monotone_gets_each_message_once(backend: Backend) -> None:
    columns, options = network(), Options()
    engine = in_memory(columns, options, backend, 300)
    expected = engine.run(WALKS, source=3)
    with squeezed(columns, options, backend, 300, WALKS) as graph:
        found = graph.run(WALKS, source=3)
        with pytest.raises(InvalidValue, match=r"mode: 'asynchronous' .* 'synchronous' for walks"):
            graph.run(WALKS, "asynchronous")
    assert found.windows >= 4
    assert found.answer.values.tolist() == expected.values.tolist()
    receipt = found.answer.receipt
    assert (receipt.supersteps, receipt.edges) == (5, expected.receipt.edges)
    assert not receipt.finished


@pytest.mark.parametrize("mode", MODES)
def test_windows_without_an_active_in_neighbour_are_skipped(backend: Backend, mode: Mode) -> None:
    vertices = 400
    path = np.arange(vertices - 1)
    for sources, targets, start in ((path, path + 1, 0), (path + 1, path, vertices - 1)):
        columns = sources, targets, np.ones(len(path), np.float32)
        with squeezed(columns, Options(), backend, vertices, "levels", source=start) as graph:
            found = graph.run("levels", mode, source=start)
        expected = np.abs(np.arange(vertices) - start)
        assert found.answer.values.tolist() == expected.tolist()
        passes = found.answer.receipt.supersteps
        assert found.windows >= 4
        # in the first pass windows do not know their sources
        assert found.processed <= found.windows + 2 * passes
        if mode == "synchronous":
            assert passes == vertices
        elif backend.name != "cuda" and start == 0:
            assert passes <= 3
        assert found.bytes_loaded <= 16 * vertices * passes


# memory


def test_arrays_stay_within_the_budget(backend: Backend) -> None:
    if backend.name == "reference":
        pytest.skip("the scratch of its operations is not counted")
    cases: list[tuple[str, int, dict[str, Any]]] = [
        ("distances", 8, {}),
        ("pagerank", 8, {"tolerance": 1.0}),
        ("paths", 16, {}),
    ]
    vertices = 1 << (14 if backend.name == "cpu" else 12)
    columns, options = network(vertices, 12 * vertices), Options(weighted=True)
    streamed = 1 << 18
    backend = without_locked_memory(backend)
    # on a device, the host has buffers as large as the windows, and what it keeps of the graph
    staged = 0 if backend.name != "cuda" else streamed + 20 * vertices
    for program, value_bytes, given in cases:
        memory = vertices * ranking.program_bytes(backend, value_bytes, weighted=True) + streamed
        for _ in range(2):  # the first run compiles
            graph = added(columns, options, backend, memory, vertices)
            with graph, traced() as peak:
                found = graph.run(program, **given)
        assert found.windows >= 2
        assert peak.bytes <= memory + staged + (1 << 18)


def test_a_budget_below_the_values_names_the_least(backend: Backend) -> None:
    with added(network(), Options(), backend, 1, 300) as graph:
        least = least_memory(graph, "levels")
        graph.reserved = 100
        assert least_memory(graph, "levels") == least + 100
    with added(network(), Options(), backend, least + 100, 300) as graph:
        graph.reserved = 100
        assert graph.run("levels", source=5).answer.values[5] == 0


def test_a_second_run_is_on_the_graph_of_the_first(backend: Backend) -> None:
    with squeezed(network(), Options(), backend, 310, "levels") as graph:
        first = graph.run("levels", source=3)
        graph.vertices = 400  # the least budget is still enough
        assert graph.run("levels", source=3).answer.values.tolist() == first.answer.values.tolist()
        with pytest.raises(UnknownVertex, match="source"):
            graph.run("levels", source=310)
        with pytest.raises(InvalidValue, match=r"sources: '1 edges' .* before the first run"):
            graph.add(np.array([0]), np.array([1]))


# what is refused


@pytest.mark.parametrize(
    ("program", "mode", "given", "message"),
    [
        ("walk", None, {}, "program: 'walk' is not allowed; it must be one of pagerank"),
        (COMPONENTS, "synchronous", {}, "mode: 'synchronous' .* 'asynchronous' for components"),
        (LEVELS, "later", {}, "mode: 'later'"),
        (LEVELS, None, {"depth": 1}, r"levels\(depth\)"),
        (PAGERANK, None, {"damping": "a"}, "damping"),
    ],
)
def test_what_cannot_run_is_refused_by_name(
    program: Any, mode: Any, given: dict[str, Any], message: str
) -> None:
    with OutOfCorePrograms(1 << 20, backend="cpu") as graph:
        graph.add(np.array([0]), np.array([1]))
        with pytest.raises(InvalidValue, match=message):
            graph.run(program, mode, **given)


def test_a_source_is_a_vertex() -> None:
    with OutOfCorePrograms(1 << 20, backend="cpu") as graph:
        with pytest.raises(InvalidValue, match="vertices: 0"):
            graph.run("levels")
        graph.add(np.array([0]), np.array([1]))
        for source in (-1, 2):
            with pytest.raises(UnknownVertex, match="source"):
                graph.run("levels", source=source)
