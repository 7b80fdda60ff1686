"""A batch on its way through a pipeline, and several of them as one."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from time import perf_counter
from typing import Any

import numpy as np
import pyarrow as pa

from service.errors import BodyTooLarge
from service.formats.decode import EdgeColumns, encode_batch
from service.logs import request_id
from service.pipeline.promise import Promise
from service.storage.journal import PAYLOAD_LIMIT
from service.storage.layout import Record
from service.vertex_keys.table import KeyTable

TOGETHER = 1 << 12
"""Edges that batches may have together, to be applied as one."""


@dataclass(eq=False, slots=True)
class Batch:
    """A batch on its way.

    durable  its version, once it is committed
    ranked   the bytes of its receipt, once its ranks are published

    Both can end in StorageFailed or IdempotencyConflict, `ranked` also in BatchRejected or
    RankingFailed.
    """

    record: Record
    columns: EdgeColumns
    submitted: float = field(default_factory=perf_counter)
    request_id: str | None = field(default_factory=request_id.get)
    durable: Promise[int] = field(default_factory=Promise)
    ranked: Promise[bytes] = field(default_factory=Promise)

    @classmethod
    def of(
        cls, columns: EdgeColumns, body: bytes, strategy: str, idempotency_key: str | None = None
    ) -> Batch:
        """The batch of a request; work that grows with `body`. Raises BodyTooLarge."""
        payload = encode_batch(columns)
        if len(payload) > PAYLOAD_LIMIT:
            raise BodyTooLarge(PAYLOAD_LIMIT)
        digest = hashlib.sha256(body).digest()
        return cls(Record(payload, strategy, idempotency_key, digest), columns)

    @property
    def nbytes(self) -> int:
        """Bytes held until the batch is ranked: the payload, and the same again as columns."""
        return 2 * len(self.record.payload)

    def fail(self, error: Exception) -> None:
        for promise in (self.durable, self.ranked):
            if not promise.done():
                promise.set_exception(error)

    def follow(self, first: Batch) -> None:
        """Ends as `first` does: this is the same batch, sent again."""
        first.durable.add_done_callback(partial(_copy, self.durable))
        self.follow_receipt(first)

    def follow_receipt(self, first: Batch) -> None:
        """Gets the receipt that `first` gets."""
        first.ranked.add_done_callback(partial(_copy, self.ranked))


def joined(batches: Sequence[EdgeColumns]) -> EdgeColumns | None:
    """The columns of several small batches, one after the other.

    None for one alone, for large ones, and where they add vertices by name.
    """
    edges = sum(one.operations for one in batches)
    if len(batches) < 2 or edges > TOGETHER or any(len(one.vertices) for one in batches):
        return None
    return EdgeColumns(
        *(
            pa.concat_arrays([getattr(one, column.name) for one in batches])
            for column in fields(EdgeColumns)
        )
    )


def in_order_of_position(columns: EdgeColumns) -> pa.Array:
    """The keys that a batch may create: source, target of each insertion, then the vertices."""
    count = len(columns.insert_sources)
    both = pa.concat_arrays([columns.insert_sources, columns.insert_targets])
    order = np.arange(2 * count).reshape(2, count).T.ravel()
    return pa.concat_arrays([both.take(pa.array(order)), columns.vertices])


def new_keys(columns: EdgeColumns, known: KeyTable) -> int:
    """How many keys a batch would create."""
    keys = pa.chunked_array([columns.insert_sources, columns.insert_targets, columns.vertices])
    return int((known.lookup(keys.unique()) < 0).sum())


def _copy(promise: Promise[Any], done: Promise[Any]) -> None:
    if promise.done():  # its own group has failed meanwhile
        return
    error = done.exception()
    if error is None:
        promise.set_result(done.result())
    else:
        promise.set_exception(error)
