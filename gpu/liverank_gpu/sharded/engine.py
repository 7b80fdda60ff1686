"""A graph in shards as its owner sees it, with watched queries, views and checkpoints."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from copy import copy
from dataclasses import dataclass, replace
from functools import partial
from itertools import count
from time import perf_counter
from typing import Any, NamedTuple, NoReturn, Self, get_args
from weakref import proxy

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends import host_backend
from liverank_gpu.engine import Engine
from liverank_gpu.errors import InvalidValue, OutOfMemory, UnknownVertex, without_frames
from liverank_gpu.graph.batch import insertion_weights
from liverank_gpu.graph.decay import half_lives, require_times
from liverank_gpu.graph.reading import Direction, EdgeBlock, EdgeReader, Neighbours, StagingBuffer
from liverank_gpu.graph.resolve import ResolvedBatch
from liverank_gpu.graph.vertices import NO_IDS, VertexIds, VertexPermutation
from liverank_gpu.operations.csr import loop_dtype
from liverank_gpu.pagerank.places import SettledTarget
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.pagerank.strategies import Solve, tell_unconverged
from liverank_gpu.personalized.batch import Queries, QueryBatch
from liverank_gpu.personalized.iterate import Seeds
from liverank_gpu.personalized.resolve import (
    AnyQuery,
    Kind,
    Moment,
    ResolvedQuery,
    ResolvedView,
)
from liverank_gpu.personalized.views import ViewSteps
from liverank_gpu.personalized.watched import Registration, Start, require_watchable
from liverank_gpu.sharded.cluster import Cluster, started_workers
from liverank_gpu.sharded.columns import (
    MOST_REPLICATED,
    DealtOrder,
    ListLayout,
    by_position,
    dealt,
)
from liverank_gpu.sharded.dask_workers import Workers
from liverank_gpu.sharded.member import ShardRanks, ShardSize
from liverank_gpu.sharded.programs import ShardedPrograms
from liverank_gpu.sharded.queries import (
    SLICE_SECONDS,
    Answered,
    Running,
    ShardedQueryBatch,
    Solving,
    Told,
)
from liverank_gpu.sharded.reading import GatheredEdges
from liverank_gpu.sharded.shared_memory import ReusedValues, SharedValues
from liverank_gpu.snapshot import Capture, Snapshot
from liverank_gpu.types import (
    REMOVED,
    BackendName,
    Change,
    EdgeBatch,
    Form,
    Options,
    Personalized,
    PersonalizedQuery,
    Ranking,
    Result,
    Unconverged,
    ViewQuery,
)

# ---- the watched queries and the views of a graph in shards, as a caller sees them ----
#
# Shards keep y and r (liverank_gpu.sharded.queries); what follows from them is here. After an error
# the shards have forgotten all, which is solved again at the next refresh: views from the ranks
# that are here.


class ShardedRegistration(Running, Registration):
    """The first solve of a query that the shards are to keep: see Registration.

    number  the shards know it by that
    start   where it begins
    sent    whether the shards have had it
    """

    def __init__(
        self,
        solve: Callable[[ShardedRegistration], bool],
        name: str,
        asked: ResolvedQuery,
        number: int,
        running: list[Running],
        start: Start | None,
    ) -> None:
        """solve  has the shards go on, and returns whether it is done"""
        super().__init__(running)
        self.name, self.asked, self.number, self.start = name, asked, number, start
        self._solve = solve
        self._lost, self.sent = None, False
        self.begin()

    def begin(self) -> None:
        """Has it go on, also where it was done."""
        self._done = False

    @property
    def done(self) -> bool:
        return self._done

    def step(self) -> None:
        """Has the shards go on, for about SLICE_SECONDS. Raises OutOfMemory, ShardLost, and
        UnknownVertex if a batch removed a seed.
        """
        if self._lost:
            raise copy(self._lost)
        self._done = self._solve(self)

    def follow(self, removed: NDArray[np.int64]) -> None:
        super().follow(removed)
        self.begin()
        seeds = self.asked.seeds.vertices
        lost = seeds[np.isin(seeds, removed)]
        if len(lost):  # the caller decides what becomes of the others
            self._lost = UnknownVertex("seeds", int(lost[0]), REMOVED)
        else:
            self.asked = self.asked.after(removed)


@dataclass(slots=True)
class _Entry:
    """What is kept, as of when it was brought up to date last.

    content     its answer or its ranks; error: why it has none
    number      see Told
    current     whether no batch and no other seeds came since
    restricted  whether the shards may not know what it is among
    lost_seeds  see Engine.view_lost_seeds
    """

    kept: ShardedKept
    name: str
    asked: ResolvedQuery
    content: Personalized | Ranks | None = None
    number: int = -1
    error: UnknownVertex | MemoryError | None = None
    current: bool = False
    restricted: bool = False
    lost_seeds: bool = False

    @property
    def lost(self) -> bool:
        """Whether its seeds were removed."""
        return isinstance(self.error, UnknownVertex)

    def start(self, asked: ResolvedView) -> Start | None:
        """See View.start."""
        if not isinstance(self.content, Ranks) or not asked.goes_on_from(self.asked):
            return None
        return self.content.to_numpy(), self.content.base

    def restrict(self, among: NDArray[np.int64]) -> None:
        """See WatchedQuery.restrict."""
        if self.asked.among is None or not np.array_equal(among, self.asked.among):
            self.asked, self.restricted = replace(self.asked, among=among), True

    def shown_answer(self) -> Any:
        """Its content. Raises why there is none."""
        if self.content is None:
            assert self.error is not None
            raise copy(self.error)
        return self.content

    def ranked(self, *, solve: bool = True) -> Ranks:
        """See Engine.view: gathered into the memory of this process when they are others. Raises
        ShardLost.
        """
        is_met = self.content is not None and self.content.error_bound <= self.asked.target_error
        if not self.current or (solve and not is_met):
            self.take(self.kept.brought(self.name, "read" if solve else None, {}))
        ranks: Ranks = self.kept[self.name].shown_answer()
        return ranks

    def steps_to(self, vertex: int, limit: int) -> ViewSteps:
        """See Engine.view_steps_to, of a view that has ranks. Raises ShardLost."""
        asked, engine = self.asked, self.kept.engine
        assert isinstance(asked, ResolvedView)
        if asked.within is not None:
            found: ViewSteps | None = engine.call_kept("steps_within", self.name, vertex, limit)[0]
            if found is None:  # the shards have forgotten it
                self.current = False
                self.ranked(solve=False)
                return self.kept[self.name].steps_to(vertex, limit)
            return found
        steps = engine.reader(asked.reversed).steps_to(vertex, limit)
        restart = float(asked.seeds.weights[asked.seeds.vertices == vertex].sum())
        if asked.uniform:
            restart = 1.0 / engine.vertices
        return ViewSteps(steps, asked.options.damping, restart)

    def follow(self, removed: NDArray[np.int64]) -> None:
        """Follows a batch of edges that removed these vertices: ids, ascending."""
        self.current, before = False, self.asked
        try:
            self.asked = before.after(removed)
        except UnknownVertex as error:
            self.content, self.error = None, without_frames(error)
        self.lost_seeds |= self.lost or self.asked is not before

    def take(self, parts: Sequence[Mapping[str, Told]]) -> float:
        """Takes what the shards have now; solves it if they have nothing. Returns how long it took
        to bring it up to date, in seconds.
        """
        began = perf_counter()
        if self.name not in parts[0]:
            self._solve()
            return perf_counter() - began
        own = [part[self.name] for part in parts]
        self.content, self.number = self._told(own), own[0].number
        self.error, self.current = None, True
        return own[0].seconds

    def _told(self, own: Sequence[Told]) -> Personalized | Ranks:
        """The content now, of what the shards tell."""
        told, known = own[0], self.content
        if isinstance(told.content, Personalized):
            if not isinstance(known, Personalized) or self.number != told.number:
                return told.content
            return replace(told.content, vertices=known.vertices)
        if told.content is not None or not isinstance(known, Ranks):
            return self.kept.engine.joined(own)
        return known if known.error_bound == told.error_bound else known.bounded(told.error_bound)

    def _solve(self) -> None:
        if self.lost:
            return
        registration = self.kept.register(self.name, self.asked)
        try:
            self.kept.keep(registration)
        except MemoryError as error:
            self.error, self.content = without_frames(error), None
        finally:
            registration.close()
        self.kept[self.name].lost_seeds = self.lost_seeds


_ALL_SEEDS = Seeds(NO_IDS, np.empty(0))
"""In place of those of a view whose seeds are all vertices: the shards know them."""


class ShardedKept(dict[str, _Entry]):
    """What the shards keep of one kind, by name: watched queries, or views, whose ranks are
    gathered here when y is another. Every call may raise ShardLost.
    """

    def __init__(self, kind: Kind, engine: ShardedEngine) -> None:
        super().__init__()
        self._kind, self.engine = kind, engine

    def register(
        self, name: str, asked: ResolvedQuery, start: Start | None = None
    ) -> ShardedRegistration:
        """Begins a query that is to be kept. start: see Engine.put_view; None: where one of this
        name has come
        """
        if isinstance(asked, ResolvedView):
            start = start or (self[name].start(asked) if name in self else None)
            asked = _without_all(asked)
        engine = self.engine
        given = (self._step, name, asked, engine.new_number(), engine.running)
        return ShardedRegistration(*given, start)

    def _step(self, registration: ShardedRegistration) -> bool:
        query, call = (registration.number, registration.name), self.engine.call_kept
        limits = ([each.number for each in self.engine.running], SLICE_SECONDS)
        found: Solving | OutOfMemory | None = None
        if registration.sent:
            found = call("solve", *query, None, None, 0.0, *limits)[0]
        if found is None:  # or they have forgotten it
            asked, (ranks, base) = registration.asked, registration.start or (None, 0.0)
            sent = asked.unresolved() if isinstance(asked, ResolvedView) else asked
            found = call("solve", *query, sent, ranks, base, *limits)[0]
            registration.sent = True
        if isinstance(found, OutOfMemory):
            raise found
        assert found is not None
        registration.restarts = max(registration.restarts, found.restarts)
        return found.done

    def keep(self, registration: ShardedRegistration) -> None:
        """Keeps a query, in place of another of its name, when it is solved. Raises OutOfMemory,
        ShardLost; then that one stays.
        """
        name, parts = registration.name, list[Mapping[str, Told]]()
        while not (parts and name in parts[0]):
            while not registration.done:
                registration.step()
            parts = self.engine.call_kept("keep", registration.number)
            registration.begin()  # unless the shards had it
        self[name] = _Entry(self, name, registration.asked)
        self[name].take(parts)

    def change(self, name: str, asked: ResolvedView) -> bool:
        """See Views.change."""
        entry = self.get(name)
        if entry is None or entry.error is not None or not asked.goes_on_from(entry.asked):
            return False
        if not self.engine.call_kept("change_view", name, asked.unresolved())[0]:
            return False
        entry.asked, entry.lost_seeds, entry.current = _without_all(asked), False, False
        return True

    def remove(self, name: str) -> None:
        """Forgets it, if it is there."""
        if self.pop(name, None) is not None:
            self.engine.call_kept("remove", self._kind, name)

    def refresh(self) -> dict[str, float]:
        """Brings all up to date with the graph. Returns what each took, in seconds."""
        if not self:
            return {}
        among = {name: entry.asked.among for name, entry in self.items() if entry.restricted}
        parts = self.brought(None, "batch", among)
        for entry in self.values():
            # not before: after another error the shards may not know them
            entry.restricted = False
        return {name: entry.take(parts) for name, entry in list(self.items())}

    def brought(
        self, name: str | None, at: Moment, among: Mapping[str, NDArray[np.int64] | None]
    ) -> list[Mapping[str, Told]]:
        """What the shards tell of one, or of all: see ShardQueries.bring."""
        known = {name: each.number for name, each in self.items() if each.content}
        asked = (self._kind, self.engine.new_number(), known, name, at, among)
        with suppress(MemoryError):  # then the shards have forgotten all of them
            return self.engine.call_kept("bring", *asked)
        return [{}]


class ShardedQueries(Queries):
    """Queries that the shards answer and keep: see Queries."""

    watched: ShardedKept  # type: ignore[assignment]  # of the same methods
    views: ShardedKept  # type: ignore[assignment]

    def __init__(self, engine: ShardedEngine) -> None:
        self._engine = engine
        self.watched, self.views = ShardedKept("watched query", engine), ShardedKept("view", engine)

    @property
    def ids(self) -> VertexIds:
        return self._engine.ids

    @property
    def options(self) -> Options:
        return self._engine.options

    def submit(self, queries: Sequence[AnyQuery]) -> ShardedQueryBatch:
        engine, resolved = self._engine, self.resolve(queries)
        return ShardedQueryBatch(engine.answer, resolved, engine.new_number, engine.running)

    def register(
        self, name: str, query: PersonalizedQuery | ViewQuery | ResolvedView, start: Start | None
    ) -> ShardedRegistration:
        if isinstance(query, PersonalizedQuery):
            require_watchable(query)
            return self.watched.register(name, self.resolve([query])[0])
        asked = self.resolved_view(name, query) if isinstance(query, ViewQuery) else query
        return self.views.register(name, asked, start)


def _without_all(asked: ResolvedView) -> ResolvedView:
    return replace(asked, seeds=_ALL_SEEDS) if asked.uniform and asked.within is None else asked


# The snapshot (liverank_gpu.snapshot) of a graph in shards, and a graph in shards from a snapshot.
#
# The snapshot is as one device would write it, so that any number of shards, or none, can open it:
# the lists of all shards, merged by position. Every shard keeps a copy of its lists, which the
# caller fetches and merges in pieces (see Workers): its own memory need not hold all edges.
# Shards do not write files, which may be on another host, and parts by shard would have to be
# merged when another number of shards opens them. Arrays over vertices are not in pieces: they are
# about as large as the ranks, which the caller has too.
#
#     capture = ShardedCapture(workers, …)      every shard copies its lists, after an `update`
#     capture.pieces()["neighbours"][0]()       slots of all shards; batches may have followed
#     capture.release()                         the shards free their copies


class ShardedCapture(Capture):
    """The state of one moment, which later batches do not change: see Capture. Not thread-safe:
    for the owner of the engine, until the next capture replaces the copies.
    """

    def __init__(self, workers: Workers) -> None:
        """Raises OutOfMemory, ShardLost."""
        self._workers = workers
        parts: list[Snapshot] = workers.everywhere("copy_lists")
        arrays = dict(parts[0].arrays)
        for name in BY_ROW:
            arrays[name] = by_position([part.arrays[name] for part in parts])
        self._snapshot = Snapshot(arrays, parts[0].numbers)
        self._layout = ListLayout(arrays["length"], workers.size)

    def snapshot(self) -> Snapshot:
        return self._snapshot

    def pieces(self) -> dict[str, list[Callable[[], NDArray[Any]]]]:
        """Of ``neighbours``, and of ``weights`` if the graph has them; at least one of each. They
        raise ShardLost.
        """
        count = max(1, -(-self._layout.slots // self._workers.piece))
        weighted = self._snapshot.arrays["loop"].dtype == loop_dtype(True)
        return {
            name: [partial(self.piece, name, index) for index in range(count)]
            for name in ("neighbours", "weights")[: 1 + weighted]
        }

    def piece(self, name: str, index: int) -> NDArray[Any]:
        """One of `pieces`."""
        first = index * self._workers.piece
        end = min(first + self._workers.piece, self._layout.slots)
        places = [self._layout.places(each, first, end) for each in range(self._workers.size)]
        parts = self._workers.call("entries", [(name, each.first, each.end) for each in places])
        piece = np.zeros(end - first, np.float32 if name == "weights" else np.int32)
        for (_, _, slots), part in zip(places, parts, strict=True):
            piece[slots] = part
        return piece

    def release(self) -> None:
        """Frees the copies. Raises ShardLost."""
        self._workers.everywhere("release")


BY_ROW = ("length", "loop", "values")
"""Arrays of a snapshot over vertices, of which each shard has those of its own."""


def restore_shards(workers: Workers, snapshot: Snapshot) -> int:
    """Brings empty shards to the state of a snapshot; of mapped arrays, the lists are read in
    pieces. Returns the number of its edges. Raises InvalidValue, OutOfMemory, ShardLost.
    """
    arrays, size = dict(snapshot.arrays), workers.size
    lists = [arrays.pop(name) for name in ("neighbours", "weights") if name in arrays]
    lengths, shards = arrays["length"], range(size)
    own = [{name: arrays[name][k::size] for name in BY_ROW} for k in shards]
    workers.call("begin_restore", [(Snapshot(arrays | each, snapshot.numbers),) for each in own])
    layout = ListLayout(lengths, size)
    for first in range(0, layout.slots, workers.piece):
        end = min(first + workers.piece, layout.slots)
        places = [layout.places(k, first, end).slots for k in shards]
        workers.call("receive", [tuple(each[first:end][at] for each in lists) for at in places])
    edges: int = workers.everywhere("build", len(lengths))[0]
    return edges


# ---- one graph and its ranks over several processes: what a caller sees ----
#
# with ShardedEngine(Options(target_error=1e-8), shards=2) as engine:
#     engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))
#     result = engine.update()
#     ids, ranks = engine.top(10)


class ShardedEdgeReader(EdgeReader):
    """See EdgeReader: the shards read the lists of their own vertices. Every call may raise
    ShardLost.
    """

    def __init__(self, engine: ShardedEngine, workers: Workers) -> None:
        self._engine, self._workers = engine, workers

    def buffer(self) -> StagingBuffer:
        """Empty: what is captured is gathered into new memory."""
        return StagingBuffer(host_backend().device, {})

    def capture(self, buffer: StagingBuffer | None = None) -> GatheredEdges:  # noqa: ARG002
        """All edges, in the memory of this process: 4 bytes an edge, or 8 with its weight, and 9
        or more a vertex. Raises OutOfMemory.
        """
        engine = self._engine
        return GatheredEdges(self._read("lists"), engine.edges, engine.options.directed)

    def neighbours(self, vertex: int, direction: Direction, limit: int) -> Neighbours:
        found: list[Neighbours | None] = self._read("own_neighbours", vertex, direction, limit)
        return next(each for each in found if each is not None)

    @property
    def _fixed_loops(self) -> bool:
        return self._engine.options.dangling == "self-loop"

    def strengths(self, vertices: NDArray[np.int64]) -> NDArray[np.float64]:
        found: NDArray[np.float64] = sum(self._read("own_strengths", vertices))
        return found

    def out_edges(self, vertices: NDArray[np.int64], limit: int) -> EdgeBlock:
        return EdgeBlock.joined(self._read("out_edges", vertices, limit))

    def count_out_edges(self, vertices: NDArray[np.int64]) -> int:
        found: int = self._read("count_out_edges", vertices)[0]  # of all shards
        return found

    def exponents(self, vertices: NDArray[np.int64]) -> NDArray[np.int64]:
        found: NDArray[np.int64] = self._read("exponents", vertices)[0]  # which every shard has
        return found

    def are_isolated(self, vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
        return np.isin(vertices, np.concatenate(self._read("own_isolated", vertices)))

    def _read(self, method: str, *arguments: Any) -> list[Any]:
        return self._workers.everywhere("read", method, *arguments)


class _ReversedEdgeReader(ShardedEdgeReader):
    """The same of the reversed graph: see ReversedShard."""

    def _read(self, method: str, *arguments: Any) -> list[Any]:
        return self._workers.everywhere("read_reversed", method, *arguments)


class _GatheredRanks(NamedTuple):
    """Ranks of all shards, in the memory of this process: see Member.values."""

    shared: SharedValues
    room: int
    parts: list[ShardRanks]


class ShardedEngine(Engine):
    """An Engine whose graph and ranks are in several shards: calls go to all of them, and what
    they return is joined. What an Engine does without vertices, estimates of memory and ranks of a
    snapshot, is done in this process.

    It has one owner at a time, too, but not every call notices that another thread is in one.

    ids  which ids are vertices
    running     what follows batches until it is closed; new_number gives each a number
    shard_vertices, shard_edges, shard_bytes  of each shard, with the ranks that were published
                                              last, or at `restore`: see
                                              liverank_gpu.sharded.member.ShardSize
    most_replicated  operations of a batch that goes whole to all shards: larger ones are dealt out

    What it has, as `edge_reader` and `programs`, is of use as long as somebody holds the engine.

    If the process of a shard ends, the call in progress raises ShardLost, and so does every later
    call of the shards: only a new engine works then.
    """

    edge_reader: ShardedEdgeReader
    _queries: ShardedQueries
    most_replicated = MOST_REPLICATED

    def __init__(
        self,
        options: Options | None = None,
        shards: int = 2,
        backend: BackendName = "auto",
        workers: Workers | None = None,
        cluster: Cluster | None = None,
        device_memory: int | None = None,
        unconverged: Unconverged = "warn",
    ) -> None:
        """Starts the shards.

        shards   their number; each has a worker process of a Dask cluster
        backend  of the shards: ``cpu``; ``cuda``, with a GPU for each shard; ``reference``; or
                 ``auto``: ``cuda`` if there is a GPU, otherwise ``cpu``
        workers  run the shards in place of such processes; all other arguments but the options and
                 `unconverged` are not used then
        cluster  an existing Dask cluster; None: one is started on this machine
        device_memory  in each worker process: see liverank_gpu.limit_device_memory

        Raises InvalidValue; BackendUnavailable without the extra ``cluster``, and if there are
        fewer GPUs than shards; ClusterUnavailable, ShardLost.
        """
        super().__init__(options, host_backend(), unconverged)
        if backend not in get_args(BackendName):
            raise InvalidValue("backend", backend, "'auto', 'cpu', 'cuda' or 'reference'")
        if isinstance(shards, bool) or not isinstance(shards, int) or shards < 1:
            raise InvalidValue("shards", shards, "an integer of at least 1")
        self._workers = workers or started_workers(
            self.options, shards, backend, cluster, device_memory
        )
        # what the engine has does not keep it: its memory goes with the last who uses it
        engine: Any = proxy(self)
        self.edge_reader = ShardedEdgeReader(engine, self._workers)
        self.ids = VertexIds()
        self.shard_vertices: list[int] = []
        self.shard_edges: list[int] = []
        self.shard_bytes: list[int] = []
        self.running: list[Running] = []
        self.new_number = partial(next, count())
        calls = (partial(self._workers.everywhere, "call_program"), self.new_number)
        self.programs = ShardedPrograms(self._graph, lambda: engine.ids, *calls)
        self._queries = ShardedQueries(engine)
        self._order: NDArray[np.int64] | None = None
        self._ordered = False  # at the last update: the first edges decide on the order
        self._permutation, self._shared = VertexPermutation(host_backend()), ReusedValues()
        self._dealt = DealtOrder(host_backend(), self._permutation, self._workers.size, 0)
        self._publishes = False  # what was updated last
        self._gathered_ahead: _GatheredRanks | None = None
        self._edges = 0

    @property
    def backend(self) -> str:
        """Of the shards: what ``auto`` became."""
        return self._workers.backend

    @property
    def vertices(self) -> int:
        return self.ids.count

    @property
    def id_limit(self) -> int:
        return self.ids.limit

    def free_ids(self) -> NDArray[np.int64]:
        return self.ids.free()

    @property
    def edges(self) -> int:
        return self._edges

    @property
    def internals(self) -> NoReturn:
        """Raises NotImplementedError: they are in other processes."""
        raise NotImplementedError("the parts of an engine in shards are in other processes")

    def memory(self) -> dict[str, int]:
        """Bytes of all shards: see `shard_bytes`."""
        return {"shards": sum(self.shard_bytes)}

    def check_memory(self, operations: int, vertices: int, times: int = 1) -> None:
        """Raises OutOfMemory if a batch of these operations and new vertices would not fit in this
        process, as one device estimates it.
        """
        super().check_memory(operations, max(0, vertices - self.ids.limit), times)

    def apply(self, batch: EdgeBatch | ResolvedBatch) -> Change:
        """Removes, deletes, then inserts. All or nothing. The ranks follow at `update`. Raises
        InvalidValue, OutOfMemory, ShardLost.
        """
        began = perf_counter()
        decided = self.decide(batch)
        batch = decided.batch
        # here, where places and numbers are those of the whole batch
        insertion_weights(batch, self.options.weighted)
        require_times(batch, self.options.decays)
        if self.options.decays and batch.times is not None:
            half_lives(batch.times, self.options)
        parts = dealt(batch, self._workers.size, self.most_replicated)
        limit, removed = max(self.ids.limit, batch.vertices), self.ids.vertices_among(batch.remove)
        returned = self.ids.returning(host_backend(), batch, removed)
        self.ids.reserve(limit if len(removed) else 0)
        with decided.naming():
            change: Change = self._workers.call("apply", [(each,) for each in parts])[0]
        self.ids.change(removed, returned, limit)
        for running in self.running:
            running.follow(removed)
        for kept in (*self._queries.watched.values(), *self._queries.views.values()):
            kept.follow(removed)
        self._edges += change.inserted - change.deleted - change.removed_edges
        if change.expired:  # edges that were there, or insertions: the graph knows
            self._edges = self._workers.everywhere("count_edges")[0]
        return decided.change(replace(change, seconds=perf_counter() - began))

    def apply_coalesced(
        self,
        batch: EdgeBatch,
        parts: Sequence[tuple[int, int]],
    ) -> None:
        """None: batches are applied one by one."""

    def update(
        self,
        strategy: str = "auto",
        form: Form | None = None,
        trace: bool = False,
        settle: int = 0,
        target: SettledTarget = "settled-top-k",
    ) -> Result:
        """Brings the ranks up to date with everything applied since the last update: see
        Engine.update. Raises OutOfMemory, ShardLost too. After any other error than InvalidValue,
        there are no ranks until an update succeeds.
        """
        asked = (strategy, form, trace, settle, target)
        Solve(*asked).checked(self.options)
        self._timer.begin()
        result = self._updated(asked)
        self._timer.end("solve")
        self._ranked = self._ranked._replace(bound=result.error_bound)
        tell_unconverged(result, self.options.target_error, settle, self._unconverged)
        return result

    def _updated(self, asked: tuple[Any, ...]) -> Result:
        """Has the shards update. If the ranks of the last update were published, so will these be:
        they come with it, without a call of their own.
        """
        self._gathered_ahead, publishes, self._publishes = None, self._publishes, False
        result: Result
        if publishes:
            gathered, found = self._gather("updated", *asked)
            parts = [ranks for _, ranks in found if ranks is not None]
            if len(parts) == len(found):
                self._gathered_ahead = gathered._replace(parts=parts)
            result = found[0][0]
        else:
            result = self._workers.everywhere("update", *asked)[0]
        self._ordered |= self.edges > 0
        return result

    def _gather(self, method: str, *asked: Any) -> tuple[_GatheredRanks, list[Any]]:
        """Has the shards write their ranks to memory of this process. Returns what they return."""
        room = -(-self.ids.limit // self._workers.size)
        shared = self._shared.next(room * self._workers.size)
        found = self._workers.everywhere(method, shared.place, room, *asked)
        return _GatheredRanks(shared, room, found), found

    def top(self, k: int = 10) -> tuple[NDArray[np.int64], Ranking]:
        """Ids and ranks of the k highest of the last update; ties by id. Each shard sends k. Raises
        InvalidValue, ShardLost.
        """
        if isinstance(k, bool) or not isinstance(k, int) or k < 0:
            raise InvalidValue("k", k, "an integer of at least 0")
        leading = self._workers.everywhere("top", k)
        ids = np.concatenate([each.ids for each in leading])
        values = np.concatenate([each.values for each in leading])
        highest = np.lexsort((ids, -values))[:k]
        return ids[highest], np.maximum(values[highest], 0.0) / (leading[0].mass or 1.0)

    def publish(self) -> Ranks:
        """The ranks of the last update, gathered into the memory of this process: shards of this
        machine write them there. Raises ShardLost.
        """
        ahead, self._gathered_ahead, self._publishes = self._gathered_ahead, None, True
        shared, room, parts = ahead or self._gather("values")[0]
        self._take_sizes([part.size for part in parts])
        values = self._shared.filled(shared, room * len(parts))
        ends = [(rank * room, rank * room + each.rows) for rank, each in enumerate(parts)]
        for (first, end), each in zip(ends, parts, strict=True):
            if each.values is not None:  # of a shard elsewhere
                values[first:end] = each.values
        holes = [np.arange(end, first + room) for first, end in ends]
        free = np.concatenate(holes)
        if any(each.free for each in parts):
            values[free] = -np.inf
            free = np.flatnonzero(values == -np.inf)
        limit, first_part = sum(each.rows for each in parts), parts[0]
        order = self._order_of(limit, ranked=True)
        if self._dealt.room != room or len(self._dealt.ids) != len(order.ids):
            self._dealt = DealtOrder(host_backend(), order, len(parts), room)
        more = first_part.bound, free.astype(np.int32), first_part.ties, first_part.rhs_scale
        return Ranks(host_backend(), self._dealt, values, first_part.mass, *more, limit)

    def joined(self, parts: Sequence[Told]) -> Ranks:
        """The ranks of a view, of those of all shards."""
        copied = [each.content for each in parts if isinstance(each.content, tuple)]
        _, mass, rhs_scale = copied[0]
        values = by_position([values for values, _, _ in copied])
        free = np.flatnonzero(values == -np.inf)
        np.maximum(values, 0.0, out=values)  # as Engine.publish
        more = parts[0].error_bound, free.astype(np.int32), None, rhs_scale
        return Ranks(host_backend(), self._order_of(len(values), ranked=False), values, mass, *more)

    def _order_of(self, count: int, ranked: bool) -> VertexPermutation:
        """Of the positions below this one. ranked: see Member.order"""
        ids = self._ids(ranked)[:count]
        if len(self._permutation.ids) != len(ids):  # the order is chosen once
            self._permutation = VertexPermutation(host_backend(), ids.astype(np.int32))
        return self._permutation

    def _take_sizes(self, sizes: Sequence[ShardSize]) -> None:
        self.shard_vertices = [each.vertices for each in sizes]
        self.shard_edges = [each.edges for each in sizes]
        self.shard_bytes = [each.nbytes for each in sizes]

    def _ids(self, ranked: bool) -> NDArray[np.int64]:
        """See Member.order."""
        if self._order is None:
            order: NDArray[np.int64] = self._workers.everywhere("order", ranked)[0]
            if not self._ordered:
                return order
            self._order = order
        return self._order

    def capture(self, buffer: StagingBuffer | None = None) -> ShardedCapture:  # noqa: ARG002
        """The state of now: every shard copies its lists. To be called when an `update` has
        followed the last batch. Raises OutOfMemory, ShardLost.
        """
        return ShardedCapture(self._workers)

    def restore(self, snapshot: Snapshot) -> None:
        """Brings an engine that has no vertices to the state of a snapshot of one engine or of
        shards, of any number. Raises InvalidValue, OutOfMemory, ShardLost.
        """
        snapshot = snapshot.healed(self.options.damping)
        arrays, numbers = snapshot.arrays, snapshot.numbers
        self._gathered_ahead = None
        self._edges = restore_shards(self._workers, snapshot)
        self.ids = VertexIds(len(arrays["length"]), arrays.get("free", NO_IDS))
        if self.edges != numbers["edges"]:
            raise InvalidValue("edges", numbers["edges"], f"{self.edges}, as the lists have")
        self._ranked = self._ranked._replace(bound=numbers["error_bound"])
        self._ordered = self.edges > 0
        self._take_sizes(self._workers.everywhere("size"))

    def answer(self, number: int, queries: list[ResolvedQuery]) -> Answered:
        """See ShardQueries.answer."""
        limits = ([each.number for each in self.running], SLICE_SECONDS)
        answered: Answered = self.call_kept("answer", number, queries, *limits)[0]
        return answered

    def call_kept(self, method: str, *arguments: Any) -> list[Any]:
        """Calls a method of ShardQueries, and returns the results of all shards."""
        return self._workers.everywhere("call_kept", method, *arguments)

    def reader(self, reversed_: bool) -> ShardedEdgeReader:
        """Of the edges, or of those of the reversed graph."""
        return _ReversedEdgeReader(self, self._workers) if reversed_ else self.edge_reader

    def edge_list(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """See Engine.edge_list. Raises OutOfMemory, ShardLost."""
        edges = self.edge_reader.capture().joined()
        return edges.sources, edges.targets

    def edge_weights(self) -> NDArray[np.float32]:
        """See Engine.edge_weights. Raises OutOfMemory, ShardLost."""
        weights = self.edge_reader.capture().joined().weights
        return np.ones(self.edges, np.float32) if weights is None else weights

    def check_alive(self) -> None:
        """Raises ShardLost if a shard is known to be lost. Any thread may call it."""
        self._workers.check_alive()

    def on_loss(self, notify: Callable[[], None]) -> None:
        """Has `notify` called on another thread, once, when a shard is lost: also between calls."""
        self._workers.on_loss(notify)

    def close(self, running: QueryBatch | Registration | None = None) -> None:
        """Ends a query, or, if none is given, the shards. A second call does nothing."""
        if running is None:
            self._workers.close()
        else:
            running.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
