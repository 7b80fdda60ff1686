"""What rounding may have hidden from the residual counts in the places that are certified."""

from __future__ import annotations

from typing import Any
from unittest.mock import patch

import numpy as np

from liverank_gpu import EdgeBatch, Engine, Options, Personalized, PersonalizedQuery
from liverank_gpu.operations.backend import Backend
from liverank_gpu.personalized import query as module
from liverank_gpu.personalized.certified_top_k import CertifiedTopK, certified_top_k
from liverank_gpu.personalized.iterate import PersonalizedIterate

A, B, C = range(3)
GAP = 1e-6
DAMPING = 0.05
"""So small that what is hidden at a vertex adds more to its own rank than to all others."""


def _answered(backend: Backend, hidden: float) -> Personalized:
    """B is first by GAP. Its entry of y lacks `hidden`, which the residual does not show; all that
    the certificate says of it is how far the residual may be off.
    """
    engine = Engine(Options(damping=DAMPING), backend)
    engine.apply(EdgeBatch.of([(A, C), (B, C), (C, A), (C, B)]))

    def disturbed(iterate: PersonalizedIterate, *arguments: Any) -> CertifiedTopK:
        iterate.certificate.add_error(hidden * (1.0 + DAMPING))
        iterate.workspace.values[B] -= hidden
        return certified_top_k(iterate, *arguments)

    first, second = 0.5 + 0.5 * GAP / (1.0 - DAMPING), 0.5 - 0.5 * GAP / (1.0 - DAMPING)
    asked = PersonalizedQuery(
        np.array([A, B]), np.array([second, first]), k=1, method="push", target_error=1e-11
    )
    with patch.object(module, "certified_top_k", disturbed):
        return engine.personalized_many([asked])[0]


def test_what_rounding_hides_may_all_be_at_one_vertex(backend: Backend) -> None:
    right = _answered(backend, 0.0)
    assert (right.vertices.tolist(), right.settled) == ([B], 1)
    wrong = _answered(backend, 1.5 * GAP)
    assert (wrong.vertices.tolist(), wrong.settled) == ([A], 0)


def test_what_cannot_change_the_order_does_not_hinder(backend: Backend) -> None:
    answer = _answered(backend, 0.2 * GAP)
    assert (answer.vertices.tolist(), answer.settled) == ([B], 1)
