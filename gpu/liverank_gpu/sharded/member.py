"""What each process of a graph in shards runs: an Engine in a group, and what the caller joins."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.engine import Engine, Group
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.places import GraphVertices, RankTies, replaced, without
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.graph import ShardGraph, ShardTouched
from liverank_gpu.sharded.programs import ShardRuns
from liverank_gpu.sharded.queries import ShardQueries
from liverank_gpu.sharded.reading import CapturedLists, RestoredLists, ShardEdgeReader
from liverank_gpu.sharded.shared_memory import MappedPlaces, Place
from liverank_gpu.sharded.vertices import OwnVertices
from liverank_gpu.snapshot import Snapshot, numbers_of
from liverank_gpu.types import EdgeBatch, Options, Ranking, Result


class ShardGroup(Group):
    """The processes of a graph in shards; `rank` is this one's number."""

    divided = True

    def __init__(self, communicator: Communicator) -> None:
        super().__init__()
        self.rank, self._communicator = communicator.rank, communicator

    def graph(self, backend: Backend, options: Options) -> DynamicGraph:
        self._graph = ShardGraph(backend, self._communicator, options)
        return self._graph

    def vertices(self, graph: DynamicGraph) -> OwnVertices:
        assert graph is self._graph
        return OwnVertices(self._graph, self._communicator)

    def touched(self) -> ShardTouched:
        return ShardTouched(self._graph, self._communicator)

    def queries(
        self, graph: DynamicGraph, iterate: GlobalIterate, vertices: GraphVertices
    ) -> ShardQueries:
        assert graph is self._graph
        self._iterate, self._queries = iterate, ShardQueries(self._graph, iterate, vertices)
        return self._queries

    def begin(self, needed: bool) -> None:
        pages, view = self._graph.in_pages, self._graph.view
        queries = self._queries
        flags = [
            self.solving,
            self.following,
            queries.answering,
            queries.views.reversed_graph is not None,
        ]
        solving, following, answering, backwards, counted, *offers = self._communicator.sums(
            [*flags, self._graph.is_counted, *pages.offer(view)]
        )
        self.following = True  # whatever fails from here on
        self._graph.agree_on_count(counted)
        pages.agree(*offers)
        self.solving = self.ended_early = solving > 0.0
        if solving or following or not needed:
            self._iterate.invalidate()
        # an error that is kept keeps what it was of
        differ = 0 < backwards < self._communicator.size
        if following or answering or differ:
            queries.reset()


class Leading(NamedTuple):
    """The highest ranks of one shard.

    ids     int64[k]
    values  float64[k], y: highest first, ties by id
    mass    Σy over all shards
    """

    ids: NDArray[np.int64]
    values: Ranking
    mass: float


class ShardSize(NamedTuple):
    """What one shard holds.

    vertices  own ones, at the last `update`
    edges     entries and loops of own out-lists: of an undirected edge, one at each end
    nbytes    memory, in bytes
    """

    vertices: int
    edges: int
    nbytes: int


class ShardRanks(NamedTuple):
    """The ranks of one shard.

    rows    number of own vertices
    values  float64[rows], y of own vertices, at least 0, on the host; -inf for free ids. None if
            they are written where the caller asked
    free    how many of them
    mass    Σy over all shards
    bound   of their error, over all shards
    ties    of vertices of all shards
    rhs_scale  β
    """

    rows: int
    values: Ranking | None
    free: int
    mass: float
    bound: float
    size: ShardSize
    ties: RankTies | None
    rhs_scale: float


