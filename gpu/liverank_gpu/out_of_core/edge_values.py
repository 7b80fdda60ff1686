"""Values of edges in the order of ids, in files that are mapped."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.backends.cpu.packing import sorted_by_bucket, sorted_by_key
from liverank_gpu.graph.rows import row_blocks
from liverank_gpu.out_of_core.scratch_file import ScratchColumns
from liverank_gpu.out_of_core.spool import PackedEdges

_BITS = 32
_HIGHER = (1 << _BITS) - 1


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
            keys <<= _BITS
            keys |= np.maximum(*ends)
            yield keys, of_edges

    degree = np.zeros(len(ids), np.int64)  # edges of each lower id
    for keys, _ in pieces():
        np.add.at(degree, keys >> _BITS, 1)
    blocks = list(row_blocks(degree, most_edges))
    first_keys = np.array([block.start for block in blocks], np.int64) << _BITS
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
    into.write(first, keys >> _BITS, keys & _HIGHER, values + np.int32(more))
