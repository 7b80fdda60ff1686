"""The receipt of a batch: what it changed, what that cost, and how wrong the ranks can be."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from time import perf_counter

import orjson

from gpu import Change, Result
from service.batch import Batch
from service.observer import StageSeconds
from service.view import View


@dataclass(eq=False, slots=True)
class Applied:
    """A batch that is in the engine, but whose receipt is not written."""

    version: int
    change: Change
    seconds: StageSeconds
    batch: Batch | None = None  # None: recovered or failed, nobody waits


def receipt_of(applied: Applied, result: Result, view: View, publish_seconds: float) -> bytes:
    """The receipt of a batch whose ranks are in `view`, as JSON."""
    change, seconds = applied.change, applied.seconds
    seconds.mark, seconds.solve = result.mark_seconds, result.solve_seconds
    seconds.publish = publish_seconds
    if applied.batch is not None:
        seconds.total = perf_counter() - applied.batch.submitted
    else:
        seconds.total = 0.0
        seconds.total = sum(asdict(seconds).values())
    return orjson.dumps(
        {
            "version": applied.version,
            "ranked_version": view.version,
            "revision": view.revision,
            "inserted": change.inserted,
            "already_present": change.already_present,
            "deleted": change.deleted,
            "not_found": change.not_found,
            "new_vertices": change.new_vertices,
            "strategy": result.strategy,
            "iterations": result.iterations,
            "touched_vertices": result.touched_vertices,
            "error_bound": result.error_bound,
            "converged": result.converged,
            "seconds": seconds,
        }
    )
