"""The receipt of a batch: its changes, the time of each stage, and the error bound of the ranks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import orjson

from liverank_gpu import Change, Result
from liverank_service.pipeline.batch import PendingBatch
from liverank_service.pipeline.observer import StageSeconds
from liverank_service.queries.view import View


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
        "inserted": change.inserted,
        "already_present": change.already_present,
        "reweighted": change.reweighted,
        "deleted": change.deleted,
        "not_found": change.not_found,
        "lowered": change.lowered,
        "new_vertices": change.new_vertices,
        "removed": change.removed,
        "unknown": change.unknown,
        "removed_edges": change.removed_edges,
        "expired": change.expired,
        "strategy": result.strategy,
        "form": result.form,
        "iterations": result.iterations,
        "touched_vertices": result.touched_vertices,
        "error_bound": result.error_bound,
        "converged": result.converged,
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
