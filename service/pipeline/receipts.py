"""The receipt of a batch: what it changed, what that cost, and how wrong the ranks can be."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import orjson

from gpu import Change, Result
from service.pipeline.batch import Batch
from service.pipeline.observer import StageSeconds
from service.queries.view import View


@dataclass(eq=False, slots=True)
class Applied:
    """A batch that is in the engine, but whose receipt is not written."""

    version: int
    change: Change
    seconds: StageSeconds
    batch: Batch | None = None  # None: recovered or failed, nobody waits


@dataclass(frozen=True, slots=True)
class Ranked:
    """Ranks that are ready to be shown.

    seconds  time of the stages mark, solve, watched and publish
    ended    when the last of them ended, on the clock of performance
    """

    result: Result
    view: View
    seconds: Mapping[str, float]
    ended: float


def receipt_of(applied: Applied, ranked: Ranked, submitted: float | None) -> bytes:
    """The receipt of a batch with these ranks, as JSON.

    submitted  on the clock of performance; None where nobody waits
    """
    change, seconds = applied.change, applied.seconds
    result, view = ranked.result, ranked.view
    seconds.mark, seconds.solve = ranked.seconds["mark"], ranked.seconds["solve"]
    seconds.watched, seconds.publish = ranked.seconds["watched"], ranked.seconds["publish"]
    seconds.close(None if submitted is None else ranked.ended - submitted)
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
