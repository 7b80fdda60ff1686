"""One shard: what every process of a graph in shards runs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.graph.estimate import NamingMemory
from liverank_gpu.graph.reading import Direction, EdgeBlock, Neighbours
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.pagerank.frontier import TouchedVertices
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.places import RankTies, SettledTarget, replaced, without
from liverank_gpu.pagerank.published import PublishedSolver
from liverank_gpu.pagerank.solver import AcceleratedSolver, EmptySolver
from liverank_gpu.pagerank.strategies import TABLE, Solve, Strategy, strategy_named
from liverank_gpu.personalized.resolve import ResolvedQuery
from liverank_gpu.sharded.columns import ShardTouched
from liverank_gpu.sharded.communicator import Communicator
from liverank_gpu.sharded.graph import ShardGraph, ShardUpdate
from liverank_gpu.sharded.queries import Answered, ShardQueries
from liverank_gpu.sharded.reading import CapturedLists, RestoredLists, ShardEdgeReader, ShardLists
from liverank_gpu.sharded.vertices import OwnVertices
from liverank_gpu.types import (
    Change,
    EdgeBatch,
    Form,
    Options,
    Ranking,
    Result,
)

# How the shards solve: as one device does, but the residual is never recomputed in parts.


class ShardSolver(AcceleratedSolver):
    """See AcceleratedSolver."""

    def _update_residual(self) -> None:
        if self._iterate.stale:
            self._iterate.recompute_residual()


def shard_solver(
    iterate: GlobalIterate, vertices: OwnVertices, strategy: Strategy, form: Form, asked: Solve
) -> ShardSolver | PublishedSolver:
    """What runs a strategy: see liverank_gpu.pagerank.solver.solver_of."""
    iterate.trace = [] if asked.trace else None
    if form == "published":
        return PublishedSolver(iterate, strategy)
    return ShardSolver(iterate, strategy, asked, vertices)


# One shard: what every process of a sharded graph runs. All shards make the same calls.
#
#     shard = Shard(NcclCommunicator(rank, 2, identity), Options(), backend_named("cuda"))
#     shard.apply(slice_of_batch)
#     result = shard.update("static")


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

    values  float64[rows], y of own vertices, on the host; -inf for free ids
    mass    Σy over all shards
    ties    of vertices of all shards
    """

    values: Ranking
    mass: float
    size: ShardSize
    ties: RankTies | None = None


class ShardRows(NamedTuple):
    """What a snapshot has of one shard by row, on the host; for its lists see `Shard.entries`.

    lengths    int32[rows], of the out-lists
    loop       see GraphView.loop
    values     float64[rows], y
    rhs_scale  β
    mass       Σy over all shards
    decay      see Decay.copies: of all vertices; empty on all shards but the first
    """

    lengths: NDArray[np.int32]
    loop: NDArray[Any]
    values: Ranking
    rhs_scale: float
    mass: float
    decay: dict[str, NDArray[np.int64]]


