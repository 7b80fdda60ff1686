"""Uniform random graphs, G(n, m)."""

from __future__ import annotations

from liverank_gpu.generate.edges import Columns, check_count, chosen
from liverank_gpu.operations.backend import Backend
from liverank_gpu.random_numbers import UNIFORM_SEQUENCE, sequence_start
from liverank_gpu.types import BackendName


def uniform(
    vertices: int, edges: int, *, seed: int = 0, backend: BackendName | Backend = "cpu"
) -> Columns:
    """`edges` distinct directed edges between distinct vertices, as good as uniformly chosen.

    Edge i is a pseudorandom permutation of the n(n-1) ordered pairs applied to i: a Feistel network
    of 6 rounds with cycle walking (Black and Rogaway, "Ciphers with arbitrary finite domains",
    2002). So edges are distinct whatever thread draws them, and more edges of the same seed and
    vertices begin with these. Returns sources and targets, int32[edges], where `backend` computes.

    Raises InvalidValue for more edges than pairs, OutOfMemory and BackendUnavailable.
    """
    check_count("vertices", vertices)
    check_count("edges", edges, 0, vertices * (vertices - 1))
    start = sequence_start(seed, UNIFORM_SEQUENCE)
    return chosen(backend).generate.uniform(start, vertices, edges)
