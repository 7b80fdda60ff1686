"""A sweep in parts, so that contributions of one are sent while the next is computed.

Positions are in the order of degrees, so the first rows have most of the edges, and the others most
of the contributions. The first eighth is swept last: all contributions but its own are sent by
then, or while it is swept. The others are two parts, for sweeps by pages, which take the edges
first and then all rows alike: what is sent of one is sent while the next is finished.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.csr import RowPart, Rows
from liverank_gpu.operations.device import Array
from liverank_gpu.sharded.columns import Columns

_BOUNDS = (2, 8)
"""Parts end at one in so many of the rows: they are a half, three eighths and an eighth."""

_LEAST_BYTES = 1 << 23
"""Contributions of one shard, from which on sending them takes longer than two more launches: at
224 GB/s, 37 µs.
"""

_ALIGNMENT = 64
"""Parts are multiples of it, as rooms are."""

Spans = tuple[tuple[int, int], ...]
"""(first, end) of the rows of each part: those with the most edges last."""


def spans_of(room: int, itemsize: int) -> Spans:
    """The parts of so many rows, or one where more are not worth it.

    itemsize  bytes of a contribution
    """
    firsts = [room // part // _ALIGNMENT * _ALIGNMENT for part in _BOUNDS]
    if room * itemsize < _LEAST_BYTES or 0 in firsts:
        return ((0, room),)
    return tuple((first, end) for end, first in pairwise([room, *firsts, 0]))


class DividedRows:
    """The in-lists of one shard in the parts in which they are swept."""

    def __init__(self, local: Backend, columns: Columns) -> None:
        self._local, self._columns = local, columns
        self._groups: NDArray[np.int64] | None = None
        self._divided: tuple[int, Spans] = (0, ())
        self._parts: tuple[RowPart, ...] = ()

    def spans(self, contributions: Array) -> Spans:
        """The parts of own rows, the same on all shards: `spans_of`, or one.

        contributions  of the length Numbering.columns
        """
        own = self._columns.own(contributions)
        if not self._columns.sends_beside:
            return ((0, len(own)),)
        return spans_of(len(own), own.itemsize)

    def parts(self, rows: Rows, spans: Spans) -> tuple[RowPart, ...]:
        """All rows in these parts, which are kept until groups or rows change."""
        if len(spans) == 1:
            return (RowPart(rows, spans[0]),)
        divided = rows.count, spans
        if rows.groups is not self._groups or divided != self._divided:
            self._parts = self._divide(rows, spans)
            self._groups, self._divided = rows.groups, divided
        return self._parts

    def _divide(self, rows: Rows, spans: Spans) -> tuple[RowPart, ...]:
        xp, ascending = self._local.xp, spans[::-1]
        firsts = xp.array([first for first, _ in ascending], np.int32)
        groups = [rows.order[begin:end] for begin, end in pairwise(rows.groups.tolist())]
        places = xp.concatenate([xp.searchsorted(group, firsts) for group in groups])
        begins = self._local.device.to_host(places).reshape(len(groups), -1).tolist()
        bounds = [[*row, len(group)] for row, group in zip(begins, groups, strict=True)]
        parts = []
        for part, span in enumerate(ascending):
            within = [
                group[bound[part] : bound[part + 1]]
                for group, bound in zip(groups, bounds, strict=True)
            ]
            ends = np.cumsum([0, *map(len, within)], dtype=np.int64)
            parts.append(RowPart(Rows(xp.concatenate(within), ends), span))
        return tuple(reversed(parts))


class Sending:
    """The contributions of one sweep, which are sent part by part.

    rows  to be swept: see Rows.issued
    """

    def __init__(
        self, columns: Columns, contributions: Array, rows: Rows, parts: Sequence[RowPart]
    ) -> None:
        """contributions  of the length Numbering.columns; parts  see DividedRows.parts"""
        self._columns, self._contributions = columns, contributions
        self._spans = [part.span for part in parts]
        self._sent = 0
        self.rows = replace(rows, parts=tuple(parts), issued=self._send)

    def _send(self, part: int) -> None:
        assert part == self._sent
        self._sent += 1
        if len(self._spans) == 1:
            self._columns.gather(self._contributions)
        else:
            self._columns.start_gather(self._contributions, slice(*self._spans[part]))

    def complete(self) -> None:
        """Sends what has not been sent. What is issued next finds all contributions."""
        for part in range(self._sent, len(self._spans)):
            self._send(part)
        if len(self._spans) > 1:
            self._columns.wait_for_gathers()
