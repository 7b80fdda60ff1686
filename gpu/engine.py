"""One graph with its ranks: the public surface of the engine. Not thread-safe: one owner at a time.

engine = Engine(Options(target_error=1e-8), backend="cpu")
engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))   # mutates the graph, any number of times
result = engine.update("auto")                        # one solve for all that was applied since
ranks = engine.publish()                              # an immutable copy, readable from any thread
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.backends import backend_named
from gpu.backends.base import Backend
from gpu.errors import DeviceLost, InvalidValue
from gpu.graph import Applied, Graph, Loaded, purpose_of
from gpu.job import Job, Prepared
from gpu.personalized import METHODS, Spaces
from gpu.ranks import Ranks
from gpu.snapshot import Cut, Room, Snapshot, ranks_of, restore
from gpu.solver import solve
from gpu.stages import Stages
from gpu.state import State
from gpu.strategies import STRATEGIES, Strategy, Touched, strategy_named
from gpu.sweeps import WAYS, sweep_to_target
from gpu.together import independent, parted
from gpu.types import (
    BackendName,
    Change,
    EdgeBatch,
    Options,
    Personalized,
    PersonalizedQuery,
    Ranking,
    Result,
)
from gpu.watched import Registration, Watched


class Engine:
    """A dynamic graph, its transpose and its ranks, on one backend.

    options  Options; fixed for the life of the graph
    backend  ``auto``, ``cpu`` or ``cuda``, or a Backend made by hand
    Raises BackendUnavailable where the backend cannot run.
    """

    def __init__(
        self, options: Options | None = None, backend: BackendName | Backend = "auto"
    ) -> None:
        self.options = options or Options()
        self._backend = backend if isinstance(backend, Backend) else backend_named(backend)
        self._graph = Graph(self._backend, self.options.dangling, self.options.vertex_order)
        self._state = State(self._graph, self.options)
        self._spaces = Spaces(self._graph, self._state)
        self._jobs: list[Job | Registration] = []
        self._watched = Watched(self._spaces, self.options)
        self._touched = Touched()
        self._stages = Stages(self._backend)
        self._ranked_vertices = 0
        self._ranked_numbering = self._graph.numbering
        self._ranked_total = 0.0
        self._error_bound = 0.0

    @property
    def backend(self) -> str:
        """The backend's name: what ``auto`` became."""
        return self._backend.name

    @property
    def vertices(self) -> int:
        """Number of vertices; ids are 0 … vertices-1."""
        return self._graph.vertices

    @property
    def edges(self) -> int:
        """Number of edges; the loops of the ``self-loop`` policy are not counted."""
        return self._graph.edges

    def check_memory(self, operations: int, vertices: int) -> None:
        """Raises OutOfMemory, with the figures, where there may be no room for a batch of so many
        edges, a solve by ``auto`` and published ranks. Nothing is touched.

        operations  number of insertions and deletions
        vertices    that the graph has after the batch; fewer than it has now do not count
        """
        vertices = max(vertices, self.vertices)
        graph = self._graph.bytes_needed(operations, vertices)
        ranks = self._state.bytes_needed(vertices) + 8 * vertices
        self._backend.require(purpose_of(operations, vertices), graph + ranks)

    @contextmanager
    def _device(self) -> Iterator[None]:
        """Raises DeviceLost for an error that says so."""
        try:
            yield
        except Exception as error:
            if self._backend.is_lost(error):
                raise DeviceLost(error) from error
            raise

    def apply(self, batch: EdgeBatch) -> Change:
        """Deletes, then inserts. All or nothing: an error leaves the graph as it was. The residual
        follows at once, the ranks at `update`.
        """
        with self._device():
            self._stages.begin()
            applied = self._apply(batch)
            return Change(
                inserted=applied.inserted,
                already_present=applied.already_present,
                deleted=applied.deleted,
                not_found=applied.not_found,
                new_vertices=applied.new_vertices,
                seconds=self._mutated(),
            )

    def apply_parts(
        self, batch: EdgeBatch, parts: Sequence[tuple[int, int]]
    ) -> list[Change] | None:
        """Applies several small batches at once: much less work, and what they do is the same.

        batch  all their columns, one after the other, on the host
        parts  how many of its insertions and deletions are of each
        Returns what each did, each with an equal share of the seconds; None, and nothing is done,
        where they must be applied one by one: where an edge is named twice, and where the graph has
        no edges yet, so that all would be laid out at once. All or nothing, as `apply`.
        """
        with self._device():
            self._stages.begin()
            if self._graph.is_laid_out_by(batch.operations) or not independent(batch):
                return None
            vertices = self.vertices
            applied = self._apply(batch)
            assert isinstance(applied, Applied)
            counts = parted(self._graph.numbering, batch, applied, parts, vertices)
            seconds = self._mutated() / len(parts)
            return [Change(*of_part, seconds=seconds) for of_part in counts]

    def _mutated(self) -> float:
        """Ends the stage. Its time is waited for: what the device failed with is an error of this
        batch, not of the next one.
        """
        self._stages.end("mutate")
        return self._stages.seconds()["mutate"]

    def _apply(self, batch: EdgeBatch) -> Applied | Loaded:
        self.check_memory(batch.operations, batch.vertices)
        self._state.reserve(batch)
        applied = self._graph.apply(batch)
        self._touched.add(applied.sources, applied.removed_targets)
        try:
            self._state.perturb(applied)
        except MemoryError:
            # the batch stands; the next solve computes the residual anew, in arrays it has
            self._state.forget()
        for job in self._jobs:
            job.perturb(applied)
        self._watched.perturb(applied)
        return applied

    def update(self, strategy: str = "auto") -> Result:
        """Brings the ranks up to date with everything applied since the last update.

        strategy  a name of STRATEGIES. Raises InvalidValue for any other
        """
        row = strategy_named(strategy)
        with self._device():
            return self._update(strategy, row)

    def _update(self, strategy: str, row: Strategy) -> Result:
        self._stages.begin()
        if self.vertices == 0:
            self._stages.end("mark")
            self._stages.end("solve")
            return Result(strategy, 0, 0, 0.0, True, 0.0, 0.0)
        affected = None
        if row.affected in ("reachable", "frontier"):
            flags = self._state.spare("affected", np.int32)
            affected = self._touched.mark(self._graph, row, flags)
        self._stages.end("mark")
        solved = solve(self._state, row, affected)
        self._touched = Touched()
        self._ranked_vertices = self.vertices
        self._ranked_numbering = self._graph.numbering
        self._ranked_total = self._state.total
        self._error_bound = min(2.0, self._state.error_bound)
        self._stages.end("solve")
        seconds = self._stages.seconds()
        return Result(
            strategy=strategy,
            iterations=solved.iterations,
            touched_vertices=solved.touched_vertices,
            error_bound=self._error_bound,
            converged=solved.converged,
            mark_seconds=seconds["mark"],
            solve_seconds=seconds["solve"],
        )

    def end_stage(self, name: str) -> None:
        """A stage of the caller's ends here, which began where that before ended: `mark` and
        `solve` of `update` come first.
        """
        with self._device():
            self._stages.end(name)

    def stage_seconds(self) -> dict[str, float]:
        """The time of each stage since the last `update` began: see gpu.stages."""
        with self._device():
            return self._stages.seconds()

    def publish(self) -> Ranks:
        """An immutable copy of the ranks of the last update."""
        with self._device():
            values = self._state.values[: self._ranked_vertices].copy()
            self._backend.synchronize()
        numbering = self._ranked_numbering
        return Ranks(self._backend, numbering, values, self._ranked_total, self._error_bound)

    def snapshot_room(self) -> Room:
        """Memory for the next snapshot. Any thread may ask, beside the engine's owner."""
        return Room(self._graph, self._state)

    def cut(self, room: Room) -> Cut:
        """Copies what a snapshot needs, of the moment after an `update`: see gpu.snapshot."""
        return Cut(self._graph, self._state, self._error_bound, room)

    def ranks_of(self, snapshot: Snapshot) -> Ranks:
        """What was published when the snapshot was taken; the engine need not be restored yet."""
        return ranks_of(snapshot, self._backend)

    def restore(self, snapshot: Snapshot) -> None:
        """Brings an engine that has no vertices yet to where the snapshot was taken."""
        restore(snapshot, self._graph, self._state)
        self._ranked_vertices = self.vertices
        self._ranked_numbering = self._graph.numbering
        self._ranked_total = self._state.total
        self._error_bound = snapshot.numbers["error_bound"]

    def personalized(
        self,
        seeds: NDArray[np.integer[Any]],
        weights: Ranking | None = None,
        *,
        k: int = 10,
        method: str = "hybrid",
        target_error: float | None = None,
        target: str = "error",
    ) -> Personalized:
        """Personalized PageRank of the graph as it is now: see PersonalizedQuery.

        Raises InvalidValue for what cannot be asked, OutOfMemory.
        """
        query = PersonalizedQuery(seeds, weights, k, method, target_error, target)
        return self.personalized_many([query])[0]

    def personalized_many(self, queries: Sequence[PersonalizedQuery]) -> list[Personalized]:
        """The answers in the order asked; many share each pass over the graph.

        Raises as `personalized` does, before anything is computed.
        """
        job = self.ask(queries)
        try:
            while not job.done:
                self.step(job)
            return job.answers()
        finally:
            self.close(job)

    def ask(self, queries: Sequence[PersonalizedQuery]) -> Job:
        """The same, to be made by `step`, between which batches may be applied, and then to be
        closed: see gpu.job.
        """
        job = Job(self._spaces, self.options, self.check(queries))
        self._jobs.append(job)
        return job

    def step(self, job: Job | Registration) -> None:
        """Goes on with a job that is not done, by about a sweep's work at most. Raises
        OutOfMemory.
        """
        with self._device():
            job.step()

    def check(self, queries: Sequence[PersonalizedQuery]) -> list[Prepared]:
        """Raises InvalidValue for what cannot be asked: ``queries[3].k``."""
        prepared = []
        for place, query in enumerate(queries):
            try:
                prepared.append(Prepared.of(self.vertices, self.options, query))
            except InvalidValue as error:
                field = f"queries[{place}].{error.field}" if len(queries) > 1 else error.field
                raise InvalidValue(field, error.value, error.requirement) from None
        return prepared

    def close(self, job: Job | Registration) -> None:
        """Ends a job, done or not; its arrays serve the next one."""
        self._jobs.remove(job)
        with self._device():
            job.close()

    def watch(self, name: str, query: PersonalizedQuery) -> None:
        """Answers a query and keeps it fresh from now on, in place of another of this name.

        Its method decides how it is solved first; its target is its target error. Raises
        InvalidValue, and OutOfMemory where its vectors would not fit; then all is as it was.
        """
        registration = self.register(name, query)
        try:
            while not registration.done:
                self.step(registration)
            self.keep(registration)
        finally:
            self.close(registration)

    def register(self, name: str, query: PersonalizedQuery) -> Registration:
        """The same, to be made by `step`, between which batches may be applied, then to be kept and
        closed. Raises InvalidValue, OutOfMemory.
        """
        asked = Prepared.of(self.vertices, self.options, query)
        registration = Registration(self._spaces, self.options, name, asked)
        self._jobs.append(registration)
        return registration

    def keep(self, registration: Registration) -> None:
        """Watches a query that is solved, in place of another of its name."""
        with self._device():
            self._watched.keep(registration)

    def unwatch(self, name: str) -> None:
        """Forgets a watched query, if there is one of this name."""
        self._watched.remove(name)

    def watched(self, name: str) -> Personalized:
        """The answer to a watched query as of the last `refresh_watched`, without solving.

        Raises KeyError, and OutOfMemory where there was not enough to bring it up to date.
        """
        return self._watched.answer(name)

    def refresh_watched(self) -> None:
        """Brings the watched queries up to date with everything applied."""
        with self._device():
            self._watched.refresh()

    def edge_list(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(sources, targets), int64[edges] each, on the host: for audits."""
        return self._graph.edge_list()

    def memory(self) -> dict[str, int]:
        """Bytes held on the backend's device, by purpose."""
        return self._graph.memory() | {
            "ranks": self._state.nbytes,
            "personalized": self._spaces.nbytes + self._watched.nbytes,
        }

    def warm_up(self) -> None:
        """Compiles every kernel, so that no request waits for one."""
        # small graphs and large ones run different kernels; these have edges v → 2v and v → 2v+1,
        # so that every vertex is near every other
        for vertices in (4, 1 << 15):
            engine = Engine(self.options, self._backend)
            sources = np.repeat(np.arange(vertices, dtype=np.int64), 2)
            engine.apply(EdgeBatch(sources, np.arange(2 * vertices) % vertices))
            engine.update("auto")
            engine.apply(EdgeBatch(sources, np.full_like(sources, 1)))
            engine.update("dynamic-frontier")
            for place, strategy in enumerate(STRATEGIES):
                changed = [(0, 0), (0, 1)]
                if place % 2:
                    engine.apply(EdgeBatch.of(insert=changed))
                else:
                    engine.apply(EdgeBatch.of(delete=changed))
                engine.update(strategy)
            engine.publish().top(1)
            Engine(self.options, self._backend).restore(
                engine.cut(engine.snapshot_room()).snapshot()
            )
            for method in METHODS:
                engine.personalized(np.array([0]), k=1, method=method)
            # from where it takes more sweeps than the first, which passes over the seeds alone
            columns = self._backend.least_columns
            engine.personalized_many(
                [PersonalizedQuery(np.array([2]), k=1, method="pull")] * columns
            )
            if self.options.storage == "float64":
                # what a solve tries where it is slow
                engine._state.start_anew()
                sweep_to_target(engine._state, 4, [way for way in WAYS if way.accelerated])
        Graph.warm_up(self._backend, self.options.dangling)
