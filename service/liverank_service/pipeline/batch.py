"""A batch: as it was sent, in the pipeline, and its receipt with its changes, the time of each
stage and the error bound of the ranks. Limits on a single batch. The events of a pipeline, which an
observer in liverank_service.http.metrics counts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import numpy as np
import orjson
import pyarrow as pa

from liverank_gpu import Change, Result, Solve
from liverank_service.errors import BatchTooLarge, BodyTooLarge, FormatError
from liverank_service.formats.columns import EdgeColumns
from liverank_service.formats.payload import encode_batch
from liverank_service.pipeline.waiting import Completions, Waiter
from liverank_service.queries.view import View
from liverank_service.storage.journal import MAX_PAYLOAD_BYTES
from liverank_service.storage.layout import Record


@dataclass(frozen=True, slots=True)
class Batch:
    """A batch as the journal stores it, and as columns of keys. The journal keeps the strategy
    alone: after a restart batches are ranked together, by ``auto``.

    rank_later  whether it is only to be applied: it is ranked with a later batch
    """

    record: Record
    columns: EdgeColumns
    solve: Solve
    rank_later: bool = False

    @classmethod
    def of(
        cls,
        columns: EdgeColumns,
        body: bytes,
        solve: Solve,
        idempotency_key: str | None = None,
        rank_later: bool = False,
    ) -> Batch:
        """The batch of a request; the time grows with `body`. Raises BodyTooLarge."""
        payload = encode_batch(columns)
        if len(payload) > MAX_PAYLOAD_BYTES:
            raise BodyTooLarge(MAX_PAYLOAD_BYTES)
        digest = b"" if idempotency_key is None else _digest(columns, body)
        record = Record(payload, solve.strategy, idempotency_key, digest)
        return cls(record, columns, solve, rank_later)

    @property
    def nbytes(self) -> int:
        """Bytes held until the batch is ranked: the payload, and columns, which have about as many
        bytes as one in JSON.
        """
        payload = self.record.payload
        own = len(payload) if payload.startswith(b"{") else self.columns.nbytes
        return len(payload) + own


def _digest(columns: EdgeColumns, body: bytes) -> bytes:
    """Of what a repeat with the same idempotency key has to be."""
    digest = hashlib.sha256(body).digest()
    if columns.on_conflict != "replace":  # the same body is then another batch
        digest = hashlib.sha256(digest + columns.on_conflict.encode()).digest()
    if columns.range is not None:
        digest = hashlib.sha256(digest + orjson.dumps(columns.range.document())).digest()
    return digest


@dataclass(eq=False, slots=True)
class PendingBatch:
    """A batch in the pipeline. After its submission, only the writer's thread uses it.

    durable    its version, once it is committed
    ranked     the bytes of its receipt, once its ranks are published
    release    called once, when the batch has ended
    context    of the request
    followers  repeats of it, which get the same results

    The futures can fail with StorageFailed, OutOfMemory, IdempotencyConflict,
    SourcePositionConflict or InvalidField, `ranked` also with BatchRejected or RankingFailed; None
    if nobody waits.
    """

    batch: Batch
    durable: Waiter[int] | None
    ranked: Waiter[bytes] | None
    release: Callable[[], None]
    submitted: float = field(default_factory=perf_counter)
    context: Context = field(default_factory=copy_context)
    followers: list[PendingBatch] = field(default_factory=list)
    ended: bool = False

    @property
    def record(self) -> Record:
        return self.batch.record

    def set_durable(self, version: int, completions: Completions) -> None:
        completions.set_result(self.durable, version)
        for follower in self.followers:
            follower.set_durable(version, completions)

    def set_ranked(self, receipt: bytes, completions: Completions) -> None:
        if not self.ended:
            completions.set_result(self.ranked, receipt)
            self._end()
        for follower in self.followers:
            follower.set_ranked(receipt, completions)

    def fail(self, error: Exception, completions: Completions) -> None:
        """Fails the pending futures of the batch and its followers."""
        if not self.ended:
            completions.set_exception(self.durable, error)
            completions.set_exception(self.ranked, error)
            self._end()
        for follower in self.followers:
            follower.fail(error, completions)

    @property
    def rank_later(self) -> bool:
        """Whether nobody waits for its ranks, nor asks for them."""
        return self.batch.rank_later and all(one.rank_later for one in self.followers)

    def end(self) -> None:
        """It is ranked later; nobody waits."""
        self._end()
        for follower in self.followers:
            follower.end()

    def _end(self) -> None:
        self.ended = True
        self.release()


def check_size(columns: EdgeColumns, max_edges: int, max_key_bytes: int) -> None:
    """Raises BatchTooLarge for too many edges and vertices, FormatError for a key too long."""
    changed = [keys for change in columns.sets.values() for keys in (change.add, change.remove)]
    others = [columns.vertices, columns.remove, columns.replace, *changed]
    count = columns.operations + sum(map(len, others))
    if count > max_edges:
        raise BatchTooLarge(count, max_edges)
    for name, keys in (
        ("replace", columns.replace),
        ("insert", columns.insert_sources),
        ("insert", columns.insert_targets),
        ("delete", columns.delete_sources),
        ("delete", columns.delete_targets),
        ("vertices", columns.vertices),
        ("remove", columns.remove),
        *(("sets", keys) for keys in changed),
    ):
        if not pa.types.is_string(keys.type) or not len(keys):
            continue
        text = keys.buffers()[-1]
        if text is None or text.size <= max_key_bytes:
            continue  # all keys together are short enough
        ends = np.frombuffer(keys.buffers()[1], np.int32)[keys.offset :][: len(keys) + 1]
        lengths = np.diff(ends)
        if (longest := lengths.max()) > max_key_bytes:
            index = int(lengths.argmax())
            if name == "insert":
                name, index = columns.place_of_insertion(index)
            message = f"expected a key of at most {max_key_bytes:,} bytes, got {longest:,}"
            raise FormatError(name, index, message)


@dataclass(slots=True)
class StageSeconds:
    """The time of a batch by stage: the members of the receipt's `seconds`.

    others  time in no other stage, see docs/api.md
    total   the sum of the others
    """

    queue: float = 0.0
    journal: float = 0.0
    keys: float = 0.0
    mutate: float = 0.0
    mark: float = 0.0
    solve: float = 0.0
    certify: float = 0.0
    watched: float = 0.0
    publish: float = 0.0
    others: float = 0.0
    total: float = 0.0

    def close(self, total: float | None) -> None:
        """Sets `others` and `total`.

        total  seconds from submission to ranks; None if nobody waits: `others` is then 0
        """
        spent = self.queue + self.journal + self.keys + self.mutate
        spent += self.mark + self.solve + self.certify + self.watched + self.publish
        self.total = spent if total is None else total
        # not below 0: the clock of a device can differ slightly
        self.others = max(0.0, self.total - spent)


@dataclass(frozen=True, slots=True)
class RankedBatch:
    """A batch whose ranks are published.

    submitted  by `perf_counter`; None if nobody waited all the time
    context    of its request; empty if nobody waits
    """

    version: int
    change: Change
    seconds: StageSeconds
    submitted: float | None
    context: Context


class Observer:
    """Does nothing. Methods are called on the writer's thread and must not raise."""

    def ranked(self, batches: Sequence[RankedBatch], result: Result) -> None:
        """These batches were ranked together."""

    def refused(self, fallback: str) -> None:
        """The ranks of a solve were no distribution. fallback: as in the receipt"""

    def query_refused(self, kind: str) -> None:
        """The ranks of a personalized query were none. kind: query, watched"""

    def rejected(self) -> None:
        """A batch was committed, but could not be applied."""

    def failed(self, batches: int) -> None:
        """Batches were not committed, or were applied but not ranked."""

    def analysed(self, program: str, outcome: str, seconds: float) -> None:
        """An analysis has ended. seconds: that its program ran"""

    def dropped(self) -> None:
        """The graph was dropped."""


