"""A look at the operations that backends run."""

from __future__ import annotations

import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Operation, Run

Look = Callable[[Any, Callable[[], Any]], Any]

_looks: list[tuple[type[Operation[Any]], Look]] = []


class _Observed:
    """Runs the operations of a backend, each by the last one that looks at its kind."""

    def __init__(self, run: Run) -> None:
        self._run = run

    def __call__(self, operation: Operation[Any], /) -> Any:
        for kind, look in reversed(_looks):
            if isinstance(operation, kind):
                return look(operation, lambda: self._run(operation))
        return self._run(operation)


def observable(backend: Backend) -> Backend:
    """The same, of which `observed` sees the operations."""
    is_so = isinstance(backend.run, _Observed)
    return backend if is_so else replace(backend, run=_Observed(backend.run))


@contextmanager
def observed(kind: type[Operation[Any]], look: Look) -> Iterator[None]:
    """Has `look` run each operation of a kind, on every shard and window: it is given the operation
    and what runs it, and returns the result. Backends are those of the fixture, of `looked_after`,
    of ThreadWorkers, and `observable` ones.
    """
    _looks.append((kind, look))
    try:
        yield
    finally:
        _looks.remove((kind, look))


def counted(kind: type[Operation[Any]], found: list[Any]) -> Any:
    """Appends each operation of a kind to `found`."""

    def look(operation: Any, run: Callable[[], Any]) -> Any:
        found.append(operation)
        return run()

    return observed(kind, look)


class Peak:
    """bytes: the most that Python and NumPy had allocated at once"""

    bytes = 0


@contextmanager
def traced() -> Iterator[Peak]:
    """What is allocated from here on."""
    peak = Peak()
    tracemalloc.start()
    try:
        yield peak
        peak.bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
