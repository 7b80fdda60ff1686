"""NCCL between threads of this process, with NumPy arrays. An operation waits when it is issued:
for all members of its group, or until it is aborted, which leaves its result undefined.
"""

from __future__ import annotations

import ctypes
import itertools
import sys
import threading
from collections import Counter
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest

_PATIENCE = 60.0

_identities = itertools.count()


class _Group:
    def __init__(self, size: int) -> None:
        self.changed = threading.Condition()
        self.size = size
        self.sent: dict[Any, bytes] = {}
        self.destroyed = 0


_groups: dict[Any, _Group] = {}
_batch = threading.local()
_numbers = itertools.count()


class Stream:
    """As CuPy's stream, whose work is done when it is issued.

    ptr     0: the current one
    waited  ptr of the streams that it waited for, one for each event
    """

    created: ClassVar[dict[int, Stream]] = {}

    def __init__(self, **_: Any) -> None:
        self.ptr = next(_numbers)
        self.waited: list[int] = []
        self.created[self.ptr] = self

    def synchronize(self) -> None: ...

    def use(self) -> None: ...

    def wait_event(self, event: Event) -> None:
        assert event.recorded is not None
        self.waited.append(event.recorded)


class Event:
    """As CuPy's event."""

    recorded: int | None = None

    def __init__(self, **_: Any) -> None: ...

    def record(self, stream: Stream) -> None:
        self.recorded = stream.ptr


CURRENT = Stream()


class Communicator:
    """As CuPy's NcclCommunicator."""

    created: ClassVar[list[Communicator]] = []

    def __init__(self, size: int, identity: Any, rank: int) -> None:
        self.group = _groups.setdefault(identity, _Group(size))
        assert self.group.size == size
        self.rank, self.size, self.issued = rank, size, 0
        self.passed: Counter[tuple[int, int]] = Counter()
        self.streams: list[int] = []
        self.aborted = False
        self.created.append(self)

    def allGather(  # noqa: N802
        self, source: int, target: int, count: int, kind: str, stream: int
    ) -> None:
        assert (kind, stream) == ("uint8", 0)
        self.issued += 1
        self._put(("all", self.issued, self.rank), ctypes.string_at(source, count))
        for rank in range(self.size):
            self.take(("all", self.issued, rank), target + rank * count, count)

    def send(self, source: int, count: int, kind: str, peer: int, stream: int) -> None:
        assert kind == "uint8"
        self.streams.append(stream)
        self._put(self._key(self.rank, peer), ctypes.string_at(source, count))

    def recv(self, target: int, count: int, kind: str, peer: int, stream: int) -> None:
        assert kind == "uint8"
        self.streams.append(stream)
        _batch.receiving.append((self, self._key(peer, self.rank), target, count))

    def _key(self, sender: int, receiver: int) -> Any:
        self.passed[sender, receiver] += 1
        return sender, receiver, self.passed[sender, receiver]

    def abort(self) -> None:
        with self.group.changed:
            self.aborted = True
            self.group.changed.notify_all()

    def destroy(self) -> None:
        """Returns when all members of the group have called."""
        with self.group.changed:
            self.group.destroyed += 1
            self.group.changed.notify_all()
            gone = self.group.changed.wait_for(self._is_gone, _PATIENCE)
        assert gone, "another member was not destroyed"

    def _is_gone(self) -> bool:
        return self.group.destroyed == self.size

    def _put(self, key: Any, message: bytes) -> None:
        with self.group.changed:
            self.group.sent[key] = message
            self.group.changed.notify_all()

    def take(self, key: Any, target: int, count: int) -> None:
        group = self.group
        with group.changed:
            arrived = group.changed.wait_for(lambda: self.aborted or key in group.sent, _PATIENCE)
            assert arrived, f"nobody sent {key}"
            if key in group.sent:
                assert len(group.sent[key]) == count
                ctypes.memmove(target, group.sent[key], count)


def _group_start() -> None:
    _batch.receiving = []


def _group_end() -> None:
    for communicator, key, target, count in _batch.receiving:
        communicator.take(key, target, count)


def install(patch: pytest.MonkeyPatch) -> None:
    """Puts modules in the place of CuPy, without what was created before."""
    Communicator.created.clear()
    CURRENT.waited.clear()
    cupy, cuda = ModuleType("cupy"), ModuleType("cupy.cuda")
    nccl = SimpleNamespace(
        NCCL_UINT8="uint8",
        NcclCommunicator=Communicator,
        get_unique_id=lambda: (next(_identities),),
        groupStart=_group_start,
        groupEnd=_group_end,
    )
    names: Any = (cupy, cuda)
    vars(names[0]).update(asarray=np.asarray, empty=np.empty, asnumpy=np.array, cuda=cuda)
    streams = {"get_current_stream": lambda: CURRENT, "Stream": Stream, "Event": Event}
    vars(names[1]).update(nccl=nccl, **streams)
    patch.setitem(sys.modules, "cupy", cupy)
    patch.setitem(sys.modules, "cupy.cuda", cuda)
