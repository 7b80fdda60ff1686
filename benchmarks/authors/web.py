"""A graph like the web, as large as wanted: copies of a crawl whose links are exchanged.

Copy c of the crawl has its vertices and edges, at ids from c·n on. An edge in 32 leads to its
target in another copy, one of low number more often, so that some vertices have more in-edges than
any of the crawl. The others keep degrees, near ids and chains. Every edge has an image in the
crawl, so what is not strongly connected there is not here: strongly connected parts are those of
the crawl, of all copies that exchange links, less what an exchanged link cuts off.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.inputs import Columns
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.device import Array
from liverank_service.formats.edge_files import read_edge_list

EXCHANGED = 1 / 32
_CHUNK = 1 << 26


def crawl(path: Path) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
    """A crawl's edges by its own ids, which are in the order of the addresses; without loops."""
    edges = read_edge_list(path)
    sources, targets = (np.asarray(ends, np.int32) for ends in (edges.sources, edges.targets))
    return sources[sources != targets], targets[sources != targets]


def web(backend: Backend, edges: tuple[Any, Any], copies: int, seed: int = 1) -> Columns:
    """The edges of this many copies; the vertices are as many times those of the crawl."""
    xp = backend.xp
    base = [xp.asarray(ends) for ends in edges]
    vertices, count = 1 + int(max(ends.max() for ends in base)), len(base[0])
    total = copies * count
    columns = xp.empty(total, np.int32), xp.empty(total, np.int32)
    random = xp.random.default_rng(seed)
    for first in range(0, total, _CHUNK):
        copy, edge = xp.divmod(xp.arange(first, min(first + _CHUNK, total)), count)
        other = (copies * random.random(len(edge)) ** 3).astype(np.int64)
        own = random.random(len(edge)) >= EXCHANGED
        chunk = slice(first, first + _CHUNK)
        columns[0][chunk] = base[0][edge] + vertices * copy
        columns[1][chunk] = base[1][edge] + vertices * xp.where(own, copy, other)
    return columns


def figures(xp: Any, vertices: int, sources: Array, targets: Array) -> dict[str, Any]:
    """How like the web: degrees and distances of ids at percentiles 50, 90, 99 and 100; parts of
    vertices without out-edges, with one in-edge, and with one of each; part of edges to lower ids.
    """
    degrees = [xp.bincount(ends, minlength=vertices) for ends in (sources, targets)]
    distances = xp.abs(targets - sources)

    def percentiles(values: Array) -> list[int]:
        ordered = xp.sort(values)
        return [int(ordered[(len(ordered) - 1) * part // 100]) for part in (50, 90, 99, 100)]

    return {
        "vertices": vertices,
        "edges": len(sources),
        "out-degrees": percentiles(degrees[0]),
        "in-degrees": percentiles(degrees[1]),
        "distances of ids": percentiles(distances[:: 1 + len(sources) // _CHUNK]),
        "without out-edges": float((degrees[0] == 0).mean()),
        "one in-edge": float((degrees[1] == 1).mean()),
        "one of each": float(((degrees[0] == 1) & (degrees[1] == 1)).mean()),
        "edges back": float((targets < sources).mean()),
    }
