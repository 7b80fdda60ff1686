"""Takes a graph's checkpoints: of its engine, keys and published view, to be restored again.
Removes what each makes superfluous.

One thread for each graph. It lets the graph's writer capture the graph, which blocks the writer for
a copy in memory, and then writes the copy to disk while the writer continues. If the graph is in
shards, they keep the copy, and the writer reads a piece of it now and then, between batches.

A checkpoint is taken when the journal has grown by a number of bytes, but not by less than the size
of the last checkpoint (so that the bytes written grow with the bytes received, not with the graph),
or a number of seconds after a change.

Arrays of a checkpoint:

    those of liverank_gpu.snapshot.Snapshot; values may be float32, as earlier releases could keep
    them
    keys-seed, keys-slots, keys-offsets, keys-arena    see liverank_service.vertex_keys
    keys-numbers       int32[limit], the number of the key of each id, -1 where it is free; left out
                       if no vertex was removed, since ids are the numbers then
    sets               int64[…], ids, ascending in each set, one set after the other; left out
                       without sets
    window-edges, window-times    uint64[e] and float64[e], source · 2³² + target + 1 by ids, and
                       Unix seconds; of an undirected edge the lower id comes first
    view-0, …          float64[limit], the ranks of views by id: of those that spread over the graph
    window-isolated    int64[…], ids that lost their last edges by age, and have not left yet

Numbers:

    engine             those of liverank_gpu.snapshot.Snapshot
    keys               ``string`` or ``integer``
    memory             bytes by purpose, as they were published
    sets               the number of members by name, in the order of the array
    sources            the fields of SourcePosition; left out if there are none
    views              name and base (liverank_gpu.Ranks.base) of each view that has an array; left
                       out if there are none
    newest-time        the clock of a window; null before the first edge
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from msgspec.structs import asdict
from numpy.typing import NDArray

from liverank.choices import KeyKind
from liverank.client.responses import CheckpointTaken, SourcePosition
from liverank_gpu import Capture, Engine, Ranks, Snapshot
from liverank_service.errors import StorageFailed
from liverank_service.pipeline.shards import device_loss_ends_process
from liverank_service.pipeline.window import Window, WindowCapture
from liverank_service.queries.model import Members
from liverank_service.queries.rank_views import Start
from liverank_service.queries.view import View
from liverank_service.storage import checkpoint as checkpoints
from liverank_service.storage.checkpoint import Checkpoint
from liverank_service.storage.journal import Journal
from liverank_service.vertex_keys import VertexCapture, VertexKeys

log = logging.getLogger("liverank.checkpoint")

_KEYS_PREFIX, _SETS, _WINDOW_PREFIX, _NEWEST = "keys-", "sets", "window-", "newest-time"
_SOURCES, _VIEWS, _VIEW_PREFIX = "sources", "views", "view-"

_DENSE_PART = 8
"""A view is stored if more than one rank in _DENSE_PART is not 0: others are soon solved again."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A graph whose batches are all ranked: captured by its writer, for another thread.

    pause_seconds  how long this blocked the writer
    call           calls a function on the writer's thread
    """

    view: View
    chain: bytes
    engine: Capture
    keys: VertexCapture
    sets: Members
    window: WindowCapture | None
    sources: Sequence[SourcePosition]
    pause_seconds: float
    call: Callable[[Callable[[], Any]], Any]

    def checkpoint(self) -> Checkpoint:
        """To be written before `release`, while the writer continues."""
        snapshot = self.engine.snapshot()
        keys = {f"{_KEYS_PREFIX}{name}": array for name, array in self.keys.arrays().items()}
        numbers: dict[str, Any] = {
            "engine": snapshot.numbers,
            "keys": self.keys.kind,
            "memory": self.view.memory,
        }
        arrays = snapshot.arrays | keys
        if self.sets:
            numbers[_SETS] = {name: len(ids) for name, ids in self.sets.items()}
            arrays[_SETS] = np.concatenate(list(self.sets.values()))
        if self.sources:
            numbers[_SOURCES] = [asdict(one) for one in self.sources]
        if self.window is not None:
            numbers[_NEWEST] = self.window.newest
            arrays |= {f"{_WINDOW_PREFIX}{k}": each for k, each in self.window.arrays().items()}
        parts: dict[str, Iterable[NDArray[Any]]] = {
            name: map(self.call, pieces) for name, pieces in self.engine.pieces().items()
        }
        views = list[dict[str, Any]]()
        for name, ranks in self._dense_views():
            # one at a time is on the host
            parts[f"{_VIEW_PREFIX}{len(views)}"] = map(Ranks.to_numpy, [ranks])
            views.append({"name": name, "base": ranks.base})
        if views:
            numbers[_VIEWS] = views
        return Checkpoint(self.view.version, self.view.revision, self.chain, numbers, arrays, parts)

    def _dense_views(self) -> Iterator[tuple[str, Ranks]]:
        for name, one in (self.view.rank_views or {}).items():
            if one.ranks is not None:
                some = np.count_nonzero(one.ranks.to_numpy())
                if some > one.ranks.id_limit // _DENSE_PART:
                    yield name, one.ranks

    def release(self) -> None:
        """Frees what shards hold for it."""
        if self.engine.pieces():
            with suppress(Exception):  # the shards are lost, or the graph is closed
                self.call(self.engine.release)


def snapshot_of(checkpoint: Checkpoint) -> Snapshot:
    arrays = {
        name: array
        for name, array in checkpoint.arrays.items()
        if not name.startswith((_KEYS_PREFIX, _SETS, _WINDOW_PREFIX, _VIEW_PREFIX))
    }
    arrays["values"] = arrays["values"].astype(np.float64, copy=False)
    return Snapshot(arrays, checkpoint.numbers["engine"])


def keys_of(checkpoint: Checkpoint, kind: KeyKind) -> VertexKeys:
    """Raises StorageFailed for a checkpoint of a graph with keys of the other kind."""
    stored = checkpoint.numbers["keys"]
    if stored != kind:
        raise StorageFailed(
            f"checkpoint {checkpoint.name}", f"has {stored} keys, but the graph has {kind} keys"
        )
    arrays = _arrays_of(checkpoint, _KEYS_PREFIX)
    return VertexKeys.restored(kind, len(checkpoint.arrays["length"]), arrays)


def _arrays_of(checkpoint: Checkpoint, prefix: str) -> dict[str, NDArray[Any]]:
    """Those whose names begin with the prefix, by the rest of their names."""
    return {
        name.removeprefix(prefix): array
        for name, array in checkpoint.arrays.items()
        if name.startswith(prefix)
    }


def restore_window(checkpoint: Checkpoint, window: Window) -> None:
    """Takes the times of the edges from a checkpoint."""
    window.restore(_arrays_of(checkpoint, _WINDOW_PREFIX), checkpoint.numbers[_NEWEST])


def source_positions_of(checkpoint: Checkpoint) -> list[SourcePosition]:
    return [SourcePosition(**document) for document in checkpoint.numbers.get(_SOURCES, [])]


def view_of(graph: str, checkpoint: Checkpoint, engine: Engine, keys: VertexKeys) -> View:
    """The view that was published when the checkpoint was taken."""
    snapshot = snapshot_of(checkpoint)
    ranks = engine.ranks_of(snapshot)
    return View(
        graph=graph,
        version=checkpoint.version,
        revision=checkpoint.revision,
        error_bound=snapshot.numbers["error_bound"],
        vertices=ranks.count,
        edges=int(snapshot.numbers["edges"]),
        memory=checkpoint.numbers["memory"],
        ranks=ranks,
        keys=keys,
        watched=None,
        rank_views=None,
        sets=sets_of(checkpoint),
        positions={
            (one.source, one.partition): one.position for one in source_positions_of(checkpoint)
        },
    )


def views_of(checkpoint: Checkpoint) -> dict[str, Start]:
    """The ranks of views as of the checkpoint, by name, to start from."""
    stored = checkpoint.numbers.get(_VIEWS, [])
    return {
        one["name"]: (checkpoint.arrays[f"{_VIEW_PREFIX}{place}"], one["base"])
        for place, one in enumerate(stored)
    }


def sets_of(checkpoint: Checkpoint) -> Members:
    sizes = checkpoint.numbers.get(_SETS, {})
    ends = np.cumsum(list(sizes.values()), dtype=np.int64)[:-1]
    return dict(zip(sizes, np.split(checkpoint.arrays[_SETS], ends), strict=True)) if sizes else {}


_RETRY_SECONDS = 10.0
"""Delay after a failure; a requested checkpoint is taken at once."""


@dataclass(frozen=True, slots=True)
class CheckpointLimits:
    """bytes    of journal after which a checkpoint is taken
    seconds  after a change, until one is taken
    """

    bytes: int
    seconds: float


@dataclass(frozen=True, slots=True)
class StoredCheckpoint:
    """A checkpoint on disk, without its arrays."""

    name: str
    version: int
    chain: bytes
    nbytes: int

    @classmethod
    def of(cls, checkpoint: Checkpoint) -> StoredCheckpoint:
        return cls(checkpoint.name, checkpoint.version, checkpoint.chain, checkpoint.nbytes)


class Checkpointer:
    """Takes the checkpoints of one graph.

    directory  of the checkpoints
    capture    lets the writer capture the graph; called on the checkpointer's thread
    newest     the checkpoint that the graph was opened from
    """

    def __init__(
        self,
        graph: str,
        directory: Path,
        journal: Journal,
        limits: CheckpointLimits,
        capture: Callable[[], Captured],
        newest: StoredCheckpoint | None,
    ) -> None:
        self._graph = graph
        self._directory = directory
        self._journal = journal
        self._limits = limits
        self._capture = capture
        self._newest = newest
        self._grown = journal.bytes_after(newest.version if newest else 0)
        self._changed_at: float | None = None
        self._expects_more = False
        self._not_before = 0.0
        self._requested: list[Future[CheckpointTaken]] = []
        self._closed: Exception | None = None
        self._wake = threading.Condition()
        self._thread = threading.Thread(
            target=self._run, name=f"liverank-{graph}-checkpoints", daemon=True
        )
        self._thread.start()

    def journal_grew(self, size: int, rank_later: bool = False) -> None:
        """Notes that `size` bytes were added to the journal.

        rank_later  whether more batches are expected before they are ranked, which a checkpoint
                    would do: then only time counts
        """
        with self._wake:
            self._grown += size
            self._expects_more = rank_later
            is_first = self._changed_at is None
            if is_first:
                self._changed_at = time.monotonic()
            if is_first or self._is_due:  # else the thread knows when to wake
                self._wake.notify()

    def request(self) -> Future[CheckpointTaken]:
        """A checkpoint of the current version or a later one. May fail with StorageFailed.

        Raises the reason given to `close`.
        """
        future: Future[CheckpointTaken] = Future()
        future.set_running_or_notify_cancel()
        with self._wake:
            if self._closed is not None:
                raise self._closed
            self._requested.append(future)
            self._wake.notify()
        return future

    def close(self, reason: Exception) -> None:
        """Waits for a checkpoint that is being written, and fails the other requests. `capture`
        must no longer block.
        """
        with self._wake:
            self._closed = reason
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while True:
            with self._wake:
                while not (self._closed or self._requested or self._seconds_left() == 0.0):
                    self._wake.wait(self._seconds_left())
                requested, self._requested = self._requested, []
                if self._closed is not None:
                    break
            try:
                with device_loss_ends_process():
                    taken = self._take()
            except Exception as error:
                log.error("graph %s: no checkpoint was taken: %s", self._graph, error)
                self._not_before = time.monotonic() + _RETRY_SECONDS
                for future in requested:
                    future.set_exception(error)
            else:
                for future in requested:
                    future.set_result(taken)
        for future in requested:
            future.set_exception(self._closed)

    def _seconds_left(self) -> float | None:
        """Until the next checkpoint; None if nothing changed."""
        if self._changed_at is None:
            return None
        delay = 0.0 if self._is_due else self._limits.seconds
        return max(0.0, max(self._changed_at + delay, self._not_before) - time.monotonic())

    @property
    def _is_due(self) -> bool:
        """Whether the journal has grown enough."""
        enough = max(self._limits.bytes, self._newest.nbytes if self._newest else 0)
        return self._grown >= enough and not self._expects_more

    def _take(self) -> CheckpointTaken:
        begin = time.monotonic()
        with self._wake:
            grown, changed_at = self._grown, self._changed_at
            self._changed_at = None
        try:
            captured = self._capture()
            try:
                taken = self._written(captured.checkpoint())
            finally:
                captured.release()
        except BaseException:
            with self._wake:
                self._changed_at = changed_at or self._changed_at
            raise
        with self._wake:
            self._grown -= grown
        self._retain(taken)
        return CheckpointTaken(
            version=taken.version,
            revision=captured.view.revision,
            bytes=taken.nbytes,
            write_seconds=time.monotonic() - begin,
            pause_seconds=captured.pause_seconds,
        )

    def _written(self, checkpoint: Checkpoint) -> StoredCheckpoint:
        """Writes the checkpoint, unless it is the newest one."""
        if self._newest is not None and self._newest.name == checkpoint.name:
            return self._newest
        self._journal.sync_receipts()
        nbytes = checkpoints.write(self._directory, checkpoint)
        return replace(StoredCheckpoint.of(checkpoint), nbytes=nbytes)

    def _retain(self, newest: StoredCheckpoint) -> None:
        """Keeps two checkpoints, and the batches that the older one lacks."""
        before, self._newest = self._newest, newest
        try:
            self._journal.sync_head()
            checkpoints.remove_old(self._directory)
            if before is None or before == newest:
                return
            # a recovery of lost shards may have found that one damaged, and renamed it
            if (self._directory / before.name).exists():
                self._journal.retire(before.version, before.chain)
        except Exception as error:
            # the checkpoint is valid nevertheless, and the next one removes these too
            log.error("graph %s: old files were not removed: %s", self._graph, error)
