"""What a graph and its ranks need to come back without a solve, as host arrays to keep.

A snapshot holds the order of the vertices, the out-lists, the loops, y and β, by position (see
gpu.order). The rest is derived from them: degrees from the lengths, in-lists by transposing, the
residual by the one sweep with which the first solve after `restore` begins (so that no drift of
rounding is carried over). What batches have touched since the last solve is no part of it: a
snapshot is taken when everything applied is ranked. Nor are personalized queries.

Taking one has two steps, so that the graph's owner is held up for no more than a copy at the
bandwidth of memory:

    room = Room(graph, state)            any thread: memory, touched, because the first touch of a
                                         page costs twenty times the copy
    cut = Cut(graph, state, bound, room) the owner, between two batches
    snapshot = cut.snapshot()            any thread: to the host, rows packed tight
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.adjacency import ALIGNMENT
from gpu.backends.base import Array, Backend
from gpu.backends.parallel import sequential
from gpu.graph import Graph
from gpu.order import Numbering
from gpu.ranks import Ranks
from gpu.state import State

_SPARE = 8
"""Room has one element in so many to spare, for what batches add before the cut."""


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Host arrays and numbers of one moment, by name.

    arrays:
    ids         int32[m], Numbering.ids: the id at each position below m
    length      int32[n], of the out-lists
    neighbours  int32[…], the out-lists one after the other, each padded with zeros to a multiple of
                gpu.adjacency.ALIGNMENT
    loop        uint8[n], 1 where the vertex has a loop
    values      float64[n] or float32[n] as Options.storage says, y

    numbers:
    edges        number of edges, as Engine.edges has it
    base, total  β and Σy
    error_bound  of the ranks y / Σy
    """

    arrays: dict[str, NDArray[Any]]
    numbers: dict[str, float]


def _sources(graph: Graph, state: State) -> dict[str, Array]:
    outgoing = graph.outgoing
    return {
        "start": outgoing.start,
        "length": outgoing.length,
        "pool": outgoing.pool[: outgoing.end],
        "loop": graph.loop,
        "values": state.values,
    }


class Room:
    """Memory for the next Cut, on the backend's device."""

    def __init__(self, graph: Graph, state: State) -> None:
        backend = graph.backend
        self._arrays: dict[str, Array] = {}
        with backend.reading():
            for name, source in _sources(graph, state).items():
                count = len(source) + len(source) // _SPARE
                array = backend.allocate("a snapshot", count, source.dtype.type)
                array.fill(0)
                self._arrays[name] = array
            backend.synchronize()

    def copy(self, name: str, source: Array) -> Array:
        """A copy of `source` in the room kept for it, or elsewhere where it does not fit."""
        array = self._arrays[name]
        if len(array) < len(source):
            return source.copy()
        array[: len(source)] = source
        return array[: len(source)]


class Cut:
    """The state of one moment, which later batches do not change."""

    def __init__(self, graph: Graph, state: State, error_bound: float, room: Room) -> None:
        self._backend: Backend = graph.backend
        self._packed = graph.outgoing.packed
        self._ids = graph.numbering.ids  # which never change
        self._arrays = {
            name: room.copy(name, source) for name, source in _sources(graph, state).items()
        }
        self._numbers = {
            "edges": graph.edges,
            "base": state.base,
            "total": state.total,
            "error_bound": error_bound,
        }
        graph.backend.synchronize()

    def snapshot(self) -> Snapshot:
        with self._backend.reading():
            host = {name: self._to_host(array) for name, array in self._arrays.items()}
            host["ids"] = self._to_host(self._ids)
        neighbours = np.zeros(self._packed, np.int32)
        _pack(host.pop("start"), host["length"], host.pop("pool"), ALIGNMENT, neighbours)
        return Snapshot(host | {"neighbours": neighbours}, dict(self._numbers))

    def _to_host(self, array: Array) -> NDArray[Any]:
        return array if isinstance(array, np.ndarray) else self._backend.to_host(array)


@sequential
def _pack(
    start: NDArray[np.int64],
    length: NDArray[np.int32],
    pool: NDArray[np.int32],
    alignment: int,
    packed: NDArray[np.int32],
) -> None:
    """Copies the rows of `pool` to `packed`, one after the other, each aligned."""
    place = 0
    for row in range(len(length)):
        first = start[row]
        for entry in range(length[row]):
            packed[place + entry] = pool[first + entry]
        place += (length[row] + alignment - 1) // alignment * alignment


def ranks_of(snapshot: Snapshot, backend: Backend) -> Ranks:
    """The ranks that were published when the snapshot was taken: no graph is needed for them."""
    with backend.reading():
        numbers = snapshot.numbers
        numbering = Numbering(backend, backend.to_device(snapshot.arrays["ids"]))
        values = backend.to_device(snapshot.arrays["values"])
        ranks = Ranks(backend, numbering, values, numbers["total"], numbers["error_bound"])
        backend.synchronize()
    return ranks


def restore(snapshot: Snapshot, graph: Graph, state: State) -> None:
    """Gives an empty graph, and the state of its ranks, what the snapshot holds."""
    graph.restore(
        snapshot.arrays["ids"],
        snapshot.arrays["length"],
        snapshot.arrays["neighbours"],
        snapshot.arrays["loop"],
        int(snapshot.numbers["edges"]),
    )
    numbers = snapshot.numbers
    state.restore(snapshot.arrays["values"], numbers["base"], numbers["total"])
