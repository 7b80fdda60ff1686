"""One personalized query, solved alone.

The methods are ours; those of Wang et al. are in gpu.personalized.published. They are the two
phases of the solver in different order:

``push``    work-lists only, at a falling threshold. The cost is the edges that it follows, whatever
            the graph's size.
``pull``    dense sweeps over the in-lists only. The cost is that of the graph, but an edge costs a
            fraction of a pushed one, and deflation removes the slowest error.
``hybrid``  push first, then pull. Before each iteration the cost of either is known in the same
            unit, the time of one pulled edge (after the score Ψ of Wang et al.):

                Ψ = pushed_edge · (out-edges of the next work-list) - 0.1 · (m + n)

            (a tenth of a sweep, since a sweep pushes everything). Push goes on while Ψ < 0 and
            while it pays: as long as its work reduces ‖r‖₁ by what that part of a sweep does where
            pull is good, over a tenth of a sweep at first, then over as much as has paid so far.
            Costs are measured once for each backend, so no clock decides how a query is solved.

A query runs in steps of at most about a sweep, so that the owner of the device can do something
else between them. A batch between two steps perturbs the residual, and the query continues.
"""

from __future__ import annotations

from typing import Literal

import numpy as np

from gpu.operations.update import GraphUpdate
from gpu.pagerank.bounded_places import CHECK
from gpu.pagerank.certificate import StallRule
from gpu.pagerank.vertices import GraphVertices
from gpu.personalized.certified_top_k import CertifiedTopK, certified_top_k
from gpu.personalized.deflation_trial import DeflationHistory, DeflationSource, DeflationTrial
from gpu.personalized.iterate import SEED_CORRECTION, PersonalizedIterate
from gpu.personalized.resolve import ResolvedQuery
from gpu.personalized.workspace import WorkspacePool
from gpu.trace import Trace, TraceStep
from gpu.types import Options, Personalized

_ROUND_SWEEPS = 0.1
"""Ψ = 0: what a work-list may cost, in sweeps."""

