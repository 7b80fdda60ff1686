"""A shard in a worker process of Dask, and how it reaches the others."""

from __future__ import annotations

import asyncio
import logging
import os
import pickle
import threading
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any, Literal, NamedTuple
from weakref import WeakValueDictionary, finalize

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends import backend_named
from liverank_gpu.errors import EXIT_DEVICE_LOST, BackendUnavailable, ClusterUnavailable, DeviceLost
from liverank_gpu.graph.decay import in_half_lives
from liverank_gpu.graph.warm_up import dated, sample_batches, warm_up_pages
from liverank_gpu.native import kernels
from liverank_gpu.operations.backend import Backend
from liverank_gpu.personalized.resolve import METHODS, PUBLISHED_METHODS, resolve
from liverank_gpu.sharded.communicator import (
    Communicator,
    HostCommunicator,
    Interrupted,
    NcclCommunicator,
    SingleCommunicator,
    unique_id,
)
from liverank_gpu.sharded.loading import warm_up_merge
from liverank_gpu.sharded.member import Member
from liverank_gpu.types import BackendName, EdgeBatch, Options, PersonalizedQuery

# Whether the workers of shards still reach each other, which a shard asks when a call takes long.
#
# A message between shards has no reply. If the network between two workers is cut, TCP gives it up,
# and nothing says so to the shard that waits for it, also when the network is back.

ASK_SECONDS = 5.0
"""Between two questions to the others during a call."""

Key = tuple[int, int, int]
"""Of a message: the call, the exchange within it, and the shard that sends."""


class Peers:
    """The other workers that hold shards of a graph. Only for the worker's event loop.

    worker     distributed.Worker
    name       of the graph
    addresses  of all workers, by rank
    missing    the messages that this shard waits for now
    """

    def __init__(
        self,
        worker: Any,
        name: str,
        rank: int,
        addresses: Sequence[str],
        missing: Callable[[], set[Key]] = set,
    ) -> None:
        self._worker, self._name, self._missing = worker, name, missing
        self._rank, self._addresses = rank, list(addresses)

    async def ask(self) -> None:
        """Asks all others at once. Raises ClusterUnavailable if one cannot be reached, which TCP
        notices (``distributed.comm.timeouts.tcp``: 30 s), or if a message of it is lost. A worker
        may answer late: what it computes can hold up its event loop.
        """
        others = [peer for peer in range(len(self._addresses)) if peer != self._rank]
        await asyncio.gather(*map(self._ask, others))

    async def _ask(self, peer: int) -> None:
        address = self._addresses[peer]
        waiting = [key for key in self._missing() if key[2] == peer]
        question = {"to": address, "name": self._name, "receiver": self._rank, "keys": waiting}
        try:
            answer = await self._worker.rpc(address).liverank_lost(**question)
        except OSError as error:
            raise self.unreachable(peer, error) from error
        # None: its shard has not started yet
        lost = {tuple(key) for key in answer["lost"]} if answer else set()
        if lost & self._missing():
            raise self.unreachable(peer, "a message was lost when their connection ended")

    def unreachable(self, peer: int, reason: object) -> ClusterUnavailable:
        """That this shard does not reach another one."""
        here, there = self._addresses[self._rank], self._addresses[peer]
        return ClusterUnavailable(
            self._worker.scheduler.address,
            f"is cut: shard {self._rank} at {here} does not reach shard {peer} at {there}: "
            f"{reason}",
        )


# ---- what messages of Dask contain ----

PLAIN_BYTES = 1 << 16
"""Up to this size, to copy what is sent takes less time than what Dask does to avoid it."""


def packed(content: Any) -> Any:
    """Anything that can be pickled, for a member of a message: see `unpacked`.

    Pickled here, since Dask leaves arrays where they arrive, which is not aligned.
    """
    from distributed.protocol import to_serialize

    pickled = pickle.dumps(content)
    return pickled if len(pickled) <= PLAIN_BYTES else to_serialize(pickled)


def unpacked(arrived: Any) -> Any:
    """What was `packed`."""
    return pickle.loads(arrived)


# ---- how shards on CPUs exchange data: messages from Dask worker to Dask worker ----
#
# A message has the number of the call and its own within the call, so that one of an interrupted
# call is never taken for one of a later call.

MESSAGE_SECONDS = 600.0
"""How long a shard waits for the others: a load is the longest step."""


