"""How shards on CPUs exchange data: messages from Dask worker to Dask worker.

A message has the number of the call and its own within the call, so that one of an interrupted call
is never taken for one of a later call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.sharded.communicator import HostCommunicator, Interrupted
from liverank_gpu.sharded.peers import Key, Peers

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

        async def begin() -> None:
            self.mailbox.begin(call)
            self._carriers.clear()

        self._run(begin())

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
                    message=to_serialize(np.ascontiguousarray(part)),
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
