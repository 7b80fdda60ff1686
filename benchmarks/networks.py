"""Graphs read from files, and networks that change: a first graph and the batches that follow.

Temporal networks are cut as in section 5.1.4 of the DF-P paper (Sahu, 2024): the first 90 % of the
temporal edges are loaded, the rest comes in consecutive batches. Package registries: the first
snapshot is loaded, then come the insertions and deletions that lead to the later ones. Their order
between two snapshots is not known, so it is drawn.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch
from liverank_service.formats.edge_files import read_edge_list
from liverank_service.vertex_keys import KeyTable

NETWORKS = {
    "sx-mathoverflow": "sx-mathoverflow/sx-mathoverflow.txt.gz",
    "sx-askubuntu-a2q": "sx-askubuntu-a2q/sx-askubuntu-a2q.txt.gz",
    "wikipedia": "tgn-ml/ml_wikipedia.txt.zst",
    "npm": "pkg-deps/npm.events.txt.zst",
    "rubygems": "pkg-deps/rubygems.events.txt.zst",
}
"""The file of each network, below the folder of real graphs."""

GRAPHS = {
    "cnr-2000": "cnr-2000/cnr-2000.txt.zst",
    "npm": "pkg-deps/npm.2016-08-26.links.bin.zst",
    "dblp-2010": "dblp-2010/dblp-2010.txt.zst",
    "seattle": "osm-roads/seattle-roads.gr.bin.zst",
    # those of Wang and others by their names there, as SNAP has them
    "Pokec": "soc-pokec/soc-pokec-relationships.txt.gz",
    "Wiki": "wiki-topcats/wiki-topcats.txt.gz",
    "Stack": "sx-stackoverflow/sx-stackoverflow.txt.gz",
    "LiveJ": "soc-LiveJournal1/soc-LiveJournal1.txt.gz",
}
"""The file of each graph that does not change."""

_LOADED = 0.9
_SEED = 7


def read_graph(path: Path) -> EdgeBatch:
    """The edges of a file as one batch of insertions; ids by first appearance."""
    edges = read_edge_list(path)
    table = KeyTable("integer" if pa.types.is_integer(edges.sources.type) else "string")
    known = [] if edges.vertices is None else [edges.vertices]
    ids = table.assign(pa.concat_arrays([*known, edges.sources, edges.targets]))
    count = len(edges)
    return EdgeBatch(ids[-2 * count : -count], ids[-count:], vertices=len(table))


@dataclass(frozen=True)
class Network:
    """Events in order of time; ids by first appearance.

    sources, targets  int64[events]
    inserted          bool[events]; the others are deletions
    first             number of events that make the first graph
    intervals         int64[…], where the events of each later interval begin, and their end
    """

    sources: NDArray[np.int64]
    targets: NDArray[np.int64]
    inserted: NDArray[np.bool_]
    first: int
    intervals: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.sources)

    @property
    def vertices(self) -> int:
        """Of all events."""
        return 1 + int(max(self.sources.max(), self.targets.max()))

    @property
    def initial(self) -> EdgeBatch:
        """The first graph."""
        return EdgeBatch(self.sources[: self.first], self.targets[: self.first])

    def batches(self, size: int, most: int) -> list[EdgeBatch]:
        """Consecutive batches of `size` events after the first graph, at most `most`; none spans
        two intervals.
        """
        limits = [
            (start, min(start + size, end))
            for begin, end in pairwise(self.intervals.tolist())
            for start in range(begin, end, size)
        ]
        return [self._batch(*limit) for limit in limits[:most]]

    def _batch(self, start: int, end: int) -> EdgeBatch:
        sources, targets = self.sources[start:end], self.targets[start:end]
        inserted = self.inserted[start:end]
        return EdgeBatch(
            sources[inserted], targets[inserted], sources[~inserted], targets[~inserted]
        )


def read_network(path: Path) -> Network:
    """The network of a temporal edge list or an event list."""
    edges = read_edge_list(path).by_time()
    assert edges.times is not None
    count = len(edges)
    inserted = np.ones(count, bool) if edges.operations is None else edges.operations
    order = np.arange(count)
    if edges.operations is None:
        first = int(_LOADED * count)
        intervals = np.array([first, count])
    else:
        changes = np.flatnonzero(np.diff(edges.times)) + 1
        first = int(changes[0])
        intervals = np.array([*changes, count])
        generator = np.random.default_rng(_SEED)
        for begin, end in pairwise(intervals.tolist()):
            generator.shuffle(order[begin:end])
    pairs = np.stack(
        [column.to_numpy(zero_copy_only=False)[order] for column in (edges.sources, edges.targets)],
        axis=1,
    )
    ids = KeyTable("integer").assign(pa.array(pairs.ravel())).reshape(-1, 2)
    return Network(ids[:, 0].copy(), ids[:, 1].copy(), inserted[order], first, intervals)
