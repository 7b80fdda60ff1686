"""Shards in the worker processes of a Dask cluster: the side of a worker, which holds shards.

On CPUs, shards send each other messages from worker to worker, which a handler receives that each
worker is given. A message has the number of the call and its own within the call, so that one of an
interrupted call is never taken for one of a later call. GPUs exchange data by NCCL.

A shard is the result of a Dask task and stays on its worker. Dask frees it when the client that has
the future releases it, disconnects or ends.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from concurrent.futures import FIRST_COMPLETED, Future, InvalidStateError, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, NamedTuple
from weakref import WeakValueDictionary

import numpy as np
from numpy.typing import NDArray

from gpu.backends import backend_named
from gpu.errors import EXIT_DEVICE_LOST, BackendUnavailable, DeviceLost
from gpu.operations.backend import Backend
from gpu.sharded.communicator import HostCommunicator, Interrupted
from gpu.sharded.nccl import NcclCommunicator, unique_id
from gpu.sharded.shard import Shard
from gpu.sharded.warm_up import warm_up
from gpu.types import BackendName, Options

log = logging.getLogger("liverank.shards")

MESSAGE_SECONDS = 600.0
"""How long a shard waits for the others: a load is the longest step."""

_JOIN_SECONDS = 1.0
"""How long joining a group of NCCL may go on when it is interrupted."""

THREADS = "threads"
"""Dask's resource of a worker: how many its shards use on a CPU. NUMBA_NUM_THREADS would come too
late: Numba may start with the main module of a script, and then refuses another number.
"""

_Key = tuple[int, int, int]
"""The call, the exchange within it, and the shard that sends."""


class _Mailbox:
    """Messages that have arrived, and those that are waited for. Only for the worker's event
    loop.
    """

    def __init__(self) -> None:
        self._messages: dict[_Key, asyncio.Future[Any]] = {}
        self._call = 0

    def begin(self, call: int) -> None:
        """Forgets messages of earlier calls."""
        self._call = call
        self._messages = {key: each for key, each in self._messages.items() if key[0] >= call}

    def put(self, key: _Key, message: Any) -> None:
        if key[0] >= self._call and not (waiting := self._slot(key)).done():
            waiting.set_result(message)

    async def take(self, key: _Key) -> Any:
        message = await self._slot(key)
        self._messages.pop(key, None)
        return message

    def interrupt(self) -> None:
        """Has all who wait for a message of this call raise Interrupted."""
        for key, each in self._messages.items():
            if key[0] == self._call and not each.done():
                each.set_exception(Interrupted())

    def _slot(self, key: _Key) -> asyncio.Future[Any]:
        if key not in self._messages:
            self._messages[key] = asyncio.get_running_loop().create_future()
        return self._messages[key]


class DaskCommunicator(HostCommunicator):
    """One worker's channels to the others.

    worker     distributed.Worker
    name       of the graph
    addresses  of all workers, by rank
    """

    def __init__(self, worker: Any, name: str, rank: int, addresses: Sequence[str]) -> None:
        self.rank, self.size = rank, len(addresses)
        self.mailbox = _Mailbox()
        self._worker, self._name, self._addresses = worker, name, addresses
        self._call = self._exchanges = 0

    def begin(self, call: int) -> None:
        """Starts a call; its number is the same on all shards, and higher than earlier ones."""
        self._call, self._exchanges = call, 0

        async def begin() -> None:
            self.mailbox.begin(call)

        self._run(begin())

    def interrupt(self) -> None:
        """Ends the waiting for other shards, which raises Interrupted there. Any thread may call
        it.
        """
        self._loop.call_soon_threadsafe(self.mailbox.interrupt)

    def exchange(self, parts: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        self._exchanges += 1
        received: list[NDArray[np.generic]] = self._run(self._exchange(parts))
        return received

    async def _exchange(self, parts: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        from distributed.protocol import to_serialize

        message = (self._call, self._exchanges)
        peers = [peer for peer in range(self.size) if peer != self.rank]
        sending = [
            self._worker.rpc(self._addresses[peer]).liverank_receive(
                to=self._addresses[peer],
                name=self._name,
                key=[*message, self.rank],
                message=to_serialize(np.ascontiguousarray(parts[peer])),
                # a shard waits for what others send; their replies would cost as much again
                reply=False,
            )
            for peer in peers
        ]
        receiving = [self.mailbox.take((*message, peer)) for peer in peers]
        done = await asyncio.gather(*receiving, *sending)
        received = dict(zip(peers, done, strict=False))
        received[self.rank] = parts[self.rank]
        return [received[rank] for rank in range(self.size)]

    @property
    def _loop(self) -> Any:
        return self._worker.loop.asyncio_loop

    def _run(self, steps: Any) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(steps, self._loop).result(MESSAGE_SECONDS)
        except TimeoutError as error:
            waited = f"shard {self.rank} waited {MESSAGE_SECONDS:.0f} s for the others"
            raise TimeoutError(waited) from error


class HostedShard:
    """A shard with a thread of its own, so that shards of several graphs do not wait for each
    other.

    communicator  of the shard
    threads       most threads of its loops on a CPU; None: all
    """

    def __init__(
        self,
        communicator: DaskCommunicator | NcclCommunicator,
        options: Options,
        backend: Backend,
        threads: int | None = None,
    ) -> None:
        self.communicator = communicator
        self._device = backend.device
        on_gpu = backend.name == "cuda"
        self._prepare = _use_own_stream if on_gpu else partial(_use_threads, threads)
        self._thread = self._new_thread()
        self._ended = Future[None]()
        self._shard = self._thread.submit(Shard, communicator, options, backend).result()

    def call(self, number: int, method: str, arguments: Sequence[Any]) -> Any:
        """Calls a method of the shard. The process ends if its device is lost."""
        return self._thread.submit(self._call, number, method, arguments).result()

    def connect(self, identity: Any) -> None:
        """See NcclCommunicator. Raises Interrupted soon after `interrupt`: then NCCL may keep the
        thread, and the shard has another one.
        """
        assert isinstance(self.communicator, NcclCommunicator)
        self._ended = ended = Future[None]()
        joining = self._thread.submit(self.communicator.connect, identity)
        wait([joining, ended], return_when=FIRST_COMPLETED)
        try:
            joining.result(_JOIN_SECONDS)
        except TimeoutError:
            self._thread.shutdown(wait=False)
            self._thread = self._new_thread()
            raise Interrupted from None

    def interrupt(self) -> None:
        """Ends the waiting for other shards, which raises Interrupted there. Any thread may call
        it, also repeatedly.
        """
        with suppress(InvalidStateError):
            self._ended.set_result(None)
        self.communicator.interrupt()

    def _new_thread(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(1, "liverank-shard", self._prepare)

    def _call(self, number: int, method: str, arguments: Sequence[Any]) -> Any:
        if isinstance(self.communicator, DaskCommunicator):
            self.communicator.begin(number)
        try:
            with self._device.detecting_loss():
                return getattr(self._shard, method)(*arguments)
        except DeviceLost as error:
            log.critical("%s; the worker ends, and is lost to its graphs", error)
            os._exit(EXIT_DEVICE_LOST)


def _use_own_stream() -> None:
    # the default one would also wait for streams of other shards
    import cupy

    cupy.cuda.Stream(non_blocking=True).use()


def _use_threads(threads: int | None) -> None:
    import numba

    if threads is not None:
        numba.set_num_threads(min(threads, numba.get_num_threads()))


_shards: WeakValueDictionary[tuple[str, str], HostedShard] = WeakValueDictionary()
"""By the address of the worker and the name of the graph. A process has one worker, except in
tests.
"""


async def _receive(to: str, name: str, key: list[int], message: Any) -> dict[str, str]:
    call, exchange, sender = key
    communicator = _shards[to, name].communicator
    assert isinstance(communicator, DaskCommunicator)
    communicator.mailbox.put((call, exchange, sender), message)
    return {"status": "OK"}


class Capability(NamedTuple):
    """What a worker offers.

    version  of liverank, None if it was not installed by a package
    shards   how many it holds already
    device   identifies its GPU; None without one, or where none is asked for
    """

    version: str | None
    shards: int
    device: str | None


def own_version() -> str | None:
    """The version of liverank."""
    try:
        return version("liverank")
    except PackageNotFoundError:
        return None


# ---- called by the client, see gpu.sharded.dask_workers ----


def capability(backend: BackendName, dask_worker: Any) -> Capability:
    """Of this worker."""
    shards = sum(address == dask_worker.address for address, _ in list(_shards))
    return Capability(own_version(), shards, None if backend == "cpu" else _device())


def _device() -> str | None:
    try:
        backend_named("cuda")
    except BackendUnavailable:
        return None
    import cupy

    identity: bytes = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["uuid"]
    return bytes(identity).hex()


@cache
def compile_kernels(options: Options, backend: BackendName) -> None:
    """Compiles what shards run, once a process."""
    warm_up(options, backend_named(backend))


def start_shard(
    name: str,
    rank: int,
    addresses: Sequence[str],
    options: Options,
    backend: BackendName,
    device_memory: int | None,
) -> HostedShard:
    """The shard of a graph, on this worker. Raises InvalidValue.

    device_memory  see gpu.limit_device_memory; of the server that the worker serves now
    """
    from distributed import get_worker

    worker = get_worker()
    communicator: DaskCommunicator | NcclCommunicator
    if backend == "cuda":
        communicator = NcclCommunicator(rank, len(addresses))
    else:
        communicator = DaskCommunicator(worker, name, rank, addresses)
        worker.handlers["liverank_receive"] = _receive
    on = backend_named(backend)
    on.device.limit_memory(device_memory)
    threads = worker.state.total_resources.get(THREADS)
    hosted = HostedShard(communicator, options, on, None if threads is None else int(threads))
    _shards[worker.address, name] = hosted
    return hosted


def new_group(_: HostedShard) -> Any:
    """What the shards form a group of NCCL with."""
    return unique_id()


def join_group(hosted: HostedShard, identity: Any) -> None:
    """See NcclCommunicator.connect."""
    _leave_pool()
    hosted.connect(identity)


def call_shard(hosted: HostedShard, number: int, method: str, *arguments: Any) -> Any:
    """See HostedShard.call."""
    _leave_pool()
    return hosted.call(number, method, arguments)


async def interrupt_shard(name: str, dask_worker: Any) -> None:
    """Ends what a shard waits for, if it is here."""
    if (hosted := _shards.get((dask_worker.address, name))) is not None:
        await asyncio.get_running_loop().run_in_executor(None, hosted.interrupt)


def _leave_pool() -> None:
    # otherwise graphs that share workers could wait for each other's threads in a circle
    from distributed import secede

    secede()
