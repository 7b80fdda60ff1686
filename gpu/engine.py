"""One graph with its ranks: the public surface of the engine. Not thread-safe: one owner at a time.

engine = Engine(Options(target_error=1e-8), backend="cpu")
engine.apply(EdgeBatch.of(insert=[(0, 1), (1, 2)]))   # mutates the graph, any number of times
result = engine.update("auto")                        # one solve for all that was applied since
ranks = engine.publish()                              # an immutable copy, readable from any thread
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.backends import backend_named
from gpu.backends.base import Backend
from gpu.errors import DeviceLost
from gpu.graph import Applied, Graph, Loaded
from gpu.personalized import personalized
from gpu.ranks import Ranks
from gpu.snapshot import Cut, Room, Snapshot, ranks_of, restore
from gpu.solver import solve
from gpu.state import State
from gpu.strategies import STRATEGIES, Strategy, Touched, strategy_named
from gpu.together import independent, parted
from gpu.types import BackendName, Change, EdgeBatch, Options, Personalized, Ranking, Result


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
        self._graph = Graph(self._backend, self.options.dangling)
        self._state = State(self._graph, self.options)
        self._touched = Touched()
        self._ranked_vertices = 0
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
            return self._apply(batch)[0]

    def apply_parts(
        self, batch: EdgeBatch, parts: Sequence[tuple[int, int]]
    ) -> list[Change] | None:
        """Applies several small batches at once: much less work, and what they do is the same.

        batch  all their columns, one after the other, on the host
        parts  how many of its insertions and deletions are of each
        Returns what each did; None, and nothing is done, where an edge is named twice, so that they
        must be applied one by one. All or nothing, as `apply`.
        """
        if not independent(batch):
            return None
        vertices = self.vertices
        with self._device():
            change, applied = self._apply(batch)
            return parted(self._backend, batch, applied, parts, vertices, change.seconds)

    def _apply(self, batch: EdgeBatch) -> tuple[Change, Applied | Loaded]:
        begin = perf_counter()
        self._state.reserve(batch)
        applied = self._graph.apply(batch)
        self._touched.add(applied.sources, applied.removed_targets)
        try:
            self._state.perturb(applied)
        except MemoryError:
            # the batch stands; the next solve computes the residual anew, in arrays it has
            self._state.forget()
        self._backend.synchronize()
        change = Change(
            inserted=applied.inserted,
            already_present=applied.already_present,
            deleted=applied.deleted,
            not_found=applied.not_found,
            new_vertices=applied.new_vertices,
            seconds=perf_counter() - begin,
        )
        return change, applied

    def update(self, strategy: str = "auto") -> Result:
        """Brings the ranks up to date with everything applied since the last update.

        strategy  a name of STRATEGIES. Raises InvalidValue for any other
        """
        row = strategy_named(strategy)
        with self._device():
            return self._update(strategy, row)

    def _update(self, strategy: str, row: Strategy) -> Result:
        begin = perf_counter()
        if self.vertices == 0:
            return Result(strategy, 0, 0, 0.0, True, 0.0, 0.0)
        affected = None
        if row.affected in ("reachable", "frontier"):
            flags = self._state.spare("affected", np.int32)
            affected = self._touched.mark(self._graph, row, flags)
        self._backend.synchronize()
        marked = perf_counter()
        solved = solve(self._state, row, affected)
        self._backend.synchronize()
        self._touched = Touched()
        self._ranked_vertices = self.vertices
        self._ranked_total = self._state.total
        self._error_bound = min(2.0, self._state.error_bound)
        return Result(
            strategy=strategy,
            iterations=solved.iterations,
            touched_vertices=solved.touched_vertices,
            error_bound=self._error_bound,
            converged=solved.converged,
            mark_seconds=marked - begin,
            solve_seconds=perf_counter() - marked,
        )

    def publish(self) -> Ranks:
        """An immutable copy of the ranks of the last update."""
        with self._device():
            values = self._state.values[: self._ranked_vertices].copy()
            self._backend.synchronize()
        return Ranks(self._backend, values, self._ranked_total, self._error_bound)

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
    ) -> Personalized:
        """Personalized PageRank of the graph as it is now.

        seeds         integer[s], ids to teleport to; repeats add up
        weights       float64[s], above 0, scaled to sum 1; None for equal weights
        k             how many vertices to return; above n returns n
        method        a name of gpu.personalized.METHODS
        target_error  L1, in (0, 2]; None for the graph's own
        Raises InvalidValue for anything else.
        """
        return personalized(
            self._graph,
            self.options,
            np.asarray(seeds, np.int64),
            weights,
            k,
            method,
            target_error,
        )

    def edge_list(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """(sources, targets), int64[edges] each, on the host: for audits."""
        return self._graph.edge_list()

    def memory(self) -> dict[str, int]:
        """Bytes held on the backend's device, by purpose."""
        return self._graph.memory() | {"ranks": self._state.nbytes}

    def warm_up(self) -> None:
        """Compiles every kernel, so that no request waits for one."""
        # small graphs and large ones run kernels that were compiled differently; the edges are
        # v → 2v and v → 2v+1, so that every vertex is near every other
        for vertices in (4, 1 << 15):
            engine = Engine(self.options, self._backend)
            sources = np.repeat(np.arange(vertices, dtype=np.int64), 2)
            engine.apply(EdgeBatch(sources, np.arange(2 * vertices) % vertices))
            engine.update("auto")
            engine.apply(EdgeBatch(sources, np.full_like(sources, 1)))
            engine.update("dynamic-frontier")
            for strategy in STRATEGIES:
                engine.apply(EdgeBatch.of(insert=[(0, 0), (0, 2)], delete=[(0, 0), (0, 2)]))
                engine.update(strategy)
            engine.publish().top(1)
            Engine(self.options, self._backend).restore(
                engine.cut(engine.snapshot_room()).snapshot()
            )
            engine.personalized(np.array([0]), k=1)
        # so do small batches and large ones: they load a graph, move its rows, leave holes, pack it
        for count, rows in ((900, 200), (20_000, 6_000)):
            graph, targets = Graph(self._backend, self.options.dangling), np.arange(count)
            sources = targets % rows
            graph.apply(EdgeBatch(sources, targets))
            graph.apply(EdgeBatch(sources, targets + 1))
            hole = slice(rows, 2 * rows)
            graph.apply(EdgeBatch(delete_sources=sources[hole], delete_targets=targets[hole]))
            graph.apply(EdgeBatch(delete_sources=sources, delete_targets=targets + 1))
            graph.edge_list()
