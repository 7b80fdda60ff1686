"""Programs that run in steps, between which batches come."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from liverank_gpu import (
    PROGRAMS,
    Answer,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfMemory,
    ProgramRun,
)
from liverank_gpu.operations.analysis import CoreNumbers
from liverank_gpu.operations.backend import Backend
from tests.gpu.doubles import looked_after
from tests.gpu.observed import observed

KINDS: list[dict[str, Any]] = [
    {},
    {"weighted": True, "vertex_order": "degree"},
    {"directed": False},
]


def _engine(backend: Backend, **options: Any) -> Engine:
    """Thirty vertices, of which two are removed, and some loops."""
    generator = np.random.default_rng(3)
    engine = Engine(Options(**options), backend)
    sources, targets = generator.integers(0, 30, (2, 90))
    engine.apply(EdgeBatch(sources, targets, vertices=30))
    engine.apply(EdgeBatch.of(remove=[7, 11]))
    return engine


def _stepped(engine: Engine, run: ProgramRun) -> Any:
    while not run.done:
        run.step(0.0)
    try:
        return run.answer()
    finally:
        engine.programs.close(run)


def _columns(answer: Answer) -> list[Any]:
    """The values; of records one list for each number."""
    names = answer.values.dtype.names or ()
    return [answer.values[name].tolist() for name in names] or [answer.values.tolist()]


def _batches() -> list[EdgeBatch]:
    """Insertions, deletions, removals, more vertices, a load."""
    generator = np.random.default_rng(4)
    edges = [(int(a), int(b)) for a, b in generator.integers(0, 34, (60, 2))]
    return [
        EdgeBatch.of([(0, 1), (2, 9), (3, 7)]),
        EdgeBatch.of(delete=edges),
        EdgeBatch.of(remove=[0, 5, 28]),
        EdgeBatch.of(edges),
    ]


@pytest.mark.parametrize("options", KINDS, ids=["directed", "weighted", "undirected"])
def test_a_run_between_batches_answers_for_the_graph_at_its_beginning(
    backend: Backend, options: dict[str, Any]
) -> None:
    engine = _engine(backend, **options)
    expected = {name: engine.run(name) for name in PROGRAMS}
    runs = {name: engine.programs.begin(name) for name in PROGRAMS}
    assert engine.memory()["programs"] == 0
    batches = _batches()
    for step, run in enumerate(runs.values()):
        for _ in range(step % 3):
            run.step(0.0)
    for batch in batches:
        engine.apply(batch)
        for run in runs.values():
            run.step(0.0)
    copied = engine.memory()["programs"]
    assert 0 < copied <= sum(engine.memory().values()) - copied  # one copy, without slack
    for name, run in runs.items():
        answer = _stepped(engine, run)
        for found, other in zip(*map(_columns, (answer, expected[name])), strict=True):
            assert found == pytest.approx(other), name
        assert answer.summary == pytest.approx(expected[name].summary), name
        for member in ("supersteps", "finished"):
            found = getattr(answer.receipt, member)
            assert found == getattr(expected[name].receipt, member), (name, member)
    assert engine.memory()["programs"] == 0


def test_runs_of_an_empty_graph_and_of_a_later_one_are_kept_apart(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    first = engine.programs.begin("components")
    engine.apply(EdgeBatch.of([(0, 1), (2, 3)]))
    second = engine.programs.begin("components")
    engine.apply(EdgeBatch.of([(1, 2)]))
    assert _stepped(engine, first).values.tolist() == []
    assert _stepped(engine, second).values.tolist() == [0, 0, 2, 2]


def test_the_work_of_a_step_follows_the_time_that_it_may_take(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of([(v, v + 1) for v in range(40)]))
    run = engine.programs.begin("levels")
    for done in (1, 2, 3):
        run.step(0.0)
        assert run.supersteps == done
    run.step(3600.0)
    run.step(3600.0)
    assert run.supersteps == 3 + 1 + 2
    assert _stepped(engine, run).values[-1] == 40


def test_an_answer_knows_the_batches_that_came_while_it_was_computed(backend: Backend) -> None:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of([(v, v + 1) for v in range(9)]))
    run = engine.programs.begin("levels")
    run.step(0.0)
    engine.apply(EdgeBatch.of([(0, 8), (9, 10)]))
    first = _stepped(engine, run)
    assert first.values.tolist() == list(range(10))
    second = engine.run("levels", after=first)
    assert second.receipt.continued
    assert second.values.tolist() == [*range(8), 1, 2, 3]
    run = engine.programs.begin("levels", second)
    run.step(0.0)
    engine.apply(EdgeBatch.of(delete=[(0, 8)]))
    third = _stepped(engine, run)
    assert third.receipt.continued
    assert third.values.tolist() == second.values.tolist()
    fourth = engine.run("levels", after=third)
    assert not fourth.receipt.continued
    assert fourth.values.tolist() == list(range(11))


def test_a_run_for_whose_copy_there_is_no_memory_fails_and_the_batch_stands(
    backend: Backend,
) -> None:
    backend, device = looked_after(backend)
    engine = _engine(backend)
    run, done = engine.programs.begin("levels"), engine.programs.begin("components")
    while not done.done:
        done.step(0.0)
    engine.check_memory(1, 30)
    with device.with_only(device.required):  # of the batch
        engine.apply(EdgeBatch.of([(0, 29)]))
    assert run.done
    with pytest.raises(OutOfMemory, match="a copy of the graph for a program needs"):
        run.answer()
    assert len(done.answer().values) == 30
    engine.programs.close(run)
    engine.programs.close(run)  # does nothing
    engine.run("levels")
    with device.with_only(device.required):
        with pytest.raises(OutOfMemory, match="a program and a copy of the graph needs"):
            engine.programs.begin("levels")
        assert len(engine.run("levels").values) == 30  # needs no copy


def test_a_batch_for_whose_ranks_there_is_no_memory_costs_a_run_nothing(backend: Backend) -> None:
    backend, device = looked_after(backend)
    engine = _engine(backend)
    expected = engine.run("levels").values.tolist()
    run = engine.programs.begin("levels")

    def allocating(purpose: str) -> None:
        if purpose == "ranks":
            raise OutOfMemory(purpose, 2, 1)

    device.allocating = allocating
    with pytest.raises(OutOfMemory, match="ranks"):
        engine.apply(EdgeBatch.of([(0, 40)]))
    del device.allocating
    assert engine.memory()["programs"] == 0
    assert _stepped(engine, run).values.tolist() == expected


def test_a_run_whose_step_fails_has_ended_with_this_error(backend: Backend) -> None:
    engine = _engine(backend)
    run = engine.programs.begin("cores")

    def fails(*_: Any) -> Any:
        raise OutOfMemory("core numbers", 2, 1)

    with observed(CoreNumbers, fails), pytest.raises(OutOfMemory):
        run.step(0.0)
    assert run.done
    run.step(0.0)
    with pytest.raises(OutOfMemory):
        run.answer()
    engine.programs.close(run)
    assert engine.run("cores").receipt.finished


@pytest.mark.parametrize(
    ("program", "given", "field"),
    [("labels", {"iterations": 0}, "iterations"), ("densest", {"epsilon": -1.0}, "epsilon")],
)
def test_parameters_are_checked_when_a_run_begins(
    backend: Backend, program: str, given: dict[str, float], field: str
) -> None:
    engine = _engine(backend)
    with pytest.raises(InvalidValue) as refused:
        engine.programs.begin(program, given=given)
    assert refused.value.field == field
