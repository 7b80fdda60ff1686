"""One graph with its ranks: the public surface of the engine, which has one owner at a time.

engine = Engine(Options(target_error=1e-8), backend="cpu")
engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))   # mutates the graph, any number of times
result = engine.update("auto")                        # one solve for all that was applied since
ranks = engine.publish()                              # an immutable copy, readable from any thread
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends import backend_named
from liverank_gpu.errors import ConcurrentUse, NotConverged
from liverank_gpu.graph.coalesce import CoalescedBatch
from liverank_gpu.graph.decay import AnyDecay, Decay, in_half_lives
from liverank_gpu.graph.dynamic_graph import DynamicGraph, batch_purpose
from liverank_gpu.graph.reading import EdgeReader, StagingBuffer
from liverank_gpu.graph.resolve import ResolvedBatch, resolved
from liverank_gpu.graph.vertices import VertexPermutation
from liverank_gpu.graph.warm_up import (
    SAMPLE_VERTICES,
    dated,
    sample_batches,
    warm_up,
    warm_up_pages,
)
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array, DeviceOperations, StageTimer
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.pagerank.frontier import TouchedVertices, warm_up_lists
from liverank_gpu.pagerank.global_iterate import GlobalIterate
from liverank_gpu.pagerank.places import GraphVertices, RankTies, SettledTarget
from liverank_gpu.pagerank.ranks import Explanation, Ranks
from liverank_gpu.pagerank.solver import improve, solver_of, warm_up_acceleration
from liverank_gpu.pagerank.strategies import (
    STRATEGIES,
    TABLE,
    Solve,
    Strategy,
    checked_unconverged,
    forms_of,
    strategy_named,
    tell,
    tell_unconverged,
)
from liverank_gpu.personalized.batch import Queries, QueryBatch
from liverank_gpu.personalized.iterate import WorkspacePool
from liverank_gpu.personalized.query import QueryContext
from liverank_gpu.personalized.resolve import AnyQuery, ResolvedQuery, ResolvedView
from liverank_gpu.personalized.views import ViewSteps
from liverank_gpu.personalized.watched import Registration, Start
from liverank_gpu.programs.answer import Answer
from liverank_gpu.programs.running import AnyProgram, Programs
from liverank_gpu.snapshot import Capture, Snapshot, ranks_of, restore, staging_buffer
from liverank_gpu.types import (
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


class _Owned:
    """A call that needs the graph or the device. Raises ConcurrentUse, DeviceLost."""

    def __init__(self, in_use: threading.RLock, device: DeviceOperations) -> None:
        self._in_use, self._detecting_loss = in_use, device.detecting_loss()

    def __enter__(self) -> None:
        if not self._in_use.acquire(blocking=False):
            raise ConcurrentUse
        try:
            self._detecting_loss.__enter__()
        except BaseException:
            self._in_use.release()
            raise

    def __exit__(self, *raised: Any) -> None:
        try:
            self._detecting_loss.__exit__(*raised)
        finally:
            self._in_use.release()


@dataclass(frozen=True, slots=True)
class Internals:
    """The parts of an engine, for measurements and tests. Changing them makes results wrong."""

    backend: Backend
    graph: DynamicGraph
    iterate: GlobalIterate
    queries: QueryContext


class Group:
    """The processes that hold one graph together, each with an Engine that has a part of it: alone,
    this one. Then nothing is divided and nothing exchanged. (For others see
    liverank_gpu.sharded.member.)

    divided      whether others have parts of the graph. All call their engines alike then
    solving      whether a solve has begun and not ended in this process
    following    whether the ranks have begun to follow a batch and not ended it
    ended_early  whether the solve before did not end in all processes
    """

    divided = False

    def __init__(self) -> None:
        self.solving = self.following = self.ended_early = False

    def graph(self, backend: Backend, options: Options) -> DynamicGraph:
        """The part of an empty graph that is here."""
        decay: AnyDecay | None = Decay(options) if options.decays else None
        kind = (options.vertex_order, options.weighted, options.directed, decay)
        return DynamicGraph(backend, options.dangling, *kind)

    def vertices(self, graph: DynamicGraph) -> GraphVertices:
        """Its vertices."""
        return GraphVertices(graph)

    def touched(self) -> TouchedVertices:
        """What batches touch of it."""
        return TouchedVertices()

    def queries(
        self, graph: DynamicGraph, iterate: GlobalIterate, vertices: GraphVertices
    ) -> Queries:
        """The queries on it."""
        pool, options = WorkspacePool(graph), iterate.options
        return Queries(QueryContext(pool, options, iterate.deflation, vertices))

    def begin(self, needed: bool) -> None:
        """All processes begin a call, in which the ranks follow the last batch first. An error may
        have ended the call before at another step in each: what may differ is forgotten by all.

        needed  whether the residual is used
        """


MAX_EXPLAINED = 1 << 20
"""In-edges of a vertex whose rank is explained: all of them are read."""


class _Ranked(NamedTuple):
    """What readers need of the last update, and the next batch may change.

    vertices  length of y
    mass      Σy
    bound     on the error of the ranks
    free      free ids, as positions
    ties      vertices with equal ranks
    rhs_scale the β that the bound is about
    """

    vertices: int
    permutation: VertexPermutation
    mass: float
    bound: float
    free: Array
    ties: RankTies | None
    rhs_scale: float


_COPIED_AHEAD = 4
"""Ranks are copied before they are published if so many copies would fit."""


class Engine:
    """A dynamic graph, its transpose and its ranks, on one backend.

    options      fixed for the life of the graph
    backend      ``auto``, ``cpu``, ``cuda`` or ``reference``, or a Backend
    unconverged  what `update` and `personalized` do about ranks that have not converged: ``warn``
                 of NotConverged, ``raise`` it when they are up to date, so that `publish` has them,
                 or ``ignore`` it
    group        the processes that hold the graph; None: this one
    edge_reader  reads edges while the graph changes; programs  runs programs
    Raises BackendUnavailable if the backend cannot run.

    Not thread-safe: one thread at a time may call its methods, and one that changes, solves or
    copies anything raises ConcurrentUse while another thread is in such a call. Any thread may use
    what `publish` returned, and call `staging_buffer`, `ranks_of`, and of `edge_reader` what it
    says.
    """

    def __init__(
        self,
        options: Options | None = None,
        backend: BackendName | Backend = "auto",
        unconverged: Unconverged = "warn",
        group: Group | None = None,
    ) -> None:
        self._unconverged = checked_unconverged(unconverged)
        self._group = group = group or Group()
        options = self.options = options or Options()
        self._in_use = threading.RLock()  # whose thread may call again: `watch` calls `step`
        self._backend = backend if isinstance(backend, Backend) else backend_named(backend)
        with self._owned():
            self._graph = group.graph(self._backend, options)
            self._vertices, self._touched = group.vertices(self._graph), group.touched()
            self.edge_reader = EdgeReader(self._graph)
            self._iterate = GlobalIterate(self._graph, options)
            self._iterate.before_sweeps = self._graph.in_pages.catch_up
            self._queries = group.queries(self._graph, self._iterate, self._vertices)
            self.programs = Programs(self._graph)
            self._timer = StageTimer(self._backend.device)
            self.unfollowed: GraphUpdate | None = None  # the last batch, unless ranks follow it
            self._improvable = False  # no batch came since the last update
            # a copy of y as it is, of no more vertices, with the free ids that it is for
            self._copied: tuple[Array, Array] | None = None
            self._ranked: _Ranked
            self._record_ranked(0.0)

    @property
    def backend(self) -> str:
        """The backend's name: what ``auto`` became."""
        return self._backend.name

    @property
    def vertices(self) -> int:
        """Number of vertices."""
        return self._graph.ids.count

    @property
    def id_limit(self) -> int:
        """Every id is below it: `vertices`, and the ids that are free."""
        return self._graph.ids.limit

    def free_ids(self) -> NDArray[np.int64]:
        """int64[…], ascending: ids of removed vertices, to be used again
        (liverank_gpu.graph.vertices).
        """
        return self._graph.ids.free()

    @property
    def edges(self) -> int:
        """Number of edges; the loops of the ``self-loop`` policy are not counted."""
        return self._graph.edges

    @property
    def internals(self) -> Internals:
        """The engine's parts, for measurements."""
        return Internals(self._backend, self._graph, self._iterate, self._queries.context)

    def _owned(self) -> _Owned:
        return _Owned(self._in_use, self._backend.device)

    def check_memory(self, operations: int, vertices: int, times: int = 1) -> None:
        """Raises OutOfMemory, with the figures, if there may not be enough memory for a batch of
        this many insertions and deletions, a solve by any strategy and published ranks.

        vertices  limit of the ids after the batch, if more than now; times: how often it must fit
        """
        vertices = max(vertices, self._graph.ids.limit)
        graph = self._graph.bytes_needed(operations, vertices)
        needed = graph + self._iterate.bytes_needed(vertices) + 8 * vertices
        if self._copied and not self._backend.device.has_room(needed, times):
            self._copied = None
        self._graph.in_pages.require(batch_purpose(operations, vertices), needed, times)

    def apply(self, batch: EdgeBatch | ResolvedBatch) -> Change:
        """Removes, deletes, then inserts. All or nothing. The ranks follow at `update`."""
        with self._owned():
            self._timer.begin()
            decided = self.decide(batch)
            with decided.naming():
                update = self._apply(decided.batch)
            return decided.change(replace(update.counts, seconds=self._end_mutation()))

    def decide(self, batch: EdgeBatch | ResolvedBatch) -> ResolvedBatch:
        """What `apply` does of the batch as the graph is now: see liverank_gpu.graph.resolve."""
        if isinstance(batch, ResolvedBatch):
            return batch
        if batch.delete_weights is None and len(batch.replace) == 0:
            return ResolvedBatch(batch, (batch.delete_sources, batch.delete_targets))
        with self._owned():
            to_host = self._backend.device.to_host
            return resolved(batch, self.options, self.edge_reader, self.id_limit, to_host)

    def apply_coalesced(
        self, batch: EdgeBatch, parts: Sequence[tuple[int, int]]
    ) -> list[Change] | None:
        """Applies several small batches as one: the same effect for much less work.

        batch  all their columns, one after the other, on the host
        parts  numbers of insertions and deletions of each
        Returns what each did, with equal parts of the seconds. None, and nothing is done, if they
        must be applied one by one: if an edge is named twice, vertices are removed or added,
        weights decay, or the joined batch would rebuild the graph. All or nothing, as `apply`.
        """
        with self._owned():
            self._timer.begin()
            coalesced = CoalescedBatch.of(self._graph, batch, parts)
            if coalesced is None:
                return None
            counts = coalesced.counts(self._apply(coalesced.batch))
            seconds = self._end_mutation() / len(parts)
            return [replace(of_part, seconds=seconds) for of_part in counts]

    def _end_mutation(self) -> float:
        """Ends the stage and waits: an error of its work belongs to this batch."""
        self._timer.end("mutate")
        return self._timer.seconds()["mutate"]

    def _apply(self, batch: EdgeBatch) -> GraphUpdate:
        self._begin()
        self._improvable = False
        if not self._group.divided:
            self.check_memory(batch.operations, batch.vertices)
            # before programs copy the graph, which they do where there is room beside the batch
            self._reserve(max(self._graph.vertices, batch.vertices))
        self.programs.prepare(batch)
        update = self._graph.apply(batch, reserve=self._reserve, follows=self._iterate.follows)
        self.unfollowed = update
        self._touched.add(update)
        if not self._group.divided:
            self._follow()
        if update.rebuilt:
            self._build_pages()
        return update

    def _build_pages(self) -> None:
        """After a load, where a solve has room beside them."""
        graph = self._graph
        beside = self._iterate.bytes_needed(graph.vertices) + 8 * graph.vertices
        graph.in_pages.build_ahead(graph.view, beside)

    def _reserve(self, vertices: int) -> None:
        self._iterate.reserve(vertices)
        self._queries.views.reserve(vertices)

    def _follow(self) -> None:
        """Has ranks, queries and programs follow the last batch."""
        update, self.unfollowed = self.unfollowed, None
        if update is not None:
            try:
                self._iterate.perturb(update)
            except MemoryError:
                if self._group.divided:
                    raise
                # the batch stands; the next solve computes the residual, in arrays that it has
                self._iterate.invalidate()
            self._queries.perturb(update)
            self.programs.follow(update)
        self._graph.scale_rows()

    def _begin(self, needed: bool = True) -> None:
        """Begins a call that uses the graph. In a group the ranks follow the last batch now: that
        is not part of the batch, which stands in all processes.

        needed  whether the residual is used
        """
        if self._group.divided:
            self._group.begin(needed)
            self._follow()
            self._group.following = False

    def update(
        self,
        strategy: str = "auto",
        form: Form | None = None,
        trace: bool = False,
        settle: int = 0,
        target: SettledTarget = "settled-top-k",
    ) -> Result:
        """Brings the ranks up to date with everything applied since the last update.

        strategy  a name in STRATEGIES. Raises InvalidValue for any other
        form      default: the graph's. Raises InvalidValue for one that the strategy does not have.
                  ``accelerated`` where vertices were removed, which published ones do not know
        trace     whether the result says what each iteration did
        settle    first places to be proven too, by ``auto`` alone: see liverank_gpu.pagerank.solver
        target    what is to be proven of them: ``settled-top-k``, each of these places; or
                  ``settled-set``, which vertices have them. Raises InvalidValue for any other
        Warns of NotConverged, or raises it: see `unconverged`.
        """
        asked = Solve(strategy, form, trace, settle, target).checked(self.options)
        form = asked.form or "accelerated"
        if self._graph.ids.free_count:
            form = "accelerated"
        with self._owned():
            self._timer.begin()
            copied, self._copied = self._copied, None
            self._graph.trim()
            row = self._begin_solve(strategy_named(strategy), form)
            solver = solver_of(self._iterate, row, form, asked, self._vertices)
            solver.mark(self._touched)
            self._timer.end("mark")
            solved = solver.solve()
            self._touched.clear()
            self._timer.end("solve")
            solved, bound = solver.certify(solved)
            self._group.solving = self._group.ended_early and self._graph.ids.count == 0
            # ranks that are published as they are, whose bound is that of another β
            published = form == "published" and solved.fallback is None
            base = self._iterate.mean_corrected_rhs if published else None
            self._record_ranked(bound, solved.ties, base)
            self._improvable = form == "accelerated"
            by_residual = self._improvable and row.affected == "residual"
            if by_residual and solved.iterations == 0 and solved.fallback is None:
                self._copied = copied
            self._timer.end("certify")
            seconds = self._timer.seconds()
        done = (strategy, solved.iterations, solved.touched_vertices, self._ranked.bound)
        times = seconds["mark"], seconds["solve"], seconds["certify"]
        result = Result(
            *(*done, solved.converged, *times, form, solver.trace(solved)),
            **solved.outcome,
        )
        tell_unconverged(result, self.options.target_error, settle, self._unconverged)
        return result

    def _begin_solve(self, strategy: Strategy, form: Form) -> Strategy:
        """What is to run. In a group there are no ranks until it ends in all processes."""
        group, iterate = self._group, self._iterate
        if not group.divided:
            return strategy
        self._ranked = self._ranked._replace(vertices=0, free=self._graph.free[:0], ties=None)
        self._begin(needed=strategy.start == "previous" and form == "accelerated")
        group.solving = True
        if group.ended_early and self._graph.ids.count:
            # with different right-hand sides, if processes ended at different steps
            iterate.reset()
            iterate.unguessable = 0
            if strategy.affected in ("reachable", "frontier"):
                return TABLE["naive-dynamic"]  # there are no ranks to go on from
        return strategy

    def improve(self) -> bool:
        """To be called while nothing else is to be done, after an update: brings the ranks nearer
        than the target error, so that small batches that follow need no solve, by a few sweeps.
        What was published stays as it is.

        Returns whether another call may help. Does nothing where the same calls have to leave the
        same bits (on ``cpu``), and in a group.
        """
        if self._backend.repeatable or self._group.divided or not self._improvable:
            return False
        with self._owned():
            self._graph.in_pages.catch_up()
            copied, self._copied = self._copied, None
            residual = self._iterate.residual_id
            try:
                bound, self._improvable = improve(self._iterate)
                if self._iterate.residual_id is residual:
                    self._copied = copied
                ranks, device = 8 * self._ranked.vertices, self._backend.device
                if not self._improvable and device.has_room(ranks, _COPIED_AHEAD):
                    self._copy()
            except MemoryError:  # it can be done without
                bound, self._improvable = self._iterate.error_bound, False
            self._record_ranked(bound, self._ranked.ties)
        return self._improvable

    def _record_ranked(
        self, error_bound: float, ties: RankTies | None = None, base: float | None = None
    ) -> None:
        """base: the β that the bound is about; default: the iterate's"""
        bound = min(2.0, error_bound + (ties.error if ties else 0.0))
        graph, mass = self._graph, float(self._iterate.certificate.mass)
        ranked = (graph.vertices, graph.permutation, mass, bound, graph.free, ties)
        self._ranked = _Ranked(*ranked, float(self._iterate.rhs_scale if base is None else base))

    def end_stage(self, name: str) -> None:
        """Ends a stage of the caller, which began where the one before ended, after `update`."""
        with self._owned():
            self._timer.end(name)

    def stage_seconds(self) -> dict[str, float]:
        """The time of each stage since the last `update` began: see StageTimer."""
        with self._owned():
            return self._timer.seconds()

    def publish(self) -> Ranks:
        """An immutable copy of the ranks of the last update."""
        with self._owned():
            _, permutation, *others = self._ranked
            values = self._copy()
            if self._ranked.ties is not None:
                self._copied = None  # equal ranks are written to it
            return Ranks(self._backend, permutation, values, *others)

    def _copy(self) -> Array:
        """A copy of y, which later ones may share; free ids may have another value."""
        ranked, copied = self._ranked, self._copied
        if copied is None or len(copied[0]) != ranked.vertices or copied[1] is not ranked.free:
            # rounding can have left an entry just below 0: see liverank_gpu.pagerank.gate
            values = self._backend.xp.maximum(self._iterate.values[: ranked.vertices], 0.0)
            self._copied = copied = (values, ranked.free)
        return copied[0]

    def explain(self, vertex: int, ranks: Ranks, k: int = 10) -> Explanation:
        """What the rank of a vertex, by id, consists of. ranks: those that were published of the
        graph as it is. The cost follows the in-list.

        Raises UnknownVertex, InvalidValue for k below 0 and for more than MAX_EXPLAINED in-edges.
        """
        ranks.of(np.array([vertex]))
        with self._owned():
            steps = self.edge_reader.steps_to(vertex, MAX_EXPLAINED)
        return ranks.explain(vertex, steps, self.options.damping, k)

    def staging_buffer(self) -> StagingBuffer:
        """Memory for the next snapshot. Any thread may call this, concurrent with the owner."""
        return staging_buffer(self._graph, self._iterate)

    def capture(self, buffer: StagingBuffer) -> Capture:
        """Copies what a snapshot needs, right after an `update`: see liverank_gpu.snapshot."""
        with self._owned():
            ranked = self._ranked
            return Capture(self._graph, self._iterate, ranked.bound, ranked.rhs_scale, buffer)

    def ranks_of(self, snapshot: Snapshot) -> Ranks:
        """What was published when the snapshot was taken; the engine need not be restored yet."""
        return ranks_of(snapshot, self._backend)

    def restore(self, snapshot: Snapshot) -> None:
        """Brings an engine that has no vertices to the state of the snapshot. If that has no valid
        ranks, they are equal, with an error bound of 2, until the next update, which solves again.
        """
        snapshot = snapshot.healed(self.options.damping)
        with self._owned():
            restore(snapshot, self._graph, self._iterate)
            self._build_pages()
            numbers = snapshot.numbers
            self._record_ranked(numbers["error_bound"], base=numbers.get("ranked_base"))

    def personalized(
        self,
        seeds: NDArray[np.integer[Any]],
        weights: Ranking | None = None,
        *,
        k: int = 10,
        method: str = "hybrid",
        target_error: float | None = None,
        target: str = "error",
        damping: float | None = None,
        among: NDArray[np.integer[Any]] | None = None,
        form: Form = "accelerated",
        trace: bool = False,
        zeros: bool = False,
        within: NDArray[np.integer[Any]] | None = None,
    ) -> Personalized:
        """PageRank of seeds, now: see PersonalizedQuery. Raises InvalidValue, OutOfMemory."""
        asked = (seeds, weights, k, method, target_error, target, damping, among, form, trace)
        return self._answered([PersonalizedQuery(*asked, zeros, within)])[0]

    def personalized_many(self, queries: Sequence[PersonalizedQuery]) -> list[Personalized]:
        """The answers in order; queries share passes over the graph. Raises as `personalized`.
        Warns of NotConverged, or raises it, once for all of them: see `unconverged`.
        """
        return self._answered(queries)

    def _answered(self, queries: Sequence[PersonalizedQuery]) -> list[Personalized]:
        with self._owned():
            batch = self.submit(queries)
            try:
                while not batch.done:
                    self.step(batch)
                answers = batch.answers()
            finally:
                self.close(batch)
        if missed := [place for place, answer in enumerate(answers) if not answer.converged]:
            worst = max(missed, key=lambda place: answers[place].error_bound)
            asked = queries[worst].target_error
            goal = f"target_error is {self.options.target_error if asked is None else asked:.1e}"
            if len(queries) > 1:
                goal += f" (queries[{worst}], the farthest off of {len(missed)})"
            told = NotConverged(answers[worst].iterations, answers[worst].error_bound, goal)
            tell(told, self._unconverged)
        return answers

    def submit(self, queries: Sequence[AnyQuery]) -> QueryBatch:
        """The same, to be run by `step`, between which edges may change, and then to be closed."""
        with self._owned():
            return self._queries.submit(queries)

    def step(self, running: QueryBatch | Registration) -> None:
        """Continues what is not done, by about a sweep's work at most. Raises OutOfMemory."""
        with self._owned():
            running.step()

    def resolve(self, queries: Sequence[PersonalizedQuery]) -> list[ResolvedQuery]:
        """For `submit`, until the graph changes. Raises InvalidValue, naming ``queries[3].k``."""
        with self._owned():
            return self._queries.resolve(queries)

    def close(self, running: QueryBatch | Registration) -> None:
        """Ends it, done or not, and takes its arrays back."""
        with self._owned():
            self._queries.close(running)

    def watch(self, name: str, query: PersonalizedQuery) -> None:
        """Answers a query and keeps it fresh from now on, in place of another of this name. Its
        method decides how it is solved first; its target is its target error. Raises InvalidValue,
        and OutOfMemory if its vectors would not fit; then nothing changes.
        """
        with self._owned():
            self._solve_first(self.register(name, query))

    def _solve_first(self, registration: Registration) -> None:
        try:
            while not registration.done:
                self.step(registration)
            self.keep(registration)
        finally:
            self.close(registration)

    def register(
        self, name: str, query: PersonalizedQuery | ViewQuery, start: Start | None = None
    ) -> Registration:
        """The same, to be run by `step`, then to be kept and closed; or the same of `put_view`.
        Raises as they do.
        """
        with self._owned():
            return self._queries.register(name, query, start)

    def keep(self, registration: Registration) -> None:
        """Watches a solved query, or keeps a view, in place of another of its name."""
        with self._owned():
            is_view = isinstance(registration.asked, ResolvedView)
            (self._queries.views if is_view else self._queries.watched).keep(registration)

    def restrict(self, name: str, among: NDArray[np.integer[Any]]) -> None:
        """Changes what a watched query is among, at the next refresh: int64[…], ids, at least one.
        Raises KeyError, InvalidValue.
        """
        with self._owned():
            self._queries.restrict(name, among)

    def unwatch(self, name: str) -> None:
        """Forgets a watched query, if there is one of this name."""
        with self._owned():
            self._queries.watched.remove(name)

    def watched(self, name: str) -> Personalized:
        """The answer to a watched query as of the last `refresh_watched`, without solving. Raises
        KeyError, OutOfMemory if it could not be brought up to date, UnknownVertex for a lost seed.
        """
        with self._owned():
            return self._queries.watched[name].shown_answer()

    def refresh_watched(self) -> None:
        """Brings the watched queries up to date with everything applied."""
        with self._owned():
            self._queries.watched.refresh()

    def put_view(self, name: str, view: ViewQuery, start: Start | None = None) -> None:
        """Ranks all vertices for a teleport distribution of its own, and keeps these ranks fresh
        from now on. A view of this name goes on from where it is, unless its damping or its
        direction is another. Raises InvalidValue, and OutOfMemory if its vectors would not fit;
        then nothing changes.

        start  ranks to begin at where there is none to go on from, float64[…] by id, and their
               base: what `Ranks.to_numpy` and `Ranks.base` gave for it once. Any will do; the
               closer they are, the less there is to solve
        """
        with self._owned():
            asked = self._queries.resolved_view(name, view)
            if not self._queries.views.change(name, asked):
                self._solve_first(self._queries.register(name, asked, start))

    def change_view(self, name: str, view: ViewQuery) -> bool:
        """Gives a view other seeds, another target or another refresh, which its next refresh or
        read follows. False, and nothing is done, if there is none of this name, damping and
        direction. Raises InvalidValue.
        """
        with self._owned():
            return self._queries.views.change(name, self._queries.resolved_view(name, view))

    def view_lost_seeds(self, name: str) -> bool:
        """Whether vertices were removed that were seeds of the view when it was put. It goes on
        from the others. Raises KeyError.
        """
        return self._queries.views[name].lost_seeds

    @property
    def views(self) -> list[str]:
        """Names of the views."""
        return list(self._queries.views)

    def view(self, name: str, *, solve: bool = True) -> Ranks:
        """All ranks of a view, with their bound for the graph as it is now.

        solve  whether it is solved first, if its `refresh` says so: see ViewQuery

        Raises KeyError, OutOfMemory if it could not be brought up to date, UnknownVertex if all its
        seeds were removed.
        """
        with self._owned():
            return self._queries.views[name].ranked(solve=solve)

    def view_steps_to(self, name: str, vertex: int) -> ViewSteps:
        """How the walks of a view come to a vertex, by id, for `Ranks.explain` of its ranks.

        Raises KeyError if there is no view of this name, UnknownVertex for an id that is no vertex,
        InvalidValue for more than MAX_EXPLAINED edges, and as `view` if it has no ranks.
        """
        with self._owned():
            known = self._queries.views[name]
            known.ranked(solve=False).of(np.array([vertex]))
            return known.steps_to(vertex, MAX_EXPLAINED)

    def remove_view(self, name: str) -> None:
        """Forgets a view, if there is one of this name."""
        with self._owned():
            self._queries.views.remove(name)

    def refresh_views(self) -> dict[str, float]:
        """Brings the views up to date with everything applied, as their `refresh` says. Returns the
        seconds that each took, by name.
        """
        with self._owned():
            return self._queries.views.refresh()

    def run(
        self,
        program: AnyProgram,
        *,
        after: Answer | None = None,
        mode: str = "synchronous",
        **parameters: float,
    ) -> Answer:
        """Runs a program on the graph as it is now: see liverank_gpu.programs.running.Programs."""
        with self._owned():
            return self.programs.run(program, after, mode, parameters)

    def edge_list(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(sources, targets), int64[edges] each, on the host."""
        with self._owned():
            return self._graph.edge_list()

    def edge_weights(self) -> NDArray[np.float32]:
        """float32[edges], in the order of `edge_list`; all 1 if unweighted."""
        with self._owned():
            return self._graph.edge_weights()

    def memory(self) -> dict[str, int]:
        """Bytes held on the backend's device, by purpose."""
        held = {
            "ranks": self._iterate.nbytes,
            "personalized": self._queries.nbytes,
        }
        return self._graph.memory() | held | {"programs": self.programs.nbytes}

    @property
    def compiles_kernels(self) -> bool:
        """Whether the backend compiles or loads kernels when they are first needed: ``cuda`` does.
        Those of ``cpu`` are compiled when liverank is built, so that warm-ups have nothing to do.
        """
        return self._backend.compiles_kernels

    def warm_up(self) -> None:
        """Compiles what batches, `auto`, reads, single queries and restarts need."""
        if not self.compiles_kernels:
            return
        options = in_half_lives(self.options)
        for batches in sample_batches(options):
            engine = Engine(options, self._backend, "ignore")
            for batch in batches:
                engine.apply(batch)
                engine.update("auto")
            engine.publish().warm_up()
            engine._queries.warm_up()
            snapshot = engine.capture(engine.staging_buffer()).snapshot()
            Engine(options, self._backend).restore(snapshot)
        warm_up(self._backend, self.options.dangling, self.options.weighted)

    def warm_up_others(self) -> None:
        """Compiles everything else."""
        if not self.compiles_kernels:
            return
        options, edges = in_half_lives(self.options), [(0, 0), (0, 1)]
        for batches in sample_batches(options):
            engine = Engine(options, self._backend, "ignore")
            for batch, strategy in zip(batches, ("auto", "dynamic-frontier"), strict=True):
                engine.apply(batch)
                engine.update(strategy)
            engine._queries.warm_up_others()
            for index, strategy in enumerate(STRATEGIES):
                batch = EdgeBatch.of([*edges, (1, 2)]) if index % 2 else EdgeBatch.of(delete=edges)
                engine.apply(dated(options, batch, 20.0 * index))
                for form in forms_of(strategy_named(strategy), options):
                    engine.update(strategy, form)
            warm_up_lists(engine._iterate, strategy_named("dynamic-frontier"))
            warm_up_acceleration(engine._iterate)

    def warm_up_solve(self, solve: Solve | None = None) -> None:
        """Compiles what a batch to a new graph, one solve of it and the first places need: for
        programs that rank once and end.

        solve  None: Solve()

        Raises InvalidValue for a solve that does not exist.
        """
        solve, options = (solve or Solve()).checked(self.options), in_half_lives(self.options)
        if not self.compiles_kernels:
            return
        for vertices in SAMPLE_VERTICES:
            engine = Engine(options, self._backend, "ignore")
            # v → 2v, v → 2v+1 and v → 1: ranks that differ
            targets = np.append(np.arange(2 * vertices) % vertices, np.full(vertices, 1))
            sources = np.append(np.repeat(np.arange(vertices), 2), np.arange(vertices))
            engine.apply(dated(options, EdgeBatch(sources, targets)))
            engine.update(*solve)
            engine.publish().top(1)
            if solve.form != "published":
                warm_up_acceleration(engine._iterate)
        strategy = strategy_named(solve.strategy)
        if strategy.affected in ("reachable", "frontier"):
            warm_up_lists(engine._iterate, strategy)
        warm_up_pages(self._backend, options.dangling, options.weighted)
