"""Edges in any order → packed in-lists in a file, in bounded memory.

Edges are written as they come, as keys ``target << 32 | source``, and the in-degree of each vertex
is counted. Then the vertices are divided into buckets of about equal numbers of in-edges, the keys
are distributed to their buckets in a second file, and each bucket is read, sorted, freed of repeats
and loops, and written to the last one. So an edge is written three times and read twice before the
first sweep: 28 bytes of writing, 16 of reading.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gpu.errors import InvalidValue
from gpu.graph.rows import row_blocks
from gpu.operations.csr import ALIGNMENT
from gpu.out_of_core.scratch_file import ScratchFile
from gpu.types import VERTEX_LIMIT

_PIECE = 1 << 16
"""Edges that are written at once: their keys are part of no budget."""

_TARGET_BITS = 32


class PackedEdges:
    """The in-lists of a graph, without loops and repeats, ascending, in a file.

    row_lengths  int32[n]; rows lie one after the other, each from a multiple of ALIGNMENT slots on
    loop, degree uint8[n] and int32[n], see gpu.operations.csr.GraphView
    fixed_loops  whether every vertex has one loop, and others do not count
    slots        of all rows so far
    file         int32[slots], column indices
    """

    def __init__(
        self, vertices: int, directed: bool, fixed_loops: bool, folder: Path | None = None
    ) -> None:
        """A graph without edges. Raises OSError.

        folder  of the file; None for the system's folder of temporary files
        """
        self.row_lengths = np.zeros(vertices, np.int32)
        self.loop = np.full(vertices, fixed_loops, np.uint8)
        self.degree = np.full(vertices, fixed_loops, np.int32)
        self.fixed_loops = fixed_loops
        self.slots = 0
        self.file = ScratchFile(folder)
        self._directed = directed
        self._links = 0

    @property
    def arcs(self) -> int:
        """Number of edges; other edges than loops of an undirected graph are counted twice."""
        return self._links + (0 if self.fixed_loops else int(np.count_nonzero(self.loop)))

    @property
    def edges(self) -> int:
        """Number of edges, see gpu.graph.dynamic_graph.DynamicGraph."""
        return self.arcs - (0 if self._directed else self._links // 2)

    def append(self, rows: slice, keys: NDArray[np.int64]) -> None:
        """Writes the in-lists of a range of vertices behind those of all before it.

        keys  int64[k], ``target << 32 | source``: ascending, distinct, loops included

        Raises OSError.
        """
        keys = self._without_loops(keys)
        sources, targets = _ends(keys)
        np.add.at(self.degree, sources, 1)
        places = targets.astype(np.int64)
        places -= rows.start
        lengths = np.bincount(places, minlength=rows.stop - rows.start)
        self.row_lengths[rows] = lengths
        room = padded(lengths)
        padding: NDArray[np.int64] = room - lengths
        # an entry is behind those before it and the padding of the rows before its own
        places = (np.cumsum(padding) - padding)[places]
        places += np.arange(len(keys))
        slots = np.zeros(int(room.sum()), np.int32)
        slots[places] = sources
        self.file.write(self.slots, slots)
        self.slots += len(slots)
        self._links += len(keys)

    def _without_loops(self, keys: NDArray[np.int64]) -> NDArray[np.int64]:
        """The keys of other edges; loops are recorded."""
        sources, targets = _ends(keys)
        is_loop = sources == targets
        if not is_loop.any():
            return keys
        if not self.fixed_loops:
            looping = targets[is_loop]
            self.loop[looping] = 1
            self.degree[looping] += 1
        others: NDArray[np.int64] = keys[~is_loop]
        return others


def padded(lengths: NDArray[Any]) -> NDArray[Any]:
    """Lengths rounded up to ALIGNMENT."""
    return (lengths + (ALIGNMENT - 1)) & -ALIGNMENT


class EdgeSpool:
    """Edges that are gathered in a file.

    added     number of edges that were added
    vertices  the least number of vertices that have all these ids
    """

    def __init__(self, folder: Path | None, directed: bool = True) -> None:
        """folder    where files are; None for the system's folder of temporary files
        directed  see gpu.types.Options

        Raises OSError.
        """
        self._folder, self._directed = folder, directed
        self._file = ScratchFile(folder)
        self._keys = 0
        self._in_degree = np.zeros(0, np.int64)
        self.added = self.vertices = 0

    def add(self, sources: NDArray[np.integer[Any]], targets: NDArray[np.integer[Any]]) -> None:
        """Adds edges with these ids, integer[k] each. Repeats are one edge.

        Raises InvalidValue for columns of unequal length and for an id out of range, OSError.
        """
        if len(sources) != len(targets):
            raise InvalidValue("targets", f"length {len(targets)}", f"{len(sources)} long")
        for name, ends in (("sources", sources), ("targets", targets)):
            if len(ends) and not 0 <= int(ends.min()) <= int(ends.max()) < VERTEX_LIMIT:
                wrong = int(np.flatnonzero((ends < 0) | (ends >= VERTEX_LIMIT))[0])
                requirement = f"an id from 0 to {VERTEX_LIMIT - 1}"
                raise InvalidValue(f"{name}[{self.added + wrong}]", int(ends[wrong]), requirement)
        for first in range(0, len(sources), _PIECE):
            piece = slice(first, first + _PIECE)
            self._write(sources[piece], targets[piece])
            if not self._directed:
                others = sources[piece] != targets[piece]
                self._write(targets[piece][others], sources[piece][others])
        self.added += len(sources)

    def _write(self, sources: NDArray[Any], targets: NDArray[Any]) -> None:
        if len(sources) == 0:
            return
        self.vertices = max(self.vertices, int(max(sources.max(), targets.max())) + 1)
        if self.vertices > len(self._in_degree):
            grown = np.zeros(max(self.vertices, len(self._in_degree) * 5 // 4), np.int64)
            grown[: len(self._in_degree)] = self._in_degree
            self._in_degree = grown
        np.add.at(self._in_degree, targets, 1)
        keys = targets.astype(np.int64)
        keys <<= _TARGET_BITS
        keys |= sources.astype(np.int64)
        self._file.write(self._keys, keys)
        self._keys += len(keys)

    @property
    def longest(self) -> int:
        """Upper bound on the length of an in-list; repeats are counted."""
        return int(self._in_degree.max(initial=0))

    def pack(self, vertices: int, most_edges: int, fixed_loops: bool) -> PackedEdges:
        """The graph of all edges; spends the spool.

        vertices     number of vertices, more than every id
        most_edges   edges, and rows, of a bucket, unless a single row has more
        fixed_loops  see PackedEdges

        Raises OSError.
        """
        in_degree = np.zeros(vertices, np.int64)
        in_degree[: self.vertices] = self._in_degree[: self.vertices]
        self._in_degree = np.zeros(0, np.int64)
        blocks = list(row_blocks(in_degree, most_edges))
        bounds = np.array([block.start for block in blocks] + [vertices], np.int64)
        places = np.zeros(len(bounds), np.int64)
        np.cumsum(np.add.reduceat(in_degree, bounds[:-1]) if blocks else [], out=places[1:])
        del in_degree
        if len(blocks) > 1:
            self._distribute(bounds[:-1] << _TARGET_BITS, places, most_edges)
        packed = PackedEdges(vertices, self._directed, fixed_loops, self._folder)
        try:
            for number in range(len(blocks)):
                keys = np.empty(int(places[number + 1] - places[number]), np.int64)
                self._file.read(int(places[number]), keys)
                keys = _without_repeats(keys)
                packed.append(slice(int(bounds[number]), int(bounds[number + 1])), keys)
        except BaseException:
            packed.file.close()
            raise
        self.close()
        return packed

    def _distribute(
        self, first_keys: NDArray[np.int64], places: NDArray[np.int64], most_edges: int
    ) -> None:
        """Sorts the file by bucket.

        first_keys  int64[b], the least key of each bucket; ascending
        places      int64[b + 1], where each bucket begins, in keys
        """
        ends = places[:-1].copy()
        with self._file as source:
            self._file = ScratchFile(self._folder)
            for keys in self._read(source, most_edges):
                buckets = np.searchsorted(first_keys, keys, "right")
                # integers of 16 bits are sorted by radix
                short = buckets.astype(np.min_scalar_type(len(ends)))
                keys = keys[np.argsort(short, kind="stable")]
                counts = np.bincount(buckets, minlength=len(ends) + 1)[1:]
                del buckets
                first = 0
                for bucket in np.flatnonzero(counts).tolist():
                    last = first + int(counts[bucket])
                    self._file.write(int(ends[bucket]), keys[first:last])
                    ends[bucket] += last - first
                    first = last

    def _read(self, file: ScratchFile, most: int) -> Iterator[NDArray[np.int64]]:
        for first in range(0, self._keys, most):
            keys = np.empty(min(most, self._keys - first), np.int64)
            file.read(first, keys)
            yield keys

    def close(self) -> None:
        """Frees the file. To be called also if nothing is packed."""
        self._file.close()


def _without_repeats(keys: NDArray[np.int64]) -> NDArray[np.int64]:
    keys.sort()
    is_first = np.ones(len(keys), np.bool_)
    np.not_equal(keys[1:], keys[:-1], out=is_first[1:])
    return keys[is_first]


def _ends(keys: NDArray[np.int64]) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """Sources and targets, views of the keys."""
    halves = keys.astype("<i8", copy=False).view("<i4")
    return halves[::2], halves[1::2]
