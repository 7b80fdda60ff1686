"""What users write, what they get, and what is refused."""

from __future__ import annotations

import gc
import math
import weakref
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liverank_gpu import EdgeBatch, Engine, InvalidValue, Options, UnknownVertex, VertexProgram
from liverank_gpu.operations.backend import Backend
from liverank_gpu.programs.algorithms import COMPONENTS, DISTANCES, LEVELS, PAGERANK, TRIANGLES
from tests.gpu.programs import oracle

FORTY = 40


def _initial(vertex: Any, in_degree: Any, out_degree: Any) -> Any:
    if vertex % 7 == 3 or in_degree > 2:
        value = vertex - 20
        value += 1 if out_degree > 1.5 else 0
    elif vertex // 3 > 5 and in_degree != 1:
        value = -(vertex // -4)
    else:
        value = FORTY
    return value


def _gather(source_value: Any, weight: Any, share: Any, factor: Any) -> Any:
    """What is sent, in a strange unit."""
    sent = source_value * factor + min(weight, 2, 3.5) + abs(share - 0.5)
    return sent if 0.0 <= sent < 30.0 or math.isinf(sent) else -sent / 2


def _merge(a: Any, b: Any) -> Any:
    return a if a > b else b


def _apply(
    old: Any, gathered: Any, vertex: Any, superstep: Any, aggregate: Any, vertices: Any
) -> Any:
    if math.isinf(gathered):
        return old
    whole = float(int(gathered)) + superstep / 4 + math.floor(gathered)
    return max(old, whole) + aggregate / (vertices + vertex + 1.0)


def _scatter(old: Any, new: Any) -> Any:
    return old != new and new < 1e6


def _above(value: Any, vertex: Any) -> Any:
    return value if vertex >= 2 else 0.5


STRANGE = VertexProgram(
    "strange",
    "float64",
    -math.inf,
    initial=_initial,
    gather=_gather,
    merge=_merge,
    apply=_apply,
    scatter=_scatter,
    aggregate=_above,
    aggregator="max",
    parameters={"factor": 0.5},
    every_vertex=True,
    supersteps=3,
)


def _in_python(engine: Engine, factor: float) -> list[float]:
    """STRANGE, one vertex at a time."""
    count = engine.vertices
    sources, targets = (column.tolist() for column in engine.edge_list())
    weights = engine.edge_weights().tolist()
    strength = [0.0] * count
    for source, weight in zip(sources, weights, strict=True):
        strength[source] += weight
    values = [float(_initial(v, targets.count(v), strength[v])) for v in range(count)]
    for superstep in range(STRANGE.supersteps):
        aggregate = max(_above(values[v], v) for v in range(count))
        merged = [-math.inf] * count
        for source, target, weight in zip(sources, targets, weights, strict=True):
            sent = _gather(values[source], weight, weight / strength[source], factor)
            merged[target] = _merge(merged[target], sent)
        values = [
            float(_apply(values[v], merged[v], v, superstep, aggregate, count))
            for v in range(count)
        ]
    return values


def test_a_program_of_a_user_computes_what_python_does(backend: Backend) -> None:
    generator = np.random.default_rng(1)
    engine = Engine(Options(weighted=True, vertex_order="degree"), backend)
    columns = np.unique(generator.integers(0, 40, (2, 120)), axis=1)
    columns = columns[:, columns[0] != columns[1]]
    weights = np.asarray(generator.integers(1, 20, columns.shape[1]) / 4.0, np.float32)
    sources, targets = columns
    engine.apply(EdgeBatch(sources, targets, vertices=40, weights=weights))
    answer = engine.run(STRANGE, factor=0.75)
    assert answer.values.tolist() == pytest.approx(_in_python(engine, 0.75), rel=1e-12)
    receipt = answer.receipt
    assert (receipt.supersteps, receipt.finished, receipt.continued) == (3, False, False)
    assert receipt.edges == 3 * engine.edges
    assert answer.parameters == {"factor": 0.75}
    highest = max(_above(value, v) for v, value in enumerate(answer.values.tolist()))
    assert answer.summary["aggregate"] == pytest.approx(highest)


def _chain(backend: Backend, **options: Any) -> Engine:
    """0 → 1 → … → 9, and 0 → 5."""
    engine = Engine(Options(**options), backend)
    engine.apply(EdgeBatch.of([*((v, v + 1) for v in range(9)), (0, 5)]))
    return engine


def test_a_deletion_that_cannot_matter_does_not_start_a_program_again(backend: Backend) -> None:
    engine = _chain(backend)
    first = engine.run(LEVELS)
    engine.apply(EdgeBatch.of(delete=[(4, 5)]))  # 5 was reached from 0
    second = engine.run(LEVELS, after=first)
    assert second.receipt.continued
    assert second.receipt.edges == 0
    assert second.values.tolist() == first.values.tolist() == [0, 1, 2, 3, 4, 1, 2, 3, 4, 5]
    engine.apply(EdgeBatch.of(delete=[(0, 5)]))
    third = engine.run(LEVELS, after=second)
    assert not third.receipt.continued
    assert third.values.tolist()[5:] == [2**31 - 1] * 5
    # the first answer was of another graph, in which nothing has changed since
    assert not engine.run(LEVELS, after=first).receipt.continued


def test_answers_stay_as_they_were_and_batches_between_them_add_up(backend: Backend) -> None:
    engine = _chain(backend)
    first = engine.run(COMPONENTS)
    for v in (12, 10, 14):
        engine.apply(EdgeBatch.of([(v, v + 1)]))
    engine.apply(EdgeBatch.of([(15, 11), (15, 16)]))
    engine.apply(EdgeBatch.of(delete=[(15, 16)]))  # which the answer never knew
    second = engine.run(COMPONENTS, after=first)
    assert second.receipt.continued
    assert second.values.tolist() == [0] * 10 + [10, 10, 12, 12, 10, 10, 16]
    assert first.values.tolist() == [0] * 10
    engine.apply(EdgeBatch.of(remove=[3]))
    third = engine.run(COMPONENTS, after=second)
    assert not third.receipt.continued
    assert third.values.tolist()[:10] == [0, 0, 0, COMPONENTS.identity, *[0] * 6]


def test_sources_of_many_batches_are_merged(backend: Backend) -> None:
    engine = _chain(backend)
    answer = engine.run(COMPONENTS)
    for v in range(10, 90):
        engine.apply(EdgeBatch.of([(9, v)]))
    assert len(answer.since.sources) < 80
    later = engine.run(COMPONENTS, after=answer)
    assert later.receipt.continued
    assert not later.values.any()


def test_an_answer_that_nobody_holds_costs_batches_nothing(backend: Backend) -> None:
    engine = _chain(backend)
    answer = engine.run(LEVELS)
    held = weakref.ref(answer)
    del answer
    gc.collect()
    assert held() is None


def test_a_run_that_stops_early_says_so_and_is_not_continued(backend: Backend) -> None:
    engine = _chain(backend)
    short = replace(LEVELS, supersteps=2)
    answer = engine.run(short, source=0)
    assert not answer.receipt.finished
    assert answer.receipt.supersteps == 2
    assert answer.values.tolist() == [0, 1, 2, *[2**31 - 1] * 2, 1, 2, *[2**31 - 1] * 3]
    assert not engine.run(short, after=answer).receipt.continued


def test_what_cannot_be_run_is_refused(backend: Backend) -> None:
    engine = _chain(backend)
    levels = engine.run("levels")
    for arguments, message in (
        ({"program": "level"}, "program: 'level'"),
        ({"program": "levels", "root": 3}, r"levels\(root\)"),
        ({"program": "levels", "source": 1.5}, "source: 1.5"),
        ({"program": "components", "source": 1}, r"components\(source\)"),
        ({"program": "densest", "epsilon": -1.0}, "epsilon"),
        ({"program": "labels", "iterations": 0}, "iterations"),
        ({"program": "labels", "iterations": 0.5}, "iterations: 0.5"),
        ({"program": "levels", "mode": "parallel"}, "mode: 'parallel'"),
        ({"program": TRIANGLES, "mode": "asynchronous"}, "'synchronous' for triangles"),
        ({"program": PAGERANK, "mode": "asynchronous"}, "'synchronous' for pagerank"),
        ({"program": "levels", "schedule": "edges"}, r"levels\(schedule\)"),
        ({"program": "levels", "source": 3, "after": levels}, "these parameters"),
        ({"program": "components", "after": levels}, "an answer of this program"),
    ):
        with pytest.raises(InvalidValue, match=message):
            engine.run(**arguments)
    for epsilon in (1, 1e308):
        assert engine.run("densest", epsilon=epsilon).values.all()
    with pytest.raises(UnknownVertex, match="source: 10"):
        engine.run("distances", source=10)


@pytest.mark.parametrize("known", [8, 5])
def test_ties_of_labels_go_by_the_given_order(backend: Backend, known: int) -> None:
    """Of the vertices that it has; others follow."""
    edges = [(0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 0), (3, 0), (6, 7), (7, 6), (7, 2)]
    engine = Engine(Options(directed=False), backend)
    engine.apply(EdgeBatch.of(edges))
    order = np.random.default_rng(4).permutation(known).astype(np.int32)
    place = [*order.tolist(), *range(known, 8)]
    expected = oracle.communities({tuple(sorted((place[u], place[v]))) for u, v in edges}, 3)
    found = engine.programs.run("labels", given={"iterations": 3}, order=order)
    assert {place[v]: place[label] for v, label in enumerate(found.values.tolist())} == expected
    assert found.values.tolist() != engine.run("labels", iterations=3).values.tolist()


def test_weights_that_decay_are_no_lengths(backend: Backend) -> None:
    engine = Engine(Options(half_life=10.0), backend)
    engine.apply(EdgeBatch(np.array([0]), np.array([1]), times=np.array([5.0])))
    with pytest.raises(InvalidValue, match="half_life"):
        engine.run(DISTANCES)
    assert engine.run(LEVELS).values.tolist() == [0, 1]


def test_constants_are_those_when_the_program_was_made(backend: Backend) -> None:
    step = 1

    def one_further(source_value: Any) -> Any:
        return source_value + step

    program = replace(LEVELS, gather=one_further)
    step = 5
    engine = _chain(backend)
    assert engine.run(program).values.tolist() == engine.run(LEVELS).values.tolist()


def _no_return(old: Any, new: Any) -> Any:  # noqa: RET503
    if old == new:
        return True
    new = old


def _loops(old: Any, new: Any) -> Any:
    while old < new:
        old += 1
    return True


def _calls(old: Any, new: Any) -> Any:
    return np.isclose(old, new)


def _unknown(old: Any, new: Any, limit: Any) -> Any:
    return old + limit < new


def _in_place(old: Any, new: Any) -> Any:
    new = 0.5
    return old < new


def _numbers(old: Any, new: Any) -> Any:
    return old and new


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_no_return, "a return at the end of every path"),
        (_loops, "line 2: 'while old < new:'"),
        (_calls, "isclose"),
        (_unknown, "one of old, new, superstep, aggregate, vertices, source"),
        (_in_place, "another kind of number"),
        (_numbers, "conditions on both sides"),
        (min, "a function defined by def"),
    ],
)
def test_functions_that_do_not_run_on_both_backends_are_refused(
    function: Any, message: str
) -> None:
    with pytest.raises(InvalidValue, match=r"levels\.scatter") as error:
        replace(LEVELS, scatter=function)
    assert message in str(error.value)


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"dtype": "int8"}, "dtype"),
        ({"direction": "in"}, "direction"),
        ({"supersteps": 0}, "supersteps"),
        ({"loops": True}, "loops"),
        ({"every_vertex": True}, "every_vertex"),
        ({"parameters": {"source": True}}, "source"),
        ({"parameters": {"source": 0, "old": 1}}, "parameters"),
        ({"identity": math.inf}, "identity"),
        ({"identity": 0.5}, "identity"),
        ({"dtype": "float64", "identity": math.nan}, "identity"),
        ({"aggregate": _above}, "aggregate"),
        ({"merge": _scatter}, "levels.merge"),
    ],
)
def test_options_that_do_not_fit_are_refused(options: dict[str, Any], field: str) -> None:
    with pytest.raises(InvalidValue) as error:
        replace(LEVELS, **options)
    assert error.value.field.startswith(field)


def test_only_programs_that_depend_on_edges_alone_continue() -> None:
    assert all(program.continues for program in (LEVELS, DISTANCES, COMPONENTS))
    assert not PAGERANK.continues
    assert not replace(COMPONENTS, initial=_initial).continues
