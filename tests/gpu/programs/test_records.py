"""Programs with several numbers a vertex, and shortest paths with predecessors, beside plain loops
over the edges.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liverank_gpu import Answer, EdgeBatch, Engine, InvalidValue, Options, VertexProgram
from liverank_gpu.operations.backend import Backend
from liverank_gpu.programs.algorithms import DISTANCES, NO_VERTEX, PATHS
from tests.gpu.graphs import arc_weights_of, arcs_of
from tests.gpu.out_of_core.streamed import network
from tests.gpu.programs import oracle

KINDS = [(True, False), (True, True), (False, True)]
EACH_KIND = pytest.mark.parametrize(
    ("directed", "weighted"), KINDS, ids=["directed", "weighted", "undirected"]
)

SOURCE = 5
RULED = "'synchronous' for paths"


def engine_of(backend: Backend, options: Options) -> Engine:
    engine, (sources, targets, weights) = Engine(options, backend), network(80, 300)
    given = weights if options.weighted else None
    engine.apply(EdgeBatch(sources, targets, vertices=90, weights=given))
    return engine


def arcs_with_weights(engine: Engine) -> list[tuple[int, int, float]]:
    columns = (*arcs_of(engine), arc_weights_of(engine).astype(np.float64))
    return list(zip(*(column.tolist() for column in columns), strict=True))


def expected_paths(engine: Engine, source: int) -> list[tuple[float, int]]:
    """By Dijkstra's algorithm of NetworkX, and of the last edges of shortest paths the lowest."""
    distance = oracle.distances(oracle.graph_of(engine), source)
    found = {v: (length, NO_VERTEX) for v, length in distance.items()}
    for u, v, length in sorted(arcs_with_weights(engine), reverse=True):
        if v != source and math.isfinite(distance[v]) and distance[u] + length == distance[v]:
            found[v] = distance[v], u
    return [found.get(v, (math.inf, NO_VERTEX)) for v in range(engine.id_limit)]


@pytest.mark.any_thread_order
@EACH_KIND
def test_paths_name_the_lowest_predecessor(
    backend: Backend, directed: bool, weighted: bool
) -> None:
    engine = engine_of(backend, Options(directed=directed, weighted=weighted))
    answer = engine.run("paths", source=SOURCE)
    assert answer.values.dtype.names == ("distance", "predecessor")
    assert answer.values.tolist() == expected_paths(engine, SOURCE)
    assert answer.receipt.finished


def test_paths_continue_after_batches_unless_one_is_gone(backend: Backend) -> None:
    engine = engine_of(backend, Options(weighted=True))
    answer = engine.run("paths", source=SOURCE)
    generator, continued = np.random.default_rng(1), []
    for step in range(8):
        sources, targets = generator.integers(0, 90, (2, 12))
        lengths = (generator.integers(1, 64, 12) / 8).astype(np.float32)
        batch = EdgeBatch(sources, targets, weights=lengths)
        if step % 2:
            gone = [
                arcs_with_weights(engine)[at][:2] for at in generator.integers(0, engine.edges, 3)
            ]
            batch = EdgeBatch.of(delete=gone)
        engine.apply(batch)
        answer = engine.run("paths", source=SOURCE, after=answer)
        assert answer.values.tolist() == expected_paths(engine, SOURCE)
        continued.append(answer.receipt.continued)
    assert {True, False} == set(continued)


def test_only_the_edge_of_the_predecessor_matters(backend: Backend) -> None:
    engine = Engine(Options(weighted=True), backend)
    engine.apply(EdgeBatch.of([(0, 1, 1.0), (0, 2, 1.0), (1, 3, 1.0), (2, 3, 1.0)]))
    first = engine.run("paths", source=0)
    engine.apply(EdgeBatch.of(delete=[(2, 3)]))
    second = engine.run("paths", source=0, after=first)
    assert second.receipt.continued
    engine.apply(EdgeBatch.of([(2, 3, 1.0)], delete=[(1, 3)]))
    third = engine.run("paths", source=0, after=second)
    assert not third.receipt.continued
    assert third.values["predecessor"].tolist() == [-1, 0, 0, 2]


# ---- a record of eight numbers of all types: sums over all walks of a few steps ----


def _first_record(vertex: Any, out_degree: Any, in_degree: Any) -> Any:
    return vertex, 1, vertex * 0.25, 0.5, in_degree, -vertex, out_degree, 1.0


