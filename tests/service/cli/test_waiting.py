"""Commands that wait, such as for a server that is still starting: they say so."""

from __future__ import annotations

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import pytest

from liverank.client import Client
from liverank_service.cli import display
from liverank_service.cli.demo import running_service
from tests.service.server import Server, running

ROOT = Path(__file__).parents[3]
SECONDS = display.FIRST_SECONDS, display.LINE_SECONDS


class Clock:
    """Time that passes when a test says so, and the event that ends what is waited for.

    All pauses that were let pass before the wait ends are over before it does.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._ended = SimpleQueue[bool]()

    def let_pauses_pass(self, count: int) -> None:
        for _ in range(count):
            self._ended.put(False)

    def monotonic(self) -> float:
        return self._now

    def wait(self, seconds: float) -> bool:
        if ended := self._ended.get(timeout=60):
            return ended
        self._now += seconds
        return False

    def set(self) -> None:
        self._ended.put(True)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The clock of what is said about waits."""
    clock = Clock()
    events = SimpleNamespace(Event=lambda: clock, Thread=threading.Thread)
    monkeypatch.setattr(display, "FIRST_SECONDS", SECONDS[0])
    monkeypatch.setattr(display, "threading", events)
    monkeypatch.setattr(display, "time", clock)
    return clock


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


def test_a_wait_is_said_after_two_seconds_and_then_every_ten_without_a_terminal(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with display.working("ranking"), display.working("unseen"):
        clock.let_pauses_pass(3)
    lines = ["ranking … 2 s", "ranking … 12 s", "ranking … 22 s"]
    assert capsys.readouterr() == ("", "\n".join([*lines, ""]))
    with display.edge_progress(5_000) as sent:
        sent(2_000)
        clock.let_pauses_pass(1)
    assert capsys.readouterr() == ("", "edges, 2,000 of 5,000 … 2 s\n")
    with display.byte_progress("export") as advance:
        advance(1_234_567)
        clock.let_pauses_pass(1)
    assert capsys.readouterr() == ("", "export, 1,234,567 bytes … 2 s\n")


@pytest.mark.usefixtures("clock")
def test_what_takes_less_than_two_seconds_says_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    with display.working("ranking"):
        pass
    assert capsys.readouterr() == ("", "")


def test_a_call_that_the_server_does_not_answer_yet_is_a_wait(run: Any, clock: Clock) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"

        def answer() -> None:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65_536)
                clock.let_pauses_pass(2)
                body = b'{"graphs":[]}'
                head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body)
                connection.sendall(head + body)

        answering = threading.Thread(target=answer)
        answering.start()
        code, out, error = run("graphs", "--url", url, "--json")
        answering.join()
    assert (code, json.loads(out)) == (0, [])
    assert error.splitlines() == [f"waiting for {url} … 2 s", f"waiting for {url} … 12 s"]


def test_the_start_of_a_service_in_a_command_is_a_wait(
    tmp_path: Path,
    clock: Clock,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    enter = Client.__enter__

    def entered(client: Client) -> Client:
        clock.let_pauses_pass(1)
        return enter(client)

    monkeypatch.setattr(Client, "__enter__", entered)
    with running_service(tmp_path):
        assert "starting the service … 2 s" in capsys.readouterr().err.splitlines()


COMPILING = """
import time
from liverank_gpu import Engine
from liverank_service.cli.__main__ import main
Engine.compiles_kernels = True  # as on a GPU
Engine.warm_up = lambda _: time.sleep(60)
main()
"""


def test_a_server_logs_again_and_again_why_it_is_not_ready(tmp_path: Path) -> None:
    command = [sys.executable, "-c", COMPILING, "serve", "--data", str(tmp_path / "data")]
    with subprocess.Popen([*command, "--port", "0"], stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any(line.endswith("not ready: compiling kernels\n") for line in lines)
        process.kill()


def test_every_command_says_so_in_the_same_way() -> None:
    for path in (ROOT / "service/liverank_service/cli").rglob("*.py"):
        text = path.read_text("utf-8")
        if path.name != "display.py":
            assert not re.search(r"\b(Live|Progress|Status)\(", text), path
        if path.parent.name == "commands" and path.name != "options.py":
            assert not re.search(r"\bClient\(", text), path


def test_wait_is_for_a_server_that_is_not_there_yet(run: Any, triangle: Path) -> None:
    url = "http://127.0.0.1:9"
    began = time.monotonic()
    code, _, error = run("load", triangle, "--url", url, "--wait", 1)
    assert time.monotonic() - began > 0.5
    lines = error.splitlines()
    assert (code, len(lines)) == (1, 2)
    assert lines[0].startswith(f"waiting for {url}: ")
    assert lines[1].startswith(f"liverank: no answer from {url} (")
