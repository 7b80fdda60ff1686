"""Shards in the worker processes of a Dask cluster.

Dask places and watches the processes and carries calls and results. Shards exchange data by a
handler that each worker gets, from worker to worker. A message is named by the call and by its
number within the call, so that those of an interrupted call are never taken for later ones.

A local cluster uses TLS with certificates made at its start, as a worker runs what any peer sends.
Dask's dashboard and its other pages are off. Scripts that start one need the guard
``if __name__ == "__main__"``, as with multiprocessing.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from time import monotonic, sleep
from typing import Any
from uuid import uuid4

import numpy as np
from numpy.typing import NDArray

from gpu.backends import backend_named
from gpu.errors import BackendUnavailable, EngineError, ShardLost
from gpu.sharded.communicator import HostCommunicator
from gpu.sharded.shard import Shard, warm_up
from gpu.sharded.workers import Workers
from gpu.types import EdgeBatch, Options

_MESSAGE_SECONDS = 600.0
"""A shard waits for another so long: at most for a load, which is the longest step."""

_WATCH_SECONDS = 1.0
"""How often the scheduler is asked which workers live."""

_INTERRUPT_SECONDS = 30.0
"""For the other shards to end an interrupted call."""

_PLACED, _PLACED_BYTES = 4096, 1 << 16
"""Batches of more operations, and larger arrays, are sent to the workers directly, not by the
scheduler.
"""

_NO_PAGES: dict[str, list[str]] = {
    "distributed.scheduler.http.routes": [],
    "distributed.worker.http.routes": [],
}
"""Dask always listens for HTTP, without TLS: nothing is there."""

_Key = tuple[int, int, int]
"""The call, the exchange within it, and the shard that sends."""


class Interrupted(Exception):
    """This shard was waiting for one that failed."""


class _Mailbox:
    """Messages that have arrived, or are waited for. Used on the worker's event loop alone."""

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
        """Ends the waiting of the call."""
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
                name=self._name,
                key=[*message, self.rank],
                message=to_serialize(np.ascontiguousarray(parts[peer])),
            )
            for peer in peers
        ]
        receiving = [self.mailbox.take((*message, peer)) for peer in peers]
        done = await asyncio.gather(*receiving, *sending)
        received = dict(zip(peers, done, strict=False))
        received[self.rank] = parts[self.rank]
        return [received[rank] for rank in range(self.size)]

    def _run(self, steps: Any) -> Any:
        loop = self._worker.loop.asyncio_loop
        try:
            return asyncio.run_coroutine_threadsafe(steps, loop).result(_MESSAGE_SECONDS)
        except TimeoutError as error:
            waited = f"shard {self.rank} waited {_MESSAGE_SECONDS:.0f} s for the others"
            raise TimeoutError(waited) from error


# ---- on a worker ----

_shards: dict[str, tuple[DaskCommunicator, Shard]] = {}
"""The shards of this process, by the name of the graph."""


async def _receive(name: str, key: list[int], message: Any) -> dict[str, str]:
    call, exchange, sender = key
    _shards[name][0].mailbox.put((call, exchange, sender), message)
    return {"status": "OK"}


def _start(name: str, rank: int, addresses: Sequence[str], options: Options) -> None:
    from distributed import get_worker

    worker = get_worker()
    worker.handlers["liverank_receive"] = _receive
    communicator = DaskCommunicator(worker, name, rank, addresses)
    _shards[name] = communicator, Shard(communicator, options, backend_named("cpu"))


def _call(name: str, call: int, method: str, *arguments: Any) -> Any:
    communicator, shard = _shards[name]
    communicator.begin(call)
    return getattr(shard, method)(*arguments)


async def _interrupt(name: str) -> None:
    if name in _shards:
        _shards[name][0].mailbox.interrupt()


def _living(dask_scheduler: Any) -> list[str]:
    return list(dask_scheduler.workers)


# ---- at the caller ----


