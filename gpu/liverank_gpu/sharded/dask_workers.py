"""What runs the shards of a graph: the worker processes of a Dask cluster, as their caller sees
them.

Dask carries calls and results. Every `WATCH_SECONDS` the scheduler is asked which workers it has.
So the loss of a worker, or of the scheduler, is noticed soon, and ends the call in progress.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4

import numpy as np

from liverank_gpu.errors import ClusterUnavailable, EngineError, ShardLost
from liverank_gpu.sharded.communicator import Interrupted
from liverank_gpu.sharded.dask_shard import (
    call_shard,
    compile_kernels,
    interrupt_shard,
    join_group,
    new_group,
    start_shard,
)
from liverank_gpu.snapshot import Snapshot
from liverank_gpu.types import BackendName, EdgeBatch, Options, ViewQuery

log = logging.getLogger("liverank.shards")

WATCH_SECONDS = 0.5
"""Between two questions to the scheduler."""

SCHEDULER_SECONDS = 30.0
"""A scheduler that has not answered for so long is lost."""

_INTERRUPT_SECONDS = 30.0
"""For the other shards to end an interrupted call."""

_DISCONNECTED = "is lost: its scheduler has disconnected"

_PLACED, _PLACED_BYTES = 4096, 1 << 16
"""Batches of more operations, and arrays and snapshots of more bytes, are sent from here to the
worker, and not through the scheduler.
"""

_Result = TypeVar("_Result")

_turns: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
"""By the address of the scheduler. Graphs whose shards are on the same GPUs take turns, call by
call: NCCL can wait forever if two groups begin an operation in different orders on two devices, or
if one allocates memory while the other waits.
"""


class Workers(ABC):
    """Processes, or threads, that each hold one liverank_gpu.sharded.member.Member. Ranks are their
    numbers, from 0.

    size     number of shards
    backend  of the shards: ``cpu`` or ``cuda``
    """

    size: int
    backend: str = "cpu"

    @abstractmethod
    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Calls a method of all shards at once, each with its own arguments: both these and the
        results are by rank. If a shard raises an error, the call is ended on the others, and the
        error raised here; ShardLost if its process ended.
        """

    def everywhere(self, method: str, *arguments: Any) -> list[Any]:
        """The same with the same arguments for all shards."""
        return self.call(method, [arguments] * self.size)

    @abstractmethod
    def close(self) -> None:
        """Ends the shards. A second call does nothing."""

    def check_alive(self) -> None:  # noqa: B027
        """Raises ShardLost if a shard is known to be lost."""

    def on_loss(self, notify: Callable[[], None]) -> None:  # noqa: B027
        """Has `notify` called, once and on any thread, when a shard is lost, also while there is no
        call; at once if one is lost already.
        """


