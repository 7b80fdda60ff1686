"""One personalized query, solved alone.

The methods are ours; those of Wang et al. are in liverank_gpu.personalized.published. They are the
two phases of the solver in different order:

``push``    work-lists only, at a falling threshold. The cost is the edges that it follows, whatever
            the graph's size.
``pull``    dense sweeps over the in-lists only. The cost is that of the graph, but an edge costs a
            fraction of a pushed one, and deflation removes the slowest error.
``hybrid``  push first, then pull. After each call of a push it is predicted what pushes and sweeps
            would cost from there to the target (liverank_gpu.personalized.forecast). It pulls from
            then on if sweeps seem cheaper, or if the next work-list alone is too long. Nothing is
            lost: sweeps continue where pushes end. Costs are counted, so no clock decides how a
            query is solved.

A query runs in steps of at most about a sweep, so that the owner of the device can do something
else between them. A batch between two steps perturbs the residual, and the query continues.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from liverank_gpu.operations.device import Array
from liverank_gpu.operations.graph import GraphUpdate
from liverank_gpu.pagerank.certificate import StallRule
from liverank_gpu.pagerank.gate import Gate
from liverank_gpu.pagerank.places import CHECK, GraphVertices
from liverank_gpu.pagerank.ranks import Ranks
from liverank_gpu.pagerank.solver import push_step, push_to_target
from liverank_gpu.personalized.certified_top_k import CertifiedTopK, certified_top_k
from liverank_gpu.personalized.forecast import (
    DOUBT,
    DeflationHistory,
    DeflationSource,
    DeflationTrial,
    Forecast,
    PushForecast,
    first_bound,
)
from liverank_gpu.personalized.iterate import SEED_CORRECTION, PersonalizedIterate, WorkspacePool
from liverank_gpu.personalized.resolve import ResolvedQuery
from liverank_gpu.types import LARGEST_ERROR, Options, Personalized, Trace, TraceStep

_CALL, _GROWTH = 1.0 / 64.0, 0.25
"""A call of a push costs this part of what it is compared with, or this part of what all calls did
so far, if that is more.
"""

_LIST = 1.0 / 12.0
"""What one work-list may cost of a query without pushes: a longer one ends them."""

_AFTER_PUSHES = 1.5
"""How many times as many sweeps it takes after pushes as the bound says: what those removed is what
sweeps are fast at, too.
"""

_MOST_SWEEPS, _LONGEST_SWEEPS = 0.5, 2.0
"""The most that a call may cost, and its last work-list, in sweeps."""

_CORRECTED_SWEEPS = 4
"""Seed correction is given up if this many sweeps with it were no better than plain ones can be."""

_NOTHING_GAINED = 2.0
"""A query whose correction is given up with a bound above this, which proves nothing, starts again,
by plain sweeps alone: k of them have a bound of at most 2αᵏ / (1 - αᵏ). The bound is that
large where the correction left little of β.
"""


class QueryContext:
    """What the queries of one graph share.

    pool       workspaces
    options    of the graph
    source     the global ranks as a direction for deflation
    vertices   of the graph; where it is a shard, those that it owns
    history    what deflation trials have shown
    forecast   what queries will cost
    turned     what the batch that is being followed did, where the graph is a reversed one
    """

    def __init__(
        self,
        pool: WorkspacePool,
        options: Options,
        source: DeflationSource,
        vertices: GraphVertices | None = None,
    ) -> None:
        self.pool = pool
        self.vertices = vertices or GraphVertices(pool.graph)
        self.graph = self.vertices.graph
        self.options = options
        self.source = source
        self.history = DeflationHistory()
        self.forecast = Forecast(self.graph)
        self.turned: GraphUpdate | None = None

    def trial(self, options: Options, target_error: float) -> DeflationTrial:
        """The deflation trial of queries with these options. The image of the global ranks is known
        for the damping of the graph alone.
        """
        source = self.source if options.damping == self.options.damping else no_deflation
        return DeflationTrial(self.history, source, target_error)


def no_deflation(_: float) -> None:
    """No direction is known."""


class Query:
    """A running query: `step` until `done`, then `answer`; `close` in any case.

    iterate  its vector
    pulling  whether it continues by dense sweeps
    refused  why what it came to first was no answer, so that it began again by plain sweeps; or
             None (liverank_gpu.pagerank.gate)
    Raises OutOfMemory.
    """

    def __init__(
        self, context: QueryContext, query: ResolvedQuery, block_cost: float | None = None
    ) -> None:
        """block_cost  what it is predicted to cost in a block, which it joins when it is to pull;
        None if it is solved alone
        """
        self.query = query
        self.iterations = 0
        self.refused: str | None = None
        self._limit = query.options.max_iterations
        self._pool = context.pool
        self._forecast, self._block_cost = context.forecast, block_cost
        self._pushed = self._pulled = self._plain = False
        workspace = context.pool.take(list_every_vertex=query.method != "pull")
        self.iterate = PersonalizedIterate(
            context.graph, workspace, query.options, query.seeds, context.vertices
        )
        self._trial = context.trial(query.options, query.target_error)
        self._stall = StallRule(query.options.damping)
        self._steps: list[TraceStep] = []
        self._forecast.spent += self._forecast.start
        self._begin()

    def _begin(self) -> None:
        self._follow()
        self.pulling = self.query.method == "pull" or (
            self.query.method == "hybrid" and self._seeds_are_many()
        )
        if self.query.k < self.query.count(self.iterate.graph.ids):
            # the seeds alone prove no places
            self._next_check = CHECK * float(self.iterate.certificate.residual_l1)

    def _seeds_are_many(self) -> bool:
        """Whether pushing each seed once costs more than a work-list may."""
        if len(self.query.seeds.vertices) == 1:
            return False
        lengths = self.iterate.graph.outgoing.csr.row_lengths[self.iterate.positions]
        return int(self.iterate.graph.total(lengths)) > self._call_edges()[1]

    def _forget_progress(self) -> None:
        residual_l1 = float(self.iterate.certificate.residual_l1)
        self._threshold = 0.5 * residual_l1
        self._next_check = np.inf
        self._places: CertifiedTopK | None = None
        self._bounds: list[float] = []
        self._trial.forget_bounds()
        self._stall.reset()

    @property
    def _damping(self) -> float:
        return self.query.options.damping

    @property
    def _bound(self) -> float:
        return min(self.iterate.error_bound, first_bound(self._damping))

    def renew(self) -> None:
        """Counts iterations, and what they may be, from here on, for a solve after a batch."""
        self.iterations, self.refused = 0, None
        self._limit = self.query.options.max_iterations

    def perturb(self, update: GraphUpdate) -> None:
        """Follows a batch. Raises UnknownVertex if it removed a seed."""
        self.query = self.query.after(update.removed)
        self.iterate.perturb(update)
        self._follow()

    def follows(self, update: GraphUpdate) -> bool:
        """`perturb`. False if memory was short: the update stands, and who asked gets the error
        when the query starts again.
        """
        try:
            self.perturb(update)
        except MemoryError:
            if self.iterate.vertices.divided:
                raise  # which ends the call in all processes
            return False
        return True

    def change(self, query: ResolvedQuery) -> None:
        """Goes on as another query of the same damping: its seeds are others, or its target."""
        self.query = query
        if self.iterate.seeds is not query.seeds:
            self.iterate.change_seeds(query.seeds)
        self._follow()

    def _follow(self) -> None:
        self.done = False
        self.push_forecast = PushForecast(self._forecast, self._bound)
        self._forget_progress()

    def push_dense(self) -> None:
        """Where every vertex may have a residual, pushes the largest, as long as that is cheaper
        than sweeps.
        """
        residual, target = self.iterate.workspace.residual, self.query.target_error
        if self.iterate.certificate.mass > 0.0:
            residual.solve += 1
            rounds, _ = push_to_target(self.iterate, target)
            self.iterations += rounds
            self._pushed = self._pushed or rounds > 0
            self.done = self.iterate.error_bound <= target
            self._forget_progress()

    def suspend(self) -> None:
        """Gives the workspace back until `continue_alone`; not if it is dense."""
        self._pool.give_back(self.iterate.pack())

    def continue_alone(self) -> None:
        """Goes on pushing, without a block to join."""
        self.iterate.unpack(self._pool.take(list_every_vertex=True))
        self._block_cost, self.pulling = None, self.iterate.dense

    def resume(self, values: Array, rhs_scale: float, iterations: int) -> None:
        """Continues by sweeps where a block has come.

        values      float64[n], y
        rhs_scale   its β
        iterations  how many it took
        """
        self.iterate.resume(values, rhs_scale)
        self._forecast.spent += self._forecast.sweep
        self.iterations = iterations
        self.pulling = self._pulled = True
        self._forget_progress()

    def start_from(self, values: Array, rhs_scale: float) -> None:
        """Begins at another y and β, of which nothing is known: see `resume`."""
        self.resume(values, rhs_scale, 0)
        self._check_target()

    def step(self) -> None:
        """Continues, by about a sweep's work at most."""
        self._places = None
        pushing, deflated = not self.pulling, False
        if pushing:
            self._push()
        elif not self.done:
            deflated = self._pull()
        self._check_target()
        if pushing and (self.done or self.pulling) and self._block_cost is None:
            target = self.query.target_error
            self._forecast.record_pushes(self.push_forecast, self._damping, target)
        if self.done and self.refused is None and not self._is_proven:
            self._pass_gate()
        if self.done and self._bounds:
            sweeps = len(self._bounds) - 1
            self._forecast.record(self._damping, self._bounds[0], self._bounds[-1], sweeps)
        if deflated:
            bounds = np.array([self.iterate.error_bound])
            fails = self._trial.fails(bounds, np.zeros(1, np.bool_), self.done)
            if fails and 2 * self.iterations <= self.iterate.options.max_iterations:
                self._start_again()

    def _start_again(self, plain: bool = False) -> None:
        """plain: without correction from then on, after later batches too"""
        self.iterate.restart()
        self._begin()
        self.pulling, self._plain = True, self._plain or plain

    def _pass_gate(self) -> None:
        """Starts again, by plain sweeps, where what was found is no answer."""
        self.refused = self._gate.fault()
        if self.refused is not None:
            self._limit = self.iterations + self.iterate.options.max_iterations
            self._start_again(plain=True)

    @property
    def _gate(self) -> Gate:
        iterate = self.iterate
        mass, bound = float(iterate.certificate.mass), iterate.error_bound
        return Gate(mass, bound, lambda: iterate.workspace.values, iterate.vertices)

    # ---- push ----

    def _push(self) -> None:
        iterate = self.iterate
        edges, round_edges = self._call_edges()
        pushed = iterate.push_to(self._push_target(), self._threshold, round_edges, edges)
        if pushed is None:
            self.done, self.pulling = self.query.method == "push", True
            return
        self._pushed = self._pushed or pushed.rounds > 0
        self.iterations += pushed.rounds
        self.push_forecast.record(pushed, self._bound)
        self._threshold = pushed.threshold
        if self.query.trace:
            self._steps.append(push_step(pushed, iterate.error_bound))
        ended = pushed.end == "floor" or self.iterations >= self._most_rounds
        if self.query.method == "push":
            self.done = ended
            return
        # not all work was used, so the next work-list alone is too long
        costs = iterate.graph.backend.costs
        stuck = pushed.end == "work" and costs.of_push(pushed) <= edges * costs.pushed_edge
        self.pulling = iterate.dense or stuck or ended or not self._push_pays()
        if ended:
            # rounds of a few vertices each are no sweeps
            self._limit = self.iterations + iterate.options.max_iterations
        sweeps = self.pulling and self._block_cost is None and iterate.certificate.mass > 0.0
        if sweeps and not self._trial.expected:
            iterate.correct_at_seeds()

    def _push_target(self) -> float:
        """The bound that a push may run to without a check of the places."""
        if self.query.target == "error":
            return self.query.target_error
        bound = min(self.iterate.error_bound, 2.0 / CHECK)
        return max(self.query.target_error, CHECK * bound)

    def _call_edges(self) -> tuple[int, int]:
        """The most edges of a call of a push, and of one work-list."""
        forecast, most = self.push_forecast, _MOST_SWEEPS * self._forecast.sweep
        if self.query.method == "push":
            return forecast.edges(most), self.iterate.graph.arcs + 1
        work = max(_CALL * self._pull_cost, _GROWTH * forecast.spent)
        whole = self._cost_without_pushes(first_bound(self._damping))
        longest = min(_LIST * whole, _LONGEST_SWEEPS * self._forecast.sweep)
        return forecast.edges(min(work, most)), forecast.edges(longest)

    @property
    def _pull_cost(self) -> float:
        """What it is predicted to cost if it pushes no more."""
        return self._cost_without_pushes(self._bound)

    def _cost_without_pushes(self, bound: float) -> float:
        if self._block_cost is not None:
            return self._block_cost
        by_sweeps = self._forecast.by_sweeps(self._damping, bound, self.query.target_error)
        return _AFTER_PUSHES * by_sweeps

    @property
    def push_left(self) -> float:
        """What its pushes are predicted to cost still; infinite if it cannot go on."""
        if self._pulled or (self.iterate.dense and not self.iterate.packed):
            return np.inf
        return self.push_forecast.left(self.query.target_error)

    def _push_pays(self) -> bool:
        # sweeps continue where pushes end, so that nothing is lost; a block begins again
        if self._block_cost is None:
            return self._forecast.pushes_pay and self.push_left <= self._pull_cost
        return DOUBT * self.push_left <= self._pull_cost

    @property
    def _most_rounds(self) -> int:
        return 1000 * self.iterate.options.max_iterations

    # ---- pull ----

    def _pull(self) -> bool:
        """One sweep. Whether it was deflated along the global ranks."""
        iterate = self.iterate
        self._pulled = True
        self.iterations += 1
        corrected = self._corrected
        if not (corrected or self._plain) and iterate.error_bound > _NOTHING_GAINED:
            self._start_again(plain=True)
        deflation = self._trial.deflation() if corrected else None
        along_seeds = SEED_CORRECTION if corrected else None
        iterate.sweep(self._pool.buffers(), deflation or along_seeds)
        self._forecast.spent += self._forecast.sweep
        bound = iterate.error_bound
        if self.query.trace:
            direction: Literal["ranks", "seeds"] = "ranks" if deflation else "seeds"
            self._steps.append(
                TraceStep(
                    "sweep",
                    1,
                    iterate.graph.ids.count,
                    iterate.graph.arcs,
                    error_bound=bound,
                    deflation=direction if corrected else None,
                )
            )
        self._bounds.append(bound)
        self.done = bool(self._stall.stalled(bound)) or self.iterations >= self._limit
        return deflation is not None

    @property
    def _corrected(self) -> bool:
        """Whether the next sweep makes Σr = 0."""
        if self._plain:
            return False
        if len(self._bounds) <= _CORRECTED_SWEEPS:
            return True
        # a plain sweep leaves at most α of ‖r‖₁
        first, last = self._bounds[-1 - _CORRECTED_SWEEPS], self._bounds[-1]
        return last < first * (0.99 * self.iterate.options.damping) ** _CORRECTED_SWEEPS

    # ---- the end ----

    def _check_target(self) -> None:
        iterate, target = self.iterate, self.query.target
        residual_l1 = float(iterate.certificate.residual_l1)
        if iterate.error_bound <= self.query.target_error:
            self.done = True
        elif target != "error" and residual_l1 <= self._next_check:
            self._places = certified_top_k(iterate, self.query.k, self.query.among, target)
            self.done = self.done or self._is_proven
            self._next_check = self._places.next_check

    @property
    def _is_proven(self) -> bool:
        """Whether the target of its places is met, which can be before Σy is positive."""
        places, positive = self._places, self.iterate.certificate.mass > 0.0
        return (
            positive and places is not None and self.query.is_proven(places.proven, places.values)
        )

    def places(self) -> CertifiedTopK:
        """The places now."""
        return self._places or certified_top_k(self.iterate, self.query.k, self.query.among)

    def answer(self, places: CertifiedTopK | None = None) -> Personalized:
        """The places now, with a certificate that holds at any time.

        places  what `places` returned, if it was called before
        """
        iterate, places = self.iterate, places or self.places()
        used = [name for name, ran in (("push", self._pushed), ("pull", self._pulled)) if ran]
        return Personalized(
            vertices=places.vertices,
            # a negative entry is so by less than the error
            ranks=np.maximum(places.values, 0.0) / self._gate.divisor(),
            error_bound=min(2.0, iterate.error_bound),
            **places.proven._asdict(),
            method=used[0] if len(used) == 1 else self.query.method,
            iterations=self.iterations,
            trace=self.trace(),
            refused=self.refused,
        )

    def trace(self) -> Trace | None:
        """What it did, if that was asked for."""
        if not self.query.trace:
            return None
        return Trace.of(len(self.query.seeds.vertices), self.iterations, self._steps)

    def ranks(self) -> Ranks:
        """All ranks now, published."""
        iterate = self.iterate
        graph = iterate.graph
        values = graph.backend.xp.maximum(iterate.workspace.values, 0.0)
        bound, divisor = min(LARGEST_ERROR, iterate.error_bound), self._gate.divisor()
        ranked = (graph.backend, graph.permutation, values, divisor, bound, graph.free)
        return Ranks(*ranked, None, iterate.rhs_scale)

    def close(self) -> None:
        """Gives the workspace back."""
        self._pool.give_back(self.iterate.workspace)
