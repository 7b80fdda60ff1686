"""Personalized PageRank: ranks as seen from a few seeds, by one query at a time.

The methods are the two phases of the solver (gpu.walk), in different order:

``push``    work-lists only (Wang et al., section 2: messages are added first, and a vertex is put
            on the next list once, when it has become large). Its cost is the edges that it walks
            over, whatever the graph's size.
``pull``    dense sweeps over the in-lists only (section 3). Their cost is that of the graph, but an
            edge costs a fraction of a pushed one, and centring takes the slowest error out.
``hybrid``  push first, then pull. Before each iteration the cost of either is known in the same
            unit, the time of one pulled edge (section 4, the score Ψ of Wang et al.):

                Ψ = push_cost · (out-edges of the next work-list) - 0.1 · (m + n)

            (a tenth of a sweep, since a sweep pushes all that there is). Push goes on while Ψ < 0
            and while it pays: as long as the work of each tenth of a sweep brings ‖r‖₁ down by what
            a tenth of a sweep of pull does where pull is good. The costs are measured once for each
            backend, so that no clock decides which way a query takes.

A query is made in steps of at most about a sweep, so that whoever has the device can do something
else between them; a batch between two steps perturbs the residual, and the query goes on.
"""

from __future__ import annotations

from typing import Literal, get_args

import numpy as np

from gpu.background import FIRST_LOOK, Background, Trials, gains
from gpu.errors import InvalidValue
from gpu.graph import Applied, Graph, Loaded
from gpu.seeds import Seeds
from gpu.settled import Leading, leading
from gpu.state import State
from gpu.types import Options, Personalized, Ranking
from gpu.walk import Shares, Space, Walk

Method = Literal["hybrid", "push", "pull"]
METHODS: tuple[Method, ...] = get_args(Method)

Target = Literal["error", "settled-top-k"]
TARGETS: tuple[Target, ...] = get_args(Target)
"""When a query ends: its error bound is at most ``target_error``; or its first k places are
settled, at the latest then.
"""

_ROUND_SWEEPS = 0.1
"""Ψ = 0: what a work-list may cost, in sweeps."""

_JUDGED_SWEEPS = 0.1
_PULL_PROGRESS = 0.5
"""What a sweep is expected to leave of ‖r‖₁; push has to be as good, seen over so much work."""

_CHECK, _SELDOM_CHECK = 0.25, 1e-3
"""`settled-top-k` looks at the places again when ‖r‖₁ is so much of what it was then: sooner where
the gaps between them say that it may be enough.
"""

_STALLED_SWEEPS = 8
"""Sweeps without progress after which a bound is taken to have met the limit of rounding."""

_CENTRED_SWEEPS = 4
"""Centring is given up where so many sweeps with it were no better than sweeps without can be."""


_SPACES_KEPT, _EVERYWHERE_KEPT = 2, 1
"""For as many queries as are usually at work at once, and for one by push alone."""


