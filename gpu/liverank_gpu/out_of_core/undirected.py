"""The edges of a packed graph without direction, in a spool of their own, to be packed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.out_of_core.spool import EdgeSpool, PackedEdges

Ends = tuple[NDArray[np.integer[Any]], NDArray[np.integer[Any]]]
"""Sources and targets."""

_PIECE = 1 << 16
"""Slots that are read at once, unless a row has more: they are part of no budget."""


def neighbours(packed: PackedEdges, folder: Path | None, repeats: bool = False) -> EdgeSpool:
    """The edges in the rows of both ends. Raises OSError.

    repeats  whether an edge in each direction counts twice
    """
    return _filled(EdgeSpool(folder, directed=False, repeats=repeats), _edges(packed))


def oriented(packed: PackedEdges, folder: Path | None) -> tuple[EdgeSpool, NDArray[np.int32]]:
    """Each edge once, in the row of the end of lower rank, and the rank of each position, int32[n].
    Ranks ascend by the number of entries, so that no row is long. Raises OSError.
    """
    vertices = len(packed.row_lengths)
    entries = packed.row_lengths + packed.out_lengths
    rank = np.empty(vertices, np.int32)
    rank[np.argsort(entries, kind="stable")] = np.arange(vertices, dtype=np.int32)

    def edges() -> Iterator[Ends]:
        for sources, targets in _edges(packed):
            ends = rank[sources], rank[targets]
            if not packed.directed:
                ascending = ends[0] < ends[1]
                ends = ends[0][ascending], ends[1][ascending]
            yield np.maximum(*ends), np.minimum(*ends)

    return _filled(EdgeSpool(folder), edges()), rank


def _filled(spool: EdgeSpool, edges: Iterator[Ends]) -> EdgeSpool:
    """The spool with these edges added; closed if that fails."""
    try:
        for sources, targets in edges:
            spool.add(sources, targets)
    except BaseException:
        spool.close()
        raise
    return spool


def _edges(packed: PackedEdges) -> Iterator[Ends]:
    """A piece at a time."""
    for targets, sources in packed.entries(_PIECE):
        yield sources, targets
