"""Graphs and update streams from a seed.

    sources, targets = rmat(scale=16, edges_per_vertex=16, seed=7)
    for batch in update_stream(sources, targets, 2**16, size=1_000, batches=100, seed=7):
        engine.apply(batch)

    graph = preferential_attachment(1_000_000, 4, probability=0.5, seed=7, backend="auto")
    for batch in graph.stream(1_000):
        engine.apply(batch)

The same arguments give the same graph on any number of threads, on any launch shape and on every
backend: random numbers are counter-based (liverank_gpu.operations.generate). `rmat` and `grid`
return columns on the host; `preferential_attachment`, `uniform` and `chains` leave them where they
were drawn, and `edge_list` copies them to the host. `update_stream` and `temporal_stream` give
batches on the host.

`published.preferential_attachment` draws from the model of `preferential_attachment` by the
algorithm of a paper, whose graphs depend on which thread runs when.
"""

from liverank_gpu.generate import published
from liverank_gpu.generate.batches import INSERTED_SHARE, temporal_stream, update_stream
from liverank_gpu.generate.graphs import (
    RMAT_PROBABILITIES,
    PreferentialAttachment,
    chains,
    edge_list,
    grid,
    preferential_attachment,
    rmat,
    uniform,
)

__all__ = [
    "INSERTED_SHARE",
    "RMAT_PROBABILITIES",
    "PreferentialAttachment",
    "chains",
    "edge_list",
    "grid",
    "preferential_attachment",
    "published",
    "rmat",
    "temporal_stream",
    "uniform",
    "update_stream",
]
