"""Tests of the engine by two worker processes: a part of ``pytest tests/gpu --shards 2``."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.gpu.sharded.outcomes import Outcomes, attach
from tests.gpu.sharded.suite import part_of

ROOT = Path(__file__).parents[3]

SELECTION = (
    "graph/test_weights.py::test_a_sum_that_exceeds_float32_changes_nothing",
    "graph/test_weights.py::test_the_first_edge_whose_sum_exceeds_float32_is_named",
    "graph/test_decay.py::test_times_far_from_0_are_refused",
    "pagerank/test_removal.py::test_all_vertices_can_be_removed",
    "pagerank/test_removal.py::test_a_removed_vertex_has_no_rank_and_no_place",
    "pagerank/test_removal.py::test_queries_that_lose_a_seed_say_so",
    "personalized/test_published_personalized.py::test_only_some_vertices_are_answered",
    "personalized/test_views.py::test_a_view_loses_the_seeds_that_are_removed",
    "personalized/test_watched.py::test_a_watched_query_is_read_replaced_and_forgotten",
    "personalized/test_within.py::test_ranks_are_those_of_the_induced_subgraph[cpu-weighted]",
    "programs/test_running.py",
    "test_snapshot.py",
)
"""Weights, times, removed vertices, queries in both forms, also watched and within sets, views, and
snapshots; programs, of which shards run some. Each takes a second or two.
"""


def test_two_workers_pass_a_part_of_the_suite_and_name_what_they_refuse() -> None:
    tests = [f"tests/gpu/{each}" for each in SELECTION]
    command = [sys.executable, "-m", "pytest", "-q", "--shards", "2", "-p", "no:cacheprovider"]
    run = subprocess.run(
        [*command, *tests], cwd=ROOT, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-2000:]
    counts = {kind: int(count) for count, kind in re.findall(r"^ *(\d+)  (.+)$", run.stdout, re.M)}
    assert counts["passed"] >= 10
    assert counts["refused"] > 0
    assert any("ShardedEngine has no program support" in kind for kind in counts)
    assert "failed" not in counts


def test_what_tests_showed_is_counted_from_their_reports() -> None:
    reports = [
        _report("passed", None, has_engine=True),
        _report("passed", None, has_engine=False),
        _report("failed", "AssertionError", has_engine=True),
        *[_report("skipped", ("file.py", 3, "Skipped: not run: generators"))] * 2,
        _report("skipped", ("file.py", 3, "refused: ShardedEngine has no program support")),
        _report("skipped", ("file.py", 3, "Skipped: needs two GPUs")),
    ]
    outcomes = Outcomes(shards=2)
    for report in reports:
        outcomes.pytest_runtest_logreport(report)
    assert outcomes.kinds == {
        "passed": 1,
        "without an engine": 1,
        "failed": 1,
        "not run": 2,
        "refused": 1,
        "skipped": 1,
    }
    assert outcomes.reasons == {
        "not run: generators": 2,
        "refused: ShardedEngine has no program support": 1,
        "skipped: needs two GPUs": 1,
    }


def _report(outcome: Any, shown: Any, has_engine: bool = False) -> pytest.TestReport:
    report = pytest.TestReport("test", ("file.py", 3, "test"), {}, outcome, shown, "call")
    attach(report, has_engine)
    return report


@pytest.mark.parametrize("count", [1, 2, 3, 8])
def test_processes_divide_the_cores(count: int) -> None:
    cores = [0, 2, 3, 5, 8, 9, 10, 11]
    parts = [part_of(cores, number, count) for number in range(count)]
    assert [core for part in parts for core in part] == cores
    # more processes than cores
    assert [part_of([4, 6], number, 5) for number in range(5)] == [[4], [4], [4], [6], [6]]
