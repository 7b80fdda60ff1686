"""What a batch does to the edges of a graph: those that it names, and those of removed vertices."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.columns import LARGEST_WEIGHT
from liverank_gpu.errors import InvalidValue
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import DELETE, INSERT, Entries
from liverank_gpu.types import EdgeBatch

# ---- the edges of a graph as columns ----


def edges_on_device(backend: Backend, outgoing: Csr, loop: Array | None, directed: bool) -> Entries:
    """Positions of sources and targets, and weights: sources ascend, then the loops. Of an
    undirected edge, only the arc whose source has the lower position.

    loop  see GraphView; None to leave the loops out
    """
    xp, entries = backend.xp, backend.rebuild.entries(outgoing)
    if not directed:
        chosen = entries.rows < entries.neighbours
        entries = Entries(*(None if column is None else column[chosen] for column in entries))
    if loop is None:
        return entries
    loops = xp.flatnonzero(loop).astype(np.int32)
    rows, neighbours = (xp.concatenate([column, loops]) for column in entries[:2])
    weights = entries.weights
    if weights is not None:
        weights = xp.concatenate([weights, loop[loops]])
    return Entries(rows, neighbours, weights)


# ---- the vertices that a batch removes, and the edges that go with them ----


@dataclass(frozen=True, slots=True)
class Removal:
    """What `EdgeBatch.remove` means for a graph.

    vertices  int64[r] on the host, distinct ids of vertices, ascending
    arcs      ids of sources and targets, int32[k] each on the device: every arc from or to these
              vertices, once
    edges     number of edges that these are
    """

    vertices: NDArray[np.int64]
    arcs: tuple[Array, Array]
    edges: int


# What a batch does to the lists of a graph: the directed edges (arcs) to delete and to insert.
#
# An undirected edge {a,b} is two arcs, (a,b) and (b,a), of equal weight; a loop is one. A batch
# names an edge in either direction, so its columns are first arranged with the lower id first.
# Repeats are then adjacent in the same order in both directions, and both get the same sum.

Columns = tuple[Array, Array]
"""Ids of sources and targets, integer[k] each, on the host or the device."""


@dataclass(frozen=True, slots=True)
class Arcs:
    """The arcs of a batch.

    delete          those of removed vertices, and those to delete
    insert          in the order of the batch; those of the opposite direction follow
    weights         float32[i], of the insertions, on the host or the device; None for an unweighted
                    graph
    adds            whether weights are added to those present, or replace them
    insertions      edges to insert: the first arcs of `insert`
    opposite        bool[insertions], those whose opposite arcs follow; None for a directed graph
    times           float64[i] on the host, of the insertions of a graph whose weights decay
    places          int64[i] on the host, where each was before expired ones were left out; None if
                    none was
    """

    delete: list[Columns]
    insert: Columns
    weights: Array | None
    adds: bool
    insertions: int
    opposite: Array | None = None
    times: NDArray[np.float64] | None = None
    places: NDArray[np.int64] | None = None

    @classmethod
    def of(
        cls,
        backend: Backend,
        batch: EdgeBatch,
        removal: Removal | None,
        directed: bool,
        weighted: bool,
    ) -> Arcs:
        """Raises InvalidValue for weights that are sent to an unweighted graph."""
        weights, times, opposite = insertion_weights(batch, weighted), batch.times, None
        delete = (batch.delete_sources, batch.delete_targets)
        insert = (batch.insert_sources, batch.insert_targets)
        if not directed:
            opposite = not_loops(backend, insert)
            if weights is not None:
                xp = _module(backend, (weights, opposite))
                weights, both = xp.asarray(weights), xp.asarray(opposite)
                weights = xp.concatenate([weights, weights[both]])
            if times is not None:
                times = np.append(times, times[backend.device.to_host(opposite)])
            delete, insert = both_directions(backend, delete), both_directions(backend, insert)
        deleted = [delete] if removal is None else [removal.arcs, delete]
        adds, insertions = batch.on_conflict == "add", len(batch.insert_sources)
        return cls(deleted, insert, weights, adds, insertions, opposite, times)

    @property
    def deletions(self) -> int:
        return sum(len(sources) for sources, _ in self.delete)

    def __len__(self) -> int:
        return self.deletions + len(self.insert[0])

    @property
    def delete_columns(self) -> list[tuple[int, Array, Array]]:
        """As PackKeys takes them."""
        return [(DELETE, *columns) for columns in self.delete]

    @property
    def columns(self) -> list[tuple[int, Array, Array]]:
        return [*self.delete_columns, (INSERT, *self.insert)]

    def operation_weights(self, backend: Backend) -> Array | None:
        """float32[k] on the device, in the order of `columns`: 0 for deletions."""
        if self.weights is None:
            return None
        weights = backend.xp.zeros(len(self), np.float32)
        weights[self.deletions :] = backend.xp.asarray(self.weights)
        return weights

    def weight_exceeded(self, backend: Backend, batch: EdgeBatch, place: int) -> InvalidValue:
        """The error for an insertion that makes a sum of weights exceed float32.

        place  in `insert`
        """
        place = self.place_in_batch(backend, batch, place)
        return weight_exceeded(place, 1.0 if batch.weights is None else batch.weights[place].item())

    def place_in_batch(self, backend: Backend, batch: EdgeBatch, place: int) -> int:
        """Which insertion of the batch is at this place of `insert`."""
        if self.places is not None:
            place = int(self.places[place])
        if place >= len(batch.insert_sources):
            columns = (batch.insert_sources, batch.insert_targets)
            others = _module(backend, columns).flatnonzero(not_loops(backend, columns))
            place = int(others[place - len(batch.insert_sources)])
        return place


def weight_exceeded(place: int, weight: float) -> InvalidValue:
    """The error for the insertion at this place of a batch."""
    return InvalidValue(
        f"weights[{place}]",
        weight,
        f"a weight that, added to those of the same edge, gives at most {LARGEST_WEIGHT}",
    )


def arranged(batch: EdgeBatch) -> EdgeBatch:
    """A batch of an undirected graph, on the host, that names each edge with the lower id first."""
    inserted = (batch.insert_sources, batch.insert_targets)
    deleted = (batch.delete_sources, batch.delete_targets)
    return replace(
        batch,
        insert_sources=np.minimum(*inserted),
        insert_targets=np.maximum(*inserted),
        delete_sources=np.minimum(*deleted),
        delete_targets=np.maximum(*deleted),
    )


_FEW = 1 << 13
"""Arcs of a batch from the host that are arranged there, where that takes less time."""


def _module(backend: Backend, columns: Columns) -> Any:
    """The array module that arranges these columns."""
    on_host = all(isinstance(column, np.ndarray) for column in columns)
    return np if on_host and len(columns[0]) <= _FEW else backend.xp


def both_directions(backend: Backend, columns: Columns) -> Columns:
    """The arcs of undirected edges: from the lower ids, then of those that are no loops the
    opposite ones.
    """
    xp = _module(backend, columns)
    first, second = (xp.asarray(column) for column in columns)
    low, high = xp.minimum(first, second), xp.maximum(first, second)
    others = low != high
    return xp.concatenate([low, high[others]]), xp.concatenate([high, low[others]])


def not_loops(backend: Backend, columns: Columns) -> Array:
    """bool[k]: which edges have an opposite arc."""
    xp = _module(backend, columns)
    first, second = (xp.asarray(column) for column in columns)
    return first != second


def insertion_weights(batch: EdgeBatch, weighted: bool) -> Array | None:
    """The weights of the insertions exactly if the graph is weighted; 1 where none were given.
    Raises InvalidValue for weights that are sent to an unweighted graph.
    """
    if weighted:
        return (
            np.ones(len(batch.insert_sources), np.float32)
            if batch.weights is None
            else (batch.weights)
        )
    if batch.weights is None and batch.on_conflict == "replace":
        return None
    field, given = "on_conflict", str(batch.on_conflict)
    if batch.weights is not None:
        field, given = "weights", f"{len(batch.weights)} weights"
    raise InvalidValue(
        field,
        given,
        "left out, because this graph is unweighted: send edges without weights, or create a graph "
        "with the option weighted",
    )
