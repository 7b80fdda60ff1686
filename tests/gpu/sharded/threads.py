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
    """Where shards exchange arrays. One computes at a time, and hands over to the next when it
    waits or ends: a barrier would take most of the time of small graphs.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._gates = [threading.Lock() for _ in range(size)]
        for gate in self._gates:
            gate.acquire()
        self._lock = threading.Lock()
        self.begin()

    def begin(self) -> None:
        """Before a call of all shards."""
        self._computes, self._ended, self._is_broken = False, 0, False
        self._ready: list[int] = []
        self._sent: dict[int, Sequence[NDArray[np.generic]]] = {}
        self._received: dict[int, list[NDArray[np.generic]]] = {}

    def enter(self, rank: int) -> None:
        """Waits for the turn."""
        with self._lock:
            waits, self._computes = self._computes, True
            if waits:
                self._ready.append(rank)
        if waits:
            self._gates[rank].acquire()

    def leave(self, is_error: bool) -> None:
        """Gives the turn away, at the end of a call."""
        self._ended += 1
        self._is_broken |= is_error
        self._hand_over()

    def _hand_over(self) -> None:
        # where one calls other operations than the others, they end too
        if self._sent and (self._is_broken or self._ended + len(self._sent) == self._size):
            self._is_broken = True
            self._continue_others(list(self._sent))
        with self._lock:
            self._computes = bool(self._ready)
            if self._ready:
                self._gates[self._ready.pop(0)].release()

    def _continue_others(self, ranks: list[int]) -> None:
        self._sent.clear()
        with self._lock:
            self._ready += ranks

    def exchange(
        self, rank: int, parts: Sequence[NDArray[np.generic]]
    ) -> list[NDArray[np.generic]]:
        self._sent[rank] = parts
        if len(self._sent) == self._size:
            for each in range(self._size):
                self._received[each] = [self._sent[at][each].copy() for at in range(self._size)]
            self._continue_others([each for each in range(self._size) if each != rank])
        else:
            self._hand_over()
            self._gates[rank].acquire()
        if self._is_broken:
            raise threading.BrokenBarrierError
        return self._received.pop(rank)


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
        self.exchanges += 1
        received = self._meeting.exchange(self.rank, parts)
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
        self._one_call = threading.Lock()
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
        with self._one_call:
            self._meeting.begin()
            calls = [
                self._threads.submit(self._call, rank, method, each)
                for rank, (method, each) in enumerate(zip(methods, arguments, strict=True))
            ]
            errors = [error for call in calls if (error := call.exception()) is not None]
        if errors:
            own = [each for each in errors if not isinstance(each, threading.BrokenBarrierError)]
            raise (own or errors)[0]
        return [call.result() for call in calls]

    def _call(self, rank: int, method: Any, arguments: tuple[Any, ...]) -> Any:
        self._meeting.enter(rank)
        is_error = True
        try:
            answer = method(*arguments)
            is_error = False
        finally:
            self._meeting.leave(is_error)
        return answer

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
