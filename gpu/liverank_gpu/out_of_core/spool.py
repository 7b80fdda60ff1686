"""Edges in a file: written in any order, packed as in-lists."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from copy import copy
from itertools import pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends import host_backend
from liverank_gpu.backends.cpu.graph import (
    count_ends,
    pack_keys,
    renumber,
    sorted_by_bucket,
    sorted_by_key,
)
from liverank_gpu.columns import ids_of, weights_of
from liverank_gpu.errors import InvalidValue
from liverank_gpu.graph.packed_csr import row_blocks
from liverank_gpu.graph.vertices import (
    GAIN,
    VertexPermutation,
    by_descending_degree,
    cache_lines_of_chunks,
)
from liverank_gpu.operations.backend import DEFAULT_SIZES, Sizes
from liverank_gpu.operations.csr import ALIGNMENT, loop_dtype
from liverank_gpu.types import VERTEX_LIMIT, VertexOrder

# Files for intermediate data. They have no name, so none is left behind, however the process ends.
#
# What they hold is read and written by position, so any thread may use them.


class ScratchColumns:
    """Columns of equal length, each in a file of its own: edges, and their weights if they have
    any. Columns of records are int64[n, words]; items are rows of them.
    """

    def __init__(self, count: int, folder: Path | None = None) -> None:
        """count  of the columns
        folder  where the files are; None for the system's folder of temporary files

        Raises OSError.
        """
        self._files = [
            tempfile.TemporaryFile(dir=folder, buffering=0)  # noqa: SIM115
            for _ in range(count)
        ]

    def beside(self, others: ScratchColumns) -> ScratchColumns:
        """These columns and others, in the same files."""
        both = copy(self)
        both._files = [*self._files, *others._files]
        return both

    def write(self, place: int, *columns: NDArray[Any]) -> None:
        """Writes a part of every column, contiguous, at `place`, in items. Raises OSError."""
        for file, column in zip(self._files, columns, strict=True):
            if column.size:
                offset, rest = place * (column.nbytes // len(column)), column.data.cast("B")
                while rest:
                    written = os.pwrite(file.fileno(), rest, offset)
                    offset, rest = offset + written, rest[written:]

    def write_by_bucket(
        self,
        ends: NDArray[np.int64],
        begins: NDArray[np.int64],
        columns: Sequence[NDArray[Any]],
    ) -> None:
        """Writes each bucket of columns sorted by bucket behind what there is of it.

        ends    int64[b], where this is of each bucket, in items; moved on
        begins  int64[b + 1], where each bucket begins in the columns

        Raises OSError.
        """
        for bucket in np.flatnonzero(np.diff(begins)).tolist():
            first, last = begins[bucket : bucket + 2].tolist()
            self.write(int(ends[bucket]), *(column[first:last] for column in columns))
            ends[bucket] += last - first

    def read(self, place: int, *into: NDArray[Any]) -> None:
        """Fills contiguous arrays, one for each of the first columns, from `place` on, in items.
        Raises OSError.
        """
        for file, column in zip(self._files[: len(into)], into, strict=True):
            if column.size:
                offset, rest = place * (column.nbytes // len(column)), column.data.cast("B")
                while rest:
                    count = os.preadv(file.fileno(), [rest], offset)
                    if count == 0:
                        raise OSError(f"expected {len(rest):,} bytes more in a scratch file")
                    offset, rest = offset + count, rest[count:]

    def mapped(self, count: int, *dtypes: Any) -> tuple[NDArray[Any], ...]:
        """The first items of every column, dtype[count], to be read: arrays in memory that the
        kernel frees when it needs it, and that outlive `close`. Raises OSError.
        """
        if count == 0:  # a map has one byte at least
            return tuple(np.empty(0, dtype) for dtype in dtypes)
        files = zip(self._files, dtypes, strict=True)
        return tuple(np.memmap(file, dtype, "r", shape=count) for file, dtype in files)

    def drop_cache(self) -> None:
        """Has the kernel forget what it has cached of the files: for measurements."""
        for file in self._files:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def close(self) -> None:
        """Frees the space on the disk, that of arrays that are mapped with these."""
        for file in self._files:
            file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


# ---- the order in which vertices whose edges are in a file are ranked ----
#
# (liverank_gpu.graph.vertices).
#
# A pass reads one number of a vertex for each of its out-edges, so the vertices with most of them
# are adjacent.

Ends = tuple[NDArray[np.int64], NDArray[np.int64]]

_SAMPLED_PART = 16
"""A window of the sample is this part of the vertices at most, so that it takes less memory than
their values.
"""


def chosen_order(
    order: VertexOrder,
    out_degree: NDArray[np.int32],
    in_degree: NDArray[np.int64],
    pieces: Callable[[], Iterator[Ends]],
    least: int,
) -> NDArray[np.int32]:
    """int32[n], the id at each position; int32[0] for the order as given.

    out_degree, in_degree  of each id, repeats of edges included
    pieces                 sources and targets of all edges, in any order; it may be called twice
    least                  vertices and edges below which ``auto`` is the order as given
    """
    as_given = np.empty(0, np.int32)
    edges = int(in_degree.sum())
    if order == "given" or (order == "auto" and min(len(in_degree), edges) < least):
        return as_given
    by_degree: NDArray[np.int32] = by_descending_degree(np, out_degree)
    if order == "degree":
        return by_degree
    backend, longest = host_backend(), max(1, len(in_degree) // _SAMPLED_PART)
    before, after = (
        cache_lines_of_chunks(
            backend, VertexPermutation(backend, ids), pieces(), edges, in_degree, longest
        )
        for ids in (None, by_degree)
    )
    return by_degree if after < GAIN * before else as_given


# ---- edges in any order → packed in-lists in a file, in bounded memory ----
#
# Edges are written as they come, as keys ``target << 32 | source``, and the degrees of each vertex
# are counted. Then the vertices are put in order and divided into buckets of about equal numbers
# of in-edges, the keys are distributed to their buckets in a second file, by position in place of
# id, and each bucket is read, sorted, freed of repeats and loops, and written to the last one. So
# an edge is written three times and read twice before the first sweep, 20 bytes of writing and 16
# of reading, and twice more where a sample says which order is better.
#
# Weights are written beside the keys. Every step keeps the order of equal keys, so that the last
# one of several is the edge.

_TARGET_BITS = 32
_SOURCE = (1 << _TARGET_BITS) - 1

_AS_GIVEN = np.empty(0, np.int32)
"""Of vertices whose ids are their positions."""


class PackedEdges:
    """The in-lists of a graph, without loops, ascending, in a file.

    ids          int32[n], the id at each position; int32[0] if every id is its own position
    row_lengths  int32[n]; rows lie one after the other, each from a multiple of ALIGNMENT slots on
    out_lengths  int32[n], in how many rows each vertex is
    loop         see liverank_gpu.operations.csr.GraphView
    fixed_loops  whether every vertex has one loop, and others do not count
    directed     whether an edge goes one way
    weighted     whether edges have weights
    repeats      whether each of equal keys is an edge, or the last one alone
    slots        of all rows so far
    dtypes       of the columns of the file
    file         int32[slots], column indices, those behind a row repeating its last one; and
                 float32[slots], weights
    """

    def __init__(
        self,
        vertices: int,
        directed: bool,
        fixed_loops: bool,
        folder: Path | None = None,
        weighted: bool = False,
        ids: NDArray[np.int32] = _AS_GIVEN,
        repeats: bool = False,
    ) -> None:
        """A graph without edges. Raises OSError.

        folder  of the file; None for the system's folder of temporary files
        """
        self.ids = ids
        self.row_lengths = np.zeros(vertices, np.int32)
        self.loop = np.full(vertices, fixed_loops, loop_dtype(weighted))
        self.fixed_loops = fixed_loops
        self.weighted = weighted
        self.repeats = repeats
        self.slots = 0
        self.dtypes: tuple[type[np.generic], ...] = (np.int32, np.float32)[: 2 if weighted else 1]
        self.file = ScratchColumns(len(self.dtypes), folder)
        self.directed = directed
        self._links = 0
        self.out_lengths = np.zeros(vertices, np.int32)
        # the sum of the weights of out-edges, without loops
        self._sent: NDArray[Any] = np.zeros(vertices) if weighted else self.out_lengths

    @property
    def degree(self) -> NDArray[Any]:
        """See liverank_gpu.operations.csr.GraphView; a new array."""
        degree: NDArray[Any] = self._sent + self.loop
        if self.weighted:
            # a loop so heavy that it swallowed the other weights: the strength stays above it
            swallowed = (self.out_lengths > 0) & (degree == self.loop)
            degree[swallowed] = np.nextafter(degree[swallowed], np.inf)
        return degree

    @property
    def longest_outgoing(self) -> int:
        """Length of the longest out-list."""
        return int(self.out_lengths.max(initial=0))

    @property
    def strength_depth(self) -> int:
        """RebuildOperations.strength_depth of these sums: weights are added one after the other,
        then the loop, then the step that keeps the strength above it.
        """
        return self.longest_outgoing + 2

    @property
    def arcs(self) -> int:
        """Number of edges; other edges than loops of an undirected graph are counted twice."""
        return self._links + (0 if self.fixed_loops else int(np.count_nonzero(self.loop)))

    @property
    def edges(self) -> int:
        """Number of edges, see liverank_gpu.graph.dynamic_graph.DynamicGraph."""
        return self.arcs - (0 if self.directed else self._links // 2)

    def append(self, keys: NDArray[np.int64], *weights: NDArray[np.float32]) -> None:
        """Writes the in-lists of a range of vertices behind those of all before it.

        keys     int64[k], ``target << 32 | source``: ascending, loops and repeats included
        weights  float32[k], of a weighted graph

        Raises OSError.
        """
        if len(keys) == 0:
            return
        rows = min(int(keys[-1] >> _TARGET_BITS) - int(keys[0] >> _TARGET_BITS) + 1, len(keys))
        room = len(keys) + (ALIGNMENT - 1) * rows
        columns = [np.zeros(room, dtype) for dtype in self.dtypes]
        slots, links = pack_keys(
            keys,
            *(weights or (None,)),
            self.repeats,
            self.fixed_loops,
            self.loop,
            self.row_lengths,
            self.out_lengths,
            self._sent,
            *(columns if weights else (*columns, None)),
        )
        self.file.write(self.slots, *(column[:slots] for column in columns))
        self.slots += slots
        self._links += links

    def beside(self, values: ScratchColumns) -> PackedEdges:
        """The same with another column of the file.

        values  int32 of each slot, in one column
        """
        other = copy(self)
        other.dtypes, other.file = (*self.dtypes, np.int32), self.file.beside(values)
        return other

    def entries(self, most: int, *values: ScratchColumns) -> Iterator[tuple[NDArray[Any], ...]]:
        """Targets and sources of some rows at a time, int64[k] and int32[k], in ascending order.
        Raises OSError.

        most    slots, and rows, unless a single row has more
        values  int32 of each slot in one column: int32[k] of each, too
        """
        taken, first = padded(self.row_lengths), 0
        for rows in row_blocks(taken, most):
            lengths, slots = self.row_lengths[rows], int(taken[rows].sum(dtype=np.int64))
            columns = [np.empty(slots, np.int32) for _ in (self.file, *values)]
            for file, column in zip((self.file, *values), columns, strict=True):
                file.read(first, column)
            first += slots
            # each row, and what is behind it up to the next one
            parts = np.column_stack([lengths, taken[rows] - lengths]).ravel()
            in_row = np.repeat(np.arange(len(parts)) % 2 == 0, parts)
            targets = np.repeat(np.arange(rows.start, rows.stop), lengths)
            yield targets, *(column[in_row] for column in columns)


def _fitted(numbers: NDArray[Any], count: int) -> NDArray[Any]:
    """The first `count` of some numbers, and zeros behind them."""
    fitted = np.zeros(count, numbers.dtype)
    kept = min(count, len(numbers))
    fitted[:kept] = numbers[:kept]
    return fitted


def padded(lengths: NDArray[Any]) -> NDArray[Any]:
    """Lengths rounded up to ALIGNMENT."""
    return (lengths + (ALIGNMENT - 1)) & -ALIGNMENT


class EdgeSpool:
    """Edges that are gathered in a file.

    added     number of edges that were added
    vertices  the least number of vertices that have all these ids
    longest   upper bound on the length of an in-list; repeats are counted
    """

    def __init__(
        self,
        folder: Path | None,
        directed: bool = True,
        weighted: bool = False,
        repeats: bool = False,
        sizes: Sizes = DEFAULT_SIZES,
    ) -> None:
        """folder    where files are; None for the system's folder of temporary files
        directed, weighted  see liverank_gpu.types.Options
        repeats   see PackedEdges
        sizes     see Backend

        Raises OSError.
        """
        self._sizes = sizes
        self._folder, self._directed, self._weighted = folder, directed, weighted
        self._repeats = repeats
        self._file = self._new_file()
        self._keys = 0
        self._in_degree, self._out_degree = np.zeros(0, np.int64), np.zeros(0, np.int32)
        self._packed = False
        self.added = self.vertices = self.longest = 0

    def _new_file(self) -> ScratchColumns:
        return ScratchColumns(2 if self._weighted else 1, self._folder)

    def add(
        self,
        sources: NDArray[np.integer[Any]],
        targets: NDArray[np.integer[Any]],
        weights: NDArray[Any] | None = None,
    ) -> None:
        """Adds edges with these ids, integer[k] each, and weights, number[k]; None: all are 1.
        Repeats are one edge, with the weight of the last one, unless each is to be kept.

        Raises InvalidValue for columns of unequal length, of another dtype or with a value out of
        range, for weights of an unweighted graph, and once the edges are packed; OSError.
        """
        if self._packed:
            raise InvalidValue("sources", f"{len(sources)} edges", "added before the first run")
        sources, targets = ids_of("sources", sources), ids_of("targets", targets)
        if weights is not None and not self._weighted:
            raise InvalidValue("weights", f"{len(weights)} weights", "None for an unweighted graph")
        if len(sources) != len(targets):
            raise InvalidValue("targets", f"length {len(targets)}", f"{len(sources)} long")
        for name, ends in (("sources", sources), ("targets", targets)):
            if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < VERTEX_LIMIT:
                wrong = int(np.flatnonzero((ends < 0) | (ends >= VERTEX_LIMIT))[0])
                requirement = f"an id from 0 to {VERTEX_LIMIT - 1}"
                raise InvalidValue(f"{name}[{self.added + wrong}]", int(ends[wrong]), requirement)
        if weights is not None:
            weights = weights_of(weights, len(sources), "sources", first=self.added)
        at_once = self._sizes.piece
        for first in range(0, len(sources), at_once):
            piece = slice(first, first + at_once)
            columns = [sources[piece], targets[piece]]
            if self._weighted:
                count = len(columns[0])
                columns.append(np.ones(count, np.float32) if weights is None else weights[piece])
            self._write(*(columns if self._directed else _both_directions(*columns)))
        self.added += len(sources)

    def _write(
        self, sources: NDArray[Any], targets: NDArray[Any], *weights: NDArray[np.float32]
    ) -> None:
        vertices = max(self.vertices, int(max(sources.max(), targets.max())) + 1)
        if vertices > len(self._in_degree):
            room = max(vertices, len(self._in_degree) * 5 // 4)
            self._in_degree = _fitted(self._in_degree, room)
            self._out_degree = _fitted(self._out_degree, room)
        keys = targets.astype(np.int64)
        keys <<= _TARGET_BITS
        keys |= sources
        self._file.write(self._keys, keys, *weights)
        # nothing counts that could not be written
        self._keys += len(keys)
        self.vertices = vertices
        self.longest = max(self.longest, count_ends(keys, self._in_degree, self._out_degree))

    def pack(
        self, vertices: int, most_edges: int, fixed_loops: bool, order: VertexOrder = "given"
    ) -> PackedEdges:
        """The graph of all edges; spends the spool, also if it fails.

        vertices     number of vertices, more than every id
        most_edges   edges, and rows, of a bucket, unless a single row has more
        fixed_loops  see PackedEdges
        order        of the vertices, see liverank_gpu.types.Options

        Raises InvalidValue if the spool is spent; OSError.
        """
        if self._packed:
            requirement = "added to a new graph: a graph sorts its edges only once"
            raise InvalidValue("edges", f"{self.added} edges", requirement)
        self._packed = True
        in_degree = _fitted(self._in_degree, vertices)
        self._in_degree = self._in_degree[:0].copy()
        out_degree = _fitted(self._out_degree, vertices)
        self._out_degree = self._out_degree[:0].copy()
        ids = chosen_order(order, out_degree, in_degree, self._ends, self._sizes.least_permuted)
        del out_degree
        positions = np.empty_like(ids)
        positions[ids] = np.arange(len(ids), dtype=np.int32)
        if len(ids):
            in_degree = in_degree[ids]
        blocks = list(row_blocks(in_degree, most_edges))
        bounds = np.array([block.start for block in blocks] + [vertices], np.int64)
        places = np.zeros(len(bounds), np.int64)
        np.cumsum(np.add.reduceat(in_degree, bounds[:-1]) if blocks else [], out=places[1:])
        del in_degree
        if len(blocks) > 1:
            self._distribute(bounds[:-1] << _TARGET_BITS, places, most_edges, positions)
            positions = _AS_GIVEN
        packed = PackedEdges(
            vertices, self._directed, fixed_loops, self._folder, self._weighted, ids, self._repeats
        )
        try:
            for first, end in pairwise(places.tolist()):
                # no name for the columns: what is sorted is freed before it is packed
                packed.append(*_sorted(*self._read(self._file, first, end - first, positions)))
        except BaseException:
            packed.file.close()
            raise
        self.close()
        return packed

    def _ends(self) -> Iterator[Ends]:
        """Sources and targets of all edges, a piece at a time. Raises OSError."""
        at_once = self._sizes.piece
        for place in range(0, self._keys, at_once):
            keys = np.empty(min(at_once, self._keys - place), np.int64)
            self._file.read(place, keys)
            yield keys & _SOURCE, keys >> _TARGET_BITS

    def _distribute(
        self,
        first_keys: NDArray[np.int64],
        places: NDArray[np.int64],
        most_edges: int,
        positions: NDArray[np.int32],
    ) -> None:
        """Sorts the file by bucket.

        first_keys  int64[b], the least key of each bucket; ascending
        places      int64[b + 1], where each bucket begins, in keys
        positions   int32[n], those of ids, or int32[0]
        """
        ends = places[:-1].copy()
        with self._file as source:
            self._file = self._new_file()
            for place in range(0, self._keys, most_edges):
                count = min(most_edges, self._keys - place)
                piece = self._read(source, place, count, positions)
                begins, columns = sorted_by_bucket(first_keys, *piece)
                del piece
                self._file.write_by_bucket(ends, begins, columns)

    def _read(
        self, file: ScratchColumns, place: int, count: int, positions: NDArray[np.int32]
    ) -> list[NDArray[Any]]:
        """Keys, by position, and weights if the edges have any."""
        dtypes = (np.int64, np.float32)[: 2 if self._weighted else 1]
        columns = [np.empty(count, dtype) for dtype in dtypes]
        file.read(place, *columns)
        if len(positions):
            renumber(columns[0], positions)
        return columns

    def close(self) -> None:
        """Frees the file. To be called also if nothing is packed."""
        self._file.close()


def _both_directions(
    sources: NDArray[Any], targets: NDArray[Any], *weights: NDArray[Any]
) -> tuple[NDArray[Any], ...]:
    """Each undirected edge as two arcs, a loop as one. Repeats that name it from either end have
    the same order in both directions.
    """
    low, high = np.minimum(sources, targets), np.maximum(sources, targets)
    others = low != high
    return (
        np.concatenate([low, high[others]]),
        np.concatenate([high, low[others]]),
        *(np.concatenate([each, each[others]]) for each in weights),
    )


def _sorted(keys: NDArray[np.int64], *weights: NDArray[np.float32]) -> tuple[NDArray[Any], ...]:
    """Ascending keys, and their weights; equal keys stay in their order."""
    if weights:
        return sorted_by_key(keys, *weights)
    keys.sort()
    return (keys,)


# ---- the edges of a packed graph without direction, in a spool of their own ----


def neighbours(
    packed: PackedEdges, folder: Path | None, sizes: Sizes, repeats: bool = False
) -> EdgeSpool:
    """The edges in the rows of both ends. Raises OSError.

    repeats  whether an edge in each direction counts twice
    """
    spool = EdgeSpool(folder, directed=False, repeats=repeats, sizes=sizes)
    return _filled(spool, packed.entries(sizes.piece))


def oriented(
    packed: PackedEdges, folder: Path | None, sizes: Sizes
) -> tuple[EdgeSpool, NDArray[np.int32]]:
    """Each edge once, in the row of the end of lower rank, and the rank of each position, int32[n].
    Ranks ascend by the number of entries, so that no row is long. Raises OSError.
    """
    vertices = len(packed.row_lengths)
    entries = packed.row_lengths + packed.out_lengths
    rank = np.empty(vertices, np.int32)
    rank[np.argsort(entries, kind="stable")] = np.arange(vertices, dtype=np.int32)

    def edges() -> Iterator[Ends]:
        for targets, sources in packed.entries(sizes.piece):
            ends = rank[sources], rank[targets]
            if not packed.directed:
                ascending = ends[0] < ends[1]
                ends = ends[0][ascending], ends[1][ascending]
            yield np.maximum(*ends), np.minimum(*ends)

    return _filled(EdgeSpool(folder, sizes=sizes), edges()), rank


def _filled(spool: EdgeSpool, edges: Iterator[tuple[NDArray[Any], ...]]) -> EdgeSpool:
    """The spool with these edges added; closed if that fails."""
    try:
        for sources, targets in edges:
            spool.add(sources, targets)
    except BaseException:
        spool.close()
        raise
    return spool


# ---- values of edges in the order of ids, in files that are mapped ----


def sorted_by_id(
    packed: PackedEdges,
    values: ScratchColumns,
    ids: NDArray[np.int32],
    most_edges: int,
    folder: Path | None,
    more: int = 0,
) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int32]]:
    """The edges with their values, by the lower id and then by the higher one: these, int64[m]
    each, and values, int32[m], mapped from files without names.

    packed      each edge once
    values      int32 of each slot, in one column
    ids         int32[n], of each row
    most_edges  that are sorted at once, unless a single lower id has more
    folder      of the files; None for the system's folder of temporary files
    more        is added to each value

    Raises OSError.
    """

    def pieces() -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
        # fewer: there are more columns than while a bucket is sorted
        for targets, sources, of_edges in packed.entries(max(1, most_edges // 4), values):
            ends = ids[targets], ids[sources]
            keys = np.minimum(*ends).astype(np.int64)
            keys <<= _TARGET_BITS
            keys |= np.maximum(*ends)
            yield keys, of_edges

    degree = np.zeros(len(ids), np.int64)  # edges of each lower id
    for keys, _ in pieces():
        np.add.at(degree, keys >> _TARGET_BITS, 1)
    blocks = list(row_blocks(degree, most_edges))
    first_keys = np.array([block.start for block in blocks], np.int64) << _TARGET_BITS
    places = np.append(0, np.cumsum([int(degree[block].sum()) for block in blocks]))
    del degree
    ends = places[:-1].copy()
    with ScratchColumns(2, folder) as buckets:
        for piece in pieces():
            buckets.write_by_bucket(ends, *sorted_by_bucket(first_keys, *piece))
        with ScratchColumns(3, folder) as found:
            for first, count in zip(places[:-1].tolist(), np.diff(places).tolist(), strict=True):
                _sort(buckets, first, count, more, found)
            sources, targets, of_edges = found.mapped(int(places[-1]), np.int64, np.int64, np.int32)
    return sources, targets, of_edges


def _sort(buckets: ScratchColumns, first: int, count: int, more: int, into: ScratchColumns) -> None:
    """Sorts some edges. Raises OSError."""
    keys, values = np.empty(count, np.int64), np.empty(count, np.int32)
    buckets.read(first, keys, values)
    keys, values = sorted_by_key(keys, values)
    into.write(first, keys >> _TARGET_BITS, keys & _SOURCE, values + np.int32(more))
