"""Grids, which have low degrees and long paths, as road networks have."""

from __future__ import annotations

import numpy as np

from liverank_gpu.errors import InvalidValue
from liverank_gpu.generate.edges import Edges
from liverank_gpu.random_numbers import KEEP_SEQUENCE, random_numbers
from liverank_gpu.types import VERTEX_LIMIT


def grid(rows: int, columns: int, *, keep: float = 1.0, seed: int = 0) -> Edges:
    """A grid in which every vertex is joined to its four neighbours in both directions, like
    streets.

    Vertex `row · columns + column`. A joint (both of its edges) is kept with probability `keep`, so
    that a value below 1 leaves dead ends and detours as in road networks: low degrees and long
    paths, where R-MAT has hubs and short ones. Returns sources and targets, int64[m], without
    repeats; m = 2 · (rows · (columns - 1) + (rows - 1) · columns) where all are kept.

    Raises InvalidValue for less than one row or column, more vertices than ids, or keep out of (0,
    1].
    """
    for name, count in (("rows", rows), ("columns", columns)):
        if count < 1:
            raise InvalidValue(name, count, "an integer of at least 1")
    if rows * columns > VERTEX_LIMIT:
        raise InvalidValue("rows · columns", rows * columns, f"at most {VERTEX_LIMIT}")
    if not 0.0 < keep <= 1.0:
        raise InvalidValue("keep", keep, "a number above 0 and at most 1")
    ids = np.arange(rows * columns, dtype=np.int64).reshape(rows, columns)
    first = np.concatenate([ids[:, :-1].ravel(), ids[:-1, :].ravel()])
    second = np.concatenate([ids[:, 1:].ravel(), ids[1:, :].ravel()])
    if keep < 1.0:
        kept = random_numbers(seed, KEEP_SEQUENCE, len(first)) < np.uint64(keep * 2.0**64)
        first, second = first[kept], second[kept]
    return np.concatenate([first, second]), np.concatenate([second, first])
