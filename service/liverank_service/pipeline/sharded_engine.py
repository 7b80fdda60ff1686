"""An engine whose edges and ranks are in shards, for the pipeline of one graph."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import CancelledError
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from time import perf_counter
from typing import Any, Literal, NoReturn

import numpy as np
from numpy.typing import NDArray

from liverank_gpu import (
    BackendName,
    CapturedEdges,
    Change,
    Cluster,
    EdgeBatch,
    EdgeBlock,
    EdgeReader,
    Engine,
    EngineError,
    Form,
    Neighbours,
    Options,
    Personalized,
    PersonalizedQuery,
    QueryBatch,
    Ranks,
    Registration,
    ResolvedQuery,
    Result,
    SettledTarget,
    ShardedCapture,
    ShardedEngine,
    ShardLost,
    Snapshot,
    StagingBuffer,
)
from liverank_gpu import Capture as EngineCapture
from liverank_service.errors import NotReady
from liverank_service.shard_errors import Unsupported

log = logging.getLogger("liverank.shards")

ONE_DEVICE = "a server without --shards"

_RELEASE_SECONDS = 30.0
"""How long workers that do not end may hold up the recovery of their graph."""


class ShardsFailed(ShardLost):
    """A call did not return from the shards. Whether they are alive is unknown."""

    def __init__(self, shards: int, error: Exception) -> None:
        EngineError.__init__(self, f"the {shards} shards did not answer: {error!r}")


class _ShardedCapture(EngineCapture):
    """A snapshot whose lists are in the shards."""

    def __init__(self, engine: ShardedGraphEngine, captured: ShardedCapture) -> None:
        self._engine, self._shards, self._captured = engine, engine._started, captured

    def snapshot(self) -> Snapshot:
        return Snapshot(self._captured.arrays, self._captured.numbers)

    def pieces(self) -> dict[str, list[Callable[[], NDArray[Any]]]]:
        return {
            name: [partial(self._piece, name, index) for index in range(self._captured.pieces)]
            for name in self._captured.lists
        }

    def _piece(self, name: str, index: int) -> NDArray[Any]:
        piece: NDArray[Any] = self._call(lambda: self._captured.piece(name, index))
        return piece

    def release(self) -> None:
        self._call(self._captured.release)

    def _call(self, call: Callable[[], Any]) -> Any:
        """Raises NotReady if the shards were lost since: a ShardLost would be one of now."""
        if self._engine._started is not self._shards:
            raise NotReady("the shards that were captured are lost")
        return self._engine._call(lambda _: call())


class ShardedGraphEngine(Engine):
    """The part of an Engine that batches, ranks and checkpoints need, done by shards. Its own
    graph remains empty: calls of the parts that would use it raise Unsupported.

    shards   worker processes; they start with the first call that needs them
    backend  of the shards
    cluster  an existing Dask cluster that has the workers; None: they are started on this machine
    device_memory  of each worker: see liverank_gpu.limit_device_memory
    lost     called on another thread when a shard is lost, also between calls
    Every call may raise ShardLost; no other than `release` works afterwards.
    """

    def __init__(
        self,
        options: Options,
        shards: int,
        backend: BackendName = "cpu",
        cluster: Cluster | None = None,
        device_memory: int | None = None,
        lost: Callable[[], None] = lambda: None,
    ) -> None:
        self._started: ShardedEngine | None = None  # first: the properties below use it
        super().__init__(options, "cpu", "ignore")  # the receipt says it
        self.shards = shards
        self._asked, self._cluster, self._notify_lost = backend, cluster, lost
        self._device_memory = device_memory
        self._unused = Engine(options, "cpu")
        self.edge_reader = _EdgeReader(self._unused.edge_reader, self._call)
        self._seconds: dict[str, float] = {}
        self._stage_ended = 0.0

    @property
    def backend(self) -> str:
        """Of the shards; as it was asked for, until they have started."""
        return self._started.backend if self._started else self._asked

    @property
    def has_started(self) -> bool:
        return self._started is not None

    def check_alive(self) -> None:
        """Raises ShardLost if a shard is known to be lost."""
        if self._started is not None:
            self._started.check_alive()

    @property
    def vertices(self) -> int:
        return self._started.vertices if self._started else 0

    @property
    def id_limit(self) -> int:
        return self._started.ids.limit if self._started else 0

    def free_ids(self) -> NDArray[np.int64]:
        return self._started.ids.free() if self._started else np.empty(0, np.int64)

    @property
    def edges(self) -> int:
        return self._started.edges if self._started else 0

    @property
    def shard_vertices(self) -> Sequence[int]:
        """Of each shard at the last publication or restoration; empty before it."""
        return self._started.shard_vertices if self._started else ()

    @property
    def shard_edges(self) -> Sequence[int]:
        """Entries of the out-lists, likewise."""
        return self._started.shard_edges if self._started else ()

    def memory(self) -> dict[str, int]:
        return {"shards": sum(self._started.shard_bytes) if self._started else 0}

    def check_memory(self, operations: int, vertices: int, times: int = 1) -> None:
        """Raises OutOfMemory if a batch of these operations and new vertices would not fit beside
        what the shards hold, as one device estimates it.
        """
        added = max(0, vertices - self.id_limit)
        self._unused.check_memory(operations, added, times)

    def apply(self, batch: EdgeBatch) -> Change:
        began = perf_counter()
        change: Change = self._call(lambda shards: shards.apply(batch))
        return replace(change, seconds=perf_counter() - began)

    def apply_coalesced(
        self,
        batch: EdgeBatch,  # noqa: ARG002
        parts: Sequence[tuple[int, int]],  # noqa: ARG002
    ) -> None:
        """Batches are applied one by one."""
        return

    def update(
        self,
        strategy: str = "auto",
        form: Form | None = None,
        trace: bool = False,
        settle: int = 0,
        target: SettledTarget = "settled-top-k",
    ) -> Result:
        began = perf_counter()
        asked = (strategy, form, trace, settle, target)
        result: Result = self._call(lambda shards: shards.update(*asked))
        self._stage_ended = perf_counter()
        solved = self._stage_ended - began
        self._seconds = {"mark": 0.0, "solve": solved, "certify": 0.0}
        return replace(result, solve_seconds=solved)

    def end_stage(self, name: str) -> None:
        now = perf_counter()
        self._seconds[name] = now - self._stage_ended
        self._stage_ended = now

    def stage_seconds(self) -> dict[str, float]:
        return dict(self._seconds)

    def publish(self) -> Ranks:
        ranks: Ranks = self._call(lambda shards: shards.publish())
        return ranks

    def capture(self, buffer: StagingBuffer) -> EngineCapture:  # noqa: ARG002
        """Has the shards copy their lists."""
        return _ShardedCapture(self, self._call(lambda shards: shards.capture()))

    def restore(self, snapshot: Snapshot) -> None:
        self._call(lambda shards: shards.restore(snapshot.arrays, snapshot.numbers))

    def release(self) -> None:
        """Ends the workers, also after ShardLost; waits for `_RELEASE_SECONDS` at most."""
        started, self._started = self._started, None
        if started is None:
            return
        closing = threading.Thread(target=_close, args=(started,), daemon=True)
        closing.start()
        closing.join(_RELEASE_SECONDS)
        if closing.is_alive():
            log.error("the workers of %d shards have not ended", self.shards)

    def _call(self, call: Callable[[ShardedEngine], Any]) -> Any:
        with self._answering(OSError, CancelledError):
            return call(self._engine())

    def _engine(self) -> ShardedEngine:
        if self._started is None:
            # Dask raises RuntimeError if a worker ends while it starts
            with self._answering(OSError, CancelledError, RuntimeError):
                self._started = ShardedEngine(
                    self.options,
                    self.shards,
                    self._asked,
                    cluster=self._cluster,
                    device_memory=self._device_memory,
                    unconverged="ignore",
                )
                self._started.on_loss(self._notify_lost)
        return self._started

    @contextmanager
    def _answering(self, *errors: type[Exception]) -> Iterator[None]:
        """Raises ShardsFailed for errors of connections and processes."""
        try:
            yield
        except EngineError:
            raise
        except errors as error:
            raise ShardsFailed(self.shards, error) from error

    # ---- personalized queries ----

    def submit(self, queries: Sequence[PersonalizedQuery | ResolvedQuery]) -> QueryBatch:
        batch: QueryBatch = self._call(lambda shards: shards.submit(queries))
        return batch

    def resolve(self, queries: Sequence[PersonalizedQuery]) -> list[ResolvedQuery]:
        resolved: list[ResolvedQuery] = self._call(lambda shards: shards.resolve(queries))
        return resolved

    def step(self, running: QueryBatch | Registration) -> None:
        self._call(lambda _: running.step())

    def close(self, running: QueryBatch | Registration) -> None:
        running.close()

    def register(self, name: str, query: PersonalizedQuery) -> Registration:
        registration: Registration = self._call(lambda shards: shards.register(name, query))
        return registration

    def keep(self, registration: Registration) -> None:
        self._call(lambda shards: shards.keep(registration))

    def restrict(self, name: str, among: NDArray[np.integer[Any]]) -> None:
        self._call(lambda shards: shards.restrict(name, among))

    def unwatch(self, name: str) -> None:
        self._call(lambda shards: shards.unwatch(name))

    def watched(self, name: str) -> Personalized:
        answer: Personalized = self._call(lambda shards: shards.watched(name))
        return answer

    def refresh_watched(self) -> None:
        self._call(lambda shards: shards.refresh_watched())

    # ---- edges ----

    def edge_list(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        ends: tuple[NDArray[np.int64], NDArray[np.int64]]
        ends = self._call(lambda shards: shards.edge_list())
        return ends

    def edge_weights(self) -> NDArray[np.float32]:
        weights: NDArray[np.float32] = self._call(lambda shards: shards.edge_weights())
        return weights

    # ---- what needs the graph on one device ----

    def run(self, program: Any, **parameters: Any) -> Any:  # noqa: ARG002
        _refuse("programs")


class _EdgeReader(EdgeReader):
    """Has the shards read the edges."""

    def __init__(
        self, unused: EdgeReader, call: Callable[[Callable[[ShardedEngine], Any]], Any]
    ) -> None:
        """unused: of a graph without edges"""
        self._unused, self._call = unused, call

    def buffer(self) -> StagingBuffer:
        """Empty: what is captured is gathered into new memory."""
        return self._unused.buffer()

    def capture(self, buffer: StagingBuffer) -> CapturedEdges:  # noqa: ARG002
        captured: CapturedEdges = self._call(lambda shards: shards.capture_edges())
        return captured

    def neighbours(self, vertex: int, direction: Literal["out", "in"], limit: int) -> Neighbours:
        found: Neighbours = self._call(lambda shards: shards.neighbours(vertex, direction, limit))
        return found

    def out_edges(self, vertices: NDArray[np.int64], limit: int) -> EdgeBlock:
        edges: EdgeBlock = self._call(lambda shards: shards.out_edges(vertices, limit))
        return edges

    def are_isolated(self, vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
        isolated: NDArray[np.bool_] = self._call(lambda shards: shards.are_isolated(vertices))
        return isolated


def _refuse(call: str) -> NoReturn:
    raise Unsupported("call", call, ONE_DEVICE)


def _close(engine: ShardedEngine) -> None:
    try:
        engine.close()
    except Exception as error:  # its workers are lost, or the cluster was ending already
        log.warning("ending the workers of shards: %r", error)
