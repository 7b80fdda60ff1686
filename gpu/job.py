"""Personalized queries that were asked together: as blocks where that is quicker, else one by one.

A block reads all of the graph again and again. So where the method is ``hybrid`` each query is
first tried alone, by as much pushing as costs little beside its part of a block: one that stays
near its seeds is answered by that, whatever the size of the graph. Where too few do, trials end: a
job makes eight in vain, and two more for each that answered its query, and then lets the rest of
its queries join blocks untried.

A job is made in steps, each of at most about a sweep, so that whoever has the device can do
something else between them, batches too. Answers that are taken together are of one graph: a batch
takes a single query on where it is, by its residual, and lets blocks, and what was answered and not
taken before, begin anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gpu.block import LEAST_TARGET, Asked, Block
from gpu.graph import Applied, Graph, Loaded
from gpu.personalized import Query, Spaces, check_query
from gpu.seeds import Seeds
from gpu.types import Options, Personalized, PersonalizedQuery

_TRIAL_STEPS = 2
"""Steps of push, each of a tenth of a sweep at most, that a query has before it joins a block."""

_TRIALS_IN_VAIN, _FOR_AN_ANSWER = 8, 2
"""So many trials without an answer, and so many more for each that gave one, end a job's trials: a
few tell what the graph is like, and a place in a block costs as much as two or three of them.
"""


@dataclass(frozen=True, slots=True)
class Prepared:
    """A query whose seeds are known to the graph, and whose target error is a number."""

    seeds: Seeds
    query: PersonalizedQuery
    target_error: float

    @classmethod
    def of(cls, vertices: int, options: Options, query: PersonalizedQuery) -> Prepared:
        """Raises InvalidValue for what cannot be asked of a graph of so many vertices."""
        target_error = options.target_error if query.target_error is None else query.target_error
        check_query(query.k, query.method, target_error, query.target)
        return cls(Seeds.of(vertices, query.seeds, query.weights), query, target_error)

    @property
    def fits_a_block(self) -> bool:
        return (
            self.query.method != "push"
            and self.query.target == "error"
            and self.target_error >= LEAST_TARGET
        )


class Job:
    """`step` until `done`, then `answers`, or `take` them as they come; `close` in any case.

    batches   how many have come since it began
    restarts  how many of them made a part of it begin anew
    """

    def __init__(self, spaces: Spaces, options: Options, asked: Sequence[Prepared]) -> None:
        self.batches = self.restarts = 0
        self._graph: Graph = spaces.graph
        self._spaces = spaces
        self._options = options
        self._asked = asked
        self._at_work: Query | Block | None = None
        self._taken: set[int] = set()
        self._in_vain = self._succeeded = 0
        self._plan()

    def _plan(self) -> None:
        """The places of the queries, in the parts in which they will be worked on."""
        self._answers: dict[int, Personalized] = {}
        places = [place for place in range(len(self._asked)) if place not in self._taken]
        together = [place for place in places if self._asked[place].fits_a_block]
        self._width = Block.size(self._graph, max(1, len(together)))
        free = self._graph.backend.memory_available()
        fits = Block.bytes_needed(self._graph, self._width) <= free
        if not fits or len(together) < self._graph.backend.least_columns:
            together = []
        self._tried, self._trials = 0, set[int]()
        if self._trials_pay:
            self._trials.update(
                place for place in together if self._asked[place].query.method == "hybrid"
            )
        self._for_blocks = [place for place in together if place not in self._trials]
        joining = set(self._for_blocks)
        self._parts = [[place] for place in places if place not in joining]
        self._form_blocks()

    def _form_blocks(self) -> None:
        """Of what is left once all else is answered."""
        if self._parts:
            return
        places, width = sorted(self._for_blocks), self._width
        self._for_blocks = []
        blocks = [places[first : first + width] for first in range(0, len(places), width)]
        for block in blocks:
            if len(block) >= self._graph.backend.least_columns:
                self._parts.append(block)
            else:
                self._parts += [[place] for place in block]

    @property
    def done(self) -> bool:
        return not self._parts

    def step(self) -> None:
        """Goes on, by about a sweep's work at most. Raises OutOfMemory."""
        part = self._parts[0]
        if self._at_work is None:
            self._at_work = self._begun(part)
        self._at_work.step()
        alone: list[list[int]] = []
        if isinstance(self._at_work, Block) and self._at_work.done:
            found = zip(part, self._at_work.answers(), self._at_work.lagging, strict=True)
            for place, answer, lagging in found:
                if lagging:
                    alone.append([place])
                else:
                    self._answers[place] = answer
        elif isinstance(self._at_work, Query) and self._at_work.done:
            self._answers[part[0]] = self._at_work.answer()
            if part[0] in self._trials:
                self._trials.remove(part[0])
                self._succeeded += 1
        elif not self._gives_up(part[0]):
            return
        self._parts[:1] = alone
        self.close()
        if self._trials and not self._trials_pay:
            self._end_trials()
        self._form_blocks()

    def _gives_up(self, place: int) -> bool:
        """Whether the query at work is one on trial, and is to join a block now."""
        if place not in self._trials or not isinstance(self._at_work, Query):
            return False
        self._tried += 1
        if self._tried < _TRIAL_STEPS and not self._at_work.pulling:
            return False
        self._trials.remove(place)
        self._for_blocks.append(place)
        self._in_vain += 1
        return True

    @property
    def _trials_pay(self) -> bool:
        return self._in_vain < _TRIALS_IN_VAIN + _FOR_AN_ANSWER * self._succeeded

    def _end_trials(self) -> None:
        """Lets all queries that wait for their trial join a block."""
        self._parts = [part for part in self._parts if part[0] not in self._trials]
        self._for_blocks += self._trials
        self._trials.clear()

    def _begun(self, part: Sequence[int]) -> Query | Block:
        asked = [self._asked[place] for place in part]
        if len(part) > 1:
            return Block(
                self._spaces,
                self._options,
                [Asked(one.seeds, one.query.k, one.target_error) for one in asked],
            )
        (one,) = asked
        return Query(
            self._spaces,
            self._options,
            one.seeds,
            one.query.k,
            one.query.method,
            one.target_error,
            one.query.target,
        )

    def perturb(self, applied: Applied | Loaded) -> None:
        """Follows a batch."""
        self.batches += 1
        if isinstance(self._at_work, Query):
            try:
                self._at_work.perturb(applied)
            except MemoryError:
                # the batch stands; whoever asked hears of it when the query begins anew
                self.close()
        elif self._at_work is not None:
            self.restarts += 1
            self.close()
        if self._answers:
            self.restarts += 1
            self.close()
            self._plan()

    def answers(self) -> list[Personalized]:
        """In the order asked."""
        return [self._answers[place] for place in range(len(self._asked))]

    def take(self, places: range) -> list[Personalized] | None:
        """The answers at these places, all of the graph as it is now, once all are there; None
        before. They no longer follow batches.
        """
        if not all(place in self._answers for place in places):
            return None
        self._taken.update(places)
        return [self._answers.pop(place) for place in places]

    def close(self) -> None:
        """Gives the arrays back."""
        if isinstance(self._at_work, Query):
            self._at_work.close()
        self._at_work, self._tried = None, 0
