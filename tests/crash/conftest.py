from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.crash.nursery import Nursery
from tests.crash.recorded_disk import Event, read_events

Record = Callable[[str, Path], list[Event]]


@pytest.fixture(scope="session")
def nursery(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Nursery]:
    started = Nursery(tmp_path_factory.mktemp("log") / "servers.log")
    yield started
    started.close()


@pytest.fixture(scope="session")
def record(tmp_path_factory: pytest.TempPathFactory) -> Record:
    """Runs a program, whose argument is an empty directory, and returns what it did below it."""
    compiler = shutil.which("gcc") or shutil.which("g++")
    if compiler is None:
        pytest.skip("no C compiler for the library that records writes")
    folder = tmp_path_factory.mktemp("shim")
    library = folder / "recording_disk.so"
    source = Path(__file__).with_name("recording_disk.c")
    command = [compiler, "-x", "c", "-shared", "-fPIC", "-O1", "-o", str(library), str(source)]
    subprocess.run([*command, "-ldl", "-lpthread"], check=True)

    def run(program: str, directory: Path) -> list[Event]:
        directory.mkdir()
        events = directory.with_name(f"{directory.name}-record")
        environment = {
            "LD_PRELOAD": str(library),
            "RECORDING_DISK": str(events),
            "RECORDING_DISK_DIRECTORY": str(directory),
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
