"""Programs that are only text: the same as those of functions, in what they become and compute."""

from __future__ import annotations

import heapq
import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from liverank_gpu import (
    EdgeBatch,
    Engine,
    Options,
    OutOfMemory,
    ProgramLimits,
    VertexProgram,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.programs.source import program_of_source
from tests.fuzz.programs import RECORDS

SOURCE = '''
import math
from math import fabs as size

WIDEST = 1e9


class Widest:
    """The widest path from a vertex: the path whose narrowest edge is as wide as possible."""

    dtype = "float64"
    identity = 0.0
    merge = "max"
    parameters = {"source": 0, "most": WIDEST}
    limits = {"most": (0.0, math.inf)}
    monotone = True

    @staticmethod
    def initial(vertex: int, source: int) -> float:
        return math.inf if vertex == source else 0.0

    def gather(source_value, weight, most):
        """No wider than its end."""
        width = size(weight)
        if width > most:
            width = most
        return min(source_value, width)

    def apply(old, gathered):
        return max(old, gathered)

    def scatter(old, new):
        return old != new
'''


def _start(vertex: Any, source: Any) -> Any:
    return math.inf if vertex == source else 0.0


def _through(source_value: Any, weight: Any, most: Any) -> Any:
    width = math.fabs(weight)
    if width > most:
        width = most
    return min(source_value, width)


def _wider(old: Any, gathered: Any) -> Any:
    return max(old, gathered)


def _changed(old: Any, new: Any) -> Any:
    return old != new


def _widest(edges: list[tuple[int, int, float]], vertices: int, source: int) -> list[float]:
    """By Dijkstra's algorithm."""
    found = [0.0] * vertices
    found[source], queue = math.inf, [(-math.inf, source)]
    while queue:
        width, u = heapq.heappop(queue)
        for a, v, weight in edges:
            if a == u and (through := min(-width, weight)) > found[v]:
                found[v] = through
                heapq.heappush(queue, (-through, v))
    return found


def _some_edges() -> list[tuple[int, int, float]]:
    random = np.random.default_rng(5)
    ends = {(int(a), int(b)) for a, b in random.integers(0, 30, (90, 2)) if a != b}
    return [(a, b, float(random.integers(1, 9))) for a, b in sorted(ends)]


def test_a_program_of_text_is_the_one_of_its_functions(backend: Backend) -> None:
    program = program_of_source("widest", SOURCE)
    options: dict[str, Any] = {"dtype": "float64", "identity": 0.0, "merge": "max"}
    functions: dict[str, Any] = {"initial": _start, "gather": _through, "apply": _wider}
    parameters = {"source": 0, "most": 1e9}
    own = VertexProgram(
        "own", scatter=_changed, parameters=parameters, monotone=True, **options, **functions
    )
    assert program.digest == own.digest
    edges = _some_edges()
    engine = Engine(Options(weighted=True), backend)
    engine.apply(EdgeBatch.of(edges, vertices=30))
    for source in (0, 7):
        expected = _widest(edges, 30, source)
        for mode in ("synchronous", "asynchronous"):
            assert engine.run(program, source=source, mode=mode).values.tolist() == expected


COUNTING = '''
class Counting:
    """Never ends: what a stranger may send, with flags that are not true of it."""

    dtype = "int64"
    identity = -1
    merge = "max"
    {flags}

    def initial(vertex, out_degree):
        return vertex

    def gather(source_value):
        return source_value * 3 + 1 // 0 - (source_value % 0) // -1

    def apply(old, gathered):
        return old + gathered * gathered + 1

    def scatter(old, new):
        return True
'''


@pytest.mark.parametrize("flags", ["monotone = False", "monotone = True; first_wins = True"])
def test_a_program_that_never_ends_stops_after_its_supersteps(flags: str, backend: Backend) -> None:
    text = COUNTING.replace("{flags}", flags.replace("; ", "\n    "))
    program = program_of_source("counting", text)
    engine = Engine(Options(), backend)
    edges = [(a, b) for a, b, _ in _some_edges()]
    engine.apply(EdgeBatch.of(edges, vertices=30))
    for mode in ("synchronous", "asynchronous")[: 1 + program.monotone]:
        run = engine.programs.begin(program, mode=mode, limits=ProgramLimits(supersteps=7))
        while not run.done:
            run.step(math.inf)
        receipt = run.answer().receipt
        assert receipt.supersteps == 7 or (program.first_wins and receipt.finished)
        engine.programs.close(run)
    assert sorted(zip(*(each.tolist() for each in engine.edge_list()[:2]), strict=True)) == edges


def test_a_run_may_be_limited_in_memory() -> None:
    engine = Engine(Options(), "cpu")
    engine.apply(EdgeBatch.of([(0, 1), (1, 2)]))
    for program in ("levels", "triangles"):
        with pytest.raises(
            OutOfMemory, match=r"with a limit of memory needs .*; 100 are available"
        ):
            engine.programs.begin(program, limits=ProgramLimits(memory=100))
        engine.programs.close(engine.programs.begin(program, limits=ProgramLimits(memory=1 << 20)))


def test_a_text_and_its_program_have_the_limits_of_programs() -> None:
    program = program_of_source("widest", SOURCE)
    assert program.limits == {"most": (0.0, math.inf)}
    assert replace(program, supersteps=3).digest == program.digest


def _counted(
    edges: list[tuple[int, int, float]], vertices: int, source: int, least: float
) -> tuple[list[tuple[int, float]], dict[tuple[int, int], tuple[int, float]], int]:
    """What RECORDS says, by loops: values, values of edges, and supersteps."""
    values = [(0, 1.0) if v == source else (99, 0.0) for v in range(vertices)]
    state = {(u, v): (0, 2.5) for u, v, _ in edges}
    active, supersteps = {source}, 0
    while active and supersteps < 40:
        most = max(0.0 if level == 99 else paths for level, paths in values)
        received = dict[int, tuple[int, float]]()
        for u, v, weight in edges:
            used, left = state[u, v]
            if u not in active or weight < least or left <= 0 or u % 7 == v % 5:
                continue
            level, paths = values[u]
            sent = (level + (used <= supersteps), paths)
            state[u, v] = used + int(most), left - 0.75
            level, paths = received.get(v, (99, 0.0))
            if level == sent[0]:
                received[v] = level, paths + sent[1]
            elif sent[0] < level:
                received[v] = sent
            else:
                received[v] = level, paths
        following = list(values)
        for v, gathered in received.items():
            level, paths = values[v]
            if supersteps % 4 == 3:
                following[v] = level, paths / 2
            elif gathered[0] < level:
                following[v] = gathered
        active = {v for v in received if following[v] != values[v]}
        values, supersteps = following, supersteps + 1
    return values, state, supersteps


def test_a_text_has_records_chosen_edges_values_of_edges_and_aggregates(backend: Backend) -> None:
    program = program_of_source("counted", RECORDS)
    edges = _some_edges()
    engine = Engine(Options(weighted=True), backend)
    engine.apply(EdgeBatch.of(edges, vertices=30))
    for source, least in ((0, 0.5), (7, 3.0)):
        answer = engine.run(program, source=source, least=least)
        values, state, supersteps = _counted(edges, 30, source, least)
        assert supersteps > 3
        assert answer.values.tolist() == values
        assert answer.receipt.supersteps == supersteps
        assert answer.edge_values is not None
        sources, targets, found = (each.tolist() for each in answer.edge_values)
        assert dict(zip(zip(sources, targets, strict=True), found, strict=True)) == state


@pytest.mark.parametrize("name", ["_called", "_wrapped", "_sum_of"])
def test_variables_have_the_names_that_they_have(name: str, backend: Backend) -> None:
    text = SOURCE.replace("width", name)
    engine = Engine(Options(weighted=True), backend)
    engine.apply(EdgeBatch.of(_some_edges(), vertices=30))
    found = engine.run(program_of_source("named", text), source=7)
    assert found.values.tolist() == _widest(_some_edges(), 30, 7)
