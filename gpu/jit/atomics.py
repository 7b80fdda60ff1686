"""Atomic operations on elements of arrays, for compiled loops that run on all cores.

Numba has none on the CPU; these are LLVM's instructions ``cmpxchg`` and ``atomicrmw``, sequentially
consistent. Indices have 64 bits and are not negative.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir  # type: ignore[import-untyped]
from numba import types
from numba.core import cgutils
from numba.extending import intrinsic

_cgutils: Any = cgutils  # these have no type annotations
_types: Any = types


def _compare_and_swap(_context: Any, array: Any, index: Any, _expected: Any, _new: Any) -> Any:
    value = array.dtype

    def generate(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
        bits = ir.IntType(8 * context.get_abi_sizeof(context.get_value_type(value)))
        pointer = _pointer(context, builder, array, given[0], given[1])
        expected, new = (builder.bitcast(each, bits) for each in given[2:])
        pointer = builder.bitcast(pointer, bits.as_pointer())
        swapped = builder.cmpxchg(pointer, expected, new, "seq_cst", "seq_cst")
        return builder.extract_value(swapped, 1)

    return types.boolean(array, _types.unliteral(index), value, value), generate


compare_and_swap: Any = intrinsic(_compare_and_swap)
"""``compare_and_swap(array, index, expected, new)``: stores `new` if the element has the bits of
`expected`. Returns whether it did.
"""


def _read_and_change(operation: str) -> Any:
    def typed(_context: Any, array: Any, index: Any, _value: Any) -> Any:
        def generate(context: Any, builder: Any, _signature: Any, given: Any) -> Any:
            pointer = _pointer(context, builder, array, given[0], given[1])
            return builder.atomic_rmw(operation, pointer, given[2], "seq_cst")

        return array.dtype(array, _types.unliteral(index), array.dtype), generate

    return intrinsic(typed)


fetch_and_add = _read_and_change("add")
"""``fetch_and_add(array, index, value)``, of integers: adds, and returns the element before."""

exchange = _read_and_change("xchg")
"""``exchange(array, index, value)``, of integers: stores, and returns the element before."""


def _pointer(context: Any, builder: Any, array: Any, value: Any, index: Any) -> Any:
    struct = context.make_array(array)(context, builder, value)
    return _cgutils.get_item_pointer(context, builder, array, struct, [index], wraparound=False)
