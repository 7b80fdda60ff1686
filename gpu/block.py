"""Many personalized queries in one pass over the graph after the other.

A block keeps y of up to 32 queries as the columns of one matrix, so that each edge is read once for
all of them (`Backend.relax_columns`). Every column is the dense phase of a walk of its own: see
gpu.walk for the residual, the certificate and centring, gpu.background for leaning. y is float64;
what is sent along the edges has few digits, and what is rounded off stays in the residual, so only
the rounding of that residual to float32 limits a block: it is part of the bound, which can reach
LEAST_TARGET. A tighter target is met by single queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from gpu.background import FIRST_LOOK, Background, gains
from gpu.errors import OutOfMemory
from gpu.graph import Graph
from gpu.personalized import Spaces, check_query
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

    def __init__(self, spaces: Spaces, options: Options, asked: Sequence[Asked]) -> None:
        for query in asked:
            check_query(query.k, "pull", query.target_error, "error")
        self.graph = spaces.graph
        self.options = options
        self.asked = asked
        self.iterations = 0
        self._spaces = spaces
        self._targets = np.array([query.target_error for query in asked])
        # known once it has a background
        self._leans: bool | None = None
        self._allocate()
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

    def _allocate(self) -> None:
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
        self._values, self._left, self._shares, self._new_shares = (
            backend.allocate(purpose, shape, kind).reshape(graph.vertices, columns)
            for kind in kinds
        )
        self._seeded = backend.allocate(purpose, graph.vertices, np.uint8)
        seeds = [query.seeds for query in self.asked]
        counts = [len(seed.vertices) for seed in seeds]
        self._columns = np.repeat(np.arange(len(seeds)), counts)
        self._weights = np.concatenate([seed.weights for seed in seeds])
        rows = np.concatenate([seed.vertices for seed in seeds])
        positions = graph.numbering.positions_of(rows)
        self._seeds_there = backend.xp.unique(positions).astype(np.int32)
        # of each seed of each column in a matrix
        self._places = positions.astype(np.int64) * columns + backend.to_device(self._columns)

    def _start(self) -> None:
        backend, count = self.graph.backend, len(self.asked)
        for array in (self._values, self._left, self._shares, self._new_shares, self._seeded):
            array.fill(0)
        self._seeded[self._seeds_there] = 1
        self._base = np.full(count, 1.0 - self.options.damping)
        # of each column, ‖r‖₁ and Σr at most, and Σr
        self._l1, self._sum = self._base.copy(), np.zeros(count)
        self._total, self._drift = np.zeros(count), np.zeros(count)
        self._best, self._stalled = np.full(count, np.inf), np.zeros(count, np.int64)
        # of each seed of each column; and bounds on ‖carry‖₁ of each column
        self._carry = backend.to_device(np.zeros(len(self._places)))
        self._carried = np.zeros(count)
        self._leant: list[Ranking] = []
        self._swept = self._looked_at_all = self.done = False
        self.lagging = np.zeros(count, np.bool_)
        self._teleport(self._base)

    def _teleport(self, amounts: Ranking) -> None:
        """Adds so much of each column's seeds to its residual, and what was carried."""
        backend = self.graph.backend
        added = backend.to_device(amounts[self._columns] * self._weights)
        # what float32 does not hold of a seed's residual is not lost, it comes in the next time
        backend.add_carried(self._left.reshape(-1), self._places, added, self._carry)
        self._carried = _ROUNDED * self._l1

    @property
    def error_bounds(self) -> Ranking:
        """float64[queries]: upper bounds on the L1 errors; infinite before the first sweep."""
        known = self._total > 0.0
        return np.where(known, self._missing / np.where(known, self._total, 1.0), np.inf)

    @property
    def _missing(self) -> Ranking:
        """float64[queries]: upper bounds on ‖y* - y‖₁."""
        return (self._l1 + 2.0 * self._drift) / (1.0 - self.options.damping)

    def step(self) -> None:
        """One sweep of all columns."""
        backend, count = self.graph.backend, len(self.asked)
        damping, before = self.options.damping, self.error_bounds
        background = self._background()
        amounts = np.zeros(count)
        if background is not None:
            amounts = self._lean(background)
        else:
            # centred: r -= s·Σr, β -= Σr
            self._base = self._base - self._sum
            self._teleport(-self._sum)
        incoming = self.graph.incoming
        # nothing is anywhere but at the seeds before the first sweep
        rows = incoming.rows if self._swept else backend.rows_of(self._seeds_there, incoming)
        sums = backend.relax_columns(
            self.graph,
            rows,
            self._values,
            self._left,
            self._shares,
            self._new_shares,
            self._seeded,
            damping,
            None if background is None else background.known,
            amounts,
        )[:, :count]
        self._shares, self._new_shares = self._new_shares, self._shares
        self._swept = True
        self.iterations += 1
        depth = backend.column_depth(self.graph)
        self._total = self._total + sums[2]
        # sums, y, and what is left of each residual once a share of it is sent
        self._drift += (6.0 * (depth + 4.0) * _ULP + _ROUNDED * _SHARE_ROUNDED) * self._l1
        self._drift += 2.0 * _ULP * (np.abs(self._total) + self._missing)
        # the sweep has not seen what was carried
        self._l1, self._sum = sums[0] + np.abs(sums[1]) + self._carried, sums[1]
        bounds = self.error_bounds
        progress = bounds < self._best * (1.0 + damping) / 2.0
        self._best = np.where(progress, bounds, self._best)
        self._stalled = np.where(progress, 0, self._stalled + 1)
        ended = (bounds <= self._targets) | (self._stalled >= _STALLED_SWEEPS)
        self.lagging = ~ended
        self.done = bool(ended.all()) or self.iterations >= self.options.max_iterations
        if self.done:
            self.lagging[:] = False
        elif (count := int(self.lagging.sum())) <= min(_LAGGING, len(bounds) // 2):
            with np.errstate(divide="ignore", invalid="ignore"):
                sweeps = np.log(bounds / self._targets) / np.log(before / bounds)
            self.done = bool((~(sweeps[self.lagging] <= _ALONE_SWEEPS * count)).any())
        if background is not None:
            self._leant.append(bounds)
            self._judge_leaning(ended)

    def _background(self) -> Background | None:
        """What the next sweep leans on; nothing as long as it passes over the seeds alone."""
        if self._leans is False or not self._swept:
            return None
        background = self._spaces.background(float(self._targets.min()))
        if self._leans is None and background is not None:
            self._leans = self._spaces.leaning.take_turn()
        return background if self._leans else None

    def _lean(self, background: Background) -> Ranking:
        """How much of it each column is to take; accounts for what is rounded by that. What shares
        and float32 round off is accounted for by the sweep: it is a part of ‖r‖₁ + |Σr|, and what
        leaning adds to r measures |Σr|, or a tenth more (gpu.background, USABLE), for which there
        is room in _SHARE_ROUNDED.
        """
        if not self._looked_at_all:
            # something is left wherever there are edges
            self._seeded[self.graph.degree > self.graph.loop] = 1
            self._looked_at_all = True
        # what was carried comes in
        self._teleport(np.zeros(len(self.asked)))
        amounts: Ranking = self._sum / background.weight
        sizes = np.abs(amounts)
        self._drift += sizes * (
            background.uncertainty + 4.0 * _ULP * (background.total + background.weight)
        )
        self._drift += 4.0 * _ULP * (np.abs(self._total) + sizes * background.total + self._missing)
        return amounts

    def _judge_leaning(self, ended: NDArray[np.bool_]) -> None:
        """Does without where it does not pay for more than a few: begins anew, if there are sweeps
        enough.
        """
        slow = ~(ended | gains(self._leant))
        if not self.done and int(slow.sum()) > min(_LAGGING, len(slow) // 2):
            self._leans = False
            self._spaces.leaning.ended(gained=False)
            if 2 * self.iterations <= self.options.max_iterations:
                self._start()
        elif self.done and len(self._leant) >= FIRST_LOOK and not slow.any():
            self._spaces.leaning.ended(gained=True)

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
                # what is below 0 is so by less than the error
                ranks=np.maximum(values[: query.k], 0.0)
                / (self._total[column] if self._total[column] > 0.0 else 1.0),
                error_bound=min(2.0, float(bounds[column])),
                settled=settled_by_gaps(values, float(missing[column]), query.k),
                method="pull",
                iterations=self.iterations,
            )
            for column, (query, (ids, values)) in enumerate(zip(self.asked, tops, strict=True))
        ]
