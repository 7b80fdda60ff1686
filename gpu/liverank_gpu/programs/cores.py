"""Core numbers after batches, from those before them.

*Supported* bounds b have, at each vertex v, b(v) neighbours of bounds of at least b(v). They are at
most the core numbers, which are the largest supported ones. Three steps, after a batch:

1. The old core numbers fall until they are supported without the edges that are gone.
2. X is the largest set of which all bounds may rise by one and are supported then. It rises.
3. Step 2 is repeated until X is empty. No bound is then too low: of the vertices of too low bounds,
   those whose bound is least could rise.

X is found among candidates. Whatever the order of vertices, C is the smallest set with: v is in C
if more than b(v) neighbours have a higher bound, or the same bound and follow v or are in C. X is
part of C: the neighbours that support the first vertex of X that is not in C would all be counted.
In the order in which vertices left when the core numbers were computed, none has more than b(v)
neighbours that are counted without C. So the search begins at vertices that may have more since:
*suspects*, which are the ends of new edges, vertices whose bounds have changed, and neighbours that
count those that rose. With exact orders this is the order-based algorithm of Zhang, Yu, Zhang and
Qin, "A fast order-based approach for core maintenance" (ICDE 2017); here an order stays as it was,
and what it misses are more suspects.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from liverank_gpu.operations.analysis import CoreCandidates, LowerCores, NearRows, TooMuch
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.programs.earlier import Earlier


class CoreOrder(NamedTuple):
    """What core numbers are continued with.

    places    int32[n], of each vertex in the order
    suspects  int32[k], ascending
    """

    places: Array
    suspects: Array


class Continuation:
    """One run that continues.

    bounds  int32[n], in the end the core numbers
    """

    def __init__(self, backend: Backend, near: NearRows, earlier: Earlier) -> None:
        self._backend, self._near = backend, near
        xp, known = backend.xp, len(earlier.values)
        vertices = len(near.outgoing.row_lengths)
        self.bounds: Array = xp.zeros(vertices, np.int32)
        self.bounds[:known] = earlier.values
        self._places = xp.arange(vertices, dtype=np.int32)
        self._places[:known] = earlier.kept.places
        self._flags = xp.zeros(vertices, bool)
        self._earlier = earlier

    def run(self) -> CoreOrder:
        """Raises TooMuch."""
        earlier = self._earlier
        suspects = self._marked(earlier.kept.suspects, *earlier.added)
        before = self.bounds.copy()
        self._lower(self._marked(*earlier.removed))
        fallen = self._backend.xp.flatnonzero(self.bounds < before)
        suspects = self._marked(suspects, fallen)
        while len(suspects):
            candidates, suspects = self._backend.run(
                CoreCandidates(self._near, self.bounds, self._places, suspects)
            )
            self.bounds[candidates] += 1
            before = self.bounds[candidates]
            self._lower(candidates)
            risen = candidates[self.bounds[candidates] == before]
            if len(risen) == 0:
                break
            suspects = self._marked(suspects, risen, self._counting(risen))
        return CoreOrder(self._places, suspects)

    def _marked(self, *vertices: Array) -> Array:
        """int32[k]: these vertices in ascending order, each once."""
        for each in vertices:
            self._flags[each] = True
        found = self._backend.xp.flatnonzero(self._flags).astype(np.int32)
        self._flags[found] = False
        return found

    def _lower(self, active: Array) -> None:
        """Lowers bounds until all are supported, if those of other vertices are."""
        xp, bounds = self._backend.xp, self.bounds
        ignored = xp.zeros(1, np.int32)
        while len(active):
            lists, before = self._near.lists(active), bounds[active]
            rows = self._backend.frontier.rows_of(active, lists.row_lengths)
            if not self._backend.run(LowerCores(lists, rows, bounds, ignored, 31, 1)):
                return
            fell = bounds[active] < before
            fallen, before = active[fell], before[fell]
            places, neighbours = self._near.of(fallen)
            others = bounds[neighbours]
            supported = (others > bounds[fallen][places]) & (others <= before[places])
            active = self._marked(neighbours[supported])

    def _counting(self, risen: Array) -> Array:
        """integer[…]: neighbours of vertices that rose which may count these now, and did not."""
        bounds, order = self.bounds, self._places
        places, neighbours = self._near.of(risen)
        more = bounds[neighbours] - bounds[risen][places]
        follows = order[risen][places] > order[neighbours]
        return neighbours[((more == 0) & follows) | ((more == -1) & ~follows)]


def continued_cores(
    backend: Backend, near: NearRows, earlier: Earlier
) -> tuple[Array, CoreOrder] | None:
    """The core numbers, int32[n], and what a later run continues with. None if that would read more
    than the most entries.
    """
    run = Continuation(backend, near, earlier)
    try:
        order = run.run()
    except TooMuch:
        return None
    return run.bounds, order
