"""Many personalized queries in one pass over the graph after the other.

A block keeps y of up to 32 queries as the columns of one matrix, so that each edge is read once for
all of them (`Backend.relax_columns`). Every column is the dense phase of a walk of its own: see
gpu.walk for the residual, the certificate and centring. y is float64; what is sent along the edges
has few digits, and what is rounded off stays in the residual, so only the rounding of that residual
to float32 limits a block: it is part of the bound, which can reach LEAST_TARGET. A tighter target
is met by single queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gpu.errors import OutOfMemory
from gpu.graph import Graph
from gpu.personalized import check_query
from gpu.seeds import Seeds
from gpu.settled import settled_by_gaps
from gpu.types import Options, Personalized, Ranking

LEAST_TARGET = 1e-7
"""The smallest target error of a query in a block."""

_ULP = 2.0**-53
_ROUNDED = 2.0**-24
_SHARE_ROUNDED = 2.0**-7
"""Of a float32, and (at least) of a share."""

_STALLED_SWEEPS = 8

_LAGGING, _ALONE_SWEEPS = 4, 5.0
"""So few queries that are not there yet are left to be solved alone, where the block would make
more than so many sweeps for each: one that goes round in a small circle would keep all others.
"""


@dataclass(frozen=True, slots=True)
class Asked:
    """One query of a block: see gpu.personalized.Query."""

    seeds: Seeds
    k: int
    target_error: float


class Block:
    """Queries at work together: `step` until `done`, then `answers`, in the order asked.

    lagging  bool[queries], those that are better solved alone; known when it is done
    Raises InvalidValue for what cannot be asked, OutOfMemory with an estimate.
    """

    def __init__(self, graph: Graph, options: Options, asked: Sequence[Asked]) -> None:
        for query in asked:
            check_query(query.k, "pull", query.target_error, "error")
        self.graph = graph
        self.options = options
        self.asked = asked
        self._start()

    @staticmethod
    def size(graph: Graph, wanted: int) -> int:
        """How many queries one block takes."""
        return min(wanted, graph.backend.column_count(wanted))

    @staticmethod
    def bytes_needed(graph: Graph, wanted: int) -> int:
        """Bytes that a block of so many queries takes on the device."""
        columns = graph.backend.column_count(wanted)
        share = np.dtype(graph.backend.column_share).itemsize
        # and the partial sums of long rows; a flag for each vertex
        matrices = columns * ((8 + 4 + 2 * share) * graph.vertices + graph.edges // 80)
        return matrices + graph.vertices

    def _start(self) -> None:
        graph, backend = self.graph, self.graph.backend
        columns = backend.column_count(len(self.asked))
        needed, available = (
            self.bytes_needed(graph, len(self.asked)),
            backend.memory_available(),
        )
        purpose = f"a block of {len(self.asked)} personalized queries"
        if needed > available:
            raise OutOfMemory(purpose, needed, available)
        shape = graph.vertices * columns
        kinds = (np.float64, np.float32, backend.column_share, backend.column_share)
        arrays = [backend.allocate(purpose, shape, kind) for kind in kinds]
        for array in arrays:
            array.fill(0)
        self._values, self._left, self._shares, self._new_shares = (
            array.reshape(graph.vertices, columns) for array in arrays
        )
        seeds = [query.seeds for query in self.asked]
        counts = [len(seed.vertices) for seed in seeds]
        self._columns = np.repeat(np.arange(len(seeds)), counts)
        self._weights = np.concatenate([seed.weights for seed in seeds])
        rows = np.concatenate([seed.vertices for seed in seeds])
        positions = graph.numbering.positions_of(rows)
        self._seeded = backend.allocate(purpose, graph.vertices, np.uint8)
        self._seeded.fill(0)
        self._seeded[positions] = 1
        # nothing is anywhere else before the first sweep
        seeds_there = backend.xp.unique(positions).astype(np.int32)
        self._rows = backend.rows_of(seeds_there, graph.incoming)
        # of each seed of each column in a matrix
        self._places = positions.astype(np.int64) * columns + backend.to_device(self._columns)
        self._base = np.full(len(seeds), 1.0 - self.options.damping)
        self._total = np.zeros(len(seeds))
        self._l1, self._drift = self._base.copy(), np.zeros(len(seeds))
        self._best, self._stalled = np.full(len(seeds), np.inf), np.zeros(len(seeds), np.int64)
        # of each seed of each column; and bounds on ‖carry‖₁ of each column
        self._carry = backend.to_device(np.zeros(len(rows)))
        self._carried = np.zeros(len(seeds))
        self.iterations = 0
        self.done = False
        self.lagging = np.zeros(len(seeds), np.bool_)
        self._teleport(self._base)

    def _teleport(self, amounts: Ranking) -> None:
        """Adds so much of each column's seeds to its residual."""
        backend = self.graph.backend
        added = backend.to_device(amounts[self._columns] * self._weights)
        # what float32 does not hold of a seed's residual is not lost, it comes in the next time
        backend.add_carried(self._left.reshape(-1), self._places, added, self._carry)
        self._carried = _ROUNDED * self._l1

    @property
    def error_bounds(self) -> Ranking:
        """float64[queries]: upper bounds on the L1 errors; infinite before the first sweep."""
        with np.errstate(divide="ignore"):
            return self._missing / self._total

    @property
    def _missing(self) -> Ranking:
        """float64[queries]: upper bounds on ‖y* - y‖₁."""
        return (self._l1 + 2.0 * self._drift) / (1.0 - self.options.damping)

    def step(self) -> None:
        """One sweep of all columns."""
        backend, count = self.graph.backend, len(self.asked)
        damping, bounds = self.options.damping, self.error_bounds
        sums = backend.relax_columns(
            self.graph,
            self._rows,
            self._values,
            self._left,
            self._shares,
            self._new_shares,
            self._seeded,
            damping,
        )[:, :count]
        self._shares, self._new_shares = self._new_shares, self._shares
        self._rows = self.graph.incoming.rows
        self.iterations += 1
        depth = backend.column_depth(self.graph)
        self._total = self._total + sums[2]
        # sums, y, and what is left of each residual once a share of it is sent
        self._drift += (6.0 * (depth + 4.0) * _ULP + _ROUNDED * _SHARE_ROUNDED) * self._l1
        self._drift += 2.0 * _ULP * self._total
        # centred: r -= s·Σr, β -= Σr. What was carried comes in now, and the sweep has not seen it
        self._l1 = sums[0] + np.abs(sums[1]) + self._carried
        self._base = self._base - sums[1]
        self._teleport(-sums[1])
        before, bounds = bounds, self.error_bounds
        progress = bounds < self._best * (1.0 + damping) / 2.0
        self._best = np.where(progress, bounds, self._best)
        self._stalled = np.where(progress, 0, self._stalled + 1)
        targets = np.array([query.target_error for query in self.asked])
        ended = (bounds <= targets) | (self._stalled >= _STALLED_SWEEPS)
        self.lagging = ~ended
        self.done = bool(ended.all()) or self.iterations >= self.options.max_iterations
        if self.done:
            self.lagging[:] = False
        elif (count := int(self.lagging.sum())) <= min(_LAGGING, len(bounds) // 2):
            with np.errstate(divide="ignore", invalid="ignore"):
                sweeps = np.log(bounds / targets) / np.log(before / bounds)
            self.done = bool((~(sweeps[self.lagging] <= _ALONE_SWEEPS * count)).any())

    def answers(self) -> list[Personalized]:
        """The places as they are now, each with a certificate that is true at any time; of those
        that are `lagging` too.
        """
        vertices = self.graph.vertices
        places = np.array([min(query.k + 1, vertices) for query in self.asked], np.int64)
        tops = self.graph.numbering.top_columns(self._values, places)
        bounds = self.error_bounds
        missing = self._missing
        return [
            Personalized(
                vertices=ids[: query.k],
                ranks=values[: query.k] / (self._total[column] or 1.0),
                error_bound=min(2.0, float(bounds[column])),
                settled=settled_by_gaps(values, float(missing[column]), query.k),
                method="pull",
                iterations=self.iterations,
            )
            for column, (query, (ids, values)) in enumerate(zip(self.asked, tops, strict=True))
        ]
