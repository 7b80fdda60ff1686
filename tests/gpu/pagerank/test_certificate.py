"""The error account: the published bound holds what its documentation says, and not much more."""

from __future__ import annotations

import numpy as np
import pytest

from liverank_gpu.operations.residual import ResidualDelta
from liverank_gpu.pagerank.certificate import UNIT_ROUNDOFF, Certificate, gather_roundoff


@pytest.mark.parametrize("depth", [1, 40, 5_000])
def test_a_row_sum_is_off_by_as_much_as_documented(depth: int) -> None:
    assert gather_roundoff(depth) == 6 * (depth + 4) * UNIT_ROUNDOFF
    assert gather_roundoff(depth, weighted=True) == 6 * (depth + 5) * UNIT_ROUNDOFF


def test_iterates_of_a_block_start_with_a_bound_each() -> None:
    certificate = Certificate(0.85)
    certificate.start(np.full(3, 0.15))
    assert np.array_equal(np.asarray(certificate.mass), np.zeros(3))
    assert np.array_equal(np.asarray(certificate.error_bound), np.full(3, np.inf))


@pytest.mark.parametrize("operations", [1, 10])
def test_the_rounding_of_every_operation_adds_up(operations: int) -> None:
    certificate = Certificate(0.85)
    certificate.start(1.0)
    start = certificate.uncertainty
    delta = ResidualDelta(mass=1.0, moved=2.0, magnitude=3.0, additions=1_000)
    for _ in range(operations):
        certificate.add(delta)
    in_r = delta.magnitude + 2.0 * delta.moved + 8.0 * delta.moved
    in_sums = 2.0 * (delta.additions + 8.0) * delta.moved + 4.0 * (1.0 + 1.0)
    # ‖r‖₁ and |Σr| can each be off by both
    expected = 2.0 * operations * (in_r + in_sums) * UNIT_ROUNDOFF
    assert certificate.uncertainty - start == pytest.approx(expected, rel=1e-9)
