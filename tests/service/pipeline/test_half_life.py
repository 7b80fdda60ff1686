"""Weights that decay, through the pipeline: batches that wait together, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from liverank_service.errors import BatchRejected
from tests.service.graphs import receipt, submit, timed_batch, together, working

OPTIONS: dict[str, Any] = {"half_life": 10.0, "target_error": 1e-9}


def test_batches_that_wait_together_count_each_what_they_expire(tmp_path: Path) -> None:
    """Each makes the edge of the one before 500 half-lives old."""
    with working(tmp_path, **OPTIONS) as pipeline:
        sent = [timed_batch([("a", f"t{number}", 5000.0 * number)]) for number in range(4)]
        together(pipeline, sent)
        found = [receipt(one) for one in sent]
        assert [(one["inserted"], one["expired"]) for one in found] == [(1, 0), *[(1, 1)] * 3]
        assert pipeline.view.edges == 1
    with working(tmp_path, **OPTIONS) as pipeline:
        assert pipeline.view.edges == 1


def test_a_time_that_the_engine_refuses_is_named_as_that_of_an_insertion(tmp_path: Path) -> None:
    with working(tmp_path, **OPTIONS) as pipeline:
        far = timed_batch([("a", "b", 1.0), ("b", "c", 1e300)])
        submit(pipeline, far)
        with pytest.raises(BatchRejected, match=r"insert\[1\]: time: 1e\+300 must be within 2⁴⁰"):
            far.ranked.result(60)
        assert pipeline.view.vertices == 0