class Member(Engine):
    """The Engine of one process of a group, and what it knows of its part of the graph, which the
    caller joins (liverank_gpu.sharded.engine). All processes call the same methods.

    rank  its number, from 0
    """

    _graph: ShardGraph
    _vertices: OwnVertices
    _queries: ShardQueries
    edge_reader: ShardEdgeReader

    def __init__(self, communicator: Communicator, options: Options, backend: Backend) -> None:
        self.rank = communicator.rank
        super().__init__(options, backend, "ignore", ShardGroup(communicator))
        self.edge_reader = ShardEdgeReader(self._graph)
        self._runs = ShardRuns(self.programs, self.rank == 0)
        self._places = MappedPlaces()
        self._captured: CapturedLists | None = None
        self._restored: RestoredLists | None = None
        self._restoring: Snapshot | None = None

    @property
    def graph(self) -> ShardGraph:
        """The part of the graph that is here."""
        return self._graph

    def call_kept(self, method: str, *arguments: Any) -> Any:
        """Calls a method of ShardQueries."""
        self._begin()
        return getattr(self._queries, method)(*arguments)

    def call_program(self, method: str, *arguments: Any) -> Any:
        """Calls a method of ShardRuns."""
        self._begin()
        return getattr(self._runs, method)(*arguments)

    def read(self, method: str, *arguments: Any) -> Any:
        """Calls a method of ShardEdgeReader, which finds edges of own vertices."""
        if self._graph.decay:  # in the scale in which the last batch left them
            self._begin()
        return getattr(self.edge_reader, method)(*arguments)

    def read_reversed(self, method: str, *arguments: Any) -> Any:
        """The same of the reversed graph."""
        self._begin()
        graph: Any = self._queries.views.reversed_graph
        if graph is None:  # an error has had the views forgotten
            graph = self._vertices.reversed().graph
        return getattr(ShardEdgeReader(graph), method)(*arguments)

    def count_edges(self) -> int:
        """Of the whole graph."""
        return self._graph.edges

    def order(self, ranked: bool) -> NDArray[np.int64]:
        """int64[m]: the id at each position below m now, or at the last `update` if `ranked`; from
        m on, positions are ids.
        """
        permutation = self._ranked.permutation if ranked else self._graph.permutation
        return permutation.ids_of(np.arange(len(permutation.ids)))

    def updated(
        self, place: Place | None, room: int, *asked: Any
    ) -> tuple[Result, ShardRanks | None]:
        """`update`, then `values`; None where these find no memory: the update has succeeded."""
        result = self.update(*asked)
        try:
            return result, self.values(place, room)
        except MemoryError:
            return result, None

    def values(self, place: Place | None, room: int) -> ShardRanks:
        """The ranks of own vertices after the last `update`, -inf for free ids, and the size.

        place  of the values of all shards, in a DealtOrder with this room
        """
        to_host, ranked = self._graph.backend.device.to_host, self._ranked
        free = to_host(ranked.free)
        with self._published() as own:
            rows = len(own)
            part = self._places.part(place, self.rank * room, rows)
            values = np.empty(rows) if part is None else part
            on_host = own if isinstance(own, np.ndarray) else to_host(own)
            np.maximum(on_host, 0.0, out=values)  # as Engine.publish
        values[free] = -np.inf
        more = ranked.mass, ranked.bound, self.size(), ranked.ties, ranked.rhs_scale
        return ShardRanks(rows, values if part is None else None, len(free), *more)

    def size(self) -> ShardSize:
        """Counted on the device: no vertices or edges are copied."""
        graph, device = self._graph, self._graph.backend.device
        entries = int(device.sum(graph.outgoing.csr.row_lengths))
        loops = 0 if graph.fixed_loops else int(device.sum(graph.loop != 0))
        vertices = self._ranked.vertices - len(self._ranked.free)
        return ShardSize(vertices, entries + loops, sum(self.memory().values()))

    def copy_lists(self) -> Snapshot:
        """Copies the out-lists for a snapshot, after an `update` of everything applied. Returns the
        rest of it, arrays over vertices by row; the first shard has those that all have. Raises
        OutOfMemory.
        """
        self.release()  # first, so that there is never memory for two
        self._captured = captured = CapturedLists(self._graph)
        graph, ranked, to_host = self._graph, self._ranked, self._graph.backend.device.to_host
        arrays = {
            "length": captured.lengths,
            "loop": to_host(graph.loop),
            "values": to_host(self._iterate.values),
        }
        if self.rank == 0:
            arrays["ids"] = to_host(ranked.permutation.ids)
            arrays |= graph.decay.copies(graph.ids.limit) if graph.decay else {}
            if graph.ids.free_count:
                arrays["free"] = graph.ids.free().astype(np.int32)
        numbers = numbers_of(graph, self._iterate, ranked.bound, ranked.rhs_scale)
        return Snapshot(arrays, numbers)

    def entries(self, name: str, first: int, end: int) -> NDArray[Any]:
        """See CapturedLists."""
        assert self._captured is not None
        return self._captured.entries(name, first, end)

    def release(self) -> None:
        """Frees the copies of the out-lists."""
        self._captured = None

    def begin_restore(self, snapshot: Snapshot) -> None:
        """Gets ready for the entries of a snapshot, whose graph this one becomes; it is empty.

        snapshot  without the entries; arrays over vertices by row
        """
        arrays = snapshot.arrays
        if snapshot.numbers["edges"] or len(arrays["ids"]):
            self._graph.take_order(arrays["ids"])
        self._restoring = snapshot
        self._restored = RestoredLists(arrays["length"], arrays["loop"], self._graph.weighted)

    def receive(
        self, neighbours: NDArray[np.int32], weights: NDArray[np.float32] | None = None
    ) -> None:
        """The next entries; see RestoredLists."""
        assert self._restored is not None
        self._restored.add(neighbours, weights)

    def build(self, vertices: int) -> int:
        """Builds the graph of all entries received, and takes the ranks of the snapshot.

        vertices  limit of the ids
        Returns the number of edges. Raises OutOfMemory, InvalidValue.
        """
        assert self._restored is not None
        assert self._restoring is not None
        batch, self._restored = self._restored.batch(self._graph, vertices), None
        arrays, numbers = self._restoring.arrays, self._restoring.numbers
        self._restoring = None
        self._begin()
        self._graph.apply(batch, reserve=self._iterate.reserve, stored=True)
        del batch
        if self._graph.decay and "exponents" in arrays:
            self._graph.decay.restore(arrays["exponents"], arrays["newest"])
        if "free" in arrays:  # they have no edges
            self._graph.apply(EdgeBatch(remove=arrays["free"].astype(np.int64)))
        self._iterate.restore(arrays["values"], numbers["base"], numbers["total"])
        self._build_pages()
        self._record_ranked(numbers["error_bound"], base=numbers.get("ranked_base"))
        return self._graph.edges

    def top(self, k: int) -> Leading:
        """The k own vertices with the highest ranks of the last `update`."""
        with self._published() as values:
            most = min(k, len(values) - len(self._ranked.free))
            highest = self._graph.backend.select.top_k(values, most, self._to_ids)
            return Leading(*highest, self._ranked.mass)

    @contextmanager
    def _published(self) -> Iterator[Array]:
        """The y of own vertices that ranks follow from, until it is left."""
        vertices, free, ties = self._ranked.vertices, self._ranked.free, self._ranked.ties
        values, rows, equal = self._iterate.values[:vertices], free[:0], 0.0
        if ties is not None:
            ids, of_ids = ties.columns()
            rows, here = self._vertices.rows_of(ids)
            equal = self._graph.backend.device.to_device(of_ids)[here]
        with without(values, free), replaced(values, rows, equal):
            yield values

    def _to_ids(self, rows: Array) -> Array:
        return self._ranked.permutation.to_ids(self._graph.numbering.positions_of(rows))
