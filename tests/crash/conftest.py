from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.crash.disk import Event, read_events
from tests.crash.nursery import Nursery

Record = Callable[[str, Path], list[Event]]


@pytest.fixture(scope="session")
def disk_library(library: Path | None) -> Path:
    """Of disk.c, to be preloaded."""
    if library is None:
        pytest.skip("no C compiler for the library that records writes")
    return library


@pytest.fixture(scope="session", name="nursery")
def _nursery(disk_library: Path, nursery: Nursery) -> Nursery:  # noqa: ARG001
    return nursery


@pytest.fixture(scope="session")
def record(disk_library: Path) -> Record:
    """Runs a program, whose argument is an empty directory, and returns what it did below it."""

    def run(program: str, directory: Path) -> list[Event]:
        directory.mkdir()
        events = directory.with_name(f"{directory.name}-record")
        environment = {
            "LD_PRELOAD": str(disk_library),
            "DISK_RECORD": str(events),
            "DISK_DIRECTORY": str(directory),
            "DISK_FAULT": str(directory.with_name(f"{directory.name}-fault")),
        }
        subprocess.run(
            [sys.executable, "-c", program, str(directory)],
            env=os.environ | environment,
            cwd=Path(__file__).parents[2],
            check=True,
            timeout=300,
        )
        return read_events(events)

    return run
