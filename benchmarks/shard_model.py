"""A sweep in shards on paper: time by shards and link, and the same sweep simulated part by part.

    python -m benchmarks.shard_model

Nothing is measured, so there is no record. Rates are those of notes/shards.md. Which share of the
edges each shard has in each part of its rows is counted on a smaller R-MAT graph.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, shuffled_rmat
from benchmarks.shard_balance import Edges
from liverank_gpu.backends import backend_named
from liverank_gpu.graph.vertices import by_descending_degree
from liverank_gpu.operations.backend import Sizes
from liverank_gpu.sharded.columns import Numbering
from liverank_gpu.sharded.operations import Spans, spans_of

EDGE_SECONDS = 6.8e-12
"""c: one H200, R-MAT 26."""

SMALLER_PARTS = 1.07
"""κ: rows of two shards over half of those of one."""

ITEMSIZE = 2
"""b: bytes of a contribution."""

NVLINK, INFINIBAND = 224e9, 50e9
"""B: bytes a second that a GPU receives."""

RMAT_26 = (1 << 26, 1_060_392_258)
"""Vertices and edges."""


class Sweep(NamedTuple):
    """Seconds of the rows of the largest shard, of the all-gather, of both one after the other, and
    of the sweep if parts are sent beside what is computed next.
    """

    rows: float
    gather: float
    in_turn: float
    in_parts: float


def received_bytes(vertices: int, shards: int, itemsize: int = ITEMSIZE) -> int:
    """What a shard receives in a sweep: rooms are sent, which are a little larger than shards."""
    return _room(vertices, shards) * (shards - 1) * itemsize


def shares(edges: Edges, shards: int, spans: Spans) -> NDArray[np.float64]:
    """float64[parts, shards]: the shares of all edges that in-lists have, as vertices are dealt out
    by degree. spans  of any number of rows, which stand for those of this graph
    """
    lengths = np.bincount(edges.targets, minlength=edges.vertices)
    degrees = lengths + np.bincount(edges.sources, minlength=edges.vertices)
    lengths = lengths[by_descending_degree(np, degrees)]
    room, scale = spans[0][1], -(-edges.vertices // shards)
    bounds = [tuple(round(bound / room * scale) for bound in span) for span in spans]
    owned = [lengths[rank::shards] for rank in range(shards)]
    counts = [[int(each[slice(*bound)].sum()) for each in owned] for bound in bounds]
    return np.array(counts) / max(1, len(edges.targets))


def simulated(
    seconds: NDArray[np.float64], spans: Spans, received: float, bandwidth: float
) -> float:
    """Seconds of a sweep. A part is sent when all shards have computed it and the part before has
    been sent; shards go on with the next one meanwhile.

    seconds   float64[parts, shards], of the rows of each part
    received  bytes of all parts
    """
    room, computed, sent = spans[0][1], np.zeros(seconds.shape[1]), 0.0
    for part, (first, end) in zip(seconds, spans, strict=True):
        computed += part
        sent = max(sent, float(computed.max())) + received * (end - first) / room / bandwidth
    return sent


def sweep(edges: Edges, shards: int, bandwidth: float, graph: tuple[int, int] = RMAT_26) -> Sweep:
    """Of a graph of so many vertices and edges, whose edges lie as those of a smaller one."""
    vertices, count = graph
    spans = spans_of(_room(vertices, shards), ITEMSIZE, Sizes())
    edge_seconds = EDGE_SECONDS * (SMALLER_PARTS if shards > 1 else 1.0)
    seconds = shares(edges, shards, spans) * count * edge_seconds
    received = received_bytes(vertices, shards)
    rows, gather = float(seconds.sum(axis=0).max()), received / bandwidth
    in_parts = simulated(seconds, spans, received, bandwidth)
    return Sweep(rows, gather, rows + gather, in_parts)


def _room(vertices: int, shards: int) -> int:
    return Numbering(0, shards).for_positions(vertices).room


def main() -> None:
    parser = harness.parser(__doc__ or "")
    parser.add_argument("--scale", type=int, default=20, help="of the graph that is counted")
    scale = parser.parse_args().scale
    columns = shuffled_rmat(backend_named("cpu"), scale, EDGES_PER_VERTEX << scale)
    edges = Edges.of(f"R-MAT {scale}", 1 << scale, *columns)
    print("| GPUs | link | rows | all-gather | sweep, one after the other | in parts |")
    print("| --- " * 6 + "|")
    links = {"NVLink": (NVLINK, (1, 2, 4, 8)), "InfiniBand": (INFINIBAND, (2, 4, 8, 64, 1024))}
    for link, (bandwidth, sizes) in links.items():
        for shards in sizes:
            milliseconds = [f"{1e3 * each:.2f} ms" for each in sweep(edges, shards, bandwidth)]
            print(f"| {shards:,} | {link} | {' | '.join(milliseconds)} |")


if __name__ == "__main__":
    main()
