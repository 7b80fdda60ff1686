"""Shards in threads of this process, one of which runs at a time: for tests of many cases."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from itertools import count
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Operation, Result, Run
from liverank_gpu.operations.sweeps import Sweep
from liverank_gpu.sharded.communicator import HostCommunicator
from liverank_gpu.sharded.dask_workers import Workers
from liverank_gpu.sharded.member import Member
from liverank_gpu.types import Options
from tests.gpu.observed import observable


class _Meeting:
    """Where the threads exchange arrays. The one that holds `turn` computes."""

    def __init__(self, size: int) -> None:
        # where one calls other operations than the others, they end too
        self.barrier = threading.Barrier(size, timeout=300.0)
        self.parts: list[Sequence[NDArray[np.generic]]] = [()] * size
        self.turn = threading.Lock()


class ThreadCommunicator(HostCommunicator):
    """See Communicator; `exchanges` counts them, and `after` is called after each with what was
    sent, and received.
    """

    after: Callable[[Sequence[Any], Sequence[Any]], object] = staticmethod(lambda *_: None)

    def __init__(self, rank: int, size: int, meeting: _Meeting) -> None:
        self.rank, self.size = rank, size
        self.exchanges = 0
        self._meeting = meeting

    def exchange(self, parts: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        meeting = self._meeting
        self.exchanges += 1
        meeting.parts[self.rank] = parts
        meeting.turn.release()
        try:
            meeting.barrier.wait()
            received = [each[self.rank].copy() for each in meeting.parts]
            meeting.barrier.wait()
        finally:
            meeting.turn.acquire()
        self.after(parts, received)
        return received


def one_step(method: str, arguments: Sequence[tuple[Any, ...]]) -> Sequence[tuple[Any, ...]]:
    """Of a call of shards: the same, but that it ends with its first step."""
    if method == "call_kept" and arguments[0][0] in ("answer", "solve"):
        return [(*each[:-1], 0.0) for each in arguments]
    return arguments


class Running:
    """What runs the operations of a backend; `before` is called with each."""

    before: Callable[[Operation[Any]], None] = staticmethod(lambda _: None)

    def __init__(self, run: Run) -> None:
        self._run = run

    def __call__(self, operation: Operation[Result], /) -> Result:
        self.before(operation)
        return self._run(operation)


class ThreadWorkers(Workers):
    """See Workers. Queries are solved by one step a call.

    running  the operations of each shard, on its own rows
    """

    def __init__(
        self,
        options: Options,
        size: int,
        backend: Backend | Sequence[Backend],
        communicator: type[ThreadCommunicator] = ThreadCommunicator,
    ) -> None:
        """backend  of all shards, or of each"""
        self.size = size
        backends = [backend] * size if isinstance(backend, Backend) else backend
        self.running = [Running(observable(each).run) for each in backends]
        backends = [
            replace(each, run=run) for each, run in zip(backends, self.running, strict=True)
        ]
        self._meeting = _Meeting(size)
        self.communicators = [communicator(rank, size, self._meeting) for rank in range(size)]
        self.shards = [
            Member(own, options, each)
            for own, each in zip(self.communicators, backends, strict=True)
        ]
        self._threads = ThreadPoolExecutor(size)
        self.unreachable: str | None = None  # the method for which there is no answer

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        if self.unreachable in (method, arguments[0][0] if method == "call_kept" else method):
            raise TimeoutError("no answer")
        methods = [getattr(shard, method) for shard in self.shards]
        return self.together(methods, one_step(method, arguments))

    def together(
        self, methods: Sequence[Callable[..., Any]], arguments: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """What these return, each called by the thread of a shard."""
        calls = [
            self._threads.submit(self._call, method, each)
            for method, each in zip(methods, arguments, strict=True)
        ]
        errors = [error for call in calls if (error := call.exception()) is not None]
        if errors:
            self._meeting.barrier.reset()
            own = [each for each in errors if not isinstance(each, threading.BrokenBarrierError)]
            raise (own or errors)[0]
        return [call.result() for call in calls]

    def _call(self, method: Any, arguments: tuple[Any, ...]) -> Any:
        with self._meeting.turn:
            try:
                return method(*arguments)
            except BaseException:
                self._meeting.barrier.abort()
                raise

    def close(self) -> None:
        self._threads.shutdown()


def pushing(backend: Backend) -> Backend:
    """The backend where rounds and exchanges cost nothing, and edges of pushes little, so that
    shards of small graphs push.
    """
    costs = replace(backend.costs, exchange=0.0, sweep_overhead=0.0, pushed_edge=0.01)
    return replace(backend, costs=costs)


@contextmanager
def failing(
    workers: ThreadWorkers, kind: type[Operation[Any]], number: int, error: Exception
) -> Iterator[None]:
    """The operation of a kind that has this number, from 1, raises an error in the second shard."""
    numbers = count(1)

    def fails(operation: Operation[Any]) -> None:
        if isinstance(operation, kind) and next(numbers) == number:
            raise error

    workers.running[1].before = fails
    try:
        yield
    finally:
        del workers.running[1].before


def failing_sweep(workers: ThreadWorkers) -> AbstractContextManager[None]:
    """The third sweep of one shard raises MemoryError."""
    return failing(workers, Sweep, 3, MemoryError("the third sweep"))
