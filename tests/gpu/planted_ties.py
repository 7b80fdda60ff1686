"""Graphs with planted ties, their exact ranks, and which vertices tie."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import numpy as np
from numpy.typing import NDArray

from liverank_gpu import EdgeBatch, Engine
from tests.gpu.graphs import arc_weights_of, arcs_of

CORE, SOURCES = 60, 5
TWINS, NEARLY, LOOPED, OTHER_LOOP, COPIES = (60, 61, 62), 63, (64, 65), 66, (67, 68)
VERTICES = 69
SEEDS = np.array([1, 2])

PAIRS = [
    (10 * number + place, target)
    for number in range(1, 5)
    for place in range(number)
    for target in (2 * number - 2, 2 * number - 1, 100, 101)
]
"""Edges to four pairs of vertices: the first pair has one source, the last one four. Each source
has four out-edges, so that 4, 8, 12 and 16 entries may be read.
"""

FOUND = [
    (40, 0, 4),
    (39, 0, 3),
    (24, 0, 3),
    (23, 0, 2),
    (11, 0, 1),
    (3, 0, 0),
    # lists of as many sources are too long for so many vertices
    (48, 8, 4),
    (47, 8, 3),
    (24, 8, 2),
    (23, 8, 1),
    (11, 8, 1),
]
"""The most entries to read, how many others are asked for too, and how many pairs are found."""


def asked_of_pairs(others: int) -> NDArray[np.int64]:
    """One of each pair, and some of their sources, to which no edges lead."""
    return np.array([7, 4, 2, 0, *sorted({source for source, _ in PAIRS})[:others]])


def planted(seed: int, weighted: bool, directed: bool = True) -> EdgeBatch:
    """A random core, and vertices that only these edges lead to: TWINS have the same sources, the
    seeds among them; NEARLY has one source more, or a weight that is the next float32; LOOPED have
    the sources of the TWINS and loops of the same share, OTHER_LOOP of another; COPIES are equal by
    symmetry and have different sources.
    """
    generator = np.random.default_rng(seed)
    edges = {(int(u), int(v)): 1.0 for u, v in generator.integers(0, CORE, (300, 2))}
    for rank, source in enumerate([1, 2, *range(10, 8 + SOURCES)]):
        for target in (*TWINS, NEARLY, *LOOPED, OTHER_LOOP):
            edges[source, target] = [2.0, 0.3, 7.0, 2.0, 1.0][rank]
    if weighted:
        edges[1, NEARLY] = float(np.nextafter(np.float32(2.0), np.float32(3.0)))
    else:
        edges[CORE - 1, NEARLY] = 1.0
    edges |= {(vertex, vertex): 1.0 for vertex in (*LOOPED, OTHER_LOOP)}
    edges |= _leaving() if directed else _symmetric()
    pairs = generator.permutation(np.array(list(edges)))
    weights = np.array([edges[u, v] for u, v in pairs.tolist()], np.float32)
    return EdgeBatch(
        pairs[:, 0], pairs[:, 1], vertices=VERTICES, weights=weights if weighted else None
    )


def _leaving() -> dict[tuple[int, int], float]:
    edges = {(OTHER_LOOP, 31): 1.0, (TWINS[2], 40): 1.0}
    for number, twin in enumerate((*TWINS, NEARLY)):
        edges |= {(twin, 3 + number): 1.0, (twin, 20 + number): 4.0}
    edges |= {(vertex, 30): 1.0 for vertex in (*LOOPED, OTHER_LOOP, *COPIES)}
    edges |= dict.fromkeys(zip(TWINS, COPIES, strict=False), 0.5)
    return edges


def _symmetric() -> dict[tuple[int, int], float]:
    """Of an undirected graph, where whatever leaves a twin leads to it."""
    return {(OTHER_LOOP, 31): 1.0, COPIES: 0.5} | dict.fromkeys(((1, copy) for copy in COPIES), 0.5)


def exact_ranks(engine: Engine, restarts: NDArray[np.longdouble]) -> NDArray[np.longdouble]:
    """The ranks to 1e-16, by power iteration with longer floats. restarts: [vertices], of sum 1"""
    vertices, damping = engine.vertices, np.longdouble(engine.options.damping)
    weights = np.zeros((vertices, vertices), np.longdouble)
    sources, targets = arcs_of(engine)
    weights[targets, sources] = arc_weights_of(engine)
    if engine.options.dangling == "self-loop":
        np.fill_diagonal(weights, 1)
    sums = weights.sum(axis=0)
    walk = np.where(sums > 0, weights / np.where(sums > 0, sums, 1), restarts[:, None])
    ranks = restarts
    for _ in range(250):
        ranks = damping * (walk @ ranks) + (1 - damping) * restarts
    return ranks


def kinds(engine: Engine, restarts: NDArray[np.floating[Any]]) -> list[Any]:
    """What the rank of each vertex follows from: equal for ties alone, and different for each
    vertex without in-edges.
    """
    lists = defaultdict[int, list[tuple[int, float]]](list)
    loops, strengths = defaultdict[int, float](float), defaultdict[int, float](float)
    loop = 1.0 if engine.options.dangling == "self-loop" else 0.0
    for u, v, w in zip(
        *map(np.ndarray.tolist, arcs_of(engine)), arc_weights_of(engine).tolist(), strict=True
    ):
        strengths[u] += w
        if u == v:
            loops[u] = w
        else:
            lists[v].append((u, w))
    return [
        (
            tuple(sorted(lists[v])) or v,
            (loops[v] or loop) / max(strengths[v] + (0.0 if loops[v] else loop), 1e-9),
            restarts[v],
        )
        for v in range(engine.vertices)
    ]


def in_right_order(ranks: NDArray[np.longdouble], kinds: list[Any]) -> list[int]:
    """All vertices by rank, those of a kind by id: these are equal to 1e-16 only."""
    first: dict[Any, int] = {}
    of_kinds = [ranks[first.setdefault(kind, vertex)] for vertex, kind in enumerate(kinds)]
    assert np.abs(ranks - of_kinds).max() < 1e-16
    return sorted(range(len(ranks)), key=lambda vertex: (-of_kinds[vertex], vertex))
