"""A batch as it was sent, and in the pipeline."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from contextvars import Context, copy_context
from dataclasses import dataclass, field
from time import perf_counter

import orjson

from liverank_gpu import Solve
from liverank_service.errors import BodyTooLarge
from liverank_service.formats.columns import EdgeColumns
from liverank_service.formats.payload import encode_batch
from liverank_service.pipeline.completions import Completions, Waiter
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
        digest = hashlib.sha256(body).digest()
        if columns.on_conflict != "replace":  # the same body is then another batch
            digest = hashlib.sha256(digest + columns.on_conflict.encode()).digest()
        if columns.range is not None:
            digest = hashlib.sha256(digest + orjson.dumps(columns.range.document())).digest()
        record = Record(payload, solve.strategy, idempotency_key, digest)
        return cls(record, columns, solve, rank_later)

    @property
    def nbytes(self) -> int:
        """Bytes held until the batch is ranked: the payload, and about as much as columns."""
        return 2 * len(self.record.payload)


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
