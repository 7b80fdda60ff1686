"""What runs the shards of a graph: the worker processes of a Dask cluster, as their caller sees
them.

Dask starts the shards, and keeps them. A call is one message to each worker and one back, which do
not pass the scheduler: a task of Dask takes some ten times as long. Every `WATCH_SECONDS` the
scheduler is asked which workers it has. So the loss of a worker, or of the scheduler, is noticed
soon, and ends the call in progress.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, nullcontext
from time import monotonic
from typing import Any, TypeVar
from uuid import uuid4

from liverank_gpu.errors import ClusterUnavailable, EngineError, ShardLost
from liverank_gpu.sharded.communicator import Interrupted
from liverank_gpu.sharded.dask_shard import (
    PARTS,
    Parts,
    Step,
    compile_kernels,
    interrupt_shard,
    is_started,
    packed,
    start_shard,
    unpacked,
)
from liverank_gpu.types import BackendName, Options

log = logging.getLogger("liverank.shards")

WATCH_SECONDS = 0.5
"""Between two questions to the scheduler."""

SCHEDULER_SECONDS = 30.0
"""A scheduler that has not answered for so long is lost."""

_INTERRUPT_SECONDS = 30.0
"""For the other shards to end an interrupted call."""

_DISCONNECTED = "is lost: its scheduler has disconnected"

_Result = TypeVar("_Result")

_compiled: set[tuple[Options, BackendName, Parts]] = set()
"""What workers of this process have compiled, whose binaries later ones find."""

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
    piece    slots of their lists that a caller has at once. 8 MiB of neighbours, and merging them
             takes about ten times as much of its memory
    """

    size: int
    backend: str = "cpu"
    piece: int = 1 << 21

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

    def lose_frozen(self, seconds: float) -> None:  # noqa: B027
        """From now on a shard whose process does not answer for so long is lost. Otherwise Dask
        decides, after five minutes: what a process computes can hold up its answers.
        """


