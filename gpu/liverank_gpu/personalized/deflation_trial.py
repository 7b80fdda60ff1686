"""Whether a personalized query is deflated along the global ranks, and for how long.

Deflation pays on graphs that mix well and costs sweeps where parts are seldom left. So it is on
trial as long as it lasts: a query that stops gaining by it starts again without, and after each
failure in a row twice as many queries do without before the next one tries.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.pagerank.deflation import Deflation
from liverank_gpu.types import Ranking

FIRST_JUDGED = 5
"""Deflated sweeps before they are judged: a query may need some to get away from its seeds."""

_SWEEPS, _REDUCTION = 2, 0.35
"""This many sweeps may leave this part of the bound: on graphs where deflation pays (R-MAT,
wiki-Vote, p2p-Gnutella31) it is 0.03 to 0.27, where it does not (cnr-2000, dblp-2010, the roads)
0.55 and more.
"""

_FEW = 4
"""A block goes on with this many queries that do not gain, or half of its own."""

_MOST_SKIPPED = 63

DeflationSource = Callable[[float], Deflation | None]
"""The global ranks as a direction for queries to a target error, if they are usable."""


class DeflationHistory:
    """What trials have shown on one graph."""

    def __init__(self) -> None:
        self._skip = self._skipping = 0

    @property
    def next_tries(self) -> bool:
        """Whether the next query is deflated."""
        return self._skipping == 0

    def take_turn(self) -> bool:
        """Whether this query is deflated; if not, it counts as skipped."""
        if self._skipping > 0:
            self._skipping -= 1
            return False
        return True

    def record(self, gained: bool) -> None:
        """Records how a trial ended."""
        self._skip = 0 if gained else min(2 * self._skip + 1, _MOST_SKIPPED)
        self._skipping = self._skip


class DeflationTrial:
    """The trial of one query, or of a block of queries that are solved together."""

    def __init__(
        self, history: DeflationHistory, source: DeflationSource, target_error: float
    ) -> None:
        self._history = history
        self._source = source
        self._target_error = target_error
        # known once there is a direction
        self._deflated: bool | None = None
        self._bounds: list[Ranking] = []

    def forget_bounds(self) -> None:
        """The residual changed other than by sweeps: earlier gains predict nothing."""
        self._bounds = []

    @property
    def expected(self) -> bool:
        """Whether the next sweep will be deflated."""
        deflated = self._history.next_tries if self._deflated is None else self._deflated
        return deflated and self._source(self._target_error) is not None

    def deflation(self) -> Deflation | None:
        """What to deflate the next sweep along; None to do without."""
        if self._deflated is False:
            return None
        deflation = self._source(self._target_error)
        if self._deflated is None and deflation is not None:
            self._deflated = self._history.take_turn()
        return deflation if self._deflated else None

    def fails(self, bounds: Ranking, ended: NDArray[np.bool_], done: bool) -> bool:
        """Records the error bounds after a deflated sweep. Whether deflation has stopped paying: it
        is not used any more, and the query had better start again.

        bounds  float64[queries]
        ended   bool[queries], those for which nothing more is to be gained
        done    whether this was the last sweep
        """
        self._bounds.append(bounds)
        slow = ~(ended | self._gains())
        if not done and int(slow.sum()) > min(_FEW, len(slow) // 2):
            self._deflated = False
            self._history.record(gained=False)
            return True
        if done and len(self._bounds) >= FIRST_JUDGED and not slow.any():
            self._history.record(gained=True)
        return False

    def _gains(self) -> NDArray[np.bool_]:
        """bool[queries]: whether deflation pays, as far as it can be judged."""
        last = self._bounds[-1]
        if len(self._bounds) < FIRST_JUDGED:
            return np.ones(len(last), np.bool_)
        return np.isfinite(last) & (last <= _REDUCTION * self._bounds[-1 - _SWEEPS])
