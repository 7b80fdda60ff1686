"""The benchmark of fused sweeps."""

from __future__ import annotations

import numpy as np
import pytest

from benchmarks import fused, tables
from benchmarks.inputs import grid
from liverank_gpu import EdgeBatch, Options
from tests.cuda_emulator.emulated import emulated_backend


def test_both_ways_are_measured_and_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fused, "TARGETS", (1e-3,))
    monkeypatch.setattr(fused, "UNTIMED", 0)
    batch, options = EdgeBatch(*grid(np, 8)), Options(target_error=1e-3)
    rows = list(fused.measured("grid 8", batch, options, emulated_backend(), 1))
    assert [row["target_error"] for row in rows] == [1e-3]
    for row in rows:
        for way in fused.LAUNCHES:
            assert 0.0 < row[way]["bound"] <= row["target_error"]
            assert row[way]["milliseconds"] > 0.0
        assert row["single"]["sweeps"] == row["fused"]["sweeps"] > 1
    assert tables.engine.fused({"figures": rows}).count("| grid 8 |") == 1