class DaskWorkers(Workers):
    """Shards in workers of a Dask cluster, one in each.

    client      distributed.Client, which `close` closes, and the cluster if the client started it
    addresses   of the workers, by rank
    backend     of the shards
    device_memory  of each worker: see liverank_gpu.limit_device_memory
    parts       what the shards are made of
    shared      whether the client is of others too: then `close` leaves it open
    precompile  whether workers compile what they run before they start shards: the first worker
                before the others, which find its binaries if they are on the same machine; all at
                once when this process had it done before
    """

    def __init__(
        self,
        client: Any,
        addresses: Sequence[str],
        options: Options,
        backend: BackendName = "cpu",
        device_memory: int | None = None,
        *,
        parts: Parts = PARTS,
        shared: bool = False,
        precompile: bool = False,
    ) -> None:
        self.size, self.addresses, self.backend = len(addresses), list(addresses), backend
        self.client, self._scheduler = client, client.scheduler.address
        self._parts, self._shared = parts, shared
        self._name = uuid4().hex
        self._calls, self._closed = 0, False
        self._frozen = set[str]()  # their addresses
        self._asking: Future[None] | None = None
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

    def lose_frozen(self, seconds: float) -> None:
        if self._asking is None and not self._closed:
            self._asking = asyncio.run_coroutine_threadsafe(self._ask(seconds), self._loop)

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._asking is not None:
            self._asking.cancel()
        self._loop.call_soon_threadsafe(self._watching.cancel)
        if self._shared:
            self._shards.clear()  # which Dask frees
            return
        cluster = self.client.cluster
        try:
            self.client.close()
        finally:
            if cluster is not None:
                cluster.close()

    # Everything below runs on the event loop of the client.

    @property
    def _loop(self) -> Any:
        return self.client.loop.asyncio_loop

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
                what = options, backend, self._parts
                first = [] if what in _compiled else self.addresses[:1]
                for some in filter(None, (first, self.addresses[len(first) :])):
                    tasks = [self._task(each, compile_kernels, *what) for each in some]
                    await self._done(some, tasks)
                _compiled.add(what)
            kind = (options, backend, device_memory, self._parts)
            # held: Dask keeps the shards as long as there is a future of them
            self._shards = [
                self._task(address, start_shard, self._name, rank, self.addresses, *kind)
                for rank, address in enumerate(self.addresses)
            ]
            started = [
                self._task(address, is_started, shard)
                for address, shard in zip(self.addresses, self._shards, strict=True)
            ]
            await self._done(self.addresses, started)
        except BaseException:
            self._watching.cancel()
            raise

    async def _done(self, addresses: Sequence[str], tasks: Sequence[Any]) -> None:
        """Waits for a task on each of these workers."""
        gather = self.client.gather
        await self._results(addresses, [gather(each, asynchronous=True) for each in tasks])

    async def _call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        self.check_alive()
        if not self._connected:
            identity = await self._results(
                self.addresses[:1], [self._step(0, "new_group", packed(()))]
            )
            arrived = packed(tuple(identity))
            joining = [self._step(rank, "connect", arrived) for rank in range(self.size)]
            await self._results(self.addresses, joining)
            self._connected = True
        self._calls += 1
        # once where all get the same
        messages: dict[tuple[int, ...], Any] = {}
        for each in arguments:
            key = tuple(map(id, each))
            if key not in messages:
                messages[key] = packed((self._calls, method, each))
        calls = [
            self._step(rank, "call", messages[tuple(map(id, each))])
            for rank, each in enumerate(arguments)
        ]
        return await self._results(self.addresses, calls)

    async def _results(
        self, addresses: Sequence[str], answers: Iterable[Awaitable[Any]]
    ) -> list[Any]:
        """What these workers answer, one each. If one raises an error or a worker is lost, ends the
        other calls and raises that.
        """
        calls = [asyncio.ensure_future(each) for each in answers]
        ended = asyncio.gather(*calls)
        # the errors are asked of the calls
        ended.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        either: set[asyncio.Future[Any]] = {ended, self._lost}
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if all(each.done() and not each.cancelled() and each.exception() is None for each in calls):
            return [each.result() for each in calls]
        try:
            raise await self._interrupted(list(zip(addresses, calls, strict=True)))
        finally:
            for each in calls:
                each.cancel()

    def _task(self, address: str, function: Any, *arguments: Any) -> Any:
        """A task of Dask on this worker."""
        return self.client.submit(
            function, *arguments, workers=[address], allow_other_workers=False, pure=False
        )

    async def _step(self, rank: int, step: Step, arguments: Any) -> Any:
        """What a method of HostedShard returns there for these arguments, which are `packed`.
        Raises what it raises, and ClusterUnavailable if the worker cannot be reached.
        """
        from distributed.core import clean_exception

        to = self.addresses[rank]
        call = {"to": to, "name": self._name, "step": step, "arguments": arguments}
        try:
            answer = await self.client.rpc(to).liverank_step(**call)
        except OSError as error:
            raise _NotReached(self._scheduler, f"is cut: {error}") from error
        if "result" in answer:
            return unpacked(answer["result"])
        _, raised, traceback = clean_exception(**answer)
        raise raised.with_traceback(traceback)

    async def _interrupted(self, calls: list[tuple[str, asyncio.Future[Any]]]) -> BaseException:
        """Ends what is left of a call that failed. Returns why it failed.

        calls  address of the worker, and its answer, of each shard that was called
        """
        self._connected = self.backend != "cuda"
        try:
            await asyncio.wait_for(self._end(calls), _INTERRUPT_SECONDS)
        except (ClusterUnavailable, TimeoutError) as unanswered:
            log.warning("a call of %d shards was not ended: %r", self.size, unanswered)
        errors = [error for _, each in calls if (error := _error_of(each)) is not None]
        for each in errors:
            if isinstance(each, EngineError) and not isinstance(each, ShardLost):
                return each
        # a shard that cannot reach another finds out before the scheduler is asked
        await asyncio.wait({self._lost}, timeout=2 * WATCH_SECONDS)
        if self._lost.done():
            return self._lost.result().with_traceback(None)
        others = [each for each in errors if not isinstance(each, Interrupted)]
        error = next(iter(others or errors), None) or TimeoutError("the call was not ended")
        if _is_cut(error):
            cut = ClusterUnavailable(self._scheduler, f"is cut: {error}")
            cut.__cause__ = error
            error = cut
        if isinstance(error, ShardLost):
            self._lose(error)
        return error

    async def _end(self, calls: list[tuple[str, asyncio.Future[Any]]]) -> None:
        while True:
            # the scheduler may still count one that has ended, and would try to connect for long
            ended = {address for address, each in calls if isinstance(_error_of(each), _NotReached)}
            living = await self._living() & set(self.addresses) - ended - self._frozen
            interrupting = self.client.run(
                interrupt_shard, self._name, workers=sorted(living), on_error="ignore"
            )
            await self._answer(interrupting)
            if all(each.done() for address, each in calls if address in living):
                return
            await asyncio.sleep(0.05)

    async def _living(self) -> set[str]:
        if self.client.status != "running":
            raise ClusterUnavailable(self._scheduler, _DISCONNECTED)
        return set(await self._answer(self.client.nthreads()))

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
                if self.client.status != "running":
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

    async def _ask(self, seconds: float) -> None:
        while not (self._lost.done() or self._closed):
            asked = (self.client.rpc(address).identity() for address in self.addresses)
            answers = [asyncio.wait_for(each, seconds) for each in asked]
            for rank, answer in enumerate(await asyncio.gather(*answers, return_exceptions=True)):
                if isinstance(answer, TimeoutError):
                    self._frozen.add(address := self.addresses[rank])
                    log.error("%s has not answered for %g s and is given up", address, seconds)
                    self._lose(ShardLost(rank, self.size, address))
            await asyncio.sleep(WATCH_SECONDS)

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


class _NotReached(ClusterUnavailable):
    """The caller does not reach a worker."""


def _error_of(call: asyncio.Future[Any]) -> BaseException | None:
    return call.exception() if call.done() and not call.cancelled() else None


def _is_cut(error: BaseException) -> bool:
    """Whether a call failed in a shard because of a connection. A full disk, say, is another
    OSError.
    """
    from distributed.comm import CommClosedError

    return isinstance(error, (CommClosedError, TimeoutError))
