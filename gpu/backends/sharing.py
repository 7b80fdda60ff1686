"""Calls of one compiled function on Numba's threads.

What a ``prange`` around the call would do. Numba compiles that anew for each loop, as three
functions: more than a second for the shortest, half of a first start for all. And it takes the
interpreter lock on its way in and out, which a busy server has to give.

The threads are asked as Numba's own parallel loops ask them (numba/np/ufunc/parallel.py):

    numba_parallel_for(function, pointers, counts, steps, data, dimensions - 1, pointers, threads)

calls ``function(pointers, counts, steps, data)`` on each thread, with a part of ``counts[0]`` and
with the pointers moved on by ``steps`` for each before it.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_cgutils: Any = cgutils  # which has no types


def sharing(work: Any) -> Any:
    """``share_out(items, share, arguments)``, for compiled functions: calls `work` for each share
    of the items on Numba's threads, without the interpreter lock. Returns whether a call failed.

    work  compiled; called as ``work(first, last, …)``
    """

    @intrinsic
    def share_out(typing_context: Any, _items: Any, _share: Any, arguments: Any) -> Any:  # noqa: ARG001
        called = (types.int64, types.int64, *map(types.unliteral, arguments.types))
        work.get_call_template(called, {})  # compiles it

        def generate(context: Any, builder: Any, _signature: Any, values: Any) -> Any:
            compiled = work.overloads[called]
            context.active_code_library.add_linking_library(compiled.library)
            return _generate(context, builder, compiled, values)

        return types.boolean(types.int64, types.int64, arguments), generate

    return share_out


def _generate(context: Any, builder: Any, compiled: Any, values: Any) -> Any:
    items, share, arguments = values
    byte, integer = ir.IntType(8).as_pointer(), ir.IntType(64)
    zero, one = integer(0), integer(1)

    # what all shares have in common, where the threads find it
    members = [arguments.type, integer, integer, ir.IntType(1)]
    common_type = ir.LiteralStructType(members)
    common = _cgutils.alloca_once(builder, common_type)
    for place, value in enumerate((arguments, items, share, _cgutils.false_bit)):
        builder.store(value, _cgutils.gep_inbounds(builder, common, 0, place))

    # what one thread does: as many shares as counts[0], from the one that pointers[0] stands for
    sizes = integer.as_pointer()
    part_type = ir.FunctionType(ir.VoidType(), [byte.as_pointer(), sizes, sizes, byte])
    part = ir.Function(builder.module, part_type, f"{compiled.fndesc.mangled_name}.part")
    part.linkage = "internal"
    pointers, counts, _, data = part.args
    inner = ir.IRBuilder(part.append_basic_block())
    found = inner.bitcast(data, common_type.as_pointer())
    places = [_cgutils.gep_inbounds(inner, found, 0, place) for place in range(4)]
    given, end, size = (inner.load(place) for place in places[:3])
    begin = inner.mul(inner.ptrtoint(inner.load(pointers), integer), size)
    stop = inner.add(begin, inner.mul(inner.load(counts), size))
    with _cgutils.for_range_slice(inner, begin, stop, size, integer) as (first, _):
        behind = inner.add(first, size)
        last = inner.select(inner.icmp_signed("<", behind, end), behind, end)
        status, _ = context.call_internal_no_propagate(
            inner,
            compiled.fndesc,
            compiled.signature,
            [first, last, *_cgutils.unpack_tuple(inner, given)],
        )
        with inner.if_then(status.is_error, likely=False):
            inner.store(_cgutils.true_bit, places[3])
    inner.ret_void()

    # a thread is given its number of shares, and the pointer moved on by one for each before them
    shares = builder.sdiv(builder.add(items, builder.sub(share, one)), share)
    lists = [_cgutils.alloca_once_value(builder, value) for value in (zero, shares, one)]
    passed = [builder.bitcast(each, byte) for each in (part, *lists, common)]
    passed += [zero, one, builder.call(_external(builder, integer, [], "get_num_threads"), [])]
    taken = [each.type for each in passed]
    builder.call(_external(builder, ir.VoidType(), taken, "numba_parallel_for"), passed)
    return builder.load(_cgutils.gep_inbounds(builder, common, 0, 3))


def _external(builder: Any, result: Any, taken: list[Any], name: str) -> Any:
    return _cgutils.get_or_insert_function(builder.module, ir.FunctionType(result, taken), name)
