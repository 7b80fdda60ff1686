"""How shards exchange data: three collective operations, and what follows from them.

Every shard runs the same program and makes the same calls in the same order. Sums of scalars are
gathered and added on each shard, so that all shards have the same bits and take the same decisions.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array


class Interrupted(Exception):
    """This shard was waiting for others when their call was ended."""


class Communicator(ABC):
    """The view that one shard has of all.

    rank  its number, from 0
    size  the number of shards
    sends_beside  whether `start_gather` goes on beside what is computed next
    """

    rank: int
    size: int
    sends_beside = False

    @abstractmethod
    def gather(self, values: Sequence[float]) -> NDArray[np.float64]:
        """float64[size, k] on the host: the k numbers of every shard. Integers below 2⁵³ are
        exact.
        """

    @abstractmethod
    def all_gather(self, own: Array, gathered: Array) -> None:
        """Fills gathered[size·k] with the own[k] of every shard, in the order of their ranks. Both
        are contiguous, of one dtype, on the device, and do not overlap.
        """

    @abstractmethod
    def start_gather(self, own: Array, gathered: Array, part: slice) -> None:
        """Starts to do for own[part] what `all_gather` does for all of it, in the same places, when
        the work that has been issued is done. Until `wait_for_gathers`, nothing that is issued may
        touch these places. The place of this shard itself is left as it is.
        """

    @abstractmethod
    def wait_for_gathers(self) -> None:
        """Has the work that is issued next wait for all that `start_gather` started."""

    @abstractmethod
    def all_to_all(self, parts: Sequence[Array]) -> list[Array]:
        """Sends parts[k] to shard k. Returns what each shard sent here, by rank.

        parts  one-dimensional, of one dtype on all shards, of any lengths, on the device
        """

    def united(self, own: Array, xp: Any) -> Array:
        """The arrays of all shards one after the other, by rank: the same on each of them.

        own  one-dimensional, of one dtype on all shards, of any length, on the device
        """
        return xp.concatenate(self.all_to_all([own] * self.size))

    def sums(self, values: Sequence[float]) -> list[float]:
        """The sum of each number over all shards, rounded once."""
        return [fsum(column) for column in self.gather(values).T]


def places(gathered: Array, size: int, part: slice) -> list[Array]:
    """Where a part of the array of each shard is in all of them, size·n, by rank: `size` views."""
    return [each[part] for each in gathered.reshape(size, -1)]


class HostCommunicator(Communicator):
    """Collective operations on NumPy arrays, from one: `exchange`."""

    @abstractmethod
    def exchange(self, parts: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        """See `all_to_all`."""

    def gather(self, values: Sequence[float]) -> NDArray[np.float64]:
        own = np.array(values, np.float64)
        return np.stack(self.exchange([own] * self.size)).astype(np.float64, copy=False)

    def all_gather(self, own: Array, gathered: Array) -> None:
        length = len(own)
        for rank, part in enumerate(self.exchange([own] * self.size)):
            gathered[rank * length : (rank + 1) * length] = part

    def start_gather(self, own: Array, gathered: Array, part: slice) -> None:
        received = self.exchange([own[part]] * self.size)
        for rank, place in enumerate(places(gathered, self.size, part)):
            if rank != self.rank:
                place[:] = received[rank]

    def wait_for_gathers(self) -> None:
        pass

    def all_to_all(self, parts: Sequence[Array]) -> list[Array]:
        return list(self.exchange(parts))


class SingleCommunicator(HostCommunicator):
    """A graph in one shard, on any device."""

    rank, size = 0, 1

    def exchange(self, parts: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        return list(parts)
