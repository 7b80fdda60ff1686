"""Vertices with the same in-list, on ``cpu``."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array
from liverank_gpu.operations.lists import NO_PART, Fingerprints, ListOperations, returned_parts
from liverank_gpu.operations.rebuild import Entries, RebuildOperations
from liverank_gpu.random_numbers import mixed

_HALF = np.uint64(32)


class CpuLists(ListOperations):
    """See ListOperations."""

    def __init__(self, rebuild: RebuildOperations) -> None:
        self._rebuild = rebuild

    def fingerprints(self, graph: GraphView, positions: Array, longest: int) -> Fingerprints:
        found = Fingerprints(positions.astype(np.int64), *np.zeros((4, len(positions)), np.int64))
        lengths = graph.incoming.row_lengths[positions]
        compared = np.flatnonzero((lengths > 0) & (lengths <= longest))
        parts = _returned(graph, positions[compared])
        compared, parts = compared[parts != NO_PART], parts[parts != NO_PART]
        if len(compared) == 0:
            return found
        found.lengths[compared] = lengths = lengths[compared].astype(np.int64)
        _, sources, weights = self._rebuild.entries(graph.incoming.at(positions[compared]))
        starts = np.cumsum(lengths) - lengths
        entries = sources.astype(np.uint64) << _HALF
        if weights is not None:
            entries |= weights.view(np.uint32)
        # mixed twice, as no entry is
        hashes = mixed(mixed((lengths << 32 | parts).view(np.uint64)))
        hashes += np.add.reduceat(mixed(entries), starts)
        found.hashes[compared] = hashes.view(np.int64)
        nearest = graph.outgoing.row_lengths[sources].astype(np.int64) << 32
        nearest = np.minimum.reduceat(nearest | sources, starts)
        found.sources[compared], found.out_edges[compared] = nearest & 0xFFFFFFFF, nearest >> 32
        return found

    def with_same_list(
        self, graph: GraphView, lists: Fingerprints
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        numbers, vertices, _ = self._rebuild.entries(graph.outgoing.at(lists.sources))
        alike = graph.incoming.row_lengths[vertices] == lists.lengths[numbers]
        alike &= vertices != lists.positions[numbers]
        numbers, vertices = numbers[alike].astype(np.int64), vertices[alike].astype(np.int64)
        alike = _returned(graph, vertices) == _returned(graph, lists.positions)[numbers]
        numbers, vertices = numbers[alike], vertices[alike]
        if len(numbers) == 0:
            return numbers, vertices
        reached, places = np.unique(numbers, return_inverse=True)
        lists = lists.at(reached)
        wanted, found = self._sorted(graph, lists.positions), self._sorted(graph, vertices)
        ends, own_ends = np.cumsum(lists.lengths), np.cumsum(lists.lengths[places])
        same = np.arange(len(found.rows)) + (ends[places] - own_ends)[found.rows]
        differs = found.neighbours != wanted.neighbours[same]
        if found.weights is not None and wanted.weights is not None:
            differs |= found.weights != wanted.weights[same]
        identical = np.ones(len(numbers), np.bool_)
        identical[found.rows[differs]] = False
        return numbers[identical], vertices[identical]

    def _sorted(self, graph: GraphView, positions: NDArray[np.int64]) -> Entries:
        """The in-lists of some vertices one after the other, each in ascending order."""
        rows, sources, weights = self._rebuild.entries(graph.incoming.at(positions))
        order = np.argsort(rows.astype(np.int64) << 32 | sources)
        return Entries(rows, sources[order], None if weights is None else weights[order])


def _returned(graph: GraphView, positions: Array) -> NDArray[np.int64]:
    returned: NDArray[np.int64] = returned_parts(graph.loop[positions], graph.degree[positions])
    return returned
