"""Several personalized queries in each pass over the graph.

A block holds y of up to 32 queries as the columns of one matrix, so that each edge is read once for
all of them (SweepMany). Each column is the dense phase of an iterate of its own, with the same
certificate and the same deflation. y is float64. Contributions have few digits, and what is rounded
off stays in the residual, so only the rounding of that residual to float32 limits a block: it is
part of the bound, which can reach LEAST_TARGET. A tighter target is met by single queries.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.errors import OutOfMemory
from liverank_gpu.graph.ranked_graph import RankedGraph
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.select import TopK
from liverank_gpu.operations.sweeps import AddCompensated, SweepMany, SweepResult
from liverank_gpu.pagerank.certificate import Certificate, StallRule, gather_roundoff
from liverank_gpu.pagerank.gate import Gate
from liverank_gpu.pagerank.iterate import Deflation, transition_error
from liverank_gpu.pagerank.places import CHECK, BoundedPlaces, GraphVertices, ProvenPlaces, without
from liverank_gpu.personalized.certified_top_k import Tying, with_ties
from liverank_gpu.personalized.forecast import first_bound
from liverank_gpu.personalized.iterate import SEED_CORRECTION
from liverank_gpu.personalized.query import QueryContext
from liverank_gpu.personalized.resolve import ResolvedQuery
from liverank_gpu.types import Personalized, Ranking

LEAST_TARGET = 1e-7
"""The smallest target error of a query in a block."""

_FLOAT32_ROUNDOFF = 2.0**-24
_CONTRIBUTION_ROUNDOFF = 2.0**-7
"""Of a contribution, at least."""

_LEAST_STRENGTH = 2.0**-60
"""Strengths from this to its inverse leave room for residuals far below any target."""

_JUDGED_FROM = 4
"""Sweeps after which it is predicted how many are left: since the start, or since a block that was
deflated in vain started again.
"""

_FEW = 4
"""So few queries are looked at whenever one of them may be proven."""


class Column(NamedTuple):
    """Where a query has come in a block.

    values      float64[n], y
    rhs_scale   its β
    iterations  sweeps so far
    """

    values: Array
    rhs_scale: float
    iterations: int


class Block:
    """Queries of one damping that run together: `step` until `done`, then `answers`, in the order
    given.

    unfinished  bool[queries], those that are better solved alone; known when it is done
    pushes      bool[queries], those of them that are to go on with the pushes that they began
    Raises OutOfMemory with an estimate.
    """

    def __init__(
        self,
        context: QueryContext,
        queries: Sequence[ResolvedQuery],
        by_pushes: Ranking | None = None,
    ) -> None:
        """by_pushes  float64[queries], at most what each costs alone by pushes; None: infinite"""
        self.graph, self._vertices = context.graph, context.vertices
        self.options = queries[0].options
        self.queries = queries
        self.iterations = 0
        self._forecast = context.forecast
        self._by_pushes = np.full(len(queries), np.inf) if by_pushes is None else by_pushes
        self._targets = np.array([query.target_error for query in queries])
        # of queries that ended because their places are proven
        self._proven: dict[int, Personalized] = {}
        self._trial = context.trial(self.options, float(self._targets.min()))
        self._stall = StallRule(self.options.damping)
        self._allocate()
        self._begin()

    @staticmethod
    def accepts(query: ResolvedQuery) -> bool:
        """Whether a block can answer the query."""
        return (
            query.form == "accelerated"
            and query.within is None
            and not query.trace
            and query.method != "push"
            and query.target_error >= LEAST_TARGET
        )

    @staticmethod
    def represents(vertices: GraphVertices) -> bool:
        """Whether no strength is so small or large that contributions leave the range of their
        type: then more would be rounded off than a block accounts for. A pass over n.
        """
        graph = vertices.graph
        if not graph.weighted:
            return True
        strengths = graph.degree[graph.degree > 0]
        inside = (strengths >= _LEAST_STRENGTH) & (strengths <= 1.0 / _LEAST_STRENGTH)
        return vertices.sums([float(len(strengths) - inside.sum())]) == [0.0]

    @staticmethod
    def size(graph: RankedGraph, wanted: int) -> int:
        """How many of `wanted` queries one block takes."""
        return min(wanted, graph.backend.multivector.column_count(wanted))

    @staticmethod
    def bytes_needed(graph: RankedGraph, queries: int) -> int:
        """Bytes that a block takes on the device."""
        multivector = graph.backend.multivector
        columns = multivector.column_count(queries)
        contribution = np.dtype(multivector.contribution_dtype).itemsize
        # and the partial sums of long rows; a flag for each vertex and a copy of a column; the rows
        # of free ids
        vectors = (8 + 4) * graph.vertices + 2 * contribution * graph.columns
        matrices = columns * (vectors + graph.arcs // 80)
        return matrices + 9 * graph.vertices + 8 * columns * graph.ids.free_count

    def _allocate(self) -> None:
        graph, backend, count = self.graph, self.graph.backend, len(self.queries)
        purpose = f"a block of {count} personalized queries"
        needed, available = self.bytes_needed(graph, count), backend.device.memory_available()
        if needed > available:
            raise OutOfMemory(purpose, needed, available)
        columns = backend.multivector.column_count(count)
        contribution = backend.multivector.contribution_dtype
        self._values, self._remainder, self._contributions, self._new_contributions = (
            backend.device.allocate(purpose, length * columns, dtype).reshape(length, columns)
            for length, dtype in (
                (graph.vertices, np.float64),
                (graph.vertices, np.float32),
                (graph.columns, contribution),
                (graph.columns, contribution),
            )
        )
        self._seeded = backend.device.allocate(purpose, graph.vertices, np.uint8)
        seeds = [query.seeds for query in self.queries]
        rows, here = self._vertices.rows_of(np.concatenate([each.vertices for each in seeds]))
        if not isinstance(here, slice):
            here = backend.device.to_host(here)
        # of each seed of each column: its column, its weight, and its place in a matrix
        self._columns = np.repeat(np.arange(count), [len(each.vertices) for each in seeds])[here]
        self._weights = np.concatenate([each.weights for each in seeds])[here]
        self._seed_rows = backend.xp.unique(rows).astype(np.int32)
        self._places = rows.astype(np.int64) * columns
        self._places += backend.device.to_device(self._columns)

    def _begin(self) -> None:
        backend, count = self.graph.backend, len(self.queries)
        for array in (
            self._values,
            self._remainder,
            self._contributions,
            self._new_contributions,
            self._seeded,
        ):
            array.fill(0)
        self._seeded[self._seed_rows] = 1
        self._swept = self._visits_all_rows = self.done = False
        self._first = self.iterations
        self.unfinished, self.pushes = np.zeros(count, np.bool_), np.zeros(count, np.bool_)
        self._rhs_scale = np.full(count, 1.0 - self.options.damping)
        self._certificate = Certificate(self.options.damping)
        self._certificate.transition_error = transition_error(self.graph)
        self._certificate.start(self._rhs_scale)
        # of each seed of each column; and a bound on ‖carry‖₁ of each column
        self._carry = backend.device.to_device(np.zeros(len(self._places)))
        self._carried = np.zeros(count)
        # of the errors of y; none if the error alone ends a query
        self._next_check = np.array([self._first_check(query) for query in self.queries])
        self._trial.forget_bounds()
        self._stall.reset()
        self._add_at_seeds(self._rhs_scale)

    def _first_check(self, query: ResolvedQuery) -> float:
        if query.target == "error":
            return -np.inf
        # the seeds alone prove no places, unless none is behind the last one
        return CHECK if query.k < query.count(self.graph.ids) else np.inf

    def _add_at_seeds(self, amounts: Ranking) -> None:
        """Adds amounts·s to the residuals, and what earlier additions carried over."""
        backend = self.graph.backend
        if len(self._places):
            added = backend.device.to_device(amounts[self._columns] * self._weights)
            remainder = self._remainder.reshape(-1)
            backend.run(AddCompensated(remainder, self._places, added, self._carry))
        self._carried = _FLOAT32_ROUNDOFF * self._remaining

    @property
    def _remaining(self) -> Ranking:
        """float64[queries]: upper bounds on ‖r‖₁, before and after a correction made Σr = 0."""
        certificate = self._certificate
        corrected = np.abs(certificate.residual_sum) if self._swept else 0.0
        remaining: Ranking = certificate.residual_l1 + corrected
        return remaining

    @property
    def error_bounds(self) -> Ranking:
        """float64[queries]: upper bounds on the L1 errors; infinite before the first sweep."""
        bounds: Ranking = self._certificate.error_bound
        return bounds

    def step(self) -> None:
        """One sweep of all columns."""
        # before the first sweep there is nothing but the seeds, and no scale to correct
        deflation = self._trial.deflation() if self._swept else None
        coefficients = np.zeros(len(self.queries))
        if deflation is not None:
            coefficients = self._prepare(deflation)
        elif self._swept:
            amounts = SEED_CORRECTION.coefficient(self._certificate.residual_sum)
            self._rhs_scale = self._rhs_scale - amounts
            self._add_at_seeds(-amounts)
        self._sweep(deflation, coefficients)
        bounds = self.error_bounds
        missed = ~(bounds <= self._targets)
        missed[list(self._proven)] = False
        ended = self._stall.stalled(bounds) | ~missed
        self._check_places(~ended)
        missed[list(self._proven)] = False
        ended |= ~missed
        self.unfinished = ~ended
        if self.iterations >= self.options.max_iterations:
            self.done, self.unfinished = True, missed & self._faulty()
        elif ended.all():
            # what stalled has less rounding alone, and may do without the correction
            self.done, self.unfinished = True, missed
        else:
            self.done = self._is_left(bounds)
            if self.done:
                self.unfinished = missed
        if self.done and 2 * np.count_nonzero(missed) < len(missed):
            # what most of them took; the first sweeps do not tell how many follow
            after = float(np.median(bounds))
            sweeps = self.iterations - self._first
            self._forecast.record(self.options.damping, np.inf, after, sweeps)
        if deflation is not None and self._trial.fails(bounds, ended, self.done):
            self._start_again()

    def _faulty(self) -> NDArray[np.bool_]:
        """bool[queries]: whether y is no answer."""
        gates = map(self._gate, range(len(self.queries)))
        return np.array([gate.fault() is not None for gate in gates])

    def _gate(self, column: int) -> Gate:
        mass, bound = float(self._certificate.mass[column]), float(self.error_bounds[column])
        return Gate(mass, bound, lambda: self._values[:, column], self._vertices)

    def _start_again(self) -> None:
        if 2 * self.iterations <= self.options.max_iterations:
            self._begin()

    def _prepare(self, deflation: Deflation) -> Ranking:
        """The coefficient of each column. Accounts for their rounding. What contributions and
        float32 round off is part of the sweep: deflation adds at most a tenth more than |Σr| to r
        (see GlobalIterate.deflation), for which _CONTRIBUTION_ROUNDOFF leaves room.
        """
        if not self._visits_all_rows:
            # deflation leaves a remainder wherever there are edges
            self._seeded[self.graph.degree > self.graph.loop] = 1
            self._visits_all_rows = True
        self._add_at_seeds(np.zeros(len(self.queries)))  # only what was carried over
        certificate = self._certificate
        coefficients: Ranking = deflation.coefficient(certificate.residual_sum)
        certificate.add_error(deflation.rounding_error(coefficients, certificate))
        return coefficients

    def _sweep(self, deflation: Deflation | None, coefficients: Ranking) -> None:
        graph, backend, certificate = self.graph, self.graph.backend, self._certificate
        if self._swept:
            rows = graph.in_rows()
        else:
            rows = backend.frontier.rows_of(self._seed_rows, graph.incoming.csr.row_lengths)
        sweep = SweepMany(
            graph.view,
            rows,
            self._values,
            self._remainder,
            self._contributions,
            self._new_contributions,
            self._seeded,
            self.options.damping,
            None if deflation is None else deflation.vector,
            coefficients,
        )
        residual_l1, residual_sum, mass = backend.run(sweep)[:, : len(self.queries)]
        self._contributions, self._new_contributions = self._new_contributions, self._contributions
        self.iterations += 1
        self._forecast.spent += self._forecast.block_sweep(len(self.queries))
        # sums; and what is left of each residual once a contribution of it is sent
        depth = backend.multivector.column_depth(graph.view)
        roundoff = gather_roundoff(depth, graph.weighted)
        roundoff += _FLOAT32_ROUNDOFF * _CONTRIBUTION_ROUNDOFF
        # what is sent is taken from strengths, not summed over the edges; r/d ≤ 4·‖r‖₁
        roundoff += 4.0 * certificate.transition_error
        result = SweepResult(
            # the sweep has not seen what was carried over
            residual_l1=residual_l1 + self._carried,
            residual_sum=residual_sum,
            mass=mass,
            next_residual_sum=0.0,
            largest_step=0.0,
        )
        certificate.after_sweep(result, roundoff * self._remaining)
        self._swept = True

    def _is_left(self, bounds: Ranking) -> bool:
        """Whether the queries that are left are better solved alone now, rather than later or in
        the block: one that circulates in a small cycle would hold up all others, and pushes may be
        cheaper than sweeps that turn out to be many.
        """
        forecast, left = self._forecast, self.unfinished
        made = self.iterations - self._first
        if made < _JUDGED_FROM:
            return False
        most = float(self.options.max_iterations - self.iterations)
        # an infinite bound has gained nothing
        part = np.maximum(first_bound(self.options.damping) / bounds[left], np.finfo(float).tiny)
        gained = np.log(part)
        needed = np.log(bounds[left] / self._targets[left])
        sweeps = np.full(len(needed), most)
        some = gained > 0.0
        sweeps[some] = np.clip(needed[some] * made / gained[some], 0.0, most)
        # whenever one is answered, the others may leave, each with a sweep for its residual
        times = np.concatenate([[0.0], sweeps])
        later = sweeps - times[:, np.newaxis]
        by_sweeps = (later + 1.0) * forecast.sweep + forecast.start
        by_push = self._by_pushes[left]
        rest = np.where(later > 0.0, np.minimum(by_sweeps, by_push), 0.0).sum(axis=1)
        if times[np.argmin(times * forecast.block_sweep(len(bounds)) + rest)] > 0.0:
            return False
        self.pushes[left] = by_push < by_sweeps[0]
        return True

    def columns(self) -> dict[int, Column]:
        """By place, where the queries have come that go on by sweeps alone. No steps follow."""
        # the copies take no more than these, which a block may have left too little memory beside
        del self._remainder, self._contributions, self._new_contributions
        purpose, device = "a personalized vector", self.graph.backend.device
        copies = {}
        for place in np.flatnonzero(self.unfinished & ~self.pushes).tolist():
            values = device.allocate(purpose, self.graph.vertices, np.float64)
            values[:] = self._values[:, place]
            copies[place] = Column(values, float(self._rhs_scale[place]), self.iterations)
        return copies

    def _check_places(self, running: NDArray[np.bool_]) -> None:
        """Takes the answers of those queries whose target is proven. running: bool[queries]"""
        errors: Ranking = self._certificate.solution_error
        due = running & (errors <= self._next_check)
        together = bool((due == running).all()) or running.sum() <= _FEW
        if not (due.any() and together):
            return
        columns = np.flatnonzero(due).tolist()
        for column, places in zip(columns, self._found(columns), strict=True):
            query = self.queries[column]
            assert query.target != "error"
            proven = ProvenPlaces.of(*places.certified(query.k))
            met = query.is_proven(proven, places.values[: query.k])
            if met and self._certificate.mass[column] > 0.0:
                self._proven[column] = self._answer(column, places)
            size = float(errors[column])
            self._next_check[column] = places.next_check(query.k, query.target, size)

    def answers(self) -> list[Personalized]:
        """The places now, or when they were proven, each with a certificate that holds at any time;
        of `unfinished` queries too.
        """
        columns = [column for column in range(len(self.queries)) if column not in self._proven]
        self._forecast.spent += len(self.queries) * self._forecast.answer
        found = zip(columns, self._found(columns), strict=True)
        answers = self._proven | {column: self._answer(column, places) for column, places in found}
        return [answers[column] for column in range(len(self.queries))]

    def _answer(self, column: int, places: BoundedPlaces) -> Personalized:
        k = self.queries[column].k
        return Personalized(
            vertices=places.vertices[:k],
            # a negative entry is so by less than the error
            ranks=np.maximum(places.values[:k], 0.0) / self._gate(column).divisor(),
            error_bound=min(2.0, float(self.error_bounds[column])),
            **ProvenPlaces.of(*places.certified(k))._asdict(),
            method="pull",
            iterations=self.iterations,
        )

    def _found(self, columns: Sequence[int]) -> list[BoundedPlaces]:
        """The places of these queries, ascending, and one more of each, or all there are."""
        errors, tops, found = self._certificate.solution_error, self._top_k(columns), []
        for column in columns:
            query, (ids, values) = self.queries[column], tops[column]
            # nothing is behind the last of all
            others = values[-1] if len(ids) > query.k else -np.inf
            places = BoundedPlaces.by_gaps(ids, values, float(errors[column]), others)
            highest_but = partial(self._highest_but, column)
            found.append(Tying(places, values, query.seeds, query.among, highest_but))
        return with_ties(self._vertices, found)

    def _highest_but(self, column: int, excluded: NDArray[np.int64]) -> float:
        """An upper bound on the exact values of a query's vertices without these."""
        among, found = self.queries[column].among, self._vertices
        rows, xp = found.rows_of(excluded)[0], self.graph.backend.xp
        if among is None:
            # a copy, since reductions of a column that is not contiguous are slow
            values = self._values[:, column].copy()
            values[self.graph.free] = -np.inf
        else:
            places = found.rows_of(among)[0]
            values, rows = self._values[places, column], xp.flatnonzero(xp.isin(places, rows))
        values[rows] = -np.inf
        highest = float(values.max()) if len(values) else -np.inf
        return found.highest(highest) + float(self._certificate.solution_error[column])

    def _top_k(self, columns: Sequence[int]) -> list[TopK]:
        """Ids and values of the places of each of these queries and one more, or all there are;
        nothing of the others.
        """
        graph, found = self.graph, self._vertices
        wanted = np.zeros(len(self.queries), np.int64)
        for column in columns:
            query = self.queries[column]
            wanted[column] = min(query.k + 1, query.count(graph.ids))
        counts = np.minimum(wanted, graph.vertices - len(graph.free))
        among_some = [column for column in columns if self.queries[column].among is not None]
        counts[among_some] = 0
        tops = [(np.empty(0, np.int64), np.empty(0))] * len(counts)
        if counts.any():
            with without(self._values, graph.free):
                tops = found.top_k_columns(self._values, counts)
        for column in among_some:
            among = self.queries[column].among
            assert among is not None
            rows = found.rows_of(among)[0]
            values = self._values[rows, column]
            most = min(int(wanted[column]), len(values))
            places, best = graph.backend.select.top_k(values, most)
            tops[column] = found.ids_of(rows[graph.backend.device.to_device(places)]), best
        return found.merged_columns(tops, wanted)
