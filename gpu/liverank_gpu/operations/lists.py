"""Contract: vertices with the same in-list."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from liverank_gpu.operations.csr import GraphView
from liverank_gpu.operations.device import Array

NO_PART = -1
"""What a weighted loop beside other out-edges returns, which is not compared: see
`returned_parts`.
"""


class Fingerprints(NamedTuple):
    """The in-lists of some vertices, each int64[k] on the host.

    positions  the vertices
    lengths    of the lists; 0 where a list is not compared, and has no hash and no source
    hashes     equal where the lists and what loops return are the same; others differ but by chance
    sources    of each list the one with the fewest out-edges, of several the lowest position
    out_edges  how many out-edges that has
    """

    positions: NDArray[np.int64]
    lengths: NDArray[np.int64]
    hashes: NDArray[np.int64]
    sources: NDArray[np.int64]
    out_edges: NDArray[np.int64]

    def at(self, places: NDArray[np.int64] | NDArray[np.bool_]) -> Fingerprints:
        """Those at some places, or where it is true."""
        return Fingerprints(*(column[places] for column in self))


class ListOperations(ABC):
    """In-lists are the same if they have the same sources and weights, in whatever order, and their
    vertices get the same part of their rank back by a loop, which is no entry.
    """

    @abstractmethod
    def fingerprints(self, graph: GraphView, positions: Array, longest: int) -> Fingerprints:
        """Of the in-lists of vertices, integer[k] positions on the device. A list is compared if it
        has 1 … `longest` entries and its vertex gets a part back that can be compared.

        Traffic: 8 bytes an entry, half of them read at random; 12 with weights.
        """

    @abstractmethod
    def with_same_list(
        self, graph: GraphView, lists: Fingerprints
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """All other vertices whose in-list is the same as one of some lists, of k ≥ 1 that are
        compared. Entries are compared; hashes are not looked at.

        Returns numbers of lists, 0 … k-1, and positions, int64[…] each on the host: a pair for each
        vertex, in any order.

        Traffic: a list and its vertex's length at random for each out-edge of its source, at most
        Σ lengths · out_edges entries.
        """


def returned_parts(loop: Array, degree: Array) -> Array:
    """int64[k], equal numbers where loops return the same part of a rank: 0 where there are none, 1
    where they return all. NO_PART where a weighted loop does, beside other out-edges: sums of
    weights are rounded.

    loop, degree  those of GraphView at some vertices
    """
    beside = degree.astype(np.int64) if degree.dtype.kind == "i" else NO_PART
    return (loop != 0) * ((degree == loop) + (degree != loop) * beside)
