"""A server for the commands, the commands in this process, and a small graph."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer.main

from liverank_service.cli import display
from liverank_service.cli import main as cli
from liverank_service.cli.demo import running_service

# Typer builds all commands for each call, which takes longer than most of them
pytest.MonkeyPatch().setattr("typer.main.get_command", cache(typer.main.get_command))


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a server with an empty data directory."""
    with running_service(tmp_path_factory.mktemp("data")) as address:
        yield address


@pytest.fixture(autouse=True)
def _silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine any command may take so long that it says so."""
    monkeypatch.setattr(display, "FIRST_SECONDS", 3600.0)


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Any:
    """Runs a command line in this process: its exit code, stdout and stderr."""

    def run_here(*arguments: object) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as end:
            cli.main([str(argument) for argument in arguments])
        printed = capsys.readouterr()
        return int(end.value.code or 0), printed.out, printed.err

    return run_here


@pytest.fixture
def triangle(tmp_path: Path) -> Path:
    """a → b → c → a, and d → a."""
    file = tmp_path / "triangle.csv"
    file.write_text("source,target\na,b\nb,c\nc,a\nd,a\n")
    return file
