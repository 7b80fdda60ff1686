"""The table of strategies. liverank_gpu.pagerank.solver runs them.

Sources: static and dynamic-frontier-prune, Sahu, "Efficient GPU Implementation of Static and
Incrementally Expanding DF-P PageRank" (2024), algorithms 1 and 2; dynamic-traversal, Desikan et al.
(2005).
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypedDict, get_args

from liverank_gpu.errors import InvalidValue, NotConverged
from liverank_gpu.pagerank.places import SETTLED_TARGETS, ProvenPlaces, RankTies, SettledTarget
from liverank_gpu.types import Fallback, Form, Options, Result, Unconverged


@dataclass(frozen=True, slots=True)
class Strategy:
    """One row of the table.

    start     what the iteration starts from: ``uniform`` or the ``previous`` ranks
    affected  which vertices are recomputed: ``all``; those ``reachable`` from a touched source
              before or after the batch; a ``frontier``, the out-neighbours of touched sources
              before or after it; or those whose ``residual`` is above a falling threshold, until
              the proven bound is at most target_error
    expands   a vertex that moved by more than frontier_tolerance makes its out-neighbours affected
    prunes    a vertex that moved by at most prune_tolerance leaves the affected set

    All but ``residual`` stop when no normalised rank moved by more than tolerance.
    """

    start: Literal["uniform", "previous"]
    affected: Literal["all", "reachable", "frontier", "residual"]
    expands: bool = False
    prunes: bool = False


TABLE: dict[str, Strategy] = {
    "auto": Strategy("previous", "residual"),
    "static": Strategy("uniform", "all"),
    "naive-dynamic": Strategy("previous", "all"),
    "dynamic-traversal": Strategy("previous", "reachable"),
    "dynamic-frontier": Strategy("previous", "frontier", expands=True),
    "dynamic-frontier-prune": Strategy("previous", "frontier", expands=True, prunes=True),
    "residual": Strategy("previous", "residual"),
}

STRATEGIES: tuple[str, ...] = tuple(TABLE)


class Outcome(TypedDict, total=False):
    """Members of liverank_gpu.types.Result that are seldom there."""

    settled: int | None
    settled_set: bool | None
    fallback: Fallback | None
    refused: str | None


@dataclass(frozen=True, slots=True)
class Solved:
    """What a run of a strategy did; its ranks are in the iterate. See liverank_gpu.types.Result.

    proven  about the first places, if they were to be settled
    ties    vertices to publish with equal ranks, if places were to be settled
    fallback, refused  what replaced the ranks, and why: see liverank_gpu.types.Result
    positive  whether ranks that had passed the gate were changed by nothing that can make them
              negative
    """

    iterations: int
    touched_vertices: int
    converged: bool
    proven: ProvenPlaces | None = None
    ties: RankTies | None = None
    fallback: Fallback | None = None
    refused: str | None = None
    positive: bool = False

    @property
    def outcome(self) -> Outcome:
        """The last members of the result."""
        found: Outcome = {"fallback": self.fallback, "refused": self.refused}
        if self.proven is not None:
            settled, settled_set = self.proven.settled, self.proven.settled_set
            found |= {"settled": settled, "settled_set": settled_set}
        return found


def strategy_named(name: str) -> Strategy:
    """The row of this name. Raises InvalidValue, which lists the names."""
    if name not in TABLE:
        raise InvalidValue("strategy", name, "one of " + ", ".join(STRATEGIES))
    return TABLE[name]


def forms_of(strategy: Strategy, options: Options) -> tuple[Form, ...]:
    """The forms in which a strategy can run on a graph, the default first."""
    if strategy.affected == "residual":
        return ("accelerated",)
    first: Form = options.form
    return (first, "accelerated" if first == "published" else "published")


def tell_unconverged(result: Result, target_error: float, settle: int, how: Unconverged) -> None:
    """Warns the caller's caller of a solve that has not converged, or raises NotConverged. One that
    was to settle places need not, if the bound meets the target: see Result.settled.
    """
    met = result.error_bound <= target_error
    if how == "ignore" or result.converged or (settle and met):
        return
    goal = f"strategy {result.strategy!r} has not met its stop rule"
    if TABLE[result.strategy].affected == "residual":
        goal = f"target_error is {target_error:.1e}"
    tell(NotConverged(result.iterations, result.error_bound, goal), how)


def tell(unconverged: NotConverged, how: Unconverged) -> None:
    """Warns the caller's caller's caller, or raises it."""
    if how == "raise":
        raise unconverged
    if how == "warn":
        warnings.warn(unconverged, stacklevel=4)


def checked_unconverged(how: Unconverged) -> Unconverged:
    """The same. Raises InvalidValue."""
    if how not in get_args(Unconverged):
        raise InvalidValue("unconverged", how, "one of " + ", ".join(get_args(Unconverged)))
    return how


class Solve(NamedTuple):
    """How to rank: the arguments of Engine.update."""

    strategy: str = "auto"
    form: Form | None = None
    trace: bool = False
    settle: int = 0
    target: SettledTarget = "settled-top-k"

    def checked(self, options: Options) -> Solve:
        """The same with the form that runs on a graph with these options. Raises InvalidValue for
        an unknown strategy or target, for a form that the strategy does not have, and for places to
        settle by a strategy that stops without regard to the bound.
        """
        strategy = strategy_named(self.strategy)
        if self.settle < 0:
            raise InvalidValue("settle", self.settle, "a number of places, not negative")
        if self.target not in SETTLED_TARGETS:
            raise InvalidValue("target", self.target, "one of " + ", ".join(SETTLED_TARGETS))
        if self.settle and strategy.affected != "residual":
            reason = "'auto' or 'residual' where places are to be settled"
            raise InvalidValue("strategy", self.strategy, reason)
        forms = forms_of(strategy, options)
        if self.form is None:
            return self._replace(form=forms[0])
        if self.form not in get_args(Form):
            raise InvalidValue("form", self.form, "one of " + ", ".join(get_args(Form)))
        if self.form not in forms:
            reason = f"'accelerated' where strategy is {self.strategy!r}"
            raise InvalidValue("form", self.form, reason)
        return self