class Shard:
    """A part of a graph and of its ranks, on one backend. Not thread-safe.

    graph  the own rows
    """

    def __init__(self, communicator: Communicator, options: Options, backend: Backend) -> None:
        self._communicator = communicator
        self.graph = ShardGraph(backend, communicator, options)
        self._iterate = GlobalIterate(self.graph, options)
        self._update: ShardUpdate | None = None
        self._captured: CapturedLists | None = None
        self._restored: RestoredLists | None = None
        self._vertices = OwnVertices(self.graph, communicator)
        self._touched = ShardTouched(self.graph.backend, communicator)
        self._queries = ShardQueries(self._iterate, self._vertices)
        self._reader = ShardEdgeReader(self.graph)
        self._ties: RankTies | None = None
        self._record_ranked()
        self._solving = self._following = False

    def apply(self, batch: EdgeBatch, stored: bool = False) -> Change:
        """Removes, deletes, then inserts what the slices of all shards name, and returns the counts
        of all; see ShardGraph.apply.
        """
        begun = perf_counter()
        self._follow()
        graph, device = self.graph, self.graph.backend.device
        rows = graph.numbering.rows(max(graph.ids.limit, batch.vertices))
        with NamingMemory(device, graph.bytes_needed, batch.operations, rows):
            update = graph.apply(batch, reserve=self._iterate.reserve, stored=stored)
        self._update = update
        self._touched.add(update, graph.numbering)
        device.synchronize()
        seconds = perf_counter() - begun
        return Change(**update.counts._asdict(), seconds=seconds, unknown=update.unknown)

    def _follow(self, needed: bool = True) -> bool:
        """Makes r the residual in the graph as the last batch left it. That is not part of the
        batch, which stands on all shards by then. Returns whether the last solve ended early.

        needed  whether r is used
        """
        # an error may have ended a call on other shards at another step
        pages, view = self.graph.in_pages, self.graph.view
        flags = [self._solving, self._following, self._queries.answering, self.graph.is_counted]
        solving, following, answering, counted, *offers = self._communicator.sums(
            [*flags, *pages.offer(view)]
        )
        self.graph.agree_on_count(counted)
        pages.agree(*offers)
        self._solving = solving > 0.0
        update, self._update, self._following = self._update, None, True
        if solving or following or not needed:
            self._iterate.invalidate()
        if following or answering:
            self._queries.reset()
        if update is not None:
            self._iterate.perturb(update)
            self._queries.perturb(update)
        self.graph.scale_rows()
        self._following = False
        return self._solving

    def _scale(self) -> None:
        """Brings weights that decay into the scale in which the last batch left them."""
        if self.graph.decay:
            self._follow()

    def update(
        self,
        strategy: str = "auto",
        form: Form | None = None,
        trace: bool = False,
        settle: int = 0,
        target: SettledTarget = "settled-top-k",
    ) -> Result:
        """Brings the ranks up to date; see Engine.update. Raises InvalidValue. If it raises any
        other error, there are no ranks until it succeeds.
        """
        options, ids = self._iterate.options, self.graph.ids
        asked = Solve(strategy, form, trace, settle, target).checked(options)
        form = asked.form or "accelerated"
        if ids.free_count:
            form = "accelerated"
        row, times = strategy_named(strategy), [perf_counter()] * 4
        self._ranked, self._free, self._ties = 0, self.graph.free[:0], None
        ended_early = self._follow(needed=row.start == "previous" and form == "accelerated")
        self._solving = True
        solved, error_bound, steps = EmptySolver(asked).solve(), 0.0, None
        if ids.count:
            if ended_early:
                # with different right-hand sides, if shards ended at different steps
                self._iterate.reset()
                self._iterate.unguessable = 0
                if row.affected in ("reachable", "frontier"):
                    row = TABLE["naive-dynamic"]  # there are no ranks to go on from
            solver = shard_solver(self._iterate, self._vertices, row, form, asked)
            touched = TouchedVertices()
            if row.affected in ("reachable", "frontier"):
                touched = self._touched.exchanged(self.graph.numbering)
            solver.mark(touched)
            times[1:] = [perf_counter()] * 3
            solved = solver.solve()
            times[2:] = [perf_counter()] * 2
            solved, error_bound = solver.certify(solved)
            error_bound = min(2.0, error_bound + (solved.ties.error if solved.ties else 0.0))
            times[3] = perf_counter()
            steps = solver.trace(solved)
        self._solving = ended_early and ids.count == 0
        self._touched.clear()
        self._record_ranked(solved.ties)
        mark_seconds, solve_seconds, certify_seconds = np.diff(times).tolist()
        return Result(
            strategy=strategy,
            iterations=solved.iterations,
            touched_vertices=solved.touched_vertices,
            error_bound=error_bound,
            converged=solved.converged,
            mark_seconds=mark_seconds,
            solve_seconds=solve_seconds,
            certify_seconds=certify_seconds,
            form=form,
            trace=steps,
            **solved.outcome,
        )

    def _record_ranked(self, ties: RankTies | None = None) -> None:
        """What readers need, which the next batch may change."""
        self._ties = ties
        self._ranked, self._permutation = self.graph.vertices, self.graph.permutation
        self._free = self.graph.free
        self._mass = float(self._iterate.certificate.mass)

    def personalized(
        self,
        number: int,
        queries: Sequence[ResolvedQuery],
        batches: Collection[int],
        seconds: float,
    ) -> Answered:
        """See ShardQueries.answer; only the first shard returns the answers."""
        self._follow()
        answered = self._queries.answer(number, queries, batches, seconds)
        return answered if self._communicator.rank == 0 else Answered()

    def watched(self, method: str, *arguments: Any) -> Any:
        """Calls a method of ShardQueries; only the first shard returns what that does."""
        self._follow()
        done = getattr(self._queries, method)(*arguments)
        return done if self._communicator.rank == 0 else None

    def neighbours(self, vertex: int, direction: Direction, limit: int) -> Neighbours | None:
        """See EdgeReader.neighbours; None on all shards but the owner of the vertex."""
        self._scale()
        return self._reader.own_neighbours(vertex, direction, limit)

    def out_edges(self, vertices: NDArray[np.int64], limit: int) -> EdgeBlock:
        """See EdgeReader.out_edges: those of own vertices. Raises InvalidValue."""
        self._scale()
        return self._reader.out_edges(vertices, limit)

    def isolated(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        """The own vertices among these that have no edge."""
        return self._reader.own_isolated(vertices)

    def lists(self) -> ShardLists:
        """The edges of own vertices."""
        self._scale()
        return self._reader.lists()

    def order(self) -> NDArray[np.int64]:
        """int64[m]: the id at each position below m at the last `update`; from m on, positions are
        ids.
        """
        return self._permutation.ids_of(np.arange(len(self._permutation.ids)))

    def values(self) -> ShardRanks:
        """The ranks of own vertices after the last `update`, -inf for free ids, and the size."""
        with self._published() as own:
            values = self.graph.backend.device.to_host(own)
        return ShardRanks(values, self._mass, self.size(), self._ties)

    def size(self) -> ShardSize:
        """Counted on the device: no vertices or edges are copied."""
        graph, device = self.graph, self.graph.backend.device
        entries = int(device.sum(graph.outgoing.csr.row_lengths))
        loops = 0 if graph.fixed_loops else int(device.sum(graph.loop != 0))
        held = sum(graph.memory().values()) + self._iterate.nbytes + self._queries.nbytes
        return ShardSize(self._ranked - len(self._free), entries + loops, held)

    def capture(self) -> ShardRows:
        """Copies the out-lists, after an `update` of everything applied. Raises OutOfMemory."""
        self.release()  # first, so that there is never memory for two
        self._captured = CapturedLists(self.graph)
        to_host = self.graph.backend.device.to_host
        loop, values = to_host(self.graph.loop), to_host(self._iterate.values)
        lengths, rhs_scale = self._captured.lengths, self._iterate.rhs_scale
        decay, first = self.graph.decay, self._communicator.rank == 0
        exponents = decay.copies(self.graph.ids.limit) if decay and first else {}
        return ShardRows(lengths, loop, values, rhs_scale, self._mass, exponents)

    def entries(self, name: str, first: int, end: int) -> NDArray[Any]:
        """See CapturedLists."""
        assert self._captured is not None
        return self._captured.entries(name, first, end)

    def release(self) -> None:
        """Frees the copies of the out-lists."""
        self._captured = None

    def begin_restore(
        self, order: NDArray[np.int32] | None, lengths: NDArray[np.int32], loop: NDArray[Any]
    ) -> None:
        """Gets ready for the entries of a snapshot, whose graph this one becomes; it is empty.

        order  VertexPermutation.ids; None if the snapshot has no edges and no order
        """
        if order is not None:
            self.graph.take_order(order)
        self._restored = RestoredLists(lengths, loop, self.graph.weighted)

    def receive(
        self, neighbours: NDArray[np.int32], weights: NDArray[np.float32] | None = None
    ) -> None:
        """The next entries; see RestoredLists."""
        assert self._restored is not None
        self._restored.add(neighbours, weights)

    def restore(
        self,
        values: Ranking,
        free: NDArray[np.integer[Any]],
        vertices: int,
        rhs_scale: float,
        mass: float,
        decay: tuple[NDArray[np.int64], NDArray[np.int64]] | None = None,
    ) -> Change:
        """Builds the graph of all entries received, and takes its ranks.

        values    float64[rows], y of own vertices
        free      integer[…], ids of all shards that are free
        vertices  limit of the ids
        rhs_scale, mass  β and Σy
        decay     exponents and newest, of a graph whose weights decay: see Snapshot
        Returns the counts of all shards. Raises OutOfMemory, InvalidValue.
        """
        assert self._restored is not None
        batch, self._restored = self._restored.batch(self.graph, vertices), None
        change = self.apply(batch, stored=True)
        del batch
        if self.graph.decay and decay:
            self.graph.decay.restore(*decay)
        if len(free):
            self.graph.apply(EdgeBatch(remove=free.astype(np.int64)))  # they have no edges
        self._update = None
        self._touched.clear()
        self._iterate.restore(values, rhs_scale, mass)
        self._record_ranked()
        return change

    def top(self, k: int) -> Leading:
        """The k own vertices with the highest ranks of the last `update`."""
        with self._published() as values:
            most = min(k, len(values) - len(self._free))
            return Leading(*self.graph.backend.select.top_k(values, most, self._to_ids), self._mass)

    @contextmanager
    def _published(self) -> Iterator[Array]:
        """The y of own vertices that ranks follow from, until it is left."""
        values, rows, equal = self._iterate.values[: self._ranked], self._free[:0], 0.0
        if self._ties is not None:
            ids, of_ids = self._ties.columns()
            rows, here = self._vertices.rows_of(ids)
            equal = self.graph.backend.device.to_device(of_ids)[here]
        with without(values, self._free), replaced(values, rows, equal):
            yield values

    def _to_ids(self, rows: Array) -> Array:
        return self._permutation.to_ids(self.graph.numbering.positions_of(rows))
