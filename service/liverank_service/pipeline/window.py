"""The window of a graph: the times of its edges, and the vertices that lose all edges by age."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank.choices import Clock
from liverank_gpu import EdgeBatch, Engine, Solve
from liverank_service.formats.columns import EdgeColumns
from liverank_service.pipeline.edge_times import EdgeTimes, TimesCapture

AUTO = Solve("auto")

_NONE = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class WindowOptions:
    """Options of a graph whose edges leave by age.

    seconds          the age, above 0
    clock            ``wall``, or ``event``: the largest time that was sent
    forget_vertices  whether vertices leave that have lost all edges by it
    solve            how to rank an expiry that no batch of a client caused
    max_share        by the wall clock, of the edges: an expiry of more waits until the clock has
                     not jumped for `hold_seconds`; 1: it does not
    """

    seconds: float
    clock: Clock = "wall"
    forget_vertices: bool = False
    solve: Solve = AUTO
    max_share: float = 1.0
    hold_seconds: float = 0.0


class WindowCapture(NamedTuple):
    """A window at one moment."""

    times: TimesCapture
    newest: float | None
    isolated: NDArray[np.int64]

    def arrays(self) -> dict[str, NDArray[Any]]:
        return self.times.arrays() | {"isolated": self.isolated}


class Window:
    """Only for the writer's thread.

    isolated  int64[…], ids of vertices that lost their last edges by age, to be removed
    """

    def __init__(self, options: WindowOptions, engine: Engine) -> None:
        self.options = options
        self.times = EdgeTimes(engine.options.directed)
        self.isolated = _NONE
        self._decays = engine.options.half_life is not None
        self._reader = engine.edge_reader

    def applied(self, batch: EdgeBatch, columns: EdgeColumns) -> None:
        """Follows a batch that the graph has, given by ids and by keys."""
        removed = batch.remove[batch.remove >= 0]
        if self._decays or not columns.expiry:  # otherwise those that it removes have no edges
            self.times.remove(removed)
        self.times.delete(batch.delete_sources, batch.delete_targets)
        if columns.times is not None:
            times = columns.times.to_numpy()
            self.times.insert(batch.insert_sources, batch.insert_targets, times)
        if not self.options.forget_vertices:
            return
        if len(self.isolated):
            for gone in (removed, batch.insert_sources, batch.insert_targets):
                self.isolated = np.setdiff1d(self.isolated, gone)
        if columns.expiry:
            ends = np.union1d(batch.delete_sources, batch.delete_targets)
            ends = ends[ends >= 0]
            self.isolated = np.union1d(self.isolated, ends[self.are_isolated(ends)])

    def are_isolated(self, vertices: NDArray[np.int64]) -> NDArray[np.bool_]:
        """bool[k]: whether each of these vertices, by id, has no edge."""
        return self._reader.are_isolated(vertices)

    def capture(self) -> WindowCapture:
        """A copy, for another thread."""
        return WindowCapture(self.times.capture(), self.times.newest, self.isolated)

    def restore(self, arrays: Mapping[str, NDArray[Any]], newest: float | None) -> None:
        """Takes the arrays of a capture."""
        self.times.restore(arrays, newest)
        self.isolated = np.array(arrays["isolated"])