def _both_ends(source_value: Any, sender: Any, receiver: Any, share: Any) -> Any:
    a = source_value.a + receiver
    kept = source_value
    h = source_value.h * share
    return a, kept.b + sender, kept.c + 0.5, kept.d, kept.e % 7, kept.f, kept.g, h


def _sums(a: Any, b: Any) -> Any:
    f = max(a.f, b.f)
    return a.a + b.a, a.b + b.b, a.c + b.c, a.d + b.d, min(a.e, b.e), f, max(a.g, b.g), a.h + b.h


def _replaced(old: Any, gathered: Any, superstep: Any) -> Any:
    return gathered if superstep % 2 == 0 or gathered == old else old


def _always(old: Any, new: Any) -> Any:
    return old != new or old == new


EIGHT = {
    **{"a": "int32", "b": "int64", "c": "float32", "d": "float64"},
    **{"e": "int64", "f": "int32", "g": "float64", "h": "float32"},
}
MANY = VertexProgram(
    "many",
    EIGHT,  # type: ignore[arg-type]
    (0, 0, 0.0, 0.0, 2**62, -(2**31), -math.inf, 0.0),
    initial=_first_record,
    gather=_both_ends,
    merge=_sums,
    apply=_replaced,
    scatter=_always,
    supersteps=2,
)


def _expected_many(engine: Engine) -> list[tuple[Any, ...]]:
    """Both supersteps, of which the second leaves values as they are."""
    arcs = arcs_with_weights(engine)
    out, inside = np.zeros(engine.id_limit), np.zeros(engine.id_limit, int)
    for u, v, weight in arcs:
        out[u] += weight
        inside[v] += u != v
    values: list[tuple[Any, ...]] = [
        (v, 1, v * 0.25, 0.5, int(inside[v]), -v, float(out[v]), 1.0) for v in range(len(out))
    ]
    gathered: dict[int, list[tuple[Any, ...]]] = {}
    for u, v, weight in arcs:
        if u != v:
            a, b, c, d, e, f, g, h = values[u]
            message = (a + v, b + u, c + 0.5, d, e % 7, f, g, h * weight / out[u])
            gathered.setdefault(v, []).append(message)
    for v, messages in gathered.items():
        columns = list(zip(*messages, strict=True))
        combine = (sum, sum, sum, sum, min, max, max, sum)
        values[v] = tuple(of(column) for of, column in zip(combine, columns, strict=True))  # type: ignore[operator]
    return values


@pytest.mark.any_thread_order
@EACH_KIND
def test_eight_numbers_of_every_type(backend: Backend, directed: bool, weighted: bool) -> None:
    engine = engine_of(backend, Options(directed=directed, weighted=weighted))
    assert_many(engine, engine.run(MANY))


def assert_many(engine: Engine, answer: Answer) -> None:
    """Sums of float32 in another order differ by rounding."""
    expected = np.array(_expected_many(engine), answer.values.dtype)
    for name in EIGHT:
        error = np.abs(answer.values[name] - expected[name]).max()
        assert error <= (1e-5 if name in "ch" else 0.0), name
    assert answer.receipt.supersteps == 2
    assert not answer.receipt.finished


# ---- records where every vertex is active: hubs and authorities in one go ----


def _one_each(vertices: Any) -> Any:
    return 1.0 / vertices, 0.0


def _fed(source_value: Any, share: Any) -> Any:
    return source_value.rank * share, 1


def _added(a: Any, b: Any) -> Any:
    return a.rank + b.rank, a.messages + b.messages


def _ranked(gathered: Any, aggregate: Any, vertices: Any) -> Any:
    return 0.15 / vertices + 0.85 * (gathered.rank + aggregate / vertices), gathered.messages


def _moves(old: Any, new: Any) -> Any:
    return abs(old.rank - new.rank) > 1e-14


def _kept_by_dangling(value: Any, out_degree: Any) -> Any:
    return value.rank if out_degree == 0.0 else 0.0


RANKED = VertexProgram(
    "ranked",
    {"rank": "float64", "messages": "int32"},
    (0.0, 0),
    initial=_one_each,
    gather=_fed,
    merge=_added,
    apply=_ranked,
    scatter=_moves,
    aggregate=_kept_by_dangling,
    every_vertex=True,
    loops=True,
    supersteps=200,
)


