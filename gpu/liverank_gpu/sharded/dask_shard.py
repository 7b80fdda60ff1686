"""Shards in the worker processes of a Dask cluster: the side of a worker, which holds shards.

On CPUs, shards send each other messages from worker to worker, which a handler receives that each
worker is given. GPUs exchange data by NCCL.

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

from liverank_gpu.backends import backend_named
from liverank_gpu.errors import EXIT_DEVICE_LOST, BackendUnavailable, DeviceLost
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.sharded.communicator import Interrupted
from liverank_gpu.sharded.messages import DaskCommunicator
from liverank_gpu.sharded.nccl import NcclCommunicator, unique_id
from liverank_gpu.sharded.peers import ASK_SECONDS, Key, Peers
from liverank_gpu.sharded.shard import Shard
from liverank_gpu.sharded.warm_up import warm_up
from liverank_gpu.types import BackendName, Options

log = logging.getLogger("liverank.shards")

_JOIN_SECONDS = 1.0
"""How long joining a group of NCCL may go on when it is interrupted."""

THREADS = "threads"
"""Dask's resource of a worker: how many its shards use on a CPU. LIVERANK_THREADS would come too
late if the main module of a script, which is imported first, has run a loop.
"""


class HostedShard:
    """A shard with a thread of its own, so that shards of several graphs do not wait for each
    other.

    communicator  of the shard
    peers         the workers of the other shards
    loop          the event loop of this worker
    threads       most threads of its loops on a CPU; None: all
    """

    def __init__(
        self,
        communicator: DaskCommunicator | NcclCommunicator,
        peers: Peers,
        loop: asyncio.AbstractEventLoop,
        options: Options,
        backend: Backend,
        threads: int | None = None,
    ) -> None:
        self.communicator = communicator
        self._peers, self._loop = peers, loop
        self._device = backend.device
        on_gpu = backend.name == "cuda"
        self._prepare = _use_own_stream if on_gpu else partial(_use_threads, threads)
        self._thread = self._new_thread()
        self._ended = Future[None]()
        self._shard = self._thread.submit(Shard, communicator, options, backend).result()

    def call(self, number: int, method: str, arguments: Sequence[Any]) -> Any:
        """Calls a method of the shard. The process ends if its device is lost. Raises
        ClusterUnavailable if another worker cannot be reached meanwhile: then the shard goes on
        until it waits for others, which `interrupt` ends.
        """
        calling = self._thread.submit(self._call, number, method, arguments)
        self._wait_for(calling)
        return calling.result()

    def connect(self, identity: Any) -> None:
        """See NcclCommunicator. Raises Interrupted soon after `interrupt`: then NCCL may keep the
        thread, and the shard has another one. Raises ClusterUnavailable as `call`.
        """
        assert isinstance(self.communicator, NcclCommunicator)
        self._ended = ended = Future[None]()
        joining = self._thread.submit(self.communicator.connect, identity)
        self._wait_for(joining, ended)
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

    def _wait_for(self, *results: Future[Any]) -> None:
        """Returns when one is there. Raises ClusterUnavailable: see Peers.ask."""
        while not wait(results, ASK_SECONDS, FIRST_COMPLETED).done:
            asking = asyncio.run_coroutine_threadsafe(self._peers.ask(), self._loop)
            if wait([*results, asking], return_when=FIRST_COMPLETED).done == {asking}:
                asking.result()
            else:
                asking.cancel()

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
    if threads is not None:
        kernels.set_threads(min(threads, kernels.threads()))


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


async def _lost(to: str, name: str, receiver: int, keys: list[list[int]]) -> dict[str, list[Key]]:
    communicator = hosted.communicator if (hosted := _shards.get((to, name))) else None
    if not isinstance(communicator, DaskCommunicator):
        return {"lost": []}
    return {"lost": communicator.lost(keys, receiver)}


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


# ---- called by the client, see liverank_gpu.sharded.dask_workers ----


def capability(backend: BackendName, dask_worker: Any) -> Capability:
    """Of this worker."""
    shards = sum(address == dask_worker.address for address, _ in list(_shards))
    return Capability(own_version(), shards, _device() if backend in ("cuda", "auto") else None)


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

    device_memory  see liverank_gpu.limit_device_memory; of the server that the worker serves now
    """
    from distributed import get_worker

    worker = get_worker()
    communicator: DaskCommunicator | NcclCommunicator
    if backend == "cuda":
        communicator = NcclCommunicator(rank, len(addresses))
        peers = Peers(worker, name, rank, addresses)
    else:
        communicator = DaskCommunicator(worker, name, rank, addresses)
        peers = communicator.peers
    worker.handlers |= {"liverank_receive": _receive, "liverank_lost": _lost}
    on = backend_named(backend)
    on.device.limit_memory(device_memory)
    threads = worker.state.total_resources.get(THREADS)
    most = None if threads is None else int(threads)
    hosted = HostedShard(communicator, peers, worker.loop.asyncio_loop, options, on, most)
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
