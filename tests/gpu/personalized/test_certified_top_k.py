"""What rounding may have hidden from the residual counts in the places that are certified."""

from __future__ import annotations

import numpy as np

from liverank_gpu import EdgeBatch, Options
from liverank_gpu.graph.dynamic_graph import DynamicGraph
from liverank_gpu.operations.backend import Backend
from liverank_gpu.pagerank.iterate import Workspace
from liverank_gpu.personalized.certified_top_k import certified_top_k
from liverank_gpu.personalized.iterate import PersonalizedIterate, Seeds

A, B, C = range(3)
GAP = 1e-6
DAMPING = 0.05
"""So small that what is hidden at a vertex adds more to its own rank than to all others."""


def _first(backend: Backend, hidden: float) -> tuple[int, int]:
    """The first place, and how many are settled. B is first by GAP. Its entry of y lacks `hidden`,
    which the residual does not show; all that the certificate says of it is how far the residual
    may be off.
    """
    graph = DynamicGraph(backend, "uniform")
    graph.apply(EdgeBatch.of([(A, C), (B, C), (C, A), (C, B)]))
    workspace = Workspace(backend, "a personalized vector")
    workspace.extend(graph.vertices)
    half = 0.5 * GAP / (1.0 - DAMPING)
    seeds = Seeds.of(graph.vertices, np.array([A, B]), np.array([0.5 - half, 0.5 + half]))
    iterate = PersonalizedIterate(graph, workspace, Options(damping=DAMPING), seeds)
    iterate.push_to(1e-11, 1.0, 1 << 20, 1 << 20)
    assert iterate.error_bound <= 1e-11
    iterate.certificate.add_error(hidden * (1.0 + DAMPING))
    workspace.values[B] -= hidden
    found = certified_top_k(iterate, 1)
    return int(found.vertices[0]), found.proven.settled


def test_what_rounding_hides_may_all_be_at_one_vertex(backend: Backend) -> None:
    assert _first(backend, 0.0) == (B, 1)
    assert _first(backend, 1.5 * GAP) == (A, 0)


def test_what_cannot_change_the_order_does_not_hinder(backend: Backend) -> None:
    assert _first(backend, 0.2 * GAP) == (B, 1)
