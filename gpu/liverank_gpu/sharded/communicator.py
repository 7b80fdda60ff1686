"""How shards exchange data: three collective operations, and what follows from them.

Every shard runs the same program and makes the same calls in the same order. Sums of scalars are
gathered and added on each shard, so that all shards have the same bits and take the same decisions.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from math import fsum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array
from liverank_gpu.operations.residual import MESSAGE_HEADER


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
    def gather(self, values: Sequence[float] | Array) -> NDArray[np.float64]:
        """float64[size, k] on the host: the k numbers of every shard, which may be float64[k] on
        the device. Integers below 2⁵³ are exact.
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

    @abstractmethod
    def swap(self, sent: Array, received: Array) -> None:
        """Sends row k of `sent` to shard k, and fills row k of `received` with what that sends;
        the own row of `received` is left as it is. The host waits for nothing.

        sent, received  int64[size, words] on the device; each row is contiguous and begins with
                        the number of pairs behind its header; other words may be left as they are
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

    def gather(self, values: Sequence[float] | Array) -> NDArray[np.float64]:
        # of the device too, where there is one shard
        own = np.array(values.tolist() if hasattr(values, "tolist") else values, np.float64)
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

    def swap(self, sent: Array, received: Array) -> None:
        messages = [row[: MESSAGE_HEADER + 2 * int(row[0])] for row in sent]
        for rank, message in enumerate(self.exchange(messages)):
            if rank != self.rank:
                received[rank, : len(message)] = message

    def all_to_all(self, parts: Sequence[Array]) -> list[Array]:
        return list(self.exchange(parts))


class SingleCommunicator(HostCommunicator):
    """A graph in one shard, on any device."""

    rank, size = 0, 1

    def exchange(self, parts: Sequence[NDArray[np.generic]]) -> list[NDArray[np.generic]]:
        return list(parts)


# ---- collective operations between GPUs, by NCCL (CuPy's binding): one process for each GPU ----
#
# NCCL waits on the device, also for a process that has ended. `interrupt` aborts that: what was
# being received is then undefined, so nothing is returned before it has arrived.

_ISSUE_SECONDS = 1.0
"""How long `interrupt` leaves an operation to be issued, which the first use of a device delays."""


def unique_id() -> Any:
    """What shard 0 creates and all shards start their communicator with."""
    from cupy.cuda import nccl

    return nccl.get_unique_id()


class NcclCommunicator(Communicator):
    """The GPUs of several processes. Work is issued on CuPy's current stream, as kernels are, but
    that of `start_gather` on one of higher priority, whose blocks start first.

    identity  see `connect`, which is called if it is given
    """

    sends_beside = True

    def __init__(self, rank: int, size: int, identity: Any = None) -> None:
        import cupy
        from cupy.cuda import nccl

        self.rank, self.size = rank, size
        self._cupy: Any = cupy
        self._nccl: Any = nccl
        self._communicator: Any = None
        self._beside: Any = cupy.cuda.Stream(non_blocking=True, priority=-1)
        self._joining: object = None
        self._issuing = threading.Lock()
        if identity is not None:
            self.connect(identity)

    def connect(self, identity: Any) -> None:
        """Forms a group; returns when all shards have called, and waits forever for one that ended
        before: NCCL cannot be interrupted here. If `interrupt` was called meanwhile, the group is
        aborted when it is formed, and Interrupted raised.

        identity  of `unique_id`, the same on all shards, and another one for each group
        """
        self._joining = joining = object()
        group = self._nccl.NcclCommunicator(self.size, identity, self.rank)
        with self._issuing:
            if self._joining is not joining:
                group.abort()
                raise Interrupted
            self._communicator = group
        self.gather([0.0])  # connects the devices, which NCCL puts off

    def interrupt(self) -> None:
        """Ends the waiting for other shards in an operation, which raises Interrupted there; none
        works until the next `connect`. Any thread may call it.
        """
        self._joining = None
        communicator, self._communicator = self._communicator, None
        if communicator is None:
            return
        issued = self._issuing.acquire(timeout=_ISSUE_SECONDS)
        try:
            communicator.abort()
        finally:
            if issued:
                self._issuing.release()

    def close(self) -> None:
        """Frees the group, of which nothing is in progress. NCCL waits here for the other members
        on this machine to do the same, and also where the object of CuPy is freed: in any thread,
        even one for which the members of another group wait. Call this before that, in a thread of
        its own.
        """
        with self._issuing:
            communicator, self._communicator = self._communicator, None
        if communicator is not None:
            communicator.destroy()

    def gather(self, values: Sequence[float] | Array) -> NDArray[np.float64]:
        own = self._cupy.asarray(values, np.float64)
        gathered = self._cupy.empty(self.size * len(own), np.float64)
        self.all_gather(own, gathered)
        table: NDArray[np.float64] = self._cupy.asnumpy(gathered).reshape(self.size, -1)
        self._check()
        return table

    def all_gather(self, own: Array, gathered: Array) -> None:
        source, target, kind = _pointer(own), _pointer(gathered), self._nccl.NCCL_UINT8
        self._issue(
            lambda group, stream: group.allGather(source, target, own.nbytes, kind, stream.ptr)
        )

    def all_to_all(self, parts: Sequence[Array]) -> list[Array]:
        lengths = self.gather([len(part) for part in parts])[:, self.rank].astype(np.int64)
        received = [self._cupy.empty(length, parts[0].dtype) for length in lengths.tolist()]
        received[self.rank] = parts[self.rank]
        current = self._cupy.cuda.get_current_stream()
        self._exchange(parts, received, current)
        current.synchronize()  # they can be indices
        self._check()
        return received

    def start_gather(self, own: Array, gathered: Array, part: slice) -> None:
        self._order(self._cupy.cuda.get_current_stream(), self._beside)
        received = places(gathered, self.size, part)
        self._exchange([own[part]] * self.size, received, self._beside)

    def swap(self, sent: Array, received: Array) -> None:
        self._exchange(sent, received, self._cupy.cuda.get_current_stream())

    def wait_for_gathers(self) -> None:
        self._order(self._beside, self._cupy.cuda.get_current_stream())

    def _order(self, first: Any, then: Any) -> None:
        """Has what is issued on a stream next wait for what has been issued on another."""
        reached = self._cupy.cuda.Event(disable_timing=True)
        reached.record(first)
        then.wait_event(reached)

    def _exchange(self, sent: Sequence[Array], received: Sequence[Array], stream: Any) -> None:
        """Sends an array to every other shard, and receives one from each, by rank."""
        kind = self._nccl.NCCL_UINT8

        def exchange(group: Any, stream: Any) -> None:
            self._nccl.groupStart()
            for peer in range(self.size):
                if peer == self.rank:
                    continue
                leaving, arriving = sent[peer], received[peer]
                if len(leaving):
                    group.send(_pointer(leaving), leaving.nbytes, kind, peer, stream.ptr)
                if len(arriving):
                    group.recv(_pointer(arriving), arriving.nbytes, kind, peer, stream.ptr)
            self._nccl.groupEnd()

        self._issue(exchange, stream)

    def _issue(self, operation: Callable[[Any, Any], None], stream: Any = None) -> None:
        """stream  None: CuPy's current one"""
        with self._issuing:
            if (group := self._communicator) is None:
                raise Interrupted
            operation(group, stream or self._cupy.cuda.get_current_stream())

    def _check(self) -> None:
        if self._communicator is None:
            raise Interrupted


def _pointer(array: Array) -> int:
    # those of an emulated device are NumPy's
    address: int = array.ctypes.data if isinstance(array, np.ndarray) else array.data.ptr
    return address
