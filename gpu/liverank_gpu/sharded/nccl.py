"""Collective operations between GPUs, by NCCL (CuPy's binding). One process for each GPU.

NCCL waits on the device, also for a process that has ended. `interrupt` aborts that: what was being
received is then undefined, so nothing is returned before it has arrived.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.device import Array
from liverank_gpu.sharded.communicator import Communicator, Interrupted, places

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

    def gather(self, values: Sequence[float]) -> NDArray[np.float64]:
        own = self._cupy.array(values, np.float64)
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
    address: int = array.data.ptr
    return address
