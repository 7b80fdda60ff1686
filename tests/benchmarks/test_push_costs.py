"""The benchmark of what a push costs, and the comparison of costs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest

from benchmarks import push_costs, residual, tables
from benchmarks.inputs import drawn_grid
from benchmarks.push_costs import TERMS, Pushes, fitted
from liverank_gpu.backends import backend_named
from tests.cuda_emulator.emulated import emulated_backend


def pushes(costs: tuple[float, ...], count: int, seed: int, noise: float = 0.0) -> Pushes:
    """Pushes that take what they cost, but for a relative error."""
    generator = np.random.default_rng(seed)
    counts = np.ones((count, len(TERMS)))
    counts[:, 1:] = generator.integers(1, (50, 5_000, 100_000), (count, 3))
    units = counts @ np.array(costs) * (1.0 + noise * generator.uniform(-1.0, 1.0, count))
    return Pushes(counts, units)


def test_the_costs_of_pushes_are_found() -> None:
    costs = (40_000.0, 1_500.0, 25.0, 6.0)
    found = fitted([pushes(costs, 30, 1), pushes(costs, 200, 2)])
    assert [found[term] for term in TERMS] == pytest.approx(costs, rel=1e-3)
    assert found["relative_error"] < 1e-6
    found = fitted([pushes(costs, 300, 3, noise=0.1)])
    assert [found[term] for term in TERMS] == pytest.approx(costs, rel=0.3)
    assert 0.03 < found["relative_error"] < 0.08


def test_no_cost_is_negative() -> None:
    found = fitted([pushes((-500.0, 0.0, 25.0, 6.0), 300, 4)])
    assert found["push_overhead"] == found["round_overhead"] == 0.0
    assert found["pushed_vertex"] > 0.0
    alone = fitted([pushes((0.0, 0.0, 0.0, 6.0), 20, 5)], ("pushed_edge",))
    assert alone["pushed_edge"] == pytest.approx(6.0)
    assert [alone[term] for term in TERMS[:-1]] == [0.0] * 3


@pytest.mark.parametrize("name", ["cpu", "cuda"])
def test_pushes_of_both_backends_are_counted(name: str) -> None:
    backend = backend_named("cpu") if name == "cpu" else emulated_backend()
    graph = drawn_grid(np, np.random.default_rng(1), 12)
    figures, found = push_costs.measured("grid 12", graph, 1e-3, backend, 6)
    assert figures["pushes"] == len(found.units) > 0
    assert found.counts[:, 0].tolist() == [1.0] * len(found.units)
    # every out-list has some entries: of the grid, and those that batches add
    assert figures["rounds"] < figures["entries"] < figures["pushed_edges"]
    assert figures["pushed_edges"] <= figures["edges"] * figures["rounds"]
    assert (found.units > 0.0).all()


def test_costs_take_turns(tmp_path: Path) -> None:
    given = ["{}", '{"pushed_edge": 1e12}']
    arguments = ["residual", "--rmat", "6", "--grid", "8", "--batches", "2", "--warm-up", "1"]
    arguments += ["--sizes", "5", "--costs", *given, "--results", str(tmp_path)]
    arguments[0] = str(residual.__file__)
    with patch("sys.argv", arguments):
        residual.main()
    document: dict[str, Any] = json.loads((tmp_path / "residual-cpu.json").read_text())
    rows = document["figures"]
    assert [row["graph"] for row in rows] == ["grid 8"] * 2 + ["R-MAT 6"] * 2
    assert [row["costs"] for row in rows] == [json.loads(costs) for costs in given] * 2
    for pushing, sweeping in (rows[:2], rows[2:]):
        # no push is affordable
        assert sweeping["mean_touched_vertices"] in (0.0, sweeping["vertices"])
        assert pushing["edges"] == sweeping["edges"]
    assert rows[0]["mean_touched_vertices"] < rows[1]["mean_touched_vertices"]
    shown = tables.engine.residual(document)
    assert shown.startswith("- costs 0: the backend's\n- costs 1: `pushed_edge` 1e+12\n")
    assert shown.count("| grid 8,") == shown.count("| R-MAT 6,") == 1
