"""Reading the edges of one graph beside its writer.

All edges are copied: the writer is held up for a copy in memory, which readers of the same version
share. The lists of a few vertices are read by the writer itself, between two batches.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liverank_gpu import MAX_EXPLAINED, CapturedEdges, EdgeBlock, InvalidValue, StagingBuffer
from liverank_service.errors import UnknownVertex
from liverank_service.formats.encode import json_objects, json_tuples, json_values
from liverank_service.pipeline.writer import Writer
from liverank_service.queries.view import View
from liverank_service.vertex_keys import VertexKeys

MAX_SUBGRAPH_EDGES = 1 << 18
"""Out-edges of the vertices of a subgraph. Reading so many holds up the writer for 15 ms."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class EdgeCopy:
    """All edges of one version of a graph."""

    version: int
    edges: CapturedEdges
    keys: VertexKeys
    weighted: bool


@dataclass(frozen=True, slots=True)
class NeighbourKeys:
    """Some neighbours of a vertex in one version; degree: the number of all of them."""

    version: int
    degree: int
    keys: pa.Array
    weights: NDArray[np.float32] | None

    def rows(self) -> Any:
        """A row for each neighbour, for orjson."""
        columns: dict[str, Any] = {"vertex": self.keys}
        if self.weights is not None:
            columns["weight"] = self.weights.astype(np.float64)
        return json_objects(columns)


@dataclass(frozen=True, slots=True)
class Subgraph:
    """Vertices and the edges from them, in one version.

    ids      int64[k], of the vertices that the graph has, ascending
    unknown  keys that it does not have
    """

    version: int
    keys: VertexKeys
    ids: NDArray[np.int64]
    unknown: pa.Array
    out_edges: EdgeBlock

    def document(self) -> dict[str, Any]:
        """The vertices and the edges among them, with keys, for orjson."""
        edges, keys_of = self.out_edges.within(self.ids), self.keys.keys
        document: dict[str, Any] = {
            "version": self.version,
            "vertices": json_values(keys_of(self.ids)),
            "unknown": json_values(self.unknown),
            "edges": json_tuples(keys_of(edges.sources), keys_of(edges.targets)),
        }
        if edges.weights is not None:
            document["weights"] = json_values(edges.weights.astype(np.float64))
        return document


@dataclass(frozen=True, slots=True)
class StepsTo:
    """How walks come to a vertex, by id, in one version; None if the view is of another.

    found    see liverank_gpu.EdgeReader.steps_to
    restart  of a view: see liverank_gpu.Engine.view_steps_to
    """

    version: int
    view: View
    vertex: int = -1
    found: tuple[NDArray[np.int64], NDArray[np.float64]] | None = None
    damping: float = 0.0
    restart: float = 1.0

    def document(self, k: int) -> dict[str, Any]:
        """What the rank of the vertex consists of, for orjson."""
        view = self.view
        assert self.found is not None
        parts = view.ranks.explain(self.vertex, self.found, self.damping, k, self.restart)
        sources = view.keys.keys(parts.sources)
        return {
            "rank": parts.rank,
            "teleport": parts.base,
            "degree": parts.degree,
            "contributions": json_objects({"vertex": sources, "contribution": parts.contributions}),
            "rest": parts.rest,
        }


class EdgeReading:
    """Reads the edges of an open graph. Any thread may call any method."""

    def __init__(
        self,
        call: Callable[[Callable[[Writer], Any]], Future[Any]],
        writer: Callable[[], Writer],
    ) -> None:
        """call: Pipeline.call; writer: raises NotReady while the graph is recovered"""
        self._call = call
        self._writer = writer
        self._copying = threading.Lock()
        self._last: weakref.ref[EdgeCopy] | None = None

    def copy(self) -> EdgeCopy:
        """The edges after every batch that is committed. Blocks until they are copied.

        Raises NotReady, OutOfMemory, QueueFull.
        """
        with self._copying:
            writer = self._writer()
            last = self._last() if self._last is not None else None
            if last is not None and last.version == writer.journal.version:
                return last
            buffer = writer.keyed.edge_reader.buffer()
            copy: EdgeCopy = self._call(lambda writer: _copied(writer, buffer)).result()
            self._last = weakref.ref(copy)
            return copy

    def neighbours(
        self, vertex: str | int, direction: Literal["out", "in"], limit: int
    ) -> Future[NeighbourKeys]:
        """Up to `limit` neighbours of the vertex with this key. Fails with UnknownVertex.

        Raises QueueFull.
        """

        def read(writer: Writer) -> NeighbourKeys:
            keys, identity = writer.keyed.keys, _id_of(writer, vertex)
            found = writer.keyed.edge_reader.neighbours(identity, direction, limit)
            return NeighbourKeys(
                writer.journal.version, found.degree, keys.keys(found.ids), found.weights
            )

        return self._call(read)

    def steps_to(
        self, vertex: str | int, newest: Callable[[], View], of_view: str | None = None
    ) -> Future[StepsTo]:
        """How walks come to the vertex with this key, if the edges are of the newest view. Fails
        with UnknownVertex, with InvalidValue for a vertex with too many in-edges, and as View.seen.

        of_view  the name of a view, whose walks and ranks these are in place of the graph's

        Raises QueueFull.
        """

        def read(writer: Writer) -> StepsTo:
            keyed, version, view = writer.keyed, writer.journal.version, newest()
            if view.version != version:
                return StepsTo(version, view)
            identity = _id_of(writer, vertex)
            try:
                if of_view is not None:
                    view = view.seen(of_view)
                    return StepsTo(version, view, identity, *keyed.view_steps_to(of_view, identity))
                found = keyed.edge_reader.steps_to(identity, MAX_EXPLAINED)
            except InvalidValue as error:  # which has its id
                raise InvalidValue("vertex", vertex, error.requirement) from None
            return StepsTo(version, view, identity, found, keyed.damping)

        return self._call(read)

    def subgraph(self, vertices: pa.Array) -> Future[Subgraph]:
        """The edges among the vertices with these keys. Fails with InvalidValue if these have more
        than MAX_SUBGRAPH_EDGES out-edges. Raises QueueFull.
        """

        def read(writer: Writer) -> Subgraph:
            keys = writer.keyed.keys
            found = keys.lookup(vertices)
            ids = np.unique(found[found >= 0])
            out_edges = writer.keyed.edge_reader.out_edges(ids, MAX_SUBGRAPH_EDGES)
            unknown = vertices.filter(pa.array(found < 0)).unique()
            return Subgraph(writer.journal.version, keys, ids, unknown, out_edges)

        return self._call(read)


def _id_of(writer: Writer, vertex: str | int) -> int:
    if (identity := writer.keyed.keys.id_of(vertex)) < 0:
        raise UnknownVertex(writer.keyed.graph, vertex)
    return identity


def _copied(writer: Writer, buffer: StagingBuffer) -> EdgeCopy:
    keyed = writer.keyed
    edges = keyed.edge_reader.capture(buffer)
    return EdgeCopy(writer.journal.version, edges, keyed.keys, keyed.weighted)
