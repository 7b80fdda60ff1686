"""Pushes from a residual that a test chooses."""

from __future__ import annotations

import numpy as np

from liverank_gpu import EdgeBatch, Engine, Options
from liverank_gpu.operations.backend import Backend
from liverank_gpu.operations.residual import (
    Push,
    PushLimits,
    PushResult,
    SelectCandidates,
)
from liverank_gpu.types import BackendName

LEAF, FIRST, LAST = 1, 2, 9
"""Of `solved`: a vertex without edges, and the first and last vertex of the circle."""

_LIMITS: dict[str, float] = {
    "edge_weight": 0.0,
    "round_edges": 1 << 20,
    "edges": 1 << 20,
    "rounds": 1,
}


def solved(backend: Backend | BackendName = "cpu") -> Engine:
    """Vertex 0 has a loop alone, LEAF nothing, FIRST to LAST are a circle, and 10 links to all."""
    engine = Engine(Options(), backend)
    circle, all_others = np.arange(FIRST, LAST + 1), np.arange(11, 111)
    sources = np.concatenate([circle, [0], np.full(100, 10)])
    engine.apply(EdgeBatch(sources, np.concatenate([np.roll(circle, 1), [0], all_others])))
    engine.update()
    return engine


def pushed(
    engine: Engine,
    entries: dict[int, float],
    floor: float,
    *,
    threshold: float = 1.0,
    **limits: float,
) -> PushResult:
    """One round, or as `limits` say (see PushLimits), from a residual that has these entries alone,
    which are all listed.
    """
    backend, iterate = engine.internals.backend, engine.internals.iterate
    residual = iterate.workspace.residual
    residual.values[:] = 0.0
    for v, value in entries.items():
        residual.values[v] = value
    backend.run(SelectCandidates(residual, 0.5 * min(map(abs, entries.values()))))
    assert residual.listed == len(entries)
    residual.floor = floor
    told = PushLimits(
        residual_l1=sum(map(abs, entries.values())),
        residual_sum=sum(entries.values()),
        mass=iterate.certificate.mass,
        goal=0.0,
        threshold=threshold,
        **_LIMITS | limits,  # type: ignore[arg-type]
    )
    view, damping = engine.internals.graph.view, engine.options.damping
    return backend.run(Push(view, iterate.values, damping, residual, told))