class DaskWorkers(Workers):
    """Shards in workers of a Dask cluster, one in each.

    client      distributed.Client. `close` closes it, and the cluster if the client started it
    addresses   of the workers, by rank
    backend     of the shards
    device_memory  of each worker: see liverank_gpu.limit_device_memory
    precompile  whether workers compile what they run before they start shards: the first worker
                before the others, which find its binaries if they are on the same machine
    """

    def __init__(
        self,
        client: Any,
        addresses: Sequence[str],
        options: Options,
        backend: BackendName = "cpu",
        device_memory: int | None = None,
        *,
        precompile: bool = False,
    ) -> None:
        self.size, self.addresses, self.backend = len(addresses), list(addresses), backend
        self._client, self._scheduler = client, client.scheduler.address
        self._name = uuid4().hex
        self._calls, self._closed = 0, False
        self._connected = backend != "cuda"
        on_gpus = backend == "cuda"
        self._turn: AbstractContextManager[Any]
        self._turn = _turns[self._scheduler] if on_gpus else nullcontext()
        with self._turn:
            self._run(self._start(options, backend, device_memory, precompile))

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        with self._turn:
            return self._run(self._call(method, arguments))

    def check_alive(self) -> None:
        if self._lost.done():
            raise self._lost.result().with_traceback(None)

    def on_loss(self, notify: Callable[[], None]) -> None:
        async def listen() -> None:
            self._lost.add_done_callback(lambda _: notify())

        self._run(listen())

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        cluster = self._client.cluster
        try:
            self._loop.call_soon_threadsafe(self._watching.cancel)
            self._client.close()
        finally:
            if cluster is not None:
                cluster.close()

    # Everything below runs on the event loop of the client.

    @property
    def _loop(self) -> Any:
        return self._client.loop.asyncio_loop

    def _run(self, steps: Coroutine[Any, Any, _Result]) -> _Result:
        return asyncio.run_coroutine_threadsafe(steps, self._loop).result()

    async def _start(
        self,
        options: Options,
        backend: BackendName,
        device_memory: int | None,
        precompile: bool,
    ) -> None:
        self._lost: asyncio.Future[ShardLost] = asyncio.get_running_loop().create_future()
        self._watching = asyncio.create_task(self._watch())
        try:
            if precompile:
                for some in (self.addresses[:1], self.addresses[1:]):
                    compiling = [(compile_kernels, options, backend)] * len(some)
                    await self._results(some, compiling)
            kind = (options, backend, device_memory)
            shards = [
                (start_shard, self._name, rank, self.addresses, *kind) for rank in range(self.size)
            ]
            # held: Dask keeps the shards as long as there is a future of them
            self._shards = [
                self._submitted(address, *each)
                for address, each in zip(self.addresses, shards, strict=True)
            ]
            await self._call("order", [()] * self.size)
        except BaseException:
            self._watching.cancel()
            raise

    async def _call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        self.check_alive()
        if not self._connected:
            identity = await self._results(self.addresses[:1], [(new_group, self._shards[0])])
            await self._results(
                self.addresses, [(join_group, shard, *identity) for shard in self._shards]
            )
            self._connected = True
        self._calls += 1
        return await self._results(
            self.addresses,
            [
                (call_shard, shard, self._calls, method, *each)
                for shard, each in zip(self._shards, arguments, strict=True)
            ],
        )

    async def _results(
        self, addresses: Sequence[str], calls: Sequence[tuple[Any, ...]]
    ) -> list[Any]:
        """Calls a function on each of these workers, and returns the results. If one raises an
        error or a worker is lost, ends the other calls and raises that.

        calls  function and arguments, by worker
        """
        futures: list[Any] = []

        async def gather() -> list[Any]:
            for address, (function, *arguments) in zip(addresses, calls, strict=True):
                placed = [await self._placed(each, address) for each in arguments]
                futures.append(self._submitted(address, function, *placed))
            results: list[Any] = await self._client.gather(futures, asynchronous=True)
            return results

        gathering = asyncio.create_task(gather())
        either: set[asyncio.Future[Any]] = {gathering, self._lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if gathering.done() and not gathering.cancelled() and gathering.exception() is None:
            return gathering.result()
        error = None
        if gathering.done() and not gathering.cancelled():
            error = gathering.exception()
        gathering.cancel()
        raise await self._interrupted(list(zip(addresses, futures, strict=False)), error)

    def _submitted(self, address: str, function: Any, *arguments: Any) -> Any:
        return self._client.submit(
            function, *arguments, workers=[address], allow_other_workers=False, pure=False
        )

    async def _placed(self, argument: Any, address: str) -> Any:
        if not _is_large(argument):
            return argument
        return await self._client.scatter(argument, workers=[address], direct=True, hash=False)

    async def _interrupted(
        self, calls: list[tuple[str, Any]], error: BaseException | None
    ) -> BaseException:
        """Ends what is left of a call that failed. Returns why it failed.

        calls  address of the worker, and future, of each shard that was called
        error  what waiting for the results raised; None if a worker was lost meanwhile
        """
        self._connected = self.backend != "cuda"
        try:
            await asyncio.wait_for(self._end(calls), _INTERRUPT_SECONDS)
        except (ClusterUnavailable, TimeoutError) as unanswered:
            log.warning("a call of %d shards was not ended: %r", self.size, unanswered)
        errors = [await future.exception() for _, future in calls if future.status == "error"]
        for each in errors:
            if isinstance(each, EngineError) and not isinstance(each, ShardLost):
                return each
        # a shard that cannot reach another finds out before the scheduler is asked
        await asyncio.wait({self._lost}, timeout=2 * WATCH_SECONDS)
        if self._lost.done():
            return self._lost.result().with_traceback(None)
        others = [each for each in errors if not isinstance(each, Interrupted)]
        ended = next(iter(others or errors), error) or TimeoutError("the call was not ended")
        if _is_cut(ended, in_shard=bool(errors)):
            cut = ClusterUnavailable(self._scheduler, f"is cut: {ended}")
            cut.__cause__ = ended
            ended = cut
        if isinstance(ended, ShardLost):
            self._lose(ended)
        return ended

    async def _end(self, calls: list[tuple[str, Any]]) -> None:
        while True:
            living = await self._living() & set(self.addresses)
            interrupting = self._client.run(
                interrupt_shard, self._name, workers=sorted(living), on_error="ignore"
            )
            await self._answer(interrupting)
            if all(future.done() for address, future in calls if address in living):
                return
            await asyncio.sleep(0.05)

    async def _living(self) -> set[str]:
        if self._client.status != "running":
            raise ClusterUnavailable(self._scheduler, _DISCONNECTED)
        return set(await self._answer(self._client.nthreads()))

    async def _answer(self, asked: Any) -> Any:
        """The result of a question to the scheduler. Raises ClusterUnavailable if it is lost, or
        does not answer for SCHEDULER_SECONDS.
        """
        address = self._scheduler
        answering = asyncio.ensure_future(asked)
        until = monotonic() + SCHEDULER_SECONDS
        try:
            while not answering.done():
                await asyncio.wait({answering}, timeout=WATCH_SECONDS)
                # otherwise Dask would try to connect again for long
                if self._client.status != "running":
                    raise ClusterUnavailable(address, _DISCONNECTED)
                if monotonic() > until:
                    waited = f"for {SCHEDULER_SECONDS:g} s"
                    raise ClusterUnavailable(
                        address, f"is lost: its scheduler did not answer {waited}"
                    )
            return answering.result()
        except ClusterUnavailable:
            raise
        except Exception as error:
            raise ClusterUnavailable(address, f"is lost: {error!r}") from error
        finally:
            answering.cancel()

    async def _watch(self) -> None:
        while (loss := await self._loss()) is None:
            await asyncio.sleep(WATCH_SECONDS)
        self._lose(loss)

    def _lose(self, loss: ShardLost) -> None:
        if not self._lost.done():
            self._lost.set_result(loss)

    async def _loss(self) -> ShardLost | None:
        try:
            living = await self._living()
        except ClusterUnavailable as loss:
            return loss
        for rank, address in enumerate(self.addresses):
            if address not in living:
                return ShardLost(rank, self.size, address)
        return None


def _is_large(argument: Any) -> bool:
    if isinstance(argument, EdgeBatch):
        return argument.operations > _PLACED
    arrays: list[Any] = [argument]
    if isinstance(argument, Snapshot):
        arrays = list(argument.arrays.values())
    elif isinstance(argument, ViewQuery):
        arrays = [argument.seeds, argument.weights]
    return sum(each.nbytes for each in arrays if isinstance(each, np.ndarray)) > _PLACED_BYTES


def _is_cut(error: BaseException, in_shard: bool) -> bool:
    """Whether a call failed because of a connection. A shard may also raise an OSError for a full
    disk; here only connections do.
    """
    from distributed.comm import CommClosedError

    return isinstance(error, (CommClosedError, TimeoutError) if in_shard else OSError)
