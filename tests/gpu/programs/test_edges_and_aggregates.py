"""Messages along chosen edges, aggregates, and values of edges, beside loops over the edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from numpy.typing import NDArray

from liverank_gpu import Answer, EdgeBatch, Engine, InvalidValue, Options, VertexProgram
from liverank_gpu.operations.backend import Backend
from liverank_gpu.programs.algorithms import COMPONENTS, LEVELS, PAGERANK
from tests.gpu.graphs import arcs_of
from tests.gpu.programs import oracle
from tests.gpu.programs.test_records import EACH_KIND, SOURCE, arcs_with_weights, engine_of

# ---- messages along chosen edges ----


def _heavy(weight: Any, sender: Any, receiver: Any, least: Any) -> Any:
    return weight >= least and receiver % 7 != sender % 7


HEAVY_LEVELS = replace(
    LEVELS, name="heavy", sends=_heavy, first_wins=False, parameters={"source": 0, "least": 3.0}
)
HEAVY_COMPONENTS = replace(COMPONENTS, name="heavy", sends=_heavy, parameters={"least": 3.0})


def heavy_part(engine: Engine) -> nx.DiGraph:
    """Of the graph the edges along which these programs send."""
    graph = oracle.graph_of(engine)
    light = [
        (u, v) for u, v, weight in graph.edges(data="weight") if weight < 3.0 or u % 7 == v % 7
    ]
    graph.remove_edges_from(light)
    return graph


@pytest.mark.any_thread_order
@pytest.mark.parametrize("mode", ["synchronous", "asynchronous"])
@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_messages_go_along_chosen_edges(backend: Backend, directed: bool, mode: str) -> None:
    engine = engine_of(backend, Options(directed=directed, weighted=True))
    part = heavy_part(engine)
    answer = engine.run(HEAVY_LEVELS, mode=mode, source=SOURCE)
    levels = oracle.levels(part, SOURCE)
    assert (answer.values == oracle.by_id(levels, answer.values)).all()
    if mode == "synchronous":
        assert answer.receipt.edges == sum(
            part.out_degree(v) for v in levels if levels[v] < 2**31 - 1
        )
    answer = engine.run(HEAVY_COMPONENTS, mode=mode)
    assert (answer.values == oracle.by_id(oracle.components(part), answer.values)).all()


def test_only_edges_along_which_messages_go_matter_to_an_earlier_answer(backend: Backend) -> None:
    engine = engine_of(backend, Options(weighted=True))
    answer = engine.run(HEAVY_LEVELS, source=SOURCE)
    part, generator, continued = heavy_part(engine), np.random.default_rng(3), []
    light = sorted(set(oracle.graph_of(engine).edges) - set(part.edges))
    for gone in (light[:9], list(nx.bfs_edges(part, SOURCE))[:1]):
        sources, targets = generator.integers(0, 90, (2, 5))
        weights = generator.integers(8, 64, 5).astype(np.float32)
        engine.apply(EdgeBatch(sources, targets, weights=weights))
        engine.apply(EdgeBatch.of(delete=gone))
        answer = engine.run(HEAVY_LEVELS, source=SOURCE, after=answer)
        levels = oracle.levels(heavy_part(engine), SOURCE)
        assert (answer.values == oracle.by_id(levels, answer.values)).all()
        continued.append(answer.receipt.continued)
    assert continued == [True, False]


def _to_lower(sender: Any, receiver: Any) -> Any:
    return receiver <= sender


def test_every_vertex_may_choose_edges_too(backend: Backend) -> None:
    engine = engine_of(backend, Options())
    counting = replace(
        COUNTED, sends=_to_lower, every_vertex=True, loops=True, scatter=_never, supersteps=5
    )
    answer = engine.run(counting)
    sources, targets = arcs_of(engine)
    expected = np.bincount(targets[targets <= sources], minlength=engine.id_limit)
    assert (answer.values == expected).all()
    loops = int((sources == targets).sum())
    assert answer.receipt.edges in (expected.sum(), expected.sum() - loops)
    assert answer.receipt.supersteps == 1


def _nothing() -> Any:
    return 0


def _one() -> Any:
    return 1


def _gathered(gathered: Any) -> Any:
    return gathered


def _never(old: Any, new: Any) -> Any:  # noqa: ARG001
    return False


COUNTED = VertexProgram("counted", "int64", 0, _nothing, _one, "sum", _gathered, _never)


# ---- aggregates ----


def _at(vertex: Any, source: Any) -> Any:
    return 1 if vertex == source else 0


def _sum_so_far(source_value: Any, aggregate: Any, superstep: Any) -> Any:
    return source_value + int(aggregate) % 5 + superstep


def _more(old: Any, gathered: Any, aggregate: Any) -> Any:
    return old + gathered + int(aggregate) % 3


def _while_few(old: Any, new: Any, aggregate: Any, superstep: Any, most: Any) -> Any:
    return old != new and aggregate < most and superstep < 6


def _not_zero(value: Any) -> Any:
    return 1.0 if value != 0 else 0.0


SPREAD = VertexProgram(
    "spread",
    "int64",
    0,
    initial=_at,
    gather=_sum_so_far,
    merge="sum",
    apply=_more,
    scatter=_while_few,
    aggregate=_not_zero,
    parameters={"source": 0, "most": 40},
)


def expected_spread(engine: Engine, most: float) -> tuple[list[int], float]:
    arcs, count = arcs_with_weights(engine), engine.id_limit
    values, active = [int(v == SOURCE) for v in range(count)], {SOURCE}
    superstep = 0
    while active:
        aggregate, gathered = sum(each != 0 for each in values), dict[int, int]()
        for u, v, _ in arcs:
            if u in active and u != v:
                sent = values[u] + aggregate % 5 + superstep
                gathered[v] = gathered.get(v, 0) + sent
        new = {v: values[v] + each + aggregate % 3 for v, each in gathered.items()}
        active = {v for v in new if new[v] != values[v] and aggregate < most and superstep < 6}
        for v, each in new.items():
            values[v] = each
        superstep += 1
    return values, float(sum(each != 0 for each in values))


@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_an_aggregate_is_seen_by_the_next_superstep(backend: Backend, directed: bool) -> None:
    engine = engine_of(backend, Options(directed=directed))
    ends = set()
    for most in (5, 40, 1000):
        answer = engine.run(SPREAD, source=SOURCE, most=most)
        values, aggregate = expected_spread(engine, most)
        assert answer.values.tolist() == values
        assert answer.summary == {"aggregate": aggregate}
        ends.add(answer.receipt.supersteps)
    assert len(ends) == 3  # so the aggregate decided when it ended


# ---- values of edges ----


def _base(vertices: Any, damping: Any) -> Any:
    return (1.0 - damping) / vertices


def _what_is_new(source_value: Any, share: Any, edge: Any) -> Any:
    return source_value * share - edge.sent


def _what_was_sent(edge: Any, source_value: Any, share: Any) -> Any:
    return source_value * share, edge.messages + 1


def _raised(old: Any, gathered: Any, damping: Any) -> Any:
    return old + damping * gathered


def _far(old: Any, new: Any, vertices: Any) -> Any:
    return abs(new - old) > 1e-13 / vertices


EDGES: Mapping[str, Any] = {"sent": "float64", "messages": "int32"}
DELTAS = VertexProgram(
    "deltas",
    "float64",
    0.0,
    initial=_base,
    gather=_what_is_new,
    merge="sum",
    apply=_raised,
    scatter=_far,
    edge_dtype=EDGES,
    edge_initial=(0.0, 0),
    edge_apply=_what_was_sent,
    parameters={"damping": 0.85},
)
"""PageRank of active vertices: an edge knows what was sent along it, so only what is new is sent.
What dangling vertices have is lost.
"""


def assert_deltas(engine: Engine, answer: Answer, most: float = 1e-9) -> None:
    """Values are x = (1-α)/n + α·Pᵀx, by a dense solve; edges have xᵤ/dᵤ."""
    arcs = [(u, v, weight) for u, v, weight in arcs_with_weights(engine) if u != v]
    count = engine.vertices
    strength, matrix = np.zeros(count), np.zeros((count, count))
    for u, _, weight in arcs_with_weights(engine):
        strength[u] += weight
    for u, v, weight in arcs:
        matrix[v, u] = weight / strength[u]
    expected = np.linalg.solve(np.eye(count) - 0.85 * matrix, np.full(count, 0.15 / count))
    assert np.abs(answer.values - expected).sum() < most
    found = answer.edge_values
    assert found is not None
    assert found.values.dtype.names == ("sent", "messages")
    ends = list(zip(found.sources.tolist(), found.targets.tolist(), strict=True))
    assert sorted(ends) == sorted((u, v) for u, v, _ in arcs)
    shares = np.array([matrix[v, u] * expected[u] for u, v in ends])
    assert np.abs(found.values["sent"] - shares).sum() < most
    assert found.values["messages"].sum() == answer.receipt.edges
    assert 1 <= found.values["messages"].min() < found.values["messages"].max()


@pytest.mark.any_thread_order
@EACH_KIND
def test_edges_keep_what_was_sent_along_them(
    backend: Backend, directed: bool, weighted: bool
) -> None:
    engine = engine_of(backend, Options(directed=directed, weighted=weighted))
    assert_deltas(engine, engine.run(DELTAS))


def test_batches_may_come_while_edges_have_values(backend: Backend) -> None:
    engine, same = (engine_of(backend, Options(weighted=True)) for _ in range(2))
    run = engine.programs.begin(DELTAS)
    generator = np.random.default_rng(4)
    while not run.done:
        run.step(0.0)
        sources, targets = generator.integers(0, 90, (2, 40))
        engine.apply(EdgeBatch(sources, targets, weights=np.ones(40, np.float32)))
    assert_deltas(same, run.answer())
    engine.programs.close(run)


def _last(source_value: Any) -> Any:
    return source_value


def _label(vertex: Any) -> Any:
    return vertex + 1


def _with_edge(edge: Any, source_value: Any) -> Any:
    return edge * 10 + source_value


def _half(source_value: Any, edge: Any) -> Any:
    return source_value + edge


def _sum_mod(gathered: Any) -> Any:
    return gathered % 1000


HISTORY = VertexProgram(
    "history",
    "int64",
    0,
    initial=_label,
    gather=_half,
    merge="sum",
    apply=_sum_mod,
    scatter=_never,
    edge_dtype="int64",
    edge_initial=7,
    edge_apply=_with_edge,
    every_vertex=True,
    supersteps=1,
)


def _not_yet(old: Any, new: Any, superstep: Any) -> Any:  # noqa: ARG001
    return superstep < 3


FOUR = replace(HISTORY, scatter=_not_yet, supersteps=10)


def assert_history(engine: Engine, answer: Answer) -> None:
    values = np.arange(1, engine.id_limit + 1)
    edges = {(u, v): 7 for u, v, _ in arcs_with_weights(engine) if u != v}
    for _ in range(4):
        gathered: NDArray[np.int64] = np.zeros_like(values)
        for (u, v), edge in edges.items():
            gathered[v] += values[u] + edge
        edges = {(u, v): 10 * edge + int(values[u]) for (u, v), edge in edges.items()}
        values = gathered % 1000
    found = answer.edge_values
    assert found is not None
    ends = zip(found.sources.tolist(), found.targets.tolist(), strict=True)
    assert dict(zip(ends, found.values.tolist(), strict=True)) == edges
    assert (answer.values == values).all()
    assert answer.receipt.supersteps == 4


@pytest.mark.parametrize("directed", [True, False], ids=["directed", "undirected"])
def test_values_of_edges_where_every_vertex_is_active(backend: Backend, directed: bool) -> None:
    engine = engine_of(backend, Options(directed=directed))
    assert_history(engine, engine.run(FOUR))


# ---- what is refused ----


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        (DELTAS, {"edge_apply": None}, "edge_apply: None .* a function where edge_dtype is given"),
        (DELTAS, {"edge_dtype": None}, "edge_apply: .* a function where edge_dtype is given"),
        (DELTAS, {"edge_dtype": "int8"}, "edge_dtype: 'int8'"),
        (DELTAS, {"edge_initial": 0.0}, "edge_initial: 0.0 .* a tuple of sent, messages"),
        (DELTAS, {"direction": "both"}, "edge_dtype: .* None where monotone, loops, or direction"),
        (DELTAS, {"monotone": True}, "edge_dtype: .* None where monotone"),
        (LEVELS, {"sends": _heavy}, r"levels\.sends\(least\), line 1: 'least'"),
        (HEAVY_LEVELS, {"first_wins": True}, "first_wins: True .* False for records, and where"),
        (LEVELS, {"aggregate": _not_zero}, "aggregate: .* left out where monotone"),
        (
            LEVELS,
            {"gather": _sum_so_far},
            r"levels\.gather: .* one without superstep and aggregate",
        ),
        (PAGERANK, {"gather": _half}, r"pagerank\.gather\(edge\), line 1: 'edge'"),
    ],
)
def test_what_cannot_be_is_refused(
    program: VertexProgram, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidValue, match=f"^{message}"):
        replace(program, **options)
