"""What a record says of a run."""

from __future__ import annotations

from pathlib import Path

from benchmarks import harness


def test_a_recorded_command_has_no_folder_of_one_machine(tmp_path: Path) -> None:
    program = str(harness.ROOT / "tests" / "crash" / "simulator.py")
    given = ["--seeds", "3", "--directory", str(tmp_path), "--results", str(tmp_path)]
    assert harness.command([program, *given]) == "python -m tests.crash.simulator --seeds 3"


def test_a_recorded_command_has_the_folders_beside_the_project(tmp_path: Path) -> None:
    program = str(harness.ROOT / "benchmarks" / "authors" / "__main__.py")
    given = [str(tmp_path), "--folder", str(tmp_path), "--push", "14"]
    told = "python -m benchmarks.authors ../shared/data --folder ../authors --push 14"
    assert harness.command([program, *given]) == told
