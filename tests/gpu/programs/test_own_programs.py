"""What is refused of a user's own program, and numbers at the borders of what it may contain."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from liverank_gpu import (
    PROGRAMS,
    EdgeBatch,
    Engine,
    InvalidValue,
    Options,
    OutOfCorePrograms,
    VertexProgram,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.programs.algorithms import COMPONENTS, DISTANCES, LEVELS


def _path(backend: Backend) -> Engine:
    engine = Engine(Options(), backend)
    engine.apply(EdgeBatch.of([(0, 1), (1, 2)]))
    return engine


@pytest.mark.parametrize(
    ("program", "name", "value"),
    [
        ("pagerank", "damping", math.nan),
        ("pagerank", "damping", 1.5),
        ("pagerank", "damping", -0.5),
        ("pagerank", "tolerance", math.nan),
        ("pagerank", "tolerance", -1e-9),
        ("densest", "epsilon", math.nan),
        ("densest", "epsilon", -0.5),
        ("densest", "epsilon", math.inf),
        ("labels", "iterations", 0),
        ("trussness", "binary", 2),
        ("trussness", "partitions", 0),
    ],
)
def test_parameters_have_limits_in_memory_and_out_of_core(
    program: str, name: str, value: Any
) -> None:
    engine, given = Engine(Options(), "cpu"), {name: value}
    engine.apply(EdgeBatch.of([(0, 1)]))
    with OutOfCorePrograms(1 << 20, backend="cpu") as graph:
        graph.add(*engine.edge_list())
        for run in (engine.run, graph.run):
            with pytest.raises(InvalidValue, match=f"^{name}: ") as error:
                run(program, **given)
            assert (error.value.field, repr(error.value.value)) == (name, repr(value))


@pytest.mark.parametrize("program", [None, 3, ["levels"], type(LEVELS)])
def test_what_is_no_program_is_refused(program: Any) -> None:
    engine = Engine(Options(), "cpu")
    with pytest.raises(InvalidValue, match=f"a VertexProgram, or one of {', '.join(PROGRAMS)}"):
        engine.run(program)
    with (
        OutOfCorePrograms(1 << 20, backend="cpu") as graph,
        pytest.raises(InvalidValue, match="program: "),
    ):
        graph.run(program)


def test_what_is_no_answer_is_not_continued(backend: Backend) -> None:
    engine = _path(backend)
    with pytest.raises(InvalidValue, match=r"after: 'levels' .* an answer of this program"):
        engine.run(COMPONENTS, after="levels")  # type: ignore[arg-type]


def _first(a: Any, b: Any) -> Any:  # noqa: ARG001
    return a


def _mean(a: Any, b: Any) -> Any:
    return (a + b) / 2


_greatest = lambda a, b: max(a, b)  # noqa: E731


def _names_swapped(b: Any, a: Any) -> Any:
    return min(a, b)


@pytest.mark.parametrize(
    ("merge", "message"),
    [
        (_first, "commutative: of 0.25 and 0.5 it makes 0.25 or 0.5"),
        (_mean, "associative: of 0.25, 0.5 and 2.0 it makes 1.1875 or 0.75"),
        (_names_swapped, "a function of a and b"),
        ("mean", "'min', 'max', 'sum', or a function of a and b"),
        (["min"], "a function defined by def"),
        (_greatest, "a function defined by def"),
    ],
)
def test_a_merge_that_depends_on_the_order_of_messages_is_refused(merge: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=r"^distances\.merge: ") as error:
        replace(DISTANCES, merge=merge)
    assert message in str(error.value)


def _harmonic(a: Any, b: Any) -> Any:
    return 1.0 / (1.0 / a + 1.0 / b)


def _limited(a: Any, b: Any, most: Any) -> Any:
    return min(a + b, most)


def _not_for_such_numbers(a: Any, b: Any) -> Any:
    return -math.sqrt(-(a + b))


@pytest.mark.parametrize("merge", [_harmonic, _limited, _not_for_such_numbers])
def test_other_merges_are_taken(merge: Any) -> None:
    replace(DISTANCES, merge=merge, parameters={"source": 0, "most": 1.5}, monotone=False)


def _on_one_path(old: Any, new: Any) -> Any:
    if new > 5:
        far = True
    return old != new and far


def _after_it_was_read(old: Any, new: Any) -> Any:
    far = far + new  # type: ignore[has-type]  # noqa: F821
    return far > old


def _wrapped(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def never(old: Any, new: Any) -> Any:  # noqa: ARG001
        return False

    return never


@_wrapped
def _decorated(old: Any, new: Any) -> Any:
    return old != new


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (_on_one_path, "line 4: 'far' .* a variable that has a value on every path"),
        (_after_it_was_read, "line 2: 'far' .* a variable that has a value"),
        (_decorated, "not wrapped by a decorator"),
    ],
)
def test_functions_of_which_backends_would_differ_are_refused(function: Any, message: str) -> None:
    with pytest.raises(InvalidValue, match=rf"^levels\.scatter.*{message}"):
        replace(LEVELS, scatter=function)


def _assigned_on_every_path(old: Any, new: Any) -> Any:
    if new > old:
        grown = new - old
    elif new == old:
        return False
    else:
        grown = old - new
    if grown < 0:
        return False
    half = grown / 2
    return half > 0


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": {"source": 0.0}}, r"parameters\.source: 0\.0 .* the id of a vertex"),
        ({"parameters": {"source": 0, "mode": 1}}, "parameters: 'mode'"),
        ({"parameters": {"source": 0, "cap": math.nan}}, "cap: nan .* a number"),
        ({"parameters": {"source": 0, "cap": 2**63}}, "cap: .* an integer of 64 bits"),
        ({"limits": {"source": (1, 2)}}, "source: 0 .* from 1 to 2"),
        ({"limits": {"root": (1, 2)}}, "limits: 'root' .* a parameter of the program"),
        ({"supersteps": 2.5}, "supersteps: 2.5 .* an integer"),
    ],
)
def test_options_that_cannot_be_run_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidValue, match=f"^{message}"):
        replace(LEVELS, **options)


def _five_at(vertex: Any, source: Any) -> Any:
    return 5 if vertex == source else FAR


def _same(source_value: Any) -> Any:
    return source_value


def _larger(old: Any, gathered: Any) -> Any:
    return max(old, gathered)


FAR = -(2**63) + 1


@pytest.mark.parametrize("identity", [-(2**63), 2**53, -(2**53)])
def test_identities_at_the_borders_of_64_bits(backend: Backend, identity: int) -> None:
    highest = replace(
        LEVELS,
        dtype="int64",
        identity=identity,
        initial=_five_at,
        gather=_same,
        merge="max",
        apply=_larger,
        first_wins=False,
    )
    expected = [5, 5, 5] if identity < 0 else [2**53] * 3
    engine = _path(backend)
    engine.apply(EdgeBatch.of([(2, 0)]))
    assert engine.run(highest, source=0).values.tolist() == expected


def _length_at(vertex: Any, source: Any) -> Any:
    return 0.0 if vertex == source else 1e300


def test_an_identity_that_is_a_large_float(backend: Backend) -> None:
    lengths = replace(DISTANCES, identity=1e300, initial=_length_at)
    assert _path(backend).run(lengths, source=1).values.tolist() == [1e300, 0.0, 1.0]


def _divided_by_nothing(source_value: Any) -> Any:
    nothing = source_value - source_value
    return source_value + 1 + 7 // nothing + 7 % nothing


def _beyond_integers(source_value: Any) -> Any:
    lowest = source_value * 0 + FAR - 1
    strange = lowest // -1 + lowest % -1 - abs(lowest) + (-lowest) * lowest
    for_nothing = math.inf * (source_value + 1)
    strange += int(for_nothing) + int(for_nothing - for_nothing) + math.floor(-for_nothing)
    return source_value + 1 + 0 * strange


def _a_float_of(source_value: Any) -> Any:
    return source_value * 1e300 + 1.75


@pytest.mark.parametrize(
    "program",
    [
        replace(LEVELS, scatter=_assigned_on_every_path),
        # a quotient of integers is 0 where the divisor is
        replace(LEVELS, gather=_divided_by_nothing),
        # what 64 bits have no room for is some integer
        replace(LEVELS, gather=_beyond_integers),
        # a float of a program of integers loses its fraction
        replace(LEVELS, gather=_a_float_of, first_wins=False, monotone=False, supersteps=1),
    ],
    ids=["paths", "quotients", "64 bits", "floats"],
)
def test_functions_compute_the_same_on_every_backend(
    backend: Backend, program: VertexProgram
) -> None:
    levels = 2 if program.supersteps == 1 else 3
    assert _path(backend).run(program).values.tolist()[:levels] == list(range(levels))


def _all_of_them(source_value: Any, p0: Any, p99: Any) -> Any:
    return source_value + p0 + p99


def test_a_program_may_have_many_parameters(backend: Backend) -> None:
    numbers: dict[str, float] = {f"p{number}": number / 99 for number in range(1, 100)}
    parameters = {"source": 0, "p0": 1, **numbers}
    program = replace(DISTANCES, gather=_all_of_them, parameters=parameters)
    assert _path(backend).run(program, p0=2).values.tolist() == [0.0, 3.0, 6.0]
