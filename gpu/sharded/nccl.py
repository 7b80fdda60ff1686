"""Collective operations between GPUs, by NCCL (CuPy's binding). One process for each GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.operations.device import Array
from gpu.sharded.communicator import Communicator


def unique_id() -> Any:
    """What shard 0 creates and all shards start their communicator with."""
    from cupy.cuda import nccl

    return nccl.get_unique_id()


class NcclCommunicator(Communicator):
    """The GPUs of several processes. Work is issued on CuPy's current stream, as kernels are.

    identity  of `unique_id`, the same on all shards. Returns when all shards have called
    """

    def __init__(self, rank: int, size: int, identity: Any) -> None:
        import cupy
        from cupy.cuda import nccl

        self.rank, self.size = rank, size
        self._cupy: Any = cupy
        self._nccl: Any = nccl
        self._communicator = nccl.NcclCommunicator(size, identity, rank)

    @property
    def _stream(self) -> int:
        stream: int = self._cupy.cuda.get_current_stream().ptr
        return stream

    def gather(self, values: Sequence[float]) -> NDArray[np.float64]:
        own = self._cupy.array(values, np.float64)
        gathered = self._cupy.empty(self.size * len(own), np.float64)
        self.all_gather(own, gathered)
        table: NDArray[np.float64] = self._cupy.asnumpy(gathered).reshape(self.size, -1)
        return table

    def all_gather(self, own: Array, gathered: Array) -> None:
        source, target = own.data.ptr, gathered.data.ptr
        kind = self._nccl.NCCL_UINT8
        self._communicator.allGather(source, target, own.nbytes, kind, self._stream)

    def all_to_all(self, parts: Sequence[Array]) -> list[Array]:
        lengths = self.gather([len(part) for part in parts])[:, self.rank].astype(np.int64)
        dtype = parts[0].dtype
        received = [self._cupy.empty(length, dtype) for length in lengths.tolist()]
        received[self.rank] = parts[self.rank]
        kind, stream = self._nccl.NCCL_UINT8, self._stream
        self._nccl.groupStart()
        for peer in range(self.size):
            if peer == self.rank:
                continue
            if len(parts[peer]):
                self._communicator.send(
                    parts[peer].data.ptr, parts[peer].nbytes, kind, peer, stream
                )
            if len(received[peer]):
                self._communicator.recv(
                    received[peer].data.ptr, received[peer].nbytes, kind, peer, stream
                )
        self._nccl.groupEnd()
        return received
