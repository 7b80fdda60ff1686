"""Commands that meet a server that is still starting."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.service.server import Server, running


@pytest.fixture(scope="module")
def started(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with running(tmp_path_factory.mktemp("data")) as server:
        yield server


@pytest.mark.parametrize(
    ("command", "needs_times"), [("load", False), ("replay", True)], ids=["load", "replay"]
)
def test_a_command_waits_for_a_server_that_starts(
    run: Any,
    started: Server,
    triangle: Path,
    command: str,
    needs_times: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url, reasons = started.url("").rstrip("/"), iter(["compiling kernels"] * 40 + [None])
    if needs_times:
        triangle.write_text("source,target,time\na,b,1\nb,c,2\n")
    monkeypatch.setattr("tenacity.nap.time", SimpleNamespace(sleep=lambda _: advance()))

    def advance() -> None:
        monkeypatch.setattr(started.catalog, "_not_ready", next(reasons))

    advance()
    size = ("--batch-size", 1) if needs_times else ()
    code, _, error = run(command, triangle, *size, "--graph", command, "--url", url)
    assert (
        error.splitlines().count(f"waiting for {url}: the server is not ready: compiling kernels")
        == 1
    )
    assert (code, started.catalog.get(command).name) == (0, command)


def test_the_wait_for_a_server_ends(
    run: Any, started: Server, triangle: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = started.url("").rstrip("/")
    monkeypatch.setattr(started.catalog, "_not_ready", "compiling kernels")
    code, _, error = run("load", triangle, "--url", url, "--wait", 0)
    assert (code, error.splitlines()) == (
        1,
        ["liverank: Not ready: the server is not ready: compiling kernels"],
    )
