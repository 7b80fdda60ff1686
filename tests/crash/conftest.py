from __future__ import annotations

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
def record(nursery: Nursery) -> Record:
    """Runs a program, whose argument is an empty directory, and returns what it did below it."""

    def run(program: str, directory: Path) -> list[Event]:
        directory.mkdir()
        events = directory.with_name(f"{directory.name}-record")
        environment = {
            "DISK_RECORD": str(events),
            "DISK_DIRECTORY": str(directory),
            "DISK_FAULT": str(directory.with_name(f"{directory.name}-fault")),
        }
        done = nursery.run(f"import os; os.environ.update({environment})\n{program}", directory)
        assert done.returncode == 0, done.stderr
        return read_events(events)

    return run