class Spaces:
    """What walks on one graph share: arrays, kept from query to query, since new ones cost a pass
    over n; and the global ranks.

    leaning  whether queries try to lean on those
    """

    def __init__(self, graph: Graph, state: State) -> None:
        self.graph = graph
        self.leaning = Trials()
        self._state = state
        self._free: list[Space] = []
        self._shares: Shares | None = None

    def take(self, everywhere: bool = False) -> Space:
        """A clean space. Raises OutOfMemory.

        everywhere  whether its list has room for every vertex
        """
        fitting = [space for space in self._free if space.everywhere == everywhere]
        if fitting:
            self._free.remove(fitting[-1])
        space = fitting[-1] if fitting else Space(self.graph, everywhere)
        space.grow()
        return space

    def give(self, space: Space) -> None:
        """Takes a space back, and cleans it."""
        space.clean()
        kept = sum(other.everywhere == space.everywhere for other in self._free)
        if kept < (_EVERYWHERE_KEPT if space.everywhere else _SPACES_KEPT):
            self._free.append(space)

    def shares(self) -> Shares:
        """Shares of all vertices, to compute in."""
        vertices = self.graph.vertices
        if self._shares is None or self._shares.room < vertices:
            self._shares = None  # before there are others
            self._shares = Shares(self.graph, vertices + vertices // 8)
        return self._shares

    def background(self, target_error: float) -> Background | None:
        """The global ranks as they are now, for walks to that error to lean on, if they are fit."""
        return self._state.background(target_error)

    @property
    def nbytes(self) -> int:
        kept = sum(space.nbytes for space in self._free)
        return kept + (self._shares.nbytes if self._shares else 0)


class Query:
    """One query at work: `step` until `done`, then `answer`; `close` in any case.

    pulling  whether it goes on by dense sweeps
    Raises InvalidValue for what cannot be asked, OutOfMemory.
    """

    def __init__(
        self,
        spaces: Spaces,
        options: Options,
        seeds: Seeds,
        k: int,
        method: str = "hybrid",
        target_error: float | None = None,
        target: str = "error",
    ) -> None:
        self.k = k
        self.target_error = options.target_error if target_error is None else target_error
        check_query(k, method, self.target_error, target)
        self.method = method
        self.target = target
        self.iterations = 0
        self.pushed = self.pulled = False
        self._spaces = spaces
        self.walk = Walk(spaces.take(everywhere=method == "push"), options, seeds)
        # known once it pulls, as long as there is a background
        self._leans: bool | None = None
        self._begin()

    def _begin(self) -> None:
        self.done = False
        self.pulling = self.method == "pull"
        self._threshold = 0.5 * self.walk.l1
        self._judged = (0.0, self.walk.l1)  # work since, ‖r‖₁ then
        self._next_check = np.inf
        self._leading: Leading | None = None
        self._centred: list[float] = []
        self._leant: list[Ranking] = []
        self._best, self._stalled = np.inf, 0

    @property
    def sweep_work(self) -> float:
        """What a sweep costs, in pulled edges."""
        return float(self.walk.graph.edges + self.walk.graph.vertices)

    def perturb(self, applied: Applied | Loaded) -> None:
        """Follows a batch."""
        self.walk.perturb(applied)
        self.done, self._leading, self._next_check = False, None, np.inf
        # what it gained before says nothing of what it will
        self._centred, self._leant = [], []
        self._best, self._stalled = np.inf, 0
        self._threshold = 0.5 * self.walk.l1
        self._judged = (0.0, self.walk.l1)

    def step(self) -> None:
        """Goes on, by about a sweep's work at most."""
        self._leading = None
        leant = False
        if not self.pulling:
            self._push()
        elif not self.done:
            leant = self._pull()
        self._judge()
        if leant:
            self._judge_leaning()

    def _aim(self) -> float:
        """The bound that a push may run to without a look at the places."""
        if self.target == "error":
            return self.target_error
        return max(self.target_error, _CHECK * min(self.walk.error_bound, 2.0 / _CHECK))

    def _push(self) -> None:
        walk, backend = self.walk, self.walk.graph.backend
        slice_edges = int(self.sweep_work / backend.push_cost) + 1
        round_edges = slice_edges if self.method == "hybrid" else walk.graph.edges + 1
        if self.method == "hybrid":
            round_edges = int(_ROUND_SWEEPS * round_edges)
            slice_edges = int(_JUDGED_SWEEPS * slice_edges) + 1
        pushed = walk.push(self._aim(), self._threshold, round_edges, slice_edges)
        if pushed is None:
            self.done, self.pulling = self.method == "push", True
            return
        self.pushed = self.pushed or pushed.rounds > 0
        self.iterations += pushed.rounds
        self._threshold = pushed.threshold
        work, before = self._judged
        work += pushed.change.edges * backend.push_cost
        if self.method == "push":
            self.done = pushed.ended == "floor" or self.iterations >= self._most_rounds
            return
        slow = False
        if work >= _JUDGED_SWEEPS * self.sweep_work:
            slow = walk.l1 > before * _PULL_PROGRESS ** (work / self.sweep_work)
            work, before = 0.0, walk.l1
        self._judged = (work, before)
        stuck = pushed.ended == "work" and pushed.rounds == 0
        self.pulling = walk.dense or stuck or slow or pushed.ended == "floor"
        if self.pulling and walk.total > 0.0 and not self._will_lean:
            walk.centre()

    @property
    def _most_rounds(self) -> int:
        # rounds of a few vertices each are no sweeps
        return 1000 * self.walk.options.max_iterations

    def _pull(self) -> bool:
        """One sweep; whether it leant."""
        walk = self.walk
        self.pulled = True
        self.iterations += 1
        background = self._background() if self._centring else None
        walk.sweep(self._spaces.shares(), self._centring, background)
        bound = walk.error_bound
        self._centred.append(bound)
        progress = bound < self._best * (1.0 + walk.options.damping) / 2.0
        self._best, self._stalled = (bound, 0) if progress else (self._best, self._stalled + 1)
        limit = walk.options.max_iterations
        self.done = self._stalled == _STALLED_SWEEPS or self.iterations >= limit
        return background is not None

    def _background(self) -> Background | None:
        """What the next sweep leans on."""
        if self._leans is False:
            return None
        background = self._spaces.background(self.target_error)
        if self._leans is None and background is not None:
            self._leans = self._spaces.leaning.take_turn()
        return background if self._leans else None

    @property
    def _will_lean(self) -> bool:
        leans = self._spaces.leaning.due if self._leans is None else self._leans
        return leans and self._spaces.background(self.target_error) is not None

    def _judge_leaning(self) -> None:
        """Does without where it does not pay: begins anew, if there are sweeps enough."""
        self._leant.append(np.array([self.walk.error_bound]))
        gained = bool(gains(self._leant).all())
        if not self.done and not gained:
            self._leans = False
            self._spaces.leaning.ended(gained=False)
            if 2 * self.iterations <= self.walk.options.max_iterations:
                self.walk.restart()
                self._begin()
        elif self.done and gained and len(self._leant) >= FIRST_LOOK:
            self._spaces.leaning.ended(gained=True)

    @property
    def _centring(self) -> bool:
        seen = self._centred
        if len(seen) <= _CENTRED_SWEEPS:
            return True
        # a sweep without leaves at most α of ‖r‖₁
        first, last = seen[-1 - _CENTRED_SWEEPS], seen[-1]
        return last < first * (0.99 * self.walk.options.damping) ** _CENTRED_SWEEPS

    def _judge(self) -> None:
        walk = self.walk
        if walk.error_bound <= self.target_error:
            self.done = True
        elif self.target == "settled-top-k" and walk.l1 <= self._next_check:
            self._leading = leading(walk, self.k)
            self.done = self.done or self._leading.settled >= min(self.k, walk.graph.vertices)
            self._next_check = walk.l1 * _SELDOM_CHECK
            self._next_check = max(self._next_check, min(walk.l1 * _CHECK, self._leading.enough))

    def answer(self) -> Personalized:
        """The places as they are now, with a certificate that is true at any time."""
        walk = self.walk
        places = self._leading or leading(walk, self.k)
        total = walk.total if walk.total > 0.0 else 1.0
        ways = [name for name, used in (("push", self.pushed), ("pull", self.pulled)) if used]
        return Personalized(
            vertices=places.vertices,
            # what is below 0 is so by less than the error
            ranks=np.maximum(places.values, 0.0) / total,
            error_bound=min(2.0, walk.error_bound),
            settled=places.settled,
            method=ways[0] if len(ways) == 1 else self.method,
            iterations=self.iterations,
        )

    def close(self) -> None:
        """Gives the arrays back."""
        self._spaces.give(self.walk.space)


def check_query(k: int, method: str, target_error: float, target: str) -> None:
    """Raises InvalidValue for what cannot be asked."""
    if k < 1:
        raise InvalidValue("k", k, "at least 1")
    if method not in METHODS:
        raise InvalidValue("method", method, "one of " + ", ".join(METHODS))
    if not 0.0 < target_error <= 2.0:
        raise InvalidValue("target_error", target_error, "a number above 0 and at most 2")
    if target not in TARGETS:
        raise InvalidValue("target", target, "one of " + ", ".join(TARGETS))