_JUDGED_SWEEPS = 0.1
_PULL_REDUCTION = 0.5
"""What a sweep is expected to leave of ‖r‖₁. Push must be as good, over _JUDGED_SWEEPS of work or
more.
"""

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
    """

    def __init__(
        self,
        pool: WorkspacePool,
        options: Options,
        source: DeflationSource,
        vertices: GraphVertices | None = None,
    ) -> None:
        self.pool = pool
        self.graph = pool.graph
        self.vertices = vertices or GraphVertices(pool.graph)
        self.options = options
        self.source = source
        self.history = DeflationHistory()

    def trial(self, options: Options, target_error: float) -> DeflationTrial:
        """The deflation trial of queries with these options. The image of the global ranks is known
        for the damping of the graph alone.
        """
        source = self.source if options.damping == self.options.damping else _no_deflation
        return DeflationTrial(self.history, source, target_error)


def _no_deflation(_: float) -> None:
    return None


class Query:
    """A running query: `step` until `done`, then `answer`; `close` in any case.

    iterate  its vector
    pulling  whether it continues by dense sweeps
    Raises OutOfMemory.
    """

    def __init__(self, context: QueryContext, query: ResolvedQuery) -> None:
        self.query = query
        self.iterations = 0
        self._pool = context.pool
        self._pushed = self._pulled = self._plain = False
        workspace = context.pool.take(list_every_vertex=query.method == "push")
        self.iterate = PersonalizedIterate(
            context.graph, workspace, query.options, query.seeds, context.vertices
        )
        self._trial = context.trial(query.options, query.target_error)
        self._stall = StallRule(query.options.damping)
        self._steps: list[TraceStep] = []
        self._begin()

    def _begin(self) -> None:
        self.done = False
        self.pulling = self.query.method == "pull" or (
            self.query.method == "hybrid" and self._seeds_are_many()
        )
        self._forget_progress()
        if self.query.k < self.query.count(self.iterate.graph.ids):
            # the seeds alone prove no places
            self._next_check = CHECK * float(self.iterate.certificate.residual_l1)

    def _seeds_are_many(self) -> bool:
        """Whether pushing each seed once costs more than a work-list may."""
        count = len(self.query.seeds.vertices)
        if count == 1:
            return False
        lengths = self.iterate.graph.outgoing.csr.row_lengths[self.iterate.positions]
        edges = int(self.iterate.graph.total(lengths))
        return (
            edges * self.iterate.graph.backend.costs.pushed_edge > _ROUND_SWEEPS * self._sweep_edges
        )

    def _forget_progress(self) -> None:
        residual_l1 = float(self.iterate.certificate.residual_l1)
        self._threshold = 0.5 * residual_l1
        self._judged = (0.0, residual_l1)  # work since, ‖r‖₁ then
        self._paid = 0  # work of pushes, in pushed edges
        self._next_check = np.inf
        self._places: CertifiedTopK | None = None
        self._bounds: list[float] = []
        self._trial.forget_bounds()
        self._stall.reset()

    @property
    def _sweep_edges(self) -> float:
        """Work of a sweep, in pulled edges."""
        return float(self.iterate.graph.arcs + self.iterate.graph.ids.limit)

    def perturb(self, update: GraphUpdate) -> None:
        """Follows a batch. Raises UnknownVertex if it removed a seed."""
        self.query = self.query.after(update.removed)
        self.iterate.perturb(update)
        self.done = False
        self._forget_progress()

    def step(self) -> None:
        """Continues, by about a sweep's work at most."""
        self._places = None
        deflated = False
        if not self.pulling:
            self._push()
        elif not self.done:
            deflated = self._pull()
        self._check_target()
        if deflated:
            bounds = np.array([self.iterate.error_bound])
            if self._trial.fails(bounds, np.zeros(1, np.bool_), self.done):
                self._start_again()

    def _start_again(self) -> None:
        if 2 * self.iterations <= self.iterate.options.max_iterations:
            self.iterate.restart()
            self._begin()

    def _start_plain(self) -> None:
        """Starts again, without correction from then on: after later batches too."""
        self.iterate.restart()
        self._begin()
        self._plain = self.pulling = True

    # ---- push ----

    def _push(self) -> None:
        iterate, costs = self.iterate, self.iterate.graph.backend.costs
        slice_edges = int(self._sweep_edges / costs.pushed_edge) + 1
        round_edges = iterate.graph.arcs + 1
        if self.query.method == "hybrid":
            round_edges = int(_ROUND_SWEEPS * slice_edges)
            least = int(_JUDGED_SWEEPS * slice_edges) + 1
            slice_edges = min(slice_edges, max(least, self._paid))
        pushed = iterate.push_to(self._push_target(), self._threshold, round_edges, slice_edges)
        if pushed is None:
            self.done, self.pulling = self.query.method == "push", True
            return
        self._pushed = self._pushed or pushed.rounds > 0
        self.iterations += pushed.rounds
        work = costs.of_push(pushed)
        self._paid += int(work / costs.pushed_edge)
        self._threshold = pushed.threshold
        if self.query.trace:
            self._steps.append(
                TraceStep(
                    "push",
                    pushed.rounds,
                    pushed.vertices,
                    pushed.delta.additions,
                    threshold=pushed.threshold,
                    error_bound=iterate.error_bound,
                    end=pushed.end,
                )
            )
        if self.query.method == "push":
            self.done = pushed.end == "floor" or self.iterations >= self._most_rounds
            return
        # not all work was used, so the next work-list alone is too long
        stuck = pushed.end == "work" and work <= slice_edges * costs.pushed_edge
        slow = self._push_is_slow(work)
        self.pulling = iterate.dense or stuck or slow or pushed.end == "floor"
        if self.pulling and iterate.certificate.mass > 0.0 and not self._trial.expected:
            iterate.correct_at_seeds()

    def _push_target(self) -> float:
        """The bound that a push may run to without a check of the places."""
        if self.query.target == "error":
            return self.query.target_error
        bound = min(self.iterate.error_bound, 2.0 / CHECK)
        return max(self.query.target_error, CHECK * bound)

    def _push_is_slow(self, work: float) -> bool:
        """Whether the recorded work reduced ‖r‖₁ by less than sweeps would have."""
        residual_l1 = float(self.iterate.certificate.residual_l1)
        work, before = work + self._judged[0], self._judged[1]
        slow = False
        if work >= _JUDGED_SWEEPS * self._sweep_edges:
            slow = residual_l1 > before * _PULL_REDUCTION ** (work / self._sweep_edges)
            work, before = 0.0, residual_l1
        self._judged = (work, before)
        return slow

    @property
    def _most_rounds(self) -> int:
        # rounds of a few vertices each are no sweeps
        return 1000 * self.iterate.options.max_iterations

    # ---- pull ----

    def _pull(self) -> bool:
        """One sweep. Whether it was deflated along the global ranks."""
        iterate = self.iterate
        self._pulled = True
        self.iterations += 1
        corrected = self._corrected
        if not (corrected or self._plain) and iterate.error_bound > _NOTHING_GAINED:
            self._start_plain()
        deflation = self._trial.deflation() if corrected else None
        along_seeds = SEED_CORRECTION if corrected else None
        iterate.sweep(self._pool.buffers(), deflation or along_seeds)
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
        limit = iterate.options.max_iterations
        self.done = bool(self._stall.stalled(bound)) or self.iterations >= limit
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
            self.done = self.done or self._places.proven.meet(target)
            self._next_check = self._places.next_check

    def places(self) -> CertifiedTopK:
        """The places now."""
        return self._places or certified_top_k(self.iterate, self.query.k, self.query.among)

    def answer(self, places: CertifiedTopK | None = None) -> Personalized:
        """The places now, with a certificate that holds at any time.

        places  what `places` returned, if it was called before
        """
        iterate, places = self.iterate, places or self.places()
        mass = float(iterate.certificate.mass)
        used = [name for name, ran in (("push", self._pushed), ("pull", self._pulled)) if ran]
        return Personalized(
            vertices=places.vertices,
            # a negative entry is so by less than the error
            ranks=np.maximum(places.values, 0.0) / (mass if mass > 0.0 else 1.0),
            error_bound=min(2.0, iterate.error_bound),
            **places.proven._asdict(),
            method=used[0] if len(used) == 1 else self.query.method,
            iterations=self.iterations,
            trace=Trace.of(len(self.query.seeds.vertices), self.iterations, self._steps)
            if self.query.trace
            else None,
        )

    def close(self) -> None:
        """Gives the workspace back."""
        self._pool.give_back(self.iterate.workspace)
