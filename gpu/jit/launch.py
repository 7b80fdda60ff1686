"""Runs one compiled function on Numba's threads, without ``prange``.

For every loop ``prange`` compiles three new functions, which takes more than a second for the
shortest: a first start took 39 s instead of 23 s (Numba 0.68, 2 cores, empty cache). It accepts no
named tuples as arguments. And it takes the interpreter lock on its way in and out, which a busy
server is slow to release.

The launch calls Numba's threads as its own parallel loops do (numba/np/ufunc/parallel.py):

    numba_parallel_for(function, pointers, counts, steps, data, dimensions - 1, pointers, threads)

calls ``function(pointers, counts, steps, data)`` on each thread. Every thread gets a part of
``counts[0]``, and pointers advanced by ``steps`` for each item before its part.

What it uses of Numba's internals, none of it documented:

- the symbols ``numba_parallel_for`` and ``get_num_threads`` of the threading layer
- of a compiled function: ``get_call_template``, ``overloads`` and, of an overload, ``library``,
  ``fndesc`` and ``signature``
- of the code generator's context: ``active_code_library.add_linking_library`` and
  ``call_internal_no_propagate``
- the helpers in ``numba.core.cgutils`` that are called below, and ``types.unliteral``
- ``numba.np.ufunc.parallel._is_initialized``: whether the threads were started (gpu.jit.threads)
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

from gpu.jit.threads import WITHOUT_THREADS

_cgutils: Any = cgutils  # it has no type annotations

_ARGUMENTS, _ITEMS, _GRAIN, _FAILED = range(4)
"""Members of the struct that all threads of a launch share."""


def launcher(work: Any) -> Any:
    """``launch(items, grain, arguments)``, for compiled functions: calls `work` for each `grain` of
    the items on Numba's threads, without the interpreter lock. Returns whether a call failed.

    work  compiled; called as ``work(first, last, *arguments)``
    """

    @intrinsic
    def launch(typing_context: Any, _items: Any, _grain: Any, arguments: Any) -> Any:  # noqa: ARG001
        signature = (types.int64, types.int64, *map(types.unliteral, arguments.types))
        work.get_call_template(signature, {})  # compiles it

        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            compiled = work.overloads[signature]
            context.active_code_library.add_linking_library(compiled.library)
            return _generate(context, builder, compiled, values)

        return types.boolean(types.int64, types.int64, arguments), generate

    return launch


def _generate(context: Any, builder: Any, compiled: Any, values: Any) -> Any:
    items, grain, arguments = values
    byte, integer = ir.IntType(8).as_pointer(), ir.IntType(64)
    zero, one = integer(0), integer(1)

    shared_type = ir.LiteralStructType([arguments.type, integer, integer, ir.IntType(1)])
    shared = _cgutils.alloca_once(builder, shared_type)
    for member, value in enumerate((arguments, items, grain, _cgutils.false_bit)):
        builder.store(value, _cgutils.gep_inbounds(builder, shared, 0, member))

    part = _define_part(context, builder, compiled, shared_type)
    # the one item of the parallel loop is a range of `grain` items; the "pointer" is its number
    ranges = builder.sdiv(builder.add(items, builder.sub(grain, one)), grain)
    lists = [_cgutils.alloca_once_value(builder, value) for value in (zero, ranges, one)]
    forked = builder.load(_external_byte(builder, WITHOUT_THREADS))
    with builder.if_else(builder.icmp_unsigned("!=", forked, forked.type(0))) as (here, threads):
        with here:
            pointers = builder.bitcast(lists[0], part.args[0].type)
            builder.call(part, [pointers, *lists[1:], builder.bitcast(shared, byte)])
        with threads:
            passed = [builder.bitcast(each, byte) for each in (part, *lists, shared)]
            count = builder.call(_external(builder, integer, [], "get_num_threads"), [])
            passed += [zero, one, count]
            parameters = [each.type for each in passed]
            start = _external(builder, ir.VoidType(), parameters, "numba_parallel_for")
            builder.call(start, passed)
    return builder.load(_cgutils.gep_inbounds(builder, shared, 0, _FAILED))


def _define_part(context: Any, builder: Any, compiled: Any, shared_type: Any) -> Any:
    """The function that one thread runs: counts[0] ranges, from number pointers[0] on."""
    byte, integer = ir.IntType(8).as_pointer(), ir.IntType(64)
    sizes = integer.as_pointer()
    part_type = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), sizes, sizes, byte])
    part = ir.Function(builder.module, part_type, f"{compiled.fndesc.mangled_name}.part")
    part.linkage = "internal"
    pointers, counts, _, data = part.args
    inner = ir.IRBuilder(part.append_basic_block())
    shared = inner.bitcast(data, shared_type.as_pointer())
    members = [_cgutils.gep_inbounds(inner, shared, 0, member) for member in range(4)]
    arguments, items, grain = (
        inner.load(members[member]) for member in (_ARGUMENTS, _ITEMS, _GRAIN)
    )
    begin = inner.mul(inner.ptrtoint(inner.load(pointers), integer), grain)
    end = inner.add(begin, inner.mul(inner.load(counts), grain))
    with _cgutils.for_range_slice(inner, begin, end, grain, integer) as (first, _):
        following = inner.add(first, grain)
        last = inner.select(inner.icmp_signed("<", following, items), following, items)
        status, _ = context.call_internal_no_propagate(
            inner,
            compiled.fndesc,
            compiled.signature,
            [first, last, *_cgutils.unpack_tuple(inner, arguments)],
        )
        with inner.if_then(status.is_error, likely=False):
            inner.store(_cgutils.true_bit, members[_FAILED])
    inner.ret_void()
    return part


def _external_byte(builder: Any, name: str) -> Any:
    byte = builder.module.globals.get(name)
    return byte or ir.GlobalVariable(builder.module, ir.IntType(8), name)


def _external(builder: Any, result: Any, parameters: list[Any], name: str) -> Any:
    function_type = ir.FunctionType(result, parameters)
    return _cgutils.get_or_insert_function(builder.module, function_type, name)
