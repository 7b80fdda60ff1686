"""The loops of vertex programs on ``cpu``, for one program each.

A loop is written once, with the program's functions as global names, and is compiled for a program
with its functions in their place. Numba's cache on disk knows a loop by file, line and name, so the
name has the digest of the program in it.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np
from numba import types

from gpu.backends.cpu.rows import CHUNKS, STRIPE
from gpu.jit.atomics import compare_and_swap, exchange, fetch_and_add
from gpu.jit.compile import by_type, helper, kernel, unsigned
from gpu.operations.programs import KINDS, VertexProgram

Loop = Callable[..., Any]

NEXT, RECEIVED = 0, 1
"""Positions in the counts of a superstep: vertices that are active next, and that received."""

LEAST_MESSAGES = 1 << 15
"""Messages of a superstep below which the calling thread sends all."""


@by_type
def number_at(numbers, place):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """An element as a float64; 1 if there is no array: the weight of the edge in a slot."""
    if isinstance(numbers, types.NoneType):
        return lambda numbers, place: 1.0  # noqa: ARG005
    return lambda numbers, place: np.float64(numbers[place])


@by_type
def count_at(numbers, place):  # type: ignore[no-untyped-def]  # noqa: ARG001
    """An element as an int64; 0 if there is no array, because the program does not name it."""
    if isinstance(numbers, types.NoneType):
        return lambda numbers, place: 0  # noqa: ARG005
    return lambda numbers, place: np.int64(numbers[place])


# Each loop is compiled with the functions and the options of a program in place of these.
program_initial: Any = None  # (vertex, out_degree, in_degree, parameters)
program_gather: Any = None  # (source_value, weight, share, parameters)
program_merge: Any = None  # (a, b, parameters)
program_apply: Any = None  # (old, gathered, vertex, out_degree, in_degree, superstep, aggregate, …)
program_scatter: Any = None  # (old, new, parameters)
program_aggregate: Any = None  # (value, vertex, out_degree, in_degree, parameters)
identity: Any = 0.0
every_vertex = is_monotone = sends_back = has_loops = False
aggregator = 0
combined: Any = None  # _combined


def _initialise(  # type: ignore[no-untyped-def]
    first, last, begin, vertex, absent, parameters, values, active, counts
):
    ids, degree, in_lengths = vertex
    for place in range(first, last):
        v = begin + place
        value = identity
        if not absent[v]:
            value = program_initial(
                count_at(ids, v), number_at(degree, v), count_at(in_lengths, v), parameters
            )
        values[v] = value
        if program_scatter(identity, value, parameters):
            active[fetch_and_add(counts, NEXT, np.int64(1))] = v


def _send(  # type: ignore[no-untyped-def]
    first, last, groups, active, lists, degree, parameters, values, accumulated, marks,
    listed, counts,
):  # fmt: skip
    """Active vertices send; what arrives is merged in `accumulated`, and its vertex listed.

    active  int32[…], the active vertices
    groups  of them
    """
    row_starts, row_lengths, column_indices, weights = lists
    for group in range(first, last):
        for place in range(groups[group], groups[group + 1]):
            u = unsigned(active[place])
            value = values[u]
            begin = row_starts[u]
            for slot in range(unsigned(begin), unsigned(begin + row_lengths[u])):
                weight = number_at(weights, slot)
                share = weight / number_at(degree, u)
                message = program_gather(value, weight, share, parameters)
                v = unsigned(column_indices[slot])
                if is_monotone:
                    old = values[v]
                    if program_apply(old, message, 0, 0.0, 0, 0, 0.0, parameters) == old:
                        continue
                while True:
                    old = accumulated[v]
                    new = program_merge(old, message, parameters)
                    if new == old or compare_and_swap(accumulated, v, old, new):
                        break
                if marks[v] == 0 and exchange(marks, v, np.int32(1)) == 0:
                    listed[fetch_and_add(counts, RECEIVED, np.int64(1))] = v


def _send_in_place(  # type: ignore[no-untyped-def]
    first, last, groups, active, lists, degree, parameters, values, accumulated, marks,  # noqa: ARG001
    listed, counts,
):  # fmt: skip
    """Active vertices send their newest values, which change others at once. See `_send`."""
    row_starts, row_lengths, column_indices, weights = lists
    for group in range(first, last):
        for place in range(groups[group], groups[group + 1]):
            u = unsigned(active[place])
            begin = row_starts[u]
            for slot in range(unsigned(begin), unsigned(begin + row_lengths[u])):
                weight = number_at(weights, slot)
                share = weight / number_at(degree, u)
                message = program_gather(values[u], weight, share, parameters)
                v = unsigned(column_indices[slot])
                changed = False
                while True:
                    old = values[v]
                    new = program_apply(old, message, 0, 0.0, 0, 0, 0.0, parameters)
                    if new == old:
                        break
                    if compare_and_swap(values, v, old, new):
                        changed = program_scatter(old, new, parameters)
                        break
                if changed and exchange(marks, v, np.int32(1)) == 0:
                    listed[fetch_and_add(counts, NEXT, np.int64(1))] = v


def _look(  # type: ignore[no-untyped-def]
    first, last, groups, order, lists, degree, parameters, values, marks, found
):
    """Vertices without a value look for an active in-neighbour; `found` lists them by group."""
    row_starts, row_lengths, column_indices, weights = lists
    for group in range(first, last):
        read = 0
        listed = groups[group]
        for place in range(groups[group], groups[group + 1]):
            v = order[place]
            if values[v] != identity:
                continue
            begin = row_starts[v]
            for slot in range(unsigned(begin), unsigned(begin + row_lengths[v])):
                read += 1
                u = unsigned(column_indices[slot])
                if marks[u] == 0:
                    continue
                weight = number_at(weights, slot)
                share = weight / number_at(degree, u)
                message = program_gather(values[u], weight, share, parameters)
                new = program_apply(identity, message, 0, 0.0, 0, 0, 0.0, parameters)
                values[v] = new
                if program_scatter(identity, new, parameters):
                    found[listed] = v
                    listed += 1
                break
        found[len(order) + 2 * group] = listed - groups[group]
        found[len(order) + 2 * group + 1] = read


def _receive(  # type: ignore[no-untyped-def]
    first, last, received, vertex, superstep, parameters, values, accumulated, marks, active, counts
):
    ids, degree, in_lengths = vertex
    for place in range(first, last):
        v = received[place]
        old, gathered = values[v], accumulated[v]
        accumulated[v] = identity
        marks[v] = 0
        new = program_apply(
            old,
            gathered,
            count_at(ids, v),
            number_at(degree, v),
            count_at(in_lengths, v),
            superstep,
            0.0,
            parameters,
        )
        values[v] = new
        if program_scatter(old, new, parameters):
            active[fetch_and_add(counts, NEXT, np.int64(1))] = v


def _combined(first, second):  # type: ignore[no-untyped-def]
    """Two aggregates as one."""
    if aggregator == 0:
        return first + second
    return min(first, second) if aggregator == 1 else max(first, second)


def _aggregate(  # type: ignore[no-untyped-def]
    first, last, groups, order, vertex, absent, parameters, values, aggregates
):
    """Aggregates the values of each group of rows."""
    ids, degree, in_lengths = vertex
    for group in range(first, last):
        total = aggregates[group]
        for place in range(groups[group], groups[group + 1]):
            v = order[place]
            if not absent[v]:
                value = program_aggregate(
                    values[v],
                    count_at(ids, v),
                    number_at(degree, v),
                    count_at(in_lengths, v),
                    parameters,
                )
                total = combined(total, value)
        aggregates[group] = total


def _gather(  # type: ignore[no-untyped-def]
    first, last, groups, order, lists, loop, vertex, absent, superstep, aggregate, parameters,
    values, new_values, changed,
):  # fmt: skip
    """All vertices gather from their in-neighbours."""
    row_starts, row_lengths, column_indices, weights = lists
    ids, degree, in_lengths = vertex
    for group in range(first, last):
        for place in range(groups[group], groups[group + 1]):
            v = order[place]
            if absent[v]:
                continue
            gathered = identity
            begin = row_starts[v]
            for slot in range(unsigned(begin), unsigned(begin + row_lengths[v])):
                u = unsigned(column_indices[slot])
                weight = number_at(weights, slot)
                share = weight / number_at(degree, u)
                message = program_gather(values[u], weight, share, parameters)
                gathered = program_merge(gathered, message, parameters)
            if has_loops and loop[v] != 0:
                weight = number_at(loop, v)
                share = weight / number_at(degree, v)
                message = program_gather(values[v], weight, share, parameters)
                gathered = program_merge(gathered, message, parameters)
            old = values[v]
            new = program_apply(
                old,
                gathered,
                count_at(ids, v),
                number_at(degree, v),
                count_at(in_lengths, v),
                superstep,
                aggregate,
                parameters,
            )
            new_values[v] = new
            if program_scatter(old, new, parameters):
                changed[group] = 1


def _supports(  # type: ignore[no-untyped-def]
    first, last, sources, targets, weights, parameters, values, found
):
    for place in range(first, last):
        source, target = values[sources[place]], values[targets[place]]
        weight = number_at(weights, place)
        if target != identity and program_gather(source, weight, 0.0, parameters) == target:
            found[0] = 1
        back = sends_back and source != identity
        if back and program_gather(target, weight, 0.0, parameters) == source:
            found[0] = 1


class ProgramLoops:
    """The compiled loops of one program; each is compiled when it is first called."""

    def __init__(self, program: VertexProgram) -> None:
        self._suffix = program.digest
        dtype = np.dtype(program.dtype)
        self._globals: dict[str, Any] = {
            "identity": dtype.type(program.identity),
            "every_vertex": program.every_vertex,
            "is_monotone": program.monotone,
            "sends_back": program.direction == "both",
            "has_loops": program.loops,
            "aggregator": ("sum", "min", "max").index(program.aggregator),
        }
        for name in program.functions:
            self._globals[f"program_{name}"] = helper(_wrapped(program, name))
        self.add_helper("combined", _combined)
        self.initialise = self.kernel(_initialise, STRIPE)
        self.gather = self.kernel(_gather, CHUNKS)
        self.aggregate = self.kernel(_aggregate, CHUNKS)
        self.receive = self.kernel(_receive, STRIPE)
        self.look = self.kernel(_look, CHUNKS)
        self.supports = self.kernel(_supports, STRIPE)
        self.send = self.kernel(_send, CHUNKS)
        self.send_in_place = self.kernel(_send_in_place, CHUNKS)

    def kernel(self, loop: Any, grain: int) -> Loop:
        """A loop with the program's functions and options in place of the global names."""
        return kernel(grain)(self._own(loop))

    def add_helper(self, name: str, function: Any) -> None:
        """Makes a function, with those of the program, a global name of loops."""
        self._globals[name] = helper(self._own(function))

    def _own(self, function: Any) -> Any:
        name = f"{function.__name__}_{self._suffix}"
        code = function.__code__.replace(co_name=name, co_qualname=name)
        return FunctionType(code, {**function.__globals__, **self._globals}, name)


def _wrapped(program: VertexProgram, name: str) -> Any:
    """The function with all arguments that loops pass: numbers become what functions are promised,
    and results the type of values.
    """
    function, places = program.functions[name], list(program.parameters)
    casts = {"int": "int64", "float": "float64"}
    kinds = {**dict.fromkeys(program.values_of(name), KINDS[program.dtype])}
    kinds |= program.arguments_of(name)

    def given(argument: str) -> str:
        if argument in kinds:
            return f"{casts[kinds[argument]]}({argument})"
        place = 0 if argument == "vertices" else 1 + places.index(argument)
        return f"parameters[{place}]"

    result = {"scatter": "bool", "aggregate": "float64"}.get(name, program.dtype)
    arguments = ", ".join(map(given, function.arguments))
    text = f"def program_{name}({', '.join([*kinds, 'parameters'])}):\n"
    text += f"    return {result}(function({arguments}))\n"
    names: dict[str, Any] = {each: getattr(np, each) for each in ("int64", "float64")}
    names |= {program.dtype: getattr(np, program.dtype), "function": helper(function.python)}
    exec(text, names)
    return names[f"program_{name}"]