@dataclass(eq=False, slots=True)
class AppliedBatch:
    """An applied batch without a receipt.

    pending   None if nobody waits: it was replayed, its ranking failed, or it is ranked later
    late      whether an earlier ranking failed
    deferred  whether it was sent to be ranked later
    """

    version: int
    change: Change
    seconds: StageSeconds
    pending: PendingBatch | None = None
    late: bool = False
    deferred: bool = False

    @property
    def submitted(self) -> float | None:
        """By `perf_counter`; None if nobody waited all the time."""
        return None if self.pending is None or self.late else self.pending.submitted


@dataclass(frozen=True, slots=True)
class RankedView:
    """Ranks that are ready to be published.

    seconds  time of the stages mark, solve, certify, watched and publish
    ended    when the last of them ended, by `perf_counter`
    kept     whether the view is the one published before: the ranks of the solve are not published
    view_seconds  of the stage `watched`, what each view took
    """

    result: Result
    view: View
    seconds: Mapping[str, float]
    ended: float
    kept: bool = False
    view_seconds: Mapping[str, float] = field(default_factory=dict)

    @property
    def fallback(self) -> str | None:
        """What was published in place of ranks that were refused; None if they were not."""
        return "kept" if self.kept else self.result.fallback

    def slowest(self, batches: Sequence[AppliedBatch]) -> StageSeconds:
        """The time of the slowest of the batches that have receipts of this ranking; without
        batches that of the ranking alone.
        """
        if batches:
            return max((batch.seconds for batch in batches), key=lambda each: each.total)
        seconds = StageSeconds(**self.seconds)
        seconds.close(None)
        return seconds


_COUNTED = (
    *("inserted", "already_present", "reweighted", "deleted", "not_found", "lowered"),
    *("new_vertices", "removed", "unknown", "removed_edges", "expired"),
)
_OF_SOLVE = ("strategy", "form", "iterations", "touched_vertices", "error_bound", "converged")
"""Members of a receipt, as changes of a graph and results of a solve have them."""


def receipt_of(applied: AppliedBatch, ranked: RankedView, submitted: float | None) -> bytes:
    """The receipt of a batch with these ranks, as JSON.

    submitted  by `perf_counter`; None if nobody waited all the time
    """
    change, seconds = applied.change, applied.seconds
    result, view = ranked.result, ranked.view
    for stage, spent in ranked.seconds.items():
        setattr(seconds, stage, spent)
    seconds.close(None if submitted is None else ranked.ended - submitted)
    document: dict[str, Any] = {
        "version": applied.version,
        "ranked_version": view.version,
        "revision": view.revision,
        **{name: getattr(change, name) for name in _COUNTED},
        **{name: getattr(result, name) for name in _OF_SOLVE},
        "seconds": seconds,
    }
    if view.rank_views:
        document["views"] = {name: one.error_bound for name, one in view.rank_views.items()}
        document["view_seconds"] = ranked.view_seconds
    if result.settled is not None:
        document["settled"] = result.settled
        document["settled_set"] = result.settled_set
    if result.refused is not None:
        document["fallback"] = ranked.fallback
        document["refused"] = result.refused
    if result.trace is not None:
        document["trace"] = result.trace
    return orjson.dumps(document)
