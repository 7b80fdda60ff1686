"""Graphs and update streams from a seed.

    sources, targets = rmat(scale=16, edges_per_vertex=16, seed=7)
    for batch in update_stream(sources, targets, 2**16, size=1_000, batches=100, seed=7):
        engine.apply(batch)

The same arguments give the same graph on any number of threads, on any launch shape and on every
backend: random numbers are counter-based (gpu.jit.random_numbers).
"""

from gpu.generate.chains import chains
from gpu.generate.grid import grid
from gpu.generate.preferential_attachment import PreferentialAttachment, preferential_attachment
from gpu.generate.rmat import RMAT_PROBABILITIES, rmat
from gpu.generate.temporal import temporal_stream
from gpu.generate.uniform import uniform
from gpu.generate.updates import INSERTED_SHARE, update_stream

__all__ = [
    "INSERTED_SHARE",
    "RMAT_PROBABILITIES",
    "PreferentialAttachment",
    "chains",
    "grid",
    "preferential_attachment",
    "rmat",
    "temporal_stream",
    "uniform",
    "update_stream",
]
