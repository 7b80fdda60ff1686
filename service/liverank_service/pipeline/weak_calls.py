"""Calls of an object by what it owns, without a cycle of references: it is freed with its last
reader, and needs no search for garbage, which holds up all reads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast
from weakref import WeakMethod

AnyMethod = TypeVar("AnyMethod", bound=Callable[..., Any])


def weakly(method: AnyMethod) -> AnyMethod:
    """The same call, which does not keep the object of the method. Raises ReferenceError when that
    is gone.
    """
    found, name = WeakMethod(method), method.__qualname__

    def call(*arguments: Any) -> Any:
        if (present := found()) is None:
            raise ReferenceError(f"{name}: expected its object, which is gone")
        return present(*arguments)

    return cast(AnyMethod, call)
