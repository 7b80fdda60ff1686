"""The benchmark of fused sweeps."""

from __future__ import annotations

import numpy as np

from benchmarks import fused, tables
from benchmarks.inputs import grid
from gpu import EdgeBatch, Options
from tests.cuda_emulator.emulated import emulated_backend


def test_both_ways_are_measured_and_shown() -> None:
    batch = EdgeBatch(*grid(np, 12))
    rows = list(fused.measured("grid 12", batch, Options(), emulated_backend(), 1))
    assert [row["target_error"] for row in rows] == list(fused.TARGETS)
    for row in rows:
        for way in fused.LAUNCHES:
            assert 0.0 < row[way]["bound"] <= row["target_error"]
            assert row[way]["milliseconds"] > 0.0
        assert row["single"]["sweeps"] == row["fused"]["sweeps"] > 1
    assert tables.engine.fused({"figures": rows}).count("| grid 12 |") == len(fused.TARGETS)
