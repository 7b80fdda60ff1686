"""Answers of algorithms after batches, from those before them: core numbers, triangles, trussness.

Core numbers and trussness begin at bounds that batches leave *supported*, and rise from there. What
may rise is found among candidates, in an order that is kept beside the values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

import numpy as np

from liverank_gpu.graph.packed_csr import distinct, find, items_of
from liverank_gpu.operations.analysis import CoreCandidates, LowerCores, NearRows, TooMuch
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import Csr
from liverank_gpu.operations.device import Array


class Earlier(NamedTuple):
    """Edges have no direction; ends are positions.

    values  of the vertices that there were, by position, or of the edges
    edges   see Answer.edges, on the device; None if values are of vertices
    kept    what the algorithm keeps beside its values: Computed.kept
    ends    integer[2, k]: the lower and the higher end of each edge of which arcs are new or gone,
            in ascending order
    more    int64[k], not 0: how many more arcs of each there are, of both directions
    """

    values: Array
    edges: tuple[Array, Array] | None
    kept: Any
    ends: Array
    more: Array

    @property
    def added(self) -> Array:
        """integer[2, a], the ends of edges that are new: all of them, and maybe others."""
        return self.ends[:, self.more > 0]

    @property
    def removed(self) -> Array:
        """integer[2, r], the ends of edges that are gone, likewise."""
        return self.ends[:, self.more < 0]


def _marked(xp: Any, flags: Array, places: Iterable[Array]) -> Array:
    """int64[k]: these places in ascending order, each once. flags: bool, False before and after"""
    for each in places:
        flags[each] = True
    found = xp.flatnonzero(flags)
    flags[found] = False
    return found


# ---- core numbers ----
#
# *Supported* bounds b have, at each vertex v, b(v) neighbours of bounds of at least b(v). They are
# at most the core numbers, which are the largest supported ones. Three steps, after a batch:
#
# 1. The old core numbers fall until they are supported without the edges that are gone.
# 2. X is the largest set of which all bounds may rise by one and are supported then. It rises.
# 3. Step 2 is repeated until X is empty. No bound is then too low: of the vertices of too low
#    bounds, those whose bound is least could rise.
#
# X is found among candidates. Whatever the order of vertices, C is the smallest set with: v is in C
# if more than b(v) neighbours have a higher bound, or the same bound and follow v or are in C. X is
# part of C: the neighbours that support the first vertex of X that is not in C would all be
# counted. In the order in which vertices left when the core numbers were computed, none has more
# than b(v) neighbours that are counted without C. So the search begins at vertices that may have
# more since: *suspects*, which are the ends of new edges, vertices whose bounds have changed, and
# neighbours that count those that rose. With exact orders this is the order-based algorithm of
# Zhang, Yu, Zhang and Qin, "A fast order-based approach for core maintenance" (ICDE 2017); here an
# order stays as it was, and what it misses are more suspects.


class CoreOrder(NamedTuple):
    """What core numbers are continued with.

    places    int32[n], of each vertex in the order
    suspects  int32[k], ascending
    """

    places: Array
    suspects: Array


class CoreContinuation:
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
        return _marked(self._backend.xp, self._flags, vertices).astype(np.int32)

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
    run = CoreContinuation(backend, near, earlier)
    try:
        order = run.run()
    except TooMuch:
        return None
    return run.bounds, order


# ---- triangles and trussness ----
#
# A triangle of which no edge has changed stays. Each other one, of the graph now or before, is
# found at its first changed edge, among the common neighbours of its ends. If changed edges of it
# are new and others gone it never was. So counts by vertex and by edge follow.
#
# *Supported* bounds b have, at each edge e, b(e) triangles with bounds of at least b(e) on both
# other edges. Where two bounds are supported, so are the larger ones at each edge; the largest of
# all are λ (see liverank_gpu.programs.algorithms). A bound that is not supported falls to the
# highest that is (algorithm 1 of Zhang's thesis). What begins at or above supported bounds never
# falls below them, so it ends at the largest supported bounds that are at most those it began with.
# After a batch:
#
# 1. Bounds begin as λ before the batch, of new edges as the number of their triangles, and fall
#    until they are supported.
# 2. X is the largest set of which all bounds may rise by one and are supported then. It rises.
# 3. Step 2 is repeated until X is empty. No bound is then too low. Else take the edges with the
#    least of the too low bounds, c. Each is in c + 1 triangles with λ > c on both other edges, and
#    these have bounds > c or are taken too. So all that are taken could rise.
#
# X is found among candidates. Whatever the places of edges in an order, e *counts* a triangle if
# each of its other edges has a higher bound, or the same and no earlier place. C is the smallest
# set with: e is in C if it has more than b(e) triangles that it counts, or would if edges of C with
# the same bound counted whatever their place. X is part of C: of the edges of X that are not in C,
# the first would count all triangles that support it. If no edge counts more triangles than its
# bound, C is empty, so the search begins at edges that may: *suspects*. Places are the numbers of
# falls, and bounds fall one after the other, or many at once that see those before and get one
# number. So an edge that falls to b counts b triangles at most: their other edges had higher bounds
# when it fell. One that never falls has no more triangles than its bound. This stays so:
#
# - edges that fall in step 1 get the next numbers, and so do edges of C that are not in X, which
#   rise and fall back: behind all others with their bounds, which counted them as higher ones, or
#   in C
# - edges of X get a place before all others, which do not count them then; they are suspects
# - suspects in the beginning are the edges of new triangles
#
# With places instead of lists this is the order-based algorithm of Zhang and Yu, "Unboundedness and
# efficiency of truss maintenance in evolving graphs" (SIGMOD 2019), for a batch at a time.

_PART_LISTED, _ENTRY_BYTES = 2, 96
"""To begin again lists at least λ triangles for each edge. To continue, at most one part in so many
is read besides what others may read, if there is memory for it: so many bytes for each entry.
"""


class VertexTriangles(NamedTuple):
    """The triangles of each vertex.

    counts  int64[n], by row
    degree  integer[n], neighbours, by row
    rows    integer[n], the row of each position, or all in order
    edges   read
    passes  over the graph
    """

    counts: Array
    degree: Array
    rows: Array | slice
    edges: int
    passes: int


class EdgeTriangles(NamedTuple):
    """The triangles of each edge.

    counts   int32[m]
    ends     see Answer.edges
    total    of all edges
    largest  of an edge
    passes   over the edges
    edges    read
    """

    counts: Array
    ends: tuple[Array, Array]
    total: int
    largest: int
    passes: int
    edges: int


class Changed(NamedTuple):
    """Edges, and triangles of them.

    ends     int64[2, k], the lower and the higher position of each edge that is new or gone
    is_new   bool[k]
    corners  int64[3, t], positions of the triangles that are new or gone
    signs    int64[t], 1 of a new one, -1 of one that is gone
    """

    ends: Array
    is_new: Array
    corners: Array
    signs: Array


def changed_triangles(backend: Backend, near: NearRows, earlier: Earlier) -> Changed:
    """What batches did to edges and triangles. Raises TooMuch."""
    xp = backend.xp
    vertices = distinct(xp, earlier.ends.ravel()).astype(np.int32)
    rows = near.arcs(vertices)
    at = xp.searchsorted(vertices, earlier.ends)  # the row of each end
    key = at[0] << 32 | earlier.ends[1]
    arcs = xp.searchsorted(rows, key, side="right") - xp.searchsorted(rows, key)
    arcs *= 2 if near.incoming is None else 1
    is_new, was_there = arcs > 0, arcs > earlier.more
    changed = is_new != was_there
    ends, at, is_new = earlier.ends[:, changed], at[:, changed], is_new[changed]
    gone = xp.concatenate([at[0] << 32 | ends[1], at[1] << 32 | ends[0]])[xp.tile(~is_new, 2)]
    rows = distinct(xp, xp.concatenate([rows, gone]))  # of the graph now, and what is gone
    limits = xp.searchsorted(rows, xp.arange(len(vertices) + 1) << 32)
    lengths = xp.diff(limits)[at]
    short = xp.where(lengths[0] <= lengths[1], at[0], at[1])
    long = at[0] + at[1] - short
    near.take(int(backend.device.sum(lengths.min(axis=0))))
    edges, slots = items_of(xp, limits[short], xp.diff(limits)[short])
    third = rows[slots] & 0xFFFFFFFF
    _, closed = find(xp, rows, long[edges] << 32 | third)
    edges, third = edges[closed], third[closed]
    keys = ends[0] << 32 | ends[1]  # ascending
    kept, signs = xp.ones(len(edges), bool), xp.where(is_new, 1, -1)
    for end in (ends[0][edges], ends[1][edges]):
        sides, changes = find(xp, keys, xp.minimum(end, third) << 32 | xp.maximum(end, third))
        kept &= ~changes | ((sides > edges) & (signs[sides] == signs[edges]))
    edges, third = edges[kept], third[kept]
    return Changed(ends, is_new, xp.stack([*ends[:, edges], third]), signs[edges])


class EdgeLists:
    """The edges of a graph by id, as the edges before and their changes make them.

    ends  int64[2, m]: the lower and the higher id, in ascending order
    keys  int64[m], lower << 32 | higher
    new   int64[…], the places of new edges
    """

    def __init__(self, xp: Any, earlier: Earlier, changed: Changed, ids: Array) -> None:
        assert earlier.edges is not None, "values of edges"
        self._xp, self._ids = xp, ids
        before = earlier.edges[0] << 32 | earlier.edges[1]
        named = self.keys_of(*changed.ends)
        self._stays = xp.ones(len(before), bool)
        self._stays[find(xp, before, named[~changed.is_new])[0]] = False
        stay, added = before[self._stays], xp.sort(named[changed.is_new])
        self.new = xp.searchsorted(stay, added) + xp.arange(len(added))
        self._old = xp.ones(len(stay) + len(added), bool)
        self._old[self.new] = False
        self.keys = self.follow(before)
        self.keys[self.new] = added
        self.ends = xp.stack([self.keys >> 32, self.keys & 0xFFFFFFFF])

    def follow(self, values: Array) -> Array:
        """Values of edges before, of those there are now; 0 of new ones."""
        found = self._xp.zeros(len(self._old), values.dtype)
        found[self._old] = values[self._stays]
        return found

    def keys_of(self, sources: Array, targets: Array) -> Array:
        """The keys of edges between positions."""
        sources, targets = self._ids[sources].astype(np.int64), self._ids[targets]
        return self._xp.minimum(sources, targets) << 32 | self._xp.maximum(sources, targets)

    def find(self, sources: Array, targets: Array) -> tuple[Array, Array]:
        """The place of each edge between positions, and whether it is there."""
        return find(self._xp, self.keys, self.keys_of(sources, targets))

    def sides(self, triangles: Array) -> Iterator[tuple[Array, Array]]:
        """The same of the three sides of triangles, int64[3, t]."""
        for one, other in ((0, 1), (0, 2), (1, 2)):
            yield self.find(triangles[one], triangles[other])


class TriangleStore:
    """The triangles of edges, which are found once."""

    def __init__(self, backend: Backend, near: NearRows, edges: EdgeLists, ids: Array) -> None:
        self._backend, self._near, self._edges, self._ids = backend, near, edges, ids
        xp = backend.xp
        self._position = xp.empty(len(ids), np.int32)
        self._position[ids] = xp.arange(len(ids), dtype=np.int32)
        self._lengths = near.outgoing.row_lengths
        if near.incoming is not None:
            self._lengths = self._lengths + near.incoming.row_lengths
        self._starts = xp.full(len(edges.keys), -1, np.int64)
        self._counts = xp.zeros(len(edges.keys), np.int32)
        self._sides = xp.empty((2, 1 << 10), np.int32)
        self._used = 0

    def of(self, places: Array) -> tuple[Array, Array]:
        """Of each triangle of some edges: which of these it is of, int32[t], and the places of its
        other two edges, int32[2, t]. Raises TooMuch.
        """
        self._find(places[self._starts[places] < 0])
        starts, counts = self._starts[places], self._counts[places]
        self._near.take(int(self._backend.device.sum(counts)))
        entries = self._backend.rebuild.entries
        edges, one, _ = entries(Csr(starts, counts, self._sides[0]))
        return edges, self._backend.xp.stack([one, entries(Csr(starts, counts, self._sides[1]))[1]])

    def _find(self, places: Array) -> None:
        """Of edges whose triangles are not known."""
        if len(places) == 0:
            return
        xp, near = self._backend.xp, self._near
        ends = self._position[self._edges.ends[:, places]]
        swap = self._lengths[ends[0]] > self._lengths[ends[1]]
        short, long = xp.where(swap, ends[::-1], ends)
        vertices = distinct(xp, short)
        rows, neighbours = near.of(vertices)
        limits = xp.searchsorted(rows, xp.arange(len(vertices) + 1))
        row = xp.searchsorted(vertices, short)
        lengths = xp.diff(limits)[row]
        near.take(int(self._backend.device.sum(lengths)))
        lists = Csr(limits[row], lengths.astype(np.int32), neighbours)
        edges, third, _ = self._backend.rebuild.entries(lists)
        far, closed = self._edges.find(long[edges], third)
        edges, third, far = edges[closed], third[closed], far[closed]
        sides = xp.stack([far, self._edges.find(short[edges], third)[0]])
        counts = xp.bincount(edges, minlength=len(places))
        self._starts[places] = self._used + xp.cumsum(counts) - counts
        self._counts[places] = counts
        used = self._used + len(edges)
        if used > self._sides.shape[1]:
            grown = xp.empty((2, 2 * used), np.int32)
            grown[:, : self._used] = self._sides[:, : self._used]
            self._sides = grown
        self._sides[:, self._used : used] = sides
        self._used = used


class TrussContinuation:
    """One run that continues. Raises TooMuch.

    edges     those there are
    bounds    int32[m], in the end λ
    places    int64[m], of each edge in the order
    examined  examinations of an edge
    rounds    how often some were examined at once
    """

    def __init__(
        self, backend: Backend, ids: Array, more: int, near: NearRows, earlier: Earlier
    ) -> None:
        """earlier  its values are λ + `more`, and it keeps the places"""
        self._xp = xp = backend.xp
        lambdas = earlier.values - np.int32(more)
        more_read = int(backend.device.sum(lambdas)) // _PART_LISTED
        near.most = min(near.most + more_read, backend.device.memory_available() // _ENTRY_BYTES)
        changed = changed_triangles(backend, near, earlier)
        self.edges = EdgeLists(xp, earlier, changed, ids)
        self.bounds = self.edges.follow(lambdas)
        self.places = self.edges.follow(earlier.kept)
        self._first, self._last = (
            (int(self.places.min()), int(self.places.max())) if len(self.places) else (0, 0)
        )
        self._triangles = TriangleStore(backend, near, self.edges, ids)
        self._flags = xp.zeros(len(self.bounds), bool)
        self.examined = self.rounds = 0
        sides, arrived = self.edges.sides(changed.corners), changed.signs > 0
        of_new, of_gone = [self.edges.new], list[Array]()
        for places, there in sides:
            of_new.append(places[arrived])
            of_gone.append(places[there & ~arrived])
        self._run(self._marked(*of_new), self._marked(*of_gone))

    def _run(self, of_new: Array, of_gone: Array) -> None:
        """of_new, of_gone  edges of triangles that are new, and new edges; edges of those gone"""
        bounds, places, new = self.bounds, self.places, self.edges.new
        bounds[new] = self._xp.bincount(self._triangles.of(new)[0], minlength=len(new))
        self._lower(self._marked(of_gone, new))
        suspects = of_new
        while len(suspects):
            candidates = self._candidates(suspects)
            bounds[candidates] += 1
            risen = bounds[candidates]
            self._lower(candidates)
            suspects = candidates[bounds[candidates] == risen]
            self._first -= 1
            places[suspects] = self._first

    def _marked(self, *places: Array) -> Array:
        return _marked(self._xp, self._flags, places)

    def _examine(self, active: Array) -> tuple[Array, Array]:
        self.examined, self.rounds = self.examined + len(active), self.rounds + 1
        return self._triangles.of(active)

    def _lower(self, active: Array) -> None:
        """Lowers bounds until all are supported, if those of other edges are."""
        xp, bounds = self._xp, self.bounds
        while len(active):
            edges, sides = self._examine(active)
            old = bounds[active]
            least = xp.minimum(bounds[sides].min(axis=0), old[edges])
            low = _h_indices(xp, edges, least, len(active))
            fell = low < old
            bounds[active[fell]] = low[fell]
            self._last += 1
            self.places[active[fell]] = self._last
            of_fallen = fell[edges]
            edges, sides = edges[of_fallen], sides[:, of_fallen]
            others = bounds[sides]
            active = self._marked(sides[(others > low[edges]) & (others <= old[edges])])

    def _candidates(self, suspects: Array) -> Array:
        """C."""
        xp, bounds, order = self._xp, self.bounds, self.places
        chosen, active = xp.zeros(len(bounds), bool), suspects
        while len(active):
            edges, sides = self._examine(active)
            own, place, others = bounds[active][edges], order[active][edges], bounds[sides]
            same, reaches = others == own, (others >= own).all(axis=0)
            counts = reaches & ~(same & (order[sides] < place) & ~chosen[sides]).any(axis=0)
            rises = xp.bincount(edges[counts], minlength=len(active)) > bounds[active]
            chosen[active[rises]] = True
            following = sides[same & (order[sides] > place) & (reaches & rises[edges])]
            active = self._marked(following[~chosen[following]])
        return xp.flatnonzero(chosen)


def _h_indices(xp: Any, rows: Array, numbers: Array, count: int) -> Array:
    """int32[count]: the largest h of which h numbers of a row are at least h. Rows ascend."""
    most = np.int64(1 << 31)
    keys = xp.sort(rows.astype(np.int64) << 32 | (most - numbers))  # the largest of a row first
    numbers = most - (keys & 0xFFFFFFFF)
    first = xp.searchsorted(rows, xp.arange(count))
    counts = xp.arange(1, len(rows) + 1) - first[rows]
    found = xp.zeros(count, np.int32)
    xp.maximum.at(found, rows, xp.minimum(numbers, counts).astype(np.int32))
    return found


def continued_vertex_triangles(
    backend: Backend, near: NearRows, earlier: Earlier
) -> VertexTriangles:
    """From earlier ones by position. Raises TooMuch."""
    xp, before = backend.xp, earlier.kept
    changed = changed_triangles(backend, near, earlier)
    vertices = len(near.outgoing.row_lengths)
    counts, degree = xp.zeros((2, vertices), np.int64)
    counts[: len(before.counts)], degree[: len(before.degree)] = before.counts, before.degree
    counts += _sums(xp, changed.corners, changed.signs, vertices)
    degree += _sums(xp, changed.ends, xp.where(changed.is_new, 1, -1), vertices)
    return VertexTriangles(counts, degree, slice(None), near.read, 1)


def continued_edge_triangles(
    backend: Backend, ids: Array, near: NearRows, earlier: Earlier
) -> EdgeTriangles:
    """From earlier ones. Raises TooMuch."""
    xp = backend.xp
    changed = changed_triangles(backend, near, earlier)
    edges = EdgeLists(xp, earlier, changed, ids)
    counts = edges.follow(earlier.values)
    for places, there in edges.sides(changed.corners):
        sums = _sums(xp, places[there][None], changed.signs[there], len(counts))
        counts += sums.astype(np.int32)
    total = int(backend.device.sum(counts))
    largest = int(counts.max()) if len(counts) else 0
    return EdgeTriangles(counts, (edges.ends[0], edges.ends[1]), total, largest, 1, near.read)


def _sums(xp: Any, places: Array, numbers: Array, count: int) -> Array:
    """int64[count]: the sum of numbers, int64[k], at each of their places, integer[r, k]."""
    weights = xp.tile(numbers, len(places))
    return xp.bincount(places.ravel(), weights=weights, minlength=count).astype(np.int64)
