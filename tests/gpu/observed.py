"""A look at the operations that backends run."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from liverank_gpu.operations.csr import Kernels, Operation


@contextmanager
def observed(
    kind: type[Operation[Any]], look: Callable[[Any, Callable[[], Any]], Any]
) -> Iterator[None]:
    """Has `look` run each operation of a kind, on every shard and window: it is given the operation
    and what runs it, and returns the result.
    """
    run = Kernels.__call__

    def seen(kernels: Kernels, operation: Operation[Any]) -> Any:
        if isinstance(operation, kind):
            return look(operation, lambda: run(kernels, operation))
        return run(kernels, operation)

    with patch.object(Kernels, "__call__", seen):
        yield


def counted(kind: type[Operation[Any]], found: list[Any]) -> Any:
    """Appends each operation of a kind to `found`."""

    def look(operation: Any, run: Callable[[], Any]) -> Any:
        found.append(operation)
        return run()

    return observed(kind, look)
