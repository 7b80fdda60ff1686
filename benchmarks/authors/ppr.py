"""Ranks of all vertices for one: the push of Guo and others beside queries of ours, in windows that
slide over undirected edges.

Theirs estimates, of every vertex u, the rank that the target t has in walks from u:
x = α·e_t + (1 - α)·A·x/d', where d' is the degree and one, so a part of the walks ends at each
vertex. Ours answers the same system: with an arc from each vertex to one more, which has none and
so returns rank to t, x(u) = z(u)·α·d'(t) / (d'(u)·(α + (1 - α)·z(more))) for the ranks z of seed t.
Errors are the largest of all vertices, which is what their tolerance is about.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.authors.ours import DAMPING, Run, at_most, row
from benchmarks.authors.theirs import ranks_of, run, solves
from benchmarks.inputs import EDGES_PER_VERTEX, Columns, shuffled_rmat
from benchmarks.timing import timed
from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_gpu.types import Ranking

WINDOW = 0.9
PARTS, BATCHES = (1e-5, 1e-3), 2
"""Sizes of batches in windows, and how many there are."""
_EXACT = 2e-11
_LOOSEST = 64.0
"""Targets of ours are of the L1 distance, above the largest error of a vertex."""
_FIRST = 100
"""Places that a timed query of ours returns; errors are of all vertices."""


def stream(backend: Backend, scale: int) -> tuple[int, Columns]:
    """The number of vertices, and the distinct pairs of R-MAT in a random order."""
    xp, vertices = backend.xp, 1 << scale
    ends = shuffled_rmat(backend, scale, EDGES_PER_VERTEX << scale)
    low, high = xp.minimum(*ends).astype(np.int64), xp.maximum(*ends)
    keys = xp.unique((low * vertices + high)[low != high])
    keys = keys[xp.argsort(xp.random.default_rng(1).random(len(keys)))]
    return vertices, xp.divmod(keys, vertices)


def both(columns: Columns, begin: int, end: int, xp: Any) -> Columns:
    """These edges in both directions."""
    sources, targets = (ends[begin:end] for ends in columns)
    return xp.concatenate([sources, targets]), xp.concatenate([targets, sources])


class Window:
    """The engine with the edges of a window, and the vertex that all lead to."""

    def __init__(self, backend: Backend, vertices: int, columns: Columns, size: int) -> None:
        self._xp, self._backend, self._columns = backend.xp, backend, columns
        self._vertices, self._begin, self._end = vertices, 0, size
        self._off: dict[float, float] = {}
        """Largest errors by target, of the edges now in the window."""
        self._engine = Engine(Options(damping=DAMPING), backend)
        every = self._xp.arange(vertices)
        sources, targets = both(columns, 0, size, self._xp)
        more = self._xp.full(vertices, vertices)
        self._engine.apply(
            EdgeBatch(
                self._xp.concatenate([sources, every]),
                self._xp.concatenate([targets, more]),
                vertices=vertices + 1,
            )
        )
        self._engine.update()

    def slide(self, count: int) -> None:
        """By this many edges."""
        new = both(self._columns, self._end, self._end + count, self._xp)
        old = both(self._columns, self._begin, self._begin + count, self._xp)
        self._engine.apply(EdgeBatch(*new, *old))
        self._engine.update()
        self._begin, self._end = self._begin + count, self._end + count
        self._off.clear()

    def _degrees(self, sources: Array) -> Array:
        return self._xp.bincount(sources, minlength=self._vertices) + 1

    def estimates(self, target: int, error: float) -> Ranking:
        """x, from ranks of this L1 error at most."""
        everything = self._vertices + 1
        answer = self._engine.personalized(np.array([target]), k=everything, target_error=error)
        ranks = np.zeros(everything)
        ranks[answer.vertices] = answer.ranks
        sources, _ = both(self._columns, self._begin, self._end, self._xp)
        degrees = self._backend.device.to_host(self._degrees(sources))
        alpha = 1.0 - DAMPING
        scale = alpha * degrees[target] / (alpha + DAMPING * ranks[-1])
        found: Ranking = ranks[:-1] * scale / degrees
        return found

    def exact(self, target: int) -> Ranking:
        """x, checked by one iteration in float64 without the engine."""
        found, xp = self.estimates(target, _EXACT), self._xp
        sources, targets = both(self._columns, self._begin, self._end, xp)
        given = xp.asarray(found)
        sums = xp.bincount(sources, weights=given[targets], minlength=self._vertices)
        again = DAMPING * sums / self._degrees(sources)
        again[target] += 1.0 - DAMPING
        bound = float(xp.abs(again - given).max()) / (1.0 - DAMPING)
        print(f"reference: {bound:.1e} from exact estimates at most", flush=True)
        assert bound <= 1e-10, bound
        return found

    def solve(self, target: int, exact: Ranking, error: float) -> Run:
        """A query, from nothing."""
        ms, answer = timed(
            self._backend.device,
            lambda: self._engine.personalized(np.array([target]), k=_FIRST, target_error=error),
        )
        if error not in self._off:
            self._off[error] = float(np.abs(self.estimates(target, error) - exact).max())
        return Run(ms, answer.iterations, self._off[error])


def beside_guo(
    backend: Backend, program: Path, folder: Path, scale: int, tolerances: tuple[float, ...]
) -> Iterator[dict[str, Any]]:
    """A row for each tolerance and size of a batch: from nothing, and after batches."""
    vertices, columns = stream(backend, scale)
    ends = np.stack([backend.device.to_host(each) for each in columns], axis=1).astype(np.int32)
    with (folder / "stream").open("wb") as file:
        np.array([vertices], np.int32).tofile(file)
        ends.tofile(file)
    size = int(len(ends) * WINDOW)
    # a vertex of the degree that one edge in two leads to
    degrees = np.bincount(ends[:size].ravel(), minlength=vertices)
    target = int(ends[np.argsort(degrees[ends[:size, 0]])[size // 2], 0])
    for part in PARTS:
        count = max(1, int(part * size))
        for tolerance in tolerances:
            given = f"-d {folder}/stream -a 0 -i 0 -y 1 -n 1 -w {WINDOW} -s {target} -c {count}"
            given += f" -l {count * BATCHES} -e {tolerance}"
            found = solves(run(program, folder, *given.split()))
            assert len(found) == BATCHES + 1, found
            window = Window(backend, vertices, columns, size)
            for place, solved in enumerate(found):
                if place:
                    window.slide(count)
                elif part > PARTS[0]:
                    continue
                exact = window.exact(target)
                error = float(np.abs(ranks_of(folder / f"{place}.ranks") - exact).max())
                solve = partial(window.solve, target, exact)
                ours = at_most(error, solve, _LOOSEST)
                facts = {"graph": f"rmat-{scale}, undirected", "vertices": vertices}
                facts |= {"edges": 2 * size, "program": "Guo", "tolerance": tolerance}
                facts |= {"method": "after a batch" if place else "from nothing"}
                yield row(solved.ms, error, ours, **facts, fraction=part if place else 0.0)
