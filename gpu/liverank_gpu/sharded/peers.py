"""Whether the workers of shards still reach each other, which a shard asks when a call takes long.

A message between shards has no reply. If the network between two workers is cut, TCP gives it up,
and nothing says so to the shard that waits for it, also when the network is back.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

from liverank_gpu.errors import ClusterUnavailable

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