@EACH_KIND
def test_records_of_every_vertex_are_ranks_and_in_degrees(
    backend: Backend, directed: bool, weighted: bool
) -> None:
    engine = engine_of(backend, Options(directed=directed, weighted=weighted))
    answer = engine.run(RANKED)
    assert_ranked(engine, answer)


def assert_ranked(engine: Engine, answer: Answer) -> None:
    """Ranks are those of the program that has nothing but them."""
    expected = engine.run("pagerank", tolerance=1e-12).values
    arrived = np.bincount(arcs_of(engine)[1], minlength=engine.id_limit)
    assert np.abs(answer.values["rank"] - expected).sum() < 1e-10
    assert (answer.values["messages"] == arrived).all()


# ---- what is refused ----


def _no_field(old: Any, gathered: Any) -> Any:
    return gathered.length, old.predecessor


def _too_few(old: Any, gathered: Any) -> Any:  # noqa: ARG001
    return (gathered.distance,)


def _a_number(old: Any, gathered: Any) -> Any:  # noqa: ARG001
    return gathered.distance


def _compared(old: Any, gathered: Any) -> Any:
    return old if old < gathered else gathered


def _calculated(old: Any, gathered: Any) -> Any:
    return old + gathered, 1


def _mixed(old: Any, gathered: Any) -> Any:
    best = old
    if gathered.distance < 1.0:
        best = 1.0
    return best


@pytest.mark.parametrize(
    ("apply", "message"),
    [
        (_no_field, "line 2: 'gathered.length' .* a record of distance, predecessor"),
        (_too_few, "line 2: .* a record of distance, predecessor"),
        (_a_number, "line 2: .* a record of distance, predecessor"),
        (_compared, "line 2: 'old < gathered' .* == or != of two records"),
        (_calculated, "line 2: 'old' .* a number: a field of a record of distance, predecessor"),
        (_mixed, "line 4: .* values of one kind"),
    ],
)
def test_functions_that_misuse_records_are_refused(apply: Callable[..., Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=rf"^paths\.apply, {message}"):
        replace(PATHS, apply=apply)


NINE = dict.fromkeys("abcdefghi", "int32")


@pytest.mark.parametrize(
    ("program", "options", "message"),
    [
        (PATHS, {"dtype": {}}, "dtype: .* a record of 1 to 8 fields"),
        (PATHS, {"dtype": NINE}, "dtype: .* a record of 1 to 8 fields"),
        (PATHS, {"dtype": {"_a": "int32"}}, "dtype: '_a' .* without an underscore"),
        (PATHS, {"dtype": {"class": "int32"}}, "dtype: 'class'"),
        (PATHS, {"dtype": {"a": "int8"}}, r"dtype\.a: 'int8' .* 'int32' or 'int64'"),
        (PATHS, {"identity": 0.0}, "identity: 0.0 .* a tuple of distance, predecessor"),
        (PATHS, {"identity": (0.0, 2**31)}, r"identity\.predecessor: .* an int32"),
        (PATHS, {"merge": "min"}, r"paths\.merge: 'min' .* a function of a and b"),
        (PATHS, {"first_wins": True}, "first_wins: True .* False for records"),
        (DISTANCES, {"dtype": "int8"}, "dtype: 'int8' .* 'int32' or 'int64'"),
    ],
)
def test_records_that_cannot_be_are_refused(
    program: VertexProgram, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(InvalidValue, match=f"^{message}"):
        replace(program, **options)


def _nearest_or_mean(a: Any, b: Any) -> Any:
    return (a.distance + b.distance) / 2, min(a.predecessor, b.predecessor)


def test_a_merge_of_records_that_depends_on_the_order_is_refused() -> None:
    with pytest.raises(InvalidValue, match=r"^paths\.merge: .* associative"):
        replace(PATHS, merge=_nearest_or_mean)


def test_records_do_not_change_in_place(backend: Backend) -> None:
    engine = engine_of(backend, Options())
    with pytest.raises(InvalidValue, match=f"mode: .* {RULED}"):
        engine.run("paths", mode="asynchronous", source=SOURCE)


def test_records_of_no_edges(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of([], vertices=3))
    assert engine.run("paths", source=1).values.tolist() == [
        (math.inf, -1),
        (0.0, -1),
        (math.inf, -1),
    ]
