"""How evenly shards own the edges of a graph: the largest shard over the mean, in both directions.

Counted, not measured, so there is no record: positions are dealt out as ShardGraph does, in the
order of degrees.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from benchmarks import harness
from benchmarks.inputs import EDGES_PER_VERTEX, shuffled_rmat
from benchmarks.networks import read_graph
from liverank_gpu.backends import backend_named
from liverank_gpu.graph.vertices import by_descending_degree
from liverank_gpu.sharded.columns import Numbering

SHARDS = (2, 4, 8)
_COLUMNS = [f"{shards} shards, in and out" for shards in SHARDS]

FILES = (
    "cnr-2000/cnr-2000.txt.zst",
    "dblp-2010/dblp-2010.txt.zst",
    "ego-twitter-gstest/twitter_e.csv.zst",
    "higgs-twitter/higgs-retweet_network.edgelist.gz",
    "sx-mathoverflow/sx-mathoverflow.txt.gz",
    "wiki-Vote/wiki-Vote.txt.zst",
)
"""Below the folder of real graphs."""


class Edges(NamedTuple):
    """Distinct edges without loops, which are in no list.

    sources, targets  int64[m], ids below `vertices`
    """

    name: str
    vertices: int
    sources: NDArray[np.int64]
    targets: NDArray[np.int64]

    @classmethod
    def of(cls, name: str, vertices: int, sources: ArrayLike, targets: ArrayLike) -> Edges:
        """From columns with repeats and loops."""
        keys = np.asarray(sources, np.int64) * vertices + np.asarray(targets, np.int64)
        ends = np.stack(np.divmod(np.unique(keys), vertices))
        return cls(name, vertices, *ends[:, ends[0] != ends[1]])


class Balance(NamedTuple):
    """Of one direction of a graph in so many shards.

    largest  edges of the largest shard over the mean
    longest  the longest list over the mean of the shards
    first    edges of the first eighth of the rows, over all
    """

    largest: float
    longest: float
    first: float


def balance(edges: Edges, shards: int) -> tuple[Balance, Balance]:
    """Of the in-lists and of the out-lists."""
    lengths = [
        np.bincount(column, minlength=edges.vertices) for column in (edges.targets, edges.sources)
    ]
    ids = by_descending_degree(np, lengths[0] + lengths[1])
    owners = np.empty(edges.vertices, np.int64)
    owners[ids] = Numbering(0, shards).owners(np.arange(edges.vertices))
    mean = max(1, len(edges.sources)) / shards
    into, out = (
        Balance(
            float(np.bincount(owners, each, minlength=shards).max() / mean),
            float(each.max(initial=0) / mean),
            float(each[ids[: -(-edges.vertices // 8)]].sum() / (mean * shards)),
        )
        for each in lengths
    )
    return into, out


def star(leaves: int) -> Edges:
    """All vertices point to the first."""
    return Edges("star", leaves + 1, np.arange(1, leaves + 1), np.zeros(leaves, np.int64))


def _graphs(folder: Path, scale: int) -> Iterator[Edges]:
    columns = shuffled_rmat(backend_named("cpu"), scale, EDGES_PER_VERTEX << scale)
    yield Edges.of(f"R-MAT {scale}", 1 << scale, *columns)
    for file in FILES:
        batch = read_graph(folder / file)
        name = Path(file).parent.name
        yield Edges.of(name, batch.vertices, batch.insert_sources, batch.insert_targets)
    yield star(1_000_000)


def main() -> None:
    parser = harness.parser(__doc__ or "")
    parser.add_argument("folder", type=Path, help="folder of real graphs")
    parser.add_argument("--scale", type=int, default=20, help="of R-MAT")
    options = parser.parse_args()
    print("| graph | edges | longest in-list | first eighth | " + " | ".join(_COLUMNS) + " |")
    print("| --- " * (4 + len(_COLUMNS)) + "|")
    for edges in _graphs(options.folder, options.scale):
        found = [balance(edges, shards) for shards in SHARDS]
        into, _ = found[0]
        shares = f"{into.longest / SHARDS[0]:.2%} | {into.first:.0%}"
        largest = " | ".join(f"{into.largest:.3f}, {out.largest:.3f}" for into, out in found)
        print(f"| {edges.name} | {len(edges.sources):,} | {shares} | {largest} |", flush=True)


if __name__ == "__main__":
    main()