class Mailbox:
    """Messages that have arrived, and those that are waited for. Only for the worker's event
    loop.
    """

    def __init__(self) -> None:
        self._messages: dict[Key, asyncio.Future[Any]] = {}
        self._call, self._interrupted = 0, False

    def begin(self, call: int) -> None:
        """Forgets messages of earlier calls."""
        self._call, self._interrupted = call, False
        self._messages = {key: each for key, each in self._messages.items() if key[0] >= call}

    def put(self, key: Key, message: Any) -> None:
        if key[0] >= self._call and not (waiting := self._slot(key)).done():
            waiting.set_result(message)

    async def take(self, key: Key) -> Any:
        if self._interrupted:
            raise Interrupted
        message = await self._slot(key)
        self._messages.pop(key, None)
        return message

    def missing(self) -> set[Key]:
        """The messages of this call that are waited for."""
        return {
            key for key, each in self._messages.items() if key[0] == self._call and not each.done()
        }

    def interrupt(self) -> None:
        """Has all who wait for a message of this call raise Interrupted, also those who do later:
        a shard that computes may not know yet that its call was ended.
        """
        self._interrupted = True
        for key in self.missing():
            self._messages[key].set_exception(Interrupted())

    def _slot(self, key: Key) -> asyncio.Future[Any]:
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
        self.mailbox = Mailbox()
        self.peers = Peers(worker, name, rank, addresses, self.mailbox.missing)
        self._worker, self._name, self._addresses = worker, name, addresses
        self._call = self._exchanges = 0
        self._carriers: dict[Key, Any] = {}

    def begin(self, call: int) -> None:
        """Starts a call; its number is the same on all shards, and higher than earlier ones."""
        self._call, self._exchanges = call, 0

        def begin() -> None:
            self.mailbox.begin(call)
            self._carriers.clear()

        self._loop.call_soon_threadsafe(begin)  # before the exchanges of the call

    def interrupt(self) -> None:
        """Ends the waiting for other shards in this call, now and later, which raises Interrupted
        there. Any thread may call it.
        """
        self._loop.call_soon_threadsafe(self.mailbox.interrupt)

    def exchange(self, parts: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        self._exchanges += 1
        received: list[NDArray[np.generic]] = self._run(self._exchange(parts))
        return received

    def lost(self, keys: Sequence[Sequence[int]], receiver: int) -> list[Key]:
        """Those messages whose connection has ended since this shard sent them to the receiver."""
        sent = ((call, exchange, receiver) for call, exchange, _ in keys)
        return [
            (call, exchange, self.rank)
            for call, exchange, to in sent
            if (carrier := self._carriers.get((call, exchange, to))) and carrier.closed()
        ]

    async def _exchange(self, parts: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        message = (self._call, self._exchanges)
        peers = [peer for peer in range(self.size) if peer != self.rank]
        sending = [self._send(peer, message, parts[peer]) for peer in peers]
        receiving = [self.mailbox.take((*message, peer)) for peer in peers]
        done = await asyncio.gather(*receiving, *sending)
        received = dict(zip(peers, done, strict=False))
        received[self.rank] = parts[self.rank]
        return [received[rank] for rank in range(self.size)]

    async def _send(self, peer: int, message: tuple[int, int], part: NDArray[np.generic]) -> None:
        from distributed.core import send_recv
        from distributed.protocol import to_serialize

        is_small = part.nbytes <= PLAIN_BYTES
        address = self._addresses[peer]
        try:
            connection = await self._worker.rpc.connect(address)
            call, exchange = message
            self._carriers[call, exchange, peer] = connection
            # a receiver is behind by one exchange at most
            self._carriers.pop((call, exchange - 2, peer), None)
            try:
                await send_recv(
                    connection,
                    op="liverank_receive",
                    to=address,
                    name=self._name,
                    key=[*message, self.rank],
                    message=packed(part) if is_small else to_serialize(np.ascontiguousarray(part)),
                    # a shard waits for what others send; their replies would cost as much again
                    reply=False,
                )
            finally:
                self._worker.rpc.reuse(address, connection)
        except OSError as error:
            raise self.peers.unreachable(peer, error) from error

    @property
    def _loop(self) -> Any:
        return self._worker.loop.asyncio_loop

    def _run(self, steps: Any) -> Any:
        try:
            return asyncio.run_coroutine_threadsafe(steps, self._loop).result(MESSAGE_SECONDS)
        except TimeoutError as error:
            waited = f"shard {self.rank} waited {MESSAGE_SECONDS:.0f} s for the others"
            raise TimeoutError(waited) from error


# ---- what shards on GPUs compile before they start ----


def warm_up(options: Options, backend: Backend) -> None:
    """Compiles what shards run, if their backend compiles kernels."""
    if not backend.compiles_kernels:
        return
    warm_up_pages(backend, options.dangling, options.weighted)
    warm_up_merge(backend, options.weighted)
    options = in_half_lives(options)
    for batches in sample_batches(options):
        shard = Member(SingleCommunicator(), options, backend)
        for batch in batches:
            shard.apply(batch)
            for strategy in ("dynamic-traversal", "static", "residual"):
                shard.update(strategy)
        if options.decays:
            shard.apply(dated(options, EdgeBatch.of([(0, 1)]), 20.0))
            shard.update("residual")
        shard.top(1)
        queries = [PersonalizedQuery(np.array([0]), k=1, method=method) for method in METHODS]
        other = PersonalizedQuery(np.array([2]), k=1, method="pull")
        queries += [other] * backend.multivector.min_columns
        queries += [replace(other, method=method, form="published") for method in PUBLISHED_METHODS]
        shard.call_kept("answer", 0, resolve(shard.graph.ids, options, queries), [], np.inf)


# Shards in the worker processes of a Dask cluster: the side of a worker, which holds shards.
#
# On CPUs, shards send each other messages from worker to worker, which a handler receives that
# each worker is given. GPUs exchange data by NCCL.
#
# A shard is the result of a Dask task and stays on its worker. Dask frees it when the client that
# has the future releases it, disconnects or ends.

log = logging.getLogger("liverank.shards")

_JOIN_SECONDS = 1.0
"""How long joining a group of NCCL may go on when it is interrupted."""

THREADS = "threads"
"""Dask's resource of a worker: how many its shards use on a CPU. LIVERANK_THREADS would come too
late if the main module of a script, which is imported first, has run a loop.
"""


def gpu_identity() -> str | None:
    """Of the GPU of this process, unlike that of any other; None if there is none."""
    try:
        backend_named("cuda")
    except BackendUnavailable:
        return None
    import cupy

    identity: bytes = cupy.cuda.runtime.getDeviceProperties(cupy.cuda.Device().id)["uuid"]
    return bytes(identity).hex()


def _own_worker(worker: Any, _: int) -> Any:
    return worker


@dataclass(frozen=True)
class Parts:
    """What the shards of a graph are made of; Dask pickles it.

    member       what a shard is
    backend      by its name, see backend_named
    device       what a worker has, see gpu_identity
    worker       what a shard reaches the others by: a distributed.Worker, of which it is given that
                 on which it is, and its rank
    ask_seconds  between two questions to the others during a call
    """

    member: Callable[[Communicator, Options, Backend], Member] = Member
    backend: Callable[[BackendName], Backend] = backend_named
    device: Callable[[], str | None] = gpu_identity
    worker: Callable[[Any, int], Any] = _own_worker
    ask_seconds: float = ASK_SECONDS


PARTS = Parts()


class HostedShard:
    """A shard with a thread of its own, so that shards of several graphs do not wait for each
    other.

    communicator  of the shard
    peers         the workers of the other shards
    loop          the event loop of this worker
    threads       most threads of its loops on a CPU; None: all
    parts         what it is made of
    """

    def __init__(
        self,
        communicator: Communicator,
        peers: Peers,
        loop: asyncio.AbstractEventLoop,
        options: Options,
        backend: Backend,
        threads: int | None = None,
        parts: Parts = PARTS,
    ) -> None:
        self.communicator, self._ask_seconds = communicator, parts.ask_seconds
        self._peers, self._loop = peers, loop
        self._device = backend.device
        on_gpu = backend.name == "cuda"
        self._prepare = _use_own_stream if on_gpu else partial(_use_threads, threads)
        self._thread = self._new_thread()
        self._ended = asyncio.Event()
        self._shard = self._thread.submit(parts.member, communicator, options, backend).result()
        if isinstance(communicator, NcclCommunicator):
            finalize(self, _close_beside, communicator).atexit = False

    async def call(self, number: int, method: str, arguments: Sequence[Any]) -> Any:
        """Calls a method of the shard. The process ends if its device is lost. Raises
        ClusterUnavailable if another worker cannot be reached meanwhile: then the shard goes on
        until it waits for others, which `interrupt` ends.
        """
        calling = self._submitted(self._call, number, method, arguments)
        await self._wait_for(calling)
        return calling.result()

    async def new_group(self) -> Any:
        """What the shards form a group of NCCL with."""
        return await self._submitted(unique_id)

    async def connect(self, identity: Any) -> None:
        """See NcclCommunicator. Raises Interrupted soon after `interrupt`: then NCCL may keep the
        thread, and the shard has another one. Raises ClusterUnavailable as `call`.
        """
        assert isinstance(self.communicator, NcclCommunicator)
        self._ended.clear()
        joining, ended = (
            self._submitted(self.communicator.connect, identity),
            asyncio.ensure_future(self._ended.wait()),
        )
        try:
            await self._wait_for(joining, ended)
            await asyncio.wait_for(asyncio.shield(joining), _JOIN_SECONDS)
        except TimeoutError:
            self._thread.shutdown(wait=False)
            self._thread = self._new_thread()
            raise Interrupted from None
        finally:
            ended.cancel()

    def interrupt(self) -> None:
        """Ends the waiting for other shards, which raises Interrupted there. Any thread may call
        it, also repeatedly.
        """
        self._loop.call_soon_threadsafe(self._ended.set)
        assert isinstance(self.communicator, DaskCommunicator | NcclCommunicator)
        self.communicator.interrupt()

    def _submitted(self, function: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """What runs on the thread of the shard."""
        running = asyncio.wrap_future(self._thread.submit(function, *arguments))
        # of a call that has failed already, nobody asks how it ended
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        return running

    async def _wait_for(self, *results: asyncio.Future[Any]) -> None:
        """Returns when one is there. Raises ClusterUnavailable: see Peers.ask."""
        while not (await _first_of(results, self._ask_seconds)):
            asking = asyncio.ensure_future(self._peers.ask())
            if await _first_of([*results, asking]) == {asking}:
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


async def _first_of(
    results: Sequence[asyncio.Future[Any]], timeout: float | None = None
) -> set[asyncio.Future[Any]]:
    done, _ = await asyncio.wait(results, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
    return done


def _close_beside(communicator: NcclCommunicator) -> None:
    # a daemon, since it may wait for a worker that has ended
    threading.Thread(target=communicator.close, name="liverank-close", daemon=True).start()


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


Step = Literal["call", "new_group", "connect"]
"""A method of HostedShard."""


async def _step(to: str, name: str, step: Step, arguments: bytes) -> dict[str, Any]:
    from distributed.core import error_message

    try:
        method: Callable[..., Awaitable[Any]] = getattr(_shards[to, name], step)
        return {"status": "OK", "result": packed(await method(*unpacked(arguments)))}
    except Exception as error:  # for the caller, who raises it
        message = dict(error_message(error))
        error.__traceback__ = None  # its frames hold the shard, and it: a cycle
        return message


async def _receive(to: str, name: str, key: list[int], message: Any) -> dict[str, str]:
    call, exchange, sender = key
    communicator = _shards[to, name].communicator
    assert isinstance(communicator, DaskCommunicator)
    part = message if isinstance(message, np.ndarray) else unpacked(message)
    communicator.mailbox.put((call, exchange, sender), part)
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


def capability(backend: BackendName, parts: Parts, dask_worker: Any) -> Capability:
    """Of this worker."""
    shards = sum(address == dask_worker.address for address, _ in list(_shards))
    device = parts.device() if backend in ("cuda", "auto") else None
    return Capability(own_version(), shards, device)


@cache
def compile_kernels(options: Options, backend: BackendName, parts: Parts) -> None:
    """Compiles what shards run, once a process."""
    warm_up(options, parts.backend(backend))


def start_shard(
    name: str,
    rank: int,
    addresses: Sequence[str],
    options: Options,
    backend: BackendName,
    device_memory: int | None,
    parts: Parts,
) -> HostedShard:
    """The shard of a graph, on this worker. Raises InvalidValue.

    device_memory  see liverank_gpu.limit_device_memory; of the server that the worker serves now
    """
    from distributed import get_worker

    worker = get_worker()
    communicator: DaskCommunicator | NcclCommunicator
    if backend == "cuda":
        communicator = NcclCommunicator(rank, len(addresses))
        peers = Peers(parts.worker(worker, rank), name, rank, addresses)
    else:
        communicator = DaskCommunicator(parts.worker(worker, rank), name, rank, addresses)
        peers = communicator.peers
    worker.handlers |= {
        "liverank_step": _step,
        "liverank_receive": _receive,
        "liverank_lost": _lost,
    }
    on = parts.backend(backend)
    on.device.limit_memory(device_memory)
    threads = worker.state.total_resources.get(THREADS)
    most = None if threads is None else int(threads)
    hosted = HostedShard(communicator, peers, worker.loop.asyncio_loop, options, on, most, parts)
    _shards[worker.address, name] = hosted
    return hosted


def is_started(_: HostedShard) -> None:
    """Returns when `start_shard` has; raises what it raises."""


async def interrupt_shard(name: str, dask_worker: Any) -> None:
    """Ends what a shard waits for, if it is here."""
    if (hosted := _shards.get((dask_worker.address, name))) is not None:
        await asyncio.get_running_loop().run_in_executor(None, hosted.interrupt)