class DaskWorkers(Workers):
    """Shards in workers of a Dask cluster, one in each.

    client     distributed.Client; closed with this
    addresses  of the workers, by rank
    """

    def __init__(self, client: Any, addresses: Sequence[str], options: Options) -> None:
        self.size, self.addresses = len(addresses), list(addresses)
        self._client = client
        self._name = uuid4().hex
        self._calls = 0
        self._lost: tuple[int, int, str] | None = None
        self._results(
            self._submit(
                _start,
                [(self._name, rank, self.addresses, options) for rank in range(self.size)],
            )
        )

    def call(self, method: str, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        if self._lost:
            raise ShardLost(*self._lost)
        self._calls += 1
        prefix = (self._name, self._calls, method)
        return self._results(self._submit(_call, [(*prefix, *each) for each in arguments]))

    def close(self) -> None:
        cluster = self._client.cluster
        self._client.close()
        if cluster is not None:
            cluster.close()

    def _submit(self, function: Any, arguments: Sequence[tuple[Any, ...]]) -> list[Any]:
        return [
            self._client.submit(
                function,
                *(self._placed(each, address) for each in of_shard),
                workers=[address],
                allow_other_workers=False,
                pure=False,
            )
            for address, of_shard in zip(self.addresses, arguments, strict=True)
        ]

    def _placed(self, argument: Any, address: str) -> Any:
        large = isinstance(argument, EdgeBatch) and argument.operations > _PLACED
        if large or (isinstance(argument, np.ndarray) and argument.nbytes > _PLACED_BYTES):
            return self._client.scatter(argument, workers=[address], direct=True, hash=False)
        return argument

    def _results(self, futures: list[Any]) -> list[Any]:
        """The results of all shards. Raises what went wrong on one, when all have ended."""
        from distributed import wait

        watched = monotonic()
        while not all(future.done() for future in futures):
            try:
                waiting = [future for future in futures if not future.done()]
                with self._client.as_current():  # there may be one for each graph
                    wait(waiting, timeout=_WATCH_SECONDS, return_when="FIRST_COMPLETED")
            except TimeoutError:
                pass
            if any(future.status == "error" for future in futures):
                break
            if monotonic() - watched > _WATCH_SECONDS:
                self._watch()
                watched = monotonic()
                if self._lost:
                    break
        else:
            if all(future.status == "finished" for future in futures):
                results: list[Any] = self._client.gather(futures)
                return results
        raise self._interrupted(futures)

    def _watch(self) -> None:
        """Records a worker that the scheduler no longer has."""
        living = set(self._client.run_on_scheduler(_living))
        for rank, address in enumerate(self.addresses):
            if address not in living and self._lost is None:
                self._lost = (rank, self.size, address)

    def _interrupted(self, futures: list[Any]) -> BaseException:
        """Ends the call on the other shards. Returns the error that ended it."""
        begun = monotonic()
        while monotonic() - begun < _INTERRUPT_SECONDS:
            living = set(self._client.run_on_scheduler(_living)) & set(self.addresses)
            self._client.run(_interrupt, self._name, workers=sorted(living), on_error="ignore")
            pending = [
                future
                for address, future in zip(self.addresses, futures, strict=True)
                if address in living and not future.done()
            ]
            if not pending:
                break
            sleep(0.05)
        errors = [future.exception() for future in futures if future.status == "error"]
        for error in errors:
            if isinstance(error, EngineError):
                return error
        self._watch()
        if self._lost:
            return ShardLost(*self._lost)
        others = [error for error in errors if not isinstance(error, Interrupted)]
        return next(iter(others or errors), TimeoutError("the shards did not end the call"))


def local_workers(options: Options, shards: int) -> DaskWorkers:
    """Starts a cluster of as many worker processes on this machine. Raises BackendUnavailable."""
    try:
        import dask
        from distributed import Client, LocalCluster
        from distributed.security import Security

        security = Security.temporary()
    except ImportError as error:
        raise BackendUnavailable(
            "cpu", f"shards need Dask: pip install 'liverank[cluster]' ({error})"
        ) from error
    # once: processes that start together would all compile the same
    warm_up(options, backend_named("cpu"))
    threads = max(1, len(os.sched_getaffinity(0)) // shards)
    with dask.config.set(_NO_PAGES):
        cluster = LocalCluster(
            n_workers=shards,
            threads_per_worker=1,
            processes=True,
            host="127.0.0.1",
            protocol="tls://",
            security=security,
            scheduler_kwargs={"dashboard": False},
            dashboard_address="127.0.0.1:0",
            worker_dashboard_address="127.0.0.1:0",
            memory_limit=0,
            silence_logs=logging.ERROR,
            env={"NUMBA_NUM_THREADS": str(threads)},
        )
    client = Client(cluster)
    try:
        client.wait_for_workers(shards, timeout=120)
        return DaskWorkers(client, sorted(client.run_on_scheduler(_living)), options)
    except BaseException:
        client.close()
        cluster.close()
        raise
