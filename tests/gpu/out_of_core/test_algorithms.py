"""Algorithms over windows answer what NetworkX does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from liverank_gpu import PROGRAMS, InvalidValue, Options, OutOfCorePrograms
from liverank_gpu.backends import backend_named
from liverank_gpu.operations.backend import Backend
from liverank_gpu.out_of_core import ranking
from liverank_gpu.out_of_core.views import VOTE_BYTES
from liverank_gpu.programs.algorithms import SUPPORT, Algorithm, most_frequent
from liverank_gpu.types import VertexOrder
from tests.gpu.observed import traced
from tests.gpu.out_of_core.streamed import (
    FOR_TRIANGLES,
    added,
    in_memory,
    least_memory,
    network,
    squeezed,
)
from tests.gpu.programs import oracle

VERTICES = 310
NAMES = [name for name, each in PROGRAMS.items() if isinstance(each, Algorithm)]


def _expected(name: str, graph: nx.DiGraph, options: Options) -> dict[int, float]:
    if name == "labels":
        return oracle.labels(graph, 10, options.directed)
    simple = oracle.undirected(graph)
    if name == "cores":
        return dict(nx.core_number(simple))
    if name == "triangles":
        return dict(nx.triangles(simple))
    return dict(nx.clustering(simple))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("order", ["given", "degree"])
@pytest.mark.parametrize(
    "options",
    [Options(directed=directed, weighted=weighted) for directed in (True, False)
     for weighted in (False, True)],
    ids=["directed", "directed-weighted", "undirected", "undirected-weighted"],
)  # fmt: skip
def test_answers_are_those_of_the_graph_in_memory(
    backend: Backend, options: Options, order: VertexOrder, name: str
) -> None:
    columns = network()
    engine = in_memory(columns, options, backend, VERTICES)
    whole, expected = oracle.graph_of(engine), engine.run(name)
    ordered = Options(options.damping, directed=options.directed, weighted=options.weighted,
                      vertex_order=order)  # fmt: skip
    more = FOR_TRIANGLES if name in ("trussness", "dn-graphs") else 0
    with squeezed(columns, ordered, backend, VERTICES, name, more) as graph:
        found = graph.run(name)
        again = graph.run(name)
    values = found.answer.values
    assert found.windows >= 4
    if found.answer.edges is not None:
        assert expected.edges is not None
        for ends, known in zip(found.answer.edges, expected.edges, strict=True):
            assert ends.dtype == known.dtype
            assert ends.tolist() == known.tolist()
        edges = zip(*(ends.tolist() for ends in found.answer.edges), strict=True)
        truth = getattr(oracle, name.replace("-", "_"))(oracle.undirected(whole))
        lambdas = found.answer.lambdas
        if lambdas is None:
            assert dict(zip(edges, values.tolist(), strict=True)) == truth
        else:
            pairs = zip(values.tolist(), lambdas.tolist(), strict=True)
            assert dict(zip(edges, pairs, strict=True)) == truth
    if name == "trussness":  # as the budget has it
        assert found.answer.summary.pop("partitions") > 4
        assert expected.summary.pop("partitions") == 1
    assert found.answer.summary == pytest.approx(expected.summary, rel=1e-12)
    if found.answer.edges is not None:
        assert values.tolist() == expected.values.tolist()
    elif name == "densest":
        assert values.tolist() == expected.values.tolist()
        part = oracle.undirected(whole).subgraph(np.flatnonzero(values).tolist())
        assert found.answer.summary["density"] == part.number_of_edges() / len(part)
        assert found.answer.receipt.edges == expected.receipt.edges
    else:
        truth = oracle.by_id(_expected(name, whole, options), values)
        assert np.abs(values - truth).max() < 1e-12
    if name in ("densest", "labels"):
        assert found.answer.receipt.supersteps == expected.receipt.supersteps
    assert values.dtype == expected.values.dtype
    assert again.answer.values.tolist() == values.tolist()
    assert found.edges == engine.edges
    assert found.answer.receipt.finished
    assert found.answer.receipt.mode == "synchronous"
    assert not found.answer.may_continue


@pytest.mark.parametrize("name", ["triangles", "support"])
def test_each_pair_of_windows_is_compared(backend: Backend, name: str) -> None:
    """A complete graph has all triangles that there can be."""
    count = 40
    ends = np.array([(u, v) for u in range(count) for v in range(u)])
    columns = ends[:, 0], ends[:, 1], np.ones(len(ends), np.float32)
    with squeezed(columns, Options(), backend, count, name) as graph:
        found = graph.run(name)
    windows, values = found.windows, set(found.answer.values.tolist())
    assert windows >= 3
    if name == "triangles":
        assert found.processed == windows * (windows + 1) // 2
        assert values == {(count - 1) * (count - 2) // 2}
    else:
        assert found.processed == windows**2
        assert values == {count - 2}
        assert found.answer.receipt.edges == len(found.answer.values) == len(ends)


def test_cores_fall_along_a_path_from_its_ends(backend: Backend) -> None:
    path = np.arange(399)
    columns = path, path + 1, np.ones(len(path), np.float32)
    with squeezed(columns, Options(directed=False), backend, 400, "cores") as graph:
        found = graph.run("cores")
    assert found.windows >= 3
    assert found.answer.values.tolist() == [1] * 400
    assert found.answer.summary == {"largest": 1.0}


def test_labels_change_where_those_of_neighbours_have_changed(backend: Backend) -> None:
    """Two vertices exchange their labels for ever; cliques agree at once."""
    cliques, each = 60, 7
    u, v = np.triu_indices(each, 1)
    first = 2 + each * np.arange(cliques)[:, None]
    ends = np.append(0, first + u), np.append(1, first + v)
    columns = (*ends, np.ones(len(ends[0]), np.float32))
    options, vertices = Options(directed=False), 2 + cliques * each
    with squeezed(columns, options, backend, vertices, "labels", 1 << 14) as graph:
        answers = {k: graph.run("labels", iterations=k) for k in (1, 2, 3, 10)}
    engine = in_memory(columns, options, backend, vertices)
    for iterations, found in answers.items():
        expected = engine.run("labels", iterations=iterations)
        assert found.answer.values.tolist() == expected.values.tolist()
        assert found.answer.summary == expected.summary
        assert found.answer.receipt.supersteps == iterations
    assert answers[3].answer.values[:2].tolist() == [1, 0]
    last = answers[10]
    assert last.windows >= 4
    assert last.processed < 10 * last.windows / 2
    assert last.answer.receipt.edges < engine.run("labels").receipt.edges / 2


def test_votes_take_what_the_budget_says() -> None:
    rows, each = 1 << 11, 16
    labels = np.arange(rows, dtype=np.int32)
    with traced() as peak:
        votes = np.arange(rows * each)  # no two are for the same label
        votes += votes // each << 32
        most_frequent(np, votes, labels)
    taken = peak.bytes / len(votes)
    assert VOTE_BYTES / 2 < taken <= VOTE_BYTES


@pytest.mark.parametrize("name", NAMES)
def test_a_graph_without_edges_has_answers(backend: Backend, name: str) -> None:
    loop = np.array([3]), np.array([3]), np.ones(1, np.float32)
    with added(loop, Options(), backend, 1 << 20, 4) as graph:
        found = graph.run(name)
    expected = in_memory(loop, Options(), backend, 4).run(name)
    assert found.answer.values.tolist() == expected.values.tolist()
    assert found.answer.summary == expected.summary


@pytest.mark.parametrize(
    ("name", "directed"), [*((name, True) for name in NAMES), ("labels", False)]
)
def test_arrays_stay_within_the_budget(name: str, directed: bool) -> None:
    vertices, backend = 1 << 14, backend_named("cpu")
    backend = replace(backend, sizes=replace(backend.sizes, piece=1 << 10))
    streamed = 1 << (21 if name in ("trussness", "dn-graphs") else 18)
    columns = network(vertices, 12 * vertices)
    memory = vertices * ranking.algorithm_bytes(backend, weighted=False) + streamed
    options = Options(directed=directed)
    with added(network(), options, backend, 1 << 22, VERTICES) as graph:
        graph.run(name)  # loads modules
    with added(columns, options, backend, memory, vertices) as graph, traced() as peak:
        found = graph.run(name)
    assert found.windows >= 2
    assert peak.bytes <= memory + (1 << 18)


@pytest.mark.parametrize("name", ["cores", "labels", "support"])
def test_the_least_budget_is_that_of_edges_without_direction(backend: Backend, name: str) -> None:
    """A hub of which the longest list has its out-edges; its in-lists are short."""
    leaves = np.arange(1, 3001)
    hub = np.zeros(3000, np.int64), leaves, np.ones(3000, np.float32)
    with added(hub, Options(), backend, 1, 3001) as graph:
        least = least_memory(graph, name)
    with added(hub, Options(), backend, least, 3001) as graph:
        needed = least_memory(graph, name)
    assert needed > least
    with added(hub, Options(), backend, needed, 3001) as graph:
        found = graph.run(name)
    expected = in_memory(hub, Options(), backend, 3001).run(name)
    assert found.answer.values.tolist() == expected.values.tolist()


def test_values_of_edges_outlive_the_graph_and_are_in_no_array_of_it(tmp_path: Path) -> None:
    columns = network()
    options = Options()
    with OutOfCorePrograms(1 << 20, options, "cpu", tmp_path) as graph:
        graph.add(*columns[:2])
        answer = graph.run("support").answer
    assert isinstance(answer.values, np.memmap)
    assert answer.edges is not None
    assert all(isinstance(ends, np.memmap) for ends in answer.edges)
    assert not list(tmp_path.iterdir())
    backend = backend_named("cpu")
    expected = in_memory(columns, options, backend, int(max(map(np.max, columns[:2]))) + 1)
    assert answer.values.tolist() == expected.run("support").values.tolist()


def test_algorithms_that_are_not_built_in_are_refused_by_name() -> None:
    own = replace(SUPPORT, name="own")
    known = (
        "pagerank, levels, distances, paths, components, labels, cores, densest, triangles, "
        "clustering, support, trussness, dn-graphs for a graph out of core"
    )
    with (
        OutOfCorePrograms(1 << 20, backend="cpu") as graph,
        pytest.raises(InvalidValue, match=f"program: 'own' .* one of {known}"),
    ):
        graph.run(own)


@pytest.mark.parametrize(
    ("mode", "given", "message"),
    [
        ("asynchronous", {}, "mode: 'asynchronous' .* 'synchronous' for densest"),
        (None, {"epsilon": -1.0}, "epsilon: -1.0"),
        (None, {"depth": 1}, r"densest\(depth\)"),
    ],
)
def test_what_cannot_run_is_refused(mode: Any, given: dict[str, Any], message: str) -> None:
    with OutOfCorePrograms(1 << 20, backend="cpu") as graph:
        graph.add(np.array([0]), np.array([1]))
        with pytest.raises(InvalidValue, match=message):
            graph.run("densest", mode, **given)
